package locks

import (
	"crypto/rand"
	mathrand "math/rand/v2"
	"time"
)

// A randSource is where random values come from. The zero value is ready; tests replace it, so that a run can
// be repeated. It is safe for concurrent use.
type randSource struct {
	newText func() string       // nil: rand.Text
	below   func(d int64) int64 // nil: math/rand's Int64N
}

// id is a new id, which nobody else has.
func (c *randSource) id() string {
	if c.newText != nil {
		return c.newText()
	}
	return rand.Text()
}

// upTo is at least 0 and less than d.
func (c *randSource) upTo(d time.Duration) time.Duration {
	if c.below != nil {
		return time.Duration(c.below(int64(d)))
	}
	return time.Duration(mathrand.Int64N(int64(d)))
}
