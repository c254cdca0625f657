package waitq

import (
	"context"
	"time"
)

// A parked waiter has no goroutine. Whatever wakes it, the end of its context or of its time
// included, starts a goroutine that resumes it.
type parked struct {
	resume  func()
	armed   chan struct{} // closed when stopCtx and timeout are set
	stopCtx func() bool
	timeout *time.Timer
}

// Park leaves w without a goroutine until it is the head, its owner has the key, ctx ends, the
// Queues close, or wait is over; then resume is called on a goroutine that ends with it. It reports
// false, and nothing is parked, if w has something to do already.
func (q *Queues[K, V]) Park(ctx context.Context, w *Waiter[K, V], wait time.Duration, resume func()) bool {
	p := &parked{resume: resume, armed: make(chan struct{})}
	if !q.park(w, p) {
		return false
	}
	// Each of the two may run at once, before the other is set, and may find that w is not parked with p any more.
	p.stopCtx = context.AfterFunc(ctx, func() { q.unpark(w, p) })
	p.timeout = time.AfterFunc(wait, func() { q.unpark(w, p) })
	close(p.armed)
	return true
}

func (q *Queues[K, V]) park(w *Waiter[K, V], p *parked) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || len(w.reenter) > 0 || w.line.head() == w {
		return false
	}
	w.parked = p
	return true
}

// unpark resumes w if it is parked with p.
func (q *Queues[K, V]) unpark(w *Waiter[K, V], p *parked) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.parked == p {
		q.resume(w)
	}
}

// resume resumes w if it is parked. The caller has mu, so that no goroutine begins after Close, and
// Wait waits for all of them.
func (q *Queues[K, V]) resume(w *Waiter[K, V]) {
	if p := w.parked; p != nil {
		w.parked = nil
		q.resumed.Go(p.run)
	}
}

func (p *parked) run() {
	<-p.armed
	p.stopCtx()
	p.timeout.Stop()
	p.resume()
}
