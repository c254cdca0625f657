// Package table says what each command is: where it is counted, which connection it needs, what it
// changes of a client, and which node of a Cluster it goes to. How a session handles what is not just sent
// is none of its business: a row has room for that.
package table

import (
	"fmt"
	"strings"

	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/cluster"
	"github.com/lockproxy/lockproxy/commands/stats"
	"github.com/lockproxy/lockproxy/commands/tx"
)

// A Row is everything the proxy knows of a command, or of a subcommand. What a row leaves
// out is that of an ordinary command: one request and one reply, on any connection, in a
// Cluster at the node of its keys, queued inside MULTI.
type Row[Handlers any] struct {
	Name  string      // lower case; of a subcommand with its container's: "config|set"
	Class stats.Class // in which it is counted

	// Need is the connection that it needs; nil: any.
	Need func(args [][]byte) Need
	// Augment reports whether the reply is to tell of the proxy too; nil: it is not.
	Augment func(args [][]byte) bool
	// Changes are what it changes of a client that is id when it is executed; nil: nothing.
	Changes func(id upstream.Identity, args [][]byte) tx.Changes

	Effect  Effect
	Cluster cluster.Rule // where it goes in a Cluster
	Do      Handlers     // of what is not just sent and answered

	subs map[string]*Row[Handlers] // nil: its row is theirs, too
	// OtherSub is the row of a subcommand that has none; nil: one like this, which only counts.
	OtherSub *Row[Handlers]
}

// A Need is the connection that a command needs.
type Need uint8

const (
	AnyConn         Need = iota // whatever connection the session is on
	ScriptConn                  // of the class of scripts: it may take long
	PinnedConn                  // the session's own: it must not wait behind other clients' commands
	BlockingConn                // the session's own: it may block
	PassthroughConn             // the session's own, for good: replies and messages are not one per command
)

// An Effect is what a command changes in the session, or in what may follow it.
type Effect uint16

const (
	ChangesClient   Effect               = 1 << iota // who the client is, or how it is answered
	ChangesVerbs                                     // what lock verbs behind it mean, or whether they may be said
	BeginsTx                                         // MULTI
	EndsTx                                           // EXEC, DISCARD
	Watches                                          // WATCH
	Unwatches                                        // UNWATCH
	Messages                                         // replies and messages are not one per command
	WhileSubscribed                                  // a client of RESP2 that has subscriptions may say it
	SessionOnly                                      // it does the same at every node
	LockVerb                                         // LOCK, RENEW, UNLOCK, those of several, LOCKCTL: the upstream does not know it
	IsHTTP                                           // what a browser would send, not a client of Redis
	NotQueued       = BeginsTx | Watches             // refused inside MULTI, which goes on
	OnTxConn        = BeginsTx | Watches | Unwatches
)

// Has reports whether the command has one of the effects.
func (r *Row[H]) Has(e Effect) bool { return r.Effect&e != 0 }

// Counted is the class in which it is counted; r may be nil.
func (r *Row[H]) Counted() stats.Class {
	if r == nil {
		return stats.Other
	}
	return r.Class
}

// Needs is the connection that the command needs with these arguments.
func (r *Row[H]) Needs(args [][]byte) Need {
	if r.Need == nil {
		return AnyConn
	}
	return r.Need(args)
}

// IsOrdinary reports whether a command, with all of its subcommands, is only sent and
// answered. isHandled reports whether a row's handlers do anything else.
func (r *Row[H]) IsOrdinary(isHandled func(*H) bool) bool {
	for _, sub := range r.subs {
		if !sub.IsOrdinary(isHandled) {
			return false
		}
	}
	return r.Need == nil && r.Augment == nil && !isHandled(&r.Do) && (r.OtherSub == nil || !isHandled(&r.OtherSub.Do))
}

// A Table is a table of commands, by name in lower case. It does not change.
type Table[H any] map[string]*Row[H]

// longestName bounds the names that Lookup folds.
const longestName = 24

// Lookup finds the row of a command or subcommand, in any case; nil: there is none. It
// does not allocate. args has at least the name.
func (t Table[H]) Lookup(args [][]byte) *Row[H] {
	c := find(t, args[0])
	if c == nil || c.subs == nil || len(args) == 1 {
		return c
	}
	if sub := find(c.subs, args[1]); sub != nil {
		return sub
	}
	return c.OtherSub
}

func find[H any](rows map[string]*Row[H], name []byte) *Row[H] {
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

// New is the table of rows, which it changes. It panics if two are of one command, or one is of
// a subcommand of no command.
func New[H any](rows []*Row[H]) Table[H] {
	t := Table[H]{}
	var subs []*Row[H]
	for _, r := range rows {
		if strings.Contains(r.Name, "|") {
			subs = append(subs, r)
		} else {
			t.add(r.Name, r)
		}
	}
	for _, r := range subs {
		name, sub, _ := strings.Cut(r.Name, "|")
		in := t[name]
		if in == nil {
			panic(fmt.Sprintf("%s is a subcommand of no command", r.Name))
		}
		if r.Class = in.Class; in.subs == nil {
			in.subs = map[string]*Row[H]{}
		}
		if in.OtherSub == nil {
			in.OtherSub = &Row[H]{Name: name, Class: in.Class}
		}
		Table[H](in.subs).add(sub, r)
	}
	return t
}

func (t Table[H]) add(name string, r *Row[H]) {
	if len(name) > longestName || t[name] != nil {
		panic(fmt.Sprintf("%s: it has two rows, or too long a name", r.Name))
	}
	t[name] = r
}

// Always is the need of a command whatever its arguments.
func Always(n Need) func([][]byte) Need { return func([][]byte) Need { return n } }
