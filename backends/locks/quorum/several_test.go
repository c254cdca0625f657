package quorum

import (
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/integration/redistest"
	"github.com/lockproxy/lockproxy/scripts"
)

// lockAll asks for names at once, past the Service.
func lockAll(t *testing.T, s *proxy, r locks.LockRequest, names ...string) (locks.Decision, error) {
	t.Helper()
	keys := make([]locks.Key, len(names))
	for i, name := range names {
		if keys[i].Name = name; r.Shared {
			keys[i].Reader = r.Owner
		}
	}
	if r.Key, r.Others = keys[0], keys[1:]; r.TTL == 0 {
		r.TTL = time.Minute
	}
	return s.Store.Acquire(t.Context(), locks.Attempt{LockRequest: r, Asked: s.Now()})
}

// allGranted wants a grant of these names, each with so many holds.
func allGranted(t *testing.T, d locks.Decision, err error, holds int, names ...string) {
	t.Helper()
	if err != nil || !d.Granted || len(d.Others) != len(names)-1 {
		t.Fatalf("%+v, %v, want a grant of %v", d, err, names)
	}
	seen := map[string]bool{}
	for i, g := range d.All() {
		if g.Name != names[i] || g.Fence <= 0 || g.Holds != holds || g.Validity <= 0 || seen[g.Hold] {
			t.Errorf("%+v, want one of %s with %d holds and a hold of its own", g, names[i], holds)
		}
		seen[g.Hold] = true
	}
}

// TestAll_Granted: each name of several is locked as if it had been asked for alone.
func TestAll_Granted(t *testing.T) {
	t.Parallel()
	s, _ := start(t, 3)
	names := []string{"a", "b", "c"}
	alice := locks.LockRequest{Owner: "alice"}
	d, err := lockAll(t, s, alice, names...)
	allGranted(t, d, err, 1, names...)
	again, err := lockAll(t, s, alice, names...)
	allGranted(t, again, err, 2, names...)
	for i, g := range again.All() {
		if g.Fence != d.All()[i].Fence {
			t.Errorf("a re-entry has the fence %d, the grant %d", g.Fence, d.All()[i].Fence)
		}
		if _, err := s.Renew(t.Context(), locks.RenewRequest{Key: g.Key, Owner: "alice", TTL: time.Minute, Fence: g.Fence}); err != nil {
			t.Error(err)
		}
		unlock(t, s, g.Name, "alice", 1)
	}
	unlock(t, s, "b", "alice", 0)
	bob := lock(t, s, "b", "bob", time.Minute)
	if bob.Fence <= d.Others[0].Fence {
		t.Errorf("fence %d after %d", bob.Fence, d.Others[0].Fence)
	}
	refused(t, s, "a", "bob", time.Minute)
	if _, err := lockAll(t, s, locks.LockRequest{Owner: "alice", Fresh: true}, "a", "c"); err != nil {
		t.Error(err)
	}
	unlock(t, s, "c", "alice", 0)
	unlock(t, s, "a", "alice", 0)
	d, err = lockAll(t, s, locks.LockRequest{Owner: "carol", Shared: true}, "a", "c")
	allGranted(t, d, err, 1, "a", "c")
	if d, err := lockAll(t, s, alice, "d", "c"); err != nil || d.Granted || d.Why != locks.Readers || d.Of.Name != "c" {
		t.Errorf("%+v, %v", d, err)
	}
}

// TestAll_Refused: with one name held, the refusal says by whom, and nothing of the others is left anywhere.
func TestAll_Refused(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 3)
	lock(t, s, "b", "bob", time.Minute)
	d, err := lockAll(t, s, locks.LockRequest{Owner: "alice"}, "a", "b", "c")
	if err != nil || d.Granted || d.Holder != "bob" || d.Of.Name != "b" || d.Remaining <= 0 || d.Remaining > time.Minute {
		t.Fatalf("%+v, %v", d, err)
	}
	for _, n := range nodes {
		for _, name := range []string{"a", "c"} {
			k := s.RedisKeys(locks.Key{Name: name})
			if n.Do(t, "EXISTS", k.Lock, k.Fences).Int() != 0 {
				t.Errorf("%s: %s is left", n.Addr(), name)
			}
		}
	}
	if d, err := lockAll(t, s, locks.LockRequest{Owner: "bob", NoReenter: true}, "a", "b"); err != nil || d.Granted || d.Of.Name != "b" {
		t.Errorf("%+v, %v", d, err)
	}
	lock(t, s, "a", "carol", time.Minute)
}

// TestAll_DifferentNamesInTheWay: nodes that name different owners make up no quorum, so that nobody is named as the holder.
func TestAll_DifferentNamesInTheWay(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 3)
	lock(t, s, "warm", "x", time.Second)
	for i, name := range []string{"a", "b"} { // each is held at one node
		k := s.RedisKeys(locks.Key{Name: name})
		nodes[i].Do(t, "HSET", k.Lock, "o", name+"'s", "e", inMillis(time.Minute), "f", "5", "a", "h", "l", "h", "s", "0", "i", "", "g", "1", "p", "0 0", "h", inMillis(time.Minute)+" 1")
	}
	d, err := lockAll(t, s, locks.LockRequest{Owner: "alice", TTL: time.Second}, "a", "b", "c")
	if err != nil || d.Granted || d.Holder != "" || d.Of.Name != "" {
		t.Errorf("%+v, %v", d, err)
	}
	lock(t, s, "c", "bob", time.Minute)
}

// TestAll_Settled: of two names the nodes number one differently. A quorum, and then every node, has the fence that is told.
func TestAll_Settled(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 3)
	lock(t, s, "warm", "x", time.Second)
	c := conns(t, nodes)
	high := time.Now().Add(time.Minute).UnixMicro()
	k := s.RedisKeys(locks.Key{Name: "b"})
	c[0].Do(t, "HSET", k.Fences, "c", strconv.FormatInt(high, 10))
	nodes[2].Pause()
	d, err := lockAll(t, s, locks.LockRequest{Owner: "alice"}, "a", "b")
	nodes[2].Resume()
	allGranted(t, d, err, 1, "a", "b")
	if d.Others[0].Fence != high+1 || d.Grant.Fence > high {
		t.Errorf("%+v", d)
	}
	for _, g := range d.All() {
		k := s.RedisKeys(g.Key)
		for i := range c {
			eventually(t, patient, "every node has the fence", func() bool {
				return c[i].Do(t, "HGET", k.Lock, "f").Text == strconv.FormatInt(g.Fence, 10)
			})
		}
	}
}

// TestAll_OneUnsettled: if the fence of one name is not stored by a quorum, nothing is left of the others, which were granted.
func TestAll_OneUnsettled(t *testing.T) {
	t.Parallel()
	inBubble(t, 3, testOptions{}, func(t *testing.T, s *timeless) {
		s.numberApart("b")
		s.failScripts(map[int]*scripts.Script{1: scripts.Settle, 2: scripts.AcquireAll})
		var few *locks.QuorumError
		if d, err := lockAll(t, s.proxy, locks.LockRequest{Owner: "alice"}, "a", "b", "c"); !errors.As(err, &few) || few.Name != "b" {
			t.Errorf("%+v, %v", d, err)
		}
		time.Sleep(time.Second)
		for i, n := range s.nodes {
			for _, name := range []string{"a", "b", "c"} {
				if n.Exists(s.RedisKeys(locks.Key{Name: name}).Lock) {
					t.Errorf("node %d has %s", i, name)
				}
			}
		}
	})
}

// TestAll_ValidityWhileOthersAreSettled: the lease of each name may have begun when it was asked for, however long others take after that.
func TestAll_ValidityWhileOthersAreSettled(t *testing.T) {
	t.Parallel()
	inBubble(t, 3, testOptions{}, func(t *testing.T, s *timeless) {
		const ttl = 20 * time.Second
		lock(t, s.proxy, "warm", "x", time.Second) // one try is enough from now on
		s.numberApart("b")
		s.take(20 * time.Millisecond)
		asked := s.Now()
		d, err := lockAll(t, s.proxy, locks.LockRequest{Owner: "alice", TTL: ttl}, "a", "b", "c")
		allGranted(t, d, err, 1, "a", "b", "c")
		if s.ran(0, scripts.Settle)+s.ran(1, scripts.Settle)+s.ran(2, scripts.Settle) == 0 {
			t.Error("void: nothing was settled")
		}
		for _, g := range d.All() {
			if end, want := s.Now()+g.Validity-asked, ttl-locks.Drift(ttl); end > want {
				t.Errorf("%s is valid until %v, not %v", g.Name, end, want)
			}
		}
	})
}

// TestAll_OneOverWhileOthersAreSettled: the lease of one name may be no longer than before, since a RENEW is under way, and ends while another
// name is settled. None is granted, and nothing is left of the request.
func TestAll_OneOverWhileOthersAreSettled(t *testing.T) {
	t.Parallel()
	inBubble(t, 3, testOptions{}, func(t *testing.T, s *timeless) {
		g := lock(t, s.proxy, "a", "alice", 20*time.Second)
		s.numberApart("b")
		time.Sleep(g.Validity - 8*time.Millisecond)
		s.take(3 * time.Millisecond)
		defer s.take(0)
		var group sync.WaitGroup
		defer group.Wait()
		group.Go(func() {
			time.Sleep(time.Millisecond)
			_, _ = s.Renew(t.Context(), locks.RenewRequest{Key: g.Key, Owner: "alice", TTL: 20 * time.Second})
		})
		group.Go(func() {
			time.Sleep(2 * time.Millisecond)
			s.take(10 * time.Millisecond)
		})
		d, err := lockAll(t, s.proxy, locks.LockRequest{Owner: "alice", TTL: 20 * time.Second}, "a", "b")
		if few := (*locks.QuorumError)(nil); !errors.As(err, &few) || few.Name != "a" {
			t.Errorf("%+v, %v", d, err)
		}
		time.Sleep(time.Second)
		s.take(0)
		lock(t, s.proxy, "b", "bob", time.Second)
		if all, err := s.Inspect(t.Context(), g.Key); err != nil || all.Holding.Holds > 1 {
			t.Errorf("%+v, %v", all, err)
		}
	})
}

// numberApart has each node number the next grant of a name by another fence.
func (s *timeless) numberApart(name string) {
	high := time.Now().Add(time.Minute).UnixMicro()
	for i, n := range s.nodes {
		n.HSet(s.RedisKeys(locks.Key{Name: name}).Fences, "c", strconv.FormatInt(high-int64(i), 10))
	}
}

// TestAll_GivenUp: whoever gives up a request for several names leaves none of them behind, at a node that is late neither.
func TestAll_GivenUp(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 3)
	lock(t, s, "warm", "x", time.Second)
	nodes[1].Kill()
	nodes[2].Pause()
	if d, err := lockAll(t, s, locks.LockRequest{Owner: "alice"}, "a", "b"); err == nil {
		t.Errorf("%+v by one node", d)
	}
	nodes[2].Resume()
	for _, n := range []*redistest.Server{nodes[0], nodes[2]} {
		for _, name := range []string{"a", "b"} {
			eventually(t, patient, "nothing is left", func() bool {
				return n.Do(t, "EXISTS", s.RedisKeys(locks.Key{Name: name}).Lock).Int() == 0
			})
		}
	}
	allFree := func() bool {
		d, err := lockAll(t, s, locks.LockRequest{Owner: "bob"}, "b", "a")
		return err == nil && d.Granted
	}
	eventually(t, patient, "another gets them", allFree)
}

// TestAll_Repeated: a request that is sent again gets what it got, also when it was given back. If only some of its names were, that is
// an error.
func TestAll_Repeated(t *testing.T) {
	t.Parallel()
	p, _, _ := proxies(t, 2)
	r := locks.LockRequest{Owner: "alice", Req: "r1"}
	first, err := lockAll(t, p[0], r, "a", "b")
	allGranted(t, first, err, 1, "a", "b")
	same := func(d locks.Decision) {
		t.Helper()
		for i, g := range d.All() {
			if g.Fence != first.All()[i].Fence {
				t.Errorf("%+v, want the fences of %+v", d, first)
			}
		}
	}
	again, err := lockAll(t, p[1], r, "a", "b")
	allGranted(t, again, err, 1, "a", "b")
	same(again)
	unlock(t, p[0], "a", "alice", 0)
	if d, err := lockAll(t, p[1], r, "a", "b"); !errors.Is(err, locks.ErrLost) {
		t.Errorf("%+v, %v", d, err)
	}
	refused(t, p[1], "b", "bob", time.Minute)
	unlock(t, p[1], "b", "alice", 0)
	for _, s := range p {
		d, err := lockAll(t, s, r, "a", "b")
		if err != nil || !d.Granted || d.Grant.Validity != 0 || d.Grant.Holds != 0 {
			t.Errorf("%+v, %v", d, err)
		}
		same(d)
	}
	lock(t, p[0], "b", "bob", time.Minute)
}

// TestAll_Rivals: of many who ask for overlapping names at once through two proxies, nobody has a name that another has.
func TestAll_Rivals(t *testing.T) {
	t.Parallel()
	p, _, _ := proxies(t, 2)
	names := []string{"a", "b", "c"}
	var mu sync.Mutex
	has := map[string]string{}
	granted := 0
	var group sync.WaitGroup
	for i := range 8 {
		owner := "owner" + strconv.Itoa(i)
		mine := []string{names[i%3], names[(i+1)%3]}
		group.Go(func() {
			for range 30 {
				d, err := lockAll(t, p[i%2], locks.LockRequest{Owner: owner, TTL: 30 * time.Second}, mine...)
				if err != nil {
					t.Error(err)
					return
				}
				if !d.Granted {
					continue
				}
				mu.Lock()
				granted++
				for _, name := range mine {
					if has[name] != "" {
						t.Errorf("%s gets %s, which %s has", owner, name, has[name])
					}
					has[name] = owner
				}
				mu.Unlock()
				mu.Lock()
				for _, name := range mine {
					delete(has, name)
				}
				mu.Unlock()
				for _, name := range mine {
					unlock(t, p[i%2], name, owner, 0)
				}
			}
		})
	}
	group.Wait()
	if granted == 0 {
		t.Error("nobody got anything")
	}
}
