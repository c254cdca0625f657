package commands

import (
	"sync/atomic"

	"github.com/lockproxy/lockproxy/backends/meter"
	"github.com/lockproxy/lockproxy/commands/spec"
)

// A family is a sort of commands that are counted together: an index of families.
type family uint8

const (
	unfamiliar family = iota // modules', and what no Redis knows
	reads
	writes
	blocking
	scripts
	transactions
	pubsub
	connection
	admin
	lockVerb
	renewVerb
	unlockVerb
	lockctlVerb
)

var families = [...]string{
	"other", "read", "write", "blocking", "script", "transaction", "pubsub", "connection", "admin", "lock", "renew", "unlock", "lockctl",
}

// ordinary says that commands of the family are timed: they do not wait for anything.
func (f family) ordinary() bool { return f == reads || f == writes }

// familyOf is the family of a command of a kind. c is what Redis 7.0 says of it; nil: nothing.
func familyOf(name string, k kind, c *spec.Command) family {
	switch k {
	case verb:
		return map[string]family{"LOCK": lockVerb, "RENEW": renewVerb, "UNLOCK": unlockVerb, "LOCKCTL": lockctlVerb}[name]
	case auth, hello, selectDB, reset, quit, client:
		return connection
	case multi, execTx, watch, unwatch:
		return transactions
	case blocks, waits, mayBlock:
		return blocking
	case script, kills:
		return scripts
	case subscribe:
		return pubsub
	case users, modules, augmented, ownConn:
		return admin
	case web:
		return unfamiliar
	}
	switch {
	case c.Flags&spec.PubSub != 0:
		return pubsub
	case c.Flags&spec.Admin != 0:
		return admin
	case c.Flags&spec.Write != 0:
		return writes
	case c.Flags&spec.ReadOnly != 0:
		return reads
	case c.Flags&spec.NoAuth != 0, name == "PING", name == "ECHO":
		return connection
	}
	return admin
}

// Why says why a client was disconnected, by what it said or by what became of it.
type Why int32

const (
	WhyNot      Why = iota // it was not
	WhyQuit                // QUIT
	WhyProtocol            // it broke the protocol
	WhyKilled              // CLIENT KILL
	WhyLock                // a lock with SESSION was lost, and its LOCK did not ask to be told otherwise
	WhyUpstream            // what it had at the upstream is lost, or it is let in there no more
	WhyOutput              // more replies wait for earlier ones than may
)

var whys = [...]string{"", "quit", "protocol", "killed", "lost_lock", "upstream", "output"}

// String is one word; empty for WhyNot.
func (w Why) String() string { return whys[w] }

// Why is why the session ended, as far as is known here. The first reason counts.
func (s *Session) Why() Why { return Why(s.why.Load()) }

func (s *Session) because(why Why) { because(&s.why, why) }

// because keeps the first reason. to may be nil.
func because(to *atomic.Int32, why Why) {
	if to != nil {
		to.CompareAndSwap(int32(WhyNot), int32(why))
	}
}

const (
	// countShards is among how many the sessions' counters are spread, so that sessions
	// which run at the same time do not wait for each other's memory.
	countShards = 16
	// timeOne is how many bursts of a session there are to one that is timed.
	timeOne = 64
)

// counts are counters of some sessions.
type counts struct {
	commands [len(families)]atomic.Int64
	bursts   atomic.Int64
	errors   meter.Errors
	took     meter.Histogram

	_ [64]byte // what follows is another's
}

// A tally is what a session has counted since it last told the others. It belongs to the
// session's goroutine.
type tally struct {
	to     *counts
	family family // of the command that was looked up last
	n      [len(families)]int32
	any    bool
	unlike bool // some command was not ordinary
	bursts uint
}

// came counts the command that was looked up last.
func (t *tally) came() {
	t.n[t.family]++
	t.any = true
	t.unlike = t.unlike || !t.family.ordinary()
}

// count tells what came since the last time, which was one burst, and has one in timeOne
// timed.
func (s *Session) count() {
	t := &s.meter
	if !t.any {
		return
	}
	t.to.bursts.Add(1)
	for i := range t.n {
		if t.n[i] != 0 {
			t.to.commands[i].Add(int64(t.n[i]))
			t.n[i] = 0
		}
	}
	if t.bursts++; t.bursts%timeOne == 0 && !t.unlike && s.mode != onPassthrough {
		s.replies.TimeBatch(s.info.lastActive, s.batched)
	}
	t.any, t.unlike = false, false
}

// Stats is what a Dispatcher has done since it was made, and has now.
type Stats struct {
	Clients  int              // connected now
	Commands map[string]int64 // that came, by family: read, write, blocking, script, transaction, pubsub, connection, admin, lock, renew, unlock, lockctl, other
	Bursts   int64            // in which they came: commands that were read together count as one
	Errors   map[string]int64 // the proxy's own replies that were errors, by first word, and those that it passed on to AUTH, HELLO and SELECT
	Took     meter.Snapshot   // one in 64 bursts, on each connection, of commands that only read or write: from its being read to the last reply being written, or left to be written for a client that reads slowly
}

func sum(counts map[string]int64) (n int64) {
	for _, c := range counts {
		n += c
	}
	return n
}

// Stats does not wait for anything.
func (d *Dispatcher) Stats() Stats {
	st := Stats{Clients: d.clients.count(), Commands: map[string]int64{}, Errors: map[string]int64{}}
	for i := range d.counts {
		c := &d.counts[i]
		st.Bursts += c.bursts.Load()
		st.Took.Add(c.took.Snapshot())
		for f, name := range families {
			st.Commands[name] += c.commands[f].Load()
		}
		for word, n := range c.errors.Snapshot() {
			st.Errors[word] += n
		}
	}
	return st
}
