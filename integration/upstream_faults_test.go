package integration

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// TestUpstreamDownAtStart: a clear error at once, and recovery without a restart.
// Only the upstream knows who must authenticate, so until it has been seen there
// may be no locks either; when it goes down later there must be.
func TestUpstreamDownAtStart(t *testing.T) {
	t.Parallel()
	data := redistest.Reserve(t)
	p := redistest.StartProxy(t, data, redistest.StartNodes(t, 3))
	c := redistest.Open(t, p.Addr())
	start := time.Now()
	v := c.Do(t, "GET", "a")
	if !v.IsError() || strings.HasPrefix(v.Text, "ERR unknown command") || time.Since(start) > 10*time.Second {
		t.Errorf("GET: %v after %v", v, time.Since(start))
	}
	t.Logf("a client is told: %v", v)
	if err := data.Restart(); err != nil {
		t.Fatal(err)
	}
	eventually(t, 9*time.Second, "the upstream is used once it is up", func() bool { return c.Do(t, "SET", "a", "1").Raw == "+OK\r\n" })
	mustLock(t, c, "job")
	data.Kill()
	eventually(t, 9*time.Second, "clients are told that it is down", func() bool { return c.Do(t, "GET", "a").IsError() })
	mustUnlock(t, c, "job")
	mustLock(t, redistest.Open(t, p.Addr()), "job")
}

// TestUpstreamRestarts under traffic: errors while it is down, none afterwards,
// and no write is executed twice.
func TestUpstreamRestarts(t *testing.T) {
	t.Parallel()
	data := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	p := redistest.StartProxy(t, data, redistest.StartNodes(t, 3))
	const clients, rounds = 8, 3
	var (
		stop  = make(chan struct{})
		group sync.WaitGroup
		sums  [clients]struct{ sent, acked atomic.Int64 }
	)
	awaitAcked := func(n int64) {
		var before [clients]int64
		for i := range sums {
			before[i] = sums[i].acked.Load()
		}
		eventually(t, 9*time.Second, "every client goes on", func() bool {
			for i := range sums {
				if sums[i].acked.Load() < before[i]+n && !t.Failed() {
					return false
				}
			}
			return true
		})
	}
	for i := range clients {
		group.Go(func() {
			var c *redistest.Conn
			for {
				select {
				case <-stop:
					return
				default:
				}
				if c == nil {
					var err error
					if c, err = redistest.Dial(p.Addr()); err != nil {
						t.Errorf("the proxy refuses connections: %v", err)
						return
					}
					defer c.Close()
				}
				sums[i].sent.Add(1)
				v, err := c.Try("INCR", fmt.Sprint("n", i))
				switch {
				case err != nil:
					c = nil // the proxy may close what it cannot answer
				case v.Kind == ':':
					sums[i].acked.Add(1)
				default:
					time.Sleep(5 * time.Millisecond)
				}
			}
		})
	}
	for range rounds {
		awaitAcked(40)
		data.Kill()
		time.Sleep(100 * time.Millisecond)
		if err := data.Restart(); err != nil {
			t.Fatal(err)
		}
	}
	awaitAcked(40)
	close(stop)
	group.Wait()
	c := redistest.Open(t, p.Addr())
	for i := range sums {
		sent, acked := sums[i].sent.Load(), sums[i].acked.Load()
		n := data.Do(t, "GET", fmt.Sprint("n", i))
		var stored int64
		if _, err := fmt.Sscan(n.Text, &stored); err != nil {
			t.Fatal(err)
		}
		if stored < acked || stored > sent || acked < 100 {
			t.Errorf("client %d: %d sent, %d acknowledged, %d executed", i, sent, acked, stored)
		}
		if v := c.Do(t, "GET", fmt.Sprint("n", i)); v.IsError() {
			t.Errorf("afterwards GET: %v", v)
		}
	}
}

// TestUpstreamHangs: clients of a stopped upstream wait, nobody else does, and
// their replies come when it continues.
func TestUpstreamHangs(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 1)
	c, other := redistest.Open(t, r.addr()), redistest.Open(t, r.addr())
	c.Do(t, "SET", "a", "1")
	mustLock(t, other, "warm")
	r.data.Pause()
	c.Send(t, lines("INCR a"))
	mustLock(t, other, "job")
	mustUnlock(t, other, "job")
	r.data.Resume()
	if v := c.Read(t); v.Raw != ":2\r\n" {
		t.Errorf("INCR: %v", v)
	}
}

// TestUpstream_DoesNotRead: when a stopped upstream does not even take what is sent to
// it, clients hear so after write_timeout and can leave; those that come meanwhile
// hear it too, and all is well when it continues.
func TestUpstream_DoesNotRead(t *testing.T) {
	t.Parallel()
	data := redistest.Start(t)
	listen, err := redistest.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	p := redistest.StartServe(t, listen, "--upstream", data.URL()+"?write_timeout=1s", "--lock-node", redistest.Start(t).URL())
	idle := redistest.Open(t, p.Addr())
	idle.Do(t, "SET", "a", "1")
	data.Pause()
	defer data.Resume()
	big := redistest.Command("SET", "big", strings.Repeat("x", 4<<20))
	var group sync.WaitGroup
	for range 16 {
		c := redistest.Open(t, p.Addr())
		group.Go(func() {
			if _, err := c.Write([]byte(big)); err != nil {
				t.Error(err)
			} else if v, err := c.Next(); err != nil || !strings.HasPrefix(v.Text, "UPSTREAMDOWN ") {
				t.Errorf("a write that the upstream did not take: %v, %v", v, err)
			}
		})
	}
	group.Wait()
	if v := idle.Do(t, "GET", "a"); !strings.HasPrefix(v.Text, "UPSTREAMDOWN ") {
		t.Errorf("GET afterwards: %v", v)
	}
	data.Resume()
	eventually(t, 9*time.Second, "the upstream is used again", func() bool { return idle.Do(t, "GET", "a").Text == "1" })
}
