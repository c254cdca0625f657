// Package turns has callers wait for each other: by a mutex for each key, for which they wait no longer than their context
// allows, and for several calls at once.
package turns

import (
	"cmp"
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

// Each calls f for 0 to n-1, up to most at a time, and returns the first error.
func Each(n, most int, f func(i int) error) error {
	errs, next := make([]error, n), make(chan int, n)
	for i := range n {
		next <- i
	}
	close(next)
	var working sync.WaitGroup
	for range min(most, n) {
		working.Go(func() {
			for i := range next {
				errs[i] = f(i)
			}
		})
	}
	working.Wait()
	return cmp.Or(errs...)
}
