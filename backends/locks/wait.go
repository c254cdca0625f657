package locks

import (
	"context"
	"errors"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks/waitq"
)

type waiter = waitq.Waiter[Key, *Waiting]

func newWaiting(o *Options, st Store) *Lines {
	w := waitq.Options{Limit: o.MaxWaiters, Need: 1, Now: st.Now, Random: o.Random.UpTo}
	if n, ok := st.(Notifier); ok {
		w.Sources, w.Need = n.Sources()
	}
	return waitq.New[Key, *Waiting](w)
}

// lockWait is Lock in its turn among the waiters of this proxy.
func (s *Service) lockWait(ctx context.Context, r Attempt) (Decision, error) {
	w, a, err := s.join(ctx, r)
	if w == nil {
		return a, err
	}
	return s.serve(ctx, w)
}

// join puts a request in line. The waiter is nil where the request is answered at once.
func (s *Service) join(ctx context.Context, r Attempt) (*waiter, Decision, error) {
	if r.Wait > s.options.MaxWait {
		return nil, Decision{}, &MaxWaitError{Wait: r.Wait, Max: s.options.MaxWait}
	}
	a, err := s.lockAtOnce(ctx, r)
	var few *QuorumError
	if a.Granted || r.Wait <= 0 || (err != nil && !errors.As(err, &few)) {
		a.Waiters = s.waiting.Len(r.Key)
		return nil, a, err
	}
	owner := r.Owner
	if r.Generated {
		owner = ""
	}
	w, err := s.waiting.Join(r.Key, owner, r.Req, &Waiting{Attempt: r})
	if full := (*waitq.FullError)(nil); errors.As(err, &full) {
		err = &QueueFullError{Max: full.Max}
	}
	if err == nil && !w.First {
		s.queued(r)
	}
	return w, Decision{}, err
}

// queued tells of a request that waits.
func (s *Service) queued(r Attempt) {
	if r.Queue == nil {
		return
	}
	if place, waits := s.place(r.Key, r.Owner, r.Req); waits {
		r.Queue.Queued(place)
	}
}

// serve is Lock of a waiter.
func (s *Service) serve(ctx context.Context, w *waiter) (Decision, error) {
	a, err := s.waitInLine(ctx, w)
	if errors.Is(err, waitq.ErrClosed) {
		err = ErrClosed
	}
	left, unused := s.waiting.Leave(w, a.Granted)
	if unused {
		w.Value.Offer.Withdraw()
		s.waiting.Wake(w.Key) // the next one may have asked before it was undone
	}
	if !a.Granted {
		a.Waiters = left
	}
	return a, err
}

// lockAtOnce is Lock without standing in line: for a request that does not wait, where nobody
// waits, and for an owner that has the name already.
func (s *Service) lockAtOnce(ctx context.Context, r Attempt) (Decision, error) {
	if s.waiting.Len(r.Key) == 0 {
		if r.Wait > 0 {
			return Decision{}, nil
		}
		return s.store.Acquire(ctx, r)
	}
	if (r.Barge || r.Replaces != nil) && r.Wait <= 0 {
		return s.store.Acquire(ctx, r)
	}
	if r.Generated && r.Wait > 0 {
		return Decision{}, nil
	}
	if !r.Generated && s.store.Holds(Holder{r.Key, r.Owner}) {
		return s.store.Acquire(ctx, r)
	}
	k, sure := s.waiting.Known(r.Key)
	if !k.Answers(s.store.Now()) || (!r.Generated && !sure) {
		a, err := s.store.Holder(ctx, r.Key)
		k = s.known(s.store.Now(), a, err) // for this answer only
	}
	if !r.Generated && k.Holder == r.Owner {
		return s.store.Acquire(ctx, r)
	}
	return s.refusal(k)
}

// known is what a decision tells a line. The holder's lease is counted from when the question was sent, so that a late answer does not
// make those in line wait longer.
func (s *Service) known(asked time.Duration, a Decision, err error) waitq.Known {
	if a.Granted {
		lease := a.Grant.Validity + Drift(a.Grant.Validity)
		return waitq.Known{Asked: true, Fresh: a.Grant.Holds == 1, Holder: a.Grant.Owner, Fence: a.Grant.Fence, Until: s.store.Now() + lease}
	}
	return waitq.Known{Asked: true, Holder: a.Holder, Fence: a.Fence, Until: asked + a.Remaining, Err: err}
}

// refusal is the answer by what a line knows.
func (s *Service) refusal(k waitq.Known) (Decision, error) {
	now := s.store.Now()
	if k.Err != nil {
		return Decision{}, k.Err
	}
	if k.Holder == "" || k.Until <= now {
		return Decision{}, nil
	}
	return Decision{Holder: k.Holder, Remaining: k.Until - now}, nil
}

// waitInLine is Lock of a waiter: it sleeps until its turn, then asks until it is granted or its
// time is over.
func (s *Service) waitInLine(ctx context.Context, w *waiter) (Decision, error) {
	r := w.Value.Attempt
	within, cancel := context.WithTimeout(ctx, r.Wait-(s.store.Now()-w.Since))
	defer cancel()
	for first := w.First; ; first = false {
		limit := within
		if first {
			limit = ctx // it may take as long as it would without a wait
		} else if a, err := s.sleepInLine(within, w, r); err != nil {
			return s.unserved(ctx, w, err)
		} else if a.Granted {
			return a, nil
		}
		asked := s.store.Now()
		a, err := s.askInLine(limit, w, r)
		if errors.Is(err, waitq.ErrOvertaken) {
			if first {
				s.queued(r)
			}
			continue
		}
		if few := (*QuorumError)(nil); err != nil && !errors.As(err, &few) {
			return s.unserved(ctx, w, err)
		}
		k := s.known(asked, a, err)
		k.Elsewhere = !a.Granted && k.Holder != "" && !s.store.Holds(Holder{r.Key, k.Holder})
		s.waiting.Asked(w, k)
		if a.Granted {
			a.trigger = w.Trigger()
			return a, nil
		}
		if first {
			s.queued(r)
		}
	}
}

// sleepInLine returns when w is the head of its line and is to ask, or with the grant of its owner who has re-entered.
func (s *Service) sleepInLine(ctx context.Context, w *waiter, r Attempt) (Decision, error) {
	for {
		if a, err := s.awaitTurn(ctx, w, r); err != nil || a.Granted {
			return a, err
		}
		if err := s.waiting.Sleep(ctx, w); !errors.Is(err, waitq.ErrOvertaken) {
			return Decision{}, err
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
func (s *Service) awaitTurn(ctx context.Context, w *waiter, r Attempt) (Decision, error) {
	for {
		reenter, err := s.waiting.AwaitTurn(ctx, w)
		if err != nil || !reenter {
			return Decision{}, err
		}
		a, err := s.store.Acquire(ctx, r)
		a.trigger = waitq.Reentry
		if few := (*QuorumError)(nil); a.Granted || (err != nil && !errors.As(err, &few)) {
			return a, err
		}
	}
}

// askInLine is Acquire, or the rest of the acquisition that was offered; with waitq.ErrOvertaken nothing was asked.
func (s *Service) askInLine(ctx context.Context, w *waiter, r Attempt) (Decision, error) {
	switch offered, err := s.waiting.Ask(w); {
	case err != nil:
		return Decision{}, err
	case offered:
		return w.Value.Offer.Await(ctx)
	}
	return s.store.Acquire(ctx, r)
}
