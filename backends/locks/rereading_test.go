package locks_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/memstore"
)

// An elsewhereStore answers refusals late, and knows of no grant that this proxy made it.
type elsewhereStore struct{ lateStore }

func (elsewhereStore) Holds(locks.Holder) bool { return false }

// TestShared_ReentryBehindAWriter: an owner that reads through another proxy is not put behind a writer that waits for it, also
// if that writer has no answer yet.
func TestShared_ReentryBehindAWriter(t *testing.T) {
	for _, ask := range []struct {
		shared bool
		wait   time.Duration
	}{{true, 0}, {true, 5 * time.Second}, {false, 5 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			now := func() time.Duration { return time.Since(began) + time.Hour }
			store := elsewhereStore{lateStore{memstore.New(time.Minute, now), 100 * time.Millisecond}}
			s := serve(t, store, locks.Options{})
			for owner, ttl := range map[string]time.Duration{"alice": 20 * time.Second, "carol": 40 * time.Second} {
				r := locks.LockRequest{Key: job, Owner: owner, TTL: ttl, Shared: true}
				r.Reader = owner
				if d, err := store.Store.Acquire(t.Context(), locks.Attempt{LockRequest: r}); err != nil || !d.Granted {
					t.Fatal(d, err)
				}
			}
			bob := wait(t, s, locks.LockRequest{Key: job, Owner: "bob", TTL: 10 * time.Second, Wait: 10 * time.Second})
			eventually(t, "bob waits", func() bool { return s.Lines().Len(job) == 1 })
			defer func() { <-bob }()
			r := <-wait(t, s, locks.LockRequest{Key: job, Owner: "alice", TTL: time.Second, Shared: ask.shared, Wait: ask.wait})
			if r.Granted != ask.shared || !ask.shared && r.Why != locks.Upgrade || r.err != nil || r.took > time.Second {
				t.Errorf("%+v: %+v, %v after %v", ask, r.Decision, r.err, r.took)
			}
		})
	}
}
