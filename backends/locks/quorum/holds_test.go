package quorum

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/seats"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/backends/locks/voters"
	"github.com/lockproxy/lockproxy/integration/redistest"
	"github.com/lockproxy/lockproxy/scripts"
)

// refusing has a node refuse every script while do runs.
func refusing(t *testing.T, node *redistest.Conn, do func()) {
	t.Helper()
	node.Do(t, "ACL", "SETUSER", "default", "-evalsha")
	defer node.Do(t, "ACL", "SETUSER", "default", "+evalsha")
	do()
}

// majorities has alice take the name three times, with another node out at each but the first.
func majorities(t *testing.T, s *proxy, c []*redistest.Conn, lock func() locks.Grant) {
	t.Helper()
	allVote(t, s)
	g := lock()
	everywhere(t, s, c)
	for i, out := range []int{2, 0} {
		time.Sleep(5 * time.Millisecond) // holds of one millisecond have no order that all proxies know
		refusing(t, c[out], func() {
			if again := lock(); again.Fence != g.Fence || again.Holds != i+2 {
				t.Errorf("re-entry %d: %+v into %+v", i+1, again, g)
			}
			delivered(t, out, s) // and refused there
		})
	}
}

func TestHolds_OnDifferentMajorities(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 3)
	c := conns(t, nodes)
	majorities(t, s, c, func() locks.Grant { return lock(t, s, "job", "alice", 30*time.Second) })
	if v, err := s.Renew(t.Context(), locks.RenewRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: 40 * time.Second}); err != nil || v < 35*time.Second {
		t.Errorf("RENEW while all nodes are well: %v, %v", v, err)
	}
	eventually(t, patient, "all nodes have all holds", func() bool {
		return !slices.ContainsFunc(c, func(n *redistest.Conn) bool {
			return n.Do(t, "HLEN", s.RedisKeys(locks.Key{DB: 0, Name: "job"}).Lock).Int() != fixedFields+3
		})
	})
	other := serve(t, testOptions{Nodes: nodesAt(t, addrs(nodes)...), NodeTimeout: patient})
	unlock(t, other, "job", "alice", 2)
	everywhere(t, s, c) // a node that is late with an UNLOCK shows the hold to the next
	unlock(t, s, "job", "alice", 1)
	everywhere(t, s, c)
	unlock(t, other, "job", "alice", 0)
	lock(t, s, "job", "bob", time.Second)
}

// TestRenew_HoldOfAnotherProxy: a RENEW lets the hold last that another proxy took, though too few of the nodes that it reaches have it,
// and its own proxy has not heard of it.
func TestRenew_HoldOfAnotherProxy(t *testing.T) {
	t.Parallel()
	inBubble(t, 3, testOptions{}, func(t *testing.T, s *timeless) {
		g := lock(t, s.proxy, "job", "alice", 2*time.Second)
		synctest.Wait()
		other := s.another(t)
		s.failScripts(map[int]*scripts.Script{2: scripts.Acquire})
		lock(t, other.proxy, "job", "alice", time.Second)
		s.failScripts(map[int]*scripts.Script{0: scripts.Renew})
		renewTo(t, s.proxy, g, 5*time.Second)
		s.failScripts(nil)
		unlock(t, s.proxy, "job", "alice", 1)
		time.Sleep(3 * time.Second)
		refused(t, other.proxy, "job", "bob", time.Second)
		unlock(t, s.proxy, "job", "alice", 0)
		lock(t, other.proxy, "job", "bob", time.Second)
	})
}

func TestHolds_OfASessionOnDifferentMajorities(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 3)
	n := conns(t, nodes)
	c := newClient(s)
	majorities(t, s, n, func() locks.Grant { return c.lock(t, "job", "alice", 9*time.Second, 0) })
	was := counter(s, "session_renewals_total")
	eventually(t, time.Minute, "two renewals", func() bool { return counter(s, "session_renewals_total") >= was+2 || len(c.told()) > 0 })
	if l := c.told(); len(l) > 0 {
		t.Errorf("lost while all nodes are well: %+v", l)
	}
}

// TestHold_EndsByItself: the hold of a process that crashed ends, however busy its successor
// with the same OWNER is.
func TestHold_EndsByItself(t *testing.T) {
	t.Parallel()
	for _, through := range []int{0, 1} {
		t.Run(fmt.Sprint("successor through proxy ", through), func(t *testing.T) {
			t.Parallel()
			p, c, _ := proxies(t, 2)
			crashed := lock(t, p[0], "job", "alice", 2*time.Second)
			eventually(t, time.Minute, "the successor has the only hold", func() bool {
				lock(t, p[through], "job", "alice", 30*time.Second)
				left, err := p[through].Unlock(t.Context(), locks.UnlockRequest{Key: locks.Key{Name: "job"}, Owner: "alice"})
				if err != nil {
					t.Fatal(err)
				}
				return left == 0
			})
			if g := lock(t, p[0], "job", "bob", time.Second); g.Fence <= crashed.Fence {
				t.Errorf("fence %d after %d", g.Fence, crashed.Fence)
			}
			unlock(t, p[0], "job", "bob", 0)
			nothingLeft(t, p[0], c)
		})
	}
}

// TestLock_ConcludedAfterRenew: a RENEW for less was sent after a LOCK, and nodes executed it before the LOCK was
// answered. The LOCK tells no longer validity than the nodes keep.
func TestLock_ConcludedAfterRenew(t *testing.T) {
	t.Parallel()
	for _, reads := range []bool{false, true} {
		t.Run(fmt.Sprintf("the RENEW reads %v", reads), func(t *testing.T) {
			t.Parallel()
			s, nodes := start(t, 3)
			c := conns(t, nodes)
			allVote(t, s)
			g := lock(t, s, "job", "alice", 10*time.Second)
			a, j := s.newAcquisition(locks.Attempt{LockRequest: locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: 50 * time.Second}}, 0, seats.None, s.proposal())
			round := s.Ask(voters.AskAcquire, j, s.acquireDecides)
			if err := round.Wait(t.Context(), voters.Timeouts{Node: patient, Quorum: patient}); err != nil {
				t.Fatal(err)
			}
			everywhere(t, s, c)
			if reads {
				s.grants.invalidate(locks.Holder{Key: locks.Key{DB: 0, Name: "job"}, Owner: "alice"})
			}
			v, err := s.Renew(t.Context(), locks.RenewRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: 20 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			in, err := s.awaitAcquire(t.Context(), a, round)
			if err != nil || !in.Granted || in.Grant.Fence != g.Fence {
				t.Fatalf("LOCK: %+v, %v", in, err)
			}
			var rests []time.Duration
			for _, n := range c {
				rests = append(rests, time.Duration(n.Do(t, "PTTL", s.RedisKeys(locks.Key{DB: 0, Name: "job"}).Lock).Int())*time.Millisecond)
			}
			slices.Sort(rests)
			if in.Grant.Validity > rests[1]+5*time.Second {
				t.Errorf("RENEW told %v, LOCK then %v, and a majority keeps it for %v", v, in.Grant.Validity, rests[1])
			}
			if until, ok := s.grants.until(locks.Holder{Key: locks.Key{DB: 0, Name: "job"}, Owner: "alice"}, g.Fence, []string{g.Hold, a.id}); !ok || until-s.Now() > rests[1]+5*time.Second {
				t.Errorf("%v is remembered, and a majority keeps it for %v", until-s.Now(), rests[1])
			}
		})
	}
}

// TestLock_BesideARenewAtTheEnd: a LOCK is answered after the validity of before has ended, while a RENEW that began before is under way. It
// is granted, for as long as it asked for.
func TestLock_BesideARenewAtTheEnd(t *testing.T) {
	t.Parallel()
	inBubble(t, 3, testOptions{}, func(t *testing.T, s *timeless) {
		c, key := newClient(s.proxy), locks.Key{Name: "job"}
		g := c.lock(t, "job", "alice", 20*time.Second, 0)
		s.host.Keepalive.Drop(locks.Holder{Key: key, Owner: "alice"}, g.Hold)
		time.Sleep(g.Validity - 8*time.Millisecond)
		s.take(10 * time.Millisecond)
		defer s.take(0)
		var group sync.WaitGroup
		defer group.Wait()
		group.Go(func() {
			time.Sleep(time.Millisecond)
			_, _ = s.Renew(t.Context(), locks.RenewRequest{Key: key, Owner: "alice", TTL: time.Second})
		})
		g = c.lock(t, "job", "alice", time.Minute, 0)
		if g.Validity < 59*time.Second || len(c.told()) > 0 || keptBy(s.proxy) != 1 {
			t.Errorf("%+v, told %+v, %d kept", g, c.told(), keptBy(s.proxy))
		}
	})
}

// TestUnlock_ThatEndsTheLeaseEarlier: through one proxy the owner gives back the hold that ends
// last, which another proxy remembers. When a rival has had the name since, an UNLOCK through the
// other proxy must not succeed.
func TestUnlock_ThatEndsTheLeaseEarlier(t *testing.T) {
	t.Parallel()
	p, _, _ := proxies(t, 2)
	long, err := p[0].Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: time.Minute, Req: "long"})
	if err != nil || !long.Granted {
		t.Fatal(long, err)
	}
	lock(t, p[1], "job", "alice", 2*time.Second)
	if left, err := p[1].Unlock(t.Context(), locks.UnlockRequest{Key: locks.Key{Name: "job"}, Owner: "alice", Req: "long"}); err != nil || left != 1 {
		t.Fatalf("UNLOCK of the long hold: %d, %v", left, err)
	}
	eventually(t, time.Minute, "the short hold ends", func() bool {
		a, err := p[1].Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "bob", TTL: time.Minute})
		return err == nil && a.Granted
	})
	left, err := p[0].Unlock(t.Context(), locks.UnlockRequest{Key: locks.Key{Name: "job"}, Owner: "alice", Fence: long.Grant.Fence})
	if foreign := (*locks.NotOwnerError)(nil); !errors.Is(err, locks.ErrLost) && !errors.As(err, &foreign) {
		t.Errorf("UNLOCK through the proxy that remembers it: %d, %v", left, err)
	}
}

func TestLock_TooManyHolds(t *testing.T) {
	t.Parallel()
	prologue := scripts.Acquire.Source
	if most := regexp.MustCompile(`local base, most = (\d+), (\d+)`).FindStringSubmatch(prologue); most == nil ||
		most[1] != strconv.Itoa(fixedFields) || most[2] != strconv.Itoa(locks.MaxHolds) {
		t.Errorf("the scripts know other limits: %q", most)
	}
	p, c, _ := proxies(t, 2)
	for i := range locks.MaxHolds {
		lock(t, p[i/5%2], "job", "alice", time.Minute)
	}
	for _, s := range p {
		full := (*locks.HoldsError)(nil)
		if a, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: time.Minute}); !errors.As(err, &full) {
			t.Errorf("one more: %+v, %v", a, err)
		}
	}
	if _, err := p[0].Renew(t.Context(), locks.RenewRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: 50 * time.Second}); err != nil {
		t.Errorf("RENEW: %v", err)
	}
	if left, err := p[1].Unlock(t.Context(), locks.UnlockRequest{Key: locks.Key{Name: "job"}, Owner: "alice", All: true}); err != nil || left != 0 {
		t.Errorf("UNLOCK ALL: %d, %v", left, err)
	}
	lock(t, p[0], "job", "bob", time.Second)
	unlock(t, p[0], "job", "bob", 0)
	nothingLeft(t, p[0], c)
}

func TestLock_NoReenter(t *testing.T) {
	t.Parallel()
	p, _, _ := proxies(t, 2)
	r := locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: time.Minute, Req: "one", NoReenter: true}
	a, err := p[0].Lock(t.Context(), r)
	if err != nil || !a.Granted {
		t.Fatalf("of a free name: %+v, %v", a, err)
	}
	for i, s := range p {
		if again, err := s.Lock(t.Context(), r); err != nil || again.Grant.Fence != a.Grant.Fence || again.Grant.Holds != 1 {
			t.Errorf("the same request through proxy %d: %+v, %v", i, again, err)
		}
		other := r
		other.Req = ""
		if again, err := s.Lock(t.Context(), other); err != nil || again.Granted || again.Holder != "alice" {
			t.Errorf("another through proxy %d: %+v, %v", i, again, err)
		}
	}
	unlock(t, p[0], "job", "alice", 0)
}

// TestHold_GivenBackStaysAway: neither a late message, nor a proxy that still remembers it, brings back a hold that was
// given back.
func TestHold_GivenBackStaysAway(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 1)
	n := redistest.Open(t, nodes[0].Addr())
	k := s.RedisKeys(locks.Key{DB: 0, Name: "job"})
	outer := lock(t, s, "job", "alice", time.Minute)
	inner := lock(t, s, "job", "alice", time.Minute)
	unlock(t, s, "job", "alice", 1)
	fence := strconv.FormatInt(outer.Fence, 10)
	for what, call := range map[string][]string{
		"its own LOCK":      s.Command(scripts.Acquire, k, asks("alice", "60000", "0", inner.Hold)...),
		"another LOCK":      s.Command(scripts.Acquire, k, "alice", "60000", "0", "", "plain", "third", fence, outer.Hold, inner.Hold, "50000"),
		"a RENEW":           s.Command(scripts.Renew, k, "alice", "60000", fence, outer.Hold, outer.Hold, "1", "", "1", "0", outer.Hold, inner.Hold),
		"another's UNLOCK":  s.Command(scripts.Release, k, "alice", fence, "unlock", "", outer.Hold, "x", "60000", "1", "third", inner.Hold, "50000"),
		"an undo of nobody": s.Command(scripts.Release, k, "alice", "0", "undo", "", "", "y", "60000", "1", "nobody"),
	} {
		n.Do(t, call...)
		if n.Do(t, "HEXISTS", k.Lock, inner.Hold).Int() != 0 {
			t.Errorf("%s brought it back", what)
		}
	}
	if n.Do(t, "HEXISTS", k.Lock, outer.Hold).Int() != 1 {
		t.Error("the other hold is gone")
	}
}

// TestHold_AddedEndsNoLaterThanTheLease: a hold that a proxy adds on a node which lacks it does not prolong the lease
// there.
func TestHold_AddedEndsNoLaterThanTheLease(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 1)
	n := redistest.Open(t, nodes[0].Addr())
	k := s.RedisKeys(locks.Key{DB: 0, Name: "job"})
	g := lock(t, s, "job", "alice", 20*time.Second)
	v := n.Do(t, s.Command(scripts.Acquire, k, "alice", "10000", "0", "", "plain", "other", strconv.FormatInt(g.Fence, 10), g.Hold, "0", "known", "50000")...)
	if v.Elems[0].Int() != 1 || v.Elems[4].Int() != 3 {
		t.Errorf("%v, want 3 holds", v)
	}
	if left := n.Do(t, "PTTL", k.Lock).Int(); left > 20_000 {
		t.Errorf("the lease ends in %d ms", left)
	}
	for _, grant := range []string{"another", ""} {
		v = n.Do(t, s.Command(scripts.Acquire, k, "alice", "10000", "0", "", "plain", "more"+grant, strconv.FormatInt(g.Fence, 10), grant, "of"+grant, "50000")...)
		if n.Do(t, "HEXISTS", k.Lock, "of"+grant).Int() != 0 {
			t.Errorf("a hold of another grant was added: %v", v)
		}
	}
}

// TestRelease_SparesAHoldThatItBrings: the hold that made the record is given back, by a proxy that knows of another one which
// this node lacks.
func TestRelease_SparesAHoldThatItBrings(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 1)
	n := redistest.Open(t, nodes[0].Addr())
	k := s.RedisKeys(locks.Key{DB: 0, Name: "job"})
	g := lock(t, s, "job", "alice", 20*time.Second)
	v := n.Do(t, s.Command(scripts.Release, k, append(gives("alice", g, "unlock", ""), "brought", "10000")...)...)
	if v.Elems[0].Int() != 1 || v.Elems[2].Int() != 1 || n.Do(t, "HEXISTS", k.Lock, "brought").Int() != 1 {
		t.Errorf("%v, want 1 hold left", v)
	}
	unlock(t, s, "job", "alice", 0)
}

// TestUnlock_GoesByTheHoldsOwnValidity: a proxy remembers that another hold of the owner runs, which
// was given back elsewhere. When a rival has had the name since, that memory proves nothing.
func TestUnlock_GoesByTheHoldsOwnValidity(t *testing.T) {
	t.Parallel()
	p, _, _ := proxies(t, 2)
	a, err := p[0].Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: 30 * time.Second, Req: "first"})
	if err != nil || !a.Granted {
		t.Fatal(a, err)
	}
	// It does not shorten the lease, so that no node has a note of it.
	if _, err := p[1].Renew(t.Context(), locks.RenewRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	lock(t, p[1], "job", "alice", 2*time.Second)
	giveBack(t, p[0], "alice", "first", 1) // which the other proxy has renewed
	eventually(t, 40*time.Second, "the short hold ends", func() bool {
		a, err := p[0].Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "bob", TTL: time.Minute})
		return err == nil && a.Granted
	})
	left, err := p[1].Unlock(t.Context(), locks.UnlockRequest{Key: locks.Key{Name: "job"}, Owner: "alice", Fence: a.Fence})
	if foreign := (*locks.NotOwnerError)(nil); !errors.Is(err, locks.ErrLost) && !errors.As(err, &foreign) {
		t.Errorf("UNLOCK of the short hold: %d, %v", left, err)
	}
}

// TestSortByAge_SameMillisecond: the hold that ends first counts as taken last, in whatever order nodes list them.
func TestSortByAge_SameMillisecond(t *testing.T) {
	for _, ends := range [][]time.Duration{{time.Minute, time.Second}, {time.Second, time.Minute}} {
		holds := []hold{{"a", ends[0]}, {"b", ends[1]}, {"older", time.Second}}
		sortByAge(holds, []vote.Vote{{Read: &vote.Reading{Holds: []vote.NodeHold{{ID: "a", Age: 7, Rest: 1}, {ID: "b", Age: 7, Rest: 1}, {ID: "older", Age: 8, Rest: 1}}}}})
		if holds[0].id != "older" || holds[2].until != time.Second {
			t.Errorf("%v: sorted %v", ends, holds)
		}
	}
}

// TestUnlock_CountsHoldsOfTheGrant: a node that has lost the lock, and has seen a larger fence since, has made a record of its
// own of the holds that came later. It lacks the first, and how many it has does not count.
func TestUnlock_CountsHoldsOfTheGrant(t *testing.T) {
	t.Parallel()
	p, c, _ := proxies(t, 2)
	lock(t, p[0], "job", "alice", 30*time.Second)
	everywhere(t, p[0], c)
	k := p[0].RedisKeys(locks.Key{Name: "job"})
	c[2].Do(t, "DEL", k.Lock)
	c[2].Do(t, "HSET", k.Fences, "c", soon())
	request(t, p[1], "alice", "x")
	request(t, p[0], "alice", "y")
	eventually(t, patient, "all nodes have what they were asked for", func() bool {
		for i, holds := range []int{3, 3, 2} {
			if len(fields(t, p[0], c[i])) != fixedFields+holds {
				return false
			}
		}
		return true
	})
	refusing(t, c[1], func() {
		giveBack(t, p[0], "alice", "y", 2)
		giveBack(t, p[0], "alice", "y", 2) // again
	})
}
