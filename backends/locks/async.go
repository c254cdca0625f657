package locks

import "context"

// LockAsync is Lock that gives its answer to done, which is called once and must not block. It may return before
// that: then done is called on a goroutine that ends afterwards, and which Run waits for. While a request waits in
// line it has no goroutine, so that many thousands may wait.
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
