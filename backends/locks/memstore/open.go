package memstore

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// RenewEndless implements locks.EndlessRenewer. What is to be renewed was granted here.
func (s *Store) RenewEndless(_ context.Context, maxHold time.Duration) (f locks.EndlessRenewals, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for k := range s.names {
		r := s.record(k)
		if !r.open || len(r.holds) == 0 {
			continue
		}
		f.Open++
		if r.until()-now >= 2*s.maxTTL/3 {
			continue
		}
		until := now + s.maxTTL
		if end := r.since + maxHold; end <= until {
			until, r.open = max(end, r.until()), false
			f.Lapsing = append(f.Lapsing, locks.Lapsing{Key: k, Fence: r.fence, Left: until - now})
		} else {
			f.Renewed++
		}
		for i := range r.holds {
			r.holds[i].until = until
		}
	}
	return f, nil
}

var _ locks.EndlessRenewer = (*Store)(nil)
