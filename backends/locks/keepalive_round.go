package locks

import (
	"context"
	"slices"
	"time"
)

const (
	giveBackTries = 3                     // before a lease that another proxy took over is left to run out
	giveBackPause = 20 * time.Millisecond // between them, doubling
)

// A keepResult is what became of a renewal for a session.
type keepResult struct {
	outcome  outcome
	until    time.Duration // applied: end of the validity
	released []string      // applied: holds that were given back elsewhere
	err      error         // undecided: why
}

// A term is for how long a lease is renewed: for ttl, but not past end.
type term struct{ ttl, end time.Duration }

func (t term) from(now time.Duration) time.Duration {
	return min(t.ttl, t.end-now).Truncate(time.Millisecond)
}

// extend renews the holds ids of the grant with this fence for a term. It never brings their end forward, but
// finds out if a RENEW did, and sends nothing once ctx has ended. What is not in the cache, or was changed
// through another proxy, is read first; so is what seems lost, since its owner may have given it back
// elsewhere.
func (s *Service) extend(ctx context.Context, h holder, fence int64, t term, ids []string) keepResult {
	if g, ok := s.grants.beginExtension(h, fence, ids, s.now()); ok {
		until, result, votes, err := s.renewal(ctx, h, t.from(s.now()), g, nil, grows)
		switch {
		case err != nil || result == undecided:
			return s.undecidedResult(h, votes, err)
		case result == applied:
			if slices.ContainsFunc(votes, func(v vote) bool { return v.givenBack }) {
				s.grants.invalidate(h) // elsewhere: read the next time
			}
			if anyNoted(votes) {
				s.grants.capEnds(h, fence, until)
			}
			return keepResult{outcome: applied, until: s.grants.endExtension(h, g, until)}
		case result == conflict:
			s.grants.invalidate(h)
		}
	}
	return s.extendForeign(ctx, h, fence, t, ids)
}

// undecidedResult is that of a renewal that decided nothing.
func (s *Service) undecidedResult(h holder, votes []vote, err error) keepResult {
	if needsRepair(votes) {
		s.requestProbe()
	}
	if votes != nil {
		err = s.quorumError("RENEW", h.Name, votes)
	}
	return keepResult{outcome: undecided, err: err}
}

// extendForeign is extend for a grant of which this proxy does not know all.
func (s *Service) extendForeign(ctx context.Context, h holder, fence int64, t term, ids []string) keepResult {
	before := s.grants.lookup(h)
	votes, began, err := s.readAgreed(ctx, h, s.opts.timeouts(t.ttl), "")
	if err != nil {
		return s.undecidedResult(h, nil, err)
	}
	g, result := s.readGrant(votes, h, fence, began)
	switch {
	case result == undecided:
		return s.undecidedResult(h, votes, nil)
	case result != applied && s.releasedBefore(votes, h.owner, fence):
		return keepResult{outcome: released}
	case result != applied:
		s.grants.forgetGrant(h, fence)
		return keepResult{outcome: result}
	}
	all := g
	there, gone := s.stillThere(votes, h.owner, holdIDs(all.holds), ids)
	g.holds = slices.DeleteFunc(slices.Clone(all.holds), func(h hold) bool { return !slices.Contains(there, h.id) })
	if len(g.holds) == 0 {
		if len(gone) == len(ids) {
			return keepResult{outcome: released}
		}
		return s.undecidedResult(h, votes, nil)
	}
	g, result, votes, err = s.takeOver(ctx, h, t.from(s.now()), g, votes, grows)
	if err != nil || result != applied {
		return s.undecidedResult(h, votes, err) // what has changed meanwhile is found by the next read
	}
	until := g.until()
	g.holds = append(without(all.holds, there), g.holds...)
	s.replaceGrant(h, before, g)
	return keepResult{outcome: applied, until: until, released: gone}
}

// stillThere divides holds by a read: those that a quorum has, and those that no quorum can have any more. The
// rest may be either.
func (s *Service) stillThere(votes []vote, owner string, common, ids []string) (there, gone []string) {
	for _, id := range ids {
		may := 0
		for i := range votes {
			v := &votes[i]
			if v.kind == silent || v.owner == owner && v.read.has(id) {
				may++
			}
		}
		switch {
		case slices.Contains(common, id):
			there = append(there, id)
		case may < s.quorum:
			gone = append(gone, id)
		}
	}
	return there, gone
}

// replaceGrant stores a grant that was taken over for a session, if that still has it.
func (s *Service) replaceGrant(h holder, before, g grant) {
	s.keepalive.mu.Lock()
	defer s.keepalive.mu.Unlock()
	if l := s.keepalive.leases[h]; l != nil && l.fence == g.fence {
		s.grants.replace(h, before, g)
	}
}

// giveBack releases exactly these holds of a session that has ended. Nodes that cannot be reached are told
// until no lease can run any more.
//
// The owner did not ask for it, and another proxy that renewed the lease may know that its validity runs: by
// that knowledge an UNLOCK there could take a rival's unfinished try for a release in time. So a lease that
// has been taken over is released after a note on a quorum, as by Force, and so is one that ends earlier
// without these holds. The proxy that took it over did so on a quorum, which does not release the holds
// without the note: no rival can have been granted the name before it.
func (s *Service) giveBack(h holder, fence int64, ids []string) {
	g := s.grants.lookup(h)
	if g.fence != fence {
		g = grant{fence: fence}
	}
	s.dropHolds(h, ids...)
	left := liveHolds(without(g.holds, ids), s.now())
	if g.ownEpoch != "" && (len(left) == 0 || lastEnd(left) >= g.untilOf(ids)) {
		votes := s.releaseEnded(h, g, g.ownEpoch, ids, left)
		if !slices.ContainsFunc(votes, func(v vote) bool { return v.kind == versionConflict }) {
			return
		}
	}
	for i := range giveBackTries {
		if i > 0 {
			_ = sleep(context.Background(), giveBackPause<<i)
		}
		noted, err := s.noteShortening(context.Background(), h, fence, s.opts.timeouts(s.opts.MaxTTL))
		if err == nil && countKind(noted, yes) >= s.quorum {
			s.releaseEnded(h, g, "", ids, left)
			return
		}
	}
}

// releaseEnded releases holds on the nodes whose lease is of this epoch, or on all if it is empty. It returns
// the votes when a majority has answered.
func (s *Service) releaseEnded(h holder, g grant, lineage string, ids []string, left []hold) []vote {
	round := s.ask(askRelease, s.endJob(h, g, lineage, ids, left), func(v []vote) bool { return 2*(len(v)-countKind(v, silent)) > len(v) })
	s.waiting.Wake(h.Key)
	_ = round.wait(context.Background(), s.opts.timeouts(s.opts.MaxTTL)) // so that not all of a session's locks queue up at the nodes
	return s.closed(round, round.close(false, nil), nil)
}

// endJob releases holds that their owner did not give back.
func (s *Service) endJob(h holder, g grant, lineage string, ids []string, left []hold) scriptCall {
	return s.releaseJob(s.redisKeys(h.Key), h.owner, g, "end", lineage, ids, left)
}
