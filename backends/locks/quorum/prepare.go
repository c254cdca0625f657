package quorum

import (
	"context"
	"slices"
	"strconv"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/holdid"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/backends/locks/voters"
	"github.com/lockproxy/lockproxy/scripts"
)

// prepareFresh has a quorum note the grant that the owner has, if any, so that a LOCK with Fresh may drop it.
// As with Force, the note comes first: without it, an UNLOCK through a proxy that knows the dropped grant
// could succeed after a rival's. The acquisition drops no grant with a larger fence, so one that comes late
// harms no later grant.
func (s *Store) prepareFresh(ctx context.Context, r *locks.Attempt) (dropped int64, err error) {
	h := locks.Holder{Key: r.Key, Owner: r.Owner}
	votes, err := s.read(ctx, question{holder: h, ttl: r.TTL})
	if err != nil {
		return 0, err
	}
	if !s.set.Agree(votes) {
		return 0, s.lockError(r.Name, votes)
	}
	tag := tagOf(h, r.Req)
	for i := range votes {
		v := &votes[i]
		if v.Kind != vote.Yes || v.Owner != r.Owner {
			continue
		}
		if tag != "" && slices.ContainsFunc(v.Read.Holds, func(x vote.NodeHold) bool { return holdid.Tag(x.ID) == tag }) {
			return dropped, nil // this very request was granted before
		}
		dropped = max(dropped, v.Fence)
	}
	if dropped == 0 {
		return 0, nil
	}
	noted, err := s.noteShortening(ctx, h, dropped, s.set.Opts.Timeouts(r.TTL))
	if err == nil && !s.set.Agree(noted) {
		err = s.set.QuorumError("LOCK", r.Name, noted)
	}
	return dropped, err
}

// prepareReplace has a quorum note the grant that a LOCK is to replace, before any node drops it. Without the note an
// UNLOCK through a proxy that remembers the replaced grant could succeed afterwards, as with Force; and if the LOCK is
// undone, a renewal could bring the replaced grant back where it was dropped.
func (s *Store) prepareReplace(ctx context.Context, r *locks.Attempt) error {
	votes, err := s.noteShortening(ctx, locks.Holder{Key: r.Key, Owner: r.Replaces.Owner}, r.Replaces.Fence, s.set.Opts.Timeouts(r.TTL))
	if err == nil && !s.set.Agree(votes) {
		err = s.lockError(r.Name, votes)
	}
	return err
}

// loseReplaced forgets the grant whose place an acquisition has taken.
func (s *Store) loseReplaced(a *acquisition) {
	old := locks.Holder{Key: a.Key, Owner: a.Replaces.Owner}
	s.grants.forgetGrant(old, a.Replaces.Fence)
	s.host.Keepalive.Lose(old, a.Replaces.Fence, locks.LossTaken, locks.ReplacedReason)
}

// noteShortening has every node note that a grant may be shortened. What shortens it, such as a renewal, may be sent
// only after a quorum has noted that.
func (s *Store) noteShortening(ctx context.Context, h locks.Holder, fence int64, limits voters.Timeouts) ([]vote.Vote, error) {
	round := s.set.Ask(voters.AskNote, voters.ScriptCall{
		Args: s.set.Command(scripts.Note, s.set.RedisKeys(h.Key), strconv.FormatInt(fence, 10)), Parse: vote.ParseDone,
		Expires: s.Now() + limits.Quorum,
	}, s.set.Agree)
	err := round.Wait(ctx, limits)
	votes := round.Close(err != nil, nil)
	s.set.Ended(round, votes, vote.EndOf(err, s.set.Agree(votes)))
	return votes, err
}
