package etcd_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/integration/redistest"
)

// several is a LOCK of several names.
func several(owner string, names ...string) locks.LockRequest {
	r := locks.LockRequest{Owner: owner, TTL: time.Minute}
	for i, n := range names {
		if k := (locks.Key{Name: n}); i == 0 {
			r.Key = k
		} else {
			r.Others = append(r.Others, k)
		}
	}
	return r
}

func lockAll(t *testing.T, s *locks.Service, r locks.LockRequest) []locks.Grant {
	t.Helper()
	d, err := lockInTime(t, s, r)
	if err != nil || !d.Granted || len(d.All()) != len(r.Names()) {
		t.Fatalf("LOCK of %d names by %s: %+v, %v", len(r.Names()), r.Owner, d, err)
	}
	return d.All()
}

func unlockAll(t *testing.T, s *locks.Service, r locks.LockRequest, want int) {
	t.Helper()
	u := locks.UnlockRequest{Owner: r.Owner, Shared: r.Shared, Req: r.Req}
	if left, err := s.UnlockAll(t.Context(), r.Names(), u); err != nil || left != want {
		t.Fatalf("UNLOCK of %d names by %s: %d, %v", len(r.Names()), r.Owner, left, err)
	}
}

// TestSeveral_AsManyAsThereMayBe: etcd does all that is to be done for so many names in one transaction, as it is set by default.
func TestSeveral_AsManyAsThereMayBe(t *testing.T) {
	t.Parallel()
	for what, shared := range map[string]bool{"to write": false, "to read": true} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := startPatient(t, 2)
			var names []string
			for i := range locks.MaxNames {
				names = append(names, fmt.Sprint("n", i))
			}
			gone := several("gone", names[1:]...)
			gone.Shared, gone.TTL = !shared, 5*time.Second
			lockAll(t, s[0], gone)
			r := several("a", names...)
			r.Shared, r.TTL = shared, time.Hour // on a busy machine each of these LOCKs may take many seconds
			r.Wait = time.Minute                // what has ended is removed
			first := lockAll(t, s[1], r)
			r.Wait = 0
			const entered = 18
			for i := range entered {
				r.Req = fmt.Sprint("r", i)
				lockAll(t, s[i%2], r)
			}
			again := lockAll(t, s[0], r) // is the same
			for i := range names {
				if again[i].Fence != first[i].Fence || again[i].Holds != entered+1 {
					t.Fatalf("%+v, first %+v", again[i], first[i])
				}
			}
			other := several("b", "x", names[60], names[7])
			if d, err := s[1].Lock(t.Context(), other); err != nil || d.Granted || d.Of.Name != names[60] || d.Holder != "a" {
				t.Errorf("%+v, %v", d, err)
			}
			fresh := r
			fresh.Fresh, fresh.Req = true, "" // their requests are over
			for i, g := range lockAll(t, s[1], fresh) {
				if g.Fence <= first[i].Fence || g.Holds != 1 {
					t.Fatalf("%+v, first %+v", g, first[i])
				}
			}
			unlockAll(t, s[0], fresh, 0)
			lockAll(t, s[0], several("c", names...))
		})
	}
}

// TestSeveral_LateLock: a LOCK of several names that etcd does late gives nobody any of them.
func TestSeveral_LateLock(t *testing.T) {
	t.Parallel()
	want := several("a", "new", "job")
	for name, c := range map[string]struct {
		req            string
		done           bool // in time as well
		before, behind func(t *testing.T, s, other *locks.Service)
		holder         string // of the job, when it is done late
	}{
		"given back": {"", true,
			func(*testing.T, *locks.Service, *locks.Service) {},
			func(t *testing.T, _, other *locks.Service) { unlockAll(t, other, want, 0) }, ""},
		"given back, and one was entered": {"", true,
			func(t *testing.T, s, _ *locks.Service) { lock(t, s, locks.LockRequest{Owner: "a"}) },
			func(t *testing.T, _, other *locks.Service) {
				unlockAll(t, other, want, 1)
				unlock(t, other, locks.UnlockRequest{Owner: "a"}, 0)
			}, ""},
		"one that was to be entered is given back": {"", false,
			func(t *testing.T, s, _ *locks.Service) { lock(t, s, locks.LockRequest{Owner: "a"}) },
			func(t *testing.T, _, other *locks.Service) { unlock(t, other, locks.UnlockRequest{Owner: "a"}, 0) }, ""},
		"one is another's": {"", false,
			func(*testing.T, *locks.Service, *locks.Service) {},
			func(t *testing.T, _, other *locks.Service) { lock(t, other, locks.LockRequest{Owner: "b"}) }, "b"},
		"given back elsewhere": {"r", false,
			func(*testing.T, *locks.Service, *locks.Service) {},
			func(t *testing.T, _, other *locks.Service) {
				r := want
				r.Req = "r"
				lockAll(t, other, r)
				unlockAll(t, other, r, 0)
			}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			member := redistest.StartEtcd(t, 1)
			other := serve(t, newStore(t, member, "test"))
			s, _, l := tapped(t, member[0])
			c.before(t, s, other)
			before := l.taken()
			l.setCut(!c.done)
			asked := make(chan struct{})
			go func() {
				defer close(asked)
				r := want
				r.Req = c.req
				if d, err := s.Lock(t.Context(), r); d.Granted != c.done {
					t.Errorf("%+v, %v", d, err)
				}
			}()
			eventually(t, "it is asked", func() bool { return !bytes.Equal(before, l.taken()) })
			change := l.taken()
			if c.done {
				<-asked
			}
			c.behind(t, s, other)
			said := l.do(t, change)
			if strings.Contains(said, `"succeeded":true`) {
				t.Errorf("etcd did it: %s", said)
			}
			for _, name := range []string{"new", "job"} {
				r, err := other.Read(t.Context(), locks.Key{Name: name})
				if holder := c.holder; err != nil || name == "job" && r.Owner != holder || name == "new" && r.Held {
					t.Errorf("%s: %+v, %v", name, r, err)
				}
			}
			<-asked
			l.setCut(false)
		})
	}
}

// TestSeveral_LostAnswers: a LOCK that was done, but whose answer was lost, is not done twice. If one of its names has changed since, it is
// undone for all names.
func TestSeveral_LostAnswers(t *testing.T) {
	t.Parallel()
	member := redistest.StartEtcd(t, 1)
	other := serve(t, newStore(t, member, "test"))
	s, l := lossyStore(t, member[0])
	r := several("a", "b", "job", "c")
	lock(t, s, locks.LockRequest{Owner: "a"})
	l.set(2, nil)
	for i, g := range lockAll(t, s, r) {
		if want := 1 + i%2; g.Holds != want {
			t.Errorf("%+v, want %d holds", g, want)
		}
	}
	unlockAll(t, other, r, 1)
	unlock(t, other, locks.UnlockRequest{Owner: "a"}, 0)
	for _, k := range r.Names() {
		if _, err := s.Read(t.Context(), k); err != nil { // so that they are asked for as free
			t.Fatal(err)
		}
	}
	var few *locks.QuorumError
	l.set(1, func() { unlock(t, other, locks.UnlockRequest{Owner: "a"}, 0) })
	if d, err := s.Lock(t.Context(), r); !errors.As(err, &few) {
		t.Errorf("%+v, %v", d, err)
	}
	eventually(t, "nothing is left of it", func() bool {
		for _, k := range r.Names() {
			if x, err := other.Read(t.Context(), k); err != nil || x.Held {
				return false
			}
		}
		return true
	})
}

// TestSeveral_Contended: through several proxies some take several names, and others one, to read or to write.
func TestSeveral_Contended(t *testing.T) {
	t.Parallel()
	s := start(t, 3)
	const names = 5
	var mu sync.Mutex
	var readers, writers [names]int
	var last [names]int64 // of writers
	note := func(g locks.Grant, shared bool, by int) {
		mu.Lock()
		defer mu.Unlock()
		var i int
		if _, err := fmt.Sscanf(g.Name, "n%d", &i); err != nil {
			t.Error(err)
		}
		if shared {
			readers[i] += by
		} else {
			writers[i] += by
		}
		if by > 0 && (writers[i] > 1 || writers[i] == 1 && readers[i] > 0 || g.Fence <= last[i]) {
			t.Errorf("%s: %d write and %d read, fence %d after %d", g.Name, writers[i], readers[i], g.Fence, last[i])
		}
		if by > 0 && !shared {
			last[i] = g.Fence
		}
	}
	var all sync.WaitGroup
	for i := range 15 {
		all.Go(func() {
			for range 8 {
				var of []string
				for _, n := range rand.Perm(names)[:1+i%3] {
					of = append(of, fmt.Sprint("n", n))
				}
				r := several("", of...)
				r.Wait, r.Shared = 2*time.Minute, i%4 == 0
				d, err := s[i%3].Lock(t.Context(), r)
				if err != nil || !d.Granted {
					t.Errorf("%v: %+v, %v", of, d, err)
					return
				}
				for _, g := range d.All() {
					note(g, r.Shared, 1)
				}
				time.Sleep(time.Millisecond)
				for _, g := range d.All() {
					note(g, r.Shared, -1)
				}
				r.Owner = d.Grant.Owner
				unlockAll(t, s[(i+1)%3], r, 0)
			}
		})
	}
	all.Wait()
}
