package quorum

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/holdid"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/backends/locks/voters"
	"github.com/lockproxy/lockproxy/integration/redistest"
	"github.com/lockproxy/lockproxy/scripts"
)

// conns are connections of the test's own to nodes.
func conns(t *testing.T, nodes []*redistest.Server) []*redistest.Conn {
	t.Helper()
	var out []*redistest.Conn
	for _, n := range nodes {
		out = append(out, redistest.Open(t, n.Addr()))
	}
	return out
}

// everywhere waits until every node has the holds of job that any has, also nodes whose votes were not awaited.
func everywhere(t *testing.T, s *proxy, c []*redistest.Conn) {
	t.Helper()
	eventually(t, patient, "all nodes have the holds", func() bool { return alike(t, s, c) })
}

// alike reports whether all nodes have the same record of job.
func alike(t *testing.T, s *proxy, c []*redistest.Conn) bool {
	t.Helper()
	first := fields(t, s, c[0])
	return len(first) > 0 && !slices.ContainsFunc(c[1:], func(c *redistest.Conn) bool {
		return !slices.Equal(fields(t, s, c), first)
	})
}

// delivered waits until the node has answered all that the proxies have sent it, also what nobody waits for.
func delivered(t *testing.T, node int, p ...*proxy) {
	t.Helper()
	eventually(t, patient, "nothing is on its way to the node", func() bool {
		return !slices.ContainsFunc(p, func(s *proxy) bool { return !s.Members[node].Sound() })
	})
}

// allDelivered waits until all nodes have.
func allDelivered(t *testing.T, p ...*proxy) {
	t.Helper()
	for i := range p[0].Members {
		delivered(t, i, p...)
	}
}

// nowhere waits until no node has a record of job, so that all grant the next LOCK.
func nowhere(t *testing.T, s *proxy, c []*redistest.Conn) {
	t.Helper()
	eventually(t, patient, "no node has a hold", func() bool {
		return !slices.ContainsFunc(c, func(c *redistest.Conn) bool { return len(fields(t, s, c)) > 0 })
	})
}

// fields are those of the node's record of job, sorted: every hold is one.
func fields(t *testing.T, s *proxy, c *redistest.Conn) (names []string) {
	t.Helper()
	for _, v := range c.Do(t, "HKEYS", s.RedisKeys(locks.Key{DB: 0, Name: "job"}).Lock).Elems {
		names = append(names, v.Text)
	}
	slices.Sort(names)
	return names
}

// rivalHas makes bob the holder of job on one node, under a later fence.
func rivalHas(t *testing.T, s *proxy, c *redistest.Conn) {
	t.Helper()
	k := s.RedisKeys(locks.Key{DB: 0, Name: "job"})
	c.Do(t, "DEL", k.Lock)
	v := c.Do(t, s.Command(scripts.Acquire, k, asks("bob", "30000", s.proposal(), "bobs")...)...)
	if v.Elems[0].Int() != 1 {
		t.Fatalf("bob's acquire: %v", v)
	}
}

// TestUnlock_BesideARival kills two of five masters while a rival, which can have no
// majority, has a hold on one of the other three.
func TestUnlock_BesideARival(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 5)
	c := conns(t, nodes)
	lock(t, s, "job", "alice", 30*time.Second)
	everywhere(t, s, c)
	rivalHas(t, s, c[2])
	nodes[0].Kill()
	nodes[1].Kill()
	unlock(t, s, "job", "alice", 0)
	if c[2].Do(t, "HGET", s.RedisKeys(locks.Key{DB: 0, Name: "job"}).Lock, "o").Text != "bob" {
		t.Error("the rival's hold is gone")
	}
}

// TestUnlock_AfterShorteningElsewhere is the model's counterexample "notes": the lease
// was shortened through another proxy on one node only, and a rival has been granted
// the lock on that node and two that never had the hold.
func TestUnlock_AfterShorteningElsewhere(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 5)
	p, c := rivals(t, 2, nodes), conns(t, nodes)
	g := lock(t, p[0], "job", "alice", 30*time.Second)
	everywhere(t, p[0], c)
	votes, err := p[1].noteShortening(t.Context(), locks.Holder{Key: locks.Key{DB: 0, Name: "job"}, Owner: "alice"}, g.Fence, voters.Timeouts{Node: patient, Quorum: patient})
	if err != nil || vote.CountKind(votes, vote.Yes) < 3 {
		t.Fatalf("%+v, %v", votes, err)
	}
	for i := range 3 {
		rivalHas(t, p[0], c[i])
	}
	eventually(t, patient, "all nodes have the note", func() bool {
		for i := range c {
			if c[i].Do(t, "HGET", p[0].RedisKeys(locks.Key{DB: 0, Name: "job"}).Fences, "m").Text != strconv.FormatInt(g.Fence, 10) {
				return false
			}
		}
		return true
	})
	nodes[0].Kill()
	nodes[1].Kill()
	var q *locks.QuorumError
	if left, err := p[0].Unlock(t.Context(), locks.UnlockRequest{Key: locks.Key{Name: "job"}, Owner: "alice"}); !errors.As(err, &q) {
		t.Errorf("UNLOCK: %d, %v, want a *QuorumError", left, err)
	}
}

// TestRenew_ShorteningIsNotedFirst: a renewal that shortens goes out only when a quorum
// noted it, through the proxy that made the grant and through another one.
func TestRenew_ShorteningIsNotedFirst(t *testing.T) {
	t.Parallel()
	for i, through := range []string{"its own proxy", "another proxy"} {
		t.Run(through, func(t *testing.T) {
			t.Parallel()
			nodes := redistest.StartNodes(t, 3)
			p, c := rivals(t, 2, nodes), conns(t, nodes)
			k := p[0].RedisKeys(locks.Key{DB: 0, Name: "job"})
			renew := func(ttl time.Duration) error {
				_, err := p[i].Renew(t.Context(), locks.RenewRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: ttl})
				return err
			}
			noted := func(g locks.Grant) (n int) {
				for j := range c {
					if c[j].Do(t, "HGET", k.Fences, "m").Text == strconv.FormatInt(g.Fence, 10) {
						n++
					}
				}
				return n
			}
			g := lock(t, p[0], "job", "alice", 20*time.Second)
			if err := renew(30 * time.Second); err != nil || noted(g) != 0 {
				t.Errorf("longer: %v, noted on %d nodes", err, noted(g))
			}
			if through == "another proxy" { // which takes the grant over anew
				p[i].grants.forgetGrant(locks.Holder{Key: locks.Key{DB: 0, Name: "job"}, Owner: "alice"}, g.Fence)
			}
			if err := renew(25 * time.Second); err != nil || noted(g) < 2 {
				t.Errorf("shorter: %v, noted on %d nodes", err, noted(g))
			}
		})
	}
}

func TestRenew_NotSentWithoutTheNote(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 3)
	lock(t, s, "job", "alice", 30*time.Second)
	c := redistest.Open(t, nodes[2].Addr())
	everywhere(t, s, conns(t, nodes))
	nodes[0].Kill()
	nodes[1].Kill()
	_, err := s.Renew(t.Context(), locks.RenewRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: time.Second})
	if q := (*locks.QuorumError)(nil); !errors.As(err, &q) {
		t.Errorf("RENEW: %v", err)
	}
	if left := c.Do(t, "PTTL", s.RedisKeys(locks.Key{DB: 0, Name: "job"}).Lock).Int(); left < 20_000 {
		t.Errorf("the lease ends in %d ms", left)
	}
}

// TestUnlock_ReinstatedHoldsDoNotCount: if the proxy does not remember the validity, reinstated
// holds count neither in a read nor in a release.
func TestUnlock_ReinstatedHoldsDoNotCount(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 3)
	p, c := rivals(t, 2, nodes), conns(t, nodes)
	k := p[0].RedisKeys(locks.Key{DB: 0, Name: "job"})
	g := lock(t, p[0], "job", "alice", 30*time.Second)
	everywhere(t, p[0], c)
	for _, n := range c[:2] {
		n.Do(t, "DEL", k.Lock)
	}
	if _, err := p[0].Renew(t.Context(), locks.RenewRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: 30 * time.Second}); err != nil {
		t.Fatal(err)
	}
	eventually(t, patient, "both have it again", func() bool {
		return c[0].Do(t, "EXISTS", k.Lock).Int()+c[1].Do(t, "EXISTS", k.Lock).Int() == 2
	})
	if left, err := p[1].Unlock(t.Context(), locks.UnlockRequest{Key: locks.Key{Name: "job"}, Owner: "alice"}); !errors.Is(err, locks.ErrLost) {
		t.Errorf("UNLOCK through another proxy: %d, %v", left, err)
	}
	strict := p[1].Command(scripts.Release, k, gives("alice", g, "strict", "")...)
	v := c[0].Do(t, strict...)
	if len(v.Elems) != 5 || v.Elems[0].Int() != 1 || v.Elems[3].Int() != 1 {
		t.Errorf("release of a hold that was put back: %v", v)
	}
	if v := c[0].Do(t, strict...); v.Elems[0].Int() != 0 {
		t.Errorf("the release is remembered: %v", v)
	}
}

// TestUnlock_WithoutCacheIsStrict: a validity that a proxy has only read does not count as known by its own grant.
func TestUnlock_WithoutCacheIsStrict(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 3)
	p, c := rivals(t, 2, nodes), conns(t, nodes)
	k := p[0].RedisKeys(locks.Key{DB: 0, Name: "job"})
	lock(t, p[0], "job", "alice", 30*time.Second)
	everywhere(t, p[0], c)
	c[0].Do(t, "DEL", k.Lock)
	eventually(t, patient, "a renewal puts it back", func() bool {
		_, err := p[0].Renew(t.Context(), locks.RenewRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: 30 * time.Second})
		return err == nil && c[0].Do(t, "EXISTS", k.Lock).Int() == 1
	})
	unlock(t, p[1], "job", "alice", 0)
	eventually(t, patient, "the hold that was put back is gone", func() bool { return c[0].Do(t, "EXISTS", k.Lock).Int() == 0 })
	if last := c[0].Do(t, "HGET", k.Fences, "o"); last.Text != "" {
		t.Errorf("its release is remembered, of %s", last.Text)
	}
}

// TestUnlock_AllOfTwoProxies: an UNLOCK of all holds, taken through two proxies, frees the name, whichever is asked.
func TestUnlock_AllOfTwoProxies(t *testing.T) {
	t.Parallel()
	p, c, _ := proxies(t, 2)
	lock(t, p[0], "job", "alice", 30*time.Second)
	lock(t, p[1], "job", "alice", 30*time.Second)
	left, err := p[0].Unlock(t.Context(), locks.UnlockRequest{Key: locks.Key{Name: "job"}, Owner: "alice", All: true})
	if left != 0 || err != nil {
		t.Errorf("UNLOCK ALL: %d, %v", left, err)
	}
	nothingLeft(t, p[0], c)
}

// TestUnlock_WhileAnotherLockSettles: until the other LOCK has settled the nodes have several
// fences, and an UNLOCK that reads them does not take the lock for lost.
func TestUnlock_WhileAnotherLockSettles(t *testing.T) {
	t.Parallel()
	p, c, _ := proxies(t, 2)
	g := lock(t, p[0], "job", "alice", 30*time.Second)
	everywhere(t, p[0], c)
	settle := func(i int, fence int64) {
		t.Helper()
		c[i].Do(t, p[0].Command(scripts.Settle, p[0].RedisKeys(locks.Key{DB: 0, Name: "job"}), "alice", strconv.FormatInt(fence, 10), g.Hold)...)
	}
	for i := range c {
		settle(i, g.Fence+int64(i))
	}
	var wg sync.WaitGroup
	wg.Go(func() { unlock(t, p[1], "job", "alice", 0) })
	time.Sleep(5 * time.Millisecond) // it has read them
	for i := range c {
		settle(i, g.Fence+2)
	}
	wg.Wait()
	nothingLeft(t, p[0], c)
}

// TestUnlock_AtOnce: an owner sends UNLOCKs through several proxies at the same moment. None gives
// back two holds, and none tells that the lock is lost while there are some.
func TestUnlock_AtOnce(t *testing.T) {
	t.Parallel()
	const unlocks, holds = 3, 4
	for _, with := range []string{"", "a REQ"} {
		for _, dead := range []int{0, 1} {
			t.Run(fmt.Sprintf("%d dead, with %q", dead, with), func(t *testing.T) {
				t.Parallel()
				p, c, nodes := proxies(t, unlocks+1)
				for i := range dead {
					nodes[i].Kill()
				}
				for round := range 15 - 11*dead { // a dead one is waited for
					name := fmt.Sprint("job", round)
					for range holds {
						lock(t, p[unlocks], name, "alice", 30*time.Second)
					}
					var wg sync.WaitGroup
					for i := range unlocks {
						r := locks.UnlockRequest{Key: locks.Key{Name: name}, Owner: "alice"}
						if with != "" {
							r.Req = fmt.Sprint(i)
						}
						wg.Go(func() {
							if left, err := p[i].Unlock(t.Context(), r); errors.Is(err, locks.ErrLost) || err == nil && left == 0 {
								t.Errorf("%s: %d, %v, with a hold left", name, left, err)
							}
						})
					}
					wg.Wait()
					for i := dead; i < len(nodes); i++ {
						delivered(t, i, p...)
						if n := c[i].Do(t, "HLEN", p[0].RedisKeys(locks.Key{DB: 0, Name: name}).Lock).Int() - fixedFields; n < holds-unlocks {
							t.Errorf("%s: %d holds on node %d", name, n, i)
						}
					}
				}
			})
		}
	}
}

// TestUnlock_StaleGrantAtALateNode: as in TestUnlock_GivenBackByAnotherProxy, but one node still has the old grant, since the
// release has not come there yet. The UNLOCK removes it there, and gives back the new grant all the same.
func TestUnlock_StaleGrantAtALateNode(t *testing.T) {
	t.Parallel()
	p, c, nodes := proxies(t, 2)
	k := p[0].RedisKeys(locks.Key{Name: "job"}).Lock
	lock(t, p[0], "job", "alice", 30*time.Second)
	everywhere(t, p[0], c)
	late := dumped(t, nodes[1], k)
	unlock(t, p[1], "job", "alice", 0)
	nothingLeft(t, p[0], c)
	c[1].Do(t, "ACL", "SETUSER", "default", "-evalsha")
	lock(t, p[1], "job", "alice", time.Minute)
	eventually(t, patient, "the last node has it", func() bool {
		return c[0].Do(t, "EXISTS", k).Int()+c[2].Do(t, "EXISTS", k).Int() == 2 && p[1].inner.Store.Idle()
	})
	late()
	c[1].Do(t, "ACL", "SETUSER", "default", "+evalsha")
	nodes[2].Pause()
	var wg sync.WaitGroup
	wg.Go(func() { unlock(t, p[0], "job", "alice", 0) })
	eventually(t, patient, "the old grant is gone", func() bool { return c[1].Do(t, "EXISTS", k).Int() == 0 })
	nodes[2].Resume()
	wg.Wait()
	nothingLeft(t, p[0], c)
}

// TestUnlock_OfAHoldWhoseLockCameLate: a node executed the LOCK after another owner had had the name. Its hold
// there goes, and proves nothing: with it the UNLOCK of a grant that was lost would succeed.
func TestUnlock_OfAHoldWhoseLockCameLate(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 1)
	n := redistest.Open(t, nodes[0].Addr())
	k := s.RedisKeys(locks.Key{DB: 0, Name: "job"})
	g := lock(t, s, "job", "alice", 30*time.Second)
	n.Do(t, s.Command(scripts.Release, k, gives("alice", g, "undo", "")...)...)
	n.Do(t, "DEL", k.Node+":H"+g.Hold)
	lock(t, s, "job", "bob", 30*time.Second)
	unlock(t, s, "job", "bob", 0)
	if v := n.Do(t, s.Command(scripts.Acquire, k, asks("alice", "30000", "0", g.Hold)...)...); v.Elems[0].Int() != 1 {
		t.Fatalf("the late LOCK: %v", v)
	}
	if v := n.Do(t, s.Command(scripts.Release, k, gives("alice", g, "strict", "")...)...); v.Elems[0].Int() == 1 {
		t.Errorf("UNLOCK: %v", v)
	}
	if n.Do(t, "EXISTS", k.Lock).Int() != 0 {
		t.Error("the hold is still there")
	}
}

// TestUnlock_LateOneOfAnEarlierGrant: a late UNLOCK of an earlier grant takes nothing from a
// later grant of the same request.
func TestUnlock_LateOneOfAnEarlierGrant(t *testing.T) {
	t.Parallel()
	p, c, _ := proxies(t, 2)
	first := request(t, p[0], "alice", "x")
	if _, held, err := p[1].Force(t.Context(), locks.Key{DB: 0, Name: "job"}); !held || err != nil {
		t.Fatal(held, err)
	}
	second := request(t, p[1], "alice", "x")
	if second.Fence <= first.Fence {
		t.Fatalf("fence %d after %d", second.Fence, first.Fence)
	}
	everywhere(t, p[0], c)
	left, err := p[0].Unlock(t.Context(), locks.UnlockRequest{Key: locks.Key{Name: "job"}, Owner: "alice", Fence: first.Fence})
	if !errors.Is(err, locks.ErrLost) {
		t.Errorf("UNLOCK of the first: %d, %v", left, err)
	}
	refused(t, p[0], "job", "bob", time.Second)
}

// TestRelease_SameUnlockTwice: two proxies got the same UNLOCK with a REQ and read the same hold; the
// second release answers as the first did. A release for another UNLOCK is told that the hold
// is gone, and must choose another.
func TestRelease_SameUnlockTwice(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 1)
	n := redistest.Open(t, nodes[0].Addr())
	outer := lock(t, s, "job", "alice", 30*time.Second)
	inner := lock(t, s, "job", "alice", 30*time.Second)
	for _, tt := range []struct {
		release, unlock string
		code            int64
	}{{"first", "u", 1}, {"second", "u", 1}, {"first", "u", 1}, {"third", "w", 5}, {"fourth", "", 5}} {
		v := n.Do(t, s.Command(scripts.Release, s.RedisKeys(locks.Key{DB: 0, Name: "job"}), "alice", strconv.FormatInt(outer.Fence, 10), "strict",
			tt.unlock, outer.Hold, tt.release, "60000", "1", inner.Hold)...)
		if v.Elems[0].Int() != tt.code || tt.code == 1 && v.Elems[2].Int() != 1 {
			t.Errorf("%s release, unlock %q: %v", tt.release, tt.unlock, v)
		}
	}
}

// TestUnlock_ReleasesEveryAttempt: one attempt of the LOCK is on all nodes, another on one only.
// UNLOCK with the REQ removes both, and neither UNLOCK nor RENEW spreads the second.
func TestUnlock_ReleasesEveryAttempt(t *testing.T) {
	t.Parallel()
	for _, others := range []int{0, 1} {
		t.Run(fmt.Sprintf("%d other holds", others), func(t *testing.T) {
			t.Parallel()
			p, c, _ := proxies(t, 2)
			k := p[0].RedisKeys(locks.Key{DB: 0, Name: "job"})
			var outer locks.Grant
			for range others {
				outer = lock(t, p[0], "job", "alice", 30*time.Second)
			}
			g := request(t, p[0], "alice", "x")
			everywhere(t, p[0], c)
			copied := p[0].newHold(locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "alice", Req: "x"})
			c[0].Do(t, p[0].Command(scripts.Acquire, k, asks("alice", "30000", "0", copied)...)...)
			giveBack(t, p[1], "alice", "x", others)
			if others == 0 {
				nothingLeft(t, p[0], c)
				return
			}
			eventually(t, patient, "every node has given it back", func() bool {
				return !slices.ContainsFunc(c, func(n *redistest.Conn) bool { return n.Do(t, "HLEN", k.Lock).Int() != fixedFields+1 })
			})
			for _, hold := range []string{copied, g.Hold} {
				c[1].Do(t, p[0].Command(scripts.Renew, k, "alice", "30000", strconv.FormatInt(outer.Fence, 10), outer.Hold,
					outer.Hold, "1", "", "1", "0", outer.Hold, hold)...)
				if c[1].Do(t, "HEXISTS", k.Lock, hold).Int() != 0 {
					t.Errorf("a RENEW brought %s back", hold)
				}
			}
		})
	}
}

// TestUnlock_OfARequestGrantedTwice: the first lease expired, the same REQ was granted again, and one node
// remembers an UNLOCK of the first. UNLOCK releases the second.
func TestUnlock_OfARequestGrantedTwice(t *testing.T) {
	t.Parallel()
	p, c, _ := proxies(t, 2)
	a, err := p[0].Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: 200 * time.Millisecond, Req: "x"})
	if err != nil || !a.Granted {
		t.Fatalf("%+v, %v", a, err)
	}
	eventually(t, patient, "the lease has ended", func() bool {
		return !slices.ContainsFunc(c, func(n *redistest.Conn) bool {
			return n.Do(t, "EXISTS", p[0].RedisKeys(locks.Key{DB: 0, Name: "job"}).Lock).Int() != 0
		})
	})
	request(t, p[1], "alice", "x")
	everywhere(t, p[1], c)
	done := p[0].RedisKeys(locks.Key{DB: 0, Name: "job"}).Node + ":U" + holdid.TagOf(locks.Holder{Key: locks.Key{DB: 0, Name: "job"}, Owner: "alice"}, "x")
	c[2].Do(t, "SET", done, fmt.Sprintf("0 %d %s", a.Grant.Fence, a.Grant.Hold), "PX", "60000")
	giveBack(t, p[0], "alice", "x", 0)
	nothingLeft(t, p[0], c)
}

// TestUnlock_SentBeforeItsLock: the UNLOCK gives back another hold of the owner. Sent again after
// the LOCK with its REQ was granted, it gives that one back.
func TestUnlock_SentBeforeItsLock(t *testing.T) {
	t.Parallel()
	p, c, _ := proxies(t, 2)
	for through := range p {
		lock(t, p[0], "job", "alice", 30*time.Second)
		everywhere(t, p[0], c)
		req := fmt.Sprint("x", through)
		giveBack(t, p[1], "alice", req, 0)
		nothingLeft(t, p[0], c)
		request(t, p[0], "alice", req)
		everywhere(t, p[0], c)
		giveBack(t, p[through], "alice", req, 0)
		nothingLeft(t, p[0], c)
	}
}

// TestUnlock_GivenBackByAnotherProxy: the grant that a proxy remembers was given back through
// another proxy, and the owner has the name again.
func TestUnlock_GivenBackByAnotherProxy(t *testing.T) {
	t.Parallel()
	p, c, _ := proxies(t, 2)
	lock(t, p[0], "job", "alice", 30*time.Second)
	unlock(t, p[1], "job", "alice", 0)
	lock(t, p[1], "job", "alice", time.Minute)
	unlock(t, p[0], "job", "alice", 0)
	nothingLeft(t, p[0], c)
}

// TestUnlock_StaleGrantHalfRemembered: an owner took a name through one proxy, gave it back through another and took it again there.
// An UNLOCK through the first, which knows the old grant only, gives back the new one, though of the nodes that answer one
// remembers the old release and the other does not know it.
func TestUnlock_StaleGrantHalfRemembered(t *testing.T) {
	t.Parallel()
	p, c, _ := proxies(t, 2)
	out := func(node int) { c[node].Do(t, "ACL", "SETUSER", "default", "-evalsha") }
	back := func(node int) { c[node].Do(t, "ACL", "SETUSER", "default", "+evalsha") }
	out(0)
	lock(t, p[1], "job", "carol", time.Minute)
	unlock(t, p[0], "job", "carol", 0)
	k := p[0].RedisKeys(locks.Key{Name: "job"})
	eventually(t, patient, "node 2 knows of the release", func() bool { return c[2].Do(t, "HGET", k.Fences, "o").Text == "carol" })
	back(0)
	out(1)
	lock(t, p[0], "job", "carol", time.Minute)
	eventually(t, patient, "the release has come to node 0", func() bool { return p[0].inner.Store.Idle() })
	c[0].Do(t, "HDEL", k.Fences, "o", "a", "f", "n") // it may have come there before the LOCK, or not
	unlock(t, p[1], "job", "carol", 0)
	back(1)
	lock(t, p[0], "job", "dave", time.Minute)
}

// TestUnlock_OneHoldThoughANodeIsLate: an UNLOCK gives back one hold, though one node numbers the grant otherwise, and another one
// does what it is told so late that the UNLOCK is not decided by it.
func TestUnlock_OneHoldThoughANodeIsLate(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 3)
	c := conns(t, nodes)
	s := serve(t, testOptions{Nodes: nodesAt(t, addrs(nodes)...), NodeTimeout: 200 * time.Millisecond})
	allVote(t, s)
	for done, tries := 0, 0; done < 5; tries++ {
		var last locks.Grant
		eventually(t, patient, "all nodes have four holds", func() bool { // on a busy machine one may answer too late to be told of each
			if _, _, err := s.Force(t.Context(), jobKey); err != nil {
				return false
			}
			for range 4 {
				d, err := s.Lock(t.Context(), locks.LockRequest{Key: jobKey, Owner: "alice", TTL: time.Minute})
				if err != nil || !d.Granted {
					return false
				}
				last = d.Grant
			}
			allDelivered(t, s)
			return last.Holds == 4 && alike(t, s, c)
		})
		k := s.RedisKeys(locks.Key{Name: "job"})
		c[1].Do(t, "HINCRBY", k.Lock, "f", "1000") // as if it had lost the grant before the last LOCK, which made it anew
		c[1].Do(t, "HSET", k.Lock, "a", last.Hold)
		c[1].Do(t, "HINCRBY", k.Fences, "c", "1000")
		nodes[2].Pause()
		time.AfterFunc(500*time.Millisecond, nodes[2].Resume)
		left, err := s.Unlock(t.Context(), locks.UnlockRequest{Key: locks.Key{Name: "job"}, Owner: "alice"})
		q := (*locks.QuorumError)(nil)
		if err != nil && !errors.As(err, &q) || err == nil && left != 3 {
			t.Errorf("UNLOCK: %d left, %v", left, err)
		}
		delivered(t, 2, s)
		switch n := len(fields(t, s, c[2])) - fixedFields; {
		case n == 3:
			done++
		case n < 3 || err == nil || tries > 50: // an UNLOCK for which a busy machine had no time gives back none
			t.Fatalf("%d holds are left of 4 (%d, %v)", n, left, err)
		}
	}
}

// TestUnlock_AfterAReentryOnOtherNodes: an owner enters its lock again while other nodes are silent than at first, so that too few know the
// grant, and this is a new one. When that is given back, the hold of before is still there, by no fence of a quorum; it keeps others out, and
// is given back as ever.
func TestUnlock_AfterAReentryOnOtherNodes(t *testing.T) {
	t.Parallel()
	for _, r := range []locks.UnlockRequest{{}, {All: true}, {Req: "first"}} {
		t.Run(fmt.Sprintf("%q, all %v", r.Req, r.All), func(t *testing.T) {
			t.Parallel()
			inBubble(t, 3, testOptions{}, func(t *testing.T, s *timeless) {
				s.failScripts(map[int]*scripts.Script{2: scripts.Acquire})
				before := request(t, s.proxy, "alice", "first")
				s.failScripts(map[int]*scripts.Script{0: scripts.Acquire})
				g := lock(t, s.proxy, "job", "alice", time.Minute)
				s.failScripts(nil)
				if g.Fence <= before.Fence || g.Holds != 1 {
					t.Fatalf("%+v after %+v", g, before)
				}
				unlock(t, s.proxy, "job", "alice", 1)
				refused(t, s.proxy, "job", "bob", time.Second)
				r.Key, r.Owner = g.Key, "alice"
				if left, err := s.Unlock(t.Context(), r); err != nil || left != 0 {
					t.Errorf("UNLOCK: %d, %v", left, err)
				}
				if next := lock(t, s.proxy, "job", "bob", time.Second); next.Fence <= g.Fence {
					t.Errorf("%+v after %+v", next, g)
				}
			})
		})
	}
}

// TestUnlock_OnceOfALaterGrant: an UNLOCK that is done once and names no grant gives back what the owner has now, at a proxy that
// knows an earlier grant of the same owner, which was given back through another proxy.
func TestUnlock_OnceOfALaterGrant(t *testing.T) {
	t.Parallel()
	for _, how := range []struct {
		name    string
		shared  bool
		permits int
	}{{name: "alone"}, {"reads", true, 0}, {"has a permit", false, 2}} {
		t.Run(how.name, func(t *testing.T) {
			t.Parallel()
			p, c, _ := proxies(t, 2)
			take := func(p *proxy) {
				mustLock(t, p, locks.LockRequest{Key: jobKey, Owner: "alice", TTL: time.Minute, Shared: how.shared, Permits: how.permits})
				allDelivered(t, p)
			}
			once := locks.UnlockRequest{Key: jobKey, Owner: "alice", All: true, Once: true, Shared: how.shared || how.permits > 0}
			give := func(p *proxy) error {
				_, err := p.Unlock(t.Context(), once)
				allDelivered(t, p)
				return err
			}
			take(p[0])
			if err := give(p[1]); err != nil {
				t.Error(err)
			}
			take(p[1])
			if err := give(p[0]); err != nil {
				t.Errorf("the later grant: %v", err)
			}
			nothingLeft(t, p[0], c)
			take(p[0])
			if err := give(p[1]); err != nil {
				t.Error(err)
			}
			for _, p := range p { // the first of them has the grant in its cache
				if err := give(p); !errors.Is(err, locks.ErrLost) {
					t.Errorf("given back before: %v", err)
				}
			}
		})
	}
}

// TestUnlock_WhereNodesNameOthers: two other proxies have given the last hold back, each first at other nodes. An UNLOCK that meets that
// gives back the hold of before, when a quorum names one of the two; the first answers do not, and it waits for the rest.
func TestUnlock_WhereNodesNameOthers(t *testing.T) {
	t.Parallel()
	inBubble(t, 3, testOptions{}, func(t *testing.T, s *timeless) {
		lock(t, s.proxy, "job", "alice", time.Minute)
		synctest.Wait()
		if g := lock(t, s.proxy, "job", "alice", time.Minute); g.Holds != 2 {
			t.Fatalf("%+v", g)
		}
		synctest.Wait()
		give := func(p *proxy, fails map[int]*scripts.Script) (left int, err error) {
			s.failScripts(fails)
			left, err = p.Unlock(t.Context(), locks.UnlockRequest{Key: jobKey, Owner: "alice"})
			s.failScripts(nil)
			return left, err
		}
		if left, err := give(s.another(t).proxy, map[int]*scripts.Script{0: scripts.Release, 2: scripts.Release}); err == nil {
			t.Fatalf("an UNLOCK at one node: %d", left)
		}
		if left, err := give(s.another(t).proxy, map[int]*scripts.Script{1: scripts.Release}); err != nil || left != 1 {
			t.Fatalf("an UNLOCK at the others: %d, %v", left, err)
		}
		s.delay(2, scripts.Release, 10*time.Millisecond)
		if left, err := s.Unlock(t.Context(), locks.UnlockRequest{Key: jobKey, Owner: "alice"}); err != nil || left != 0 {
			t.Errorf("the next UNLOCK: %d, %v", left, err)
		}
		lock(t, s.proxy, "job", "bob", time.Minute)
	})
}
