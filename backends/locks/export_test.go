package locks

import "time"

// Lines are those of a Service.
func (s *Service) Lines() *Lines { return s.waiting }

// UnderWay is how many requests with an id are.
func (s *Service) UnderWay() int {
	s.requests.mu.Lock()
	defer s.requests.mu.Unlock()
	return len(s.requests.pending)
}

// Task gives a worker of the Keepalive something to do.
func (s *Service) Task(do func()) {
	s.keepalive.Lock()
	defer s.keepalive.Unlock()
	s.keepalive.tasks = append(s.keepalive.tasks, do)
	s.keepalive.startWorkersLocked()
}

// Workers is how many the Keepalive has.
func (s *Service) Workers() int {
	s.keepalive.Lock()
	defer s.keepalive.Unlock()
	return s.keepalive.workers
}

// MaxWorkers is how many workers a Keepalive may have.
const MaxWorkers = maxKeepWorkers

// Lose has the sessions told that a grant is lost.
func (s *Service) Lose(h Holder, fence int64, reason string) {
	s.keepalive.Lose(h, fence, LossForced, reason)
}

// Renewing is a renewal of a lease, as if a worker had it, so that it is due shortly before its end. The result
// ends it.
func (s *Service) Renewing(h Holder, ttl time.Duration) (end func(ExtensionResult)) {
	s.keepalive.Lock()
	defer s.keepalive.Unlock()
	l := s.keepalive.leases[h]
	l.busy, l.ttl = true, ttl
	for _, hold := range l.holds {
		hold.ttl = ttl
	}
	until, ids := l.until(), l.ids()
	return func(r ExtensionResult) {
		s.keepalive.applyResult(l, Extension{Result: r, Until: until}, ttl, ids)
	}
}

// Suspect has it found out whether a lease is lost.
func (s *Service) Suspect(h Holder) { s.keepalive.recheck(h, true) }

// Recount is what Stats tells of sessions, found by looking at everything.
func (s *Service) Recount() (sessions, holds int) {
	s.keepalive.Lock()
	defer s.keepalive.Unlock()
	seen := map[*Session]bool{}
	for _, l := range s.keepalive.leases {
		for _, hold := range l.holds {
			if hold.session != nil {
				seen[hold.session] = true
				holds++
			}
		}
	}
	return len(seen), holds
}
