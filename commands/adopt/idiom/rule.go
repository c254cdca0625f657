package idiom

import "time"

// A Rule is what an operator allows of calls on a lock.
type Rule struct {
	As             Strictness
	NoExpiry       time.Duration // the lease of a lock without an end; 0: it is refused
	MinTTL, MaxTTL time.Duration // of leases
	Deadlines      Unit          // of values that say when the lock ends
}

// Allows refuses a call whose class is not allowed, or is Unclear.
func (r Rule) Allows(c Class) *Refusal {
	switch {
	case c == Unclear:
		return refusef("what it does to a lock is not clear")
	case !r.As.Allows(c):
		return refusef("%s does not compare the value", c)
	}
	return nil
}

// Lease is for how long a lock is taken or renewed that was to be for ttl, which may be Forever.
func (r Rule) Lease(ttl time.Duration) (time.Duration, *Refusal) {
	switch {
	case ttl == Forever && r.NoExpiry == 0:
		return 0, refusef("it has no end: set no-expiry=lease:DURATION")
	case ttl == Forever:
		return r.NoExpiry, nil
	case ttl > r.MaxTTL:
		return 0, refusef("its ttl of %v is over max-ttl, %v", ttl, r.MaxTTL)
	}
	return max(ttl, r.MinTTL), nil
}
