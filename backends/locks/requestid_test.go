package locks

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
	"github.com/lockproxy/lockproxy/scripts"
)

// proxies serve on three real nodes.
func proxies(t *testing.T, n int) ([]*Service, []*redistest.Conn, []*redistest.Server) {
	t.Helper()
	nodes := redistest.StartNodes(t, 3)
	var p []*Service
	for range n {
		p = append(p, serve(t, Options{Nodes: nodesAt(t, addrs(nodes)...), NodeTimeout: patient}))
	}
	allVote(t, p...)
	return p, conns(t, nodes), nodes
}

func request(t *testing.T, s *Service, owner, req string) Grant {
	t.Helper()
	a, err := s.Lock(t.Context(), LockRequest{Key: Key{Name: "job"}, Owner: owner, TTL: 30 * time.Second, Req: req})
	if err != nil || !a.Granted {
		t.Fatalf("LOCK by %s, REQ %s: %+v, %v", owner, req, a, err)
	}
	return a.Grant
}

func giveBack(t *testing.T, s *Service, owner, req string, want int) {
	t.Helper()
	left, err := s.Unlock(t.Context(), UnlockRequest{Key: Key{Name: "job"}, Owner: owner, Req: req})
	if err != nil || left != want {
		t.Fatalf("UNLOCK by %s, REQ %s: %d, %v, want %d", owner, req, left, err, want)
	}
}

// nothingLeft waits until no node has a hold of job.
func nothingLeft(t *testing.T, s *Service, c []*redistest.Conn) {
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
			if v := c[i].Do(t, "HGETALL", s.redisKeys(Key{0, "job"}).lock); len(v.Elems) > 0 {
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

// TestReq_UndoOfOneAttempt takes nothing from another attempt of the same request.
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
					n += c[i].Do(t, "HEXISTS", p[0].redisKeys(Key{0, "job"}).lock, a1.attempt).Int()
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

// TestReq_UnlockOfTwoAttempts: proxies that granted it at the same time
// agreed on the larger fence, and the smaller one is that of the unlock.
func TestReq_UnlockOfTwoAttempts(t *testing.T) {
	t.Parallel()
	p, c, _ := proxies(t, 2)
	first, second := request(t, p[0], "alice", "x"), request(t, p[1], "alice", "x")
	everywhere(t, p[0], c)
	everywhere(t, p[1], c)
	larger := strconv.FormatInt(first.Fence+1000, 10)
	for i := range c {
		if v := c[i].Do(t, p[1].command(scripts.Settle, p[1].redisKeys(Key{0, "job"}), "alice", larger, second.attempt)...); v.Elems[0].Int() != 1 {
			t.Fatal(v)
		}
	}
	giveBack(t, p[0], "alice", "x", 0)
	nothingLeft(t, p[0], c)
}

// TestReq_LateLock comes after the lock was given back.
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
		if left := c[i].Do(t, "PTTL", p[0].redisKeys(Key{0, "job"}).node+":L"+holdTag(g.attempt)).Int(); left < 60_000 {
			t.Errorf("node %d remembers the request for %d ms", i, left)
		}
	}
}

// TestReq_LateLockOnOneNode arrives there after the release, and before it on the others.
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

// TestUnlock_LateOneOfAnEarlierGrant names that grant, and takes nothing from a later one of
// the same request.
func TestUnlock_LateOneOfAnEarlierGrant(t *testing.T) {
	t.Parallel()
	p, c, _ := proxies(t, 2)
	first := request(t, p[0], "alice", "x")
	if _, held, err := p[1].Force(t.Context(), Key{0, "job"}); !held || err != nil {
		t.Fatal(held, err)
	}
	second := request(t, p[1], "alice", "x")
	if second.Fence <= first.Fence {
		t.Fatalf("fence %d after %d", second.Fence, first.Fence)
	}
	everywhere(t, p[0], c)
	left, err := p[0].Unlock(t.Context(), UnlockRequest{Key: Key{Name: "job"}, Owner: "alice", Fence: first.Fence})
	if !errors.Is(err, ErrLost) {
		t.Errorf("UNLOCK of the first: %d, %v", left, err)
	}
	refused(t, p[0], "job", "bob", time.Second)
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

// TestReq_UnlockBegunOnSomeNodes was done by some nodes, by a proxy that gave back another hold
// than this one would and then died.
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
						n += c[i].Do(t, "HLEN", p[0].redisKeys(Key{0, "job"}).lock).Int()
					}
					return n == 3*(fixedFields+2)
				})
				for i := range told {
					v := c[i].Do(t, p[0].command(scripts.Release, p[0].redisKeys(Key{0, "job"}),
						gives("alice", outer, "strict", requestTag(holder{Key{0, "job"}, "alice"}, "u"))...)...)
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
		v := n.Do(t, s.command(scripts.Release, s.redisKeys(Key{0, "job"}), "alice", strconv.FormatInt(outer.Fence, 10), "strict",
			tt.unlock, outer.attempt, tt.release, "1", inner.attempt)...)
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
			k := p[0].redisKeys(Key{0, "job"})
			var outer Grant
			for range others {
				outer = lock(t, p[0], "job", "alice", 30*time.Second)
			}
			g := request(t, p[0], "alice", "x")
			everywhere(t, p[0], c)
			copied := p[0].newHold(LockRequest{Key: Key{Name: "job"}, Owner: "alice", Req: "x"})
			c[0].Do(t, p[0].command(scripts.Acquire, k, asks("alice", "30000", "0", copied)...)...)
			giveBack(t, p[1], "alice", "x", others)
			if others == 0 {
				nothingLeft(t, p[0], c)
				return
			}
			eventually(t, patient, "every node has given it back", func() bool {
				return !slices.ContainsFunc(c, func(n *redistest.Conn) bool { return n.Do(t, "HLEN", k.lock).Int() != fixedFields+1 })
			})
			for _, hold := range []string{copied, g.attempt} {
				c[1].Do(t, p[0].command(scripts.Renew, k, "alice", "30000", strconv.FormatInt(outer.Fence, 10), outer.attempt,
					outer.attempt, "1", "", "1", "0", outer.attempt, hold)...)
				if c[1].Do(t, "HEXISTS", k.lock, hold).Int() != 0 {
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
	a, err := p[0].Lock(t.Context(), LockRequest{Key: Key{Name: "job"}, Owner: "alice", TTL: 200 * time.Millisecond, Req: "x"})
	if err != nil || !a.Granted {
		t.Fatalf("%+v, %v", a, err)
	}
	eventually(t, patient, "the lease has ended", func() bool {
		return !slices.ContainsFunc(c, func(n *redistest.Conn) bool { return n.Do(t, "EXISTS", p[0].redisKeys(Key{0, "job"}).lock).Int() != 0 })
	})
	request(t, p[1], "alice", "x")
	everywhere(t, p[1], c)
	done := p[0].redisKeys(Key{0, "job"}).node + ":U" + requestTag(holder{Key{0, "job"}, "alice"}, "x")
	c[2].Do(t, "SET", done, fmt.Sprintf("0 %d %s", a.Grant.Fence, a.Grant.attempt), "PX", "60000")
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

// TestUnlock_GivenBackByAnotherProxy: what a proxy remembers was given back through
// another, and the owner has the name again.
func TestUnlock_GivenBackByAnotherProxy(t *testing.T) {
	t.Parallel()
	p, c, _ := proxies(t, 2)
	lock(t, p[0], "job", "alice", 30*time.Second)
	unlock(t, p[1], "job", "alice", 0)
	lock(t, p[1], "job", "alice", 30*time.Second)
	unlock(t, p[0], "job", "alice", 0)
	nothingLeft(t, p[0], c)
}

// TestReq_SameRequestAtOnce waits for a lock twice.
func TestReq_SameRequestAtOnce(t *testing.T) {
	t.Parallel()
	p, c, _ := proxies(t, 1)
	lock(t, p[0], "job", "bob", 30*time.Second)
	ask := func(ctx context.Context) (Decision, error) {
		return p[0].Lock(ctx, LockRequest{Key: Key{Name: "job"}, Owner: "alice", TTL: 30 * time.Second, Req: "x", Wait: 20 * time.Second})
	}
	gone, leave := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if a, err := ask(gone); !errors.Is(err, context.Canceled) {
			t.Errorf("the one that left: %+v, %v", a, err)
		}
	})
	waits := func(n int) func() bool { return func() bool { return p[0].waiting.Len(Key{0, "job"}) == n } }
	eventually(t, patient, "one waits", waits(1))
	for range 3 {
		wg.Go(func() {
			if a, err := ask(t.Context()); err != nil || !a.Granted || a.Grant.Holds != 1 || a.Grant.Validity == 0 {
				t.Errorf("%+v, %v", a, err)
			}
		})
	}
	time.Sleep(20 * time.Millisecond)
	if !waits(1)() {
		t.Error("more than one stands in line")
	}
	leave()
	unlock(t, p[0], "job", "bob", 0)
	wg.Wait()
	unlock(t, p[0], "job", "alice", 0)
	nothingLeft(t, p[0], c)
	if len(p[0].requests.pending) != 0 {
		t.Error("requests are kept that nobody makes")
	}
}

// TestReq_UnlockWithoutAnswer reached one node of three in time; the others do it later.
func TestReq_UnlockWithoutAnswer(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 3)
	var p []*Service
	for range 2 {
		p = append(p, serve(t, Options{Nodes: nodesAt(t, addrs(nodes)...), NodeTimeout: 2 * time.Second}))
	}
	allVote(t, p...)
	c := conns(t, nodes)
	request(t, p[0], "alice", "outer")
	request(t, p[0], "alice", "x")
	nodes[1].Pause()
	nodes[2].Pause()
	left, err := p[0].Unlock(t.Context(), UnlockRequest{Key: Key{Name: "job"}, Owner: "alice", Req: "u"})
	if q := (*QuorumError)(nil); !errors.As(err, &q) {
		t.Fatalf("UNLOCK: %d, %v", left, err)
	}
	nodes[1].Resume()
	nodes[2].Resume()
	eventually(t, patient, "the unlock is answered", func() bool {
		left, err = p[1].Unlock(t.Context(), UnlockRequest{Key: Key{Name: "job"}, Owner: "alice", Req: "u"})
		return err == nil
	})
	if left != 1 {
		t.Errorf("%d left", left)
	}
	eventually(t, patient, "the unlock is answered by the proxy that gave up", func() bool {
		left, err = p[0].Unlock(t.Context(), UnlockRequest{Key: Key{Name: "job"}, Owner: "alice", Req: "u"})
		return err == nil
	})
	if left != 1 {
		t.Errorf("%d left, the second time", left)
	}
	giveBack(t, p[0], "alice", "v", 0)
	nothingLeft(t, p[0], c)
}

func TestReq_Invalid(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{Nodes: nodesAt(t, embedded(t, 1)[0].Addr())})
	for _, r := range []LockRequest{{Req: "x"}, {Owner: "alice", Req: string(make([]byte, MaxReq+1))}} {
		r.Name, r.TTL = "job", time.Second
		if a, err := s.Lock(t.Context(), r); err == nil {
			t.Errorf("LOCK: %+v", a)
		}
		if left, err := s.Unlock(t.Context(), UnlockRequest{Key: Key{Name: "job"}, Owner: r.Owner, Req: r.Req}); err == nil {
			t.Errorf("UNLOCK: %d", left)
		}
	}
}

func TestReq_HoldsCountOnce(t *testing.T) {
	t.Parallel()
	tag := func(req, id string) string { return requestTag(holder{owner: "alice"}, req) + "." + id }
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
		if n, last := countHolds(tt.holds), holdsOfRequest(requestTag(holder{owner: "alice"}, "z"), tt.holds); n != tt.count || len(last) != tt.last {
			t.Errorf("%v: %d holds, the last is %v", tt.holds, n, last)
		}
	}
	seen := map[string]bool{}
	for _, h := range []holder{{Key{0, "job"}, "ab"}, {Key{0, "joba"}, "b"}, {Key{1, "job"}, "ab"}, {Key{0, "job"}, "a"}} {
		for _, req := range []string{"x", "bx", "y"} {
			seen[requestTag(h, req)] = true
		}
	}
	if len(seen) != 12 {
		t.Errorf("%d tags of 12 requests", len(seen))
	}
}

// A resender is a client that resends what is not answered in time, through any proxy, and is gone before
// some answers are written.
type resender struct {
	t     *testing.T
	p     []*Service
	owner string
	late  sync.WaitGroup
}

// resend does do again and again, each through another proxy, until one is answered, and
// lets the ones that were not answered run on for a while.
func (c *resender) resend(do func(ctx context.Context, s *Service, gone func() bool) bool) {
	for ok := false; !ok; {
		answer := make(chan bool, 1)
		s := c.p[rand.IntN(len(c.p))]
		ctx, hangUp := context.WithCancel(context.Background())
		var mu sync.Mutex
		left := false
		leave := func() bool { mu.Lock(); defer mu.Unlock(); was := left; left = true; return was }
		c.late.Go(func() { answer <- do(ctx, s, leave) })
		select {
		case ok = <-answer:
		case <-time.After(time.Duration(rand.IntN(20)) * time.Millisecond):
			if leave() { // it was answered just now
				ok = <-answer
				break
			}
			if rand.IntN(2) == 0 {
				hangUp()
			}
		}
		c.late.Go(func() { time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond); hangUp() })
	}
}

// hold takes the lock and gives it back, unless it is refused. alone says that no copy
// of an earlier request of its owner is under way any more: then it is the only hold.
func (c *resender) hold(n int, w *witness, alone bool) (granted bool) {
	req := fmt.Sprint("r", n)
	var g Grant
	asked := time.Now()
	c.resend(func(ctx context.Context, s *Service, gone func() bool) bool {
		a, err := s.Lock(ctx, LockRequest{Key: Key{Name: "job"}, Owner: c.owner, TTL: 30 * time.Second, Req: req, Wait: time.Duration(rand.IntN(50)) * time.Millisecond})
		if err != nil || gone() {
			if a.Granted {
				s.Undo(a.Grant)
			}
			return false
		}
		g = a.Grant
		return true
	})
	if g.Fence == 0 {
		return false
	}
	if g.Validity <= 0 || alone && g.Holds != 1 {
		c.t.Errorf("granted: %+v", g)
	}
	if !alone { // it may have entered what a copy of an earlier request had taken
		w.mu.Lock()
		w.fence = min(w.fence, g.Fence-1)
		w.mu.Unlock()
	}
	w.granted(c.t, asked, 30*time.Second, g)
	time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
	w.told(c.owner, time.Time{}, false)
	c.resend(func(ctx context.Context, s *Service, gone func() bool) bool {
		left, err := s.Unlock(ctx, UnlockRequest{Key: Key{Name: "job"}, Owner: c.owner, Req: req})
		if gone() {
			return false
		}
		if err != nil || alone && left != 0 {
			c.t.Errorf("UNLOCK: %d, %v", left, err)
		}
		return true
	})
	return true
}

// TestReq_Resends runs for 3 s: clients whose connections break at every point resend
// through three proxies. No two own the lock, every lock is given back by its one
// UNLOCK, and nothing is left behind.
func TestReq_Resends(t *testing.T) {
	t.Parallel()
	p, conns, _ := proxies(t, 3)
	var w witness
	var wg sync.WaitGroup
	stop := make(chan struct{})
	stopped := func() bool {
		select {
		case <-stop:
			return true
		default:
			return t.Failed()
		}
	}
	for i := range 6 {
		wg.Go(func() {
			c, alone := &resender{t: t, p: p, owner: fmt.Sprint("client", i)}, i%2 == 0
			for n := 0; !stopped(); n++ {
				granted := c.hold(n, &w, alone)
				if !alone {
					continue
				}
				if c.late.Wait(); !granted { // another copy may be, and its undo on the way
					c.owner = fmt.Sprintf("client%d.%d", i, n)
				}
			}
			c.late.Wait()
		})
	}
	w.watch(t, 3*time.Second, func() bool { return w.grants >= 50 })
	close(stop)
	wg.Wait()
	nothingLeft(t, p[0], conns)
	t.Logf("%d grants", w.grants)
}

// TestReq_InTwoSessions outlives the first of them, whose connection is gone,
// and ends with the second.
func TestReq_InTwoSessions(t *testing.T) {
	t.Parallel()
	for resent := range 2 {
		t.Run([]string{"same proxy", "another proxy"}[resent], func(t *testing.T) {
			t.Parallel()
			const ttl = 6 * time.Second
			p, c, _ := proxies(t, 2)
			lost := func(l Loss) { t.Errorf("lost: %+v", l) }
			first, second := p[0].NewSession(lost), p[resent].NewSession(lost)
			ask := func(s *Service, k *Session) Grant {
				a, err := s.Lock(t.Context(), LockRequest{Key: Key{Name: "job"}, Owner: "alice", TTL: ttl, Req: "x", Session: k})
				if err != nil || !a.Granted || a.Grant.Holds != 1 {
					t.Fatalf("%+v, %v", a, err)
				}
				return a.Grant
			}
			g := ask(p[0], first)
			if again := ask(p[resent], second); again.Fence != g.Fence {
				t.Errorf("%+v, then %+v", g, again)
			}
			first.End()
			for end := time.Now().Add(ttl + time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
				refused(t, p[1], "job", "bob", time.Second)
			}
			giveBack(t, p[1], "alice", "x", 0)
			nothingLeft(t, p[0], c)
			if late := request(t, p[resent], "alice", "x"); late.Validity != 0 {
				t.Errorf("after the release: %+v", late)
			}
			second.End()
		})
	}
}

// TestReq_EmbeddedNodes is what lockproxy dev does with them.
func TestReq_EmbeddedNodes(t *testing.T) {
	t.Parallel()
	var at []string
	for _, m := range embedded(t, 3) {
		at = append(at, m.Addr())
	}
	var p []*Service
	for range 2 {
		p = append(p, serve(t, Options{Nodes: nodesAt(t, at...), NodeTimeout: patient}))
	}
	allVote(t, p...)
	outer := request(t, p[0], "alice", "outer")
	for i := range 4 {
		if g := request(t, p[i%2], "alice", "x"); g.Holds != 2 || g.Fence != outer.Fence {
			t.Errorf("%+v, before %+v", g, outer)
		}
	}
	for i := range 4 {
		giveBack(t, p[i%2], "alice", "x", 1)
	}
	if late := request(t, p[0], "alice", "x"); late.Validity != 0 || late.Holds != 0 {
		t.Errorf("a late copy: %+v", late)
	}
	p[1].Undo(request(t, p[1], "alice", "undone"))
	eventually(t, patient, "the undo is done", func() bool { return request(t, p[0], "alice", "outer").Holds == 1 })
	for i := range 4 {
		giveBack(t, p[i%2], "alice", "outer", 0)
	}
	lock(t, p[0], "job", "bob", time.Second)
}
