package memstore

import (
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// An intent is of a request for several names that was refused again and again: no new owner gets the name until then.
type intent struct {
	owner string
	since time.Time // when the request began to wait; the oldest counts
	until time.Duration
}

// acquireAll is Acquire for several names. The caller has the Keepalive and mu.
func (s *Store) acquireAll(a *locks.Attempt) (locks.Decision, error) {
	var looks []look
	ended, refused := 0, locks.Decision{}
	for _, k := range a.Names() {
		l, err := s.look(a.For(k))
		if err != nil {
			return locks.Decision{}, err
		}
		if first := refused.Of.Name == "" || k.Compare(refused.Of) < 0; !l.granted && first {
			refused = l.refused
			refused.Of = k.Whole()
		}
		if l.ended {
			ended++
		}
		looks = append(looks, l)
	}
	switch {
	case ended > 0 && ended < len(looks):
		return locks.Decision{}, locks.ErrLost
	case refused.Of.Name != "":
		s.putIntents(a)
		return refused, nil
	}
	var all []locks.Grant
	for i, k := range a.Names() {
		all = append(all, s.take(a.For(k), looks[i]))
	}
	return locks.Decision{Granted: true, Grant: all[0], Others: all[1:]}, nil
}

// putIntents stores the intents of a request that was refused, if it is to have any. The caller has mu.
func (s *Store) putIntents(a *locks.Attempt) {
	if a.Intent <= 0 {
		return
	}
	now := s.now()
	for _, k := range a.Names() {
		if was := s.waits[k.Whole()]; was.until <= now || was.owner == a.Owner || a.Since.Before(was.since) {
			s.waits[k.Whole()] = intent{a.Owner, a.Since, now + a.Intent}
		}
	}
}

// awaited reports whether the intent of another owner is in the way of one that does not have the name, and stores the refusal. The
// caller has mu.
func (s *Store) awaited(a *locks.Attempt, refused *locks.Decision) bool {
	by := s.waits[a.Whole()]
	left := by.until - s.now()
	if left <= 0 || by.owner == a.Owner || !a.Since.IsZero() && a.Since.Before(by.since) {
		return false
	}
	*refused = locks.Decision{Remaining: left, Why: locks.Intent}
	return true
}
