package quorum

import (
	"github.com/lockproxy/lockproxy/backends/locks/tally"
	"github.com/lockproxy/lockproxy/backends/locks/voters"
)

// An outcome is the result of the votes on an existing grant.
type outcome uint8

const (
	pending    outcome = iota // votes that are still due may decide
	applied                   // a quorum did it
	lost                      // a quorum can no longer do it
	otherOwner                // a quorum names one other owner
	conflict                  // a quorum could do it, but some nodes have another version or lack the hold
	undecided                 // fewer than a quorum voted, or the rest could have decided
	released                  // a quorum remembers that the owner gave it back
)

// countOutcome counts votes on a grant of owner: those that count as done against those
// that name another owner, those that deny, and those that did not come.
func countOutcome(votes []voters.Vote, q int, final bool, owner string, done func(*voters.Vote) bool) outcome {
	did, disputed, denied, due := sortVotes(votes, final, done)
	voted := did + disputed + denied
	_, others := tally.Most(votes, func(v *voters.Vote) (string, bool) {
		return v.Owner, v.Kind == voters.No && !done(v) && v.Owner != "" && v.Owner != owner
	})
	switch {
	case did >= q:
		return applied
	case others >= q:
		return otherOwner
	case did+due >= q || others+due >= q:
		return pending
	case did+disputed >= q:
		return conflict
	case due > 0 && did+disputed+due >= q:
		return pending
	case voted < q && due > 0: // the error should not name nodes that are about to answer
		return pending
	case voted < q:
		return undecided
	case len(votes)-denied < q:
		return lost
	}
	return undecided
}

// sortVotes counts the votes that count as done, that name another version or a missing hold, that deny, and
// that may still come.
func sortVotes(votes []voters.Vote, final bool, done func(*voters.Vote) bool) (did, disputed, denied, due int) {
	for i := range votes {
		switch v := &votes[i]; {
		case v.Kind == voters.Silent && v.Err == nil && !final:
			due++
		case v.Kind == voters.Silent:
		case done(v):
			did++
		case v.Kind == voters.VersionConflict || v.Kind == voters.MissingHold:
			disputed++
		default:
			denied++
		}
	}
	return did, disputed, denied, due
}

func didRenew(v *voters.Vote) bool { return v.Kind == voters.Yes }

// renewOutcome counts the votes on a renewal. Where a node has a note that the lease may have been shortened,
// votes of nodes where a renewal reinstated the grant, now or before, do not count: the lease may have lapsed
// there. A quorum of votes meets one of the quorum that noted.
func renewOutcome(votes []voters.Vote, q int, final bool, owner string) outcome {
	done := didRenew
	if anyNoted(votes) {
		done = func(v *voters.Vote) bool { return v.Kind == voters.Yes && !v.Reinstated }
	}
	return countOutcome(votes, q, final, owner, done)
}

// didRelease reports whether a vote counts as a release. A fence means that this proxy knows the grant to be valid:
// then nodes that have seen no later grant count too. With 0 the node must have granted the hold or remember its release.
func didRelease(fence int64) func(*voters.Vote) bool {
	return func(v *voters.Vote) bool {
		switch v.Kind {
		case voters.Yes:
			return fence != 0 || !v.Reinstated
		case voters.No:
			return fence != 0 && v.Owner == "" && v.Fence <= fence
		}
		return v.Kind == voters.Duplicate
	}
}

// releaseOutcome counts the votes on a release, see didRelease for fence. The validity that this proxy knows is
// right unless a renewal through another proxy shortened the lease, and a quorum notes that before it is sent. So
// a quorum without such a note is a release, even where its nodes name rivals: these may only be trying. A No from
// a node where the owner has other holds does not count: this hold was given back elsewhere.
func releaseOutcome(votes []voters.Vote, q int, final bool, owner string, fence int64) outcome {
	unnoted := 0
	for i := range votes {
		if v := &votes[i]; v.Kind != voters.Silent && v.Kind != voters.VersionConflict && !v.Noted && (v.Kind != voters.No || v.Owner != owner) {
			unnoted++
		}
	}
	if fence != 0 && unnoted >= q {
		return applied
	}
	return countOutcome(votes, q, final, owner, didRelease(fence))
}

// endOfOutcome is the end of a round on an existing grant.
func endOfOutcome(err error, r outcome) voters.End {
	if err != nil {
		return voters.EndCanceled
	}
	switch r {
	case applied:
		return voters.EndDone
	case lost:
		return voters.EndLost
	case otherOwner:
		return voters.EndHeld
	case conflict:
		return voters.EndConflict
	case released:
		return voters.EndRepeat
	}
	return voters.EndNoQuorum
}
