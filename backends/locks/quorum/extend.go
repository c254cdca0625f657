package quorum

import (
	"context"
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/seats"
	"github.com/lockproxy/lockproxy/backends/locks/tally"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/backends/locks/voters"
)

const (
	giveBackTries = 3                     // before a lease that another proxy took over is left to run out
	giveBackPause = 20 * time.Millisecond // between them, doubling
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

// extensionOf is the result where a read shows that the owner does not have the grant.
func extensionOf(o tally.Outcome) locks.ExtensionResult {
	if o == tally.OtherOwner {
		return locks.Taken
	}
	return locks.Gone
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
	votes, began, err := s.readAgreed(ctx, h, s.set.Opts.Timeouts(t.TTL), "")
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
		return locks.Extension{Result: extensionOf(result)}
	}
	all := g
	there, gone := s.stillThere(votes, h.Owner, holdIDs(all.holds), ids)
	g.holds = slices.DeleteFunc(slices.Clone(all.holds), func(h hold) bool { return !slices.Contains(there, h.id) })
	if len(g.holds) == 0 {
		if len(gone) == len(ids) {
			return locks.Extension{Result: locks.GivenBack}
		}
		return s.undecidedResult(h, votes, nil)
	}
	g, result, votes, err = s.renewUnderNewEpoch(ctx, &leaseRenewal{holder: h, ttl: t.From(s.Now()), grant: g, change: grows}, votes, false)
	if err != nil || result != tally.Applied {
		return s.undecidedResult(h, votes, err) // what has changed meanwhile is found by the next read
	}
	until := g.until()
	g.holds = append(without(all.holds, there), g.holds...)
	s.replaceGrant(h, before, g)
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

// GiveBack implements locks.Store. Nodes that cannot be reached are told until no lease can run any more.
//
// The owner did not ask for it. Another proxy that has renewed the lease may know that its validity runs, so that
// an UNLOCK there succeeds even where nodes name a rival, taking the rival's grant for an unfinished try. So if
// another proxy took the lease over, or if it ends earlier without these holds, a quorum notes that first, as for
// Force. The take-over was stored by a quorum, whose nodes do not release the holds without the note: no rival
// can have been granted the name before it.
func (s *Store) GiveBack(h locks.Holder, fence int64, ids []string) {
	g := s.grants.lookup(h)
	if g.fence != fence {
		g = grant{fence: fence}
	}
	s.dropHolds(h, ids...)
	left := liveHolds(without(g.holds, ids), s.Now())
	if g.ownEpoch != "" && (len(left) == 0 || lastEnd(left) >= g.untilOf(ids)) {
		votes := s.releaseEnded(h, g, g.ownEpoch, ids, left)
		if !slices.ContainsFunc(votes, func(v vote.Vote) bool { return v.Kind == vote.VersionConflict }) {
			return
		}
	}
	for i := range giveBackTries {
		if i > 0 {
			_ = locks.Sleep(context.Background(), giveBackPause<<i)
		}
		noted, err := s.noteShortening(context.Background(), h, fence, s.set.Opts.Timeouts(s.set.Opts.MaxTTL))
		if err == nil && s.set.Agree(noted) {
			s.releaseEnded(h, g, "", ids, left)
			return
		}
	}
}

// releaseEnded releases holds on the nodes whose lease is of this epoch, or on all if it is empty. It returns
// the votes when a majority has answered.
func (s *Store) releaseEnded(h locks.Holder, g grant, epoch string, ids []string, left []hold) []vote.Vote {
	round := s.set.Ask(voters.AskRelease, s.endCall(h, g, epoch, ids, left), func(v []vote.Vote) bool { return 2*(len(v)-vote.CountKind(v, vote.Silent)) > len(v) })
	if len(left) == 0 {
		s.seats.Freed(h.Key, seats.Of(g.id))
	}
	s.host.Lines.Wake(h.Whole())
	_ = round.Wait(context.Background(), s.set.Opts.Timeouts(s.set.Opts.MaxTTL)) // so that not all of a session's locks queue up at the nodes
	return s.set.CloseAnswered(round, false, nil)
}

// endCall releases holds without a request of their owner; epoch is as in releaseEnded.
func (s *Store) endCall(h locks.Holder, g grant, epoch string, ids []string, left []hold) voters.ScriptCall {
	return s.releaseCall(s.set.RedisKeys(h.Key), h.Owner, g, s.leaseOf(g), "end", epoch, ids, left)
}
