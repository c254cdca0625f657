package commands

import (
	"context"

	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/table"
	"github.com/lockproxy/lockproxy/commands/tx"
)

// A request is one command of the client. It is passed by value.
type request struct {
	row  *command
	raw  []byte   // as multibulk; it must stay as it is until Flush
	args [][]byte // at least one
}

// needs is the connection that the command needs.
func (q request) needs() table.Need { return q.row.Needs(q.args) }

// isRun reports whether the row's run is for the command in the session's state.
func (q request) isRun(s *Session) bool {
	return q.row.Do.run != nil && (q.row.Do.handles == nil || q.row.Do.handles(s, q.args))
}

// augmented reports whether the reply is to tell of the proxy too.
func (q request) augmented() bool { return q.row.Augment != nil && q.row.Augment(q.args) }

// changes are what the command will change in the session when it is executed.
func (q request) changes(s *Session) tx.Changes {
	if q.row.Changes == nil {
		return tx.Changes{}
	}
	return q.row.Changes(s.id, q.args)
}

// A transport is a way in which commands travel. The session's state says which one it is:
//
//	passthrough  one connection, on which replies are not counted
//	inTx         the pinned connection, inside MULTI
//	nodes        each command to the node, or nodes, that serve it
//	single       one connection, shared or pinned
type transport interface {
	// send sends a command, or answers it, and never waits. It is false for a command that
	// would have to wait: then nothing has happened, and run is to follow.
	send(request) bool
	// run prepares what a command has to wait for (a connection, a route, earlier replies),
	// and sends it. What cannot be prepared is answered.
	run(context.Context, request)
}

func (s *Session) transport() transport {
	switch {
	case s.mode == onPassthrough:
		return passing{s}
	case s.tx.In:
		return inTx{s}
	case s.perCommandNode():
		return nodes{s}
	}
	return single{s}
}

// single is the transport where it does not depend on the command which node it goes to.
type single struct{ s *Session }

func (t single) send(q request) bool {
	s := t.s
	switch {
	case q.row.Do.try != nil:
		return q.row.Do.try(s, q)
	case q.isRun(s):
		return false
	case q.augmented():
		return s.tryAugmented(q)
	}
	switch q.needs() {
	case table.AnyConn:
		return s.tryForward(q.raw)
	case table.ScriptConn:
		return s.tryScript(q.raw)
	case table.PinnedConn:
		return s.tryPin() && s.enqueue(q.raw)
	case table.BlockingConn:
		return s.tryPin() && s.enqueueBlocking(q.raw)
	}
	return false
}

func (t single) run(ctx context.Context, q request) {
	s := t.s
	switch {
	case q.isRun(s):
		q.row.Do.run(s, ctx, q)
		return
	case q.augmented() && s.mode != onPassthrough && !s.tx.In:
		if s.ensureConn(ctx) {
			s.tryAugmented(q)
		}
		return
	}
	switch q.needs() {
	case table.ScriptConn:
		if s.idle(ctx) != nil {
			return
		}
		s.connClass = upstream.ScriptClass
	case table.PinnedConn:
		s.runPastOthers(ctx, q.raw)
		return
	case table.BlockingConn:
		if s.pin(ctx) {
			s.enqueueBlocking(q.raw)
		}
		return
	case table.PassthroughConn:
		if s.inCluster() {
			s.runSubscribe(ctx, q)
		} else {
			s.startPassthrough(ctx, q)
		}
		return
	}
	s.runForward(ctx, q.raw)
}
