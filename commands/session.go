package commands

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
)

// Locker decides about locks; *locks.Service is one.
type Locker interface {
	Lock(context.Context, locks.LockRequest) (locks.Answer, error)
	Renew(context.Context, locks.RenewRequest) (time.Duration, error)
	Unlock(context.Context, locks.UnlockRequest) (holdsLeft int, err error)
	Undo(locks.Grant)
}

// Options are read once by New.
type Options struct {
	Upstream *upstream.Upstream // required
	Locks    Locker             // required
	// MinTTL and MaxTTL bound leases; 0 means 100 ms and 60 s.
	MinTTL, MaxTTL time.Duration
	// RequireOwner refuses RENEW and UNLOCK that name no owner.
	RequireOwner bool
	// Unshared gives every client a connection of its own to an upstream of one
	// server, which it keeps. With several, clients share all the same.
	Unshared bool
	// MaxKept is how many bytes of replies to one client may wait for earlier
	// ones; 0 means 256 MB.
	MaxKept int64
	Log     *slog.Logger // nil means slog.Default()
}

// A Dispatcher knows what commands mean. It is safe for concurrent use.
type Dispatcher struct {
	opt     Options
	clients clients
	lastID  atomic.Int64 // of all clients
	paused  atomic.Int64 // CLIENT PAUSE: until then, in ms since 1970; 0: not paused

	known    atomic.Pointer[knowledge] // of the upstream's commands; nil: not learnt yet
	learning chan struct{}             // has room for the one who asks for them
}

// New makes a Dispatcher.
func New(opt Options) *Dispatcher {
	if opt.MinTTL <= 0 {
		opt.MinTTL = 100 * time.Millisecond
	}
	if opt.MaxTTL <= 0 {
		opt.MaxTTL = time.Minute
	}
	if opt.MaxKept <= 0 {
		opt.MaxKept = 256 << 20
	}
	if opt.Log == nil {
		opt.Log = slog.Default()
	}
	return &Dispatcher{opt: opt, learning: make(chan struct{}, 1)}
}

// GiveUp ends all connections to the upstream, for good: what waits for it fails.
func (d *Dispatcher) GiveUp() { d.opt.Upstream.Close() }

// mode is where a session's commands travel.
type mode uint8

const (
	onShared mode = iota // on a connection shared with others
	onOwn                // on the session's own, each command with one reply
	onRaw                // on its own, for good: replies are not counted
)

// A Session is what one client told us: who it is, its database and protocol,
// whether it is in a transaction, which locks it took. It belongs to one goroutine
// at a time; only replies and stateful are touched by others.
type Session struct {
	d       *Dispatcher
	present context.Context // ends when the client has left
	out     Output
	replies *replies
	hint    uint32

	id     upstream.Identity
	name   []byte                         // CLIENT SETNAME
	shared [upstream.Lanes]*upstream.Conn // borrowed from the pool; may be nil or broken
	lane   upstream.Lane                  // of shared that commands travel on
	own    *upstream.Conn                 // private; may be nil or broken
	ownAt  *upstream.Pool                 // of own
	rt     *routes                        // of an upstream of several nodes; else nil
	mode   mode

	watching bool // WATCHes something
	sticky   bool // the own connection has state that lasts: never back to shared
	subs     subscriptions
	syncs    bool       // asked to be a replica
	ears     *listener  // its subscriptions in a Cluster; may be nil
	watched  *spectator // of a MONITOR in a Cluster; may be nil
	tx       transaction
	place    placing // of tx, in a Cluster
	silent   bool    // on raw: the upstream may not answer at all
	blocking bool    // a command that may block upstream is on its way
	closing  bool    // QUIT came, or what breaks the protocol
	quits    bool    // on raw: the upstream has got the QUIT

	run  []byte // adjacent commands that will be sent together
	runN int

	untold *upstream.Conn // where the upstream did not tell its commands; may be nil

	taken taken

	recent  [][]byte // the last command that others have not been told of; nil: none
	changed bool     // so may have what else they are told
	profile profile
	given   atomic.Pointer[gift] // by another session; may be nil or broken
	named   atomic.Bool          // another session has told the upstream of its own connection

	seesAll bool      // may see other people's owners,
	sawAt   time.Time // as the upstream said then

	// stateful is the own connection while state is lost with it, else nil. Read
	// when an upstream connection ends.
	stateful atomic.Pointer[upstream.Conn]
	gone     atomic.Bool // it has ended: nothing more may run
}

// NewSession is a client that has said nothing yet. present ends when it
// leaves. The session is one of those that CLIENT LIST shows until End.
func (d *Dispatcher) NewSession(present context.Context, out Output, who Peer) *Session {
	s := &Session{
		d: d, present: present, out: out, id: d.opt.Upstream.Default(), hint: d.opt.Upstream.Hint(),
		replies: newReplies(out, int(d.opt.MaxKept)),
	}
	s.replies.ends, s.replies.lost = s.endsWith, s.lost
	s.profile.Peer, s.profile.since = who, time.Now()
	s.profile.heard, s.changed = s.profile.since, true
	s.publish()
	d.clients.add(s)
	return s
}

// Restricted says that the client must authenticate and has not, as far as known.
func (s *Session) Restricted() bool {
	return s.anonymous() && s.d.opt.Upstream.Pool().WantsAuth() && !s.admitted()
}

// admitted says that the client has a connection that the upstream lets do things.
func (s *Session) admitted() bool {
	c := s.conn()
	return c != nil && c.Alive() && !c.NoAuth()
}

// Closing says that the client asked to be disconnected: no more commands.
func (s *Session) Closing() bool { return s.closing || s.gone.Load() }

// Try handles a command that need not wait, and is false for one that may have to:
// then nothing has happened and Run must be called. raw is the command as multibulk, args its
// arguments, at least one. raw must stay as it is until Flush.
func (s *Session) Try(raw []byte, args [][]byte) bool {
	k := s.kindOf(args)
	return k != foreign && s.try(k, raw, args)
}

func (s *Session) try(k kind, raw []byte, args [][]byte) bool {
	s.recent = args
	if s.settle(); s.gone.Load() { // in this order: lost comes before what was owed is paid
		return true
	}
	if s.waitsApart() {
		return false
	}
	if s.mode == onShared && s.apart() && !s.tryOwn() {
		return false
	}
	if s.Restricted() && overRestricted(args) {
		s.flushRun()
		s.replies.Local([]byte("-NOAUTH Authentication required.\r\n"))
		return true
	}
	k = s.inState(k, args)
	if s.mode == onRaw {
		return s.tryRaw(k, raw, args)
	}
	if s.ears != nil {
		if answer := s.deafTo(k, args); answer != nil {
			return s.say(string(answer))
		}
	}
	if s.tx.in {
		if s.tx.unsure && changesClient(k) { // if MULTI was refused it takes effect now
			return false
		}
		return s.tryTx(k, raw, args)
	}
	if s.routed() {
		if s.leaveOwn(k); s.mode == onShared {
			return s.tryRouted(k, raw, args)
		}
		if s.clustered() && k != unwatch && k != multi {
			return false // WATCH too: the own connection may be to another node
		}
	}
	switch k {
	case forward:
		return s.tryForward(raw)
	case unwatch:
		if !s.tryForward(raw) {
			return false
		}
		if len(args) == 1 {
			s.watching = false
			s.note()
		}
		return true
	case execTx:
		if s.tx.unsure { // perhaps an earlier one was refused
			s.sendEnd(raw, args)
			return true
		}
		return s.tryForward(raw)
	case multi, watch:
		if !s.tryOwn() {
			return false
		}
		s.begin(k, raw, args)
		return true
	case blocks:
		return s.tryOwn() && s.addBlocking(raw)
	case mayBlock:
		if hasBlock(args) {
			return s.tryOwn() && s.addBlocking(raw)
		}
		return s.tryForward(raw)
	case ownConn:
		return s.tryOwn() && s.add(raw)
	case kills:
		if len(args) > 1 && is(args[1], "KILL") {
			return s.tryOwn() && s.add(raw)
		}
		return !debugs(args) && s.tryForward(raw)
	case script:
		return s.tryScript(raw)
	}
	return false
}

// inState is what a command's kind comes to in the state the session is in.
func (s *Session) inState(k kind, args [][]byte) kind {
	if k == users && (s.mode == onRaw || s.tx.in || !changesUsers(args) || s.clustered()) {
		return forward
	}
	return k
}

// TryPart sends the beginning of a command, or more of it, if it can travel nowhere but
// on a connection that is the client's own: then the upstream sees what the client
// has sent, and nothing that large is kept here. name is its first argument, or nil
// in a later part. More parts may follow, and Rest must, before anything else. If it
// is false nothing has happened.
func (s *Session) TryPart(name, raw []byte) bool {
	if s.settle(); s.gone.Load() {
		return true
	}
	if s.mode != onOwn || !s.sticky || s.clustered() || s.Restricted() || !partable(name) {
		return false
	}
	if name != nil {
		s.recent = [][]byte{name}
		s.publish()
	}
	s.flushRun()
	s.own.Send(raw, 0, s.replies) // if it fails, lost has closed the client
	return true
}

// partable says that a command may be sent in parts, by what there is of its name: it
// is an ordinary one, or its name is longer than any.
func partable(name []byte) bool {
	const longest = 1 << 10 // modules' too
	return name == nil || kindOf(name) == forward || len(name) > longest
}

// Rest sends the end of a command whose beginning TryPart has sent.
func (s *Session) Rest(raw []byte) {
	if s.gone.Load() {
		return
	}
	if s.tx.in {
		s.tx.add(forward, changes{})
	}
	s.add(raw)
}

// overRestricted says that a command is larger than the upstream takes from a
// connection that has not authenticated. As an inline command, whose limits are
// others, it could come this far; sent on, it would end the connection for
// everybody on it.
func overRestricted(args [][]byte) bool {
	for _, a := range args {
		if len(a) > 16<<10 {
			return true
		}
	}
	return len(args) > 10
}

// Run handles a command that may have to wait, for the upstream, for a majority.
// What waits is given up when ctx ends; a LOCK already when the client leaves.
func (s *Session) Run(ctx context.Context, raw []byte, args [][]byte) {
	s.Flush()
	s.changed = true
	if (s.tx.unsure || s.waitsApart()) && s.idle(ctx) != nil {
		return
	}
	k := s.learnKindOf(ctx, args)
	if s.try(k, raw, args) { // what was in the way may be gone
		s.Flush()
		return
	}
	k = s.inState(k, args)
	if s.mode == onShared && s.apart() && k != verb {
		if !s.toOwn(ctx) || s.try(k, raw, args) {
			s.Flush()
			return
		}
	}
	if s.routed() && s.runNodes(ctx, k, raw, args) {
		s.Flush()
		return
	}
	switch k {
	case verb:
		s.verb(ctx, args)
	case auth:
		s.auth(ctx, raw, args)
	case hello:
		s.hello(ctx, raw, args)
	case selectDB:
		s.selectDB(ctx, raw, args)
	case reset:
		if len(args) > 1 {
			s.runForward(ctx, raw) // refused
		} else {
			s.reset(ctx, raw)
		}
	case quit:
		s.quit(ctx, raw)
	case client:
		s.client(ctx, raw, args)
	case subscribe:
		if s.clustered() {
			s.listenOrNot(ctx, raw, args)
		} else {
			s.goRaw(ctx, raw, args)
		}
	case multi, watch:
		if s.toOwn(ctx) {
			s.begin(k, raw, args)
		} else if k == multi {
			s.hangUp() // what the client has sent behind it must not run by itself
		}
	case kills:
		if debugs(args) {
			s.goRaw(ctx, raw, args)
		} else {
			s.runOwn(ctx, raw, k, args)
		}
	case blocks, mayBlock, ownConn:
		s.runOwn(ctx, raw, k, args)
	case waits:
		s.waitFor(ctx, raw)
	case users:
		s.changeUsers(ctx, raw, args)
	case modules:
		s.module(ctx, raw, args)
	case script:
		if s.idle(ctx) == nil {
			s.lane = upstream.ScriptLane
			s.runForward(ctx, raw)
		}
	default:
		s.runForward(ctx, raw)
	}
	s.Flush()
}

// Flush sends what Try has gathered. False says that the client is gone.
func (s *Session) Flush() bool {
	if s.recent != nil || s.changed {
		s.publish()
		s.changed = false
	}
	s.flushRun()
	return s.replies.Flush()
}

// rawGrace is how long a client that has left may still wait for the answer to the
// last thing it asked, on a connection whose replies are not counted.
const rawGrace = 50 * time.Millisecond

// Wait is for a client from which nothing more is read. It returns when the client
// has all replies that the upstream owes it, or ctx ends. If the client has left it
// does not wait for a command that blocks upstream.
func (s *Session) Wait(ctx context.Context) {
	switch {
	case s.mode == onRaw && s.quits: // the upstream answers all, and closes
		select {
		case <-s.own.Done():
		case <-ctx.Done():
		}
	case s.syncs: // a replica that has left is to count as gone
	case s.mode == onRaw:
		s.await(ctx, s.replies.Answered(), rawGrace)
	case !s.blocking || s.present.Err() == nil:
		s.replies.WaitIdle(ctx)
	}
}

// await returns when answered is closed, the own connection has ended, the time is
// over or ctx ends.
func (s *Session) await(ctx context.Context, answered <-chan struct{}, most time.Duration) {
	select {
	case <-answered:
	case <-s.own.Done():
	case <-time.After(most):
	case <-ctx.Done():
	}
}

// Busy says that the client waits for replies, or for messages.
func (s *Session) Busy() bool {
	return s.mode == onRaw || s.watched != nil || s.ears != nil && s.ears.any() || s.replies.Owed() > 0
}

// Refuse answers input that breaks the protocol, behind what was asked before.
func (s *Session) Refuse(text string) {
	s.Flush()
	if s.mode == onRaw {
		s.lastAnswers()
	}
	s.replies.Local(resp.AppendError(nil, text))
	s.replies.Flush()
	s.closing = true
}

// lastAnswers waits for the replies of a connection on which they are not counted, not
// for long.
func (s *Session) lastAnswers() {
	const most = time.Second
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	if s.silent {
		s.await(ctx, nil, rawGrace)
	} else {
		s.answered(ctx)
	}
}

// End gives up everything the session has. Locks it took stay until their leases
// end.
func (s *Session) End() {
	s.d.clients.remove(s)
	s.closeOwn()
	s.returnShared()
	s.closeEars()
	if s.rt != nil {
		s.rt.again.cancel()
	}
}

// pause notes that the upstream holds clients up for a while. A connection that
// many share would be held up by the first of them that has to wait, so until it
// is over every client uses one of its own.
func (d *Dispatcher) pause(length time.Duration) {
	d.paused.Store(max(d.paused.Load(), time.Now().Add(length).UnixMilli()))
}

func (d *Dispatcher) isPaused() bool {
	until := d.paused.Load()
	if until == 0 {
		return false
	}
	if time.Now().UnixMilli() < until {
		return true
	}
	d.paused.CompareAndSwap(until, 0)
	return false
}

// apart says that no command of the session may travel on a shared connection.
func (s *Session) apart() bool { return s.unshared() || s.d.isPaused() || s.named.Load() }

func (s *Session) unshared() bool { return s.d.opt.Unshared && !s.routed() }

func (s *Session) anonymous() bool { return s.id.User == "" && s.id.Secret == "" }

// conn is the connection the next ordinary command travels on; it may be nil.
func (s *Session) conn() *upstream.Conn {
	if s.mode == onShared {
		return s.shared[s.lane]
	}
	return s.own
}

// settle goes back to the main lane of the shared connections when nothing is owed
// and the own connection has no state: only then can no later command overtake an
// earlier one.
func (s *Session) settle() {
	if s.mode == onShared && s.lane == upstream.MainLane && !s.blocking || s.mode == onRaw {
		return
	}
	if s.runN > 0 || s.replies.Owed() > 0 {
		return
	}
	s.blocking, s.lane = false, upstream.MainLane
	if s.tx.unsure {
		s.apply(s.tx.settle())
		s.note()
		s.changed = true
	}
	if !s.tx.in && !s.stays() {
		s.mode = onShared
	}
}

// apply takes over what an executed transaction changed on the own connection.
func (s *Session) apply(c changes) {
	if c.id != nil {
		if s.own != nil {
			s.own.ActAsAnybody()
		}
		s.id.User, s.id.Secret, s.id.Proto = c.id.User, c.id.Secret, c.id.Proto
		s.sawAt = time.Time{}
		s.returnShared()
	}
	if c.db != nil && *c.db != s.id.DB {
		s.id.DB = *c.db
		s.returnShared()
	}
	if c.name != nil {
		s.name = c.name
	}
	s.sticky = s.sticky || c.stays
	s.watching = s.watching || c.watches
}

// note publishes whether the client loses state when its own connection ends.
func (s *Session) note() {
	if s.mode == onRaw || s.tx.in || s.tx.unsure || s.watching || s.sticky {
		if s.stateful.Store(s.own); s.own != nil && !s.own.Alive() {
			s.lost(s.own) // which was called too early
		}
	} else {
		s.stateful.Store(nil)
	}
}

// endsWith says that a connection takes the client with it: one that has the
// client's state, as a Redis that went away would, or one on which the client was
// somebody that the upstream no longer lets in.
func (s *Session) endsWith(c *upstream.Conn) bool { return s.stateful.Load() == c || c.Revoked() }

// lost is told of every connection that ended.
func (s *Session) lost(c *upstream.Conn) {
	if s.endsWith(c) {
		s.gone.Store(true)
		s.out.Close()
	}
}

// waitsApart says that a command may be blocking at another node than that of those
// behind it, which must not overtake it.
func (s *Session) waitsApart() bool { return s.blocking && s.clustered() }

func (s *Session) tryForward(raw []byte) bool {
	c := s.conn()
	return c != nil && c.Alive() && s.add(raw)
}

// tryScript sends a script on the lane where it holds up only other scripts, so
// that other clients hear that the upstream is BUSY, as from the upstream itself.
func (s *Session) tryScript(raw []byte) bool {
	if s.mode == onShared && s.lane != upstream.ScriptLane {
		c := s.shared[upstream.ScriptLane]
		if c == nil || !c.Alive() {
			return false
		}
		if s.flushRun(); s.replies.Owed() > 0 {
			return false
		}
		s.lane = upstream.ScriptLane
	}
	return s.tryForward(raw)
}

// add gathers a command for the current connection. Commands that lie next to each
// other in the read buffer become one write. It is always true.
func (s *Session) add(raw []byte) bool {
	if s.mode == onOwn && s.clustered() {
		s.sendFixed(raw, nil)
		return true
	}
	if n := len(s.run); n > 0 && cap(s.run)-n >= len(raw) && &s.run[:n+1][n] == &raw[0] {
		s.run = s.run[:n+len(raw)]
	} else {
		s.flushRun()
		s.run = raw
	}
	s.runN++
	return true
}

func (s *Session) flushRun() {
	s.flushHome()
	if s.rt != nil {
		s.rt.flush()
	}
}

// flushHome sends what was gathered for the connection that the session is on. What
// was gathered for the nodes before goes first.
func (s *Session) flushHome() {
	if s.runN == 0 {
		return
	}
	if s.rt != nil {
		s.rt.flush()
	}
	run, n, c := s.run, s.runN, s.conn()
	s.run, s.runN = nil, 0
	if s.mode == onRaw {
		s.replies.Ask()
		c.Send(run, 0, s.replies) // if it fails, lost has closed the client
		return
	}
	s.replies.Expect(c, n)
	s.send(c, run, n)
}

// send sends commands whose n replies have their place already.
func (s *Session) send(c *upstream.Conn, raw []byte, n int) {
	if err := c.Send(raw, n, s.replies); err != nil {
		s.replies.Fail(c, n, false, err)
	}
}

// tryOwn moves the session to its own connection if that needs no waiting.
func (s *Session) tryOwn() bool {
	if s.own == nil || !s.own.Alive() {
		return false
	}
	if s.mode == onShared {
		s.flushRun()
		if s.replies.Owed() > 0 {
			return false
		}
		s.mode = onOwn
	}
	return true
}

// idle waits until all earlier commands have been answered. Behind one that blocks
// upstream it gives up when the client leaves.
func (s *Session) idle(ctx context.Context) error {
	if s.blocking {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(s.present, cancel)()
	}
	return s.replies.WaitIdle(ctx)
}

// toOwn moves the session to its own connection, opening it if need be, when all
// earlier commands have been answered. If it can't, the client has got the reason.
func (s *Session) toOwn(ctx context.Context) bool { return s.toOwnAt(ctx, s.home()) }

// home is the node of the session's own connection, or else of what belongs to none.
func (s *Session) home() *upstream.Pool {
	if s.own != nil && s.own.Alive() {
		return s.ownAt
	}
	return s.d.opt.Upstream.Pool()
}

// toOwnAt is toOwn with a connection to one node. A connection to another is closed.
func (s *Session) toOwnAt(ctx context.Context, pool *upstream.Pool) bool {
	s.flushRun()
	if s.idle(ctx) != nil {
		return false
	}
	if err := s.openOwn(ctx, pool); err != nil {
		s.replyOrBar(err)
		return false
	}
	s.mode = onOwn
	if s.unshared() && !s.sticky {
		s.sticky = true
		s.note()
	}
	return true
}

// openOwn makes sure that there is a live connection of the session's own to a node.
// If it can't, the session is on shared connections.
func (s *Session) openOwn(ctx context.Context, pool *upstream.Pool) error {
	if pool == nil {
		return &upstream.DownError{Err: errNobody}
	}
	if s.own != nil && s.own.Alive() && s.ownAt == pool {
		return nil
	}
	given := s.given.Swap(nil)
	if s.closeOwn(); s.gone.Load() {
		if given != nil {
			given.conn.Close()
		}
		return context.Canceled
	}
	c, err := s.takeOwn(ctx, pool, given)
	if err != nil {
		return err
	}
	s.own, s.ownAt, s.changed = c, pool, true
	s.publish()
	if err := s.beginTracking(ctx, c); err != nil {
		c.Close()
		return err
	}
	if len(s.name) > 0 {
		s.ask(ctx, c, resp.AppendCommand(nil, "CLIENT", "SETNAME", string(s.name)))
	}
	return nil
}

// takeOwn is a connection for the session alone: what it was given, unless the client
// has become somebody else since, or a new one.
func (s *Session) takeOwn(ctx context.Context, pool *upstream.Pool, given *gift) (*upstream.Conn, error) {
	if given != nil && given.id == s.id && given.conn.Alive() {
		return given.conn, nil
	}
	if given != nil {
		given.conn.Close()
	}
	return pool.Private(ctx, s.id, s.replies)
}

func (s *Session) runOwn(ctx context.Context, raw []byte, k kind, args [][]byte) {
	if k == mayBlock && !hasBlock(args) || k == kills && (len(args) < 2 || !is(args[1], "KILL")) {
		s.runForward(ctx, raw)
		return
	}
	if k == kills || k == ownConn {
		s.overtake(ctx, raw)
		return
	}
	if s.toOwn(ctx) {
		s.blocking = s.blocking || k == blocks || k == mayBlock
		s.add(raw)
	}
}

// overtake sends a command past what others wait for. An upstream that is BUSY
// lets no new connection select its database; then a shared one must do.
func (s *Session) overtake(ctx context.Context, raw []byte) {
	s.flushRun()
	if s.idle(ctx) != nil {
		return
	}
	var refused *upstream.RefusedError
	if errors.As(s.openOwn(ctx, s.home()), &refused) {
		s.runForward(ctx, raw)
		return
	}
	if s.toOwn(ctx) {
		s.add(raw)
	}
}

// debugs says that a SCRIPT command is about the debugger, which takes over the
// connection.
func debugs(args [][]byte) bool { return len(args) > 1 && is(args[1], "DEBUG") }

// waitFor sends WAIT or WAITAOF. Redis waits for the replication offset after the
// last command of the connection, which need not be the one that the client's
// writes travelled on; a PING brings the offset up to date, behind all of them.
func (s *Session) waitFor(ctx context.Context, raw []byte) {
	if !s.toOwn(ctx) {
		return
	}
	if _, err := s.ask(ctx, s.own, resp.AppendCommand(nil, "PING")); err != nil {
		s.replyErr(err)
		return
	}
	s.addBlocking(raw)
}

func (s *Session) addBlocking(raw []byte) bool {
	s.blocking = true
	return s.add(raw)
}

func (s *Session) runForward(ctx context.Context, raw []byte) {
	if s.needConn(ctx) {
		s.add(raw)
	}
}

// needConn makes sure that there is a live connection for an ordinary command. If it
// can't, the client has got the reason.
func (s *Session) needConn(ctx context.Context) bool {
	if s.mode != onShared {
		if s.own.Alive() {
			return true
		}
		if s.closeOwn(); s.gone.Load() {
			return false
		}
	}
	return s.needShared(ctx)
}

// needShared makes sure that there is a live shared connection. If it can't, the
// client has got the reason.
func (s *Session) needShared(ctx context.Context) bool {
	c := s.shared[s.lane]
	if c != nil && c.Alive() {
		return true
	}
	s.returnLane(s.lane)
	c, err := s.d.opt.Upstream.Pool().Shared(ctx, s.id, s.lane, s.hint)
	if err != nil {
		s.replyOrBar(err)
		return false
	}
	s.shared[s.lane] = c
	return true
}

func (s *Session) returnShared() {
	if s.rt != nil && len(s.rt.conns) > 0 {
		s.rt.drop(func(*upstream.Conn) bool { return true })
		s.forgetTracked()
	}
	for lane := range s.shared {
		s.returnLane(upstream.Lane(lane))
	}
	s.lane = upstream.MainLane
}

func (s *Session) returnLane(lane upstream.Lane) {
	if s.shared[lane] != nil {
		s.d.opt.Upstream.Return(s.shared[lane])
		s.shared[lane] = nil
	}
}

func (s *Session) closeOwn() {
	if s.own != nil && !s.own.Alive() {
		s.lost(s.own) // whose reader may not have come to say so
	}
	s.stateful.Store(nil)
	s.mode = onShared
	s.tx.forget()
	s.dropGiven()
	if s.own != nil {
		s.forgetTracked()
		s.own.Close()
		s.own = nil
	}
}

// begin sends MULTI or WATCH on the own connection.
func (s *Session) begin(k kind, raw []byte, args [][]byte) {
	switch {
	case k == multi && len(args) == 1:
		if !s.tx.in {
			s.place = placing{}
		}
		s.sendTapped(raw, s.tx.multi(), nil)
	case k == watch && len(args) > 1:
		s.watching = true
		s.add(raw)
	default:
		s.add(raw)
	}
	s.note()
}

// sendEnd sends EXEC or DISCARD on the own connection.
func (s *Session) sendEnd(raw []byte, args [][]byte) {
	if len(args) > 1 && !is(args[0], "EXEC") {
		s.add(raw) // refused, and ends nothing; an EXEC that is refused aborts
		return
	}
	watching := s.watching
	s.watching = false
	s.place.queued = nil
	var e edit
	if is(args[0], "EXEC") {
		e = s.tx.editExec()
	}
	s.sendTapped(raw, s.tx.end(watching), e)
	s.note()
}

// sendTapped sends a command on the own connection whose answer must be known, and
// goes through e if that is not nil.
func (s *Session) sendTapped(raw []byte, heard func([]byte), e edit) {
	s.flushRun()
	if s.clustered() && e == nil {
		s.sendFixed(raw, heard)
		return
	}
	if e != nil && s.clustered() {
		plain := e
		e = func(reply []byte) ([]byte, bool) { return plain(unmoved(reply)) }
	}
	s.replies.ExpectTapped(s.own, heard, e)
	s.send(s.own, raw, 1)
}

// tryTx handles a command inside MULTI.
func (s *Session) tryTx(k kind, raw []byte, args [][]byte) bool {
	if s.clustered() {
		if sent, said := s.tryTxNode(k, raw, args); said {
			return sent
		}
	}
	switch k {
	case verb:
		s.flushRun()
		s.keepQueued(raw)
		s.replies.ExpectSwapped(s.own, appendNoTx(nil, args[0]))
		// The upstream does not know the verb: it refuses it and so aborts the EXEC.
		s.send(s.own, raw, 1)
		return true
	case reset:
		return len(args) > 1 && s.add(raw)
	case quit, subscribe:
		return false
	case execTx:
		s.sendEnd(raw, args)
		return true
	case client:
		if len(args) > 1 && is(args[1], "REPLY") {
			return false // then replies can no longer be counted
		}
	}
	s.tx.add(k, s.changesOf(k, args))
	if k == client || k == hello {
		return s.queueTranslated(raw, args)
	}
	if !hasNode(k) {
		s.keepQueued(raw)
	}
	return s.add(raw)
}

// changesOf is what a queued command will change in the session when executed.
func (s *Session) changesOf(k kind, args [][]byte) (c changes) {
	switch k {
	case auth:
		if id, ok := s.authIdentity(args); ok {
			c.id = &id
		}
		c.stays = true
	case hello:
		if h, ok := parseHello(args); ok {
			id := s.id
			if h.proto != 0 {
				id.Proto = h.proto
			}
			if h.auth {
				id.User, id.Secret = string(h.user), string(h.secret)
			}
			c.id, c.name = &id, h.name
		}
		c.stays = true
	case selectDB:
		if db, ok := dbNumber(args); ok {
			c.db = &db
		}
		c.stays = true
	case client:
		if name, ok := newName(args); ok {
			c.name = append([]byte{}, name...)
		}
		c.stays = !speaksOfClients(args) || is(args[1], "TRACKING")
	}
	return c
}

// tryRaw relays everything but what must be known of.
func (s *Session) tryRaw(k kind, raw []byte, args [][]byte) bool {
	switch k {
	case verb:
		return false
	case reset:
		return len(args) > 1 && s.add(raw)
	case quit:
		s.closing, s.quits = true, true
	case auth:
		if !s.silent && !s.tx.in {
			return false
		}
		s.own.ActAsAnybody()
	case hello:
		h, ok := parseHello(args)
		if !ok || h.auth && (s.silent || s.tx.in) {
			s.own.ActAsAnybody()
		}
		if ok && h.proto != 0 {
			s.id.Proto = h.proto
		}
		return (s.silent || s.tx.in) && s.add(raw)
	case selectDB:
		if db, ok := dbNumber(args); ok {
			s.id.DB = db
		}
	case multi:
		s.tx.in = s.tx.in || len(args) == 1
	case execTx:
		s.tx.in = s.tx.in && len(args) > 1 && !is(args[0], "EXEC")
	case subscribe:
		s.subs.note(args)
		s.noteSync(args)
		s.changed = true
	case client:
		s.silent = s.silent || len(args) > 1 && is(args[1], "REPLY")
		switch {
		case !speaksOfClients(args):
		case s.silent || s.tx.in:
			return s.add(s.blind(raw, args))
		default:
			return false
		}
	}
	return s.add(raw)
}

// noteSync notes that the client is a replica from now on.
func (s *Session) noteSync(args [][]byte) {
	s.syncs = s.syncs || is(args[0], "SYNC") || is(args[0], "PSYNC")
}

// goRaw stops counting replies, from a command on that has none or many.
func (s *Session) goRaw(ctx context.Context, raw []byte, args [][]byte) {
	if !s.toOwn(ctx) {
		return
	}
	s.own.Raw()
	s.mode = onRaw
	s.subs.note(args)
	s.noteSync(args)
	s.silent = s.syncs || kindOf(args[0]) != subscribe
	s.note()
	s.add(raw)
}

// ask sends a command of a single reply, behind everything sent before, and
// returns the reply. c may be nil: a connection that was lost.
func (s *Session) ask(ctx context.Context, c *upstream.Conn, raw []byte) ([]byte, error) {
	if c == nil {
		return nil, &upstream.DownError{Err: errLost}
	}
	got := make(chan []byte, 1)
	s.replies.ExpectCaught(c, func(reply []byte) { got <- reply })
	s.send(c, raw, 1)
	select {
	case reply := <-got:
		if reply == nil {
			return nil, &upstream.DownError{Err: errLost}
		}
		return reply, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *Session) replyErr(err error) {
	if p := appendErr(nil, err); p != nil {
		s.replies.Local(p)
	}
}

// replyOrBar answers why a client cannot have a connection. One whose credentials
// were good before is disconnected, as if the user had been deleted.
func (s *Session) replyOrBar(err error) {
	home := s.d.opt.Upstream.Default()
	var refused *upstream.RefusedError
	if !errors.As(err, &refused) || !refused.Credentials() || s.id.User == home.User && s.id.Secret == home.Secret {
		s.replyErr(err)
		return
	}
	s.hangUp()
}

// hangUp disconnects the client when it has what was said so far. Nothing that it has
// sent already may run.
func (s *Session) hangUp() {
	s.replies.Flush()
	s.gone.Store(true)
	s.out.Close()
}

// dbNumber is the argument of a SELECT that can succeed.
func dbNumber(args [][]byte) (int, bool) {
	if len(args) != 2 {
		return 0, false
	}
	n, err := strconv.Atoi(string(args[1]))
	return n, err == nil && n >= 0 && strconv.Itoa(n) == string(args[1])
}
