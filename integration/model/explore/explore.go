// Package explore visits every state of a model, breadth first, and reports the first
// step that breaks a promise, with a shortest trace that leads to it.
//
// One goroutine, no clock and no randomness; memory is 24 to 48 bytes a state and the
// states of two neighbouring depths.
package explore

import (
	"encoding/binary"
	"fmt"
	"time"
	"unsafe"
)

// A Model is what is searched. S is a state; it has no padding, so its bytes identify
// it. L names a step.
type Model[S, L any] struct {
	Initial   []S
	Canonical func(S) S // the one that stands for all states like it
	// Next calls out with every state one step away. broken names the promise that the
	// step breaks, and is empty for most.
	Next func(s *S, out func(next S, by L, broken string))
	// Describe says in a line of the trace which step led to which state. by is nil at the start.
	Describe func(s *S, by *L) string
	// Count names what a step is counted as; empty: not at all. It may be nil.
	Count func(L) string
}

// StepAndState is a Model.Describe that tells the step, and the state that describe describes.
func StepAndState[S, L any](describe func(*S) string) func(*S, *L) string {
	return func(s *S, by *L) string {
		if by == nil {
			return "start: " + describe(s)
		}
		return fmt.Sprintf("%v: %s", by, describe(s))
	}
}

// A Result is what a search found.
type Result struct {
	States, Transitions, Depth int
	Counts                     map[string]int // of steps, see Model.Count: a search in which too little happened proves nothing
	Exhausted                  bool
	Broken                     string   // the promise that does not hold, empty if all do
	Trace                      []string // the steps to it
}

// Summary is a result in one line.
func (r Result) Summary(took time.Duration) string {
	verdict := "LIMIT reached, nothing broken so far"
	switch {
	case r.Broken != "":
		verdict = "BROKEN " + r.Broken
	case r.Exhausted:
		verdict = "EXHAUSTED, all promises hold"
	}
	return fmt.Sprintf("%s | %d states, %d transitions, depth %d, %v | %v", verdict,
		r.States, r.Transitions, r.Depth, r.Counts, took.Round(time.Millisecond))
}

// seen is a set of state fingerprints, each with its predecessor's.
type seen struct {
	keys, from []uint64
	n          int
}

func newSeen() *seen { return &seen{keys: make([]uint64, 1<<16), from: make([]uint64, 1<<16)} }

func (s *seen) find(key uint64) int {
	mask := uint64(len(s.keys) - 1)
	i := key & mask
	for s.keys[i] != 0 && s.keys[i] != key {
		i = (i + 1) & mask
	}
	return int(i)
}

// add reports whether key is new.
func (s *seen) add(key, from uint64) bool {
	i := s.find(key)
	if s.keys[i] == key {
		return false
	}
	s.keys[i], s.from[i] = key, from
	s.n++
	if s.n*3 > len(s.keys)*2 {
		s.grow()
	}
	return true
}

func (s *seen) grow() {
	old := *s
	s.keys, s.from = make([]uint64, 2*len(old.keys)), make([]uint64, 2*len(old.keys))
	for i, k := range old.keys {
		if k != 0 {
			j := s.find(k)
			s.keys[j], s.from[j] = k, old.from[i]
		}
	}
}

// Bytes is the memory of *p, which must have no padding: for comparing and ordering.
func Bytes[T any](p *T) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(p)), unsafe.Sizeof(*p)) }

// fingerprint is never 0. Two states may share one with probability 2^-64 a pair.
func fingerprint[S any](s *S) uint64 {
	h := uint64(0x9ae16a3b2f90404f)
	b := Bytes(s)
	for ; len(b) >= 8; b = b[8:] {
		h = mix(h, binary.LittleEndian.Uint64(b))
	}
	var rest [8]byte
	copy(rest[:], b)
	return max(mix(h, binary.LittleEndian.Uint64(rest[:])), 1)
}

func mix(h, w uint64) uint64 {
	h = (h ^ w) * 0x9e3779b97f4a7c15
	h ^= h >> 29
	h *= 0xbf58476d1ce4e5b9
	return h ^ h>>32
}

// Search visits at most limit states and stops at the first broken promise.
func Search[S, L any](m Model[S, L], limit int) Result {
	res := Result{Counts: map[string]int{}}
	known := newSeen()
	var layer []S
	for _, s := range m.Initial {
		if s = m.Canonical(s); known.add(fingerprint(&s), 0) {
			layer = append(layer, s)
		}
	}
	for ; len(layer) > 0; res.Depth++ {
		var next []S
		for i := range layer {
			from := fingerprint(&layer[i])
			m.Next(&layer[i], func(t S, by L, broken string) {
				res.Transitions++
				if m.Count != nil {
					if what := m.Count(by); what != "" {
						res.Counts[what]++
					}
				}
				if broken != "" && res.Broken == "" {
					res.Broken = broken
					res.Trace = append(m.replay(known, from), m.Describe(&t, &by)+"  <== "+broken)
				}
				t = m.Canonical(t)
				if known.add(fingerprint(&t), from) {
					next = append(next, t)
				}
			})
			res.States = known.n
			if res.Broken != "" || known.n > limit {
				return res
			}
		}
		layer = next
	}
	res.Exhausted = true
	return res
}

// replay walks from the start to the state with that fingerprint and describes each step.
func (m Model[S, L]) replay(known *seen, target uint64) []string {
	var path []uint64
	for key := target; key != 0; key = known.from[known.find(key)] {
		path = append(path, key)
	}
	var cur S
	for _, s := range m.Initial {
		if s = m.Canonical(s); fingerprint(&s) == path[len(path)-1] {
			cur = s
		}
	}
	lines := []string{m.Describe(&cur, nil)}
	for i := len(path) - 2; i >= 0; i-- {
		found := false
		from := cur
		m.Next(&from, func(t S, by L, _ string) {
			canon := m.Canonical(t)
			if !found && fingerprint(&canon) == path[i] {
				found, cur = true, canon
				lines = append(lines, m.Describe(&cur, &by))
			}
		})
	}
	return lines
}
