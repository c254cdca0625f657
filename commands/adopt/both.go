package adopt

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
	"github.com/lockproxy/lockproxy/commands/adopt/pattern"
	"github.com/lockproxy/lockproxy/commands/adopt/readers"
)

// In the mode both a call is run by the upstream first, and then decided by the nodes: a lock is held only if both say so.
// So such a grant excludes those of programs and proxies that know only one of the two. What a call has done at the
// upstream is read from its reply, and a call whose reply does not tell is refused before it is sent. The argument
// is in docs/decisions/0028.

// lag is how long the nodes may be behind the upstream: a release reaches them later.
const lag = 50 * time.Millisecond

// errUnclear answers a call to which the upstream gave a reply that the call cannot have.
var errUnclear = errors.New("ERR the upstream's reply does not say whether it has changed the lock")

// decideByMode decides a call on one lock of a client that may run it.
func (a *Adoption) decideByMode(ctx context.Context, conn Connection, c *Call) (Result, error) {
	switch {
	case c.pattern.Mode == pattern.Both && !c.class.Shares():
		return a.decideBoth(ctx, conn, c)
	case c.fault != nil:
		return Result{Reply: c.fault}, nil
	}
	if c.class.Shares() {
		result, err := a.decideShares(ctx, conn, c, lockKey(conn, c))
		if errors.Is(err, readers.ErrOther) {
			err = errChanging
		}
		return result, err
	}
	return a.decideOne(ctx, conn, c)
}

// decideBoth has the upstream run a call on one lock, and then the nodes decide it.
func (a *Adoption) decideBoth(ctx context.Context, conn Connection, c *Call) (Result, error) {
	if c.fault != nil || c.class == idiom.ReadOnly {
		reply, err := conn.Ask(ctx, c.words)
		return Result{Reply: reply}, err
	}
	replies, err := a.possibleReplies(c)
	if err != nil {
		return Result{}, err
	}
	if slices.Contains(replies.Ops, idiom.Op{Do: idiom.Renew, TTL: idiom.Forever}) { // whether a lock may lose its end depends on its kind
		has, err := a.upstreamState(ctx, conn, c.Key())
		if err != nil {
			return Result{}, err
		}
		if _, err := c.Run(has, time.Now()); err != nil {
			return Result{}, c.cannotRun(has.Kind, err)
		}
		if _, _, err := a.lease(c, has.Kind, idiom.Forever); err != nil {
			return Result{}, err
		}
	}
	if replies.May(idiom.Replace) { // so that two calls of this proxy reach the upstream and the nodes in the same order
		_, done, err := a.turns.Take(ctx, lockKey(conn, c))
		if err != nil {
			return Result{}, err
		}
		defer done()
		c.inTurn = true
	}
	began := time.Now()
	reply, err := conn.Ask(ctx, c.words)
	if err != nil {
		return Result{}, err
	}
	return a.decideAfter(ctx, conn, c, replies, reply, began)
}

// decideAfter decides a call that was sent to the upstream at began, and that the upstream has answered with reply.
func (a *Adoption) decideAfter(ctx context.Context, conn Connection, c *Call, replies *idiom.Replies, reply []byte, began time.Time) (Result, error) {
	did := replies.Did(reply)
	switch {
	case did == nil:
		a.diverged(ctx, conn, c, unclear, guess{})
		return Result{}, errUnclear
	case did[0] != idiom.Nothing:
		return a.follow(ctx, conn, c, &upstreamRun{replies: replies, did: did, reply: reply, began: began})
	case replies.May(idiom.Take), replies.May(idiom.Enter):
		return Result{Reply: reply}, nil
	}
	return a.decideAlone(ctx, conn, c, reply)
}

// possibleReplies returns the replies that a call may get from the upstream. It refuses the call if they would not tell
// whether the lock was changed, or if the nodes would refuse what the upstream does.
func (a *Adoption) possibleReplies(c *Call) (*idiom.Replies, error) {
	r, refused := c.Replies(time.Now())
	if refused != nil {
		return nil, c.refused(NotTold, refused.Why+", which mode=both must know")
	}
	for _, op := range r.Ops {
		kind := idiom.String
		switch op.Do {
		case idiom.Enter, idiom.Leave:
			kind = idiom.Hash
		case idiom.Replace:
			if err := a.mayReplace(c); err != nil {
				return nil, err
			}
		}
		if op.TTL != 0 {
			if _, _, err := a.lease(c, kind, op.TTL); err != nil {
				return nil, err
			}
		}
	}
	return r, nil
}

// An upstreamRun is a call that has changed the upstream's key.
type upstreamRun struct {
	replies *idiom.Replies
	did     []idiom.Do // what it may have done, by its reply
	reply   []byte
	began   time.Time // before it was sent
}

// takes reports whether the call may have taken the lock, or entered it.
func (u *upstreamRun) takes() bool {
	return slices.Contains(u.did, idiom.Take) || slices.Contains(u.did, idiom.Enter)
}

// releases reports whether the call has given the lock back, or one hold of it.
func (u *upstreamRun) releases() bool {
	return slices.Contains(u.did, idiom.Release) || slices.Contains(u.did, idiom.Leave)
}

// taken returns the operation that takes the lock, with the value or field and the ttl that the call asks for.
func (u *upstreamRun) taken() (op idiom.Op) {
	for _, o := range u.replies.Ops {
		if o.Do == idiom.Take || o.Do == idiom.Enter || o.Do == idiom.Replace {
			op = o
		}
	}
	return op
}

// lease returns the shortest lease that the call may have asked for.
func (u *upstreamRun) lease() time.Duration {
	least := idiom.Forever
	for _, o := range u.replies.Ops {
		if o.Do == idiom.Take || o.Do == idiom.Enter || o.Do == idiom.Renew || o.Do == idiom.Replace {
			least = min(least, o.TTL)
		}
	}
	return least
}

// follow has the nodes do what the upstream has done.
func (a *Adoption) follow(ctx context.Context, conn Connection, c *Call, u *upstreamRun) (Result, error) {
	r, err := a.decideOne(ctx, conn, c)
	if err == nil && r.did == idiom.Enter {
		if err = a.equalizeHolds(ctx, conn, c, u, r.Taken); err != nil {
			a.Undo(r.Taken)
		}
	}
	refused := (*RefusedError)(nil)
	switch took := u.taken(); {
	case u.releases(): // the client has it no more, whatever the nodes say
		if err == nil && r.did == idiom.Nothing {
			a.diverged(ctx, conn, c, nodesLack, r.at)
		}
		return Result{Reply: u.reply, did: idiom.Release}, nil
	case err == nil && r.did != idiom.Nothing && time.Since(u.began) >= u.lease():
		if r.Taken.Fence != 0 {
			a.Undo(r.Taken)
		}
		return Result{}, errLate
	case err == nil && r.did != idiom.Nothing:
		if r.Reply = u.reply; r.Taken.Fence != 0 {
			r.copied, r.sent = took, u.began
		}
		return r, nil
	case u.takes():
		if err == nil {
			a.diverged(ctx, conn, c, nodesHeld, r.at)
		}
		// A call that may have extended or replaced its own lock keeps it, and gets an error.
		if err == nil || errors.As(err, &refused) || !slices.Contains(u.did, idiom.Renew) && !slices.Contains(u.did, idiom.Replace) {
			a.giveBack(ctx, conn, c.Key(), took, u.began)
		}
	case err == nil:
		if takenOver, err := a.takeOver(ctx, conn, c, u, r.at); takenOver || err != nil {
			return Result{Reply: u.reply, did: idiom.Renew}, err
		}
		a.diverged(ctx, conn, c, nodesLack, r.at)
	}
	r.did, r.op, r.Taken = idiom.Nothing, idiom.Op{}, locks.Grant{}
	if slices.Contains(u.did, idiom.Replace) {
		err = mayBeLost(c.Key(), err)
	}
	return r, err
}

// decideAlone decides a call that has changed nothing at the upstream. A grant made in mode on is at the nodes only, so they
// alone release it, and renew it unless somebody has the key at the upstream. A grant made in mode both that is gone at the
// upstream is lost.
func (a *Adoption) decideAlone(ctx context.Context, conn Connection, c *Call, reply []byte) (Result, error) {
	key := lockKey(conn, c)
	g, err := a.read(ctx, newBurst().basis(), key)
	if err != nil {
		return Result{}, err
	}
	out, err := c.Run(g.confirmedState(time.Now()), time.Now())
	if err != nil || out.Op.Do == idiom.Nothing {
		return Result{Reply: reply}, nil
	}
	if g.made != madeOn {
		a.diverged(ctx, conn, c, upstreamLacks, g)
		return Result{Reply: reply}, nil
	}
	if out.Op.Do == idiom.Renew || out.Op.Do == idiom.Replace {
		switch has, err := a.upstreamHas(ctx, conn, c.Key()); {
		case err != nil:
			return Result{}, err
		case has:
			a.diverged(ctx, conn, c, upstreamLacks, g)
			return Result{Reply: reply}, nil
		}
	}
	if out.Op.Do == idiom.Replace {
		if err := a.mayReplace(c); err != nil {
			return Result{}, err
		}
	}
	c.alone = true
	d := decision{a: a, conn: conn, c: c, key: key, on: newBurst().basis(), lock: found{grant: g}}
	next, _, err := d.do(ctx, &out)
	switch {
	case err != nil:
		return Result{}, err
	case next == nil: // the grant has ended since
		return Result{Reply: reply}, nil
	}
	a.remember(key, *next)
	a.signal(ctx, conn, out.Signals)
	return Result{Reply: out.Reply, did: out.Op.Do}, nil
}

// upstreamLooks is how often the upstream is asked whether it has a key, before the key counts as somebody's lock.
const upstreamLooks = 5

// upstreamHas reports whether somebody has, at the upstream, the key of a lock that the nodes granted in mode on. A client
// that tries to take it in mode both has the key for a moment, until the nodes refuse it: such a key goes away, or another
// client's takes its place, whose end is later.
func (a *Adoption) upstreamHas(ctx context.Context, conn Connection, key string) (bool, error) {
	before := int64(-1)
	for range upstreamLooks {
		reply, err := conn.Ask(ctx, []string{"PTTL", key})
		switch {
		case err != nil:
			return false, err
		case len(reply) == 0 || reply[0] != ':': // this client may not read it
			return true, nil
		}
		left := resp.Int(reply)
		if left == -2 || before >= 0 && left > before {
			return false, nil
		}
		before = left
		if err := locks.Sleep(ctx, lag); err != nil {
			return false, err
		}
	}
	return true, nil
}

// giveBack releases what a call has taken at the upstream, if it is still there. After half of its lease it is left to
// expire: the request may arrive so late that another client has a lock with the same value.
func (a *Adoption) giveBack(ctx context.Context, conn Connection, key string, took idiom.Op, since time.Time) {
	if time.Since(since) >= took.TTL/2 {
		return
	}
	op := idiom.Op{Do: idiom.Release}
	kind := idiom.String
	switch {
	case took.Do == idiom.Enter:
		kind, op.Do = idiom.Hash, idiom.Leave
	case took.Kind == idiom.Sorted:
		kind = idiom.Sorted
	}
	a.changeCopy(context.WithoutCancel(ctx), conn, key, kind, took.Value, op)
}

// signalsOf returns the commands that follow a change at the upstream. In mode both the upstream has run them itself.
func (c *Call) signalsOf(out *idiom.Outcome) [][]string {
	if c.pattern.Mode == pattern.Both {
		return nil
	}
	return out.Signals
}

// GiveBack releases what a call has taken, also at the upstream, for a client that has left.
func (a *Adoption) GiveBack(conn Connection, r Result) {
	if r.copied.Do != idiom.Nothing {
		a.giveBack(context.Background(), conn, r.Taken.Name, r.copied, r.sent)
	}
	a.Undo(r.Taken)
}
