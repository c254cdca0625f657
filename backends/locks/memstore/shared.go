package memstore

import (
	"math"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// A writerIntent is a writer that waits for readers: no new ones are let in until then.
type writerIntent struct {
	owner string
	until time.Duration
}

// inTheWay reports whether somebody keeps an owner that does not have the lock from getting it, and stores the refusal.
// The caller has mu.
func (s *Store) inTheWay(a *locks.Attempt, refused *locks.Decision) bool {
	now, name := s.now(), a.Whole()
	if a.Replaces == nil && s.awaited(a, refused) {
		return true
	}
	waits := s.intents[name]
	if a.Reader != "" {
		if w := s.record(name); len(w.holds) > 0 && w.owner != a.Owner {
			*refused = s.refusal(w)
			return true
		}
		if waits.until > now && waits.owner != a.Owner {
			*refused = locks.Decision{Remaining: waits.until - now, Why: locks.Intent}
			return true
		}
		return s.noPermit(a, refused)
	}
	for k, r := range s.names {
		if k.Reader == "" || k.Whole() != name || r.until() <= now || r.owner == a.Owner {
			continue
		}
		if left := r.until() - now; left > refused.Remaining {
			*refused = locks.Decision{Holder: r.owner, Remaining: left, Why: locks.Readers}
		}
	}
	if refused.Why != locks.Readers {
		return false
	}
	name.Reader = a.Owner
	switch own := s.names[name]; {
	case own != nil && own.until() > now:
		refused.Why = locks.Upgrade
	case a.Intent > 0 && (waits.until <= now || waits.owner == a.Owner):
		s.intents[a.Key] = writerIntent{a.Owner, now + a.Intent}
	}
	return true
}

// noPermit reports whether others have all the permits that a LOCK wants one of, and stores the refusal. The caller has mu.
func (s *Store) noPermit(a *locks.Attempt, refused *locks.Decision) bool {
	now, taken, first := s.now(), 0, time.Duration(math.MaxInt64)
	for k, r := range s.names {
		if k.Reader == "" || k.Whole() != a.Whole() || r.until() <= now || r.owner == a.Owner || !r.permit {
			continue
		}
		if taken++; r.until() < first {
			first = r.until()
			*refused = locks.Decision{Holder: r.owner, Remaining: first - now, Why: locks.Permits}
		}
	}
	return a.Permits > 0 && taken >= a.Permits
}

// DropIntent implements locks.Store.
func (s *Store) DropIntent(h locks.Holder) {
	defer s.host.Lines.Wake(h.Whole())
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.intents[h.Key].owner == h.Owner {
		delete(s.intents, h.Key)
	}
	if s.waits[h.Whole()].owner == h.Owner {
		delete(s.waits, h.Whole())
	}
}
