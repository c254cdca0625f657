package locks

import (
	"errors"
	"time"
)

// ErrSessionEnded says that a LOCK was granted to a session that had ended, and undone.
var ErrSessionEnded = errors.New("the session has ended")

// A Session is a connection that locks are bound to: see LockRequest.Session. While it
// lives the Service renews what it has at a third of the lease, until MaxHold after the
// grant. It is made by NewSession and safe for concurrent use.
type Session struct {
	svc    *Service
	onLoss func(Loss)

	// guarded by keeper.mu
	ended bool
	holds []*sessionHold
}

// A Loss is a lock that a session kept and can keep no longer.
type Loss struct {
	Key
	Owner  string
	Fence  int64
	OnLoss OnLoss // as the LOCK said
	Reason string // in an operator's words: "it expired", "MAXHOLD of 1h is over", ...
}

// NewSession begins a session. lost is told once of every lock that cannot be renewed
// any more, before its validity ends where that is possible; it must not block.
func (s *Service) NewSession(lost func(Loss)) *Session {
	return &Session{svc: s, onLoss: lost}
}

// End gives up what the session has, and nothing else its owners may have,
// Options.SessionGrace from now. It does not block, and no call of lost begins any more.
// Only the first of End and Abandon counts.
func (k *Session) End() { k.svc.keepalive.end(k, k.svc.now()+k.svc.opts.SessionGrace) }

// Abandon stops renewing what the session has, and does not release it: its client may
// still be working. It does not block, and no call of lost begins any more.
func (k *Session) Abandon() { k.svc.keepalive.abandon(k) }

// Holds is how many holds the session keeps.
func (k *Session) Holds() int {
	k.svc.keepalive.mu.Lock()
	defer k.svc.keepalive.mu.Unlock()
	return len(k.holds)
}

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

// notify has the client told of a loss, unless the session has ended.
func (k *Session) notify(loss Loss) {
	k.svc.keepalive.mu.Lock()
	ended := k.ended
	k.svc.keepalive.mu.Unlock()
	if !ended && k.onLoss != nil {
		k.onLoss(loss)
	}
}

// recordGrant keeps a hold of grant g in memory, and bound to its session. It returns how many
// holds there are, and the end of this one's validity, see memory.granted.
func (s *Service) recordGrant(a *acquisition, g grant, until time.Duration, count int) (holds int, counts time.Duration, err error) {
	s.keepalive.mu.Lock()
	defer s.keepalive.mu.Unlock()
	if a.Session != nil && a.Session.ended {
		return 0, 0, ErrSessionEnded
	}
	holds, counts = s.grants.addHold(a.holder, g, hold{a.id, until}, a.known.renewals, count, s.now()-a.asked)
	if a.Session != nil {
		s.keepalive.addLocked(a, g.fence, counts)
		s.watchCuts(true)
	}
	return holds, counts, nil
}

// popHolds takes the holds to give back out of memory and out of the keeper, see memory.claim.
func (s *Service) popHolds(h holder, r UnlockRequest) (g grant, ids []string, left []hold, ok bool) {
	s.keepalive.mu.Lock()
	defer s.keepalive.mu.Unlock()
	g, ids, left, ok = s.grants.pop(h, r.Fence, r.All, r.tag(), s.now())
	if ok {
		s.keepalive.dropLocked(h, ids)
	}
	return g, ids, left, ok
}

// dropHolds takes holds out of memory and out of the keeper.
func (s *Service) dropHolds(h holder, ids ...string) {
	s.keepalive.mu.Lock()
	defer s.keepalive.mu.Unlock()
	s.keepalive.dropLocked(h, ids)
	s.grants.drop(h, ids...)
}
