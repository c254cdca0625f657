package quorum

import (
	"context"
	"errors"
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

func TestWait_FirstComeFirstServed(t *testing.T) {
	t.Parallel()
	s, _ := start(t, 3)
	fence := lock(t, s, "job", "first", 10*time.Second).Fence
	var waiters []<-chan result
	owners := []string{"", "b", "", "d", "e"}
	for _, o := range owners {
		waiters = append(waiters, waitFor(t, s, "job", o))
	}
	last := "first"
	for i, w := range waiters {
		none(t, w, 5*time.Millisecond)
		unlock(t, s, "job", last, 0)
		g := granting(t, w).Grant
		if g.Fence <= fence || (owners[i] != "" && g.Owner != owners[i]) {
			t.Errorf("waiter %d got %+v after fence %d", i, g, fence)
		}
		last, fence = g.Owner, g.Fence
	}
	if n := s.waiting.Total(); n != 0 {
		t.Errorf("%d are left in line", n)
	}
}

func TestWait_EndsAtTheDeadline(t *testing.T) {
	t.Parallel()
	s, _ := start(t, 3)
	lock(t, s, "job", "alice", 10*time.Second)
	ask := locks.LockRequest{Key: locks.Key{Name: "job"}, TTL: time.Second, Wait: 100 * time.Millisecond}
	first, second := wait(t.Context(), s, ask), wait(t.Context(), s, ask)
	for _, c := range []<-chan result{first, second} {
		r := <-c
		if r.err != nil || r.Granted || r.Holder != "alice" || r.Remaining < 9*time.Second || r.took < ask.Wait || r.took > patient {
			t.Errorf("%+v, %v after %v", r.Decision, r.err, r.took)
		}
	}
	if n := s.waiting.Len(locks.Key{DB: 0, Name: "job"}); n != 0 {
		t.Errorf("%d still wait", n)
	}
}

func TestWait_Limits(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 1)
	s := serve(t, testOptions{Nodes: nodesAt(t, addrs(nodes)...), NodeTimeout: patient, MaxWait: time.Minute, MaxWaiters: 2})
	lock(t, s, "job", "alice", 10*time.Second)
	var long *locks.MaxWaitError
	_, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, TTL: time.Second, Wait: time.Minute + 1})
	if !errors.As(err, &long) || long.Max != time.Minute {
		t.Errorf("a wait over the longest: %v", err)
	}
	a := waitFor(t, s, "job", "")
	lock(t, s, "other", "alice", 10*time.Second)
	waitFor(t, s, "other", "")
	var full *locks.QueueFullError
	_, err = s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, TTL: time.Second, Wait: time.Second})
	if !errors.As(err, &full) || full.Max != 2 {
		t.Errorf("a third waiter: %v", err)
	}
	unlock(t, s, "job", "alice", 0)
	granting(t, a)
	waitFor(t, s, "job", "") // there is room again
}

// TestWait_NobodyOvertakes: a LOCK that does not wait is refused while others do, also at the
// moment the name is free.
func TestWait_NobodyOvertakes(t *testing.T) {
	t.Parallel()
	s, _ := start(t, 3)
	lock(t, s, "job", "alice", 10*time.Second)
	for _, owner := range []string{"", "bob"} {
		waitFor(t, s, "job", "")
		a := refused(t, s, "job", owner, time.Second)
		if want := s.waiting.Len(locks.Key{DB: 0, Name: "job"}); a.Holder != "alice" || a.Remaining < 9*time.Second || a.Waiters != want {
			t.Errorf("refused with %+v", a)
		}
	}
	w, err := s.waiting.Join(locks.Key{DB: 0, Name: "free"}, "", &locks.Waiting{})
	if err != nil {
		t.Fatal(err)
	}
	if a := refused(t, s, "free", "", time.Second); a.Waiters != 1 || a.Holder != "" {
		t.Errorf("refused with %+v", a)
	}
	s.waiting.Leave(w)
	lock(t, s, "free", "", time.Second)
}

func TestReentry_WhileOthersWait(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 3)
	p := rivals(t, 2, nodes)
	lock(t, p[0], "job", "alice", 10*time.Second)
	for _, s := range p { // one remembers that alice has it, the other does not
		waitFor(t, s, "job", "")
		holds := 0
		for _, d := range []time.Duration{0, 10 * time.Second} {
			a, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: 10 * time.Second, Wait: d})
			if err != nil || !a.Granted || a.Grant.Holds <= holds {
				t.Errorf("LOCK by alice with WAIT %v: %+v, %v", d, a, err)
			}
			holds = a.Grant.Holds
		}
	}
}

// TestWait_OwnerTwiceInLine: when an owner gets the name, it enters wherever else it stands in
// line.
func TestWait_OwnerTwiceInLine(t *testing.T) {
	t.Parallel()
	s, _ := start(t, 3)
	lock(t, s, "job", "first", time.Minute)
	alice, bob, again := waitFor(t, s, "job", "alice"), waitFor(t, s, "job", "bob"), waitFor(t, s, "job", "alice")
	unlock(t, s, "job", "first", 0)
	a, b := granting(t, alice).Grant, granting(t, again).Grant
	if a.Fence != b.Fence || a.Holds+b.Holds != 3 {
		t.Errorf("%+v and %+v", a, b)
	}
	unlock(t, s, "job", "alice", 1)
	none(t, bob, 20*time.Millisecond)
	unlock(t, s, "job", "alice", 0)
	granting(t, bob)
}

// TestWait_MasterHangs: a minority that hangs holds nobody up.
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

// TestWait_HolderCrashed: nothing is published when a lease ends.
func TestWait_HolderCrashed(t *testing.T) {
	t.Parallel()
	s, _ := start(t, 3)
	hearing(s) // only the end of the lease has it ask again
	lock(t, s, "job", "crashed", 3*time.Second)
	began := time.Now()
	a, b := waitFor(t, s, "job", ""), waitFor(t, s, "job", "")
	g := granting(t, a)
	none(t, b, 10*time.Millisecond)
	unlock(t, s, "job", g.Grant.Owner, 0)
	granting(t, b)
	if d := time.Since(began); d < 2900*time.Millisecond {
		t.Errorf("granted within the lease, after %v", d)
	}
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

// TestWait_ThroughAnOutage: that too few nodes vote is no answer while there is time.
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
