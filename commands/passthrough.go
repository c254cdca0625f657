package commands

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/commands/clients"
	"github.com/lockproxy/lockproxy/commands/cluster"
	"github.com/lockproxy/lockproxy/commands/pubsub"
	"github.com/lockproxy/lockproxy/commands/relay"
	"github.com/lockproxy/lockproxy/commands/table"
)

// replyGrace is how long a client that has left may still wait for the answer to the
// last thing it asked, on a connection whose replies are not counted, or if it may block.
const replyGrace = 50 * time.Millisecond

// passthrough is what a session knows of its passthrough connection, on which replies are not counted.
type passthrough struct {
	subs                   pubsub.Subscriptions
	replyMode              clients.ReplyMode
	mayNotAnswer           bool // the upstream may not answer at all
	isReplica              bool // the client asked to be a replica
	redirectsInvalidations bool // the client's invalidations may go to another
	quitSent               bool
}

// passing is the transport of a passthrough connection: it relays commands, and notes those that change what the session
// must know.
type passing struct{ s *Session }

func (t passing) send(q request) bool {
	s := t.s
	if !q.row.Has(table.LockVerb) && !(resp.Is(q.args[0], "CLIENT") && s.onlyMessages()) {
		s.pass.replyMode.Note(q.args, s.tx.In)
	}
	if q.row.Do.passthrough != nil {
		return q.row.Do.passthrough(s, q)
	}
	return s.enqueue(q.raw)
}

func (t passing) run(ctx context.Context, q request) {
	if q.row.Has(table.ChangesClient | table.BeginsTx) {
		t.s.runPassthrough(ctx, q)
	} else {
		single(t).run(ctx, q)
	}
}

// onlyMessages reports whether the client may send little but SUBSCRIBE and UNSUBSCRIBE: in RESP2, with subscriptions. A
// SUBSCRIBE may have been refused, so what changes the client is decided by the reply, if there is one.
func (s *Session) onlyMessages() bool { return s.id.Proto == 2 && s.subscribed() }

// isAnswered reports whether each command on the passthrough connection has its reply.
func (s *Session) isAnswered() bool { return !s.pass.mayNotAnswer && !s.tx.In }

func (s *Session) passQuit(q request) bool {
	s.end.Because(clients.WhyQuit)
	s.closing, s.pass.quitSent = true, true
	return s.enqueue(q.raw)
}

func (s *Session) passAuth(q request) bool {
	if s.isAnswered() {
		return false
	}
	s.pinned.ClearLogin()
	return s.enqueue(q.raw)
}

func (s *Session) passHello(q request) bool {
	h, ok := clients.ParseHello(q.args)
	if !ok || h.Auth && !s.isAnswered() {
		s.pinned.ClearLogin()
	}
	if s.isAnswered() {
		return false
	}
	if ok && h.Proto != 0 && !s.onlyMessages() {
		s.id.Proto, s.unshown.changed = h.Proto, true
	}
	return s.enqueue(q.raw)
}

func (s *Session) passSelect(q request) bool {
	if db, ok := clients.ParseSelect(q.args); ok {
		if s.isAnswered() { // it may be out of range, too
			return false
		}
		if !s.onlyMessages() {
			s.id.DB = db
		}
	}
	return s.enqueue(q.raw)
}

func (s *Session) passMulti(q request) bool {
	if s.onlyMessages() && s.isAnswered() && len(q.args) == 1 {
		return false
	}
	s.tx.In = s.tx.In || len(q.args) == 1 && !s.onlyMessages()
	return s.enqueue(q.raw)
}

func (s *Session) passEnd(q request) bool {
	s.tx.In = s.tx.In && len(q.args) > 1 && !resp.Is(q.args[0], "EXEC")
	return s.enqueue(q.raw)
}

func (s *Session) passSubscribe(q request) bool {
	s.pass.subs.Note(q.args)
	s.noteSync(q.args)
	s.unshown.changed = true
	return s.enqueue(q.raw)
}

func (s *Session) passClient(q request) bool {
	s.pass.mayNotAnswer = s.pass.mayNotAnswer || len(q.args) > 1 && resp.Is(q.args[1], "REPLY")
	if !clients.NamesIDs(q.args) {
		return s.enqueue(q.raw)
	}
	if s.pass.mayNotAnswer || s.tx.In {
		return s.enqueue(s.translateBlind(q))
	}
	return false
}

// takeReplyMode reports whether a verb goes unanswered. After SKIP the upstream gets a
// command in the verb's place, or it would skip the reply to the next one.
func (s *Session) takeReplyMode() bool {
	if !s.pass.replyMode.Skip {
		return s.pass.replyMode.Off
	}
	s.pass.replyMode.Skip = false
	raw, _ := relay.NewBarrier(s.pinned)
	s.enqueue(raw)
	s.flushBatches()
	return true
}

// setDelivery makes a passthrough connection deliver replies one by one if messages must be looked at, and otherwise all
// that have come together.
func (s *Session) setDelivery() { s.pinned.DeliverSingly(s.pass.redirectsInvalidations) }

// noteSync notes that the client is a replica from now on.
func (s *Session) noteSync(args [][]byte) {
	s.pass.isReplica = s.pass.isReplica || resp.Is(args[0], "SYNC") || resp.Is(args[0], "PSYNC")
}

// startPassthrough sends a command that has no reply or many, and stops counting replies.
func (s *Session) startPassthrough(ctx context.Context, q request) {
	if !s.pin(ctx) {
		return
	}
	if s.adoptedTx.Watches() { // MULTI would ignore the watched lock there
		s.replies.Local(s.refuseMixedTx(q))
		return
	}
	s.beginPassthrough()
	s.pass.subs.Note(q.args)
	s.noteSync(q.args)
	s.pass.mayNotAnswer = s.pass.isReplica || !q.row.Has(table.Messages)
	s.pass.replyMode = clients.ReplyMode{Known: !s.pass.isReplica && !s.refusedLogin() && (q.row.Has(table.Messages) || resp.Is(q.args[0], "CLIENT"))}
	s.pass.replyMode.Note(q.args, false)
	s.publishStateful()
	s.enqueue(q.raw)
}

// beginPassthrough stops counting replies on the pinned connection, of which none may be pending.
func (s *Session) beginPassthrough() {
	s.pinned.StartPassthrough()
	s.setDelivery()
	s.mode = onPassthrough
}

// refusedLogin reports whether the upstream wants the client to authenticate first, as far as known.
func (s *Session) refusedLogin() bool { return s.anonymous() && s.up.Pool().RequiresAuth() }

// sync sends a command on the passthrough connection and returns when its reply, which b
// knows, has come: then everything before has been answered too, which may take as long as a
// command that blocks. It is false if the connection is lost, ctx ends, or the client has left
// replyGrace ago.
func (s *Session) sync(ctx context.Context, command []byte, b *relay.Barrier) bool {
	defer s.setDelivery()
	return s.replies.Sync(ctx, s.pinned, command, b, s.clientCtx, replyGrace)
}

// awaitReplies waits until everything before has been answered, however the session's
// commands travel.
func (s *Session) awaitReplies(ctx context.Context) bool {
	if s.mode != onPassthrough {
		return s.idle(ctx) == nil
	}
	if s.pass.mayNotAnswer && !s.pass.replyMode.On() {
		return true
	}
	question, m := relay.NewBarrier(s.pinned)
	return s.sync(ctx, question, m)
}

// passthroughNoAuth asks a connection whose replies are not counted, on which everything
// has been answered, whether it wants authentication.
func (s *Session) passthroughNoAuth(ctx context.Context) bool {
	if s.pass.mayNotAnswer {
		return true
	}
	var refused bool
	ping, b := relay.NewPing(&refused)
	return !s.sync(ctx, ping, b) || refused
}

// subscribed reports whether the client has subscriptions.
func (s *Session) subscribed() bool { return s.subscriptions() != [3]int{} }

// subscriptions are how many the session has: to channels, patterns and shard channels.
func (s *Session) subscriptions() [3]int {
	if s.feed.Used() {
		return s.feed.Counts()
	}
	return s.pass.subs.Counts()
}

// runSubscribe runs, in a Cluster, the commands that are not one request and one reply.
func (s *Session) runSubscribe(ctx context.Context, q request) {
	var err error
	switch {
	case s.tx.In:
		s.refuseQueued(cluster.ErrorAbout(q.args, "not supported inside a transaction with a Cluster upstream"))
	case q.row.Cluster.Refuse != nil:
		s.reply(q.row.Cluster.Refuse(q.args))
	case !q.row.Has(table.Messages):
		s.startPassthrough(ctx, q)
	case s.idle(ctx) != nil:
	case resp.Is(q.args[0], "MONITOR"):
		err = s.feed.Monitor(ctx, s.id, q.raw)
	default:
		err = s.feed.Subscribe(ctx, s.openRouter().Redirector(), s.id, q.args)
	}
	if err != nil {
		s.replyErr(err)
	}
}
