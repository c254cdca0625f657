package locks

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks/waitq"
	"github.com/lockproxy/lockproxy/backends/metrics"
)

// Stats are the figures of a Service that INFO and the admin page show; Report has the rest. Unless its comment says
// otherwise, a field counts answers to callers.
type Stats struct {
	// Nodes now.
	Nodes       int // of all states
	Voting      int // that are Ready
	Quarantined int

	// Callers now.
	Waiting      int // in line for a name
	Sessions     int // that have a lock
	SessionLocks int // holds that are kept for sessions

	// Since the start.
	Grants   int64 // LOCKs, re-entered and repeated ones too
	Refusals int64 // LOCKs refused because another owner has the name, also after waiting
	NoQuorum int64 // too few nodes answered, of whatever was asked
	Splits   int64 // acquisitions in which nobody got a majority; they are tried again
	Renewals int64 // of leases: by RENEW, and for sessions
	Releases int64 // holds given back, and repeats of that
	Undos    int64 // acquisitions taken back that some node may have done
	Rounds   int64 // questions put to the nodes
	Repeats  int64 // LOCKs and UNLOCKs with a REQ that was seen to have been done before
	Forces   int64 // locks taken away by LOCKCTL FORCE
	Losses   int64 // locks of sessions that could be kept no longer

	Each []NodeStats // in the order of Nodes
}

// NodeStats is what a Service has counted of one node.
type NodeStats struct {
	Paused        bool  // it failed just now, and is not asked for a moment
	Yes, No, None int64 // its votes; None: there was none, or it did not count
}

// triggers are the labels of what made the LOCK ask that was granted.
var triggers = [...]string{
	waitq.AtOnce: "at_once", waitq.Handed: "handed", waitq.Woken: "woken", waitq.Timer: "timer", waitq.Reentry: "own",
}

// A lossReason is why a session's lock was lost: an index of lossReasons.
type lossReason uint8

const (
	lossExpired lossReason = iota // the lease ended, and nothing says why
	LossForced
	lossMaxHold
	lossQuorum // too few nodes voted, again and again
	LossTaken  // another owner has it
	lossGone   // a renewal did not find it
)

var lossReasons = [...]string{"expired", "forced", "maxhold", "noquorum", "taken", "gone"}

// counters are what Stats and Report say of the Service itself. They are safe for concurrent use.
type counters struct {
	grants, refusals, noQuorum, releases, reentries, failures, repeats, sessionRenewals, sessionMisses, sharedGrants, sharedRefusals atomic.Int64

	triggers [len(triggers)]atomic.Int64
	losses   [len(lossReasons)]atomic.Int64

	grantWait, refusalWait metrics.Histogram
}

// Stats does not wait for anything.
func (s *Service) Stats() Stats {
	c := &s.counters
	st := s.store.Stats()
	st.Waiting = s.waiting.Total()
	st.Grants, st.Refusals, st.NoQuorum = c.grants.Load(), c.refusals.Load(), c.noQuorum.Load()
	st.Releases = c.releases.Load()
	st.Repeats += c.repeats.Load()
	for i := range c.losses {
		st.Losses += c.losses[i].Load()
	}
	st.Sessions, st.SessionLocks = s.keepalive.count()
	return st
}

// count is how many sessions have locks, and how many holds these are.
func (k *Keepalive) count() (sessions, holds int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.sessions, k.holds
}

// locked counts the answer to a LOCK, of a reader if shared, that took this long.
func (c *counters) locked(shared bool, a Decision, err error, took time.Duration) (Decision, error) {
	switch {
	case err != nil:
		c.failures.Add(1)
		c.failed(err)
	case a.Granted:
		c.grants.Add(1)
		if shared {
			c.sharedGrants.Add(1)
		}
		c.triggers[a.trigger].Add(1)
		if a.Grant.Holds > 1 || slices.ContainsFunc(a.Others, func(g Grant) bool { return g.Holds > 1 }) {
			c.reentries.Add(1)
		}
		c.grantWait.Observe(took)
	default:
		c.refusals.Add(1)
		if shared {
			c.sharedRefusals.Add(1)
		}
		c.refusalWait.Observe(took)
	}
	return a, err
}

// released counts the answer to an UNLOCK.
func (c *counters) released(holdsLeft int, err error) (int, error) {
	if err == nil {
		c.releases.Add(1)
	}
	c.failed(err)
	return holdsLeft, err
}

// failed counts err if it is a *QuorumError; nil is none.
func (c *counters) failed(err error) {
	if few := (*QuorumError)(nil); errors.As(err, &few) {
		c.noQuorum.Add(1)
	}
}
