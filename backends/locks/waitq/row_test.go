package waitq

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestRow_LongLine: a line of several parts has its waiters where a plain list would have them, whoever leaves and comes
// back, at the front too, where a head may be asking.
func TestRow_LongLine(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	q := still(10_000)
	var want []*Waiter[string, *string]
	var away []string // owners that may come back
	arrivals, parts := 0, 0
	for step := range 20_000 {
		switch growing := step%8000 < 4000; {
		case len(want) > 0 && r.IntN(10) == 0:
			if head := want[0]; head.asking {
				q.Asked(head, Known{Asked: true, Holder: "holder", Until: 2 * at})
				want = want[1:]
				want = slices.Insert(want, placeIn(want, head.number, false), head)
			} else {
				q.Ask(head)
			}
		case len(want) > 0 && (r.IntN(10) < 3 || !growing && r.IntN(10) < 8):
			i := r.IntN(len(want))
			if r.IntN(3) == 0 {
				i = 0
			}
			served := r.IntN(4) == 0
			if !served {
				away = append(away, want[i].owner)
			}
			q.Leave(want[i], served)
			want = slices.Delete(want, i, i+1)
		default:
			owner := fmt.Sprint(arrivals)
			if arrivals++; len(away) > 0 && (r.IntN(2) == 0 || !growing) {
				i := r.IntN(len(away))
				owner = away[i]
				away = slices.Delete(away, i, i+1)
			}
			asks := len(want) > 0 && want[0].asking
			w, err := q.Join([]string{"job"}, owner, "1", Alone, nil)
			if err != nil {
				t.Fatal(err)
			}
			want = slices.Insert(want, placeIn(want, w.number, asks), w)
		}
		if step%50 == 0 {
			checkRow(t, q, want, step)
		}
		if len(want) > 0 {
			parts = max(parts, len(q.lines["job"].waiters.parts))
		}
	}
	if parts < 5 {
		t.Errorf("the line had %d parts at most", parts)
	}
	for len(want) > 0 {
		i := r.IntN(len(want))
		q.Leave(want[i], true)
		want = slices.Delete(want, i, i+1)
	}
	checkRow(t, q, want, -1)
}

// placeIn is where a waiter with a number stands in a line.
func placeIn(line []*Waiter[string, *string], number uint64, headAsks bool) int {
	i := len(line)
	for i > 0 && line[i-1].number > number {
		i--
	}
	if i == 0 && headAsks {
		return 1
	}
	return i
}

func checkRow(t *testing.T, q *Queues[string, *string], want []*Waiter[string, *string], step int) {
	t.Helper()
	if len(want) == 0 {
		if q.Total() != 0 || len(q.lines) != 0 {
			t.Fatalf("step %d: %d are left", step, q.Total())
		}
		return
	}
	row := &q.lines["job"].waiters
	if got := slices.Collect(row.all()); !slices.Equal(got, want) || row.n != len(want) || row.front() != want[0] || !isHead(want[0]) {
		t.Fatalf("step %d: the line of %d is not as it should be, of %d", step, len(got), len(want))
	}
	for i := 0; i < len(want); i += 1 + len(want)/20 {
		if got := row.ahead(want[i]); got != i {
			t.Fatalf("step %d: %d are ahead of one at %d", step, got, i)
		}
	}
	for _, p := range row.parts {
		if len(p.spots) == 0 || len(p.spots) > longestPart || p.least == 0 {
			t.Fatalf("step %d: a part of %d from %d on", step, len(p.spots), p.least)
		}
	}
}

// TestRow_EverySpot: a waiter gets its spot among parts that are full, wherever that is.
func TestRow_EverySpot(t *testing.T) {
	for _, n := range []int{2 * longestPart, 2*longestPart + 10} {
		for spot := range n + 1 {
			checkSpot(t, n, spot)
		}
	}
}

func checkSpot(t *testing.T, n, spot int) {
	t.Helper()
	var r row[string, *string]
	var want []*Waiter[string, *string]
	put := func(i int, number uint64) {
		w := &Waiter[string, *string]{number: number}
		at, in, _ := r.behind(number)
		r.insert(at, in, w)
		want = slices.Insert(want, i, w)
	}
	for i := range n {
		put(i, uint64(2*i+2))
	}
	put(spot, uint64(2*spot+1))
	if got := slices.Collect(r.all()); !slices.Equal(got, want) || r.n != n+1 {
		t.Fatalf("of %d the one at %d is at %d", n, spot, slices.Index(got, want[spot]))
	}
	if got := r.ahead(want[spot]); got != spot {
		t.Fatalf("of %d %d are ahead of the one at %d", n, got, spot)
	}
}
