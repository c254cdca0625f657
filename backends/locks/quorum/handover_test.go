package quorum

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/integration/redistest"
)

// TestHandOver_OneRoundEach: whoever waits is given the name in the round that frees it, so that the
// nodes run one script for each.
func TestHandOver_OneRoundEach(t *testing.T) {
	t.Parallel()
	const line = 50
	s, nodes := start(t, 3)
	hearing(s)
	holder := lock(t, s, "job", "", time.Minute).Owner
	waiters := []<-chan result{waitFor(t, s, "job", "")}
	asleep(t, s)
	var before []int
	for _, n := range nodes {
		before = append(before, n.Calls(t, "evalsha"))
	}
	for len(waiters) < line {
		waiters = append(waiters, waitFor(t, s, "job", strconv.Itoa(len(waiters)))) // and it is known that none of them has it
	}
	for _, w := range waiters {
		unlock(t, s, "job", holder, 0)
		holder = granting(t, w).Grant.Owner
	}
	unlock(t, s, "job", holder, 0)
	for i, n := range nodes {
		if calls := n.Calls(t, "evalsha") - before[i]; calls > line+line/10 {
			t.Errorf("%d scripts for %d in line", calls, line)
		}
	}
}

// TestHandOver_AllNodesTakePart: real and embedded nodes hand over, and none has to undo anything.
func TestHandOver_AllNodesTakePart(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, s *proxy) {
		hearing(s)
		holder := lock(t, s, "job", "", time.Minute).Owner
		for range 5 {
			w := waitFor(t, s, "job", "")
			asleep(t, s)
			unlock(t, s, "job", holder, 0)
			holder = granting(t, w).Grant.Owner
		}
		unlock(t, s, "job", holder, 0)
		if handed, undos := counter(s, "grants_total", "ground", "handed"), s.Stats().Undos; handed != 5 || undos != 0 {
			t.Errorf("%d were handed over, and %d undone", handed, undos)
		}
	})
}

// TestHandOver_PublishesToOtherProxiesOnly: a hand-over at one proxy is published if other proxies are subscribed,
// and not at all if there are none.
func TestHandOver_PublishesToOtherProxiesOnly(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 1)
	p := rivals(t, 2, nodes)
	hearing(p[0])
	holder := lock(t, p[0], "job", "", time.Minute).Owner
	pass := func() {
		t.Helper()
		w := waitFor(t, p[0], "job", "")
		asleep(t, p[0])
		unlock(t, p[0], "job", holder, 0)
		holder = granting(t, w).Grant.Owner
	}
	calls := func() int { return nodes[0].Calls(t, "publish") }
	before := calls()
	for range 5 {
		pass()
	}
	if got := calls() - before; got > 0 {
		t.Errorf("%d words to nobody", got)
	}
	other := waitFor(t, p[1], "job", "")
	asleep(t, p[1])
	before = calls()
	pass()
	if calls() == before {
		t.Error("the other proxy was not told")
	}
	unlock(t, p[0], "job", holder, 0)
	granting(t, other)
}

// TestHandOver_Refused: the acquisition of a hand-over may be refused; the waiter then asks again.
func TestHandOver_Refused(t *testing.T) {
	t.Parallel()
	p := rivals(t, 2, redistest.StartNodes(t, 3))
	lock(t, p[0], "job", "alice", time.Minute)
	a, err := p[1].Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: time.Minute}) // a hold p[0] knows nothing of
	if err != nil || a.Grant.Holds != 2 {
		t.Fatalf("%+v, %v", a, err)
	}
	w := waitFor(t, p[0], "job", "")
	asleep(t, p[0])
	unlock(t, p[0], "job", "alice", 1)
	none(t, w, 50*time.Millisecond)
	unlock(t, p[1], "job", "alice", 0)
	granting(t, w)
}

// TestHandOver_HeadLeaves: a waiter that leaves while the nodes are asked for it leaves no
// hold, and the next one is served.
func TestHandOver_HeadLeaves(t *testing.T) {
	t.Parallel()
	s, _ := start(t, 3)
	for range 30 {
		holder := lock(t, s, "job", "", time.Minute).Owner
		ctx, leave := context.WithCancel(t.Context())
		first := wait(ctx, s, locks.LockRequest{Key: locks.Key{Name: "job"}, TTL: time.Minute, Wait: time.Minute})
		inLine(t, s, "job", 1)
		second := waitFor(t, s, "job", "")
		asleep(t, s)
		var wg sync.WaitGroup
		wg.Go(func() { unlock(t, s, "job", holder, 0) })
		time.Sleep(time.Duration(rand.IntN(400)) * time.Microsecond)
		leave()
		wg.Wait()
		if r := <-first; r.Granted {
			unlock(t, s, "job", r.Grant.Owner, 0)
		}
		unlock(t, s, "job", granting(t, second).Grant.Owner, 0)
	}
}

// TestHandOver_ProxiesTakeTurns: waiters at one proxy do not keep out those at another.
func TestHandOver_ProxiesTakeTurns(t *testing.T) {
	t.Parallel()
	p := rivals(t, 2, redistest.StartNodes(t, 3))
	var w witness
	var wg sync.WaitGroup
	var mu sync.Mutex
	var turns []int // of which proxy
	stop := make(chan struct{})
	for i, callers := range []int{12, 2} {
		for range callers {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					asked := time.Now()
					a, err := p[i].Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, TTL: 10 * time.Second, Wait: 10 * time.Second})
					if err != nil || !a.Granted {
						t.Errorf("LOCK: %+v, %v", a, err)
						return
					}
					w.granted(t, asked, 10*time.Second, a.Grant)
					mu.Lock()
					turns = append(turns, i)
					mu.Unlock()
					time.Sleep(500 * time.Microsecond)
					w.told(a.Grant.Owner, time.Time{}, false)
					if _, err := p[i].Unlock(t.Context(), locks.UnlockRequest{Key: locks.Key{Name: "job"}, Owner: a.Grant.Owner}); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	time.Sleep(2 * time.Second)
	eventually(t, time.Minute, "there are a hundred turns", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(turns) >= 100 || t.Failed()
	})
	close(stop)
	wg.Wait()
	var got [2]int
	longest, run := 0, 0
	for i, who := range turns {
		if got[who]++; i > 0 && turns[i-1] != who {
			run = 0
		}
		run++
		longest = max(longest, run)
	}
	if min(got[0], got[1]) < len(turns)/8 || longest > 150 {
		t.Errorf("%d and %d turns, %d in a row", got[0], got[1], longest)
	}
}
