package faults

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// anybody is Event.Takes of a command that overwrites whatever is there. It may have taken the lock of the owner that it is
// told of, and of one before: what a replacement that failed has left.
const anybody = "*"

// takes reports whether an event may have taken the lock from an owner, or moved its end, as it said or as it may have done.
func (e *Event) takes(owner string) bool {
	return owner != e.Owner && (e.Takes == owner || e.Takes == anybody && isAdopted(owner) || e.Blind && (isAdopted(owner) || isHash(owner)))
}

const compareAndSet = `if redis.call('type', KEYS[1]).ok == 'string' and redis.call('get', KEYS[1]) == ARGV[1] then redis.call('set', KEYS[1], ARGV[2], 'PX', ARGV[3]) return 1 else return 0 end`

// setArgs are the command with which a turn asks for its lock: most of the time only if nobody has it; where as=full, also one
// that overwrites; and where as=usual, also one that is refused if another has it. takes is for Event.Takes.
func (w *worker) setArgs(c *claim) (args []string, takes string) {
	args = []string{"SET", c.Name, c.Owner, "NX", "PX", strconv.FormatInt(c.TTL.Milliseconds(), 10)}
	switch {
	case isFenced(c.Name) && w.chance(3):
		return append(slices.Delete(args, 3, 4), "GET"), anybody
	case !isFenced(c.Name) && w.chance(8):
		args[3] = "XX"
	case w.chance(2):
		args = append(args, "GET")
	}
	return args, ""
}

// rewrite stores another value, by a script that compares the one before: a new grant in its place. It reports
// whether the worker has the lock, as far as it knows.
func (w *worker) rewrite(c *claim) bool {
	l, done := w.other(c)
	defer done()
	e := Event{Op: opLock, Name: c.Name, Owner: c.Owner + "'", TTL: w.lease().Truncate(time.Millisecond), Takes: c.Owner, Proxy: l.proxy}
	w.begin(&e)
	v, err := l.Try("EVAL", compareAndSet, "1", c.Name, c.Owner, e.Owner, strconv.FormatInt(e.TTL.Milliseconds(), 10))
	if err != nil {
		return false
	}
	end := now()
	switch {
	case v.IsError():
		e.End, e.Reply, e.Text = end, failed, v.Text
	case v.Int() == 0:
		e.End, e.Reply = end, held
	default:
		if !w.askFence(&e, l, end) {
			return false
		}
		c.Owner, c.TTL, c.fence = e.Owner, e.TTL, e.Granted
	}
	w.journal.write(&e)
	return e.Reply == granted
}

// askFence asks for the fence of what an event has taken, whose reply came at end, and fills the event in. It reports whether
// there was an answer: without one the worker does not use the grant, and the event stays one without a reply.
func (w *worker) askFence(e *Event, l *line, end instant) bool {
	fence, err := l.Try("LOCKCTL", "FENCE", e.Name, e.Owner)
	if err != nil || fence.Kind != ':' {
		return false
	}
	e.End, e.Reply, e.Granted, e.Holds, e.Validity = end, granted, fence.Int(), 1, believed(e.TTL)
	return true
}

// refusedAs reports whether a command was refused for what the lock is that somebody else has, or that others read: it would have
// replaced one that it may not replace, or taken the end from a hash.
func refusedAs(v redistest.Value) bool {
	return strings.HasPrefix(v.Text, "ADOPTREFUSED ") &&
		(strings.Contains(v.Text, "taken with LOCK") || strings.Contains(v.Text, "set as=full") || strings.Contains(v.Text, "a read/write lock") || strings.Contains(v.Text, "a hash that has no end"))
}

// mayLack reports whether somebody may have taken a lock from its owner by the end of an event.
func (j *judge) mayLack(b *belief, at *Event) bool {
	return slices.ContainsFunc(j.events, func(e *Event) bool {
		return e.Name == b.name && e.takes(b.owner) && e.Start < at.End && cmp.Or(e.End, b.until) > b.first
	})
}
