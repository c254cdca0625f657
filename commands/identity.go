package commands

import (
	"bytes"
	"context"
	"slices"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/clients"
	"github.com/lockproxy/lockproxy/commands/relay"
)

// mustStayPinned reports whether the session must keep its pinned connection in every mode. In a Cluster it may have
// none all the same, if another node was needed and could not be reached.
func (s *Session) mustStayPinned() bool {
	return s.pinnedForLife || s.watching || s.client.Referenced() && s.pinned != nil && s.pinned.Alive()
}

// auth changes who the client is, if the upstream agrees.
func (s *Session) auth(ctx context.Context, q request) {
	if id, ok := clients.ParseAuth(s.id, q.args); ok {
		s.changeIdentity(ctx, id, q.raw, q.raw)
		return
	}
	s.runPinnedForLife(ctx, q)
}

// passthroughIdentity notes the identity that an AUTH or HELLO has given the client on its passthrough connection.
func (s *Session) passthroughIdentity(id upstream.Identity) {
	if id.User == s.id.User && id.Secret == s.id.Secret {
		return
	}
	s.id.User, s.id.Secret = id.User, id.Secret
	s.locks.ForgetAdmin()
	s.pinned.SetLogin(s.id)
	s.returnShared()
}

// runPinnedForLife sends a command whose effect on the connection is not known here: the client gets a connection of its
// own, and keeps it. If it has one already nothing is waited for: a client may send NO-EVICT OFF while it does not read
// its replies.
func (s *Session) runPinnedForLife(ctx context.Context, q request) {
	if s.tryPin() || s.pin(ctx) {
		s.keepPinned()
		s.addTranslated(ctx, q)
	}
}

// runUnknownSub sends a subcommand of CLIENT that is not known here. The client keeps the connection that this may have
// changed, unless the upstream does not know it either, as with MAINT_NOTIFICATIONS, which redis-py 8 sends first of all.
func (s *Session) runUnknownSub(ctx context.Context, q request) {
	if reply, _ := s.askPinned(ctx, q.raw); reply != nil && !bytes.HasPrefix(bytes.ToLower(reply), []byte("-err unknown subcommand")) {
		s.keepPinned()
	}
}

// changesUsersHere reports whether changeUsers handles a command that changes users. In other states of the session it
// is an ordinary command.
func (s *Session) changesUsersHere() bool {
	return s.mode != onPassthrough && !s.tx.In && !s.inCluster()
}

// changeUsers sends a command that may change which users the upstream lets in. A command that may remove the client's
// own user goes on a connection of its own, which the client keeps: if the upstream closes that, the client is
// disconnected.
func (s *Session) changeUsers(ctx context.Context, q request) {
	if resp.Is(q.args[1], "LOAD") || resp.Is(q.args[1], "DELUSER") {
		if !s.pin(ctx) {
			return
		}
		s.keepPinned()
	} else if !s.ensureConn(ctx) {
		return
	}
	s.flushBatches()
	c := s.conn()
	s.replies.ExpectObserved(c, func(begin []byte) {
		if begin[0] != '-' { // a refused command must not make all others ask again
			s.up.Revalidate()
			s.d.acl.Invalidate()
		}
	}, nil)
	s.replies.Send(c, q.raw, 1)
}

// hello changes the protocol, and maybe who the client is.
func (s *Session) hello(ctx context.Context, q request) {
	h, ok := clients.ParseHello(q.args)
	switch {
	case h.Proto == 0:
		s.runTranslated(ctx, q) // it changes nothing
		return
	case !ok, h.Name != nil && !clients.ValidName(h.Name), h.Auth && len(h.User) == 0:
		s.runPinnedForLife(ctx, q) // Redis 7.0 authenticates before it looks at the rest
		if h.Name != nil {
			s.askName(ctx)
		}
		return
	}
	if s.changeIdentity(ctx, h.Identity(s.id), h.Nameless(), q.raw) && h.Name != nil {
		s.name = append([]byte(nil), h.Name...)
	}
}

// askName asks for the client's name on its pinned connection, after a HELLO that may have been refused: Redis 7.0
// applies options one by one, up to the wrong one, later versions and Valkey all or none.
func (s *Session) askName(ctx context.Context) {
	if s.pinned == nil || s.idle(ctx) != nil {
		return
	}
	reply, err := s.replies.Ask(ctx, s.pinned, resp.AppendCommand(nil, "CLIENT", "GETNAME"))
	if _, refused := resp.Error(reply); err == nil && !refused {
		s.name, s.unshown.changed = bytes.Clone(resp.Bulk(reply)), true // empty: none
	}
}

// changeIdentity moves the session to another identity, if the upstream, asked with
// shared (or, on a connection that is the client's own, with raw), agrees. The
// client gets the upstream's reply.
func (s *Session) changeIdentity(ctx context.Context, id upstream.Identity, shared, raw []byte) bool {
	if s.idle(ctx) != nil {
		return false
	}
	if s.mustStayPinned() && s.pinned != nil {
		return s.changeIdentityPinned(ctx, id, raw)
	}
	pool := s.up.Pool()
	c, err := pool.Shared(ctx, id, upstream.MainClass, s.hint)
	if err != nil {
		s.replyErr(err)
		return false
	}
	moved, refused := s.moveToIdentity(ctx, c, id, shared)
	if refused {
		s.up.Forget(id) // connections opened before a password changed must not live on
	}
	if moved {
		s.changeSubscriberIdentity(ctx)
	}
	return moved
}

// moveToIdentity moves the session to c, a borrowed connection of another identity, if the
// upstream, asked with command on c, agrees. The client gets its reply.
func (s *Session) moveToIdentity(ctx context.Context, c *upstream.Conn, id upstream.Identity, command []byte) (moved, refused bool) {
	reply, err := s.replies.Ask(ctx, c, command)
	if err != nil {
		upstream.Return(c)
		s.replyErr(err)
		return false, false
	}
	if _, refused = resp.Error(reply); refused {
		upstream.Return(c)
	} else {
		s.useIdentity(c, id)
	}
	s.replyIdentity(reply) // after what is still answered in the protocol before
	return !refused, refused
}

// changeSubscriberIdentity makes the connections that have subscriptions the user's, too.
func (s *Session) changeSubscriberIdentity(ctx context.Context) {
	if s.feed.Authenticate(ctx, s.id) != nil {
		s.closeAfterReplies()
	}
}

// replyIdentity gives the client the reply to its HELLO, AUTH or SELECT.
func (s *Session) replyIdentity(reply []byte) {
	reply, _ = s.rewriteHello(reply)
	s.replies.Local(reply)
}

// useIdentity goes on as another identity, on its shared connection.
func (s *Session) useIdentity(c *upstream.Conn, id upstream.Identity) {
	s.closePinned()
	s.returnShared()
	s.shared[upstream.MainClass] = c
	s.locks.ForgetAdmin()
	s.setIdentity(id)
}

// setIdentity notes who the client is from now on, and in which protocol.
func (s *Session) setIdentity(id upstream.Identity) {
	s.id = id
	s.feed.SetIdentity(id)
}

func (s *Session) changeIdentityPinned(ctx context.Context, id upstream.Identity, raw []byte) bool {
	if s.pinned == nil && !s.pin(ctx) { // a Cluster's node was lost, another is to do
		return false
	}
	reply, err := s.replies.Ask(ctx, s.pinned, raw)
	if err != nil {
		s.replyErr(err)
		return false
	}
	s.replyIdentity(reply)
	if _, refused := resp.Error(reply); refused {
		return false
	}
	if id.User != s.id.User || id.Secret != s.id.Secret {
		s.pinned.SetLogin(id)
	}
	s.locks.ForgetAdmin()
	s.setIdentity(id)
	s.returnShared()
	s.changeSubscriberIdentity(ctx)
	return true
}

func (s *Session) selectDB(ctx context.Context, q request) {
	db, ok := clients.ParseSelect(q.args)
	if !ok {
		s.runForward(ctx, q.raw)
		return
	}
	if s.idle(ctx) != nil {
		return
	}
	id := s.id
	id.DB = db
	if s.mustStayPinned() && s.pinned != nil {
		s.changeIdentityPinned(ctx, id, q.raw)
		return
	}
	c, err := s.up.Pool().Shared(ctx, id, upstream.MainClass, s.hint)
	if err != nil {
		s.replyOrDisconnect(err)
		return
	}
	s.moveToIdentity(ctx, c, id, q.raw) // c is in that database, but the user may not be allowed to ask for it
}

// reset is RESET: it makes the session that of a new client.
func (s *Session) reset(ctx context.Context, q request) {
	if len(q.args) > 1 {
		s.runForward(ctx, q.raw) // refused
		return
	}
	if s.mode == onPassthrough {
		m := &relay.Barrier{Visible: true, Matches: func(reply []byte) bool { return string(reply) == "+RESET\r\n" }}
		if s.pass.mayNotAnswer { // it may not be answered, but what follows it is
			var question []byte
			question, m = relay.NewBarrier(s.pinned)
			q.raw = slices.Concat(q.raw, question)
		}
		if !s.sync(ctx, q.raw, m) {
			s.out.Abort()
			return
		}
	} else {
		if s.idle(ctx) != nil {
			return
		}
		s.feed.Close()
	}
	counted := s.mode != onPassthrough
	s.closePinned()
	s.returnShared()
	s.name, s.id = nil, s.up.DefaultIdentity()
	s.watching, s.pinnedForLife, s.pass = false, false, passthrough{}
	s.adoptedTx.Forget()
	s.client.Unreference()
	if s.router != nil {
		s.router.ForgetTracking()
	}
	s.locks.Reset()
	if counted {
		s.replies.Local([]byte("+RESET\r\n"))
	}
}

func (s *Session) quit(ctx context.Context, _ request) {
	s.end.Because(clients.WhyQuit)
	s.closing = true
	if s.idle(ctx) != nil {
		return
	}
	s.replies.Local([]byte("+OK\r\n"))
	s.replies.Close()
}

// onClient returns the run of a CLIENT subcommand, which in a Cluster may concern all nodes.
func onClient(run func(*Session, context.Context, request)) func(*Session, context.Context, request) {
	return func(s *Session, ctx context.Context, q request) {
		if !s.inCluster() || !s.clientInCluster(ctx, q) {
			run(s, ctx, q)
		}
	}
}

func (s *Session) forwardClient(ctx context.Context, q request) { s.runForward(ctx, q.raw) }

// setInfo is CLIENT SETINFO.
func (s *Session) setInfo(ctx context.Context, q request) {
	s.library.Note(q.args)
	s.unshown.changed = true
	s.runForward(ctx, q.raw)
}

// pause sends CLIENT PAUSE or UNPAUSE, and notes it if the upstream agrees.
func (s *Session) pause(ctx context.Context, q request) {
	if reply, _ := s.askPinned(ctx, q.raw); string(reply) == "+OK\r\n" {
		s.d.pause.Note(q.args)
	}
}

// setName is CLIENT SETNAME. A connection that others share has no name: the proxy keeps it.
func (s *Session) setName(ctx context.Context, q request) {
	name, ok := clients.ParseSetName(q.args)
	if s.mustStayPinned() {
		if ok {
			s.name = append([]byte{}, name...)
		}
		if !s.inCluster() || s.pin(ctx) {
			s.runForward(ctx, q.raw)
		}
		return
	}
	if !ok {
		s.runForward(ctx, q.raw)
		return
	}
	if !s.ensureShared(ctx) {
		return
	}
	if s.shared[s.connClass].NeedsAuth() {
		s.runForward(ctx, q.raw)
		return
	}
	if s.idle(ctx) != nil || !s.mayName(ctx, resp.AppendCommand(nil, "CLIENT", "SETNAME", "")) {
		return
	}
	s.closePinned() // the next one will have the name
	s.name = append([]byte{}, name...)
	s.replies.Local([]byte("+OK\r\n"))
}

// mayName reports whether the client may run CLIENT SETNAME or GETNAME: the upstream is asked with command, which leaves
// the shared connection without a name. If it refuses, the client gets its reply.
func (s *Session) mayName(ctx context.Context, command []byte) bool {
	reply, err := s.replies.Ask(ctx, s.shared[s.connClass], command)
	if _, refused := resp.Error(reply); err == nil && !refused {
		return true
	}
	s.answer(reply, err)
	return false
}

// getName is CLIENT GETNAME.
func (s *Session) getName(ctx context.Context, q request) {
	if len(q.args) != 2 || s.mustStayPinned() && !s.inCluster() {
		s.runForward(ctx, q.raw)
		return
	}
	if !s.ensureShared(ctx) {
		return
	}
	switch {
	case s.shared[s.connClass].NeedsAuth():
		s.runForward(ctx, q.raw)
	case s.idle(ctx) != nil || !s.mayName(ctx, q.raw):
	case len(s.name) > 0:
		s.replies.Local(resp.AppendBulk(nil, s.name))
	default:
		s.replies.Local(resp.AppendNullBulk(nil, s.id.Proto))
	}
}
