package waitq

import (
	"cmp"
	"slices"
	"time"
)

// Len is how many wait for a key.
func (q *Queues[K, V]) Len(k K) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := q.lines[k]; l != nil {
		return l.waiters.n
	}
	return 0
}

// Total is how many wait in all lines.
func (q *Queues[K, V]) Total() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiters
}

// An Entry is a waiter as others see it.
type Entry[V any] struct {
	Value   V
	Waiting time.Duration // since it joined
}

// List is the line of a key, the head first.
func (q *Queues[K, V]) List(k K) (all []Entry[V]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lines[k]
	if l == nil {
		return nil
	}
	now := q.opt.Now()
	for w := range l.waiters.all() {
		all = append(all, Entry[V]{w.Value, now - w.Since})
	}
	return all
}

// Place finds the waiter of an owner and a request, neither of which may be empty, in the line of one of some keys. ahead is how many
// stand before it, known is what its line knows. ok is false if there is no such waiter.
func (q *Queues[K, V]) Place(keys []K, owner, req string) (in K, ahead int, known Known, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if owner == "" || req == "" {
		return in, 0, Known{}, false
	}
	var first *Waiter[K, V]
	for _, k := range keys {
		for w := range q.ownedBy(k, owner) {
			if w.req == req && (first == nil || w.number < first.number) {
				first = w
			}
		}
	}
	if first == nil {
		return in, 0, Known{}, false
	}
	return first.Key, first.line.waiters.ahead(first), first.line.known, true
}

// A Line is a line as others see it.
type Line[K comparable, V any] struct {
	Key   K
	Len   int
	Head  Entry[V]
	Known Known

	Asleep    bool // the head waits for hints or a timer, and has planned when to ask
	Confirmed int  // how many sources tell of the key, whether or not somebody waits for it
}

// Line is the line of a key; only Key and Confirmed are set if nobody waits.
func (q *Queues[K, V]) Line(k K) Line[K, V] {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.view(k)
}

func (q *Queues[K, V]) view(k K) Line[K, V] {
	view := Line[K, V]{Key: k}
	if s := q.subscriptions[k]; s != nil {
		view.Confirmed = countTrue(s.confirmed)
	}
	if l := q.lines[k]; l != nil {
		w := l.head()
		view.Len, view.Known = l.waiters.n, l.known
		view.Head = Entry[V]{w.Value, q.opt.Now() - w.Since}
		view.Asleep = w.nextAsk != 0 && !w.asking && !l.woken
	}
	return view
}

// Longest are the longest lines, at most so many; lines of the same length come in the order of their keys.
// total is how many lines there are.
func (q *Queues[K, V]) Longest(most int, order func(a, b K) int) (longest []Line[K, V], total int) {
	q.mu.Lock()
	all := make([]*line[K, V], 0, len(q.lines))
	lengths := make(map[*line[K, V]]int, len(q.lines))
	for _, l := range q.lines {
		all = append(all, l)
		lengths[l] = l.waiters.n
	}
	q.mu.Unlock()
	// Sorted without the mutex, which every waiter needs; keys never change.
	slices.SortFunc(all, func(a, b *line[K, V]) int {
		return cmp.Or(cmp.Compare(lengths[b], lengths[a]), order(a.key, b.key))
	})
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, l := range all[:min(most, len(all))] {
		if view := q.view(l.key); view.Len > 0 {
			longest = append(longest, view)
		}
	}
	return longest, len(all)
}
