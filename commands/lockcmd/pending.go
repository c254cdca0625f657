package lockcmd

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/resp"
)

// Bounds on what is kept of the commands behind a LOCK that waits.
const (
	maxQueuedBytes = 1 << 20 // commands and replies
	maxQueued      = 4096
)

// A Pending is a LOCK on its way, and the queue of commands behind it.
//
// Whoever has the answer sets Answer, Err and AnsweredAt and then closes Done. All else
// belongs to the connection's goroutine.
type Pending struct {
	Lock
	Muted bool      // the client has asked for no reply
	Began time.Time // of the request

	Done       chan struct{} // closed when the answer has come; nil: it does not wait
	Answer     locks.Decision
	Err        error
	AnsweredAt time.Time // zero: just now

	onDone atomic.Pointer[func()] // called when Done is closed; may be nil

	queue    []Queued
	size     int           // bytes in the queue
	releases int           // UNLOCKs and RENEWs in the queue, or those of several: they are for a lock that a LOCK before them brings
	claims   map[claim]int // of this LOCK and of those in the queue: how many want the same
}

// A claim is the lock that an UNLOCK or RENEW may be for. An empty owner is an implicit
// one.
type claim struct{ name, owner string }

// claims are the locks that a LOCK or LOCKALL may bring.
func (a *Lock) claims() (all []claim) {
	for _, k := range a.Names() {
		all = append(all, claim{k.Name, a.Owner})
	}
	return all
}

// Queued is a command behind a LOCK that waits. Its reply is there already if Raw is nil.
type Queued struct {
	Raw   []byte
	Args  [][]byte
	Reply Reply

	claims  []claim // of a LOCK or LOCKALL; else none
	release bool    // it gives locks back, or renews them
}

// claimSize is about what is kept of a claim, beside the command.
const claimSize = 128

func (q *Queued) size() int {
	return len(q.Raw) + len(q.Reply.Bytes) + claimSize*max(0, len(q.claims)-1)
}

// newPending returns a LOCK that begins now.
func newPending(a Lock, muted bool) *Pending {
	return &Pending{Lock: a, Muted: muted, Began: time.Now()}
}

// ask asks for the lock, without waiting for it. The request ends with ctx.
func (p *Pending) ask(ctx context.Context, l Locker) {
	l.LockAsync(ctx, p.LockRequest, func(a locks.Decision, err error) { p.Answer, p.Err = a, err })
}

// prepare makes p a LOCK that waits, for askAsync.
func (p *Pending) prepare() {
	p.Done = make(chan struct{})
	p.claims = map[claim]int{}
	p.claim(p.Lock.claims())
}

// askAsync asks for the lock, and returns while it is waited for or when Done is closed.
// The request ends with either context.
func (p *Pending) askAsync(client, draining context.Context, l Locker) {
	ctx, cancel := context.WithCancel(client)
	stop := context.AfterFunc(draining, cancel)
	l.LockAsync(ctx, p.LockRequest, func(a locks.Decision, err error) {
		stop()
		cancel()
		p.Answer, p.Err, p.AnsweredAt = a, err, time.Now()
		close(p.Done)
		if f := p.onDone.Swap(nil); f != nil {
			(*f)()
		}
	})
}

// OnDone has f called once when Done is closed, on any goroutine, in place of what an
// earlier call asked for; f must not wait. It reports false, without calling f, if Done
// is closed already.
func (p *Pending) OnDone(f func()) bool {
	p.onDone.Store(&f)
	select {
	case <-p.Done:
		return p.onDone.Swap(nil) == nil // else it has just been called
	default:
		return true
	}
}

// Room reports whether the queue has room for a command of n bytes.
func (p *Pending) Room(n int) bool {
	return p.size+n <= maxQueuedBytes && len(p.queue) < maxQueued
}

// Add puts a command at the end of the queue.
func (p *Pending) Add(q Queued) {
	p.queue = append(p.queue, q)
	p.size += q.size()
	if q.release {
		p.releases++
	}
	p.claim(q.claims)
}

// Len is how many commands are queued.
func (p *Pending) Len() int { return len(p.queue) }

// Next takes the first command out of the queue, which must not be empty.
func (p *Pending) Next() Queued {
	q := p.queue[0]
	p.queue[0] = Queued{}
	p.queue = p.queue[1:]
	p.size -= q.size()
	if q.release {
		p.releases--
	}
	p.unclaim(q.claims)
	return q
}

// answered notes that the client has its answer: the LOCK claims nothing any more.
func (p *Pending) answered() { p.unclaim(p.Lock.claims()) }

func (p *Pending) claim(all []claim) {
	for _, k := range all {
		p.claims[k]++
	}
}

func (p *Pending) unclaim(all []claim) {
	for _, k := range all {
		if p.claims[k]--; p.claims[k] <= 0 {
			delete(p.claims, k)
		}
	}
}

// Waits notes that a command of the client's has to wait for the LOCKs before it. verb
// tells the lock verbs from others.
func (q *Queued) Waits(verb bool) {
	q.release = verb && !isLock(q.Args[0])
}

// TakeOver moves the queue of an answered LOCK behind this one. rerun gets each command
// that may no longer have to wait: UNLOCKs and RENEWs for the answered LOCK.
func (p *Pending) TakeOver(before *Pending, rerun func(*Queued)) {
	if before.releases == 0 { // of thousands in a queue none has to be looked at
		for c, n := range p.claims {
			before.claims[c] += n
		}
		p.queue, p.size, p.claims = before.queue, before.size, before.claims
		return
	}
	for _, q := range before.queue {
		rerun(&q)
		p.Add(q)
	}
}

// runsAhead reports whether a lock verb need not wait for the LOCKs before it: it is not
// for a lock that only they can bring. own are the locks that the connection has.
func (p *Pending) runsAhead(l Limits, args [][]byte, db int, own *owners) bool {
	var names []string
	var r Release
	var err error
	switch {
	case isLock(args[0]):
		return false
	case resp.Is(args[0], "RENEW"):
		r, err = l.ParseRenew(args)
	case resp.Is(args[0], "UNLOCK"):
		r, err = ParseUnlock(args)
	case resp.Is(args[0], "RENEWALL"):
		names, r, err = l.ParseRenewAll(args)
	case resp.Is(args[0], "UNLOCKALL"):
		names, r, err = ParseUnlockAll(args)
	default:
		return true
	}
	if err != nil || r.Fence != 0 { // the fence of a LOCK that waits is not known yet
		return true
	}
	if names == nil {
		names = []string{r.Name}
	}
	return !slices.ContainsFunc(names, func(name string) bool {
		return p.claims[claim{name, r.Owner}] > 0 && (r.Owner != "" || !own.Holds(locks.Key{DB: db, Name: name}))
	})
}

// A Reply is the reply to a lock verb. That to a RENEW is what is left of its validity
// when it is sent.
type Reply struct {
	Bytes    []byte // nil: Validity
	Validity time.Duration
	At       time.Time // when Validity was counted; zero: just now
}

// Now is the reply, if it is sent now.
func (r Reply) Now() []byte {
	if r.Bytes != nil {
		return r.Bytes
	}
	return appendRemaining(nil, r.Validity, r.At)
}

// remaining is what is left of a validity that was counted then; zero: just now.
func remaining(validity time.Duration, then time.Time) time.Duration {
	if then.IsZero() {
		return validity
	}
	return max(0, validity-time.Since(then))
}

// appendRemaining appends remaining in milliseconds.
func appendRemaining(b []byte, validity time.Duration, then time.Time) []byte {
	return resp.AppendInt(b, remaining(validity, then).Milliseconds())
}

// appendGrant appends the reply to a granted LOCK, whose answer came then.
func appendGrant(b []byte, g locks.Grant, then time.Time) []byte {
	b = resp.AppendArray(b, 4)
	b = resp.AppendInt(b, g.Fence)
	b = resp.AppendBulkString(b, g.Owner)
	b = appendRemaining(b, g.Validity, then)
	return resp.AppendInt(b, int64(g.Holds))
}

// appendRefusal appends the reply to a refused LOCK with RETRYAFTER. holder is as the
// client may see it.
func appendRefusal(b []byte, a locks.Decision, holder string) []byte {
	return appendRefusalFields(resp.AppendArray(b, 4), a, holder)
}

func appendRefusalFields(b []byte, a locks.Decision, holder string) []byte {
	b = resp.AppendInt(b, 0)
	b = resp.AppendBulkString(b, holder)
	b = resp.AppendInt(b, ceilMillis(a.Remaining))
	return resp.AppendInt(b, int64(a.Waiters))
}
