package commands

import (
	"github.com/lockproxy/lockproxy/commands/adopt"
	"github.com/lockproxy/lockproxy/commands/adopt/observe"
	"github.com/lockproxy/lockproxy/commands/table"
)

// observe tells the Observer of a command that is about to be sent, once.
func (s *Session) observe(q request) {
	if s.observedLast || q.row.Has(table.LockVerb) {
		return
	}
	s.observedLast = true
	where := observe.Plain
	switch {
	case s.tx.In:
		where = observe.InMulti
	case s.mode == onPassthrough:
		where = observe.Uncounted
	}
	s.tap = s.d.watch.Command(&s.observed, where, s.id.DB, s.id.Proto, q.args)
}

// enqueueTapped is enqueue of a command whose reply is observed.
func (cs *conns) enqueueTapped(raw []byte) {
	tap := cs.tap
	if cs.tap = nil; cs.mode == onPinned && cs.inCluster() {
		cs.sendNoRedirect(raw, tap.Reply)
		return
	}
	cs.flushBatches()
	cs.replies.ExpectObserved(cs.conn(), tap.Reply, nil)
	cs.replies.Send(cs.conn(), raw, 1)
}

// replyAdopted answers a command on the key of an adopted lock, and tells the Observer what it did to the lock.
func (s *Session) replyAdopted(q request, reply []byte, did adopt.Op) {
	s.replies.Local(reply)
	s.d.opt.Observer.Note(&s.observed, observe.Decided, s.id.DB, s.id.Proto, q.args, reply, did)
}
