package locks

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// hearing makes s depend on what it hears: it does not ask on its own.
func hearing(s *Service) *Service {
	s.waiting.poll, s.waiting.longPoll = time.Hour, time.Hour
	return s
}

// asleep waits until the asker of job is asleep and hears what is released.
func asleep(t *testing.T, s *Service) {
	t.Helper()
	eventually(t, patient, "the asker sleeps", func() bool {
		ws := &s.waiting
		ws.mu.Lock()
		defer ws.mu.Unlock()
		q := ws.queues[Key{0, "job"}]
		return q != nil && q.first().again != 0 && !q.first().asking && !q.stirred && q.ear != nil && countTrue(q.ear.on) == len(s.nodes)
	})
}

func TestReleaseElsewhereIsHeard(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, s *Service) { releaseElsewhere(t, s) })
}

func releaseElsewhere(t *testing.T, s *Service) {
	p := []*Service{hearing(s), serve(t, Options{Nodes: s.opts.Nodes, NodeTimeout: patient})}
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

// TestSubscriptionDrops: what is released while a connection is lost is found out.
func TestSubscriptionDrops(t *testing.T) {
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

// deafWaiting is for three nodes that say nothing by themselves, one second after it began.
func deafWaiting() *waiting {
	ws := &waiting{
		nodes: 3, quorum: 2, now: func() time.Duration { return time.Second }, poll: time.Hour, longPoll: time.Hour,
		queues: map[Key]*queue{}, ears: map[string]*ear{},
	}
	for i := range 3 {
		ws.listeners = append(ws.listeners, &listener{node: &node{index: i}, ws: ws, kick: make(chan struct{}, 1)})
	}
	return ws
}

// TestAskerLeaves: its successor goes by what it was told, and asks at once if it left
// before it was told anything, or after something was heard.
func TestAskerLeaves(t *testing.T) {
	tests := []struct {
		name  string
		last  func(ws *waiting, w *waiter)
		sleep bool
	}{
		{"asleep", func(*waiting, *waiter) {}, true},
		{"asking", func(ws *waiting, w *waiter) { ws.ask(w) }, false},
		{"after a release here", func(ws *waiting, w *waiter) { ws.stir(w.queue.at) }, false},
		{"after a quorum's word", func(ws *waiting, w *waiter) {
			ws.heard(0, w.queue.channel, 7, "unlock")
			ws.heard(1, w.queue.channel, 7, "unlock")
		}, false},
		{"with an offer", func(ws *waiting, w *waiter) {
			ws.handOver(w.queue.at, func(LockRequest) *offer { return &offer{} })
		}, false},
	}
	for _, tt := range tests {
		ws := deafWaiting()
		first, _ := ws.join(Key{0, "job"}, 2, LockRequest{}, 0)
		second, _ := ws.join(Key{0, "job"}, 2, LockRequest{}, 0)
		ws.ask(first)
		ws.asked(first, known{asked: true, holder: "alice", fence: 7, until: time.Minute}, ws.now())
		ws.pause(first, ws.now())
		tt.last(ws, first)
		ws.leave(first)
		<-second.turn
		if d := ws.pause(second, ws.now()); (d > 0) != tt.sleep {
			t.Errorf("%s: the next one pauses for %v", tt.name, d)
		}
	}
}

// TestWordLostBeforeSubscribing: a name freed between the refusal and the subscription is
// asked for again.
func TestWordLostBeforeSubscribing(t *testing.T) {
	ws := deafWaiting()
	w, err := ws.join(Key{0, "job"}, 1, LockRequest{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	pauses := func(when string, want bool) {
		t.Helper()
		if d := ws.pause(w, ws.now()); (d > 0) != want {
			t.Errorf("%s: a pause of %v", when, d)
		}
	}
	refuse := func() {
		ws.ask(w)
		ws.asked(w, known{asked: true, holder: "alice", fence: 7, until: time.Minute}, ws.now())
	}
	pauses("nothing is known", false)
	refuse()
	pauses("refused", true)
	ws.confirmed(1, w.queue.channel)
	pauses("one node will tell", true)
	ws.confirmed(2, w.queue.channel)
	pauses("a quorum will tell", false)
	refuse()
	pauses("refused again", true)
	ws.confirmed(0, w.queue.channel)
	pauses("the last node will tell", true)
	ws.deaf(ws.listeners[0])
	ws.confirmed(0, w.queue.channel)
	pauses("there was a quorum all the time", true)
	ws.deaf(ws.listeners[0])
	ws.deaf(ws.listeners[1])
	ws.confirmed(1, w.queue.channel)
	pauses("there was no quorum for a while", false)
}

// TestWhatIsHeard: a quorum's word wakes at once, one node's after a moment, old news and
// a few undos not at all.
func TestWhatIsHeard(t *testing.T) {
	type word struct {
		node  int
		fence int64
		how   string
	}
	tests := []struct {
		name  string
		heard []word
		want  time.Duration
		doubt bool // whether alice still has it
	}{
		{"nothing", nil, time.Hour, false},
		{"a quorum", []word{{0, 7, "unlock"}, {2, 7, "unlock"}}, 0, true},
		{"one node", []word{{1, 7, "unlock"}}, othersLag, true},
		{"one node twice", []word{{1, 7, "unlock"}, {1, 7, "unlock"}}, othersLag, true},
		{"an earlier grant", []word{{0, 6, "unlock"}, {1, 6, "unlock"}, {2, 6, "strict"}}, time.Hour, false},
		{"an earlier grant, handed to this one", []word{{0, 6, "handed"}, {2, 6, "handed"}}, time.Hour, false},
		{"handed on", []word{{1, 7, "handed"}}, time.Hour, true},
		{"one undo", []word{{0, 9, "undo"}}, time.Hour, true},
		{"a quorum of undos", []word{{0, 9, "undo"}, {1, 9, "undo"}}, 0, true},
		{"a release, and it was handed on", []word{{0, 7, "unlock"}, {1, 8, "unlock"}}, 0, true},
	}
	for _, tt := range tests {
		ws := deafWaiting()
		w, _ := ws.join(Key{0, "job"}, 1, LockRequest{}, 0)
		ws.ask(w)
		ws.asked(w, known{asked: true, holder: "alice", fence: 7, until: 2 * time.Hour}, ws.now())
		ws.pause(w, ws.now())
		for _, h := range tt.heard {
			ws.heard(h.node, w.queue.channel, h.fence, h.how)
		}
		if d := ws.pause(w, ws.now()); d != tt.want {
			t.Errorf("%s: a pause of %v, not %v", tt.name, d, tt.want)
		}
		if k, _ := ws.known(w.queue.at); k.says(ws.now()) == tt.doubt {
			t.Errorf("%s: alice has it: %v", tt.name, !tt.doubt)
		}
	}
}

// TestManyNames: names that are waited for cost no goroutines but their callers', and one
// connection to a node. It counts goroutines, so that nothing runs beside it.
func TestManyNames(t *testing.T) {
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
			a, err := p[0].Lock(t.Context(), LockRequest{Key: Key{Name: strconv.Itoa(i)}, TTL: time.Minute, Wait: time.Minute})
			if err != nil || !a.Granted {
				t.Errorf("LOCK %d: %+v, %v", i, a, err)
			}
		})
	}
	ws := &p[0].waiting
	eventually(t, time.Minute, "all are listened for", func() bool {
		ws.mu.Lock()
		defer ws.mu.Unlock()
		for _, e := range ws.ears {
			if countTrue(e.on) < len(nodes) {
				return false
			}
		}
		return len(ws.queues) == names
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
	ws.mu.Lock()
	if n := len(ws.queues) + ws.n; n != 0 {
		t.Errorf("%d queues or waiters are left", n)
	}
	ws.mu.Unlock()
	settledGoroutines(t, before)
}

// settledGoroutines waits until there are about want goroutines, or, for 0, until their
// number stays the same. Lanes come and go.
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

// TestEarsClose: a name that nobody waits for is not listened for, after a while.
func TestEarsClose(t *testing.T) {
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
	eventually(t, keepEar+2*probeEvery+patient, "no channel is left", func() bool { return channels() == 0 })
}

// TestWithoutChannels: a user who may not publish or subscribe can lock and unlock, and
// who waits is served, if later.
func TestWithoutChannels(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 3)
	var urls []string
	for _, n := range nodes {
		n.Do(t, "ACL", "SETUSER", "locks", "on", ">pw", "~lockproxy:*", "+@all", "resetchannels")
		urls = append(urls, "redis://locks:pw@"+n.Addr())
	}
	s := serve(t, Options{Nodes: nodesAt(t, urls...), NodeTimeout: patient})
	g := lock(t, s, "job", "", time.Second)
	w := waitFor(t, s, "job", "")
	unlock(t, s, "job", g.Owner, 0)
	g = granting(t, w).Grant
	w = waitFor(t, s, "job", "")
	s.Undo(g)
	granting(t, w)
}
