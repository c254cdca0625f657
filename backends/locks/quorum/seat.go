package quorum

import (
	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/seats"
	"github.com/lockproxy/lockproxy/backends/locks/tally"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
)

// seatTries is how many seats are tried right after each other, where the nodes have named free ones. After so many, others seem to get
// them all.
const seatTries = 4

// seatFor is the seat that a LOCK asks for: try, unless that is Any; else the one that its owner has, as far as known; else
// one that may be free.
func (s *Store) seatFor(a *acquisition, try int) int {
	if a.Permits == 0 {
		return seats.None
	}
	if try != seats.Any {
		return try
	}
	if known := s.grants.lookup(a.holder); a.mayHave(seats.Of(known.id)) && known.until() > s.Now() {
		return seats.Of(known.id)
	}
	return s.seats.Pick(a.Key, a.Permits, s.set.Opts.Random.Int)
}

// mayHave reports whether a seat is one of the permits. Who has another one keeps it, and enters it again, but gets it no more.
func (a *acquisition) mayHave(seat int) bool { return seat >= 0 && seat < a.Permits }

// otherSeat reports whether the owner has another seat at a node than the one that was asked for, or none.
func (a *acquisition) otherSeat(v *vote.Vote) bool {
	return v.Kind == vote.Yes && v.Reentered != 0 && tally.SeatOf(v) != seats.Of(a.id)
}

// nextSeat is the seat to ask for after votes that granted nothing: the one that the owner has at most nodes, else one that a quorum
// may find free, else Any.
func (s *Store) nextSeat(a *acquisition, votes []vote.Vote) int {
	if seat, n := tally.Most(votes, func(v *vote.Vote) (int, bool) { return tally.SeatOf(v), v.Kind == vote.Yes && v.Reentered != 0 }); n > 0 && a.mayHave(seat) {
		return seat
	}
	var free [][]int
	for i := range votes {
		if v := &votes[i]; v.Kind == vote.No && v.Why == locks.Permits {
			free = append(free, v.Free)
		}
	}
	seat := seats.FreeBy(free, len(votes)-len(free), s.set.Quorum, s.set.Opts.Random.Int)
	if !a.mayHave(seat) { // none, or what a broken node has named
		return seats.Any
	}
	return seat
}

// refused is the answer to an acquisition that others keep from the name.
func (s *Store) refused(a *acquisition, t tally.Result, votes []vote.Vote) (locks.Decision, error) {
	d := locks.Decision{Holder: t.Holder, Remaining: t.Rest, Fence: t.Fence, Why: t.Why}
	if t.Why == locks.Permits {
		if seat := s.nextSeat(a, votes); seat != seats.Any {
			return locks.Decision{}, &undecidedError{why: seatTaken, seat: seat, refusal: d}
		}
	}
	return d, nil
}

// splitOn is the error of an acquisition for which nobody had a majority.
func (s *Store) splitOn(a *acquisition, votes []vote.Vote) error {
	if a.Permits == 0 {
		return errSplit
	}
	return &undecidedError{why: split, seat: s.nextSeat(a, votes)}
}
