package lockproxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"
)

// silenceLimit bounds the time for which a lock with Session counts as held after the proxy's last answer. It is
// shorter than a proxy's detection of a vanished client, after which it gives the lock away.
const silenceLimit = 12 * time.Second

var (
	errClosed  = errors.New("its connection was closed")
	errSilence = errors.New("no proxy answered in time")
	errOver    = errors.New("its time is over")
)

// A Lock is held from Acquire or AcquireAll until it is lost or given back by Release. It is safe for concurrent use. One
// of several names is lost when any of them is.
type Lock struct {
	Name  string // "" if there are several: they are the keys of Fences
	Owner string
	Fence int64 // larger than that of every earlier holder of the name; with Shared not smaller, see the README. 0 if there are several

	// Fences are those of all names; not to be changed.
	Fences map[string]int64

	names  []string
	client Client
	conn   Conn // of the session; nil: none
	opts   Options
	asked  time.Time     // before LOCK was sent
	lost   chan struct{} // closed when the lock is lost

	mu       sync.Mutex
	until    time.Time
	reason   error         // why it was lost; nil: it was not
	released chan struct{} // Release has begun if not nil; closed when the lock has been given back
	stop     chan struct{} // closed when Release begins
	result   error         // of Release
}

// newLock is the lock of a grant, which nobody keeps yet.
func newLock(r *request, fences map[string]int64, validity time.Duration) *Lock {
	l := &Lock{Owner: r.owner, Fences: fences, names: r.names, client: r.client, opts: r.Options, asked: r.asked,
		lost: make(chan struct{}), stop: make(chan struct{})}
	if len(r.names) == 1 {
		l.Name, l.Fence = r.names[0], fences[r.names[0]]
	}
	if r.Session {
		l.conn = r.conn
		validity = min(validity, silenceLimit)
	}
	l.until = r.asked.Add(validity)
	return l
}

// Until is the time up to which it is safe to work, as far as is known now: a renewal moves it.
func (l *Lock) Until() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until
}

// Lost is closed when the lock is lost. Release does not close it.
func (l *Lock) Lost() <-chan struct{} { return l.lost }

// Err is nil as long as the lock is not lost. Then it is ErrLost, with the reason. It looks at the clock: in a process that was
// stopped it may know of the end of the validity before Lost is closed.
func (l *Lock) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reason == nil && l.released == nil && !time.Now().Before(l.until) {
		return fmt.Errorf("%w: %w", ErrLost, l.whyOver(nil))
	}
	return l.reason
}

// Release gives the lock back. It tries until the lease is over, and waits for that until ctx ends: then it returns the
// error of ctx and goes on in the background. Another call returns what the first did. The error is ErrLost if
// the lock was lost before.
func (l *Lock) Release(ctx context.Context) error {
	l.mu.Lock()
	if l.released == nil {
		l.released = make(chan struct{})
		close(l.stop)
		go l.release()
	}
	l.mu.Unlock()
	select {
	case <-l.released:
		return l.result
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (l *Lock) release() {
	defer close(l.released)
	err := unlock(l.client, l.names, l.Owner, l.opts.isShared(), l.Until())
	l.closeConn()
	switch lost := l.Err(); {
	case lost != nil:
		l.result = lost
	case isLoss(err):
		l.result = fmt.Errorf("%w: %w", ErrLost, err)
	case err != nil:
		l.result = failure("UNLOCK", l.names, err)
	}
}

func (l *Lock) closeConn() {
	if l.conn != nil {
		l.conn.Close()
	}
}

// lose marks the lock as lost, unless it is being given back.
func (l *Lock) lose(reason error) {
	l.mu.Lock()
	lost := l.released == nil
	if lost {
		l.reason = fmt.Errorf("%w: %w", ErrLost, reason)
		close(l.lost)
	}
	l.mu.Unlock()
	if lost && l.opts.OnLost != nil {
		l.opts.OnLost(l.reason)
	}
	l.closeConn()
}

// A renewal is a question that the lock is held by, and its answer.
type renewal struct {
	asked    time.Time
	validity time.Duration // from then on
	err      error
}

// start keeps the lock until it is lost or given back.
func (l *Lock) start() {
	every, renew := l.opts.TTL/3, l.renew
	if l.opts.Session {
		every, renew = min(l.opts.TTL/8, silenceLimit/4), l.probe
	}
	go l.keep(every, renew)
}

func (l *Lock) keep(every time.Duration, renew func() renewal) {
	var closed <-chan struct{}
	if l.conn != nil {
		closed = l.conn.Closed()
	}
	var failed error // the last renewal; nil: it did not
	var pauses backoff
	next, end := time.NewTimer(time.Until(l.asked.Add(every))), time.NewTimer(time.Until(l.until))
	defer next.Stop()
	defer end.Stop()
	answers := make(chan renewal, 1)
	for {
		select {
		case <-l.stop:
			return
		case <-closed:
			l.lose(errClosed)
			return
		case <-end.C:
			l.lose(l.whyOver(failed))
			return
		case <-next.C:
			if l.mayRenew() {
				go func() { answers <- renew() }()
			}
		case a := <-answers:
			switch failed = a.err; {
			case failed == nil && time.Now().Before(l.until): // else it is lost, and Err may have said so
				pauses = backoff{}
				l.extend(a.asked.Add(a.validity))
				end.Reset(time.Until(l.until))
				next.Reset(time.Until(a.asked.Add(every)))
			case failed != nil && (l.opts.Session || isLoss(failed)):
				l.lose(failed)
				return
			default:
				next.Reset(min(pauses.next(), max(pause, time.Until(l.until)/2))) // so that a try comes while the lease can be saved
			}
		}
	}
}

// mayRenew reports whether the lock is to be kept for longer.
func (l *Lock) mayRenew() bool {
	return l.opts.Session || !l.opts.NoRenew && time.Since(l.asked) < cmp.Or(l.opts.MaxHold, defaultMaxHold)
}

// whyOver is why the lease was not renewed in time; failed is what became of the last try.
func (l *Lock) whyOver(failed error) error {
	switch {
	case failed != nil:
		return fmt.Errorf("it could not be renewed: %w", failed)
	case l.mayRenew():
		return errSilence
	}
	return errOver
}

func (l *Lock) extend(until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until = until
}

// renew asks for a whole lease from now on.
func (l *Lock) renew() (a renewal) {
	ctx, cancel := context.WithDeadline(context.Background(), l.Until())
	defer cancel()
	a.asked = time.Now()
	args := append(words("RENEW", l.names), millis(l.opts.TTL), l.Owner)
	if len(l.names) == 1 { // of several each has its own, and the owner has no other lock
		args = append(args, "FENCE", strconv.FormatInt(l.Fence, 10))
	}
	if l.opts.isShared() {
		args = append(args, "SHARED")
	}
	reply, err := l.client.Do(ctx, args...)
	ms, ok := reply.(int64)
	if a.err = err; err == nil && !ok {
		a.err = fmt.Errorf("no answer of a lockproxy to RENEW: %v", reply)
	}
	a.validity = time.Duration(ms) * time.Millisecond
	return a
}

// probe asks for any answer over the session's connection: as long as there are answers the proxy renews the lock.
func (l *Lock) probe() (a renewal) {
	ctx, cancel := context.WithDeadline(context.Background(), l.Until())
	defer cancel()
	a.asked, a.validity = time.Now(), min(l.opts.TTL/2, silenceLimit)
	if _, err := l.conn.Do(ctx, "LOCKCTL", "HELP"); !errors.As(err, new(ReplyError)) {
		a.err = err
	}
	return a
}
