package locks

import (
	"testing"
	"time"
)

// TestSleepIsReadWhenTheClocksPart: what the machine slept is read again as soon as the
// wall clock is elsewhere than it was, and only then.
func TestSleepIsReadWhenTheClocksPart(t *testing.T) {
	sinceStart()
	remembered := false
	for range 100 { // a pause between its two clocks makes it read the sleep for nothing
		rest.slept.Store(int64(time.Hour))
		if remembered = sinceStart() > time.Since(began)+time.Minute; remembered {
			break
		}
	}
	if !remembered {
		t.Error("it reads what it knows")
	}
	rest.apart.Add(int64(time.Second)) // as after a second of sleep
	got, want := sinceStart(), time.Since(began)+max(0, bootAhead()-bootBegan)
	if (got - want).Abs() > 20*time.Second {
		t.Errorf("it is %v and not %v: what it slept is not read", got, want)
	}
}

func BenchmarkSinceStart(b *testing.B) {
	for b.Loop() {
		sinceStart()
	}
}
