package locks

import (
	"context"
	"slices"
	"time"

	"github.com/redis/rueidis"
)

// Unlock gives back the hold this owner took last, or all, and returns how many the owner has left: 0 means
// that the name is free. Repeating the UNLOCK of the grant last released, or one with the same Req, repeats
// its answer; a Req that a LOCK of the owner had names the hold that this one took. Errors are ErrLost,
// *NotOwnerError, *QuorumError or that of ctx. Whatever the answer, nodes that could not be reached are told
// until no lease can run any more.
func (s *Service) Unlock(ctx context.Context, r UnlockRequest) (holdsLeft int, err error) {
	if err := checkReq(r.Owner, r.Req); err != nil {
		return 0, err
	}
	if r.Req == "" {
		return s.counters.released(s.unlock(ctx, r))
	}
	end, err := s.requests.begin(ctx, requestKey{true, r.Key, r.Owner, r.Req}, s.opts.MaxTTL)
	if err != nil {
		return 0, err
	}
	defer end()
	return s.counters.released(s.unlock(ctx, r))
}

// unlock is Unlock while no other with the same Req is under way here.
func (s *Service) unlock(ctx context.Context, r UnlockRequest) (holdsLeft int, err error) {
	if err := s.acquireSlot(ctx); err != nil {
		return 0, err
	}
	defer s.releaseSlot()
	h := holder{r.Key, r.Owner}
	if r.Req != "" && !s.grants.hasRequest(h, r.tag()) { // what it gives back may be decided already
		return s.unlockForeign(ctx, h, r)
	}
	g, holds, left, ok := s.popHolds(h, r)
	if !ok {
		return s.unlockForeign(ctx, h, r)
	}
	votes, result, err := s.release(ctx, h, g, holds, left, g.firstEnd(holds) > s.now(), r.tag())
	if err == nil && result != conflict && result != undecided && len(holds) == len(g.holds) {
		s.grants.observeEnd(&g)
	}
	switch {
	case err != nil || result == undecided:
		s.grants.restore(h, g, holds)
		return 0, s.unlockError(h, result, votes, err)
	case result == conflict:
		return s.unlockDisputed(ctx, h, r, g, holds, votes)
	case r.Fence == 0 && countKind(votes, duplicate) >= s.quorum: // what this proxy remembers was over, and the owner may have another
		return s.unlockForeign(ctx, h, r)
	case result != applied: // perhaps it was given back, or taken anew, through another proxy
		return s.unlockForeign(ctx, h, r)
	}
	n := s.countLeft(ctx, h, g, left, votes)
	if r.All && n > 0 { // granted through other proxies
		if rest, err := s.unlockForeign(ctx, h, r); err == nil {
			return rest, nil
		}
	}
	return n, nil
}

// unlockDisputed goes on where this UNLOCK gave back another hold before, or another UNLOCK this one, through
// another proxy.
func (s *Service) unlockDisputed(ctx context.Context, h holder, r UnlockRequest, g grant, holds []string, votes []vote) (holdsLeft int, err error) {
	beaten := slices.ContainsFunc(votes, func(v vote) bool { return v.otherRelease != "" })
	if !beaten {
		s.grants.restore(h, g, holds)
	}
	if s.grants.invalidate(h); beaten && !s.mayGiveAnother(votes, conflict, holds, r) {
		return 0, s.unlockError(h, conflict, votes, nil)
	}
	return s.unlockForeign(ctx, h, r)
}

// countLeft is how many holds the owner has after a release; left are those that this proxy knew of.
func (s *Service) countLeft(ctx context.Context, h holder, g grant, left []hold, votes []vote) int {
	n := countHolds(holdIDs(left))
	if counted := s.holdsLeft(votes); counted > n || g.partial {
		n = counted
	}
	if leftNothing(votes, h.owner) >= s.quorum { // other holds were given back through other proxies
		n = 0
	}
	return s.surelyLeft(ctx, h, votes, n)
}

// countReads are the reads of a count of holds on which the nodes disagree.
const countReads = 5

// surelyLeft is left, unless that is none while some node still shows a hold: a LOCK through another proxy may
// have been granted whose hold has not reached every node that voted here. Then the nodes are asked until a
// quorum agrees; if none does, the owner is taken to have the hold that was seen.
func (s *Service) surelyLeft(ctx context.Context, h holder, votes []vote, left int) int {
	shows := func(v vote) bool { return (v.kind == yes || v.kind == duplicate) && v.holds > 0 }
	if left > 0 || !slices.ContainsFunc(votes, shows) || leftNothing(votes, h.owner) >= s.quorum {
		return left
	}
	has := func(v *vote) bool { return v.kind == yes && v.owner == h.owner }
	held := func(votes []vote) int {
		return qth(votes, s.quorum, has, func(v *vote) int { return countHolds(v.read.live()) })
	}
	none := func(votes []vote) bool {
		_, n := most(votes, func(v *vote) (bool, bool) { return true, v.kind == yes && v.owner != h.owner })
		return n >= s.quorum
	}
	votes, _, err := s.readUntil(ctx, h, s.opts.timeouts(s.opts.MaxTTL), "", countReads, linear, func(votes []vote) bool {
		return held(votes) > 0 || none(votes)
	})
	switch {
	case err != nil:
	case held(votes) > 0:
		return held(votes)
	case none(votes):
		return 0
	}
	return 1
}

// leftNothing counts the nodes on which the owner has no hold any more.
func leftNothing(votes []vote, owner string) (n int) {
	for i := range votes {
		switch v := &votes[i]; {
		case (v.kind == yes || v.kind == duplicate) && v.holds == 0, v.kind == no && v.owner != owner:
			n++
		}
	}
	return n
}

// holdsLeft is how many holds the owner has left, as a quorum that removed one
// counts them, or the node with most where fewer than a quorum had one to remove.
func (s *Service) holdsLeft(votes []vote) int {
	removed := func(v *vote) bool { return v.kind == yes || v.kind == duplicate }
	n := 0
	for i := range votes {
		if removed(&votes[i]) {
			n++
		}
	}
	return qthHolds(votes, max(1, min(n, s.quorum)), removed)
}

// release removes holds of a grant on all nodes; left are the holds that stay. valid reports that the validity
// which this proxy granted or renewed runs for every one of these holds: of another hold that says nothing,
// since it may have been given back elsewhere, and neither does a read. Without it only the holds themselves
// count, see releaseOutcome. tag is that of the UNLOCK, if it has a Req; a node that has done it with another
// hold disputes this one.
//
// Where what stays ends earlier than what is given back, the lease is shortened, as by a renewal: a quorum
// notes it first. Else an UNLOCK through another proxy, which knows the later end, could succeed after a
// rival's grant.
func (s *Service) release(ctx context.Context, h holder, g grant, ids []string, left []hold, valid bool, tag string) ([]vote, outcome, error) {
	limits := s.opts.timeouts(s.opts.MaxTTL)
	if len(left) > 0 && lastEnd(left) < g.untilOf(ids) {
		noted, err := s.noteShortening(ctx, h, g.fence, limits)
		if err != nil || countKind(noted, yes) < s.quorum {
			return noted, undecided, err
		}
	}
	fence, how := int64(0), "strict"
	if valid {
		fence, how = g.fence, "unlock"
	}
	j := func(how string) scriptCall { return s.unlockJob(h, g, ids, left, how, tag) }
	enough := func(v []vote) bool { return releaseOutcome(v, s.quorum, false, h.owner, fence) != pending }
	var round *round
	if valid && len(left) == 0 && !g.partial {
		round = s.releaseAndHandOver(h.Key, j, enough)
	} else {
		round = s.ask(askRelease, j(how), enough)
		s.waiting.Wake(h.Key) // an acquisition given to the nodes from now on runs behind the release
	}
	err := round.wait(ctx, limits)
	votes := round.close(false, nil)
	s.noteListeners(h.Key, votes)
	result := releaseOutcome(votes, s.quorum, true, h.owner, fence)
	s.ended(round, votes, endOfOutcome(err, result))
	return votes, result, err
}

// unlockJob is releaseJob for the owner. A node that did this UNLOCK before, with another hold, disputes it.
func (s *Service) unlockJob(h holder, g grant, ids []string, left []hold, how, tag string) scriptCall {
	j := s.releaseJob(s.redisKeys(h.Key), h.owner, g, how, tag, ids, left)
	j.parse = func(m []rueidis.RedisMessage) (vote, error) {
		v, err := parseRelease(m)
		if v.hold != "" && requestOf(v.hold) != requestOf(ids[0]) {
			v.kind = versionConflict
		}
		return v, err
	}
	return j
}

// unlockError is the error of a release that was not applied.
func (s *Service) unlockError(h holder, result outcome, votes []vote, err error) error {
	switch {
	case err != nil:
		return err
	case result == otherOwner:
		return &NotOwnerError{Remaining: s.otherOwnersRest(votes, h.owner)}
	case result == lost:
		return ErrLost
	}
	return s.quorumError("UNLOCK", h.Name, votes)
}

// mayGiveAnother reports whether an UNLOCK that did not give these holds back may read again and give back
// what it finds, so that no UNLOCK gives back two: the holds are those of its own request, or one other
// release gave them back at a quorum. Where several others did so at one node each, all have failed, though
// the hold is gone.
func (s *Service) mayGiveAnother(votes []vote, result outcome, ids []string, r UnlockRequest) bool {
	if result != conflict && result != lost {
		return false
	}
	if r.Req != "" && holdTag(ids[0]) == r.tag() {
		return true
	}
	_, n := most(votes, func(v *vote) (string, bool) { return v.otherRelease, v.otherRelease != "" })
	return n >= s.quorum
}

// unlockForeign gives back a grant that another proxy made, or of which this one does not know all, after
// reading it from a quorum.
func (s *Service) unlockForeign(ctx context.Context, h holder, r UnlockRequest) (holdsLeft int, err error) {
	stopped := s.retry(ctx, func() (again bool) {
		holdsLeft, again, err = s.unlockRead(ctx, h, r)
		return again
	})
	if stopped != nil {
		return 0, stopped
	}
	return holdsLeft, err
}

// unlockRead is one try of unlockForeign. retry reports that the nodes no longer had what was read, and
// another try may succeed; err is the answer if there is none.
func (s *Service) unlockRead(ctx context.Context, h holder, r UnlockRequest) (holdsLeft int, retry bool, err error) {
	votes, began, err := s.readAgreed(ctx, h, s.opts.timeouts(s.opts.MaxTTL), r.tag())
	if err != nil {
		return 0, false, err
	}
	g, result := s.readGrant(votes, h, r.Fence, began)
	// A request that was granted anew, after its first lease had ended, has holds again.
	anew := r.Req != "" && slices.ContainsFunc(holdIDs(g.holds), hasTag(r.tag()))
	if !anew && slices.ContainsFunc(votes, func(v vote) bool { return didUnlock(&v) }) {
		holdsLeft, err = s.finishUnlock(ctx, h, r, g, votes)
		return holdsLeft, false, err
	}
	if result != applied && s.releasedBefore(votes, h.owner, r.Fence) {
		return 0, false, nil
	}
	if result != applied {
		return 0, false, s.unlockError(h, result, votes, nil)
	}
	holds := holdsOfRequest(r.tag(), holdIDs(g.holds))
	if r.All {
		holds = everyHold(votes, h.owner)
	}
	s.keepalive.drop(h, holds...)
	left := withoutRequests(s.everyEnd(votes, h.owner, g.fence, began), holds)
	votes, result, err = s.release(ctx, h, g, holds, left, false, r.tag())
	if err != nil || result != applied {
		return 0, err == nil && s.mayGiveAnother(votes, result, holds, r), s.unlockError(h, result, votes, err)
	}
	s.dropHolds(h, holds...)
	s.grants.invalidate(h)
	return s.surelyLeft(ctx, h, votes, s.holdsLeft(votes)), false, nil
}

// releasedBefore reports whether a quorum remembers that the grant last released
// was this owner's, and the one with this fence; 0 stands for the owner's last grant.
func (s *Service) releasedBefore(votes []vote, owner string, fence int64) bool {
	_, n := most(votes, func(v *vote) (int64, bool) {
		if v.read == nil || v.read.lastOwner != owner {
			return 0, false
		}
		return v.read.lastFence, fence == v.read.lastFence || (fence == 0 && !v.read.since)
	})
	return n >= s.quorum
}

// everyEnd is every hold of the owner's grant that any node has in a read that began at the
// given time, with the earliest end that a node gives it.
func (s *Service) everyEnd(votes []vote, owner string, fence int64, began time.Duration) (holds []hold) {
	for i := range votes {
		v := &votes[i]
		if f, ok := vouchedFence(v, owner); !ok || f != fence {
			continue
		}
		for _, h := range v.read.holds {
			end := began + h.rest - drift(h.rest)
			at := slices.IndexFunc(holds, func(o hold) bool { return o.id == h.id })
			if at < 0 {
				holds = append(holds, hold{h.id, end})
			} else {
				holds[at].until = min(holds[at].until, end)
			}
		}
	}
	return holds
}

// everyHold is every hold of the owner that any node has.
func everyHold(votes []vote, owner string) []string {
	seen := map[string]bool{}
	var ids []string
	for _, v := range votes {
		if v.read == nil || v.owner != owner {
			continue
		}
		for _, h := range v.read.holds {
			if !seen[h.id] {
				seen[h.id] = true
				ids = append(ids, h.id)
			}
		}
	}
	return ids
}
