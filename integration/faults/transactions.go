package faults

import (
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// opSee is GET of an adopted lock, perhaps behind WATCH: carried if the value is the owner's, else lost.
const opSee = "see"

// see asks for the value of the lock, behind WATCH if it is to be watched.
func (w *worker) see(c *claim, l *line, watch bool) (e Event) {
	e = Event{Op: opSee, Name: c.Name, Owner: c.Owner, Fence: c.fence, Proxy: l.proxy}
	w.begin(&e)
	commands := [][]string{{"WATCH", c.Name}, {"GET", c.Name}}
	if !watch {
		commands = commands[1:]
	}
	var v redistest.Value
	for _, args := range commands {
		var err error
		if v, err = l.Try(args...); err != nil {
			return e
		}
		if v.IsError() {
			break
		}
	}
	switch e.End = now(); {
	case v.IsError() && !strings.HasPrefix(v.Text, "WRONGTYPE"):
		e.Reply, e.Text = failed, v.Text
	case v.Text == c.Owner:
		e.Reply = carried
	default:
		e.Reply, e.Holder = lost, v.Text
	}
	w.journal.write(&e)
	return e
}

// inTransaction runs a command on the lock as programs without scripts do: WATCH, GET and, if the value is the claim's
// own, MULTI, the command and EXEC. Now and then the lease ends before EXEC, which must then do nothing. It reports
// whether the worker still has the lock, as far as it knows.
func (w *worker) inTransaction(c *claim, e Event, args ...string) bool {
	l := w.dial()
	if l == nil {
		return true
	}
	defer func() { _ = l.Close() }()
	if seen := w.see(c, l, true); seen.Reply != carried {
		return seen.Reply != lost
	}
	if w.chance(6) && !c.Open {
		w.sleep(c.TTL + w.upTo(500*time.Millisecond))
	}
	e.Name, e.Owner, e.Fence, e.Tx = c.Name, c.Owner, c.fence, true
	if !l.queue(&e, args) {
		return true
	}
	_, _ = l.askFor(&e, func(v redistest.Value) {
		switch {
		case v.IsError():
			e.Reply, e.Text = failed, v.Text
		case v.Null || len(v.Elems) != 1 || v.Elems[0].Int() != 1:
			e.Reply = lost
		default:
			e.Reply, e.Freed, e.Validity = carried, e.Op == opUnlock, believed(e.TTL)
		}
	}, "EXEC")
	return e.Reply != lost
}

// queue sends MULTI and a command. What is refused is an Event of its own, since EXEC does nothing then.
func (l *line) queue(e *Event, commands ...[]string) bool {
	for _, args := range append([][]string{{"MULTI"}}, commands...) {
		v, err := l.Try(args...)
		if err != nil {
			return false
		}
		if v.IsError() {
			r := Event{Op: opSee, Name: e.Name, Owner: e.Owner, Proxy: l.proxy, Reply: failed, Text: v.Text}
			l.w.begin(&r)
			r.End = now()
			l.w.journal.write(&r)
			return false
		}
	}
	return true
}

// setInTransaction takes the lock behind MULTI: with SET NX, or behind WATCH with SET, which must do nothing if somebody has
// had it since. It returns the Reply of its Event; empty: there was none.
func (w *worker) setInTransaction(c *claim) string {
	l := c.line
	c.TTL = c.TTL.Truncate(time.Millisecond)
	e := c.Event
	e.TTL, e.Proxy, e.Tx = c.TTL, l.proxy, true
	set := []string{"SET", c.Name, c.Owner, "PX", strconv.FormatInt(c.TTL.Milliseconds(), 10)}
	if w.chance(2) {
		switch seen := w.see(c, l, true); {
		case seen.Reply != lost:
			return ""
		case seen.Holder != "":
			if _, err := l.Try("UNWATCH"); err != nil {
				return ""
			}
			return held
		}
	} else {
		set = append(set, "NX")
	}
	if !l.queue(&e, set, []string{"GET", c.Name}) {
		return ""
	}
	w.begin(&e)
	v, err := l.Try("EXEC")
	if err != nil {
		return ""
	}
	end := now()
	switch {
	case refusedAs(v): // LOCK had it when it was watched
		e.End, e.Reply = end, held
	case v.IsError():
		e.End, e.Reply, e.Text = end, failed, v.Text
	case v.Null || len(v.Elems) != 2:
		e.End, e.Reply = end, held
	case v.Elems[0].Text != "OK":
		e.End, e.Reply, e.Holder = end, held, v.Elems[1].Text
	default:
		if !w.askFence(&e, l, end) {
			return ""
		}
		c.fence = e.Granted
	}
	w.journal.write(&e)
	return e.Reply
}
