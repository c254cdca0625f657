package locks

import (
	"testing"
	"time"
)

// TestSinceStart: the clock goes at the rate of the monotonic clock while the machine is awake.
func TestSinceStart(t *testing.T) {
	before, began := SinceStart(), time.Now()
	time.Sleep(20 * time.Millisecond)
	got, want := SinceStart()-before, time.Since(began)
	if got < 20*time.Millisecond || (got-want).Abs() > time.Second {
		t.Errorf("%v have passed, and not %v", got, want)
	}
}

func BenchmarkSinceStart(b *testing.B) {
	for b.Loop() {
		SinceStart()
	}
}
