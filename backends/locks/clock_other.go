//go:build !linux

package locks

import "time"

// bootTime is 0: this system's monotonic clock has to do.
func bootTime() time.Duration { return 0 }
