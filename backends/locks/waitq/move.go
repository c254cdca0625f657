package waitq

// Pass reports whether w, which need not mind who stands before it in its line, may ask: see AwaitTurn. others are the other keys that it
// wants: if somebody stands before it in the line of one it may not, and stands there from now on.
func (q *Queues[K, V]) Pass(w *Waiter[K, V], others ...K) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return !q.goBehind(w, others)
}

// Move has w, which was refused since somebody has another of its keys, stand in the line of that one. k is what it was told: the
// line learns that if nobody stands there. Then its head asks again soon, since that key may have been released meanwhile.
func (q *Queues[K, V]) Move(w *Waiter[K, V], to K, k Known) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.move(w, to)
	if l := w.line; l.head() == w && !l.known.Asked {
		q.tell(w, k)
		l.askAt = q.opt.Now() + q.opt.Random(nobodyPause)
	}
}

// goBehind has w stand behind somebody who came before it and stands in the line of one of some keys; it reports false if nobody
// does. The caller has mu.
func (q *Queues[K, V]) goBehind(w *Waiter[K, V], keys []K) bool {
	k, ok := q.before(w, keys)
	if ok {
		q.move(w, k)
	}
	return ok
}

// before is the first of some keys in whose line, which is not that of w, somebody stands who came before w. It does not count where the
// owner of w is known to have the key, or may be one of those who share it, or w would be let in at once. The caller has mu.
func (q *Queues[K, V]) before(w *Waiter[K, V], keys []K) (k K, ok bool) {
	for _, k := range keys {
		l := q.lines[k]
		if l == nil || l == w.line || l.letsIn(w) || w.owner != "" && (l.known.Holder == w.owner || w.use == Sharing && l.known.Soon) {
			continue
		}
		if _, _, ok := l.waiters.behind(w.number); ok {
			return k, true
		}
	}
	return k, false
}

// move has w stand in another line, with its number. The caller has mu.
func (q *Queues[K, V]) move(w *Waiter[K, V], to K) {
	q.remove(w)
	w.Key, w.asking, w.nextAsk = to, false, 0
	select {
	case <-w.reenter: // that was about the other key
	default:
	}
	q.enter(w)
}
