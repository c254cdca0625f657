package adopt

import (
	"context"
	"errors"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// A flight is one question to the nodes, for the call that leads it and those that share its answer.
type flight struct {
	began   time.Time
	done    chan struct{}
	granted bool
	limit   int   // of the permits of which one was asked for; 0: it was another question
	after   guess // the state of the key afterwards: the leader's grant, or the holder's
	err     error

	asked  bool      // the question was sent, or another one has answered it: nobody else may share it
	shared bool      // another call shares it
	latest time.Time // when the last of those who share it came
}

// flights are the questions under way: for each key one that is being asked, and the next one. A call that comes while one
// is being asked waits for the next: the nodes may have voted before the call came, and what they granted may have been
// released since. The last answer for a key is kept for calls that had come before the question was sent but could not ask
// it themselves: they stood behind another call on their connection, or waited for the next question.
type flights struct {
	pace time.Duration // time between two questions about a contended lock, unless hurry is called
	last *lru.Cache[locks.Key, *flight]
	also *flights // whose answers answer these questions, too; nil: none

	mu    sync.Mutex
	byKey map[locks.Key]*keyFlights
}

// remembersFlights is for how many keys the last answer is kept.
const remembersFlights = 1024

func newFlights(pace time.Duration, also *flights) *flights {
	last, err := lru.New[locks.Key, *flight](remembersFlights)
	if err != nil {
		panic(err) // the size is a constant
	}
	return &flights{pace: pace, last: last, also: also, byKey: map[locks.Key]*keyFlights{}}
}

type keyFlights struct {
	asking, next *flight
	wake         chan struct{} // holds one
}

// pollPace is the time between two acquisitions of a lock that many clients poll for, about as often as this.
const pollPace = 12 * time.Millisecond

// do lets one of several concurrent calls ask the nodes. If leads, it was this one, and ask has filled fl. Otherwise fl has
// the answer to share, perhaps an earlier one. The reply to the call rests on fl.
func (f *flights) do(ctx context.Context, key locks.Key, on *basis, ask func(*flight)) (fl *flight, leads bool, err error) {
	defer func() { on.rests = fl }()
	if fl := f.answered(key, on); fl != nil {
		return fl, false, nil
	}
	f.mu.Lock()
	l := f.byKey[key]
	if l == nil {
		fl = &flight{began: time.Now(), done: make(chan struct{}), asked: true}
		f.byKey[key] = &keyFlights{asking: fl, wake: make(chan struct{}, 1)}
		f.mu.Unlock()
		ask(fl)
		f.finish(key, fl)
		return fl, true, nil
	}
	if fl = l.open(); fl != nil {
		fl.shared = true
		fl.hasWaiter(on)
		f.mu.Unlock()
		select {
		case <-fl.done:
			return fl, false, nil
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
	before := l.asking
	fl = &flight{done: make(chan struct{})}
	fl.hasWaiter(on)
	l.next = fl
	f.mu.Unlock()
	if err := f.await(ctx, l, before, fl); err != nil {
		fl.err = err
		f.finish(key, fl)
		return fl, true, err
	}
	f.mu.Lock()
	fl.began, fl.asked = time.Now(), true
	other := f.answered(key, &basis{burst: Burst{began: fl.latest}})
	f.mu.Unlock()
	if other != nil {
		fl.began, fl.after, fl.err, fl.limit = other.began, other.after, other.err, other.limit
	} else {
		ask(fl)
	}
	f.finish(key, fl)
	return fl, other == nil, nil
}

// answered returns a question whose answer the call may share; nil: there is none. The answer names the holder or, if the
// question was of this kind, may be that too few nodes agree.
func (f *flights) answered(key locks.Key, on *basis) *flight {
	if fl := f.kept(key, on); fl != nil {
		return fl
	}
	if f.also != nil {
		if fl := f.also.kept(key, on); fl != nil && fl.err == nil {
			return fl
		}
	}
	return nil
}

// kept returns the last question of this kind if the call may share its answer.
func (f *flights) kept(key locks.Key, on *basis) *flight {
	fl, _ := f.last.Get(key)
	if fl != nil && on.may(fl) && (fl.err != nil || time.Now().Before(fl.after.until)) {
		return fl
	}
	return nil
}

// undecided reports whether the nodes did not agree when they were asked to read the key, after the call had come: to ask
// them for the lock would take as long and end alike. Then the reply rests on that answer.
func (f *flights) undecided(key locks.Key, on *basis) bool {
	fl := f.kept(key, on)
	if fl == nil || fl.err == nil {
		return false
	}
	on.rests = fl
	return true
}

// hasWaiter notes that a call waits for the answer. flights.mu is held.
func (fl *flight) hasWaiter(on *basis) {
	if on.burst.began.After(fl.latest) {
		fl.latest = on.burst.began
	}
}

// open returns the flight that a call may still share; nil: there is none.
func (l *keyFlights) open() *flight {
	switch {
	case l.next != nil:
		return l.next
	case !l.asking.asked:
		return l.asking
	}
	return nil
}

// await waits until the flight before has ended. If calls come so often that they share flights, and are refused, it also
// waits until pace is over, the lease of the holder has ended, or hurry is called.
func (f *flights) await(ctx context.Context, l *keyFlights, before, fl *flight) error {
	select {
	case <-before.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	f.mu.Lock()
	crowded := before.shared || fl.shared
	f.mu.Unlock()
	if f.pace == 0 || !crowded || before.granted || before.err != nil {
		return nil
	}
	t := time.NewTimer(min(f.pace-time.Since(before.began), time.Until(before.after.until)))
	defer t.Stop()
	select {
	case <-t.C:
	case <-l.wake:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// hurry has the next question asked at once, and drops the last answers: the lock was released through this proxy.
func (f *flights) hurry(key locks.Key) {
	for all := f; all != nil; all = all.also {
		all.last.Remove(key)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if l := f.byKey[key]; l != nil {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// finish ends a flight, and lets the next one ask.
func (f *flights) finish(key locks.Key, fl *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch l := f.byKey[key]; fl {
	case l.asking:
		if l.asking, l.next = l.next, nil; l.asking == nil {
			delete(f.byKey, key)
		}
	case l.next: // it ends without having asked
		l.next = nil
	}
	if fl.asked && !fl.granted && (fl.err == nil || fl.sharedErr() != nil) {
		f.last.Add(key, fl)
	}
	close(fl.done)
}

// sharedErr returns the error for calls that share the flight; nil if the error concerns only the leader, who may have left.
func (fl *flight) sharedErr() error {
	if few := (*locks.QuorumError)(nil); errors.As(fl.err, &few) {
		return fl.err
	}
	return nil
}
