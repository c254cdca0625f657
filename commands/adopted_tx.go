package commands

import (
	"context"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/commands/adopt"
	"github.com/lockproxy/lockproxy/commands/adopt/observe"
	"github.com/lockproxy/lockproxy/commands/table"
)

// watchLock is WATCH of an adopted lock. If it cannot be read now the client is disconnected, as by replyErr.
func (s *Session) watchLock(ctx context.Context, q request) {
	if !s.awaitTurn(ctx) {
		return
	}
	reply := []byte("+OK\r\n")
	if err := s.d.opt.Adoption.Watch(ctx, adoptedConn{s}, &s.adoptedTx, q.args, s.keysOf(q.args)); err != nil {
		reply = appendAdoptErr(err)
	}
	s.burst = adopt.Burst{}
	s.replyAdopted(q, reply, adopt.Op{})
	if resp.HasCode(reply, "NOQUORUM") || resp.HasCode(reply, "UPSTREAMDOWN") {
		s.closeAfterReplies()
	}
}

// noteUnwatch forgets the lock that the client watches if a command outside of a transaction says so.
func (s *Session) noteUnwatch(q request) {
	if s.adoptedTx.Watches() && !s.tx.In && mayUnwatch(q.row, q.args) && q.row.Has(table.Unwatches) == (len(q.args) == 1) {
		s.adoptedTx.Forget()
	}
}

// allowedInLockTx reports whether a command has its usual meaning in a transaction with a lock.
func allowedInLockTx(c *command) bool {
	return c.Has(table.EndsTx|table.LockVerb|table.NotQueued) || c.Has(table.WhileSubscribed) && !c.Has(table.Messages)
}

// refuseMixedTx refuses a command that is about no lock in a transaction with one.
func (s *Session) refuseMixedTx(q request) []byte {
	return appendAdoptErr(s.d.opt.Adoption.RefuseMixedTx(adoptedConn{s}, &s.adoptedTx, q.args))
}

// queueAdopted is the runInTx of a command on the key of an adopted lock. If it refuses the command, the upstream aborts
// the EXEC. It always returns true.
func (s *Session) queueAdopted(ctx context.Context, q request) bool {
	switch {
	case resp.Is(q.args[0], "WATCH") && s.inCluster(): // its node may be another one
		return s.reply("-ERR WATCH inside MULTI is not allowed\r\n")
	case resp.Is(q.args[0], "WATCH"): // the upstream refuses it, and with Valkey the EXEC
		return s.enqueue(q.raw)
	case s.idle(ctx) != nil:
		return true
	}
	beside := adopt.UpstreamTx{Queued: s.tx.Len() > 0, Watched: s.watching, Tracked: s.mayTrack}
	queued, err := s.d.opt.Adoption.Queue(adoptedConn{s}, &s.adoptedTx, q.args, s.keysOf(q.args), beside)
	switch {
	case err != nil:
		reply := appendAdoptErr(err)
		s.d.opt.Observer.Note(&s.observed, observe.Decided, s.id.DB, s.id.Proto, q.args, reply, adopt.Op{})
		return s.refuseQueued(string(reply))
	case queued:
		s.d.opt.Observer.Note(&s.observed, observe.InMulti, s.id.DB, s.id.Proto, q.args, nil, adopt.Op{})
		return s.reply("+QUEUED\r\n")
	}
	if q.row = s.plainRow(q.args); q.row == nil {
		q.row = ordinaryRow
	}
	s.run(ctx, q)
	return true
}

// endAdoptedTx runs EXEC or DISCARD of a transaction with an adopted lock. First the upstream ends its own transaction,
// which is empty, and says whether it has refused anything in it. It always returns true.
func (s *Session) endAdoptedTx(ctx context.Context, q request) bool {
	exec := resp.Is(q.args[0], "EXEC")
	switch {
	case len(q.args) > 1 && !exec:
		return s.enqueue(q.raw) // refused, and ends nothing
	case s.idle(ctx) != nil:
		return true
	}
	s.d.opt.Observer.Note(&s.observed, observe.InMulti, s.id.DB, s.id.Proto, q.args, nil, adopt.Op{})
	ended := s.tx.End(s.watching)
	s.watching = false
	s.txNode.Ended()
	reply, err := s.replies.Ask(ctx, s.pinned, q.raw)
	if err != nil {
		s.closeAfterReplies() // as after any other transaction whose end is not known
		return true
	}
	ended(reply)
	s.publishStateful()
	if s.backToShared(); s.tx.In { // the client may not end it
		return s.reply(string(reply))
	}
	t := s.adoptedTx
	s.adoptedTx.Forget()
	if !exec || string(reply) != "*0\r\n" {
		return s.reply(string(reply))
	}
	s.burst = adopt.Burst{}
	result, err := s.d.opt.Adoption.Exec(ctx, adoptedConn{s}, &t)
	s.answerAdopted(q, result, err)
	return true
}
