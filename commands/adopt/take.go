package adopt

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
	"github.com/lockproxy/lockproxy/commands/adopt/pattern"
)

// read asks the nodes for the state of a key. Concurrent calls share the question, and a call gets an earlier answer if it
// may rest on that.
func (a *Adoption) read(ctx context.Context, on *basis, key locks.Key) (guess, error) {
	ask := func(fl *flight) {
		r, err := a.opt.Engine.Read(ctx, key)
		if fl.err = err; err == nil {
			fl.after = guessOf(r, time.Now())
			a.remember(key, fl.after)
		}
	}
	fl, leads, err := a.reads.do(ctx, key, on, ask)
	switch {
	case err != nil:
		return guess{}, err
	case leads, fl.err == nil, fl.sharedErr() != nil:
		return fl.after, fl.err
	}
	fl = &flight{} // the leader has left
	on.rests = fl
	ask(fl)
	return fl.after, fl.err
}

// foundInstead returns the state of a key when op could not be applied to the guessed grant: the lock of the holder, if the
// nodes named one when they refused an acquisition, otherwise what they answer now. If op is Nothing, it may be the holder
// that they named to another call. exact reports whether what is left of the lease is known as well.
func (d *decision) foundInstead(ctx context.Context, op idiom.Op) (is guess, exact bool, err error) {
	a, on, guessed := d.a, d.on, d.lock.grant
	if saysAll(d.holder.owner) {
		return d.holder, isUpstreams(d.holder.owner), nil
	}
	if fl := a.flights.answered(d.key, on); op.Do == idiom.Nothing && fl != nil && saysAll(fl.after.owner) && !isUpstreams(fl.after.owner) {
		on.rests = fl
		return fl.after, fl.after.fence != 0, nil
	}
	if op.Do == idiom.Renew { // an earlier answer may be the one by which the grant was there
		on.burst = newBurst()
	}
	is, err = a.read(ctx, on, d.key)
	if err == nil && op.Do == idiom.Renew && is.owner == guessed.owner && is.fence == guessed.fence {
		a.awaitEnd(ctx, is)
	}
	return is, true, err
}

// awaitEnd waits for the end of a grant that can no longer be renewed: its holder gives it up earlier than the nodes do, by
// no more than their clocks may differ. One that has longer to live ended in another way.
func (a *Adoption) awaitEnd(ctx context.Context, g guess) {
	if left := time.Until(g.until); left <= locks.Drift(a.opt.MaxTTL) {
		_ = locks.Sleep(ctx, left) // where ctx has ended, the next question fails
	}
}

// take takes a lock that is guessed to be free.
func (d *decision) take(ctx context.Context, op idiom.Op) (*guess, locks.Grant, error) {
	ttl, open, err := d.a.lease(d.c, idiom.String, op.TTL)
	if err != nil {
		return nil, locks.Grant{}, err
	}
	return d.ask(ctx, locks.LockRequest{Owner: d.a.ownerOf(op), TTL: ttl, Open: open})
}

// ask asks the nodes for a lock, or for one more hold of a hash, once for concurrent calls: at most one of them gets it. A call
// whose field is guessed to have the lock asks for itself, and so do calls in mode Both, which the upstream admits one at a
// time. An earlier answer that the call may rest on may refuse it. taken is the grant, and next the state of the lock with it. If the
// nodes refuse, next is nil, and d.holder is the owner that they named, if any.
func (d *decision) ask(ctx context.Context, r locks.LockRequest) (next *guess, taken locks.Grant, err error) {
	a, c := d.a, d.c
	r.Key, r.Info, r.Client, r.Barge = d.key, c.made().info(), d.conn.Address(), true
	ask := func(fl *flight) {
		began := time.Now()
		answer, upstreams, err := a.lockGuarded(ctx, d.conn, c.pattern, r)
		switch {
		case err != nil:
			fl.err = err
		case upstreams.owner != "":
			fl.after = upstreams
		case answer.Granted:
			taken, fl.granted = answer.Grant, true
			fl.after = guess{owner: answer.Grant.Owner, fence: answer.Grant.Fence, holds: answer.Grant.Holds, until: began.Add(r.TTL), open: r.Open, made: c.made()}
		default:
			fl.after = guess{owner: answer.Holder, holds: 1, until: time.Now().Add(answer.Remaining)}
		}
	}
	fl, leads := &flight{}, true
	switch {
	case c.pattern.Mode == pattern.Both, d.lock.grant.owner == r.Owner:
		ask(fl)
	case a.reads.undecided(d.key, d.on):
		return nil, taken, nil
	default:
		fl, leads, err = a.flights.do(ctx, d.key, d.on, ask)
	}
	switch {
	case err != nil:
		return nil, taken, err
	case leads && fl.err != nil:
		return nil, taken, fl.err
	case leads && fl.granted:
		after := fl.after // the flight is shared
		return &after, taken, nil
	}
	d.holder = fl.after
	return nil, taken, fl.sharedErr()
}

// lease returns for how long a call may take a lock. If open, the lock has no end, and lease is max-ttl.
func (a *Adoption) lease(c *Call, kind idiom.Kind, ttl time.Duration) (lease time.Duration, open bool, err error) {
	lease, refused := a.rule(c.pattern).Lease(kind, ttl)
	switch {
	case refused == nil && lease == idiom.Forever:
		return a.opt.MaxTTL, true, nil
	case refused == nil:
		return lease, false, nil
	case ttl == idiom.Forever:
		return 0, false, c.refused(NoExpiry, refused.Why)
	}
	return 0, false, c.refused(OverMaxTTL, refused.Why)
}
