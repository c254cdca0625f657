package locks

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// began is the zero of sinceStart, bootBegan how far the clock that counts sleep was
// ahead of the monotonic one then.
var (
	began     = time.Now()
	bootBegan = bootAhead()
)

// rest is how long the machine has slept since then, in nanoseconds, and how far the wall
// clock had moved from the monotonic one when that was read.
var rest struct {
	apart, slept atomic.Int64
	mu           sync.Mutex // for writing both
}

// Clocks that are read one after the other are never quite in step; what is less than
// this apart did not move. It is small beside the fixed part of drift.
const inStep = 500 * time.Microsecond

// sinceStart is the time that passed since the program started, on the monotonic clock
// and while the machine slept: a lease ends on the masters while this one is suspended.
//
// The clock that counts sleep costs a system call, the two others none. Linux adds the
// time slept to that clock and to the wall clock alike, so while the wall clock keeps
// its distance from the monotonic one, there is nothing new to read; when somebody sets
// the wall clock, it is read once for nothing. Any number of goroutines may call it.
func sinceStart() time.Duration {
	now := time.Now()
	awake := now.Sub(began)
	apart := time.Duration(now.UnixNano()-began.UnixNano()) - awake
	if (apart - time.Duration(rest.apart.Load())).Abs() > inStep {
		readSleep(apart)
	}
	return awake + time.Duration(rest.slept.Load())
}

// readSleep notes how long the machine has slept, and apart as the distance at which
// that is known.
func readSleep(apart time.Duration) {
	rest.mu.Lock()
	defer rest.mu.Unlock()
	slept := max(0, bootAhead()-bootBegan)
	if (slept - time.Duration(rest.slept.Load())).Abs() > inStep {
		rest.slept.Store(int64(slept))
	}
	rest.apart.Store(int64(apart))
}

// bootAhead is how far the clock that counts sleep is ahead of the monotonic one, as of
// began: read between two readings of that, which are close together if this goroutine
// was not held up, and tried again if it was.
func bootAhead() time.Duration {
	closest, ahead := time.Duration(math.MaxInt64), time.Duration(0)
	for range 10 {
		before := time.Since(began)
		boot := bootTime()
		took := time.Since(began) - before
		if took < closest {
			closest, ahead = took, boot-before-took/2
		}
		if took < inStep/10 {
			break
		}
	}
	return ahead
}

// drift is what a lease of d may be shorter on a master than here: clock rates
// that differ by up to 1 %, and rounding.
func drift(d time.Duration) time.Duration { return d/100 + 2*time.Millisecond }
