package waitq

import (
	"fmt"
	"testing"
)

// BenchmarkTurn is a turn in a line: the head asks, gets the key, leaves, and joins again at the end. It costs the same in a
// line of any length.
func BenchmarkTurn(b *testing.B) {
	for _, n := range []int{10, 1000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			q := still(n)
			line := make([]*Waiter[string, *string], n)
			owners := make([]string, n)
			join := func(i int) {
				w, err := q.Join([]string{"job"}, owners[i], "1", Alone, nil)
				if err != nil {
					b.Fatal(err)
				}
				line[i] = w
			}
			for i := range line {
				owners[i] = fmt.Sprint("owner-", i)
				join(i)
			}
			for i := 0; b.Loop(); i = (i + 1) % n {
				w := line[i]
				q.Ask(w)
				q.Asked(w, Known{Asked: true, Fresh: true, Holder: owners[i], Fence: 7, Until: 2 * at})
				q.Leave(w, true)
				join(i)
				if _, ahead, _, ok := q.Place([]string{"job"}, owners[i], "1"); !ok || ahead != n-1 {
					b.Fatal(ahead, ok)
				}
			}
		})
	}
}

// BenchmarkReturn is a waiter that leaves unserved and comes back to its place, each in a line in turn.
func BenchmarkReturn(b *testing.B) {
	for _, n := range []int{10, 1000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			q := still(n)
			line := make([]*Waiter[string, *string], n)
			join := func(i int) {
				w, err := q.Join([]string{"job"}, fmt.Sprint("owner-", i), "1", Alone, nil)
				if err != nil {
					b.Fatal(err)
				}
				line[i] = w
			}
			for i := range line {
				join(i)
			}
			for i := 0; b.Loop(); i = (i + 7919) % n {
				q.Leave(line[i], false)
				join(i)
			}
		})
	}
}
