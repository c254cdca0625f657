package commands

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/resp"
)

// A Keeper renews locks that are bound to connections; *locks.Service is one.
type LockSessions interface {
	NewSession(lost func(locks.Loss)) *locks.Session
}

// sessionLocks is what a client's locks with SESSION are bound to. The session's goroutine
// makes it when the first LOCK asks for it, whoever notices the end of the connection
// ends it: it is safe for concurrent use. The zero value is none.
type sessionLocks struct {
	mu      sync.Mutex
	session *locks.Session
	end     func(*locks.Session) // not nil: the connection is over
}

// get is the session, which begin makes if there is none. On a connection that is over
// it has ended as well.
func (k *sessionLocks) get(begin func() *locks.Session) *locks.Session {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.session == nil {
		if k.session = begin(); k.end != nil {
			k.end(k.session)
		}
	}
	return k.session
}

// finish ends the session in one way, for good. Only the first call counts.
func (k *sessionLocks) finish(end func(*locks.Session)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.end != nil {
		return
	}
	if k.end = end; k.session != nil {
		end(k.session)
	}
}

// any says that there are locks.
func (k *sessionLocks) any() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.session != nil && k.session.Holds() > 0
}

// EndLocks gives up the locks with SESSION: the connection has closed. It may be called
// by any goroutine.
func (s *Session) EndLocks() { s.sessionLocks.finish((*locks.Session).End) }

// AbandonLocks stops renewing the locks with SESSION and leaves them to their leases:
// the proxy ends, the client may still be working. It may be called by any goroutine.
func (s *Session) AbandonLocks() { s.sessionLocks.finish((*locks.Session).Abandon) }

func (s *Session) lockSession() *locks.Session {
	return s.sessionLocks.get(func() *locks.Session { return s.d.opt.Sessions.NewSession(s.lockLost) })
}

// watchHost has the client's host watched while the client has locks with SESSION.
func (s *Session) watchHost() {
	if on := s.sessionLocks.any(); on != s.hostWatched && s.info.Watch != nil {
		s.hostWatched = on
		s.info.Watch(on)
	}
}

// lockLost tells the client that a lock with SESSION is lost, by the end of the connection
// unless it is to be kept. It may be called by any goroutine.
func (s *Session) lockLost(l locks.Loss) {
	s.info.mu.Lock()
	proto := s.info.identity.Proto
	s.info.mu.Unlock()
	about := lockEvent{verb: "LOCK", db: l.DB, name: l.Name, owner: l.Owner, fence: l.Fence}
	s.d.opt.Log.LogAttrs(context.Background(), slog.LevelWarn, "lock with SESSION is lost",
		slices.Concat(s.About(), about.attrs(), []slog.Attr{slog.String("reason", l.Reason)})...)
	push := l.OnLoss == locks.OnLossPush && proto == 3
	keep := l.OnLoss == locks.OnLossDefault && s.d.opt.KeepOnLoss
	switch {
	case !push && !keep:
		s.disconnect(WhyLock)
	case proto == 3:
		s.replies.Push(appendLoss(nil, l))
	}
}

// appendLoss appends the message that a lock is lost.
func appendLoss(b []byte, l locks.Loss) []byte {
	b = append(b, ">4\r\n"...)
	b = resp.AppendBulkString(b, "lock-lost")
	b = resp.AppendBulkString(b, l.Name)
	b = resp.AppendInt(b, l.Fence)
	return resp.AppendBulkString(b, l.Reason)
}
