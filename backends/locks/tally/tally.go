// Package tally counts the votes of a round: whether a quorum agrees, and on what. Those on an acquisition are a [Verdict], those
// on a renewal or a release of an existing grant an [Outcome], those of a read an [Ownership]. It asks nobody.
package tally

import (
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/seats"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
)

// A Verdict is what the votes on an acquisition amount to.
type Verdict uint8

// The verdicts.
const (
	Open    Verdict = iota // votes that are still due may decide
	Granted                // a quorum says yes
	Held                   // a quorum names one other owner
	Ended                  // a quorum says that this request was granted and given back
	Full                   // a quorum says that the owner has as many holds as it may
	Split                  // a quorum voted, but no owner has a majority
	TooFew                 // fewer than a quorum voted
)

// A Result is the result of an acquisition's votes.
type Result struct {
	Verdict   Verdict
	Fence     int64  // Granted, Ended: of the grant; Held: of the holder's grant, or a smaller one
	Reentered bool   // Granted: the owner had the name already, and the fence is that grant's
	Seat      int    // Reentered: the seat of that grant, see seats.Of
	Stored    int    // Granted: how many nodes have stored the fence
	Holder    string // Held: who has it, or is one of its readers
	Why       locks.Obstacle
	Rest      time.Duration // Granted, Held: the Q-th largest end of the lease among the agreeing nodes
	Holds     int           // Granted: of the owner, as a quorum counts them
}

// A Stage is how far the round is whose votes are counted.
type Stage uint8

// The stages.
const (
	Running Stage = iota // votes that have not come may still
	Over                 // they are not waited for any more
)

// Acquire counts the votes of an acquisition. q is the quorum. It is the safety argument in one place: silence is never a no,
// half is not a majority, and a fence is kept only if a quorum knows one and the same.
func Acquire(votes []vote.Vote, q int, stage Stage) Result {
	var yeses, fresh, voted, due int
	for _, v := range votes {
		switch {
		case v.Kind == vote.Yes:
			yeses++
			if v.Reentered == 0 {
				fresh++
			}
		case v.Kind == vote.Silent && v.Err == nil && stage == Running:
			due++
		}
		if v.Kind != vote.Silent {
			voted++
		}
	}
	type kept struct { // a node must have both to vouch for the grant
		fence int64
		seat  int
	}
	keeps := func(v *vote.Vote) (kept, bool) {
		if v.Reentered <= 0 {
			return kept{}, false
		}
		return kept{v.Reentered, SeatOf(v)}, true
	}
	existing, reenteredBy := Most(votes, keeps)
	endedFence, endedBy := Most(votes, func(v *vote.Vote) (int64, bool) { return v.Fence, v.Kind == vote.AlreadyReleased })
	_, noBy := Most(votes, refusal)
	fullBy := vote.CountKind(votes, vote.TooMany)
	switch {
	case reenteredBy >= q:
		agree := func(v *vote.Vote) bool {
			k, _ := keeps(v)
			return k == existing
		}
		return Result{Verdict: Granted, Fence: existing.fence, Reentered: true, Seat: existing.seat, Stored: reenteredBy,
			Rest: QthRest(votes, q, agree), Holds: qthHolds(votes, q, agree)}
	case fresh >= q || (yeses >= q && due == 0):
		return countNew(votes, q)
	case noBy >= q:
		return heldBy(votes, q)
	case endedBy >= q:
		return Result{Verdict: Ended, Fence: endedFence}
	case fullBy >= q:
		return Result{Verdict: Full}
	case yeses+due >= q || noBy+due >= q || endedBy+due >= q || fullBy+due >= q:
		return Result{Verdict: Open}
	case voted >= q:
		return Result{Verdict: Split}
	case due > 0: // it is decided, but the error should not name nodes that are about to answer
		return Result{Verdict: Open}
	}
	return Result{Verdict: TooFew}
}

// An obstacle is what a node says is in the way of an acquisition: an owner, or any readers, or a writer who waits.
type obstacle struct {
	owner string
	why   locks.Obstacle
}

func obstacleOf(v *vote.Vote) obstacle {
	switch v.Why {
	case locks.Held:
		return obstacle{owner: v.Owner}
	case locks.Upgrade:
		return obstacle{why: locks.Readers}
	case locks.Permits: // of one seat
		return obstacle{v.Owner, v.Why}
	}
	return obstacle{why: v.Why}
}

// refusal is what a node says is in the way, if it refuses.
func refusal(v *vote.Vote) (obstacle, bool) { return obstacleOf(v), v.Kind == vote.No }

// heldBy is the result where at least q nodes name one obstacle, which no others name more often.
func heldBy(votes []vote.Vote, q int) Result {
	most, _ := Most(votes, refusal)
	agree := func(v *vote.Vote) bool {
		o, no := refusal(v)
		return no && o == most
	}
	t := Result{Verdict: Held, Fence: leastFence(votes, agree), Rest: QthRest(votes, q, agree)}
	t.Holder, t.Why = inTheWay(votes, agree)
	return t
}

// inTheWay is whom the votes that match name, of readers the one who reads for longest. If a node says that the owner
// reads as well, that counts.
func inTheWay(votes []vote.Vote, match func(*vote.Vote) bool) (holder string, why locks.Obstacle) {
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
func countNew(votes []vote.Vote, q int) Result {
	agree := func(v *vote.Vote) bool { return v.Kind == vote.Yes }
	t := Result{Verdict: Granted, Holds: qthHolds(votes, q, agree)}
	yeses := 0
	for i := range votes {
		if agree(&votes[i]) {
			t.Fence = max(t.Fence, votes[i].Fence)
			yeses++
		}
	}
	for i := range votes {
		if StoredFence(&votes[i], t.Fence) {
			t.Stored++
		}
	}
	if t.Stored >= q {
		t.Rest = QthRest(votes, q, func(v *vote.Vote) bool { return StoredFence(v, t.Fence) })
	} else { // any quorum of these nodes may be the one that stores the fence in the second round
		t.Rest = QthRest(votes, yeses, agree)
	}
	return t
}

// leastFence is the smallest fence among the votes that match. It is not above that of
// their grant, under which not all of these nodes may have it yet.
func leastFence(votes []vote.Vote, match func(*vote.Vote) bool) (fence int64) {
	for i := range votes {
		if v := &votes[i]; match(v) && (fence == 0 || v.Fence < fence) {
			fence = v.Fence
		}
	}
	return fence
}

// SeatOf is the seat of the grant that the owner has at a node, see seats.Of.
func SeatOf(v *vote.Vote) int { return seats.Of(v.Grant) }

// StoredFence reports whether a node that said yes has stored the fence.
func StoredFence(v *vote.Vote, fence int64) bool {
	return v.Kind == vote.Yes && v.Reentered == 0 && v.Fence == fence
}

// LacksFence reports whether a node said yes, and has not stored the fence.
func LacksFence(v *vote.Vote, fence int64) bool {
	return v.Kind == vote.Yes && !StoredFence(v, fence)
}

// Most returns the value that most of the votes agree on, and how many do.
func Most[T comparable](votes []vote.Vote, value func(*vote.Vote) (T, bool)) (best T, n int) {
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

// QthRest is the time for which at least q of the nodes that match keep the lease.
func QthRest(votes []vote.Vote, q int, match func(*vote.Vote) bool) time.Duration {
	return Qth(votes, q, match, func(v *vote.Vote) time.Duration { return v.Rest })
}

// qthHolds is the Q-th largest number of holds of the nodes that match.
func qthHolds(votes []vote.Vote, q int, match func(*vote.Vote) bool) int {
	return Qth(votes, q, match, func(v *vote.Vote) int { return v.Holds })
}

// Qth is the q-th largest value among the votes that match, or zero.
func Qth[T int | time.Duration](votes []vote.Vote, q int, match func(*vote.Vote) bool, value func(*vote.Vote) T) T {
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
