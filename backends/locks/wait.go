package locks

import (
	"context"
	"errors"
	"slices"
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

// lockWait answers a LOCK, which may have to stand in line first.
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
	lines, a, err := s.lockAtOnce(ctx, r)
	if r.Wait <= 0 || endsWait(a, err) {
		return nil, s.placed(&r, a), err
	}
	owner := r.Owner
	if r.Generated {
		owner = ""
	}
	w, err := s.waiting.Join(lines, owner, r.Req, r.use(), &Waiting{Attempt: r})
	if full := (*waitq.FullError)(nil); errors.As(err, &full) {
		err = &QueueFullError{Max: full.Max}
	}
	if err == nil && !w.First {
		s.queued(&r)
	}
	return w, Decision{}, err
}

// endsWait reports whether an answer ends a wait.
func endsWait(a Decision, err error) bool {
	few := (*QuorumError)(nil)
	return a.Granted || a.Why == Upgrade || err != nil && !errors.As(err, &few)
}

// queued tells of a request that waits.
func (s *Service) queued(r *Attempt) {
	if r.Queue == nil {
		return
	}
	if place, waits := s.place(r); waits {
		r.Queue.Queued(place)
	}
}

// serve waits in line until the request is decided, and takes the waiter out of the line.
func (s *Service) serve(ctx context.Context, w *waiter) (Decision, error) {
	a, err := s.waitInLine(ctx, w)
	if errors.Is(err, waitq.ErrClosed) {
		err = ErrClosed
	}
	_, unused := s.waiting.Leave(w, a.Granted)
	if unused {
		w.Value.Offer.Withdraw()
		s.waiting.Wake(w.Key) // the next one may have asked before it was undone
	}
	return s.placed(&w.Value.Attempt, a), err
}

// placed is a Decision with how many wait for the name, of several for the one in the way.
func (s *Service) placed(r *Attempt, a Decision) Decision {
	switch {
	case a.Granted:
	case len(r.Others) == 0:
		a.Waiters = s.waiting.Len(r.Whole())
	default:
		a.Of = a.Of.Whole()
		a.Waiters = s.waiting.Len(a.Of)
	}
	return a
}

// lockAtOnce answers a LOCK that need not stand in line: one without Wait, and one of an owner that has the name
// already. If a LOCK with Wait gets no grant and no error here, it must stand in one of these lines.
func (s *Service) lockAtOnce(ctx context.Context, r Attempt) (lines []Key, a Decision, err error) {
	if len(r.Others) > 0 {
		return s.lockAllAtOnce(ctx, r)
	}
	a, err = s.lockOneAtOnce(ctx, r)
	return []Key{r.Whole()}, a, err
}

// lockOneAtOnce is lockAtOnce for one name.
func (s *Service) lockOneAtOnce(ctx context.Context, r Attempt) (Decision, error) {
	line := r.Whole()
	if s.waiting.Len(line) == 0 {
		if r.Wait > 0 {
			return Decision{}, nil
		}
		return s.store.Acquire(ctx, r)
	}
	if r.use() == waitq.Sharing && s.waiting.Alone(line) == 0 {
		k, _ := s.waiting.Known(line)
		switch {
		case r.Wait <= 0:
			return s.store.Acquire(ctx, r)
		case !k.Asked: // it asks at once when it has joined
			return Decision{}, nil
		case k.Soon: // perhaps because of permits, of which it needs none
			return s.store.Acquire(ctx, r)
		}
	}
	if (r.Barge || r.Replaces != nil) && r.Wait <= 0 {
		return s.store.Acquire(ctx, r)
	}
	if r.Generated && r.Wait > 0 {
		return Decision{}, nil
	}
	if !r.Generated && s.hasAny(r.Key, r.Owner) {
		return s.store.Acquire(ctx, r)
	}
	k := s.knownNow(ctx, line, !r.Generated)
	if !r.Generated && (k.Holder == r.Owner || k.Soon) { // perhaps its owner is one of the readers
		return s.store.Acquire(ctx, r)
	}
	return s.refusal(k)
}

// knownNow is what a line knows of its name, or what the Store says, for this answer only, if that may be out of date. If it is asked for an
// owner who may have got the name meanwhile, the line must be sure.
func (s *Service) knownNow(ctx context.Context, line Key, mayHave bool) waitq.Known {
	k, sure := s.waiting.Known(line)
	if k.Answers(s.store.Now()) && (!mayHave || sure || k.Soon) {
		return k
	}
	a, err := s.store.Holder(ctx, line)
	return s.known(s.store.Now(), a, err)
}

// hasAny reports whether the Store knows that an owner has a name in any way.
func (s *Service) hasAny(k Key, owner string) bool {
	h := Holder{k.Whole(), owner}
	return s.store.Holds(h) || s.store.Holds(h.Reading())
}

// known turns the Store's answer into what a line knows. The holder's lease is counted from when the question was
// sent, so that a late answer does not make waiters wait longer.
func (s *Service) known(asked time.Duration, a Decision, err error) waitq.Known {
	if a.Granted {
		lease := a.Grant.Validity + Drift(a.Grant.Validity)
		return waitq.Known{Asked: true, Fresh: a.Grant.Holds == 1, Holder: a.Grant.Owner, Fence: a.Grant.Fence, Until: s.store.Now() + lease}
	}
	return waitq.Known{Asked: true, Holder: a.Holder, Fence: a.Fence, Until: asked + a.Remaining, Soon: a.Why != Held, Room: a.Why == Permits, Err: err}
}

// refusal is the answer to a LOCK by what its line knows, without asking the Store.
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

// waitInLine sleeps until it is the waiter's turn, then asks the Store again and again, until all its names are granted or
// the waiter's time is over. Between two questions it has none of several names.
func (s *Service) waitInLine(ctx context.Context, w *waiter) (d Decision, err error) {
	r := w.Value.Attempt
	within, cancel := context.WithTimeout(ctx, r.Wait-(s.store.Now()-w.Since))
	defer cancel()
	if len(r.Others) > 0 {
		r.Since = time.Now().Add(w.Since - s.store.Now())
	}
	var plan intentPlan
	defer func() {
		if plan.any && (!d.Granted || len(r.Others) > 0) {
			for _, k := range r.Names() {
				s.store.DropIntent(Holder{k, r.Owner})
			}
		}
	}()
	for first := w.First; ; first = false {
		limit := within
		if first {
			limit = ctx // it may take as long as it would without a wait
		} else if a, err := s.sleepInLine(within, w, r); err != nil {
			return s.unserved(ctx, w, err)
		} else if a.Granted || a.Why == Upgrade {
			return a, nil
		}
		offered, err := s.waiting.Ask(w, s.linesOf(&r)...)
		if err != nil {
			if first {
				s.queued(&r)
			}
			continue
		}
		asked, ask := s.store.Now(), r
		ask.Intent = plan.next(&r, asked, r.Wait-(asked-w.Since))
		a, err := s.askInLine(limit, w, ask, offered)
		if err != nil && endsWait(a, err) {
			return s.unserved(ctx, w, err)
		}
		s.noteAnswer(w, &r, asked, a, err)
		if a.Granted || a.Why == Upgrade {
			a.trigger = w.Trigger()
			return a, nil
		}
		plan.refused(err, s.store.Now()-asked)
		if first {
			s.queued(&r)
		}
	}
}

// noteAnswer notes what the Store answered to w in the line in which it stands.
func (s *Service) noteAnswer(w *waiter, r *Attempt, asked time.Duration, a Decision, err error) {
	switch {
	case a.Granted && r.use() == waitq.Sharing:
		s.waiting.Shared(w)
	case a.Granted && r.use() == waitq.Limited: // there may be another permit for the next in line
		s.waiting.Asked(w, waitq.Known{})
	case a.Granted:
		is := func(k Key) bool { return k.Whole() == w.Key }
		s.waiting.Asked(w, s.known(asked, Decision{Granted: true, Grant: *a.grantOf(1 + slices.IndexFunc(r.Others, is))}, nil))
	default:
		s.noteRefusal(w, asked, a, err)
	}
}

// noteRefusal has w stand in the line of the name in the way.
func (s *Service) noteRefusal(w *waiter, asked time.Duration, a Decision, err error) {
	of, k := w.Key, s.known(asked, a, err)
	if a.Of.Name != "" {
		of = a.Of.Whole()
	}
	k.Elsewhere = k.Holder != "" && !s.hasAny(of, k.Holder)
	if of == w.Key {
		s.waiting.Asked(w, k)
	} else {
		s.waiting.Move(w, of, k)
	}
}

// sleepInLine returns when w is the head of its line and it is time to ask, or with a grant if w's owner has got the
// name meanwhile, so that w re-enters.
func (s *Service) sleepInLine(ctx context.Context, w *waiter, r Attempt) (Decision, error) {
	for {
		if a, err := s.awaitTurn(ctx, w, r); err != nil || a.Granted || a.Why == Upgrade {
			return a, err
		}
		if err := s.waiting.Sleep(ctx, w); !errors.Is(err, waitq.ErrOvertaken) {
			return Decision{}, err
		}
	}
}

// unserved is the answer to a waiter that stopped with err. If only its time is over, that is a refusal by what the
// line knows in which it stands.
func (s *Service) unserved(ctx context.Context, w *waiter, err error) (Decision, error) {
	if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
		return Decision{}, err
	}
	k, _ := s.waiting.Known(w.Key)
	d, err := s.refusal(k)
	if len(w.Value.Others) > 0 {
		d.Of = w.Key
	}
	return d, err
}

// awaitTurn sleeps until w is the head of its line. If its owner gets the name meanwhile, it
// re-enters.
func (s *Service) awaitTurn(ctx context.Context, w *waiter, r Attempt) (Decision, error) {
	for {
		reenter, err := s.waiting.AwaitTurn(ctx, w)
		if err != nil || !reenter {
			return Decision{}, err
		}
		if !s.waiting.Pass(w, s.linesOf(&r)...) {
			continue
		}
		asked := s.store.Now()
		a, err := s.store.Acquire(ctx, r)
		a.trigger = waitq.Reentry
		if endsWait(a, err) {
			return a, err
		}
		if of := a.Of.Whole(); of.Name != "" && of != w.Key { // it has no turn in its line, so that only another one learns of that
			s.noteRefusal(w, asked, a, err)
		}
	}
}

// askInLine asks the Store, or awaits the acquisition that was begun as an Offer.
func (s *Service) askInLine(ctx context.Context, w *waiter, r Attempt, offered bool) (Decision, error) {
	if offered {
		return w.Value.Offer.Await(ctx)
	}
	return s.store.Acquire(ctx, r)
}
