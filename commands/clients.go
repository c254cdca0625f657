package commands

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/lockcmd"
	"github.com/lockproxy/lockproxy/commands/spec"
)

// A Peer is a client as CLIENT LIST shows it. Addr is where it is and LocalAddr where
// it connected to: host:port, or the path of a Unix socket with ":0" behind it.
type Peer struct {
	ID              int64 // of NextID
	Addr, LocalAddr string
	// Watch has the proxy notice in good time that the client's host has vanished, also
	// while something is on its way there, or stops that. nil: that cannot be had.
	Watch func(on bool)
	// HungUp says that the client has closed its sending half, though that may not have
	// been noticed yet. nil: that cannot be had.
	HungUp func() bool
}

// NextID is the id of the client that has come last: they grow, and none is given
// twice.
func (d *Dispatcher) NextID() int64 { return d.lastID.Add(1) }

// clientRegistry are the clients of this proxy by their ids. The zero value is none. It is
// safe for concurrent use.
type clientRegistry struct {
	mu   sync.Mutex
	byID map[int64]*Session
}

func (c *clientRegistry) add(s *Session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byID == nil {
		c.byID = map[int64]*Session{}
	}
	c.byID[s.info.ID] = s
}

func (c *clientRegistry) remove(s *Session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byID, s.info.ID)
}

// count is how many clients there are.
func (c *clientRegistry) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.byID)
}

// find is the client with an id; nil if there is none.
func (c *clientRegistry) find(id int64) *Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byID[id]
}

// all are the clients in the order in which they came.
func (c *clientRegistry) all() []*Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]*Session, 0, len(c.byID))
	for _, s := range c.byID {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *Session) int { return cmp.Compare(a.info.ID, b.info.ID) })
	return all
}

// byUpstream are the clients that have a connection of their own to the node that at
// leads to, by its number there.
func (c *clientRegistry) byUpstream(at *upstream.Conn) map[int64]*Session {
	byUp := map[int64]*Session{}
	for _, s := range c.all() {
		if id := s.upstreamID(at); id != 0 {
			byUp[id] = s
		}
	}
	return byUp
}

// A profile is what others may know of a session. What is above mu never changes;
// the rest the session's goroutine writes, under mu.
type clientInfo struct {
	Peer
	connectedAt time.Time

	mu         sync.Mutex
	lastActive time.Time // when it last sent a command
	command    lastCommand
	identity   upstream.Identity
	name       string
	library    clientLibrary
	own        *upstream.Conn // may be nil or broken
	redirect   trackingRedirect
	queued     int    // commands in a transaction; -1: there is none
	flags      string // as in a row, with what the session itself knows
	subs       [3]int // to channels, patterns, shard channels

	blocked atomic.Bool // by a command on a Cluster's node
}

// A redirect is where CLIENT TRACKING sends what concerns a session. The zero value
// is nowhere.
type trackingRedirect struct{ id, upstream int64 }

// A clientLibrary is what a client says with CLIENT SETINFO that it uses.
type clientLibrary struct{ name, version string }

// note takes over a CLIENT SETINFO. One that the upstream refuses, because it does not
// know that command, does no harm: then it has no fields for it either.
func (l *clientLibrary) note(args [][]byte) {
	switch {
	case len(args) != 4 || !validName(args[3]):
	case resp.Is(args[2], "LIB-NAME"):
		l.name = string(args[3])
	case resp.Is(args[2], "LIB-VER"):
		l.version = string(args[3])
	}
}

// lastCommand is the name of a command and of what may be its subcommand, as they
// were sent. It does not allocate.
type lastCommand struct {
	name, sub       [24]byte
	nameLen, subLen int
}

// note takes over a command. AUTH's first argument may be a password, and no command
// of four letters has subcommands.
func (l *lastCommand) note(args [][]byte) {
	l.nameLen, l.subLen = copy(l.name[:], args[0]), 0
	if len(args) > 1 && len(args[0]) != len("AUTH") {
		l.subLen = copy(l.sub[:], args[1])
	}
}

// nameIn is the name as CLIENT LIST shows it, by a table of commands: "get", "client|list".
// What is no command is not shown: others can see it.
func (l *lastCommand) nameIn(t *spec.Table) string {
	if l.nameLen == 0 {
		return "NULL"
	}
	args := [][]byte{l.name[:l.nameLen], l.sub[:l.subLen]}
	if l.subLen == 0 {
		args = args[:1]
	}
	if c := t.Lookup(args); c != nil {
		return c.Name
	}
	if lockcmd.IsVerb(args[0]) {
		return strings.ToLower(string(args[0]))
	}
	return "NULL"
}

// publishInfo tells the others what has changed. It comes before the client can know.
func (s *Session) publishInfo() {
	p := &s.info
	var subs [3]int
	if s.infoChanged {
		subs = s.subscriptions()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.unpublished != nil {
		p.lastActive = time.Now()
		p.command.note(s.unpublished)
		s.unpublished = nil
	}
	if p.queued = -1; s.tx.in {
		p.queued = s.tx.length
	}
	if !s.infoChanged {
		return
	}
	p.identity, p.own, p.library = s.id, s.pinned, s.library
	if g := s.adopted.Load(); g != nil && (p.own == nil || !p.own.Alive()) {
		p.own = g.conn
	}
	if p.name != string(s.name) {
		p.name = string(s.name)
	}
	switch p.subs = subs; {
	case s.monitor != nil:
		p.flags = "O"
	case s.pass.isReplica:
		p.flags = "S"
	case p.subs != [3]int{}:
		p.flags = "P"
	default:
		p.flags = ""
	}
}

// subscriptions is how many the session has, to channels, patterns and shard channels.
func (s *Session) subscriptions() [3]int {
	subs := &s.pass.subs
	if s.subscriber != nil {
		s.subscriber.mu.Lock()
		defer s.subscriber.mu.Unlock()
		subs = &s.subscriber.confirmed
	}
	return [3]int{len(subs.channels), len(subs.patterns), len(subs.shards)}
}

// fieldsLocked is what the session itself knows of a row.
func (p *clientInfo) fieldsLocked() map[string]string {
	flags := p.flags
	if p.queued >= 0 {
		flags += "x"
	}
	if p.blocked.Load() {
		flags += "b"
	}
	return map[string]string{
		"db": strconv.Itoa(p.identity.DB), "resp": strconv.Itoa(p.identity.Proto), "user": p.userLocked(), "name": p.name,
		"sub": strconv.Itoa(p.subs[0]), "psub": strconv.Itoa(p.subs[1]), "ssub": strconv.Itoa(p.subs[2]),
		"multi": strconv.Itoa(p.queued), "flags": flags,
	}
}

// libraryLocked is what a row says of the client's library, as far as that is known.
func (p *clientInfo) libraryLocked() map[string]string {
	known := map[string]string{}
	if p.library.name != "" {
		known["lib-name"] = p.library.name
	}
	if p.library.version != "" {
		known["lib-ver"] = p.library.version
	}
	return known
}

// upstreamID is the number of the session's own connection at the node that at leads
// to; 0 if it has none there, or the node did not say.
func (s *Session) upstreamID(at *upstream.Conn) int64 {
	p := &s.info
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.upstreamIDLocked(at)
}

// liveUpstreamID is upstreamID for a command that names the connection to the node. at was made
// before: a server that was started again since has given the number to another, but
// has hung up first, which need not have been noticed yet.
func (s *Session) liveUpstreamID(at *upstream.Conn) int64 {
	p := &s.info
	p.mu.Lock()
	defer p.mu.Unlock()
	id := p.upstreamIDLocked(at)
	if id == 0 || p.own.HungUp() {
		return 0
	}
	return id
}

// pinnedNode is the node of the session's own connection; nil if there is none.
func (s *Session) pinnedNode() *upstream.Pool {
	p := &s.info
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.own == nil || !p.own.Alive() {
		return nil
	}
	return p.own.Pool()
}

func (p *clientInfo) upstreamIDLocked(at *upstream.Conn) int64 {
	if at == nil || p.own == nil || !p.own.Alive() || p.own.Pool() != at.Pool() {
		return 0
	}
	return p.own.ID()
}

// About are the fields of a line in the log that is about the session's client. Any
// goroutine may ask.
func (s *Session) About() []slog.Attr {
	p := &s.info
	p.mu.Lock()
	defer p.mu.Unlock()
	about := []slog.Attr{slog.Int64("client_id", p.ID), slog.String("client", p.Addr), slog.String("user", Brief(p.userLocked()))}
	if p.name != "" {
		about = append(about, slog.String("client_name", Brief(p.name)))
	}
	return about
}

// userLocked is who the client is, as far as others may know.
func (p *clientInfo) userLocked() string {
	if p.identity.User == "" {
		return "default"
	}
	return p.identity.User
}

// A gift is a connection that was opened for a session by another.
type adoptedConn struct {
	conn *upstream.Conn
	id   upstream.Identity // that it was opened for
}

// ensureUpstreamID is the number, at the node that at leads to, of a connection on which
// messages reach the client: its own, or, if it has none, one that is opened for it.
// It is 0 if that cannot be had. The client keeps the connection from now on.
func (s *Session) ensureUpstreamID(ctx context.Context, at *upstream.Conn) int64 {
	s.referenced.Store(true)
	if id := s.liveUpstreamID(at); id != 0 {
		return id
	}
	s.info.mu.Lock()
	identity := s.info.identity
	s.info.mu.Unlock()
	c, err := s.d.opt.Upstream.Pool().Private(ctx, identity, s.replies)
	if err != nil {
		return 0
	}
	s.offerConn(&adoptedConn{c, identity})
	return s.liveUpstreamID(at)
}

// offerConn hands the session, which belongs to another goroutine, a connection that it
// takes with its next command, unless it has one by now.
func (s *Session) offerConn(g *adoptedConn) {
	p := &s.info
	p.mu.Lock()
	if p.own != nil && p.own.Alive() {
		p.mu.Unlock()
		g.conn.Close()
		return
	}
	p.own = g.conn
	old := s.adopted.Swap(g)
	p.mu.Unlock()
	if old != nil {
		old.conn.Close()
	}
	if s.d.clients.find(s.info.ID) == nil { // it has ended, and may not look again
		s.dropAdopted()
	}
}

// dropAdopted closes what was given and not taken.
func (s *Session) dropAdopted() {
	if g := s.adopted.Swap(nil); g != nil {
		g.conn.Close()
	}
}

// disconnect ends a session of another goroutine at once, with what it has of its own
// at the upstream.
func (s *Session) disconnect(why Why) {
	s.because(why)
	s.d.clients.remove(s)
	s.ended.Store(true)
	s.info.mu.Lock()
	own := s.info.own
	s.info.mu.Unlock()
	s.out.Abort()
	if own != nil {
		own.Close()
	}
}
