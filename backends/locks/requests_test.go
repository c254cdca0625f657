package locks_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

func TestReq_ResentLockIsOneHold(t *testing.T) {
	onEach(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		first := lock(t, s, locks.LockRequest{Owner: "alice", Req: "x"})
		for range 3 {
			if g := lock(t, s, locks.LockRequest{Owner: "alice", Req: "x"}); g.Fence != first.Fence || g.Holds != 1 || g.Validity < 20*time.Second {
				t.Errorf("resent: %+v, first %+v", g, first)
			}
		}
		if n := s.Stats().Repeats; n != 3 {
			t.Errorf("%d repeats", n)
		}
		refused(t, s, "job", "bob")
		if g := lock(t, s, locks.LockRequest{Owner: "alice", Req: "y"}); g.Holds != 2 || g.Fence != first.Fence {
			t.Errorf("another request: %+v", g)
		}
		unlock(t, s, locks.UnlockRequest{Owner: "alice"}, 1)
		unlock(t, s, locks.UnlockRequest{Owner: "alice"}, 0)
		free(t, s, "job")
	})
}

func TestReq_ManyRequestsAreManyHolds(t *testing.T) {
	onEach(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		const many = 30
		for i := range many {
			for range 1 + i%3 {
				if g := lock(t, s, locks.LockRequest{Owner: "alice", Req: fmt.Sprint(i)}); g.Holds != i+1 {
					t.Fatalf("request %d: %d holds", i, g.Holds)
				}
			}
		}
		for i := range many {
			unlock(t, s, locks.UnlockRequest{Owner: "alice", Req: fmt.Sprint("u", i)}, many-1-i)
		}
		free(t, s, "job")
	})
}

// TestReq_UndoOfOneAttempt: the undo of one attempt takes nothing from another attempt of the same request.
func TestReq_UndoOfOneAttempt(t *testing.T) {
	onEach(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		one := lock(t, s, locks.LockRequest{Owner: "alice", Req: "x"})
		other := lock(t, s, locks.LockRequest{Owner: "alice", Req: "x"})
		s.Undo(one)
		refused(t, s, "job", "bob")
		s.Undo(other)
		free(t, s, "job")
		unlock(t, s, locks.UnlockRequest{Owner: "next"}, 0)
		if g := lock(t, s, locks.LockRequest{Owner: "alice", Req: "x"}); g.Fence <= one.Fence || g.Holds != 1 || g.Validity == 0 {
			t.Errorf("undone, and asked for again: %+v", g)
		}
	})
}

// TestReq_LateLock: a LOCK that comes once more after its lock was given back gets the old grant, without a hold.
func TestReq_LateLock(t *testing.T) {
	onEach(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		g := lock(t, s, locks.LockRequest{Owner: "alice", Req: "x"})
		unlock(t, s, locks.UnlockRequest{Owner: "alice"}, 0)
		late := func(when string) {
			t.Helper()
			if l := lock(t, s, locks.LockRequest{Owner: "alice", Req: "x"}); l.Fence != g.Fence || l.Validity != 0 || l.Holds != 0 {
				t.Errorf("%s: %+v, want fence %d", when, l, g.Fence)
			}
		}
		late("free")
		lock(t, s, locks.LockRequest{Owner: "bob"})
		late("another's")
		unlock(t, s, locks.UnlockRequest{Owner: "bob"}, 0)
		lock(t, s, locks.LockRequest{Owner: "alice", Req: "y"})
		late("another request's")
		unlock(t, s, locks.UnlockRequest{Owner: "alice", Req: "u"}, 0)
	})
}

func TestReq_ResentUnlockGivesBackOneHold(t *testing.T) {
	onEach(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		lock(t, s, locks.LockRequest{Owner: "alice", Req: "outer"})
		lock(t, s, locks.LockRequest{Owner: "alice", Req: "inner"})
		for range 3 {
			unlock(t, s, locks.UnlockRequest{Owner: "alice", Req: "u"}, 1)
		}
		unlock(t, s, locks.UnlockRequest{Owner: "alice", Req: "v"}, 0)
		lock(t, s, locks.LockRequest{Owner: "bob"})
		for range 2 {
			unlock(t, s, locks.UnlockRequest{Owner: "alice", Req: "v"}, 0)
		}
		refused(t, s, "job", "carol")
		unlock(t, s, locks.UnlockRequest{Owner: "bob"}, 0)
	})
}

// TestReq_UnlockOfItsLock: an UNLOCK with the id of a LOCK gives back the hold that this one took.
func TestReq_UnlockOfItsLock(t *testing.T) {
	onEach(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		lock(t, s, locks.LockRequest{Owner: "alice", Req: "outer"})
		inner := lock(t, s, locks.LockRequest{Owner: "alice", Req: "inner"})
		unlock(t, s, locks.UnlockRequest{Owner: "alice", Req: "outer"}, 1)
		if g := lock(t, s, locks.LockRequest{Owner: "alice", Req: "inner"}); g.Holds != 1 || g.Fence != inner.Fence {
			t.Errorf("the inner one: %+v", g)
		}
		unlock(t, s, locks.UnlockRequest{Owner: "alice", Req: "inner"}, 0)
		free(t, s, "job")
	})
}

// TestReq_SameRequestAtOnce: the same request waits for a lock several times at once, and one of them leaves.
func TestReq_SameRequestAtOnce(t *testing.T) {
	onEach(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		lock(t, s, locks.LockRequest{Owner: "bob"})
		ask := func(ctx context.Context) (locks.Decision, error) {
			return s.Lock(ctx, locks.LockRequest{Key: job, Owner: "alice", TTL: 30 * time.Second, Req: "x", Wait: 20 * time.Second})
		}
		gone, leave := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if a, err := ask(gone); !errors.Is(err, context.Canceled) {
				t.Errorf("the one that left: %+v, %v", a, err)
			}
		})
		eventually(t, "one waits", func() bool { return s.Lines().Len(job) == 1 })
		for range 3 {
			wg.Go(func() {
				if a, err := ask(t.Context()); err != nil || !a.Granted || a.Grant.Holds != 1 || a.Grant.Validity == 0 {
					t.Errorf("%+v, %v", a, err)
				}
			})
		}
		time.Sleep(20 * time.Millisecond)
		if s.Lines().Len(job) != 1 {
			t.Error("more than one stands in line")
		}
		leave()
		unlock(t, s, locks.UnlockRequest{Owner: "bob"}, 0)
		wg.Wait()
		unlock(t, s, locks.UnlockRequest{Owner: "alice"}, 0)
		free(t, s, "job")
		if n := s.UnderWay(); n != 0 {
			t.Errorf("%d requests are kept that nobody makes", n)
		}
	})
}

func TestReq_Invalid(t *testing.T) {
	onEach(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		for _, r := range []locks.LockRequest{{Req: "x"}, {Owner: "alice", Req: string(make([]byte, locks.MaxReq+1))}} {
			r.Key, r.TTL = job, time.Second
			if a, err := s.Lock(t.Context(), r); err == nil {
				t.Errorf("LOCK: %+v", a)
			}
			if left, err := s.Unlock(t.Context(), locks.UnlockRequest{Key: job, Owner: r.Owner, Req: r.Req}); err == nil {
				t.Errorf("UNLOCK: %d", left)
			}
		}
	})
}
