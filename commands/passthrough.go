package commands

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/commands/clients"
)

// replyGrace is how long a client that has left may still wait for the answer to the
// last thing it asked, on a connection whose replies are not counted, or if it may block.
const replyGrace = 50 * time.Millisecond

// passthrough is what a session knows of its connection once replies are not counted on it.
type passthrough struct {
	subs                   subscriptions
	replyMode              replyMode
	mayNotAnswer           bool // the upstream may not answer at all
	isReplica              bool // the client asked to be a replica
	redirectsInvalidations bool // the client's invalidations may go to another
	quitSent               bool
}

// tryPassthrough relays everything but what must be known of.
func (s *Session) tryPassthrough(c *command, raw []byte, args [][]byte) bool {
	if !c.has(lockVerb) && !(resp.Is(args[0], "CLIENT") && s.onlyMessages()) {
		s.pass.replyMode.note(args, s.tx.in)
	}
	if c.passthrough != nil {
		return c.passthrough(s, raw, args)
	}
	return s.enqueue(raw)
}

// onlyMessages reports whether the client may say little but SUBSCRIBE and UNSUBSCRIBE: in
// RESP2, with subscriptions. A SUBSCRIBE may have been refused, so what changes the client
// is decided by the reply, if there is one.
func (s *Session) onlyMessages() bool { return s.id.Proto == 2 && s.subscribed() }

// isAnswered reports whether each command on the passthrough connection has its reply.
func (s *Session) isAnswered() bool { return !s.pass.mayNotAnswer && !s.tx.in }

func (s *Session) passQuit(raw []byte, _ [][]byte) bool {
	s.because(WhyQuit)
	s.closing, s.pass.quitSent = true, true
	return s.enqueue(raw)
}

func (s *Session) passAuth(raw []byte, _ [][]byte) bool {
	if s.isAnswered() {
		return false
	}
	s.pinned.ClearLogin()
	return s.enqueue(raw)
}

func (s *Session) passHello(raw []byte, args [][]byte) bool {
	h, ok := parseHello(args)
	if !ok || h.auth && !s.isAnswered() {
		s.pinned.ClearLogin()
	}
	if s.isAnswered() {
		return false
	}
	if ok && h.proto != 0 && !s.onlyMessages() {
		s.id.Proto, s.infoChanged = h.proto, true
	}
	return s.enqueue(raw)
}

func (s *Session) passSelect(raw []byte, args [][]byte) bool {
	if db, ok := dbNumber(args); ok {
		if s.isAnswered() { // it may be out of range, too
			return false
		}
		if !s.onlyMessages() {
			s.id.DB = db
		}
	}
	return s.enqueue(raw)
}

func (s *Session) passMulti(raw []byte, args [][]byte) bool {
	if s.onlyMessages() && s.isAnswered() && len(args) == 1 {
		return false
	}
	s.tx.in = s.tx.in || len(args) == 1 && !s.onlyMessages()
	return s.enqueue(raw)
}

func (s *Session) passEnd(raw []byte, args [][]byte) bool {
	s.tx.in = s.tx.in && len(args) > 1 && !resp.Is(args[0], "EXEC")
	return s.enqueue(raw)
}

func (s *Session) passSubscribe(raw []byte, args [][]byte) bool {
	s.pass.subs.note(args)
	s.noteSync(args)
	s.infoChanged = true
	return s.enqueue(raw)
}

func (s *Session) passClient(raw []byte, args [][]byte) bool {
	s.pass.mayNotAnswer = s.pass.mayNotAnswer || len(args) > 1 && resp.Is(args[1], "REPLY")
	if !clients.NamesIDs(args) {
		return s.enqueue(raw)
	}
	if s.pass.mayNotAnswer || s.tx.in {
		return s.enqueue(s.translateBlind(raw, args))
	}
	return false
}

// setStepping has a passthrough connection deliver everything that comes together, unless
// messages must be looked at.
func (s *Session) setStepping() { s.pinned.DeliverSingly(s.pass.redirectsInvalidations) }

// noteSync notes that the client is a replica from now on.
func (s *Session) noteSync(args [][]byte) {
	s.pass.isReplica = s.pass.isReplica || resp.Is(args[0], "SYNC") || resp.Is(args[0], "PSYNC")
}

// startPassthrough stops counting replies, from a command on that has none or many.
func (s *Session) startPassthrough(ctx context.Context, raw []byte, args [][]byte) {
	if !s.pin(ctx) {
		return
	}
	s.pinned.StartPassthrough()
	s.setStepping()
	s.mode = onPassthrough
	s.pass.subs.note(args)
	s.noteSync(args)
	c := s.d.rows.lookup(args)
	s.pass.mayNotAnswer = s.pass.isReplica || !c.has(messages)
	refused := s.anonymous() && s.d.opt.Upstream.Pool().RequiresAuth() // as far as known
	s.pass.replyMode = replyMode{known: !s.pass.isReplica && !refused && (c.has(messages) || resp.Is(args[0], "CLIENT"))}
	s.pass.replyMode.note(args, false)
	s.publishStateful()
	s.enqueue(raw)
}
