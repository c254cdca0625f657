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
	after   guess // what the key is then: the leader's grant, or who has it
	err     error

	asked  bool      // the nodes are being asked, or have answered another: nobody else may share it
	shared bool      // somebody does
	latest time.Time // when the last of those who share it came
}

// flights are the questions under way, by key: one that asks, and one that is next. A call that comes while
// one asks waits for the next, whatever becomes of the first: the nodes may have voted before the call came, and
// what they granted may have been given back since. The last answer to be had of a key is kept for calls that had
// come before the nodes were asked, but could not ask: those behind another one on their connection, or that wait for the
// next question.
type flights struct {
	pace time.Duration // from one question that was shared and refused to the next, unless hurry is called
	last *lru.Cache[locks.Key, *flight]
	also *flights // whose answers answer these questions, too; nil: none

	mu    sync.Mutex
	lanes map[locks.Key]*lane
}

// remembersFlights is for how many keys the last answer is kept.
const remembersFlights = 1024

func newFlights(pace time.Duration, also *flights) *flights {
	last, err := lru.New[locks.Key, *flight](remembersFlights)
	if err != nil {
		panic(err) // the size is a constant
	}
	return &flights{pace: pace, last: last, also: also, lanes: map[locks.Key]*lane{}}
}

type lane struct {
	asking, next *flight
	wake         chan struct{} // holds one
}

// pollPace is how far acquisitions of one lock are apart that many clients ask for again and again. They poll about
// as often themselves.
const pollPace = 12 * time.Millisecond

// do has one of the calls that come together ask. leads reports whether it was this one: then fl has been filled
// by ask. Otherwise it is the answer to share, which may have come before. The call rests on it.
func (f *flights) do(ctx context.Context, key locks.Key, on *basis, ask func(*flight)) (fl *flight, leads bool, err error) {
	defer func() { on.rests = fl }()
	if fl := f.answered(key, on); fl != nil {
		return fl, false, nil
	}
	f.mu.Lock()
	l := f.lanes[key]
	if l == nil {
		fl = &flight{began: time.Now(), done: make(chan struct{}), asked: true}
		f.lanes[key] = &lane{asking: fl, wake: make(chan struct{}, 1)}
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
		fl.began, fl.after, fl.err = other.began, other.after, other.err
	} else {
		ask(fl)
	}
	f.finish(key, fl)
	return fl, other == nil, nil
}

// answered is a question whose answer a call may be given; nil: there is none. It names who has the lock, or is that too few
// nodes agree, to a question of the same kind.
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

// kept is the last answer, if a call may rest on it.
func (f *flights) kept(key locks.Key, on *basis) *flight {
	fl, _ := f.last.Get(key)
	if fl != nil && on.may(fl) && (fl.err != nil || time.Now().Before(fl.after.until)) {
		return fl
	}
	return nil
}

// undecided reports whether the nodes were asked for long what the key is, and did not agree, when the call had come: to ask them
// for the lock would take as long and be answered alike. The call rests on that.
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

// open is the flight that a call may still share.
func (l *lane) open() *flight {
	switch {
	case l.next != nil:
		return l.next
	case !l.asking.asked:
		return l.asking
	}
	return nil
}

// await waits until the flight before has ended, and, where calls come so often that they share flights and are
// refused, until pace or the holder's lease is over.
func (f *flights) await(ctx context.Context, l *lane, before, fl *flight) error {
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

// hurry has the next question asked at once: the lock has been given back through this proxy, and whom the last answers
// name has it no more.
func (f *flights) hurry(key locks.Key) {
	for all := f; all != nil; all = all.also {
		all.last.Remove(key)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if l := f.lanes[key]; l != nil {
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
	switch l := f.lanes[key]; fl {
	case l.asking:
		if l.asking, l.next = l.next, nil; l.asking == nil {
			delete(f.lanes, key)
		}
	case l.next: // it ends before it has asked
		l.next = nil
	}
	if fl.asked && !fl.granted && (fl.err == nil || fl.sharedErr() != nil) {
		f.last.Add(key, fl)
	}
	close(fl.done)
}

// sharedErr is the error of a flight for a call that shares it: nil, if it is about the leader, who may have left.
func (fl *flight) sharedErr() error {
	if few := (*locks.QuorumError)(nil); errors.As(fl.err, &few) {
		return fl.err
	}
	return nil
}
