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

// runWatch watches keys on the node that serves them. Keys of two nodes cannot be
// watched by one connection.
func (s *Session) runWatch(ctx context.Context, q request) bool {
	if !s.awaitSameView(ctx) {
		return true
	}
	r := s.route(q)
	if r.Kind != cluster.OneNode {
		return r.Answer != "" && s.reply(r.Answer)
	}
	pool := s.router.View().Master(r.Slot)
	if s.watching && s.pinned != nil && s.pinned.Alive() && s.pinnedPool != pool {
		return s.reply(cluster.CrossSlotError)
	}
	return s.beginAt(ctx, pool, q)
}

// runUnwatch sends a command that ends WATCH to the node where runWatch has watched keys.
func (s *Session) runUnwatch(ctx context.Context, q request) {
	if !s.pin(ctx) {
		return
	}
	s.enqueue(q.raw)
	if q.row.Has(table.Unwatches) == (len(q.args) == 1) {
		s.watching = false
		s.publishStateful()
	}
}

// keepQueued keeps what was sent inside MULTI for the node that it may have to be sent
// to again.
func (s *Session) keepQueued(raw []byte) {
	if s.inCluster() {
		s.txNode.Keep(raw)
	}
}

// tryTxCluster checks that a command inside MULTI can run on the transaction's node. If done, it was handled, and sent
// is what Try returns; otherwise it has still to be queued.
func (s *Session) tryTxCluster(q request) (sent, done bool) {
	if q.row.Has(table.Watches) && len(q.args) > 1 { // which is executed at once, and must not choose the node
		return s.reply("-ERR WATCH inside MULTI is not allowed\r\n"), true
	}
	if !s.sameView() && !s.txNode.Placed() {
		return false, true
	}
	cmd := s.d.discovery.Table().Lookup(q.args)
	switch refusal, moves := s.router.Queue(&s.txNode, s.route(q), cmd, q.args, s.pinnedPool, s.watching); {
	case refusal != "":
		return s.refuseQueued(refusal), true
	case moves:
		return false, true
	}
	s.keepQueued(q.raw)
	return false, false
}

// refuseQueued refuses a command inside MULTI, and makes the upstream abort the
// transaction by one that it does not know.
func (s *Session) refuseQueued(reply string) bool {
	s.flushBatches()
	unknown := resp.AppendCommand(nil, "LOCKPROXY.REFUSED")
	s.keepQueued(unknown)
	s.replies.ExpectReplaced(s.pinned, []byte(reply))
	s.replies.Send(s.pinned, unknown, 1)
	return true
}

// runTxCluster moves a transaction to the node of its first key, before anything of it has been executed. It returns
// false if it need not move.
func (s *Session) runTxCluster(ctx context.Context, q request) bool {
	if s.idle(ctx) != nil || s.try(q) {
		return true
	}
	if !s.tx.In || s.txNode.Placed() || s.watching || q.row.Has(table.SessionOnly) {
		return false
	}
	r := s.route(q)
	if r.Kind != cluster.OneNode {
		return false
	}
	pool := s.router.View().Master(r.Slot)
	if pool == nil || pool == s.pinnedPool {
		return false
	}
	if !s.moveTx(ctx, pool, r.Slot) || !s.try(q) {
		s.closeAfterReplies() // the client believes to be in a transaction
	}
	return true
}

// moveTx begins the transaction anew on the node that serves a slot. If that fails it answers the client why.
func (s *Session) moveTx(ctx context.Context, pool *upstream.Pool, slot int) bool {
	queue := s.tx.Queue()
	s.closePinned()
	if !s.pinTo(ctx, pool) {
		return false
	}
	moved, err := s.txNode.MoveTo(ctx, s.replies, s.pinned, slot)
	if err != nil {
		s.replyErr(err)
	}
	if moved {
		s.tx.Resume(queue)
		s.publishStateful()
	}
	return moved
}

// askNodes sends a command to nodes of a Cluster, with the identity and connections of as, and makes one reply of
// theirs.
type askNodes func(rt *cluster.Router, ctx context.Context, as relay.Sender, command []byte) (reply []byte, err error)

// askMasters answers with what ask makes of the replies of all masters to raw.
func (s *Session) askMasters(ctx context.Context, raw []byte, ask askNodes) {
	if s.awaitSameView(ctx) {
		s.answer(ask(s.router, ctx, s.sender(), bytes.Clone(raw)))
	}
}

// runWaitMasters is WAIT and WAITAOF in a Cluster. It ends when the client leaves.
func (s *Session) runWaitMasters(ctx context.Context, q request) bool {
	if s.idle(ctx) != nil {
		return true
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.clientCtx, cancel)()
	s.askMasters(ctx, q.raw, (*cluster.Router).Wait)
	return true
}

// runScriptKill is SCRIPT KILL and FUNCTION KILL.
func (s *Session) runScriptKill(ctx context.Context, q request) bool {
	s.askMasters(ctx, q.raw, (*cluster.Router).KillScript)
	return true
}

// clientInCluster runs a CLIENT that concerns all nodes of a Cluster. It reports false, and
// does nothing, for one that any node can run.
func (s *Session) clientInCluster(ctx context.Context, q request) bool {
	if len(q.args) < 2 {
		return false
	}
	switch sub := q.args[1]; {
	case resp.Is(sub, "PAUSE") || resp.Is(sub, "UNPAUSE"):
		s.askMasters(ctx, q.raw, (*cluster.Router).AskMasters)
	case resp.Is(sub, "REPLY"):
		refusal := resp.AppendError(nil, "ERR CLIENT REPLY is not supported with a Cluster upstream")
		if s.tx.In {
			s.refuseQueued(string(refusal))
		} else {
			s.replies.Local(refusal)
		}
	case resp.Is(sub, "TRACKING"):
		s.askTracked(ctx, q.raw, func(rt *cluster.Router, ctx context.Context, as relay.Sender, command []byte) ([]byte, error) {
			return []byte("+OK\r\n"), rt.SetTracking(ctx, as, command, q.args, s.watching, s.closePinned)
		})
	case !s.openRouter().Tracks():
		return false
	case resp.Is(sub, "CACHING"):
		s.askTracked(ctx, q.raw, (*cluster.Router).CacheNext)
	case resp.Is(sub, "TRACKINGINFO") || resp.Is(sub, "GETREDIR"):
		s.askTracked(ctx, q.raw, (*cluster.Router).AskFirst)
	default:
		return false
	}
	return true
}

// askTracked answers with what ask makes of raw, after all earlier commands have been answered.
func (s *Session) askTracked(ctx context.Context, raw []byte, ask askNodes) {
	if s.idle(ctx) == nil && s.sameView() {
		s.answer(ask(s.router, ctx, s.sender(), bytes.Clone(raw)))
	}
}
