package locks

import (
	"slices"
	"time"
)

// A verdict is what the votes on an acquisition amount to.
type verdict uint8

const (
	open    verdict = iota // votes that are still due may decide
	granted                // a quorum says yes
	held                   // a quorum names one other owner
	ended                  // a quorum says that this request was granted and given back
	full                   // a quorum says that the owner has as many holds as it may
	split                  // a quorum voted, and nobody has one
	tooFew                 // fewer than a quorum voted
)

// A tally is the result of an acquisition's votes.
type tally struct {
	verdict   verdict
	fence     int64         // granted, ended: of the grant; held: of the holder's, or less
	reentered bool          // granted: the owner had the name already, and the fence is that grant's
	stored    int           // granted: how many nodes have stored the fence
	holder    string        // held: who has it
	rest      time.Duration // granted, held: the Q-th largest end of the lease among the agreeing nodes
	holds     int           // granted: of the owner, as a quorum counts them
}

// tallyAcquire counts the votes of an acquisition. q is the quorum; final says
// that votes which have not come will not be waited for. It is the safety
// argument in one place: silence is never a no, half is not a majority, and a
// fence is kept only if a quorum knows one and the same.
func tallyAcquire(votes []vote, q int, final bool) tally {
	var yeses, fresh, voted, due int
	for _, v := range votes {
		switch {
		case v.kind == yes:
			yeses++
			if v.reentered == 0 {
				fresh++
			}
		case v.kind == silent && v.err == nil && !final:
			due++
		}
		if v.kind != silent {
			voted++
		}
	}
	existing, reenteredBy := most(votes, func(v *vote) (int64, bool) { return v.reentered, v.kind == yes && v.reentered > 0 })
	endedFence, endedBy := most(votes, func(v *vote) (int64, bool) { return v.fence, v.kind == alreadyReleased })
	owner, ownerBy := most(votes, func(v *vote) (string, bool) { return v.owner, v.kind == no })
	fullBy := countKind(votes, tooMany)
	switch {
	case reenteredBy >= q:
		agree := func(v *vote) bool { return v.kind == yes && v.reentered == existing }
		return tally{verdict: granted, fence: existing, reentered: true, stored: reenteredBy,
			rest: qthRest(votes, q, agree), holds: qthHolds(votes, q, agree)}
	case fresh >= q || (yeses >= q && due == 0):
		return countNew(votes, q)
	case ownerBy >= q:
		agree := func(v *vote) bool { return v.kind == no && v.owner == owner }
		return tally{verdict: held, holder: owner, fence: leastFence(votes, agree), rest: qthRest(votes, q, agree)}
	case endedBy >= q:
		return tally{verdict: ended, fence: endedFence}
	case fullBy >= q:
		return tally{verdict: full}
	case yeses+due >= q || ownerBy+due >= q || endedBy+due >= q || fullBy+due >= q:
		return tally{verdict: open}
	case voted >= q:
		return tally{verdict: split}
	case due > 0: // decided, but the error should not blame who is about to answer
		return tally{verdict: open}
	}
	return tally{verdict: tooFew}
}

// countNew counts a grant that is a new one for at least one node of the quorum.
func countNew(votes []vote, q int) tally {
	agree := func(v *vote) bool { return v.kind == yes }
	t := tally{verdict: granted, holds: qthHolds(votes, q, agree)}
	yeses := 0
	for i := range votes {
		if agree(&votes[i]) {
			t.fence = max(t.fence, votes[i].fence)
			yeses++
		}
	}
	for i := range votes {
		if storedFence(&votes[i], t.fence) {
			t.stored++
		}
	}
	if t.stored >= q {
		t.rest = qthRest(votes, q, func(v *vote) bool { return storedFence(v, t.fence) })
	} else { // any of them may be the quorum that will carry it
		t.rest = qthRest(votes, yeses, agree)
	}
	return t
}

// leastFence is a fence not above that of the grant which the votes that match name: a
// node that numbered it otherwise may not have been settled.
func leastFence(votes []vote, match func(*vote) bool) (fence int64) {
	for i := range votes {
		if v := &votes[i]; match(v) && (fence == 0 || v.fence < fence) {
			fence = v.fence
		}
	}
	return fence
}

// storedFence reports whether a node that said yes has stored the fence.
func storedFence(v *vote, fence int64) bool {
	return v.kind == yes && v.reentered == 0 && v.fence == fence
}

// most returns the value that most of the votes agree on, and how many do.
func most[T comparable](votes []vote, value func(*vote) (T, bool)) (best T, n int) {
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
func qthRest(votes []vote, q int, match func(*vote) bool) time.Duration {
	return qth(votes, q, match, func(v *vote) time.Duration { return v.rest })
}

func qthHolds(votes []vote, q int, match func(*vote) bool) int {
	return qth(votes, q, match, func(v *vote) int { return v.holds })
}

// qth is the q-th largest value among the votes that match, or zero.
func qth[T int | time.Duration](votes []vote, q int, match func(*vote) bool, value func(*vote) T) T {
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
	conflict                  // a quorum could, were it not for another version or a missing hold
	undecided                 // fewer than a quorum voted, or the rest could have decided
	released                  // a quorum remembers that the owner gave it back
)

// countOutcome counts votes on a grant of owner: those that count as done against those
// that name another owner, those that deny, and those that came not at all.
func countOutcome(votes []vote, q int, final bool, owner string, done func(*vote) bool) outcome {
	did, disputed, denied, due := sortVotes(votes, final, done)
	voted := did + disputed + denied
	_, others := most(votes, func(v *vote) (string, bool) {
		return v.owner, v.kind == no && !done(v) && v.owner != "" && v.owner != owner
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
	case voted < q && due > 0: // the error should not blame who is about to answer
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
func sortVotes(votes []vote, final bool, done func(*vote) bool) (did, disputed, denied, due int) {
	for i := range votes {
		switch v := &votes[i]; {
		case v.kind == silent && v.err == nil && !final:
			due++
		case v.kind == silent:
		case done(v):
			did++
		case v.kind == versionConflict || v.kind == missingHold:
			disputed++
		default:
			denied++
		}
	}
	return did, disputed, denied, due
}

func didRenew(v *vote) bool { return v.kind == yes }

// renewOutcome counts the votes on a renewal. Where a node has a note that the lease may have been shortened,
// votes of nodes where a renewal reinstated the grant, now or before, do not count: the lease may have lapsed
// there. A quorum of votes meets one of the quorum that noted.
func renewOutcome(votes []vote, q int, final bool, owner string) outcome {
	done := didRenew
	if anyNoted(votes) {
		done = func(v *vote) bool { return v.kind == yes && !v.reinstated }
	}
	return countOutcome(votes, q, final, owner, done)
}

// didRelease is which votes release a grant whose validity had not ended, as this proxy knows: also those that
// have seen no later grant. fence 0 asks for the hold itself, as it was granted, or the record of its release.
func didRelease(fence int64) func(*vote) bool {
	return func(v *vote) bool {
		switch v.kind {
		case yes:
			return fence != 0 || !v.reinstated
		case no:
			return fence != 0 && v.owner == "" && v.fence <= fence
		}
		return v.kind == duplicate
	}
}

// releaseOutcome counts the votes on a release, see didRelease for fence. A validity that this proxy knows is
// true unless a renewal through another one shortened the lease; that is noted by a quorum before it is sent.
// So a quorum without such a note releases, also where its nodes name rivals: they may only be trying. A node
// that has other holds of the owner answers that this one was given back elsewhere.
func releaseOutcome(votes []vote, q int, final bool, owner string, fence int64) outcome {
	unnoted := 0
	for i := range votes {
		if v := &votes[i]; v.kind != silent && v.kind != versionConflict && !v.noted && (v.kind != no || v.owner != owner) {
			unnoted++
		}
	}
	if fence != 0 && unnoted >= q {
		return applied
	}
	return countOutcome(votes, q, final, owner, didRelease(fence))
}
