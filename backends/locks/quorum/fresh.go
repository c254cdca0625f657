package quorum

import (
	"context"
	"slices"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/holdid"
	"github.com/lockproxy/lockproxy/backends/locks/voters"
)

// prepareFresh has a quorum note the grant that the owner has, if any, so that a LOCK with Fresh may drop it.
// As with Force, the note comes first: without it, an UNLOCK through a proxy that knows the dropped grant
// could succeed after a rival's. The acquisition drops no grant with a larger fence, so one that comes late
// harms no later grant.
func (s *Store) prepareFresh(ctx context.Context, r *locks.Attempt) (dropped int64, err error) {
	h := locks.Holder{Key: r.Key, Owner: r.Owner}
	votes, err := s.read(ctx, h, s.set.Opts.Timeouts(r.TTL))
	if err != nil {
		return 0, err
	}
	if voters.CountKind(votes, voters.Yes) < s.set.Quorum {
		return 0, s.lockError(r.Name, votes)
	}
	tag := ""
	if r.Req != "" {
		tag = holdid.TagOf(h, r.Req)
	}
	for i := range votes {
		v := &votes[i]
		if v.Kind != voters.Yes || v.Owner != r.Owner {
			continue
		}
		if tag != "" && slices.ContainsFunc(v.Read.Holds, func(x voters.NodeHold) bool { return holdid.Tag(x.ID) == tag }) {
			return dropped, nil // this very request was granted before
		}
		dropped = max(dropped, v.Fence)
	}
	if dropped == 0 {
		return 0, nil
	}
	noted, err := s.noteShortening(ctx, h, dropped, s.set.Opts.Timeouts(r.TTL))
	if err == nil && voters.CountKind(noted, voters.Yes) < s.set.Quorum {
		err = s.set.QuorumError("LOCK", r.Name, noted)
	}
	return dropped, err
}
