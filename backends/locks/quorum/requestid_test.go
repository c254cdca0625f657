package quorum

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/holdid"
	"github.com/lockproxy/lockproxy/integration/redistest"
	"github.com/lockproxy/lockproxy/scripts"
)

// proxies serve on three real nodes.
func proxies(t *testing.T, n int) ([]*proxy, []*redistest.Conn, []*redistest.Server) {
	t.Helper()
	return proxiesFor(t, n, 0)
}

// proxiesFor is proxies with a max-ttl.
func proxiesFor(t *testing.T, n int, maxTTL time.Duration) ([]*proxy, []*redistest.Conn, []*redistest.Server) {
	t.Helper()
	nodes := redistest.StartNodes(t, 3)
	var p []*proxy
	for range n {
		p = append(p, serve(t, testOptions{Nodes: nodesAt(t, addrs(nodes)...), NodeTimeout: patient, MaxTTL: maxTTL}))
	}
	allVote(t, p...)
	return p, conns(t, nodes), nodes
}

func request(t *testing.T, s *proxy, owner, req string) locks.Grant {
	t.Helper()
	a, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: owner, TTL: time.Minute, Req: req})
	if err != nil || !a.Granted {
		t.Fatalf("LOCK by %s, REQ %s: %+v, %v", owner, req, a, err)
	}
	return a.Grant
}

func giveBack(t *testing.T, s *proxy, owner, req string, want int) {
	t.Helper()
	left, err := s.Unlock(t.Context(), locks.UnlockRequest{Key: locks.Key{Name: "job"}, Owner: owner, Req: req})
	if err != nil || left != want {
		t.Fatalf("UNLOCK by %s, REQ %s: %d, %v, want %d", owner, req, left, err, want)
	}
}

// nothingLeft waits until no node has a hold of job.
func nothingLeft(t *testing.T, s *proxy, c []*redistest.Conn) {
	t.Helper()
	var left []string
	defer func() {
		if len(left) > 0 {
			t.Log(left)
		}
	}()
	eventually(t, patient, "no node has a hold", func() bool {
		left = nil
		for i := range c {
			if v := c[i].Do(t, "HGETALL", s.RedisKeys(locks.Key{DB: 0, Name: "job"}).Lock); len(v.Elems) > 0 {
				left = append(left, fmt.Sprint(i, v))
			}
		}
		return len(left) == 0
	})
}

func TestReq_ResentLockIsOneHold(t *testing.T) {
	t.Parallel()
	p, c, _ := proxies(t, 2)
	first := request(t, p[0], "alice", "x")
	for i := range 4 {
		if g := request(t, p[i%2], "alice", "x"); g.Fence != first.Fence || g.Holds != 1 || g.Validity < 20*time.Second {
			t.Errorf("resent: %+v, first %+v", g, first)
		}
	}
	refused(t, p[1], "job", "bob", time.Second)
	if g := request(t, p[1], "alice", "y"); g.Holds != 2 || g.Fence != first.Fence {
		t.Errorf("another request: %+v", g)
	}
	unlock(t, p[1], "job", "alice", 1)
	unlock(t, p[0], "job", "alice", 0)
	nothingLeft(t, p[0], c)
}

func TestReq_ManyRequestsAreManyHolds(t *testing.T) {
	t.Parallel()
	p, c, _ := proxies(t, 2)
	const many = 30
	for i := range many {
		for j := range 1 + i%3 {
			if g := request(t, p[(i+j)%2], "alice", strconv.Itoa(i)); g.Holds != i+1 {
				t.Fatalf("request %d: %d holds", i, g.Holds)
			}
		}
		everywhere(t, p[0], c) // else the next proxy may count one less
	}
	for i := range many {
		giveBack(t, p[i%2], "alice", "u"+strconv.Itoa(i), many-1-i)
	}
	nothingLeft(t, p[0], c)
}

// TestReq_UndoOfOneAttempt: the undo of one attempt takes nothing from another attempt of the same request.
func TestReq_UndoOfOneAttempt(t *testing.T) {
	t.Parallel()
	for i, resent := range []int{0, 1} {
		t.Run([]string{"same proxy", "another proxy"}[i], func(t *testing.T) {
			t.Parallel()
			p, c, _ := proxies(t, 2)
			a1 := request(t, p[0], "alice", "x")
			a2 := request(t, p[resent], "alice", "x")
			p[0].Undo(a1)
			everywhere(t, p[0], c)
			eventually(t, patient, "the undo is done", func() bool {
				n := int64(0)
				for i := range c {
					n += c[i].Do(t, "HEXISTS", p[0].RedisKeys(locks.Key{DB: 0, Name: "job"}).Lock, a1.Hold).Int()
				}
				return n == 0
			})
			refused(t, p[1], "job", "bob", time.Second)
			p[resent].Undo(a2)
			nothingLeft(t, p[0], c)
			if g := request(t, p[1], "alice", "x"); g.Fence <= a1.Fence || g.Holds != 1 || g.Validity == 0 {
				t.Errorf("undone, and asked for again: %+v", g)
			}
		})
	}
}

// TestReq_UnlockOfTwoAttempts: two proxies granted a request at the same
// time and agreed on the larger fence; the UNLOCK names the smaller one.
func TestReq_UnlockOfTwoAttempts(t *testing.T) {
	t.Parallel()
	p, c, _ := proxies(t, 2)
	first, second := request(t, p[0], "alice", "x"), request(t, p[1], "alice", "x")
	everywhere(t, p[0], c)
	everywhere(t, p[1], c)
	larger := strconv.FormatInt(first.Fence+1000, 10)
	for i := range c {
		if v := c[i].Do(t, p[1].Command(scripts.Settle, p[1].RedisKeys(locks.Key{DB: 0, Name: "job"}), "alice", larger, second.Hold)...); v.Elems[0].Int() != 1 {
			t.Fatal(v)
		}
	}
	giveBack(t, p[0], "alice", "x", 0)
	nothingLeft(t, p[0], c)
}

// TestReq_UnlockOfEachHoldOnce: a request was granted through two proxies, which know it by different holds. Of two UNLOCKs without an id,
// each through one of them, the second gives back the other LOCK, also where a node is late for the first one.
func TestReq_UnlockOfEachHoldOnce(t *testing.T) {
	t.Parallel()
	for _, late := range []int{-1, 2} {
		t.Run(fmt.Sprintf("late node %d", late), func(t *testing.T) {
			t.Parallel()
			p, c, _ := proxies(t, 2)
			lock(t, p[0], "job", "alice", 30*time.Second)
			for _, s := range p {
				if g := request(t, s, "alice", "x"); g.Holds != 2 {
					t.Fatalf("%+v", g)
				}
				everywhere(t, s, c)
			}
			if late >= 0 {
				c[late].Do(t, "ACL", "SETUSER", "default", "-evalsha")
			}
			unlock(t, p[0], "job", "alice", 1)
			if late >= 0 {
				c[late].Do(t, "ACL", "SETUSER", "default", "+evalsha")
			}
			unlock(t, p[1], "job", "alice", 0)
			nothingLeft(t, p[0], c)
		})
	}
}

// TestReq_LateUnlockBesideARival: the UNLOCK of request x is answered by one node that gives the hold back, and by one
// that names a rival and so does not remember what this UNLOCK gave back; it never reaches the third. A copy of the
// UNLOCK that comes late, when the owner has another hold, must not give back that one.
func TestReq_LateUnlockBesideARival(t *testing.T) {
	t.Parallel()
	for i, via := range []string{"proxy that has the hold", "another proxy"} {
		t.Run(via, func(t *testing.T) {
			t.Parallel()
			p, c, nodes := proxies(t, 2)
			dying, die := serveUntil(t, testOptions{Nodes: nodesAt(t, addrs(nodes)...), NodeTimeout: patient})
			allVote(t, dying)
			request(t, dying, "alice", "x")
			everywhere(t, dying, c)
			rivalHas(t, dying, c[2])
			c[1].Do(t, "CLIENT", "PAUSE", "600000", "WRITE")
			giveBack(t, dying, "alice", "x", 0)
			die()
			c[1].Do(t, "CLIENT", "UNPAUSE")
			c[2].Do(t, "DEL", p[0].RedisKeys(locks.Key{Name: "job"}).Lock)
			y := request(t, p[0], "alice", "y")
			eventually(t, patient, "every node has y", func() bool {
				return !slices.ContainsFunc(c, func(c *redistest.Conn) bool { return !slices.Contains(fields(t, p[0], c), y.Hold) })
			})

			// A read that does not ask the node that remembers this UNLOCK.
			c[0].Do(t, "CLIENT", "PAUSE", "600000", "WRITE")
			left, err := p[i].Unlock(t.Context(), locks.UnlockRequest{Key: locks.Key{Name: "job"}, Owner: "alice", Req: "x"})
			if q := (*locks.QuorumError)(nil); !errors.As(err, &q) { // that node alone could say
				t.Errorf("a late UNLOCK: %d, %v", left, err)
			}
			c[0].Do(t, "CLIENT", "UNPAUSE")
			refused(t, p[1], "job", "bob", time.Second)
			giveBack(t, p[0], "alice", "y", 0)
		})
	}
}

// TestReq_LateLock: a LOCK that comes once more after its lock was given back gets the old grant, without a hold.
func TestReq_LateLock(t *testing.T) {
	t.Parallel()
	p, c, _ := proxies(t, 2)
	g := request(t, p[0], "alice", "x")
	unlock(t, p[0], "job", "alice", 0)
	late := func(when string) {
		t.Helper()
		for i := range p {
			if l := request(t, p[i], "alice", "x"); l.Fence != g.Fence || l.Validity != 0 || l.Holds != 0 {
				t.Errorf("%s: %+v, want fence %d", when, l, g.Fence)
			}
		}
	}
	late("free")
	nothingLeft(t, p[0], c)
	lock(t, p[1], "job", "bob", 30*time.Second)
	late("another's")
	unlock(t, p[1], "job", "bob", 0)
	request(t, p[1], "alice", "y")
	late("another request's")
	giveBack(t, p[0], "alice", "u", 0)
	nothingLeft(t, p[0], c)
	for i := range c {
		if left := c[i].Do(t, "PTTL", p[0].RedisKeys(locks.Key{DB: 0, Name: "job"}).Node+":L"+holdid.Tag(g.Hold)).Int(); left < 60_000 {
			t.Errorf("node %d remembers the request for %d ms", i, left)
		}
	}
}

// TestReq_LateLockOnOneNode: a LOCK reaches one node after the release of its lock, and the others before it.
func TestReq_LateLockOnOneNode(t *testing.T) {
	t.Parallel()
	p, c, nodes := proxies(t, 2)
	g := request(t, p[0], "alice", "x")
	everywhere(t, p[0], c)
	nodes[2].Pause()
	resent := request(t, p[1], "alice", "x") // waits at the third
	unlock(t, p[0], "job", "alice", 0)
	nodes[2].Resume()
	if resent.Fence != g.Fence {
		t.Errorf("%+v", resent)
	}
	nothingLeft(t, p[0], c)
}

func TestReq_ResentUnlockGivesBackOneHold(t *testing.T) {
	t.Parallel()
	p, c, _ := proxies(t, 2)
	for _, through := range []int{0, 1} {
		request(t, p[0], "alice", fmt.Sprint("outer", through))
		request(t, p[through], "alice", fmt.Sprint("inner", through))
		first := fmt.Sprint("u", through)
		for i := range 4 {
			giveBack(t, p[i/2], "alice", first, 1)
		}
		last := fmt.Sprint("v", through)
		giveBack(t, p[1], "alice", last, 0)
		lock(t, p[1], "job", "bob", 30*time.Second)
		giveBack(t, p[0], "alice", last, 0)
		giveBack(t, p[1], "alice", last, 0)
		unlock(t, p[0], "job", "bob", 0)
		nothingLeft(t, p[0], c)
	}
}

// TestReq_UnlockBegunOnSomeNodes: a proxy began an UNLOCK on some nodes, with another hold than this proxy would give
// back, and died.
func TestReq_UnlockBegunOnSomeNodes(t *testing.T) {
	t.Parallel()
	for told := 1; told <= 3; told++ {
		for through := range 2 {
			t.Run(fmt.Sprintf("told %d, through %d", told, through), func(t *testing.T) {
				t.Parallel()
				p, c, _ := proxies(t, 2)
				outer := lock(t, p[0], "job", "alice", 30*time.Second)
				everywhere(t, p[0], c)
				request(t, p[0], "alice", "x")
				eventually(t, patient, "all nodes have both holds", func() bool {
					n := int64(0)
					for i := range c {
						n += c[i].Do(t, "HLEN", p[0].RedisKeys(locks.Key{DB: 0, Name: "job"}).Lock).Int()
					}
					return n == 3*(fixedFields+2)
				})
				for i := range told {
					v := c[i].Do(t, p[0].Command(scripts.Release, p[0].RedisKeys(locks.Key{DB: 0, Name: "job"}),
						gives("alice", outer, "strict", holdid.TagOf(locks.Holder{Key: locks.Key{DB: 0, Name: "job"}, Owner: "alice"}, "u"))...)...)
					if v.Elems[0].Int() != 1 {
						t.Fatal(v)
					}
				}
				giveBack(t, p[through], "alice", "u", 1)
				giveBack(t, p[1-through], "alice", "u", 1)
				unlock(t, p[1], "job", "alice", 0)
				nothingLeft(t, p[0], c)
			})
		}
	}
}

// TestReq_UnlockWithoutAnswer: an UNLOCK reached one node of three in time; the others do it later.
func TestReq_UnlockWithoutAnswer(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 3)
	var p []*proxy
	for range 2 {
		p = append(p, serve(t, testOptions{Nodes: nodesAt(t, addrs(nodes)...), NodeTimeout: 2 * time.Second}))
	}
	allVote(t, p...)
	c := conns(t, nodes)
	request(t, p[0], "alice", "outer")
	request(t, p[0], "alice", "x")
	nodes[1].Pause()
	nodes[2].Pause()
	left, err := p[0].Unlock(t.Context(), locks.UnlockRequest{Key: locks.Key{Name: "job"}, Owner: "alice", Req: "u"})
	if q := (*locks.QuorumError)(nil); !errors.As(err, &q) {
		t.Fatalf("UNLOCK: %d, %v", left, err)
	}
	nodes[1].Resume()
	nodes[2].Resume()
	eventually(t, patient, "the unlock is answered", func() bool {
		left, err = p[1].Unlock(t.Context(), locks.UnlockRequest{Key: locks.Key{Name: "job"}, Owner: "alice", Req: "u"})
		return err == nil
	})
	if left != 1 {
		t.Errorf("%d left", left)
	}
	eventually(t, patient, "the unlock is answered by the proxy that gave up", func() bool {
		left, err = p[0].Unlock(t.Context(), locks.UnlockRequest{Key: locks.Key{Name: "job"}, Owner: "alice", Req: "u"})
		return err == nil
	})
	if left != 1 {
		t.Errorf("%d left, the second time", left)
	}
	giveBack(t, p[0], "alice", "v", 0)
	nothingLeft(t, p[0], c)
}

func TestReq_HoldsCountOnce(t *testing.T) {
	t.Parallel()
	tag := func(req, id string) string { return holdid.TagOf(locks.Holder{Owner: "alice"}, req) + "." + id }
	for _, tt := range []struct {
		holds []string
		count int
		last  int // in an unlock with the id z
	}{
		{[]string{"A"}, 1, 1},
		{[]string{"A", "B"}, 2, 1},
		{[]string{"A", tag("z", "1"), tag("z", "2"), tag("z", "3"), tag("x", "1")}, 3, 3},
		{[]string{tag("x", "1"), "A", tag("x", "2")}, 2, 2},
		{[]string{tag("x", "1"), tag("y", "2"), tag("x", "3"), tag("y", "4")}, 2, 2},
		{[]string{tag("x", "1"), tag("x", "2"), "A"}, 2, 1},
	} {
		if n, last := holdid.Count(tt.holds), holdid.OfRequest(holdid.TagOf(locks.Holder{Owner: "alice"}, "z"), tt.holds); n != tt.count || len(last) != tt.last {
			t.Errorf("%v: %d holds, the last is %v", tt.holds, n, last)
		}
	}
	seen := map[string]bool{}
	for _, h := range []locks.Holder{{Key: locks.Key{DB: 0, Name: "job"}, Owner: "ab"}, {Key: locks.Key{DB: 0, Name: "joba"}, Owner: "b"}, {Key: locks.Key{DB: 1, Name: "job"}, Owner: "ab"}, {Key: locks.Key{DB: 0, Name: "job"}, Owner: "a"}} {
		for _, req := range []string{"x", "bx", "y"} {
			seen[holdid.TagOf(h, req)] = true
		}
	}
	if len(seen) != 12 {
		t.Errorf("%d tags of 12 requests", len(seen))
	}
}

// TestReq_UnlockThatAnotherOneFinished: one node had done an UNLOCK when an UNLOCK of all holds reached the others. A
// repeat of the first gets the same answer, even if another owner has had the name since.
func TestReq_UnlockThatAnotherOneFinished(t *testing.T) {
	t.Parallel()
	p, c, _ := proxies(t, 2)
	g := lock(t, p[0], "job", "alice", 30*time.Second)
	everywhere(t, p[0], c)
	k := locks.Key{Name: "job"}
	tag := holdid.TagOf(locks.Holder{Key: k, Owner: "alice"}, "u")
	c[0].Do(t, p[0].Command(scripts.Release, p[0].RedisKeys(k), gives("alice", g, "strict", tag)...)...)
	if left, err := p[1].Unlock(t.Context(), locks.UnlockRequest{Key: k, Owner: "alice", All: true}); err != nil || left != 0 {
		t.Fatalf("UNLOCK ALL: %d, %v", left, err)
	}
	nothingLeft(t, p[0], c)
	giveBack(t, p[0], "alice", "u", 0)
	lock(t, p[0], "job", "bob", 30*time.Second)
	giveBack(t, p[1], "alice", "u", 0)
	unlock(t, p[0], "job", "bob", 0)
	giveBack(t, p[1], "alice", "u", 0)
}

// TestReq_NodeWithoutTheFirstGrant: a node that has not got the grant makes one of its own for the LOCK that is sent again through
// another proxy. The UNLOCK through the first proxy knows neither, and removes it.
func TestReq_NodeWithoutTheFirstGrant(t *testing.T) {
	t.Parallel()
	p, c, _ := proxies(t, 2)
	var first locks.Grant
	refusing(t, c[0], func() {
		first = request(t, p[0], "alice", "x")
		delivered(t, 0, p[0]) // and refused there
	})
	if again := request(t, p[1], "alice", "x"); again.Fence != first.Fence {
		t.Fatalf("sent again: %+v, first %+v", again, first)
	}
	delivered(t, 0, p[1])
	if own, _ := numbers(t, p[0], c[0]); own <= first.Fence {
		t.Fatalf("node 0 has the name under %d, the grant is %d", own, first.Fence)
	}
	giveBack(t, p[0], "alice", "x", 0)
	nothingLeft(t, p[0], c)
}

// TestReq_UnlockOfAnEarlierGrant: a request was granted anew after FORCE. An UNLOCK of it that names the first grant's fence, through a
// proxy that knows no other, leaves the second grant alone.
func TestReq_UnlockOfAnEarlierGrant(t *testing.T) {
	t.Parallel()
	p, c, _ := proxies(t, 2)
	first := request(t, p[0], "alice", "x")
	everywhere(t, p[0], c)
	if _, _, err := p[1].Force(t.Context(), locks.Key{Name: "job"}); err != nil {
		t.Fatal(err)
	}
	nothingLeft(t, p[0], c)
	second := request(t, p[1], "alice", "x")
	everywhere(t, p[1], c)
	if left, err := p[0].Unlock(t.Context(), locks.UnlockRequest{Key: first.Key, Owner: "alice", Fence: first.Fence, Req: "x"}); !errors.Is(err, locks.ErrLost) {
		t.Errorf("UNLOCK of the first grant: %d, %v", left, err)
	}
	allDelivered(t, p...)
	if r, err := p[1].Read(t.Context(), first.Key); err != nil || r.Fence != second.Fence {
		t.Errorf("%+v, %v, want the second grant, %+v", r, err, second)
	}
}

// TestReq_UnlockAllOfTwoProxies: an UNLOCK of all holds, under the id of a LOCK or one of its own, gives back those that other proxies granted
// as well. Sent again it is answered the same.
func TestReq_UnlockAllOfTwoProxies(t *testing.T) {
	t.Parallel()
	for _, req := range []string{"x", "another"} {
		t.Run(req, func(t *testing.T) {
			t.Parallel()
			p, c, _ := proxies(t, 2)
			request(t, p[0], "alice", "x")
			lock(t, p[1], "job", "alice", 20*time.Second)
			for i := range 3 {
				left, err := p[i%2].Unlock(t.Context(), locks.UnlockRequest{Key: locks.Key{Name: "job"}, Owner: "alice", All: true, Req: req})
				if err != nil || left != 0 {
					t.Errorf("UNLOCK, time %d: %d, %v", i+1, left, err)
				}
			}
			nothingLeft(t, p[0], c)
		})
	}
}
