package waitq

import "time"

// placeFor is how long a waiter that has left may come back to its place.
const placeFor = 2 * time.Second

// A placeKey names a place: the key of the line, and the owner and request of the waiter.
type placeKey[K comparable] struct {
	key        K // with several, the first that was named
	owner, req string
}

// A place is where a waiter stood when it left.
type place[K comparable] struct {
	of     placeKey[K]
	number uint64
	left   time.Duration
}

// keepPlace remembers the place of a waiter that leaves unserved, if it has an owner and a request. If there are too many places, that of
// the waiter which left longest ago is dropped. The caller has mu.
func (q *Queues[K, V]) keepPlace(w *Waiter[K, V]) {
	if w.owner == "" || w.req == "" {
		return
	}
	of := placeKey[K]{w.place, w.owner, w.req}
	q.dropPlace(of)
	if q.placesByAge.Len() >= q.opt.Limit {
		q.dropPlace(q.placesByAge.Front().Value.(place[K]).of)
	}
	q.places[of] = q.placesByAge.PushBack(place[K]{of, w.number, q.opt.Now()})
}

func (q *Queues[K, V]) dropPlace(of placeKey[K]) {
	if e := q.places[of]; e != nil {
		q.placesByAge.Remove(e)
		delete(q.places, of)
	}
}

// dropOldPlaces drops the places of waiters that have been gone for too long. The caller has mu.
func (q *Queues[K, V]) dropOldPlaces() {
	for e := q.placesByAge.Front(); e != nil; e = q.placesByAge.Front() {
		p := e.Value.(place[K])
		if q.opt.Now()-p.left <= placeFor {
			return
		}
		q.dropPlace(p.of)
	}
}

// number is the number of the place that a waiter has left, or that of a new place at the end of the line. The caller
// has mu.
func (q *Queues[K, V]) number(of placeKey[K]) uint64 {
	q.dropOldPlaces()
	if e := q.places[of]; e != nil {
		q.dropPlace(of)
		return e.Value.(place[K]).number
	}
	q.numbers++
	return q.numbers
}

// insert puts a waiter in front of those that came after it, but never in front of a head that is asking. A head that
// sleeps may be overtaken and is then no longer the head: see ErrOvertaken. The caller has mu.
func (l *line[K, V]) insert(w *Waiter[K, V]) {
	at, i, ok := l.waiters.behind(w.number)
	switch head := l.head(); {
	case ok || head == nil:
	case head.asking:
		i = 1
	default:
		head.head, head.nextAsk = make(chan struct{}), 0
		l.notify() // wakes the head that is overtaken
		close(w.head)
	}
	l.waiters.insert(at, i, w)
}

// stepBack has a head that has asked go back behind those that came before it, so that the line is in order. The caller has mu.
func (q *Queues[K, V]) stepBack(w *Waiter[K, V]) {
	l := w.line
	if second := l.waiters.second(); l.head() != w || second == nil || second.number > w.number {
		return
	}
	l.waiters.remove(w)
	at, i, _ := l.waiters.behind(w.number)
	l.waiters.insert(at, i, w)
	w.head, w.nextAsk = make(chan struct{}), 0
	q.promote(l.head())
}
