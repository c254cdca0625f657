package commands

import (
	"context"
	"errors"
	"time"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
)

// apart says that no command of the session may travel on a shared connection.
func (s *Session) apart() bool { return s.unshared() || s.d.isPaused() || s.named.Load() }

func (s *Session) unshared() bool { return s.d.opt.Unshared && !s.routed() }

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
		s.because(WhyUpstream)
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
		s.addBlocking(raw)
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
	s.blocks()
	return s.add(raw)
}

// blocks notes that the next command may block upstream.
func (s *Session) blocks() {
	if !s.blocking {
		s.blocking, s.blockedAt = true, time.Now()
		s.replies.Blocks(s.runN)
	}
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
		upstream.Return(s.shared[lane])
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
	s.because(WhyUpstream)
	s.gone.Store(true)
	s.replies.Close()
}
