package waitq

// An ownerKey names the waiters of one owner in one line.
type ownerKey[K comparable] struct {
	key   K
	owner string
}

// addOwned puts a waiter behind those of the same owner in its line. The waiters of an owner are a ring, so that none of
// them is searched for in a long line. The caller has mu.
func (q *Queues[K, V]) addOwned(w *Waiter[K, V]) {
	if w.owner == "" {
		return
	}
	of := ownerKey[K]{w.Key, w.owner}
	first := q.owned[of]
	if first == nil {
		w.ownNext, w.ownLast = w, w
		q.owned[of] = w
		return
	}
	w.ownNext, w.ownLast = first, first.ownLast
	first.ownLast.ownNext, first.ownLast = w, w
}

// removeOwned takes a waiter from those of its owner. The caller has mu.
func (q *Queues[K, V]) removeOwned(w *Waiter[K, V]) {
	if w.owner == "" {
		return
	}
	of := ownerKey[K]{w.Key, w.owner}
	switch {
	case w.ownNext == w:
		delete(q.owned, of)
	case q.owned[of] == w:
		q.owned[of] = w.ownNext
	}
	w.ownNext.ownLast, w.ownLast.ownNext = w.ownLast, w.ownNext
	w.ownNext, w.ownLast = nil, nil
}

// ownedBy are the waiters of an owner in the line of a key. The caller has mu, and adds and removes none meanwhile.
func (q *Queues[K, V]) ownedBy(k K, owner string) func(yield func(*Waiter[K, V]) bool) {
	return func(yield func(*Waiter[K, V]) bool) {
		first := q.owned[ownerKey[K]{k, owner}]
		for w := first; w != nil && yield(w); {
			if w = w.ownNext; w == first {
				return
			}
		}
	}
}
