package quorum

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/tally"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/backends/locks/voters"
	"github.com/lockproxy/lockproxy/scripts"
)

// Read implements locks.Store: it asks until a quorum agrees, for a while.
func (s *Store) Read(ctx context.Context, k locks.Key) (locks.Reading, error) {
	if err := s.set.AcquireSlot(ctx); err != nil {
		return locks.Reading{}, err
	}
	defer s.set.ReleaseSlot()
	decided := func(votes []vote.Vote) bool {
		owner, _, fence, who := tally.OwnerBy(votes, s.set.Quorum)
		return (who == tally.HeldByOne && s.openness(votes, owner, fence) != maybeOpen || who == tally.HeldByNobody) && (k.Reader != "" || tally.AgreeOnReaders(votes, s.set.Quorum))
	}
	votes, _, err := s.readUntil(ctx, question{holder: locks.Holder{Key: k}}, untilAgreed, decided)
	if err != nil {
		return locks.Reading{}, err
	}
	h, who := s.holding(votes, k)
	var reading locks.Reading
	reading.Readers, reading.Reads = tally.ReadBy(votes, s.set.Quorum)
	switch {
	case who == tally.HeldByNobody:
		return reading, nil
	case who == tally.HeldByOne && s.openness(votes, h.Owner, h.Fence) != maybeOpen:
		reading.Held, reading.Owner, reading.Info, reading.Fence = true, h.Owner, h.Info, h.Fence
		reading.Remaining, reading.Holds, reading.Open = h.Remaining, h.Holds, h.Open
		return reading, nil
	}
	return locks.Reading{}, s.set.QuorumError("LOCK", k.Name, votes)
}

// Holder implements locks.Store: it reads from a quorum.
func (s *Store) Holder(ctx context.Context, k locks.Key) (locks.Decision, error) {
	if err := s.set.AcquireSlot(ctx); err != nil {
		return locks.Decision{}, err
	}
	defer s.set.ReleaseSlot()
	votes, err := s.read(ctx, question{holder: locks.Holder{Key: k}})
	if err != nil {
		return locks.Decision{}, err
	}
	if !s.set.Agree(votes) {
		return locks.Decision{}, s.set.QuorumError("LOCK", k.Name, votes)
	}
	h, who := s.holding(votes, k)
	if who != tally.HeldByOne && who != tally.BeingGranted {
		if h.Readers > 0 {
			return locks.Decision{Remaining: h.Remaining, Why: locks.Readers}, nil
		}
		return locks.Decision{}, nil
	}
	return locks.Decision{Holder: h.Owner, Remaining: h.Remaining}, nil
}

// A question is what a read asks: who has a name, and what was done before for an UNLOCK.
type question struct {
	holder locks.Holder
	ttl    time.Duration // the timeouts are those of such a lease; 0: of the longest
	tag    string        // of the UNLOCK; empty: none
}

// read asks every node.
func (s *Store) read(ctx context.Context, q question) ([]vote.Vote, error) {
	limits := s.set.Opts.Timeouts(cmp.Or(q.ttl, s.set.Opts.MaxTTL))
	round := s.set.Ask(voters.AskRead, voters.ScriptCall{
		Args: s.set.Command(scripts.Read, s.set.RedisKeys(q.holder.Key), q.tag), Parse: vote.ParseRead,
		Expires: s.Now() + limits.Quorum,
	}, voters.WaitForAll)
	err := round.Wait(ctx, limits)
	return s.set.CloseAnswered(round, true, err), err
}

// A backoff is how many times a name is read at most, and the pause before the second read, the third, and so on.
type backoff struct {
	reads int
	pause func(read int) time.Duration
}

var (
	// While no quorum agrees on the fence.
	untilAgreed = backoff{10, func(read int) time.Duration { return time.Millisecond << (read - 1) }}
	// While nodes differ, perhaps only since something is under way.
	untilStable = backoff{5, func(read int) time.Duration { return time.Duration(read) * time.Millisecond }}
)

// readAgreed is read, repeated for a while if a quorum has the name for the owner but not under one fence: then
// another LOCK of the owner is between its two rounds, and the grant is not lost.
func (s *Store) readAgreed(ctx context.Context, q question) (votes []vote.Vote, began time.Duration, err error) {
	return s.readUntil(ctx, q, untilAgreed, func(votes []vote.Vote) bool { return !tally.BetweenRounds(votes, s.set.Quorum, q.holder.Owner) })
}

// readUntil is read, repeated until the votes are good or it was read as often as it may be. began is when the read of these votes began.
func (s *Store) readUntil(ctx context.Context, q question, b backoff, good func([]vote.Vote) bool) (votes []vote.Vote, began time.Duration, err error) {
	for read := range b.reads {
		if read > 0 {
			if err := locks.Sleep(ctx, b.pause(read)); err != nil {
				return nil, began, err
			}
		}
		began = s.Now()
		if votes, err = s.read(ctx, q); err != nil || good(votes) {
			break
		}
	}
	return votes, began, err
}

// readStable reads a name, again if the nodes do not agree: most often because a grant or a release is on its way to some of them.
func (s *Store) readStable(ctx context.Context, h locks.Holder) ([]vote.Vote, error) {
	votes, _, err := s.readUntil(ctx, question{holder: h}, untilStable, tally.Stable)
	return votes, err
}

// readGrant is the grant of h by a read that began at the given time: the fence that a quorum agrees on, the
// holds that a quorum has, and the end that a quorum will not undercut. The outcome is applied if there is
// one.
func (s *Store) readGrant(votes []vote.Vote, h locks.Holder, fence int64, began time.Duration) (grant, tally.Outcome) {
	mine := func(v *vote.Vote) (int64, bool) { return tally.VouchedFence(v, h.Owner) }
	agreed, n := tally.Most(votes, mine)
	if !s.set.Agree(votes) {
		return grant{}, tally.Undecided
	}
	if n < s.set.Quorum || (fence != 0 && fence != agreed) {
		_, others := tally.Most(votes, func(v *vote.Vote) (string, bool) {
			return v.Owner, v.Kind == vote.Yes && v.Owner != "" && v.Owner != h.Owner
		})
		switch {
		case tally.BetweenRounds(votes, s.set.Quorum, h.Owner): // or re-entered on two majorities, and one hold was given back
			return grant{}, tally.Undecided
		case others >= s.set.Quorum:
			return grant{}, tally.OtherOwner
		case n < s.set.Quorum && n+vote.CountKind(votes, vote.Silent) >= s.set.Quorum:
			return grant{}, tally.Undecided
		}
		return grant{}, tally.Lost
	}
	its := func(v *vote.Vote) bool { f, ok := mine(v); return ok && f == agreed }
	g := grant{fence: agreed, holds: s.commonHolds(votes, h.Owner, agreed, began), since: began}
	g.id, _ = tally.Most(votes, func(v *vote.Vote) (string, bool) {
		if !its(v) {
			return "", false
		}
		g.since = min(g.since, began-v.Read.Age)
		return v.Grant, true
	})
	if len(g.holds) == 0 {
		return grant{}, tally.Lost
	}
	return g, tally.Applied
}

// commonHolds are the holds of the grant that a quorum has, the oldest first, with the end of
// each that a quorum will not undercut.
func (s *Store) commonHolds(votes []vote.Vote, owner string, fence int64, began time.Duration) []hold {
	return s.holdsOf(votes, owner, fence, began, s.set.Quorum, true)
}

// possibleHolds are the live holds that a quorum has, or may have with the nodes that did not vouch for the
// grant. One that was not granted after all is undone, unless its proxy is gone or had not sent the undo to
// all nodes; then the owner has a hold too many until the end that RENEW gives it. Model:
// integration/model/ends, flag names-maybe.
func (s *Store) possibleHolds(votes []vote.Vote, owner string, fence int64, began time.Duration) []hold {
	others := len(votes)
	for i := range votes {
		if tally.Vouches(&votes[i], owner, fence) {
			others--
		}
	}
	return s.holdsOf(votes, owner, fence, began, max(1, s.set.Quorum-others), false)
}

// holdsOf are the holds of the grant that so many nodes have, the oldest first, with the end that
// so many, or a quorum, will not undercut; with ended, also those that have ended.
func (s *Store) holdsOf(votes []vote.Vote, owner string, fence int64, began time.Duration, nodes int, ended bool) []hold {
	rests := map[string][]time.Duration{}
	var ids []string
	for i := range votes {
		v := &votes[i]
		if !tally.Vouches(v, owner, fence) {
			continue
		}
		for _, h := range v.Read.Holds {
			if h.Rest <= 0 && !ended {
				continue
			}
			if rests[h.ID] = append(rests[h.ID], h.Rest); len(rests[h.ID]) == nodes {
				ids = append(ids, h.ID)
			}
		}
	}
	var holds []hold
	for _, id := range ids {
		all := rests[id]
		slices.Sort(all)
		rest := all[max(0, len(all)-s.set.Quorum)]
		holds = append(holds, hold{id, began + rest - locks.Drift(rest)})
	}
	sortByAge(holds, votes)
	return holds
}

// sortByAge sorts holds by when they were taken, the oldest first, by the votes of a read, in milliseconds. Of
// holds of one millisecond the one that ends first is last: an UNLOCK that gives it back in place of another
// leaves the lock held.
func sortByAge(holds []hold, votes []vote.Vote) {
	ages := map[string]time.Duration{}
	for i := range votes {
		if r := votes[i].Read; r != nil {
			for _, h := range r.Holds {
				ages[h.ID] = max(ages[h.ID], h.Age)
			}
		}
	}
	slices.SortStableFunc(holds, func(a, b hold) int {
		return cmp.Or(cmp.Compare(ages[b.id], ages[a.id]), cmp.Compare(b.until, a.until))
	})
}
