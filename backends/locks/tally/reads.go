package tally

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/holdid"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
)

// An Ownership says whether anybody has a name, by the votes of a read.
type Ownership uint8

// The ownerships.
const (
	HeldByNobody Ownership = iota // no owner can have a quorum
	HeldByOne                     // a quorum names one owner, under one fence
	BeingGranted                  // a quorum names one owner, under several fences: it is being granted the name
	MaybeHeld                     // the nodes that do not vote may have what decides
)

// OwnerBy counts the votes of a read. owner is the one whom most nodes name, n is how many of them do, and fence the one under which most of
// these have the grant.
func OwnerBy(votes []vote.Vote, q int) (owner string, n int, fence int64, who Ownership) {
	owner, n = Most(votes, func(v *vote.Vote) (string, bool) { return v.Owner, v.Kind == vote.Yes && v.Owner != "" })
	fence, agreed := Most(votes, func(v *vote.Vote) (int64, bool) {
		return v.Fence, v.Kind == vote.Yes && v.Owner == owner && owner != ""
	})
	switch {
	case agreed >= q:
		return owner, n, fence, HeldByOne
	case n >= q:
		return owner, n, fence, BeingGranted
	case n+len(votes)-vote.CountKind(votes, vote.Yes) >= q:
		return owner, n, fence, MaybeHeld
	}
	return owner, n, fence, HeldByNobody
}

// isRead reports whether a node says that somebody reads the name.
func isRead(v *vote.Vote) bool { return v.Kind == vote.Yes && v.Read.Readers > 0 }

// ReadBy is how many read the name, and what is left of their leases, as q nodes say at least.
func ReadBy(votes []vote.Vote, q int) (readers int, rest time.Duration) {
	return Qth(votes, q, isRead, func(v *vote.Vote) int { return v.Read.Readers }),
		Qth(votes, q, isRead, func(v *vote.Vote) time.Duration { return v.Read.ReaderRest })
}

// MaybeRead reports whether the nodes that do not vote may have what decides whether somebody reads the name.
func MaybeRead(votes []vote.Vote, q int) bool {
	n := 0
	for i := range votes {
		if isRead(&votes[i]) {
			n++
		}
	}
	return n > 0 && n < q && n+len(votes)-vote.CountKind(votes, vote.Yes) >= q
}

// AgreeOnReaders reports whether a quorum says that somebody reads the name, or that nobody does.
func AgreeOnReaders(votes []vote.Vote, q int) bool {
	_, n := Most(votes, func(v *vote.Vote) (bool, bool) { return isRead(v), v.Kind == vote.Yes })
	return n >= q
}

// Stable reports whether all nodes that vote name the same owner, fence and number of holds, or none.
func Stable(votes []vote.Vote) bool {
	var first *vote.Vote
	for i := range votes {
		v := &votes[i]
		switch {
		case v.Kind != vote.Yes:
		case first == nil:
			first = v
		case v.Owner != first.Owner, v.Owner != "" && (v.Fence != first.Fence || holdid.Count(v.Read.Live()) != holdid.Count(first.Read.Live())):
			return false
		}
	}
	return true
}

// EachHold are the holds in the votes that match.
func EachHold(votes []vote.Vote, match func(*vote.Vote) bool) []locks.HeldFor {
	seen := map[string]*locks.HeldFor{}
	for i := range votes {
		v := &votes[i]
		if !match(v) {
			continue
		}
		for _, h := range v.Read.Holds {
			if h.Rest <= 0 {
				continue
			}
			held := seen[holdid.RequestOf(h.ID)]
			if held == nil {
				held = &locks.HeldFor{}
				seen[holdid.RequestOf(h.ID)] = held
			}
			held.Taken, held.Left = max(held.Taken, h.Age), max(held.Left, h.Rest)
		}
	}
	var all []locks.HeldFor
	for _, h := range seen {
		all = append(all, *h)
	}
	slices.SortFunc(all, func(a, b locks.HeldFor) int {
		return cmp.Or(cmp.Compare(b.Taken, a.Taken), cmp.Compare(a.Left, b.Left))
	})
	return all
}

// EveryHold is every hold of the owner that any node has.
func EveryHold(votes []vote.Vote, owner string) []string {
	seen := map[string]bool{}
	var ids []string
	for _, v := range votes {
		if v.Read == nil || v.Owner != owner {
			continue
		}
		for _, h := range v.Read.Holds {
			if !seen[h.ID] {
				seen[h.ID] = true
				ids = append(ids, h.ID)
			}
		}
	}
	return ids
}

// VouchedFence is the fence of the owner's grant that a node vouches for in a read.
func VouchedFence(v *vote.Vote, owner string) (fence int64, ok bool) {
	return v.Fence, v.Kind == vote.Yes && v.Owner == owner && !v.Read.Reinstated
}

// Vouches reports whether a node vouches for the owner's grant with this fence; 0 means any.
func Vouches(v *vote.Vote, owner string, fence int64) bool {
	f, ok := VouchedFence(v, owner)
	return ok && (fence == 0 || f == fence)
}

// LargestFence is the largest for which a node vouches.
func LargestFence(votes []vote.Vote, owner string) (fence int64) {
	for i := range votes {
		if f, ok := VouchedFence(&votes[i], owner); ok {
			fence = max(fence, f)
		}
	}
	return fence
}

// BetweenRounds reports whether a quorum has the name for the owner, under several fences.
func BetweenRounds(votes []vote.Vote, q int, owner string) bool {
	_, agreed := Most(votes, func(v *vote.Vote) (int64, bool) { return VouchedFence(v, owner) })
	_, n := Most(votes, func(v *vote.Vote) (bool, bool) { _, ok := VouchedFence(v, owner); return true, ok })
	return n >= q && agreed < q
}

// HasLater reports whether a node has a later grant of the owner, which may have been made through another proxy.
func HasLater(votes []vote.Vote, owner string, fence int64) bool {
	return slices.ContainsFunc(votes, func(v vote.Vote) bool {
		return v.Kind == vote.No && v.Owner == owner && v.Fence > fence
	})
}

// HoldsUnder are the owner's holds under this fence on nodes that have not done the UNLOCK.
func HoldsUnder(votes []vote.Vote, owner string, fence int64) []string {
	var others []vote.Vote
	for _, v := range votes {
		if v.Fence == fence && !v.DidUnlock() {
			others = append(others, v)
		}
	}
	return EveryHold(others, owner)
}

// RequestOver reports whether a release proves that the holds of its request are no grant's any more: a quorum gave them back in the record of
// the grant, so no quorum has another one of this owner, and remembers the request, so none can get one for it.
func RequestOver(votes []vote.Vote, q int) bool {
	n := 0
	for i := range votes {
		if votes[i].Kind == vote.Yes && votes[i].Holds != vote.UnknownHolds {
			n++
		}
	}
	return n >= q
}

// LeftNothing counts the nodes on which the owner has no hold any more.
func LeftNothing(votes []vote.Vote, owner string) (n int) {
	for i := range votes {
		switch v := &votes[i]; {
		case (v.Kind == vote.Yes || v.Kind == vote.Duplicate) && v.Holds == 0, v.Kind == vote.No && v.Owner != owner:
			n++
		}
	}
	return n
}

// InDoubt is how many nodes are in doubt about the name. They have done what they were told, though they do not vote.
func InDoubt(votes []vote.Vote) (n int) {
	for i := range votes {
		if votes[i].Code == vote.InDoubt {
			n++
		}
	}
	return n
}

// ownerInDoubt is the owner whom a node in doubt about a name says to have a hold; ok is false if it says nothing that can be read.
func ownerInDoubt(k locks.Key, whose string) (h locks.Holder, ok bool) {
	if owner, reads := strings.CutPrefix(whose, "r"); reads {
		return locks.Holder{Key: k, Owner: owner}.Reading(), true
	}
	owner, writes := strings.CutPrefix(whose, "w")
	return locks.Holder{Key: k, Owner: owner}, writes
}

// OwnersInDoubt are those who may have the name, or read it, by what nodes have forgotten.
func OwnersInDoubt(votes []vote.Vote, k locks.Key) (all []locks.Holder) {
	for i := range votes {
		for _, whose := range votes[i].Doubts {
			if h, ok := ownerInDoubt(k, whose); ok && !slices.Contains(all, h) {
				all = append(all, h)
			}
		}
	}
	slices.SortFunc(all, func(a, b locks.Holder) int { return cmp.Or(a.Key.Compare(b.Key), cmp.Compare(a.Owner, b.Owner)) })
	return all
}

// HoldsInDoubt are the holds of an owner that nodes may have forgotten. No grant of theirs has a larger fence.
func HoldsInDoubt(votes []vote.Vote, h locks.Holder) (ids []string, fence int64) {
	for i := range votes {
		for id, whose := range votes[i].Doubts {
			if its, ok := ownerInDoubt(h.Whole(), whose); ok && its == h {
				ids, fence = append(ids, id), max(fence, votes[i].Fence)
			}
		}
	}
	return ids, fence
}
