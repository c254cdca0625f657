package inflight

import (
	"sync"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// Changes are the changes under way at this proxy that may take a grant from its owner. While one is, a renewal that finds
// no grant does not know who took it. The zero value is ready; all methods are safe for concurrent use.
type Changes struct {
	mu sync.Mutex
	n  map[locks.Key]int
}

// Begin counts a change of a name until end is called.
func (c *Changes) Begin(k locks.Key) (end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[locks.Key]int{}
	}
	c.n[k]++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.n[k]--; c.n[k] == 0 {
			delete(c.n, k)
		}
	}
}

// Any reports whether a change of the name is under way.
func (c *Changes) Any(k locks.Key) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[k] > 0
}
