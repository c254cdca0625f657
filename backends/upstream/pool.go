// Package upstream answers which connection a client's commands travel on.
//
// An [Upstream] is one Redis, or the nodes of several that together are one; its
// [View] tells which node serves a slot. Each node has a [Pool]. A Pool keeps shared
// connections, on which the commands of all clients with the same [Identity] travel in
// order, and opens private ones for clients with state of their own at the upstream.
// Shared connections come in classes ([ConnClass]), so that long scripts hold up only
// each other. Bytes are relayed as they are: a [Conn] finds where replies end and
// decodes nothing.
//
// Redis checks a password when a connection begins, while a client may be lent a
// connection that began long before. A Pool therefore repeats the login of connections
// that it lends, on one of its own, and closes those whose login is no longer accepted.
//
// Goroutines: a Pool owns the reader of each Conn, one that rechecks logins while any
// are in use, and short ones that open a spare connection, try a login, or retire an
// evicted identity. Close ends the connections and returns when all of these have
// ended. An Upstream owns those that close the pools of nodes that are gone; its Close
// waits for them and closes all pools. Sinks are called on readers.
package upstream

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/lockproxy/lockproxy/backends"
)

// PoolOptions are read once by NewPool.
type PoolOptions struct {
	Server *backends.Server // where the upstream is; nil: not known, every call fails
	// Conns is the number of connections that clients of one identity share; 0 means 1.
	Conns int
	// MaxIdentities is the number of identities that connections are kept for; 0 means
	// 1024. The connections of the one used least recently are closed when no client
	// borrows them.
	MaxIdentities int
	Log           *slog.Logger // nil means slog.Default()

	refresh  func() // asks for a new topology; nil: nothing does
	counters *counters
	readOnly bool // a replica: of a Cluster's, connections must say READONLY
}

// A ConnClass keeps slow commands from holding up others: each identity has shared
// connections of its own for each class.
type ConnClass uint8

const (
	MainClass   ConnClass = iota
	ScriptClass           // EVAL and other commands that may take long
	ConnClasses           // the number of classes
)

const (
	// redialPause is how long a failed dial answers later calls, so that a dead
	// upstream is not dialed for every command.
	redialPause = 50 * time.Millisecond
	// retryDown is how long a node that could not be reached is not Up.
	retryDown = time.Second
	// maxLendTries bounds how many connections Shared tries that are lost at once.
	maxLendTries = 3
)

// What the upstream wants of clients, when it last answered one without credentials.
const (
	authUnknown int32 = iota
	authNotRequired
	authRequired
)

// A Pool keeps the connections to one node. It is safe for concurrent use.
type Pool struct {
	// Fixed by NewPool.
	opt             PoolOptions
	salt            [16]byte        // of the hashes of secrets in keys
	confirmedFor    time.Duration   // how long a login counts as accepted
	recheckInterval time.Duration   // of logins in use
	ctx             context.Context // ends with the pool
	cancel          context.CancelFunc

	// Atomic.
	downSince atomic.Int64 // when a dial failed, in ms since 1970; 0: the last one succeeded
	replaces  atomic.Bool  // it took the place of a master that was down, and was not reached since
	draining  atomic.Bool  // no connection is lent or opened any more
	authState atomic.Int32

	// Guarded by mu.
	mu         sync.Mutex
	groups     *lru.Cache[groupKey, *group]
	conns      map[*Conn]struct{} // opened and not yet ended
	logins     map[loginKey]*login
	rechecking bool // recheckLogins runs
	lines      lines
	closed     bool
	wg         sync.WaitGroup // of all goroutines; Go is called with mu held and closed false
}

// NewPool makes an empty pool; nothing is dialed yet. The caller closes it.
func NewPool(opt PoolOptions) *Pool {
	opt.Conns = cmp.Or(max(opt.Conns, 0), 1)
	opt.MaxIdentities = cmp.Or(max(opt.MaxIdentities, 0), 1024)
	opt.Log = cmp.Or(opt.Log, slog.Default())
	if opt.counters == nil {
		opt.counters = newCounters()
	}
	p := &Pool{
		opt: opt, confirmedFor: confirmedFor, recheckInterval: recheckInterval,
		conns: map[*Conn]struct{}{}, logins: map[loginKey]*login{},
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	rand.Read(p.salt[:]) // never fails
	p.groups, _ = lru.NewWithEvict(opt.MaxIdentities*int(ConnClasses), func(_ groupKey, g *group) { p.startLocked(g.retire) })
	return p
}

// Server is the pool's node.
func (p *Pool) Server() *backends.Server { return p.opt.Server }

// Addr is the address of the pool's node; empty if it is not known.
func (p *Pool) Addr() string { return addrOf(p.opt.Server) }

// Up is false for a second after the node could not be reached.
func (p *Pool) Up() bool {
	at := p.downSince.Load()
	return at == 0 || time.Since(time.UnixMilli(at)) > retryDown
}

// RequiresAuth reports whether the upstream demanded authentication when it last
// answered a client without credentials. It is false before the first answer.
func (p *Pool) RequiresAuth() bool { return p.authState.Load() == authRequired }

// AllowsAnonymous reports whether the upstream did not demand authentication when it
// last answered a client without credentials. It is false before the first answer.
func (p *Pool) AllowsAnonymous() bool { return p.authState.Load() == authNotRequired }

// Shared lends a shared connection of an identity and class, opening one if need be.
// The caller must give it back with [Return]. hint chooses among the connections of
// the identity; a client that always gives the same keeps its commands in order.
// The upstream has accepted the identity's credentials in the last second.
// Errors are *DownError, *RefusedError or ctx's.
func (p *Pool) Shared(ctx context.Context, id Identity, class ConnClass, hint uint32) (*Conn, error) {
	came := time.Now()
	for try := 1; ; try++ {
		c, err := p.lend(ctx, id, class, hint)
		if err != nil {
			return nil, err
		}
		if class != MainClass && !p.isConfirmed(came, c) { // c may be busy with a long script
			err = p.Connect(ctx, id)
		}
		if err == nil {
			err = p.awaitConfirmed(ctx, came, c)
		}
		if err == nil {
			return c, nil
		}
		Return(c)
		if !errors.Is(err, errStale) {
			return nil, err
		}
		if try == maxLendTries {
			return nil, &DownError{err}
		}
	}
}

// lend is Shared without the check of the login.
func (p *Pool) lend(ctx context.Context, id Identity, class ConnClass, hint uint32) (*Conn, error) {
	g, err := p.group(id, class)
	if err != nil {
		return nil, err
	}
	if g.wantsSpare.Load() {
		p.start(func() { p.openSpare(id, g) })
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	i := int(hint % uint32(len(g.conns)))
	if c := g.conns[i]; c != nil && c.borrow() {
		return c, nil
	}
	if g.err != nil && time.Since(g.failed) < redialPause {
		return nil, g.err
	}
	c, err := p.open(ctx, id, true)
	if err != nil {
		p.noteFailure(g, id, class, err)
		return nil, err
	}
	if old := g.conns[i]; old != nil && old.wasLost() {
		p.opt.counters.reconnects.Add(1)
		p.logReconnected(old.reason())
	}
	g.err = nil
	g.conns[i] = c
	c.borrow()
	if g.evicted { // meanwhile: this borrower is the only one
		c.retire()
	}
	return c, nil
}

// noteFailure keeps err as the answer to later calls for the group, whose mu the
// caller holds, if that is a DownError. A group that was refused is dropped: wrong
// passwords must not push out the connections of right ones.
func (p *Pool) noteFailure(g *group, id Identity, class ConnClass, err error) {
	var down *DownError
	if errors.As(err, &down) {
		g.err, g.failed = err, time.Now()
		return
	}
	var refused *RefusedError
	if errors.As(err, &refused) && !slices.ContainsFunc(g.conns, func(c *Conn) bool { return c != nil }) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.groups.Remove(p.key(id, class))
	}
}

// Connect opens the connection that clients of an identity share, if need be. Errors
// are those of Shared.
func (p *Pool) Connect(ctx context.Context, id Identity) error {
	c, err := p.Shared(ctx, id, MainClass, 0)
	if err == nil {
		Return(c)
	}
	return err
}

// Private gives a connection of the identity to one client, whose replies, pushes and
// end go to owner. The caller closes it. Errors are those of Shared.
//
// For an identity that ever wanted one, a spare connection is opened ahead whenever a
// client borrows a shared one, so that a client's first BLPOP is not later at the
// upstream than the next client's SET.
func (p *Pool) Private(ctx context.Context, id Identity, owner Owner) (*Conn, error) {
	g, err := p.group(id, MainClass)
	if err != nil {
		return nil, err
	}
	if c := g.takeSpare(); c != nil {
		if p.awaitConfirmed(ctx, time.Now(), c) == nil && c.assign(owner) {
			return c, nil
		}
		c.Close()
	}
	c, err := p.open(ctx, id, false)
	if err != nil {
		return nil, err
	}
	if !c.assign(owner) {
		return nil, &DownError{c.reason()}
	}
	return c, nil
}

// start runs f on a goroutine that Close waits for; not at all after Close.
func (p *Pool) start(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.startLocked(f)
}

func (p *Pool) startLocked(f func()) {
	if !p.closed {
		p.wg.Go(f)
	}
}

// Forget makes the pool open new connections for an identity from now on. Borrowers of
// the old ones keep them.
func (p *Pool) Forget(id Identity) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for class := range ConnClasses {
		p.groups.Remove(p.key(id, class))
	}
}

// drain makes the pool lend and open no more connections.
func (p *Pool) drain() { p.draining.Store(true) }

// Draining reports whether the connection will be closed soon, because its node has
// gone or has another role.
func (c *Conn) Draining() bool { return c.pool.draining.Load() }

// Close ends all connections and returns when all goroutines of the pool have ended.
func (p *Pool) Close() {
	p.cancel()
	p.mu.Lock()
	p.closed = true
	all := slices.Collect(maps.Keys(p.conns))
	p.mu.Unlock()
	for _, c := range all {
		c.Close()
	}
	p.wg.Wait()
}

// open dials a connection, completes its handshake as id, and starts its reader.
func (p *Pool) open(ctx context.Context, id Identity, shared bool) (*Conn, error) {
	if p.opt.Server == nil {
		return nil, &DownError{errNoMaster}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)() // Close must not wait for the dial
	began := time.Now()
	nc, err := p.opt.Server.Dial(ctx)
	if err == nil {
		var hello handshakeResult
		if hello, err = handshake(nc, handshakeSteps(id, shared, p.opt.readOnly), id.DB); err == nil {
			p.noteUp()
			if id.anonymous() {
				p.noteAuth(hello.needsAuth)
			}
			return p.register(nc, id, shared, hello, began)
		}
		nc.Close()
	}
	var refused *RefusedError
	if errors.As(err, &refused) {
		p.noteUp()
		p.loginRefused(id, refused, began)
		return nil, err
	}
	switch {
	case p.ctx.Err() != nil:
		return nil, &DownError{errClosed}
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	p.refresh()
	p.opt.counters.failures.Add(1)
	if p.downSince.Swap(time.Now().UnixMilli()) == 0 && !p.draining.Load() { // else another has its place
		p.changed(err)
	}
	return nil, &DownError{err}
}

// refresh asks for a new topology, after a connection was lost or could not be made.
func (p *Pool) refresh() {
	if p.opt.refresh != nil {
		p.opt.refresh()
	}
}

func (p *Pool) noteUp() {
	if wasDown, replaced := p.downSince.Swap(0) != 0, p.replaces.Swap(false); wasDown || replaced {
		p.changed(nil)
	}
}

func (p *Pool) noteAuth(required bool) {
	if required {
		p.authState.Store(authRequired)
	} else {
		p.authState.Store(authNotRequired)
	}
}

// register makes a Conn of nc, whose handshake began at the time began, and starts its
// reader.
func (p *Pool) register(nc net.Conn, id Identity, shared bool, hello handshakeResult, began time.Time) (*Conn, error) {
	c := newConn(p, nc, shared)
	c.nc.SetUserTimeout(p.opt.Server.WriteTimeout())
	c.needsAuth, c.id = hello.needsAuth, hello.id
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		nc.Close()
		return nil, &DownError{errClosed}
	}
	p.conns[c] = struct{}{}
	p.opt.counters.connOpened(c)
	p.setLoginLocked(c, p.loginLocked(id, hello.needsAuth, began))
	p.wg.Go(func() {
		c.read()
		p.mu.Lock()
		delete(p.conns, c)
		p.setLoginLocked(c, nil)
		p.mu.Unlock()
		p.opt.counters.connEnded(c)
		if c.wasLost() {
			p.refresh()
		}
	})
	return c, nil
}
