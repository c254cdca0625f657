package quorum

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/integration/redistest"
)

// hearing makes s depend on hints: it does not ask on its own.
func hearing(s *proxy) *proxy {
	s.waiting.SetPoll(time.Hour, time.Hour)
	return s
}

// asleep waits until the head of the line of job is asleep, and every node tells of releases.
func asleep(t *testing.T, s *proxy) {
	t.Helper()
	eventually(t, patient, "the head sleeps", func() bool {
		l := s.waiting.Line(locks.Key{DB: 0, Name: "job"})
		return l.Asleep && l.Confirmed == len(s.Members)
	})
}

func TestNotify_ReleaseThroughAnotherProxy(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, s *proxy) { releaseElsewhere(t, s) })
}

func releaseElsewhere(t *testing.T, s *proxy) {
	p := []*proxy{hearing(s), serve(t, testOptions{Nodes: s.Opts.Nodes, NodeTimeout: patient})}
	allVote(t, p...)
	for range 3 {
		g := lock(t, p[1], "job", "", time.Minute)
		w := waitFor(t, p[0], "job", "")
		asleep(t, p[0])
		unlock(t, p[1], "job", g.Owner, 0)
		got := granting(t, w).Grant
		if got.Fence <= g.Fence {
			t.Errorf("fence %d after %d", got.Fence, g.Fence)
		}
		unlock(t, p[0], "job", got.Owner, 0)
	}
	g := lock(t, p[1], "job", "", time.Minute)
	w := waitFor(t, p[0], "job", "")
	asleep(t, p[0])
	p[1].Undo(g) // as when a client went away
	granting(t, w)
}

// TestNotify_LeaseShortened: who waits gets a lock when its lease ends, also where that is earlier than it was told: after a RENEW, or an
// UNLOCK of the hold that ended last.
func TestNotify_LeaseShortened(t *testing.T) {
	t.Parallel()
	p := rivals(t, 2, redistest.StartNodes(t, 3))
	hearing(p[0])
	for name, shorten := range map[string]func(locks.Key) error{
		"RENEW": func(k locks.Key) error {
			_, err := p[1].Renew(t.Context(), locks.RenewRequest{Key: k, Owner: "alice", TTL: time.Second})
			return err
		},
		"UNLOCK": func(k locks.Key) error {
			_, err := p[1].Unlock(t.Context(), locks.UnlockRequest{Key: k, Owner: "alice"})
			return err
		},
	} {
		lock(t, p[1], "job", "alice", time.Second)
		lock(t, p[1], "job", "alice", time.Minute)
		w := waitFor(t, p[0], "job", "bob")
		asleep(t, p[0])
		if err := shorten(locks.Key{Name: "job"}); err != nil {
			t.Fatal(name, err)
		}
		granting(t, w)
		unlock(t, p[0], "job", "bob", 0)
	}
}

// TestNotify_ConnectionsLost: a waiter gets a lock that was released while the connections were lost.
func TestNotify_ConnectionsLost(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 3)
	p := rivals(t, 2, nodes)
	hearing(p[0])
	lock(t, p[1], "job", "alice", time.Minute)
	w := waitFor(t, p[0], "job", "")
	asleep(t, p[0])
	for range 3 {
		for _, n := range nodes {
			if n.Do(t, "CLIENT", "KILL", "TYPE", "pubsub").Int() != 1 {
				t.Error("not one connection to each node")
			}
		}
		none(t, w, 10*time.Millisecond)
		asleep(t, p[0])
	}
	for _, n := range nodes {
		n.Do(t, "CLIENT", "KILL", "TYPE", "pubsub")
	}
	unlock(t, p[1], "job", "alice", 0)
	granting(t, w)
}

// TestWait_ManyNames: names that are waited for cost no goroutines but their callers', and one
// connection to a node. It counts goroutines, so that nothing runs beside it.
func TestWait_ManyNames(t *testing.T) {
	const names = 3000
	nodes := redistest.StartNodes(t, 3)
	p := rivals(t, 2, nodes)
	hearing(p[0])
	first := lock(t, p[1], "job", "", time.Minute)
	w := waitFor(t, p[0], "job", "")
	asleep(t, p[0])
	unlock(t, p[1], "job", first.Owner, 0)
	granting(t, w)
	var owners [names]string
	var wg sync.WaitGroup
	for i := range names {
		owners[i] = lock(t, p[1], strconv.Itoa(i), "", time.Minute).Owner
	}
	before := settledGoroutines(t, 0)
	for i := range names {
		wg.Go(func() {
			a, err := p[0].Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: strconv.Itoa(i)}, TTL: time.Minute, Wait: time.Minute})
			if err != nil || !a.Granted {
				t.Errorf("LOCK %d: %+v, %v", i, a, err)
			}
		})
	}
	eventually(t, time.Minute, "all are listened for", func() bool {
		lines, total := p[0].waiting.Longest(names, func(a, b locks.Key) int { return strings.Compare(a.Name, b.Name) })
		for _, l := range lines {
			if l.Confirmed < len(nodes) {
				return false
			}
		}
		return total == names
	})
	for _, n := range nodes {
		if got := n.Do(t, "CLIENT", "LIST", "TYPE", "pubsub").Text; strings.Count(got, "\n") != 1 {
			t.Errorf("connections that listen: %s", got)
		}
	}
	settledGoroutines(t, before+names)
	for i := range names {
		unlock(t, p[1], strconv.Itoa(i), owners[i], 0)
	}
	wg.Wait()
	if n := p[0].waiting.Total(); n != 0 {
		t.Errorf("%d waiters are left", n)
	}
	settledGoroutines(t, before)
}

// settledGoroutines waits until there are about want goroutines, or, for 0, until their
// number stays the same. Workers come and go.
func settledGoroutines(t *testing.T, want int) (n int) {
	t.Helper()
	last := 0
	eventually(t, patient, fmt.Sprintf("%d goroutines", want), func() bool {
		last, n = n, runtime.NumGoroutine()
		time.Sleep(20 * time.Millisecond)
		return (want == 0 && n == last) || (want != 0 && n <= want+10)
	})
	return n
}

// idleSubscription is for how long waitq keeps a subscription that nobody needs.
const idleSubscription = 5 * time.Second

// TestNotify_UnsubscribesAfterAWhile: a name without waiters is not listened for, after a while.
func TestNotify_UnsubscribesAfterAWhile(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 3)
	g := lock(t, s, "job", "", time.Minute)
	w := waitFor(t, s, "job", "")
	asleep(t, s)
	unlock(t, s, "job", g.Owner, 0)
	granting(t, w)
	channels := func() (n int) {
		for _, srv := range nodes {
			n += len(srv.Do(t, "PUBSUB", "CHANNELS").Elems)
		}
		return n
	}
	if n := channels(); n != len(nodes) {
		t.Errorf("%d channels right after", n)
	}
	eventually(t, idleSubscription+2*eachProbe+patient, "no channel is left", func() bool { return channels() == 0 })
}

// TestNotify_UserWithoutChannels: a user who may not publish or subscribe can lock and unlock, and
// a waiter is served, if later.
func TestNotify_UserWithoutChannels(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 3)
	var urls []string
	for _, n := range nodes {
		n.Do(t, "ACL", "SETUSER", "locks", "on", ">pw", "~lockproxy:*", "+@all", "resetchannels")
		urls = append(urls, "redis://locks:pw@"+n.Addr())
	}
	s := serve(t, testOptions{Nodes: nodesAt(t, urls...), NodeTimeout: patient})
	g := lock(t, s, "job", "", time.Second)
	w := waitFor(t, s, "job", "")
	unlock(t, s, "job", g.Owner, 0)
	g = granting(t, w).Grant
	w = waitFor(t, s, "job", "")
	s.Undo(g)
	granting(t, w)
}

// hearsCuts waits until a proxy hears of leases that the nodes cut.
func hearsCuts(t *testing.T, s *proxy) {
	t.Helper()
	eventually(t, patient, "the proxy listens", func() bool {
		return s.waiting.Line(locks.CutKey).Confirmed == len(s.Members)
	})
}

// TestSession_ShortenedElsewhere: a session keeps its lock, since it hears that a RENEW through
// another proxy cut the lease before the lease ends.
func TestSession_ShortenedElsewhere(t *testing.T) {
	t.Parallel()
	p := rivals(t, 2, redistest.StartNodes(t, 3))
	s, other := p[0], p[1]
	for _, owner := range []string{"alice", "a 7 b:\r\n\x00lockproxy:lock:0:job"} {
		c := newClient(s)
		name := "job:" + owner
		g := c.lock(t, name, owner, time.Minute, 0)
		hearsCuts(t, s)
		const shorter = 3 * time.Second
		if _, err := other.Renew(t.Context(), locks.RenewRequest{Key: locks.Key{Name: name}, Owner: owner, TTL: shorter}); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		eventually(t, shorter, "the session has renewed it", func() bool {
			h, err := other.Inspect(t.Context(), locks.Key{DB: 0, Name: name})
			return err == nil && h.Held && h.Holding.Fence == g.Fence && h.Holding.Remaining > 30*time.Second
		})
		t.Logf("renewed %v after RENEW", time.Since(began))
		if len(c.told()) > 0 {
			t.Errorf("told %+v", c.told())
		}
		c.End()
	}
}

// TestSession_ForcedElsewhere: a session whose lock is forced through another proxy is told at once, not at its next
// renewal.
func TestSession_ForcedElsewhere(t *testing.T) {
	t.Parallel()
	p := rivals(t, 2, redistest.StartNodes(t, 3))
	s, other := p[0], p[1]
	c := newClient(s)
	g := c.lock(t, "job", "alice", time.Minute, 0)
	hearsCuts(t, s)
	if _, held, err := other.Force(t.Context(), locks.Key{DB: 0, Name: "job"}); err != nil || !held {
		t.Fatal(held, err)
	}
	c.lostOnce(t, patient, g, locks.ForcedReason)
}

// TestNotify_CutsWhileSessionsHaveLocks: a proxy is subscribed to cuts while its sessions have locks, and a while longer.
func TestNotify_CutsWhileSessionsHaveLocks(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 3)
	listening := func() (n int) {
		for _, srv := range nodes {
			n += len(srv.Do(t, "PUBSUB", "CHANNELS").Elems)
		}
		return n
	}
	lock(t, s, "other", "alice", time.Minute)
	c := newClient(s)
	c.lock(t, "job", "alice", 30*time.Second, 0)
	hearsCuts(t, s)
	time.Sleep(idleSubscription + 2*eachProbe)
	if n := listening(); n != len(nodes) {
		t.Errorf("%d channels while it is kept", n)
	}
	unlock(t, s, "job", "alice", 0)
	eventually(t, idleSubscription+2*eachProbe+patient, "no channel is left", func() bool { return listening() == 0 })
}
