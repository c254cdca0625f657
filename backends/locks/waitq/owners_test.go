package waitq

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestOwners_AsInTheLine: after any joins and leaves the waiters of an owner are those in the line, each stands where the
// line says, and the owner's wake-up reaches them all, but for the head, and nobody else.
func TestOwners_AsInTheLine(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	q := still(1000)
	for step := range 3000 {
		owner, req := fmt.Sprint(r.IntN(4)), fmt.Sprint(r.IntN(3))
		if owner == "3" {
			owner = ""
		}
		line := waitersOf(q)
		if len(line) > 0 && r.IntN(20) < 5+len(line) {
			q.Leave(line[r.IntN(len(line))], r.IntN(2) == 0)
		} else if _, err := q.Join([]string{"job"}, owner, req, Alone, nil); err != nil {
			t.Fatal(err)
		}
		checkOwners(t, q, step)
	}
	for _, w := range waitersOf(q) {
		q.Leave(w, false)
	}
	if len(q.owned) != 0 {
		t.Errorf("%d owners are left", len(q.owned))
	}
}

func waitersOf(q *Queues[string, *string]) (all []*Waiter[string, *string]) {
	if l := q.lines["job"]; l != nil {
		all = slices.AppendSeq(all, l.waiters.all())
	}
	return all
}

func checkOwners(t *testing.T, q *Queues[string, *string], step int) {
	t.Helper()
	line := waitersOf(q)
	for _, owner := range []string{"0", "1", "2", "4"} {
		var want []*Waiter[string, *string]
		seen := map[string]bool{}
		for i, w := range line {
			if w.owner != owner {
				continue
			}
			want = append(want, w)
			if seen[w.req] {
				continue
			}
			seen[w.req] = true
			if _, ahead, _, ok := q.Place([]string{"job"}, owner, w.req); !ok || ahead != i {
				t.Fatalf("step %d: %d stand before request %s of %s, %v; want %d", step, ahead, w.req, owner, ok, i)
			}
		}
		if _, _, _, ok := q.Place([]string{"job"}, owner, "none"); ok {
			t.Fatalf("step %d: a request that does not wait has a place", step)
		}
		got := slices.Collect(q.ownedBy("job", owner))
		if len(got) != len(want) || slices.ContainsFunc(want, func(w *Waiter[string, *string]) bool { return !slices.Contains(got, w) }) {
			t.Fatalf("step %d: %d waiters of %s, want %d", step, len(got), owner, len(want))
		}
		q.mu.Lock()
		if len(line) > 0 {
			q.wakeOwner(line[0], owner)
		}
		q.mu.Unlock()
		for i, w := range line {
			woken := len(w.reenter) > 0
			if woken {
				<-w.reenter
			}
			if woken != (w.owner == owner && i > 0) {
				t.Fatalf("step %d: a waiter of %q is woken for %s: %v", step, w.owner, owner, woken)
			}
		}
	}
}
