//go:build !linux

package locks

import "time"

// bootTime is awakeTime: this system's monotonic clock has to do.
func bootTime() time.Duration { return awakeTime() }
