// Package stats counts what clients send, and tells it: how often did they ask for what, how
// long did they wait? The counters are metrics, and a part of the proxy's section of INFO.
//
// [Counts] are those of all clients. A session counts in a [Tally] of its own and adds
// it to them burst by burst. No goroutine is started here.
package stats

import (
	"sync/atomic"

	"github.com/lockproxy/lockproxy/backends/metrics"
	"github.com/lockproxy/lockproxy/commands/spec"
)

// A Class is a sort of commands that are counted together: an index of classes.
type Class uint8

const (
	Other Class = iota // modules', and what no Redis knows
	Reads
	Writes
	Blocking
	Scripts
	Transactions
	PubSub
	Connection
	Admin
	Lock
	Renew
	Unlock
	Lockctl
)

var classes = [...]string{
	"other", "read", "write", "blocking", "script", "transaction", "pubsub", "connection", "admin", "lock", "renew", "unlock", "lockctl",
}

// ClassOf is the class of an ordinary command; c may be nil.
func ClassOf(c *spec.Command) Class {
	switch {
	case c == nil:
		return Other
	case c.Flags&spec.PubSub != 0:
		return PubSub
	case c.Flags&spec.Admin != 0:
		return Admin
	case c.Flags&spec.Write != 0:
		return Writes
	case c.Flags&spec.ReadOnly != 0:
		return Reads
	case c.Flags&spec.NoAuth != 0, c.Name == "ping", c.Name == "echo":
		return Connection
	}
	return Admin
}

// String is the class as metrics show it.
func (c Class) String() string { return classes[c] }

// ordinary reports whether commands of the class are timed: they do not wait for anything.
func (c Class) ordinary() bool { return c == Reads || c == Writes }

// Counts are the counters of all clients. The zero value is ready; it is safe for concurrent
// use.
type Counts struct{ shards metrics.Shards[Shard] }

// A Shard is the counters of some clients. It is safe for concurrent use.
type Shard struct {
	commands [len(classes)]atomic.Int64
	bursts   atomic.Int64
	Errors   metrics.Errors    // the proxy's own, and those that it passed on to AUTH, HELLO and SELECT
	Took     metrics.Histogram // of one in timeOne bursts, on each connection, of commands that only read or write: from its being read to the last reply being written, or left to be written for a client that reads slowly
}

// timeOne is how many bursts of a session there are to one that is timed.
const timeOne = 64

// A Tally is what a session has counted since it last added it to its Shard. It belongs to
// the session's goroutine, and allocates nothing.
type Tally struct {
	*Shard
	class  Class // of the command that was looked up last
	n      [len(classes)]int32
	any    bool
	unlike bool // some command was not ordinary
	bursts uint
}

// NewTally is the Tally of the client with an id.
func (c *Counts) NewTally(id int64) Tally { return Tally{Shard: c.shards.For(uint64(id))} }

// Note notes the class of the command that was looked up.
func (t *Tally) Note(c Class) { t.class = c }

// Came counts the command that was looked up last.
func (t *Tally) Came() {
	t.n[t.class]++
	t.any = true
	t.unlike = t.unlike || !t.class.ordinary()
}

// EndBurst adds what came since the last time, which was one burst, to the Shard, and reports
// whether it is one to be timed.
func (t *Tally) EndBurst() (timed bool) {
	if !t.any {
		return false
	}
	t.Shard.bursts.Add(1)
	for i := range t.n {
		if t.n[i] != 0 {
			t.commands[i].Add(int64(t.n[i]))
			t.n[i] = 0
		}
	}
	t.bursts++
	timed = t.bursts%timeOne == 0 && !t.unlike
	t.any, t.unlike = false, false
	return timed
}

// Report implements metrics.Reporter.
func (c *Counts) Report(r *metrics.Report) {
	for s := range c.shards.All() {
		r.Counters("lockproxy_commands_total", "Commands that clients sent, by what they do: read, write, blocking, script, transaction, pubsub, connection, admin, lock, renew, unlock, lockctl; other: a module's, or none that Redis knows.", "family", classes[:], s.commands[:])
		r.Counter("lockproxy_command_bursts_total", "Bursts in which they came: commands that were read together count as one.", s.bursts.Load())
		r.Histogram("lockproxy_command_seconds", "How long clients waited for commands that only read or write: one in 64 bursts of each connection, from its being read to the last reply being written.", &s.Took)
		r.Errors("lockproxy_command_errors_total", "Errors that the proxy answered itself, by their first word; other: one that is not among those that are counted apart.", &s.Errors)
	}
}

// Commands is the number of commands of all clients so far.
func (c *Counts) Commands() (n int64) {
	for s := range c.shards.All() {
		for i := range s.commands {
			n += s.commands[i].Load()
		}
	}
	return n
}
