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

// An Answer is a reply of the upstream's on its way. Nobody has to wait for it.
type Answer interface {
	// Ready reports whether Await returns at once, or knows by itself when to.
	Ready() bool
	// Await waits for it until ctx ends.
	Await(ctx context.Context) (reply []byte, err error)
}

// lockGuarded takes a lock unless the upstream has its key: a program that does not go through a proxy has taken
// it there. Then at is what the key is taken for. An upstream that does not say so in time, or not to this client, has
// nothing: locks are to be had while it is away.
func (a *Adoption) lockGuarded(ctx context.Context, conn Connection, p *Pattern, r locks.LockRequest) (d locks.Decision, at guess, err error) {
	if p.Mode == Both { // the upstream has granted it
		if r.Barge = false; r.Replaces == nil {
			r.Wait = lag
		}
		d, err = a.opt.Engine.Lock(ctx, r)
		return d, at, err
	}
	if !p.Guard {
		d, err = a.opt.Engine.Lock(ctx, r)
		return d, at, err
	}
	by := time.Now().Add(guardFor)
	question := []string{"PTTL", r.Name}
	answer := conn.Begin(question)
	if answer == nil {
		beside := askBeside(ctx, conn, question, by)
		defer beside.stop()
		answer = beside
	}
	d, err = a.opt.Engine.Lock(ctx, r)
	ends := time.Now().Add(d.Grant.Validity)
	if err != nil || !d.Granted { // nobody needs the answer
		return d, at, err
	}
	reply, err := await(ctx, answer, by)
	says := err == nil && len(reply) > 0 && reply[0] == ':'
	if !says {
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

// await returns the answer if it comes by that time.
func await(ctx context.Context, answer Answer, by time.Time) ([]byte, error) {
	if !answer.Ready() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, by)
		defer cancel()
	}
	return answer.Await(ctx)
}

// An asking is a question for which a connection may have to be waited for first.
type asking struct {
	cancel context.CancelFunc
	done   chan struct{}
	reply  []byte // valid after done
	err    error
}

// askBeside asks on a goroutine of its own, which ends by that time or with stop.
func askBeside(ctx context.Context, conn Connection, question []string, by time.Time) *asking {
	q := &asking{done: make(chan struct{})}
	ctx, q.cancel = context.WithDeadline(ctx, by)
	go func() {
		defer close(q.done)
		q.reply, q.err = conn.Ask(ctx, question)
	}()
	return q
}

// stop gives the question up, and waits for the goroutine.
func (q *asking) stop() {
	q.cancel()
	<-q.done
}

// Ready implements Answer: Await has no need of a deadline.
func (q *asking) Ready() bool { return true }

// Await implements Answer.
func (q *asking) Await(context.Context) ([]byte, error) {
	<-q.done
	return q.reply, q.err
}
