package locks_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/memstore"
)

// reads is a LOCK of a reader.
func reads(owner string, wait time.Duration) locks.LockRequest {
	return locks.LockRequest{Key: job, Owner: owner, Shared: true, TTL: 30 * time.Second, Wait: wait}
}

func writes(owner string, wait time.Duration) locks.LockRequest {
	return locks.LockRequest{Key: job, Owner: owner, TTL: 30 * time.Second, Wait: wait}
}

// refuses has a LOCK refused, and returns why.
func refuses(t *testing.T, s *locks.Service, r locks.LockRequest) locks.Decision {
	t.Helper()
	a, err := s.Lock(t.Context(), r)
	if err != nil || a.Granted {
		t.Fatalf("LOCK by %s, shared %v: %+v, %v", r.Owner, r.Shared, a, err)
	}
	return a
}

func giveUp(t *testing.T, s *locks.Service, owner string, shared bool) {
	t.Helper()
	if _, err := s.Unlock(t.Context(), locks.UnlockRequest{Key: job, Owner: owner, Shared: shared}); err != nil {
		t.Fatalf("UNLOCK by %s: %v", owner, err)
	}
}

// keptOut waits until a new reader is refused: a writer that waits has asked.
func keptOut(t *testing.T, s *locks.Service) {
	t.Helper()
	eventually(t, "readers are kept out", func() bool {
		a, err := s.Lock(t.Context(), reads("new", 0))
		if a.Granted {
			giveUp(t, s, "new", true)
		}
		return err == nil && !a.Granted
	})
}

// TestShared_ReadersOrOneWriter, whatever the Store.
func TestShared_ReadersOrOneWriter(t *testing.T) {
	onEach(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		first, second := lock(t, s, reads("r1", 0)), lock(t, s, reads("r2", 0))
		if a := refuses(t, s, writes("w", 0)); a.Why != locks.Readers || a.Holder == "" || a.Remaining <= 29*time.Second {
			t.Errorf("a writer beside readers: %+v", a)
		}
		if a := refuses(t, s, writes("r1", time.Minute)); a.Why != locks.Upgrade {
			t.Errorf("a reader that wants to write beside another: %+v", a)
		}
		giveUp(t, s, "r2", true)
		up := lock(t, s, writes("r1", 0))
		if up.Fence <= first.Fence || up.Fence <= second.Fence {
			t.Errorf("a writer's fence %d is not above those of readers, %d and %d", up.Fence, first.Fence, second.Fence)
		}
		if a := refuses(t, s, reads("r2", 0)); a.Why != locks.Held || a.Holder != "r1" {
			t.Errorf("a reader beside a writer: %+v", a)
		}
		giveUp(t, s, "r1", false)
		if down := lock(t, s, reads("r2", 0)); down.Fence < up.Fence {
			t.Errorf("a reader's fence %d is below that of the writer before it, %d", down.Fence, up.Fence)
		}
		if _, err := s.Unlock(t.Context(), locks.UnlockRequest{Key: job, Owner: "w"}); !errors.Is(err, locks.ErrLost) {
			t.Errorf("UNLOCK of nothing: %v", err)
		}
	})
}

// TestShared_LineOfBoth: readers at the front of the line come in together, a writer behind them keeps others out, and comes next.
func TestShared_LineOfBoth(t *testing.T) {
	onEach(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		lock(t, s, writes("w0", 0))
		granted := map[string]chan locks.Grant{}
		wait := func(r locks.LockRequest) {
			had := len(s.Waiters(job))
			granted[r.Owner] = make(chan locks.Grant, 1)
			go s.LockAsync(t.Context(), r, func(a locks.Decision, err error) {
				if !a.Granted || err != nil {
					t.Errorf("%s: %+v, %v", r.Owner, a, err)
				}
				granted[r.Owner] <- a.Grant
			})
			eventually(t, r.Owner+" waits", func() bool { return len(s.Waiters(job)) == had+1 })
		}
		for i := range 5 {
			wait(reads(fmt.Sprint("r", i), 50*time.Second))
		}
		wait(writes("w1", 50*time.Second))
		wait(reads("late", 50*time.Second))
		giveUp(t, s, "w0", false)
		for i := range 5 {
			<-granted[fmt.Sprint("r", i)]
		}
		keptOut(t, s)
		if g := lock(t, s, reads("r0", 0)); g.Holds != 2 {
			t.Errorf("who reads entered again: %d holds", g.Holds)
		}
		giveUp(t, s, "r0", true)
		for i := range 5 {
			giveUp(t, s, fmt.Sprint("r", i), true)
		}
		<-granted["w1"]
		giveUp(t, s, "w1", false)
		<-granted["late"]
	})
}

// TestShared_WriterThatGivesUp: when a writer waits no longer, readers come in.
func TestShared_WriterThatGivesUp(t *testing.T) {
	onEach(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		lock(t, s, reads("r1", 0))
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() {
			_, err := s.Lock(ctx, writes("w", 50*time.Second))
			left <- err
		}()
		eventually(t, "it waits", func() bool { return len(s.Waiters(job)) == 1 })
		keptOut(t, s)
		leave()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		lock(t, s, reads("r2", 20*time.Second))
	})
}

// A leavingStore has a client leave before it has the answer to the question for which readers are kept out.
type leavingStore struct {
	*memstore.Store
	leave context.CancelFunc
}

func (s *leavingStore) Acquire(ctx context.Context, a locks.Attempt) (locks.Decision, error) {
	d, err := s.Store.Acquire(ctx, a)
	if a.Intent > 0 {
		s.leave()
		return locks.Decision{}, ctx.Err()
	}
	return d, err
}

// TestShared_WriterThatLeavesAsItAsks keeps nobody out either, though nobody has heard that it would have.
func TestShared_WriterThatLeavesAsItAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, leave := context.WithCancel(t.Context())
		began := time.Now()
		store := memstore.New(time.Minute, func() time.Duration { return time.Since(began) + time.Hour })
		s := serve(t, &leavingStore{store, leave}, locks.Options{})
		lock(t, s, reads("r1", 0))
		if _, err := s.Lock(ctx, writes("w", 50*time.Second)); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		lock(t, s, reads("r2", 0))
	})
}

// TestShared_Session renews a reader's lease, and a RENEW sets how long it is.
func TestShared_Session(t *testing.T) {
	onEach(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		session := s.NewSession(nil)
		r := reads("r", 0)
		r.TTL, r.Session = 3*time.Second, session
		g := lock(t, s, r)
		time.Sleep(5 * time.Second)
		if _, err := s.Renew(t.Context(), locks.RenewRequest{Key: job, Owner: "r", Shared: true, Fence: g.Fence, TTL: 4 * time.Second}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Second)
		refuses(t, s, writes("w", 0))
		session.End()
		lock(t, s, writes("w", 20*time.Second))
	})
}

func TestShared_Invalid(t *testing.T) {
	inMemory(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		for what, change := range map[string]func(*locks.LockRequest){
			"no end":   func(r *locks.LockRequest) { r.Open = true },
			"replaces": func(r *locks.LockRequest) { r.Replaces = &locks.GrantRef{Owner: "x", Fence: 1} },
		} {
			r := reads("r", 0)
			if change(&r); what == "no end" {
				r.TTL = 0
			}
			if _, err := s.Lock(t.Context(), r); err == nil {
				t.Errorf("a reader whose lease has %s was granted", what)
			}
		}
	})
}
