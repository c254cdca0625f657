package locks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/scripts"
)

const (
	splitTries     = 10                    // acquisitions that end in a split, before the answer is a refusal without a holder
	splitLimit     = time.Second           // or the lease, if shorter: how long they may take
	splitWindow    = 2 * time.Millisecond  // of the first back-off, doubling
	maxSplitWindow = 64 * time.Millisecond // until
	repairTries    = 5                     // acquisitions that meet nodes in need of a record or floor
)

// Limits on what a request says, in bytes.
const (
	MaxName  = 64 << 10
	MaxOwner = 1 << 10
	MaxReq   = 1 << 10
	MaxInfo  = 256
)

// MaxHolds is how many holds of one name an owner may have; the scripts know it too.
const MaxHolds = 1000

// errSplit reports that a quorum voted and no owner has one. It never leaves the package.
var errSplit = errors.New("no owner has a majority")

// Lock asks for the name, and waits for it if the request says so. Another owner's lock is an answer: Granted
// is false. An error is a *QuorumError when too few nodes voted, the error of ctx when that ended first, or a
// fault of the request. What is not granted has been or will be undone, also after Lock returned, as far as
// nodes can be reached.
func (s *Service) Lock(ctx context.Context, r LockRequest) (Decision, error) {
	if err := s.prepare(&r); err != nil {
		return Decision{}, err
	}
	a, err := s.lockRequest(ctx, r)
	return s.countDecision(&r, a, err)
}

// prepare checks a request and completes it.
func (s *Service) prepare(r *LockRequest) error {
	if err := s.check(*r); err != nil {
		return err
	}
	if r.Owner == "" {
		r.Owner, r.generated = s.opts.random.id(), true
	}
	if r.Session != nil {
		setDefault(&r.MaxHold, s.opts.MaxHold)
		r.TTL = min(r.TTL, r.MaxHold)
	}
	r.asked = s.now()
	return nil
}

// countDecision counts the decision on a request.
func (s *Service) countDecision(r *LockRequest, a Decision, err error) (Decision, error) {
	now := s.now()
	s.top.answered(r.Key, a.Granted, now-r.asked, now)
	return s.counters.locked(a, err, now-r.asked)
}

// acquireDecided acquires the name, again after splits and repairs, until a quorum has decided who has it.
func (s *Service) acquireDecided(ctx context.Context, r LockRequest) (Decision, error) {
	deadline := s.now() + min(r.TTL, splitLimit)
	repaired := 0
	for tries, window := 1, splitWindow; ; {
		a, err := s.acquire(ctx, r)
		switch {
		case errors.Is(err, errNeedsRepair) && repaired < repairTries:
			repaired++
			if !s.repairNodes(ctx, true) && repaired > 1 {
				return Decision{}, errors.Unwrap(err)
			}
			continue
		case errors.Is(err, errNeedsRepair):
			return Decision{}, errors.Unwrap(err)
		case !errors.Is(err, errSplit):
			return a, err
		}
		if tries++; tries > splitTries || s.now() > deadline {
			return Decision{}, nil
		}
		if err := sleep(ctx, s.opts.random.upTo(window)); err != nil {
			return Decision{}, err
		}
		window = min(2*window, maxSplitWindow)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Service) check(r LockRequest) error {
	switch {
	case r.Name == "" || len(r.Name) > MaxName:
		return fmt.Errorf("the name has %d bytes, not 1 to %d", len(r.Name), MaxName)
	case len(r.Owner) > MaxOwner:
		return fmt.Errorf("the owner has %d bytes, more than %d", len(r.Owner), MaxOwner)
	case len(r.Info) > MaxInfo:
		return fmt.Errorf("the info has %d bytes, more than %d", len(r.Info), MaxInfo)
	}
	if err := checkReq(r.Owner, r.Req); err != nil {
		return err
	}
	if r.MaxHold != 0 && r.MaxHold < s.opts.MinTTL {
		return fmt.Errorf("max-hold %v is under the shortest lease of %v", r.MaxHold, s.opts.MinTTL)
	}
	return s.checkTTL(r.TTL)
}

func (s *Service) checkTTL(ttl time.Duration) error {
	if ttl < s.opts.MinTTL || ttl > s.opts.MaxTTL {
		return fmt.Errorf("ttl %v is not within %v and %v", ttl, s.opts.MinTTL, s.opts.MaxTTL)
	}
	return nil
}

// An acquisition is one try to get a name.
//
//	asked ──quorum, one fence──────────────▶ granted
//	  │  └──quorum, several fences─▶ settled ─▶ granted
//	  └──held, split, too few votes, too late──▶ abandoned: undone wherever it may have been done
type acquisition struct {
	LockRequest
	holder holder
	keys   redisKeys
	id     string // of the hold
	known  grant  // what this proxy knew of the owner's grant, with the live holds
	began  time.Duration
}

// errNeedsRepair wraps a *QuorumError of a round in which nodes lacked what repairNodes may give them. It
// never leaves the package.
var errNeedsRepair = errors.New("nodes need a record")

type needsRepairError struct{ *QuorumError }

func (e needsRepairError) Is(target error) bool { return target == errNeedsRepair }
func (e needsRepairError) Unwrap() error        { return e.QuorumError }

// acquire is one try: a round, a second one if the nodes numbered the grant differently, and an undo if it
// failed.
func (s *Service) acquire(ctx context.Context, r LockRequest) (Decision, error) {
	if err := s.acquireSlot(ctx); err != nil {
		return Decision{}, err
	}
	defer s.releaseSlot()
	if r.Fresh {
		if err := s.prepareFresh(ctx, &r); err != nil {
			return Decision{}, err
		}
	}
	a, j := s.newAcquisition(r)
	return s.awaitAcquire(ctx, a, s.ask(askAcquire, j, s.acquireDecides))
}

// newAcquisition begins a try: its clock runs. The call is for every node.
func (s *Service) newAcquisition(r LockRequest) (*acquisition, scriptCall) {
	a := &acquisition{LockRequest: r, holder: holder{r.Key, r.Owner}, keys: s.redisKeys(r.Key), id: s.newHold(r), began: s.now()}
	if !r.generated { // else nobody can ask for a RENEW yet
		s.inflight.begin(a.holder, a.id)
	}
	a.known = s.grants.forAcquire(a.holder, a.began)
	fence, how := a.known.fence, "plain"
	switch {
	case r.Fresh:
		fence, how = r.dropped, "fresh"
	case r.NoReenter:
		how = "alone"
	}
	args := append(make([]string, 0, 8+2*len(a.known.holds)), r.Owner, ms(r.TTL), s.proposal(), r.Info, how, a.id,
		strconv.FormatInt(fence, 10), a.known.id)
	if !r.Fresh {
		args = s.appendHolds(args, a.known.holds)
	}
	return a, scriptCall{
		args:  s.command(scripts.Acquire, a.keys, args...),
		parse: parseAcquire, expires: a.began + s.opts.timeouts(r.TTL).quorum, durable: true,
	}
}

// maxCarried is how many holds of a grant a call about another one takes along.
const maxCarried = 64

// appendHolds adds known holds of a grant to the arguments of a script, so that nodes which lack some add
// them: the ones taken last, each with the ms it has left.
func (s *Service) appendHolds(args []string, holds []hold) []string {
	now := s.now()
	for _, h := range holds[max(0, len(holds)-maxCarried):] {
		if h.until > now {
			args = append(args, h.id, ms(h.until-now))
		}
	}
	return args
}

// acquireDecides reports whether votes on an acquisition decide it.
func (s *Service) acquireDecides(v []vote) bool {
	return tallyAcquire(v, s.quorum, false).verdict != open
}

// awaitAcquire waits for the votes on an acquisition.
func (s *Service) awaitAcquire(ctx context.Context, a *acquisition, round *round) (Decision, error) {
	defer s.inflight.end(a.holder, a.id)
	if err := round.wait(ctx, s.opts.timeouts(a.TTL)); err != nil {
		s.ended(round, s.abandon(a, round), endCanceled)
		return Decision{}, err
	}
	return s.decide(ctx, a, round)
}

// proposal is a fence above every earlier one of this clock, so that nodes agree on it without a second round:
// microseconds, as nodes count.
func (s *Service) proposal() string { return strconv.FormatInt(time.Now().UnixMicro(), 10) }

// decide is the answer by the votes that are there.
func (s *Service) decide(ctx context.Context, a *acquisition, round *round) (Decision, error) {
	round.mu.Lock()
	t := tallyAcquire(round.votes, s.quorum, true)
	round.mu.Unlock()
	switch t.verdict {
	case granted:
		return s.grant(ctx, a, round, t)
	case held:
		s.ended(round, s.abandon(a, round), endHeld)
		return Decision{Holder: t.holder, Remaining: t.rest, fence: t.fence}, nil
	case full:
		s.ended(round, s.abandon(a, round), endHeld)
		return Decision{}, &HoldsError{Max: MaxHolds}
	case ended:
		s.ended(round, s.abandon(a, round), endRepeat)
		s.counters.repeats.Add(1)
		return Decision{Granted: true, Grant: Grant{Key: a.Key, Owner: a.Owner, Fence: t.fence, attempt: a.id}}, nil
	case split:
		s.counters.splits.Add(1)
		s.ended(round, s.abandon(a, round), endSplit)
		return Decision{}, errSplit
	}
	votes := s.abandon(a, round)
	s.ended(round, votes, endNoQuorum)
	err := s.quorumError("LOCK", a.Name, votes)
	if needsRepair(votes) {
		s.requestProbe()
		return Decision{}, needsRepairError{err}
	}
	return Decision{}, err
}

// grant has a quorum store the fence and counts the validity. Nodes that have not voted yet get the fence when
// they do.
func (s *Service) grant(ctx context.Context, a *acquisition, round *round, t tally) (Decision, error) {
	var votes []vote
	if t.reentered {
		votes = round.close(false, nil)
	} else {
		votes = round.close(false, func(i int, v vote) { s.complete(a, i, &v, t.fence) })
		if err := s.settle(ctx, a, votes, t.fence); err != nil {
			s.ended(round, votes, endUnsettled)
			s.undoAll(a)
			return Decision{}, err
		}
	}
	s.forgetReleased(ctx, a, t)
	now := s.now()
	validity := t.rest - (now - a.began) - drift(t.rest)
	if validity <= 0 {
		s.ended(round, votes, endLate)
		s.undoAll(a)
		return Decision{}, s.lateError(a, votes)
	}
	s.ended(round, votes, endGranted)
	g := grant{fence: t.fence, id: a.id}
	if t.reentered {
		g.id, _ = most(votes, func(v *vote) (string, bool) { return v.grant, v.kind == yes && v.reentered == t.fence })
	}
	if a.Fresh && a.dropped != 0 {
		s.keepalive.supersede(a.holder, a.dropped, a.Session)
	}
	lineage, n := most(votes, func(v *vote) (string, bool) { return v.version.epoch, v.kind == yes })
	if n >= s.quorum && (lineage == a.id || lineage == a.known.version.epoch) {
		g.version.epoch = lineage
	}
	holds, until, err := s.recordGrant(a, g, now+validity, t.holds)
	if err != nil {
		s.undoAll(a)
		return Decision{}, err
	}
	if validity = min(validity, until-s.now()); validity <= 0 {
		return Decision{}, s.lateError(a, votes)
	}
	return Decision{Granted: true, Grant: Grant{
		Key: a.Key, Owner: a.Owner, Fence: t.fence, Validity: validity, Holds: holds, attempt: a.id,
	}}, nil
}

// forgetReleased forgets holds that were given back through other proxies, if more are known of the grant than
// a quorum counts. It goes by a read, so not by a node that was only late to get one.
func (s *Service) forgetReleased(ctx context.Context, a *acquisition, t tally) {
	known := s.grants.liveHolds(a.holder, t.fence, s.now())
	if len(known) == 0 || countHolds(append(known, a.id)) <= t.holds {
		return
	}
	votes, err := s.read(ctx, a.holder, s.opts.timeouts(a.TTL))
	if err != nil {
		return
	}
	if _, gone := s.stillThere(votes, a.Owner, nil, known); len(gone) > 0 {
		s.dropHolds(a.holder, gone...)
	}
}

// lateError reports a quorum that came after the lease had ended.
func (s *Service) lateError(a *acquisition, votes []vote) error {
	e := s.quorumError("LOCK", a.Name, votes)
	e.Failed = append(e.Failed, fmt.Errorf("the votes came after the lease of %v", a.TTL))
	return e
}

// settle makes a quorum store the fence, and the other nodes too if they can be reached.
func (s *Service) settle(ctx context.Context, a *acquisition, votes []vote, fence int64) error {
	n := 0
	for i := range votes {
		if storedFence(&votes[i], fence) {
			n++
		}
	}
	if n >= s.quorum {
		for i := range votes {
			s.complete(a, i, &votes[i], fence)
		}
		return nil
	}
	limits := s.opts.timeouts(a.TTL)
	enough := func(v []vote) bool { return n+countKind(v, yes) >= s.quorum }
	j := s.settleJob(a, fence, limits)
	round := s.askEach(askSettle, enough, func(i int) *scriptCall {
		if votes[i].kind == yes && !storedFence(&votes[i], fence) {
			return &j
		}
		return nil
	})
	err := round.wait(ctx, limits)
	settled := round.close(false, nil)
	s.ended(round, settled, endOf(err, n+countKind(settled, yes) >= s.quorum))
	switch {
	case err != nil:
		return err
	case n+countKind(settled, yes) < s.quorum:
		return s.unsettled(a, votes, settled, fence)
	}
	return nil
}

func countKind(votes []vote, b replyKind) (n int) {
	for i := range votes {
		if votes[i].kind == b {
			n++
		}
	}
	return n
}

// unsettled reports which nodes did not store the fence of a grant.
func (s *Service) unsettled(a *acquisition, votes, settled []vote, fence int64) error {
	for i := range votes {
		if votes[i].kind == yes && !storedFence(&votes[i], fence) && settled[i].kind != yes {
			votes[i] = vote{err: orTimeout(settled[i].err)}
		}
	}
	return s.quorumError("LOCK", a.Name, votes)
}

func (s *Service) settleJob(a *acquisition, fence int64, limits timeouts) scriptCall {
	return scriptCall{
		args:  s.command(scripts.Settle, a.keys, a.Owner, strconv.FormatInt(fence, 10), a.id),
		parse: parseDone, expires: s.now() + limits.quorum, durable: true,
	}
}

// complete gives a node that granted under another fence that of the grant.
func (s *Service) complete(a *acquisition, i int, v *vote, fence int64) {
	if v.kind == yes && !storedFence(v, fence) {
		s.nodes[i].push(s.settleJob(a, fence, s.opts.timeouts(a.TTL)))
	}
}

// abandon ends an acquisition's round and undoes it on every node that did it, and on every node that may have
// done it or still may. It returns the votes.
func (s *Service) abandon(a *acquisition, round *round) []vote {
	s.inflight.end(a.holder, a.id)
	var once sync.Once
	undo := func(i int, v vote) {
		if v.kind == yes || (v.kind == silent && (v.code == 0 || v.code == damaged) && !v.unsent) {
			once.Do(func() { s.counters.undos.Add(1) })
			s.nodes[i].push(s.undoJob(a.keys, a.Owner, a.id))
		}
	}
	votes := round.close(true, undo)
	for i, v := range votes {
		if !due(&v) {
			undo(i, v)
		}
	}
	return votes
}

// undoAll undoes a hold everywhere.
func (s *Service) undoAll(a *acquisition) {
	s.counters.undos.Add(1)
	for _, n := range s.nodes {
		n.push(s.undoJob(a.keys, a.Owner, a.id))
	}
}

// undoJob removes a hold of an acquisition.
func (s *Service) undoJob(k redisKeys, owner, hold string) scriptCall {
	return s.releaseJob(k, owner, grant{}, "undo", "", []string{hold}, nil)
}

// releaseJob removes holds of a grant, in one of the ways of release.lua, and is retried until no lease that
// they may have can run. request is the script's TAG; left are holds of the grant that stay.
func (s *Service) releaseJob(k redisKeys, owner string, g grant, how, request string, ids []string, left []hold) scriptCall {
	args := append([]string{owner, strconv.FormatInt(g.fence, 10), how, request, g.id, s.opts.random.id(), strconv.Itoa(len(ids))}, ids...)
	j := scriptCall{
		args: s.command(scripts.Release, k, args...), parse: parseRelease,
		expires: s.now() + s.opts.MaxTTL, retryUntilAcked: true,
	}
	if len(left) > 0 {
		j.retryArgs = j.args
		j.args = s.appendHolds(slices.Clone(j.args), left)
	}
	return j
}

// Undo takes a grant back, as if it had not been made. It does not wait for nodes. Other than the undo of an
// acquisition it is for a grant that may have been renewed: its fence keeps a renewal under way from
// reinstating the hold.
func (s *Service) Undo(g Grant) {
	s.counters.undos.Add(1)
	h := holder{g.Key, g.Owner}
	s.dropHolds(h, g.attempt)
	j := s.endJob(h, grant{fence: g.Fence}, "", []string{g.attempt}, nil)
	for _, n := range s.nodes {
		n.push(j)
	}
	s.waiting.Wake(g.Key)
}
