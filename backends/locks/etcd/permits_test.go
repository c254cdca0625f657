package etcd_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/integration/redistest"
)

func permit(owner string, permits int) locks.LockRequest {
	return locks.LockRequest{Key: job, Owner: owner, TTL: time.Minute, Permits: permits}
}

// readersOf are how many read the job or have a permit.
func readersOf(t *testing.T, s *locks.Service) int {
	t.Helper()
	in, err := s.Inspect(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	return len(in.Readers)
}

// TestPermits_LateLock: a LOCK that etcd does later, when another has come, or has renewed what seemed to have ended, is refused.
func TestPermits_LateLock(t *testing.T) {
	t.Parallel()
	const ttl = 6 * time.Second
	for name, c := range map[string]struct {
		before, then func(t *testing.T, s, gone, late *locks.Service)
	}{
		"nobody had one": {
			func(*testing.T, *locks.Service, *locks.Service, *locks.Service) {},
			func(t *testing.T, _, _, late *locks.Service) { lock(t, late, permit("a", 1)) },
		},
		"one who read before": {
			func(t *testing.T, _, gone, late *locks.Service) {
				lock(t, gone, locks.LockRequest{Owner: "a", TTL: 2 * time.Second, Shared: true})
				eventually(t, "its reading has ended for the other proxy, and has a key still", func() bool { return readersOf(t, late) == 0 })
			},
			func(t *testing.T, _, _, late *locks.Service) { lock(t, late, permit("a", 1)) },
		},
		"one that has ended is renewed": {
			func(t *testing.T, s, gone, late *locks.Service) {
				r := permit("a", 1)
				r.TTL = ttl
				lock(t, gone, r)
				for i, s := range []*locks.Service{s, late} {
					time.Sleep(time.Duration(i) * ttl / 2) // the second one counts from then
					if n := readersOf(t, s); n != 1 {
						t.Fatalf("%d have a permit", n)
					}
				}
			},
			func(t *testing.T, _, _, late *locks.Service) {
				if _, err := late.Renew(t.Context(), locks.RenewRequest{Key: job, Owner: "a", TTL: time.Minute, Shared: true}); err != nil {
					t.Skipf("the machine is too busy: %v", err)
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			member := redistest.StartEtcd(t, 1)
			gone, err := locks.New(newStore(t, member, "test"), locks.Options{})
			if err != nil {
				t.Fatal(err)
			}
			late := serve(t, newStore(t, member, "test"))
			s, _, l := tapped(t, member[0])
			c.before(t, s, gone, late)
			if err := gone.Run(ended(t)); err != nil {
				t.Fatal(err)
			}
			before := l.taken()
			l.setCut(true)
			asked := make(chan struct{})
			go func() {
				defer close(asked)
				for {
					d, err := s.Lock(t.Context(), permit("b", 1))
					if err != nil || d.Granted {
						return
					}
					time.Sleep(ttl / 20)
				}
			}()
			eventually(t, "b asks", func() bool { return !bytes.Equal(before, l.taken()) })
			change := l.taken()
			c.then(t, s, gone, late)
			said := l.do(t, change)
			if n := readersOf(t, late); n != 1 || strings.Contains(said, `"succeeded":true`) {
				t.Errorf("%d have the permit; etcd said %s", n, said)
			}
			<-asked
			l.setCut(false)
		})
	}
}

// TestPermits_ComeInTheirPlace: a permit that has ended for its proxy is another's, and no renewal through a proxy that still believes
// in it is done.
func TestPermits_ComeInTheirPlace(t *testing.T) {
	t.Parallel()
	const ttl = 4 * time.Second
	members := redistest.StartEtcd(t, 1)
	gone, err := locks.New(newStore(t, members, "test"), locks.Options{})
	if err != nil {
		t.Fatal(err)
	}
	next, late := serve(t, newStore(t, members, "test")), serve(t, newStore(t, members, "test"))
	r := permit("a", 2)
	r.TTL = ttl
	was := lock(t, gone, r)
	lock(t, next, permit("stays", 2))
	for i, s := range []*locks.Service{next, late} {
		time.Sleep(time.Duration(i) * ttl / 2) // the second one counts from then
		if d, err := s.Lock(t.Context(), permit("b", 2)); err != nil || d.Granted || d.Holder != "a" || d.Why != locks.Permits {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	if err := gone.Run(ended(t)); err != nil {
		t.Fatal(err)
	}
	r = permit("b", 2)
	r.Wait = time.Minute
	if g := lock(t, next, r); g.Fence <= was.Fence {
		t.Errorf("fence %d after %d", g.Fence, was.Fence)
	}
	if v, err := late.Renew(t.Context(), locks.RenewRequest{Key: job, Owner: "a", TTL: time.Minute, Shared: true}); err == nil {
		t.Errorf("three have one of two permits: a renewal was told %v", v)
	}
	if n := readersOf(t, late); n != 2 {
		t.Errorf("%d have permits", n)
	}
}

// TestPermits_Contended: owners at many proxies, some of whom only read and some of whom write: there are never more with a permit than may be.
func TestPermits_Contended(t *testing.T) {
	t.Parallel()
	const permits = 3
	s := start(t, 3)
	var mu sync.Mutex
	inside, writers := 0, 0
	var last int64
	enter := func(n int, fence int64) {
		mu.Lock()
		defer mu.Unlock()
		if n == 0 {
			writers++
		} else {
			inside++
		}
		if inside > permits || writers > 1 || writers == 1 && inside > 0 {
			t.Errorf("%d have permits, and %d the name", inside, writers)
		}
		if writers == 1 && fence <= last {
			t.Errorf("fence %d of a writer after %d", fence, last)
		}
		last = max(last, fence)
	}
	leave := func(n int) {
		mu.Lock()
		defer mu.Unlock()
		if n == 0 {
			writers--
		} else {
			inside--
		}
	}
	var all sync.WaitGroup
	for i := range 18 {
		all.Go(func() {
			for round := range 5 {
				r := locks.LockRequest{Key: job, TTL: 30 * time.Second, Wait: 2 * time.Minute, Permits: permits}
				if (i+round)%9 == 0 {
					r.Permits = 0
				}
				a, err := s[i%3].Lock(t.Context(), r)
				if err != nil || !a.Granted {
					t.Errorf("%+v, %v", a, err)
					return
				}
				enter(r.Permits, a.Grant.Fence)
				if round == 2 && r.Permits > 0 {
					if _, err := s[(i+1)%3].Renew(t.Context(), locks.RenewRequest{Key: job, Owner: a.Grant.Owner, TTL: time.Minute, Shared: true}); err != nil {
						t.Error(err)
					}
				}
				time.Sleep(time.Millisecond)
				leave(r.Permits)
				if _, err := s[i%3].Unlock(t.Context(), locks.UnlockRequest{Key: job, Owner: a.Grant.Owner, Shared: r.Permits > 0}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range 6 {
		all.Go(func() {
			for n := range 10 {
				owner := fmt.Sprint("r", i, n)
				if a, err := s[i%3].Lock(t.Context(), locks.LockRequest{Key: job, Owner: owner, TTL: 30 * time.Second, Shared: true}); err != nil {
					t.Error(err)
				} else if a.Granted {
					unlock(t, s[i%3], locks.UnlockRequest{Owner: owner, Shared: true}, 0)
				}
			}
		})
	}
	all.Wait()
}

// An entry is a key of etcd.
type entry struct {
	Key   []byte `json:"key"`
	Value []byte `json:"value"`
	Mod   string `json:"mod_revision"`
	Lease string `json:"lease"`
}

// entries are the keys that begin so.
func entries(t *testing.T, member *redistest.Etcd, prefix string) (all []entry) {
	t.Helper()
	body, err := json.Marshal(map[string][]byte{"key": []byte(prefix), "range_end": []byte(prefix + "\xff")})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post("http://"+member.Addr()+"/v3/kv/range", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var r struct{ Kvs []entry }
	if err := json.NewDecoder(resp.Body).Decode(&r); err != nil {
		t.Fatal(err)
	}
	return r.Kvs
}

// TestPermits_SeatGoesWithTheLock: each change that writes the lock of an owner with a permit writes its seat too, under the same lease.
// Each that removes one removes the other.
func TestPermits_SeatGoesWithTheLock(t *testing.T) {
	t.Parallel()
	member := redistest.StartEtcd(t, 1)
	s := []*locks.Service{serve(t, newStore(t, member, "test")), serve(t, newStore(t, member, "test"))}
	wants := func(when string, permits int) {
		t.Helper()
		seats, together := entries(t, member[0], "test/seat/"), 0
		for _, l := range entries(t, member[0], "test/lock/") {
			if bytes.Contains(l.Value, []byte(`"seat":`)) {
				together++
				if !slices.ContainsFunc(seats, func(x entry) bool { return x.Mod == l.Mod && x.Lease == l.Lease && bytes.Equal(x.Value, l.Value) }) {
					t.Errorf("%s: %s has a permit and no seat: %s", when, l.Value, seats)
				}
			}
		}
		if len(seats) != permits || together != permits {
			t.Errorf("%s: %d seats and %d locks, want %d", when, len(seats), together, permits)
		}
	}
	back := locks.UnlockRequest{Owner: "a", Shared: true}
	again := permit("a", 2)
	lock(t, s[0], again)
	wants("a LOCK", 1)
	lock(t, s[1], locks.LockRequest{Owner: "a", TTL: 50 * time.Second, Shared: true})
	wants("a re-entry", 1)
	if _, err := s[0].Renew(t.Context(), locks.RenewRequest{Key: job, Owner: "a", TTL: 55 * time.Second, Shared: true}); err != nil {
		t.Fatal(err)
	}
	wants("a RENEW", 1)
	unlock(t, s[1], back, 1)
	wants("an UNLOCK", 1)
	both := several("a", "another", job.Name)
	both.Shared = true
	lockAll(t, s[0], both)
	wants("a LOCK of several names", 1)
	unlockAll(t, s[1], both, 1)
	again.Fresh, again.Permits = true, 1
	first := lock(t, s[1], again)
	wants("a LOCK with FRESH", 1)
	lock(t, s[0], locks.LockRequest{Owner: "a", Shared: true, Fresh: true})
	wants("one that has no permit any more", 0)
	if d, err := s[0].Lock(t.Context(), permit("a", 2)); err != nil || d.Granted || d.Why != locks.Upgrade {
		t.Errorf("%+v, %v", d, err)
	}
	if g := lock(t, s[1], again); g.Fence <= first.Fence {
		t.Errorf("fence %d after %d", g.Fence, first.Fence)
	}
	wants("one that has one again", 1)
	unlock(t, s[0], back, 0)
	wants("the last UNLOCK", 0)
	lock(t, s[0], permit("b", 2))
	lock(t, s[1], permit("c", 2))
	wants("two", 2)
	if _, _, err := s[0].Force(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	wants("FORCE", 0)
	short := permit("d", 2)
	short.TTL = 2 * time.Second
	leaves := func() { // the proxy that granted it
		gone, err := locks.New(newStore(t, member, "test"), locks.Options{})
		if err != nil {
			t.Fatal(err)
		}
		lock(t, gone, short)
		if err := gone.Run(ended(t)); err != nil {
			t.Fatal(err)
		}
	}
	leaves()
	lock(t, s[1], locks.LockRequest{Owner: "w", Wait: time.Minute})
	wants("who has the name comes after them", 0)
	unlock(t, s[1], locks.UnlockRequest{Owner: "w"}, 0)
	leaves()
	lock(t, s[0], permit("w", 2))
	granted := func(r locks.LockRequest) func() bool {
		return func() bool {
			r.Key, r.TTL = job, time.Minute
			d, err := s[1].Lock(t.Context(), r)
			return err == nil && d.Granted
		}
	}
	eventually(t, "who has a permit has the name as well when the other one has ended", granted(locks.LockRequest{Owner: "w"}))
	wants("who has the name and a permit as well", 1)
	lock(t, s[0], permit("w", 2))
	unlock(t, s[0], locks.UnlockRequest{Owner: "w"}, 0)
	leaves()
	eventually(t, "it comes in the place of one that has ended", granted(permit("e", 2)))
	wants("in its place", 2)
}

// TestPermits_ManyReaders: a thousand who only read are in no permit's way.
func TestPermits_ManyReaders(t *testing.T) {
	t.Parallel()
	s := start(t, 2)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			for n := i; n < locks.MaxReaders; n += 16 {
				lock(t, s[i%2], locks.LockRequest{Owner: fmt.Sprint("r", n), TTL: time.Minute, Shared: true})
			}
			lock(t, s[i%2], permit(fmt.Sprint("p", i), 16))
		})
	}
	all.Wait()
	for i := range 2 {
		if d, err := s[i].Lock(t.Context(), permit("q", 16)); err != nil || d.Granted || d.Why != locks.Permits || d.Holder == "" {
			t.Errorf("%+v, %v", d, err)
		}
		lock(t, s[i], permit(fmt.Sprint("more", i), 17+i))
	}
}
