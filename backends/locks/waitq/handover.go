package waitq

import "time"

const (
	maxReleases = 8                     // in a row after which a key stays here, while others listen,
	releaseTime = 50 * time.Millisecond // and for how long they may go on
	yieldFor    = 5 * time.Millisecond  // then nobody here asks for this long, and
	yieldMax    = 3 * time.Millisecond  // up to so much longer
)

// HandOver offers a key that is about to be released to the head, if that sleeps: begin is called
// with its value, begins to ask on its behalf, and may keep the offer there. It must not block. Then Notify must
// follow. Nothing is offered when it is the turn of waiters elsewhere. alone reports that every
// source is listened to, so that waiters here need not be told of the release by them.
func (q *Queues[K, V]) HandOver(k K, begin func(V)) (offered, alone bool) {
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
	w.asking, w.offered = true, true
	l.forgetHints()
	begin(w.Value)
	return true, l.subscription != nil && countTrue(l.subscription.confirmed) == q.opt.Sources
}

// yields counts a release, and reports whether waiters elsewhere are to get the key now: then
// nobody here asks for it for a while.
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

// Listeners notes how many listeners each source told of a release.
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
