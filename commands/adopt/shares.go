package adopt

import (
	"context"
	"errors"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
	"github.com/lockproxy/lockproxy/commands/adopt/pattern"
	"github.com/lockproxy/lockproxy/commands/adopt/readers"
)

// shared reports whether the lock is a read/write lock, or others read it or have permits.
func (g *guess) shared() bool {
	_, kind := locks.ShownOwner(g.owner)
	return g.hasReaders || kind == locks.AdoptedThread
}

// decideShares decides a call on a lock that several may have. The error is readers.ErrOther if the lock is another one now.
func (a *Adoption) decideShares(ctx context.Context, conn Connection, c *Call, key locks.Key) (Result, error) {
	if c.pattern.Mode == pattern.Both {
		return Result{}, c.refused(NotForLocks, "locks that several may have are not adopted in mode=both")
	}
	if a.opt.Inspector == nil {
		return Result{}, c.refused(NotForLocks, "locks that several may have need the lock nodes' list of readers")
	}
	burst := conn.Burst()
	on := burst.basis()
	q := readers.Question{Call: c.Call, Class: c.class, Key: key, MaxTTL: a.opt.MaxTTL,
		Lock: func(ctx context.Context, r locks.LockRequest) (locks.Decision, time.Duration, error) {
			r.Key, r.Info, r.Client, r.Barge = key, c.made().info(), conn.Address(), true
			defer func() { on.burst = newBurst() }() // a later try must not get again the answer on which this one failed
			return a.askForShare(ctx, conn, on, c.pattern, r)
		},
		Lease: func(ttl time.Duration) (time.Duration, error) {
			lease, _, err := a.lease(c, idiom.ReadWrite, ttl)
			return lease, err
		},
		ForceReaders: func(ctx context.Context, k locks.Key) error {
			_, _, err := a.opt.Inspector.ForceReaders(ctx, k)
			return err
		},
		Readers: func(ctx context.Context, k locks.Key) ([]locks.ReadBy, error) {
			in, err := a.opt.Inspector.Inspect(ctx, k)
			return in.Readers, err
		},
		Other: func(r locks.Reading) idiom.State { g := guessOf(r, time.Now()); return g.confirmedState(time.Now()) },
	}
	answer, err := readers.Decide(ctx, a.opt.Engine, q)
	if refusal := (*idiom.Refusal)(nil); errors.As(err, &refusal) {
		return Result{}, c.cannotRun(idiom.ReadWrite, err)
	}
	if err != nil {
		return Result{Burst: burst.failed(on.rests, err)}, err
	}
	a.guesses.Remove(key)
	if answer.Op.Do == idiom.Release {
		for _, key.Reader = range []string{"", readersFlights, permitsFlights} {
			a.flights.hurry(key)
		}
	}
	a.signal(ctx, conn, c.signalsOf(&answer.Outcome))
	if !answer.Full {
		on.rests = nil
	}
	return Result{Reply: answer.Reply, Taken: answer.Taken, did: answer.Op.Do, op: answer.Op, sentUpstream: len(answer.Signals) > 0, Burst: burst.next(on.rests)}, nil
}

// Those who want to read a lock, and those who want a permit, share flights with their like: their keys have these readers.
const readersFlights, permitsFlights = "\x00any", "\x00permit"

// askForShare asks the nodes for a lock to read or to write. Concurrent calls that are refused share the answer; a grant is
// its own caller's. held is how long somebody has it at the upstream.
func (a *Adoption) askForShare(ctx context.Context, conn Connection, on *basis, p *pattern.Pattern, r locks.LockRequest) (d locks.Decision, held time.Duration, err error) {
	self := func() (at guess, err error) {
		d, at, err = a.lockGuarded(ctx, conn, p, r)
		held = max(0, time.Until(at.until))
		return at, err
	}
	key := r.Key
	if r.Shared {
		key.Reader = readersFlights
	} else if r.Permits > 0 {
		key.Reader = permitsFlights
	}
	fl, leads, err := a.flights.do(ctx, key, on, func(fl *flight) {
		var at guess
		at, fl.err = self()
		fl.granted, fl.limit = d.Granted, r.Permits
		if fl.after = at; at.owner == "" {
			fl.after = guess{owner: d.Holder, hasReaders: d.Why == locks.Readers || d.Why == locks.Upgrade || d.Why == locks.Permits, until: time.Now().Add(d.Remaining)}
		}
	})
	switch {
	case err != nil:
		return d, held, err
	case leads, fl.sharedErr() != nil:
		return d, held, fl.err
	case fl.err != nil, fl.granted, fl.after.owner == r.Owner, fl.limit < r.Permits:
		on.rests = nil
		_, err = self()
		return d, held, err
	}
	d = locks.Decision{Holder: fl.after.owner, Remaining: time.Until(fl.after.until)}
	if fl.after.hasReaders {
		d.Why = locks.Readers
	}
	if isUpstreams(d.Holder) {
		held = max(1, d.Remaining)
	}
	return d, held, nil
}
