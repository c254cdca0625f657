package commands

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/relay"
)

var errNobody = errors.New("no node is known that serves it")

// leavePinned goes back to the shared connections of a Cluster's nodes between the
// commands that need one of the session's own, though that may have state: what is
// sent there, WATCH and what follows MULTI, is sent there by name.
func (s *Session) leavePinned(c *command) {
	if s.mode != onPinned || !s.inCluster() || c.has(onTxConn) {
		return
	}
	if s.flushBatches(); s.replies.Pending() == 0 && !s.tx.unsure { // else backToShared has not seen the last replies
		s.mode = onShared
	}
}

// nodes is the transport of an upstream of several nodes: each command goes to the node, or
// nodes, that serve it.
type nodes struct{ s *Session }

func (t nodes) send(q request) bool {
	s := t.s
	if s.leavePinned(q.row); s.mode == onShared {
		return s.tryCluster(q)
	}
	if s.inCluster() && !q.row.has(unwatches|beginsTx) {
		return false // WATCH too: the pinned connection may be to another node
	}
	return single{s}.send(q)
}

func (t nodes) run(ctx context.Context, q request) {
	if !t.s.runNodes(ctx, q) {
		single{t.s}.run(ctx, q)
	}
}

// runNodes is run but for what any one of the nodes will do for: then it is false.
func (s *Session) runNodes(ctx context.Context, q request) bool {
	if s.mode == onPinned && s.inCluster() && !q.row.has(onTxConn) {
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
	case q.row.cluster.refuse != nil && q.needs() == pinnedConn:
		return s.reply(q.row.cluster.refuse(q.args))
	case s.watching && mayUnwatch(q.row, q.args):
		s.runUnwatch(ctx, q)
		return true
	case q.row.cluster.run != nil:
		return q.row.cluster.run(s, ctx, q)
	case q.row.has(messages):
		return false
	}
	return s.mode == onShared && s.runCluster(ctx, q)
}

// mayUnwatch reports whether a command outside of a transaction ends WATCH: UNWATCH, and an
// EXEC that is refused for its form.
func mayUnwatch(c *command, args [][]byte) bool {
	return c.has(unwatches) || c.has(endsTx) && len(args) > 1 && resp.Is(args[0], "EXEC")
}

// runBlocking sends a command that may block to the node that serves its keys, on a
// connection of the session's own.
func (s *Session) runBlocking(ctx context.Context, p route, raw []byte) bool {
	switch {
	case p.answer != "":
		return s.reply(p.answer)
	case p.kind == oneNode:
		p.pool, p.read = s.router.view.Master(p.slot), false
	default:
		p.pool = s.up.Pool()
	}
	if s.watching { // the pinned connection must stay
		s.sendAlone(ctx, p, raw)
		return true
	}
	if !s.pinTo(ctx, p.pool) {
		return true
	}
	s.markBlocking()
	c := s.newRequest(p, bytes.Clone(raw))
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
func (s *Session) sendAlone(ctx context.Context, p route, raw []byte) {
	conn, err := p.pool.Private(ctx, s.id, s.replies)
	if err != nil {
		s.replyErr(err)
		return
	}
	s.markBlocking()
	c := s.newRequest(p, bytes.Clone(raw))
	c.Alone, c.Conn, c.Observer = true, conn, s.blockedUntilReply()
	c.Unbind = context.AfterFunc(s.router.redirector.Context, conn.Close)
	s.sendRequest(conn, c)
}

// runWatch watches keys on the node that serves them. Keys of two nodes cannot be
// watched by one connection.
func (s *Session) runWatch(ctx context.Context, q request) bool {
	if !s.awaitSameView(ctx) {
		return true
	}
	r := s.route(q.row, q.args)
	if r.kind != oneNode {
		return r.answer != "" && s.reply(r.answer)
	}
	pool := s.router.view.Master(r.slot)
	if s.watching && s.pinned != nil && s.pinned.Alive() && s.pinnedPool != pool {
		return s.reply(crossSlotError)
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
	if s.inCluster() && !s.tx.node.fixed {
		s.tx.node.queued = append(s.tx.node.queued, bytes.Clone(raw))
	}
}

// tryTxCluster handles a command inside MULTI as far as nodes are concerned. done is
// false when it has still to be queued; sent is then of no meaning.
func (s *Session) tryTxCluster(q request) (sent, done bool) {
	if q.row.has(watches) && len(q.args) > 1 { // which is executed at once, and must not choose the node
		return s.reply("-ERR WATCH inside MULTI is not allowed\r\n"), true
	}
	if !s.sameView() && !s.tx.node.fixed {
		return false, true
	}
	r := s.route(q.row, q.args)
	switch r.kind {
	case oneNode:
		return s.tryTxNode(r)
	case badKeys, slotUncovered:
		return s.refuseQueued(r.answer), true
	case split:
		return s.refuseQueued(crossSlotError), true
	case unknownKeys:
		return s.refuseQueued(errorAbout(q.args, "the proxy cannot tell its keys inside a transaction")), true
	}
	if cmd := s.d.upstreamTable().Lookup(q.args); cmd != nil && cmd.Takes(len(q.args)) {
		switch r.kind {
		case allMasters, nodeByNode:
			return s.refuseQueued(errorAbout(q.args, "a transaction is executed by one node of the Cluster, and this asks all")), true
		case refused:
			return s.refuseQueued(r.answer), true
		}
	}
	s.keepQueued(q.raw)
	return false, false
}

// tryTxNode is tryTxCluster of a command with keys of one slot, which all of a transaction
// have.
func (s *Session) tryTxNode(r route) (sent, done bool) {
	elsewhere := s.router.view.Master(r.slot) != s.pinnedPool
	switch {
	case s.tx.node.fixed && r.slot != s.tx.node.slot, !s.tx.node.fixed && elsewhere && s.watching:
		return s.refuseQueued(crossSlotError), true
	case s.tx.node.fixed:
		return false, false
	case elsewhere:
		return false, true
	}
	s.tx.node = txNode{slot: r.slot, fixed: true}
	return false, false
}

// refuseQueued refuses a command inside MULTI, and makes the upstream abort the
// transaction by one that it does not know.
func (s *Session) refuseQueued(reply string) bool {
	s.flushBatches()
	unknown := resp.AppendCommand(nil, "LOCKPROXY.REFUSED")
	s.keepQueued(unknown)
	s.replies.ExpectReplaced(s.pinned, []byte(reply))
	s.send(s.pinned, unknown, 1)
	return true
}

// errorAbout is an error about a command.
func errorAbout(args [][]byte, text string) string {
	return string(resp.AppendError(nil, "ERR "+upper(args[0])+": "+text))
}

// runTxCluster moves a transaction whose first key is another node's to that node:
// nothing of it has been executed yet. It is false if that is not the matter.
func (s *Session) runTxCluster(ctx context.Context, q request) bool {
	if s.idle(ctx) != nil || s.try(q) {
		return true
	}
	if !s.tx.in || s.tx.node.fixed || s.watching || q.row.has(sessionOnly) {
		return false
	}
	r := s.route(q.row, q.args)
	if r.kind != oneNode {
		return false
	}
	pool := s.router.view.Master(r.slot)
	if pool == nil || pool == s.pinnedPool {
		return false
	}
	queued, changed, length, edits := s.tx.node.queued, s.tx.queued, s.tx.length, s.tx.rewrites
	s.closePinned()
	if !s.pinTo(ctx, pool) {
		s.closeAfterReplies() // the client believes to be in a transaction
		return true
	}
	for i, command := range append([][]byte{resp.AppendCommand(nil, "MULTI")}, queued...) {
		reply, err := s.ask(ctx, s.pinned, command)
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
	s.tx.resume(changed, length, edits)
	s.tx.node = txNode{slot: r.slot, fixed: true}
	s.publishStateful()
	if !s.try(q) {
		s.closeAfterReplies()
	}
	return true
}

// askMasters asks every master, each on a connection of its own, and returns the
// replies to the last of commands.
func (s *Session) askMasters(ctx context.Context, commands ...[]byte) (replies [][]byte, err error) {
	if !s.awaitSameView(ctx) {
		return nil, context.Canceled
	}
	masters := s.router.view.Masters()
	answers := make([]chan []byte, len(masters))
	for i, pool := range masters {
		conn, err := pool.Private(ctx, s.id, s.replies)
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		for _, c := range commands {
			answers[i] = make(chan []byte, 1)
			got := answers[i]
			s.replies.ExpectCaptured(conn, func(reply []byte) { got <- reply })
			s.send(conn, c, 1)
		}
	}
	for _, got := range answers {
		select {
		case reply := <-got:
			if reply == nil {
				return nil, &upstream.DownError{Err: relay.ErrLost}
			}
			replies = append(replies, reply)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return replies, nil
}

// runWaitMasters is WAIT: the least of what all masters say.
func (s *Session) runWaitMasters(ctx context.Context, q request) bool {
	if s.idle(ctx) != nil {
		return true
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.clientCtx, cancel)()
	parts, err := s.askMasters(ctx, resp.AppendCommand(nil, "PING"), bytes.Clone(q.raw))
	s.replyMerged(parts, err, mergeMin)
	return true
}

// runScriptKill is SCRIPT KILL and FUNCTION KILL: a script runs on one of the nodes.
func (s *Session) runScriptKill(ctx context.Context, q request) bool {
	parts, err := s.askMasters(ctx, bytes.Clone(q.raw))
	for _, p := range parts {
		if p[0] == '+' {
			parts = [][]byte{p}
			break
		}
	}
	s.replyMerged(parts, err, mergeFirst)
	return true
}

func (s *Session) replyMerged(parts [][]byte, err error, merge func([][]byte) []byte) {
	switch refused := firstError(parts); {
	case err != nil:
		s.replyErr(err)
	case refused != nil:
		s.replies.Local(refused)
	case len(parts) == 0:
		s.replyErr(&upstream.DownError{Err: errors.New("no node of the Cluster is known")})
	default:
		s.replies.Local(merge(parts))
	}
}

// isCursor reports whether a SCAN has a cursor; a node refuses others in its own words.
func isCursor(args [][]byte) bool {
	if len(args) < 2 {
		return false
	}
	_, err := strconv.ParseUint(string(args[1]), 10, 64)
	return err == nil
}

// A cursor of SCAN over a Cluster is a node's own cursor and the node, which is known
// by the slot it is asked for: slotBits of the number.
const slotBits = 14

// tryScan asks one node after the other. A cursor is good as long as its slot stays
// with its node.
func (s *Session) tryScan(args [][]byte) bool {
	cursor, _ := strconv.ParseUint(string(args[1]), 10, 64)
	starts := s.router.view.FirstSlots()
	if len(starts) == 0 {
		return s.reply(relay.SlotUncovered)
	}
	slot := int(cursor & (1<<slotBits - 1))
	if cursor == 0 {
		slot = starts[0]
	}
	pool := s.router.view.Master(slot)
	if pool == nil {
		return s.reply(relay.SlotUncovered)
	}
	conn := s.router.conn(pool, s.connClass)
	if conn == nil {
		return false
	}
	asked := append([][]byte{args[0], strconv.AppendUint(nil, cursor>>slotBits, 10)}, args[2:]...)
	next := 0 // where the next node's slots begin; 0: this is the last
	for _, at := range starts {
		if at > slot {
			next = at
			break
		}
	}
	c := s.newRequest(route{slot: slot, pool: pool}, resp.AppendCommand(nil, asked...))
	s.sendParts([]*upstream.Conn{conn}, []*relay.Request{c}, func(parts [][]byte) []byte { return mergeCursor(parts[0], slot, next) })
	return true
}

// mergeCursor puts a cursor of the Cluster in place of the node's.
func mergeCursor(reply []byte, slot, next int) []byte {
	elems, ok := resp.Elements(reply)
	if !ok || len(elems) != 2 {
		return reply
	}
	n, err := strconv.ParseUint(string(resp.Bulk(elems[0])), 10, 64)
	if err != nil {
		return unmergeable()
	}
	switch {
	case n >= 1<<(64-slotBits):
		return resp.AppendError(nil, fmt.Sprintf("ERR a cursor of %d is too large to be put together with a node of the Cluster", n))
	case n != 0:
		n = n<<slotBits | uint64(slot)
	default:
		n = uint64(next)
	}
	elems[0] = resp.AppendBulkString(nil, strconv.FormatUint(n, 10))
	return appendElements(reply[0], elems)
}
