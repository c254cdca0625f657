package locks

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootTime is CLOCK_BOOTTIME, or 0 where the kernel does not have it.
func bootTime() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
