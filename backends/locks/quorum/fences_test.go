package quorum

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/backends/locks/voters"
	"github.com/lockproxy/lockproxy/integration/redistest"
	"github.com/lockproxy/lockproxy/scripts"
)

// TestRelease_LateAfterTheCounterExpired: a node whose counter of a name has expired
// assumes its largest fence for the name, and a late release must not make that less.
func TestRelease_LateAfterTheCounterExpired(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 1)
	n := redistest.Open(t, nodes[0].Addr())
	k := s.RedisKeys(locks.Key{DB: 0, Name: "job"})
	old := lock(t, s, "job", "alice", time.Second)
	unlock(t, s, "job", "alice", 0)
	ahead := strconv.FormatInt(time.Now().Add(time.Hour).UnixMicro(), 10) // as after a time with a clock that was ahead
	n.Do(t, "HSET", k.Node, "g", ahead)
	n.Do(t, "HSET", k.Fences, "c", ahead)
	before := lock(t, s, "job", "bob", time.Second)
	unlock(t, s, "job", "bob", 0)
	n.Do(t, "DEL", k.Fences)
	n.Do(t, s.Command(scripts.Release, k, "alice", strconv.FormatInt(old.Fence, 10), "unlock", "", old.Hold)...)
	if after := lock(t, s, "job", "carol", time.Second); after.Fence <= before.Fence {
		t.Errorf("fence %d after %d", after.Fence, before.Fence)
	}
}

// TestRelease_KeepsTheFences: they stay for their retention after an UNLOCK, also if the LOCK that stored them is long ago,
// since re-entries prolong the lease and store no fence, and if they were lost.
func TestRelease_KeepsTheFences(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 1)
	n := redistest.Open(t, nodes[0].Addr())
	k := s.RedisKeys(locks.Key{DB: 0, Name: "job"})
	stay := func(after string) {
		t.Helper()
		if left := n.Do(t, "PTTL", k.Fences).Int(); left < 600_000 {
			t.Errorf("after %s the fences stay for %d ms", after, left)
		}
	}
	lock(t, s, "job", "alice", 10*time.Second)
	unlock(t, s, "job", "alice", 0)
	stay("LOCK, UNLOCK")
	lock(t, s, "job", "alice", 10*time.Second)
	lock(t, s, "job", "alice", 10*time.Second)
	unlock(t, s, "job", "alice", 1)
	n.Do(t, "PEXPIRE", k.Fences, "60000")
	unlock(t, s, "job", "alice", 0)
	stay("a re-entry")
	lock(t, s, "job", "alice", 10*time.Second)
	n.Do(t, "DEL", k.Fences)
	unlock(t, s, "job", "alice", 0)
	stay("a loss")
}

// TestRestore_FloorOfAnEarlierQuarantine: fences read before a node's last quarantine was
// over may be from before leases it has forgotten since.
func TestRestore_FloorOfAnEarlierQuarantine(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 1)
	n := redistest.Open(t, nodes[0].Addr())
	lock(t, s, "job", "alice", time.Second)
	k := s.RedisKeys(locks.Key{DB: 0, Name: "job"})
	over := func(until string) string {
		n.Do(t, "HSET", k.Node, "until", until, "sync", "0", "id", "unset")
		n.Do(t, s.Command(scripts.State, k)...) // notes who the server is
		n.Do(t, "HSET", k.Node, "until", until, "since", "0", "sync", "0")
		return n.Do(t, s.Command(scripts.State, k)...).Elems[2].Text
	}
	refuses := func(floor, quarantine string) {
		t.Helper()
		if v := n.Do(t, s.Command(scripts.Restore, k, floor, quarantine, "0")...); v.Elems[0].Int() != int64(vote.Floorless) {
			t.Errorf("the floor of the quarantine before was taken: %v", v)
		}
		if n.Do(t, "HGET", k.Node, "sync").Text != "0" {
			t.Error("the node votes")
		}
	}
	floor, ended := strconv.FormatInt(time.Now().UnixMicro(), 10), inMillis(-20*time.Second)
	first := over(ended)
	over(inMillis(-10 * time.Second))
	refuses(floor, first)
	refuses("0", first)
	nodes[0].Kill()
	if err := nodes[0].Restart(); err != nil {
		t.Fatal(err)
	}
	n = redistest.Open(t, nodes[0].Addr())
	for _, sc := range scripts.All() {
		n.Do(t, "SCRIPT", "LOAD", sc.Source)
	}
	n.Do(t, s.Command(scripts.Register, k, registering(s, "forgot")...)...)
	if second := over(ended); second == first {
		t.Errorf("the server was restarted, and its quarantine is still called %s", first)
	}
	refuses(floor, first)
	if v := n.Do(t, s.Command(scripts.Restore, k, floor, over(inMillis(-5*time.Second)), "0")...); v.Elems[0].Int() != 1 {
		t.Errorf("the floor of this quarantine: %v", v)
	}
}

// TestDamagedFence_OneNameOnOneNode: a fence that no script can count beyond is not taken
// over by the others, and the node that has it is named.
func TestDamagedFence_OneNameOnOneNode(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 3)
	n := conns(t, nodes)
	lock(t, s, "warm", "x", time.Second)
	for _, value := range []string{"9007199254740992", "9007199254740991", "1e300", "-9007199254740993"} {
		name := "job" + value
		k := s.RedisKeys(locks.Key{DB: 0, Name: name})
		n[0].Do(t, "HSET", k.Fences, "c", value)
		if value[0] == '-' {
			n[0].Do(t, "HSET", k.Node, "floor", "0") // above it otherwise
		}
		var last int64
		for i := range 4 {
			owner := fmt.Sprint("o", i)
			g := lock(t, s, name, owner, 5*time.Second)
			if g.Fence <= last || g.Fence > time.Now().Add(time.Minute).UnixMicro() {
				t.Errorf("c %s: fence %d after %d", value, g.Fence, last)
			}
			last = g.Fence
			if _, err := s.Renew(t.Context(), locks.RenewRequest{Key: locks.Key{Name: name}, Owner: owner, TTL: 5 * time.Second}); err != nil {
				t.Errorf("c %s: RENEW: %v", value, err)
			}
			unlock(t, s, name, owner, 0)
		}
		if g := n[0].Do(t, "HGET", k.Node, "g").Text; len(g) > 16 {
			t.Errorf("c %s: the node's largest fence is %s", value, g)
		}
	}
}

// TestDamagedFence_OfANode: where the node's own largest fence is none, it does not vote,
// says so, takes back what it granted, and no floor is read from it.
func TestDamagedFence_OfANode(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 3)
	n := conns(t, nodes)
	k := s.RedisKeys(locks.Key{DB: 0, Name: "job"})
	lock(t, s, "warm", "x", time.Second)
	n[0].Do(t, "HSET", k.Node, "g", "9007199254740992", "floor", "9007199254740992")
	eventually(t, 20*time.Second, "the node is seen not to vote", func() bool { return s.Nodes()[0].State == locks.NodeBarred })
	if err := s.Nodes()[0].Err; err == nil || !strings.Contains(err.Error(), "FLUSHALL") || !strings.Contains(err.Error(), nodes[0].Addr()) {
		t.Errorf("its state: %v", err)
	}
	n[1].Do(t, "HSET", k.Node, "until", inMillis(-time.Second), "since", "0", "sync", "0", "g", "0", "floor", "0")
	time.Sleep(3 * time.Second) // looks at the nodes: one that votes is no majority to read fences from
	if f := n[1].Do(t, "HGET", k.Node, "floor").Text; f != "0" {
		t.Errorf("a floor of %s was restored", f)
	}
	_, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: 30 * time.Second})
	if err == nil || !strings.Contains(err.Error(), nodes[0].Addr()+" its fence counter is damaged") {
		t.Errorf("LOCK: %v", err)
	}
	eventually(t, 20*time.Second, "the acquisition is undone", func() bool {
		return n[0].Do(t, "EXISTS", k.Lock).Int()+n[2].Do(t, "EXISTS", k.Lock).Int() == 0
	})
}

func TestCheckPrefix(t *testing.T) {
	for prefix, ok := range map[string]bool{
		"a:doubt:0:": false, "a:read:3:": false, "a:doubts:0:": true,
		"lockproxy:": true, "lock:0:x": true, "a:lock:": true, "a:lock:0": true, "a:lock:00:": true, "a:block:x:": true, "a:node:": true, "a:lock:-1:": true,
		"lockproxy:lock:0:x": false, "a:lock:0:": false, "a:fence:12:b:": false, "xlock:0:": false, "lock:0:lock:7:": false, "\n\nlock:3:\n": false,
	} {
		if err := voters.CheckPrefix(prefix); (err == nil) != ok {
			t.Errorf("%q: %v", prefix, err)
		}
	}
	_, err := newProxy(testOptions{Prefix: "lockproxy:lock:0:x", Nodes: nodesAt(t, "127.0.0.1:1")})
	if err == nil || !strings.Contains(err.Error(), `under the prefix "lockproxy:"`) {
		t.Errorf("New: %v", err)
	}
}
