package tally

import (
	"slices"

	"github.com/lockproxy/lockproxy/backends/locks/vote"
)

// An Outcome is the result of the votes on an existing grant.
type Outcome uint8

// The outcomes.
const (
	Pending    Outcome = iota // votes that are still due may decide
	Applied                   // a quorum did it
	Lost                      // a quorum can no longer do it
	OtherOwner                // a quorum names one other owner
	Conflict                  // a quorum could do it, but some nodes have another version or lack the hold
	Undecided                 // fewer than a quorum voted, or the rest could have decided
)

// countOutcome counts votes on a grant of owner: those that count as done against those
// that name another owner, those that deny, and those that did not come.
func countOutcome(votes []vote.Vote, q int, stage Stage, owner string, done func(*vote.Vote) bool) Outcome {
	did, disputed, denied, due := sortVotes(votes, stage, done)
	voted := did + disputed + denied
	_, others := Most(votes, func(v *vote.Vote) (string, bool) {
		return v.Owner, v.Kind == vote.No && v.Owner != "" && v.Owner != owner
	})
	switch {
	case did >= q:
		return Applied
	case others >= q:
		return OtherOwner
	case did+due >= q || others+due >= q:
		return Pending
	case did+disputed >= q:
		if _, named := GivenBackBy(votes); named > 0 && named < q && named+due >= q {
			return Pending // a quorum may yet name the release that gave the hold back
		}
		return Conflict
	case did+disputed+due >= q:
		return Pending
	case voted < q && due > 0: // the error should not name nodes that are about to answer
		return Pending
	case voted < q:
		return Undecided
	case len(votes)-denied < q:
		return Lost
	}
	return Undecided
}

// sortVotes counts the votes that count as done, that name another version or a missing hold, that deny, and
// that may still come.
func sortVotes(votes []vote.Vote, stage Stage, done func(*vote.Vote) bool) (did, disputed, denied, due int) {
	for i := range votes {
		switch v := &votes[i]; {
		case v.Kind == vote.Silent && v.Err == nil && stage == Running:
			due++
		case v.Kind == vote.Silent:
		case done(v):
			did++
		case v.Kind == vote.VersionConflict || v.Kind == vote.MissingHold:
			disputed++
		default:
			denied++
		}
	}
	return did, disputed, denied, due
}

// Renewed reports whether a node has renewed the grant.
func Renewed(v *vote.Vote) bool { return v.Kind == vote.Yes }

// Renew counts the votes on a renewal. Where a node has a note that the lease may have been shortened,
// votes of nodes where a renewal reinstated the grant, now or before, do not count: the lease may have lapsed
// there. A quorum of votes meets one of the quorum that noted.
func Renew(votes []vote.Vote, q int, stage Stage, owner string) Outcome {
	done := Renewed
	if Noted(votes) {
		done = func(v *vote.Vote) bool { return v.Kind == vote.Yes && !v.Reinstated }
	}
	return countOutcome(votes, q, stage, owner, done)
}

// didRelease reports whether a vote counts as a release. A fence means that this proxy knows the grant to be valid:
// then nodes that have seen no later grant count too. With 0 the node must have granted the hold or remember its release.
func didRelease(fence int64) func(*vote.Vote) bool {
	return func(v *vote.Vote) bool {
		switch v.Kind {
		case vote.Yes:
			return fence != 0 || !v.Reinstated
		case vote.No:
			return fence != 0 && v.Owner == "" && v.Fence <= fence
		}
		return v.Kind == vote.Duplicate
	}
}

// Release counts the votes on a release, see didRelease for fence. The validity that this proxy knows is
// right unless a renewal through another proxy shortened the lease, and a quorum notes that before it is sent. So
// a quorum without such a note is a release, even where its nodes name rivals: these may only be trying. A No from
// a node where the owner has other holds does not count: this hold was given back elsewhere.
func Release(votes []vote.Vote, q int, stage Stage, owner string, fence int64) Outcome {
	unnoted := 0
	for i := range votes {
		if v := &votes[i]; v.Kind != vote.Silent && v.Kind != vote.VersionConflict && !v.Noted && (v.Kind != vote.No || v.Owner != owner) {
			unnoted++
		}
	}
	if fence != 0 && unnoted >= q {
		return Applied
	}
	return countOutcome(votes, q, stage, owner, didRelease(fence))
}

// GivenBackBy is the other release that most nodes name as the one that gave the hold back before, and how many name it.
func GivenBackBy(votes []vote.Vote) (name string, n int) {
	return Most(votes, func(v *vote.Vote) (string, bool) { return v.Release.Other, v.Release.Other != "" })
}

// LostToRival reports whether a quorum names another owner, and says that another release gave the hold back before this one. Fewer than a quorum prove
// nothing: this release may have come to them late, when the others had done it and the next owner had come.
func LostToRival(votes []vote.Vote, q int, owner string) bool {
	n := 0
	for i := range votes {
		if v := &votes[i]; v.Release.TooLate && v.Owner != "" && v.Owner != owner {
			n++
		}
	}
	return n >= q
}

// EndOf is the end of a round on an existing grant.
func EndOf(err error, r Outcome) vote.End {
	if err != nil {
		return vote.EndCanceled
	}
	switch r {
	case Applied:
		return vote.EndDone
	case Lost:
		return vote.EndLost
	case OtherOwner:
		return vote.EndHeld
	case Conflict:
		return vote.EndConflict
	}
	return vote.EndNoQuorum
}

// End is the end of the round of an acquisition with this verdict, if it is over and nothing was granted.
func (v Verdict) End() vote.End {
	switch v {
	case Held, Full:
		return vote.EndHeld
	case Ended:
		return vote.EndRepeat
	case Split:
		return vote.EndSplit
	}
	return vote.EndNoQuorum
}

// GivenBack reports whether a node knows that some of the holds were given back.
func GivenBack(votes []vote.Vote) bool {
	return slices.ContainsFunc(votes, func(v vote.Vote) bool { return v.GivenBack })
}

// Noted reports whether a node has a note that the lease may have been shortened: then its end is known from the votes alone.
func Noted(votes []vote.Vote) bool {
	return slices.ContainsFunc(votes, func(v vote.Vote) bool { return v.Noted })
}
