package locks

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootTime is the time since the machine booted, with the time it was suspended, or awakeTime where a sandbox
// does not have that clock.
func bootTime() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return awakeTime()
	}
	return time.Duration(ts.Nano())
}
