package adopt

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
	"github.com/lockproxy/lockproxy/commands/adopt/pattern"
)

// A hash is a reentrant lock: its field is the owner, its count the owner's holds. The engine counts the holds. Its
// answer shows whether the count that a call was run on was right; if not, the call is run again on the right one.

// enter takes one more hold of a hash, or the first. g is the guessed state; an earlier answer that the call may rest on may
// refuse the hold. out is what the call does with the count that was there. A nil out means that nothing was done: then
// grant is the holder's for whom the nodes refused the hold, or zero if they named none.
func (a *Adoption) enter(ctx context.Context, conn Connection, on *basis, c *Call, key locks.Key, op idiom.Op, g guess) (out *idiom.Outcome, next guess, grant locks.Grant, err error) {
	ttl, _, err := a.lease(c, idiom.Hash, op.TTL)
	if err != nil {
		return nil, next, grant, err
	}
	d, began, refused, err := a.askToEnter(ctx, conn, on, c, locks.LockRequest{Key: key, Owner: a.ownerOf(op), TTL: ttl, Info: c.made().info(), Client: addressOf(conn), Barge: true}, g)
	if err != nil || !d.Granted {
		return nil, next, locks.Grant{Owner: refused.owner, Validity: time.Until(refused.until)}, err
	}
	before := guess{}
	if d.Grant.Holds > 1 {
		before = guess{owner: d.Grant.Owner, fence: d.Grant.Fence, holds: d.Grant.Holds - 1, until: began.Add(ttl)}
	}
	c.Granted(d.Grant.Fence)
	ran, err := c.Run(before.confirmedState(began), began)
	if err != nil || ran.Op.Do != idiom.Enter {
		a.Undo(d.Grant)
		return nil, next, grant, err
	}
	next = guess{owner: d.Grant.Owner, fence: d.Grant.Fence, holds: d.Grant.Holds, until: began.Add(ttl), made: c.made()}
	if next.holds > 1 {
		if gone, err := a.prolong(ctx, key, &next); gone || err != nil {
			a.Undo(d.Grant)
			return nil, next, grant, err
		}
	}
	return &ran, next, d.Grant, nil
}

// askToEnter asks the nodes for a hold, once for concurrent calls: at most one of them gets it. A call whose field is
// guessed to have the lock asks for itself, and so do calls in mode Both, which the upstream admits one at a time. began is
// when the nodes were asked. refused is the state of the lock if d is not granted and the state is known.
func (a *Adoption) askToEnter(ctx context.Context, conn Connection, on *basis, c *Call, r locks.LockRequest, g guess) (d locks.Decision, began time.Time, refused guess, err error) {
	ask := func(fl *flight) {
		began = time.Now()
		var at guess // the upstream has it
		d, at, fl.err = a.lockGuarded(ctx, conn, c.pattern, r)
		switch {
		case fl.err != nil:
		case at.owner != "":
			fl.after = at
		case d.Granted:
			fl.granted, fl.after = true, guess{owner: d.Grant.Owner, until: began.Add(r.TTL)}
		default:
			fl.after = guess{owner: d.Holder, until: time.Now().Add(d.Remaining)}
		}
	}
	if c.pattern.Mode == pattern.Both || g.owner == r.Owner {
		fl := &flight{}
		ask(fl)
		return d, began, fl.after, fl.err
	}
	if a.reads.undecided(r.Key, on) {
		return d, began, refused, nil
	}
	fl, leads, err := a.flights.do(ctx, r.Key, on, ask)
	switch {
	case err != nil:
		return d, began, refused, err
	case leads:
		return d, began, fl.after, fl.err
	}
	return d, began, fl.after, fl.sharedErr()
}

// prolong gives all holds of a re-entered hash the latest of their ends, since a hash in Redis has one end: an outer hold
// must not lapse while an inner one lives. It reads the current end: another proxy may have moved it, and the lease that its
// client was promised must not be cut. gone reports whether the nodes have that grant no more.
func (a *Adoption) prolong(ctx context.Context, key locks.Key, next *guess) (gone bool, err error) {
	r, err := a.opt.Engine.Read(ctx, key)
	if err != nil {
		return false, err
	}
	g, began := guessOf(r, time.Now()), time.Now()
	next.made = g.made // that of the first hold
	if g.owner == next.owner && g.until.After(next.until) {
		next.until = g.until
	}
	ttl := max((next.until.Sub(began) + time.Millisecond - 1).Truncate(time.Millisecond), a.opt.MinTTL)
	_, err = a.opt.Engine.Renew(ctx, locks.RenewRequest{Key: key, Owner: next.owner, Fence: next.fence, TTL: min(ttl, a.opt.MaxTTL)})
	if locks.NotHeld(err) {
		return true, nil
	}
	return false, err
}

// leave releases one hold of a hash, or all of them if the call does so for a holder of several. out is what the call does
// with the count that was there; nil: the grant is gone.
//
// In Redis a hash has one end. The engine's holds have one each, and enter gives them all the same: leave changes it only if
// the call says so.
func (a *Adoption) leave(ctx context.Context, c *Call, key locks.Key, op idiom.Op, g guess) (out *idiom.Outcome, next guess, err error) {
	now := time.Now()
	several := g
	several.holds = max(2, g.holds)
	ran, err := c.Run(several.confirmedState(now), now)
	if err != nil {
		return nil, next, c.cannotRun(idiom.Hash, err)
	}
	all := ran.Op.Do == idiom.Release
	if g.holds > 1 && !all && ran.Op.TTL > 0 {
		if gone, err := a.setEnd(ctx, c, key, ran.Op, &g); gone || err != nil {
			return nil, next, err
		}
	}
	left, err := a.opt.Engine.Unlock(ctx, locks.UnlockRequest{Key: key, Owner: g.owner, Fence: g.fence, All: all, Once: true, Req: ran.Op.Latch})
	switch {
	case locks.NotHeld(err):
		return nil, next, nil
	case err != nil:
		return nil, next, err
	case all:
		return &ran, guess{}, nil
	}
	before := g
	before.holds = left + 1
	if ran, err = c.Run(before.confirmedState(now), now); err != nil {
		return nil, next, c.cannotRun(idiom.Hash, err)
	}
	if left == 0 {
		return &ran, guess{}, nil
	}
	if g.holds <= 1 && ran.Op.TTL > 0 { // the other holds were taken through another proxy
		if _, err := a.setEnd(ctx, c, key, ran.Op, &g); err != nil {
			return nil, next, err
		}
	}
	g.holds = left
	return &ran, g, nil
}

// setEnd moves the end of all holds to that of op. gone reports whether the nodes have that grant no more.
func (a *Adoption) setEnd(ctx context.Context, c *Call, key locks.Key, op idiom.Op, g *guess) (gone bool, err error) {
	ttl, _, err := a.lease(c, idiom.Hash, op.TTL)
	if err != nil {
		return false, err
	}
	began := time.Now()
	if _, err = a.opt.Engine.Renew(ctx, locks.RenewRequest{Key: key, Owner: g.owner, Fence: g.fence, TTL: ttl}); locks.NotHeld(err) {
		return true, nil
	}
	g.until = began.Add(ttl)
	return false, err
}

// noFence is a fence that no grant has. A release with it releases nothing, and succeeds only if one with the same latch was
// done before.
const noFence = -1

// repeated returns what a release does that found nothing to release, as out says: if it has a latch and was done before,
// what it did then. Its signals are sent once more: the first call may have failed before it sent them. The nodes remember a
// latch for max-ttl and a minute.
func (a *Adoption) repeated(ctx context.Context, c *Call, key locks.Key, out idiom.Outcome) (idiom.Outcome, error) {
	op := out.Op
	if op.Latch == "" {
		return out, nil
	}
	request := locks.UnlockRequest{Key: key, Owner: locks.NewAdoptedHash(op.Value), Fence: noFence, Req: op.Latch, Once: true}
	left, err := a.opt.Engine.Unlock(ctx, request)
	if locks.NotHeld(err) {
		return out, nil
	}
	if err != nil {
		return out, err
	}
	first, err := c.Run(idiom.State{Kind: idiom.Hash, Value: op.Value, Count: left + 1, Left: time.Millisecond}, time.Now())
	if err != nil {
		return out, c.cannotRun(idiom.Hash, err)
	}
	return first, nil
}

// repeatedElse is repeated for a call that cannot be run on the state of its lock. If it was not done before, the error is
// refused.
func (a *Adoption) repeatedElse(ctx context.Context, conn Connection, c *Call, key locks.Key, refused error) (Result, error) {
	nothing, err := c.Run(idiom.State{}, time.Now())
	if err != nil || nothing.Op.Latch == "" {
		return Result{}, refused
	}
	first, err := a.repeated(ctx, c, key, nothing)
	if err == nil && first.Op.Do == idiom.Nothing {
		err = refused
	}
	if err != nil {
		return Result{}, err
	}
	a.signal(ctx, conn, c.signalsOf(&first))
	return Result{Reply: first.Reply, sentUpstream: len(first.Signals) > 0}, nil
}
