package quorum

import (
	"context"
	"slices"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/holdid"
	"github.com/lockproxy/lockproxy/backends/locks/tally"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/backends/locks/voters"
)

// An unlockRequest is an UNLOCK, and how the nodes know it.
type unlockRequest struct {
	locks.UnlockRequest
	holder locks.Holder
	tag    string // of its request; empty: it has no id
}

// Release implements locks.Store. No other Release with the same Req may be under way here.
func (s *Store) Release(ctx context.Context, r locks.UnlockRequest) (holdsLeft int, err error) {
	if err := s.set.AcquireSlot(ctx); err != nil {
		return 0, err
	}
	defer s.set.ReleaseSlot()
	u := unlockRequest{UnlockRequest: r, holder: locks.Holder{Key: r.Key, Owner: r.Owner}}
	u.tag = tagOf(u.holder, r.Req)
	// What an UNLOCK with an id gives back may be decided already. With All it is decided in one step, so holds granted through other
	// proxies have to be known before: the answer to a second step would be that this UNLOCK was done.
	if u.tag != "" && (u.All || !s.grants.hasRequest(u.holder, u.tag)) {
		return s.unlockAfterRead(ctx, u)
	}
	g, holds, left, ok := s.popHolds(&u)
	if !ok {
		return s.unlockAfterRead(ctx, u)
	}
	return s.unlockKnown(ctx, u, g, holds, left)
}

// unlockKnown gives back holds of a grant that this proxy remembers; left are the others.
func (s *Store) unlockKnown(ctx context.Context, u unlockRequest, g grant, holds []string, left []hold) (holdsLeft int, err error) {
	how := "strict"
	if g.firstEnd(holds) > s.Now() {
		how = "unlock"
	}
	votes, result, err := s.release(ctx, holdRelease{holder: u.holder, grant: g, how: how, request: u.tag, ids: holds, left: left})
	if err != nil || result == tally.Undecided {
		s.grants.restore(u.holder, g, holds)
		if err == nil && u.Fence == 0 && tally.HasLater(votes, u.Owner, g.fence) {
			if u.Fence = s.laterFence(ctx, u.holder, g.fence); u.Fence != 0 {
				s.grants.invalidate(u.holder)
				return s.unlockAfterRead(ctx, u)
			}
		}
		return 0, s.unlockError(u.holder, result, votes, err)
	}
	if result != tally.Conflict && len(holds) == len(g.holds) {
		s.grants.observeEnd(&g)
	}
	switch {
	// Without a fence it is about what the owner has now, which may be a later grant than the one that is remembered here.
	case u.Once && doneBefore(votes, u.tag) && (u.Fence != 0 || result == tally.Applied && !s.mayHaveAnother(votes)):
		s.grants.invalidate(u.holder)
		return 0, locks.ErrLost
	case result == tally.Conflict:
		return s.unlockDisputed(ctx, u, g, holds, votes)
	case u.Fence == 0 && s.mayHaveAnother(votes), u.tag == "" && tally.LostToRival(votes, s.set.Quorum, u.Owner),
		result != tally.Applied: // perhaps it was given back, or taken anew, through another proxy
		return s.unlockAfterRead(ctx, u)
	}
	n := s.countLeft(ctx, u.holder, g, left, votes)
	if u.All && n > 0 { // granted through other proxies
		if rest, err := s.unlockAfterRead(ctx, u); err == nil {
			return rest, nil
		}
	}
	return n, nil
}

// laterFence is the fence of a later grant of the owner; 0: no quorum has one. A single node may only have numbered this one
// otherwise, and then the UNLOCK may be done by a node that is late: it must not give back another hold.
func (s *Store) laterFence(ctx context.Context, h locks.Holder, fence int64) int64 {
	votes, _, err := s.readAgreed(ctx, question{holder: h})
	if owner, _, later, who := tally.OwnerBy(votes, s.set.Quorum); err == nil && who == tally.HeldByOne && owner == h.Owner && later > fence {
		return later
	}
	return 0
}

// doneBefore reports whether the grant was released before by another UNLOCK; one with the same Req is this very one.
// A quorum did the earlier release, so at least one of its nodes votes on this one: it remembers that release, or
// the release of a later grant, or that it was to release a hold that it did not have.
func doneBefore(votes []vote.Vote, tag string) bool {
	return slices.ContainsFunc(votes, func(v vote.Vote) bool {
		return v.Release.TooLate || v.Kind == vote.Duplicate && (tag == "" || v.Release.Hold == "")
	})
}

// mayHaveAnother reports whether another UNLOCK gave back before what was given back now, so that the owner may have another
// grant: a quorum says so, or a node at which the owner has one. The others may have been late for that UNLOCK, and had the
// hold until now; but what a quorum has removed now, no other UNLOCK has given back.
func (s *Store) mayHaveAnother(votes []vote.Vote) bool {
	return vote.CountKind(votes, vote.Duplicate) >= s.set.Quorum ||
		!s.set.Agree(votes) && slices.ContainsFunc(votes, func(v vote.Vote) bool { return v.Release.Since })
}

// unlockDisputed goes on after a conflict: through another proxy, this UNLOCK gave back another hold before, or
// another UNLOCK gave back this hold.
func (s *Store) unlockDisputed(ctx context.Context, u unlockRequest, g grant, holds []string, votes []vote.Vote) (holdsLeft int, err error) {
	beaten := slices.ContainsFunc(votes, func(v vote.Vote) bool { return v.Release.Other != "" })
	if !beaten {
		s.grants.restore(u.holder, g, holds)
	}
	if s.grants.invalidate(u.holder); beaten && !s.mayGiveAnother(votes, tally.Conflict, holds, u.tag) {
		return 0, s.unlockError(u.holder, tally.Conflict, votes, nil)
	}
	return s.unlockAfterRead(ctx, u)
}

// countLeft is how many holds the owner has after a release; left are those that this proxy knew of.
func (s *Store) countLeft(ctx context.Context, h locks.Holder, g grant, left []hold, votes []vote.Vote) int {
	n := holdid.Count(holdIDs(left))
	if counted := s.holdsLeft(votes); counted > n || g.partial {
		n = counted
	}
	if tally.LeftNothing(votes, h.Owner) >= s.set.Quorum { // other holds were given back through other proxies
		n = 0
	}
	return s.confirmLeft(ctx, h, votes, n)
}

// confirmLeft returns left, but checks a 0 if some node still shows a hold: a LOCK through another proxy may have
// been granted whose hold has not reached every node that voted here. Then the nodes are asked until a quorum
// agrees; if none does, the owner is taken to have the hold that was seen.
func (s *Store) confirmLeft(ctx context.Context, h locks.Holder, votes []vote.Vote, left int) int {
	shows := func(v vote.Vote) bool { return (v.Kind == vote.Yes || v.Kind == vote.Duplicate) && v.Holds != 0 }
	if left > 0 || !slices.ContainsFunc(votes, shows) || tally.LeftNothing(votes, h.Owner) >= s.set.Quorum {
		return left
	}
	has := func(v *vote.Vote) bool { return v.Kind == vote.Yes && v.Owner == h.Owner }
	held := func(votes []vote.Vote) int {
		return tally.Qth(votes, s.set.Quorum, has, func(v *vote.Vote) int { return holdid.Count(v.Read.Live()) })
	}
	none := func(votes []vote.Vote) bool {
		_, n := tally.Most(votes, func(v *vote.Vote) (bool, bool) { return true, v.Kind == vote.Yes && v.Owner != h.Owner })
		return n >= s.set.Quorum
	}
	votes, _, err := s.readUntil(ctx, question{holder: h}, untilStable, func(votes []vote.Vote) bool {
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

// holdsLeft is how many holds the owner has left, as a quorum that removed one counts them, see leftBy.
func (s *Store) holdsLeft(votes []vote.Vote) int {
	return s.leftBy(votes, func(v *vote.Vote) int { return v.Holds }, func(v *vote.Vote) bool {
		return v.Kind == vote.Yes || v.Kind == vote.Duplicate
	})
}

// leftBy is how many holds are left, as counted by a quorum of the nodes that match, or by all of them if they are
// fewer. Nodes that have the holds under another fence do not count: they may lack some.
func (s *Store) leftBy(votes []vote.Vote, left func(*vote.Vote) int, match func(*vote.Vote) bool) int {
	counts := func(v *vote.Vote) bool { return match(v) && left(v) != vote.UnknownHolds }
	n := 0
	for i := range votes {
		if counts(&votes[i]) {
			n++
		}
	}
	return tally.Qth(votes, max(1, min(n, s.set.Quorum)), counts, left)
}

// release has the nodes do a release for an UNLOCK. how is "unlock" if every one of these holds is still valid by this proxy's own grant or
// renewal. A read does not prove that, nor does the validity of another hold, since this one may have been given back elsewhere. Otherwise
// only nodes that had the holds count, see tally.Release. If the UNLOCK has a Req, a node that did it before with another hold disputes
// this.
//
// If the holds that stay end earlier than those given back, the release shortens the lease, as a renewal may, and a
// quorum notes that first. Else an UNLOCK through another proxy, which knows the later end, could succeed after a
// rival's grant.
func (s *Store) release(ctx context.Context, r holdRelease) ([]vote.Vote, tally.Outcome, error) {
	h, limits := r.holder, s.set.Opts.Timeouts(s.set.Opts.MaxTTL)
	if len(r.left) > 0 && lastEnd(r.left) < r.grant.untilOf(r.ids) {
		noted, err := s.noteShortening(ctx, h, r.grant.fence, limits)
		if err != nil || !s.set.Agree(noted) {
			return noted, tally.Undecided, err
		}
	}
	fence, valid := int64(0), r.how == "unlock"
	if valid {
		fence = r.grant.fence
	}
	r.lease = s.leaseOf(r.grant)
	enough := func(v []vote.Vote) bool {
		return tally.Release(v, s.set.Quorum, tally.Running, h.Owner, fence) != tally.Pending
	}
	var round *voters.Round
	if valid && len(r.left) == 0 && !r.grant.partial && h.Reader == "" {
		round = s.releaseAndHandOver(r, enough)
	} else {
		round = s.askRelease(r, s.unlockCall(r), enough)
	}
	err := round.Wait(ctx, limits)
	votes := s.closeRelease(round, &r)
	s.noteListeners(h.Key, votes)
	result := tally.Release(votes, s.set.Quorum, tally.Over, h.Owner, fence)
	s.set.Ended(round, votes, tally.EndOf(err, result))
	return votes, result, err
}

// closeRelease closes the round of a release. A node that had not got the grant makes one of its own for a LOCK that is sent again
// through another proxy: where the request is over, its holds there are undone.
func (s *Store) closeRelease(round *voters.Round, r *holdRelease) []vote.Vote {
	over := false
	if slices.ContainsFunc(r.ids, func(id string) bool { return holdid.Tag(id) != "" }) {
		round.Look(func(votes []vote.Vote) { over = tally.RequestOver(votes, s.set.Quorum) })
	}
	if !over {
		return round.Close(false, nil)
	}
	return round.CloseEach(false, func(i int, v vote.Vote) {
		if len(v.Release.Strays) > 0 {
			s.set.Members[i].Push(s.releaseCall(holdRelease{holder: r.holder, lease: v.Rest, how: "undo", ids: v.Release.Strays}))
		}
	})
}

// unlockCall is releaseCall for the owner. If a node did this UNLOCK before, with another hold, its vote is a conflict.
func (s *Store) unlockCall(r holdRelease) voters.ScriptCall {
	call := s.releaseCall(r)
	call.Parse = func(m []rueidis.RedisMessage) (vote.Vote, error) {
		v, err := vote.ParseRelease(m)
		if v.Release.Hold != "" && holdid.RequestOf(v.Release.Hold) != holdid.RequestOf(r.ids[0]) {
			v.Kind = vote.VersionConflict
		}
		return v, err
	}
	return call
}

// unlockError is the error of a release that was not applied.
func (s *Store) unlockError(h locks.Holder, result tally.Outcome, votes []vote.Vote, err error) error {
	switch {
	case err != nil:
		return err
	case result == tally.OtherOwner:
		return &locks.NotOwnerError{Remaining: s.otherOwnersRest(votes, h.Owner)}
	case result == tally.Lost, result == tally.Conflict && slices.ContainsFunc(votes, requestOver):
		return locks.ErrLost
	}
	return s.set.QuorumError("UNLOCK", h.Name, votes)
}

// requestOver reports whether a node refused to give back this hold since the one of the UNLOCK's request was given back there.
func requestOver(v vote.Vote) bool { return v.Kind == vote.VersionConflict && v.Release.TooLate }

// mayGiveAnother reports whether an UNLOCK that did not give these holds back may read again and give back what it
// finds. Since no UNLOCK may give back two holds, it may only if the holds are those of its own request, or if one
// other release gave them back at a quorum. If several others did so at one node each, all of them fail, though the
// hold is gone.
func (s *Store) mayGiveAnother(votes []vote.Vote, result tally.Outcome, ids []string, tag string) bool {
	if result != tally.Conflict && result != tally.Lost {
		return false
	}
	if tag != "" && holdid.Tag(ids[0]) == tag {
		return true
	}
	_, n := tally.GivenBackBy(votes)
	return n >= s.set.Quorum
}

// unlockAfterRead gives back a grant that another proxy made, or that this one does not know in full, after reading it
// from a quorum.
func (s *Store) unlockAfterRead(ctx context.Context, u unlockRequest) (holdsLeft int, err error) {
	err = s.retry(ctx, func() (again bool, err error) {
		holdsLeft, again, err = s.tryUnlockAfterRead(ctx, u)
		return again, err
	})
	return holdsLeft, err
}

// tryUnlockAfterRead is one try of unlockAfterRead. retry reports that the nodes no longer had what was read, and
// another try may succeed; err is the answer if there is none.
func (s *Store) tryUnlockAfterRead(ctx context.Context, u unlockRequest) (holdsLeft int, retry bool, err error) {
	votes, began, err := s.readAgreed(ctx, question{holder: u.holder, tag: u.tag})
	if err != nil {
		return 0, false, err
	}
	g, result := s.readGrant(votes, u.holder, u.Fence, began)
	under := g.fence // the fence of the holds that may be given back; 0: any
	if result == tally.Undecided && u.Fence == 0 && tally.BetweenRounds(votes, s.set.Quorum, u.Owner) {
		if g.holds = s.commonHolds(votes, u.Owner, under, began); len(g.holds) > 0 { // a re-entry on other nodes was given back
			g.fence, result = tally.LargestFence(votes, u.Owner), tally.Applied
		}
	}
	// A request that was granted anew, after its first lease had ended, has holds again.
	anew := u.tag != "" && slices.ContainsFunc(holdIDs(g.holds), holdid.HasTag(u.tag))
	switch {
	case !anew && slices.ContainsFunc(votes, func(v vote.Vote) bool { return v.DidUnlock() }):
		holdsLeft, err = s.finishUnlock(ctx, u, g, votes)
		return holdsLeft, false, err
	case result != tally.Applied:
		holdsLeft, err = s.unlockNotRead(ctx, u, result, votes)
		return holdsLeft, false, err
	}
	holds, left := s.toGiveBack(&u, g, under, votes, began)
	s.host.Keepalive.Drop(u.holder, holds...)
	votes, result, err = s.release(ctx, holdRelease{holder: u.holder, grant: g, how: "strict", request: u.tag, ids: holds, left: left})
	if err != nil || result != tally.Applied {
		return 0, err == nil && s.mayGiveAnother(votes, result, holds, u.tag), s.unlockError(u.holder, result, votes, err)
	}
	if u.Once && doneBefore(votes, u.tag) {
		return 0, false, locks.ErrLost
	}
	s.dropHolds(u.holder, holds...)
	s.grants.invalidate(u.holder)
	return s.confirmLeft(ctx, u.holder, votes, s.holdsLeft(votes)), false, nil
}

// unlockNotRead is the answer to an UNLOCK where a read, with this result, has not found the grant.
func (s *Store) unlockNotRead(ctx context.Context, u unlockRequest, result tally.Outcome, votes []vote.Vote) (holdsLeft int, err error) {
	if s.releasedBefore(votes, u.Owner, u.Fence) {
		if u.Once {
			return 0, locks.ErrLost
		}
		return 0, nil
	}
	if result == tally.Undecided && u.tag != "" && s.set.Agree(votes) { // none of which has done this UNLOCK
		if known, holds, left, ok := s.popHolds(&u); ok {
			return s.unlockKnown(ctx, u, known, holds, left)
		}
	}
	if result == tally.Lost && s.keptUnvouched(votes, u.Owner, u.Fence) {
		if _, err := s.takeAway(ctx, u.holder, takingOf(votes, u.Owner)); err != nil {
			return 0, err
		}
	}
	return 0, s.orReads(ctx, u.holder, votes, s.unlockError(u.holder, result, votes, nil))
}

// toGiveBack are the holds that an UNLOCK gives back of a grant that was read, and those that stay; under is the fence of these, 0: any.
func (s *Store) toGiveBack(u *unlockRequest, g grant, under int64, votes []vote.Vote, began time.Duration) (ids []string, left []hold) {
	ids = holdIDs(g.holds)
	if u.tag != "" && !slices.ContainsFunc(ids, holdid.HasTag(u.tag)) { // a node that has its hold may be silent: then no other is given back in its place
		maybe := holdIDs(s.possibleHolds(votes, u.Owner, under, began))
		ids = append(ids, slices.DeleteFunc(maybe, func(id string) bool { return holdid.Tag(id) != u.tag })...)
	}
	ids = holdid.OfRequest(u.tag, ids)
	if u.All {
		ids = tally.EveryHold(votes, u.Owner)
	}
	every := s.everyEnd(votes, u.Owner, under, began)
	return ids, without(every, ofRequests(every, ids))
}

// keptUnvouched reports whether a quorum has exactly one hold of the owner, without an end, for which no quorum vouches,
// since nodes have lost it and got it back from a renewal. If it were not removed, proxies would renew it until max-hold.
func (s *Store) keptUnvouched(votes []vote.Vote, owner string, fence int64) bool {
	has, _, agreed, who := tally.OwnerBy(votes, s.set.Quorum)
	return who == tally.HeldByOne && has == owner && (fence == 0 || fence == agreed) && s.openness(votes, owner, agreed) == isWithoutEnd &&
		len(tally.EveryHold(votes, owner)) == 1
}

// releasedBefore reports whether a quorum remembers that the grant last released
// was this owner's, and the one with this fence; 0 stands for the owner's last grant.
func (s *Store) releasedBefore(votes []vote.Vote, owner string, fence int64) bool {
	_, n := tally.Most(votes, func(v *vote.Vote) (int64, bool) {
		if v.Read == nil || v.Read.LastOwner != owner {
			return 0, false
		}
		return v.Read.LastFence, fence == v.Read.LastFence || (fence == 0 && !v.Read.Since)
	})
	return n >= s.set.Quorum
}

// everyEnd are the holds of the owner's grant that any node has in a read that began at the
// given time, each with the earliest end that a node gives it.
func (s *Store) everyEnd(votes []vote.Vote, owner string, fence int64, began time.Duration) (holds []hold) {
	for i := range votes {
		v := &votes[i]
		if !tally.Vouches(v, owner, fence) {
			continue
		}
		for _, h := range v.Read.Holds {
			end := began + h.Rest - locks.Drift(h.Rest)
			at := slices.IndexFunc(holds, func(o hold) bool { return o.id == h.ID })
			if at < 0 {
				holds = append(holds, hold{h.ID, end})
			} else {
				holds[at].until = min(holds[at].until, end)
			}
		}
	}
	return holds
}

// finishUnlock ends an UNLOCK that some nodes have done before, as a read has shown: it gives back the same hold on the
// other nodes, and repeats the answer. current is the owner's grant, if the read found one.
func (s *Store) finishUnlock(ctx context.Context, u unlockRequest, current grant, votes []vote.Vote) (holdsLeft int, err error) {
	as, n := tally.Most(votes, func(v *vote.Vote) (string, bool) {
		if !v.DidUnlock() {
			return "", false
		}
		return holdid.RequestOf(v.Read.Unlock.Hold), true
	})
	s.counters.repeats.Add(1)
	same := func(v *vote.Vote) bool { return v.DidUnlock() && holdid.RequestOf(v.Read.Unlock.Hold) == as }
	left := s.leftBy(votes, func(v *vote.Vote) int { return v.Read.Unlock.Left }, same)
	done := votes[slices.IndexFunc(votes, func(v vote.Vote) bool { return same(&v) })].Read.Unlock
	if n == len(votes) {
		s.dropHolds(u.holder, ofRequests(s.grants.lookup(u.holder).holds, []string{done.Hold})...)
		return left, nil
	}
	g := grant{fence: done.Fence}
	if current.fence == done.Fence {
		g.id = current.id
	}
	ids := []string{done.Hold}
	if u.All {
		ids = append(ids, tally.HoldsUnder(votes, u.Owner, g.fence)...)
	}
	votes, result, err := s.release(ctx, holdRelease{holder: u.holder, grant: g, how: "finish", request: u.tag, ids: ids})
	if n < s.set.Quorum && (err != nil || result != tally.Applied) {
		return 0, s.unlockError(u.holder, result, votes, err)
	}
	s.dropHolds(u.holder, ofRequests(s.grants.lookup(u.holder).holds, ids)...)
	s.grants.invalidate(u.holder)
	if n < s.set.Quorum {
		left = s.holdsLeft(votes)
	}
	return s.confirmLeft(ctx, u.holder, votes, left), nil
}

// tagOf is the tag of a request, empty if it has no id.
func tagOf(h locks.Holder, req string) string {
	if req == "" {
		return ""
	}
	return holdid.TagOf(h, req)
}
