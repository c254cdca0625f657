package metrics

import (
	"reflect"
	"sync/atomic"
	"testing"
	"time"
)

type reporter func(*Report)

func (f reporter) Report(to *Report) { f(to) }

func TestRegistry_Gather(t *testing.T) {
	ends := make([]atomic.Int64, 2)
	ends[1].Add(5)
	var took Histogram
	took.Observe(time.Second)
	first := reporter(func(r *Report) {
		r.Gauge("clients", "Now.", 7)
		r.Counters("ends", "Ends.", "why", []string{"quit", "idle"}, ends, "of", "clients")
		r.Histogram("took", "Time.", &took)
	})
	second := reporter(func(r *Report) {
		r.Counter("ends", "Ends.", 2, "of", "clients", "why", "idle")
		r.Bool("up", "Up.", true, "node", "a")
		r.Bool("up", "Up.", false, "node", "b")
		r.Histogram("took", "Time.", &took)
	})
	all := Registry{first, second}
	var got []string
	for _, f := range all.Gather() {
		got = append(got, f.Name+" "+string(f.Kind))
	}
	if want := []string{"clients gauge", "ends counter", "took histogram", "up gauge"}; !reflect.DeepEqual(got, want) {
		t.Errorf("families %q, want %q", got, want)
	}
	for _, tt := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"clients", nil, 7},
		{"ends", []string{"of", "clients", "why", "quit"}, 0},
		{"ends", []string{"of", "clients", "why", "idle"}, 7},
		{"up", []string{"node", "a"}, 1},
		{"up", []string{"node", "b"}, 0},
	} {
		if s := all.Sample(tt.name, tt.labels...); s == nil || s.Value != tt.want {
			t.Errorf("%s%q: %+v, want %v", tt.name, tt.labels, s, tt.want)
		}
	}
	if s := all.Sample("took"); s.Durations.Count() != 2 || s.Durations.Sum != 2 {
		t.Errorf("a histogram reported twice: %+v", s.Durations)
	}
	if s := all.Sample("up", "node", "c"); s != nil {
		t.Errorf("a sample of nothing: %+v", s)
	}
	if f := all.Gather()[1]; !reflect.DeepEqual(f.Labels, []string{"of", "why"}) || !reflect.DeepEqual(f.Samples[1].Labels, []string{"clients", "idle"}) {
		t.Errorf("labels %q, of the second sample %q", f.Labels, f.Samples[1].Labels)
	}
}

func TestReport_TwoDeclarationsAreTwoFamilies(t *testing.T) {
	var r Report
	r.Counter("a", "One thing.", 1)
	r.Counter("a", "Another thing.", 1)
	r.Counter("a", "One thing.", 1, "of", "b")
	if len(r.families) != 3 {
		t.Errorf("%d families", len(r.families))
	}
}

func TestShards_SpreadAndSum(t *testing.T) {
	var s Shards[atomic.Int64]
	for id := range uint64(2 * shards) {
		s.For(id).Add(1)
	}
	sum, n := int64(0), 0
	for c := range s.All() {
		sum += c.Load()
		n++
	}
	if n != shards || sum != 2*shards || s.For(1) == s.For(2) {
		t.Errorf("%d counted in %d shards", sum, n)
	}
}
