package locks

import (
	"context"
	"errors"
	"time"
)

// lockWait is Lock in its turn among those who wait at this proxy.
func (s *Service) lockWait(ctx context.Context, r LockRequest) (Decision, error) {
	w, a, err := s.join(ctx, r)
	if w == nil {
		return a, err
	}
	return s.serve(ctx, w, r)
}

// join puts a request in line. There is no waiter where it is answered at once.
func (s *Service) join(ctx context.Context, r LockRequest) (*waiter, Decision, error) {
	if r.Wait > s.opts.MaxWait {
		return nil, Decision{}, &MaxWaitError{Wait: r.Wait, Max: s.opts.MaxWait}
	}
	at := r.Key
	a, err := s.lockAtOnce(ctx, r, at)
	var few *QuorumError
	if a.Granted || r.Wait <= 0 || (err != nil && !errors.As(err, &few)) {
		a.Waiters = s.waiting.count(at)
		return nil, a, err
	}
	w, err := s.waiting.join(at, s.opts.MaxWaiters, r, s.now())
	return w, Decision{}, err
}

// serve is Lock for one who stands in line.
func (s *Service) serve(ctx context.Context, w *waiter, r LockRequest) (Decision, error) {
	a, err := s.inLine(ctx, w, r)
	left, unused := s.waiting.leave(w)
	if unused != nil {
		s.ended(unused.round, s.abandon(unused.a, unused.round), endCanceled)
		s.waiting.stir(w.queue.at) // the next one may have asked before it was undone
	}
	if !a.Granted {
		a.Waiters = left
	}
	return a, err
}

// lockAtOnce is Lock for those who need not stand in line: who does not want to wait,
// if nobody does, and an owner who has the name already.
func (s *Service) lockAtOnce(ctx context.Context, r LockRequest, at Key) (Decision, error) {
	if s.waiting.count(at) == 0 {
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
	k, sure := s.waiting.known(at)
	if !k.says(s.now()) || (!r.generated && !sure) {
		k = s.learn(s.whoHas(ctx, at))
	}
	if !r.generated && k.holder == r.Owner {
		return s.acquireDecided(ctx, r)
	}
	return k.answer(s.now())
}

// whoHas reads from a quorum who has a name. Its errors are those of Lock.
func (s *Service) whoHas(ctx context.Context, at Key) (Decision, error) {
	if err := s.acquireSlot(ctx); err != nil {
		return Decision{}, err
	}
	defer s.releaseSlot()
	votes, err := s.read(ctx, holder{Key: at}, s.opts.timeouts(s.opts.MaxTTL))
	if err != nil {
		return Decision{}, err
	}
	if countKind(votes, yes) < s.quorum {
		return Decision{}, s.quorumError("LOCK", at.Name, votes)
	}
	h, who := s.holding(votes, at)
	if who != oneOwner && who != unsettledGrant {
		return Decision{}, nil
	}
	return Decision{Holder: h.Owner, Remaining: h.Remaining}, nil
}

// inLine is Lock for one waiter: it sleeps until its turn, then asks until it is
// granted or its time is over.
func (s *Service) inLine(ctx context.Context, w *waiter, r LockRequest) (Decision, error) {
	within, cancel := context.WithTimeout(ctx, r.Wait-(s.now()-w.since))
	defer cancel()
	limit := within
	if w.alone {
		limit = ctx // it may take as long as it would without a wait
	} else if a, err := s.awaitTurn(within, w, r); err != nil {
		return s.unserved(ctx, w, err)
	} else if a.Granted {
		return a, nil
	} else if err := s.sleepInLine(within, w); err != nil {
		return s.unserved(ctx, w, err)
	}
	for ; ; limit = within {
		a, err := s.askInLine(limit, w, r)
		if few := (*QuorumError)(nil); err != nil && !errors.As(err, &few) {
			return s.unserved(ctx, w, err)
		}
		k := s.learn(a, err)
		k.elsewhere = !a.Granted && k.holder != "" && !s.grants.holds(holder{r.Key, k.holder}, s.now())
		s.waiting.asked(w, k, s.now())
		if a.Granted {
			a.trigger = w.ground
			return a, nil
		}
		if err := s.sleepInLine(within, w); err != nil {
			return s.unserved(ctx, w, err)
		}
	}
}

// unserved is the answer to a waiter that stopped with err: what is known if only its
// time is over.
func (s *Service) unserved(ctx context.Context, w *waiter, err error) (Decision, error) {
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		k, _ := s.waiting.known(w.queue.at)
		return k.answer(s.now())
	}
	return Decision{}, err
}

// awaitTurn sleeps until w is the asker. If its owner gets the name meanwhile, it enters.
func (s *Service) awaitTurn(ctx context.Context, w *waiter, r LockRequest) (Decision, error) {
	for {
		select {
		case <-w.turn:
			return Decision{}, nil
		case <-w.in:
			a, err := s.acquireDecided(ctx, r)
			a.trigger = triggerOwn
			if few := (*QuorumError)(nil); a.Granted || (err != nil && !errors.As(err, &few)) {
				return a, err
			}
		case <-ctx.Done():
			return Decision{}, ctx.Err()
		case <-s.stop:
			return Decision{}, ErrClosed
		}
	}
}

// sleepInLine returns when w, the asker, should ask, with the error of ctx when that ended
// first, or with ErrClosed.
func (s *Service) sleepInLine(ctx context.Context, w *waiter) error {
	for {
		d := s.waiting.pause(w, s.now())
		if d <= 0 {
			return ctx.Err()
		}
		if err := s.sleepFor(ctx, w, d); err != nil {
			return err
		}
	}
}

// sleepFor returns after d or at news.
func (s *Service) sleepFor(ctx context.Context, w *waiter, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-w.news:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.stop:
		return ErrClosed
	}
}
