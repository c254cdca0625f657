package waitq

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// joinAll has waiters join: those whose names begin with r to share the key, with p some of them, the others alone.
func joinAll(t *testing.T, q *Queues[string, *string], names ...string) (all []*Waiter[string, *string]) {
	t.Helper()
	for _, name := range names {
		use := map[byte]Use{'r': Sharing, 'p': Limited}[name[0]]
		w, err := q.Join([]string{"job"}, name, "", use, &name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, w)
	}
	return all
}

// TestQueues_Shared: with a head that shares the key those right behind it are let in that share it too, up to the first
// that does not; whoever is the head next asks at once.
func TestQueues_Shared(t *testing.T) {
	tests := []struct {
		line []string
		let  []string
	}{
		{[]string{"r1"}, nil},
		{[]string{"r1", "r2", "r3"}, []string{"r2", "r3"}},
		{[]string{"r1", "r2", "w1", "r3"}, []string{"r2"}},
		{[]string{"r1", "w1", "r2"}, nil},
	}
	for _, tt := range tests {
		q := still(10)
		all := joinAll(t, q, tt.line...)
		q.Ask(all[0])
		q.Shared(all[0])
		var let []string
		for _, w := range all {
			if len(w.reenter) > 0 {
				let = append(let, *w.Value)
			}
		}
		if !slices.Equal(let, tt.let) {
			t.Errorf("%v: let in %v", tt.line, let)
		}
		for _, w := range all {
			if *w.Value == "r1" || slices.Contains(tt.let, *w.Value) {
				q.Leave(w, true)
			}
		}
		rest := tt.line[1+len(tt.let):]
		if len(rest) == 0 {
			continue
		}
		next := all[1+len(tt.let)]
		if d, head := q.pause(next); !head || d > 0 {
			t.Errorf("%v: %s, who is next, is the head %v and sleeps %v", tt.line, rest[0], head, d)
		}
	}
}

// TestQueues_Limited: one that may share the key with some does not count as one that wants it alone, so that another that shares
// it need not wait for it to be refused.
func TestQueues_Limited(t *testing.T) {
	q := still(10)
	for _, name := range []string{"p1", "p2", "r1"} {
		w := joinAll(t, q, name)[0]
		if alone := q.Alone("job"); alone != 0 {
			t.Errorf("with %s %d want it alone", name, alone)
		}
		if let := len(w.reenter) > 0; let != (name == "r1") {
			t.Errorf("%s is let in: %v", name, let)
		}
	}
	joinAll(t, q, "w1")
	if alone := q.Alone("job"); alone != 1 {
		t.Errorf("with a writer %d want it alone", alone)
	}
}

// TestQueues_SharedWakesParked: who is let in goes on, though it has no goroutine.
func TestQueues_SharedWakesParked(t *testing.T) {
	q := still(10)
	all := joinAll(t, q, "r1")
	refuse(q, all[0])
	all = append(all, joinAll(t, q, "r2", "w1")...)
	resumed := make(chan string, 2)
	for _, w := range all[1:] {
		if !q.Park(t.Context(), w, time.Hour, func() { resumed <- *w.Value }) {
			t.Fatalf("%s is not parked", *w.Value)
		}
	}
	q.Ask(all[0])
	q.Shared(all[0])
	if who := <-resumed; who != "r2" {
		t.Errorf("%s goes on", who)
	}
	if reenter, err := q.AwaitTurn(t.Context(), all[1]); !reenter || err != nil {
		t.Errorf("it is told %v, %v", reenter, err)
	}
	q.Leave(all[1], true)
	if len(resumed) > 0 {
		t.Errorf("%s goes on as well", <-resumed)
	}
}

func TestQueues_Alone(t *testing.T) {
	q := still(10)
	all := joinAll(t, q, "r1", "w1", "w2", "r2")
	for _, w := range all {
		want := 0
		for _, other := range all {
			if other.line.waiters.n > 0 && (*other.Value)[0] == 'w' {
				want++
			}
		}
		if n := q.Alone("job"); n != want {
			t.Errorf("%d wait alone, not %d", n, want)
		}
		q.Leave(w, true)
		*w.Value = "gone"
	}
	if n := q.Alone("job"); n != 0 {
		t.Errorf("%d wait alone in no line", n)
	}
}

// TestQueues_Soon: a key that may become free before its time is asked for again within Poll, however often and whoever has it.
func TestQueues_Soon(t *testing.T) {
	q := still(10)
	q.SetPoll(time.Second, time.Hour)
	for _, holder := range []string{"reader", ""} {
		w := joinAll(t, q, "w1")[0]
		for range 4 {
			q.Ask(w)
			q.Asked(w, Known{Asked: true, Holder: holder, Soon: true, Until: at + time.Hour})
		}
		if d, head := q.pause(w); !head || d != time.Second {
			t.Errorf("held by %q: the head sleeps %v", holder, d)
		}
		q.Leave(w, false)
	}
}

// TestQueues_HandOverDeclined: where the caller offers nothing, the head asks for itself.
func TestQueues_HandOverDeclined(t *testing.T) {
	q := still(10)
	w := joinAll(t, q, "w1")[0]
	refuse(q, w)
	if offered, _ := q.HandOver("job", func(*string) bool { return false }); offered {
		t.Error("something was offered")
	}
	q.Wake("job")
	if d, _ := q.pause(w); d > 0 {
		t.Errorf("the head sleeps %v", d)
	}
	if offered, err := q.Ask(w); offered || err != nil {
		t.Errorf("it may not ask: %v, %v", offered, err)
	}
}

// TestQueues_SharedJoin: who shares the key asks at once where all before it share it and none was refused.
func TestQueues_SharedJoin(t *testing.T) {
	for what, asksAtOnce := range map[string]bool{"r1 ": true, "r1 r2 ": true, "r1 refused": false, "w1 ": false, "r1 w1 ": false} {
		q := still(10)
		before, refused := strings.CutSuffix(what, "refused")
		all := joinAll(t, q, strings.Fields(before)...)
		if refused {
			refuse(q, all[0])
		}
		if w := joinAll(t, q, "r9")[0]; len(w.reenter) > 0 != asksAtOnce {
			t.Errorf("behind %s: %v", what, !asksAtOnce)
		}
		if w := joinAll(t, q, "w9")[0]; len(w.reenter) > 0 {
			t.Errorf("behind %s who does not share asks at once", what)
		}
	}
}
