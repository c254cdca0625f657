package commands

import (
	"context"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/clients"
	"github.com/lockproxy/lockproxy/commands/cluster"
	"github.com/lockproxy/lockproxy/commands/lockcmd"
	"github.com/lockproxy/lockproxy/commands/relay"
	"github.com/lockproxy/lockproxy/commands/table"
	"github.com/lockproxy/lockproxy/commands/tx"
)

// tryBegin is the try of MULTI and WATCH.
func (s *Session) tryBegin(q request) bool {
	if !s.tryPin() {
		return false
	}
	s.beginTx(q)
	return true
}

// runBegin is the run of MULTI and WATCH.
func (s *Session) runBegin(ctx context.Context, q request) { s.beginAt(ctx, s.pinPool(), q) }

// beginAt sends MULTI or WATCH to one node. If that cannot be reached the client is disconnected: what it has sent behind
// MULTI must not run by itself, and what it has sent behind WATCH not unwatched. It always returns true.
func (s *Session) beginAt(ctx context.Context, pool *upstream.Pool, q request) bool {
	if s.pinTo(ctx, pool) {
		s.beginTx(q)
	} else {
		s.closeAfterReplies()
	}
	return true
}

// beginTx sends MULTI or WATCH on the pinned connection.
func (s *Session) beginTx(q request) {
	multi := resp.Is(q.args[0], "MULTI")
	if !multi || len(q.args) > 1 {
		s.watching = s.watching || !multi && len(q.args) > 1
		s.enqueue(q.raw)
	} else {
		if !s.tx.In {
			s.txNode = cluster.Transaction{}
		}
		s.sendObserved(q.raw, s.tx.Begin(), nil)
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
	if s.tx.Unsure { // perhaps an earlier one was refused
		return s.endTx(q)
	}
	return s.tryForward(q.raw)
}

// endTx sends EXEC or DISCARD on the pinned connection; false: it is for runEndTx.
func (s *Session) endTx(q request) bool {
	exec := resp.Is(q.args[0], "EXEC")
	if s.adoptedTx.Active() || exec && s.tx.HasMessages() {
		return false
	}
	if len(q.args) > 1 && !exec {
		return s.enqueue(q.raw) // refused, and ends nothing; an EXEC that is refused aborts
	}
	watching := s.watching
	s.watching = false
	s.txNode.Ended()
	var e relay.Rewrite
	if exec {
		e = s.tx.RewriteExec()
	}
	s.sendObserved(q.raw, s.tx.End(watching), e)
	s.publishStateful()
	return true
}

// runEndTx is the runInTx of EXEC and DISCARD; false: they need not wait.
func (s *Session) runEndTx(ctx context.Context, q request) bool {
	switch {
	case s.adoptedTx.Active():
		return s.endAdoptedTx(ctx, q)
	case resp.Is(q.args[0], "EXEC") && s.tx.HasMessages():
		s.execMessages(ctx, q)
		return true
	}
	return false
}

// queueMessages is the tryInTx of the SUBSCRIBE family and MONITOR: they are answered once like any other
// command, and what they do begins with EXEC. False: they may not be queued, or it is not known yet
// whether they will be.
func (s *Session) queueMessages(q request) bool {
	if s.inCluster() || s.tx.Unsure {
		return false
	}
	known, m := s.tx.PlaceKnown(), &tx.Messages{Args: resp.CloneArguments(q.args)}
	s.tx.Add(tx.Changes{Messages: []*tx.Messages{m}})
	if known && s.tx.PlaceKnown() {
		s.tx.RewriteLast(func(reply []byte) ([]byte, bool) {
			_, m.Refused = resp.Error(reply)
			return reply, false
		})
	}
	return s.enqueue(q.raw)
}

// execMessages sends an EXEC after which replies are no longer counted, and waits for its own reply, which still is.
func (s *Session) execMessages(ctx context.Context, q request) {
	s.flushBatches()
	if s.idle(ctx) != nil {
		return
	}
	s.beginPassthrough()
	s.pass.replyMode.Known = !s.refusedLogin()
	rewrite, ended := s.tx.RewriteExec(), s.tx.End(s.watching)
	s.watching = false
	s.publishStateful()
	s.replies.ExpectObserved(s.pinned, ended, rewrite)
	s.replies.Send(s.pinned, q.raw, 1)
	if s.replies.WaitIdle(ctx) != nil {
		s.out.Abort()
		return
	}
	changed := s.tx.Resolve()
	s.applyChanges(changed)
	for _, m := range changed.Messages {
		if !m.Refused {
			s.pass.subs.Note(m.Args)
		}
	}
	s.unshown.changed = true
}

// sendObserved sends a command on the pinned connection. heard gets the beginning of the reply, and e rewrites it if
// that is not nil.
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
	if s.tx.Unsure && q.row.Has(table.ChangesClient) { // if MULTI was refused it takes effect now
		return false
	}
	if s.adoptedTx.Active() && !allowedInLockTx(q.row) {
		return s.refuseQueued(string(s.refuseMixedTx(q)))
	}
	if s.inCluster() && !q.row.Has(table.SessionOnly) {
		if sent, done := s.tryTxCluster(q); done {
			return sent
		}
	}
	if q.row.Do.tryInTx != nil {
		return q.row.Do.tryInTx(s, q)
	}
	if !q.row.Has(table.NotQueued) {
		s.tx.Add(q.changes(s))
	}
	if q.row.Has(table.SessionOnly) {
		s.keepQueued(q.raw)
	}
	return s.enqueue(q.raw)
}

func (t inTx) run(ctx context.Context, q request) {
	s := t.s
	switch {
	case q.row.Do.runInTx != nil && q.row.Do.runInTx(s, ctx, q):
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
	s.replies.ExpectReplaced(s.pinned, lockcmd.AppendNoTx(nil, q.args[0]))
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
