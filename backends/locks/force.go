package locks

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

const (
	forceTries = 20   // releases, each of the holds that were read before it
	forceHolds = 1000 // in one release
)

var errForced = errors.New("the owner takes the lock again faster than it can be taken away")

// Force takes a name away from its holder, and returns what that had; held is false when nobody had it. The
// owner is not asked: whatever it believes to protect is unprotected from now on, though its validity may
// still run. Its RENEW and UNLOCK get ErrLost, no renewal under way brings the lock back, and the next grant
// has a larger fence. Nodes that are silent are told until no lease can run any more. Errors are a
// *QuorumError or that of ctx; then the lock may be gone, or not yet: force it again.
func (s *Service) Force(ctx context.Context, k Key) (was Holding, held bool, err error) {
	return s.forceGrant(ctx, k, 0)
}

// ForceGrant is Force for the grant with this fence only. If a later or an earlier one has the name, the error
// is an *OtherGrantError and nothing is taken away.
func (s *Service) ForceGrant(ctx context.Context, k Key, fence int64) (was Holding, held bool, err error) {
	if fence <= 0 {
		return Holding{}, false, fmt.Errorf("%d is not a fence", fence)
	}
	return s.forceGrant(ctx, k, fence)
}

// An OtherGrantError reports that the name is held under another fence.
type OtherGrantError struct{ Now Holding }

func (e *OtherGrantError) Error() string {
	return fmt.Sprintf("the lock has moved on: it is held under fence %d", e.Now.Fence)
}

// forceGrant is Force, of the grant with this fence if that is not 0.
func (s *Service) forceGrant(ctx context.Context, k Key, fence int64) (was Holding, held bool, err error) {
	if err := s.acquireSlot(ctx); err != nil {
		return Holding{}, false, err
	}
	defer s.releaseSlot()
	for range forceTries {
		votes, err := s.readStable(ctx, holder{Key: k})
		if err != nil {
			return Holding{}, false, err
		}
		now, who := s.holding(votes, k)
		if who == undecidedHolder {
			return Holding{}, false, s.quorumError("LOCKCTL", k.Name, votes)
		}
		found := who != nobody
		other := fence != 0 && now.Fence != fence
		switch {
		case !found, held && (other || now.Owner != was.Owner):
			if held {
				s.counters.forces.Add(1)
			}
			return was, held, nil
		case other:
			return Holding{}, false, &OtherGrantError{Now: now}
		case !held:
			was, held = now, true
		}
		done, err := s.force(ctx, holder{k, now.Owner}, upTo(votes, fence))
		if err != nil {
			return Holding{}, false, err
		}
		if done {
			s.counters.forces.Add(1)
			return was, true, nil
		}
	}
	return Holding{}, false, errForced
}

// upTo are the votes without those on a grant with a larger fence than this, if it is not 0.
func upTo(votes []vote, fence int64) []vote {
	if fence == 0 {
		return votes
	}
	votes = slices.Clone(votes)
	for i := range votes {
		if v := &votes[i]; v.kind == yes && v.owner != "" && v.fence > fence {
			*v = vote{err: errNotAsked, unsent: true}
		}
	}
	return votes
}

// force releases the holds that a read showed. It is not done while a quorum still has some: the owner may
// have re-entered since.
//
// The note comes first, and on a quorum: without it an UNLOCK through the owner's proxy, which knows only that
// its validity runs, could take a rival's unfinished try for a release in time. What is removed are the holds
// that were read, and only from grants that the note covers: a message that comes late finds another hold, or
// a larger fence.
func (s *Service) force(ctx context.Context, h holder, votes []vote) (done bool, err error) {
	fence := int64(0)
	for i := range votes {
		if v := &votes[i]; v.kind == yes && v.owner == h.owner {
			fence = max(fence, v.fence)
		}
	}
	limits := s.opts.timeouts(s.opts.MaxTTL)
	noted, err := s.noteShortening(ctx, h, fence, limits)
	switch {
	case err != nil:
		return false, err
	case countKind(noted, yes) < s.quorum:
		return false, s.quorumError("LOCKCTL", h.Name, noted)
	}
	s.grants.forgetGrant(h, fence)
	s.keepalive.lose(h, fence, lossForced, "it was taken away by an operator")
	holds := everyHold(votes, h.owner)
	j := s.releaseJob(s.redisKeys(h.Key), h.owner, grant{fence: fence}, "force", "", holds[:min(len(holds), forceHolds)], nil)
	round := s.ask(askRelease, j, func(v []vote) bool { return leftNothing(v, h.owner) >= s.quorum })
	s.waiting.Wake(h.Key)
	err = round.wait(ctx, limits)
	votes = round.close(false, nil)
	free := leftNothing(votes, h.owner)
	s.ended(round, votes, endOf(err, free >= s.quorum))
	switch {
	case err != nil:
		return false, err
	case free < s.quorum && len(votes)-countKind(votes, silent) < s.quorum:
		return false, s.quorumError("LOCKCTL", h.Name, votes)
	}
	return free >= s.quorum, nil
}
