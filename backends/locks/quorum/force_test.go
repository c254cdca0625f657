package quorum

import (
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/integration/redistest"
	"github.com/lockproxy/lockproxy/scripts"
)

func force(tb testing.TB, s *proxy, name string) locks.Holding {
	tb.Helper()
	was, held, err := s.Force(tb.Context(), locks.Key{DB: 0, Name: name})
	if err != nil || !held {
		tb.Fatalf("forcing %s: %+v, %v, %v", name, was, held, err)
	}
	return was
}

// lost wants the owner's RENEW and UNLOCK of a grant refused as lost.
func isLost(tb testing.TB, s *proxy, name, owner string, fence int64) {
	tb.Helper()
	if v, err := s.Renew(tb.Context(), locks.RenewRequest{Key: locks.Key{Name: name}, Owner: owner, TTL: time.Second, Fence: fence}); !errors.Is(err, locks.ErrLost) {
		tb.Errorf("RENEW by %s: %v, %v, want it lost", owner, v, err)
	}
	if left, err := s.Unlock(tb.Context(), locks.UnlockRequest{Key: locks.Key{Name: name}, Owner: owner, Fence: fence}); !errors.Is(err, locks.ErrLost) {
		tb.Errorf("UNLOCK by %s: %d, %v, want it lost", owner, left, err)
	}
}

func TestForce(t *testing.T) {
	t.Parallel()
	p := rivals(t, 2, redistest.StartNodes(t, 5))
	for _, forcer := range p {
		for _, fence := range []bool{false, true} {
			g := lock(t, p[0], "job", "alice", 30*time.Second)
			lock(t, p[0], "job", "alice", 30*time.Second)
			lock(t, p[1], "job", "alice", 30*time.Second)
			was := force(t, forcer, "job")
			if was.Owner != "alice" || was.Fence != g.Fence || was.Holds != 3 || was.Remaining < 25*time.Second {
				t.Errorf("forced %+v", was)
			}
			if _, held, err := forcer.Force(t.Context(), locks.Key{DB: 0, Name: "job"}); held || err != nil {
				t.Errorf("forced again: %v, %v", held, err)
			}
			named := int64(0)
			if fence {
				named = g.Fence
			}
			isLost(t, p[0], "job", "alice", named)
			isLost(t, p[1], "job", "alice", named)
			h := lock(t, p[1], "job", "bob", 30*time.Second)
			if h.Fence <= g.Fence {
				t.Errorf("fence %d after %d", h.Fence, g.Fence)
			}
			for _, s := range p {
				if _, err := s.Unlock(t.Context(), locks.UnlockRequest{Key: locks.Key{Name: "job"}, Owner: "alice", Fence: named}); !isNotOwner(err) && !errors.Is(err, locks.ErrLost) {
					t.Errorf("UNLOCK by who was forced out: %v", err)
				}
			}
			unlock(t, p[0], "job", "bob", 0)
		}
	}
}

// TestForce_IsNotTheOwnersRelease: an UNLOCK that comes again repeats the answer it
// got for an earlier grant, not for the one that was forced.
func TestForce_IsNotTheOwnersRelease(t *testing.T) {
	t.Parallel()
	s, _ := start(t, 3)
	g := lock(t, s, "job", "alice", 30*time.Second)
	unlock(t, s, "job", "alice", 0)
	lock(t, s, "job", "alice", 30*time.Second)
	force(t, s, "job")
	isLost(t, s, "job", "alice", 0)
	if left, err := s.Unlock(t.Context(), locks.UnlockRequest{Key: locks.Key{Name: "job"}, Owner: "alice", Fence: g.Fence}); left != 0 || err != nil {
		t.Errorf("the UNLOCK of before, once more: %d, %v", left, err)
	}
}

func TestForce_WithNodesDown(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 5)
	p := rivals(t, 2, nodes)
	lock(t, p[0], "job", "alice", 30*time.Second)
	eventually(t, 20*time.Second, "every node has it", func() bool { return inspect(t, p[0], "job").Holding.Votes == 5 })
	nodes[3].Pause()
	nodes[4].Pause()
	was, held, err := p[1].Force(t.Context(), locks.Key{DB: 0, Name: "job"})
	if err != nil || !held {
		t.Fatalf("%+v, %v", was, err)
	}
	isLost(t, p[0], "job", "alice", 0) // two nodes still have it
	h := lock(t, p[1], "job", "bob", 30*time.Second)
	nodes[3].Resume()
	nodes[4].Resume()
	eventually(t, 20*time.Second, "the silent nodes were told", func() bool {
		in, err := p[1].Inspect(t.Context(), locks.Key{DB: 0, Name: "job"})
		for _, n := range in.Nodes {
			if n.Owner == "alice" {
				return false
			}
		}
		return err == nil && in.Held && in.Holding.Owner == "bob" && in.Holding.Fence == h.Fence
	})
	nodes[0].Kill()
	nodes[1].Kill()
	nodes[2].Kill()
	q := (*locks.QuorumError)(nil)
	if was, held, err := p[1].Force(t.Context(), locks.Key{DB: 0, Name: "job"}); held || !errors.As(err, &q) {
		t.Errorf("without a quorum: %+v, %v", was, err)
	}
}

// TestForce_LateOneTakesNothing: a force that reaches a node late, when the owner has another grant, removes nothing.
func TestForce_LateOneTakesNothing(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 1)
	n := redistest.Open(t, nodes[0].Addr())
	k := s.RedisKeys(locks.Key{DB: 0, Name: "job"})
	old := lock(t, s, "job", "alice", 30*time.Second)
	late := func(fence int64, holds ...string) []string {
		return s.Command(scripts.Release, k, append([]string{"alice", strconv.FormatInt(fence, 10), "force", "", "", "late", "60000", strconv.Itoa(len(holds))}, holds...)...)
	}
	force(t, s, "job")
	g := lock(t, s, "job", "alice", 30*time.Second)
	for _, call := range [][]string{
		late(old.Fence, old.Hold),         // of the grant before
		late(old.Fence, g.Hold),           // read while the later one was made
		late(old.Fence, old.Hold, g.Hold), // both
	} {
		if v := n.Do(t, call...); v.Elems[0].Int() != 0 {
			t.Errorf("late: %v", v)
		}
	}
	if v := renewedBy(t, s, g); v <= 0 {
		t.Error("the later grant is gone")
	}
	if v := n.Do(t, late(g.Fence, g.Hold)...); v.Elems[0].Int() != 1 || v.Elems[2].Int() != 0 {
		t.Errorf("of this grant: %v", v)
	}
	if v := n.Do(t, "HMGET", k.Fences, "c", "f", "o"); v.Elems[0].Text != strconv.FormatInt(g.Fence+1, 10) || v.Elems[2].Text != "" {
		t.Errorf("afterwards: %v", v)
	}
}

func renewedBy(t *testing.T, s *proxy, g locks.Grant) time.Duration {
	t.Helper()
	v, err := s.Renew(t.Context(), locks.RenewRequest{Key: locks.Key{Name: g.Name}, Owner: g.Owner, Fence: g.Fence, TTL: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestForce_TellsTheSession: the session is told at once, and why, whichever proxy forces. Neither proxy brings the lock back.
func TestForce_TellsTheSession(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 3)
	p := rivals(t, 2, nodes)
	for i := range p {
		losses := make(chan locks.Loss, 1)
		c := p[0].NewSession(func(l locks.Loss) { losses <- l })
		a, err := p[0].Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: 50 * time.Second, Session: c})
		if err != nil || !a.Granted {
			t.Fatal(a, err)
		}
		for _, s := range p {
			if h := inspect(t, s, "job").Holding; h.Session != (s == p[0]) {
				t.Errorf("kept: %v", h.Session)
			}
		}
		for _, n := range nodes {
			eventually(t, patient, "the proxy hears of leases that are cut", func() bool { return n.Do(t, "PUBSUB", "NUMSUB", "lockproxy:node:cut").Elems[1].Int() > 0 })
		}
		force(t, p[i], "job")
		select {
		case l := <-losses:
			if l.Fence != a.Grant.Fence || l.Reason != locks.ForcedReason {
				t.Errorf("told %+v", l)
			}
		case <-time.After(patient):
			t.Fatal("the session was not told")
		}
		if in := inspect(t, p[1], "job"); in.Held {
			t.Errorf("afterwards: %+v", in)
		}
		isLost(t, p[0], "job", "alice", 0)
		c.End()
	}
}

// TestForce_AgainstRenewals: while an owner renews through two proxies, also shortening,
// it is forced out; no renewal asked for later succeeds, and no UNLOCK.
func TestForce_AgainstRenewals(t *testing.T) {
	t.Parallel()
	p := rivals(t, 3, redistest.StartNodes(t, 5))
	rounds := 60
	if testing.Short() {
		rounds = 10
	}
	last := int64(0)
	for range rounds {
		g := lock(t, p[0], "job", "alice", 30*time.Second)
		if g.Fence <= last {
			t.Fatalf("fence %d after %d", g.Fence, last)
		}
		last = g.Fence
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for i, s := range p[:2] {
			wg.Go(func() {
				for ttl := 10 * time.Second; ; ttl = 30*time.Second - ttl {
					select {
					case <-stop:
						return
					default:
					}
					_, err := s.Renew(t.Context(), locks.RenewRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: ttl + time.Duration(i)*time.Second, Fence: g.Fence})
					if q := (*locks.QuorumError)(nil); err != nil && !errors.Is(err, locks.ErrLost) && !isNotOwner(err) && !errors.As(err, &q) {
						t.Errorf("RENEW: %v", err)
					}
				}
			})
		}
		time.Sleep(5 * time.Millisecond)
		force(t, p[2], "job")
		for _, s := range p[:2] { // renewals are still under way
			isLost(t, s, "job", "alice", g.Fence)
		}
		if in := inspect(t, p[2], "job"); in.Held {
			t.Fatalf("after FORCE: %+v", in)
		}
		close(stop)
		wg.Wait()
	}
}

// TestForceGrant: what was granted since somebody looked is not taken away.
func TestForceGrant(t *testing.T) {
	t.Parallel()
	p := rivals(t, 2, redistest.StartNodes(t, 5))
	old := lock(t, p[0], "job", "alice", 30*time.Second)
	unlock(t, p[0], "job", "alice", 0)
	for _, owner := range []string{"alice", "bob"} {
		g := lock(t, p[0], "job", owner, 30*time.Second)
		lock(t, p[0], "job", owner, 30*time.Second)
		for _, fence := range []int64{old.Fence, g.Fence + 1} {
			was, held, err := p[1].ForceGrant(t.Context(), locks.Key{DB: 0, Name: "job"}, fence)
			if other := (*locks.OtherGrantError)(nil); held || !errors.As(err, &other) || other.Now.Owner != owner || other.Now.Fence != g.Fence {
				t.Errorf("under fence %d: %+v, %v, %v", fence-g.Fence, was, held, err)
			}
		}
		if v := renewedBy(t, p[0], g); v <= 0 {
			t.Error("the grant is gone")
		}
		was, held, err := p[1].ForceGrant(t.Context(), locks.Key{DB: 0, Name: "job"}, g.Fence)
		if !held || err != nil || was.Owner != owner || was.Fence != g.Fence || was.Holds != 2 {
			t.Errorf("forced %+v, %v, %v", was, held, err)
		}
		isLost(t, p[0], "job", owner, g.Fence)
		if was, held, err := p[1].ForceGrant(t.Context(), locks.Key{DB: 0, Name: "job"}, g.Fence); held || err != nil {
			t.Errorf("forced again: %+v, %v, %v", was, held, err)
		}
	}
	if _, _, err := p[0].ForceGrant(t.Context(), locks.Key{DB: 0, Name: "job"}, 0); err == nil {
		t.Error("fence 0 is none, and was taken for one")
	}
}

// TestForceGrant_AgainstLaterOnes: an owner takes and gives back without pause; a force of
// one grant leaves each later one alone.
func TestForceGrant_AgainstLaterOnes(t *testing.T) {
	t.Parallel()
	p := rivals(t, 2, redistest.StartNodes(t, 5))
	for range 30 {
		g := lock(t, p[0], "job", "alice", 30*time.Second)
		var wg sync.WaitGroup
		wg.Go(func() {
			_, _, err := p[1].ForceGrant(t.Context(), locks.Key{DB: 0, Name: "job"}, g.Fence)
			if other := (*locks.OtherGrantError)(nil); err != nil && !errors.As(err, &other) {
				t.Errorf("FORCE: %v", err)
			}
		})
		if _, err := p[0].Unlock(t.Context(), locks.UnlockRequest{Key: locks.Key{Name: "job"}, Owner: "alice", Fence: g.Fence}); err != nil && !errors.Is(err, locks.ErrLost) {
			t.Errorf("UNLOCK: %v", err)
		}
		later := lock(t, p[0], "job", "alice", 30*time.Second)
		wg.Wait()
		if later.Fence <= g.Fence {
			t.Fatalf("fence %d after %d", later.Fence, g.Fence)
		}
		if v := renewedBy(t, p[0], later); v <= 0 {
			t.Fatal("the later grant is gone")
		}
		unlock(t, p[0], "job", "alice", 0)
	}
}
