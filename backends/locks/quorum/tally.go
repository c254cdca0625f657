package quorum

import (
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/voters"
)

// A verdict is what the votes on an acquisition amount to.
type verdict uint8

const (
	open    verdict = iota // votes that are still due may decide
	granted                // a quorum says yes
	held                   // a quorum names one other owner
	ended                  // a quorum says that this request was granted and given back
	full                   // a quorum says that the owner has as many holds as it may
	split                  // a quorum voted, but no owner has a majority
	tooFew                 // fewer than a quorum voted
)

// A tally is the result of an acquisition's votes.
type tally struct {
	verdict   verdict
	fence     int64  // granted, ended: of the grant; held: of the holder's grant, or a smaller one
	reentered bool   // granted: the owner had the name already, and the fence is that grant's
	stored    int    // granted: how many nodes have stored the fence
	holder    string // held: who has it, or is one of its readers
	why       locks.Obstacle
	rest      time.Duration // granted, held: the Q-th largest end of the lease among the agreeing nodes
	holds     int           // granted: of the owner, as a quorum counts them
}

// tallyAcquire counts the votes of an acquisition. q is the quorum; final says
// that votes which have not come will not be waited for. It is the safety
// argument in one place: silence is never a no, half is not a majority, and a
// fence is kept only if a quorum knows one and the same.
func tallyAcquire(votes []voters.Vote, q int, final bool) tally {
	var yeses, fresh, voted, due int
	for _, v := range votes {
		switch {
		case v.Kind == voters.Yes:
			yeses++
			if v.Reentered == 0 {
				fresh++
			}
		case v.Kind == voters.Silent && v.Err == nil && !final:
			due++
		}
		if v.Kind != voters.Silent {
			voted++
		}
	}
	type kept struct { // a node must have both to vouch for the grant
		fence int64
		seat  int
	}
	keeps := func(v *voters.Vote) (kept, bool) {
		return kept{v.Reentered, seatOf(v)}, v.Kind == voters.Yes && v.Reentered > 0
	}
	existing, reenteredBy := most(votes, keeps)
	endedFence, endedBy := most(votes, func(v *voters.Vote) (int64, bool) { return v.Fence, v.Kind == voters.AlreadyReleased })
	no, noBy := most(votes, func(v *voters.Vote) (obstacle, bool) { return obstacleOf(v), v.Kind == voters.No })
	fullBy := voters.CountKind(votes, voters.TooMany)
	switch {
	case reenteredBy >= q:
		agree := func(v *voters.Vote) bool {
			k, ok := keeps(v)
			return ok && k == existing
		}
		return tally{verdict: granted, fence: existing.fence, reentered: true, stored: reenteredBy,
			rest: qthRest(votes, q, agree), holds: qthHolds(votes, q, agree)}
	case fresh >= q || (yeses >= q && due == 0):
		return countNew(votes, q)
	case noBy >= q:
		agree := func(v *voters.Vote) bool { return v.Kind == voters.No && obstacleOf(v) == no }
		t := tally{verdict: held, fence: leastFence(votes, agree), rest: qthRest(votes, q, agree)}
		t.holder, t.why = inTheWay(votes, agree)
		return t
	case endedBy >= q:
		return tally{verdict: ended, fence: endedFence}
	case fullBy >= q:
		return tally{verdict: full}
	case yeses+due >= q || noBy+due >= q || endedBy+due >= q || fullBy+due >= q:
		return tally{verdict: open}
	case voted >= q:
		return tally{verdict: split}
	case due > 0: // it is decided, but the error should not name nodes that are about to answer
		return tally{verdict: open}
	}
	return tally{verdict: tooFew}
}

// An obstacle is what a node says is in the way of an acquisition: an owner, or any readers, or a writer who waits.
type obstacle struct {
	owner string
	why   locks.Obstacle
}

func obstacleOf(v *voters.Vote) obstacle {
	switch v.Why {
	case locks.Held:
		return obstacle{owner: v.Owner}
	case locks.Upgrade:
		return obstacle{why: locks.Readers}
	}
	return obstacle{why: v.Why}
}

// inTheWay is whom the votes that match name, of readers the one who reads for longest. If a node says that the owner
// reads as well, that counts.
func inTheWay(votes []voters.Vote, match func(*voters.Vote) bool) (holder string, why locks.Obstacle) {
	longest := time.Duration(-1)
	for i := range votes {
		if v := &votes[i]; match(v) {
			if v.Rest > longest {
				holder, longest = v.Owner, v.Rest
			}
			if why != locks.Upgrade {
				why = v.Why
			}
		}
	}
	return holder, why
}

// countNew counts a grant that is a new one for at least one node of the quorum.
func countNew(votes []voters.Vote, q int) tally {
	agree := func(v *voters.Vote) bool { return v.Kind == voters.Yes }
	t := tally{verdict: granted, holds: qthHolds(votes, q, agree)}
	yeses := 0
	for i := range votes {
		if agree(&votes[i]) {
			t.fence = max(t.fence, votes[i].Fence)
			yeses++
		}
	}
	for i := range votes {
		if storedFence(&votes[i], t.fence) {
			t.stored++
		}
	}
	if t.stored >= q {
		t.rest = qthRest(votes, q, func(v *voters.Vote) bool { return storedFence(v, t.fence) })
	} else { // any quorum of these nodes may be the one that stores the fence in the second round
		t.rest = qthRest(votes, yeses, agree)
	}
	return t
}

// leastFence is the smallest fence among the votes that match. It is not above that of
// their grant, under which not all of these nodes may have it yet.
func leastFence(votes []voters.Vote, match func(*voters.Vote) bool) (fence int64) {
	for i := range votes {
		if v := &votes[i]; match(v) && (fence == 0 || v.Fence < fence) {
			fence = v.Fence
		}
	}
	return fence
}

// storedFence reports whether a node that said yes has stored the fence.
func storedFence(v *voters.Vote, fence int64) bool {
	return v.Kind == voters.Yes && v.Reentered == 0 && v.Fence == fence
}

// most returns the value that most of the votes agree on, and how many do.
func most[T comparable](votes []voters.Vote, value func(*voters.Vote) (T, bool)) (best T, n int) {
	for i := range votes {
		x, ok := value(&votes[i])
		if !ok {
			continue
		}
		m := 0
		for j := range votes {
			if y, ok := value(&votes[j]); ok && x == y {
				m++
			}
		}
		if m > n {
			best, n = x, m
		}
	}
	return best, n
}

// qthRest is the time for which at least q of the nodes that match keep the lease.
func qthRest(votes []voters.Vote, q int, match func(*voters.Vote) bool) time.Duration {
	return qth(votes, q, match, func(v *voters.Vote) time.Duration { return v.Rest })
}

func qthHolds(votes []voters.Vote, q int, match func(*voters.Vote) bool) int {
	return qth(votes, q, match, func(v *voters.Vote) int { return v.Holds })
}

// qth is the q-th largest value among the votes that match, or zero.
func qth[T int | time.Duration](votes []voters.Vote, q int, match func(*voters.Vote) bool, value func(*voters.Vote) T) T {
	var buf [8]T
	all := buf[:0]
	for i := range votes {
		if match(&votes[i]) {
			all = append(all, value(&votes[i]))
		}
	}
	if len(all) < q {
		return 0
	}
	slices.Sort(all)
	return all[len(all)-q]
}

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
	_, others := most(votes, func(v *voters.Vote) (string, bool) {
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
