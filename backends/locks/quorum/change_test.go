package quorum

import (
	"cmp"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/membership"
	"github.com/lockproxy/lockproxy/backends/locks/voters"
	"github.com/lockproxy/lockproxy/integration/redistest"
	"github.com/lockproxy/lockproxy/scripts"
)

// changeTTL is longer than a busy machine keeps a proxy from saying that it is there, once a second.
const changeTTL = 3 * time.Second

// A walk is an operator with a change of the lock nodes.
type walk struct {
	t      *testing.T
	maxTTL time.Duration // 0: changeTTL
	said   []string
}

// change is from one list to the other; dead is an address, or empty.
func (w *walk) change(from, to []string, dead string) membership.Change {
	c := membership.Change{
		Options: voters.Options{MaxTTL: cmp.Or(w.maxTTL, changeTTL), NodeTimeout: patient, Log: slog.New(slog.DiscardHandler)},
		From:    nodesAt(w.t, from...), To: nodesAt(w.t, to...), Progress: func(s string) { w.said = append(w.said, s) },
	}
	if dead != "" {
		c.Dead = nodesAt(w.t, dead)[0]
	}
	return c
}

// answered calls a half, and again while a node does not answer in time, as on a busy machine.
func answered(half func() error) error {
	var notYet *membership.NotYetError
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if err := half(); !errors.As(err, &notYet) || !strings.Contains(notYet.Why, " timeout") || time.Now().After(end) {
			return err
		}
	}
}

// until calls a half again while it has to wait. It returns how often, and for what last.
func (w *walk) until(what string, half func() error) (waits int, last string) {
	w.t.Helper()
	var notYet *membership.NotYetError
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		err := half()
		switch {
		case err == nil:
			return waits, last
		case !errors.As(err, &notYet) || time.Now().After(end):
			w.t.Fatalf("%s: %v", what, err)
		}
		waits++
		last = notYet.Why
	}
}

func (w *walk) wholly(f *fleet, c membership.Change, o testOptions) {
	w.t.Helper()
	w.until("open", func() error { return c.Open(w.t.Context()) })
	finish := func() error { return answered(func() error { return c.Finish(w.t.Context()) }) }
	var notYet *membership.NotYetError
	if err := finish(); !errors.As(err, &notYet) || !strings.Contains(notYet.Why, "was heard of") {
		w.t.Errorf("finishing while proxies have the list before: %v", err)
	}
	f.rollOut(o)
	if waits, last := w.until("finish", finish); waits > 0 && !strings.Contains(last, "was heard of") {
		w.t.Errorf("%d waits, the last for something else than proxies with the list before: %s", waits, last)
	}
	for _, half := range []func() error{func() error { return c.Finish(w.t.Context()) }, func() error { return c.Open(w.t.Context()) }} {
		if err := answered(half); err != nil {
			w.t.Errorf("once more: %v", err)
		}
	}
}

// TestChange_ThreeToFive adds two nodes, one by one, under load, and tries what a change must refuse.
func TestChange_ThreeToFive(t *testing.T) {
	t.Parallel()
	at := addrs(redistest.StartNodes(t, 6))
	with := func(nodes []string) testOptions {
		return testOptions{Nodes: nodesAt(t, nodes...), MaxTTL: changeTTL, NodeTimeout: patient}
	}
	f, w := startFleet(t, 3, with(at[:3])), &walk{t: t}
	for _, n := range []int{4, 5} {
		c := w.change(at[:n-1], at[:n], "")
		if err := c.Finish(t.Context()); err == nil {
			t.Error("finished before it began")
		}
		w.wholly(f, c, with(at[:n]))
	}
	var notYet *membership.NotYetError
	for name, c := range map[string]membership.Change{
		"a list of long ago": w.change(at[:3], at[:4], ""), "a wrong list": w.change([]string{at[0], at[1], at[5]}, []string{at[0], at[1]}, ""),
	} {
		if err := c.Open(t.Context()); err == nil || errors.As(err, &notYet) || !strings.Contains(err.Error(), "other lock nodes") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := w.change(at[:3], at[:5], "").Open(t.Context()); err == nil {
		t.Error("two nodes at once")
	}
	forgotten := serve(t, with(at[:3]))
	refusesList(t, forgotten, at[:5], at[:3])
	exchanged := serve(t, with([]string{at[0], at[1], at[2], at[3], at[5]}))
	refusesList(t, exchanged, at[:5], []string{at[0], at[1], at[2], at[3], at[5]})
	f.stop(100)
}

// TestChange_ReplaceADeadNode: a dead node is replaced under load. No proxy is told NOQUORUM,
// although there is never a node to spare.
func TestChange_ReplaceADeadNode(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 4)
	at := addrs(nodes)
	with := func(nodes []string) testOptions {
		return testOptions{Nodes: nodesAt(t, nodes...), MaxTTL: changeTTL, NodeTimeout: patient}
	}
	f, w := startFleet(t, 3, with(at[:3])), &walk{t: t}
	nodes[0].Kill()
	var notYet *membership.NotYetError
	if err := w.change(at[:3], at, "").Open(t.Context()); !errors.As(err, &notYet) || !strings.Contains(notYet.Why, at[0]) {
		t.Errorf("a node more while another is down: %v", err)
	}
	w.wholly(f, w.change(at[:3], at, at[0]), with(at))
	w.wholly(f, w.change(at, at[1:], at[0]), with(at[1:]))
	if err := nodes[0].Restart(); err != nil {
		t.Fatal(err)
	}
	f.stop(50)
}

// TestChange_LongLeases: where leases may be long, a change waits for those that run and not for as long as one may last.
func TestChange_LongLeases(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 4)
	at := addrs(nodes)
	with := func(nodes []string) testOptions {
		return testOptions{Nodes: nodesAt(t, nodes...), MaxTTL: time.Hour, NodeTimeout: patient}
	}
	f, w := startFleet(t, 2, with(at[:3])), &walk{t: t, maxTTL: time.Hour}
	held := lock(t, f.proxies[0], "import", "alice", 40*time.Minute)
	w.wholly(f, w.change(at[:3], at, ""), with(at))
	lock(t, f.proxies[0], "later", "alice", 40*time.Minute)
	shrink := w.change(at, at[1:], "")
	var notYet *membership.NotYetError
	err := answered(func() error { return shrink.Open(t.Context()) })
	if !errors.As(err, &notYet) || !strings.Contains(notYet.Why, "lock:0:import") {
		t.Errorf("a change while a lease of before it may run: %v", err)
	}
	unlock(t, f.proxies[1], "import", "alice", 0)
	w.wholly(f, shrink, with(at[1:]))
	if g := lock(t, f.proxies[0], "import", "bob", time.Minute); g.Fence <= held.Fence {
		t.Errorf("fence %d after %d", g.Fence, held.Fence)
	}
	f.stop(100)
}

// TestChange_ANodeThatMissedIt: a node that was down while the list was changed gets the new one from the proxies.
func TestChange_ANodeThatMissedIt(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 4)
	at := addrs(nodes)
	with := func(nodes []string) testOptions {
		return testOptions{Nodes: nodesAt(t, nodes...), MaxTTL: changeTTL, NodeTimeout: patient}
	}
	w := &walk{t: t}
	first, err := newProxy(with(at[:3]))
	if err != nil {
		t.Fatal(err)
	}
	lock(t, first, "warm", "x", changeTTL) // enlists the nodes
	c := w.change(at[:3], at, "")
	w.until("open", func() error { return c.Open(t.Context()) })
	nodes[2].Pause()
	w.until("finish", func() error { return c.Finish(t.Context()) })
	nodes[2].Resume()
	serve(t, with(at))
	n := redistest.Open(t, at[2])
	eventually(t, 10*time.Second, "it is told", func() bool {
		return n.Do(t, "HGET", "lockproxy:node", "next").Text == "" && strings.Contains(n.Do(t, "HGET", "lockproxy:node", "list").Text, at[3])
	})
}

// TestChangeScript_Leases: a node tells for how long leases run that may be from before the last change, and keeps the earliest time at which
// they are said to be over.
func TestChangeScript_Leases(t *testing.T) {
	t.Parallel()
	c := startCopyScript(t)
	call := func(args ...string) []redistest.Value {
		return c.n.Do(t, c.s.Command(scripts.Change, c.node, args...)...).Elems
	}
	longest := func() (key string, left time.Duration) {
		t.Helper()
		v := call("leases", "0", "lockproxy:[lrd]*", c.n.Do(t, "HGET", c.node.Node, "epoch").Text)
		if v[0].Int() != 1 || v[1].Text != "0" {
			t.Fatalf("%v", v)
		}
		return v[3].Text, time.Duration(v[2].Int()) * time.Millisecond
	}
	want := func(what, key string, about time.Duration) {
		t.Helper()
		if k, left := longest(); k != key || left > about || left < about-time.Minute {
			t.Errorf("%s: %v of %q, want %v of %q", what, left, k, about, key)
		}
	}
	want("nothing is held", "", 0)
	lock(t, c.s, "old", "alice", 20*time.Minute)
	if a, err := c.s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "bob", TTL: 30 * time.Minute, Shared: true}); err != nil || !a.Granted {
		t.Fatal(a, err)
	}
	want("no change was made", "", 0)
	c.n.Do(t, "HSET", c.node.Node, "changed", inMillis(time.Second), "epoch", "4")
	want("a reader is from before the change", "read:0:3:jobbob", 30*time.Minute)
	unlock(t, c.s, "old", "alice", 0)
	c.n.Do(t, "HSET", c.node.Node, "changed", inMillis(0))
	time.Sleep(2 * time.Millisecond)
	lock(t, c.s, "new", "alice", 50*time.Minute)
	want("a lock is from after it", "read:0:3:jobbob", 30*time.Minute)
	c.n.Do(t, "SET", "lockproxy:doubt:0:x", "", "PX", "2400000")
	want("a doubt is from before it", "doubt:0:x", 40*time.Minute)

	over := func() string { return c.n.Do(t, "HGET", c.node.Node, "over").Text }
	if v := call("over", "3", "1000", "a"); v[0].Int() != 0 || over() != "" {
		t.Errorf("of another change: %v, %q", v, over())
	}
	for _, step := range []struct{ epoch, ms, key, keeps string }{
		{"4", "600000", "a", "a"}, {"4", "900000", "b", "a"}, {"4", "300000", "c", "c"}, {"5", "900000", "d", "d"},
	} {
		c.n.Do(t, "HSET", c.node.Node, "epoch", step.epoch)
		call("over", step.epoch, step.ms, step.key)
		if f := strings.Fields(over()); len(f) != 4 || f[0] != step.epoch || f[3] != step.keeps {
			t.Errorf("%+v: %v", step, f)
		}
	}
	if v := call("leases", "0", "lockproxy:[lrd]*", "6"); v[0].Int() != 0 || v[1].Int() != 5 {
		t.Errorf("a node that has not taken the last change: %v", v)
	}
	c.forget("loss", 0)
	if v := call("leases", "0", "lockproxy:[lrd]*", "5"); v[0].Int() != -2 {
		t.Errorf("a node in quarantine: %v", v)
	}
}
