package explore

import (
	"fmt"
	"slices"
	"testing"
)

// counter is a model of two counters that a step raises by one, up to three.
func counter(forbidden [2]uint8) Model[[2]uint8, int] {
	return Model[[2]uint8, int]{
		Initial:   make([][2]uint8, 1),
		Canonical: func(s [2]uint8) [2]uint8 { return s },
		Next: func(s *[2]uint8, out func([2]uint8, int, string)) {
			for i := range s {
				t := *s
				if t[i]++; t[i] > 3 {
					continue
				}
				broken := ""
				if t == forbidden {
					broken = "forbidden"
				}
				out(t, i, broken)
			}
		},
		Describe: func(s *[2]uint8, by *int) string {
			if by == nil {
				return fmt.Sprint("start ", *s)
			}
			return fmt.Sprint(*by, " ", *s)
		},
		Count: func(by int) string { return []string{"first", ""}[by] },
	}
}

func TestSearch_Exhausts(t *testing.T) {
	res := Search(counter([2]uint8{9, 9}), 100)
	if !res.Exhausted || res.Broken != "" || res.States != 16 || res.Transitions != 24 || res.Depth != 7 || res.Counts["first"] != 12 {
		t.Errorf("%+v", res)
	}
}

func TestSearch_StopsAtLimit(t *testing.T) {
	if res := Search(counter([2]uint8{3, 3}), 5); res.Exhausted || res.Broken != "" || res.States < 5 {
		t.Errorf("%+v", res)
	}
}

func TestSearch_TracesShortestWay(t *testing.T) {
	res := Search(counter([2]uint8{1, 2}), 100)
	want := []string{"start [0 0]", "0 [1 0]", "1 [1 1]", "1 [1 2]  <== forbidden"}
	if res.Broken != "forbidden" || !slices.Equal(res.Trace, want) {
		t.Errorf("%q, %q", res.Broken, res.Trace)
	}
}

func TestSearch_VisitsOneOfThoseAlike(t *testing.T) {
	m := counter([2]uint8{9, 9})
	m.Canonical = func(s [2]uint8) [2]uint8 { slices.Sort(s[:]); return s }
	if res := Search(m, 100); !res.Exhausted || res.States != 10 {
		t.Errorf("%+v", res)
	}
}

func TestSeen_Grows(t *testing.T) {
	s := newSeen()
	for i := uint64(1); i <= 1<<17; i++ {
		if !s.add(i, i-1) {
			t.Fatalf("%d is not new", i)
		}
	}
	for i := uint64(1); i <= 1<<17; i++ {
		if s.add(i, 0) || s.from[s.find(i)] != i-1 {
			t.Fatalf("%d is lost", i)
		}
	}
}
