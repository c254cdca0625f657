package quorum

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/backends/locks/voters"
	"github.com/lockproxy/lockproxy/integration/redistest"
	"github.com/lockproxy/lockproxy/scripts"
)

// both runs a test on five real nodes and on five embedded ones. Their Lua, in this process, is
// too slow under the race detector for a batch of scripts on a busy machine.
func both(t *testing.T, test func(t *testing.T, s *proxy)) {
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		s, _ := start(t, 5)
		test(t, s)
	})
	t.Run("embedded", func(t *testing.T) {
		if raceDetector {
			t.Skip("too slow under the race detector")
		}
		t.Parallel()
		var at []string
		for _, m := range embedded(t, 5) {
			at = append(at, m.Addr())
		}
		s := serve(t, testOptions{Nodes: nodesAt(t, at...), NodeTimeout: patient})
		allVote(t, s)
		test(t, s)
	})
}

func isNotOwner(err error) bool {
	var n *locks.NotOwnerError
	return errors.As(err, &n)
}

func TestLockAndUnlock(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, s *proxy) {
		g := lock(t, s, "job", "alice", 10*time.Second)
		if g.Holds != 1 || g.Validity > 9898*time.Millisecond || g.Validity < 9*time.Second { // 1 % and 2 ms are taken off
			t.Errorf("granted %+v", g)
		}
		a := refused(t, s, "job", "bob", time.Second)
		if a.Holder != "alice" || a.Remaining < 9*time.Second || a.Remaining > 10*time.Second {
			t.Errorf("refused with %+v", a)
		}
		unlock(t, s, "job", "alice", 0)
		unlock(t, s, "job", "alice", 0) // repeats its answer
		if h := lock(t, s, "job", "bob", time.Second); h.Fence <= g.Fence {
			t.Errorf("fence %d after %d", h.Fence, g.Fence)
		}
		if _, err := s.Unlock(t.Context(), locks.UnlockRequest{Key: locks.Key{Name: "job"}, Owner: "carol"}); !isNotOwner(err) {
			t.Errorf("UNLOCK by a stranger: %v", err)
		}
		if _, err := s.Renew(t.Context(), locks.RenewRequest{Key: locks.Key{Name: "job"}, Owner: "carol", TTL: time.Second}); !isNotOwner(err) {
			t.Errorf("RENEW by a stranger: %v", err)
		}
		unlock(t, s, "job", "alice", 0) // still the answer for the grant she released
	})
}

func TestLock_DatabasesAndBinaryNames(t *testing.T) {
	t.Parallel()
	s, _ := start(t, 1)
	for _, name := range []string{"a", "a\x00b", "a:b", strings.Repeat("n", locks.MaxName)} {
		for db := range 2 {
			a, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{DB: db, Name: name}, Owner: "o\xff", TTL: time.Second})
			if err != nil || !a.Granted {
				t.Errorf("%.10q in database %d: %+v, %v", name, db, a, err)
			}
		}
	}
	for _, r := range []locks.LockRequest{
		{Key: locks.Key{Name: ""}, TTL: time.Second},
		{Key: locks.Key{Name: strings.Repeat("n", locks.MaxName+1)}, TTL: time.Second},
		{Key: locks.Key{Name: "n"}, Owner: strings.Repeat("o", locks.MaxOwner+1), TTL: time.Second},
		{Key: locks.Key{Name: "n"}, Info: strings.Repeat("i", locks.MaxInfo+1), TTL: time.Second},
		{Key: locks.Key{Name: "n"}, TTL: 99 * time.Millisecond},
		{Key: locks.Key{Name: "n"}, TTL: time.Minute + 1},
	} {
		if a, err := s.Lock(t.Context(), r); err == nil {
			t.Errorf("%.20q for %v: %+v, want an error", r.Name, r.TTL, a)
		}
	}
}

func TestReentry(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, s *proxy) {
		outer := lock(t, s, "job", "alice", 10*time.Second)
		inner := lock(t, s, "job", "alice", 8*time.Second)
		if inner.Fence != outer.Fence || inner.Holds != 2 || inner.Validity > 8*time.Second || inner.Validity < 7*time.Second {
			t.Errorf("re-entry %+v into %+v", inner, outer)
		}
		longer := lock(t, s, "job", "alice", 20*time.Second)
		if longer.Fence != outer.Fence || longer.Holds != 3 || longer.Validity < 19*time.Second {
			t.Errorf("re-entry %+v into %+v", longer, outer)
		}
		unlock(t, s, "job", "alice", 2)
		unlock(t, s, "job", "alice", 1)
		if a := refused(t, s, "job", "bob", time.Second); a.Remaining > 10*time.Second || a.Remaining < 8*time.Second {
			t.Errorf("the lease of the outer hold, which is left, ends in %v", a.Remaining)
		}
		lock(t, s, "job", "alice", time.Second)
		left, err := s.Unlock(t.Context(), locks.UnlockRequest{Key: locks.Key{Name: "job"}, Owner: "alice", Fence: outer.Fence, All: true})
		if err != nil || left != 0 {
			t.Errorf("UNLOCK ALL: %d, %v", left, err)
		}
		lock(t, s, "job", "bob", time.Second)
	})
}

func TestLock_GeneratedOwnersNeverReenter(t *testing.T) {
	t.Parallel()
	s, _ := start(t, 1)
	g := lock(t, s, "job", "", time.Second)
	if len(g.Owner) < 22 { // 128 bits in base 64
		t.Errorf("owner %q", g.Owner)
	}
	refused(t, s, "job", "", time.Second)
}

// renewal is the message of a renewal as a proxy sends it, to be delivered whenever a
// test likes.
func renewal(s *proxy, g locks.Grant, ttl time.Duration, v vote.Version, repair string) []string {
	return s.Command(scripts.Renew, s.RedisKeys(g.Key), g.Owner, voters.MS(ttl), strconv.FormatInt(g.Fence, 10), g.Hold,
		v.Epoch, strconv.FormatInt(v.Sequence, 10), "", repair, "0", g.Hold)
}

// reinstated reports whether a node answered a renewal by reinstating the grant.
func reinstated(v redistest.Value) bool { return v.Elems[0].Int() == 1 && v.Elems[2].Int() == 1 }

// asks are the arguments of an acquisition by an owner of which nothing is known.
func asks(owner, ttl, proposal, hold string) []string {
	return []string{owner, ttl, proposal, "", "plain", hold, "0", "", "0"}
}

// gives are the arguments of a release of the hold that made the grant g.
func gives(owner string, g locks.Grant, how, request string) []string {
	return []string{owner, strconv.FormatInt(g.Fence, 10), how, request, g.Hold, how, "60000", "1", g.Hold}
}

func TestUndo_SparesTheOwnersNextHold(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, s *proxy) {
		first := lock(t, s, "job", "alice", 10*time.Second)
		lock(t, s, "job", "alice", 10*time.Second)
		s.Undo(first)
		s.Undo(first)
		refused(t, s, "job", "bob", time.Second)
		unlock(t, s, "job", "alice", 0)
		g := lock(t, s, "job", "bob", time.Minute)
		s.Undo(first)
		refused(t, s, "job", "carol", time.Second)
		s.Undo(g)
		eventually(t, time.Second, "the undone lock is free", func() bool {
			a, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "carol", TTL: time.Second})
			return err == nil && a.Granted
		})
	})
}

// rivals are Services on the same nodes, as proxies of their own.
func rivals(t *testing.T, n int, nodes []*redistest.Server) []*proxy {
	var all []*proxy
	for range n {
		all = append(all, serve(t, testOptions{Nodes: nodesAt(t, addrs(nodes)...), NodeTimeout: patient}))
	}
	allVote(t, all...)
	return all
}

// allVote waits until every one of these has seen all nodes vote: while several enlist new
// nodes at once, one of them may find too few.
func allVote(t *testing.T, services ...*proxy) {
	t.Helper()
	for _, s := range services {
		eventually(t, enlisting, "all nodes vote", func() bool { return allVoting(s) }, s)
	}
}

func TestLock_ThroughAnotherProxy(t *testing.T) {
	t.Parallel()
	p := rivals(t, 2, redistest.StartNodes(t, 3))
	renew := func(s *proxy, ttl time.Duration) {
		t.Helper()
		v, err := s.Renew(t.Context(), locks.RenewRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: ttl})
		if err != nil || v > ttl || v < ttl-ttl/10-5*time.Millisecond {
			t.Errorf("RENEW %v: %v, %v", ttl, v, err)
		}
	}
	g := lock(t, p[0], "job", "alice", 10*time.Second)
	renew(p[1], 20*time.Second)
	renew(p[0], 5*time.Second) // finds its version replaced, and reads
	renew(p[0], 6*time.Second)
	renew(p[1], 7*time.Second)
	if in := lock(t, p[1], "job", "alice", 30*time.Second); in.Holds != 2 || in.Fence != g.Fence {
		t.Errorf("re-entry through the other proxy: %+v into %+v", in, g)
	}
	renew(p[0], 8*time.Second)
	if a := refused(t, p[1], "job", "bob", time.Second); a.Remaining > 8*time.Second {
		t.Errorf("the lease was shortened to 8s, and ends in %v", a.Remaining)
	}
	unlock(t, p[0], "job", "alice", 1)
	unlock(t, p[1], "job", "alice", 0)
	unlock(t, p[0], "job", "alice", 0) // repeats the answer
	next := lock(t, p[0], "job", "bob", time.Second)
	left, err := p[1].Unlock(t.Context(), locks.UnlockRequest{Key: locks.Key{Name: "job"}, Owner: "bob", Fence: next.Fence, All: true})
	if err != nil || left != 0 {
		t.Errorf("UNLOCK ALL by another proxy: %d, %v", left, err)
	}
	if _, err := p[1].Unlock(t.Context(), locks.UnlockRequest{Key: locks.Key{Name: "job"}, Owner: "alice", Fence: next.Fence}); !errors.Is(err, locks.ErrLost) {
		t.Errorf("UNLOCK of a grant that was another's: %v", err)
	}
}

// TestHolds_GivenBackElsewhereAreNotCounted: a proxy does not go on counting holds which it
// remembers, and which were given back through another proxy.
func TestHolds_GivenBackElsewhereAreNotCounted(t *testing.T) {
	t.Parallel()
	p := rivals(t, 2, redistest.StartNodes(t, 3))
	holds := func(want int) {
		t.Helper()
		if g := lock(t, p[0], "job", "alice", 10*time.Second); g.Holds != want {
			t.Errorf("%d holds, want %d", g.Holds, want)
		}
	}
	holds(1)
	holds(2)
	unlock(t, p[1], "job", "alice", 1)
	holds(2)
	holds(3)
	unlock(t, p[0], "job", "alice", 2)
	unlock(t, p[0], "job", "alice", 1)
	unlock(t, p[0], "job", "alice", 0)
}

func TestUnlock_RepeatsOnlyTheLastRelease(t *testing.T) {
	t.Parallel()
	s, _ := start(t, 3)
	first := lock(t, s, "job", "alice", 30*time.Second)
	unlock(t, s, "job", "alice", 0)
	second := lock(t, s, "job", "alice", 3*time.Second)
	left, err := s.Unlock(t.Context(), locks.UnlockRequest{Key: locks.Key{Name: "job"}, Owner: "alice", Fence: first.Fence})
	if err != nil || left != 0 {
		t.Errorf("UNLOCK of the first grant again: %d, %v", left, err)
	}
	refused(t, s, "job", "bob", time.Second)
	time.Sleep(3050 * time.Millisecond)
	for _, fence := range []int64{0, second.Fence} {
		if left, err := s.Unlock(t.Context(), locks.UnlockRequest{Key: locks.Key{Name: "job"}, Owner: "alice", Fence: fence}); !errors.Is(err, locks.ErrLost) {
			t.Errorf("UNLOCK of a grant that lapsed: %d, %v", left, err)
		}
	}
}

func TestUnlock_ConcurrentOnesGiveBackDifferentHolds(t *testing.T) {
	t.Parallel()
	s, _ := start(t, 3)
	const holds = 8
	for range holds {
		lock(t, s, "job", "alice", 10*time.Second)
	}
	var wg sync.WaitGroup
	for range holds {
		wg.Go(func() {
			if _, err := s.Unlock(t.Context(), locks.UnlockRequest{Key: locks.Key{Name: "job"}, Owner: "alice"}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	lock(t, s, "job", "bob", time.Second)
}

func TestLock_Contention(t *testing.T) {
	t.Parallel()
	const workers, grants = 4, 12
	nodes := redistest.StartNodes(t, 5)
	var inside, last, done atomic.Int64
	var wg sync.WaitGroup
	for _, s := range rivals(t, 3, nodes) {
		for range workers {
			wg.Go(func() {
				for got := 0; got < grants; {
					a, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, TTL: 5 * time.Second})
					if err != nil {
						t.Error(err)
						return
					}
					if !a.Granted {
						time.Sleep(time.Millisecond)
						continue
					}
					if inside.Add(1) != 1 {
						t.Error("two holders")
					}
					if f := last.Swap(a.Grant.Fence); f >= a.Grant.Fence {
						t.Errorf("fence %d after %d", a.Grant.Fence, f)
					}
					inside.Add(-1)
					if left, err := s.Unlock(t.Context(), locks.UnlockRequest{Key: locks.Key{Name: "job"}, Owner: a.Grant.Owner}); left != 0 || err != nil {
						t.Errorf("UNLOCK: %d, %v", left, err)
					}
					got++
					done.Add(1)
				}
			})
		}
	}
	wg.Wait()
	if done.Load() != 3*workers*grants {
		t.Errorf("%d grants", done.Load())
	}
}

func TestLock_KilledNodes(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 5)
	lock(t, s, "before", "alice", 10*time.Second)
	nodes[0].Kill()
	nodes[1].Kill()
	g := lock(t, s, "job", "alice", 10*time.Second)
	if _, err := s.Renew(t.Context(), locks.RenewRequest{Key: locks.Key{Name: "before"}, Owner: "alice", TTL: 10 * time.Second}); err != nil {
		t.Error(err)
	}
	nodes[2].Kill()
	_, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "other"}, TTL: time.Second})
	var q *locks.QuorumError
	if !errors.As(err, &q) || q.Got != 2 || q.Need != 3 || len(q.Failed) != 3 {
		t.Fatalf("LOCK with three nodes down: %v", err)
	}
	want := "2 of 5 answered, 3 needed: "
	if !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), nodes[0].Addr()+" connection refused") {
		t.Errorf("the error reads %q", err)
	}
	if _, err := s.Renew(t.Context(), locks.RenewRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: time.Second, Fence: g.Fence}); !errors.As(err, &q) {
		t.Errorf("RENEW: %v", err)
	}
	if _, err := s.Unlock(t.Context(), locks.UnlockRequest{Key: locks.Key{Name: "job"}, Owner: "alice"}); !errors.As(err, &q) {
		t.Errorf("UNLOCK: %v", err)
	}
	unlocked := redistest.Open(t, nodes[4].Addr())
	if v := unlocked.Do(t, "EXISTS", s.RedisKeys(locks.Key{DB: 0, Name: "other"}).Lock); v.Int() != 0 {
		t.Error("what had no majority was not undone")
	}
}

func TestUnlock_NodesOutOfMemory(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 1)
	lock(t, s, "job", "alice", 10*time.Second)
	n := redistest.Open(t, nodes[0].Addr())
	n.Do(t, "CONFIG", "SET", "maxmemory", "1")
	unlock(t, s, "job", "alice", 0)
	if v := n.Do(t, "EXISTS", s.RedisKeys(locks.Key{DB: 0, Name: "job"}).Lock); v.Int() != 0 {
		t.Error("the lock is still there")
	}
}

func TestLock_CancelledIsUndone(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 5)
	lock(t, s, "warm", "alice", time.Second)
	for _, n := range nodes[:3] {
		n.Pause()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if a, err := s.Lock(ctx, locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: 30 * time.Second}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("LOCK: %+v, %v", a, err)
	}
	time.Sleep(100 * time.Millisecond)
	for _, n := range nodes[:3] {
		n.Resume()
	}
	for _, n := range nodes {
		c := redistest.Open(t, n.Addr())
		eventually(t, 10*time.Second, "the name is free on "+n.Addr(), func() bool {
			return c.Do(t, "EXISTS", s.RedisKeys(locks.Key{DB: 0, Name: "job"}).Lock).Int() == 0
		})
	}
	lock(t, s, "job", "bob", time.Second)
}

// TestLock_UndoneWhereItMayHaveBeenDone: the nodes stop for longer than a call may take, so
// that the connection is given up; then they run the LOCK that they had received, which is undone.
func TestLock_UndoneWhereItMayHaveBeenDone(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 3)
	s := serve(t, testOptions{Nodes: nodesAt(t, addrs(nodes)...), NodeTimeout: 100 * time.Millisecond})
	eventually(t, patient, "they vote", func() bool { return allVoting(s) })
	for ran := 0; ran == 0; { // a node that is being probed does not get the acquisition in time
		for _, n := range nodes {
			n.Pause()
		}
		var q *locks.QuorumError
		job := locks.Key{Name: rand.Text()}
		if a, err := s.Lock(t.Context(), locks.LockRequest{Key: job, Owner: "alice", TTL: time.Minute}); !errors.As(err, &q) {
			t.Errorf("LOCK: %+v, %v", a, err)
		}
		time.Sleep(voters.CallTimeout + 200*time.Millisecond)
		for _, n := range nodes {
			n.Resume()
		}
		for _, n := range nodes {
			c := redistest.Open(t, n.Addr())
			for tries := 0; tries < 100 && c.Do(t, "HEXISTS", s.RedisKeys(job).Fences, "c").Int() == 0; tries++ {
				time.Sleep(10 * time.Millisecond)
			}
			if c.Do(t, "HEXISTS", s.RedisKeys(job).Fences, "c").Int() == 1 {
				ran++
			}
			eventually(t, patient, "the name is free on "+n.Addr(), func() bool {
				return c.Do(t, "EXISTS", s.RedisKeys(job).Lock).Int() == 0
			})
		}
		eventually(t, patient, "they vote again", func() bool { return allVoting(s) })
	}
}

func TestLock_ValidityCountsFromTheFirstByte(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 3)
	lock(t, s, "warm", "alice", time.Second)
	const held = 300 * time.Millisecond
	stall := func() {
		for _, n := range nodes {
			n.Pause()
		}
		time.AfterFunc(held, func() {
			for _, n := range nodes {
				n.Resume()
			}
		})
	}
	stall()
	g := lock(t, s, "job", "alice", 2*time.Second)
	if most := 2*time.Second - held; g.Validity > most {
		t.Errorf("granted for %v, want at most %v", g.Validity, most)
	}
	stall()
	v, err := s.Renew(t.Context(), locks.RenewRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: 4 * time.Second})
	if most := 4*time.Second - held; err != nil || v > most {
		t.Errorf("renewed for %v, %v, want at most %v", v, err, most)
	}
}

func TestLock_BurstQueuesBeforeItsClockStarts(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 3)
	s := serve(t, testOptions{Nodes: nodesAt(t, addrs(nodes)...), NodeTimeout: 2500 * time.Millisecond, Rounds: 1})
	allVote(t, s)
	if err := s.AcquireSlot(t.Context()); err != nil { // somebody has the only round
		t.Fatal(err)
	}
	time.AfterFunc(3500*time.Millisecond, s.ReleaseSlot)
	if g := lock(t, s, "second", "alice", 4*time.Second); g.Validity < 1500*time.Millisecond {
		t.Errorf("the wait was taken off the validity: %v", g.Validity)
	}
}

// TestLock_Burst runs with the default timeouts: time that callers spend in the queue, or
// waiting for the processor, does not count as the nodes'. On a busy machine the nodes
// themselves may be late, but not every time.
func TestLock_Burst(t *testing.T) {
	t.Parallel()
	s := serve(t, testOptions{Nodes: nodesAt(t, addrs(redistest.StartNodes(t, 5))...)})
	for _, ttl := range []time.Duration{30 * time.Second, 2 * time.Second} {
		tries := 0
		eventually(t, time.Minute, fmt.Sprintf("all of a burst of LOCKs for %v are granted", ttl), func() bool {
			tries++
			return burst(t, s, ttl, tries)
		})
	}
}

// burst reports whether 666 LOCKs at once, of names of their own, are granted.
func burst(t *testing.T, s *proxy, ttl time.Duration, try int) bool {
	t.Helper()
	var wg sync.WaitGroup
	var short atomic.Int64
	for i := range 666 {
		wg.Go(func() {
			a, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: fmt.Sprint("page", voters.MS(ttl), "-", try, "-", i)}, TTL: ttl})
			if q := (*locks.QuorumError)(nil); errors.As(err, &q) {
				short.Add(1)
			} else if err != nil || !a.Granted {
				t.Errorf("LOCK for %v: %+v, %v", ttl, a, err)
			}
		})
	}
	wg.Wait()
	if short.Load() > 0 {
		t.Logf("try %d: %d of 666 LOCKs for %v had no quorum", try, short.Load(), ttl)
	}
	return short.Load() == 0
}
