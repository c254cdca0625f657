package waitq

import (
	"iter"
	"slices"
)

// longestPart is how many waiters are in a part of a row at most.
const longestPart = 256

// A row is the waiters of a line in their order, in parts, so that a place in a long line is found without going past
// everybody. It is guarded by Queues.mu.
type row[K comparable, V any] struct {
	parts []part[K, V] // none is empty
	n     int          // waiters
}

type part[K comparable, V any] struct {
	spots []spot[K, V]
	least uint64 // no number in it is smaller
}

// A spot is a waiter with its number, which is looked at more often than the waiter.
type spot[K comparable, V any] struct {
	number uint64
	waiter *Waiter[K, V]
}

// front is nil if the row is empty.
func (r *row[K, V]) front() *Waiter[K, V] {
	if r.n == 0 {
		return nil
	}
	return r.parts[0].spots[0].waiter
}

// second is nil if there are fewer than two.
func (r *row[K, V]) second() *Waiter[K, V] {
	switch {
	case r.n < 2:
		return nil
	case len(r.parts[0].spots) > 1:
		return r.parts[0].spots[1].waiter
	}
	return r.parts[1].spots[0].waiter
}

// all are the waiters, the front first. The row must not change meanwhile.
func (r *row[K, V]) all() iter.Seq[*Waiter[K, V]] {
	return func(yield func(*Waiter[K, V]) bool) {
		for _, p := range r.parts {
			for _, s := range p.spots {
				if !yield(s.waiter) {
					return
				}
			}
		}
	}
}

// behind is the place, in which part and where in it, behind the last waiter with a number that is not larger. ok is
// false if there is none.
func (r *row[K, V]) behind(number uint64) (at, i int, ok bool) {
	for at := len(r.parts) - 1; at >= 0; at-- {
		p := &r.parts[at]
		if p.least > number {
			continue
		}
		for i := len(p.spots); i > 0; i-- {
			if p.spots[i-1].number <= number {
				return at, i, true
			}
		}
	}
	return 0, 0, false
}

// find is where a waiter of the row is.
func (r *row[K, V]) find(w *Waiter[K, V]) (at, i int) {
	if r.front() == w {
		return 0, 0
	}
	is := func(s spot[K, V]) bool { return s.waiter == w }
	for at = len(r.parts) - 1; at >= 0; at-- {
		if p := &r.parts[at]; p.least <= w.number {
			if i = slices.IndexFunc(p.spots, is); i >= 0 {
				return at, i
			}
		}
	}
	panic("waitq: a waiter is not in its line")
}

// ahead is how many stand before a waiter.
func (r *row[K, V]) ahead(w *Waiter[K, V]) int {
	at, n := r.find(w)
	for _, p := range r.parts[:at] {
		n += len(p.spots)
	}
	return n
}

// insert puts a waiter at the i-th spot of a part. In a part that is full it halves the part first, or begins another one if
// that is the end of the row.
func (r *row[K, V]) insert(at, i int, w *Waiter[K, V]) {
	r.n++
	switch {
	case len(r.parts) == 0 || at == len(r.parts)-1 && i == longestPart:
		r.parts = append(r.parts, part[K, V]{least: w.number})
		at, i = len(r.parts)-1, 0
	case len(r.parts[at].spots) == longestPart:
		const half = longestPart / 2
		full := &r.parts[at]
		second := part[K, V]{spots: slices.Clone(full.spots[half:])}
		second.bound()
		full.spots = slices.Delete(full.spots, half, longestPart)
		r.parts = slices.Insert(r.parts, at+1, second)
		if i > half {
			at, i = at+1, i-half
		}
	}
	p := &r.parts[at]
	p.spots = slices.Insert(p.spots, i, spot[K, V]{w.number, w})
	p.least = min(p.least, w.number)
}

// bound sets least.
func (p *part[K, V]) bound() {
	p.least = p.spots[0].number
	for _, s := range p.spots {
		p.least = min(p.least, s.number)
	}
}

// remove takes a waiter out.
func (r *row[K, V]) remove(w *Waiter[K, V]) {
	at, i := r.find(w)
	r.n--
	p := &r.parts[at]
	if p.spots = slices.Delete(p.spots, i, i+1); len(p.spots) == 0 {
		r.parts = slices.Delete(r.parts, at, at+1)
	}
}
