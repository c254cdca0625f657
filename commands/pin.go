package commands

import (
	"context"
	"errors"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/clients"
	"github.com/lockproxy/lockproxy/commands/cluster"
	"github.com/lockproxy/lockproxy/commands/tx"
)

// needsPinned reports whether no command of the session may travel on a shared connection.
func (s *Session) needsPinned() bool {
	return s.unshared() || s.d.pause.Active() || s.client.Referenced()
}

func (s *Session) unshared() bool { return s.d.opt.Unshared && !s.perCommandNode() }

// backToShared goes back to the main class of the shared connections when no reply is
// pending and the pinned connection has no state: only then can no later command overtake
// an earlier one.
func (s *Session) backToShared() {
	if s.mode == onShared && s.connClass == upstream.MainClass && !s.blocking || s.mode == onPassthrough {
		return
	}
	if s.batched > 0 || s.replies.Pending() > 0 {
		return
	}
	s.blocking, s.connClass = false, upstream.MainClass
	if s.tx.Unsure {
		s.applyChanges(s.tx.Resolve())
		s.publishStateful()
		s.unshown.changed = true
	}
	if !s.tx.In && !s.mustStayPinned() {
		s.mode = onShared
	}
}

// applyChanges takes over what an executed transaction changed on the pinned connection.
func (s *Session) applyChanges(c tx.Changes) {
	if c.ID != nil {
		if s.pinned != nil {
			s.pinned.ClearLogin()
		}
		s.id.User, s.id.Secret, s.id.Proto = c.ID.User, c.ID.Secret, c.ID.Proto
		s.locks.ForgetAdmin()
		s.returnShared()
	}
	if c.DB != nil && *c.DB != s.id.DB {
		s.id.DB = *c.DB
		s.returnShared()
	}
	if c.Name != nil {
		s.name = c.Name
	}
	s.pinnedForLife = s.pinnedForLife || c.PinnedForLife
	s.watching = s.watching || c.Watches
}

// publishStateful publishes whether the client loses state when its pinned connection ends.
func (s *Session) publishStateful() {
	s.stateful.Set(s.pinned, s.mode == onPassthrough || s.tx.In || s.watching || s.pinnedForLife, s.tx.Unsure)
	if c := s.stateful.Conn(&s.tx); c != nil && !c.Alive() {
		s.connLost(c) // which was called too early
	}
}

// diesWith reports whether the client is disconnected when a connection ends: one that holds the client's state, or
// whose user the upstream no longer lets in.
func (s *Session) diesWith(c *upstream.Conn) bool { return s.stateful.Conn(&s.tx) == c || c.Revoked() }

// connLost is called for every upstream connection that has ended, on any goroutine.
func (s *Session) connLost(c *upstream.Conn) {
	if s.diesWith(c) {
		s.end.Now(clients.WhyUpstream)
		s.out.Close()
	}
}

// pin waits until all earlier commands have been answered, and moves the session to its pinned connection, which it
// opens if need be. If that fails it answers the client why.
func (s *Session) pin(ctx context.Context) bool { return s.pinTo(ctx, s.pinPool()) }

// pinTo is pin with a connection to one node. It closes one to another node.
func (s *Session) pinTo(ctx context.Context, pool *upstream.Pool) bool {
	s.flushBatches()
	if s.idle(ctx) != nil {
		return false
	}
	if err := s.openPinned(ctx, pool); err != nil {
		s.replyOrDisconnect(err)
		return false
	}
	s.mode = onPinned
	if s.unshared() && !s.pinnedForLife {
		s.keepPinned()
	}
	return true
}

// keepPinned has the client keep its pinned connection, which now has state of the client's.
func (s *Session) keepPinned() {
	s.pinnedForLife = true
	s.publishStateful()
}

// askPinned sends a command on the pinned connection, if there can be one, and gives the client the reply; nil: it was lost.
func (s *Session) askPinned(ctx context.Context, raw []byte) (reply []byte, asked bool) {
	if !s.pin(ctx) {
		return nil, false
	}
	reply, err := s.replies.Ask(ctx, s.pinned, raw)
	s.answer(reply, err)
	return reply, true
}

// openPinned makes sure that the session has a live connection of its own to a node. If that fails the session is on
// shared connections.
func (s *Session) openPinned(ctx context.Context, pool *upstream.Pool) error {
	if pool == nil {
		return &upstream.DownError{Err: cluster.ErrNobody}
	}
	if s.pinned != nil && s.pinned.Alive() && s.pinnedPool == pool {
		return nil
	}
	given := s.client.Adopt()
	if s.closePinned(); s.end.Ended() {
		if given != nil {
			given.Conn.Close()
		}
		return context.Canceled
	}
	c, err := s.takePinned(ctx, pool, given)
	if err != nil {
		return err
	}
	s.pinned, s.pinnedPool, s.unshown.changed = c, pool, true
	s.publishInfo()
	if s.router != nil {
		if err := s.router.BeginTracking(ctx, c); err != nil {
			c.Close()
			return err
		}
	}
	if len(s.name) > 0 {
		s.replies.Ask(ctx, c, resp.AppendCommand(nil, "CLIENT", "SETNAME", string(s.name)))
	}
	return nil
}

// takePinned returns a connection for the session alone: given, unless the client's identity has changed since, or a new
// one.
func (s *Session) takePinned(ctx context.Context, pool *upstream.Pool, given *clients.AdoptedConn) (*upstream.Conn, error) {
	if given != nil && given.Identity == s.id && given.Conn.Alive() {
		return given.Conn, nil
	}
	if given != nil {
		given.Conn.Close()
	}
	return pool.Private(ctx, s.id, s.replies)
}

// runPastOthers sends a command on the session's own connection, so that it overtakes what others wait for, such as the
// script that it is to kill. While the upstream is BUSY no new connection can select its database: then a shared one is
// used.
func (s *Session) runPastOthers(ctx context.Context, raw []byte) {
	s.flushBatches()
	if s.idle(ctx) != nil {
		return
	}
	var refused *upstream.RefusedError
	if errors.As(s.openPinned(ctx, s.pinPool()), &refused) {
		s.runForward(ctx, raw)
		return
	}
	if s.pin(ctx) {
		s.enqueue(raw)
	}
}

// runWait sends WAIT or WAITAOF. Redis waits for the replication offset after the
// last command of the connection, which need not be the one that the client's
// writes travelled on; a PING brings the offset up to date, behind all of them.
func (s *Session) runWait(ctx context.Context, q request) {
	if !s.pin(ctx) {
		return
	}
	if _, err := s.replies.Ask(ctx, s.pinned, resp.AppendCommand(nil, "PING")); err != nil {
		s.replyErr(err)
		return
	}
	s.enqueueBlocking(q.raw)
}

func (s *Session) runForward(ctx context.Context, raw []byte) {
	if s.ensureConn(ctx) {
		s.enqueue(raw)
	}
}

// ensureConn makes sure that there is a live connection for an ordinary command. If that fails it answers the client
// why.
func (s *Session) ensureConn(ctx context.Context) bool {
	if s.mode != onShared {
		if s.pinned.Alive() {
			return true
		}
		if s.closePinned(); s.end.Ended() {
			return false
		}
	}
	return s.ensureShared(ctx)
}

// ensureShared makes sure that there is a live shared connection. If that fails it answers the client why.
func (s *Session) ensureShared(ctx context.Context) bool {
	if err := s.openShared(ctx); err != nil {
		s.replyOrDisconnect(err)
		return false
	}
	return true
}

// openShared is ensureShared, but returns the error instead of answering the client.
func (s *Session) openShared(ctx context.Context) (err error) {
	if c := s.shared[s.connClass]; c != nil && c.Alive() {
		return nil
	}
	s.returnClass(s.connClass)
	s.shared[s.connClass], err = s.up.Pool().Shared(ctx, s.id, s.connClass, s.hint)
	return err
}

func (s *Session) closePinned() {
	if s.pinned != nil && !s.pinned.Alive() {
		s.connLost(s.pinned) // whose reader may not have come to say so
	}
	s.stateful.Set(nil, false, false)
	s.mode = onShared
	s.tx.Forget()
	s.client.DropAdopted()
	if s.pinned == nil {
		return
	}
	if s.router != nil {
		s.router.Invalidate(s.id.Proto)
	}
	s.pinned.Close()
	s.pinned = nil
}
