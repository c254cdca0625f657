package waitq

import (
	"container/list"
	"time"
)

const (
	idleFor   = 5 * time.Second      // how long a key without waiters is still listened for
	othersLag = 3 * time.Millisecond // how long after the first source that tells of a release the head asks, if too few others tell of it
)

// A subscription is a key that is listened for. It is guarded by Queues.mu.
type subscription[K comparable, V any] struct {
	key       K
	line      *line[K, V]   // nil: nobody waits
	idle      *list.Element // in Queues.idle, when nobody needs it
	idleSince time.Duration
	confirmed []bool // by source: it tells of all releases from now on

	contended     bool          // others listen for the key too
	releases      int           // releases in a row through these Queues
	releasesSince time.Duration // when the first of them was
	backOffUntil  time.Duration // nobody here asks before this
}

// backOff is for how long nobody here may ask; s may be nil.
func (s *subscription[K, V]) backOff(now time.Duration) time.Duration {
	if s == nil {
		return 0
	}
	return s.backOffUntil - now
}

// sure reports whether no release can be missed; s may be nil.
func (s *subscription[K, V]) sure(need int) bool { return s != nil && countTrue(s.confirmed) >= need }

func (s *subscription[K, V]) resetReleases() {
	if s != nil {
		s.releases = 0
	}
}

func countTrue(all []bool) (n int) {
	for _, b := range all {
		if b {
			n++
		}
	}
	return n
}

// Watch begins to listen for a key without waiters, or stops that after a while. It does nothing
// before Listen.
func (q *Queues[K, V]) Watch(k K, wanted bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch s := q.subscriptions[k]; {
	case len(q.sources) == 0:
	case wanted && s == nil:
		q.subscribe(&subscription[K, V]{key: k})
	case wanted && s.idle != nil:
		q.idle.Remove(s.idle)
		s.idle = nil
	case !wanted && s != nil && s.idle == nil:
		q.makeIdle(s)
	}
}

func (q *Queues[K, V]) subscribe(s *subscription[K, V]) {
	s.confirmed = make([]bool, q.opt.Sources)
	q.subscriptions[s.key] = s
	for _, src := range q.sources {
		src.change(s.key)
	}
}

// watchLine begins to listen for the key of a line.
func (q *Queues[K, V]) watchLine(l *line[K, V]) {
	if l.subscription != nil || len(q.sources) == 0 {
		return
	}
	l.subscription = &subscription[K, V]{key: l.key, line: l}
	q.subscribe(l.subscription)
}

// attach gives a new line the subscription of an earlier line, if there still is one.
func (q *Queues[K, V]) attach(l *line[K, V]) {
	if s := q.subscriptions[l.key]; s != nil {
		q.idle.Remove(s.idle)
		s.line, s.idle = l, nil
		l.subscription = s
	}
}

// detach keeps the subscription of a line that ends for a while, for the next line.
func (q *Queues[K, V]) detach(l *line[K, V]) {
	if s := l.subscription; s != nil {
		s.line = nil
		q.makeIdle(s)
	}
}

func (q *Queues[K, V]) makeIdle(s *subscription[K, V]) {
	s.idleSince = q.opt.Now()
	s.idle = q.idle.PushBack(s)
}

// Sweep ends the subscriptions that have been idle for long, and the places of waiters that do not come back.
func (q *Queues[K, V]) Sweep() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dropOldPlaces()
	now := q.opt.Now()
	for e := q.idle.Front(); e != nil; e = q.idle.Front() {
		s := e.Value.(*subscription[K, V])
		if now-s.idleSince < idleFor {
			return
		}
		q.idle.Remove(e)
		delete(q.subscriptions, s.key)
		for _, src := range q.sources {
			src.change(s.key)
		}
	}
}

// A Source is where hints come from.
type Source[K comparable, V any] struct {
	queues *Queues[K, V]
	index  int

	changed []K           // subscriptions that have begun or ended; guarded by Queues.mu
	kick    chan struct{} // tells that changed is not empty; holds one
}

// Listen begins to take hints, and returns the sources. It must be called once at most.
func (q *Queues[K, V]) Listen() []*Source[K, V] {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range q.opt.Sources {
		q.sources = append(q.sources, &Source[K, V]{queues: q, index: i, kick: make(chan struct{}, 1)})
	}
	return q.sources
}

// change notes that a key is to be listened for, or is no longer. The caller has Queues.mu.
func (s *Source[K, V]) change(k K) {
	s.changed = append(s.changed, k)
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// Changed receives when Changes has something to return.
func (s *Source[K, V]) Changed() <-chan struct{} { return s.kick }

// Changes are the keys to listen for, and those to leave, since it was last called.
func (s *Source[K, V]) Changes() (wanted, unwanted []K) {
	s.queues.mu.Lock()
	defer s.queues.mu.Unlock()
	for _, k := range s.changed {
		if s.queues.subscriptions[k] != nil {
			wanted = append(wanted, k)
		} else {
			unwanted = append(unwanted, k)
		}
	}
	s.changed = nil
	return wanted, unwanted
}

// Needed reports whether any key is to be listened for.
func (s *Source[K, V]) Needed() bool {
	s.queues.mu.Lock()
	defer s.queues.mu.Unlock()
	return len(s.queues.subscriptions) > 0
}

// Confirm notes that the source tells of a key's releases from now on. An earlier release may have
// been missed: if now no further one can be, the head asks once more.
func (s *Source[K, V]) Confirm(k K) {
	q := s.queues
	q.mu.Lock()
	defer q.mu.Unlock()
	sub := q.subscriptions[k]
	if sub == nil {
		return
	}
	before := sub.sure(q.opt.Need)
	sub.confirmed[s.index] = true
	if !before && sub.sure(q.opt.Need) && sub.line != nil {
		sub.line.wake()
	}
}

// Lost notes that the source tells nothing until it confirms again. Changes then returns all keys that
// are to be listened for.
func (s *Source[K, V]) Lost() {
	q := s.queues
	q.mu.Lock()
	defer q.mu.Unlock()
	s.changed = s.changed[:0]
	for k, sub := range q.subscriptions {
		sub.confirmed[s.index] = false
		s.changed = append(s.changed, k)
	}
}

// A Kind is how a grant was released.
type Kind uint8

// The kinds of releases.
const (
	Freed     Kind = iota // by its owner, or for it
	Undone                // it was undone: too few sources had granted it
	Passed                // it was handed over to a waiter elsewhere, who may have left
	Shortened             // it was not released, but ends earlier than was known
)

// Released takes the hint that the source has released the grant with this fence.
func (s *Source[K, V]) Released(k K, fence int64, kind Kind) {
	q := s.queues
	q.mu.Lock()
	defer q.mu.Unlock()
	sub := q.subscriptions[k]
	if sub == nil || sub.line == nil {
		return
	}
	l := sub.line
	if kind == Passed || kind == Shortened {
		lag := q.opt.Poll
		if kind == Shortened {
			lag = othersLag
		}
		if fence < l.known.Fence { // the line knows the waiter that got the key, or a later holder
			return
		}
		l.known.outdated = true
		if w := l.head(); w.nextAsk != 0 {
			w.nextAsk = min(w.nextAsk, q.opt.Now()+lag)
			l.notify()
		}
		return
	}
	l.released[s.index] = max(l.released[s.index], fence)
	if fence < l.known.Fence { // the line knows a later grant
		return
	}
	l.known.outdated = true
	// If too few sources tell of an undo, nobody had the key, so that is no reason to ask.
	if kind != Undone && l.askAt == 0 {
		l.askAt = q.opt.Now() + othersLag
	}
	l.notify()
}
