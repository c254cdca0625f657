package metrics

import (
	"math/bits"
	"slices"
	"sync/atomic"
	"time"
)

// DefaultFirst is the first bound of a Histogram whose First is 0.
const DefaultFirst = 10 * time.Microsecond

const bounds = 24 // of a Histogram, each twice the one before

// A Histogram counts durations in buckets whose bounds double: 10 µs, 20 µs … 84 s
// unless First says otherwise, and one bucket for anything longer. It is safe for concurrent
// use, never blocks and does not allocate. The zero value is ready.
type Histogram struct {
	First time.Duration // the first bound; 0: DefaultFirst. Set before the first Observe

	counts [bounds + 1]atomic.Int64
	sum    atomic.Int64 // nanoseconds
}

// A Snapshot is what a Histogram has counted.
type Snapshot struct {
	Bounds []float64 // in seconds, rising; inclusive
	Counts []int64   // of each bucket by itself; one more than Bounds, for anything longer
	Sum    float64   // seconds
}

// Observe counts d. A negative one counts as 0.
func (h *Histogram) Observe(d time.Duration) {
	d = max(d, 0)
	h.counts[h.bucket(d)].Add(1)
	h.sum.Add(int64(d))
}

func (h *Histogram) bucket(d time.Duration) int {
	if d == 0 {
		return 0
	}
	return min(bits.Len64(uint64(d-1)/uint64(h.first())), bounds)
}

func (h *Histogram) first() time.Duration {
	if h.First > 0 {
		return h.First
	}
	return DefaultFirst
}

// Snapshot never blocks: an Observe meanwhile may be in Sum and not yet in Counts, or the
// other way round.
func (h *Histogram) Snapshot() Snapshot {
	s := Snapshot{Bounds: make([]float64, bounds), Counts: make([]int64, bounds+1)}
	for i := range s.Bounds {
		s.Bounds[i] = (h.first() << i).Seconds()
	}
	for i := range s.Counts {
		s.Counts[i] = h.counts[i].Load()
	}
	s.Sum = time.Duration(h.sum.Load()).Seconds()
	return s
}

// Count is the number of durations.
func (s Snapshot) Count() (n int64) {
	for _, c := range s.Counts {
		n += c
	}
	return n
}

// Add adds t, of a Histogram with the same bounds. A zero Snapshot becomes t.
func (s *Snapshot) Add(t Snapshot) {
	if s.Counts == nil {
		*s = Snapshot{Bounds: t.Bounds, Counts: make([]int64, len(t.Counts))}
	}
	for i, c := range t.Counts {
		s.Counts[i] += c
	}
	s.Sum += t.Sum
}

// Since is what was counted after t, an earlier Snapshot of the same Histogram, or the zero one.
func (s Snapshot) Since(t Snapshot) Snapshot {
	d := Snapshot{Bounds: s.Bounds, Counts: slices.Clone(s.Counts), Sum: s.Sum - t.Sum}
	for i, c := range t.Counts {
		d.Counts[i] -= c
	}
	return d
}

// Quantile is about the time in seconds under which the part q of the durations is: within their bucket they are taken to
// be spread evenly, and one beyond the last bound counts as that. ok is false if there are none.
func (s Snapshot) Quantile(q float64) (seconds float64, ok bool) {
	wanted, below := q*float64(s.Count()), 0.0
	for i, n := range s.Counts {
		if n > 0 && below+float64(n) >= wanted {
			if i == len(s.Bounds) {
				return s.Bounds[i-1], true
			}
			from := 0.0
			if i > 0 {
				from = s.Bounds[i-1]
			}
			return from + (s.Bounds[i]-from)*(wanted-below)/float64(n), true
		}
		below += float64(n)
	}
	return 0, false
}
