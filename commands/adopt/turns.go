package adopt

import (
	"context"
	"sync"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// turns let the calls of this proxy that replace one lock go one after the other: if several asked the nodes at once,
// each might get some of them, and the lock be gone. The zero turns is ready, and safe for concurrent use.
type turns struct {
	mu    sync.Mutex
	taken map[locks.Key]*turn
}

type turn struct {
	free  chan struct{} // holds one while it is nobody's
	users int
}

// take waits for the turn of a key, to be given back by done. waited reports whether another had it.
func (t *turns) take(ctx context.Context, key locks.Key) (waited bool, done func(), err error) {
	t.mu.Lock()
	if t.taken == nil {
		t.taken = map[locks.Key]*turn{}
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
