package locks

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/backends/meter"
)

// Stats is what a Service has done since it was made, and has now. What it counts is
// what callers were told, unless said otherwise. Maps have an entry for every key that
// there is, and none for names, owners or clients, so that they stay small.
type Stats struct {
	Nodes       int // of all states
	Voting      int // Ready
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

	Reentries int64            // grants to an owner that had the name already, among Grants
	Failures  int64            // LOCKs that ended with an error: neither granted nor refused
	Repeats   int64            // LOCKs and UNLOCKs with a REQ that was seen to have been done before
	Forces    int64            // locks taken away by LOCKCTL FORCE
	Triggers  map[string]int64 // Grants by what made the LOCK ask that was granted: see the constants

	SessionRenewals int64            // done for sessions, among Renewals
	SessionMisses   int64            // renewals for sessions that decided nothing, and are tried again
	Lost            map[string]int64 // locks of sessions that could be kept no longer, by reason: see the constants

	GrantWait   meter.Snapshot // from the call of LOCK to its grant
	RefusalWait meter.Snapshot // from the call of LOCK to its refusal
	Held        meter.Snapshot // from a grant through this proxy to the end of that grant: its release or loss as far as seen here, else the end of its validity

	Asked map[string]RoundStats // Rounds by question, once they have ended: acquire, settle, renew, note, release, read, list, state, order
	Each  []NodeStats           // in the order of Options.Nodes
}

// RoundStats is what became of the rounds that asked one question.
type RoundStats struct {
	Ends map[string]int64 // by outcome: granted, done, held, lost, split, repeat, conflict, late, unsettled, noquorum, canceled
	Took meter.Snapshot   // from the question to the end, whatever that was
}

// NodeStats is what a Service has counted of one node.
type NodeStats struct {
	Address     string
	State       NodeState
	Up          bool             // it answered when last looked at
	Paused      bool             // it failed just now, and is not asked for a moment
	Queued      int              // scripts that wait to be sent to it
	Votes       map[string]int64 // what it said when asked: yes, no; or why it did not say: timeout, connection, quarantine, unregistered, floor, list, refused, busy, error, unwanted, closed
	Replies     meter.Snapshot   // how long it took to answer a batch of scripts
	Reconnects  int64            // connections made again after one was lost
	Quarantines int64            // how often it was seen to enter quarantine
}

// What made the LOCK ask that was granted: the keys of Stats.Triggers.
const (
	TriggerAtOnce = "at_once" // it came
	TriggerHanded = "handed"  // an UNLOCK here, which asked for it right behind
	TriggerWoken  = "woken"   // a node said that the name was released
	TriggerTimer  = "timer"   // the holder's lease was over, or it asked in any case
	TriggerOwn    = "own"     // it had waited, and its owner had got the name meanwhile
)

var grounds = [...]string{TriggerAtOnce, TriggerHanded, TriggerWoken, TriggerTimer, TriggerOwn}

// A ground is an index of grounds.
type ground uint8

const (
	groundAtOnce ground = iota
	groundHanded
	groundWoken
	groundTimer
	groundOwn
)

// Why a session's lock was lost: the keys of Stats.Lost.
const (
	LostExpired = "expired" // the lease ended without an answer to why
	LostForced  = "forced"
	LostMaxHold = "maxhold"
	LostQuorum  = "noquorum" // too few nodes voted, again and again
	LostTaken   = "taken"    // another owner has it
	LostGone    = "gone"     // it was not there any more when it was to be renewed
)

var losses = [...]string{LostExpired, LostForced, LostMaxHold, LostQuorum, LostTaken, LostGone}

// A loss is an index of losses.
type loss uint8

const (
	lostExpired loss = iota
	lostForced
	lostMaxHold
	lostQuorum
	lostTaken
	lostGone
)

// counters are what Stats counts. They may be used by any number of goroutines.
type counters struct {
	grants, refusals, noQuorum, splits, renewals, releases, undos, rounds atomic.Int64

	reentries, failures, repeats, forces, sessionRenewals, sessionMisses atomic.Int64

	grounds [len(grounds)]atomic.Int64
	losses  [len(losses)]atomic.Int64

	grantWait, refusalWait, held meter.Histogram

	asked [len(questions)]roundMeter
}

// Stats does not wait for anything.
func (s *Service) Stats() Stats {
	c := &s.counters
	st := Stats{
		Nodes: len(s.nodes), Waiting: s.waiting.total(),
		Grants: c.grants.Load(), Refusals: c.refusals.Load(), NoQuorum: c.noQuorum.Load(), Splits: c.splits.Load(),
		Renewals: c.renewals.Load(), Releases: c.releases.Load(), Undos: c.undos.Load(), Rounds: c.rounds.Load(),
		Reentries: c.reentries.Load(), Failures: c.failures.Load(), Repeats: c.repeats.Load(), Forces: c.forces.Load(),
		Triggers: named(grounds[:], c.grounds[:]), Lost: named(losses[:], c.losses[:]),
		SessionRenewals: c.sessionRenewals.Load(), SessionMisses: c.sessionMisses.Load(),
		GrantWait: c.grantWait.Snapshot(), RefusalWait: c.refusalWait.Snapshot(), Held: c.held.Snapshot(),
		Asked: map[string]RoundStats{},
	}
	for q := range c.asked {
		st.Asked[questions[q]] = c.asked[q].stats()
	}
	st.Sessions, st.SessionLocks = s.keeper.count()
	for i, n := range s.Nodes() {
		switch {
		case n.Ready():
			st.Voting++
		case n.State == NodeQuarantine:
			st.Quarantined++
		}
		st.Each = append(st.Each, s.nodes[i].stats(n))
	}
	return st
}

// Oldest is how long ago the oldest grant through this proxy was made whose validity still
// runs as far as the proxy knows; 0 if there is none. It looks at every grant that is remembered.
func (s *Service) Oldest() time.Duration { return s.memory.oldest() }

// count is how many sessions have locks, and how many holds these are.
func (k *keeper) count() (sessions, holds int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.sessions, k.holds
}

// locked counts the answer to a LOCK that came so long ago.
func (c *counters) locked(a Decision, err error, took time.Duration) (Decision, error) {
	switch {
	case err != nil:
		c.failures.Add(1)
		c.failed(err)
	case a.Granted:
		c.grants.Add(1)
		c.grounds[a.ground].Add(1)
		if a.Grant.Holds > 1 {
			c.reentries.Add(1)
		}
		c.grantWait.Observe(took)
	default:
		c.refusals.Add(1)
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

// failed counts an error, nil too, if it is for want of a quorum.
func (c *counters) failed(err error) {
	if few := (*QuorumError)(nil); errors.As(err, &few) {
		c.noQuorum.Add(1)
	}
}
