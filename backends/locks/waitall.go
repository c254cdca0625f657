package locks

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks/waitq"
)

const (
	patience    = 3                     // refusals of a request for several names before it keeps others out
	keepOutFrom = 10 * time.Millisecond // the shortest KeepOut of such a request
	keepOutRest = 3                     // after a KeepOut there is none for so many times as long
)

type group = waitq.Group[Key, *Waiting]

// lockAll is lockWait for several names.
func (s *Service) lockAll(ctx context.Context, r Attempt) (Decision, error) {
	g, a, err := s.joinAll(ctx, r)
	if g == nil {
		return a, err
	}
	return s.serveAll(ctx, g)
}

// joinAll is join for several names: the request stands in the lines of those that its owner does not have.
func (s *Service) joinAll(ctx context.Context, r Attempt) (*group, Decision, error) {
	if err := s.checkWait(&r); err != nil {
		return nil, Decision{}, err
	}
	l := s.linesFor(ctx, &r)
	if r.Wait <= 0 && l.before != nil && !l.mayRead {
		return nil, *l.before, l.err
	}
	if r.Wait <= 0 || len(l.keys) == 0 || l.mayRead {
		a, err := s.store.Acquire(ctx, r)
		if r.Wait <= 0 || settled(a, err) {
			return nil, s.placed(a), err
		}
	}
	if len(l.keys) == 0 { // its owner has lost a name
		for _, k := range r.sortedNames() {
			l.keys = append(l.keys, k.Whole())
		}
	}
	g, err := s.waiting.JoinAll(l.keys, r.lineOwner(), r.Req, r.use(), &Waiting{Attempt: r})
	if err == nil && !g.First {
		s.queued(&r)
	}
	return g, Decision{}, queueFull(err)
}

// serveAll is serve for several names.
func (s *Service) serveAll(ctx context.Context, g *group) (Decision, error) {
	a, err := s.waitInLines(ctx, g)
	if errors.Is(err, waitq.ErrClosed) {
		err = ErrClosed
	}
	s.waiting.LeaveAll(g, a.Granted)
	return s.placed(a), err
}

// placed is a Decision on several names with the name in the way, and how many wait for that.
func (s *Service) placed(a Decision) Decision {
	if !a.Granted {
		a.Of = a.Of.Whole()
		a.Waiters = s.waiting.Len(a.Of)
	}
	return a
}

// waitInLines sleeps until it is the turn of a group in all lines, then asks the Store again and again, until all names are granted
// or the time is over. Between two questions it has none of the names.
func (s *Service) waitInLines(ctx context.Context, g *group) (d Decision, err error) {
	r, began := g.Value.Attempt, time.Now()
	within, cancel := context.WithTimeout(ctx, r.Wait-(s.store.Now()-g.Since))
	defer cancel()
	var out keepingOut
	defer func() {
		if out.length > 0 && !d.Granted {
			for _, k := range r.Names() {
				s.store.LetIn(Holder{k, r.Owner})
			}
		}
	}()
	var of Key
	var last waitq.Known
	for first := g.First; ; first = false {
		limit := within
		if first {
			limit = ctx // it may take as long as it would without a wait
		} else if err := s.waiting.AwaitAll(within, g); err != nil {
			return s.unservedAll(ctx, &r, of, last, err)
		}
		if s.waiting.AskAll(g) != nil {
			continue
		}
		asked := s.store.Now()
		r.KeepOut, r.Since = out.next(asked), time.Time{}
		if r.KeepOut > 0 {
			r.Since = began
		}
		a, err := s.store.Acquire(limit, r)
		if settled(a, err) && err != nil {
			return s.unservedAll(ctx, &r, of, last, err)
		}
		if a.trigger = g.Trigger(); a.Granted {
			s.waiting.GotAll(g, func(line Key) waitq.Known { return s.knownOf(&r, &a, line) })
			return a, nil
		}
		of, last = a.Of.Whole(), s.known(asked, a, err)
		last.Elsewhere = last.Holder != "" && !s.hasAny(of, last.Holder)
		s.waiting.RefusedAll(g, of, last)
		if a.Why == Upgrade {
			return a, nil
		}
		if err == nil {
			out.refused(s.store.Now() - asked)
		}
		if first {
			s.queued(&r)
		}
	}
}

// knownOf is known for one of several names that are granted.
func (s *Service) knownOf(r *Attempt, a *Decision, line Key) waitq.Known {
	for i, k := range r.Names() {
		if k.Whole() == line {
			return s.known(0, Decision{Granted: true, Grant: *a.grantOf(i)}, nil)
		}
	}
	return waitq.Known{}
}

// unservedAll is unserved for several names: if only the time is over, that is a refusal by what the lines know, or by what the
// request was told last, of a name that has no line.
func (s *Service) unservedAll(ctx context.Context, r *Attempt, of Key, last waitq.Known, err error) (Decision, error) {
	if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
		return Decision{}, err
	}
	var unknown error
	for _, k := range r.sortedNames() {
		known, _ := s.waiting.Known(k.Whole())
		d, err := s.refusal(known)
		if d.Holder != "" && d.Holder != r.Owner {
			d.Of = k.Whole()
			return d, nil
		}
		unknown = cmp.Or(unknown, err)
	}
	d, err := s.refusal(last)
	if d.Holder != "" {
		d.Of = of
	}
	return d, cmp.Or(unknown, err)
}

// keepingOut is when a request for several names has others kept out of them, who would get one of them time and again before all
// are free. They are kept out for a quarter of the time, since a name that is held for long would else stop those who want the others.
type keepingOut struct {
	refusals int
	round    time.Duration // how long the Store took to refuse it
	length   time.Duration // of the last one; 0: there was none
	notUntil time.Duration
}

func (o *keepingOut) refused(round time.Duration) {
	o.refusals++
	o.round = round
}

// next is the KeepOut of an attempt that is made now.
func (o *keepingOut) next(now time.Duration) time.Duration {
	if o.refusals < patience || now < o.notUntil {
		return 0
	}
	o.length = min(max(2*o.length, 2*o.round, keepOutFrom), KeepOutFor)
	o.notUntil = now + (1+keepOutRest)*o.length
	return o.length
}

// What stands in lines for the names of a request.
type linesFor struct {
	keys    []Key     // in their order: the lines in which it is to stand, those of names that its owner does not have
	before  *Decision // the refusal by the first of them in which somebody stands; nil: nobody does
	err     error     // or why it is not known who has that name
	mayRead bool      // its owner may be one of those who read one of the names
}

// linesFor looks, as lockAtOnce does for one name, who stands in line for the names of a request.
func (s *Service) linesFor(ctx context.Context, r *Attempt) (l linesFor) {
	reenters := !r.Generated && !r.NoReenter
	for _, k := range r.sortedNames() {
		line := k.Whole()
		if reenters && s.hasAny(k, r.Owner) {
			continue
		}
		n := s.waiting.Len(line)
		if n == 0 || r.use() == waitq.Sharing && s.waiting.Alone(line) == 0 {
			l.keys = append(l.keys, line)
			continue
		}
		known, sure := s.waiting.Known(line)
		if !known.Answers(s.store.Now()) || reenters && !sure && !known.Soon {
			a, err := s.store.Holder(ctx, line)
			known = s.known(s.store.Now(), a, err) // for this answer only
		}
		if reenters && known.Holder == r.Owner {
			continue
		}
		l.keys = append(l.keys, line)
		l.mayRead = l.mayRead || reenters && known.Soon
		if l.before == nil {
			var d Decision
			d, l.err = s.refusal(known)
			d.Of, d.Waiters = line, n
			l.before = &d
		}
	}
	return l
}
