package quorum

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/tally"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/backends/locks/voters"
	"github.com/lockproxy/lockproxy/scripts"
)

// conflictRetries is how often a RENEW or UNLOCK that reads is tried again where the grant changed between
// reading and changing it: a session at another proxy renewed it, say, or another UNLOCK took the hold.
const conflictRetries = 5

// retry calls do, and again while it asks for that, conflictRetries times at most. The error is that of the last call, or of ctx.
func (s *Store) retry(ctx context.Context, do func() (again bool, err error)) error {
	for try := 0; ; try++ {
		if again, err := do(); !again || try == conflictRetries {
			return err
		}
		if err := locks.Sleep(ctx, s.set.Opts.Random.UpTo(splitWindow<<try)); err != nil {
			return err
		}
	}
}

// Renew implements locks.Store.
func (s *Store) Renew(ctx context.Context, r locks.RenewRequest) (time.Duration, error) {
	if err := s.set.AcquireSlot(ctx); err != nil {
		return 0, err
	}
	defer s.set.ReleaseSlot()
	h := locks.Holder{Key: r.Key, Owner: r.Owner}
	spared, end := s.inflight.StartRenewal(h)
	defer end()
	now, fence := s.Now(), r.Fence
	if fence == 0 {
		fence = s.grants.lookup(h).fence
	}
	g, change, ok := s.grants.beginRenewal(h, &r, now, now+r.TTL-locks.Drift(r.TTL))
	if ok {
		until, result, votes, err := s.renewLease(ctx, &leaseRenewal{holder: h, ttl: r.TTL, grant: g, change: change})
		if err == nil && result == tally.Applied {
			if until = s.grants.endRenewal(h, g, until); !tally.GivenBack(votes) {
				return until - s.Now(), nil
			}
			result = tally.Conflict // of what it remembers, another proxy has given back a hold: else that would be added again some day
		}
		if err != nil || result != tally.Conflict && result != tally.Lost { // a lost one may have been granted anew through another proxy
			return 0, s.renewError(h, fence, result, votes, err)
		}
		s.grants.invalidate(h)
	}
	var validity time.Duration
	var result tally.Outcome
	var votes []vote.Vote
	err := s.retry(ctx, func() (again bool, err error) {
		validity, result, votes, err = s.renewAfterRead(ctx, h, r, spared)
		return err == nil && result == tally.Conflict, err
	})
	return validity, s.orReads(ctx, h, votes, s.renewError(h, fence, result, votes, err))
}

// renewError is the error of a renewal of the grant with this fence, nil if it was applied.
func (s *Store) renewError(h locks.Holder, fence int64, result tally.Outcome, votes []vote.Vote, err error) error {
	if err != nil {
		return err
	}
	switch result {
	case tally.Applied:
		return nil
	case tally.OtherOwner:
		s.grants.forgetGrant(h, fence)
		return &locks.NotOwnerError{Remaining: s.otherOwnersRest(votes, h.Owner)}
	case tally.Lost:
		s.grants.forgetGrant(h, fence)
		return locks.ErrLost
	}
	if voters.NeedsRepair(votes) {
		s.set.RequestProbe()
	}
	return s.set.QuorumError("RENEW", h.Name, votes)
}

// A leaseChange is what a renewal may do to the end of a lease, as the script renew calls it.
type leaseChange string

const (
	lengthens leaseChange = "0" // to a later one, as far as this proxy knows
	grows     leaseChange = "1" // never to an earlier one: a renewal for a session, for which the owner did not ask
	shortens  leaseChange = "2" // to one that is, or may be, earlier: noted by a quorum before it is sent
)

// Whether a renewal reinstates the grant where the name is free, as the script renew calls it. At a node in doubt it does so for the
// name of that node's last loss of memory, after a quorum of the others has renewed it.
const (
	renewsOnly = "0"
	reinstates = "1"
)

// A leaseRenewal is one renewal of a grant at the nodes, whoever asked for it.
type leaseRenewal struct {
	holder   locks.Holder
	ttl      time.Duration
	grant    grant    // with the version that it gets, and the holds that are renewed
	expected []string // by node, the version that a read found, and that is replaced; empty: the node is not asked. nil: whatever version is replaced, and a lost grant is reinstated
	change   leaseChange
	began    time.Duration    // when the nodes were asked
	late     voters.LateVotes // those that come when a quorum has applied it
}

// renewLease has the nodes renew a lease. The result is applied, and until the end of the new validity, only if the votes came before
// the old validity ended and the new one has not.
func (s *Store) renewLease(ctx context.Context, r *leaseRenewal) (until time.Duration, result tally.Outcome, votes []vote.Vote, err error) {
	if r.change == shortens {
		if votes, err = s.noteShortening(ctx, r.holder, r.grant.fence, s.set.Opts.Timeouts(r.ttl)); err != nil || !s.set.Agree(votes) {
			return 0, tally.Undecided, votes, err
		}
	}
	r.began = s.Now()
	if err := ctx.Err(); err != nil { // a caller that gave up must not be renewed any more
		return 0, tally.Undecided, nil, err
	}
	if r.began >= r.grant.until() {
		return 0, tally.Lost, nil, nil
	}
	if votes, result, err = s.renewNodes(ctx, r); votes == nil {
		return 0, tally.Undecided, nil, err
	}
	until = r.began + r.ttl - locks.Drift(r.ttl)
	switch now := s.Now(); {
	case result != tally.Applied:
	case now >= r.grant.until() || now >= until:
		result = tally.Lost
	case now-r.began >= s.set.Opts.RoundLimit:
		result = tally.Undecided
	}
	if err == nil && result == tally.Applied {
		s.counters.renewals.Add(1)
		s.reinstateInDoubt(r, votes)
	}
	return until, result, votes, err
}

// renewNodes runs the round of a renewal, and a second one that reinstates the grant on nodes without it, if there is
// no quorum otherwise. If it returns no votes, nothing is decided, and err is that of ctx.
func (s *Store) renewNodes(ctx context.Context, r *leaseRenewal) ([]vote.Vote, tally.Outcome, error) {
	reinstate := func(i int, v vote.Vote) {
		if r.expected == nil && isFree(&v) {
			s.set.Members[i].Push(*s.renewCall(r, "", reinstates))
		}
	}
	votes, result, err := s.renewRound(ctx, r, func(i int) *voters.ScriptCall {
		switch {
		case r.expected == nil:
			return s.renewCall(r, "", renewsOnly)
		case r.expected[i] == "":
			return nil
		}
		return s.renewCall(r, r.expected[i], renewsOnly)
	}, nil, func(i int, v vote.Vote) {
		reinstate(i, v)
		r.late.Add(i, v)
	})
	if err != nil {
		return nil, tally.Undecided, err
	}
	switch {
	case r.expected != nil || vote.CountKind(votes, vote.Yes) == 0 || ctx.Err() != nil:
	case result != tally.Applied:
		return s.reinstateMissing(ctx, r, votes)
	default:
		for i := range votes {
			reinstate(i, votes[i])
		}
	}
	return votes, result, nil
}

// renewCall asks a node for a renewal that replaces the expected version, if that is not empty; reinstate is renewsOnly, reinstates or the gen
// of the node.
func (s *Store) renewCall(r *leaseRenewal, expected, reinstate string) *voters.ScriptCall {
	g := &r.grant
	args := append([]string{r.holder.Owner, voters.MS(r.ttl), strconv.FormatInt(g.fence, 10), g.id, g.version.Epoch,
		strconv.FormatInt(g.version.Sequence, 10), expected, reinstate, string(r.change)}, holdIDs(g.holds)...)
	return &voters.ScriptCall{
		Args: s.set.Command(scripts.Renew, s.set.RedisKeys(r.holder.Key), args...), Parse: vote.ParseRenew,
		Expires: r.began + 2*s.set.Opts.Timeouts(r.ttl).Quorum, Durable: true,
	}
}

// renewRound asks the nodes, and counts the known votes with those that come. late, if not nil, takes votes that come
// after a quorum has applied the renewal.
func (s *Store) renewRound(ctx context.Context, r *leaseRenewal, each func(int) *voters.ScriptCall, known []vote.Vote, late func(int, vote.Vote)) ([]vote.Vote, tally.Outcome, error) {
	with := func(votes []vote.Vote) []vote.Vote {
		if known == nil {
			return votes
		}
		all := slices.Clone(votes)
		for i := range all {
			if tally.Renewed(&known[i]) {
				all[i] = known[i]
			}
		}
		return all
	}
	round := s.set.AskEach(voters.AskRenew, func(v []vote.Vote) bool {
		o := tally.Renew(with(v), s.set.Quorum, tally.Running, r.holder.Owner)
		return o == tally.Applied || o == tally.OtherOwner // else one more node may know the grant, so that it may be reinstated
	}, each)
	err := round.Wait(ctx, s.set.Opts.Timeouts(r.ttl))
	round.Look(func(votes []vote.Vote) {
		if tally.Renew(with(votes), s.set.Quorum, tally.Over, r.holder.Owner) != tally.Applied {
			late = nil
		}
	})
	votes := with(round.Close(err != nil, late))
	result := tally.Renew(votes, s.set.Quorum, tally.Over, r.holder.Owner)
	s.set.Ended(round, votes, tally.EndOf(err, result))
	return votes, result, err
}

// reinstateMissing reinstates the grant where the name is free, after at least one node has renewed it: a renewal alone creates no lock. A node
// that has this version already takes the call for a repeat.
func (s *Store) reinstateMissing(ctx context.Context, r *leaseRenewal, votes []vote.Vote) ([]vote.Vote, tally.Outcome, error) {
	again, _, err := s.renewRound(ctx, r, func(i int) *voters.ScriptCall {
		if isFree(&votes[i]) {
			return s.renewCall(r, "", reinstates)
		}
		return nil
	}, votes, nil)
	for i := range again {
		if errors.Is(again[i].Err, voters.ErrNotAsked) {
			again[i] = votes[i]
		}
	}
	return again, tally.Renew(again, s.set.Quorum, tally.Over, r.holder.Owner), err
}

// isFree reports whether a renewal found the name free.
func isFree(v *vote.Vote) bool { return v.Kind == vote.No && v.Owner == "" }

// otherOwnersRest is what is left of another owner's lease by a quorum.
func (s *Store) otherOwnersRest(votes []vote.Vote, owner string) time.Duration {
	return tally.QthRest(votes, s.set.Quorum, func(v *vote.Vote) bool {
		return v.Kind != vote.Silent && v.Owner != "" && v.Owner != owner
	})
}

// renewAfterRead renews a grant that another proxy made, or may have renewed since: it reads it from a quorum,
// replaces exactly the versions it read, reinstates nothing, and bounds the validity that runs by the ends it
// read. Where it may shorten the lease it leaves out the spared holds, see inflight.Locks.
func (s *Store) renewAfterRead(ctx context.Context, h locks.Holder, r locks.RenewRequest, spared func() []string) (validity time.Duration, result tally.Outcome, votes []vote.Vote, err error) {
	before := s.grants.lookup(h)
	votes, began, err := s.readAgreed(ctx, question{holder: h, ttl: r.TTL})
	if err != nil {
		return 0, tally.Undecided, nil, err
	}
	g, result := s.readGrant(votes, h, r.Fence, began)
	if result != tally.Applied {
		return 0, result, votes, nil
	}
	common, read := g.holds, votes
	g.holds = s.possibleHolds(votes, h.Owner, g.fence, began)
	change, validFor := lengthens, r.TTL-locks.Drift(r.TTL)
	runsLonger := func(v vote.Vote) bool { return tally.Vouches(&v, h.Owner, g.fence) && validFor < v.Rest }
	if slices.ContainsFunc(votes, runsLonger) || before.fence == g.fence && s.Now()+validFor < before.until() { // as far as this proxy knew
		change = shortens
	}
	if all := len(g.holds); change == shortens {
		if g.holds = without(g.holds, spared()); len(g.holds) == 0 && all > 0 {
			return 0, tally.Undecided, votes, nil
		}
	}
	g, result, votes, err = s.renewUnderNewEpoch(ctx, &leaseRenewal{holder: h, ttl: r.TTL, grant: g, change: change}, votes, r.Open)
	if result == tally.Undecided && err == nil && !slices.ContainsFunc(votes, failed) {
		result = tally.Conflict // the grant has been given back meanwhile, on some of the nodes that had it
	}
	if err != nil || result != tally.Applied {
		return 0, result, votes, err
	}
	validity = g.until() - s.Now()
	if tally.GivenBack(votes) { // perhaps a hold that not all nodes had
		g.holds = only(g.holds, holdIDs(common))
	}
	for _, c := range without(common, holdIDs(g.holds)) {
		if c.until <= began { // an UNLOCK of the hold taken last means also one that has ended
			g.holds = append(g.holds, c)
		}
	}
	sortByAge(g.holds, read)
	s.grants.replace(h, before, g)
	return validity, tally.Applied, nil, nil
}

// failed reports whether a node that was asked has not voted.
func failed(v vote.Vote) bool {
	return v.Kind == vote.Silent && !errors.Is(v.Err, voters.ErrNotAsked)
}

// renewUnderNewEpoch renews a grant that was read, under a new epoch, and returns it as it is after that. open makes the lease one
// without an end.
func (s *Store) renewUnderNewEpoch(ctx context.Context, r *leaseRenewal, read []vote.Vote, open bool) (grant, tally.Outcome, []vote.Vote, error) {
	g := &r.grant
	g.version = vote.Version{Epoch: s.newEpoch(open), Sequence: 1}
	r.expected = make([]string, len(read))
	for i := range read {
		if tally.Vouches(&read[i], r.holder.Owner, g.fence) {
			r.expected[i] = read[i].Version.Expected()
		}
	}
	until, result, votes, err := s.renewLease(ctx, r)
	if err != nil || result != tally.Applied {
		s.grants.invalidate(r.holder)
	}
	renewed := g.copy() // late votes may still ask for the holds of r
	for i := range renewed.holds {
		at := &renewed.holds[i].until
		if *at = max(*at, until); r.change != grows || tally.Noted(votes) {
			*at = until
		}
	}
	return renewed, result, votes, err
}
