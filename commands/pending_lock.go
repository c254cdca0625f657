package commands

import (
	"bytes"
	"context"
	"time"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/commands/lockcmd"
	"github.com/lockproxy/lockproxy/commands/table"
)

// NotifyAnswer has f called once when Pending is closed, on any goroutine, in place of
// what an earlier call asked for; f must not wait. It reports false, without calling f, if
// Pending is closed already.
func (s *Session) NotifyAnswer(f func()) bool { return s.locks.Pending().OnDone(f) }

// Pending is not nil while a LOCK waits, and closed when its answer has come: then call
// Resume. Until then commands are for QueueBehind, and not for Try, TryPart or Run. Once
// the client has left it is closed soon.
func (s *Session) Pending() <-chan struct{} {
	p := s.locks.Pending()
	if p == nil {
		return nil
	}
	return p.Done
}

// QueueBehind takes a command that the client has sent behind a LOCK that waits. UNLOCK,
// RENEW and LOCKCTL take effect at once, or a connection that many share could wait for
// itself; all others wait. Replies keep their order. It reports false, and does nothing,
// if the queue takes no more: keep the command until Pending is nil.
func (s *Session) QueueBehind(ctx context.Context, raw []byte, args [][]byte) bool {
	p := s.locks.Pending()
	if !p.Room(len(raw)) || s.changesVerbs(args) {
		return false
	}
	q := s.locks.Queued(raw, args)
	if s.runOrQueue(ctx, &q); q.Raw != nil {
		q.Raw, q.Args = bytes.Clone(raw), resp.CloneArguments(args)
	}
	p.Add(q)
	return true
}

// changesVerbs reports whether a command changes what the verbs behind it mean, or
// whether they are allowed.
func (s *Session) changesVerbs(args [][]byte) bool {
	c := s.d.rows.Lookup(args)
	return c != nil && (c.Has(table.ChangesVerbs) || c.Has(table.Messages) && s.id.Proto == 2)
}

// runOrQueue runs a command that need not wait for the LOCKs before it.
func (s *Session) runOrQueue(ctx context.Context, q *lockcmd.Queued) {
	if q.Raw == nil {
		return
	}
	c := s.d.rows.Lookup(q.Args)
	isVerb := c != nil && c.Has(table.LockVerb)
	if !isVerb || !s.locks.RunsAhead(q.Args) {
		q.Waits(isVerb)
		return
	}
	s.tally.Note(c.Counted()) // what waits is counted when its turn comes
	s.tally.Came()
	*q = lockcmd.Queued{Reply: s.verbReply(ctx, c, q.Args)}
	q.Reply.At = time.Now()
}

// Resume gives the client the answer to the LOCK that has waited, and runs what came
// behind it, up to the next LOCK that has to wait.
func (s *Session) Resume(ctx context.Context) {
	p := s.locks.TakePending()
	s.replies.Mute(p.Muted)
	s.locks.Finish(ctx, p)
	s.replies.Mute(false)
	for p.Len() > 0 && s.locks.Pending() == nil {
		if s.Closing() {
			return
		}
		switch q := p.Next(); {
		case q.Raw == nil:
			s.Flush()
			if !s.awaitReplies(ctx) {
				return
			}
			if !s.pass.replyMode.Off {
				s.replies.Local(q.Reply.Now())
			}
		case !s.Try(q.Raw, q.Args):
			s.Run(ctx, q.Raw, q.Args)
		}
	}
	if next := s.locks.Pending(); next != nil {
		next.TakeOver(p, func(q *lockcmd.Queued) { s.runOrQueue(ctx, q) })
	}
	s.Flush()
}
