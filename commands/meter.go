package commands

import (
	"sync/atomic"

	"github.com/lockproxy/lockproxy/backends/metrics"
)

// A class is a sort of commands that are counted together: an index of classes.
type class uint8

const (
	unclassified class = iota // modules', and what no Redis knows
	reads
	writes
	blocking
	scripts
	transactions
	pubsubClass
	connection
	admin
	lockClass
	renewClass
	unlockClass
	lockctlClass
)

var classes = [...]string{
	"other", "read", "write", "blocking", "script", "transaction", "pubsub", "connection", "admin", "lock", "renew", "unlock", "lockctl",
}

// ordinary reports whether commands of the class are timed: they do not wait for anything.
func (c class) ordinary() bool { return c == reads || c == writes }

// A Why is the reason for which a client was disconnected.
type Why int32

const (
	WhyNot      Why = iota // it was not
	WhyQuit                // QUIT
	WhyProtocol            // it broke the protocol
	WhyKilled              // CLIENT KILL
	WhyLock                // a lock with SESSION was lost, and its LOCK did not ask for a push instead
	WhyUpstream            // what it had at the upstream is lost, or it is let in there no more
	WhyOutput              // more replies wait for earlier ones than may
)

var whys = [...]string{"", "quit", "protocol", "killed", "lost_lock", "upstream", "output"}

// String is one word; empty for WhyNot.
func (w Why) String() string { return whys[w] }

// Why is why the session ended, as far as is known here. The first reason counts.
func (s *Session) Why() Why { return Why(s.end.why.Load()) }

// because keeps the first reason. It may be called by any goroutine.
func (s *Session) because(why Why) { s.end.why.CompareAndSwap(int32(WhyNot), int32(why)) }

// timeOne is how many bursts of a session there are to one that is timed.
const timeOne = 64

// counts are counters of some sessions.
type counts struct {
	commands [len(classes)]atomic.Int64
	bursts   atomic.Int64
	errors   metrics.Errors    // the proxy's own, and those that it passed on to AUTH, HELLO and SELECT
	took     metrics.Histogram // of one in timeOne bursts, on each connection, of commands that only read or write: from its being read to the last reply being written, or left to be written for a client that reads slowly
}

// A tally is what a session has counted since it last added it to counts. It belongs to the
// session's goroutine.
type tally struct {
	to     *counts
	class  class // of the command that was looked up last
	n      [len(classes)]int32
	any    bool
	unlike bool // some command was not ordinary
	bursts uint
}

// of notes the command that was looked up; nil: it is none of those known by name.
func (t *tally) of(c *command) {
	if t.class = unclassified; c != nil {
		t.class = c.class
	}
}

// came counts the command that was looked up last.
func (t *tally) came() {
	t.n[t.class]++
	t.any = true
	t.unlike = t.unlike || !t.class.ordinary()
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
		s.replies.TimeBatch(s.client.LastActive(), s.batched)
	}
	t.any, t.unlike = false, false
}

// Report implements metrics.Reporter.
func (d *Dispatcher) Report(r *metrics.Report) {
	for c := range d.counts.All() {
		r.Counters("lockproxy_commands_total", "Commands that clients sent, by what they do: read, write, blocking, script, transaction, pubsub, connection, admin, lock, renew, unlock, lockctl; other: a module's, or none that Redis knows.", "family", classes[:], c.commands[:])
		r.Counter("lockproxy_command_bursts_total", "Bursts in which they came: commands that were read together count as one.", c.bursts.Load())
		r.Histogram("lockproxy_command_seconds", "How long clients waited for commands that only read or write: one in 64 bursts of each connection, from its being read to the last reply being written.", &c.took)
		r.Errors("lockproxy_command_errors_total", "Errors that the proxy answered itself, by their first word; other: one that is not among those that are counted apart.", &c.errors)
	}
}

// commandsSeen is the number of commands of all clients so far.
func (d *Dispatcher) commandsSeen() (n int64) {
	for c := range d.counts.All() {
		for i := range c.commands {
			n += c.commands[i].Load()
		}
	}
	return n
}
