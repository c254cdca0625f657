package adopt

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
)

// A hash is a reentrant lock: its field is the owner, its count the owner's holds. The engine counts the holds. Its
// answer shows whether the count that a call was run on was right; if not, the call is run again on the right one.

// enter takes one more hold of a hash, or the first. out is changed to what the call does with the count that was there. A nil
// next means that nothing was done.
func (d *decision) enter(ctx context.Context, out *idiom.Outcome) (next *guess, taken locks.Grant, err error) {
	a, c, op, none := d.a, d.c, out.Op, locks.Grant{}
	ttl, _, err := a.lease(c, idiom.Hash, op.TTL)
	if err != nil {
		return nil, none, err
	}
	if next, taken, err = d.ask(ctx, locks.LockRequest{Owner: a.ownerOf(op), TTL: ttl}); next == nil {
		return nil, none, err
	}
	before, began := guess{}, next.until.Add(-ttl)
	if taken.Holds > 1 {
		before = guess{owner: taken.Owner, fence: taken.Fence, holds: taken.Holds - 1, until: next.until}
	}
	c.Granted(taken.Fence)
	ran, err := c.Run(before.confirmedState(began), began)
	if err != nil || ran.Op.Do != idiom.Enter {
		a.Undo(taken)
		return nil, none, err
	}
	if next.holds > 1 {
		if gone, err := a.prolong(ctx, d.key, next); gone || err != nil {
			a.Undo(taken)
			return nil, none, err
		}
	}
	*out = ran
	return next, taken, nil
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

// leave releases one hold of a hash, or all of them if the call does so for a holder of several. out is changed to
// what the call does with the count that was there. A nil next means that the grant is gone.
//
// In Redis a hash has one end. The engine's holds have one each, and enter gives them all the same: leave changes it only if
// the call says so.
func (d *decision) leave(ctx context.Context, out *idiom.Outcome) (next *guess, err error) {
	c, g, now := d.c, d.lock.grant, time.Now()
	several := g
	several.holds = max(2, g.holds)
	ran, err := c.Run(several.confirmedState(now), now)
	if err != nil {
		return nil, c.cannotRun(idiom.Hash, err)
	}
	all := ran.Op.Do == idiom.Release
	if g.holds > 1 && !all && ran.Op.TTL > 0 {
		if gone, err := d.renew(ctx, ran.Op, &g); gone || err != nil {
			return nil, err
		}
	}
	left, err := d.a.opt.Engine.Unlock(ctx, locks.UnlockRequest{Key: d.key, Owner: g.owner, Fence: g.fence, All: all, Once: true, Req: ran.Op.Latch})
	switch {
	case locks.NotHeld(err):
		return nil, nil
	case err != nil:
		return nil, err
	case all:
		*out = ran
		return &guess{}, nil
	}
	before := g
	before.holds = left + 1
	if ran, err = c.Run(before.confirmedState(now), now); err != nil {
		return nil, c.cannotRun(idiom.Hash, err)
	}
	if left == 0 {
		*out = ran
		return &guess{}, nil
	}
	if g.holds <= 1 && ran.Op.TTL > 0 { // the other holds were taken through another proxy
		if _, err := d.renew(ctx, ran.Op, &g); err != nil {
			return nil, err
		}
	}
	g.holds = left
	*out = ran
	return &g, nil
}

// noFence is a fence that no grant has. A release with it releases nothing, and succeeds only if one with the same latch was
// done before.
const noFence = -1

// repeated returns what a release does that found nothing to release, as out says: if it has a latch and was done before,
// what it did then. Its signals are sent once more: the first call may have failed before it sent them. The nodes remember a
// latch for max-ttl and a minute.
func (d *decision) repeated(ctx context.Context, out idiom.Outcome) (idiom.Outcome, error) {
	op := out.Op
	if op.Latch == "" {
		return out, nil
	}
	request := locks.UnlockRequest{Key: d.key, Owner: locks.NewAdoptedHash(op.Value), Fence: noFence, Req: op.Latch, Once: true}
	left, err := d.a.opt.Engine.Unlock(ctx, request)
	if locks.NotHeld(err) {
		return out, nil
	}
	if err != nil {
		return out, err
	}
	first, err := d.c.Run(idiom.State{Kind: idiom.Hash, Value: op.Value, Count: left + 1, Left: time.Millisecond}, time.Now())
	if err != nil {
		return out, d.c.cannotRun(idiom.Hash, err)
	}
	return first, nil
}

// repeatedElse is repeated for a call that cannot be run on the state of its lock. If it was not done before, the error is
// refused.
func (d *decision) repeatedElse(ctx context.Context, refused error) (Result, error) {
	nothing, err := d.c.Run(idiom.State{}, time.Now())
	if err != nil || nothing.Op.Latch == "" {
		return Result{}, refused
	}
	first, err := d.repeated(ctx, nothing)
	if err == nil && first.Op.Do == idiom.Nothing {
		err = refused
	}
	if err != nil {
		return Result{}, err
	}
	d.a.signal(ctx, d.conn, d.c.signalsOf(&first))
	return Result{Reply: first.Reply, sentUpstream: len(first.Signals) > 0}, nil
}
