package quorum

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/nodekeys"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/integration/redistest"
	"github.com/lockproxy/lockproxy/scripts"
)

func inMillis(d time.Duration) string { return strconv.FormatInt(time.Now().Add(d).UnixMilli(), 10) }

// TestScripts_NodeThatMayNotVote takes holds back, and notes, but grants, renews and reads nothing, and none of its answers counts.
func TestScripts_NodeThatMayNotVote(t *testing.T) {
	t.Parallel()
	tests := []struct {
		state string
		until time.Duration // from now
		code  int64
	}{
		{"in quarantine", 50 * time.Second, int64(vote.Quarantined)},
		{"without a floor", 0, int64(vote.Floorless)},
	}
	for _, tt := range tests {
		t.Run(tt.state, func(t *testing.T) {
			t.Parallel()
			s, nodes := start(t, 1)
			n := redistest.Open(t, nodes[0].Addr())
			g := lock(t, s, "job", "alice", 10*time.Second)
			k, other := s.RedisKeys(locks.Key{DB: 0, Name: "job"}), s.RedisKeys(locks.Key{DB: 0, Name: "other"})
			n.Do(t, "HSET", k.Node, "until", inMillis(tt.until), "sync", "0")
			fence := strconv.FormatInt(g.Fence, 10)
			abstains := func(sc *scripts.Script, k nodekeys.Keys, args ...string) {
				t.Helper()
				if v := n.Do(t, s.Command(sc, k, args...)...); v.Elems[0].Int() != tt.code {
					t.Errorf("%s: %v, want %d", sc.Name, v, tt.code)
				}
			}
			abstains(scripts.Acquire, other, asks("bob", "10000", s.proposal(), "bobs")...)
			if n.Do(t, "EXISTS", other.Lock).Int() != 0 {
				t.Error("it granted")
			}
			abstains(scripts.Read, k)
			abstains(scripts.Settle, k, "alice", fence, g.Hold)
			renew := renewal(s, g, 40*time.Second, vote.Version{Epoch: g.Hold, Sequence: 1}, "1")
			if v := n.Do(t, renew...); v.Elems[0].Int() != tt.code || n.Do(t, "PTTL", k.Lock).Int() > 10_000 {
				t.Errorf("renew: %v, want %d; %d ms are left", v, tt.code, n.Do(t, "PTTL", k.Lock).Int())
			}
			record := n.Do(t, "DUMP", k.Lock).Text
			n.Do(t, "DEL", k.Lock)
			if n.Do(t, renew...); n.Do(t, "EXISTS", k.Lock).Int() != 0 {
				t.Error("a renewal reinstates the lock")
			}
			n.Do(t, "RESTORE", k.Lock, "10000", record)
			abstains(scripts.Note, k, fence)
			if n.Do(t, "HGET", k.Fences, "m").Text != fence {
				t.Error("nothing is noted")
			}
			abstains(scripts.Release, k, gives("alice", g, "unlock", "")...)
			if n.Do(t, "EXISTS", k.Lock).Int() != 0 {
				t.Error("the hold is still there")
			}
			a, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "other"}, TTL: time.Second})
			if q := (*locks.QuorumError)(nil); !errors.As(err, &q) {
				t.Errorf("LOCK: %+v, %v", a, err)
			}
		})
	}
}

func TestScripts_ClockSteppedBackDoesNotProlongLease(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 1)
	n := redistest.Open(t, nodes[0].Addr())
	lock(t, s, "job", "alice", 10*time.Second)
	k := s.RedisKeys(locks.Key{DB: 0, Name: "job"})
	n.Do(t, "HSET", k.Lock, "e", inMillis(time.Hour))
	n.Do(t, "PEXPIREAT", k.Lock, inMillis(time.Hour))
	if a := refused(t, s, "job", "bob", time.Second); a.Remaining > time.Minute {
		t.Errorf("%v left", a.Remaining)
	}
	if left := n.Do(t, "PTTL", k.Lock).Int(); left > 60_000 {
		t.Errorf("the record stays for %d ms", left)
	}
	n.Do(t, "HSET", k.Node, "until", inMillis(time.Hour))
	_, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, TTL: time.Second})
	if err == nil || strings.Contains(err.Error(), "quarantine for 59m") {
		t.Errorf("LOCK: %v", err)
	}
}

// TestScripts_NodeRecordIsATable: every script reads eight of its fields, and Redis would look through a list for each of them.
func TestScripts_NodeRecordIsATable(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 1)
	lock(t, s, "job", "alice", time.Second)
	n := redistest.Open(t, nodes[0].Addr())
	if got := n.Do(t, "OBJECT", "ENCODING", s.RedisKeys(locks.Key{Name: "job"}).Node).Text; got != "hashtable" {
		t.Errorf("it is a %s", got)
	}
}

// TestLock_QuorumStoresTheFence: one of two nodes that are up knows of a larger fence
// than the other would give.
func TestLock_QuorumStoresTheFence(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 3)
	lock(t, s, "warm", "alice", time.Second)
	c := conns(t, nodes)
	nodes[2].Kill()
	k := s.RedisKeys(locks.Key{DB: 0, Name: "job"})
	high := time.Now().Add(time.Minute).UnixMicro()
	c[0].Do(t, "HSET", k.Fences, "c", strconv.FormatInt(high, 10))
	g := lock(t, s, "job", "alice", 10*time.Second)
	if g.Fence != high+1 {
		t.Errorf("fence %d, want %d", g.Fence, high+1)
	}
	for _, field := range []struct{ key, name string }{{k.Fences, "c"}, {k.Lock, "f"}} {
		if got := c[1].Do(t, "HGET", field.key, field.name).Text; got != strconv.FormatInt(g.Fence, 10) {
			t.Errorf("the other node has the fence %s", got)
		}
	}
}

// TestScripts_ProposalFarFromTheClock: a proposed fence far ahead of the clock does not use up the fences.
func TestScripts_ProposalFarFromTheClock(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 1)
	lock(t, s, "warm", "alice", time.Second)
	n := redistest.Open(t, nodes[0].Addr())
	k := s.RedisKeys(locks.Key{DB: 0, Name: "job"})
	v := n.Do(t, s.Command(scripts.Acquire, k, asks("alice", "10000", "9007199254740991", "one")...)...)
	if most := time.Now().Add(2 * time.Second).UnixMicro(); v.Elems[1].Int() > most {
		t.Errorf("fence %d, want at most %d", v.Elems[1].Int(), most)
	}
	if left := n.Do(t, "PTTL", k.Fences).Int(); left < 600_000 {
		t.Errorf("fences are kept for %d ms", left)
	}
}

// TestScripts_NodeThatForgot: a node that forgot sits out max-ttl to the millisecond, and gets its floor only
// afterwards: from other nodes, or after a further max-ttl from its clock.
func TestScripts_NodeThatForgot(t *testing.T) {
	t.Parallel()
	s, _ := start(t, 3)
	c := redistest.Open(t, redistest.Start(t).Addr())
	k := s.RedisKeys(locks.Key{DB: 0, Name: "job"})
	ask := func(sc *scripts.Script, args ...string) []redistest.Value {
		t.Helper()
		return c.Do(t, s.Command(sc, k, args...)...).Elems
	}
	for _, sc := range scripts.All() {
		c.Do(t, "SCRIPT", "LOAD", sc.Source)
	}
	sitsOut := func(v []redistest.Value) {
		t.Helper()
		if v[0].Int() != int64(vote.Quarantined) || v[1].Int() < 59_000 || v[1].Int() > 60_000 {
			t.Errorf("%v, want a quarantine of 60000 ms", v)
		}
	}
	sitsOut(ask(scripts.Register, registering(s, "forgot")...))
	sitsOut(ask(scripts.State))
	sitsOut(ask(scripts.Restore, "1000", "", "0"))
	c.Do(t, "HSET", k.Node, "id", "another", "until", "0", "sync", "1")
	sitsOut(ask(scripts.Acquire, asks("alice", "10000", s.proposal(), "one")...))

	c.Do(t, "HSET", k.Node, "until", inMillis(-59*time.Second), "since", "0")
	restore := func(floor string) []redistest.Value {
		t.Helper()
		return ask(scripts.Restore, floor, ask(scripts.State)[2].Text, "0")
	}
	if v := restore("0"); v[0].Int() != int64(vote.Floorless) {
		t.Errorf("floor from the clock a second early: %v", v)
	}
	c.Do(t, "HSET", k.Node, "until", inMillis(-61*time.Second))
	if v := restore("0"); v[0].Int() != 1 || v[1].Int() < time.Now().UnixMicro() {
		t.Errorf("floor from the clock: %v", v)
	}
	floor := time.Now().Add(time.Hour).UnixMicro()
	c.Do(t, "HSET", k.Node, "until", "0", "sync", "0", "since", "0")
	if v := restore(strconv.FormatInt(floor, 10)); v[0].Int() != 1 || v[1].Int() != floor {
		t.Errorf("floor from others: %v", v)
	}
	if v := ask(scripts.Acquire, asks("alice", "10000", s.proposal(), "one")...); v[0].Int() != 1 || v[1].Int() <= floor {
		t.Errorf("the first grant: %v, want a fence above %d", v, floor)
	}
}

// TestReentry_OnTheNode: a renewal that was under way does not shorten the new hold, and a
// node that was only told of the grant does not vouch for its fence.
func TestReentry_OnTheNode(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 1)
	n := redistest.Open(t, nodes[0].Addr())
	g := lock(t, s, "job", "alice", 10*time.Second)
	k := s.RedisKeys(locks.Key{DB: 0, Name: "job"})
	enter := func(hold string) []redistest.Value {
		return n.Do(t, s.Command(scripts.Acquire, k, asks("alice", "30000", s.proposal(), hold)...)...).Elems
	}
	if v := enter("inner"); v[0].Int() != 1 || v[2].Int() != g.Fence {
		t.Errorf("re-entry: %v, want the fence %d kept", v, g.Fence)
	}
	late := renewal(s, g, 100*time.Millisecond, vote.Version{Epoch: g.Hold, Sequence: 9}, "1")
	if v := n.Do(t, late...); v.Elems[0].Int() != 3 || n.Do(t, "PTTL", k.Lock).Int() < 20_000 {
		t.Errorf("a renewal that was under way: %v, want it refused, since it does not name the new hold", v)
	}
	n.Do(t, "DEL", k.Lock)
	if v := n.Do(t, renewal(s, g, 10*time.Second, vote.Version{Epoch: g.Hold, Sequence: 10}, "1")...); !reinstated(v) {
		t.Fatalf("not put back: %v", v)
	}
	if v := enter("hearsay"); v[0].Int() != 1 || v[2].Int() != -1 {
		t.Errorf("re-entry where the grant is hearsay: %v", v)
	}
}

// TestScripts_NotedLeaseIsNotReinstated: a proxy that remembers a longer lease
// must not bring back what another proxy shortened and let lapse.
func TestScripts_NotedLeaseIsNotReinstated(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 1)
	n := redistest.Open(t, nodes[0].Addr())
	g := lock(t, s, "job", "alice", 10*time.Second)
	k := s.RedisKeys(locks.Key{DB: 0, Name: "job"})
	n.Do(t, "DEL", k.Lock)
	if v := n.Do(t, renewal(s, g, 10*time.Second, vote.Version{Epoch: g.Hold, Sequence: 1}, "1")...); !reinstated(v) {
		t.Fatalf("before the note: %v, want it put back", v)
	}
	n.Do(t, s.Command(scripts.Note, k, strconv.FormatInt(g.Fence, 10))...)
	if v := n.Do(t, renewal(s, g, 10*time.Second, vote.Version{Epoch: g.Hold, Sequence: 2}, "1")...); v.Elems[0].Int() != 1 {
		t.Errorf("where it is: %v, want it moved", v)
	}
	n.Do(t, "DEL", k.Lock)
	if v := n.Do(t, renewal(s, g, 10*time.Second, vote.Version{Epoch: g.Hold, Sequence: 3}, "1")...); v.Elems[0].Int() != 0 {
		t.Errorf("where it lapsed: %v, want a refusal", v)
	}
}
