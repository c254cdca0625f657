package lockcmd

import (
	"cmp"
	"context"
	"errors"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/resp"
)

// Lock begins a LOCK or LOCKALL, and ends it unless it may wait: then it is Pending. A muted one gets
// no reply. If there is an error, which is its reply, it has not begun.
func (c *Client) Lock(ctx context.Context, args [][]byte, muted bool) error {
	a, err := c.verbs.opt.Limits.parseLock(args)
	if err != nil {
		return err
	}
	for _, k := range a.Names() {
		if err := c.conn.MayLock(ctx, k.Name); err != nil {
			return err
		}
	}
	for i := range a.Others {
		a.Others[i].DB = c.conn.Database()
	}
	if a.DB, a.Client = c.conn.Database(), c.conn.Address(); a.BindsToSession {
		if c.verbs.opt.Sessions == nil {
			return errors.New("ERR SESSION is not supported by this proxy")
		}
		if a.OnLoss == locks.OnLossPush && c.conn.Protocol() < 3 {
			return errors.New("ERR ONLOSS PUSH needs RESP3, which has pushes: say HELLO 3 first")
		}
		a.Session = c.lockSession()
	}
	a.Asker = c.sessions.begun()
	if a.Async {
		c.lockAsync(ctx, a, muted)
		return nil
	}
	p := newPending(a, muted)
	if a.Wait == 0 {
		p.ask(c.conn.Present(), c.verbs.opt.Locker)
		c.Finish(ctx, p)
		return nil
	}
	p.prepare()
	c.pending = p
	c.verbs.asking.Go(func() { p.askAsync(c.conn.Present(), c.verbs.draining, c.verbs.opt.Locker) })
	return nil
}

// Pending is the LOCK that waits; nil if there is none. When its answer has come it is for
// TakePending and Finish.
func (c *Client) Pending() *Pending { return c.pending }

// TakePending takes the LOCK whose answer has come: another one may wait now.
func (c *Client) TakePending() *Pending {
	p := c.pending
	c.pending = nil
	p.answered()
	return p
}

// Finish replies to a LOCK that was answered, and undoes a grant that the client cannot get.
func (c *Client) Finish(ctx context.Context, p *Pending) {
	reply, err := c.lockReply(ctx, p)
	c.logLock(p, err)
	sent := c.conn.Reply(reply, err)
	if p.Answer.Granted && (err != nil || !sent) { // the client does not know of it
		for _, g := range p.Answer.All() {
			c.verbs.opt.Locker.Undo(g)
		}
	}
	if p.BindsToSession {
		c.watchHost()
	}
}

// hasLeft reports whether the client has left, also if that has only just reached the kernel.
func (c *Client) hasLeft() bool { return c.conn.Present().Err() != nil || c.conn.HungUp() }

// lockReply is the reply to a LOCK. It returns an error for a grant that the client cannot
// get.
func (c *Client) lockReply(ctx context.Context, p *Pending) ([]byte, error) {
	validity := validityOf(p.Answer)
	switch {
	case p.Err != nil && c.conn.Present().Err() != nil:
		// It may have closed only its sending half: the replies behind this one must
		// not take its place.
		return nil, errors.New("ERR LOCK was given up: the client closed its side of the connection")
	case c.verbs.draining.Err() != nil && (errors.Is(p.Err, context.Canceled) || errors.Is(p.Err, locks.ErrSessionEnded)):
		return nil, errDraining
	case p.Err != nil:
		return nil, p.Err
	case p.Answer.Granted && c.hasLeft():
		return nil, errors.New("ERR LOCK was undone: the client closed its side of the connection")
	case p.Answer.Granted && remaining(validity, p.AnsweredAt) == 0 && validity > 0:
		return nil, errors.New("ERR LOCK was undone: the lease ended before the reply could be sent")
	case p.Answer.Granted:
		if p.Owner == "" {
			for _, g := range p.Answer.All() {
				c.implicit.Add(g)
			}
		}
		if p.Several {
			return appendGrants(nil, p.Answer, p.AnsweredAt), nil
		}
		return appendGrant(nil, p.Answer.Grant, p.AnsweredAt), nil
	case p.RetryAfter && p.Several:
		return appendRefusalOf(nil, p.Answer, shownOwner(c.visible(ctx, p.Answer.Holder)), cmp.Or(p.Answer.Of.Name, p.Name)), nil
	case p.RetryAfter:
		return appendRefusal(nil, p.Answer, shownOwner(c.visible(ctx, p.Answer.Holder))), nil
	}
	return resp.AppendNull(nil, c.conn.Protocol()), nil
}

// Queued is a command that comes behind Pending, for its queue.
func (c *Client) Queued(raw []byte, args [][]byte) Queued {
	q := Queued{Raw: raw, Args: args}
	if isLock(args[0]) {
		if a, err := c.verbs.opt.Limits.parseLock(args); err == nil {
			q.claims = a.claims()
		}
	}
	return q
}

// RunsAhead reports whether a lock verb need not wait for the LOCKs before it, Pending and
// those in its queue.
func (c *Client) RunsAhead(args [][]byte) bool {
	return c.pending.runsAhead(c.verbs.opt.Limits, args, c.conn.Database(), &c.implicit)
}
