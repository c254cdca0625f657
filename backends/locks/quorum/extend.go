package quorum

import (
	"context"
	"slices"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/tally"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/backends/locks/voters"
)

// Extend implements locks.Store. A grant that is not in the cache, or was changed through another proxy, is read
// first. A grant that seems lost is read as well, since its owner may have given it back elsewhere.
func (s *Store) Extend(ctx context.Context, h locks.Holder, fence int64, t locks.Term, ids []string) locks.Extension {
	if g, ok := s.grants.beginExtension(h, fence, ids, s.Now()); ok {
		if e, decided := s.extendKnown(ctx, h, t, g); decided {
			return e
		}
	}
	return s.extendAfterRead(ctx, h, fence, t, ids)
}

// extendKnown renews the holds of a grant whose version this proxy gave out. decided is false where another proxy
// may have changed the grant, so that it must be read.
func (s *Store) extendKnown(ctx context.Context, h locks.Holder, t locks.Term, g grant) (e locks.Extension, decided bool) {
	until, result, votes, err := s.renewLease(ctx, &leaseRenewal{holder: h, ttl: t.From(s.Now()), grant: g, change: grows})
	switch {
	case err != nil || result == tally.Undecided:
		return s.undecidedResult(h, votes, err), true
	case result == tally.Applied:
		if tally.GivenBack(votes) {
			s.grants.invalidate(h) // another proxy gave a hold back: read the grant the next time
		}
		if tally.Noted(votes) {
			s.grants.capEnds(h, g.fence, until)
		}
		return locks.Extension{Result: locks.Extended, Until: s.grants.endExtension(h, g, until)}, true
	case result == tally.Conflict:
		s.grants.invalidate(h)
	}
	return e, false
}

// undecidedResult is the result of a renewal that the votes do not decide.
func (s *Store) undecidedResult(h locks.Holder, votes []vote.Vote, err error) locks.Extension {
	if voters.NeedsRepair(votes) {
		s.set.RequestProbe()
	}
	if votes != nil {
		err = s.set.QuorumError("RENEW", h.Name, votes)
	}
	return locks.Extension{Result: locks.Undecided, Err: err}
}

// extendAfterRead is Extend for a grant that this proxy does not know, or not in full: it reads the grant first.
func (s *Store) extendAfterRead(ctx context.Context, h locks.Holder, fence int64, t locks.Term, ids []string) locks.Extension {
	before := s.grants.lookup(h)
	votes, began, err := s.readAgreed(ctx, question{holder: h, ttl: t.TTL})
	if err != nil {
		return s.undecidedResult(h, nil, err)
	}
	g, result := s.readGrant(votes, h, fence, began)
	switch {
	case result == tally.Undecided:
		return s.undecidedResult(h, votes, nil)
	case result != tally.Applied && s.releasedBefore(votes, h.Owner, fence):
		return locks.Extension{Result: locks.GivenBack}
	case result != tally.Applied:
		s.grants.forgetGrant(h, fence)
		if result == tally.OtherOwner {
			return locks.Extension{Result: locks.Taken}
		}
		return locks.Extension{Result: locks.Gone}
	}
	all := g
	there, gone := s.stillThere(votes, h.Owner, holdIDs(all.holds), ids)
	g.holds = only(all.holds, there)
	switch {
	case len(gone) == len(ids):
		return locks.Extension{Result: locks.GivenBack}
	case len(there) == 0:
		return s.undecidedResult(h, votes, nil)
	}
	g, result, votes, err = s.renewUnderNewEpoch(ctx, &leaseRenewal{holder: h, ttl: t.From(s.Now()), grant: g, change: grows}, votes, false)
	if err != nil || result != tally.Applied {
		return s.undecidedResult(h, votes, err) // what has changed meanwhile is found by the next read
	}
	until := g.firstEnd(there)
	g.holds = append(without(all.holds, there), g.holds...)
	s.replaceGrant(h, before, g)
	if len(there)+len(gone) < len(ids) { // nodes that have the others are silent
		return s.undecidedResult(h, votes, nil)
	}
	return locks.Extension{Result: locks.Extended, Until: until, Released: gone}
}

// stillThere divides holds by a read: those that a quorum has, and those that no quorum can have any more. The
// rest may be either.
func (s *Store) stillThere(votes []vote.Vote, owner string, common, ids []string) (there, gone []string) {
	for _, id := range ids {
		may := 0
		for i := range votes {
			v := &votes[i]
			if v.Kind == vote.Silent || v.Owner == owner && v.Read.Has(id) {
				may++
			}
		}
		switch {
		case slices.Contains(common, id):
			there = append(there, id)
		case may < s.set.Quorum:
			gone = append(gone, id)
		}
	}
	return there, gone
}

// replaceGrant stores a grant that was taken over for a session, if that still has it.
func (s *Store) replaceGrant(h locks.Holder, before, g grant) {
	s.host.Keepalive.Lock()
	defer s.host.Keepalive.Unlock()
	if s.host.Keepalive.KeepsLocked(h, g.fence) {
		s.grants.replace(h, before, g)
	}
}
