package commands

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
)

var (
	errLost   = errors.New("the connection was lost")
	errNobody = errors.New("no node is known that serves it")
)

// leaveOwn goes back to the shared connections of a Cluster's nodes between the
// commands that need one of the session's own, though that may have state: what is
// sent there, WATCH and what follows MULTI, is sent there by name.
func (s *Session) leaveOwn(k kind) {
	if s.mode != onOwn || !s.clustered() || k == watch || k == unwatch || k == multi {
		return
	}
	if s.flushRun(); s.replies.Owed() == 0 && !s.tx.unsure { // else settle has not seen the last replies
		s.mode = onShared
	}
}

// runNodes is Run for an upstream of several nodes. It is false for what any one of
// them will do for.
func (s *Session) runNodes(ctx context.Context, k kind, raw []byte, args [][]byte) bool {
	switch {
	case s.mode == onRaw:
		return false
	case s.tx.in:
		return s.clustered() && s.runTxNode(ctx, k, raw, args)
	case s.mode == onOwn && s.clustered() && k != watch && k != unwatch && k != multi:
		if s.idle(ctx) != nil {
			return true
		}
		s.leaveOwn(k)
		if s.try(k, raw, args) {
			return true
		}
	}
	if !s.clustered() {
		return s.mode == onShared && s.runRouted(ctx, k, raw, args)
	}
	switch {
	case k == ownConn && refusal(lower(args[0])) != nil:
		return s.say(refusal(lower(args[0]))(args))
	case s.watching && mayUnwatch(k, args):
		s.runUnwatch(ctx, k, raw, args)
		return true
	case k == watch:
		return s.runWatch(ctx, raw, args)
	case k == waits:
		s.runWaits(ctx, raw)
		return true
	case k == kills && len(args) > 1 && is(args[1], "KILL"):
		s.runKill(ctx, raw)
		return true
	case k == subscribe:
		return false
	}
	return s.mode == onShared && s.runRouted(ctx, k, raw, args)
}

// mayUnwatch says that a command outside of a transaction ends WATCH: UNWATCH, and an
// EXEC that is refused for its form.
func mayUnwatch(k kind, args [][]byte) bool {
	return k == unwatch || k == execTx && len(args) > 1 && is(args[0], "EXEC")
}

// sendFixed sends a command on the own connection whose node must not change: heard,
// if not nil, gets the beginning of its reply.
func (s *Session) sendFixed(raw []byte, heard func([]byte)) {
	c := &call{raw: raw, slot: noSlot, at: s.ownAt, fixed: true}
	if heard != nil {
		c.tap = &tap{heard: heard}
	}
	s.sendOwn(c)
}

// sendOwn sends a call on the own connection.
func (s *Session) sendOwn(c *call) {
	s.flushRun()
	s.sendCall(s.own, c)
}

func (s *Session) sendCall(conn *upstream.Conn, c *call) {
	s.replies.Call(c)
	if err := conn.SendEach(c.raw, []upstream.Sink{c}); err != nil {
		c.Fail(conn, 1, false, err)
	}
}

// runBlocking sends a command that may block to the node that serves its keys, on a
// connection of the session's own.
func (s *Session) runBlocking(ctx context.Context, p plan, raw []byte) bool {
	switch p.kind {
	case crossing:
		return s.say(crossSlot)
	case unserved:
		return s.say(unservedBy)
	case keyed:
		p.pool, p.read = s.rt.view.Master(p.slot), false
	default:
		p.pool = s.d.opt.Upstream.Pool()
	}
	if s.watching { // the own connection must stay
		s.sendAlone(ctx, p, raw)
		return true
	}
	if !s.toOwnAt(ctx, p.pool) {
		return true
	}
	s.blocks()
	c := s.newCall(p, bytes.Clone(raw))
	c.alone, c.tap = true, s.blockedUntilHeard()
	s.sendOwn(c)
	return true
}

// blockedUntilHeard lists the client as blocked until the reply has come.
func (s *Session) blockedUntilHeard() *tap {
	s.profile.blocked.Store(true)
	return &tap{heard: func([]byte) { s.profile.blocked.Store(false) }}
}

// sendAlone sends a command that may block on a connection for it alone.
func (s *Session) sendAlone(ctx context.Context, p plan, raw []byte) {
	conn, err := p.pool.Private(ctx, s.id, s.replies)
	if err != nil {
		s.replyErr(err)
		return
	}
	s.blocks()
	c := s.newCall(p, bytes.Clone(raw))
	c.alone, c.on, c.tap = true, conn, s.blockedUntilHeard()
	c.unbind = context.AfterFunc(s.rt.again.ctx, conn.Close)
	s.sendCall(conn, c)
}

// runWatch watches keys on the node that serves them. Keys of two nodes cannot be
// watched by one connection.
func (s *Session) runWatch(ctx context.Context, raw []byte, args [][]byte) bool {
	if !s.latestView(ctx) {
		return true
	}
	p, _ := s.plan(args)
	if p.kind != keyed {
		if p.kind == crossing {
			return s.say(crossSlot)
		}
		return p.kind == unserved && s.say(unservedBy)
	}
	pool := s.rt.view.Master(p.slot)
	if s.watching && s.own != nil && s.own.Alive() && s.ownAt != pool {
		return s.say(crossSlot)
	}
	if s.toOwnAt(ctx, pool) {
		s.begin(watch, raw, args)
	}
	return true
}

// runUnwatch ends what runWatch began, where that was.
func (s *Session) runUnwatch(ctx context.Context, k kind, raw []byte, args [][]byte) {
	if !s.toOwn(ctx) {
		return
	}
	s.add(raw)
	if (k == unwatch) == (len(args) == 1) {
		s.watching = false
		s.note()
	}
}

// A placing is where a transaction in a Cluster is, as far as known: its node is that
// of its first key.
type placing struct {
	slot   int
	fixed  bool     // slot is known
	queued [][]byte // what was sent before it was
}

// hasNode says that it may depend on the node what a command of this kind does.
func hasNode(k kind) bool {
	switch k {
	case forward, blocks, mayBlock, script, kills, ownConn, waits, unwatch, watch:
		return true
	}
	return false
}

// keepQueued keeps what was sent inside MULTI for the node that it may have to be
// said to again.
func (s *Session) keepQueued(raw []byte) {
	if s.clustered() && !s.place.fixed {
		s.place.queued = append(s.place.queued, bytes.Clone(raw))
	}
}

// tryTxNode handles a command inside MULTI as far as nodes are concerned. said is
// false when that is of no concern to it.
func (s *Session) tryTxNode(k kind, raw []byte, args [][]byte) (sent, said bool) {
	if !hasNode(k) {
		return false, false
	}
	if k == watch && len(args) > 1 { // which is executed at once, and must not choose the node
		return s.say("-ERR WATCH inside MULTI is not allowed\r\n"), true
	}
	if !s.sameView() && !s.place.fixed {
		return false, true
	}
	p, cmd := s.plan(args)
	switch {
	case p.kind == malformed:
		return s.refuseQueued(wrongArity(args)), true
	case p.kind == crossing || p.kind == split:
		return s.refuseQueued(crossSlot), true
	case p.kind == unserved:
		return s.refuseQueued(unservedBy), true
	case p.kind == unknown:
		return s.refuseQueued(about(args, "the proxy cannot tell its keys inside a transaction")), true
	case p.kind != keyed && (cmd == nil || !cmd.Takes(len(args))):
		s.keepQueued(raw)
		return false, false
	case p.kind == spread || p.kind == atHome && cmd.Name == "scan":
		return s.refuseQueued(about(args, "a transaction is executed by one node of the Cluster, and this asks all")), true
	case p.kind != keyed && refusal(cmd.Name) != nil:
		return s.refuseQueued(refusal(cmd.Name)(args)), true
	case p.kind != keyed:
		s.keepQueued(raw)
		return false, false
	case s.place.fixed && p.slot != s.place.slot:
		return s.refuseQueued(crossSlot), true
	case s.place.fixed:
		return false, false
	case s.rt.view.Master(p.slot) != s.ownAt && s.watching:
		return s.refuseQueued(crossSlot), true
	case s.rt.view.Master(p.slot) != s.ownAt:
		return false, true
	}
	s.place = placing{slot: p.slot, fixed: true}
	return false, false
}

// refuseQueued refuses a command inside MULTI, and makes the upstream abort the
// transaction by one that it does not know.
func (s *Session) refuseQueued(reply string) bool {
	s.flushRun()
	unknown := resp.AppendCommand(nil, "LOCKPROXY.REFUSED")
	s.keepQueued(unknown)
	s.replies.ExpectSwapped(s.own, []byte(reply))
	s.send(s.own, unknown, 1)
	return true
}

// about is an error about a command.
func about(args [][]byte, text string) string {
	return string(resp.AppendError(nil, "ERR "+upper(args[0])+": "+text))
}

// runTxNode moves a transaction whose first key is another node's to that node:
// nothing of it has been executed yet. It is false if that is not the matter.
func (s *Session) runTxNode(ctx context.Context, k kind, raw []byte, args [][]byte) bool {
	if s.idle(ctx) != nil || s.try(k, raw, args) {
		return true
	}
	if !s.tx.in || s.place.fixed || s.watching || !hasNode(k) {
		return false
	}
	p, _ := s.plan(args)
	if p.kind != keyed {
		return false
	}
	pool := s.rt.view.Master(p.slot)
	if pool == nil || pool == s.ownAt {
		return false
	}
	queued, changed, length, edits := s.place.queued, s.tx.queued, s.tx.length, s.tx.edits
	s.closeOwn()
	if !s.toOwnAt(ctx, pool) {
		s.hangUp() // the client believes to be in a transaction
		return true
	}
	for i, command := range append([][]byte{resp.AppendCommand(nil, "MULTI")}, queued...) {
		reply, err := s.ask(ctx, s.own, command)
		if err != nil {
			s.replyErr(err)
			s.hangUp()
			return true
		}
		if _, refused := resp.Error(reply); refused && i == 0 {
			s.hangUp()
			return true
		}
	}
	s.tx.resume(changed, length, edits)
	s.place = placing{slot: p.slot, fixed: true}
	s.note()
	if !s.try(k, raw, args) {
		s.hangUp()
	}
	return true
}

// askMasters asks every master, each on a connection of its own, and returns the
// replies to the last of commands.
func (s *Session) askMasters(ctx context.Context, commands ...[]byte) (replies [][]byte, err error) {
	if !s.latestView(ctx) {
		return nil, context.Canceled
	}
	masters := s.rt.view.Masters()
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
			s.replies.ExpectCaught(conn, func(reply []byte) { got <- reply })
			s.send(conn, c, 1)
		}
	}
	for _, got := range answers {
		select {
		case reply := <-got:
			if reply == nil {
				return nil, &upstream.DownError{Err: errLost}
			}
			replies = append(replies, reply)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return replies, nil
}

// runWaits is WAIT: the least of what all masters say.
func (s *Session) runWaits(ctx context.Context, raw []byte) {
	if s.idle(ctx) != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.present, cancel)()
	parts, err := s.askMasters(ctx, resp.AppendCommand(nil, "PING"), bytes.Clone(raw))
	s.joined(parts, err, joinMin)
}

// runKill is SCRIPT KILL and FUNCTION KILL: a script runs on one of the nodes.
func (s *Session) runKill(ctx context.Context, raw []byte) {
	parts, err := s.askMasters(ctx, bytes.Clone(raw))
	for _, p := range parts {
		if p[0] == '+' {
			parts = [][]byte{p}
			break
		}
	}
	s.joined(parts, err, joinFirst)
}

func (s *Session) joined(parts [][]byte, err error, join func([][]byte) []byte) {
	switch refused := firstError(parts); {
	case err != nil:
		s.replyErr(err)
	case refused != nil:
		s.replies.Local(refused)
	case len(parts) == 0:
		s.replyErr(&upstream.DownError{Err: errors.New("no node of the Cluster is known")})
	default:
		s.replies.Local(join(parts))
	}
}

// isCursor says that a SCAN has a cursor; a node refuses others in its own words.
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
	starts := s.rt.view.Starts()
	if len(starts) == 0 {
		return s.say(unservedBy)
	}
	slot := int(cursor & (1<<slotBits - 1))
	if cursor == 0 {
		slot = starts[0]
	}
	pool := s.rt.view.Master(slot)
	if pool == nil {
		return s.say(unservedBy)
	}
	conn := s.rt.conn(pool, s.lane)
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
	c := s.newCall(plan{slot: slot, pool: pool}, resp.AppendCommand(nil, asked...))
	s.sendParts([]*upstream.Conn{conn}, []*call{c}, func(parts [][]byte) []byte { return joinCursor(parts[0], slot, next) })
	return true
}

// joinCursor puts a cursor of the Cluster in place of the node's.
func joinCursor(reply []byte, slot, next int) []byte {
	elems, ok := elements(reply)
	if !ok || len(elems) != 2 {
		return reply
	}
	n, err := strconv.ParseUint(string(bulk(elems[0])), 10, 64)
	if err != nil {
		return strange()
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
