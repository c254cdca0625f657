// Package lockproxy takes and gives back locks of lockproxy on a client that the application
// has already: package lockgoredis makes [Locks] of one of go-redis, lockrueidis of one of rueidis.
//
// While a lock is held it is renewed. It may be lost all the same, when no proxy answers for as
// long as the lease lasts or an operator takes it away: the holder is told, and what it writes should
// carry the lock's fence, by which data can turn away a holder that is late.
package lockproxy

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

var (
	// ErrNotAcquired reports that another has the lock, and still had when the wait was over.
	ErrNotAcquired = errors.New("lockproxy: another has the lock")
	// ErrLost reports that a lock was lost before it was given back.
	ErrLost = errors.New("lockproxy: the lock was lost")
	// ErrClosed reports that the application has closed its client.
	ErrClosed = errors.New("lockproxy: the client is closed")
)

// errLate reports that granted leases were over before their answers came.
var errLate = errors.New("the lease was over when the answer came")

const (
	defaultTTL     = 30 * time.Second
	defaultMaxHold = time.Hour

	maxPiece  = 5 * time.Second        // of a wait, in one LOCK
	minAnswer = time.Second            // the least time for an answer on a connection of its own
	pause     = 100 * time.Millisecond // before a command that failed is sent again
	maxPause  = 800 * time.Millisecond // after some failures, and up to a quarter more
)

// A Client is what an adapter makes of a client library. It is safe for concurrent use.
type Client interface {
	// Do sends a command over connections that others use too, and returns its reply: nil, an int64,
	// a string or a []any. An error of the server is a ReplyError; any other says that it is not known whether
	// the command was executed. Do need not return as soon as ctx ends.
	Do(ctx context.Context, args ...string) (any, error)
	// Open returns a connection for one user. It may connect later, in its first Do.
	Open() Conn
	// Timeout is how long the client waits for an answer, 0 if that is not known.
	Timeout() time.Duration
}

// A Conn is a connection, and never another after it.
type Conn interface {
	// Do is Client.Do over this connection, until the deadline of ctx. It is called by one goroutine at a time.
	Do(ctx context.Context, args ...string) (any, error)
	// Closed is closed when the connection is, by either side. It may be nil where that cannot be noticed.
	Closed() <-chan struct{}
	// Close ends the connection, also while Do is under way, and may be called again.
	Close()
}

// A ReplyError is an error that a proxy answered. Its first word says which.
type ReplyError string

func (e ReplyError) Error() string { return string(e) }

func (e ReplyError) word() string {
	word, _, _ := strings.Cut(string(e), " ")
	return word
}

// again reports whether the same command may do better: its answer was lost, too few lock nodes or
// no upstream answered, or the proxy shuts down.
func again(err error) bool {
	var answer ReplyError
	if !errors.As(err, &answer) {
		return !errors.Is(err, ErrClosed)
	}
	switch answer.word() {
	case "NOQUORUM", "DRAINING", "UPSTREAMDOWN":
		return true
	}
	return false
}

// isLoss reports whether err says that this owner does not have the lock any more.
func isLoss(err error) bool {
	var answer ReplyError
	return errors.As(err, &answer) && (answer.word() == "LOCKLOST" || answer.word() == "NOTOWNER")
}

// Options say how a lock is taken and kept. The zero value is good for most.
type Options struct {
	TTL  time.Duration // of the lease, what the proxy allows: 100 ms to 60 s unless set otherwise; 0: 30 s
	Wait time.Duration // for the lock while another has it; 0: ask once; negative: until the context ends

	// Shared is for who only reads: others may read at the same time, and nobody has the lock without Shared. All proxies must know it.
	Shared bool

	// Permits is for who shares the lock with a limit: at most so many owners that ask with Permits have it at the same time, up to 1000, and nobody
	// without. 0: it is not shared so. All proxies must know it. Not with Shared.
	Permits int

	// Session binds the lock to a connection of its own: lockproxy renews it, and frees it within
	// milliseconds when this process dies. It is lost with the connection.
	Session bool

	NoRenew bool          // leave the lease to end by itself; ignored with Session
	MaxHold time.Duration // renew for so long, so that a program that hangs does not hold it for ever; 0: 1 h, with Session the proxy's own limit

	// OnLost is called once if the lock is lost before Release, with an error that is ErrLost, on a goroutine of its own. It may
	// still run when Release or Do returns.
	OnLost func(error)

	Info string // what LOCKCTL and the page show of the holder
}

// isShared reports whether RENEW and UNLOCK say SHARED.
func (o Options) isShared() bool { return o.Shared || o.Permits != 0 }

// Locks are the locks of a lockproxy. They are safe for concurrent use.
type Locks struct {
	client Client
	idle   idle
}

// New returns the locks of a client that an adapter made. Applications call New of the adapter.
func New(c Client) *Locks { return &Locks{client: c} }

// Do runs f while it has the lock. The context that f gets ends when the lock is lost, with a cause that is ErrLost. Do
// returns when the lock has been given back, or its lease is over. Its error is ErrNotAcquired, ErrLost, that of
// f or of ctx, or the reason why nobody knows who has the lock.
func (s *Locks) Do(ctx context.Context, name string, opts Options, f func(context.Context, *Lock) error) error {
	return s.DoAll(ctx, []string{name}, opts, f)
}

// DoAll is Do for several names: see AcquireAll.
func (s *Locks) DoAll(ctx context.Context, names []string, opts Options, f func(context.Context, *Lock) error) (err error) {
	within, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	onLost := opts.OnLost
	opts.OnLost = func(lost error) {
		cancel(lost)
		if onLost != nil {
			onLost(lost)
		}
	}
	l, err := s.AcquireAll(ctx, names, opts)
	if err != nil {
		return err
	}
	defer func() {
		switch released := l.Release(context.WithoutCancel(ctx)); {
		case err == nil:
			err = released
		case released != nil && !errors.Is(err, released):
			err = errors.Join(err, released)
		}
	}()
	return f(within, l)
}

// Acquire takes the lock, and returns as soon as ctx ends. The lock outlives ctx: it is for the caller to Release. Its error
// is ErrNotAcquired, that of ctx, or the reason why nobody knows who has the lock; then what may have been granted
// is given back in the background.
func (s *Locks) Acquire(ctx context.Context, name string, opts Options) (*Lock, error) {
	return s.AcquireAll(ctx, []string{name}, opts)
}

// AcquireAll takes up to 64 names at once, all of them or none. While it waits it holds none, so that the order of
// names does not matter. Options hold for every name; it takes no Permits. All proxies must know LOCKALL.
func (s *Locks) AcquireAll(ctx context.Context, names []string, opts Options) (*Lock, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	r := &request{Options: opts, client: s.client, idle: &s.idle, names: slices.Clone(names), owner: rand.Text()}
	r.TTL = cmp.Or(r.TTL, defaultTTL)
	r.timeout = cmp.Or(max(s.client.Timeout(), 0), 2*maxPiece)
	type result struct {
		lock *Lock
		err  error
	}
	done := make(chan result, 1)
	go func() {
		l, err := r.take(ctx)
		done <- result{l, err}
	}()
	select {
	case d := <-done:
		return d.lock, d.err
	case <-ctx.Done():
	}
	go func() { // the client may not heed ctx
		if d := <-done; d.lock != nil {
			_ = d.lock.Release(context.Background())
		}
	}()
	return nil, context.Cause(ctx)
}

// A request is one acquisition.
type request struct {
	Options
	client  Client
	idle    *idle
	timeout time.Duration
	names   []string
	owner   string // also the id of the request, so that a LOCK or UNLOCK which is sent again counts once
	conn    Conn   // of its own; nil: none
	asked   time.Time
	unsure  bool // a LOCK was not answered: it may be granted
}

// take asks for the lock until it is granted, the wait is over or ctx ends.
func (r *request) take(ctx context.Context) (l *Lock, err error) {
	defer func() {
		switch {
		case r.unsure && l == nil:
			r.closeConn()
			go unlock(r.client, r.names, r.owner, r.isShared(), r.asked.Add(r.TTL))
		case r.conn != nil && !r.Session:
			r.idle.put(r.conn)
		case l == nil:
			r.closeConn()
		}
	}()
	deadline := time.Now().Add(r.Wait)
	if r.Wait < 0 {
		deadline = time.Now().Add(math.MaxInt64 / 2)
	}
	var pauses backoff
	for first := true; ; first = false {
		reply, err := r.ask(ctx, first, time.Until(deadline))
		switch {
		case err == nil && reply == nil:
			err = ErrNotAcquired
		case err == nil:
			if l, err = r.granted(reply); err == nil {
				return l, nil
			}
		default:
			r.unsure = r.unsure || again(err) || isLoss(err) // a LOCKALL that was granted, and lost some names before it was answered
			if answer := ReplyError(""); !errors.As(err, &answer) || answer.word() == "DRAINING" {
				r.closeConn() // the next one may lead to another proxy
			}
		}
		if end, ok := ctx.Deadline(); ok && !time.Now().Before(end) {
			<-ctx.Done() // the client may have noticed a moment before
		}
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err != ErrNotAcquired && !again(err), !time.Now().Before(deadline):
			return nil, r.failure(err)
		case err != ErrNotAcquired:
			sleep(ctx, min(pauses.next(), time.Until(deadline)))
		default:
			pauses = backoff{}
		}
	}
}

// ask sends LOCK once. First it is sent like every other command; then it waits, which would hold up what is
// behind it, over a connection of its own.
func (r *request) ask(ctx context.Context, first bool, left time.Duration) (any, error) {
	args := append(words("LOCK", r.names), millis(r.TTL), "OWNER", r.owner, "REQ", r.owner)
	if r.Shared {
		args = append(args, "SHARED")
	}
	if r.Permits != 0 {
		args = append(args, "PERMITS", strconv.Itoa(r.Permits))
	}
	if r.Info != "" {
		args = append(args, "INFO", r.Info)
	}
	if r.Session {
		args = append(args, "SESSION", "ONLOSS", "CLOSE")
		if r.MaxHold > 0 {
			args = append(args, "MAXHOLD", millis(r.MaxHold))
		}
	}
	r.asked = time.Now()
	if first && !r.Session {
		return r.client.Do(ctx, args...)
	}
	wait := max(0, min(left, r.timeout/2, maxPiece))
	if wait > 0 {
		args = append(args, "WAIT", millis(wait))
	}
	if r.conn == nil && !r.Session { // one that has died unnoticed would cost the only try
		r.conn = r.idle.get()
	}
	if r.conn == nil {
		r.conn = r.client.Open()
	}
	defer context.AfterFunc(ctx, r.conn.Close)() // at its end lockproxy takes back what it was about to grant
	within, cancel := context.WithDeadline(ctx, r.asked.Add(wait+max(r.timeout, minAnswer)))
	defer cancel()
	return r.conn.Do(within, args...)
}

// granted is the lock of the reply, or errLate.
func (r *request) granted(reply any) (*Lock, error) {
	fences, validity, ok := readGrants(r.names, reply)
	if !ok {
		return nil, ReplyError(fmt.Sprintf("ERR no answer of a lockproxy to LOCK: %v", reply))
	}
	if l := newLock(r, fences, validity); time.Now().Before(l.until) {
		l.start()
		return l, nil
	}
	go unlock(r.client, r.names, r.owner, r.isShared(), r.asked.Add(r.TTL))
	r.owner = rand.Text() // the request has been used up
	return nil, errLate
}

// readGrants reads the fences and the validity of the reply to LOCK, or to LOCKALL.
func readGrants(names []string, reply any) (fences map[string]int64, validity time.Duration, ok bool) {
	list, _ := reply.([]any)
	if len(names) == 1 && len(list) == 4 { // fence, owner, validity, holds
		list = []any{list[2], list[1], []any{names[0], list[0], list[3]}}
	}
	if len(list) != 2+len(names) {
		return nil, 0, false
	}
	ms, ok := list[0].(int64)
	fences = map[string]int64{}
	for i, name := range names {
		grant, _ := list[2+i].([]any)
		if len(grant) != 3 {
			return nil, 0, false
		}
		fence, isFence := grant[1].(int64)
		fences[name], ok = fence, ok && isFence
	}
	return fences, time.Duration(ms) * time.Millisecond, ok
}

func (r *request) closeConn() {
	if r.conn != nil {
		r.conn.Close()
		r.conn = nil
	}
}

func (r *request) failure(err error) error {
	if err == ErrNotAcquired {
		return err
	}
	return failure("LOCK", r.names, err)
}

// failure is an error of what words begins.
func failure(verb string, names []string, err error) error {
	if len(names) == 1 {
		return fmt.Errorf("lockproxy: %s %q: %w", verb, names[0], err)
	}
	return fmt.Errorf("lockproxy: %sALL %q: %w", verb, names, err)
}

// words begins a command for the names: LOCK with one, LOCKALL with several.
func words(verb string, names []string) []string {
	if len(names) == 1 {
		return []string{verb, names[0]}
	}
	return append([]string{verb + "ALL", strconv.Itoa(len(names))}, names...)
}

// unlock gives back what the owner has, or may have, and tries until the given time, at least once.
func unlock(c Client, names []string, owner string, shared bool, until time.Time) error {
	args := append(words("UNLOCK", names), owner, "REQ", owner)
	if shared {
		args = append(args, "SHARED")
	}
	for pauses := (backoff{}); ; {
		ctx, cancel := context.WithDeadline(context.Background(), latest(until, time.Now().Add(minAnswer)))
		_, err := c.Do(ctx, args...)
		cancel()
		if err == nil || !again(err) || !time.Now().Before(until) {
			return err
		}
		time.Sleep(min(pauses.next(), time.Until(until)))
	}
}

// A backoff is how long to wait before a command that failed is sent again: longer each time, up to a second. In an outage there may be many
// of these, and each keeps the lock nodes busy. Its zero value begins anew.
type backoff struct{ last time.Duration }

// next is the next pause: up to a quarter longer at random, so that clients which failed together do not come back together.
func (b *backoff) next() time.Duration {
	b.last = min(max(2*b.last, pause), maxPause)
	return b.last + random(b.last/4)
}

var random = mathrand.N[time.Duration] // tests have their own

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// millis is a time for the wire, rounded up: a lease or a wait of 0 would mean something else.
func millis(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Millisecond-1)/time.Millisecond), 10)
}

// sleep returns after d, or when ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
