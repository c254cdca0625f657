package waitq

import "time"

const (
	maxReleases = 8                     // how many releases in a row may hand a key over here while others listen for it
	releaseTime = 50 * time.Millisecond // how long they may go on
	yieldFor    = 5 * time.Millisecond  // how long nobody here asks after that
	yieldMax    = 3 * time.Millisecond  // or up to this much longer
)

// HandOver offers a key that is about to be released to the head, if the head sleeps: it calls begin with the
// head's value. begin must not block; it begins to ask for the key on the head's behalf, may store the offer in
// the value, and reports whether it has. Then Notify must follow. Nothing is offered when it is the turn of waiters
// elsewhere. alone reports
// that every source is listened to, so that the sources need not tell waiters here of this release.
func (q *Queues[K, V]) HandOver(k K, begin func(V) bool) (offered, alone bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s := q.subscriptions[k]; s != nil && q.yields(s) {
		return false, false
	}
	l := q.lines[k]
	if l == nil || l.head().asking {
		return false, false
	}
	w := l.head()
	if !begin(w.Value) {
		return false, false
	}
	w.asking, w.offered = true, true
	l.forgetHints()
	return true, l.subscription != nil && countTrue(l.subscription.confirmed) == q.opt.Sources
}

// yields counts a release, and reports whether it is the turn of waiters elsewhere: then nobody
// here asks for the key for a while.
func (q *Queues[K, V]) yields(s *subscription[K, V]) bool {
	now := q.opt.Now()
	if s.releases == 0 {
		s.releasesSince = now
	}
	if s.releases++; !s.contended || (s.releases <= maxReleases && now-s.releasesSince < releaseTime) {
		return false
	}
	s.releases, s.backOffUntil = 0, now+yieldFor+q.opt.Random(yieldMax)
	return true
}

// Listeners notes how many listeners, this one included, each source has told of a release.
func (q *Queues[K, V]) Listeners(k K, bySource func(source int) int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.subscriptions[k]
	if s == nil {
		return
	}
	s.contended = false
	for i, confirmed := range s.confirmed {
		own := 0
		if confirmed {
			own = 1
		}
		s.contended = s.contended || bySource(i) > own
	}
}
