package commands

import (
	"bytes"
	"cmp"
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/commands/relay"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
)

// An exchange is a command that speaks of clients by their ids, or lists them: what
// goes upstream in its place, and what becomes of the reply. The upstream says who
// may, and what is wrong with the arguments.
type translation struct {
	raw     []byte
	rewrite relay.Rewrite
	reply   string // how a reply to it begins that is no error: one of these bytes
}

// noClientID is an id that no client of an upstream has.
const noClientID = math.MaxInt64

// noAddress is an address that no client of an upstream has.
var noAddress = []byte("-")

// namesClientIDs says that a CLIENT command names clients by their ids, or lists
// them.
func namesClientIDs(args [][]byte) bool {
	if len(args) < 2 {
		return false
	}
	for _, sub := range []string{"ID", "INFO", "LIST", "KILL", "UNBLOCK", "GETREDIR", "TRACKINGINFO"} {
		if resp.Is(args[1], sub) {
			return true
		}
	}
	return resp.Is(args[1], "TRACKING") && redirectArg(args) > 0
}

// A reach gives the number, at the node that at leads to, of a connection on which
// messages reach the client c; 0 if there is none.
type upstreamIDFunc func(c *Session, at *upstream.Conn) int64

// openUpstreamID opens a connection for a client that has none of its own.
func openUpstreamID(ctx context.Context) upstreamIDFunc {
	return func(c *Session, at *upstream.Conn) int64 { return c.ensureUpstreamID(ctx, at) }
}

// translate translates a command that is to be sent on the current connection; ok is
// false for one that goes upstream as it is.
func (s *Session) translate(ctx context.Context, reach upstreamIDFunc, raw []byte, args [][]byte) (x translation, ok bool) {
	x = translation{raw: raw}
	if resp.Is(args[0], "HELLO") {
		x.rewrite, x.reply = s.rewriteHello, "*%"
		return x, true
	}
	if !resp.Is(args[0], "CLIENT") || !namesClientIDs(args) {
		return x, false
	}
	switch sub := args[1]; {
	case resp.Is(sub, "ID"):
		x.rewrite, x.reply = s.rewriteID, ":"
	case resp.Is(sub, "INFO"):
		x.rewrite, x.reply = s.rewriteInfo(raw, args), "$="
	case resp.Is(sub, "LIST"):
		x = s.translateList(ctx, raw, args)
	case resp.Is(sub, "KILL"):
		return s.translateKill(ctx, args), true
	case resp.Is(sub, "UNBLOCK"):
		x.raw, x.rewrite, x.reply = s.translateUnblock(raw, args), unchanged, ":"
	case resp.Is(sub, "TRACKING"):
		x = s.translateTracking(reach, raw, args)
	case resp.Is(sub, "GETREDIR"):
		x.rewrite, x.reply = s.rewriteGetRedir(s.conn()), ":"
	case resp.Is(sub, "TRACKINGINFO"):
		x.rewrite, x.reply = s.rewriteTrackingInfo(s.conn()), "*%"
	}
	x.rewrite = skipErrors(x.rewrite)
	return x, true
}

const queuedReply = "+QUEUED\r\n"

// skipErrors leaves errors alone, and the answer to a command that was queued.
func skipErrors(e relay.Rewrite) relay.Rewrite {
	return func(reply []byte) ([]byte, bool) {
		if _, refused := resp.Error(reply); refused || string(reply) == queuedReply {
			return reply, false
		}
		return e(reply)
	}
}

func unchanged(reply []byte) ([]byte, bool) { return reply, false }

// rewriteHello makes the id in a HELLO's reply that of the client.
func (s *Session) rewriteHello(reply []byte) ([]byte, bool) {
	reply = standaloneHello(reply)
	_, from, to, ok := resp.IntAfter(reply, "id")
	if !ok {
		return reply, false
	}
	return replaceInt(reply, from, to, s.info.ID), false
}

func (s *Session) rewriteID(reply []byte) ([]byte, bool) {
	return resp.AppendInt(nil, s.info.ID), false
}

// rewriteInfo makes CLIENT INFO's row the client's.
func (s *Session) rewriteInfo(raw []byte, args [][]byte) relay.Rewrite {
	sizes, at := sizesOf(raw, args), s.conn()
	return func(reply []byte) ([]byte, bool) {
		l, ok := s.d.clients.listing(reply, at, nil)
		if !ok {
			return reply, false
		}
		r := l.entryOf(s, time.Now())
		if r == nil { // its connection is about to end
			return reply, false
		}
		return appendTextLike(nil, reply, r.with(sizes).appendTo(nil)), false
	}
}

// sizesOf are the fields that tell how long the command is that asks.
func sizesOf(raw []byte, args [][]byte) map[string]string {
	n := 0
	for _, a := range args {
		n += len(a)
	}
	return map[string]string{"qbuf": strconv.Itoa(len(raw)), "argv-mem": strconv.Itoa(n)}
}

// translateList asks the upstream for all of its connections, whichever of the clients
// are wanted. Arguments that it is to refuse, or that are not known here, it gets as
// they are.
func (s *Session) translateList(ctx context.Context, raw []byte, args [][]byte) translation {
	sizes, at := sizesOf(raw, args), s.conn()
	w := s.parseList(ctx, args)
	var expected map[int64]*Session
	if w.accepted {
		raw = listAll
		expected = s.d.clients.byUpstream(at)
	}
	return translation{raw: raw, reply: "$=", rewrite: func(reply []byte) ([]byte, bool) {
		if !w.accepted {
			return resp.AppendError(nil, "ERR syntax error"), false
		}
		l, ok := s.d.clients.listing(reply, at, expected)
		if !ok {
			return reply, false
		}
		var text []byte
		now := time.Now()
		for _, c := range s.d.clients.byIDs(w.order) {
			r := l.entryOf(c, now)
			if r == nil || !w.matches(r, c == s) {
				continue
			}
			if c == s {
				r = r.with(sizes)
			}
			text = r.appendTo(text)
		}
		return appendTextLike(nil, reply, text), false
	}}
}

// A wanted is what a CLIENT LIST asks for.
type listFilter struct {
	clientFilter
	order    []int64 // in which they are listed, and as often; nil: as they came
	accepted bool    // the upstream takes it, and it is known here
}

// needsFilterProbe says that the upstream must be asked how it takes a CLIENT LIST or KILL
// before that is sent.
func needsFilterProbe(args [][]byte) bool {
	switch {
	case len(args) < 2:
		return false
	case resp.Is(args[1], "LIST"):
		_, ok := parseFilter(args[2:], false)
		return ok && !isPlainList(args)
	case resp.Is(args[1], "KILL"):
		k, ok := parseKill(args)
		return ok && k.repeated
	}
	return false
}

// parseList reads a CLIENT LIST. The upstream is asked about one that not all take in the
// same way.
func (s *Session) parseList(ctx context.Context, args [][]byte) (w listFilter) {
	if w.clientFilter, w.accepted = parseFilter(args[2:], false); w.accepted && !isPlainList(args) {
		w.accepted = s.isAccepted(ctx, args)
	}
	if w.order = w.lastIDs; w.accepted && len(w.order) > 1 && s.combinesFilters(ctx, args) {
		w.order = nil
	}
	return w
}

// isPlainList says that a CLIENT LIST means the same at every upstream.
func isPlainList(args [][]byte) bool {
	if len(args) == 2 {
		return true
	}
	if len(args) != 4 {
		return false
	}
	_, id := parseID(args[3])
	return resp.Is(args[2], "ID") && id || resp.Is(args[2], "TYPE") && clientTypeName(string(args[3])) != "" && !resp.Is(args[3], "PRIMARY")
}

// byIDs are the clients with these ids, in this order, or without ids all.
func (c *clientRegistry) byIDs(ids []int64) (chosen []*Session) {
	if ids == nil {
		return c.all()
	}
	for _, id := range ids {
		if s := c.find(id); s != nil {
			chosen = append(chosen, s)
		}
	}
	return chosen
}

// translateUnblock is a CLIENT UNBLOCK with the upstream's id in place of ours.
func (s *Session) translateUnblock(raw []byte, args [][]byte) []byte {
	c, ok := s.unblockTarget(args)
	switch {
	case !ok:
		return raw
	case c == nil:
		return withArg(args, 2, noClientID)
	}
	return withArg(args, 2, cmp.Or(c.liveUpstreamID(s.conn()), noClientID))
}

// unblockTarget is the client that a CLIENT UNBLOCK means, which may be nil. It is false
// if the upstream is to refuse the command.
func (s *Session) unblockTarget(args [][]byte) (c *Session, ok bool) {
	if len(args) < 3 {
		return nil, false
	}
	id, err := strconv.ParseInt(string(args[2]), 10, 64)
	return s.d.clients.find(id), err == nil
}

// runUnblock sends CLIENT UNBLOCK to the node where the other client is blocked.
func (s *Session) runUnblock(ctx context.Context, raw []byte, args [][]byte) {
	if !s.ensureConn(ctx) {
		return
	}
	c, _ := s.unblockTarget(args)
	if c == nil {
		s.addTranslated(ctx, raw, args)
		return
	}
	pool := c.pinnedNode()
	if pool == nil || pool == s.conn().Pool() {
		s.addTranslated(ctx, raw, args)
		return
	}
	if s.idle(ctx) != nil {
		return
	}
	reply := []byte(":0\r\n")
	if at, leave := s.connTo(ctx, pool); at != nil {
		defer leave()
		var err error
		if reply, err = s.ask(ctx, at, withArg(args, 2, cmp.Or(c.liveUpstreamID(at), noClientID))); err != nil {
			s.replyErr(err)
			return
		}
	}
	s.replies.Local(reply)
}

// withArg is a command with a number as one of its arguments.
func withArg(args [][]byte, i int, n int64) []byte {
	args = slices.Clone(args)
	args[i] = strconv.AppendInt(nil, n, 10)
	return resp.AppendCommand(nil, args...)
}

// translateTracking translates the id of a CLIENT TRACKING with REDIRECT.
func (s *Session) translateTracking(reach upstreamIDFunc, raw []byte, args [][]byte) translation {
	i := redirectArg(args)
	id, err := strconv.ParseInt(string(args[i]), 10, 64)
	if err != nil {
		return translation{raw: raw, rewrite: unchanged, reply: "+"}
	}
	up := int64(noClientID)
	if to := s.d.clients.find(id); to != nil {
		up = cmp.Or(reach(to, s.conn()), noClientID)
	}
	s.pass.redirectsInvalidations = true
	s.replies.RewritePushes(s.rewriteRedirBroken)
	return translation{raw: withArg(args, i, up), reply: "+", rewrite: func(reply []byte) ([]byte, bool) {
		s.info.mu.Lock()
		s.info.redirect = trackingRedirect{id, up}
		s.info.mu.Unlock()
		return reply, false
	}}
}

// redirectArg is which argument of CLIENT TRACKING is the id to redirect to; 0 if
// none is.
func redirectArg(args [][]byte) int {
	for i := 3; i+1 < len(args); i++ {
		switch {
		case resp.Is(args[i], "REDIRECT"):
			return i + 1
		case resp.Is(args[i], "PREFIX"):
			i++
		}
	}
	return 0
}

// rewriteGetRedir makes the id in CLIENT GETREDIR's reply ours.
func (s *Session) rewriteGetRedir(at *upstream.Conn) relay.Rewrite {
	return func(reply []byte) ([]byte, bool) {
		n, err := strconv.ParseInt(string(reply[1:len(reply)-2]), 10, 64)
		if err != nil {
			return reply, false
		}
		return resp.AppendInt(nil, s.redirectedTo(n, at)), false
	}
}

// redirBrokenPush begins the push that the client is gone to which invalidations go. What
// follows is its id.
const redirBrokenPush = ">2\r\n$21\r\ntracking-redir-broken\r\n:"

// rewriteRedirBroken makes the id in such a push ours.
func (s *Session) rewriteRedirBroken(at *upstream.Conn, push []byte) []byte {
	if !bytes.HasPrefix(push, []byte(redirBrokenPush)) {
		return push
	}
	n, from, to, ok := resp.IntAfter(push, "tracking-redir-broken")
	if !ok {
		return push
	}
	return replaceInt(push, from, to, s.redirectedTo(n, at))
}

func (s *Session) rewriteTrackingInfo(at *upstream.Conn) relay.Rewrite {
	return func(reply []byte) ([]byte, bool) {
		n, from, to, ok := resp.IntAfter(reply, "redirect")
		if !ok {
			return reply, false
		}
		return replaceInt(reply, from, to, s.redirectedTo(n, at)), false
	}
}

// replaceInt is a reply with another number from one byte to another.
func replaceInt(reply []byte, from, to int, n int64) []byte {
	return slices.Concat(reply[:from], strconv.AppendInt(nil, n, 10), reply[to:])
}

// redirectedTo is our id of the client that the upstream calls n, to which the
// session's invalidations go.
func (s *Session) redirectedTo(n int64, at *upstream.Conn) int64 {
	l := &listing{owners: s.d.clients.byUpstream(at)}
	s.info.mu.Lock()
	defer s.info.mu.Unlock()
	return l.redirect(n, s.info.redirect)
}

// runTranslated sends a command, translated, on whatever connection the session is on.
func (s *Session) runTranslated(ctx context.Context, raw []byte, args [][]byte) {
	if s.ensureConn(ctx) {
		s.addTranslated(ctx, raw, args)
	}
}

// addTranslated sends a command on the current connection. For the reply to one that
// must be translated it waits: what becomes of it may take long, and others' replies
// come on the same connection.
func (s *Session) addTranslated(ctx context.Context, raw []byte, args [][]byte) {
	x, ok := s.translate(ctx, openUpstreamID(ctx), raw, args)
	if !ok {
		s.enqueue(raw)
		return
	}
	s.publishInfo() // the list shows it
	if s.flushBatches(); s.idle(ctx) != nil {
		return
	}
	reply, err := s.ask(ctx, s.conn(), x.raw)
	if err != nil {
		s.replyErr(err)
		return
	}
	s.replyLast(x.rewrite(reply))
}

// replyLast gives the client a reply, which may be its last.
func (s *Session) replyLast(reply []byte, last bool) {
	s.replies.Local(reply)
	if last {
		s.replies.Close()
	}
}

// queueTranslated sends a command, translated, inside MULTI. It is always true.
func (s *Session) queueTranslated(raw []byte, args [][]byte) bool {
	return s.addQueued(s.clientCtx, raw, args)
}

// queueFiltered is queueTranslated of a CLIENT LIST or KILL about which the upstream must
// be asked; false: it need not be.
func (s *Session) queueFiltered(ctx context.Context, raw []byte, args [][]byte) bool {
	return needsFilterProbe(args) && s.addQueued(ctx, raw, args)
}

func (s *Session) addQueued(ctx context.Context, raw []byte, args [][]byte) bool {
	s.tx.add(s.d.rows.lookup(args).changesOf(s, args))
	x, ok := s.translate(ctx, (*Session).liveUpstreamID, raw, args)
	if !ok {
		s.keepQueued(raw)
		return s.enqueue(raw)
	}
	s.tx.rewrites = append(s.tx.rewrites, queuedRewrite{s.tx.length - 1, x.rewrite})
	s.keepQueued(x.raw)
	s.publishInfo()
	s.flushBatches()
	s.replies.ExpectRewritten(s.pinned, x.rewrite)
	s.send(s.pinned, x.raw, 1)
	return true
}

// runRaw sends a command, translated, on a connection whose replies are not counted,
// and waits for the reply.
func (s *Session) runRaw(ctx context.Context, raw []byte, args [][]byte) {
	if !s.awaitReplies(ctx) {
		s.out.Abort()
		return
	}
	x, ok := s.translate(ctx, openUpstreamID(ctx), raw, args)
	c := s.d.rows.lookup(args)
	switch {
	case resp.Is(args[0], "AUTH"), resp.Is(args[0], "SELECT"), c.has(beginsTx):
		x.rewrite, x.reply = unchanged, "+"
	case !ok:
		s.enqueue(raw)
		return
	}
	s.publishInfo()
	var reply []byte
	m := &relay.Barrier{Matches: func(r []byte) bool {
		if !x.answers(r) {
			return false
		}
		reply = bytes.Clone(r)
		return true
	}}
	if !s.sync(ctx, x.raw, m) {
		s.out.Abort()
		return
	}
	if _, refused := resp.Error(reply); !refused {
		s.applyNow(c.changesOf(s, args))
		s.tx.in = c.has(beginsTx)
	}
	s.replyLast(x.rewrite(reply))
}

// applyNow takes over what a command on a raw connection has changed.
func (s *Session) applyNow(c changes) {
	if c.id != nil {
		s.passthroughIdentity(*c.id)
		s.id.Proto = c.id.Proto
	}
	if c.db != nil {
		s.id.DB = *c.db
	}
	s.infoChanged = true
}

// translateBlind is a command whose reply cannot be found, as it is sent: it must not name other
// connections by numbers that are the proxy's. CLIENT KILL kills nobody, since whether
// it may is not heard.
func (s *Session) translateBlind(raw []byte, args [][]byte) []byte {
	switch {
	case resp.Is(args[1], "LIST"):
		return raw
	case resp.Is(args[1], "KILL"):
		return harmlessKill(args)
	}
	x, _ := s.translate(s.clientCtx, (*Session).liveUpstreamID, raw, args)
	if resp.Is(args[1], "TRACKING") {
		s.setStepping()
		x.rewrite([]byte("+OK\r\n")) // nothing is made of the reply
	}
	return x.raw
}

// answers says that a reply is one to the command, and no message.
func (x *translation) answers(reply []byte) bool {
	switch kind := reply[0]; {
	case kind == '-':
		return true
	case strings.IndexByte(x.reply, kind) < 0:
		return false
	case kind == '+':
		return string(reply) == "+OK\r\n"
	case kind == '*':
		_, first, _ := bytes.Cut(reply, []byte("\r\n"))
		return bytes.HasPrefix(first, []byte("$6\r\nserver\r\n")) || bytes.HasPrefix(first, []byte("$5\r\nflags\r\n"))
	}
	return true
}

// askAll sends commands whose replies nobody gets, and returns when they have come.
func (s *Session) askAll(ctx context.Context, c *upstream.Conn, commands [][]byte) {
	if len(commands) == 0 {
		return
	}
	done, left := make(chan struct{}), len(commands)
	for _, raw := range commands {
		s.replies.ExpectCaptured(c, func([]byte) {
			if left--; left == 0 {
				close(done)
			}
		})
		s.send(c, raw, 1)
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
}
