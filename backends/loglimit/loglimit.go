// Package loglimit keeps a log short: it decides whether one more line of a kind is written.
//
// There is one rule. In a window of time the first lines of a kind are written, the others are left out; where lines were left out,
// the next window may have fewer. A line says how many were left out before it. Windows begin with a line. The times that callers
// pass may be of any clock that does not go back.
package loglimit

import (
	"log/slog"
	"sync"
	"time"
)

// A Rule is how many lines are written. Two windows with a pause of a window between them have First lines each.
type Rule struct {
	First  int // lines of a window
	Then   int // lines of one in which the last line before had been left out
	Window time.Duration
}

// The rules for lines of which each kind is an event. See State for what comes and goes.
var (
	OnceAMinute = Rule{1, 1, time.Minute}
	Changes     = Rule{8, 1, time.Minute} // two restarts of a lock node have eight
)

const (
	Calm     = 10 * time.Second
	maxKinds = 1000 // of Kinds
)

// A Limit is the limit of one kind of lines. Its zero value is ready.
type Limit struct {
	ends    time.Time // of the window
	left    int       // lines that may be written in it
	leftOut int       // since the last line
	latest  time.Time // when one was
}

// Due reports whether a line is to be written, and how many were left out before it.
func (l *Limit) Due(r Rule, now time.Time) (leftOut int, due bool) {
	if !now.Before(l.ends) {
		l.ends, l.left = now.Add(r.Window), r.First
		if l.leftOut > 0 {
			l.left = r.Then
		}
	}
	if l.left == 0 {
		l.leftOut++
		l.latest = now
		return 0, false
	}
	leftOut, l.left, l.leftOut = l.leftOut, l.left-1, 0
	return leftOut, true
}

// State is Due by the rule Changes for lines about a state: changed reports whether it has just changed. It is called from time to
// time without a change too. So a line is due when a change was left out and the state has lasted for ten seconds since: the last
// line tells how things are.
func (l *Limit) State(changed bool, now time.Time) (leftOut int, due bool) {
	if changed {
		return l.Due(Changes, now)
	}
	if l.leftOut == 0 || now.Sub(l.latest) < Calm {
		return 0, false
	}
	leftOut, l.leftOut = l.leftOut-1, 0
	return leftOut, true
}

// Level is the level of a line that something is well again: a warning if it goes and comes.
func Level(leftOut int) slog.Level {
	if leftOut > 0 {
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// With adds how many lines were left out to the attributes of one.
func With(attrs []slog.Attr, leftOut int) []slog.Attr {
	if leftOut == 0 {
		return attrs
	}
	return append(attrs, slog.Int("left_out", leftOut))
}

// Kinds limits lines of many kinds, each by itself. Its zero value is ready, and safe for concurrent use.
type Kinds[K comparable] struct {
	mu     sync.Mutex
	limits map[K]*Limit
}

// Due is Limit.Due of a kind. When there are very many kinds, a new one is counted as another, rest.
func (k *Kinds[K]) Due(kind, rest K, r Rule, now time.Time) (leftOut int, due bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.limits == nil {
		k.limits = map[K]*Limit{}
	}
	l := k.limits[kind]
	if l == nil && len(k.limits) >= maxKinds {
		kind = rest
		l = k.limits[kind]
	}
	if l == nil {
		l = &Limit{}
		k.limits[kind] = l
	}
	return l.Due(r, now)
}

// Ended forgets the kinds, except one, whose window is over, and returns how many lines of each were left out.
func (k *Kinds[K]) Ended(except K, now time.Time) (leftOut map[K]int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for kind, l := range k.limits {
		if kind == except || now.Before(l.ends) {
			continue
		}
		if l.leftOut > 0 {
			if leftOut == nil {
				leftOut = map[K]int{}
			}
			leftOut[kind] = l.leftOut
		}
		delete(k.limits, kind)
	}
	return leftOut
}
