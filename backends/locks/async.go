package locks

import "context"

// LockAsync is Lock with the answer given to done, which is called once and must not
// block. It may return before that: then done is called on a goroutine that ends with it, and which Run
// waits for. One of thousands that wait in line has no goroutine meanwhile, until it is its turn or
// its time is over.
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
		a, err := s.serve(ctx, w)
		end()
		done(s.countDecision(&w.Value.LockRequest, a, err))
	}
	if !s.waiting.Park(ctx, w, w.Value.Wait-(s.now()-w.Since), serve) {
		serve()
	}
}
