package locks

import (
	"crypto/rand"
	mathrand "math/rand/v2"
	"time"
)

// A RandSource is where random values come from. The zero value is ready; tests replace it, so that a run can
// be repeated. It is safe for concurrent use.
type RandSource struct {
	NewText func() string       // nil: rand.Text
	Below   func(d int64) int64 // nil: math/rand's Int64N
}

// ID returns a new unique id.
func (c *RandSource) ID() string {
	if c.NewText != nil {
		return c.NewText()
	}
	return rand.Text()
}

// Int returns a random number of at least 0 and less than n.
func (c *RandSource) Int(n int) int { return int(c.UpTo(time.Duration(n))) }

// UpTo returns a random duration of at least 0 and less than d.
func (c *RandSource) UpTo(d time.Duration) time.Duration {
	if c.Below != nil {
		return time.Duration(c.Below(int64(d)))
	}
	return time.Duration(mathrand.Int64N(int64(d)))
}
