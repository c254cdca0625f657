package commands

import (
	"context"
	"slices"
	"sync"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/clients"
	"github.com/lockproxy/lockproxy/commands/relay"
)

// A transaction is what a session knows of MULTI and EXEC on its pinned connection.
//
// What was sent says at once where commands must travel (in). What was answered
// decides, when no reply is pending any more: an EXEC may be refused, and
// what was queued takes effect only if it was executed.
type transaction struct {
	in       bool    // as far as what was sent says
	unsure   bool    // what was sent has not all been answered when last looked at
	queued   changes // what EXEC will change if it is executed
	length   int     // how many commands are queued
	rewrites []queuedRewrite
	node     txNode // in a Cluster

	mu        sync.Mutex
	confirmed bool    // in, as far as what was answered says
	after     changes // what executed transactions have changed
}

// A queuedRewrite is of the reply to one queued command, which comes in EXEC's.
type queuedRewrite struct {
	at      int
	rewrite relay.Rewrite
}

// changes are to a session; nil and zero fields change nothing.
type changes struct {
	id            *upstream.Identity // AUTH, HELLO: all but the database
	db            *int
	name          []byte
	pinnedForLife bool // the connection has state from now on

	watches bool // what was taken to be over, WATCH, is not
}

func (c *changes) add(d changes) {
	if d.id != nil {
		c.id = d.id
	}
	if d.db != nil {
		c.db = d.db
	}
	if d.name != nil {
		c.name = d.name
	}
	c.pinnedForLife = c.pinnedForLife || d.pinnedForLife
	c.watches = c.watches || d.watches
}

// multi notes that a MULTI was sent, and returns the observer of its answer.
func (t *transaction) multi() func([]byte) {
	t.in, t.unsure = true, true
	return func(begin []byte) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.confirmed = t.confirmed || begin[0] == '+'
	}
}

// aborts are the errors of an EXEC after which there is no transaction any more: that
// of any Redis, and a Cluster's.
var aborts = []string{"EXECABORT", "MOVED", "ASK", "TRYAGAIN", "CROSSSLOT", "CLUSTERDOWN"}

// end notes that an EXEC or DISCARD was sent, and returns the observer of its answer. One
// that is refused (NOPERM, or without MULTI) ends nothing, WATCH neither.
func (t *transaction) end(watching bool) func([]byte) {
	queued := t.queued
	t.in, t.unsure = false, true
	t.forgetQueued()
	return func(begin []byte) {
		t.mu.Lock()
		defer t.mu.Unlock()
		if begin[0] == '*' { // EXEC, executed
			t.after.add(queued)
		}
		if begin[0] != '-' || slices.ContainsFunc(aborts, func(word string) bool { return resp.HasCode(begin, word) }) {
			t.confirmed = false
		} else {
			t.after.watches = t.after.watches || watching
		}
	}
}

// resolve is called when everything sent has been answered. It returns what has
// changed.
func (t *transaction) resolve() changes {
	t.mu.Lock()
	defer t.mu.Unlock()
	done := t.after
	t.in, t.unsure, t.after = t.confirmed, false, changes{}
	return done
}

// resume is for a transaction that was begun anew on another connection.
func (t *transaction) resume(queued changes, length int, edits []queuedRewrite) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.in, t.unsure, t.confirmed = true, true, true
	t.queued, t.length, t.rewrites = queued, length, edits
}

// forget is for a connection that is no more.
func (t *transaction) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.in, t.unsure, t.confirmed, t.after = false, false, false, changes{}
	t.forgetQueued()
}

func (t *transaction) forgetQueued() { t.queued, t.length, t.rewrites = changes{}, 0, nil }

// add notes that a command was sent that will be queued.
func (t *transaction) add(c changes) {
	t.queued.add(c)
	t.length++
}

// rewriteExec is what becomes of the reply to the EXEC of what is queued; nil: it is
// left as it is.
func (t *transaction) rewriteExec() relay.Rewrite {
	if len(t.rewrites) == 0 {
		return nil
	}
	length, edits := t.length, t.rewrites
	return func(reply []byte) ([]byte, bool) { return rewriteElements(reply, length, edits) }
}

// rewriteElements edits some of the elements of an array of this length. Another reply
// is left as it is.
func rewriteElements(reply []byte, length int, edits []queuedRewrite) (edited []byte, last bool) {
	elems, ok := resp.Elements(reply)
	if !ok || len(elems) != length {
		return reply, false
	}
	for _, e := range edits {
		var ends bool
		elems[e.at], ends = e.rewrite(elems[e.at])
		last = last || ends
	}
	return resp.AppendElements(nil, reply[0], elems), last
}

// tryBegin is the try of MULTI and WATCH.
func (s *Session) tryBegin(q request) bool {
	if !s.tryPin() {
		return false
	}
	s.beginTx(q)
	return true
}

// runBegin is the run of MULTI and WATCH.
func (s *Session) runBegin(ctx context.Context, q request) {
	if s.pin(ctx) {
		s.beginTx(q)
	} else if resp.Is(q.args[0], "MULTI") {
		s.closeAfterReplies() // what the client has sent behind it must not run by itself
	}
}

// beginTx sends MULTI or WATCH on the pinned connection.
func (s *Session) beginTx(q request) {
	switch multi := resp.Is(q.args[0], "MULTI"); {
	case multi && len(q.args) == 1:
		if !s.tx.in {
			s.tx.node = txNode{}
		}
		s.sendObserved(q.raw, s.tx.multi(), nil)
	case !multi && len(q.args) > 1:
		s.watching = true
		s.enqueue(q.raw)
	default:
		s.enqueue(q.raw)
	}
	s.publishStateful()
}

// tryUnwatch is the try of UNWATCH.
func (s *Session) tryUnwatch(q request) bool {
	if !s.tryForward(q.raw) {
		return false
	}
	if len(q.args) == 1 {
		s.watching = false
		s.publishStateful()
	}
	return true
}

// tryEnd is the try of EXEC and DISCARD outside of a transaction, as far as known.
func (s *Session) tryEnd(q request) bool {
	if s.tx.unsure { // perhaps an earlier one was refused
		return s.endTx(q)
	}
	return s.tryForward(q.raw)
}

// endTx sends EXEC or DISCARD on the pinned connection. It is always true.
func (s *Session) endTx(q request) bool {
	exec := resp.Is(q.args[0], "EXEC")
	if len(q.args) > 1 && !exec {
		return s.enqueue(q.raw) // refused, and ends nothing; an EXEC that is refused aborts
	}
	watching := s.watching
	s.watching = false
	s.tx.node.queued = nil
	var e relay.Rewrite
	if exec {
		e = s.tx.rewriteExec()
	}
	s.sendObserved(q.raw, s.tx.end(watching), e)
	s.publishStateful()
	return true
}

// sendObserved sends a command on the pinned connection whose answer must be known, and
// goes through e if that is not nil.
func (s *Session) sendObserved(raw []byte, heard func([]byte), e relay.Rewrite) {
	s.flushBatches()
	if s.inCluster() && e == nil {
		s.sendNoRedirect(raw, heard)
		return
	}
	if e != nil && s.inCluster() {
		plain := e
		e = func(reply []byte) ([]byte, bool) { return plain(relay.RedirectToTryAgain(reply)) }
	}
	s.replies.ExpectObserved(s.pinned, heard, e)
	s.replies.Send(s.pinned, raw, 1)
}

// inTx is the transport inside MULTI, on the pinned connection.
type inTx struct{ s *Session }

func (t inTx) send(q request) bool {
	s := t.s
	if s.tx.unsure && q.row.has(changesClient) { // if MULTI was refused it takes effect now
		return false
	}
	if s.inCluster() && !q.row.has(sessionOnly) {
		if sent, done := s.tryTxCluster(q); done {
			return sent
		}
	}
	if q.row.tryInTx != nil {
		return q.row.tryInTx(s, q)
	}
	if !q.row.has(notQueued) {
		s.tx.add(q.changes(s))
	}
	if q.row.has(sessionOnly) {
		s.keepQueued(q.raw)
	}
	return s.enqueue(q.raw)
}

func (t inTx) run(ctx context.Context, q request) {
	s := t.s
	switch {
	case q.row.runInTx != nil && q.row.runInTx(s, ctx, q):
	case s.inCluster() && s.runTxCluster(ctx, q):
	default:
		single{s}.run(ctx, q)
	}
}

// refuseVerbInTx is the tryInTx of a lock verb: the upstream does not know it, refuses it
// and so aborts the EXEC.
func (s *Session) refuseVerbInTx(q request) bool {
	s.flushBatches()
	s.keepQueued(q.raw)
	s.replies.ExpectReplaced(s.pinned, appendNoTx(nil, q.args[0]))
	s.replies.Send(s.pinned, q.raw, 1)
	return true
}

// refusedReset sends a RESET that the upstream will refuse; false: it will not.
func (s *Session) refusedReset(q request) bool {
	return len(q.args) > 1 && s.enqueue(q.raw)
}

// queueClient is the tryInTx of CLIENT; false: the upstream must be asked before.
func (s *Session) queueClient(q request) bool {
	return !clients.NeedsProbe(q.args) && s.queueTranslated(q)
}

func (s *Session) authChanges(args [][]byte) changes {
	c := changes{pinnedForLife: true}
	if id, ok := s.authIdentity(args); ok {
		c.id = &id
	}
	return c
}

func (s *Session) helloChanges(args [][]byte) changes {
	c := changes{pinnedForLife: true}
	if h, ok := parseHello(args); ok {
		id := s.id
		if h.proto != 0 {
			id.Proto = h.proto
		}
		if h.auth {
			id.User, id.Secret = string(h.user), string(h.secret)
		}
		c.id, c.name = &id, h.name
	}
	return c
}

func (s *Session) selectChanges(args [][]byte) changes {
	c := changes{pinnedForLife: true}
	if db, ok := dbNumber(args); ok {
		c.db = &db
	}
	return c
}

func (s *Session) clientChanges(args [][]byte) (c changes) {
	if name, ok := newName(args); ok {
		c.name = append([]byte{}, name...)
	}
	c.pinnedForLife = !clients.NamesIDs(args) || resp.Is(args[1], "TRACKING")
	return c
}
