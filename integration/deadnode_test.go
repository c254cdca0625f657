package integration

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// pairs locks and unlocks so many names, one after the other.
func pairs(t *testing.T, c *redistest.Conn, n int) {
	t.Helper()
	for range n {
		if v := c.Do(t, "LOCK", "job", "30s", "OWNER", "me"); len(v.Elems) != 4 {
			t.Fatalf("LOCK: %v", v)
		}
		if v := c.Do(t, "UNLOCK", "job", "me"); v.Int() != 1 {
			t.Fatalf("UNLOCK: %v", v)
		}
	}
}

// TestDeadNode_DoesNotSlowOtherNodes: with a node that is gone, or hangs, the others get
// the commands that they got before, and none more.
func TestDeadNode_DoesNotSlowOtherNodes(t *testing.T) {
	for name, fault := range failures {
		t.Run(name, func(t *testing.T) {
			const n = 200
			r := startRig(t, 3, 1, "--node-timeout", "2s")
			c := redistest.Open(t, r.addr())
			pairs(t, c, 1)
			during := func() (calls int) {
				before := r.nodes[0].Calls(t, "evalsha")
				pairs(t, c, n)
				return r.nodes[0].Calls(t, "evalsha") - before
			}
			with := during()
			fault.end(r.nodes[2])
			without := during()
			if with < n || without < n || without > with+n/4 { // a look every second aside
				t.Errorf("%d commands with the node, %d without", with, without)
			}
			if err := fault.back(r.nodes[2]); err != nil {
				t.Fatal(err)
			}
			pairs(t, c, 1)
		})
	}
}

// A node that accepts no connection is not dialed for every LOCK.
func TestDeadNode_IsRetriedRarely(t *testing.T) {
	r := startRig(t, 3, 1, "--node-timeout", "2s")
	c := redistest.Open(t, r.addr())
	pairs(t, c, 1)
	r.nodes[2].Kill()
	l, err := net.Listen("tcp", r.nodes[2].Addr())
	if err != nil {
		t.Fatal(err)
	}
	var dials atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			dials.Add(1)
			c.Close()
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	const n = 300
	pairs(t, c, n)
	if got := dials.Load(); got == 0 || got > n/3 {
		t.Errorf("the node was dialled %d times for %d LOCKs", got, n)
	}
}

// A slow node gets the hold after the quorum answered, and one that lost it gets it
// back by a renewal.
func TestLateNode_GetsTheHold(t *testing.T) {
	r := startRig(t, 3, 1, "--max-ttl", "30s", "--node-timeout", "2s")
	c := redistest.Open(t, r.addr())
	pairs(t, c, 1)
	has := func(s *redistest.Server, what string) {
		t.Helper()
		eventually(t, 9*time.Second, what, func() bool { return s.Do(t, "EXISTS", "lockproxy:lock:0:job").Int() == 1 })
	}
	r.nodes[2].Pause()
	if v := c.Do(t, "LOCK", "job", "30s", "OWNER", "me"); len(v.Elems) != 4 {
		t.Fatalf("LOCK: %v", v)
	}
	r.nodes[2].Resume()
	has(r.nodes[2], "the slow node has the lock")
	r.nodes[1].Do(t, "DEL", "lockproxy:lock:0:job")
	if v := c.Do(t, "RENEW", "job", "30s", "me"); v.Int() < 20000 {
		t.Errorf("RENEW: %v", v)
	}
	has(r.nodes[1], "the lock is put back where it was lost")
	if v := c.Do(t, "UNLOCK", "job", "me"); v.Int() != 1 {
		t.Errorf("UNLOCK: %v", v)
	}
}
