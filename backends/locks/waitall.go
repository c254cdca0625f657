package locks

import (
	"context"
	"errors"

	"github.com/lockproxy/lockproxy/backends/locks/waitq"
)

// lockAll answers a LOCK for several names.
func (s *Service) lockAll(ctx context.Context, r Attempt) (Decision, error) {
	if r.Wait > 0 {
		return Decision{}, errors.New("a LOCK for several names does not wait yet")
	}
	l := s.linesFor(ctx, &r)
	if l.before != nil && !l.mayRead {
		return *l.before, l.err
	}
	a, err := s.store.Acquire(ctx, r)
	if !a.Granted {
		a.Waiters = s.waiting.Len(a.Of)
	}
	return a, err
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
