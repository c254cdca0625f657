package faults

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// timedNames begin names of locks whose values, where they have been taken without an end, are the Unix times of their ends.
const timedNames = "timed:"

func isTimed(name string) bool { return strings.HasPrefix(name, timedNames) }

// isLate reports whether a command was refused since its value, a time, is no more far enough away.
func isLate(v redistest.Value) bool {
	return strings.HasPrefix(v.Text, "ADOPTREFUSED ") && strings.Contains(v.Text, "its value is a time ")
}

// isDeadline reports whether an owner is one of playTimed.
func isDeadline(owner string) bool {
	_, err := strconv.ParseFloat(owner, 64)
	return err == nil && strings.Contains(owner, ".")
}

// deadline makes the value of a lock, the time at which it ends, and its lease from now on. What
// is behind the milliseconds makes it the only one of its kind.
func (w *worker) deadline(c *claim) {
	c.Start = now()
	at := time.Now().Add(w.lease())
	c.Owner = fmt.Sprintf("%d.%03d%d%02d%d%05d", at.Unix(), at.Nanosecond()/int(time.Millisecond), w.ID, w.Life%100, w.nth, w.turn%100_000)
	c.TTL = time.Until(at).Truncate(time.Millisecond)
}

// playTimed is one turn of a program whose values are deadlines: SETNX; who is refused asks with GET until when, and where that
// is over takes the lock with GETSET, unless somebody was faster. Now and then its clock is ahead, and it takes a lock for over that is
// not.
func (w *worker) playTimed() {
	c := &claim{Event: Event{Op: opLock, Name: timedNames + "e"}}
	if c.line = w.dial(); c.line == nil {
		return
	}
	defer func() { _ = c.line.Close() }()
	ahead := time.Duration(0)
	if w.chance(3) {
		ahead = w.MaxTTL
	}
	if !w.poll(func() string { return w.takeTimed(c, ahead) }) {
		return
	}
	for range w.IntN(3) {
		if w.chance(2) {
			w.sleep(w.upTo(c.TTL / 2))
		}
		if w.see(c, c.line, false).Reply == lost {
			return
		}
	}
	switch w.IntN(4) {
	case 0:
	case 1:
		w.blindly(c, Event{Op: opUnlock, First: true}, "DEL", c.Name)
	case 2:
		w.runOn(c, Event{Op: opUnlock, First: true}, compareAndDelete)
	default:
		w.inTransaction(c, Event{Op: opUnlock, First: true}, "DEL", c.Name)
	}
}

// takeTimed is one try. It returns the Reply of its last Event.
func (w *worker) takeTimed(c *claim, ahead time.Duration) string {
	w.deadline(c)
	reply := w.setNX(c, "SETNX", c.Name, c.Owner)
	if reply != held {
		return reply
	}
	v, err := c.line.Try("GET", c.Name)
	if err != nil {
		return ""
	}
	until, err := strconv.ParseFloat(v.Text, 64)
	if !v.Null && (err != nil || until > float64(time.Now().Add(ahead).UnixMilli())/1000) {
		return held
	}
	w.deadline(c)
	return w.setNX(c, "GETSET", c.Name, c.Owner)
}
