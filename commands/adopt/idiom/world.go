package idiom

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/commands/adopt/idiom/lua"
)

// maxSignals is how many signals a script may send.
const maxSignals = 16

// maxValue is how long a value may be, in bytes: the engine's owners have room for so much.
const maxValue = 1003

// A world is what one run of a call sees: the state of its lock, and what it has done to it so far.
type world struct {
	key       string   // of the lock; empty until a command names it
	was, is   State    // before the run, and now
	members   []member // of is, if that is Sorted or Permits
	now       time.Time
	timed     bool // the run has set an end
	timeRead  bool // it has read what is left of the lease
	scoreRead bool // it has read when somebody got a permit
	past      bool // it has given a member a score that is no time to come
	endRead   bool // it has read whether there is an end
	adopted   func(key string) bool
	signals   [][]string
	latch     latch
	readOnly  bool
	inScript  bool // errors about the number of arguments are worded differently
	dialect   Dialect
	fenceOf   FenceKey
	database  int
	fenced    bool     // the fence was incremented
	shares    *shares  // of a ReadWrite, or of one that the run makes
	fields    []string // of a hash, that it has named
	modeRead  bool     // the run has looked for the mode of a ReadWrite where there is none

	deadlines deadlines
}

// errors of Redis
const (
	wrongType  = lua.Error("WRONGTYPE Operation against a key holding the wrong kind of value")
	notInteger = lua.Error("ERR value is not an integer or out of range")
	syntax     = lua.Error("ERR syntax error")
)

var ok = lua.Status("OK")

// A command is what may be done to the key of a lock. args are those behind the key.
type command struct {
	min, max int // arguments behind the key
	writes   bool
	run      func(w *world, name string, args []string) (lua.Reply, error)
}

var commandTable map[string]command

func init() {
	commandTable = map[string]command{
		"SET": {1, 64, true, (*world).set}, "SETNX": {1, 1, true, (*world).setNX},
		"SETEX": {2, 2, true, (*world).setEX}, "PSETEX": {2, 2, true, (*world).setEX}, "GETSET": {1, 1, true, (*world).getSet},
		"GET": {0, 0, false, (*world).get}, "MGET": {0, 0, false, (*world).mget}, "STRLEN": {0, 0, false, (*world).strlen},
		"GETRANGE": {2, 2, false, (*world).getRange}, "SUBSTR": {2, 2, false, (*world).getRange},
		"EXISTS": {0, 0, false, (*world).exists}, "TOUCH": {0, 0, false, (*world).exists}, "TYPE": {0, 0, false, (*world).typeOf},
		"TTL": {0, 0, false, (*world).ttl}, "PTTL": {0, 0, false, (*world).ttl},
		"EXPIRETIME": {0, 0, false, (*world).ttl}, "PEXPIRETIME": {0, 0, false, (*world).ttl},
		"DEL": {0, 0, true, (*world).del}, "UNLINK": {0, 0, true, (*world).del}, "GETDEL": {0, 0, true, (*world).getDel},
		"DELEX": {0, 2, true, (*world).delex}, "DELIFEQ": {1, 1, true, (*world).delIfEq},
		"GETEX": {0, 64, true, (*world).getEx}, "HMGET": {1, 64, false, (*world).hmget},
		"EXPIRE": {1, 64, true, (*world).expire}, "PEXPIRE": {1, 64, true, (*world).expire},
		"EXPIREAT": {1, 64, true, (*world).expire}, "PEXPIREAT": {1, 64, true, (*world).expire},
		"PERSIST": {0, 0, true, (*world).persist},
		"HEXISTS": {1, 1, false, (*world).hget}, "HGET": {1, 1, false, (*world).hget}, "HSTRLEN": {1, 1, false, (*world).hget},
		"HLEN": {0, 0, false, (*world).hash}, "HKEYS": {0, 0, false, (*world).hash}, "HVALS": {0, 0, false, (*world).hash}, "HGETALL": {0, 0, false, (*world).hash},
		"ZSCORE": {1, 1, false, (*world).zscore}, "ZCARD": {0, 0, false, (*world).zcard}, "ZCOUNT": {2, 2, false, (*world).zcount},
		"ZRANGE": {2, 64, false, (*world).zrange}, "ZREVRANGE": {2, 64, false, (*world).zrange},
		"ZADD": {2, 64, true, (*world).zadd}, "ZREM": {1, 64, true, (*world).zrem}, "ZREMRANGEBYSCORE": {2, 2, true, (*world).zremRange},
		"HSET": {2, 2, true, (*world).hset}, "HSETNX": {2, 2, true, (*world).hset}, "HINCRBY": {2, 2, true, (*world).hincrby}, "HDEL": {1, 1, true, (*world).hdel},
	}
}

// variadic are commands that take several keys or fields in Redis, and only one here.
var variadic = map[string]string{
	"DEL": "keys", "UNLINK": "keys", "EXISTS": "keys", "TOUCH": "keys", "MGET": "keys", "HSET": "fields", "HDEL": "fields", "HMGET": "fields",
}

// signalNames are commands on other keys and channels that may follow a change of the lock.
var signalNames = map[string]bool{
	"PUBLISH": true, "SPUBLISH": true, "LPUSH": true, "RPUSH": true, "LTRIM": true, "EXPIRE": true, "PEXPIRE": true, "DEL": true,
}

// wakes are the signals that wake a waiting client.
var wakes = map[string]bool{"PUBLISH": true, "SPUBLISH": true, "LPUSH": true, "RPUSH": true}

// call runs a command of a script.
func (w *world) call(args []string) (lua.Reply, error) {
	w.inScript = true
	name := strings.ToUpper(args[0])
	if name == "TIME" && len(args) == 1 {
		micro := w.now.UnixMicro()
		return []any{strconv.FormatInt(micro/1e6, 10), strconv.FormatInt(micro%1e6, 10)}, nil
	}
	if name == "SELECT" && len(args) == 2 && args[1] == strconv.Itoa(w.database) { // the script is there already
		return ok, nil
	}
	channel := name == "PUBLISH" || name == "SPUBLISH" // which may match a pattern: it is no key
	if !channel {
		if reply, isFence, err := w.onFence(name, args); isFence {
			return reply, err
		}
	}
	if reply, isHold, err := w.onHold(name, args); isHold {
		return reply, err
	}
	if w.key == "" && len(args) > 1 && !channel && w.adopted(args[1]) {
		w.key = args[1]
	}
	if len(args) < 2 || channel || args[1] != w.key {
		return w.signal(name, args, channel)
	}
	return w.onLock(name, args[2:])
}

// onLock runs a command on the key of the lock.
func (w *world) onLock(name string, args []string) (lua.Reply, error) {
	if reply, is, err := w.onShares(name, args); is {
		return reply, err
	}
	c, known := commandTable[name]
	switch {
	case !known, w.inScript && !w.dialect.has(name):
		return nil, ofALock(name)
	case len(args) > c.max && variadic[name] != "":
		return nil, refusef("%s of several %s", name, variadic[name])
	case len(args) < c.min || len(args) > c.max:
		if w.inScript {
			return nil, refusef("%s with %d arguments", name, len(args)+1)
		}
		return wrongArity(name), nil
	case c.writes && w.readOnly:
		return nil, refusef("%s in a script that may not write", name)
	}
	if name[0] == 'H' && len(args) > 0 {
		w.fields = append(w.fields, args[0])
	}
	return c.run(w, name, args)
}

func wrongArity(name string) lua.Error {
	return lua.Error("ERR wrong number of arguments for '" + strings.ToLower(name) + "' command")
}

// signal keeps a command on another key or channel, to be sent after the lock has been changed.
func (w *world) signal(name string, args []string, channel bool) (lua.Reply, error) {
	if !channel {
		if reply, isLatch, err := w.onLatch(name, args); isLatch {
			return reply, err
		}
	}
	switch {
	case !signalNames[name] && len(args) > 1 && w.adopted(args[1]):
		return nil, refusef("%s of another lock", name)
	case !signalNames[name] || len(args) < 2:
		return nil, besideALock(name)
	}
	keys := args[1:2]
	if name == "DEL" {
		keys = args[1:]
	}
	if !channel && slices.ContainsFunc(keys, w.adopted) {
		return nil, refusef("%s of another lock", name)
	}
	if w.readOnly {
		return nil, refusef("%s in a script that may not write", name)
	}
	if len(w.signals) == maxSignals {
		return nil, refusef("more than %d signals", maxSignals)
	}
	w.signals = append(w.signals, args)
	return lua.Unknown{}, nil
}

// op returns what the run has done, as one operation.
func (w *world) op() (Op, error) {
	was, is := &w.was, &w.is
	switch {
	case was.Kind == Native && (*was != *is || w.timed):
		return Op{}, refusef("a change of a lock that was taken with LOCK")
	case w.shares != nil:
		return w.opShares()
	case was.Kind == Permits, w.isPermit():
		return w.opPermits()
	case w.past:
		return Op{}, errPast
	case is.Kind == Absent && was.Kind == Absent:
		return Op{}, nil
	case is.Kind == Hash && is.Count == 0:
		return Op{}, refusef("a hash that stays with a count of 0")
	case is.Kind == Absent:
		return Op{Do: Release}, nil
	case is.Kind == Sorted:
		return w.opSorted()
	case is.Kind == String && was.Kind == Absent && w.counts():
		return Op{}, refusef("a semaphore or a counter, not a lock: it sets a number, and wakes who waits for that")
	case is.Kind == String && was.Kind == Absent:
		return Op{Do: Take, Value: is.Value, TTL: is.Left}, nil
	case is.Kind == Hash && is.Count == was.Count+1 && (was.Kind == Absent || was.Kind == Hash && was.Value == is.Value):
		return Op{Do: Enter, Value: is.Value, TTL: is.Left}, nil
	case is.Kind == Hash && was.Kind == Hash && is.Value == was.Value && is.Count == was.Count-1:
		op := Op{Do: Leave}
		if w.timed {
			op.TTL = is.Left
		}
		return op, nil
	case is.Kind != was.Kind || is.Value != was.Value:
		if is.Kind != String {
			return Op{}, refusef("a hash in place of a lock")
		}
		return Op{Do: Replace, Value: is.Value, TTL: is.Left}, nil
	case is.Count != was.Count:
		return Op{}, refusef("a count that changes by more than one")
	case w.timed:
		return Op{Do: Renew, TTL: is.Left}, nil
	}
	return Op{}, nil
}

// counts reports whether the run has stored a number and woken waiters: that is a semaphore or a counter. A client that
// takes a lock has no reason to wake others.
func (w *world) counts() bool {
	if len(w.signals) == 0 {
		return false
	}
	_, isInt := integer(w.is.Value)
	return isInt && slices.ContainsFunc(w.signals, func(s []string) bool { return wakes[strings.ToUpper(s[0])] })
}

// setEnd lets the lock end after left; at once if that is not positive.
func (w *world) setEnd(left time.Duration) {
	if left <= 0 {
		w.is = State{}
		return
	}
	w.is.Left, w.timed = left, true
}

// integer is how Redis reads an argument.
func integer(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && strconv.FormatInt(n, 10) == s
}
