package metrics

import (
	"math"
	"sync"
	"testing"
	"time"
)

func TestHistogram_Buckets(t *testing.T) {
	var h Histogram
	slow := Histogram{First: time.Millisecond}
	tests := []struct {
		h    *Histogram
		took time.Duration
		want int
	}{
		{&h, -time.Second, 0},
		{&h, 0, 0},
		{&h, 1, 0},
		{&h, 10 * time.Microsecond, 0},
		{&h, 10*time.Microsecond + 1, 1},
		{&h, 20 * time.Microsecond, 1},
		{&h, 20*time.Microsecond + 1, 2},
		{&h, time.Second, 17},
		{&h, DefaultFirst << (bounds - 1), bounds - 1},
		{&h, DefaultFirst<<(bounds-1) + 1, bounds},
		{&h, math.MaxInt64, bounds},
		{&slow, 10 * time.Microsecond, 0},
		{&slow, time.Hour, 22},
	}
	for _, tt := range tests {
		before := tt.h.Snapshot()
		tt.h.Observe(tt.took)
		got := tt.h.Snapshot()
		for i := range got.Counts {
			if more := got.Counts[i] - before.Counts[i]; (more == 1) != (i == tt.want) {
				t.Errorf("%v from %v: %d more in bucket %d, want it in %d", tt.took, tt.h.first(), more, i, tt.want)
			}
		}
		within := tt.want == bounds || tt.took.Seconds() <= got.Bounds[tt.want]
		if beyond := tt.want == 0 || tt.took.Seconds() > got.Bounds[tt.want-1]; !within || !beyond {
			t.Errorf("%v is not between the bounds of bucket %d of %v", tt.took, tt.want, got.Bounds)
		}
	}
}

func TestHistogram_ConcurrentAndSummed(t *testing.T) {
	var h Histogram
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 500 {
				h.Observe(time.Millisecond)
				h.Observe(time.Second)
			}
		})
	}
	wg.Wait()
	var both Snapshot
	both.Add(h.Snapshot())
	both.Add(h.Snapshot())
	if got := both.Count(); got != 8000 {
		t.Errorf("counted %d, want 8000", got)
	}
	if math.Abs(both.Sum-4004) > 1e-6 {
		t.Errorf("sum %v, want 4004", both.Sum)
	}
	if got := h.Snapshot().Count(); got != 4000 {
		t.Errorf("adding changed the histogram: it has %d", got)
	}
}

func TestSnapshot_QuantileSince(t *testing.T) {
	var h Histogram
	if _, ok := h.Snapshot().Quantile(0.5); ok {
		t.Error("there is a quantile of nothing")
	}
	h.Observe(time.Hour)
	before := h.Snapshot()
	if got, ok := before.Quantile(0.99); !ok || math.Abs(got-before.Bounds[bounds-1]) > 1e-9 {
		t.Errorf("of an hour %v, %v, want the last bound", got, ok)
	}
	for range 98 {
		h.Observe(15 * time.Microsecond) // over 10, up to 20
	}
	for range 2 {
		h.Observe(30 * time.Millisecond) // over 20.48, up to 40.96
	}
	since := h.Snapshot().Since(before)
	if n := since.Count(); n != 100 || before.Count() != 1 {
		t.Errorf("%d since, and %d before", n, before.Count())
	}
	for q, want := range map[float64]float64{0.49: 15e-6, 0.98: 20e-6, 0.99: 30.72e-3, 1: 40.96e-3} {
		if got, ok := since.Quantile(q); !ok || math.Abs(got-want) > 1e-9 {
			t.Errorf("%v: %v, %v, want %v", q, got, ok, want)
		}
	}
}

func TestHistogram_ObserveDoesNotAllocate(t *testing.T) {
	var h Histogram
	if n := testing.AllocsPerRun(100, func() { h.Observe(time.Millisecond) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkObserve(b *testing.B) {
	var h Histogram
	for b.Loop() {
		h.Observe(time.Millisecond)
	}
}
