package faults

import (
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// The kinds of locks, by what they protect: nothing; a set that is read, enlarged and
// written back; and the same set, which knows the largest fence it was used under.
const (
	mutexNames  = "mutex:"
	updateNames = "updates:"
	fencedNames = "fenced:"
)

// fencedRead answers {1, set}, from now on for this fence and larger ones only, else {0}.
const fencedRead = `if tonumber(ARGV[1]) < tonumber(redis.call('HGET', KEYS[1], 'fence') or '0') then return {0} end
redis.call('HSET', KEYS[1], 'fence', ARGV[1])
return {1, redis.call('HGET', KEYS[1], 'set') or ''}`

// fencedWrite answers {1} if no larger fence was seen, else {0}.
const fencedWrite = `if tonumber(ARGV[1]) < tonumber(redis.call('HGET', KEYS[1], 'fence') or '0') then return {0} end
redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'set', ARGV[2])
return {1}`

// setKey is where the set of a lock is at that time, on the upstream.
func setKey(name string, at instant) string {
	return "set:" + name + ":" + strconv.FormatInt(int64(at)/int64(epoch), 10)
}

// update makes the set that the lock protects one element larger. It reports whether the
// owner still has the lock, as far as it knows.
func (w *worker) update(c *claim) bool {
	e := Event{Op: opRead, Name: c.Name, Owner: c.Owner, Fence: c.fence, Key: setKey(c.Name, now())}
	e.Value = w.who + "." + strconv.Itoa(w.turn) + "." + strconv.FormatInt(w.ids.Load(), 10)
	l, done := w.other(c)
	defer done()
	switch {
	case strings.HasPrefix(c.Name, updateNames):
		set, ok := l.plainRead(e)
		if ok {
			w.think(c)
			e.Op = opWrite
			l.work(&e, func(v redistest.Value) bool { return v.Text == "OK" }, "SET", e.Key, set+e.Value+",")
		}
	case strings.HasPrefix(c.Name, fencedNames):
		fence := strconv.FormatInt(c.fence, 10)
		taken := func(v redistest.Value) bool { return len(v.Elems) > 0 && v.Elems[0].Int() == 1 }
		v, ok := l.work(&e, taken, "EVAL", fencedRead, "1", e.Key, fence)
		if !ok || e.Reply != carried {
			return e.Reply != stale
		}
		w.think(c)
		e.Op, e.End, e.Reply = opWrite, 0, ""
		l.work(&e, taken, "EVAL", fencedWrite, "1", e.Key, fence, v.Elems[1].Text+e.Value+",")
		return e.Reply != stale
	default:
		w.think(c)
	}
	return true
}

// think takes some time, and now and then, as a long garbage collection would, more than the
// lease, without looking at the clock afterwards: long enough that the next may have
// changed what the lock protects.
func (w *worker) think(c *claim) {
	if w.chance(8) && !c.Session && !c.Open && !w.Copies {
		w.sleep(c.TTL + w.upTo(500*time.Millisecond))
	}
	w.sleep(w.upTo(8 * time.Millisecond))
}

func (l *line) plainRead(e Event) (set string, ok bool) {
	v, ok := l.work(&e, func(redistest.Value) bool { return true }, "GET", e.Key)
	return v.Text, ok && e.Reply == carried
}

// work is ask for a command to the upstream; taken says whether it did what it was to.
func (l *line) work(e *Event, taken func(redistest.Value) bool, args ...string) (redistest.Value, bool) {
	return l.askFor(e, func(v redistest.Value) {
		switch {
		case v.IsError():
			e.Reply, e.Text = failed, v.Text
		case taken(v):
			e.Reply = carried
		default:
			e.Reply = stale
		}
	}, args...)
}
