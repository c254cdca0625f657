package commands

import (
	"context"
	"fmt"
	"strings"

	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/cluster"
	"github.com/lockproxy/lockproxy/commands/lockcmd"
	"github.com/lockproxy/lockproxy/commands/stats"
	"github.com/lockproxy/lockproxy/commands/tx"
)

// A command is one row of the table: everything the proxy knows of a command, or of a
// subcommand. What a row leaves out is that of an ordinary command: one request and one
// reply, on any connection, in a Cluster at the node of its keys, queued inside MULTI.
type command struct {
	name  string      // lower case; of a subcommand with its container's: "config|set"
	class stats.Class // in which it is counted

	// need is the connection that it needs; nil: any.
	need func(args [][]byte) need
	// augment reports whether the reply is to tell of the proxy too; nil: it is not.
	augment func(args [][]byte) bool
	// try handles it at once; false: it would have to wait, and nothing has happened. nil:
	// it is sent as need says.
	try func(s *Session, q request) bool
	// run handles it, and may wait; nil: it is sent as need says.
	run func(s *Session, ctx context.Context, q request)
	// verb does what a lock verb says; nil: it is none, or LOCK, which may be Pending.
	verb lockcmd.Verb
	// handles reports whether run is for these arguments, in this state of the session;
	// nil: it always is.
	handles func(s *Session, args [][]byte) bool

	// tryInTx is try inside MULTI; nil: it is queued. runInTx is run there, false for what
	// is no matter of its own; nil: there is nothing to wait for.
	tryInTx func(s *Session, q request) bool
	runInTx func(s *Session, ctx context.Context, q request) bool
	// changes are what it changes of a client that is id when it is executed; nil: nothing.
	changes func(id upstream.Identity, args [][]byte) tx.Changes
	// passthrough is try on a passthrough connection; nil: it is relayed.
	passthrough func(s *Session, q request) bool

	effect effect
	// cluster is where it goes in a Cluster. runInCluster handles it there; false: it goes
	// where it would anyway. nil: the same.
	cluster      cluster.Rule
	runInCluster func(s *Session, ctx context.Context, q request) bool

	// subs are the subcommands; nil: its row is theirs, too. One that has no row there is
	// as otherSub says.
	subs     map[string]*command
	otherSub *command
}

// A need is the connection that a command needs.
type need uint8

const (
	anyConn         need = iota // whatever connection the session is on
	scriptConn                  // of the class of scripts: it may take long
	pinnedConn                  // the session's own: it must not wait behind other clients' commands
	blockingConn                // the session's own: it may block
	passthroughConn             // the session's own, for good: replies and messages are not one per command
)

// An effect is what a command changes in the session, or in what may follow it.
type effect uint16

const (
	changesClient   effect               = 1 << iota // who the client is, or how it is answered
	changesVerbs                                     // what lock verbs behind it mean, or whether they may be said
	beginsTx                                         // MULTI
	endsTx                                           // EXEC, DISCARD
	watches                                          // WATCH
	unwatches                                        // UNWATCH
	messages                                         // replies and messages are not one per command
	whileSubscribed                                  // a client of RESP2 that has subscriptions may say it
	sessionOnly                                      // it does the same at every node
	lockVerb                                         // LOCK, RENEW, UNLOCK, LOCKCTL: the upstream does not know it
	isHTTP                                           // what a browser would send, not a client of Redis
	notQueued       = beginsTx | watches             // refused inside MULTI, which goes on
	onTxConn        = beginsTx | watches | unwatches
)

func (c *command) has(e effect) bool { return c.effect&e != 0 }

// counted is the class in which it is counted; c may be nil.
func (c *command) counted() stats.Class {
	if c == nil {
		return stats.Other
	}
	return c.class
}

func (c *command) needs(args [][]byte) need {
	if c.need == nil {
		return anyConn
	}
	return c.need(args)
}

// isOrdinary reports whether a command, with all of its subcommands, is only sent and
// answered.
func (c *command) isOrdinary() bool {
	for _, sub := range c.subs {
		if !sub.isOrdinary() {
			return false
		}
	}
	return c.need == nil && c.augment == nil && c.try == nil && c.run == nil && (c.otherSub == nil || c.otherSub.run == nil)
}

// commandTable is the table of commands, by name in lower case. It does not change.
type commandTable map[string]*command

// longestName bounds the names that lookup folds.
const longestName = 24

// lookup finds the row of a command or subcommand, in any case; nil: there is none. It
// does not allocate.
func (t commandTable) lookup(args [][]byte) *command {
	c := find(t, args[0])
	if c == nil || c.subs == nil || len(args) == 1 {
		return c
	}
	if sub := find(c.subs, args[1]); sub != nil {
		return sub
	}
	return c.otherSub
}

func find(rows map[string]*command, name []byte) *command {
	if len(name) > longestName {
		return nil
	}
	var folded [longestName]byte
	for i, b := range name {
		if 'A' <= b && b <= 'Z' {
			b += 'a' - 'A'
		}
		folded[i] = b
	}
	return rows[string(folded[:len(name)])]
}

// newTable is the table of all commands of Redis 7.0, and ours. What an upstream has
// beyond these is as its own COMMAND says: see Session.row.
func newTable() commandTable {
	t := commandTable{}
	var subs []*command
	for _, c := range allRows() {
		if strings.Contains(c.name, "|") {
			subs = append(subs, c)
		} else {
			t.add(c.name, c)
		}
	}
	for _, c := range subs {
		name, sub, _ := strings.Cut(c.name, "|")
		in := t[name]
		if in == nil {
			panic(fmt.Sprintf("%s is a subcommand of no command", c.name))
		}
		if c.class = in.class; in.subs == nil {
			in.subs = map[string]*command{}
		}
		if in.otherSub == nil {
			in.otherSub = &command{name: name, class: in.class}
		}
		commandTable(in.subs).add(sub, c)
	}
	return t
}

func (t commandTable) add(name string, c *command) {
	if len(name) > longestName || t[name] != nil {
		panic(fmt.Sprintf("%s: it has two rows, or too long a name", c.name))
	}
	t[name] = c
}

// always is the need of a command whatever its arguments.
func always(n need) func([][]byte) need { return func([][]byte) need { return n } }
