package adopt

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
)

// Several calls may replace one lock at the same time, through several proxies.
const (
	replaceTries    = 30                    // how often such a call is decided before it fails
	maxReplacePause = 10 * time.Millisecond // between two tries, at most, by chance: about as long as a few other calls take
)

// replace gives a lock another value by a new grant in place of exactly the one that it is taken to have. A nil next means that
// nothing was done: that grant is gone, or not known exactly.
func (d *decision) replace(ctx context.Context, op idiom.Op) (next *guess, taken locks.Grant, err error) {
	a, c, key, g, now := d.a, d.c, d.key, d.lock.grant, time.Now()
	if isUpstreams(g.owner) {
		return nil, taken, c.refused(UpstreamHas, "the upstream has the key, which a program has taken that goes past the proxies")
	}
	ttl, open, err := a.lease(c, idiom.String, op.TTL)
	if err != nil || g.fence == 0 || g.made == unknownOrigin {
		return nil, taken, err
	}
	answer, err := a.opt.Engine.Lock(ctx, locks.LockRequest{
		Key: key, Owner: a.ownerOf(op), TTL: ttl, Open: open, Info: c.made().info(), Barge: true, Replaces: &locks.GrantRef{Owner: g.owner, Fence: g.fence},
	})
	switch {
	case err != nil:
		a.guesses.Remove(key)
		return nil, taken, mayBeLost(key.Name, err)
	case !answer.Granted:
		return nil, taken, locks.Sleep(ctx, rand.N(maxReplacePause))
	}
	return &guess{owner: answer.Grant.Owner, fence: answer.Grant.Fence, holds: 1, until: now.Add(ttl), open: open, made: c.made()}, answer.Grant, nil
}

// mayBeLost is err, with a note if too few nodes have answered a call that replaces a lock.
func mayBeLost(key string, err error) error {
	if quorum := (*locks.QuorumError)(nil); errors.As(err, &quorum) {
		return &PartialError{Key: key, Err: err, Note: "the lock that it was to replace may be lost"}
	}
	return err
}

// mayReplace refuses a call that replaces a lock, unless its pattern allows it or it has compared the value.
func (a *Adoption) mayReplace(c *Call) error {
	if refused := a.rule(c.pattern).AllowsReplace(c.Call, time.Now()); refused != nil {
		return c.refused(TooStrict, refused.Why)
	}
	return nil
}
