package quorum

import (
	"strconv"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/seats"
	"github.com/lockproxy/lockproxy/integration/redistest"
)

func permitOf(owner string, permits int) locks.LockRequest {
	return locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: owner, TTL: 30 * time.Second, Permits: permits}
}

// seatKnown has p[0] remember that owner has a seat of the job, though the owner has given it back through p[1].
func seatKnown(t *testing.T, p []*proxy, owner string, seat, permits int) {
	t.Helper()
	k := locks.Key{Name: "job"}
	for i := range permits {
		p[0].inner.Store.seats.Took(k, i)
	}
	p[0].inner.Store.seats.Freed(k, seat) // so that it is the one that is asked for
	mustLock(t, p[0], permitOf(owner, permits))
	endReading(t, p[1], locks.UnlockRequest{Owner: owner}, 0)
}

// TestPermits_NoFreshSeatAboveThePermits: one of ten permits was given back, through another proxy. Then four owners ask for one of
// three.
func TestPermits_NoFreshSeatAboveThePermits(t *testing.T) {
	t.Parallel()
	p, _, _ := proxies(t, 2)
	seatKnown(t, p, "a", 7, 10)
	for _, owner := range []string{"b", "c", "d"} {
		mustLock(t, p[1], permitOf(owner, 3))
	}
	refuses(t, p[0], permitOf("a", 3), locks.Permits)
}

// TestPermits_SharedTakesNoPermit: who reads without a permit is not refused for want of one, and takes none.
func TestPermits_SharedTakesNoPermit(t *testing.T) {
	t.Parallel()
	p, _, _ := proxies(t, 2)
	seatKnown(t, p, "a", 0, 1)
	mustLock(t, p[1], permitOf("b", 1))
	mustLock(t, p[0], readsAs("a", 30*time.Second))
}

// TestPermits_SharedLeavesThePermit: the same, and nobody has the permit at first.
func TestPermits_SharedLeavesThePermit(t *testing.T) {
	t.Parallel()
	p, _, _ := proxies(t, 2)
	seatKnown(t, p, "a", 0, 1)
	mustLock(t, p[0], readsAs("a", 30*time.Second))
	mustLock(t, p[1], permitOf("b", 1))
}

// TestPermits_LeftBehindAboveThePermits: one proxy. A node has missed that one of ten permits was given back.
func TestPermits_LeftBehindAboveThePermits(t *testing.T) {
	t.Parallel()
	s, ns := start(t, 3)
	k := locks.Key{Name: "job"}
	for i := range 10 {
		s.inner.Store.seats.Took(k, i)
	}
	s.inner.Store.seats.Freed(k, 7)
	mustLock(t, s, permitOf("a", 10))
	rec := s.RedisKeys(locks.Holder{Key: k, Owner: "a"}.Reading().Key).Lock
	eventually(t, time.Minute, "the last node has it", func() bool { return ns[2].Do(t, "EXISTS", rec).Int() == 1 })
	saved := dumped(t, ns[2], rec)
	endReading(t, s, locks.UnlockRequest{Owner: "a"}, 0)
	for i := range 10 {
		s.inner.Store.seats.Freed(k, 9-i)
	}
	for _, owner := range []string{"b", "c", "d"} {
		g := mustLock(t, s, permitOf(owner, 3))
		t.Log(owner, seats.Of(s.inner.Store.grants.lookup(locks.Holder{Key: g.Key, Owner: owner}.Reading()).id))
	}
	saved()
	a, err := s.Lock(t.Context(), permitOf("a", 3))
	if err != nil || a.Granted {
		t.Errorf("%+v %v, seat %d", a, err, seats.Of(s.inner.Store.grants.lookup(locks.Holder{Key: k, Owner: "a"}.Reading()).id))
	}
}

// dumped saves a record of a node; the function puts it back, as if the node had not got the release.
func dumped(t *testing.T, n *redistest.Server, key string) func() {
	all := n.Do(t, "HGETALL", key).Elems
	return func() {
		args := []string{"HSET", key}
		for _, v := range all {
			args = append(args, v.Text)
		}
		n.Do(t, args...)
		n.Do(t, "PEXPIRE", key, "25000")
	}
}

// TestPermits_NoBusyLoop: two nodes have each missed another grant, so that either knows of a free seat, and no quorum does. Who waits does
// not ask all the time.
func TestPermits_NoBusyLoop(t *testing.T) {
	t.Parallel()
	p, c, _ := proxies(t, 1)
	s, k := p[0], locks.Key{Name: "job"}
	mustLock(t, s, permitOf("a", 2))
	mustLock(t, s, permitOf("b", 2))
	allDelivered(t, s)
	for i, owner := range map[int]string{0: "a", 2: "b"} { // as if its LOCK had not come there
		h := locks.Holder{Key: k, Owner: owner}.Reading()
		c[i].Do(t, "DEL", s.RedisKeys(h.Key).Lock)
		c[i].Do(t, "ZREM", setOf(s, "job"), owner)
	}
	before := s.inner.Store.counters.undos.Load()
	r := permitOf("q", 2)
	r.Wait = 3 * time.Second
	if a, err := s.Lock(t.Context(), r); err != nil || a.Granted {
		t.Fatalf("%+v, %v", a, err)
	}
	if n := s.inner.Store.counters.undos.Load() - before; n > 40 {
		t.Errorf("%d acquisitions were undone in three seconds", n)
	}
}

// TestPermits_OwnReadingHoldsUpNobody: who reads without a permit does not wait for one, and so does not keep others from permits that are free.
func TestPermits_OwnReadingHoldsUpNobody(t *testing.T) {
	t.Parallel()
	p, _, _ := proxies(t, 1)
	mustLock(t, p[0], readsAs("r", 30*time.Second))
	r := permitOf("r", 3)
	r.Wait = 50 * time.Second
	refuses(t, p[0], r, locks.Upgrade)
	mustLock(t, p[0], permitOf("", 3))
}

// TestPermits_PermitKeepsNoReaderOut: who waits for a permit does not keep those behind it waiting who need none.
func TestPermits_PermitKeepsNoReaderOut(t *testing.T) {
	t.Parallel()
	p, _, _ := proxies(t, 1)
	s, k := p[0], locks.Key{Name: "job"}
	lock(t, s, "job", "w", 30*time.Second)
	mustLock(t, s, permitOf("w", 1)) // an owner that has the name may have a permit as well
	line := func(r locks.LockRequest) chan locks.Decision {
		had, done := len(s.Waiters(k)), make(chan locks.Decision, 1)
		r.Wait = 50 * time.Second
		go s.LockAsync(t.Context(), r, func(a locks.Decision, _ error) { done <- a })
		eventually(t, 10*time.Second, r.Owner+" waits", func() bool { return len(s.Waiters(k)) == had+1 })
		return done
	}
	line(permitOf("p", 1))
	time.Sleep(50 * time.Millisecond) // until it has been refused
	r := line(readsAs("r", 30*time.Second))
	unlock(t, s, "job", "w", 0) // it keeps its permit
	select {
	case a := <-r:
		if !a.Granted {
			t.Errorf("%+v", a)
		}
	case <-time.After(10 * time.Second):
		t.Error("a reader waits behind one who wants a permit")
	}
}

// TestPermits_GhostReader: a writer is not kept from renewing by a reader whose record is gone, which a clock that was stepped back shows in
// the set.
func TestPermits_GhostReader(t *testing.T) {
	t.Parallel()
	p, c, _ := proxies(t, 1)
	s, k := p[0], locks.Key{Name: "job"}
	mustLock(t, s, readsAs("r", 300*time.Millisecond))
	time.Sleep(400 * time.Millisecond)
	g := lock(t, s, "job", "w", 30*time.Second)
	for i := range c { // as after a step back of five seconds
		c[i].Do(t, "ZADD", setOf(s, "job"), strconv.FormatInt(time.Now().Add(5*time.Second).UnixMilli(), 10), "r")
	}
	if _, err := s.Renew(t.Context(), locks.RenewRequest{Key: k, Owner: "w", TTL: 30 * time.Second, Fence: g.Fence}); err != nil {
		t.Error(err)
	}
}

// TestPermits_EntersAbove: an owner whose permit is above the permits enters it again, though it is not given a new one.
func TestPermits_EntersAbove(t *testing.T) {
	t.Parallel()
	p, _, _ := proxies(t, 2)
	k := locks.Key{Name: "job"}
	for i := range 10 {
		p[0].inner.Store.seats.Took(k, i)
	}
	p[0].inner.Store.seats.Freed(k, 7)
	g := mustLock(t, p[0], permitOf("a", 10))
	for _, owner := range []string{"b", "c", "d"} {
		mustLock(t, p[1], permitOf(owner, 3))
	}
	for _, s := range p {
		for _, r := range []locks.LockRequest{permitOf("a", 3), readsAs("a", 30*time.Second)} {
			if again := mustLock(t, s, r); again.Fence != g.Fence || again.Holds < 2 {
				t.Errorf("%+v after %+v", again, g)
			}
		}
	}
	r := permitOf("a", 3)
	r.Fresh = true
	refuses(t, p[0], r, locks.Permits)
}
