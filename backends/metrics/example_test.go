package metrics_test

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/backends/metrics"
)

// A door counts who goes through it.
type door struct {
	open   atomic.Bool
	passed metrics.Shards[atomic.Int64] // by the visitor's ID
	waited metrics.Histogram
}

// Report declares the door's metrics and reports their values.
func (d *door) Report(r *metrics.Report) {
	r.Bool("door_open", "1 if the door is open, else 0.", d.open.Load())
	for n := range d.passed.All() { // the sum of all shards
		r.Counter("door_passed_total", "Visitors that went through.", n.Load())
	}
	r.Histogram("door_wait_seconds", "How long visitors waited.", &d.waited)
}

func Example() {
	d := &door{}
	d.open.Store(true)
	for id := range uint64(3) {
		d.passed.For(id).Add(1)
		d.waited.Observe(20 * time.Millisecond)
	}
	for _, family := range (metrics.Registry{d}).Gather() {
		for _, s := range family.Samples {
			fmt.Println(family.Kind, family.Name, s.Value, s.Durations.Count())
		}
	}
	// Output:
	// gauge door_open 1 0
	// counter door_passed_total 3 0
	// histogram door_wait_seconds 0 3
}
