// Package metrics answers how often something happens and how long it takes.
//
// A metric is declared once, in the Report method of the type that counts: name, help, kind,
// labels and value in one call. A [Registry] lists these types, and gathers their metrics for
// whoever exposes them. The package imports nothing of ours, so that every package may count.
//
// Counters are atomic.Int64, [Histogram] and [Errors], spread over [Shards] where many
// goroutines count the same. Counting looks up nothing by name and does not allocate; both
// happen when metrics are gathered.
package metrics

import (
	"slices"
	"strings"
	"sync/atomic"
)

// A Reporter has metrics. Report is called for each scrape; it is safe for concurrent use and
// does no I/O.
type Reporter interface{ Report(*Report) }

// A Registry is everything in a program that has metrics.
type Registry []Reporter

// Gather collects all metrics. Families and their samples are in the order of their first
// report.
func (r Registry) Gather() []*Family {
	var to Report
	for _, each := range r {
		each.Report(&to)
	}
	return to.families
}

// Sample is the sample with a family's name and labels, which are names and values in turn; nil
// if there is none. It gathers everything, and is meant for tests.
func (r Registry) Sample(name string, labels ...string) *Sample {
	for _, f := range r.Gather() {
		if s := f.byLabels[key(labels)]; f.Name == name && s != nil {
			return s
		}
	}
	return nil
}

func key(labels []string) string { return strings.Join(labels, "\xff") }

// A Kind is what a metric's values mean.
type Kind string

const (
	KindCounter   Kind = "counter"   // only grows
	KindGauge     Kind = "gauge"     // what is now
	KindHistogram Kind = "histogram" // durations
)

// A Family is a metric with all its samples.
type Family struct {
	Name, Help string
	Kind       Kind
	Labels     []string // names
	Samples    []*Sample

	byLabels map[string]*Sample
}

// A Sample is one value of a metric.
type Sample struct {
	Labels    []string // values, in the order of the family's names
	Value     float64
	Durations Snapshot // instead of Value, of a histogram
}

// A Report collects the metrics of one scrape. The zero value is ready. It is not safe for
// concurrent use.
//
// The methods take labels as names and values in turn. A family's help and label names must be
// the same wherever it is reported. A counter or a histogram that is reported again with the
// same labels, for each shard, is the sum of all reports.
type Report struct {
	families []*Family
	byID     map[familyID]*Family
}

// A familyID is a family's declaration. Two declarations of one name make two families, which
// whoever exposes them refuses.
type familyID struct{ name, help, labels string }

// sample is where the value with these labels belongs.
func (r *Report) sample(kind Kind, name, help string, labels []string) *Sample {
	var names, values []string
	for i := 0; i+1 < len(labels); i += 2 {
		names, values = append(names, labels[i]), append(values, labels[i+1])
	}
	id := familyID{name, help, key(names)}
	f := r.byID[id]
	if f == nil {
		f = &Family{Name: name, Help: help, Kind: kind, Labels: names, byLabels: map[string]*Sample{}}
		if r.byID == nil {
			r.byID = map[familyID]*Family{}
		}
		r.byID[id], r.families = f, append(r.families, f)
	}
	k := key(labels)
	s := f.byLabels[k]
	if s == nil {
		s = &Sample{Labels: values}
		f.byLabels[k], f.Samples = s, append(f.Samples, s)
	}
	return s
}

// Counter reports a number that only grows.
func (r *Report) Counter(name, help string, n int64, labels ...string) {
	r.sample(KindCounter, name, help, labels).Value += float64(n)
}

// Counters reports a counter for each value of label, behind the other labels.
func (r *Report) Counters(name, help, label string, values []string, counts []atomic.Int64, labels ...string) {
	for i, value := range values {
		r.Counter(name, help, counts[i].Load(), append(slices.Clip(labels), label, value)...)
	}
}

// Errors reports a counter for each first word of errors, as label "error".
func (r *Report) Errors(name, help string, e *Errors) {
	r.Counters(name, help, "error", words[:], e.counts[:])
}

// Gauge reports what is now.
func (r *Report) Gauge(name, help string, value float64, labels ...string) {
	r.sample(KindGauge, name, help, labels).Value = value
}

// Bool reports a gauge that is 1 if yes, else 0.
func (r *Report) Bool(name, help string, yes bool, labels ...string) {
	value := 0.0
	if yes {
		value = 1
	}
	r.Gauge(name, help, value, labels...)
}

// Histogram reports durations.
func (r *Report) Histogram(name, help string, h *Histogram, labels ...string) {
	r.sample(KindHistogram, name, help, labels).Durations.Add(h.Snapshot())
}
