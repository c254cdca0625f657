package quorum

import (
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/integration/redistest"
	"github.com/lockproxy/lockproxy/scripts"
)

// TestLock_Fresh: a restarted process takes over at once, and what the one before it still says
// changes nothing.
func TestLock_Fresh(t *testing.T) {
	t.Parallel()
	p, c, _ := proxies(t, 2)
	fresh := func(s *proxy, req string) locks.Grant {
		t.Helper()
		a, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: time.Minute, Req: req, Fresh: true})
		if err != nil || !a.Granted || a.Grant.Holds != 1 {
			t.Fatalf("FRESH: %+v, %v", a, err)
		}
		return a.Grant
	}
	first := fresh(p[0], "")
	kept := newClient(p[0])
	old := kept.lock(t, "job", "alice", 30*time.Second, 0)
	now := fresh(p[1], "")
	if old.Fence != first.Fence || now.Fence <= old.Fence {
		t.Errorf("fences %d, %d, then FRESH %d", first.Fence, old.Fence, now.Fence)
	}
	gone := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, locks.ErrLost) {
			t.Errorf("%s of the grant before: %v", what, err)
		}
	}
	_, err := p[0].Renew(t.Context(), locks.RenewRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: time.Minute, Fence: old.Fence})
	gone("RENEW", err)
	_, err = p[0].Unlock(t.Context(), locks.UnlockRequest{Key: locks.Key{Name: "job"}, Owner: "alice", Fence: old.Fence})
	gone("UNLOCK", err)
	eventually(t, time.Minute, "the session is told", func() bool { return len(kept.told()) == 1 })
	if again := fresh(p[0], "r"); again.Fence <= now.Fence {
		t.Errorf("FRESH %d after %d", again.Fence, now.Fence)
	} else if same := fresh(p[1], "r"); same.Fence != again.Fence {
		t.Errorf("the same request: %d, then %d", again.Fence, same.Fence)
	}
	job := locks.Key{Name: "job"}
	eventually(t, patient, "every node has dropped the grant before", func() bool { // a late one refuses FRESH after the UNLOCK
		return !slices.ContainsFunc(c, func(n *redistest.Conn) bool {
			return n.Do(t, "HEXISTS", p[0].RedisKeys(job).Lock, now.Hold).Int() != 0
		})
	})
	left, err := p[1].Unlock(t.Context(), locks.UnlockRequest{Key: job, Owner: "alice", Req: "r"})
	if err != nil || left != 0 {
		t.Errorf("UNLOCK: %d, %v", left, err)
	}
	nothingLeft(t, p[0], c)
}

// TestLock_FreshBesideAnUNLOCK: another proxy remembers the grant that a LOCK with Fresh dropped. Its UNLOCK of that
// grant must not succeed when a rival has had the name since.
func TestLock_FreshBesideAnUNLOCK(t *testing.T) {
	t.Parallel()
	p, _, _ := proxies(t, 2)
	old := lock(t, p[0], "job", "alice", time.Minute)
	a, err := p[1].Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: time.Minute, Fresh: true})
	if err != nil || !a.Granted {
		t.Fatal(a, err)
	}
	unlock(t, p[1], "job", "alice", 0)
	lock(t, p[1], "job", "bob", time.Minute)
	if left, err := p[0].Unlock(t.Context(), locks.UnlockRequest{Key: locks.Key{Name: "job"}, Owner: "alice", Fence: old.Fence}); err == nil {
		t.Errorf("UNLOCK of the grant before: %d", left)
	}
}

// TestFresh_LateOneTakesNothing: a LOCK with Fresh that reaches a node late drops no later grant.
func TestFresh_LateOneTakesNothing(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 1)
	n := redistest.Open(t, nodes[0].Addr())
	old := lock(t, s, "job", "alice", time.Minute)
	unlock(t, s, "job", "alice", 0)
	g := lock(t, s, "job", "alice", time.Minute)
	late := s.Command(scripts.Acquire, s.RedisKeys(locks.Key{DB: 0, Name: "job"}), "alice", "1000", "0", "", "fresh", "late", strconv.FormatInt(old.Fence, 10), "")
	if v := n.Do(t, late...); v.Elems[0].Int() != 0 {
		t.Errorf("late: %v", v)
	}
	if renewedBy(t, s, g) <= 0 {
		t.Error("the later grant is gone")
	}
}
