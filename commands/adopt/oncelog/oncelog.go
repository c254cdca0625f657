// Package oncelog limits how often lines of one kind are logged: once a minute.
package oncelog

import (
	"sync"
	"time"
)

// every is how often lines of one kind are logged.
const every = time.Minute

// maxKinds is how many kinds are told apart. What comes after them is one kind for each pattern.
const maxKinds = 1000

// A Limiter knows when lines were logged. The zero Limiter is ready, and safe for concurrent use.
type Limiter struct {
	mu    sync.Mutex
	kinds map[Kind]*window
}

// A Kind is what lines have in common: the pattern of the key, and what they are about.
type Kind struct{ Pattern, What string }

type window struct {
	logged  time.Time
	leftOut int
}

// Due reports whether a line is to be logged, and how many of its kind were left out before it.
func (l *Limiter) Due(k Kind, now time.Time) (leftOut int, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.kinds[k]
	if w == nil && len(l.kinds) >= maxKinds {
		k = Kind{k.Pattern, "others"}
		w = l.kinds[k]
	}
	if w == nil {
		if l.kinds == nil {
			l.kinds = map[Kind]*window{}
		}
		l.kinds[k] = &window{logged: now}
		return 0, true
	}
	if now.Sub(w.logged) < every {
		w.leftOut++
		return 0, false
	}
	leftOut, w.leftOut, w.logged = w.leftOut, 0, now
	return leftOut, true
}
