package locks

import "context"

// LockAsync is Lock with the answer given to done, which is called once and must not
// block. It may return before that: then done is called on a goroutine that ends with it, and which Run
// waits for. One of thousands that wait in line has no goroutine meanwhile, until it is its turn or
// its time is over.
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
