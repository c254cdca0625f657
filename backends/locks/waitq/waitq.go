// Package waitq queues callers that wait for a key, first come, first served. It decides who is to ask for
// the key, and when, and to whom a key that is released is handed over. It asks for no key itself: what a
// key is, and who grants it, is the caller's business.
//
// Only the head of a line asks; the others sleep until they are the head, or until their owner
// has the key already. Waiters that share a key are let in together: when the head gets it, those right behind it
// that share it may ask at once. A waiter:
//
//	Join ──▶ in line ──the one before leaves──▶ head, asleep ◀──Asked: refused── asking ──granted──▶ Leave
//	           │                                     │                             ▲
//	           └──its owner has the key──▶ Leave     └──a wake-up, a timer, an offer┘
//
// A waiter that joins an empty line is the head at once, and asks. Park lets a waiter do without a
// goroutine until something happens to it. A waiter may Leave in every state.
//
// A waiter that leaves unserved, and comes back within two seconds with the same owner and request, gets its place
// back. If that place is in front of a head that sleeps, or is refused, this head waits for its turn again. A key that becomes free
// while a waiter is away goes to the next in line.
//
// A waiter for several keys stands in the line of one of them at a time, and moves with its number: see Ask and Move. In the lines of the others
// it holds up nobody.
//
// The head is woken by Wake, by an offer of HandOver, and by hints. Hints come from sources, each of which
// tells of the releases it has seen; while Need sources tell of a key, none of its releases is missed. A hint
// may be lost or wrong: a lost one costs time, since a timer has the head ask in any case, and a wrong one
// costs a question.
//
// Where a source tells that others listen for a key too, a line that has got the key again and again
// leaves it to them for a moment.
package waitq

import (
	"container/list"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrClosed reports that the Queues have been closed.
var ErrClosed = errors.New("the queues are closed")

// ErrOvertaken reports that it is not a waiter's turn: one that came before it is back, or stands in the line of another of its keys, where
// it stands now, too. It must AwaitTurn again.
var ErrOvertaken = errors.New("another waiter is in front")

// A FullError reports that Options.Limit is reached.
type FullError struct{ Max int }

func (e *FullError) Error() string { return fmt.Sprintf("%d wait already, which is the most", e.Max) }

// Options configure Queues. All fields but Poll and LongPoll must be set.
type Options struct {
	Limit   int // waiters in all lines
	Sources int // of hints
	Need    int // how many sources must tell of a key so that none of its releases is missed

	Now    func() time.Duration                    // the clock
	Random func(below time.Duration) time.Duration // at least 0

	Poll, LongPoll time.Duration // first and longest pause of a head without hints; default 1 s and 5 s
}

// Queues are the lines of all keys. A key without waiters has no line. V is what the caller
// attaches to a waiter. All methods are safe for concurrent use.
type Queues[K comparable, V any] struct {
	opt Options

	mu            sync.Mutex
	lines         map[K]*line[K, V]
	waiters       int                           // in all lines
	owned         map[ownerKey[K]]*Waiter[K, V] // the first of the waiters of an owner in a line
	subscriptions map[K]*subscription[K, V]
	idle          list.List       // of the subscriptions that nobody needs, the longest idle first
	sources       []*Source[K, V] // none before Listen
	numbers       uint64          // how many places have been numbered
	places        map[placeKey[K]]*list.Element
	placesByAge   list.List // of place, the longest left first
	closed        bool

	done    chan struct{}  // closed by Close
	resumed sync.WaitGroup // goroutines of waiters that were parked
}

// New makes Queues without waiters.
func New[K comparable, V any](o Options) *Queues[K, V] {
	if o.Poll == 0 {
		o.Poll = firstPoll
	}
	if o.LongPoll == 0 {
		o.LongPoll = longPoll
	}
	return &Queues[K, V]{
		opt: o, lines: map[K]*line[K, V]{}, owned: map[ownerKey[K]]*Waiter[K, V]{}, subscriptions: map[K]*subscription[K, V]{}, places: map[placeKey[K]]*list.Element{}, done: make(chan struct{}),
	}
}

// SetPoll changes Options.Poll and Options.LongPoll.
func (q *Queues[K, V]) SetPoll(first, longest time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.opt.Poll, q.opt.LongPoll = first, longest
}

// A line is the waiters for one key. It is guarded by Queues.mu.
type line[K comparable, V any] struct {
	key          K
	waiters      row[K, V] // by their numbers, except a head that was asking when a waiter before it came back
	alone        int       // how many of them want the key alone
	known        Known     // by the last question
	subscription *subscription[K, V]

	// since the head last asked
	woken    bool          // something happened that may have freed the key
	released []int64       // by source: the largest fence that was released
	askAt    time.Duration // when to ask, since a source has told of a release, or one may have been missed; 0: not so
}

// A Waiter is one place in a line.
type Waiter[K comparable, V any] struct {
	Key   K             // in whose line it stands; with several keys only its own calls change it
	Value V             // the caller's; an offer may change what it points to, see HandOver
	Since time.Duration // when it joined
	First bool          // it was the head from the beginning, and may ask at once

	line    *line[K, V]
	use     Use
	owner   string        // empty: no other waiter has this owner
	req     string        // id of the request; empty: the waiter has no place to come back to
	place   K             // the key under which its place is kept
	number  uint64        // of its place: the first that came has the smallest
	head    chan struct{} // closed when it becomes the head; a new channel when it is overtaken
	reenter chan struct{} // told when its owner has the key already, or another that shares it; holds one
	wakeUps chan struct{} // tells the head to look at its line; holds one
	parked  *parked       // not nil: it has no goroutine

	ownNext, ownLast *Waiter[K, V] // those of the same owner in the line, in a ring; nil without an owner

	// of the head
	trigger  Trigger       // of the last question
	asking   bool          // it asks now or next, so nothing is offered to it
	offered  bool          // an offer asks on its behalf
	nextAsk  time.Duration // when it asks without a hint; 0: not planned
	polls    int           // questions planned without a hint
	failures int           // questions in a row that ended with an error
}

// Trigger is what made the waiter ask last.
func (w *Waiter[K, V]) Trigger() Trigger { return w.trigger }

// A Use is with whom a waiter may have a key.
type Use uint8

// The uses.
const (
	Alone   Use = iota // with nobody
	Limited            // with others that are Limited or Sharing, as long as the caller's business allows one more
	Sharing            // with others that are, any number
)

// Join puts a waiter at the end of a line, or in the place that the waiter of the same owner and request has left. With several keys that
// is the line of the first in which somebody stands before it, or else of keys[0], and the place is kept under keys[0]. It must
// Leave. When an owner has the key, its waiters are woken; a waiter with an empty owner shares it with no other, and one
// with an empty request has no place to come back to. One that is Sharing is let in with others that are, see Shared, and may ask
// at once if all before it share the key and none has been refused. The error is a *FullError.
func (q *Queues[K, V]) Join(keys []K, owner, req string, use Use, v V) (*Waiter[K, V], error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiters >= q.opt.Limit {
		return nil, &FullError{Max: q.opt.Limit}
	}
	w := &Waiter[K, V]{
		Key: keys[0], Value: v, Since: q.opt.Now(), use: use, owner: owner, req: req, place: keys[0], number: q.number(placeKey[K]{keys[0], owner, req}),
		reenter: make(chan struct{}, 1), wakeUps: make(chan struct{}, 1),
	}
	if k, ok := q.before(w, keys); ok {
		w.Key = k
	}
	w.First = q.enter(w)
	w.asking = w.First
	return w, nil
}

// enter puts a waiter in its line, and reports whether it is alone there and may ask at once. The caller has mu.
func (q *Queues[K, V]) enter(w *Waiter[K, V]) (first bool) {
	l := q.lines[w.Key]
	if l == nil {
		l = &line[K, V]{key: w.Key, released: make([]int64, q.opt.Sources)}
		q.lines[w.Key] = l
		q.attach(l)
	}
	w.line, w.head = l, make(chan struct{})
	l.insert(w)
	q.waiters++
	if w.use == Alone {
		l.alone++
	}
	q.addOwned(w)
	q.letWith(w)
	if l.waiters.n > 1 {
		return false
	}
	close(w.head)
	return l.subscription.backOff(q.opt.Now()) <= 0
}

// letWith lets a waiter in that has joined a line of others that share the key with it. The caller has mu.
func (q *Queues[K, V]) letWith(w *Waiter[K, V]) {
	if w.line.letsIn(w) && w.line.head() != w {
		q.letIn(w)
	}
}

// letsIn reports whether all in the line share the key with w: they ask, and have not been refused.
func (l *line[K, V]) letsIn(w *Waiter[K, V]) bool {
	return w.use == Sharing && l.alone == 0 && !l.known.Asked
}

// Leave takes a waiter out of its line. Unless it was served, it may come back to its place. Leave returns how many are
// left in the line, and whether there is an offer that the waiter did not take.
func (q *Queues[K, V]) Leave(w *Waiter[K, V], served bool) (left int, unused bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !served {
		q.keepPlace(w)
	}
	return q.remove(w), w.offered
}

// remove takes a waiter out of its line, and returns how many are left there. The caller has mu.
func (q *Queues[K, V]) remove(w *Waiter[K, V]) (left int) {
	l := w.line
	wasHead := l.head() == w
	l.waiters.remove(w)
	q.waiters--
	if w.use == Alone {
		l.alone--
	}
	q.removeOwned(w)
	switch next := l.head(); {
	case next == nil:
		delete(q.lines, l.key)
		q.detach(l)
	case wasHead:
		if w.asking { // it left before it had the answer, so that nothing is known for its successor
			l.known = Known{}
		}
		q.promote(next)
	}
	return l.waiters.n
}

// promote tells a waiter that it is the head. The caller has mu.
func (q *Queues[K, V]) promote(w *Waiter[K, V]) {
	close(w.head)
	q.resume(w)
}

// head is nil if nobody is in line.
func (l *line[K, V]) head() *Waiter[K, V] { return l.waiters.front() }

// Close wakes all waiters with ErrClosed; none is parked any more.
func (q *Queues[K, V]) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	q.closed = true
	close(q.done)
	for _, l := range q.lines {
		for w := range l.waiters.all() {
			q.resume(w)
		}
	}
}

// Wait returns when the goroutines of all waiters that were parked have ended. It must be called after
// Close.
func (q *Queues[K, V]) Wait() { q.resumed.Wait() }
