package locks

import (
	"context"
	"time"
)

// LockAsync is Lock with the answer given to done, which is called once and must not
// block. It may return before that: then done is called on a goroutine that ends with it.
// One of thousands that wait in line has no goroutine meanwhile, until it is its turn or
// it gives up.
func (s *Service) LockAsync(ctx context.Context, r LockRequest, done func(Decision, error)) {
	if err := s.prepare(&r); err != nil {
		done(Decision{}, err)
		return
	}
	end, err := s.beginRequest(ctx, &r)
	if end == nil {
		done(s.countDecision(&r, Decision{}, err))
		return
	}
	w, a, err := s.join(ctx, r)
	if w == nil {
		end()
		done(s.countDecision(&r, a, err))
		return
	}
	serve := func() {
		a, err := s.serve(ctx, w, w.request)
		end()
		done(s.countDecision(&w.request, a, err))
	}
	if !s.park(ctx, w, serve) {
		serve()
	}
}

// park leaves a waiter to itself until it has something to do. It is false if it has.
func (s *Service) park(ctx context.Context, w *waiter, serve func()) bool {
	p := &parked{serve: serve}
	if !s.waiting.park(w, p) {
		return false
	}
	// Either may come at once, and find p gone from w, or run before the other is set.
	p.left = context.AfterFunc(ctx, func() { s.waiting.unpark(w, p) })
	p.over = time.AfterFunc(w.request.Wait-(s.now()-w.since), func() { s.waiting.unpark(w, p) })
	close(p.set)
	return true
}

// A parked waiter has no goroutine.
type parked struct {
	serve func()
	set   chan struct{} // closed when left and over are there
	left  func() bool   // stops what happens when its client leaves
	over  *time.Timer   // its time
}

// run goes on with the waiter.
func (p *parked) run() {
	<-p.set
	p.left()
	p.over.Stop()
	p.serve()
}

// park is false if the waiter has been told something, or nobody is served any more.
func (ws *waiting) park(w *waiter, p *parked) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.closed || len(w.in) > 0 || w.queue.first() == w {
		return false
	}
	p.set = make(chan struct{})
	w.parked = p
	return true
}

// unpark starts a waiter again that is parked, with p.
func (ws *waiting) unpark(w *waiter, p *parked) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w.parked == p {
		w.wakeLocked()
	}
}

// wakeLocked starts a waiter again, if it is parked.
func (w *waiter) wakeLocked() {
	if p := w.parked; p != nil {
		w.parked = nil
		go p.run()
	}
}

// close starts all that are parked again, and parks nobody any more.
func (ws *waiting) close() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.closed = true
	for _, q := range ws.queues {
		for e := q.line.Front(); e != nil; e = e.Next() {
			e.Value.(*waiter).wakeLocked()
		}
	}
}
