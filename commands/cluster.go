package commands

import (
	"bytes"
	"context"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/commands/cluster"
	"github.com/lockproxy/lockproxy/commands/relay"
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
	if s.pinTo(ctx, pool) {
		s.beginTx(q)
	}
	return true
}

// runUnwatch ends what runWatch began, where that was.
func (s *Session) runUnwatch(ctx context.Context, q request) {
	if !s.pin(ctx) {
		return
	}
	s.enqueue(q.raw)
	if q.row.has(unwatches) == (len(q.args) == 1) {
		s.watching = false
		s.publishStateful()
	}
}

// A txNode is where a transaction in a Cluster is, as far as known: its node is that
// of its first key.
type txNode struct {
	slot   int
	fixed  bool     // slot is known
	queued [][]byte // what was sent before it was
}

// keepQueued keeps what was sent inside MULTI for the node that it may have to be sent
// to again.
func (s *Session) keepQueued(raw []byte) {
	if s.inCluster() && !s.txNode.fixed {
		s.txNode.queued = append(s.txNode.queued, bytes.Clone(raw))
	}
}

// tryTxCluster handles a command inside MULTI as far as nodes are concerned. done is
// false when it has still to be queued; sent is then of no meaning.
func (s *Session) tryTxCluster(q request) (sent, done bool) {
	if q.row.has(watches) && len(q.args) > 1 { // which is executed at once, and must not choose the node
		return s.reply("-ERR WATCH inside MULTI is not allowed\r\n"), true
	}
	if !s.sameView() && !s.txNode.fixed {
		return false, true
	}
	r := s.route(q)
	switch r.Kind {
	case cluster.OneNode:
		return s.tryTxNode(r)
	case cluster.BadKeys, cluster.SlotUncovered:
		return s.refuseQueued(r.Answer), true
	case cluster.SeveralSlots:
		return s.refuseQueued(cluster.CrossSlotError), true
	case cluster.UnknownKeys:
		return s.refuseQueued(errorAbout(q.args, "the proxy cannot tell its keys inside a transaction")), true
	}
	if cmd := s.d.discovery.Table().Lookup(q.args); cmd != nil && cmd.Takes(len(q.args)) {
		switch r.Kind {
		case cluster.AllMasters, cluster.NodeByNode:
			return s.refuseQueued(errorAbout(q.args, "a transaction is executed by one node of the Cluster, and this asks all")), true
		case cluster.Refused:
			return s.refuseQueued(r.Answer), true
		}
	}
	s.keepQueued(q.raw)
	return false, false
}

// tryTxNode is tryTxCluster of a command with keys of one slot, which all of a transaction
// have.
func (s *Session) tryTxNode(r cluster.Route) (sent, done bool) {
	elsewhere := s.router.View().Master(r.Slot) != s.pinnedPool
	switch {
	case s.txNode.fixed && r.Slot != s.txNode.slot, !s.txNode.fixed && elsewhere && s.watching:
		return s.refuseQueued(cluster.CrossSlotError), true
	case s.txNode.fixed:
		return false, false
	case elsewhere:
		return false, true
	}
	s.txNode = txNode{slot: r.Slot, fixed: true}
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

// errorAbout is an error about a command.
func errorAbout(args [][]byte, text string) string {
	return string(resp.AppendError(nil, "ERR "+string(bytes.ToUpper(args[0]))+": "+text))
}

// runTxCluster moves a transaction whose first key is another node's to that node:
// nothing of it has been executed yet. It is false if that is not the matter.
func (s *Session) runTxCluster(ctx context.Context, q request) bool {
	if s.idle(ctx) != nil || s.try(q) {
		return true
	}
	if !s.tx.In || s.txNode.fixed || s.watching || q.row.has(sessionOnly) {
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
	sent, queue := s.txNode.queued, s.tx.Queue()
	s.closePinned()
	if !s.pinTo(ctx, pool) {
		s.closeAfterReplies() // the client believes to be in a transaction
		return true
	}
	for i, command := range append([][]byte{resp.AppendCommand(nil, "MULTI")}, sent...) {
		reply, err := s.replies.Ask(ctx, s.pinned, command)
		if err != nil {
			s.replyErr(err)
			s.closeAfterReplies()
			return true
		}
		if _, refused := resp.Error(reply); refused && i == 0 {
			s.closeAfterReplies()
			return true
		}
	}
	s.tx.Resume(queue)
	s.txNode = txNode{slot: r.Slot, fixed: true}
	s.publishStateful()
	if !s.try(q) {
		s.closeAfterReplies()
	}
	return true
}

// askNodes asks nodes of a Cluster, as and on which connections it is told, for one reply.
type askNodes func(rt *cluster.Router, ctx context.Context, as relay.Sender, command []byte) (reply []byte, err error)

// askMasters answers with what ask makes of the replies of all masters to raw.
func (s *Session) askMasters(ctx context.Context, raw []byte, ask askNodes) {
	if s.awaitSameView(ctx) {
		s.answer(ask(s.router, ctx, s.sender(), bytes.Clone(raw)))
	}
}

// runWaitMasters is WAIT and WAITAOF. It is given up when the client leaves.
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
	case resp.Is(sub, "TRACKINGINFO"):
		s.askTracked(ctx, q.raw, (*cluster.Router).AskFirst)
	default:
		return false
	}
	return true
}

// askTracked answers with what ask makes of raw, once nothing is under way.
func (s *Session) askTracked(ctx context.Context, raw []byte, ask askNodes) {
	if s.idle(ctx) == nil && s.sameView() {
		s.answer(ask(s.router, ctx, s.sender(), bytes.Clone(raw)))
	}
}
