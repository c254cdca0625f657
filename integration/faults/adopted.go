package faults

import (
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// adopting makes every lock of a run one that commands of Redis can take, too.
var adopting = []string{"--adopt", mutexNames + "*", "--adopt", updateNames + "*", "--adopt", fencedNames + "* as=full", "--adopt", swapNames + "* as=full",
	"--adopt", timedNames + "* timestamps=float", "--max-hold", maxHold.String()}

const (
	compareAndDelete = `if redis.call('type', KEYS[1]).ok == 'string' and redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end`
	compareAndExpire = `if redis.call('type', KEYS[1]).ok == 'string' and redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end`
)

// playAdopted is one turn of a program that knows no LOCK: SET NX, and scripts that compare the value. The value
// is what LOCK calls an owner, and no other turn has it.
func (w *worker) playAdopted() {
	c := w.claim()
	c.Event = Event{Op: opLock, Name: c.Name, TTL: c.TTL, Owner: w.who + ".adopted." + strconv.Itoa(w.turn)}
	if c.line = w.dial(); c.line == nil {
		return
	}
	defer func() { _ = c.line.Close() }()
	take := w.set
	if w.chance(4) {
		take = w.setInTransaction
	}
	if !w.poll(func() string { return take(c) }) {
		return
	}
	for range w.IntN(4) {
		alive := true
		switch w.IntN(8) {
		case 0:
			alive = w.rewrite(c)
		case 1:
			alive = w.runOn(c, Event{Op: opRenew, TTL: w.lease()}, compareAndExpire)
		case 2:
			ttl := w.lease().Truncate(time.Millisecond)
			alive = w.inTransaction(c, Event{Op: opRenew, TTL: ttl}, "PEXPIRE", c.Name, strconv.FormatInt(ttl.Milliseconds(), 10))
		case 3, 4:
			w.sleep(w.upTo(c.TTL / 2))
		default:
			alive = w.update(c)
		}
		if !alive {
			return
		}
	}
	switch w.IntN(16) {
	case 0:
	case 1, 2, 3, 4, 5:
		w.inTransaction(c, Event{Op: opUnlock, First: true}, "DEL", c.Name)
	default:
		w.runOn(c, Event{Op: opUnlock, First: true}, compareAndDelete)
	}
}

// playConstant is one turn of a program whose values are all the same. It leaves the lock to its lease: to release it by such a value
// may release another's. LOCKCTL FENCE could not tell them apart, either, so the grant is without one here.
func (w *worker) playConstant() {
	c := w.claim()
	for isFenced(c.Name) { // where others overwrite
		c.Name = w.Names[w.IntN(len(w.Names))]
	}
	ttl := 200*time.Millisecond + w.upTo(300*time.Millisecond).Truncate(time.Millisecond)
	if c.line = w.dial(); c.line == nil {
		return
	}
	defer func() { _ = c.line.Close() }()
	if w.poll(func() string {
		e := Event{Op: opLock, Name: c.Name, TTL: ttl, Owner: w.who + ".adopted." + strconv.Itoa(w.turn)}
		_, _ = c.line.askFor(&e, func(v redistest.Value) {
			switch {
			case v.IsError():
				e.Reply, e.Text = failed, v.Text
			case v.Null:
				e.Reply = held
			default:
				e.Reply, e.Holds, e.Validity = granted, 1, believed(ttl)
			}
		}, "SET", c.Name, "1", "NX", "PX", strconv.FormatInt(ttl.Milliseconds(), 10))
		return e.Reply
	}) {
		w.sleep(w.upTo(ttl))
	}
}

// polls are how often a lock is asked for that another has.
const polls = 50

// set takes the lock with SET, and asks for the fence of what it has taken. It returns the Reply of its Event.
func (w *worker) set(c *claim) string {
	args, takes := w.setArgs(c)
	e := c.Event
	c.TTL = c.TTL.Truncate(time.Millisecond)
	e.TTL, e.Proxy, e.Takes = c.TTL, c.line.proxy, takes
	w.begin(&e)
	v, err := c.line.Try(args...)
	if err != nil {
		return ""
	}
	end := now()
	switch {
	case refusedAs(v), v.IsError() && strings.HasPrefix(v.Text, "WRONGTYPE"): // the latter: a hash has it
		e.End, e.Reply = end, held
	case v.IsError():
		e.End, e.Reply, e.Text = end, failed, v.Text
	case takes == "" && v.Null == (len(args) == 6):
		e.End, e.Reply, e.Holder = end, held, v.Text
	default:
		if !w.askFence(&e, c.line, end) {
			return ""
		}
		c.fence = e.Granted
	}
	w.journal.write(&e)
	return e.Reply
}

// believed is for how long a Redlock client counts on a lease, from before it has asked.
func believed(ttl time.Duration) time.Duration { return ttl - ttl/100 - margin }

// runOn runs a script that compares the value, perhaps through another proxy. It reports whether the worker still
// has the lock, as far as it knows.
func (w *worker) runOn(c *claim, e Event, script string) bool {
	l, done := w.other(c)
	defer done()
	e.Name, e.Owner, e.Fence, e.TTL = c.Name, c.Owner, c.fence, e.TTL.Truncate(time.Millisecond)
	_, _ = l.askFor(&e, func(v redistest.Value) {
		switch {
		case v.IsError():
			e.Reply, e.Text = failed, v.Text
		case v.Int() == 0:
			e.Reply = lost
		default:
			e.Reply, e.Freed, e.Validity = carried, e.Op == opUnlock, believed(e.TTL)
		}
	}, "EVAL", script, "1", c.Name, c.Owner, strconv.FormatInt(e.TTL.Milliseconds(), 10))
	return e.Reply != lost
}

// isAdopted reports whether an owner is the value of a lock that was taken by commands of Redis, or stands for one.
func isAdopted(owner string) bool { return strings.Contains(owner, ".adopted.") || isDeadline(owner) }
