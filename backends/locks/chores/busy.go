package chores

import "sync"

// A Busy counts what is under way, by what it is of. Its zero value counts nothing yet. It is safe for concurrent use.
type Busy[K comparable] struct {
	mu sync.Mutex
	n  map[K]int
}

// Begin counts one until end is called.
func (b *Busy[K]) Begin(k K) (end func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.n == nil {
		b.n = map[K]int{}
	}
	b.n[k]++
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.n[k]--; b.n[k] == 0 {
			delete(b.n, k)
		}
	}
}

// Any reports whether one is under way.
func (b *Busy[K]) Any(k K) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.n[k] > 0
}
