package quorum

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/integration/redistest"
)

// A result is what Lock returned to one caller.
type result struct {
	locks.Decision
	err  error
	took time.Duration
}

// wait asks for a name aside.
func wait(ctx context.Context, s *proxy, r locks.LockRequest) <-chan result {
	out := make(chan result, 1)
	began := time.Now()
	go s.LockAsync(ctx, r, func(a locks.Decision, err error) { out <- result{a, err, time.Since(began)} })
	return out
}

// waitFor is wait for a request of ten seconds, when it stands in line.
func waitFor(t *testing.T, s *proxy, name, owner string) <-chan result {
	t.Helper()
	n := s.waiting.Len(locks.Key{DB: 0, Name: name})
	out := wait(t.Context(), s, locks.LockRequest{Key: locks.Key{Name: name}, Owner: owner, TTL: 10 * time.Second, Wait: 10 * time.Second})
	inLine(t, s, name, n+1)
	return out
}

func inLine(t *testing.T, s *proxy, name string, n int) {
	t.Helper()
	eventually(t, patient, strconv.Itoa(n)+" wait", func() bool { return s.waiting.Len(locks.Key{DB: 0, Name: name}) == n })
}

func granting(t *testing.T, c <-chan result) result {
	t.Helper()
	select {
	case r := <-c:
		if r.err != nil || !r.Granted {
			t.Fatalf("LOCK: %+v, %v", r.Decision, r.err)
		}
		return r
	case <-time.After(30 * time.Second):
		t.Fatal("LOCK still waits")
	}
	return result{}
}

func none(t *testing.T, c <-chan result, during time.Duration) {
	t.Helper()
	select {
	case r := <-c:
		t.Fatalf("LOCK: %+v, %v", r.Decision, r.err)
	case <-time.After(during):
	}
}

func TestReentry_WhileOthersWait(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 3)
	p, c := rivals(t, 2, nodes), conns(t, nodes)
	lock(t, p[0], "job", "alice", 10*time.Second)
	for _, s := range p { // one remembers that alice has it, the other does not
		waitFor(t, s, "job", "")
		holds := 0
		for _, d := range []time.Duration{0, 10 * time.Second} {
			everywhere(t, s, c) // a late node counts fewer
			a, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: 10 * time.Second, Wait: d})
			if err != nil || !a.Granted || a.Grant.Holds <= holds {
				t.Errorf("LOCK by alice with WAIT %v: %+v, %v", d, a, err)
			}
			holds = a.Grant.Holds
		}
	}
}

// TestWait_MasterHangs: a minority of masters that hang delays no waiter.
func TestWait_MasterHangs(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 3)
	var p []*proxy
	for range 2 {
		p = append(p, hearing(serve(t, testOptions{Nodes: nodesAt(t, addrs(nodes)...), NodeTimeout: 300 * time.Millisecond})))
	}
	allVote(t, p...)
	holder := lock(t, p[0], "job", "", time.Minute).Owner
	w := waitFor(t, p[0], "job", "")
	asleep(t, p[0])
	nodes[1].Pause()
	defer nodes[1].Resume()
	unlock(t, p[0], "job", holder, 0)
	g := granting(t, w)
	w = waitFor(t, p[1], "job", "")
	eventually(t, patient, "it sleeps", func() bool {
		l := p[1].waiting.Line(locks.Key{DB: 0, Name: "job"})
		return l.Asleep && l.Confirmed >= 2
	})
	unlock(t, p[0], "job", g.Grant.Owner, 0)
	granting(t, w)
}

func TestWait_KeysDeletedByHand(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 3)
	lock(t, s, "job", "alice", time.Minute)
	w := waitFor(t, s, "job", "")
	time.Sleep(50 * time.Millisecond)
	for _, n := range nodes {
		n.Do(t, "DEL", s.RedisKeys(locks.Key{DB: 0, Name: "job"}).Lock)
	}
	granting(t, w)
}

// TestWait_ThroughAnOutage: while too few nodes vote a waiter goes on waiting, until its time is over.
func TestWait_ThroughAnOutage(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 3)
	s := serve(t, testOptions{Nodes: nodesAt(t, addrs(nodes)...), NodeTimeout: 100 * time.Millisecond})
	eventually(t, patient, "the nodes vote, each within its timeout", func() bool {
		a, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "warm"}, TTL: time.Second})
		return err == nil && (a.Granted || a.Holder != "")
	})
	nodes[0].Pause()
	nodes[1].Pause()
	var few *locks.QuorumError
	if _, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, TTL: time.Second, Wait: 300 * time.Millisecond}); !errors.As(err, &few) {
		t.Errorf("without a quorum for all of the wait: %v", err)
	}
	w := waitFor(t, s, "job", "")
	none(t, w, 300*time.Millisecond)
	nodes[1].Resume()
	granting(t, w)
	nodes[0].Resume()
}

// TestWait_Leave: whoever leaves, wherever in the line and whatever it was doing, leaves
// no hold and no gap.
func TestWait_Leave(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 3)
	var w witness
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 16 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				w.waitAndLeave(t, s, i%2 == 0)
			}
		})
	}
	w.watch(t, 2*time.Second, func() bool { return w.grants >= 100 })
	close(stop)
	wg.Wait()
	lock(t, s, "job", "last", time.Second)
	unlock(t, s, "job", "last", 0)
	eventually(t, patient, "nothing is left", func() bool {
		for _, n := range nodes {
			if n.Do(t, "EXISTS", s.RedisKeys(locks.Key{DB: 0, Name: "job"}).Lock).Int() != 0 {
				return false
			}
		}
		return true
	})
	if n := s.waiting.Total(); n != 0 {
		t.Errorf("%d are left in line", n)
	}
}

// TestWait_OverBeforeItBegins: a LOCK that has ended before it could be asked for, as at a proxy that drains, asks no node:
// what it would take there, and give back later, could meet the owner's next LOCK through another proxy.
func TestWait_OverBeforeItBegins(t *testing.T) {
	s, _ := start(t, 3)
	asked := func() int64 { return durations(s, "round_seconds", "question", "acquire").Count() }
	lock(t, s, "job", "me", time.Second) // so that the nodes vote
	before := asked()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range 30 {
		_, err := s.Lock(ctx, locks.LockRequest{Key: locks.Key{Name: "other"}, Owner: "me", Req: fmt.Sprint(i), TTL: time.Second, Wait: time.Duration(i%2) * time.Second})
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("LOCK: %v", err)
		}
	}
	if n := asked() - before; n != 0 {
		t.Errorf("nodes were asked %d times", n)
	}
}

// waitAndLeave waits for the lock, perhaps for too short a time, and holds it a moment.
func (w *witness) waitAndLeave(t *testing.T, s *proxy, stays bool) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if !stays {
		time.AfterFunc(time.Duration(rand.IntN(3000))*time.Microsecond, cancel)
	}
	a, err := s.Lock(ctx, locks.LockRequest{Key: locks.Key{Name: "job"}, TTL: 10 * time.Second, Wait: 10 * time.Second})
	switch {
	case err != nil && !errors.Is(err, context.Canceled):
		t.Error(err)
	case err != nil:
		return
	case !a.Granted:
		t.Errorf("refused with %+v", a)
		return
	}
	w.granted(t, time.Now(), 10*time.Second, a.Grant)
	time.Sleep(time.Duration(rand.IntN(500)) * time.Microsecond)
	w.told(a.Grant.Owner, time.Time{}, false)
	if rand.IntN(4) == 0 {
		s.Undo(a.Grant)
	} else if _, err := s.Unlock(t.Context(), locks.UnlockRequest{Key: locks.Key{Name: "job"}, Owner: a.Grant.Owner}); err != nil {
		t.Error(err)
	}
}
