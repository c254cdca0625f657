package commands

import (
	"context"
	"time"
)

// rawGrace is how long a client that has left may still wait for the answer to the
// last thing it asked, on a connection whose replies are not counted, or if it may block.
const rawGrace = 50 * time.Millisecond

// tryRaw relays everything but what must be known of.
func (s *Session) tryRaw(k kind, raw []byte, args [][]byte) bool {
	if k == verb {
		return false
	}
	// A client of RESP2 that has subscriptions may say little else, but a SUBSCRIBE may
	// have been refused: what changes the client is settled by the reply, if there is one.
	barred, heard := s.id.Proto == 2 && s.subscribed(), !s.silent && !s.tx.in
	if !barred || k != client {
		s.hush.note(k, args, s.tx.in)
	}
	switch k {
	case reset:
		return len(args) > 1 && s.add(raw)
	case quit:
		s.because(WhyQuit)
		s.closing, s.quits = true, true
	case auth:
		if heard {
			return false
		}
		s.own.ActAsAnybody()
	case hello:
		h, ok := parseHello(args)
		if !ok || h.auth && !heard {
			s.own.ActAsAnybody()
		}
		if heard {
			return false
		}
		if ok && h.proto != 0 && !barred {
			s.id.Proto, s.changed = h.proto, true
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
		s.tx.in = s.tx.in && len(args) > 1 && !is(args[0], "EXEC")
	case subscribe:
		s.subs.note(args)
		s.noteSync(args)
		s.changed = true
	case client:
		s.silent = s.silent || len(args) > 1 && is(args[1], "REPLY")
		switch {
		case !speaksOfClients(args):
		case s.silent || s.tx.in:
			return s.add(s.blind(raw, args))
		default:
			return false
		}
	}
	return s.add(raw)
}

// stepOwn has a raw connection hand over everything that comes together, unless messages
// must be looked at.
func (s *Session) stepOwn() { s.own.Step(s.redirects) }

// noteSync notes that the client is a replica from now on.
func (s *Session) noteSync(args [][]byte) {
	s.syncs = s.syncs || is(args[0], "SYNC") || is(args[0], "PSYNC")
}

// goRaw stops counting replies, from a command on that has none or many.
func (s *Session) goRaw(ctx context.Context, raw []byte, args [][]byte) {
	if !s.toOwn(ctx) {
		return
	}
	s.own.Raw()
	s.stepOwn()
	s.mode = onRaw
	s.subs.note(args)
	s.noteSync(args)
	k := kindOf(args[0])
	s.silent = s.syncs || k != subscribe
	refused := s.anonymous() && s.d.opt.Upstream.Pool().WantsAuth() // as far as known
	s.hush = hush{known: !s.syncs && !refused && (k == subscribe || k == client)}
	s.hush.note(k, args, false)
	s.note()
	s.add(raw)
}
