package waitq

import (
	"context"
	"time"
)

const (
	firstPoll   = time.Second            // a head without hints asks again after this, doubling
	longPoll    = 5 * time.Second        // up to this, since no hint tells that a key was deleted by hand
	pollShare   = time.Millisecond       // and this much longer for every line
	lapseMargin = 2 * time.Millisecond   // a head asks this long after the end of the holder's lease
	lapseSpread = 8 * time.Millisecond   // or up to this much later, since heads elsewhere wait for the same end
	nobodyPause = 64 * time.Millisecond  // the longest pause when no holder was found
	firstRetry  = 100 * time.Millisecond // the pause after an error, doubling
	longRetry   = 500 * time.Millisecond // up to this
)

// A Trigger is what makes a waiter ask.
type Trigger uint8

// The triggers.
const (
	AtOnce  Trigger = iota // it joined an empty line
	Handed                 // an offer
	Woken                  // Wake, or a hint
	Timer                  // the holder's lease was over, or it was time to ask without a hint
	Reentry                // its owner has the key already; set by the caller, not by this package
)

// Known is what a line knows of its key. The zero value knows nothing.
type Known struct {
	Asked     bool          // something is known
	Fresh     bool          // it was granted just now, by a first hold
	Elsewhere bool          // the holder did not get it through these Queues
	Room      bool          // those that are Sharing may have it
	Soon      bool          // it may become free before Until: the head is to ask again within Options.Poll
	Holder    string        // empty: nobody was found to have it
	Fence     int64         // of the holder's grant, or less
	Until     time.Duration // end of the holder's lease, by Options.Now
	Err       error         // why the last question was not decided

	outdated bool // a source has told of a release since
}

// Answers reports whether what is known is still good for an answer.
func (k Known) Answers(now time.Duration) bool {
	return k.Asked && !k.outdated && (k.Err != nil || k.Until > now)
}

// Known is what the line of a key knows; nothing if nobody waits for the key. It is sure if no release can have been
// missed since.
func (q *Queues[K, V]) Known(k K) (known Known, sure bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lines[k]
	if l == nil {
		return Known{}, false
	}
	known = l.known
	return known, known.Err == nil && known.Holder != "" && !l.woken && l.subscription.sure(q.opt.Need)
}

// AwaitTurn returns when w is the head, or, with reenter, when its owner has the key already or it was let in by Shared. The
// error is that of ctx when it ended first, or ErrClosed.
func (q *Queues[K, V]) AwaitTurn(ctx context.Context, w *Waiter[K, V]) (reenter bool, err error) {
	q.mu.Lock()
	head := w.head
	q.mu.Unlock()
	select {
	case <-w.reenter: // also as the head, which would sleep
		return true, nil
	default:
	}
	select {
	case <-head:
		return false, nil
	case <-w.reenter:
		return true, nil
	case <-ctx.Done():
		return false, ctx.Err()
	case <-q.done:
		return false, ErrClosed
	}
}

// Sleep returns when it is time for w, the head, to ask. The error is that of ctx when it has ended, ErrOvertaken, or
// ErrClosed.
func (q *Queues[K, V]) Sleep(ctx context.Context, w *Waiter[K, V]) error {
	for {
		d, head := q.pause(w)
		if !head {
			return ErrOvertaken
		}
		if d <= 0 {
			return ctx.Err()
		}
		if err := q.sleepFor(ctx, w, d); err != nil {
			return err
		}
	}
}

func (q *Queues[K, V]) sleepFor(ctx context.Context, w *Waiter[K, V], d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-w.wakeUps:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-q.done:
		return ErrClosed
	}
}

// pause is how long w is to sleep before it asks; 0 or less: it is to ask now. head reports whether w is the head.
func (q *Queues[K, V]) pause(w *Waiter[K, V]) (d time.Duration, head bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l, now := w.line, q.opt.Now()
	switch {
	case l.head() != w:
		return 0, false
	case w.offered:
		return 0, true
	case l.subscription.backOff(now) > 0:
		return l.subscription.backOff(now), true
	case l.woken, !l.known.Asked, l.freed(q.opt.Need):
		return 0, true
	}
	q.watchLine(l)
	if w.nextAsk == 0 { // what is known was told to the head before w
		w.nextAsk = q.planAsk(w, now)
	}
	if l.askAt != 0 {
		return min(l.askAt, w.nextAsk) - now, true
	}
	return w.nextAsk - now, true
}

// planAsk is when a head asks again without a hint: when the holder's lease is over, and now and
// then before that, since a key may be freed without a hint.
func (q *Queues[K, V]) planAsk(w *Waiter[K, V], now time.Duration) time.Duration {
	k := &w.line.known
	if k.Err != nil {
		w.failures++
		return now + min(firstRetry<<min(w.failures-1, 10), longRetry)
	}
	w.failures = 0
	if k.Holder == "" && !k.Soon {
		return now + q.opt.Random(nobodyPause)
	}
	poll := min(q.opt.Poll<<min(w.polls, 10), q.opt.LongPoll+time.Duration(len(q.lines))*pollShare)
	if k.Soon {
		poll = q.opt.Poll
	}
	w.polls++
	return min(now+poll, k.Until+lapseMargin+q.opt.Random(lapseSpread))
}

// Ask notes that w, the head, asks now. offered reports that an offer has asked on its behalf, so that it need not. The
// error is ErrOvertaken. others are the other keys that it wants: if somebody stands before it in the line of one, it stands there from now
// on.
func (q *Queues[K, V]) Ask(w *Waiter[K, V], others ...K) (offered bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.line.head() != w || q.goBehind(w, others) {
		return false, ErrOvertaken
	}
	w.trigger = q.triggerOf(w)
	if offered, w.offered = w.offered, false; !offered {
		w.asking = true
		w.line.forgetHints()
	}
	return offered, nil
}

func (q *Queues[K, V]) triggerOf(w *Waiter[K, V]) Trigger {
	l := w.line
	switch {
	case w.offered:
		return Handed
	case w.asking: // it was the head when it joined
		return AtOnce
	case l.woken, l.askAt != 0, l.freed(q.opt.Need):
		return Woken
	}
	return Timer
}

// Asked notes the answer to w, the head, and plans when it asks again. If waiters that came before it are behind it, it is not the
// head any more.
func (q *Queues[K, V]) Asked(w *Waiter[K, V], k Known) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.tell(w, k)
	q.stepBack(w)
}

// tell is Asked without a step back. The caller has mu.
func (q *Queues[K, V]) tell(w *Waiter[K, V], k Known) {
	l := w.line
	w.asking = false
	l.known = k
	l.woken = l.woken && !k.Fresh
	if k.Elsewhere {
		l.subscription.resetReleases()
	}
	w.nextAsk = q.planAsk(w, q.opt.Now())
	q.wakeOwner(w, k.Holder)
	if k.Room {
		q.letShare(l)
	}
}

// Shared notes that w, the head, got the key, which it shares: those right behind it that share it as well are to ask for it
// out of turn, as an owner does that has the key already.
func (q *Queues[K, V]) Shared(w *Waiter[K, V]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w.asking = false
	w.line.known = Known{}
	q.letShare(w.line)
}

// letShare lets in those of a line that share the key, up to the first that wants it alone.
func (q *Queues[K, V]) letShare(l *line[K, V]) {
	for w := range l.waiters.all() {
		if w.use == Alone {
			return
		}
		if w.use == Sharing && w != l.head() {
			q.letIn(w)
		}
	}
}

// Alone is how many wait for a key that want it alone.
func (q *Queues[K, V]) Alone(k K) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := q.lines[k]; l != nil {
		return l.alone
	}
	return 0
}

// letIn has a waiter ask though it may not be the head.
func (q *Queues[K, V]) letIn(w *Waiter[K, V]) {
	select {
	case w.reenter <- struct{}{}:
		q.resume(w)
	default:
	}
}

// wakeOwner wakes the waiters whose owner has the key, but for the head, which was told that.
func (q *Queues[K, V]) wakeOwner(head *Waiter[K, V], owner string) {
	for w := range q.ownedBy(head.Key, owner) {
		if w != head {
			q.letIn(w)
		}
	}
}

// Wake has the head ask now, or again if it is asking.
func (q *Queues[K, V]) Wake(k K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := q.lines[k]; l != nil {
		l.wake()
	}
}

// Notify wakes the head to take an offer, when the offer is complete.
func (q *Queues[K, V]) Notify(k K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := q.lines[k]; l != nil {
		l.notify()
	}
}

func (l *line[K, V]) wake() {
	l.woken = true
	l.notify()
}

func (l *line[K, V]) notify() {
	select {
	case l.head().wakeUps <- struct{}{}:
	default:
	}
}

// forgetHints forgets earlier hints, right before the head asks.
func (l *line[K, V]) forgetHints() {
	l.woken, l.askAt = false, 0
	clear(l.released)
}

// freed reports whether at least need sources have told that the grant which the line knows was released.
func (l *line[K, V]) freed(need int) bool {
	n := 0
	for _, f := range l.released {
		if f > 0 && f >= l.known.Fence {
			n++
		}
	}
	return n >= need
}
