package etcd_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/integration/redistest"
)

// TestShared_ComesInTheirPlace: who comes after a lease that has ended for its proxy has taken it away, from a reader as from a writer: a
// renewal through a proxy that still believes in it is refused.
func TestShared_ComesInTheirPlace(t *testing.T) {
	t.Parallel()
	for name, reads := range map[string]bool{"of a reader": true, "of a writer": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const ttl = 3 * time.Second
			members := redistest.StartEtcd(t, 1)
			gone, err := locks.New(newStore(t, members, "test"), locks.Options{})
			if err != nil {
				t.Fatal(err)
			}
			next, late := serve(t, newStore(t, members, "test")), serve(t, newStore(t, members, "test"))
			was := lock(t, gone, locks.LockRequest{Owner: "a", TTL: ttl, Shared: reads})
			ask := locks.LockRequest{Key: job, Owner: "b", TTL: time.Minute, Shared: !reads}
			for i, s := range []*locks.Service{next, late} {
				time.Sleep(time.Duration(i) * ttl / 2) // the second one counts from then
				if d, err := s.Lock(t.Context(), ask); err != nil || d.Granted || d.Holder != "a" {
					t.Fatalf("%+v, %v", d, err)
				}
			}
			if err := gone.Run(ended(t)); err != nil {
				t.Fatal(err)
			}
			ask.Wait = time.Minute
			g := lock(t, next, ask)
			if g.Fence <= was.Fence {
				t.Errorf("fence %d after %d", g.Fence, was.Fence)
			}
			if v, err := late.Renew(t.Context(), locks.RenewRequest{Key: job, Owner: "a", TTL: time.Minute, Shared: reads}); err == nil {
				t.Errorf("both have it: a renewal was told %v", v)
			}
		})
	}
}

// TestShared_WaitersAreWoken: waiters at another proxy are told when the last reader has gone, and when a writer waits no longer. Their own
// looks are far apart.
func TestShared_WaitersAreWoken(t *testing.T) {
	t.Parallel()
	s := start(t, 2)
	for _, owner := range []string{"r1", "r2"} {
		lock(t, s[0], locks.LockRequest{Owner: owner, TTL: time.Minute, Shared: true})
	}
	writer := inLine(t, s[1], "w")
	reads := func(s *locks.Service, owner string) locks.Decision {
		d, err := s.Lock(t.Context(), locks.LockRequest{Key: job, Owner: owner, TTL: time.Minute, Shared: true})
		if err != nil {
			t.Fatal(err)
		}
		if d.Granted {
			unlock(t, s, locks.UnlockRequest{Owner: owner, Shared: true}, 0)
		}
		return d
	}
	eventually(t, "new readers are kept out", func() bool { return reads(s[1], "r3").Why == locks.Intent })
	if d := reads(s[0], "r4"); d.Why != locks.Intent {
		t.Errorf("at a proxy that has not seen that a writer waits: %+v", d)
	}
	lock(t, s[0], locks.LockRequest{Owner: "r1", TTL: time.Minute, Shared: true}) // who reads may enter again
	for _, owner := range []string{"r1", "r2"} {
		unlock(t, s[0], locks.UnlockRequest{Owner: owner, Shared: true, All: true}, 0)
	}
	g := soon(t, writer)
	if d, err := s[0].Lock(t.Context(), locks.LockRequest{Key: job, Owner: "r3", TTL: time.Second, Shared: true}); err != nil || d.Granted || d.Fence != g.Fence {
		t.Errorf("a reader beside a writer: %+v, %v", d, err)
	}
	unlock(t, s[0], locks.UnlockRequest{Owner: "w"}, 0)
	lock(t, s[0], locks.LockRequest{Owner: "r3", Shared: true}) // the intent went with the grant
}

// TestShared_Shown: who reads a name is shown, listed and forced, also where they are more than are shown.
func TestShared_Shown(t *testing.T) {
	t.Parallel()
	s := startPatient(t, 2) // it takes a busy machine minutes
	a := lock(t, s[0], locks.LockRequest{Owner: "a", TTL: 50 * time.Minute, Shared: true})
	b := lock(t, s[1], locks.LockRequest{Owner: "b", TTL: 40 * time.Minute, Shared: true})
	lock(t, s[0], locks.LockRequest{Key: locks.Key{Name: "other"}, Owner: "c", TTL: time.Hour, Shared: true})
	lock(t, s[0], locks.LockRequest{Key: locks.Key{Name: "third"}, Owner: "d", TTL: time.Hour})
	eventually(t, "the member takes part", func() bool { return s[1].Stats().Voting == 1 })
	in, err := s[1].Inspect(t.Context(), job)
	if err != nil || in.Held || len(in.Readers) != 2 || in.Readers[0].Owner != "a" || in.Holding.Readers != 2 || in.Holding.Remaining <= 40*time.Minute || in.Nodes[0].Readers != 2 {
		t.Errorf("%+v, %v", in, err)
	}
	l, err := s[1].List(t.Context(), locks.ListRequest{DB: locks.AllDBs})
	var shown []string
	for _, h := range l.Held {
		shown = append(shown, fmt.Sprint(h.Name, h.Owner, h.Readers))
	}
	slices.Sort(shown)
	if want := []string{"job2", "other1", "thirdd0"}; err != nil || !slices.Equal(shown, want) {
		t.Errorf("%v, %v, want %v", shown, err, want)
	}
	if names, complete, err := s[1].Names(t.Context(), locks.NamesRequest{DB: locks.AllDBs}); err != nil || !complete || len(names) != 3 {
		t.Errorf("%v, %t, %v", names, complete, err)
	}
	other := (*locks.OtherGrantError)(nil)
	if _, held, err := s[1].ForceGrant(t.Context(), job, b.Fence+1000); held || !errors.As(err, &other) {
		t.Errorf("a fence of nobody: %v, %v", held, err)
	}
	if was, held, err := s[1].ForceGrant(t.Context(), job, b.Fence); err != nil || !held || was.Owner != "b" || was.Whole() != job {
		t.Errorf("%+v, %v, %v", was, held, err)
	}
	if in, err := s[1].Inspect(t.Context(), job); err != nil || len(in.Readers) != 1 || in.Readers[0].Owner != "a" {
		t.Errorf("%+v, %v", in, err)
	}
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			for n := i; n < locks.MaxReaders; n += 16 {
				lock(t, s[i%2], locks.LockRequest{Owner: fmt.Sprint("r", n), TTL: time.Hour, Shared: true})
			}
		})
	}
	all.Wait()
	if d := refused(t, s[0], "w"); d.Why != locks.Readers {
		t.Errorf("%+v", d)
	}
	if was, held, err := s[1].Force(t.Context(), job); err != nil || !held || was.Readers != locks.MaxReaders+1 || was.Whole() != job {
		t.Errorf("%+v, %v, %v", was, held, err)
	}
	if w := lock(t, s[0], locks.LockRequest{Owner: "w"}); w.Fence <= a.Fence {
		t.Errorf("fence %d after %d", w.Fence, a.Fence)
	}
	lock(t, s[1], locks.LockRequest{Owner: "w", Shared: true})
	if was, held, err := s[1].Force(t.Context(), job); err != nil || !held || was.Owner != "w" {
		t.Errorf("%+v, %v, %v", was, held, err)
	}
	if in, err := s[0].Inspect(t.Context(), job); err != nil || in.Held || len(in.Readers) != 1 {
		t.Errorf("the reading of a writer that was forced: %+v, %v", in, err)
	}
}

// TestShared_ForcedElsewhere: a reader's session is told that its lock was taken away through another proxy.
func TestShared_ForcedElsewhere(t *testing.T) {
	t.Parallel()
	s := start(t, 2)
	lost := make(chan locks.Loss, 1)
	session := s[0].NewSession(func(l locks.Loss) { lost <- l })
	g := lock(t, s[0], locks.LockRequest{Owner: "a", TTL: time.Minute, Shared: true, Session: session})
	if _, held, err := s[1].Force(t.Context(), job); err != nil || !held {
		t.Fatalf("%v, %v", held, err)
	}
	select {
	case l := <-lost:
		if l.Fence != g.Fence || l.Whole() != job {
			t.Errorf("%+v", l)
		}
	case <-time.After(time.Minute):
		t.Error("nobody is told")
	}
}

// TestShared_Contended: readers and writers of many proxies at once: a writer is inside alone.
func TestShared_Contended(t *testing.T) {
	t.Parallel()
	s := start(t, 3)
	var mu sync.Mutex
	readers, writers, together := 0, 0, 0
	var last int64 // of writers
	enter := func(shared bool, fence int64) {
		mu.Lock()
		defer mu.Unlock()
		if shared {
			readers++
			together = max(together, readers)
		} else {
			writers++
		}
		if writers > 1 || writers == 1 && readers > 0 || fence <= last {
			t.Errorf("%d readers and %d writers inside, fence %d after %d", readers, writers, fence, last)
		}
		if !shared {
			last = fence
		}
	}
	leave := func(shared bool) {
		mu.Lock()
		defer mu.Unlock()
		if shared {
			readers--
		} else {
			writers--
		}
	}
	var all sync.WaitGroup
	for i := range 18 {
		all.Go(func() {
			shared := i%3 != 0
			for range 5 {
				a, err := s[i%3].Lock(t.Context(), locks.LockRequest{Key: job, TTL: 30 * time.Second, Wait: time.Minute, Shared: shared})
				if err != nil || !a.Granted {
					t.Errorf("%+v, %v", a, err)
					return
				}
				enter(shared, a.Grant.Fence)
				time.Sleep(time.Millisecond)
				leave(shared)
				if _, err := s[i%3].Unlock(t.Context(), locks.UnlockRequest{Key: job, Owner: a.Grant.Owner, Shared: shared}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if together < 2 {
		t.Error("no two have read at once")
	}
}
