package commands

import (
	"context"
	"errors"
	"log/slog"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/commands/clients"
	"github.com/lockproxy/lockproxy/commands/lockcmd"
	"github.com/lockproxy/lockproxy/commands/pubsub"
)

// runVerb runs a lock verb, and replies unless it is a LOCK that waits:
// then that is Pending.
func (s *Session) runVerb(ctx context.Context, q request) {
	if s.mode == onPassthrough && s.tx.In { // the upstream refuses it in its own words, and aborts the EXEC
		s.pass.replyMode.Note(q.args, true)
		s.enqueue(resp.AppendCommand(nil, q.args...))
		return
	}
	muted := s.takeReplyMode()
	s.replies.Mute(muted)
	defer s.replies.Mute(false)
	if !s.awaitTurn(ctx) {
		return
	}
	switch {
	case s.id.Proto == 2 && s.subscribed():
		s.replyErr(errors.New(pubsub.SubscriberModeError(q.args[0])))
	case q.row.Do.verb != nil:
		s.replies.Local(s.verbReply(ctx, q.row, q.args).Now())
	default:
		if err := s.locks.Lock(ctx, q.args, muted); err != nil {
			s.replyErr(err)
		}
	}
}

// awaitTurn waits until everything before a command that the lock nodes decide has been answered, and reports
// whether the upstream would let the client in. If not, it has answered the client.
func (s *Session) awaitTurn(ctx context.Context) bool {
	if !s.awaitReplies(ctx) {
		return false
	}
	err := s.checkAdmitted(ctx)
	if err != nil {
		s.replyOrDisconnect(err)
	}
	return err == nil
}

// verbReply runs a verb other than LOCK and LOCKALL.
func (s *Session) verbReply(ctx context.Context, c *command, args [][]byte) lockcmd.Reply {
	reply, err := s.locks.Do(ctx, c.Do.verb, args)
	if err != nil {
		return lockcmd.Reply{Bytes: appendErr([]byte{}, err)}
	}
	return reply
}

// EndLocks gives up the locks with SESSION: the connection has closed. It is safe for
// concurrent use.
func (s *Session) EndLocks() { s.locks.EndLocks() }

// AbandonLocks stops renewing the locks with SESSION and leaves them to their leases: the
// proxy ends, and the client may still be working. It is safe for concurrent use.
func (s *Session) AbandonLocks() { s.locks.AbandonLocks() }

// Brief shortens a text of a client for the log.
func Brief(word string) string { return lockcmd.Brief(word) }

// A verbConn is a session as its lock verbs use it.
type verbConn struct{ s *Session }

func (c verbConn) Database() int            { return c.s.id.DB }
func (c verbConn) Protocol() int            { return c.s.id.Proto }
func (c verbConn) Address() string          { return c.s.client.Addr }
func (c verbConn) Present() context.Context { return c.s.clientCtx }
func (c verbConn) HungUp() bool             { return c.s.client.HungUp != nil && c.s.client.HungUp() }
func (c verbConn) About() []slog.Attr       { return c.s.About() }
func (c verbConn) Disconnect()              { c.s.disconnect(clients.WhyLock) }
func (c verbConn) Close()                   { c.s.end.Now(clients.WhyLock); c.s.out.Close() }

func (c verbConn) MayLock(ctx context.Context, name string) error { return c.s.mayLock(ctx, name) }

func (c verbConn) IsAdmin(ctx context.Context) (bool, error) {
	a := c.s.asker()
	return a.IsAdmin(ctx)
}

func (c verbConn) Reply(reply []byte, err error) bool {
	c.s.answer(reply, err)
	return c.s.replies.Flush()
}

func (c verbConn) WatchHost(on bool) {
	if c.s.client.Watch != nil {
		c.s.client.Watch(on)
	}
}

func (c verbConn) Push(p []byte) bool {
	if c.s.client.Identity().Proto < 3 {
		return false
	}
	c.s.replies.Push(p)
	return true
}
