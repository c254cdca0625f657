// Package tx follows a client into MULTI and out of it, by what was sent and by what the upstream
// answers.
//
// What was sent says at once where commands must travel ([State.In]). What was answered decides,
// when no reply is pending any more ([State.Resolve]): MULTI and EXEC may be refused, and what
// was queued takes effect only if it was executed. What that is, AuthChanges and the like say.
//
// A [State] belongs to one goroutine at a time, but for Over and the observers that it returns: those
// may be called on any. It starts no goroutine.
package tx

import (
	"slices"
	"sync"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/commands/relay"
)

// A State is what is known of MULTI and EXEC on one connection. Its zero value is that of a
// new connection.
type State struct {
	In     bool // inside MULTI, as far as what was sent says
	Unsure bool // what was sent has not all been answered when last looked at
	queue  Queue

	// Selects is whether the database may be another one, or become it with EXEC: a SELECT was sent inside a MULTI
	// that is not resolved.
	Selects bool

	mu         sync.Mutex
	connection int     // counts Forget: an answer that comes on an earlier connection says nothing
	unanswered int     // how many MULTI, EXEC and DISCARD
	confirmed  bool    // In, as far as what was answered says
	after      Changes // what executed transactions have changed
}

// A Queue is what has been sent inside a MULTI.
type Queue struct {
	changes  Changes // what EXEC will change if it is executed
	length   int     // how many commands
	rewrites []rewrite
}

// A rewrite is of the reply to one queued command, which comes in EXEC's.
type rewrite struct {
	at int
	do relay.Rewrite
}

// Begin notes that a MULTI was sent, and returns the observer of its answer.
func (t *State) Begin() func(answer []byte) {
	t.In, t.Unsure = true, true
	return t.observer(func(begin []byte) { t.confirmed = t.confirmed || begin[0] == '+' })
}

// observer notes that something was sent, and returns the observer of its answer, which take runs with mu held.
func (t *State) observer(take func(begin []byte)) func(answer []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unanswered++
	on := t.connection
	return func(begin []byte) {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.connection == on {
			t.unanswered--
			take(begin)
		}
	}
}

// Over reports whether everything sent has been answered, and the connection has no state by it: no transaction, no
// WATCH, and nothing that one has changed. It is safe for concurrent use.
func (t *State) Over() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.unanswered == 0 && !t.confirmed && !t.after.Watches && !t.after.PinnedForLife
}

// aborts are the errors of an EXEC after which there is no transaction any more: that
// of any Redis, and a Cluster's.
var aborts = []string{"EXECABORT", "MOVED", "ASK", "TRYAGAIN", "CROSSSLOT", "CLUSTERDOWN"}

// End notes that an EXEC or DISCARD was sent by a client that may be watching keys, and returns
// the observer of its answer. One that is refused (NOPERM, or without MULTI) ends nothing,
// WATCH neither.
func (t *State) End(watching bool) func(answer []byte) {
	queued := t.queue.changes
	t.In, t.Unsure = false, true
	t.queue = Queue{}
	return t.observer(func(begin []byte) {
		if begin[0] == '*' { // EXEC, executed
			t.after.add(queued)
		}
		if begin[0] != '-' || slices.ContainsFunc(aborts, func(word string) bool { return resp.HasCode(begin, word) }) {
			t.confirmed = false
		} else {
			t.after.Watches = t.after.Watches || watching
		}
	})
}

// Resolve is called when everything sent has been answered. It returns what has changed.
func (t *State) Resolve() Changes {
	t.mu.Lock()
	defer t.mu.Unlock()
	done := t.after
	t.In, t.Unsure, t.after = t.confirmed, false, Changes{}
	if !t.In {
		t.queue = Queue{} // the upstream refused MULTI, and so queued nothing
	}
	t.Selects = t.queue.changes.DB != nil
	return done
}

// Queue is what is queued, for Resume.
func (t *State) Queue() Queue { return t.queue }

// Resume is for a transaction that was begun anew, with the same queue, on another connection.
func (t *State) Resume(q Queue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.In, t.Unsure, t.confirmed = true, true, true
	t.queue, t.Selects = q, q.changes.DB != nil
}

// Forget is for a connection that is no more.
func (t *State) Forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.In, t.Unsure, t.confirmed, t.after = false, false, false, Changes{}
	t.queue, t.Selects = Queue{}, false
	t.connection, t.unanswered = t.connection+1, 0
}

// Add notes that a command was sent that will be queued, and what it changes when it is executed.
func (t *State) Add(c Changes) {
	t.queue.changes.add(c)
	t.queue.length++
	t.Selects = t.Selects || c.DB != nil
}

// Len is how many commands are queued.
func (t *State) Len() int { return t.queue.length }

// HasMessages reports whether a command is queued behind whose execution replies are not counted.
func (t *State) HasMessages() bool { return len(t.queue.changes.Messages) > 0 }

// PlaceKnown reports whether each command that is queued has one reply in that of EXEC: only then it
// is known which one is that of the next, and RewriteLast may be called.
func (t *State) PlaceKnown() bool {
	return !slices.ContainsFunc(t.queue.changes.Messages, func(m *Messages) bool { return !m.oneReply() })
}

// RewriteLast has the reply to the command that was added last rewritten, in that of EXEC.
func (t *State) RewriteLast(do relay.Rewrite) {
	t.queue.rewrites = append(t.queue.rewrites, rewrite{t.queue.length - 1, do})
}

// RewriteExec is what becomes of the reply to the EXEC of what is queued; nil: it is
// left as it is.
func (t *State) RewriteExec() relay.Rewrite {
	if len(t.queue.rewrites) == 0 {
		return nil
	}
	return t.queue.rewriteReply
}

// rewriteReply rewrites some of the elements of an EXEC's reply. Another reply is left as it is.
func (q Queue) rewriteReply(reply []byte) (rewritten []byte, last bool) {
	elems, _ := resp.Elements(reply)
	if len(elems) != q.length {
		return reply, false
	}
	for _, r := range q.rewrites {
		var ends bool
		elems[r.at], ends = r.do(elems[r.at])
		last = last || ends
	}
	return resp.AppendElements(nil, reply[0], elems), last
}
