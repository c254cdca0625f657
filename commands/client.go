package commands

import (
	"bytes"
	"context"
	"log/slog"
	"strings"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/clients"
	"github.com/lockproxy/lockproxy/commands/cluster"
	"github.com/lockproxy/lockproxy/commands/lockcmd"
	"github.com/lockproxy/lockproxy/commands/relay"
	"github.com/lockproxy/lockproxy/commands/table"
	"github.com/lockproxy/lockproxy/commands/tx"
)

// A Peer is a client's end of its connection.
type Peer = clients.Peer

// NextID returns the id for a new client. Ids grow, and none is given twice.
func (d *Dispatcher) NextID() int64 { return d.lastID.Add(1) }

// commandName is the name by which CLIENT LIST shows a command; empty for what is none.
func (d *Dispatcher) commandName(args [][]byte) string {
	if c := d.discovery.Table().Lookup(args); c != nil {
		return c.Name
	}
	if lockcmd.IsVerb(args[0]) {
		return strings.ToLower(string(args[0]))
	}
	return ""
}

// A clientSession is what a clients.Client sees of its session.
type clientSession struct{ s *Session }

func (c clientSession) Owner() upstream.Owner    { return c.s.replies }
func (c clientSession) Stateful() *upstream.Conn { return c.s.stateful.Conn(&c.s.tx) }
func (c clientSession) Kill()                    { c.s.disconnect(clients.WhyKilled) }

// publishInfo publishes what CLIENT LIST shows of the session, before the client can notice a change.
func (s *Session) publishInfo() {
	queued := -1
	if s.tx.In {
		queued = s.tx.Len() + s.adoptedTx.Len()
	}
	s.client.Ran(s.unshown.command, queued)
	s.unshown.command = nil
	if !s.unshown.changed {
		return
	}
	subs, flags := s.subscriptions(), ""
	switch {
	case s.feed.Monitors():
		flags = "O"
	case s.pass.isReplica:
		flags = "S"
	case subs != [3]int{}:
		flags = "P"
	}
	s.client.SetState(clients.State{Identity: s.id, Library: s.library, Pinned: s.pinned, Flags: flags, Subs: subs}, s.name)
}

// About returns the attributes that identify the session's client in a line of the log. It is safe for concurrent use.
func (s *Session) About() []slog.Attr {
	user, name := s.client.User()
	about := []slog.Attr{slog.Int64("client_id", s.client.ID), slog.String("client", s.client.Addr), slog.String("user", Brief(user))}
	if name != "" {
		about = append(about, slog.String("client_name", Brief(name)))
	}
	return about
}

// disconnect ends the session at once, and closes its own connection to the upstream. It is safe for concurrent use.
func (s *Session) disconnect(why clients.Why) {
	s.d.clients.Remove(s.client)
	s.end.Now(why)
	s.out.Abort()
	s.client.ClosePinned()
}

// A reach returns the upstream's id of a connection on which messages reach client c, at the node of connection at; 0:
// there is none.
type reach func(c *clients.Client, at *upstream.Conn) int64

// opening returns a reach that opens a connection for a client that has none of its own.
func (s *Session) opening(ctx context.Context) reach {
	return func(c *clients.Client, at *upstream.Conn) int64 {
		return c.EnsureUpstreamID(ctx, s.up.Pool(), at)
	}
}

// translate prepares a command for the current connection: the proxy's client ids in it become the upstream's, and the
// other way round in its reply. ok is false for a command that goes upstream as it is.
func (s *Session) translate(ctx context.Context, to reach, q request) (x clients.Translation, ok bool) {
	if resp.Is(q.args[0], "HELLO") {
		return clients.Translation{Raw: q.raw, Rewrite: s.rewriteHello, Kinds: "*%"}, true
	}
	t := s.translator(ctx, to)
	return t.Translate(q.raw, q.args)
}

func (s *Session) translator(ctx context.Context, to reach) clients.Translator {
	return clients.Translator{
		Registry: &s.d.clients, Self: s.client, At: s.conn(), Reach: to, Kill: s.killAll, Upstream: s.replies,
		ConnTo:  func(pool *upstream.Pool) (*upstream.Conn, func()) { return s.connTo(ctx, pool) },
		Accepts: s.accepts(ctx),
		Redirects: func() {
			s.pass.redirectsInvalidations = true
			s.replies.RewritePushes(func(at *upstream.Conn, push []byte) []byte { return s.d.clients.RewritePush(s.client, at, push) })
		},
	}
}

// rewriteHello makes a HELLO's reply that of a single server, with the client's id.
func (s *Session) rewriteHello(reply []byte) ([]byte, bool) {
	return s.client.RewriteHello(cluster.StandaloneHello(reply))
}

// runUnblock sends CLIENT UNBLOCK to the node where the other client is blocked.
func (s *Session) runUnblock(ctx context.Context, q request) {
	if !s.ensureConn(ctx) {
		return
	}
	c, _ := s.d.clients.UnblockTarget(q.args)
	if c == nil {
		s.addTranslated(ctx, q)
		return
	}
	pool := c.Node()
	if pool == nil || pool == s.conn().Pool() {
		s.addTranslated(ctx, q)
		return
	}
	if s.idle(ctx) != nil {
		return
	}
	reply := []byte(":0\r\n")
	if at, leave := s.connTo(ctx, pool); at != nil {
		defer leave()
		var err error
		if reply, err = s.replies.Ask(ctx, at, clients.Unblock(c, at, q.args)); err != nil {
			s.replyErr(err)
			return
		}
	}
	s.replies.Local(reply)
}

// runTranslated sends a command, translated, on whatever connection the session is on.
func (s *Session) runTranslated(ctx context.Context, q request) {
	if s.ensureConn(ctx) {
		s.addTranslated(ctx, q)
	}
}

// addTranslated sends a command, translated, on the current connection, and waits for the
// reply: rewriting it may take long, and others' replies come on the same connection.
func (s *Session) addTranslated(ctx context.Context, q request) {
	x, ok := s.translate(ctx, s.opening(ctx), q)
	if !ok {
		s.enqueue(q.raw)
		return
	}
	s.publishInfo() // the list shows it
	if s.flushBatches(); s.idle(ctx) != nil {
		return
	}
	reply, err := s.replies.Ask(ctx, s.conn(), x.Raw)
	if err != nil {
		s.replyErr(err)
		return
	}
	s.replyLast(x.Rewrite(reply))
}

// replyLast gives the client a reply, and disconnects it then if that is the last.
func (s *Session) replyLast(reply []byte, last bool) {
	s.replies.Local(reply)
	if last {
		s.replies.Close()
	}
}

// queueTranslated sends a command, translated, inside MULTI. It is always true.
func (s *Session) queueTranslated(q request) bool {
	return s.addQueued(s.clientCtx, q)
}

// queueFiltered is queueTranslated of a CLIENT LIST or KILL about which the upstream must
// be asked. It reports false, and does nothing, if it need not be.
func (s *Session) queueFiltered(ctx context.Context, q request) bool {
	return clients.NeedsProbe(q.args) && s.addQueued(ctx, q)
}

func (s *Session) addQueued(ctx context.Context, q request) bool {
	known := s.tx.PlaceKnown()
	s.tx.Add(q.changes(s))
	if !known && resp.Is(q.args[0], "CLIENT") && clients.NamesIDs(q.args) {
		return s.enqueue(s.translateBlind(q))
	}
	x, ok := s.translate(ctx, (*clients.Client).UpstreamID, q)
	if !ok || !known {
		s.keepQueued(q.raw)
		return s.enqueue(q.raw)
	}
	s.tx.RewriteLast(x.Rewrite)
	s.keepQueued(x.Raw)
	s.publishInfo()
	s.flushBatches()
	s.replies.ExpectRewritten(s.pinned, x.Rewrite)
	s.replies.Send(s.pinned, x.Raw, 1)
	return true
}

// runPassthrough sends a command, translated, on a passthrough connection, and waits for the reply.
func (s *Session) runPassthrough(ctx context.Context, q request) {
	if !s.awaitReplies(ctx) {
		s.out.Abort()
		return
	}
	x, ok := s.translate(ctx, s.opening(ctx), q)
	switch {
	case resp.Is(q.args[0], "AUTH"), resp.Is(q.args[0], "SELECT"), q.row.Has(table.BeginsTx):
		x.Rewrite, x.Kinds = clients.Unchanged, "+"
	case !ok:
		s.enqueue(q.raw)
		return
	}
	s.publishInfo()
	var reply []byte
	m := &relay.Barrier{Matches: func(r []byte) bool {
		if !x.Answers(r) {
			return false
		}
		reply = bytes.Clone(r)
		return true
	}}
	if !s.sync(ctx, x.Raw, m) {
		s.out.Abort()
		return
	}
	if _, refused := resp.Error(reply); !refused {
		s.applyNow(q.changes(s))
		s.tx.In = q.row.Has(table.BeginsTx)
	}
	s.replyLast(x.Rewrite(reply))
}

// applyNow takes over what a command on a passthrough connection has changed.
func (s *Session) applyNow(c tx.Changes) {
	if c.ID != nil {
		s.passthroughIdentity(*c.ID)
		s.id.Proto = c.ID.Proto
	}
	if c.DB != nil {
		s.id.DB = *c.DB
	}
	s.unshown.changed = true
}

// translateBlind returns a CLIENT command as it is sent if its reply cannot be told from others, so that ids in the
// reply cannot be replaced. CLIENT KILL is made to kill nobody, since the client's rights are not known.
func (s *Session) translateBlind(q request) []byte {
	switch {
	case resp.Is(q.args[1], "LIST"):
		return q.raw
	case resp.Is(q.args[1], "KILL"):
		return clients.HarmlessKill(q.args)
	}
	x, _ := s.translate(s.clientCtx, (*clients.Client).UpstreamID, q)
	if resp.Is(q.args[1], "TRACKING") {
		s.setDelivery()
		x.Rewrite([]byte("+OK\r\n")) // nothing is made of the reply
	}
	return x.Raw
}

// kill disconnects other clients, if the upstream lets this one.
func (s *Session) kill(ctx context.Context, args [][]byte) {
	if !s.ensureConn(ctx) || s.idle(ctx) != nil {
		return
	}
	s.publishInfo() // the list shows it
	t := s.translator(ctx, s.opening(ctx))
	reply, last, err := t.KillOthers(ctx, args)
	if err != nil {
		s.replyErr(err)
		return
	}
	s.replyLast(reply, last)
}

// connTo returns a connection to a node, on which a question of the client can be asked; nil: there is none. leave gives
// it back.
func (s *Session) connTo(ctx context.Context, pool *upstream.Pool) (at *upstream.Conn, leave func()) {
	if at = s.conn(); at.Pool() == pool {
		return at, func() {}
	}
	at, err := pool.Shared(ctx, s.id, upstream.MainClass, s.hint)
	if err != nil {
		return nil, nil
	}
	return at, func() { upstream.Return(at) }
}

// killAll disconnects clients. self reports whether the session's own is one of them; it is disconnected after the
// reply.
func (s *Session) killAll(matching []*clients.Client) (self bool) {
	for _, c := range matching {
		if c != s.client {
			c.Kill()
			continue
		}
		self = true
		s.d.clients.Remove(c)
		s.end.Now(clients.WhyKilled)
	}
	return self
}

// accepts returns a function that asks the upstream, out of the session's order, whether it
// accepts a command of the client's.
func (s *Session) accepts(ctx context.Context) func(args [][]byte) bool {
	return func(args [][]byte) bool {
		a := s.asker()
		return a.Accepts(ctx, resp.AppendCommand(nil, args...))
	}
}
