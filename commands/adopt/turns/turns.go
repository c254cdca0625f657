// Package turns is a mutex for each key, for which callers wait no longer than their context allows.
package turns

import (
	"context"
	"sync"
)

// Turns are the mutexes of the keys in use. The zero value is ready, and safe for concurrent use.
type Turns[K comparable] struct {
	mu    sync.Mutex
	taken map[K]*turn
}

type turn struct {
	free  chan struct{} // holds a token while nobody has the turn
	users int
}

// Take waits for the turn of a key, to be given back by done. waited reports whether another had it. The error is that of ctx.
func (t *Turns[K]) Take(ctx context.Context, key K) (waited bool, done func(), err error) {
	t.mu.Lock()
	if t.taken == nil {
		t.taken = map[K]*turn{}
	}
	one := t.taken[key]
	if waited = one != nil; !waited {
		one = &turn{free: make(chan struct{}, 1)}
		one.free <- struct{}{}
		t.taken[key] = one
	}
	one.users++
	t.mu.Unlock()
	left := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if one.users--; one.users == 0 {
			delete(t.taken, key)
		}
	}
	select {
	case <-one.free:
		return waited, func() { one.free <- struct{}{}; left() }, nil
	case <-ctx.Done():
		left()
		return waited, nil, ctx.Err()
	}
}
