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
	svc  *Service
	lost func(Loss)

	// guarded by keeper.mu
	ended bool
	holds []*kept
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
	return &Session{svc: s, lost: lost}
}

// End gives up what the session has, and nothing else its owners may have,
// Options.SessionGrace from now. It does not block, and no call of lost begins any more.
// Only the first of End and Abandon counts.
func (k *Session) End() { k.svc.keeper.end(k, k.svc.now()+k.svc.opts.SessionGrace) }

// Abandon stops renewing what the session has, and does not release it: its client may
// still be working. It does not block, and no call of lost begins any more.
func (k *Session) Abandon() { k.svc.keeper.abandon(k) }

// Holds is how many holds the session keeps.
func (k *Session) Holds() int {
	k.svc.keeper.mu.Lock()
	defer k.svc.keeper.mu.Unlock()
	return len(k.holds)
}

func (k *Session) attachLocked(hold *kept) {
	hold.session, hold.place = k, len(k.holds)
	k.holds = append(k.holds, hold)
	k.svc.keeper.holds++
	if len(k.holds) == 1 {
		k.svc.keeper.sessions++
	}
}

func (k *Session) detachLocked(hold *kept) {
	last := len(k.holds) - 1
	k.holds[hold.place] = k.holds[last]
	k.holds[hold.place].place = hold.place
	k.holds[last] = nil
	k.holds = k.holds[:last]
	hold.session = nil
	k.svc.keeper.holds--
	if last == 0 {
		k.svc.keeper.sessions--
	}
}

// tell has the client told of a loss, unless the session has ended.
func (k *Session) tell(loss Loss) {
	k.svc.keeper.mu.Lock()
	ended := k.ended
	k.svc.keeper.mu.Unlock()
	if !ended && k.lost != nil {
		k.lost(loss)
	}
}

// remember keeps a hold of grant g in memory, and bound to its session. It returns how many
// holds there are, and the end of this one's validity, see memory.granted.
func (s *Service) remember(a *acquisition, g grant, until time.Duration, count int) (holds int, counts time.Duration, err error) {
	s.keeper.mu.Lock()
	defer s.keeper.mu.Unlock()
	if a.Session != nil && a.Session.ended {
		return 0, 0, ErrSessionEnded
	}
	holds, counts = s.memory.granted(a.holder, g, hold{a.id, until}, a.known.asked, count, s.now()-a.asked)
	if a.Session != nil {
		s.keeper.addLocked(a, g.fence, counts)
		s.waiting.hearCuts(true)
	}
	return holds, counts, nil
}

// claim takes the holds to give back out of memory and out of the keeper, see memory.claim.
func (s *Service) claim(h holder, r UnlockRequest) (g grant, ids []string, left []hold, ok bool) {
	s.keeper.mu.Lock()
	defer s.keeper.mu.Unlock()
	g, ids, left, ok = s.memory.claim(h, r.Fence, r.All, r.tag(), s.now())
	if ok {
		s.keeper.dropLocked(h, ids)
	}
	return g, ids, left, ok
}

// drop takes holds out of memory and out of the keeper.
func (s *Service) drop(h holder, ids ...string) {
	s.keeper.mu.Lock()
	defer s.keeper.mu.Unlock()
	s.keeper.dropLocked(h, ids)
	s.memory.drop(h, ids...)
}
