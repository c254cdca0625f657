package readers

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
)

// permits are the states of a semaphore in which its owner has a permit beside others, or has none.
func permits(owner string, others int) idiom.State {
	return idiom.State{Kind: idiom.Permits, Value: owner, Owners: others, Left: time.Second}
}

// hasPermit reports whether an owner has a permit of a semaphore that is adopted.
func hasPermit(r locks.ReadBy) bool {
	_, kind := locks.ShownOwner(r.Owner)
	return kind == locks.AdoptedPermit
}

// decidePermit decides a call that takes, extends or gives back a permit of a semaphore.
func (c *call) decidePermit(ctx context.Context) (Answer, error) {
	member, limit, refused := c.Call.Permit(time.Now(), locks.MaxPermits)
	if refused != nil {
		return Answer{}, refused
	}
	if c.owner = locks.NewAdoptedPermit(member); limit > 0 {
		return c.takePermit(ctx, member, limit)
	}
	if member == "" {
		return c.without(ctx)
	}
	out, err := c.Call.Run(permits(member, 1), time.Now())
	if err != nil {
		return Answer{}, err
	}
	gone := true
	switch out.Op.Do {
	case idiom.Renew:
		gone, err = c.extendPermit(ctx, out.Op)
	case idiom.Release:
		_, err = c.engine.Unlock(ctx, locks.UnlockRequest{Key: c.Key, Owner: c.owner, All: true, Once: true, Shared: true})
		gone, err = locks.NotHeld(err), unlessGone(err)
	}
	switch {
	case err != nil:
		return Answer{}, err
	case gone:
		return c.without(ctx)
	case c.counts(member, out):
		r, err := c.engine.Read(ctx, c.Key)
		if err != nil {
			return Answer{}, err
		}
		others := r.Readers
		if out.Op.Do == idiom.Renew {
			others = max(0, others-1)
		}
		out, err = c.Call.Run(permits(member, others), time.Now())
		return Answer{Outcome: out}, err
	}
	return Answer{Outcome: out}, nil
}

// counts reports whether what the call answers depends on how many others have a permit. one is what it does beside one.
func (c *call) counts(member string, one idiom.Outcome) bool {
	two, err := c.Call.Run(permits(member, 2), time.Now())
	return err == nil && string(one.Reply) != string(two.Reply)
}

// extendPermit gives the owner's permit another end. gone reports that there is none.
func (c *call) extendPermit(ctx context.Context, op idiom.Op) (gone bool, err error) {
	ttl, err := c.Lease(op.TTL)
	if err != nil {
		return false, err
	}
	_, err = c.engine.Renew(ctx, locks.RenewRequest{Key: c.Key, Owner: c.owner, TTL: ttl, Shared: true})
	return locks.NotHeld(err), unlessGone(err)
}

// without answers a call that extends or gives back a permit that its owner does not have.
func (c *call) without(ctx context.Context) (Answer, error) {
	r, err := c.engine.Read(ctx, c.Key)
	if err != nil {
		return Answer{}, err
	}
	s := permits("", r.Readers)
	switch {
	case r.Held:
		s = c.Other(r)
	case r.Readers == 0:
		s = idiom.State{}
	}
	out, err := c.Call.Run(s, time.Now())
	if err == nil && out.Op.Do != idiom.Nothing {
		err = ErrChanging
	}
	return Answer{Outcome: out}, err
}

// takePermit takes a permit.
func (c *call) takePermit(ctx context.Context, member string, limit int) (Answer, error) {
	out, err := c.Call.Run(idiom.State{}, time.Now())
	if err != nil {
		return Answer{}, err
	}
	ttl, err := c.Lease(out.Op.TTL)
	if err != nil {
		return Answer{}, err
	}
	for range tries {
		d, held, err := c.Lock(ctx, locks.LockRequest{Owner: c.owner, Permits: limit, NoReenter: true, TTL: ttl})
		if err != nil || d.Granted {
			return Answer{Outcome: out, Taken: d.Grant}, err
		}
		if held == 0 && (d.Holder == c.owner || d.Why == locks.Held) {
			answer, gone, err := c.refused(ctx, d, member, limit)
			if !gone || err != nil {
				return answer, err
			}
			continue
		}
		// All permits are taken. That may be the answer to another owner, and one of them be this one's.
		alone := true
		if out, err = c.Call.Run(permits(member, limit-1), time.Now()); err == nil && out.Op.Do == idiom.Renew {
			alone = false
			gone, err := c.extendPermit(ctx, out.Op)
			if !gone || err != nil {
				return Answer{Outcome: out}, err
			}
		}
		out, err = c.Call.Run(permits("", limit), time.Now())
		return Answer{Outcome: out, Full: alone}, err
	}
	return Answer{}, ErrChanging
}

// refused answers a call to which the nodes have given no permit, since its owner has one, or because of a lock of another kind. gone
// reports that this is there no more.
func (c *call) refused(ctx context.Context, d locks.Decision, member string, limit int) (a Answer, gone bool, err error) {
	r, err := c.engine.Read(ctx, c.Key)
	if err != nil {
		return Answer{}, false, err
	}
	s := permits("", limit)
	switch {
	case d.Holder == c.owner:
		s = permits(member, max(0, r.Readers-1))
	case r.Held:
		s = c.Other(r)
	}
	out, err := c.Call.Run(s, time.Now())
	if err == nil && out.Op.Do == idiom.Renew {
		gone, err = c.extendPermit(ctx, out.Op)
	}
	return Answer{Outcome: out}, gone, err
}
