package idiom

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/commands/adopt/idiom/lua"
)

// A Call is a command or a script on the key of one lock, ready to run.
type Call struct {
	key      string
	values   []string                // arguments that may be the value of the lock
	compares func(w *world) []string // strings that the script compares with the value of another's lock; nil: it is no script
	database int                     // of the client
	reads    bool                    // a call that changes the lock is refused
	proto    int
	readOnly bool
	adopted  func(key string) bool
	dialect  Dialect
	fenceOf  FenceKey // nil: there are none
	fence    int64    // of the grant, as far as it is known
	run      func(w *world) (lua.Reply, error)

	deadlines deadlines
}

// Speak makes the call answer as a server of that dialect does. Without it the dialect is the zero Dialect.
func (c *Call) Speak(d Dialect) { c.dialect = d }

// In makes the call one of a client in that database, which is 0 without it.
func (c *Call) In(database int) { c.database = database }

// ReadsOnly has the call refused if it would change the lock: its class is ReadOnly, by which it is served.
func (c *Call) ReadsOnly() { c.reads = true }

var errNotCompared = refusef("a change of a lock that it has not compared with a value")

// tokens are what may be the value of the caller's lock, or its field: arguments, and what the script looks for in another's lock.
func (c *Call) tokens(now time.Time) []string {
	all := slices.Clip(c.values)
	if c.compares == nil {
		return all
	}
	for _, other := range []State{{Kind: String}, {Kind: Hash, Count: 1}} {
		other.Value, other.Left = sampleOther, sampleLeft
		w := c.world(other, now)
		all = append(all, c.compares(w)...)
		all = append(all, w.fields...)
	}
	return all
}

// Key is the key of the lock.
func (c *Call) Key() string { return c.key }

// Plain makes a call of a command whose first argument is its only key, that of a lock. proto is the client's, 2 or 3. The
// error is a *Refusal.
func Plain(args []string, proto int) (*Call, error) {
	name := strings.ToUpper(args[0])
	if _, known := commandTable[name]; !known || len(args) < 2 || inScriptsOnly[name] {
		return nil, ofALock(name)
	}
	key, rest := args[1], args[2:]
	return &Call{
		key: key, values: rest, proto: proto, adopted: func(other string) bool { return other == key },
		run: func(w *world) (lua.Reply, error) {
			r, err := w.onLock(name, rest)
			if all, isArray := r.([]any); isArray && name == "HGETALL" {
				return pairs(all), err
			}
			return r, err
		},
	}, nil
}

// Call makes a call of the script. adopted reports whether a key is that of a lock; a script that uses none makes no Call:
// nil. readOnly: it was sent with EVAL_RO or EVALSHA_RO. The error is a *Refusal.
func (s *Script) Call(keys, args []string, proto int, readOnly bool, adopted func(key string) bool) (*Call, error) {
	return s.CallFenced(keys, args, proto, readOnly, adopted, nil)
}

// CallFenced is Call where some keys are fence keys.
func (s *Script) CallFenced(keys, args []string, proto int, readOnly bool, adopted func(key string) bool, fenceOf FenceKey) (*Call, error) {
	if s.refused != nil {
		return nil, s.refused
	}
	c := &Call{
		values: args, proto: proto, readOnly: readOnly || s.noWrites, adopted: adopted, fenceOf: fenceOf,
		run: func(w *world) (lua.Reply, error) { return s.parsed.Run(w.dialect.lua(), keys, args, w.call) },
		compares: func(w *world) []string {
			return s.parsed.Compared(w.dialect.lua(), keys, args, sampleOther, w.call)
		},
	}
	c.key = soleLock(adopted, keys, args)
	if c.key == "" {
		w := &world{adopted: adopted, fenceOf: fenceOf, now: time.Now()}
		if _, err := c.run(w); err != nil && w.key == "" {
			return nil, asRefusal(err)
		}
		if c.key = w.key; c.key == "" {
			return nil, nil
		}
	}
	return c, nil
}

// soleLock returns the only argument of a script that is the key of a lock; empty: there is none, or several. Of several
// one may be a channel, so the script must be run to see which one is the key.
func soleLock(adopted func(key string) bool, all ...[]string) (key string) {
	for _, some := range all {
		for _, a := range some {
			if !adopted(a) {
				continue
			}
			if key != "" && key != a {
				return ""
			}
			key = a
		}
	}
	return key
}

// Run runs a call over the state of its lock. It changes nothing. now is what the script takes for the time.
// The error is a *Refusal.
func (c *Call) Run(state State, now time.Time) (Outcome, error) {
	w := c.world(state, now)
	reply, err := c.run(w)
	if err != nil {
		return Outcome{}, asRefusal(err)
	}
	op, err := w.op()
	if err == nil {
		err = w.checkFence(op)
	}
	if err == nil && w.latch.key != "" {
		op, err = c.latched(w, op, reply)
	}
	if err == nil && c.reads && op.Do != Nothing {
		err = errNotCompared
	}
	if err != nil {
		return Outcome{}, err
	}
	return Outcome{Op: op, Signals: w.signals, Reply: appendReply(nil, withFence(reply, c.fence), c.proto), TimeRead: w.timeRead || w.endRead, LeftRead: w.timeRead}, nil
}

func asRefusal(err error) *Refusal {
	if r := (*Refusal)(nil); errors.As(err, &r) {
		return r
	}
	own := (*lua.Raised)(nil)
	return &Refusal{Why: err.Error(), Raised: errors.As(err, &own)}
}

// pairs are a map in RESP3.
type pairs []any

// appendReply appends a reply in RESP.
func appendReply(b []byte, r lua.Reply, proto int) []byte {
	switch r := r.(type) {
	case int64:
		return resp.AppendInt(b, r)
	case string:
		return resp.AppendBulkString(b, r)
	case lua.Status:
		return resp.AppendSimple(b, string(r))
	case lua.Error:
		return resp.AppendError(b, string(r))
	case score:
		return appendScore(b, r, proto)
	case scored:
		return r.append(b, proto)
	case pairs:
		b = resp.AppendMap(b, len(r)/2, proto)
		for _, e := range r {
			b = appendReply(b, e, proto)
		}
		return b
	case []any:
		b = resp.AppendArray(b, len(r))
		for _, e := range r {
			b = appendReply(b, e, proto)
		}
		return b
	}
	return resp.AppendNullBulk(b, proto)
}

// PlainClass returns the class of a command that Plain takes.
func PlainClass(args []string) Class {
	switch name := strings.ToUpper(args[0]); name {
	case "DEL", "UNLINK", "GETDEL", "HDEL":
		return ForceRelease
	case "DELEX":
		if len(args) == 2 {
			return ForceRelease
		}
		return ReleaseOwn
	case "DELIFEQ":
		return ReleaseOwn
	case "EXPIRE", "PEXPIRE", "EXPIREAT", "PEXPIREAT", "PERSIST":
		return ForceExtend
	case "GETEX":
		if len(args) > 2 {
			return ForceExtend
		}
	case "SETEX", "PSETEX", "GETSET":
		return Overwrite
	case "SETNX":
		return Acquire
	case "SET":
		switch o, fine := parseSet(args[min(3, len(args)):]); {
		case fine && o.compares != "":
			return ExtendOwn
		case fine && !o.nx && !o.xx:
			return Overwrite
		}
		return Acquire
	case "ZREM":
		return PermitRelease
	case "HSET", "HSETNX", "HINCRBY":
		return ReentrantAcquire
	}
	return ReadOnly
}
