package locks

import (
	"context"
	"sync/atomic"
	"time"
)

var (
	loaded  = time.Now()
	started = bootTime()
	clock   = bootClock{now: wallAndAwake, boot: bootTime}
)

// SinceStart is the time since the program started. Time in which this machine was suspended counts, since leases
// go on running on the masters. It may be 100 µs off, and is safe for concurrent use.
func SinceStart() time.Duration { return clock.read() - started }

const (
	bootAgain = 100 * time.Millisecond // boot is read again after so long
	wallMoved = time.Millisecond       // and when the wall clock has moved by so much, against the time that passed
	bootTook  = 100 * time.Microsecond // a reading of boot that took longer is not counted from
)

// A bootClock tells what boot is, which is a system call, mostly from what has passed since it was read, which takes none. What passes
// while the machine is suspended is not seen there. But the kernel adds it to the wall clock in the same step as to boot; so where
// the wall clock has gone on as far, the machine was not suspended.
type bootClock struct {
	now  func() (wall, awake time.Duration)
	boot func() time.Duration
	last atomic.Pointer[bootReading]
}

// A bootReading is what the three clocks were at one time.
type bootReading struct{ wall, awake, boot time.Duration }

func (c *bootClock) read() time.Duration {
	wall, awake := c.now()
	if l := c.last.Load(); l != nil {
		passed := awake - l.awake
		if passed >= 0 && passed < bootAgain && (wall-l.wall-passed).Abs() < wallMoved {
			return l.boot + passed
		}
	}
	boot := c.boot()
	if _, after := c.now(); after-awake < bootTook {
		c.last.Store(&bootReading{wall, awake, boot})
	}
	return boot
}

func wallAndAwake() (wall, awake time.Duration) {
	now := time.Now()
	return time.Duration(now.UnixNano()), now.Sub(loaded)
}

// awakeTime stands still while the machine sleeps.
func awakeTime() time.Duration { return time.Since(loaded) }

// Sleep waits for d, or returns the error of ctx when that ends before.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Drift is by how much a lease of d may be shorter on a master than here: clock rates
// differ by up to 1 %, and times are rounded.
func Drift(d time.Duration) time.Duration { return d/100 + 2*time.Millisecond }
