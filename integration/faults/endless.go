package faults

import (
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// maxHold is the --max-hold of proxies: a lock without an end whose client was killed is in the way for so long.
const maxHold = 6 * time.Second

// playEndless is one turn of a program that takes its locks without an end, with SETNX: it gives them one with EXPIRE, or
// has them until DEL. Neither compares the value.
func (w *worker) playEndless() {
	c := w.claim()
	for isTimed(c.Name) {
		c.Name = w.Names[w.IntN(len(w.Names))]
	}
	c.Event = Event{Op: opLock, Name: c.Name, TTL: w.MaxTTL, Owner: w.who + ".adopted." + strconv.Itoa(w.turn), Open: true}
	if c.line = w.dial(); c.line == nil {
		return
	}
	defer func() { _ = c.line.Close() }()
	if !w.poll(func() string { return w.setNX(c, "SETNX", c.Name, c.Owner) }) {
		return
	}
	ends := w.chance(2)
	if ends && !w.expire(c, w.lease()) {
		return
	}
	for range w.IntN(4) {
		alive := true
		switch w.IntN(6) {
		case 0:
			if ends { // else it answers 0, as if nobody had the lock
				alive = w.blindly(c, Event{Op: opRenew, TTL: w.MaxTTL, Open: true}, "PERSIST", c.Name) != lost
				ends = false
			}
		case 1:
			w.sleep(w.upTo(c.TTL / 2))
		case 2:
			if w.chance(3) { // others are to keep it meanwhile
				w.sleep(c.TTL + w.upTo(c.TTL/2))
			}
			alive = w.see(c, c.line, false).Reply != lost
		case 3:
			alive = w.expire(c, w.lease())
			ends = true
		default:
			alive = w.update(c)
		}
		if !alive {
			return
		}
	}
	if w.chance(8) { // it ends by itself
		w.expire(c, 200*time.Millisecond)
		return
	}
	w.give(c)
}

// poll asks for a lock again and again that another has. It reports whether it was granted.
func (w *worker) poll(take func() string) bool {
	for i := 0; ; i++ {
		reply := take()
		if reply == granted {
			return true
		}
		if w.sleep(w.upTo(20 * time.Millisecond)); reply != held || i == polls || w.over() {
			return false
		}
	}
}

// setNX takes the lock with a command that answers 1 if it has done so, or null if GETSET has, and asks for its fence. It returns
// the Reply of its Event.
func (w *worker) setNX(c *claim, args ...string) string {
	e := c.Event
	e.Proxy = c.line.proxy
	w.begin(&e)
	if isTimed(c.Name) {
		e.TTL -= time.Duration(e.Start - c.Start)
	}
	v, err := c.line.Try(args...)
	if err != nil {
		return ""
	}
	end := now()
	switch {
	case isTimed(c.Name) && isLate(v), refusedAs(v), strings.HasPrefix(v.Text, "WRONGTYPE"):
		e.End, e.Reply = end, held
	case v.IsError():
		e.End, e.Reply, e.Text = end, failed, v.Text
	case args[0] == "GETSET" && !v.Null && v.Text != c.Owner:
		e.End, e.Reply, e.Text = end, failed, "GETSET answered "+v.String()
	case !v.Null && v.String() != ":1":
		e.End, e.Reply = end, held
	default:
		if !w.askFence(&e, c.line, end) {
			return ""
		}
		c.fence = e.Granted
	}
	w.journal.write(&e)
	return e.Reply
}

func (w *worker) expire(c *claim, ttl time.Duration) bool {
	ttl = ttl.Truncate(time.Millisecond)
	return w.blindly(c, Event{Op: opRenew, TTL: ttl}, "PEXPIRE", c.Name, strconv.FormatInt(ttl.Milliseconds(), 10)) != lost
}

// give releases the lock, by DEL or by what compares, and again until there is an answer.
func (w *worker) give(c *claim) {
	e := Event{Op: opUnlock, First: true}
	switch again := 0; w.IntN(4) {
	case 0:
		w.inTransaction(c, e, "DEL", c.Name)
		e.First = false
		fallthrough
	case 1:
		for ; again < 3 && w.runOn(c, e, compareAndDelete); again++ {
			e.First = false
		}
	default:
		for reply := ""; again < 5 && reply != carried && reply != lost; again++ {
			reply = w.blindly(c, e, "DEL", c.Name)
			e.First = false
		}
	}
}

// blindly sends a command that is done to whoever has the lock, and answers 1 if somebody has. It returns the Reply
// of its Event.
func (w *worker) blindly(c *claim, e Event, args ...string) string {
	l, done := w.other(c)
	defer done()
	e.Name, e.Owner, e.Fence, e.Blind = c.Name, c.Owner, c.fence, true
	_, _ = l.askFor(&e, func(v redistest.Value) {
		switch {
		case refusedAs(v), v.String() == ":0":
			e.Reply = lost
		case v.IsError():
			e.Reply, e.Text = failed, v.Text
		default:
			e.Reply, e.Freed, e.Validity = carried, e.Op == opUnlock, believed(e.TTL)
		}
	}, args...)
	return e.Reply
}
