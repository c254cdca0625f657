package commands

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/commands/acl"
	"github.com/lockproxy/lockproxy/commands/clients"
	"github.com/lockproxy/lockproxy/commands/table"
	"github.com/lockproxy/lockproxy/commands/tx"
)

// Try handles a command that need not wait. It returns false, and has done nothing, if the command may have to wait:
// then call Run. raw is the command as multibulk, args its arguments, at least one. raw must stay as it is until Flush.
func (s *Session) Try(raw []byte, args [][]byte) bool {
	c := s.row(args)
	s.tally.Came()
	s.tap, s.observedLast = nil, false
	return c != nil && s.try(request{c, raw, args})
}

func (s *Session) try(q request) bool {
	s.unshown.command = q.args
	if s.backToShared(); s.end.Ended() { // in this order: when a connection is lost, the session ends before its replies are made up
		return true
	}
	if q.row.Has(table.IsHTTP) {
		s.disconnectHTTP()
		return true
	}
	s.noteUnwatch(q)
	if s.blockedInCluster() || s.mode == onShared && s.needsPinned() && !s.tryPin() {
		return false
	}
	if s.Restricted() && acl.ExceedsRestricted(q.args) {
		s.flushBatches()
		s.replies.Local(acl.ErrNoAuth.Reply)
		return true
	}
	if s.feed.Active() && s.mode != onPassthrough && !q.row.Has(table.WhileSubscribed) {
		if answer := s.feed.Refusal(s.id.Proto, s.d.discovery.Table().Lookup(q.args), q.args); answer != nil {
			if s.tx.In {
				return s.refuseQueued(string(answer))
			}
			return s.reply(string(answer))
		}
	}
	if s.d.watch != nil {
		s.observe(q)
	}
	return s.transport().send(q)
}

// disconnectHTTP disconnects a client that speaks HTTP, as Redis does: a browser may
// have been made to send commands in the body of a request. Redis would also close the
// connection that others share.
func (s *Session) disconnectHTTP() {
	s.end.Because(clients.WhyProtocol)
	s.Flush()
	if now, last := time.Now().Unix(), s.d.httpLogged.Load(); now-last >= 60 && s.d.httpLogged.CompareAndSwap(last, now) {
		s.d.opt.Log.Warn("a client sends HTTP and is disconnected: somebody's browser may be used for an attack (said once a minute at most)", "client", s.client.Addr)
	}
	s.closeAfterReplies()
}

// TryPart sends the beginning of a command, or more of it, if it can travel nowhere but
// on a connection that is the client's own: then the upstream sees what the client
// has sent, and nothing that large is kept here. name is its first argument, or nil
// in a later part. More parts may follow, and Rest must, before anything else. If it
// is false nothing has happened.
func (s *Session) TryPart(name, raw []byte) bool {
	if s.backToShared(); s.end.Ended() {
		return true
	}
	if s.mode != onPinned || !s.pinnedForLife || s.inCluster() || s.Restricted() || !s.d.mayComeInParts(name) {
		return false
	}
	if name != nil {
		s.unshown.command = [][]byte{name}
		s.tally.Note(s.d.rows.Lookup(s.unshown.command).Counted())
		s.tally.Came()
		s.publishInfo()
	}
	s.flushBatches()
	s.replies.SendUncounted(s.pinned, raw)
	return true
}

// mayComeInParts reports whether a command may be sent in parts, by what there is of its name: it
// is an ordinary one, or its name is longer than any; and its key cannot be a lock.
func (d *Dispatcher) mayComeInParts(name []byte) bool {
	const longest = 1 << 10 // modules' too
	if name == nil || len(name) > longest {
		return true
	}
	if d.opt.Adoption != nil {
		return false
	}
	c := d.rows.Lookup([][]byte{name})
	return c != nil && c.IsOrdinary(isHandled)
}

// Rest sends the end of a command whose beginning TryPart has sent.
func (s *Session) Rest(raw []byte) {
	if s.end.Ended() {
		return
	}
	if s.tx.In {
		s.tx.Add(tx.Changes{})
	}
	s.enqueue(raw)
}

// Run handles a command that may have to wait, for the upstream, for a majority.
// What waits is given up when ctx ends; a LOCK already when the client leaves. A LOCK
// with WAIT is not waited for: see Pending.
func (s *Session) Run(ctx context.Context, raw []byte, args [][]byte) {
	s.Flush()
	s.unshown.changed = true
	if (s.tx.Unsure || s.blockedInCluster()) && s.idle(ctx) != nil {
		return
	}
	q := request{s.discoverRow(ctx, args), raw, args}
	s.changing = s.changesNext(q)
	s.run(ctx, q)
	s.changing = false
	s.Flush()
}

func (s *Session) run(ctx context.Context, q request) {
	if s.try(q) { // what was in the way may be gone
		return
	}
	if s.mode == onShared && s.needsPinned() && !q.row.Has(table.LockVerb) && (!s.pin(ctx) || s.try(q)) {
		return
	}
	s.transport().run(ctx, q)
}

// changesNext reports whether a command changes what those behind it do: as whom they run and in which database, whether by
// themselves, and how they are answered. Another protocol alone counts for nothing: some clients go on in that from before.
func (s *Session) changesNext(q request) bool {
	switch c := q.changes(s); {
	case c.ID != nil:
		c.ID.Proto = s.id.Proto
		return *c.ID != s.id
	case c.DB != nil:
		return *c.DB != s.id.DB
	}
	return resp.Is(q.args[0], "WATCH") || q.row.Has(table.ChangesVerbs) && !q.row.Has(table.EndsTx)
}
