package locks_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/memstore"
)

// A countingStore counts acquisitions.
type countingStore struct {
	*memstore.Store
	n atomic.Int64
}

func (s *countingStore) Acquire(ctx context.Context, a locks.Attempt) (locks.Decision, error) {
	s.n.Add(1)
	return s.Store.Acquire(ctx, a)
}

// TestLock_Barge: where others wait, a LOCK is refused by what the line knows; with Barge the Store is asked.
func TestLock_Barge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		store := &countingStore{Store: memstore.New(time.Minute, func() time.Duration { return time.Since(began) + time.Hour })}
		s := serve(t, store, locks.Options{})
		lock(t, s, locks.LockRequest{Owner: "alice"})
		w := inLine(t, s, "job", "")
		synctest.Wait()
		for _, barge := range []bool{false, true} {
			before := store.n.Load()
			d, err := s.Lock(t.Context(), locks.LockRequest{Key: job, TTL: time.Second, Owner: "bob", Barge: barge})
			if err != nil || d.Granted || d.Holder != "alice" {
				t.Errorf("%+v, %v", d, err)
			}
			if asked := store.n.Load() > before; asked != barge {
				t.Errorf("barge %t: the store was asked: %t", barge, asked)
			}
		}
		unlock(t, s, locks.UnlockRequest{Owner: "alice"}, 0)
		granting(t, w)
	})
}
