package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/nodekeys"
	"github.com/lockproxy/lockproxy/integration/redistest"
	"github.com/lockproxy/lockproxy/scripts"
)

func inspect(tb testing.TB, s *proxy, name string) locks.Inspection {
	tb.Helper()
	in, err := s.Inspect(tb.Context(), locks.Key{DB: 0, Name: name})
	if err != nil {
		tb.Fatalf("inspecting %s: %v", name, err)
	}
	return in
}

func TestInspect(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, s *proxy) {
		if in := inspect(t, s, "job"); in.Held || len(in.Nodes) != 5 || in.Need != 3 {
			t.Errorf("free: %+v", in)
		}
		a, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: 10 * time.Second, Info: "nightly"})
		if err != nil || !a.Granted {
			t.Fatal(a, err)
		}
		lock(t, s, "job", "alice", 20*time.Second)
		time.Sleep(20 * time.Millisecond)
		h := inspect(t, s, "job").Holding
		if h.Remaining < 19*time.Second || h.Remaining > 20*time.Second || h.Held < 20*time.Millisecond || h.Held > 10*time.Second {
			t.Errorf("times of %+v", h)
		}
		h.Remaining, h.Held, h.Waited = 0, 0, 0
		want := locks.Holding{Key: locks.Key{Name: "job"}, Owner: "alice", Fence: a.Grant.Fence, Holds: 2, Info: "nightly", Votes: 5, Here: true}
		if h != want {
			t.Errorf("got %+v, want %+v", h, want)
		}
		lock(t, s, "other", "bob", time.Second)
		if got := listAll(t, s, "jo[a-b]", 0); !slices.Equal(got, []string{"job"}) {
			t.Errorf("listed %v", got)
		}
		unlock(t, s, "job", "alice", 1)
		unlock(t, s, "job", "alice", 0)
		if in := inspect(t, s, "job"); in.Held {
			t.Errorf("released: %+v", in)
		}
	})
}

// onNode takes a name on one node only, as a proxy that dies meanwhile does.
func onNode(t *testing.T, s *proxy, n *redistest.Server, name, owner, fence string) {
	t.Helper()
	v := redistest.Open(t, n.Addr()).Do(t, s.Command(scripts.Acquire, s.RedisKeys(locks.Key{DB: 0, Name: name}), asks(owner, "20000", fence, "hold-of-"+owner)...)...)
	if v.IsError() || v.Elems[0].Int() != 1 {
		t.Fatalf("acquire on one node: %v", v)
	}
}

func TestInspect_WithoutQuorum(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 3)
	lock(t, s, "other", "warm", time.Second)
	onNode(t, s, nodes[0], "minority", "alice", "0")
	for i, owner := range []string{"alice", "bob", "carol"} {
		onNode(t, s, nodes[i], "split", owner, "0")
	}
	for _, name := range []string{"minority", "split"} {
		in := inspect(t, s, name)
		if in.Held || in.Nodes[0].Owner != "alice" || in.Nodes[0].Remaining < 15*time.Second || in.Nodes[0].Holds != 1 {
			t.Errorf("%s: %+v", name, in)
		}
		if was, held, err := s.Force(t.Context(), locks.Key{DB: 0, Name: name}); held || err != nil {
			t.Errorf("forced %s: %+v, %v", name, was, err)
		}
	}
	nodes[1].Kill()
	in, err := s.Inspect(t.Context(), locks.Key{DB: 0, Name: "minority"})
	if q := (*locks.QuorumError)(nil); !errors.As(err, &q) || in.Held || in.Nodes[1].Err == nil || in.Nodes[1].State == locks.NodeVoting {
		t.Errorf("with a node down that may have it too: %+v, %v", in, err)
	}
	if was, held, err := s.Force(t.Context(), locks.Key{DB: 0, Name: "minority"}); held || err == nil {
		t.Errorf("forced with a node down: %+v, %v", was, err)
	}
	if in := inspect(t, s, "free"); in.Held {
		t.Errorf("what none of two nodes has is held: %+v", in)
	}
	nodes[2].Kill()
	in, err = s.Inspect(t.Context(), locks.Key{DB: 0, Name: "minority"})
	if q := (*locks.QuorumError)(nil); !errors.As(err, &q) || q.Got != 1 {
		t.Fatalf("with two of three down: %v", err)
	}
	if len(in.Nodes) != 3 || in.Nodes[0].Owner != "alice" || in.Nodes[2].Err == nil {
		t.Errorf("what the one says is not told: %+v", in)
	}
}

func TestInspect_DuringQuarantine(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 3)
	lock(t, s, "job", "alice", 30*time.Second)
	redistest.Open(t, nodes[1].Addr()).Do(t, "FLUSHALL")
	eventually(t, 10*time.Second, "the node sits out", func() bool { return s.Nodes()[1].State == locks.NodeQuarantine })
	in := inspect(t, s, "job")
	if !in.Held || in.Holding.Votes != 2 || in.Nodes[1].State != locks.NodeQuarantine || in.Nodes[1].Left < 40*time.Second {
		t.Errorf("got %+v", in)
	}
}

func TestWaiters(t *testing.T) {
	t.Parallel()
	s, _ := start(t, 1)
	hearing(s)
	lock(t, s, "job", "alice", time.Minute)
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for i, owner := range []string{"bob", "carol"} {
		wg.Go(func() {
			s.Lock(ctx, locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: owner, TTL: time.Second, Wait: time.Minute, Info: "of " + owner, Client: owner + "'s"})
		})
		eventually(t, 20*time.Second, owner+" waits", func() bool { return len(s.Waiters(locks.Key{DB: 0, Name: "job"})) == i+1 })
	}
	got := s.Waiters(locks.Key{DB: 0, Name: "job"})
	for i, want := range []locks.Waiter{{Owner: "bob", Info: "of bob", Client: "bob's"}, {Owner: "carol", Info: "of carol", Client: "carol's"}} {
		g := got[i]
		if g.Waiting <= 0 || g.Left < 50*time.Second || g.Waiting+g.Left != time.Minute {
			t.Errorf("times of %+v", g)
		}
		if g.Waiting, g.Left = 0, 0; g != want {
			t.Errorf("got %+v, want %+v", g, want)
		}
	}
	if in := inspect(t, s, "job"); in.Holding.Waiters != 2 || s.Waiters(locks.Key{DB: 1, Name: "job"}) != nil {
		t.Errorf("counted %+v", in.Holding)
	}
	force(t, s, "job")
	eventually(t, 20*time.Second, "the next one has it", func() bool { return inspect(t, s, "job").Holding.Owner == "bob" })
}

// listAll follows the cursor to its end.
func listAll(t *testing.T, s *proxy, match string, count int) (names []string) {
	t.Helper()
	for cursor := ""; ; {
		l, err := s.List(t.Context(), locks.ListRequest{Match: match, Count: count, Cursor: cursor})
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range l.Held {
			names = append(names, h.Name)
		}
		if cursor = l.Cursor; cursor == "0" {
			slices.Sort(names)
			return names
		}
	}
}

// lockEach takes many names for alice and a minute, fifty at a time: the first must not have lapsed when the last is taken, however busy
// the machine is.
func lockEach(t *testing.T, s *proxy, names []string) {
	t.Helper()
	var taking sync.WaitGroup
	for some := range slices.Chunk(names, max(1, len(names)/50)) {
		taking.Go(func() {
			for _, name := range some {
				a, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: name}, Owner: "alice", TTL: time.Minute})
				if err != nil || !a.Granted {
					t.Errorf("LOCK %s: %+v, %v", name, a, err)
				}
			}
		})
	}
	taking.Wait()
}

func TestList(t *testing.T) {
	t.Parallel()
	p := rivals(t, 2, redistest.StartNodes(t, 5))
	s := p[0]
	const many = 2000
	var want []string
	for i := range many {
		want = append(want, fmt.Sprintf("job:%04d", i))
	}
	lockEach(t, s, want)
	if _, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{DB: 1, Name: "job:elsewhere"}, TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	lock(t, s, "job:gone", "bob", time.Minute)
	unlock(t, s, "job:gone", "bob", 0)
	got := listAll(t, s, "", 300)
	if !slices.Equal(got, want) {
		t.Errorf("%d names, %d different, want %d", len(got), len(slices.Compact(got)), len(want))
	}
	if got := listAll(t, s, "job:001?", 0); !slices.Equal(got, want[10:20]) {
		t.Errorf("of ten: %v", got)
	}
	if got := listAll(t, p[1], `job:[*`, 1000); got != nil {
		t.Errorf("an odd pattern: %v", got)
	}
}

func TestList_NotEveryNodeHasIt(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 5)
	lock(t, s, "warm", "x", time.Minute)
	unlock(t, s, "warm", "x", 0)
	// All subsets of nodes: only what three agree on is held, and reported once.
	var want []string
	for set := range 1 << len(nodes) {
		name, n := fmt.Sprintf("held-by-%05b", set), 0
		fence := s.proposal() // above every fence before, so that the nodes agree
		for i, node := range nodes {
			if set&(1<<i) != 0 {
				onNode(t, s, node, name, "alice", fence)
				n++
			}
		}
		if n >= 3 {
			want = append(want, name)
		}
	}
	slices.Sort(want)
	if got := listAll(t, s, "", 7); !slices.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
	// Two down: what one of the others has may be held, if both of them have it.
	nodes[0].Kill()
	nodes[3].Kill()
	want = nil
	for set := range 1 << len(nodes) {
		if set&^(1<<0|1<<3) != 0 {
			want = append(want, fmt.Sprintf("held-by-%05b", set))
		}
	}
	eventually(t, 20*time.Second, "the loss is noticed", func() bool { return s.Nodes()[0].State != locks.NodeVoting })
	if got := listAll(t, s, "", 0); !slices.Equal(got, want) {
		t.Errorf("with two down: %v\nwant %v", got, want)
	}
	nodes[4].Kill()
	if l, err := s.List(t.Context(), locks.ListRequest{}); err == nil {
		t.Errorf("with three of five down: %+v", l)
	}
}

func TestList_NodeFails(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 3)
	var want []string
	for i := range 400 {
		name := fmt.Sprintf("job:%03d", i)
		lock(t, s, name, "alice", time.Minute)
		want = append(want, name)
	}
	l, err := s.List(t.Context(), locks.ListRequest{Count: 20})
	if err != nil || l.Cursor == "0" {
		t.Fatal(l, err)
	}
	nodes[0].Kill()
	var names []string
	for cursor := l.Cursor; cursor != "0"; cursor = l.Cursor {
		for _, h := range l.Held {
			names = append(names, h.Name)
		}
		if l, err = s.List(t.Context(), locks.ListRequest{Count: 20, Cursor: cursor}); err != nil {
			t.Fatal(err)
		}
	}
	for _, h := range l.Held {
		names = append(names, h.Name)
	}
	slices.Sort(names)
	if got := slices.Compact(names); !slices.Equal(got, want) {
		t.Errorf("%d names, want %d", len(got), len(want))
	}
}

func TestCursor(t *testing.T) {
	for _, text := range []string{"0", "1", "3", "0.0.0", "1.2.17", "5.1.18446744073709551615"} {
		c, err := parseCursor(text, 3)
		if err != nil || c.String() != text {
			t.Errorf("%s: %s, %v", text, c, err)
		}
	}
	for _, text := range []string{"x", "-1", "8", "1.0.3", "0.3.1", "0.-1.1", "0.1", "0.1.", "0.1.x", "0.1.1.1", "1.", "."} {
		if c, err := parseCursor(text, 3); err == nil {
			t.Errorf("%q: %+v, want an error", text, c)
		}
	}
}

func TestGlobEscape(t *testing.T) {
	if got, want := nodekeys.Literal(`a*b?[c]\d:`), `a\*b\?\[c\]\\d:`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestInspect_OldHolds: a hold that nobody gives back is told from those that come and go.
func TestInspect_OldHolds(t *testing.T) {
	t.Parallel()
	s, _ := start(t, 3)
	lock(t, s, "job", "alice", 50*time.Second)
	if in := inspect(t, s, "job"); len(in.Each) != 1 {
		t.Errorf("one hold: %+v", in.Each)
	}
	time.Sleep(20 * time.Millisecond)
	lock(t, s, "job", "alice", 20*time.Second)
	in := inspect(t, s, "job")
	if len(in.Each) != 2 || in.Each[0].Taken <= in.Each[1].Taken || in.Each[0].Left < 25*time.Second || in.Each[1].Left > 20*time.Second {
		t.Errorf("two holds: %+v", in.Each)
	}
	if in := inspect(t, s, "free"); len(in.Each) != 0 {
		t.Errorf("of a free name: %+v", in.Each)
	}
}

// TestList_NodeForgot: a lock that a quorum was told to have is not missing since one of its nodes has forgotten it and another lacked
// it from the start: where a node that remembers cannot be looked through in its place, the list is an error.
func TestList_NodeForgot(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 3)
	s := serve(t, longLeases(t, nodes))
	allVote(t, s)
	job := lock(t, s, "job", "alice", 40*time.Minute)
	allDelivered(t, s)
	if v := nodes[1].Do(t, "DEL", s.RedisKeys(job.Key).Lock); v.Int() != 1 {
		t.Fatalf("the node had no lock: %v", v)
	}
	nodes[0].Do(t, "FLUSHALL")
	eventually(t, time.Minute, "the node is in doubt", func() bool { return s.Nodes()[0].State == locks.NodeVoting && s.Nodes()[0].Doubt > 0 })
	if got := listAll(t, s, "", 0); !slices.Equal(got, []string{"job"}) {
		t.Errorf("while the node is in doubt: %v", got)
	}
	lock(t, s, "other", "bob", 40*time.Minute)
	allDelivered(t, s)
	nodes[1].Do(t, "FLUSHALL")
	eventually(t, time.Minute, "another is in doubt, too", func() bool { return s.Nodes()[1].State == locks.NodeVoting && s.Nodes()[1].Doubt > 0 })
	if got := listAll(t, s, "", 0); !slices.Equal(got, []string{"job", "other"}) {
		t.Errorf("while most nodes are in doubt about one name: %v", got)
	}
	nodes[0].Do(t, "FLUSHALL")
	nodes[2].Kill()
	eventually(t, time.Minute, "the others forgot and are gone", func() bool {
		n := s.Nodes()
		return n[0].State == locks.NodeQuarantine && n[2].State == locks.NodeDown
	})
	few := (*locks.QuorumError)(nil)
	l, err := s.List(t.Context(), locks.ListRequest{})
	for err == nil && l.Cursor != "0" {
		l, err = s.List(t.Context(), locks.ListRequest{Cursor: l.Cursor})
	}
	if !errors.As(err, &few) || len(few.Failed) != 2 {
		t.Errorf("with a node that voted and was not asked, and one in quarantine: %+v, %v", l, err)
	}
	if names, all, err := s.Names(t.Context(), locks.NamesRequest{}); all || !errors.As(err, &few) {
		t.Errorf("the names: %v, all %v, %v", names, all, err)
	}
}
