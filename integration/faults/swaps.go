package faults

import (
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// swapNames begin names of adopted locks that are replaced: SET … XX GET of another value takes the place of the one
// that is there. No two turns have the same value.
const swapNames = "swaps:"

// What turns do to these, beside the Events of LOCK.
const (
	opTake = "take" // SET NX
	opSwap = "swap" // SET XX GET; Holder is the value that was there
	opGive = "give" // compare-and-delete
	opMove = "move" // compare-and-expire
	opLook = "look" // LOCKCTL FENCE; Granted is the fence
)

// playSwap is one turn: it replaces the value that is there, or takes the lock where there is none, now and then many times in
// a row, in the way of others that do so; and it may move the end of its last value, and give that back.
func (w *worker) playSwap() {
	l := w.dial()
	if l == nil {
		return
	}
	defer func() { _ = l.Close() }()
	name, again := swapNames+strconv.Itoa(w.IntN(2)), 1
	if w.chance(3) {
		again += w.IntN(10)
	}
	c := &claim{line: l}
	for i := range again {
		c.Event = Event{Name: name, Owner: w.who + "." + strconv.Itoa(w.turn) + "." + strconv.Itoa(i), TTL: w.lease().Truncate(time.Millisecond)}
		if !w.swap(c) {
			w.sleep(w.upTo(20 * time.Millisecond))
			return
		}
	}
	w.fenceOf(c)
	for range w.IntN(3) {
		w.sleep(w.upTo(60 * time.Millisecond))
		if w.chance(2) && !w.onSwap(c, opMove, compareAndExpire) {
			return
		}
	}
	if w.chance(2) {
		w.onSwap(c, opGive, compareAndDelete)
	}
}

// swap stores one value. It reports whether it was told that it did.
func (w *worker) swap(c *claim) bool {
	ms := strconv.FormatInt(c.TTL.Milliseconds(), 10)
	e := Event{Op: opSwap, Name: c.Name, Owner: c.Owner, TTL: c.TTL}
	_, _ = c.line.askFor(&e, func(v redistest.Value) { e.swapped(v, !v.Null) }, "SET", c.Name, c.Owner, "XX", "GET", "PX", ms)
	if e.Reply == lost {
		e = Event{Op: opTake, Name: c.Name, Owner: c.Owner, TTL: c.TTL}
		_, _ = c.line.askFor(&e, func(v redistest.Value) { e.swapped(v, !v.Null) }, "SET", c.Name, c.Owner, "NX", "PX", ms)
	}
	return e.Reply == carried
}

func (e *Event) swapped(v redistest.Value, done bool) {
	switch {
	case v.IsError():
		e.Reply, e.Text = failed, v.Text
	case done:
		e.Reply, e.Validity = carried, believed(e.TTL)
		if e.Op == opSwap {
			e.Holder = v.Text
		}
	default:
		e.Reply = lost
	}
}

// fenceOf asks for the fence of a value, which may have been replaced already.
func (w *worker) fenceOf(c *claim) {
	e := Event{Op: opLook, Name: c.Name, Owner: c.Owner}
	_, _ = c.line.askFor(&e, func(v redistest.Value) {
		switch {
		case v.IsError():
			e.Reply, e.Text = failed, v.Text
		case v.Kind == ':':
			e.Reply, e.Granted = carried, v.Int()
		default:
			e.Reply = lost
		}
	}, "LOCKCTL", "FENCE", c.Name, c.Owner)
}

// onSwap runs a script that compares the value, perhaps through another proxy. It reports whether the value may
// still be there.
func (w *worker) onSwap(c *claim, op, script string) bool {
	l, done := w.other(c)
	defer done()
	e := Event{Op: op, Name: c.Name, Owner: c.Owner, TTL: w.lease().Truncate(time.Millisecond)}
	_, _ = l.askFor(&e, func(v redistest.Value) { e.swapped(v, v.Int() == 1) },
		"EVAL", script, "1", c.Name, c.Owner, strconv.FormatInt(e.TTL.Milliseconds(), 10))
	return e.Reply != lost
}

// A swapValue is one value of a name, as it was stored and given up.
type swapValue struct {
	set     *Event   // that stored it
	fence   int64    // 0: not known
	givenUp *Event   // answered to have done so
	maybe   []*Event // not answered, or with an error, and may have
	until   instant  // of its validity, as its client may count on it
}

// swaps accuses where a value was given up twice, or to another with a smaller fence; where the end of a value
// that had been given up was moved; and where SET NX stored one while another was there.
func (j *judge) swaps() {
	values := map[ownerOf]*swapValue{}
	of := func(name, value string) *swapValue {
		k := ownerOf{name, value}
		if values[k] == nil {
			values[k] = &swapValue{}
		}
		return values[k]
	}
	swaps := map[string][]*Event{} // of a name: one that was beaten may have dropped a value on some nodes, which is lost then
	for _, e := range j.events {
		if !strings.HasPrefix(e.Name, swapNames) {
			continue
		}
		v := of(e.Name, e.Owner)
		stored := e.Reply == carried && (e.Op == opTake || e.Op == opSwap)
		if stored {
			v.set, v.until = e, e.until()
		}
		switch {
		case e.Op == opLook && e.Reply == carried:
			v.fence = e.Granted
		case e.Op == opSwap:
			swaps[e.Name] = append(swaps[e.Name], e)
			if stored {
				j.giveUp(of(e.Name, e.Holder), e.Holder, e)
			}
		case e.Op == opGive && e.Reply == carried:
			j.giveUp(v, e.Owner, e)
		case e.Op == opGive && e.Reply != lost:
			v.maybe = append(v.maybe, e)
		case e.Op == opMove && e.Reply == carried:
			j.moved(v, e)
		case e.Op == opMove && e.Reply != lost:
			v.until = min(v.until, e.until())
		}
	}
	for k, v := range values {
		j.swapOrder(k, v, of)
		if v.set != nil && v.set.Op == opTake && !j.unsafe {
			j.takenBeside(k, v, values, swaps[k.name])
		}
	}
}

func (j *judge) giveUp(v *swapValue, value string, by *Event) {
	if v.givenUp != nil {
		j.accuse("%s: %s was given up to %s by %s, and to %s by %s", by.Name, value, v.givenUp.Owner, v.givenUp.Op, by.Owner, by.Op)
	}
	v.givenUp = by
}

// moved notes that the end of a value was moved, which must not be when it was asked for after it was given up.
func (j *judge) moved(v *swapValue, e *Event) {
	if g := v.givenUp; g != nil && g.End < e.Start {
		j.accuse("%s: the end of %s was moved after it was given up to %s", e.Name, e.Owner, g.Owner)
	}
	v.until = e.until()
}

func (j *judge) swapOrder(k ownerOf, v *swapValue, of func(name, value string) *swapValue) {
	g := v.givenUp
	if g == nil || g.Op != opSwap {
		return
	}
	if by := of(k.name, g.Owner); v.fence != 0 && by.fence != 0 && by.fence <= v.fence {
		j.accuse("%s: %s with fence %d took the place of %s with fence %d", k.name, g.Owner, by.fence, k.owner, v.fence)
	}
}

// takenBeside accuses a SET NX that was carried while another value was there all the time, as its client may believe.
func (j *judge) takenBeside(k ownerOf, taken *swapValue, values map[ownerOf]*swapValue, swaps []*Event) {
	from, to := taken.set.Start, taken.set.End
	for other, v := range values {
		if other.name != k.name || v == taken || v.set == nil || v.set.End >= from || v.until <= to {
			continue
		}
		if v.givenUp != nil && v.givenUp.Start <= to {
			continue
		}
		may := func(events []*Event) bool {
			for _, e := range events {
				if e != v.set && e.Start <= to && (!e.answered() || e.End > v.set.Start) {
					return true
				}
			}
			return false
		}
		if !may(v.maybe) && !may(swaps) {
			j.accuse("%s: %s took it, and %s was there all the time", k.name, k.owner, other.owner)
		}
	}
}
