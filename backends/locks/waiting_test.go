package locks_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/memstore"
	"github.com/lockproxy/lockproxy/backends/locks/waitq"
)

func TestWait_FirstComeFirstServed(t *testing.T) {
	onEach(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		fence := lock(t, s, locks.LockRequest{Owner: "first"}).Fence
		var waiters []<-chan result
		owners := []string{"", "b", "", "d", "e"}
		for _, o := range owners {
			waiters = append(waiters, inLine(t, s, "job", o))
		}
		last := "first"
		for i, w := range waiters {
			none(t, w, 5*time.Millisecond)
			unlock(t, s, locks.UnlockRequest{Owner: last}, 0)
			g := granting(t, w).Grant
			if g.Fence <= fence || (owners[i] != "" && g.Owner != owners[i]) {
				t.Errorf("waiter %d got %+v after fence %d", i, g, fence)
			}
			last, fence = g.Owner, g.Fence
		}
		if n := s.Lines().Total(); n != 0 {
			t.Errorf("%d are left in line", n)
		}
	})
}

// A lateStore answers refusals late.
type lateStore struct {
	*memstore.Store
	by time.Duration
}

func (s lateStore) Acquire(ctx context.Context, a locks.Attempt) (locks.Decision, error) {
	d, err := s.Store.Acquire(ctx, a)
	if !d.Granted {
		time.Sleep(s.by)
	}
	return d, err
}

// TestWait_LateAnswer: what is left of the holder's lease counts from when the nodes were asked, so that a late answer
// does not put off its end.
func TestWait_LateAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		store := lateStore{memstore.New(time.Minute, func() time.Duration { return time.Since(began) + time.Hour }), 1500 * time.Millisecond}
		s := serve(t, store, locks.Options{})
		lock(t, s, locks.LockRequest{Owner: "alice", TTL: 2 * time.Second})
		if r := granting(t, inLine(t, s, "job", "bob")); r.took > 2100*time.Millisecond {
			t.Errorf("granted after %v", r.took)
		}
	})
}

func TestWait_EndsAtTheDeadline(t *testing.T) {
	onEach(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		lock(t, s, locks.LockRequest{Owner: "alice"})
		ask := locks.LockRequest{Key: job, TTL: time.Second, Wait: 2 * time.Second} // long enough for an answer of a busy store
		first, second := wait(t, s, ask), wait(t, s, ask)
		for _, c := range []<-chan result{first, second} {
			r := <-c
			if r.err != nil || r.Granted || r.Holder != "alice" || r.Remaining < 20*time.Second || r.took < ask.Wait || r.took > patient {
				t.Errorf("%+v, %v after %v", r.Decision, r.err, r.took)
			}
		}
		if n := s.Lines().Len(job); n != 0 {
			t.Errorf("%d still wait", n)
		}
	})
}

func TestWait_Limits(t *testing.T) {
	onEach(t, locks.Options{MaxWait: time.Minute, MaxWaiters: 2}, func(t *testing.T, s *locks.Service) {
		lock(t, s, locks.LockRequest{Owner: "alice"})
		var long *locks.MaxWaitError
		_, err := s.Lock(t.Context(), locks.LockRequest{Key: job, TTL: time.Second, Wait: time.Minute + 1})
		if !errors.As(err, &long) || long.Max != time.Minute {
			t.Errorf("a wait over the longest: %v", err)
		}
		a := inLine(t, s, "job", "")
		lock(t, s, locks.LockRequest{Key: locks.Key{Name: "other"}, Owner: "alice"})
		inLine(t, s, "other", "")
		var full *locks.QueueFullError
		_, err = s.Lock(t.Context(), locks.LockRequest{Key: job, TTL: time.Second, Wait: time.Second})
		if !errors.As(err, &full) || full.Max != 2 {
			t.Errorf("a third waiter: %v", err)
		}
		unlock(t, s, locks.UnlockRequest{Owner: "alice"}, 0)
		granting(t, a)
		inLine(t, s, "job", "") // there is room again
	})
}

// TestWait_NobodyOvertakes: a LOCK that does not wait is refused while others do, also at the
// moment the name is free.
func TestWait_NobodyOvertakes(t *testing.T) {
	onEach(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		lock(t, s, locks.LockRequest{Owner: "alice"})
		for _, owner := range []string{"", "bob"} {
			inLine(t, s, "job", "")
			a := refused(t, s, "job", owner)
			if want := s.Lines().Len(job); a.Holder != "alice" || a.Remaining < 20*time.Second || a.Waiters != want {
				t.Errorf("refused with %+v", a)
			}
		}
		w, err := s.Lines().Join([]locks.Key{{Name: "free"}}, "", "", waitq.Alone, &locks.Waiting{})
		if err != nil {
			t.Fatal(err)
		}
		if a := refused(t, s, "free", ""); a.Waiters != 1 || a.Holder != "" {
			t.Errorf("refused with %+v", a)
		}
		s.Lines().Leave(w, false)
		lock(t, s, locks.LockRequest{Key: locks.Key{Name: "free"}})
	})
}

// TestWait_OwnerTwiceInLine: when an owner gets the name, its other waiters in the line re-enter.
func TestWait_OwnerTwiceInLine(t *testing.T) {
	onEach(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		lock(t, s, locks.LockRequest{Owner: "first"})
		alice, bob, again := inLine(t, s, "job", "alice"), inLine(t, s, "job", "bob"), inLine(t, s, "job", "alice")
		unlock(t, s, locks.UnlockRequest{Owner: "first"}, 0)
		a, b := granting(t, alice).Grant, granting(t, again).Grant
		if a.Fence != b.Fence || a.Holds+b.Holds != 3 {
			t.Errorf("%+v and %+v", a, b)
		}
		unlock(t, s, locks.UnlockRequest{Owner: "alice"}, 1)
		none(t, bob, 20*time.Millisecond)
		unlock(t, s, locks.UnlockRequest{Owner: "alice"}, 0)
		granting(t, bob)
	})
}

// TestWait_HolderCrashed: no release is told when a lease ends; the next in line gets the lock all the same.
func TestWait_HolderCrashed(t *testing.T) {
	onEach(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		s.Lines().SetPoll(time.Hour, time.Hour) // only the end of the lease has it ask again
		lock(t, s, locks.LockRequest{Owner: "crashed", TTL: 3 * time.Second})
		began := time.Now()
		a, b := inLine(t, s, "job", ""), inLine(t, s, "job", "")
		g := granting(t, a)
		none(t, b, 10*time.Millisecond)
		unlock(t, s, locks.UnlockRequest{Owner: g.Grant.Owner}, 0)
		granting(t, b)
		if d := time.Since(began); d < 2900*time.Millisecond {
			t.Errorf("granted within the lease, after %v", d)
		}
	})
}

// TestLockAsync_ParkedIsServed: a parked waiter is resumed when it is its turn, when its time is over, and when its
// owner gets the lock.
func TestLockAsync_ParkedIsServed(t *testing.T) {
	onEach(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		grant := lock(t, s, locks.LockRequest{Owner: "holder"})
		first := inLine(t, s, "job", "")
		second := inLine(t, s, "job", "again")
		hasty := wait(t, s, locks.LockRequest{Key: job, TTL: 10 * time.Second, Wait: 50 * time.Millisecond})
		if r := <-hasty; r.err != nil || r.Granted || r.Holder != "holder" || r.Waiters != 2 {
			t.Errorf("whose time is over: %+v, %v", r.Decision, r.err)
		}
		unlock(t, s, locks.UnlockRequest{Owner: grant.Owner}, 0)
		got := granting(t, first)
		none(t, second, 50*time.Millisecond)
		unlock(t, s, locks.UnlockRequest{Owner: got.Grant.Owner}, 0)
		if r := granting(t, second); r.Grant.Owner != "again" || r.Grant.Fence <= got.Grant.Fence {
			t.Errorf("the second: %+v", r.Decision)
		}
	})
}

// TestWaiters_ToRead: of who waits it is said whether that is to read, or for which permit.
func TestWaiters_ToRead(t *testing.T) {
	onEach(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		lock(t, s, locks.LockRequest{Owner: "holder"})
		writer := inLine(t, s, "job", "writer")
		reader := wait(t, s, locks.LockRequest{Key: job, Owner: "reader", TTL: 10 * time.Second, Wait: time.Minute, Shared: true})
		eventually(t, "both wait", func() bool { return len(s.Waiters(job)) == 2 })
		permit := wait(t, s, locks.LockRequest{Key: job, Owner: "permit", TTL: 10 * time.Second, Wait: time.Minute, Permits: 2})
		eventually(t, "all wait", func() bool { return len(s.Waiters(job)) == 3 })
		if all := s.Waiters(job); all[0].Shared || !all[1].Shared || all[1].Owner != "reader" || all[1].Permits != 0 || !all[2].Shared || all[2].Permits != 2 {
			t.Errorf("%+v", all)
		}
		unlock(t, s, locks.UnlockRequest{Owner: "holder"}, 0)
		granting(t, writer)
		unlock(t, s, locks.UnlockRequest{Owner: "writer"}, 0)
		granting(t, reader)
		granting(t, permit)
	})
}
