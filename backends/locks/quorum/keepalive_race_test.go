package quorum

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/integration/redistest"
)

// TestSession_RenewalsRaceReleases: a renewal that is under way while the lock is given back,
// by UNLOCK or by the end of its session, never brings it back.
func TestSession_RenewalsRaceReleases(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 3)
	n := conns(t, nodes)
	const clients, rounds = 8, 250
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			for j := range rounds {
				name, owner := fmt.Sprintf("race%d", i), fmt.Sprintf("owner%d", j)
				c := newClient(s)
				a, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: name}, Owner: owner, TTL: 20 * time.Second, Wait: patient, Session: c.Session})
				if err != nil || !a.Granted {
					t.Errorf("LOCK %s: %+v, %v", name, a, err)
					return
				}
				s.keepalive.RecheckIn(0, locks.Holder{Key: locks.Key{DB: 0, Name: name}, Owner: owner}, true) // renew it now
				time.Sleep(time.Duration(rand.IntN(600)) * time.Microsecond)
				if j%2 == 0 {
					c.End()
				} else if left, err := s.Unlock(t.Context(), locks.UnlockRequest{Key: locks.Key{Name: name}, Owner: owner}); err != nil || left != 0 {
					t.Errorf("UNLOCK %s: %d, %v", name, left, err)
				}
				if l := c.told(); len(l) > 0 {
					t.Errorf("told %+v", l)
				}
			}
		})
	}
	wg.Wait()
	eventually(t, patient, "nothing is renewed", func() bool { return keptBy(s) == 0 && s.inner.Store.Idle() })
	for i := range clients {
		k := s.RedisKeys(locks.Key{DB: 0, Name: fmt.Sprintf("race%d", i)})
		for j := range n {
			if o := n[j].Do(t, "HGET", k.Lock, "o").Text; o != "" {
				t.Errorf("node %d: %s is held by %s", j, k.Lock, o)
			}
		}
	}
	renewed := int64(0)
	for _, end := range []string{"done", "lost", "held", "conflict", "canceled", "noquorum"} {
		renewed += counter(s, "rounds_total", "question", "renew", "outcome", end)
	}
	t.Logf("%d renewals were begun for %d locks", renewed, clients*rounds)
	if renewed < clients*rounds/5 {
		t.Error("too few renewals to show anything")
	}
}

// TestRenew_RacesExpiry: a lease that ended is not renewed, whatever is under way.
func TestRenew_RacesExpiry(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 3)
	n := conns(t, nodes)
	const names = 200
	var clients []*client
	var grants []locks.Grant
	for i := range names {
		c := newClient(s)
		clients = append(clients, c)
		r := locks.LockRequest{Key: locks.Key{Name: fmt.Sprintf("short%d", i)}, Owner: "alice", TTL: 300 * time.Millisecond, Session: c.Session, MaxHold: 200 * time.Millisecond}
		eventually(t, patient, "votes come within the lease", func() bool {
			a, err := s.Lock(t.Context(), r)
			if err == nil && a.Granted {
				grants = append(grants, a.Grant)
			}
			return err == nil && a.Granted
		})
	}
	for i, c := range clients {
		c.lostOnce(t, patient, grants[i], "is over")
	}
	var fences []int64
	for i := range names {
		s.keepalive.RecheckIn(0, locks.Holder{Key: locks.Key{DB: 0, Name: grants[i].Name}, Owner: "alice"}, true)
		a, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: grants[i].Name}, Owner: "bob", TTL: 20 * time.Second, Wait: patient})
		if err != nil || !a.Granted || a.Grant.Fence <= grants[i].Fence {
			t.Fatalf("LOCK: %+v, %v", a, err)
		}
		fences = append(fences, a.Grant.Fence)
	}
	for i := range names {
		k := s.RedisKeys(locks.Key{DB: 0, Name: grants[i].Name})
		for j := range n {
			if o := n[j].Do(t, "HGET", k.Lock, "o").Text; o == "alice" {
				t.Errorf("node %d: %s is alice's", j, k.Lock)
			}
		}
		if left, err := s.Unlock(t.Context(), locks.UnlockRequest{Key: locks.Key{Name: grants[i].Name}, Owner: "bob", Fence: fences[i]}); err != nil || left != 0 {
			t.Errorf("UNLOCK: %d, %v", left, err)
		}
	}
}

// TestSession_TenThousandLocks are kept by a few goroutines, also while a node hangs.
func TestSession_TenThousandLocks(t *testing.T) {
	if testing.Short() {
		t.Skip("a quarter of a minute")
	}
	t.Parallel()
	const many = 10_000
	nodes := redistest.StartNodes(t, 3)
	s := serve(t, testOptions{Nodes: nodesAt(t, addrs(nodes)...), NodeTimeout: 2 * time.Second, MaxTTL: 10 * time.Minute})
	allVote(t, s)
	ttl := 20 * time.Second
	take := func(c *client, n int) (took time.Duration) {
		began := time.Now()
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				for j := i; j < n; j += 16 {
					c.lock(t, fmt.Sprintf("many%d", j), "alice", ttl, 0)
				}
			})
		}
		wg.Wait()
		return time.Since(began)
	}
	givenBack := func() bool { // each is forgotten when the Store begins to give it back
		s.grants.mu.Lock()
		known := s.grants.lru.Len()
		s.grants.mu.Unlock()
		return known == 0 && s.inner.Store.Idle()
	}
	// Whoever takes a sixth of the ttl or longer to take all could hardly renew all in time:
	// on a machine that is so busy leases are longer.
	var (
		c      *client
		locked time.Time
		before int64
	)
	for again := true; again; {
		before, c, locked = heapInUse(), newClient(s), time.Now()
		took := take(c, many)
		if again = took > ttl/6 && ttl < 2*time.Minute; again {
			c.End()
			eventually(t, 2*time.Minute, "what was taken too slowly is given back", givenBack)
			ttl = min(7*took, 2*time.Minute)
		}
	}
	grown := heapInUse() - before
	t.Logf("%d locks in %v, %d KB", many, time.Since(locked), grown>>10)
	if grown > 100<<20 {
		t.Errorf("%d locks take %d MB", many, grown>>20)
	}
	renewed := func() (n int) {
		s.grants.mu.Lock()
		defer s.grants.mu.Unlock()
		for _, g := range s.grants.lru.Values() {
			if g.until() > s.Now()+2*ttl/5 { // after 3/5 of it: from a renewal
				n++
			}
		}
		return n
	}
	nodes[2].Pause()
	defer nodes[2].Resume()
	time.Sleep(time.Until(locked.Add(11 * ttl / 10)))
	eventually(t, ttl, "all are kept", func() bool { return renewed() == many || len(c.told()) > 0 })
	if len(c.told()) > 0 {
		t.Errorf("%d losses were told", len(c.told()))
	}
	nodes[2].Resume()
	c.End()
	eventually(t, 2*time.Minute, "all are given back", givenBack)
	for _, j := range []int{0, many / 2, many - 1} { // the last may just be under way; their leases last for longer than this wait
		name := fmt.Sprintf("many%d", j)
		a, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: name}, Owner: "bob", TTL: time.Second, Wait: ttl / 4})
		if err != nil || !a.Granted {
			t.Errorf("LOCK %s by bob: %+v, %v", name, a, err)
		}
	}
}

// heapInUse is how many bytes are in use.
func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
