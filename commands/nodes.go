package commands

import (
	"bytes"
	"context"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/cluster"
	"github.com/lockproxy/lockproxy/commands/relay"
	"github.com/lockproxy/lockproxy/commands/table"
)

// nodes is the transport of an upstream of several nodes: each command goes to the node, or
// nodes, that serve it.
type nodes struct{ s *Session }

func (t nodes) send(q request) bool {
	s := t.s
	if s.leavePinned(q.row); s.mode == onShared {
		return s.tryCluster(q)
	}
	if s.inCluster() && !q.row.Has(table.Unwatches|table.BeginsTx) {
		return false // WATCH too: the pinned connection may be to another node
	}
	return single{s}.send(q)
}

func (t nodes) run(ctx context.Context, q request) {
	if !t.s.runNodes(ctx, q) {
		single(t).run(ctx, q)
	}
}

// runNodes is run for commands that need particular nodes. It returns false for a command that any node can run.
func (s *Session) runNodes(ctx context.Context, q request) bool {
	if s.mode == onPinned && s.inCluster() && !q.row.Has(table.OnTxConn) {
		if s.idle(ctx) != nil {
			return true
		}
		s.leavePinned(q.row)
		if s.try(q) {
			return true
		}
	}
	if !s.inCluster() {
		return s.mode == onShared && s.runCluster(ctx, q)
	}
	switch {
	case q.row.Cluster.Refuse != nil && q.needs() == table.PinnedConn:
		return s.reply(q.row.Cluster.Refuse(q.args))
	case s.watching && mayUnwatch(q.row, q.args):
		s.runUnwatch(ctx, q)
		return true
	case q.row.Do.runInCluster != nil:
		return q.row.Do.runInCluster(s, ctx, q)
	case q.row.Has(table.Messages):
		return false
	}
	return s.mode == onShared && s.runCluster(ctx, q)
}

// leavePinned goes back to the shared connections of a Cluster's nodes, unless a command needs the session's own. State
// on that is not in the way: WATCH and what follows MULTI are sent there explicitly.
func (s *Session) leavePinned(c *command) {
	if s.mode != onPinned || !s.inCluster() || c.Has(table.OnTxConn) {
		return
	}
	if s.flushBatches(); s.replies.Pending() == 0 && !s.tx.Unsure { // else backToShared has not seen the last replies
		s.mode = onShared
	}
}

// mayUnwatch reports whether a command outside of a transaction ends WATCH: UNWATCH, and an
// EXEC that is refused for its form.
func mayUnwatch(c *command, args [][]byte) bool {
	return c.Has(table.Unwatches) || c.Has(table.EndsTx) && len(args) > 1 && resp.Is(args[0], "EXEC")
}

// route decides where a command goes.
func (s *Session) route(q request) cluster.Route {
	return s.router.Route(s.d.discovery.Table().Lookup(q.args), &q.row.Cluster, q.args)
}

// tryCluster is send on shared connections.
func (s *Session) tryCluster(q request) bool {
	need := q.needs()
	switch {
	case !s.sameView(), s.watching && mayUnwatch(q.row, q.args), q.isRun(s), need != table.AnyConn && need != table.ScriptConn:
		return false
	case need == table.ScriptConn && s.connClass != upstream.ScriptClass:
		if s.flushBatches(); s.replies.Pending() > 0 {
			return false
		}
		s.connClass = upstream.ScriptClass
	}
	return s.sendRouted(s.route(q), need, q)
}

// sendRouted sends a command along its route, or answers it. It returns false if a connection is missing, or the route
// is not known.
func (s *Session) sendRouted(r cluster.Route, need table.Need, q request) bool {
	switch r.Kind {
	case cluster.UnknownKeys:
		return false
	case cluster.AllMasters:
		if q.augmented() {
			q.raw, r.Merge = s.augmentFanOut(r.Merge, q)
		}
		return s.sendToNodes(r, q)
	case cluster.OneNode, cluster.SeveralSlots:
		return s.sendToNodes(r, q)
	case cluster.NodeByNode:
		if cluster.IsCursor(q.args) {
			return s.sendToNodes(r, q)
		}
	case cluster.SlotUncovered:
		s.up.Refresh()
	}
	switch {
	case r.Answer != "":
		return s.reply(r.Answer)
	case need == table.ScriptConn:
		return s.tryScript(q.raw)
	case q.augmented():
		return s.tryAugmented(q)
	}
	return s.tryForward(q.raw)
}

func (s *Session) sendToNodes(r cluster.Route, q request) bool {
	s.flushBatch()
	if s.tap != nil {
		r.Observe = s.tap.Reply
	}
	sent := s.router.Send(r, s.sender(), q.raw, q.args)
	if sent {
		s.tap = nil
	}
	return sent
}

// runCluster is run for a command that tryCluster could not send at once. It returns false for one that does not depend
// on nodes.
func (s *Session) runCluster(ctx context.Context, q request) bool {
	for range maxRoutes {
		if sent, ours := s.runRoute(ctx, q); sent || !ours {
			return ours
		}
	}
	s.replyErr(&upstream.DownError{Err: relay.ErrLost})
	return true
}

// maxRoutes is how often a command is routed anew, because slots have moved or a connection was lost before it was sent.
const maxRoutes = 5

// runRoute routes a command and sends it, or answers it. ours is false for what does not
// depend on nodes.
func (s *Session) runRoute(ctx context.Context, q request) (sent, ours bool) {
	if !s.awaitSameView(ctx) {
		return true, true
	}
	need := q.needs()
	if q.isRun(s) || need == table.PinnedConn || need == table.PassthroughConn {
		return false, false
	}
	r := s.route(q)
	if r.Kind == cluster.UnknownKeys {
		var err error
		if r, err = s.router.AskKeys(ctx, s.sender(), q.args); err != nil {
			s.replyOrDisconnect(err)
			return true, true
		}
	}
	if need == table.ScriptConn && s.connClass != upstream.ScriptClass {
		if s.idle(ctx) != nil {
			return true, true
		}
		s.connClass = upstream.ScriptClass
	}
	switch {
	case need == table.BlockingConn:
		ours = s.inCluster() && s.runBlocking(ctx, r, q.raw)
		return ours, ours
	case r.Kind == cluster.AnyNode, r.Kind == cluster.NodeByNode && !cluster.IsCursor(q.args):
		return false, false
	}
	r, err := s.router.Connect(ctx, s.sender(), r, q.args)
	if err != nil {
		return s.replyUnreachable(err), true
	}
	return s.sendRouted(r, need, q), true
}

// replyUnreachable answers that nodes could not be reached. It returns false if the view of the nodes has changed
// meanwhile: then others may be reached.
func (s *Session) replyUnreachable(err error) bool {
	if s.router.View() != s.up.View() {
		return false
	}
	s.replyOrDisconnect(err)
	return true
}

// runBlocking sends a command that may block to the node that serves its keys, on a
// connection of the session's own.
func (s *Session) runBlocking(ctx context.Context, p cluster.Route, raw []byte) bool {
	switch {
	case p.Answer != "":
		return s.reply(p.Answer)
	case p.Kind == cluster.OneNode:
		p.Pool, p.Read = s.router.View().Master(p.Slot), false
	default:
		p.Pool = s.up.Pool()
	}
	if s.watching { // the pinned connection must stay
		s.sendAlone(ctx, p, raw)
		return true
	}
	if !s.pinTo(ctx, p.Pool) {
		return true
	}
	s.markBlocking()
	c := s.router.Request(p, s.sender(), bytes.Clone(raw))
	c.Alone, c.Observer = true, s.blockedUntilReply()
	s.sendPinned(c)
	return true
}

// blockedUntilReply lists the client as blocked until the reply has come.
func (s *Session) blockedUntilReply() *relay.Observer {
	s.client.SetBlocked(true)
	return &relay.Observer{Observe: func([]byte) { s.client.SetBlocked(false) }}
}

// sendAlone sends a command that may block on a connection for it alone.
func (s *Session) sendAlone(ctx context.Context, p cluster.Route, raw []byte) {
	conn, err := p.Pool.Private(ctx, s.id, s.replies)
	if err != nil {
		s.replyErr(err)
		return
	}
	s.markBlocking()
	c := s.router.Request(p, s.sender(), bytes.Clone(raw))
	c.Alone, c.Conn, c.Observer = true, conn, s.blockedUntilReply()
	c.Unbind = context.AfterFunc(s.router.Redirector().Context, conn.Close)
	s.replies.SendRequest(conn, c)
}
