package idiom

import (
	"slices"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/commands/adopt/idiom/lua"
)

// Renewals are a script that extends what threads have of several read/write locks: it looks for each thread's field and, if
// that is there, moves the ends of its holds and of the lock. Nothing else depends on a field, so each thread is decided by
// itself, and the script is run again to answer for those that were found. Its methods are safe for concurrent use.
type Renewals struct {
	script  *Script
	dialect Dialect
	keys    []string
	args    []string
	proto   int

	Each []Renewal
}

// A Renewal extends the lock by which a thread reads.
type Renewal struct {
	Key, Thread string
	TTL         time.Duration
}

// Renewals are those of a script; the error is a *Refusal if it does anything else.
func (s *Script) Renewals(d Dialect, keys, args []string, proto int) (*Renewals, error) {
	if s.refused != nil {
		return nil, s.refused
	}
	r := &Renewals{script: s, dialect: d, keys: keys, args: args, proto: proto}
	all := &renewing{of: r, found: func(Renewal) bool { return true }}
	if err := all.run(); err != nil {
		return nil, err
	}
	if r.Each = all.each; len(r.Each) == 0 {
		return nil, refusef("nothing is extended")
	}
	none := &renewing{of: r, found: func(Renewal) bool { return false }}
	if err := none.run(); err != nil {
		return nil, err
	}
	if len(none.each)+len(none.ends) > 0 {
		return nil, refusef("a lock is extended whoever has it")
	}
	return r, nil
}

// Call makes the call that extends one of the locks, and answers whether there was something to extend.
func (r *Renewals) Call(one Renewal) *Call {
	return &Call{
		key: one.Key, values: []string{one.Thread}, proto: r.proto, dialect: r.dialect, adopted: func(key string) bool { return key == one.Key },
		run: func(w *world) (lua.Reply, error) {
			there, err := w.onLock("HEXISTS", []string{one.Thread})
			if there == lua.Reply(int64(1)) && w.is.Kind == ReadWrite {
				w.setEnd(one.TTL)
			}
			return there, err
		},
	}
}

// Reply is the answer of the script if these were found.
func (r *Renewals) Reply(found func(Renewal) bool) ([]byte, error) {
	x := &renewing{of: r, found: found}
	if err := x.run(); err != nil {
		return nil, err
	}
	return appendReply(nil, x.reply, r.proto), nil
}

// A renewing is one run of the script.
type renewing struct {
	of    *Renewals
	found func(Renewal) bool // which threads have what they name; the TTL does not count
	reply lua.Reply

	locks []string
	each  []Renewal
	ends  []string // locks whose end was moved
}

func (x *renewing) run() error {
	reply, err := x.of.script.parsed.RunLong(x.of.dialect.lua(), x.of.keys, x.of.args, x.call)
	if err != nil {
		return asRefusal(err)
	}
	for _, end := range x.ends {
		if !slices.ContainsFunc(x.each, func(r Renewal) bool { return r.Key == end }) {
			return refusef("the end of a lock is moved, and that of no hold")
		}
	}
	x.reply = reply
	return nil
}

func (x *renewing) call(args []string) (lua.Reply, error) {
	name := strings.ToUpper(args[0])
	if len(args) != 3 {
		return nil, refusef("%s beside several locks", name)
	}
	key, arg := args[1], args[2]
	if name == "HGET" {
		if !slices.Contains(x.of.keys, key) {
			return nil, refusef("a lock that is not among the keys")
		}
		if !slices.Contains(x.locks, key) {
			x.locks = append(x.locks, key)
		}
		if x.found(Renewal{Key: key, Thread: arg}) {
			return "1", nil
		}
		return nil, nil
	}
	if name != "PEXPIRE" || !positive(arg) {
		return nil, refusef("%s beside several locks", name)
	}
	if slices.Contains(x.locks, key) {
		x.ends = append(x.ends, key)
		return int64(1), nil
	}
	for _, lock := range x.locks {
		w := &world{key: lock, now: time.Now(), dialect: x.of.dialect}
		if thread, _, is := w.holdOf(key); is {
			ttl, fault := w.left("PX", arg, "pexpire")
			if fault != "" {
				return fault, nil
			}
			x.each = append(x.each, Renewal{lock, thread, ttl})
			return int64(1), nil
		}
	}
	return nil, refusef("%s beside several locks", name)
}
