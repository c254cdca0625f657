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

// TestBootClock: boot is what it would be if it were read each time, but is read seldom while the machine is awake.
func TestBootClock(t *testing.T) {
	wall, awake, boot := 1000*time.Hour, time.Hour, 2*time.Hour
	var slow time.Duration // how long a reading takes
	reads := 0
	c := bootClock{now: func() (time.Duration, time.Duration) { return wall, awake }}
	pass := func(d time.Duration) { wall, awake, boot = wall+d, awake+d, boot+d }
	c.boot = func() time.Duration {
		reads++
		pass(slow)
		return boot
	}
	for _, step := range []struct {
		what     string
		before   func()
		wantRead bool
	}{
		{"first", func() {}, true},
		{"at once", func() {}, false},
		{"while it is awake", func() { pass(99 * time.Millisecond) }, false},
		{"after a while", func() { pass(time.Millisecond) }, true},
		{"after a suspend", func() { wall, boot = wall+time.Minute, boot+time.Minute }, true},
		{"awake again", func() { pass(time.Millisecond) }, false},
		{"after a short suspend", func() { wall, boot = wall+time.Millisecond, boot+time.Millisecond }, true},
		{"the wall clock was set back", func() { wall -= time.Hour }, true},
		{"it goes on from there", func() { pass(time.Millisecond) }, false},
		{"a reading that took long", func() { pass(bootAgain); slow = bootTook }, true},
		{"is not counted from", func() { slow = 0 }, true},
		{"but the next one is", func() { pass(time.Millisecond) }, false},
	} {
		step.before()
		before := reads
		if got := c.read(); got != boot || (reads > before) != step.wantRead {
			t.Errorf("%s: %v, want %v; boot was read: %v", step.what, got, boot, reads > before)
		}
	}
}

func BenchmarkSinceStart(b *testing.B) {
	for b.Loop() {
		SinceStart()
	}
}
