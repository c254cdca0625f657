// Package upstream decides which connection a client's commands travel on.
//
// A [Pool] keeps shared connections, on which the commands of many clients with
// the same identity travel in order, and opens private ones for clients that have
// state of their own at the upstream. Bytes are relayed as they are: replies are
// framed, never decoded.
//
// Every [Conn] has one goroutine, which reads; it ends when the connection does.
// Pool.Close ends them all and waits.
package upstream

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/lockproxy/lockproxy/backends"
	"github.com/lockproxy/lockproxy/backends/resp"
)

// An Identity is what one connection to the upstream stands for. Connections are
// shared by clients with equal identities only.
type Identity struct {
	User, Secret string // as in AUTH; both empty: not authenticated; User empty: AUTH with the password alone
	DB           int
	Proto        int // 2 or 3
}

func (id Identity) anonymous() bool { return id.User == "" && id.Secret == "" }

// String is the identity without its secret.
func (id Identity) String() string {
	return fmt.Sprintf("user %q, database %d, RESP%d", id.User, id.DB, id.Proto)
}

// Format writes String, whatever the verb. (fmt cannot call it for an unexported
// field: a struct that has one must not be printed.)
func (id Identity) Format(f fmt.State, _ rune) { io.WriteString(f, id.String()) }

// MarshalText is String, for slog.
func (id Identity) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// PoolOptions are read once by NewPool.
type PoolOptions struct {
	Server *backends.Server // where the upstream is; required
	// Conns is how many connections clients of the same identity share; 0 means 1.
	Conns int
	// MaxIdentities is for how many identities connections are kept; 0 means 1024.
	// The one used least recently is closed once nobody borrows it.
	MaxIdentities int
	// Log gets the coming and going of the upstream; nil means slog.Default().
	Log *slog.Logger

	hurry    func() // may be nil
	meter    *meters
	readOnly bool // a replica of a Cluster must be told that reading is all that is wanted
}

// A DownError says that the upstream cannot be reached.
type DownError struct{ Err error }

func (e *DownError) Error() string { return "cannot reach the upstream: " + e.Err.Error() }
func (e *DownError) Unwrap() error { return e.Err }

// A RefusedError is the upstream's own word that a connection of this identity
// cannot be had: a wrong password, a database out of range.
type RefusedError struct {
	Reply []byte // the error reply, byte for byte, with its \r\n
}

func (e *RefusedError) Error() string { return strings.TrimSpace(string(e.Reply)) }

// Credentials says that it is the user or the password that was refused.
func (e *RefusedError) Credentials() bool {
	text := e.Error()
	return strings.HasPrefix(text, "-WRONGPASS") || strings.HasPrefix(text, "-ERR invalid password")
}

// A ConnClass keeps commands that may take long from holding up the others: each
// identity has shared connections of its own for each.
type ConnClass uint8

const (
	MainClass   ConnClass = iota
	ScriptClass           // EVAL and the like
	ConnClasses           // how many there are
)

// redialPause is how long a failed dial answers for the calls after it, so that a
// dead upstream is not asked anew for every command.
const redialPause = 50 * time.Millisecond

// A Pool keeps the connections to one upstream. It is safe for concurrent use.
type Pool struct {
	opt      PoolOptions
	salt     [16]byte     // secrets are kept as salted hashes in the index
	downAt   atomic.Int64 // when a dial failed, in ms since 1970; 0: the last one did not
	draining atomic.Bool  // nothing new is to begin
	auth     atomic.Int32 // whether the upstream wants authentication: 0 not known, 1 no, 2 yes

	certainFor time.Duration // how old the upstream's word on a login may be
	checkEvery time.Duration // how often it is asked again about logins in use

	mu       sync.Mutex
	groups   *lru.Cache[groupKey, *group]
	conns    map[*Conn]struct{} // all that were opened and not yet ended
	logins   map[loginKey]*login
	watching bool // a goroutine watches the logins
	closed   bool
	ending   chan struct{}  // closed by Close
	wg       sync.WaitGroup // reading goroutines, those that open spares, and what concerns logins
}

type groupKey struct {
	loginKey
	db    int
	proto int
	lane  ConnClass
}

// group is the shared connections of one identity.
type group struct {
	mu     sync.Mutex // held while dialing: others wait for the same result
	conns  []*Conn
	failed time.Time // when the last dial failed
	err    error
	closed bool // evicted

	wanted  atomic.Bool // somebody wanted a private connection
	ahead   sync.Mutex  // held while the spare is opened
	spare   *Conn       // private, of nobody yet; may be nil or broken
	retired bool        // no more spares
}

// NewPool makes an empty pool; nothing is dialed yet.
func NewPool(opt PoolOptions) *Pool {
	if opt.Conns <= 0 {
		opt.Conns = 1
	}
	if opt.MaxIdentities <= 0 {
		opt.MaxIdentities = 1024
	}
	if opt.Log == nil {
		opt.Log = slog.Default()
	}
	if opt.meter == nil {
		opt.meter = newMeters()
	}
	p := &Pool{
		opt: opt, certainFor: certainFor, checkEvery: checkEvery,
		conns: map[*Conn]struct{}{}, logins: map[loginKey]*login{}, ending: make(chan struct{}),
	}
	rand.Read(p.salt[:]) // never fails
	p.groups, _ = lru.NewWithEvict(opt.MaxIdentities*int(ConnClasses), func(_ groupKey, g *group) { go g.retire() })
	return p
}

// Shared borrows a shared connection for an identity and lane, opening one if need be.
// The caller must give it back with [Return]. hint chooses among the connections of
// the identity; a client that always gives the same keeps its commands in order.
// The upstream has taken the identity's credentials a second ago at most.
// Errors are *DownError, *RefusedError or ctx's.
func (p *Pool) Shared(ctx context.Context, id Identity, lane ConnClass, hint uint32) (*Conn, error) {
	came := time.Now()
	for try := 1; ; try++ {
		c, err := p.lend(ctx, id, lane, hint)
		if err != nil {
			return nil, err
		}
		if lane != MainClass && !p.isCertain(came, c) { // c may be busy with a script for long
			err = p.Connect(ctx, id)
		}
		if err == nil {
			err = p.certain(ctx, came, c)
		}
		if err == nil {
			return c, nil
		}
		Return(c)
		if !errors.Is(err, errStale) {
			return nil, err
		}
		if try == mostTries {
			return nil, &DownError{err}
		}
	}
}

// mostTries is how many connections are tried that were lost as soon as they were
// lent.
const mostTries = 3

// lend is Shared without asking the upstream about connections there are.
func (p *Pool) lend(ctx context.Context, id Identity, lane ConnClass, hint uint32) (*Conn, error) {
	g, err := p.group(id, lane)
	if err != nil {
		return nil, err
	}
	if g.wanted.Load() {
		p.background(func() { p.prepare(id, g) })
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
		p.note(g, id, lane, err)
		return nil, err
	}
	if old := g.conns[i]; old != nil && old.wasLost() {
		p.opt.meter.reconnects.Add(1)
		p.opt.Log.Info("connected to the upstream again", "upstream", p.opt.Server.String(), "reason", old.reason())
	}
	g.err = nil
	g.conns[i] = c
	c.borrow()
	c.mu.Lock()
	c.prompt = lane == MainClass
	c.retired = g.closed // evicted meanwhile: this borrower is the only one
	c.mu.Unlock()
	return c, nil
}

// note remembers why a group, whose mu is held, has no connection, for as long as
// others may share the answer. An identity that was refused is not kept: wrong
// passwords must not push out the right ones.
func (p *Pool) note(g *group, id Identity, lane ConnClass, err error) {
	var down *DownError
	if errors.As(err, &down) {
		g.err, g.failed = err, time.Now()
		return
	}
	var refused *RefusedError
	if errors.As(err, &refused) && !slices.ContainsFunc(g.conns, func(c *Conn) bool { return c != nil }) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.groups.Remove(p.key(id, lane))
	}
}

// Connect opens the connection that clients of an identity share, and so learns
// whether the upstream is there and wants them to authenticate.
func (p *Pool) Connect(ctx context.Context, id Identity) error {
	c, err := p.Shared(ctx, id, MainClass, 0)
	if err == nil {
		Return(c)
	}
	return err
}

// Private gives a connection of the identity to one client alone, whose replies,
// pushes and end go to owner. The caller closes it.
//
// Of an identity that ever wanted one, a fresh connection is opened ahead whenever
// another client of it comes, so that the client's first BLPOP does not arrive
// later than the next client's SET.
func (p *Pool) Private(ctx context.Context, id Identity, owner Owner) (*Conn, error) {
	g, err := p.group(id, MainClass)
	if err != nil {
		return nil, err
	}
	g.wanted.Store(true)
	g.ahead.Lock() // if one is being opened, it is sooner there than another
	c := g.spare
	g.spare = nil
	g.ahead.Unlock()
	if c != nil && p.certain(ctx, time.Now(), c) == nil && c.belong(owner) {
		return c, nil
	}
	if c != nil {
		c.Close()
	}
	if c, err = p.open(ctx, id, false); err != nil {
		return nil, err
	}
	if !c.belong(owner) {
		return nil, &DownError{c.reason()}
	}
	return c, nil
}

// prepare opens the spare connection of an identity, if there is none.
func (p *Pool) prepare(id Identity, g *group) {
	g.ahead.Lock()
	defer g.ahead.Unlock()
	if g.retired || g.spare != nil && g.spare.Alive() {
		return
	}
	if c, err := p.open(context.Background(), id, false); err == nil {
		g.spare = c
	} // else whoever needs one will hear of it
}

// background runs f on a goroutine that Close waits for; not at all once closed.
func (p *Pool) background(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.wg.Go(f)
	}
}

// RequiresAuth says that the upstream, when last asked, wanted clients to
// authenticate; Open that it did not. Neither is true before it was ever asked.
func (p *Pool) RequiresAuth() bool { return p.auth.Load() == 2 }

// AllowsAnonymous is documented at RequiresAuth.
func (p *Pool) AllowsAnonymous() bool { return p.auth.Load() == 1 }

// Forget makes the pool open new connections for an identity from now on, whose
// credentials the upstream no longer takes. Who borrowed the old ones keeps them.
func (p *Pool) Forget(id Identity) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for lane := range ConnClasses {
		p.groups.Remove(p.key(id, lane))
	}
}

// Return gives back what the Shared of any pool lent.
func Return(c *Conn) {
	if c.refs.Add(-1) > 0 {
		return
	}
	c.mu.Lock()
	retired := c.retired && c.refs.Load() == 0
	c.mu.Unlock()
	if retired {
		c.Close()
	}
}

// drain makes the pool lend and open no connection any more.
func (p *Pool) drain() { p.draining.Store(true) }

// Draining says that the connection will be closed soon, whatever is sent on it: its
// node is not what it was.
func (c *Conn) Draining() bool { return c.home.draining.Load() }

// Close ends all connections and returns when their goroutines have ended.
func (p *Pool) Close() {
	p.mu.Lock()
	if !p.closed {
		close(p.ending)
	}
	p.closed = true
	var all []*Conn
	for c := range p.conns {
		all = append(all, c)
	}
	p.mu.Unlock()
	for _, c := range all {
		c.Close()
	}
	p.wg.Wait()
}

func (p *Pool) key(id Identity, lane ConnClass) groupKey {
	return groupKey{p.loginKey(id), id.DB, id.Proto, lane}
}

func (p *Pool) group(id Identity, lane ConnClass) (*group, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.draining.Load() {
		return nil, &DownError{errClosed}
	}
	k := p.key(id, lane)
	g, ok := p.groups.Get(k)
	if !ok {
		g = &group{conns: make([]*Conn, p.opt.Conns)}
		p.groups.Add(k, g)
	}
	return g, nil
}

// retire closes the connections of an evicted identity, now or when the last
// borrower returns them.
func (g *group) retire() {
	g.ahead.Lock()
	g.retired = true
	if g.spare != nil {
		g.spare.Close()
	}
	g.ahead.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for _, c := range g.conns {
		if c == nil {
			continue
		}
		c.mu.Lock()
		c.retired = true
		idle := c.refs.Load() == 0
		c.mu.Unlock()
		if idle {
			c.Close()
		}
	}
}

// borrow counts a borrower, unless the connection is of no more use.
func (c *Conn) borrow() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil || c.retired {
		return false
	}
	c.refs.Add(1)
	return true
}

// open dials, introduces itself as id, and starts to read.
func (p *Pool) open(ctx context.Context, id Identity, shared bool) (*Conn, error) {
	if p.opt.Server == nil {
		return nil, &DownError{errNoMaster}
	}
	began := time.Now()
	nc, err := p.opt.Server.Dial(ctx)
	if err == nil {
		var w welcome
		if w, err = introduce(nc, greeting(id, shared, p.opt.readOnly), id.DB); err == nil {
			p.cameUp()
			if id.anonymous() {
				p.auth.Store(1)
				if w.noAuth {
					p.auth.Store(2)
				}
			}
			return p.adopt(nc, id, shared, w, began)
		}
		nc.Close()
	}
	var refused *RefusedError
	if errors.As(err, &refused) {
		p.cameUp()
		p.refused(id, refused, began)
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	p.hurry()
	p.opt.meter.failures.Add(1)
	if p.downAt.Swap(time.Now().UnixMilli()) == 0 {
		p.opt.Log.Warn("upstream is down", "upstream", p.opt.Server.String(), "error", err)
	}
	return nil, &DownError{err}
}

// hurry says that a connection was lost, or could not be made.
func (p *Pool) hurry() {
	if p.opt.hurry != nil {
		p.opt.hurry()
	}
}

func (p *Pool) cameUp() {
	if p.downAt.Swap(0) != 0 {
		p.opt.Log.Info("upstream is up", "upstream", p.opt.Server.String())
	}
}

// adopt makes a connection one of the pool's, which introduced itself not before
// began.
func (p *Pool) adopt(nc net.Conn, id Identity, shared bool, w welcome, began time.Time) (*Conn, error) {
	c := newConn(p, nc, shared)
	c.nc.SetUserTimeout(p.opt.Server.WriteTimeout())
	c.noAuth, c.id = w.noAuth, w.id
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		nc.Close()
		return nil, &DownError{errClosed}
	}
	p.conns[c] = struct{}{}
	p.opt.meter.opened(c)
	p.joinLocked(c, p.loginLocked(id, w.noAuth, began))
	p.wg.Go(func() {
		c.read()
		p.mu.Lock()
		delete(p.conns, c)
		p.joinLocked(c, nil)
		p.mu.Unlock()
		p.opt.meter.ended(c)
		if c.wasLost() {
			p.hurry()
		}
	})
	return c, nil
}

// welcome is what a server said to a greeting that it did not refuse.
type welcome struct {
	noAuth bool  // it wants authentication that the identity does not have
	id     int64 // its number of the connection; 0: it did not say
}

// introduce says the steps of a greeting on a bare connection, which is to use the
// database db then.
func introduce(nc net.Conn, steps [][]string, db int) (w welcome, err error) {
	if err := nc.SetDeadline(time.Now().Add(backends.DefaultDialTimeout)); err != nil {
		return w, err
	}
	r := replyReader{nc: nc}
	selected := db == 0
	var refused *RefusedError
	for i, s := range steps {
		if i == 0 || s[0] == "AUTH" {
			if _, err := nc.Write(together(steps[i:])); err != nil {
				return w, err
			}
		}
		reply, err := r.next()
		if err != nil {
			return w, fmt.Errorf("no answer to the greeting: %w", err)
		}
		text, isErr := resp.Error(reply)
		switch {
		case turnedAway(text):
			return w, &RefusedError{Reply: reply}
		case s[0] == "READONLY":
		case s[0] == "PING", s[0] == "HELLO" && s[1] == "2": // LOADING, MASTERDOWN, BUSY …: each command will say so itself
			w.noAuth = strings.HasPrefix(text, "NOAUTH")
			w.id, _, _, _ = resp.IntAfter(reply, "id")
		case s[0] == "SELECT" && !isErr:
			selected = true
		case isErr && s[0] != "SELECT":
			return w, &RefusedError{Reply: reply}
		case isErr:
			refused = &RefusedError{Reply: reply}
		case s[0] == "HELLO":
			w.id, _, _, _ = resp.IntAfter(reply, "id")
		}
	}
	if !selected {
		return w, refused
	}
	return w, nc.SetDeadline(time.Time{})
}

// together are the steps that are said at once: those up to the next AUTH. Redis from 7.2
// on and Valkey do not answer an AUTH that they refuse while another answer is on its way.
func together(steps [][]string) (out []byte) {
	for i, s := range steps {
		if i > 0 && s[0] == "AUTH" {
			break
		}
		out = resp.AppendCommand(out, s...)
	}
	return out
}

// turnedAway says that an error is the server's word before it closes a connection,
// unasked: it has too many, or takes none from elsewhere.
func turnedAway(text string) bool {
	return strings.HasPrefix(text, "ERR max number of clients") || strings.HasPrefix(text, "DENIED ")
}

// greeting is what a connection of id says first. The database is selected both
// before and after authenticating: the user may not be allowed to, and the
// default user may be nobody; one success is enough. A private connection must know
// its number, which HELLO tells every user.
func greeting(id Identity, shared, readOnly bool) (steps [][]string) {
	ask := func(args ...string) { steps = append(steps, args) }
	if id.DB != 0 && !id.anonymous() {
		ask("SELECT", strconv.Itoa(id.DB))
	}
	switch {
	case id.User != "":
		ask("AUTH", id.User, id.Secret)
	case id.Secret != "":
		ask("AUTH", id.Secret)
	}
	switch {
	case id.Proto == 3:
		ask("HELLO", "3")
	case !shared:
		ask("HELLO", "2")
	}
	if id.DB != 0 {
		ask("SELECT", strconv.Itoa(id.DB))
	}
	if len(steps) == 0 {
		ask("PING") // says whether there is a Redis, and whether it wants a password
	}
	if readOnly {
		ask("READONLY") // refused where there is no Cluster
	}
	return steps
}

// replyReader reads single replies, before the relaying starts.
type replyReader struct {
	nc   net.Conn
	buf  []byte
	have int
}

var errLongAnswer = fmt.Errorf("an answer of more than %d bytes", maxAnswer)

func (r *replyReader) next() ([]byte, error) {
	var f resp.Scanner
	for at := 0; ; {
		n, done, err := f.Scan(r.buf[at:r.have])
		if err != nil {
			return nil, err
		}
		if at += n; done {
			reply := append([]byte(nil), r.buf[:at]...)
			r.have = copy(r.buf, r.buf[at:r.have])
			return reply, nil
		}
		if r.have > maxAnswer {
			return nil, errLongAnswer
		}
		if r.have == len(r.buf) {
			r.buf = append(r.buf, make([]byte, 4096)...)
		}
		n, err = r.nc.Read(r.buf[r.have:])
		if err != nil {
			return nil, err
		}
		r.have += n
	}
}
