package etcd_test

import (
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/etcd"
	"github.com/lockproxy/lockproxy/integration/redistest"
)

// A result is what Lock returned to one caller.
type result struct {
	locks.Decision
	err error
}

// inLine asks for the name with a long wait, and returns when the request stands in line.
func inLine(t *testing.T, s *locks.Service, owner string) <-chan result {
	t.Helper()
	n := len(s.Waiters(job))
	out := make(chan result, 1)
	go s.LockAsync(t.Context(), locks.LockRequest{Key: job, Owner: owner, TTL: time.Minute, Wait: 10 * time.Minute}, func(d locks.Decision, err error) { out <- result{d, err} })
	eventually(t, "it waits", func() bool { return len(s.Waiters(job)) == n+1 })
	return out
}

// soon is a grant that must come within a minute: far before the holder's lease would have ended.
func soon(t *testing.T, c <-chan result) locks.Grant {
	t.Helper()
	select {
	case r := <-c:
		if r.err != nil || !r.Granted {
			t.Fatalf("%+v, %v", r.Decision, r.err)
		}
		return r.Grant
	case <-time.After(time.Minute):
		t.Fatal("nobody was woken")
		return locks.Grant{}
	}
}

// TestWaitersAreWoken: waiters at another proxy are told of a release, of a hold that is forced away and of the end of a
// lease. The waiter's own looks are far apart: the lease has ten minutes.
func TestWaitersAreWoken(t *testing.T) {
	t.Parallel()
	members := redistest.StartEtcd(t, 1)
	var s []*locks.Service
	for range 2 {
		target, err := etcd.Parse(redistest.EtcdURL(members, "test"))
		if err != nil {
			t.Fatal(err)
		}
		st, err := etcd.New(etcd.Options{Target: target, NodeTimeout: 10 * time.Second, MaxTTL: 20 * time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		s = append(s, serve(t, st))
	}
	for name, free := range map[string]func(g locks.Grant) error{
		"UNLOCK": func(g locks.Grant) error {
			_, err := s[0].Unlock(t.Context(), locks.UnlockRequest{Key: job, Owner: g.Owner})
			return err
		},
		"FORCE": func(locks.Grant) error {
			_, _, err := s[0].Force(t.Context(), job)
			return err
		},
		"RENEW to little": func(g locks.Grant) error {
			_, err := s[0].Renew(t.Context(), locks.RenewRequest{Key: job, Owner: g.Owner, TTL: 3 * time.Second})
			return err
		},
	} {
		g := lock(t, s[0], locks.LockRequest{Owner: "a", TTL: 10 * time.Minute})
		waits := inLine(t, s[1], "b")
		if err := free(g); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if next := soon(t, waits); next.Fence <= g.Fence {
			t.Errorf("%s: fence %d after %d", name, next.Fence, g.Fence)
		}
		unlock(t, s[0], locks.UnlockRequest{Owner: "b"}, 0)
	}
}

// TestWatchIsOpenedAgain: a waiter at a proxy whose member of etcd has died is woken by another one.
func TestWatchIsOpenedAgain(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(*redistest.Etcd){"killed": (*redistest.Etcd).Kill, "hangs": (*redistest.Etcd).Pause} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			members := redistest.StartEtcd(t, 3)
			holder := serve(t, newStore(t, members[1:], "test"))
			waiter := serve(t, newImpatientStore(t, members, "test"))
			lock(t, holder, locks.LockRequest{Owner: "a", TTL: time.Minute})
			waits := inLine(t, waiter, "b")
			stop(members[0]) // the one that waiter listens to
			eventually(t, "the holder's proxy gives the name back", func() bool {
				_, err := holder.Unlock(t.Context(), locks.UnlockRequest{Key: job, Owner: "a"})
				return err == nil
			})
			soon(t, waits)
		})
	}
}
