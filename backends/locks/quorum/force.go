package quorum

import (
	"context"
	"errors"
	"slices"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/tally"
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
	was, held, err = s.forceOf(ctx, k, fence)
	if err != nil || held {
		return was, held, err
	}
	fence = max(fence, 0) // from OfReaders
	for range forceTries {
		readers, err := s.readersOf(ctx, k)
		if err != nil || len(readers) == 0 {
			return was, held, err
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
		found := who != tally.HeldByNobody
		other := fence != 0 && now.Fence != fence
		switch {
		case !found, held && (other || now.Owner != was.Owner):
			if held {
				s.counters.forces.Add(1)
			}
			return was, held, nil
		case other:
			return locks.Holding{}, false, &locks.OtherGrantError{Now: now}
		case !held:
			was, held = now, true
		}
		done, err := s.force(ctx, locks.Holder{Key: k, Owner: now.Owner}, upTo(votes, fence))
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
func upTo(votes []voters.Vote, fence int64) []voters.Vote {
	if fence == 0 {
		return votes
	}
	votes = slices.Clone(votes)
	for i := range votes {
		if v := &votes[i]; v.Kind == voters.Yes && v.Owner != "" && v.Fence > fence {
			*v = voters.Vote{Err: voters.ErrNotAsked, Unsent: true}
		}
	}
	return votes
}

// force releases the holds that a read showed. done reports that a quorum has none any more; else the owner may
// have re-entered since the read.
//
// A quorum notes it first: without the note an UNLOCK through the owner's proxy, which knows only that its
// validity runs, would succeed even where nodes name a rival, as GiveBack explains. Only the holds that were read
// are removed, and only from grants that the note covers: a message that comes late finds other holds, or a larger
// fence, and removes nothing.
func (s *Store) force(ctx context.Context, h locks.Holder, votes []voters.Vote) (done bool, err error) {
	fence := int64(0)
	for i := range votes {
		if v := &votes[i]; v.Kind == voters.Yes && v.Owner == h.Owner {
			fence = max(fence, v.Fence)
		}
	}
	limits := s.set.Opts.Timeouts(s.set.Opts.MaxTTL)
	noted, err := s.noteShortening(ctx, h, fence, limits)
	switch {
	case err != nil:
		return false, err
	case voters.CountKind(noted, voters.Yes) < s.set.Quorum:
		return false, s.set.QuorumError("LOCKCTL", h.Name, noted)
	}
	s.grants.forgetGrant(h, fence)
	s.host.Keepalive.Lose(h, fence, locks.LossForced, "it was taken away by an operator")
	holds := tally.EveryHold(votes, h.Owner)
	longest := tally.QthRest(votes, 1, func(v *voters.Vote) bool { return v.Kind == voters.Yes && v.Owner == h.Owner })
	j := s.releaseCall(s.set.RedisKeys(h.Key), h.Owner, grant{fence: fence}, longest, "force", "", holds[:min(len(holds), forceHolds)], nil)
	round := s.set.Ask(voters.AskRelease, j, func(v []voters.Vote) bool { return tally.LeftNothing(v, h.Owner) >= s.set.Quorum })
	s.host.Lines.Wake(h.Whole())
	err = round.Wait(ctx, limits)
	votes = round.Close(false, nil)
	free := tally.LeftNothing(votes, h.Owner)
	s.set.Ended(round, votes, voters.EndOf(err, free >= s.set.Quorum))
	switch {
	case err != nil:
		return false, err
	case free < s.set.Quorum && len(votes)-voters.CountKind(votes, voters.Silent) < s.set.Quorum:
		return false, s.set.QuorumError("LOCKCTL", h.Name, votes)
	}
	return free >= s.set.Quorum, nil
}
