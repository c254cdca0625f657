package locks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Limits on the fields of a request, in bytes.
const (
	MaxName  = 64 << 10
	MaxOwner = 1 << 10
	MaxReq   = 1 << 10
	MaxInfo  = 256
)

// MaxPermits is the most that Permits may be: a node that refuses looks at all of them.
const MaxPermits = 1000

// MaxNames is how many names one LOCK may be for, see LockRequest.Others.
const MaxNames = 64

// MaxHolds is how many holds of one name an owner may have; the scripts know it too.
const MaxHolds = 1000

// Lock asks for the name, and waits for it if the request says so. If another owner has it, Granted is false;
// that is no error. An error is a *QuorumError when too few nodes voted, that of ctx when it ended first, or
// reports an invalid request. If Lock grants nothing, what some nodes granted is undone on all that can be
// reached, perhaps after Lock has returned.
func (s *Service) Lock(ctx context.Context, r LockRequest) (Decision, error) {
	attempt, err := s.prepare(r)
	if err != nil {
		return Decision{}, err
	}
	a, err := s.lockRequest(ctx, attempt)
	return s.countDecision(&attempt, a, err)
}

// prepare checks a request and fills in its defaults.
func (s *Service) prepare(lr LockRequest) (r Attempt, err error) {
	if lr.Open {
		lr.TTL = s.openTTL()
	}
	lr.Shared = lr.Shared || lr.Permits > 0
	if err := s.check(lr); err != nil {
		return r, err
	}
	r = Attempt{LockRequest: lr, Asked: s.store.Now()}
	if r.Owner == "" {
		r.Owner, r.Generated = s.options.Random.ID(), true
	}
	if r.Shared {
		r.Reader = r.Owner
	}
	r.Others = slices.Clone(r.Others)
	for i := range r.Others {
		r.Others[i].Reader = r.Reader
	}
	if r.Session != nil {
		setDefault(&r.MaxHold, s.options.MaxHold)
		r.TTL = min(r.TTL, r.MaxHold)
		r.Asker = r.Session
	}
	return r, nil
}

// countDecision counts the decision on a request.
func (s *Service) countDecision(r *Attempt, a Decision, err error) (Decision, error) {
	now := s.store.Now()
	s.top.answered(r.Whole(), a.Granted, now-r.Asked, now)
	for _, k := range r.Others {
		s.top.answered(k.Whole(), a.Granted, now-r.Asked, now)
	}
	s.emitDecision(r, a, err, now-r.Asked)
	return s.counters.locked(r.Shared, a, err, now-r.Asked)
}

func (s *Service) check(r LockRequest) error {
	if err := errors.Join(checkName(r.Key), checkOthers(&r)); err != nil {
		return err
	}
	switch {
	case len(r.Owner) > MaxOwner:
		return fmt.Errorf("the owner has %d bytes, more than %d", len(r.Owner), MaxOwner)
	case len(r.Info) > MaxInfo:
		return fmt.Errorf("the info has %d bytes, more than %d", len(r.Info), MaxInfo)
	}
	if err := checkReq(r.Owner, r.Req); err != nil {
		return err
	}
	if r.Permits < 0 || r.Permits > MaxPermits {
		return fmt.Errorf("there may be 1 to %d permits, not %d", MaxPermits, r.Permits)
	}
	if r.Shared && (r.Open || r.Replaces != nil) {
		return errors.New("a reader's lease has an end, and takes no other's place")
	}
	if r.Replaces != nil && (r.Wait > 0 || r.Fresh || r.NoReenter) {
		return errors.New("a LOCK that replaces a grant neither waits nor says whether it re-enters")
	}
	if r.Replaces != nil && r.Replaces.Fence <= 0 {
		return fmt.Errorf("no grant has the fence %d", r.Replaces.Fence)
	}
	if err := s.checkOpen(&r); err != nil {
		return err
	}
	if r.MaxHold != 0 && r.MaxHold < s.options.MinTTL {
		return fmt.Errorf("max-hold %v is under the shortest lease of %v", r.MaxHold, s.options.MinTTL)
	}
	return s.checkTTL(r.TTL)
}

func (s *Service) checkTTL(ttl time.Duration) error {
	if ttl < s.options.MinTTL || ttl > s.store.MaxTTL() {
		return fmt.Errorf("ttl %v is not within %v and %v", ttl, s.options.MinTTL, s.store.MaxTTL())
	}
	return nil
}

// Renew makes the lease end TTL from now, which may be earlier than before, and
// returns its validity. It never creates a lock. Errors are ErrLost,
// *NotOwnerError, *QuorumError or that of ctx.
func (s *Service) Renew(ctx context.Context, r RenewRequest) (validity time.Duration, err error) {
	if r.Open {
		r.TTL = s.openTTL()
	}
	if err := s.checkTTL(r.TTL); err != nil {
		return 0, err
	}
	if r.Shared {
		r.Reader = r.Owner
	}
	h := Holder{r.Key, r.Owner}
	s.keepalive.setTTL(h, r.Fence, r.TTL)
	validity, err = s.store.Renew(ctx, r)
	s.keepalive.recheck(h, NotHeld(err))
	s.emitLost(r.Key, r.Owner, r.Fence, "RENEW", err)
	s.counters.failed(err)
	return validity, err
}

// Unlock gives back the hold this owner took last, or all, and returns how many the owner has left: 0 means
// that the name is free. A repeat gets the first answer again: an UNLOCK with the same Req, or another one for
// the grant that was released last. If a LOCK of the owner had the same Req, the hold which that LOCK took is
// given back. Errors are ErrLost, *NotOwnerError, *QuorumError or that of ctx. Whatever the answer, the release
// is repeated to nodes that could not be reached until no lease can run any more.
func (s *Service) Unlock(ctx context.Context, r UnlockRequest) (holdsLeft int, err error) {
	if err := checkReq(r.Owner, r.Req); err != nil {
		return 0, err
	}
	if r.Shared {
		r.Reader = r.Owner
	}
	if r.Req != "" {
		end, err := s.requests.begin(ctx, requestKey{true, r.Key, r.Owner, r.Req}, s.store.MaxTTL())
		if err != nil {
			return 0, err
		}
		defer end()
	}
	at := time.Now()
	holdsLeft, err = s.counters.released(s.store.Release(ctx, r))
	s.emitRelease(r, at, holdsLeft, err)
	return holdsLeft, err
}

// Read returns who has a name: one owner under one fence, or nobody. While the votes do not decide that, it asks
// again; after a while the error is a *QuorumError. Any other error is that of ctx.
func (s *Service) Read(ctx context.Context, k Key) (Reading, error) { return s.store.Read(ctx, k) }

// Undo takes a grant back, as if it had not been made. It does not wait for nodes.
func (s *Service) Undo(g Grant) { s.store.Undo(g) }
