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

// tries is how often a call is tried before it fails, if the lock has changed each time meanwhile.
const tries = 5

// Decide decides a call. Errors are a *RefusedError, a *locks.QuorumError, and those of the connection and of ctx.
func (a *Adoption) Decide(ctx context.Context, conn Connection, c *Call) (Result, error) {
	began := time.Now()
	result, err := a.decide(ctx, conn, c)
	if result.Changed() || c.pattern.Mode == pattern.Both {
		result.Burst = Burst{}
	}
	a.noteDecided(conn, c, result.did, err, time.Since(began))
	return result, err
}

func (a *Adoption) decide(ctx context.Context, conn Connection, c *Call) (Result, error) {
	if c.flushes {
		return a.decideFlush(ctx, conn, c)
	}
	for _, one := range c.each() {
		if err := mayRun(ctx, conn, one); err != nil {
			return Result{}, err
		}
	}
	switch {
	case c.isFence:
		return a.decideFence(ctx, conn, c)
	case c.renewals != nil:
		return a.decideRenewals(ctx, conn, c)
	case c.list != nil:
		return a.decideBatch(ctx, conn, c)
	case c.parts != nil:
		return a.decideSeveral(ctx, conn, c)
	}
	return a.decideByMode(ctx, conn, c)
}

// decideOne has the nodes decide a call on one lock.
func (a *Adoption) decideOne(ctx context.Context, conn Connection, c *Call) (Result, error) {
	burst := conn.Burst()
	d := decision{a: a, conn: conn, c: c, key: lockKey(conn, c), burst: burst, on: burst.basis(), inTurn: c.inTurn, endTurn: func() {}}
	defer func() { d.endTurn() }()
	d.guess()
	for tried := 0; tried < d.tries(); tried++ {
		if result, done, err := d.try(ctx); done || err != nil {
			return result, err
		}
		d.on.burst = newBurst() // the next try must not get again the answer on which this one failed
	}
	return c.refusedBy(d.holder)
}

// A decision is the work on one call about one lock.
type decision struct {
	a       *Adoption
	conn    Connection
	c       *Call
	key     locks.Key
	burst   Burst
	on      *basis // the first try may rest on an answer that the nodes gave to earlier calls
	lock    found
	holder  guess  // for whose sake the nodes refused the last try, if that was an acquisition
	inTurn  bool   // no other call replaces the lock meanwhile
	endTurn func() // if it has taken a turn
}

// found is the lock as a decision takes it to be.
type found struct {
	grant    guess
	state    idiom.State // by grant
	answered bool        // it is an answer of the nodes to this call, not a guess
	exact    bool        // and so is what is left of the lease
}

func (d *decision) tries() int {
	if d.inTurn {
		return replaceTries
	}
	return tries
}

// guess takes the lock to be what the proxy last knew of it.
func (d *decision) guess() {
	g, _ := d.a.guesses.Get(d.key)
	d.lock = found{grant: g, state: g.state(time.Now())}
}

// answer takes the lock to be what the nodes answered.
func (d *decision) answer(g guess, exact bool) {
	d.lock = found{grant: g, state: g.confirmedState(time.Now()), answered: true, exact: exact}
}

// failed is the result of a call that fails with err.
func (d *decision) failed(err error) Result { return Result{Burst: d.burst.failed(d.on.rests, err)} }

// try runs the call on the lock as it is taken to be, and has the nodes do what the call would do. It is not done if
// the lock is not, or may not be, as it was taken to be; then more is known of it.
func (d *decision) try(ctx context.Context) (result Result, done bool, err error) {
	a, c := d.a, d.c
	if d.lock.grant.shared() {
		if result, err = a.decideShares(ctx, d.conn, c, d.key); !errors.Is(err, readers.ErrOther) {
			return result, true, err
		}
		a.guesses.Remove(d.key)
		d.lock = found{}
	}
	out, err := c.run(d.lock.state, time.Now())
	if err != nil && (d.lock.answered || d.lock.state.Kind == idiom.Absent) {
		result, err = d.repeatedElse(ctx, c.cannotRun(d.lock.state.Kind, err))
		return result, true, err
	}
	if err != nil || d.isUnsure(&out) {
		g, err := a.read(ctx, d.on, d.key)
		if err != nil {
			return d.failed(err), true, err
		}
		d.answer(g, true)
		return Result{}, false, nil
	}
	if out.Op.Do == idiom.Nothing && !d.lock.answered && c.class == idiom.Acquire { // try it on a free key: a refusal by the nodes costs no more than a read
		if out, err = c.run(idiom.State{}, time.Now()); err != nil {
			return Result{}, true, c.cannotRun(idiom.Absent, err)
		}
	}
	if out.Op.Do == idiom.Nothing && d.lock.answered {
		result, err = d.nothing(ctx, out)
		return result, true, err
	}
	if out.Op.Do == idiom.Replace && !d.inTurn {
		if waited, err := d.takeTurn(ctx); waited || err != nil {
			return Result{}, false, err
		}
	}
	d.holder = guess{}
	next, taken, err := d.do(ctx, &out)
	switch {
	case err != nil:
		return d.failed(err), true, err
	case next != nil:
		return d.changed(ctx, &out, *next, taken), true, nil
	}
	g, exact, err := d.foundInstead(ctx, out.Op)
	if err != nil {
		result, err = c.contended(out.Op, d.burst.failed(d.on.rests, err), err)
		return result, true, err
	}
	d.answer(g, exact)
	return Result{}, false, nil
}

// do applies the operation in out to exactly the grant that the lock is taken to have. next is the state of the key afterwards,
// and taken what was taken, if anything. A nil next means that nothing was done; if the nodes refused an acquisition and named
// the holder, d.holder says who that is. If the result depends on the number of holds of a hash, out is changed to what was done.
func (d *decision) do(ctx context.Context, out *idiom.Outcome) (next *guess, taken locks.Grant, err error) {
	g := d.lock.grant
	kind, _ := keyOf(g.owner)
	switch op := out.Op; {
	case op.Do == idiom.Nothing:
		return nil, taken, nil
	case op.Do == idiom.Take:
		return d.take(ctx, op)
	case op.Do == idiom.Enter:
		return d.enter(ctx, out)
	case op.Do == idiom.Replace:
		return d.replace(ctx, op)
	case op.Do == idiom.Renew:
		if gone, err := d.renew(ctx, op, &g); gone || err != nil {
			return nil, taken, err
		}
		return &g, taken, nil
	case op.Do == idiom.Leave, op.Do == idiom.Release && kind == idiom.Hash:
		next, err = d.leave(ctx, out)
		return next, taken, err
	case op.Do == idiom.Release:
		_, err := d.a.opt.Engine.Unlock(ctx, locks.UnlockRequest{Key: d.key, Owner: g.owner, Fence: g.fence, All: true, Once: true})
		if locks.NotHeld(err) {
			return nil, taken, nil
		}
		return &guess{}, taken, err
	}
	return nil, taken, d.c.refused(NotForLocks, "it would "+out.Op.Do.String()+" a lock")
}

// renew moves the end of the grant g, of all its holds, to that of op. gone reports whether the nodes have that grant no more.
func (d *decision) renew(ctx context.Context, op idiom.Op, g *guess) (gone bool, err error) {
	kind, _ := keyOf(g.owner)
	ttl, open, err := d.a.lease(d.c, kind, op.TTL)
	if err != nil {
		return false, err
	}
	began := time.Now()
	_, err = d.a.opt.Engine.Renew(ctx, locks.RenewRequest{Key: d.key, Owner: g.owner, Fence: g.fence, TTL: ttl, Open: open})
	if locks.NotHeld(err) {
		return true, nil
	}
	g.until, g.open = began.Add(ttl), open
	return false, err
}

// isUnsure reports whether the outcome rests on something that may have changed: the lock may have changed hands, or
// another proxy have moved its end.
func (d *decision) isUnsure(out *idiom.Outcome) bool {
	return out.TimeRead && d.lock.state.Kind != idiom.Absent && !d.lock.exact || d.c.mustKnowOrigin(out.Op, d.lock.grant)
}

// nothing is the result of a call that changes nothing, by what the nodes answered.
func (d *decision) nothing(ctx context.Context, out idiom.Outcome) (Result, error) {
	out, err := d.repeated(ctx, out)
	if err != nil {
		return Result{}, err
	}
	result := Result{Reply: out.Reply, sentUpstream: len(out.Signals) > 0, at: d.lock.grant, Burst: d.burst.next(d.on.rests)}
	d.a.signal(ctx, d.conn, d.c.signalsOf(&out))
	return result, nil
}

// takeTurn waits until no other call replaces the lock. If it has waited, another call has replaced it meanwhile, and noted
// its new state.
func (d *decision) takeTurn(ctx context.Context) (waited bool, err error) {
	if err := d.a.mayReplace(d.c); err != nil {
		return false, err
	}
	waited, done, err := d.a.turns.Take(ctx, d.key)
	if err != nil {
		return false, err
	}
	d.inTurn, d.endTurn = true, done
	if waited {
		d.guess()
	}
	return waited, nil
}

// changed is the result of a call that has changed the lock to next.
func (d *decision) changed(ctx context.Context, out *idiom.Outcome, next guess, taken locks.Grant) Result {
	d.followCopy(ctx, out.Op, &next)
	d.a.remember(d.key, next)
	if out.Op.Do == idiom.Release {
		d.a.flights.hurry(d.key)
	}
	d.a.signal(ctx, d.conn, d.c.signalsOf(out))
	return Result{Reply: out.Reply, Taken: taken, did: out.Op.Do, op: out.Op}
}

// signalsFor is how long the upstream may take to confirm the signals of a call.
const signalsFor = 100 * time.Millisecond

// signal sends the commands that follow a change of the lock. If that fails, the change stays.
func (a *Adoption) signal(ctx context.Context, conn Connection, signals [][]string) {
	if len(signals) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, signalsFor)
	defer cancel()
	for i, s := range signals {
		switch reply, err := conn.Ask(ctx, s); {
		case err != nil:
			a.counters.signalsLost.Add(int64(len(signals) - i))
			return
		case len(reply) > 0 && reply[0] == '-':
			a.counters.signalsLost.Add(1)
		default:
			a.counters.signalsSent.Add(1)
		}
	}
}
