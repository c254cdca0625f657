package metrics

import "iter"

// shards is how many goroutines can count without waiting for each other's memory.
const shards = 16

// Shards spreads counters, fields of a T, so that goroutines which count the same do not wait for
// each other's memory. A T is counted in for good: what is reported is the sum.
type Shards[T any] [shards]struct {
	counters T
	_        [64]byte // what follows is another's
}

// For is the shard of the session with an id.
func (s *Shards[T]) For(id uint64) *T { return &s[id%shards].counters }

// All are all shards.
func (s *Shards[T]) All() iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for i := range s {
			if !yield(&s[i].counters) {
				return
			}
		}
	}
}
