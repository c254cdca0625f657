package locks

import "context"

// LockAsync is Lock that gives its answer to done, which is called once and must not block. It may return before
// that: then done is called on a goroutine that ends afterwards, and which Run waits for. While a request waits in
// line it has no goroutine, so that many thousands may wait; one for several names has one, since it looks at several lines.
func (s *Service) LockAsync(ctx context.Context, r LockRequest, done func(Decision, error)) {
	attempt, err := s.prepare(r)
	if err != nil {
		done(Decision{}, err)
		return
	}
	end, refused, err := s.beginRequest(ctx, &attempt)
	if end == nil {
		done(s.countDecision(&attempt, refused, err))
		return
	}
	if len(attempt.Others) > 0 {
		s.lockAllAsync(ctx, attempt, end, done)
		return
	}
	w, a, err := s.join(ctx, attempt)
	if w == nil {
		end()
		done(s.countDecision(&attempt, a, err))
		return
	}
	serve := func() {
		a, err := s.serve(ctx, w)
		end()
		done(s.countDecision(&w.Value.Attempt, a, err))
	}
	if !s.waiting.Park(ctx, w, w.Value.Wait-(s.store.Now()-w.Since), serve) {
		serve()
	}
}

// lockAllAsync is what LockAsync does for several names; end ends the request with its Req.
func (s *Service) lockAllAsync(ctx context.Context, r Attempt, end func(), done func(Decision, error)) {
	g, a, err := s.joinAll(ctx, r)
	if g == nil {
		end()
		done(s.countDecision(&r, a, err))
		return
	}
	serve := func() {
		a, err := s.serveAll(ctx, g)
		end()
		done(s.countDecision(&r, a, err))
	}
	if !s.waiting.Go(serve) {
		serve()
	}
}
