package locks

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/scripts"
)

// conflictRetries is how often a RENEW or UNLOCK that reads is tried again where the grant changed between
// reading and changing it: a session at another proxy renewed it, say, or another UNLOCK took the hold.
const conflictRetries = 5

// retry calls do, and again while it asks for that, after a random pause, conflictRetries times at most. The
// error is that of ctx.
func (s *Service) retry(ctx context.Context, do func() (again bool)) error {
	for try := 0; do() && try < conflictRetries; try++ {
		if err := sleep(ctx, s.opts.random.upTo(splitWindow<<try)); err != nil {
			return err
		}
	}
	return nil
}

// Renew lets the lease end TTL from now, also earlier than it would have, and
// returns its validity. It never creates a lock. Errors are ErrLost,
// *NotOwnerError, *QuorumError or that of ctx.
func (s *Service) Renew(ctx context.Context, r RenewRequest) (validity time.Duration, err error) {
	defer func() { s.counters.failed(err) }()
	if err := s.checkTTL(r.TTL); err != nil {
		return 0, err
	}
	if err := s.acquireSlot(ctx); err != nil {
		return 0, err
	}
	defer s.releaseSlot()
	h := holder{r.Key, r.Owner}
	s.keepalive.setTTL(h, r.Fence, r.TTL)
	validity, err = s.renew(ctx, h, r)
	notOwner := (*NotOwnerError)(nil)
	s.keepalive.recheck(h, errors.Is(err, ErrLost) || errors.As(err, &notOwner))
	return validity, err
}

// renew is Renew of a valid request, with a slot.
func (s *Service) renew(ctx context.Context, h holder, r RenewRequest) (time.Duration, error) {
	spared, end := s.inflight.startRenewal(h)
	defer end()
	now, fence := s.now(), r.Fence
	if fence == 0 {
		fence = s.grants.lookup(h).fence
	}
	g, shorter, ok := s.grants.beginRenewal(h, r.Fence, now, now+r.TTL-drift(r.TTL))
	if ok {
		until, result, votes, err := s.renewal(ctx, h, r.TTL, g, nil, changeOf(shorter))
		if err == nil && result == applied {
			return s.grants.endRenewal(h, g, until) - s.now(), nil
		}
		if err != nil || result != conflict && result != lost { // gone: perhaps granted anew through another proxy
			return 0, s.renewError(h, fence, result, votes, err)
		}
		s.grants.invalidate(h)
	}
	var validity time.Duration
	var result outcome
	var votes []vote
	var err error
	stopped := s.retry(ctx, func() (again bool) {
		validity, result, votes, err = s.renewForeign(ctx, h, r, spared)
		return err == nil && result == conflict
	})
	if stopped != nil {
		err = stopped
	}
	return validity, s.renewError(h, fence, result, votes, err)
}

// renewError is the error of a renewal of the grant with this fence, nil if it was applied.
func (s *Service) renewError(h holder, fence int64, result outcome, votes []vote, err error) error {
	if err != nil {
		return err
	}
	switch result {
	case applied:
		return nil
	case otherOwner:
		s.grants.forgetGrant(h, fence)
		return &NotOwnerError{Remaining: s.otherOwnersRest(votes, h.owner)}
	case lost:
		s.grants.forgetGrant(h, fence)
		return ErrLost
	}
	if needsRepair(votes) {
		s.requestProbe()
	}
	return s.quorumError("RENEW", h.Name, votes)
}

// A leaseChange is what a renewal may do to the end of a lease.
type leaseChange uint8

const (
	lengthens leaseChange = iota // to a later one, as far as this proxy knows
	shortens                     // to one that is, or may be, earlier: noted by a quorum before it is sent
	grows                        // never to an earlier one: a renewal for a session, for which the owner did not ask
)

// changeOf is the change of a renewal that an owner asked for.
func changeOf(shorter bool) leaseChange {
	if shorter {
		return shortens
	}
	return lengthens
}

// renewal asks the nodes to renew the holds of a grant. base, if not nil, is the version to replace on each
// node; nodes without one are not asked, and nothing is reinstated. The result is applied, and until the end
// of the new validity, only if the votes came before the old validity ended and the new one has not.
func (s *Service) renewal(ctx context.Context, h holder, ttl time.Duration, g grant, base []string, how leaseChange) (until time.Duration, result outcome, votes []vote, err error) {
	if how == shortens {
		if votes, err = s.noteShortening(ctx, h, g.fence, s.opts.timeouts(ttl)); err != nil || countKind(votes, yes) < s.quorum {
			return 0, undecided, votes, err
		}
	}
	began := s.now()
	if err := ctx.Err(); err != nil { // a caller that gave up must not be renewed any more
		return 0, undecided, nil, err
	}
	if began >= g.until() {
		return 0, lost, nil, nil
	}
	if votes, result, err = s.renewNodes(ctx, h, ttl, g, base, how, began); votes == nil {
		return 0, undecided, nil, err
	}
	until = began + ttl - drift(ttl)
	if now := s.now(); result == applied && (now >= g.until() || now >= until) {
		result = lost
	}
	if how == grows && !anyNoted(votes) {
		until = max(until, g.until())
	}
	if err == nil && result == applied {
		s.counters.renewals.Add(1)
	}
	return until, result, votes, err
}

// renewNodes is the round of a renewal, and the reinstating where it has to wait for that. Without votes the
// round was not decided, and err is that of ctx.
func (s *Service) renewNodes(ctx context.Context, h holder, ttl time.Duration, g grant, base []string, how leaseChange, began time.Duration) ([]vote, outcome, error) {
	call := func(base, repair string) *scriptCall { return s.renewJob(h, ttl, g, base, repair, how, began) }
	votes, result, err := s.renewRound(ctx, h, ttl, func(i int) *scriptCall {
		switch {
		case base == nil:
			return call("", "0")
		case base[i] == "":
			return nil
		}
		return call(base[i], "0")
	}, nil, func(i int, v vote) {
		if base == nil && canBeReinstated(&v) {
			s.nodes[i].push(*call("", "1"))
		}
	})
	if err != nil {
		return nil, undecided, err
	}
	if base == nil && countKind(votes, yes) > 0 && ctx.Err() == nil {
		return s.repair(ctx, h, ttl, call("", "1"), votes, result)
	}
	return votes, result, nil
}

// anyNoted reports whether a node has a note that the lease may have been shortened: then its end is known
// from the votes alone.
func anyNoted(votes []vote) bool {
	return slices.ContainsFunc(votes, func(v vote) bool { return v.noted })
}

// noteShortening has every node note that a grant may be shortened. The renewal may be sent only after a
// quorum has.
func (s *Service) noteShortening(ctx context.Context, h holder, fence int64, limits timeouts) ([]vote, error) {
	round := s.ask(askNote, scriptCall{
		args: s.command(scripts.Note, s.redisKeys(h.Key), strconv.FormatInt(fence, 10)), parse: parseDone,
		expires: s.now() + limits.quorum,
	}, func(v []vote) bool { return countKind(v, yes) >= s.quorum })
	err := round.wait(ctx, limits)
	votes := round.close(err != nil, nil)
	s.ended(round, votes, endOf(err, countKind(votes, yes) >= s.quorum))
	return votes, err
}

func (s *Service) renewJob(h holder, ttl time.Duration, g grant, base, repair string, how leaseChange, began time.Duration) *scriptCall {
	grow := "0"
	if how == grows {
		grow = "1"
	}
	args := append([]string{h.owner, ms(ttl), strconv.FormatInt(g.fence, 10), g.id, g.version.epoch,
		strconv.FormatInt(g.version.sequence, 10), base, repair, grow}, holdIDs(g.holds)...)
	return &scriptCall{
		args: s.command(scripts.Renew, s.redisKeys(h.Key), args...), parse: parseRenew,
		expires: began + 2*s.opts.timeouts(ttl).quorum, durable: true,
	}
}

// renewRound asks, and adds known votes to those that come. late, if not nil, takes votes that come after a
// quorum has applied it.
func (s *Service) renewRound(ctx context.Context, h holder, ttl time.Duration, each func(int) *scriptCall, known []vote, late func(int, vote)) ([]vote, outcome, error) {
	with := func(votes []vote) []vote {
		if known == nil {
			return votes
		}
		all := slices.Clone(votes)
		for i := range all {
			if didRenew(&known[i]) {
				all[i] = known[i]
			}
		}
		return all
	}
	round := s.askEach(askRenew, func(v []vote) bool {
		r := renewOutcome(with(v), s.quorum, false, h.owner)
		return r == applied || r == otherOwner // else one more node may know the grant, so that it may be reinstated
	}, each)
	err := round.wait(ctx, s.opts.timeouts(ttl))
	round.mu.Lock()
	if renewOutcome(with(round.votes), s.quorum, true, h.owner) != applied {
		late = nil
	}
	round.mu.Unlock()
	votes := with(round.close(err != nil, late))
	result := renewOutcome(votes, s.quorum, true, h.owner)
	s.ended(round, votes, endOfOutcome(err, result))
	return votes, result, err
}

// repair reinstates the grant where the name is free, and on nodes that may not vote, after at least one node
// has renewed it: a renewal creates nothing. It waits only if the quorum is not there without. A version that
// is there already is a repeat.
func (s *Service) repair(ctx context.Context, h holder, ttl time.Duration, j *scriptCall, votes []vote, result outcome) ([]vote, outcome, error) {
	if result == applied {
		for i, n := range s.nodes {
			if canBeReinstated(&votes[i]) {
				n.push(*j)
			}
		}
		return votes, applied, nil
	}
	again, _, err := s.renewRound(ctx, h, ttl, func(i int) *scriptCall {
		if canBeReinstated(&votes[i]) {
			return j
		}
		return nil
	}, votes, nil)
	for i := range again {
		if errors.Is(again[i].err, errNotAsked) {
			again[i] = votes[i]
		}
	}
	return again, renewOutcome(again, s.quorum, true, h.owner), err
}

// canBeReinstated reports whether a renewal found the name free, or a node that may not vote.
func canBeReinstated(v *vote) bool {
	return (v.kind == no && v.owner == "") || v.code == quarantined || v.code == floorless
}

// otherOwnersRest is what is left of another owner's lease by a quorum.
func (s *Service) otherOwnersRest(votes []vote, owner string) time.Duration {
	return qthRest(votes, s.quorum, func(v *vote) bool {
		return v.kind != silent && v.owner != "" && v.owner != owner
	})
}

// renewForeign renews a grant that another proxy made, or may have renewed since: it reads it from a quorum,
// replaces exactly the versions it read, reinstates nothing, and bounds the validity that runs by the ends it
// read. Where it may shorten the lease it leaves out the spared holds, see inflightLocks.
func (s *Service) renewForeign(ctx context.Context, h holder, r RenewRequest, spared func() []string) (validity time.Duration, result outcome, votes []vote, err error) {
	before := s.grants.lookup(h)
	votes, began, err := s.readAgreed(ctx, h, s.opts.timeouts(r.TTL), "")
	if err != nil {
		return 0, undecided, nil, err
	}
	g, result := s.readGrant(votes, h, r.Fence, began)
	if result != applied {
		return 0, result, votes, nil
	}
	common, read := g.holds, votes
	g.holds = s.possibleHolds(votes, h.owner, g.fence, began)
	shorter := slices.ContainsFunc(votes, func(v vote) bool {
		f, ok := vouchedFence(&v, h.owner)
		return ok && f == g.fence && r.TTL-drift(r.TTL) < v.rest
	})
	if before.fence == g.fence && s.now()+r.TTL-drift(r.TTL) < before.until() { // as far as this proxy knew
		shorter = true
	}
	if all := len(g.holds); shorter {
		if g.holds = without(g.holds, spared()); len(g.holds) == 0 && all > 0 {
			return 0, undecided, votes, nil
		}
	}
	g, result, votes, err = s.takeOver(ctx, h, r.TTL, g, votes, changeOf(shorter))
	if err != nil || result != applied {
		return 0, result, votes, err
	}
	validity = g.until() - s.now()
	if slices.ContainsFunc(votes, func(v vote) bool { return v.givenBack }) { // it may be one that not all have
		g.holds = slices.DeleteFunc(g.holds, func(x hold) bool { return !slices.Contains(holdIDs(common), x.id) })
	}
	for _, c := range without(common, holdIDs(g.holds)) {
		if c.until <= began { // an UNLOCK of the hold taken last means also one that has ended
			g.holds = append(g.holds, c)
		}
	}
	sortByAge(g.holds, read)
	s.grants.replace(h, before, g)
	return validity, applied, nil, nil
}

// takeOver renews a grant that was read, under an epoch of its own, and returns it as it is then.
func (s *Service) takeOver(ctx context.Context, h holder, ttl time.Duration, g grant, read []vote, how leaseChange) (grant, outcome, []vote, error) {
	g.version = version{epoch: s.opts.random.id(), sequence: 1}
	base := make([]string, len(read))
	for i := range read {
		if f, ok := vouchedFence(&read[i], h.owner); ok && f == g.fence {
			base[i] = read[i].version.expected()
		}
	}
	until, result, votes, err := s.renewal(ctx, h, ttl, g, base, how)
	if err != nil || result != applied {
		s.grants.invalidate(h)
	}
	for i := range g.holds {
		g.holds[i].until = until
	}
	return g, result, votes, err
}

// read asks every node who has the name.
func (s *Service) read(ctx context.Context, h holder, limits timeouts) ([]vote, error) {
	return s.readFor(ctx, h, limits, "")
}

// readFor also asks what was done before for the UNLOCK with this tag, if there is one.
func (s *Service) readFor(ctx context.Context, h holder, limits timeouts, tag string) ([]vote, error) {
	round := s.ask(askRead, scriptCall{
		args: s.command(scripts.Read, s.redisKeys(h.Key), tag), parse: parseRead,
		expires: s.now() + limits.quorum,
	}, all)
	err := round.wait(ctx, limits)
	return s.closed(round, round.close(true, nil), err), err
}

const agreeReads = 10 // of a record on whose fence a quorum does not agree

// readAgreed is readFor, repeated for a while if a quorum has the name for the owner but not under one fence:
// another LOCK of the owner is between its two rounds, and its fences are no loss.
func (s *Service) readAgreed(ctx context.Context, h holder, limits timeouts, tag string) (votes []vote, began time.Duration, err error) {
	return s.readUntil(ctx, h, limits, tag, agreeReads, doubling, func(votes []vote) bool { return !s.betweenRounds(votes, h.owner) })
}

// readUntil is readFor, repeated until the votes are good, so many times at most. began is when the read of
// these votes began.
func (s *Service) readUntil(ctx context.Context, h holder, limits timeouts, tag string, reads int, pause func(read int) time.Duration,
	good func([]vote) bool) (votes []vote, began time.Duration, err error) {
	for read := range reads {
		if read > 0 {
			if err := sleep(ctx, pause(read)); err != nil {
				return nil, began, err
			}
		}
		began = s.now()
		if votes, err = s.readFor(ctx, h, limits, tag); err != nil || good(votes) {
			break
		}
	}
	return votes, began, err
}

// Pauses before the second read, the third, and so on.
func linear(read int) time.Duration   { return time.Duration(read) * time.Millisecond }
func doubling(read int) time.Duration { return time.Millisecond << (read - 1) }

// betweenRounds reports whether a quorum has the name for the owner, under several fences.
func (s *Service) betweenRounds(votes []vote, owner string) bool {
	_, agreed := most(votes, func(v *vote) (int64, bool) { return vouchedFence(v, owner) })
	_, n := most(votes, func(v *vote) (bool, bool) { _, ok := vouchedFence(v, owner); return true, ok })
	return n >= s.quorum && agreed < s.quorum
}

// vouchedFence is the fence of the owner's grant that a node vouches for in a read.
func vouchedFence(v *vote, owner string) (fence int64, ok bool) {
	return v.fence, v.kind == yes && v.owner == owner && !v.read.reinstated
}

// readGrant is the grant of h by a read that began at the given time: the fence that a quorum agrees on, the
// holds that a quorum has, and the end that a quorum will not undercut. The outcome is applied if there is
// one.
func (s *Service) readGrant(votes []vote, h holder, fence int64, began time.Duration) (grant, outcome) {
	mine := func(v *vote) (int64, bool) { return vouchedFence(v, h.owner) }
	agreed, n := most(votes, mine)
	if countKind(votes, yes) < s.quorum {
		return grant{}, undecided
	}
	if n < s.quorum || (fence != 0 && fence != agreed) {
		_, others := most(votes, func(v *vote) (string, bool) {
			return v.owner, v.kind == yes && v.owner != "" && v.owner != h.owner
		})
		switch {
		case others >= s.quorum:
			return grant{}, otherOwner
		case n < s.quorum && n+countKind(votes, silent) >= s.quorum:
			return grant{}, undecided
		}
		return grant{}, lost
	}
	its := func(v *vote) bool { f, ok := mine(v); return ok && f == agreed }
	g := grant{fence: agreed, holds: s.commonHolds(votes, h.owner, agreed, began)}
	g.id, _ = most(votes, func(v *vote) (string, bool) {
		if !its(v) {
			return "", false
		}
		return v.grant, true
	})
	if len(g.holds) == 0 {
		return grant{}, lost
	}
	return g, applied
}

// commonHolds are the holds of the grant that a quorum has, the oldest first, with the end of
// each that a quorum will not undercut.
func (s *Service) commonHolds(votes []vote, owner string, fence int64, began time.Duration) []hold {
	return s.holdsOf(votes, owner, fence, began, s.quorum, true)
}

// possibleHolds are the live holds that a quorum has, or may have with the nodes that did not vouch for the
// grant. One that was not granted after all is undone, unless its proxy is gone or had not sent the undo to
// all nodes; then the owner has a hold too many until the end that RENEW gives it. Model:
// integration/model/ends, flag names-maybe.
func (s *Service) possibleHolds(votes []vote, owner string, fence int64, began time.Duration) []hold {
	others := len(votes)
	for i := range votes {
		if f, ok := vouchedFence(&votes[i], owner); ok && f == fence {
			others--
		}
	}
	return s.holdsOf(votes, owner, fence, began, max(1, s.quorum-others), false)
}

// holdsOf are the holds of the grant that so many nodes have, the oldest first, with the end that
// so many, or a quorum, will not undercut; with ended, also those that have ended.
func (s *Service) holdsOf(votes []vote, owner string, fence int64, began time.Duration, nodes int, ended bool) []hold {
	rests := map[string][]time.Duration{}
	var ids []string
	for i := range votes {
		v := &votes[i]
		if f, ok := vouchedFence(v, owner); !ok || f != fence {
			continue
		}
		for _, h := range v.read.holds {
			if h.rest <= 0 && !ended {
				continue
			}
			if rests[h.id] = append(rests[h.id], h.rest); len(rests[h.id]) == nodes {
				ids = append(ids, h.id)
			}
		}
	}
	var holds []hold
	for _, id := range ids {
		all := rests[id]
		slices.Sort(all)
		rest := all[max(0, len(all)-s.quorum)]
		holds = append(holds, hold{id, began + rest - drift(rest)})
	}
	sortByAge(holds, votes)
	return holds
}

// sortByAge sorts holds by when they were taken, the oldest first, by the votes of a read, in milliseconds. Of
// holds of one millisecond the one that ends first is last: an UNLOCK that gives it back in place of another
// leaves the lock held.
func sortByAge(holds []hold, votes []vote) {
	ages := map[string]time.Duration{}
	for i := range votes {
		if r := votes[i].read; r != nil {
			for _, h := range r.holds {
				ages[h.id] = max(ages[h.id], h.age)
			}
		}
	}
	slices.SortStableFunc(holds, func(a, b hold) int {
		return cmp.Or(cmp.Compare(ages[b.id], ages[a.id]), cmp.Compare(b.until, a.until))
	})
}
