package etcd_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/etcd"
	"github.com/lockproxy/lockproxy/integration/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// newStore is a Store with one member, for a prefix.
func newStore(t *testing.T, members []*redistest.Etcd, prefix string) *etcd.Store {
	t.Helper()
	return newStoreWith(t, members, prefix, etcd.Options{NodeTimeout: 10 * time.Second})
}

func newStoreWith(t *testing.T, members []*redistest.Etcd, prefix string, o etcd.Options) *etcd.Store {
	t.Helper()
	target, err := etcd.Parse(redistest.EtcdURL(members, prefix))
	if err != nil {
		t.Fatal(err)
	}
	o.Target = target
	st, err := etcd.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// serve runs a Service until the test ends.
func serve(t *testing.T, st locks.Store) *locks.Service {
	t.Helper()
	s, err := locks.New(st, locks.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s
}

// start is so many proxies with one member of etcd.
func start(t *testing.T, proxies int) (all []*locks.Service) {
	t.Helper()
	members := redistest.StartEtcd(t, 1)
	for range proxies {
		all = append(all, serve(t, newStore(t, members, "test")))
	}
	return all
}

// startPatient is start, for requests that keep etcd busy for long, and with long leases.
func startPatient(t *testing.T, proxies int) (all []*locks.Service) {
	t.Helper()
	members := redistest.StartEtcd(t, 1)
	for range proxies {
		all = append(all, serve(t, newStoreWith(t, members, "test", etcd.Options{NodeTimeout: 2 * time.Minute, MaxTTL: time.Hour})))
	}
	return all
}

var job = locks.Key{Name: "job"}

func lock(t *testing.T, s *locks.Service, r locks.LockRequest) locks.Grant {
	t.Helper()
	if r.Name == "" {
		r.Key = job
	}
	if r.TTL == 0 {
		r.TTL = 30 * time.Second
	}
	a, err := lockInTime(t, s, r)
	if err != nil || !a.Granted {
		t.Fatalf("LOCK %s by %s: %+v, %v", r.Name, r.Owner, a, err)
	}
	return a.Grant
}

// lockInTime is LOCK, once more when a busy machine answers late, and the grant was given back.
func lockInTime(t *testing.T, s *locks.Service, r locks.LockRequest) (d locks.Decision, err error) {
	for d, err = s.Lock(t.Context(), r); isLate(err); d, err = s.Lock(t.Context(), r) {
	}
	return d, err
}

func isLate(err error) bool {
	return err != nil && strings.Contains(err.Error(), "answered after the lease had ended")
}

func refused(t *testing.T, s *locks.Service, owner string) locks.Decision {
	t.Helper()
	a, err := s.Lock(t.Context(), locks.LockRequest{Key: job, Owner: owner, TTL: time.Second})
	if err != nil || a.Granted {
		t.Fatalf("LOCK by %s: %+v, %v, want a refusal", owner, a, err)
	}
	return a
}

func unlock(t *testing.T, s *locks.Service, r locks.UnlockRequest, want int) {
	t.Helper()
	r.Key = job
	if left, err := s.Unlock(t.Context(), r); err != nil || left != want {
		t.Fatalf("UNLOCK by %s: %d, %v, want %d", r.Owner, left, err, want)
	}
}

// lost is an UNLOCK that must be told that the lock is lost.
func lost(t *testing.T, s *locks.Service, r locks.UnlockRequest) {
	t.Helper()
	r.Key = job
	if left, err := s.Unlock(t.Context(), r); !errors.Is(err, locks.ErrLost) {
		t.Fatalf("UNLOCK by %s: %d, %v, want LOCKLOST", r.Owner, left, err)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	redistest.Eventually(t, time.Minute, what, ok)
}

func TestLockAndUnlock(t *testing.T) {
	t.Parallel()
	s := start(t, 2)
	g := lock(t, s[0], locks.LockRequest{Owner: "a", TTL: 30 * time.Second})
	if g.Validity > 30*time.Second-locks.Drift(30*time.Second) || g.Holds != 1 || g.Fence < time.Now().UnixMicro() || g.Fence >= 1<<53 {
		t.Errorf("%+v", g)
	}
	d := refused(t, s[1], "b")
	if d.Holder != "a" || d.Fence != g.Fence || d.Remaining <= 0 || d.Remaining > 31*time.Second {
		t.Errorf("refused with %+v", d)
	}
	unlock(t, s[1], locks.UnlockRequest{Owner: "a"}, 0) // through the other proxy
	unlock(t, s[0], locks.UnlockRequest{Owner: "a"}, 0) // a repeat
	next := lock(t, s[1], locks.LockRequest{Owner: "b"})
	if next.Fence <= g.Fence {
		t.Errorf("fence %d after %d", next.Fence, g.Fence)
	}
	unlock(t, s[0], locks.UnlockRequest{Owner: "a", Fence: g.Fence}, 0) // still a repeat
	var other *locks.NotOwnerError
	if _, err := s[0].Unlock(t.Context(), locks.UnlockRequest{Key: job, Owner: "c"}); !errors.As(err, &other) || other.Remaining <= 0 {
		t.Errorf("UNLOCK of another one's lock: %v", err)
	}
}

// TestFence: fences go up over release, a fresh grant, a force and through other proxies, and a re-entry keeps its own.
func TestFence(t *testing.T) {
	t.Parallel()
	s := start(t, 2)
	last := int64(0)
	for i := range 10 {
		g := lock(t, s[i%2], locks.LockRequest{Owner: "a"})
		if g.Fence <= last {
			t.Fatalf("fence %d after %d", g.Fence, last)
		}
		again := lock(t, s[(i+1)%2], locks.LockRequest{Owner: "a"})
		if again.Fence != g.Fence || again.Holds != 2 {
			t.Fatalf("re-entered with %+v, %d was the fence", again, g.Fence)
		}
		fresh := lock(t, s[0], locks.LockRequest{Owner: "a", Fresh: true})
		if fresh.Fence <= g.Fence || fresh.Holds != 1 {
			t.Fatalf("FRESH: %+v after %d", fresh, g.Fence)
		}
		last = fresh.Fence
		unlock(t, s[1], locks.UnlockRequest{Owner: "a", All: true}, 0)
	}
}

// TestShortTTL: a name is free again soon after a ttl that is far shorter than etcd's leases, and not before it is over.
func TestShortTTL(t *testing.T) {
	t.Parallel()
	s := start(t, 2)
	g := lock(t, s[0], locks.LockRequest{Owner: "a", TTL: 300 * time.Millisecond})
	for before := time.Now(); ; {
		asked := time.Now()
		a, err := s[1].Lock(t.Context(), locks.LockRequest{Key: job, Owner: "b", TTL: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(before); a.Granted && took < g.Validity {
			t.Errorf("granted after %v, in the validity of %v", took, g.Validity)
		}
		if a.Granted {
			break
		}
		if after := asked.Sub(before); after > 2*time.Second { // sooner than any lease of etcd ends
			t.Fatalf("refused after %v", after)
		}
	}
	var other *locks.NotOwnerError
	if _, err := s[0].Unlock(t.Context(), locks.UnlockRequest{Key: job, Owner: "a", Fence: g.Fence}); !errors.As(err, &other) {
		t.Errorf("UNLOCK of a lease that has ended: %v", err)
	}
	unlock(t, s[1], locks.UnlockRequest{Owner: "b"}, 0)
	lock(t, s[0], locks.LockRequest{Owner: "a", TTL: 100 * time.Millisecond})
	eventually(t, "the lease has ended", func() bool {
		r, err := s[1].Read(t.Context(), job)
		return err == nil && !r.Held
	})
	lost(t, s[1], locks.UnlockRequest{Owner: "a"})
}

// within does what must be done within a lease, with a longer one where a busy machine took as long as it: then over reports so.
func within(ttl time.Duration, do func(ttl time.Duration, over func() bool)) {
	for again := true; again; ttl *= 2 {
		began := time.Now()
		do(ttl, func() bool {
			again = time.Since(began) > ttl-locks.Drift(ttl)
			return again
		})
	}
}

// TestHoldsEndAlone: a hold ends with its own ttl, and a longer one keeps the name.
func TestHoldsEndAlone(t *testing.T) {
	t.Parallel()
	s := start(t, 2)
	within(3*time.Second, func(ttl time.Duration, over func() bool) {
		lock(t, s[0], locks.LockRequest{Owner: "a", TTL: ttl})
		if g := lock(t, s[1], locks.LockRequest{Owner: "a", TTL: time.Minute}); over() {
			unlock(t, s[1], locks.UnlockRequest{Owner: "a", All: true}, 0)
		} else if g.Holds != 2 {
			t.Fatalf("%+v", g)
		}
	})
	eventually(t, "the first hold has ended", func() bool {
		r, err := s[1].Read(t.Context(), job)
		return err == nil && r.Held && r.Holds == 1
	})
	unlock(t, s[1], locks.UnlockRequest{Owner: "a"}, 0)
}

// TestRenew: a renewal may shorten the lease, and never creates one.
func TestRenew(t *testing.T) {
	t.Parallel()
	s := start(t, 2)
	g := lock(t, s[0], locks.LockRequest{Owner: "a", TTL: 5 * time.Second})
	for range 10 {
		if v, err := s[1].Renew(t.Context(), locks.RenewRequest{Key: job, Owner: "a", TTL: 30 * time.Second, Fence: g.Fence}); err != nil || v <= 20*time.Second {
			t.Fatalf("%v, %v", v, err)
		}
	}
	refused(t, s[0], "b")
	if v, err := s[0].Renew(t.Context(), locks.RenewRequest{Key: job, Owner: "a", TTL: time.Second}); err != nil && !isLate(err) || v > time.Second {
		t.Fatalf("%v, %v", v, err)
	}
	eventually(t, "it is free", func() bool {
		a, err := s[1].Lock(t.Context(), locks.LockRequest{Key: job, Owner: "b", TTL: time.Minute})
		return err == nil && a.Granted
	})
	var other *locks.NotOwnerError
	if _, err := s[0].Renew(t.Context(), locks.RenewRequest{Key: job, Owner: "a", TTL: time.Second}); !errors.As(err, &other) {
		t.Errorf("RENEW of another one's lock: %v", err)
	}
	unlock(t, s[1], locks.UnlockRequest{Owner: "b"}, 0)
	if _, err := s[0].Renew(t.Context(), locks.RenewRequest{Key: job, Owner: "a", TTL: time.Second}); !errors.Is(err, locks.ErrLost) {
		t.Errorf("RENEW of no lock: %v", err)
	}
}

// TestRenewed_Elsewhere: a proxy that has seen a lease before it was renewed does not believe in its first end.
func TestRenewed_Elsewhere(t *testing.T) {
	t.Parallel()
	s := start(t, 3)
	var g locks.Grant
	var ends time.Time // the lease as s[2] has seen it
	within(2*time.Second, func(ttl time.Duration, over func() bool) {
		g = lock(t, s[0], locks.LockRequest{Owner: "a", TTL: ttl})
		ends = time.Now().Add(ttl)
		d, err := s[2].Lock(t.Context(), locks.LockRequest{Key: job, Owner: "b", TTL: time.Second})
		_, renewed := s[1].Renew(t.Context(), locks.RenewRequest{Key: job, Owner: "a", TTL: time.Minute})
		if over() {
			_, _, _ = s[0].Force(t.Context(), job)
		} else if err != nil || d.Granted || renewed != nil {
			t.Fatal(d, err, renewed)
		}
	})
	for time.Since(ends) < 200*time.Millisecond {
		time.Sleep(50 * time.Millisecond)
		if d := refused(t, s[2], "b"); d.Fence != g.Fence {
			t.Fatalf("%+v, %d was the fence", d, g.Fence)
		}
	}
}

// TestLimits: the longest name, owner, request and text fit into a transaction, and any bytes do.
func TestLimits(t *testing.T) {
	t.Parallel()
	s := start(t, 2)
	any := func(n int) string { return strings.Repeat("\x00\xff\xc3(\n", n/5) + strings.Repeat("x", n%5) }
	k := locks.Key{DB: 15, Name: any(locks.MaxName)}
	r := locks.LockRequest{Key: k, Owner: any(locks.MaxOwner), Req: any(locks.MaxReq), Info: any(locks.MaxInfo), TTL: 30 * time.Second}
	g := lock(t, s[0], r)
	in, err := s[1].Inspect(t.Context(), k)
	if err != nil || in.Holding.Owner != r.Owner || in.Holding.Info != r.Info || in.Holding.Key != k {
		t.Errorf("%v, held %t", err, in.Held)
	}
	names, _, err := s[1].Names(t.Context(), locks.NamesRequest{DB: locks.AllDBs})
	if err != nil || len(names) != 1 || names[0] != k {
		t.Errorf("%d names, %v", len(names), err)
	}
	if left, err := s[1].Unlock(t.Context(), locks.UnlockRequest{Key: k, Owner: r.Owner, Fence: g.Fence, Req: r.Req}); err != nil || left != 0 {
		t.Errorf("UNLOCK: %d, %v", left, err)
	}
	r.Shared = true
	for range 2 {
		g = lock(t, s[0], r)
	}
	if in, err := s[1].Inspect(t.Context(), k); err != nil || len(in.Readers) != 1 || in.Readers[0].Owner != r.Owner || g.Owner != r.Owner {
		t.Errorf("%d readers, %v", len(in.Readers), err)
	}
	if left, err := s[1].Unlock(t.Context(), locks.UnlockRequest{Key: k, Owner: r.Owner, Req: r.Req, Shared: true}); err != nil || left != 0 {
		t.Errorf("UNLOCK of a reader: %d, %v", left, err)
	}
}

// TestContended: of many who want a name at once through several proxies, one has it at a time.
func TestContended(t *testing.T) {
	t.Parallel()
	s := start(t, 3)
	var inside, last atomic.Int64
	var all sync.WaitGroup
	for i := range 24 {
		all.Go(func() {
			for range 5 {
				a, err := s[i%3].Lock(t.Context(), locks.LockRequest{Key: job, TTL: 30 * time.Second, Wait: 10 * time.Minute})
				if err != nil || !a.Granted {
					t.Errorf("%+v, %v", a, err)
					return
				}
				if n, before := inside.Add(1), last.Swap(a.Grant.Fence); n > 1 || a.Grant.Fence <= before {
					t.Errorf("%d inside, fence %d after %d", n, a.Grant.Fence, before)
				}
				inside.Add(-1)
				if _, err := s[i%3].Unlock(t.Context(), locks.UnlockRequest{Key: job, Owner: a.Grant.Owner}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

// newImpatientStore is newStore for a cluster of which members fail.
func newImpatientStore(t *testing.T, members []*redistest.Etcd, prefix string) *etcd.Store {
	t.Helper()
	target, err := etcd.Parse(redistest.EtcdURL(members, prefix))
	if err != nil {
		t.Fatal(err)
	}
	st, err := etcd.New(etcd.Options{Target: target})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// ended is a context that has ended.
func ended(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
