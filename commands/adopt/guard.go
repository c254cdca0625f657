package adopt

import (
	"context"
	"crypto/rand"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/resp"
)

// upstreamValue begins what the value of a lock is taken for whose key the upstream has. Random text follows, so that
// no client takes it for its own.
const upstreamValue = "lockproxy:upstream:"

func isUpstreams(value string) bool { return strings.HasPrefix(value, upstreamValue) }

// guardFor is how long the upstream may take to say that it has a key.
const guardFor = 100 * time.Millisecond

// lockGuarded takes a lock unless the upstream has its key: a program that does not go through a proxy has taken
// it there. Then at is what the key is taken for. An upstream that does not say so in time, or not to this client, has
// nothing: locks are to be had while it is away.
func (a *Adoption) lockGuarded(ctx context.Context, conn Connection, p *Pattern, r locks.LockRequest) (d locks.Decision, at guess, err error) {
	if p.Mode == Both { // the upstream has granted it
		r.Barge, r.Wait = false, lag
		d, err = a.opt.Engine.Lock(ctx, r)
		return d, at, err
	}
	if !p.Guard {
		d, err = a.opt.Engine.Lock(ctx, r)
		return d, at, err
	}
	inTime, cancel := context.WithTimeout(ctx, guardFor)
	defer cancel()
	var reply []byte
	var says bool
	asked := make(chan struct{})
	go func() { // the question needs less stack than Lock
		defer close(asked)
		var err error
		reply, err = conn.Ask(inTime, []string{"PTTL", r.Name})
		says = err == nil && len(reply) > 0 && reply[0] == ':'
	}()
	d, err = a.opt.Engine.Lock(ctx, r)
	ends := time.Now().Add(d.Grant.Validity)
	if err != nil || !d.Granted {
		cancel() // nobody needs the answer
		<-asked
		return d, at, err
	}
	if <-asked; !says {
		a.counters.unguarded.Add(1)
	}
	switch {
	case !time.Now().Before(ends):
		a.opt.Engine.Undo(d.Grant)
		return locks.Decision{}, at, errLate
	case !says || resp.Int(reply) == -2 || d.Grant.Holds > 1: // a hold more of what it has, the copy of which the key may be
		return d, at, nil
	}
	a.opt.Engine.Undo(d.Grant)
	a.counters.upstreamHeld.Add(1)
	left := time.Duration(resp.Int(reply)) * time.Millisecond
	if left < 0 {
		left = a.opt.MaxTTL
	}
	return locks.Decision{}, guess{owner: locks.NewAdoptedString(&a.opt.Random, upstreamValue+rand.Text()), until: time.Now().Add(max(left, time.Millisecond))}, nil
}
