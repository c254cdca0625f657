package locks_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// permit is a LOCK of an owner that shares the name with at most so many.
func permit(owner string, permits int, wait time.Duration) locks.LockRequest {
	return locks.LockRequest{Key: job, Owner: owner, Permits: permits, TTL: 30 * time.Second, Wait: wait}
}

// TestPermits_AsManyAsThereAre, whatever the Store: neither more nor fewer.
func TestPermits_AsManyAsThereAre(t *testing.T) {
	onEach(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		first := permit("p0", 3, 0)
		first.TTL = 20 * time.Second
		last := lock(t, s, first)
		for i := 1; i < 3; i++ {
			g := lock(t, s, permit(fmt.Sprint("p", i), 3, 0))
			if g.Fence <= last.Fence {
				t.Errorf("permit %d has fence %d, after %d", i, g.Fence, last.Fence)
			}
			last = g
		}
		if g := lock(t, s, permit("p1", 3, 0)); g.Holds != 2 {
			t.Errorf("who has a permit entered again: %d holds", g.Holds)
		}
		a := refuses(t, s, permit("q", 3, 0))
		if a.Why != locks.Permits || a.Holder == "" || a.Remaining <= 15*time.Second || a.Remaining > 20*time.Second {
			t.Errorf("one more than there are permits: %+v", a)
		}
		refuses(t, s, permit("q", 2, 0))
		lock(t, s, permit("more", 4, 0))
		giveUp(t, s, "more", true)
		giveUp(t, s, "p2", true)
		lock(t, s, permit("q", 3, 0))
		if a := refuses(t, s, writes("w", 0)); a.Why != locks.Readers {
			t.Errorf("a writer beside permits: %+v", a)
		}
		lock(t, s, reads("r", 0))
		if a := refuses(t, s, permit("r", 9, time.Minute)); a.Holder != "r" || a.Why != locks.Upgrade {
			t.Errorf("who reads without a permit: %+v", a)
		}
	})
}

// TestPermits_InLine: those who wait get permits in their order, two at once if two are given back at once, and nobody overtakes
// them but who needs no permit.
func TestPermits_InLine(t *testing.T) {
	onEach(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		for i := range 2 {
			lock(t, s, permit(fmt.Sprint("h", i), 2, 0))
		}
		granted := make(chan string, 10)
		line := func(r locks.LockRequest) {
			had := len(s.Waiters(job))
			go s.LockAsync(t.Context(), r, func(a locks.Decision, err error) {
				if !a.Granted || err != nil {
					t.Errorf("%s: %+v, %v", r.Owner, a, err)
				}
				granted <- r.Owner
			})
			eventually(t, r.Owner+" waits", func() bool { return len(s.Waiters(job)) == had+1 })
		}
		for i := range 3 {
			line(permit(fmt.Sprint("p", i), 2, 50*time.Second))
		}
		lock(t, s, reads("r", 0)) // it takes no permit
		lock(t, s, reads("", 50*time.Second))
		refuses(t, s, locks.LockRequest{Key: job, Permits: 2, TTL: time.Second})
		for i := range 2 {
			giveUp(t, s, fmt.Sprint("h", i), true)
		}
		for i := range 2 {
			if owner := <-granted; owner != fmt.Sprint("p", i) {
				t.Errorf("%s came at place %d", owner, i)
			}
		}
		refuses(t, s, locks.LockRequest{Key: job, Permits: 2, TTL: time.Second})
		select {
		case owner := <-granted:
			t.Errorf("%s came in, though two have permits", owner)
		case <-time.After(50 * time.Millisecond):
		}
		giveUp(t, s, "p0", true)
		if owner := <-granted; owner != "p2" {
			t.Errorf("%s came third", owner)
		}
	})
}

func TestPermits_Invalid(t *testing.T) {
	inMemory(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		for what, change := range map[string]func(*locks.LockRequest){
			"fewer than none": func(r *locks.LockRequest) { r.Permits = -1 },
			"too many":        func(r *locks.LockRequest) { r.Permits = locks.MaxPermits + 1 },
			"no end":          func(r *locks.LockRequest) { r.Open = true },
		} {
			r := permit("p", 2, 0)
			change(&r)
			if a, err := s.Lock(t.Context(), r); err == nil {
				t.Errorf("%s: %+v", what, a)
			}
		}
	})
}
