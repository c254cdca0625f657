package locks

import (
	"context"
	"errors"

	"github.com/lockproxy/lockproxy/backends/locks/waitq"
)

// A waitingLock is a LOCK in line.
type waitingLock struct {
	LockRequest
	offer *offer // not nil: it has been asked for on its behalf, see releaseAndHandOver
}

type waiter = waitq.Waiter[Key, *waitingLock]

func newWaiting(s *Service) *waitq.Queues[Key, *waitingLock] {
	return waitq.New[Key, *waitingLock](waitq.Options{
		Limit: s.opts.MaxWaiters, Sources: len(s.nodes), Need: s.quorum, Now: s.now, Random: s.opts.random.upTo,
	})
}

// lockWait is Lock in its turn among the waiters of this proxy.
func (s *Service) lockWait(ctx context.Context, r LockRequest) (Decision, error) {
	w, a, err := s.join(ctx, r)
	if w == nil {
		return a, err
	}
	return s.serve(ctx, w)
}

// join puts a request in line. The waiter is nil where the request is answered at once.
func (s *Service) join(ctx context.Context, r LockRequest) (*waiter, Decision, error) {
	if r.Wait > s.opts.MaxWait {
		return nil, Decision{}, &MaxWaitError{Wait: r.Wait, Max: s.opts.MaxWait}
	}
	a, err := s.lockAtOnce(ctx, r)
	var few *QuorumError
	if a.Granted || r.Wait <= 0 || (err != nil && !errors.As(err, &few)) {
		a.Waiters = s.waiting.Len(r.Key)
		return nil, a, err
	}
	owner := r.Owner
	if r.generated {
		owner = ""
	}
	w, err := s.waiting.Join(r.Key, owner, &waitingLock{LockRequest: r})
	if full := (*waitq.FullError)(nil); errors.As(err, &full) {
		err = &QueueFullError{Max: full.Max}
	}
	return w, Decision{}, err
}

// serve is Lock of a waiter.
func (s *Service) serve(ctx context.Context, w *waiter) (Decision, error) {
	a, err := s.waitInLine(ctx, w)
	if errors.Is(err, waitq.ErrClosed) {
		err = ErrClosed
	}
	left, unused := s.waiting.Leave(w)
	if unused {
		o := w.Value.offer
		s.ended(o.round, s.abandon(o.a, o.round), endCanceled)
		s.waiting.Wake(w.Key) // the next one may have asked before it was undone
	}
	if !a.Granted {
		a.Waiters = left
	}
	return a, err
}

// lockAtOnce is Lock without standing in line: for a request that does not wait, where nobody
// waits, and for an owner that has the name already.
func (s *Service) lockAtOnce(ctx context.Context, r LockRequest) (Decision, error) {
	if s.waiting.Len(r.Key) == 0 {
		if r.Wait > 0 {
			return Decision{}, nil
		}
		return s.acquireDecided(ctx, r)
	}
	if r.generated && r.Wait > 0 {
		return Decision{}, nil
	}
	if !r.generated && s.grants.holds(holder{r.Key, r.Owner}, s.now()) {
		return s.acquireDecided(ctx, r)
	}
	k, sure := s.waiting.Known(r.Key)
	if !k.Answers(s.now()) || (!r.generated && !sure) {
		k = s.known(s.readHolder(ctx, r.Key))
	}
	if !r.generated && k.Holder == r.Owner {
		return s.acquireDecided(ctx, r)
	}
	return s.refusal(k)
}

// known is what a decision tells a line.
func (s *Service) known(a Decision, err error) waitq.Known {
	if a.Granted {
		lease := a.Grant.Validity + drift(a.Grant.Validity)
		return waitq.Known{Asked: true, Fresh: a.Grant.Holds == 1, Holder: a.Grant.Owner, Fence: a.Grant.Fence, Until: s.now() + lease}
	}
	return waitq.Known{Asked: true, Holder: a.Holder, Fence: a.fence, Until: s.now() + a.Remaining, Err: err}
}

// refusal is the answer by what a line knows.
func (s *Service) refusal(k waitq.Known) (Decision, error) {
	now := s.now()
	if k.Err != nil {
		return Decision{}, k.Err
	}
	if k.Holder == "" || k.Until <= now {
		return Decision{}, nil
	}
	return Decision{Holder: k.Holder, Remaining: k.Until - now}, nil
}

// readHolder reads from a quorum who has a name. Its errors are those of Lock.
func (s *Service) readHolder(ctx context.Context, k Key) (Decision, error) {
	if err := s.acquireSlot(ctx); err != nil {
		return Decision{}, err
	}
	defer s.releaseSlot()
	votes, err := s.read(ctx, holder{Key: k}, s.opts.timeouts(s.opts.MaxTTL))
	if err != nil {
		return Decision{}, err
	}
	if countKind(votes, yes) < s.quorum {
		return Decision{}, s.quorumError("LOCK", k.Name, votes)
	}
	h, who := s.holding(votes, k)
	if who != oneOwner && who != unsettledGrant {
		return Decision{}, nil
	}
	return Decision{Holder: h.Owner, Remaining: h.Remaining}, nil
}

// waitInLine is Lock of a waiter: it sleeps until its turn, then asks until it is granted or its
// time is over.
func (s *Service) waitInLine(ctx context.Context, w *waiter) (Decision, error) {
	r := w.Value.LockRequest
	within, cancel := context.WithTimeout(ctx, r.Wait-(s.now()-w.Since))
	defer cancel()
	limit := within
	if w.First {
		limit = ctx // it may take as long as it would without a wait
	} else if a, err := s.awaitTurn(within, w, r); err != nil {
		return s.unserved(ctx, w, err)
	} else if a.Granted {
		return a, nil
	} else if err := s.waiting.Sleep(within, w); err != nil {
		return s.unserved(ctx, w, err)
	}
	for ; ; limit = within {
		a, err := s.askInLine(limit, w, r)
		if few := (*QuorumError)(nil); err != nil && !errors.As(err, &few) {
			return s.unserved(ctx, w, err)
		}
		k := s.known(a, err)
		k.Elsewhere = !a.Granted && k.Holder != "" && !s.grants.holds(holder{r.Key, k.Holder}, s.now())
		s.waiting.Asked(w, k)
		if a.Granted {
			a.trigger = w.Trigger()
			return a, nil
		}
		if err := s.waiting.Sleep(within, w); err != nil {
			return s.unserved(ctx, w, err)
		}
	}
}

// unserved is the answer to a waiter that stopped with err: what is known if only its time is
// over.
func (s *Service) unserved(ctx context.Context, w *waiter, err error) (Decision, error) {
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		k, _ := s.waiting.Known(w.Key)
		return s.refusal(k)
	}
	return Decision{}, err
}

// awaitTurn sleeps until w is the head of its line. If its owner gets the name meanwhile, it
// re-enters.
func (s *Service) awaitTurn(ctx context.Context, w *waiter, r LockRequest) (Decision, error) {
	for {
		reenter, err := s.waiting.AwaitTurn(ctx, w)
		if err != nil || !reenter {
			return Decision{}, err
		}
		a, err := s.acquireDecided(ctx, r)
		a.trigger = waitq.Reentry
		if few := (*QuorumError)(nil); a.Granted || (err != nil && !errors.As(err, &few)) {
			return a, err
		}
	}
}
