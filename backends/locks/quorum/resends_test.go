package quorum

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// A resender is a client that resends what is not answered in time, through any proxy, and is gone before
// some answers are written.
type resender struct {
	t     *testing.T
	p     []*proxy
	owner string
	late  sync.WaitGroup
}

// resend does do again and again, each through another proxy, until one is answered, and
// lets the ones that were not answered run on for a while. It is more patient each time: on a busy
// machine no request might be answered before its client has left.
func (c *resender) resend(do func(ctx context.Context, s *proxy, abandoned func() bool) bool) {
	ok := false
	for most := 20 * time.Millisecond; !ok; most = min(2*most, patient) {
		answer := make(chan bool, 1)
		s := c.p[rand.IntN(len(c.p))]
		ctx, hangUp := context.WithCancel(context.Background())
		var mu sync.Mutex
		left := false
		leave := func() bool { mu.Lock(); defer mu.Unlock(); was := left; left = true; return was }
		c.late.Go(func() { answer <- do(ctx, s, leave) })
		select {
		case ok = <-answer:
		case <-time.After(rand.N(most)):
			if leave() { // it was answered just now
				ok = <-answer
				break
			}
			if rand.IntN(2) == 0 {
				hangUp()
			}
		}
		c.late.Go(func() { time.Sleep(rand.N(most * 3 / 2)); hangUp() })
	}
}

// hold takes the lock and gives it back, unless it is refused. alone says that no copy
// of an earlier request of its owner is under way any more: then it is the only hold.
func (c *resender) hold(n int, w *witness, alone bool) (granted bool) {
	req := fmt.Sprint("r", n)
	var g locks.Grant
	asked := time.Now()
	c.resend(func(ctx context.Context, s *proxy, abandoned func() bool) bool {
		a, err := s.Lock(ctx, locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: c.owner, TTL: 30 * time.Second, Req: req, Wait: time.Duration(rand.IntN(50)) * time.Millisecond})
		if err != nil || abandoned() {
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
	c.resend(func(ctx context.Context, s *proxy, abandoned func() bool) bool {
		left, err := s.Unlock(ctx, locks.UnlockRequest{Key: locks.Key{Name: "job"}, Owner: c.owner, Req: req})
		if abandoned() {
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

// TestReq_InTwoSessions: a lock whose request came in two sessions outlives the first of
// them, whose connection is gone, and ends with the second.
func TestReq_InTwoSessions(t *testing.T) {
	t.Parallel()
	for resent := range 2 {
		t.Run([]string{"same proxy", "another proxy"}[resent], func(t *testing.T) {
			t.Parallel()
			const ttl = 6 * time.Second
			p, c, _ := proxies(t, 2)
			lost := func(l locks.Loss) { t.Errorf("lost: %+v", l) }
			first, second := p[0].NewSession(lost), p[resent].NewSession(lost)
			ask := func(s *proxy, k *locks.Session) locks.Grant {
				a, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: ttl, Req: "x", Session: k})
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

// TestReq_EmbeddedNodes: request ids work on the embedded nodes of lockproxy dev.
func TestReq_EmbeddedNodes(t *testing.T) {
	t.Parallel()
	var at []string
	for _, m := range embedded(t, 3) {
		at = append(at, m.Addr())
	}
	var p []*proxy
	for range 2 {
		p = append(p, serve(t, testOptions{Nodes: nodesAt(t, at...), NodeTimeout: patient}))
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
	allDelivered(t, p[1]) // a LOCK counts 1 as soon as one node has done the undo; an UNLOCK may ask the two others
	if g := request(t, p[0], "alice", "outer"); g.Holds != 1 {
		t.Errorf("after the undo: %+v", g)
	}
	for i := range 4 {
		giveBack(t, p[i%2], "alice", "outer", 0)
	}
	lock(t, p[0], "job", "bob", time.Second)
}
