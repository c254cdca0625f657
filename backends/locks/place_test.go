package locks_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/memstore"
)

// TestWait_ShortWaitsKeepTheirPlaces: clients that ask again with the same request whenever a short wait is over are
// served in the order in which they came, as are those that wait in one go among them.
func TestWait_ShortWaitsKeepTheirPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := serve(t, memstore.New(time.Minute, func() time.Duration { return time.Since(began) + time.Hour }), locks.Options{})
		lock(t, s, locks.LockRequest{Owner: "holder"})
		var (
			mu     sync.Mutex
			served []string
			all    sync.WaitGroup
			want   []string
		)
		for i, wait := range []time.Duration{time.Second, 700 * time.Millisecond, time.Minute, time.Second, 300 * time.Millisecond, time.Minute, 1300 * time.Millisecond} {
			owner := fmt.Sprint("client ", i)
			want = append(want, owner)
			all.Go(func() {
				r := locks.LockRequest{Key: job, Owner: owner, Req: "1", TTL: 30 * time.Second, Wait: wait}
				for {
					d, err := s.Lock(t.Context(), r)
					if err != nil {
						t.Error(err)
						return
					}
					if d.Granted {
						mu.Lock()
						served = append(served, owner)
						mu.Unlock()
						unlock(t, s, locks.UnlockRequest{Owner: owner}, 0)
						return
					}
					time.Sleep(20 * time.Millisecond) // the way to the client and back
				}
			})
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(7*time.Second + 311*time.Millisecond)
		if n := s.Lines().Len(job); n != len(want) {
			t.Fatalf("%d of %d wait: the lock becomes free when one is away", n, len(want))
		}
		unlock(t, s, locks.UnlockRequest{Owner: "holder"}, 0)
		all.Wait()
		if !slices.Equal(served, want) {
			t.Errorf("served %v", served)
		}
	})
}

// TestWait_AbsentWaiterIsPassedOver: a lock that becomes free while the first in line is away goes to the next.
func TestWait_AbsentWaiterIsPassedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := serve(t, memstore.New(time.Minute, func() time.Duration { return time.Since(began) + time.Hour }), locks.Options{})
		lock(t, s, locks.LockRequest{Owner: "holder"})
		first := locks.LockRequest{Key: job, Owner: "first", Req: "1", TTL: 30 * time.Second, Wait: time.Second}
		away := wait(t, s, first)
		synctest.Wait()
		next := inLine(t, s, "job", "next")
		if r := <-away; r.err != nil || r.Granted {
			t.Fatalf("%+v, %v", r.Decision, r.err)
		}
		unlock(t, s, locks.UnlockRequest{Owner: "holder"}, 0)
		if g := granting(t, next).Grant; g.Owner != "next" {
			t.Errorf("%+v", g)
		}
		back := wait(t, s, first)
		none(t, back, 100*time.Millisecond)
		unlock(t, s, locks.UnlockRequest{Owner: "next"}, 0)
		granting(t, back)
	})
}
