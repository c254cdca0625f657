package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/holdid"
	"github.com/lockproxy/lockproxy/backends/locks/nodekeys"
	"github.com/lockproxy/lockproxy/backends/locks/seats"
	"github.com/lockproxy/lockproxy/backends/locks/tally"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/backends/locks/voters"
	"github.com/lockproxy/lockproxy/scripts"
)

const (
	splitTries     = 10                    // tries that end in a split, before the answer is a refusal without a holder
	splitLimit     = time.Second           // how long these tries may take, or the lease if that is shorter
	splitWindow    = 2 * time.Millisecond  // the longest first pause between them, doubling
	maxSplitWindow = 64 * time.Millisecond // up to this
	repairTries    = 5                     // further tries after nodes lacked a record or floor
)

// An undecidedError reports a try after which another one may decide. It never leaves the package.
type undecidedError struct {
	why     undecided
	seat    int            // that the next try asks for, as in seatFor
	refusal locks.Decision // seatTaken: the answer if there is no next try
	err     error          // needsRepair: the error if there is none
}

type undecided uint8

const (
	split       undecided = iota // no owner has a majority, or the grant would be over by a renewal that began meanwhile
	seatTaken                    // others have the seat that was asked for; another one may be free
	needsRepair                  // nodes lacked what RepairNodes may give them
)

func (*undecidedError) Error() string { return "another try may decide" }

var errSplit = &undecidedError{why: split, seat: seats.Any}

// Acquire implements locks.Store. It tries again after splits and repairs, until a quorum has decided who has the
// name.
func (s *Store) Acquire(ctx context.Context, r locks.Attempt) (locks.Decision, error) {
	deadline := s.Now() + min(r.TTL, splitLimit)
	seat, seatsTried, repairs := seats.Any, 1, 0
	for tries, window := 1, splitWindow; ; {
		d, err := s.acquire(ctx, r, seat)
		var next *undecidedError
		if !errors.As(err, &next) {
			return d, err
		}
		seat = next.seat
		switch next.why {
		case seatTaken:
			if seatsTried == seatTries {
				return next.refusal, nil
			}
			seatsTried++
			continue
		case needsRepair:
			if repairs == repairTries || !s.set.RepairNodes(ctx, true) && repairs > 0 {
				return locks.Decision{}, next.err
			}
			repairs++
			continue
		}
		if tries++; tries > splitTries || s.Now() > deadline {
			return locks.Decision{}, nil
		}
		if err := locks.Sleep(ctx, s.set.Opts.Random.UpTo(window)); err != nil {
			return locks.Decision{}, err
		}
		window = min(2*window, maxSplitWindow)
	}
}

// An acquisition is one try to get a name.
//
//	asked ──quorum, one fence──────────────▶ granted
//	  │  └──quorum, several fences─▶ settled ─▶ granted
//	  └──held, split, too few votes, too late──▶ abandoned: undone wherever it may have been done
type acquisition struct {
	locks.Attempt
	holder  locks.Holder
	keys    nodekeys.Keys
	id      string // of the hold
	known   grant  // the owner's grant as this proxy knew it, with the live holds only
	dropped int64  // with Fresh: the fence of the grant that may be dropped, which a quorum has noted; 0: none
	began   time.Duration
}

// lockError is the error of a LOCK that the votes do not decide. If a node needs repair, a probe is asked for now.
func (s *Store) lockError(name string, votes []vote.Vote) error {
	err := s.set.QuorumError("LOCK", name, votes)
	if voters.NeedsRepair(votes) {
		s.set.RequestProbe()
		return &undecidedError{why: needsRepair, seat: seats.Any, err: err}
	}
	return err
}

// acquire is one try: a round, a second one if the nodes numbered the grant differently, and an undo if it
// failed.
func (s *Store) acquire(ctx context.Context, r locks.Attempt, seat int) (locks.Decision, error) {
	if err := s.set.AcquireSlot(ctx); err != nil {
		return locks.Decision{}, err
	}
	defer s.set.ReleaseSlot()
	if len(r.Others) > 0 {
		return s.acquireAll(ctx, r)
	}
	dropped, err := int64(0), error(nil)
	switch {
	case r.Fresh:
		dropped, err = s.prepareFresh(ctx, &r)
	case r.Replaces != nil:
		err = s.prepareReplace(ctx, &r)
	}
	if err != nil {
		return locks.Decision{}, err
	}
	a, call := s.newAcquisition(r, dropped, seat, s.proposal())
	return s.awaitAcquire(ctx, a, s.set.Ask(voters.AskAcquire, call, s.acquireDecides))
}

// newAcquisition begins a try, whose clock runs from now on; seat is as in seatFor, and proposal is the fence that it proposes. It returns
// the call that is to be sent to every node.
func (s *Store) newAcquisition(r locks.Attempt, dropped int64, seat int, proposal string) (*acquisition, voters.ScriptCall) {
	a := &acquisition{Attempt: r, holder: locks.Holder{Key: r.Key, Owner: r.Owner}, keys: s.set.RedisKeys(r.Key), dropped: dropped, began: s.Now()}
	a.id = seats.Named(s.newHold(r.LockRequest), s.seatFor(a, seat))
	if !r.Generated { // else nobody can ask for a RENEW yet
		s.inflight.Begin(a.holder, a.id)
	}
	a.known = s.grants.forAcquire(a.holder, a.began)
	fence, id, how := a.known.fence, a.known.id, "plain"
	switch {
	case r.Replaces != nil:
		fence, id, how = r.Replaces.Fence, r.Replaces.Owner, "replace"
	case r.Fresh:
		fence, how = dropped, "fresh"
	case r.NoReenter:
		how = "alone"
	}
	limit := voters.MS(r.Intent)
	if r.Reader != "" {
		limit = strconv.Itoa(r.Permits)
	}
	args := append(make([]string, 0, 9+2*len(a.known.holds)), r.Owner, voters.MS(r.TTL), proposal, r.Info, how, a.id,
		strconv.FormatInt(fence, 10), id, limit)
	if how == "plain" || how == "alone" {
		args = s.appendHolds(args, a.known.holds)
	}
	return a, voters.ScriptCall{
		Args:  s.set.Command(scripts.Acquire, a.keys, args...),
		Parse: vote.ParseAcquire, Expires: a.began + s.set.Opts.Timeouts(r.TTL).Quorum, Durable: true,
	}
}

// maxCarried is how many other holds of the grant a call takes along at most.
const maxCarried = 64

// appendHolds adds known holds of a grant to the arguments of a script, so that nodes which lack some add
// them: the ones taken last, each with the ms it has left.
func (s *Store) appendHolds(args []string, holds []hold) []string {
	now := s.Now()
	for _, h := range holds[max(0, len(holds)-maxCarried):] {
		if h.until > now {
			args = append(args, h.id, voters.MS(h.until-now))
		}
	}
	return args
}

// acquireDecides reports whether votes on an acquisition decide it.
func (s *Store) acquireDecides(v []vote.Vote) bool {
	return tally.Acquire(v, s.set.Quorum, tally.Running).Verdict != tally.Open
}

// awaitAcquire waits for the votes on an acquisition.
func (s *Store) awaitAcquire(ctx context.Context, a *acquisition, round *voters.Round) (locks.Decision, error) {
	defer s.inflight.End(a.holder, a.id)
	if err := round.Wait(ctx, s.set.Opts.Timeouts(a.TTL)); err != nil {
		s.set.Ended(round, s.abandon(round, a), vote.EndCanceled)
		return locks.Decision{}, err
	}
	return s.decide(ctx, a, round)
}

// proposal is a fence above every earlier one of this clock, so that nodes agree on it without a second round:
// microseconds, as nodes count.
func (s *Store) proposal() string { return strconv.FormatInt(time.Now().UnixMicro(), 10) }

// decide is the answer to an acquisition by the votes that have come.
func (s *Store) decide(ctx context.Context, a *acquisition, round *voters.Round) (locks.Decision, error) {
	var t tally.Result
	round.Look(func(votes []vote.Vote) { t = tally.Acquire(votes, s.set.Quorum, tally.Over) })
	if t.Verdict == tally.Granted {
		return s.grant(ctx, a, round, t)
	}
	votes := s.abandon(round, a)
	s.set.Ended(round, votes, t.Verdict.End())
	switch t.Verdict {
	case tally.Held:
		return s.refused(a, t, votes)
	case tally.Full:
		return locks.Decision{}, &locks.HoldsError{Max: locks.MaxHolds}
	case tally.Ended:
		s.counters.repeats.Add(1)
		return locks.Decision{Granted: true, Grant: locks.Grant{Key: a.Key, Owner: a.Owner, Fence: t.Fence, Hold: a.id}}, nil
	case tally.Split:
		s.counters.splits.Add(1)
		return locks.Decision{}, s.splitOn(a, votes)
	}
	return locks.Decision{}, s.lockError(a.Name, votes)
}

// grant makes sure that a quorum has stored the fence, and records the grant. Nodes that vote later get the fence then.
func (s *Store) grant(ctx context.Context, a *acquisition, round *voters.Round, t tally.Result) (locks.Decision, error) {
	votes := round.Close(false, func(i int, v vote.Vote) {
		if !t.Reentered {
			s.complete(a, i, &v, t.Fence)
		}
	})
	g, end, err := s.conclude(ctx, a, votes, t)
	s.set.Ended(round, votes, end)
	if err != nil {
		return locks.Decision{}, err
	}
	return locks.Decision{Granted: true, Grant: g}, nil
}

// conclude makes sure that a quorum has stored the fence, computes the validity and records the grant. A grant that is not
// recorded is undone. end is that of its round.
func (s *Store) conclude(ctx context.Context, a *acquisition, votes []vote.Vote, t tally.Result) (g locks.Grant, end vote.End, err error) {
	if !t.Reentered {
		if err := s.settle(ctx, a, votes, t.Fence); err != nil {
			s.undoAll(a)
			return g, vote.EndUnsettled, err
		}
	}
	s.forgetReleased(ctx, a, t)
	now := s.Now()
	validity := t.Rest - (now - a.began) - locks.Drift(t.Rest)
	if validity <= 0 || now-a.began >= s.set.Opts.RoundLimit {
		s.undoAll(a)
		return g, vote.EndLate, s.lateError(a, votes)
	}
	its := s.grantBy(a, votes, t)
	if a.dropped != 0 {
		s.host.Keepalive.Supersede(a.holder, a.dropped, a.Asker)
	}
	if a.Replaces != nil {
		s.loseReplaced(a)
	}
	s.seats.Took(a.Key, seats.Of(its.id))
	holds, until, err := s.recordGrant(a, its, now+validity, t.Holds)
	if err != nil {
		s.undoAll(a)
		return g, vote.EndGranted, err
	}
	validity = max(1, min(validity, until-s.Now())) // 0 is that of a grant that was given back
	return locks.Grant{Key: a.Key, Owner: a.Owner, Fence: t.Fence, Validity: validity, Holds: holds, Hold: a.id}, vote.EndGranted, nil
}

// grantBy is the grant of an acquisition as the votes name it. If they do not agree on its version it has none: then it is read before it
// is renewed.
func (s *Store) grantBy(a *acquisition, votes []vote.Vote, t tally.Result) grant {
	its := grant{fence: t.Fence, id: a.id, since: a.began}
	if t.Reentered {
		its.since = 0
		its.id, _ = tally.Most(votes, func(v *vote.Vote) (string, bool) {
			return v.Grant, v.Kind == vote.Yes && v.Reentered == t.Fence && tally.SeatOf(v) == t.Seat
		})
	}
	epoch, n := tally.Most(votes, func(v *vote.Vote) (string, bool) { return v.Version.Epoch, v.Kind == vote.Yes })
	if n >= s.set.Quorum && (epoch == a.id || epoch == a.known.version.Epoch) {
		its.version.Epoch = epoch
	}
	return its
}

// forgetReleased drops holds from the cache that were given back through other proxies, if the cache has more than
// a quorum counts. A read decides which, so that no hold is dropped which only came late to a node.
func (s *Store) forgetReleased(ctx context.Context, a *acquisition, t tally.Result) {
	known := s.grants.liveHolds(a.holder, t.Fence, s.Now())
	if len(known) == 0 || holdid.Count(append(known, a.id)) <= t.Holds {
		return
	}
	votes, err := s.read(ctx, question{holder: a.holder, ttl: a.TTL})
	if err != nil {
		return
	}
	if _, gone := s.stillThere(votes, a.Owner, nil, known); len(gone) > 0 {
		s.dropHolds(a.holder, gone...)
	}
}

// lateError reports a quorum that came after the lease had ended.
func (s *Store) lateError(a *acquisition, votes []vote.Vote) error {
	e := s.set.QuorumError("LOCK", a.Name, votes)
	e.Failed = append(e.Failed, fmt.Errorf("the votes came after the lease of %v", a.TTL))
	return e
}

// settle makes a quorum store the fence, and the other nodes too if they can be reached.
func (s *Store) settle(ctx context.Context, a *acquisition, votes []vote.Vote, fence int64) error {
	n := 0
	for i := range votes {
		if tally.StoredFence(&votes[i], fence) {
			n++
		}
	}
	if n >= s.set.Quorum {
		for i := range votes {
			s.complete(a, i, &votes[i], fence)
		}
		return nil
	}
	stored := func(settled []vote.Vote) bool { return n+vote.CountKind(settled, vote.Yes) >= s.set.Quorum }
	call := s.settleCall(a, fence)
	round := s.set.AskEach(voters.AskSettle, stored, func(i int) *voters.ScriptCall {
		if tally.LacksFence(&votes[i], fence) {
			return &call
		}
		return nil
	})
	err := round.Wait(ctx, s.set.Opts.Timeouts(a.TTL))
	settled := round.Close(false, nil)
	s.set.Ended(round, settled, vote.EndOf(err, stored(settled)))
	if err == nil && !stored(settled) {
		return s.unsettled(a, votes, settled, fence)
	}
	return err
}

// unsettled reports which nodes did not store the fence of a grant.
func (s *Store) unsettled(a *acquisition, votes, settled []vote.Vote, fence int64) error {
	if slices.ContainsFunc(votes, func(v vote.Vote) bool { return a.otherSeat(&v) }) {
		return s.splitOn(a, votes)
	}
	for i := range votes {
		if tally.LacksFence(&votes[i], fence) && settled[i].Kind != vote.Yes {
			votes[i] = vote.Vote{Err: voters.OrTimeout(settled[i].Err)}
		}
	}
	return s.set.QuorumError("LOCK", a.Name, votes)
}

func (s *Store) settleCall(a *acquisition, fence int64) voters.ScriptCall {
	return voters.ScriptCall{
		Args:  s.set.Command(scripts.Settle, a.keys, a.Owner, strconv.FormatInt(fence, 10), a.id),
		Parse: vote.ParseDone, Expires: s.Now() + s.set.Opts.Timeouts(a.TTL).Quorum, Durable: true,
	}
}

// complete sends the grant's fence to a node that granted under another one.
func (s *Store) complete(a *acquisition, i int, v *vote.Vote, fence int64) {
	if tally.LacksFence(v, fence) {
		s.set.Members[i].Push(s.settleCall(a, fence))
	}
}

// recordGrant stores a hold of grant g in the cache, and has it renewed for its session. It returns how many
// holds there are, and the end of this one's validity, see grantCache.addHold.
func (s *Store) recordGrant(a *acquisition, g grant, until time.Duration, count int) (holds int, ends time.Duration, err error) {
	s.host.Keepalive.Lock()
	defer s.host.Keepalive.Unlock()
	if a.Session != nil && a.Session.EndedLocked() {
		return 0, 0, locks.ErrSessionEnded
	}
	holds, ends = s.grants.addHold(a.holder, g, hold{a.id, until}, a.known.renewals, count, s.Now()-a.Asked)
	if holds == 0 { // it may be no longer than a lease that has ended while a renewal is under way
		return 0, 0, errSplit
	}
	if a.Session != nil {
		s.host.Keepalive.AddLocked(&a.Attempt, a.id, g.fence, a.began, ends)
	}
	return holds, ends, nil
}

// newHold is the id of a new attempt's hold, with the tag of the request if it has an id.
func (s *Store) newHold(r locks.LockRequest) string {
	if r.Req == "" {
		return s.newEpoch(r.Open) // the hold of a new grant names the first epoch of its lease
	}
	return holdid.TagOf(locks.Holder{Key: r.Key, Owner: r.Owner}, r.Req) + "." + s.set.Opts.Random.ID()
}
