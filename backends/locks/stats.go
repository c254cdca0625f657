package locks

import (
	"errors"
	"sync/atomic"
)

// Stats is what a Service has done since it was made, and has now. What it counts is
// what callers were told, unless said otherwise.
type Stats struct {
	Nodes       int // of all states
	Voting      int
	Quarantined int

	Waiting      int // in line for a name
	Sessions     int // that have a lock
	SessionLocks int // holds that are kept for sessions

	Grants   int64 // LOCKs, re-entered and repeated ones too
	Refusals int64 // LOCKs that another owner's lock was in the way of, also after waiting
	NoQuorum int64 // too few nodes answered, of whatever was asked
	Splits   int64 // acquisitions in which nobody got a majority; they are tried again
	Renewals int64 // asked for and of sessions
	Releases int64 // holds given back, and repeats of that
	Undos    int64 // acquisitions taken back that some node may have done
	Rounds   int64 // questions put to the nodes
}

// counters are what Stats counts. They may be used by any number of goroutines.
type counters struct {
	grants, refusals, noQuorum, splits, renewals, releases, undos, rounds atomic.Int64
}

// Stats does not wait for anything.
func (s *Service) Stats() Stats {
	c := &s.counters
	st := Stats{
		Nodes: len(s.nodes), Waiting: s.waiting.total(),
		Grants: c.grants.Load(), Refusals: c.refusals.Load(), NoQuorum: c.noQuorum.Load(), Splits: c.splits.Load(),
		Renewals: c.renewals.Load(), Releases: c.releases.Load(), Undos: c.undos.Load(), Rounds: c.rounds.Load(),
	}
	st.Sessions, st.SessionLocks = s.keeper.count()
	s.recovery.mu.Lock()
	defer s.recovery.mu.Unlock()
	for _, n := range s.recovery.status {
		switch n.State {
		case NodeVoting:
			st.Voting++
		case NodeQuarantine:
			st.Quarantined++
		}
	}
	return st
}

// count is how many sessions have locks, and how many holds these are.
func (k *keeper) count() (sessions, holds int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	seen := map[*Session]struct{}{}
	for _, l := range k.leases {
		for _, hold := range l.holds {
			if hold.session != nil {
				seen[hold.session] = struct{}{}
				holds++
			}
		}
	}
	return len(seen), holds
}

// locked counts the answer to a LOCK.
func (c *counters) locked(a Answer, err error) (Answer, error) {
	switch {
	case err != nil:
		c.failed(err)
	case a.Granted:
		c.grants.Add(1)
	default:
		c.refusals.Add(1)
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

// failed counts an error, nil too, if it is for want of a quorum.
func (c *counters) failed(err error) {
	if few := (*QuorumError)(nil); errors.As(err, &few) {
		c.noQuorum.Add(1)
	}
}
