package idiom

import (
	"bytes"
	"slices"
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/commands/adopt/idiom/lua"
)

// A latch is a key of its own in which the release of a Hash keeps its answer for a while: a script that finds one
// returns it and does nothing, so that a release which is sent again gets the first answer. The engine remembers
// that by itself, for a request with an id. So the key is never written: its name is the id.
type latch struct {
	key    string // that the script has read; empty: none
	found  string // what it has found there; none unless there
	there  bool
	stored string // what it has stored; nothing unless set
	set    bool
}

// maxLatch is how long the name of a latch may be, in bytes: the engine takes such an id of a request.
const maxLatch = 1024

// onLatch runs a command on a key beside the lock if that is a latch, or may be: a key that is read.
func (w *world) onLatch(name string, args []string) (reply lua.Reply, isLatch bool, err error) {
	l := &w.latch
	switch {
	case l.key == "" && name == "GET" && len(args) == 2 && len(args[1]) > maxLatch:
		return nil, true, refusef("a latch whose name has %d bytes, more than %d", len(args[1]), maxLatch)
	case l.key == "" && name == "GET" && len(args) == 2 && !w.adopted(args[1]) && len(w.signals) == 0:
		l.key = args[1]
		if l.there {
			return l.found, true, nil
		}
		return nil, true, nil
	case l.key == "" || len(args) < 2 || !slices.Contains(args[1:], l.key):
		return nil, false, nil
	case w.readOnly:
		return nil, true, refusef("%s in a script that may not write", name)
	case args[1] != l.key || l.set:
		return nil, true, refusef("%s of a latch", name)
	}
	value, ends := "", false
	switch name {
	case "SET":
		if len(args) > 3 {
			o, fine := parseSet(args[3:])
			value, ends = args[2], fine && !o.xx && !o.get && !o.keep && o.compares == "" && (o.end == "PX" || o.end == "EX") && positive(o.at)
		}
	case "SETEX", "PSETEX":
		if len(args) == 4 {
			value, ends = args[3], positive(args[2])
		}
	default:
		return nil, true, refusef("%s of a latch", name)
	}
	if !ends {
		return nil, true, refusef("a latch without an end")
	}
	l.stored, l.set = value, true
	return ok, true, nil
}

func positive(at string) bool {
	n, isInt := integer(at)
	return isInt && n > 0
}

// latched completes the operation of a run that has read a latch, and found none. It gives back a hold of the field
// that is among the arguments, and stores what it returns; or it does nothing, and would do so for one of the
// arguments, which is the Value of the operation.
func (c *Call) latched(w *world, op Op, reply lua.Reply) (Op, error) {
	if op.Do == Nothing {
		if w.latch.set && !w.modeRead { // Redisson's read/write locks keep an answer also where there is no lock
			return Op{}, refusef("a latch where nothing is done")
		}
		for _, field := range c.values {
			thread, _ := threadOf(field)
			for _, s := range []State{
				{Kind: Hash, Value: field, Count: 1, Left: sampleLeft},
				{Kind: ReadWrite, Reader: thread, Reads: 1, Left: sampleLeft},
				{Kind: ReadWrite, Value: thread, Count: 1, Left: sampleLeft},
			} {
				if back, is := c.givesBack(s, w.latch.key, w.now); is {
					op := Op{Value: field, Latch: w.latch.key, Kind: back.Kind, Shared: back.Shared}
					if s.Kind == ReadWrite {
						op.Value = thread
					}
					return op, nil
				}
			}
		}
		return Op{}, refusef("GET beside the lock")
	}
	its := w.was.Value
	if op.Kind == ReadWrite {
		if its = op.Value; !op.Shared {
			its += writeSuffix
		}
	}
	if w.was.Kind != Hash && w.was.Kind != ReadWrite || op.Do != Leave && op.Do != Release || !slices.Contains(c.values, its) {
		return Op{}, refusef("GET beside the lock")
	}
	switch {
	case !w.latch.set:
		return Op{}, refusef("a latch that is not set")
	case w.timeRead:
		return Op{}, refusef("a latch of what is left")
	}
	if text, isOne := latchText(reply); !isOne || text != w.latch.stored {
		return Op{}, refusef("a latch of something else than the reply")
	}
	again := c.world(w.is, w.now)
	again.latch = latch{found: w.latch.stored, there: true}
	second, err := c.run(again)
	if err != nil || again.is != w.is || again.timed || again.latch.set || len(again.signals) > 0 ||
		!bytes.Equal(appendReply(nil, second, c.proto), appendReply(nil, reply, c.proto)) {
		return Op{}, refusef("a latch that does not repeat the reply")
	}
	op.Latch = w.latch.key
	return op, nil
}

// givesBack reports whether a call gives back the one hold that there is in a state, with this latch.
func (c *Call) givesBack(one State, latch string, now time.Time) (op Op, is bool) {
	w := c.world(one, now)
	reply, err := c.run(w)
	if err != nil {
		return op, false
	}
	op, err = w.op()
	if err != nil || op.Do == Nothing || w.latch.key != latch {
		return op, false
	}
	_, err = c.latched(w, op, reply)
	return op, err == nil
}

// latchText is what a latch has for a reply.
func latchText(reply lua.Reply) (string, bool) {
	switch r := reply.(type) {
	case int64:
		return strconv.FormatInt(r, 10), true
	case string:
		return r, true
	}
	return "", false
}

// world is what a run of a call sees.
func (c *Call) world(state State, now time.Time) *world {
	return &world{key: c.key, was: state, is: state, members: membersOf(state, now), shares: sharesOf(state), now: now, adopted: c.adopted, readOnly: c.readOnly, dialect: c.dialect, fenceOf: c.fenceOf, database: c.database, deadlines: c.deadlines}
}
