package commands

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/commands/lockcmd"
)

// lockState is what a session knows of its locks.
type lockState struct {
	pending     *lockcmd.Pending // a LOCK that waits; nil: none
	implicit    lockcmd.Owners   // of locks taken without OWNER
	sessions    lockcmd.Sessions // with SESSION; others touch it, too
	hostWatched bool             // the client's host is watched

	admin          bool      // may see other clients' owners,
	adminCheckedAt time.Time // when the upstream was asked
}

// LockSessions renews the locks with SESSION of connections; *locks.Service is one.
type LockSessions interface {
	NewSession(lost func(locks.Loss)) *locks.Session
}

// EndLocks gives up the locks with SESSION: the connection has closed. It is safe for
// concurrent use.
func (s *Session) EndLocks() { s.locks.sessions.Finish((*locks.Session).End) }

// AbandonLocks stops renewing the locks with SESSION and leaves them to their leases: the
// proxy ends, and the client may still be working. It is safe for concurrent use.
func (s *Session) AbandonLocks() { s.locks.sessions.Finish((*locks.Session).Abandon) }

func (s *Session) lockSession() *locks.Session {
	return s.locks.sessions.Get(func() *locks.Session { return s.d.opt.Sessions.NewSession(s.lockLost) })
}

// watchHost has the client's host probed for as long as the client has locks with SESSION.
func (s *Session) watchHost() {
	if on := s.locks.sessions.Any(); on != s.locks.hostWatched && s.client.Watch != nil {
		s.locks.hostWatched = on
		s.client.Watch(on)
	}
}

// lockLost notifies the client of a lost lock with SESSION: by a push, or by the end of the
// connection unless that is to be kept. It is safe for concurrent use.
func (s *Session) lockLost(l locks.Loss) {
	proto := s.client.Identity().Proto
	about := lockEvent{verb: "LOCK", db: l.DB, name: l.Name, owner: l.Owner, fence: l.Fence}
	s.d.opt.Log.LogAttrs(context.Background(), slog.LevelWarn, "lock with SESSION is lost",
		slices.Concat(s.About(), about.attrs(), []slog.Attr{slog.String("reason", l.Reason)})...)
	push := l.OnLoss == locks.OnLossPush && proto == 3
	keep := l.OnLoss == locks.OnLossDefault && s.d.opt.KeepOnLoss
	switch {
	case !push && !keep:
		s.disconnect(WhyLock)
	case proto == 3:
		s.replies.Push(lockcmd.AppendLoss(nil, l))
	}
}
