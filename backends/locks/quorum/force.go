package quorum

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/tally"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/backends/locks/voters"
)

const (
	forceTries = 20   // releases, each of the holds that were read before it
	forceHolds = 1000 // in one release
)

var errForced = errors.New("the owner takes the lock again faster than it can be taken away")

// Force implements locks.Inspector. It takes a name away from the owner that has it for itself; if there is none, from all that
// read it, or with a fence those that read it under that one, and returns what one of these had, with its reader's key.
func (s *Store) Force(ctx context.Context, k locks.Key, fence int64) (was locks.Holding, held bool, err error) {
	if fence <= 0 { // in doubt, a node does not know the fence
		if was, held, err = s.forceDoubts(ctx, k, fence); err != nil {
			return was, held, err
		}
	}
	if now, alone, err := s.forceOf(ctx, k, fence); alone {
		return now, true, err
	} else if err != nil {
		return was, held, err
	}
	fence = max(fence, 0) // from OfReaders
	for range forceTries {
		readers, doubt, err := s.readersOf(ctx, k)
		if err != nil || len(readers) == 0 {
			return was, held, cmp.Or(err, doubt)
		}
		was.Readers = max(was.Readers, len(readers))
		last, taken, later, err := locks.ForceEach(k, readers, func(reading locks.Key) (locks.Holding, bool, error) {
			return s.forceOf(ctx, reading, fence)
		})
		if taken > 0 {
			last.Readers = was.Readers
			was, held = last, true
		}
		if err != nil {
			return was, held, err
		}
		if later != nil && taken == 0 {
			if held {
				later = nil
			}
			return was, held, later
		}
	}
	return was, held, errForced
}

// forceOf is Force of the lock that the key names.
func (s *Store) forceOf(ctx context.Context, k locks.Key, fence int64) (was locks.Holding, held bool, err error) {
	if err := s.set.AcquireSlot(ctx); err != nil {
		return locks.Holding{}, false, err
	}
	defer s.set.ReleaseSlot()
	for range forceTries {
		votes, err := s.readStable(ctx, locks.Holder{Key: k})
		if err != nil {
			return locks.Holding{}, false, err
		}
		now, who := s.holding(votes, k)
		if who == tally.MaybeHeld {
			return locks.Holding{}, false, s.set.QuorumError("LOCKCTL", k.Name, votes)
		}
		nobody, other := who == tally.HeldByNobody, fence != 0 && now.Fence != fence
		switch {
		case held && (nobody || other || now.Owner != was.Owner): // what was there is gone
			s.counters.forces.Add(1)
			return was, true, nil
		case nobody:
			return locks.Holding{}, false, nil
		case other:
			return locks.Holding{}, false, &locks.OtherGrantError{Now: now}
		case !held:
			was, held = now, true
		}
		done, err := s.takeAway(ctx, locks.Holder{Key: k, Owner: now.Owner}, takingOf(upTo(votes, fence), now.Owner))
		if err != nil {
			return locks.Holding{}, false, err
		}
		if done {
			s.counters.forces.Add(1)
			return was, true, nil
		}
	}
	return locks.Holding{}, false, errForced
}

// upTo are the votes without those on a grant with a larger fence than this one; fence 0 leaves all.
func upTo(votes []vote.Vote, fence int64) []vote.Vote {
	if fence == 0 {
		return votes
	}
	votes = slices.Clone(votes)
	for i := range votes {
		if v := &votes[i]; v.Kind == vote.Yes && v.Owner != "" && v.Fence > fence {
			*v = vote.Vote{Err: voters.ErrNotAsked, Unsent: true}
		}
	}
	return votes
}

// forceDoubts takes a name away from all who may have it by what nodes in doubt say, if these are so many that no quorum can tell who
// has it. It returns what one of them had, as far as that is known.
func (s *Store) forceDoubts(ctx context.Context, k locks.Key, fence int64) (was locks.Holding, held bool, err error) {
	if err := s.set.AcquireSlot(ctx); err != nil {
		return was, false, err
	}
	defer s.set.ReleaseSlot()
	readers := map[string]bool{}
	for range forceTries {
		votes, err := s.readStable(ctx, locks.Holder{Key: k})
		all := tally.OwnersInDoubt(votes, k)
		if err != nil || len(all) == 0 || s.set.Agree(votes) {
			return was, held, err
		}
		for _, h := range all {
			its := votes
			switch {
			case h.Reader != "": // its records have a key of their own
				if its, err = s.readStable(ctx, h); err != nil {
					return was, held, err
				}
			case fence == locks.OfReaders:
				return was, held, s.set.QuorumError("LOCKCTL", k.Name, votes)
			}
			t := takingOf(its, h.Owner)
			t.addDoubts(its, h, s.set.Opts.MaxTTL)
			done, err := s.takeAway(ctx, h, t)
			if err != nil {
				return was, held, err
			}
			if h.Reader != "" {
				readers[h.Owner] = true
			}
			if done {
				was, held = locks.Holding{Key: h.Key, Owner: h.Owner, Readers: len(readers), Waiters: s.host.Lines.Len(k)}, true
				s.counters.forces.Add(1)
			}
		}
	}
	return was, held, errForced
}

// A taking is what FORCE takes away from one owner.
type taking struct {
	fence   int64         // the largest of its grants
	holds   []string      // exactly these
	longest time.Duration // for how long its lease may run
}

// takingOf is all that an owner has, by the votes of a read.
func takingOf(votes []vote.Vote, owner string) taking {
	t := taking{holds: tally.EveryHold(votes, owner)}
	for i := range votes {
		if v := &votes[i]; v.Kind == vote.Yes && v.Owner == owner {
			t.fence, t.longest = max(t.fence, v.Fence), max(t.longest, v.Rest)
		}
	}
	return t
}

// addDoubts adds what nodes in doubt may have forgotten that it has.
func (t *taking) addDoubts(votes []vote.Vote, h locks.Holder, longest time.Duration) {
	holds, fence := tally.HoldsInDoubt(votes, h)
	if len(holds) > 0 {
		t.fence, t.longest = max(t.fence, fence), longest
	}
	t.holds = slices.Compact(slices.Sorted(slices.Values(append(t.holds, holds...))))
}

// takeAway releases what it is told. done reports that a quorum has none of the owner's holds any more; else the owner may
// have re-entered since they were read.
//
// A quorum notes it first: without the note an UNLOCK through the owner's proxy, which knows only that its
// validity runs, would succeed even where nodes name a rival, as GiveBack explains. Only the holds that were read
// are removed, and only from grants that the note covers: a message that comes late finds other holds, or a larger
// fence, and removes nothing.
//
// A node in doubt about the name counts as well: what ended, it knows as any other does. Source: integration/model/recover.
func (s *Store) takeAway(ctx context.Context, h locks.Holder, t taking) (done bool, err error) {
	limits := s.set.Opts.Timeouts(s.set.Opts.MaxTTL)
	noted, err := s.noteShortening(ctx, h, t.fence, limits)
	switch {
	case err != nil:
		return false, err
	case vote.CountKind(noted, vote.Yes)+tally.InDoubt(noted) < s.set.Quorum:
		return false, s.set.QuorumError("LOCKCTL", h.Name, noted)
	}
	s.grants.forgetGrant(h, t.fence)
	s.host.Keepalive.Lose(h, t.fence, locks.LossForced, locks.ForcedReason)
	r := holdRelease{holder: h, grant: grant{fence: t.fence}, lease: t.longest, how: "force", ids: t.holds[:min(len(t.holds), forceHolds)]}
	without := func(v []vote.Vote) int { return tally.LeftNothing(v, h.Owner) + tally.InDoubt(v) }
	round := s.askRelease(r, s.releaseCall(r), func(v []vote.Vote) bool { return without(v) >= s.set.Quorum })
	err = round.Wait(ctx, limits)
	votes := round.Close(false, nil)
	free := without(votes)
	s.set.Ended(round, votes, vote.EndOf(err, free >= s.set.Quorum))
	switch {
	case err != nil:
		return false, err
	case free < s.set.Quorum && len(votes)-vote.CountKind(votes, vote.Silent)+tally.InDoubt(votes) < s.set.Quorum:
		return false, s.set.QuorumError("LOCKCTL", h.Name, votes)
	}
	return free >= s.set.Quorum, nil
}
