package locks

import (
	"errors"
)

// ErrSessionEnded says that a LOCK was granted to a session that had ended, and undone.
var ErrSessionEnded = errors.New("the session has ended")

// A Session is a connection that locks are bound to: see LockRequest.Session. While it
// lives the Service renews what it has at a third of the lease, until MaxHold after the
// grant. It is made by NewSession and safe for concurrent use.
type Session struct {
	svc    *Service
	onLoss func(Loss)

	// guarded by Keepalive.mu
	ended bool
	holds []*sessionHold
}

// A Loss is a lock of a session that cannot be kept any longer.
type Loss struct {
	Key
	Owner  string
	Fence  int64
	OnLoss OnLoss // of the LOCK
	Reason string // "it expired", "MAXHOLD of 1h is over", ...
}

// NewSession begins a session. lost is called once for every lock that cannot be renewed any more, before its
// validity ends where that is possible; it must not block.
func (s *Service) NewSession(lost func(Loss)) *Session {
	return &Session{svc: s, onLoss: lost}
}

// End gives up the session's holds, and nothing else that their owners have, Options.SessionGrace from now. It
// does not block, and no call of lost begins any more. Only the first of End and Abandon counts.
func (k *Session) End() { k.svc.keepalive.end(k, k.svc.store.Now()+k.svc.options.SessionGrace) }

// Abandon stops renewing the session's locks, and does not release them: its client may still be working. It
// does not block, and no call of lost begins any more.
func (k *Session) Abandon() { k.svc.keepalive.abandon(k) }

// Holds is how many holds the session keeps.
func (k *Session) Holds() int {
	k.svc.keepalive.mu.Lock()
	defer k.svc.keepalive.mu.Unlock()
	return len(k.holds)
}

// EndedLocked reports whether the session has ended. The caller has the Keepalive locked.
func (k *Session) EndedLocked() bool { return k.ended }

func (k *Session) attachLocked(hold *sessionHold) {
	hold.session, hold.index = k, len(k.holds)
	k.holds = append(k.holds, hold)
	k.svc.keepalive.holds++
	if len(k.holds) == 1 {
		k.svc.keepalive.sessions++
	}
}

func (k *Session) detachLocked(hold *sessionHold) {
	last := len(k.holds) - 1
	k.holds[hold.index] = k.holds[last]
	k.holds[hold.index].index = hold.index
	k.holds[last] = nil
	k.holds = k.holds[:last]
	hold.session = nil
	k.svc.keepalive.holds--
	if last == 0 {
		k.svc.keepalive.sessions--
	}
}

// notify tells the client of a loss, unless the session has ended.
func (k *Session) notify(loss Loss) {
	k.svc.keepalive.mu.Lock()
	ended := k.ended
	k.svc.keepalive.mu.Unlock()
	if !ended && k.onLoss != nil {
		k.onLoss(loss)
	}
}
