package waitq

import (
	"context"
	"time"
)

// A Group is one waiter for several keys: it stands in the line of each, and asks for all of them when it is the head of all these
// lines and none of them has to wait for something. It is asked for nothing by offers.
//
// Its places have one number, so that any two Groups stand in the same order in all lines which they share. Each line is in the order
// of the numbers, but for a head that is asking; so of all waiters that do not ask the one that came first is the head of all its
// lines, and no Groups can wait for each other.
//
// Where its owner has a key already, or the Group was let in to share it, it needs no turn in that line from then on.
type Group[K comparable, V any] struct {
	Value V             // the caller's
	Since time.Duration // when it joined
	First bool          // it was the head of all lines from the beginning, and may ask at once

	places  []*Waiter[K, V] // by their keys, in the order in which the caller named them
	wakeUps chan struct{}   // tells it to look at its lines; holds one
	again   time.Duration   // it does not ask before this, whatever the lines know
	trigger Trigger         // of the last question
	pace
}

// forever is longer than any wait; a wake-up comes before it.
const forever = time.Hour

// JoinAll is Join for several lines, one or more, at once. The keys must be different, and come in an order that is the same for all
// callers. Each of the places counts as a waiter. The Group has one place to come back to, under the first key. It must LeaveAll.
func (q *Queues[K, V]) JoinAll(keys []K, owner, req string, use Use, v V) (*Group[K, V], error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiters+len(keys) > q.opt.Limit {
		return nil, &FullError{Max: q.opt.Limit}
	}
	g := &Group[K, V]{Value: v, Since: q.opt.Now(), First: true, wakeUps: make(chan struct{}, 1)}
	number := q.number(placeKey[K]{keys[0], owner, req})
	for _, k := range keys {
		w := &Waiter[K, V]{
			Key: k, Value: v, Since: g.Since, use: use, owner: owner, req: req, number: number, group: g, wakeUps: g.wakeUps,
		}
		first := q.enter(w)
		g.First = g.First && first
		g.places = append(g.places, w)
	}
	for _, w := range g.places {
		w.asking = g.First
		q.letWith(w)
	}
	return g, nil
}

// LeaveAll is Leave for a Group.
func (q *Queues[K, V]) LeaveAll(g *Group[K, V], served bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !served {
		q.keepPlace(g.places[0])
	}
	for _, w := range g.places {
		q.remove(w)
	}
}

// Trigger is what made the Group ask last.
func (g *Group[K, V]) Trigger() Trigger { return g.trigger }

// notify has the Group look at its lines.
func (g *Group[K, V]) notify() {
	select {
	case g.wakeUps <- struct{}{}:
	default:
	}
}

// letIn notes that a place needs no turn. The caller has Queues.mu.
func (g *Group[K, V]) letIn(w *Waiter[K, V]) {
	w.let, g.again = true, 0
	g.notify()
}

// turn reports whether it is the turn of the Group in all lines. The caller has Queues.mu.
func (g *Group[K, V]) turn() bool {
	for _, w := range g.places {
		if w.line.head() != w && !w.let {
			return false
		}
	}
	return true
}

// heads are its places that are the heads of their lines. The caller has Queues.mu, and changes no line meanwhile.
func (g *Group[K, V]) heads(yield func(*Waiter[K, V]) bool) {
	for _, w := range g.places {
		if w.line.head() == w && !yield(w) {
			return
		}
	}
}

// AwaitAll returns when it is time for a Group to ask. The error is that of ctx when it has ended, or ErrClosed.
func (q *Queues[K, V]) AwaitAll(ctx context.Context, g *Group[K, V]) error {
	for {
		d := q.pauseAll(g)
		if d <= 0 {
			return ctx.Err()
		}
		if err := q.sleepFor(ctx, g.wakeUps, d); err != nil {
			return err
		}
	}
}

// pauseAll is how long a Group is to sleep, unless it is woken: for as long as any line says.
func (q *Queues[K, V]) pauseAll(g *Group[K, V]) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !g.turn() {
		return forever
	}
	now := q.opt.Now()
	d := g.again - now
	for w := range g.heads {
		if w.line.known.Holder != w.owner || w.owner == "" { // else it is in nobody's way
			d = max(d, q.headPause(w, now))
		}
	}
	return d
}

// AskAll is Ask for a Group. The error is ErrOvertaken if it is no longer its turn.
func (q *Queues[K, V]) AskAll(g *Group[K, V]) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !g.turn() {
		return ErrOvertaken
	}
	g.trigger, g.again = Timer, 0
	for _, w := range g.places {
		if w.line.head() == w {
			g.trigger = min(g.trigger, q.triggerOf(w))
			w.line.forgetHints()
		}
		w.asking = true // also one that becomes the head meanwhile
	}
	return nil
}

// RefusedAll notes that a Group was refused, since somebody has one of the keys: then it does not ask before the line of that key
// says so. Of the other keys nothing is known. If k.Err is set, all lines are told of it.
func (q *Queues[K, V]) RefusedAll(g *Group[K, V], of K, k Known) {
	q.mu.Lock()
	defer q.mu.Unlock()
	told := false
	for w := range g.heads {
		if w.Key != of && k.Err == nil {
			w.line.known = Known{}
			continue
		}
		q.tell(w, k)
		told = told || w.owner == "" || k.Holder != w.owner
	}
	if !told { // it has no turn in that line
		g.again = min(q.planAsk(&g.pace, &k, q.opt.Now()), q.opt.Now()+q.opt.Poll)
	}
	q.stepBackAll(g)
}

// GotAll notes that a Group has got its keys, and what is known of each.
func (q *Queues[K, V]) GotAll(g *Group[K, V], known func(K) Known) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for w := range g.heads {
		if w.use == Sharing {
			q.share(w)
		} else {
			q.tell(w, known(w.Key))
		}
	}
	q.stepBackAll(g)
}

// stepBackAll is stepBack for all places of a Group that does not ask any more.
func (q *Queues[K, V]) stepBackAll(g *Group[K, V]) {
	for _, w := range g.places {
		w.asking = false
		q.stepBack(w)
	}
}

// Go starts a goroutine that Wait waits for. It reports false, and starts none, after Close.
func (q *Queues[K, V]) Go(do func()) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.resumed.Go(do)
	return true
}
