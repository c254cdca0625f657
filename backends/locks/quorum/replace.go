package quorum

import (
	"context"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/voters"
)

// prepareReplace has a quorum note the grant that a LOCK is to replace, before any node drops it. Without the note an
// UNLOCK through a proxy that remembers the replaced grant could succeed afterwards, as with Force; and if the LOCK is
// undone, a renewal could bring the replaced grant back where it was dropped.
func (s *Store) prepareReplace(ctx context.Context, r *locks.Attempt) error {
	limits := s.set.Opts.Timeouts(r.TTL)
	votes, err := s.noteShortening(ctx, locks.Holder{Key: r.Key, Owner: r.Replaces.Owner}, r.Replaces.Fence, limits)
	if err == nil && voters.CountKind(votes, voters.Yes) < s.set.Quorum {
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
