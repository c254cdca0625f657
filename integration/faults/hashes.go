package faults

import (
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// Scripts of locks that can be entered again: a hash with the owner and its holds.
const (
	enterHash = `if redis.call('exists', KEYS[1]) == 1 then
			if redis.call('type', KEYS[1]).ok ~= 'hash' or redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return 0 end
		end
		local n = redis.call('hincrby', KEYS[1], ARGV[1], 1) redis.call('pexpire', KEYS[1], ARGV[2]) return n`
	leaveHash = `local first = redis.call('get', KEYS[2]) if first then return tonumber(first) end
		if redis.call('type', KEYS[1]).ok ~= 'hash' or redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return nil end
		local left = redis.call('hincrby', KEYS[1], ARGV[1], -1)
		if left == 0 then redis.call('del', KEYS[1]) end
		redis.call('set', KEYS[2], left, 'px', 30000) return left`
	extendHash = `if redis.call('type', KEYS[1]).ok ~= 'hash' or redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return 0 end
		return redis.call('pexpire', KEYS[1], ARGV[2])`
)

// playHash is one turn of a program that keeps its locks in hashes, enters them again and gives the holds back one by
// one, each release under a name of its own, which makes it one however often it is sent.
func (w *worker) playHash() {
	c := w.claim()
	c.Event = Event{Op: opLock, Name: c.Name, TTL: c.TTL.Truncate(time.Millisecond), Owner: w.who + ".hash." + strconv.Itoa(w.turn)}
	if c.line = w.dial(); c.line == nil {
		return
	}
	defer func() { _ = c.line.Close() }()
	if !w.poll(func() string { return w.enter(c, c.line) }) {
		return
	}
	for range w.IntN(5) {
		alive := true
		switch w.IntN(6) {
		case 0:
			alive = w.runOn(c, Event{Op: opRenew, TTL: w.lease()}, extendHash)
		case 1:
			w.sleep(w.upTo(c.TTL / 2))
		case 2, 3:
			l, done := w.other(c)
			alive = w.enter(c, l) != held
			done()
		default:
			alive = w.update(c)
		}
		if !alive {
			return
		}
	}
	for n := 0; c.taken > 0 && !w.chance(16) && w.leaveHash(c, n); n++ {
		c.taken--
	}
}

// enter takes one hold, and asks for the fence of the lock. It returns the Reply of its Event; empty: there was none.
func (w *worker) enter(c *claim, l *line) string {
	e := c.Event
	e.Proxy = l.proxy
	w.begin(&e)
	v, err := l.Try("EVAL", enterHash, "1", c.Name, c.Owner, strconv.FormatInt(c.TTL.Milliseconds(), 10))
	if err != nil {
		return ""
	}
	end := now()
	switch {
	case v.IsError():
		e.End, e.Reply, e.Text = end, failed, v.Text
	case v.Int() == 0:
		e.End, e.Reply = end, held
	default:
		if !w.askFence(&e, l, end) {
			return ""
		}
		e.Holds = int(v.Int())
		c.taken, c.fence = e.Holds, e.Granted
	}
	w.journal.write(&e)
	return e.Reply
}

// leaveHash gives one hold back, perhaps more than once. It reports whether the worker has others, as far as it knows.
func (w *worker) leaveHash(c *claim, n int) bool {
	latch := "latch:" + c.Owner + ":" + strconv.Itoa(n)
	freed := false
	again := w.chance(3)
	for i := 0; i == 0 || again && i < 3; i++ {
		e := Event{Op: opUnlock, Name: c.Name, Owner: c.Owner, Fence: c.fence, Req: latch, First: i == 0}
		l, done := w.other(c)
		_, _ = l.askFor(&e, func(v redistest.Value) {
			switch {
			case v.IsError():
				e.Reply, e.Text = failed, v.Text
			case v.Kind != ':':
				e.Reply = lost
			default:
				e.Reply, e.Freed = carried, v.Int() == 0
			}
		}, "EVAL", leaveHash, "2", c.Name, latch, c.Owner)
		done()
		if freed = freed || e.Freed || e.Reply != carried; e.Reply == carried && i > 0 {
			break
		}
	}
	return !freed
}

// isHash reports whether an owner is one of playHash.
func isHash(owner string) bool { return strings.Contains(owner, ".hash.") }
