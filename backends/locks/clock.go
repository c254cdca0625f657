package locks

import (
	"context"
	"time"
)

var (
	loaded  = time.Now()
	started = bootTime()
)

// SinceStart is the time since the program started. Time in which this machine was suspended counts, since leases
// go on running on the masters.
func SinceStart() time.Duration { return bootTime() - started }

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
