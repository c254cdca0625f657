package locks

import (
	"errors"
	"time"
)

// ErrSessionEnded reports that a LOCK was granted after its session had ended, and is undone.
var ErrSessionEnded = errors.New("the session has ended")

// A Session is a connection that locks are bound to: see LockRequest.Session. While it
// lives the Service renews its locks, each when a third of the lease has passed, until
// MaxHold after the grant. It is made by NewSession and safe for concurrent use.
type Session struct {
	svc    *Service
	onLoss func(Loss)

	// guarded by Keepalive.mu
	ended bool
	holds []*sessionHold
}

// A Loss reports a lock that a session has lost, or that cannot be renewed any more.
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

// End ends the session. Its holds are given back Options.SessionGrace from now; other holds of their owners
// stay. It does not block, and no call of lost begins any more. Only the first of End and Abandon counts.
func (c *Session) End() { c.svc.keepalive.end(c, c.svc.store.Now()+c.svc.options.SessionGrace) }

// Abandon stops renewing the session's locks, and does not release them: its client may still be working. It
// does not block, and no call of lost begins any more.
func (c *Session) Abandon() { c.svc.keepalive.abandon(c) }

// Holds is how many holds the session keeps.
func (c *Session) Holds() int {
	c.svc.keepalive.mu.Lock()
	defer c.svc.keepalive.mu.Unlock()
	return len(c.holds)
}

// EndedLocked reports whether the session has ended. The caller has the Keepalive locked.
func (c *Session) EndedLocked() bool { return c.ended }

func (c *Session) attachLocked(hold *sessionHold) {
	hold.session, hold.index = c, len(c.holds)
	c.holds = append(c.holds, hold)
	c.svc.keepalive.holds++
	if len(c.holds) == 1 {
		c.svc.keepalive.sessions++
	}
}

func (c *Session) detachLocked(hold *sessionHold) {
	last := len(c.holds) - 1
	c.holds[hold.index] = c.holds[last]
	c.holds[hold.index].index = hold.index
	c.holds[last] = nil
	c.holds = c.holds[:last]
	hold.session = nil
	c.svc.keepalive.holds--
	if last == 0 {
		c.svc.keepalive.sessions--
	}
}

// notify tells the client of a loss, unless the session has ended.
func (c *Session) notify(loss Loss) {
	c.svc.keepalive.mu.Lock()
	ended := c.ended
	c.svc.keepalive.mu.Unlock()
	if !ended && c.onLoss != nil {
		c.onLoss(loss)
	}
}

// Supersede ends the holds that sessions have of the grant with this fence, or an earlier one: its owner has
// dropped that grant for a new one. All these sessions are told of the loss, except by, which asked for the new one.
func (k *Keepalive) Supersede(h Holder, fence int64, by *Session) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.SupersedeLocked(h, fence, by)
}

// SupersedeLocked is Supersede for a Store that has the Keepalive locked.
func (k *Keepalive) SupersedeLocked(h Holder, fence int64, by *Session) {
	if l := k.leases[h]; l != nil && l.fence <= fence {
		k.supersedeLocked(l, by, LossTaken, "its owner has taken it afresh")
	}
}

func (k *Keepalive) supersedeLocked(l *lease, by *Session, why lossReason, reason string) {
	for i := len(l.holds) - 1; i >= 0; i-- {
		if l.holds[i].session == by {
			k.detachLocked(l.holds[i])
		}
	}
	if len(l.holds) > 0 {
		k.endLocked(l, why, reason)
	}
}

// endLocked tells the sessions of a lease that it is lost, unless its owner has given it back through another proxy.
func (k *Keepalive) endLocked(l *lease, why lossReason, reason string) {
	if l.gaveBack {
		k.dropLeaseLocked(l)
	} else {
		k.loseLocked(l, why, reason)
	}
}

// NoteGivenBack notes that the owner has given a grant back through another proxy, and has that found out: by then others may have had
// the lock, so that no node tells a release from a loss any more.
func (k *Keepalive) NoteGivenBack(pause time.Duration, h Holder, fence int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l := k.leases[h]; l != nil && l.fence == fence {
		l.gaveBack = true
		k.recheckLocked(pause, l, true)
	}
}

// NoteForced notes that an operator has taken a lease away through another proxy, as its next renewal will find.
func (k *Keepalive) NoteForced(h Holder) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l := k.leases[h]; l != nil {
		l.forced = true
	}
}

// lossBy is why a renewal found the lease lost.
func (l *lease) lossBy(r ExtensionResult) (why lossReason, text string) {
	switch {
	case l.forced:
		return LossForced, ForcedReason
	case r == Taken:
		return LossTaken, "another owner has it"
	}
	return lossGone, "it expired or was taken away"
}
