package commands

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/backends/resp"
)

// replyGrace is how long a client that has left may still wait for the answer to the
// last thing it asked, on a connection whose replies are not counted, or if it may block.
const replyGrace = 50 * time.Millisecond

// tryPassthrough relays everything but what must be known of.
func (s *Session) tryPassthrough(k kind, raw []byte, args [][]byte) bool {
	if k == verb {
		return false
	}
	// A client of RESP2 that has subscriptions may say little else, but a SUBSCRIBE may
	// have been refused: what changes the client is settled by the reply, if there is one.
	barred, heard := s.id.Proto == 2 && s.subscribed(), !s.mayNotAnswer && !s.tx.in
	if !barred || k != client {
		s.replyMode.note(k, args, s.tx.in)
	}
	switch k {
	case reset:
		return len(args) > 1 && s.enqueue(raw)
	case quit:
		s.because(WhyQuit)
		s.closing, s.quitSent = true, true
	case auth:
		if heard {
			return false
		}
		s.pinned.ClearLogin()
	case hello:
		h, ok := parseHello(args)
		if !ok || h.auth && !heard {
			s.pinned.ClearLogin()
		}
		if heard {
			return false
		}
		if ok && h.proto != 0 && !barred {
			s.id.Proto, s.infoChanged = h.proto, true
		}
	case selectDB:
		db, ok := dbNumber(args)
		switch {
		case ok && heard: // it may be out of range, too
			return false
		case ok && !barred:
			s.id.DB = db
		}
	case multi:
		if barred && heard && len(args) == 1 {
			return false
		}
		s.tx.in = s.tx.in || len(args) == 1 && !barred
	case execTx:
		s.tx.in = s.tx.in && len(args) > 1 && !resp.Is(args[0], "EXEC")
	case subscribe:
		s.subs.note(args)
		s.noteSync(args)
		s.infoChanged = true
	case client:
		s.mayNotAnswer = s.mayNotAnswer || len(args) > 1 && resp.Is(args[1], "REPLY")
		switch {
		case !namesClientIDs(args):
		case s.mayNotAnswer || s.tx.in:
			return s.enqueue(s.translateBlind(raw, args))
		default:
			return false
		}
	}
	return s.enqueue(raw)
}

// setStepping has a raw connection hand over everything that comes together, unless messages
// must be looked at.
func (s *Session) setStepping() { s.pinned.DeliverSingly(s.redirectsInvalidations) }

// noteSync notes that the client is a replica from now on.
func (s *Session) noteSync(args [][]byte) {
	s.isReplica = s.isReplica || resp.Is(args[0], "SYNC") || resp.Is(args[0], "PSYNC")
}

// startPassthrough stops counting replies, from a command on that has none or many.
func (s *Session) startPassthrough(ctx context.Context, raw []byte, args [][]byte) {
	if !s.pin(ctx) {
		return
	}
	s.pinned.StartPassthrough()
	s.setStepping()
	s.mode = onPassthrough
	s.subs.note(args)
	s.noteSync(args)
	k := kindOf(args[0])
	s.mayNotAnswer = s.isReplica || k != subscribe
	refused := s.anonymous() && s.d.opt.Upstream.Pool().RequiresAuth() // as far as known
	s.replyMode = replyMode{known: !s.isReplica && !refused && (k == subscribe || k == client)}
	s.replyMode.note(k, args, false)
	s.publishStateful()
	s.enqueue(raw)
}
