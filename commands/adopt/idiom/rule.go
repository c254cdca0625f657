package idiom

import (
	"slices"
	"time"
)

// A Rule is what an operator allows of calls on a lock.
type Rule struct {
	As             Strictness
	NoExpiry       time.Duration // the lease of a lock without an end; Forever: it has none; 0: it is refused
	MinTTL, MaxTTL time.Duration // of leases
	Deadlines      Unit          // of values that say when the lock ends
}

// Allows refuses a call whose class is not allowed, or is Unclear.
func (r Rule) Allows(c Class) *Refusal {
	switch {
	case c == Unclear:
		return refusef("what it does to a lock is not clear")
	case c == Overwrite && !r.As.Allows(c):
		return refusef("%s does not compare the value: set as=full", c)
	case !r.As.Allows(c):
		return refusef("%s does not compare the value", c)
	}
	return nil
}

// AllowsCall is Allows for a call whose class may have been found with other arguments: where only calls that compare the
// value are allowed, it is tried on another's lock with its own. To replace that needs AllowsReplace.
func (r Rule) AllowsCall(c *Call, class Class, now time.Time) *Refusal {
	if refused := r.Allows(class); refused != nil || class == ReadOnly || r.As > Strict {
		return refused
	}
	for _, s := range []State{{Kind: String}, {Kind: Hash, Count: 1}, {Kind: Sorted}, {Kind: ReadWrite, Count: 1}, {Kind: Permits}} {
		s.Value = sampleOther
		for _, s.Left = range []time.Duration{sampleLeft, Forever} {
			if out, err := c.Run(s, now); err == nil && slices.Contains([]Do{Renew, Leave, Release}, out.Op.Do) {
				return refusef("with these arguments it does not compare the value")
			}
		}
	}
	return nil
}

// AllowsReplace refuses a call that would write another value than the one that is held, unless it has compared that one.
// The class of a script may have been found with other arguments, so the call is tried with its own.
func (r Rule) AllowsReplace(c *Call, now time.Time) *Refusal {
	if r.As >= Full {
		return nil
	}
	if _, class := c.Accept(now); class == AcquireOrExtend || class == ExtendOwn {
		return nil
	}
	return refusef("it would write another value than the one that is held, and does not compare that: set as=full")
}

// Lease returns for how long a lock is taken or renewed if a call asks for ttl. Both may be Forever, except for a Hash,
// whose holds have ends of their own.
func (r Rule) Lease(kind Kind, ttl time.Duration) (time.Duration, *Refusal) {
	switch {
	case ttl == Forever && r.NoExpiry == Forever && (kind == Hash || kind == ReadWrite):
		return 0, refusef("a hash that has no end: give it a ttl")
	case ttl == Forever && r.NoExpiry == 0:
		return 0, refusef("it has no end: set no-expiry=keep or no-expiry=lease:DURATION")
	case ttl == Forever:
		return r.NoExpiry, nil
	case ttl > r.MaxTTL:
		return 0, refusef("its ttl of %v is over max-ttl, %v", ttl, r.MaxTTL)
	}
	return max(ttl, r.MinTTL), nil
}
