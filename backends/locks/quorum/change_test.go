package quorum

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks/voters"
	"github.com/lockproxy/lockproxy/integration/redistest"
)

// changeTTL is longer than a busy machine keeps a proxy from saying that it is there, once a second.
const changeTTL = 3 * time.Second

// A walk is an operator with a change of the lock nodes.
type walk struct {
	t    *testing.T
	said []string
}

// change is from one list to the other; dead is an address, or empty.
func (w *walk) change(from, to []string, dead string) voters.Change {
	c := voters.Change{
		Options: voters.Options{MaxTTL: changeTTL, NodeTimeout: patient, Log: slog.New(slog.DiscardHandler)},
		From:    nodesAt(w.t, from...), To: nodesAt(w.t, to...), Progress: func(s string) { w.said = append(w.said, s) },
	}
	if dead != "" {
		c.Dead = nodesAt(w.t, dead)[0]
	}
	return c
}

// answered calls a half, and again while a node does not answer in time, as on a busy machine.
func answered(half func() error) error {
	var notYet *voters.NotYetError
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if err := half(); !errors.As(err, &notYet) || !strings.Contains(notYet.Why, " timeout") || time.Now().After(end) {
			return err
		}
	}
}

// until calls a half again while it has to wait. It returns how often, and for what last.
func (w *walk) until(what string, half func() error) (waits int, last string) {
	w.t.Helper()
	var notYet *voters.NotYetError
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

func (w *walk) wholly(f *fleet, c voters.Change, o testOptions) {
	w.t.Helper()
	w.until("open", func() error { return c.Open(w.t.Context()) })
	finish := func() error { return answered(func() error { return c.Finish(w.t.Context()) }) }
	var notYet *voters.NotYetError
	if err := finish(); !errors.As(err, &notYet) || !strings.Contains(notYet.Why, "was heard of") {
		w.t.Errorf("finishing while proxies have the list before: %v", err)
	}
	f.rollOut(o)
	if waits, last := w.until("finish", finish); waits > 0 && !strings.Contains(last, "was heard of") {
		w.t.Errorf("%d waits, the last for something else than proxies with the list before: %s", waits, last)
	}
	for _, half := range []func() error{func() error { return c.Finish(w.t.Context()) }, func() error { return c.Open(w.t.Context()) }} {
		if err := half(); err != nil {
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
	var notYet *voters.NotYetError
	if err := w.change(at[:5], at[:4], "").Open(t.Context()); !errors.As(err, &notYet) || !strings.Contains(notYet.Why, "leases from before") {
		t.Errorf("a change right behind another: %v", err)
	}
	for name, c := range map[string]voters.Change{
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
	var notYet *voters.NotYetError
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
	lock(t, first, "warm", "x", 100*time.Millisecond)
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
