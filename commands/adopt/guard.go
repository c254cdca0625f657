package adopt

import (
	"context"
	"crypto/rand"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
	"github.com/lockproxy/lockproxy/commands/adopt/pattern"
)

// upstreamValue is the prefix of the value that a lock is taken to have while the upstream has its key. Random text follows,
// so that no client takes it for its own.
const upstreamValue = "lockproxy:upstream:"

// isUpstreams reports whether the owner of a lock stands for the upstream, which has its key.
func isUpstreams(owner string) bool {
	kind, value := keyOf(owner)
	return kind == idiom.String && strings.HasPrefix(value, upstreamValue)
}

// guardFor is how long the upstream may take to say that it has a key.
const guardFor = 100 * time.Millisecond

// An Answer is a reply of the upstream that may not have come yet. It need not be waited for.
type Answer interface {
	// Ready reports whether Await needs no deadline: it returns at once, or has one of its own.
	Ready() bool
	// Await waits for it until ctx ends.
	Await(ctx context.Context) (reply []byte, err error)
}

// lockGuarded takes a lock unless the upstream has its key: a program that bypasses the proxies may have taken it there.
// Then at describes that holder. If the upstream does not answer in time, or not to this client, the key counts as absent:
// locks can be taken while the upstream is down.
func (a *Adoption) lockGuarded(ctx context.Context, conn Connection, p *pattern.Pattern, r locks.LockRequest) (d locks.Decision, at guess, err error) {
	both := p.Mode == pattern.Both // the upstream has granted it
	if both {
		if r.Barge = false; r.Replaces == nil {
			r.Wait = lag
		}
	}
	if both || !p.Guard {
		d, err = a.opt.Engine.Lock(ctx, r)
		return d, at, err
	}
	by := time.Now().Add(guardFor)
	question := []string{"PTTL", r.Name}
	answer := conn.Begin(question)
	if answer == nil {
		asked := askConcurrently(ctx, conn, question, by)
		defer asked.stop()
		answer = asked
	}
	d, err = a.opt.Engine.Lock(ctx, r)
	ends := time.Now().Add(d.Grant.Validity)
	if err != nil || !d.Granted { // the answer is not needed
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
	case !says || resp.Int(reply) == -2 || d.Grant.Holds > 1: // one hold more of a lock that the client has: the key may be the copy of that
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

// An asking is a question to the upstream on a goroutine of its own, since it may have to wait for a connection.
type asking struct {
	cancel context.CancelFunc
	done   chan struct{}
	reply  []byte // valid after done
	err    error
}

// askConcurrently asks on a goroutine of its own, which ends by that time or with stop.
func askConcurrently(ctx context.Context, conn Connection, question []string, by time.Time) *asking {
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
