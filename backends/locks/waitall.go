package locks

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks/waitq"
)

const (
	intentAfter = 3                     // refusals of a request for several names before it has its first intent
	minIntent   = 10 * time.Millisecond // its first
	intentRest  = 3                     // after an intent there is none for so many times as long
)

// lockAllAtOnce is lockAtOnce for several names. It stands in no line for a name that its owner has.
func (s *Service) lockAllAtOnce(ctx context.Context, r Attempt) (lines []Key, a Decision, err error) {
	l := s.linesFor(ctx, &r)
	if r.Wait <= 0 && l.before != nil && !l.mayRead {
		return nil, *l.before, l.err
	}
	if r.Wait <= 0 || len(l.keys) == 0 || l.mayRead {
		a, err = s.store.Acquire(ctx, r)
	}
	if len(l.keys) == 0 { // its owner has lost a name
		l.keys = r.lines()
	}
	return l.keys, a, err
}

// lines are those for the names of a request, in their order.
func (a *Attempt) lines() []Key {
	lines := a.sortedNames()
	for i := range lines {
		lines[i] = lines[i].Whole()
	}
	return lines
}

// linesOf are those in which nobody may stand before a request for several names: those of names that its owner does not have.
func (s *Service) linesOf(r *Attempt) (lines []Key) {
	if len(r.Others) == 0 {
		return nil
	}
	for _, line := range r.lines() {
		if r.Generated || r.NoReenter || !s.hasAny(line, r.Owner) {
			lines = append(lines, line)
		}
	}
	return lines
}

// An intentPlan says when the attempts of a waiting request come with an Intent. One for several names has some, since others would get
// one of the names time and again before all are free; but only for a quarter of the time, since a name that is held for long would else
// stop those who want the others. A writer that waits for readers of its name has one all the time.
type intentPlan struct {
	any      bool // others are, or were, kept out, or may be: no answer tells of all nodes
	refusals int
	round    time.Duration // how long the Store took to refuse it
	length   time.Duration // of the last one; 0: there was none
	notUntil time.Duration
}

func (p *intentPlan) refused(err error, round time.Duration) {
	if err == nil {
		p.refusals++
		p.round = round
	}
}

// next is the Intent of an attempt that is made now, by a request that goes on waiting for so long; 0: none.
func (p *intentPlan) next(r *Attempt, now, wait time.Duration) time.Duration {
	switch {
	case len(r.Others) == 0 && r.Reader != "":
		return 0
	case len(r.Others) == 0:
		p.any = true
		return min(MaxIntent, wait)
	case p.refusals < intentAfter || now < p.notUntil:
		return 0
	}
	p.any = true
	p.length = min(max(2*p.length, 2*p.round, minIntent), MaxIntent)
	p.notUntil = now + (1+intentRest)*p.length
	return p.length
}

// What stands in lines for the names of a request.
type linesFor struct {
	keys    []Key     // in their order: the lines in which it is to stand, those of names that its owner does not have, nor perhaps reads
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
		known := s.knownNow(ctx, line, reenters)
		if reenters && known.Holder == r.Owner {
			continue
		}
		if reenters && known.Soon {
			l.mayRead = true
		} else {
			l.keys = append(l.keys, line)
		}
		if l.before == nil {
			var d Decision
			d, l.err = s.refusal(known)
			d.Of, d.Waiters = line, n
			l.before = &d
		}
	}
	return l
}
