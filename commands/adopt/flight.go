package adopt

import (
	"context"
	"errors"
	"sync"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// A flight is one acquisition, for the call that leads it and those that share its answer: had they asked the
// nodes as well, all but one would have been refused, and perhaps all.
type flight struct {
	done    chan struct{}
	granted bool
	after   guess // what the key is then: the leader's grant, or who has it
	err     error
}

// flights are the acquisitions under way, by key: one that asks, and one that is next. A call that comes while
// one asks waits for the next, whatever becomes of the first: the nodes may have voted before the call came, and
// what they granted may have been given back since. The zero value is ready.
type flights struct {
	mu    sync.Mutex
	lanes map[locks.Key]*lane
}

type lane struct{ asking, next *flight }

// do has one of the calls that come together ask. leads reports whether it was this one: then f has been filled
// by ask. Otherwise it is the answer to share.
func (f *flights) do(ctx context.Context, key locks.Key, ask func(*flight)) (fl *flight, leads bool, err error) {
	f.mu.Lock()
	l := f.lanes[key]
	switch {
	case l == nil:
		if f.lanes == nil {
			f.lanes = map[locks.Key]*lane{}
		}
		fl = &flight{done: make(chan struct{})}
		f.lanes[key] = &lane{asking: fl}
		f.mu.Unlock()
	case l.next == nil:
		before := l.asking
		fl = &flight{done: make(chan struct{})}
		l.next = fl
		f.mu.Unlock()
		select {
		case <-before.done:
		case <-ctx.Done():
			fl.err = ctx.Err()
			f.finish(key, fl)
			return fl, true, ctx.Err()
		}
	default:
		fl = l.next
		f.mu.Unlock()
		select {
		case <-fl.done:
			return fl, false, nil
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
	ask(fl)
	f.finish(key, fl)
	return fl, true, nil
}

// finish ends a flight, and lets the next one ask.
func (f *flights) finish(key locks.Key, fl *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch l := f.lanes[key]; fl {
	case l.asking:
		if l.asking, l.next = l.next, nil; l.asking == nil {
			delete(f.lanes, key)
		}
	case l.next: // it ends before it has asked
		l.next = nil
	}
	close(fl.done)
}

// shared is the error of a flight for a call that shares it: nil, if only its leader has left.
func (fl *flight) shared() error {
	if errors.Is(fl.err, context.Canceled) || errors.Is(fl.err, context.DeadlineExceeded) {
		return nil
	}
	return fl.err
}
