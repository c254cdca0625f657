package locks

import "time"

// began and bootBegan are the zero of sinceStart.
var (
	began     = time.Now()
	bootBegan = bootTime()
)

// sinceStart is the time that passed since the program started, by the larger of
// the monotonic clock and the one that also runs while the machine sleeps: a
// lease ends on the masters while this machine is suspended.
func sinceStart() time.Duration {
	return max(time.Since(began), bootTime()-bootBegan)
}

// drift is what a lease of d may be shorter on a master than here: clock rates
// that differ by up to 1 %, and rounding.
func drift(d time.Duration) time.Duration { return d/100 + 2*time.Millisecond }
