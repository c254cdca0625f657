package locks

import (
	"context"
	"slices"
)

// prepareFresh has a quorum note the grant that the owner has, if any, so that a LOCK with Fresh may drop it.
// As with Force, the note comes first: without it, an UNLOCK through a proxy that knows the dropped grant
// could succeed after a rival's. The acquisition drops no grant with a larger fence, so one that comes late
// harms no later grant.
func (s *Service) prepareFresh(ctx context.Context, r *LockRequest) error {
	h := holder{r.Key, r.Owner}
	votes, err := s.read(ctx, h, s.opts.timeouts(r.TTL))
	if err != nil {
		return err
	}
	if countKind(votes, yes) < s.quorum {
		if needsRepair(votes) {
			s.requestProbe()
			return needsRepairError{s.quorumError("LOCK", r.Name, votes)}
		}
		return s.quorumError("LOCK", r.Name, votes)
	}
	tag := ""
	if r.Req != "" {
		tag = requestTag(h, r.Req)
	}
	r.dropped = 0
	for i := range votes {
		v := &votes[i]
		if v.kind != yes || v.owner != r.Owner {
			continue
		}
		if tag != "" && slices.ContainsFunc(v.read.holds, func(x nodeHold) bool { return holdTag(x.id) == tag }) {
			return nil // this very request was granted before
		}
		r.dropped = max(r.dropped, v.fence)
	}
	if r.dropped == 0 {
		return nil
	}
	noted, err := s.noteShortening(ctx, h, r.dropped, s.opts.timeouts(r.TTL))
	if err == nil && countKind(noted, yes) < s.quorum {
		err = s.quorumError("LOCK", r.Name, noted)
	}
	return err
}
