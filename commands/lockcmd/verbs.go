package lockcmd

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/commands/adopt/migrate"
	"github.com/lockproxy/lockproxy/commands/adopt/observe"
)

// A Locker decides about locks; *locks.Service is one.
type Locker interface {
	// LockAsync passes the answer to done: before it returns, if the request waits for nothing.
	LockAsync(ctx context.Context, r locks.LockRequest, done func(locks.Decision, error))
	Renew(context.Context, locks.RenewRequest) (time.Duration, error)
	Unlock(context.Context, locks.UnlockRequest) (holdsLeft int, err error)
	// RenewAll and UnlockAll do it for all names; a *locks.NamesError has those that failed.
	RenewAll(ctx context.Context, names []locks.Key, r locks.RenewRequest) (time.Duration, error)
	UnlockAll(ctx context.Context, names []locks.Key, r locks.UnlockRequest) (holdsLeft int, err error)
	Undo(locks.Grant)
}

// LockSessions renews the locks with SESSION of connections; *locks.Service is one.
type LockSessions interface {
	NewSession(lost func(locks.Loss)) *locks.Session
}

// Options are read once by New.
type Options struct {
	Locker   Locker       // required
	Sessions LockSessions // nil: SESSION is refused

	Inspector Inspector                 // nil: LOCKCTL is refused
	Nodes     func() []locks.NodeStatus // with Inspector
	Reader    Reader                    // with Inspector
	Proxies   func() []Proxy            // the others that use the lock nodes; nil: none is known
	Observer  *observe.Observer         // of keys that are used as locks; may be nil
	Migration *migrate.Checker          // finds what is in the way of another mode of adopted keys; nil: none is adopted

	Limits Limits // of what clients may ask for
	// Publish has a message published on a channel of the upstream, without waiting for that. It may be nil.
	Publish func(channel, message string)
	// KeepOnLoss leaves a client connected that loses a lock with SESSION, unless its
	// LOCK asked otherwise. In RESP3 it gets a push.
	KeepOnLoss bool
	// RequireOwner refuses RENEW and UNLOCK that name no owner.
	RequireOwner bool
}

// Verbs runs the lock verbs of all clients. It is safe for concurrent use.
type Verbs struct {
	opt Options
	log *slog.Logger

	draining context.Context // done: the proxy is to end
	drain    context.CancelFunc
	asking   sync.WaitGroup // the goroutines that ask for LOCKs that wait
	waits    waits          // with ASYNC
}

// New makes Verbs.
func New(opt Options, log *slog.Logger) *Verbs {
	opt.Limits = opt.Limits.WithDefaults()
	v := &Verbs{opt: opt, log: log}
	v.draining, v.drain = context.WithCancel(context.Background())
	return v
}

// Drain ends every LOCK that waits, and lets none wait again: the proxy is about to stop, and its clients can
// wait at another one.
func (v *Verbs) Drain() { v.drain() }

// Wait returns when all goroutines have ended that asked for LOCKs. No client may send
// another one.
func (v *Verbs) Wait() { v.asking.Wait() }
