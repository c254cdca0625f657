package locks

import "time"

var (
	loaded  = time.Now()
	started = bootTime()
)

// SinceStart is the time since the program started, what the machine slept included: a lease ends on
// the masters while this machine is suspended.
func SinceStart() time.Duration { return bootTime() - started }

// awakeTime stands still while the machine sleeps.
func awakeTime() time.Duration { return time.Since(loaded) }

// Drift is what a lease of d may be shorter on a master than here: clock rates
// that differ by up to 1 %, and rounding.
func Drift(d time.Duration) time.Duration { return d/100 + 2*time.Millisecond }
