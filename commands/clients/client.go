package clients

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
)

// A Peer is a client's end of its connection, as CLIENT LIST shows it. Addr is where it
// is and LocalAddr where it connected to: host:port, or the path of a Unix socket with
// ":0" behind it.
type Peer struct {
	ID              int64 // of Dispatcher.NextID
	Addr, LocalAddr string
	// Watch begins or ends keepalive probes that notice in good time that the client's host
	// has vanished, also while something is on its way there. nil: not available.
	Watch func(on bool)
	// HungUp reports whether the client has closed its sending half, though that may not
	// have been read yet. nil: not available.
	HungUp func() bool
}

// A Session is the client's own session, as others use it. Its methods are safe for
// concurrent use.
type Session interface {
	// Owner is that of a connection which is opened for the client.
	Owner() upstream.Owner
	// Stateful is the pinned connection while the client would lose state with it; else nil.
	Stateful() *upstream.Conn
	// Kill disconnects the client at once.
	Kill()
}

// A State is what a client's session publishes of itself.
type State struct {
	Identity upstream.Identity
	Library  Library
	Pinned   *upstream.Conn // may be nil or broken
	Flags    string         // of CLIENT LIST, as far as the session knows them
	Subs     [3]int         // subscriptions: to channels, patterns, shard channels
}

// A Client is what others may know of a client, and do to it. Its session publishes what
// changes before the client can have noticed.
type Client struct {
	Peer
	connected time.Time
	session   Session
	registry  *Registry

	mu         sync.Mutex
	lastActive time.Time // when it last sent a command
	command    lastCommand
	state      State
	name       string
	redirect   redirectTarget
	queued     int // commands in a transaction; -1: there is none

	blocked    atomic.Bool                 // by a command on a Cluster's node
	adopted    atomic.Pointer[AdoptedConn] // opened by another session; may be nil or broken
	referenced atomic.Bool                 // another session has told the upstream of its connection
}

// A redirectTarget is where CLIENT TRACKING sends what concerns a client: its id here and
// at the upstream. The zero value is nowhere.
type redirectTarget struct{ id, upstream int64 }

// An AdoptedConn is a connection that another session opened for a client.
type AdoptedConn struct {
	Conn     *upstream.Conn
	Identity upstream.Identity // for which it was opened
}

// New returns a client that has sent nothing yet. It is the caller's to add to r.
func New(r *Registry, who Peer, s Session) *Client {
	now := time.Now()
	return &Client{Peer: who, connected: now, session: s, registry: r, lastActive: now, queued: -1}
}

// Ran publishes the newest command, nil if there is none, and how many are queued in a
// transaction, -1 without one. It does not allocate.
func (c *Client) Ran(args [][]byte, queued int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if args != nil {
		c.lastActive = time.Now()
		c.command.note(args)
	}
	c.queued = queued
}

// SetState publishes a state, and the name that CLIENT SETNAME gave.
func (c *Client) SetState(st State, name []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state = st
	if a := c.adopted.Load(); a != nil && (st.Pinned == nil || !st.Pinned.Alive()) {
		c.state.Pinned = a.Conn
	}
	if c.name != string(name) {
		c.name = string(name)
	}
}

// SetBlocked publishes whether a command of the client's blocks on a Cluster's node.
func (c *Client) SetBlocked(on bool) { c.blocked.Store(on) }

// LastActive is when the client last sent a command.
func (c *Client) LastActive() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lastActive
}

// Identity is who the client is.
func (c *Client) Identity() upstream.Identity {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.Identity
}

// User is the client's user, as far as others may know it, and its name.
func (c *Client) User() (user, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.userLocked(), c.name
}

func (c *Client) userLocked() string {
	if c.state.Identity.User == "" {
		return "default"
	}
	return c.state.Identity.User
}

// pinned is the client's own connection; nil if it has none that is alive.
func (c *Client) pinned() *upstream.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.Pinned == nil || !c.state.Pinned.Alive() {
		return nil
	}
	return c.state.Pinned
}

// Node is the node of the client's own connection; nil if it has none.
func (c *Client) Node() *upstream.Pool {
	if conn := c.pinned(); conn != nil {
		return conn.Pool()
	}
	return nil
}

// Kill disconnects the client at once, with what it has of its own at the upstream.
func (c *Client) Kill() { c.session.Kill() }

// ClosePinned ends the client's own connection, if it has one.
func (c *Client) ClosePinned() {
	c.mu.Lock()
	own := c.state.Pinned
	c.mu.Unlock()
	if own != nil {
		own.Close()
	}
}

// upstreamID is the number of the client's own connection at the node that at leads to; 0
// if it has none there, or the node did not say.
func (c *Client) upstreamID(at *upstream.Conn) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.upstreamIDLocked(at)
}

func (c *Client) upstreamIDLocked(at *upstream.Conn) int64 {
	own := c.state.Pinned
	if at == nil || own == nil || !own.Alive() || own.Pool() != at.Pool() {
		return 0
	}
	return own.ID()
}

// UpstreamID is the number of the client's own connection at the node that at leads to,
// for a command that names it there; 0 if it has none. at must have been opened before: a
// node that was started again since has given the number to another connection, but has
// hung up first, which need not have been noticed yet.
func (c *Client) UpstreamID(at *upstream.Conn) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := c.upstreamIDLocked(at)
	if id == 0 || c.state.Pinned.HungUp() {
		return 0
	}
	return id
}

// EnsureUpstreamID is UpstreamID for a client that messages must reach from now on: if it
// has no connection of its own, one is opened in pool for its session to adopt.
func (c *Client) EnsureUpstreamID(ctx context.Context, pool *upstream.Pool, at *upstream.Conn) int64 {
	c.referenced.Store(true)
	if id := c.UpstreamID(at); id != 0 {
		return id
	}
	identity := c.Identity()
	conn, err := pool.Private(ctx, identity, c.session.Owner())
	if err != nil {
		return 0
	}
	c.Offer(&AdoptedConn{conn, identity})
	return c.UpstreamID(at)
}

// Referenced reports whether another session has told the upstream of the client's
// connection, which it keeps from then on.
func (c *Client) Referenced() bool { return c.referenced.Load() }

// Unreference makes Referenced false, after RESET.
func (c *Client) Unreference() { c.referenced.Store(false) }

// Offer hands the client's session a connection that it adopts with its next command,
// unless it has one by now.
func (c *Client) Offer(a *AdoptedConn) {
	c.mu.Lock()
	if own := c.state.Pinned; own != nil && own.Alive() {
		c.mu.Unlock()
		a.Conn.Close()
		return
	}
	c.state.Pinned = a.Conn
	old := c.adopted.Swap(a)
	c.mu.Unlock()
	if old != nil {
		old.Conn.Close()
	}
	if c.registry.Find(c.ID) == nil { // it has ended, and may not look again
		c.DropAdopted()
	}
}

// Adopt takes the connection that was offered; nil if there is none.
func (c *Client) Adopt() *AdoptedConn { return c.adopted.Swap(nil) }

// DropAdopted closes the connection that was offered and not taken.
func (c *Client) DropAdopted() {
	if a := c.adopted.Swap(nil); a != nil {
		a.Conn.Close()
	}
}

// fieldsLocked are the fields of an entry that the proxy knows by itself.
func (c *Client) fieldsLocked() map[string]string {
	flags := c.state.Flags
	if c.queued >= 0 {
		flags += "x"
	}
	if c.blocked.Load() {
		flags += "b"
	}
	id, subs := &c.state.Identity, &c.state.Subs
	return map[string]string{
		"db": strconv.Itoa(id.DB), "resp": strconv.Itoa(id.Proto), "user": c.userLocked(), "name": c.name,
		"sub": strconv.Itoa(subs[0]), "psub": strconv.Itoa(subs[1]), "ssub": strconv.Itoa(subs[2]),
		"multi": strconv.Itoa(c.queued), "flags": flags,
	}
}

// libraryLocked are the fields of an entry about the client's library, as far as known.
func (c *Client) libraryLocked() map[string]string {
	known := map[string]string{}
	if l := &c.state.Library; l.name != "" {
		known["lib-name"] = l.name
	}
	if l := &c.state.Library; l.version != "" {
		known["lib-ver"] = l.version
	}
	return known
}

// A Library is what a client says with CLIENT SETINFO that it uses.
type Library struct{ name, version string }

// Note takes over a CLIENT SETINFO. One that the upstream refuses, because it does not
// know that command, does no harm: then it has no fields for it either.
func (l *Library) Note(args [][]byte) {
	switch {
	case len(args) != 4 || !ValidName(args[3]):
	case resp.Is(args[2], "LIB-NAME"):
		l.name = string(args[3])
	case resp.Is(args[2], "LIB-VER"):
		l.version = string(args[3])
	}
}

// ValidName reports whether Redis takes a name of a client: printable, without spaces.
func ValidName(name []byte) bool {
	for _, b := range name {
		if b < '!' || b > '~' {
			return false
		}
	}
	return true
}

// lastCommand is the name of a command and of what may be its subcommand, as sent.
type lastCommand struct {
	name, sub       [24]byte
	nameLen, subLen int
}

// note takes over a command, without allocating. AUTH's first argument may be a password,
// and no command of four letters has subcommands.
func (l *lastCommand) note(args [][]byte) {
	l.nameLen, l.subLen = copy(l.name[:], args[0]), 0
	if len(args) > 1 && len(args[0]) != len("AUTH") {
		l.subLen = copy(l.sub[:], args[1])
	}
}

// shown is the name for CLIENT LIST: "get", "client|list". What is no command is not
// shown: others can see it.
func (l *lastCommand) shown(name func(args [][]byte) string) string {
	if l.nameLen == 0 || name == nil {
		return "NULL"
	}
	args := [][]byte{l.name[:l.nameLen], l.sub[:l.subLen]}
	if l.subLen == 0 {
		args = args[:1]
	}
	if shown := name(args); shown != "" {
		return shown
	}
	return "NULL"
}
