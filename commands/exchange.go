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

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
)

// An exchange is a command that speaks of clients by their ids, or lists them: what
// goes upstream in its place, and what becomes of the reply. The upstream says who
// may, and what is wrong with the arguments.
type exchange struct {
	raw   []byte
	edit  edit
	reply string // how a reply to it begins that is no error: one of these bytes
}

// nobody is an id that no client of an upstream has.
const nobody = math.MaxInt64

// noAddress is an address that no client of an upstream has.
var noAddress = []byte("-")

// speaksOfClients says that a CLIENT command names clients by their ids, or lists
// them.
func speaksOfClients(args [][]byte) bool {
	if len(args) < 2 {
		return false
	}
	for _, sub := range []string{"ID", "INFO", "LIST", "KILL", "UNBLOCK", "GETREDIR", "TRACKINGINFO"} {
		if is(args[1], sub) {
			return true
		}
	}
	return is(args[1], "TRACKING") && redirectArg(args) > 0
}

// A reach gives the number, at the node that at leads to, of a connection on which
// messages reach the client c; 0 if there is none.
type reach func(c *Session, at *upstream.Conn) int64

// reaching opens a connection for a client that has none of its own.
func reaching(ctx context.Context) reach {
	return func(c *Session, at *upstream.Conn) int64 { return c.reachableID(ctx, at) }
}

// exchange translates a command that is to be sent on the current connection; ok is
// false for one that goes upstream as it is.
func (s *Session) exchange(ctx context.Context, reach reach, raw []byte, args [][]byte) (x exchange, ok bool) {
	x = exchange{raw: raw}
	if kindOf(args[0]) == hello {
		x.edit, x.reply = s.editHello, "*%"
		return x, true
	}
	if kindOf(args[0]) != client || !speaksOfClients(args) {
		return x, false
	}
	switch sub := args[1]; {
	case is(sub, "ID"):
		x.edit, x.reply = s.editID, ":"
	case is(sub, "INFO"):
		x.edit, x.reply = s.editInfo(raw, args), "$="
	case is(sub, "LIST"):
		x = s.exchangeList(ctx, raw, args)
	case is(sub, "KILL"):
		return s.exchangeKill(ctx, args), true
	case is(sub, "UNBLOCK"):
		x.raw, x.edit, x.reply = s.unblock(raw, args), asItIs, ":"
	case is(sub, "TRACKING"):
		x = s.exchangeTracking(reach, raw, args)
	case is(sub, "GETREDIR"):
		x.edit, x.reply = s.editRedirect(s.conn()), ":"
	case is(sub, "TRACKINGINFO"):
		x.edit, x.reply = s.editTrackingInfo(s.conn()), "*%"
	}
	x.edit = answersOnly(x.edit)
	return x, true
}

const queuedReply = "+QUEUED\r\n"

// answersOnly leaves errors alone, and the answer to a command that was queued.
func answersOnly(e edit) edit {
	return func(reply []byte) ([]byte, bool) {
		if _, refused := resp.Error(reply); refused || string(reply) == queuedReply {
			return reply, false
		}
		return e(reply)
	}
}

func asItIs(reply []byte) ([]byte, bool) { return reply, false }

// editHello makes the id in a HELLO's reply that of the client.
func (s *Session) editHello(reply []byte) ([]byte, bool) {
	reply = standaloneHello(reply)
	_, from, to, ok := resp.IntAfter(reply, "id")
	if !ok {
		return reply, false
	}
	return replace(reply, from, to, s.profile.ID), false
}

func (s *Session) editID(reply []byte) ([]byte, bool) {
	return resp.AppendInt(nil, s.profile.ID), false
}

// editInfo makes CLIENT INFO's row the client's.
func (s *Session) editInfo(raw []byte, args [][]byte) edit {
	sizes, at := sizesOf(raw, args), s.conn()
	return func(reply []byte) ([]byte, bool) {
		l, ok := s.d.clients.listing(reply, at, nil)
		if !ok {
			return reply, false
		}
		r := l.of(s, time.Now())
		if r == nil { // its connection is about to end
			return reply, false
		}
		return appendText(nil, reply, r.with(sizes).appendTo(nil)), false
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

// exchangeList asks the upstream for all of its connections, whichever of the clients
// are wanted. Arguments that it is to refuse, or that are not known here, it gets as
// they are.
func (s *Session) exchangeList(ctx context.Context, raw []byte, args [][]byte) exchange {
	sizes, at := sizesOf(raw, args), s.conn()
	w := s.parseList(ctx, args)
	var expected map[int64]*Session
	if w.taken {
		raw = wholeList
		expected = s.d.clients.byUpstream(at)
	}
	return exchange{raw: raw, reply: "$=", edit: func(reply []byte) ([]byte, bool) {
		if !w.taken {
			return resp.AppendError(nil, "ERR syntax error"), false
		}
		l, ok := s.d.clients.listing(reply, at, expected)
		if !ok {
			return reply, false
		}
		var text []byte
		now := time.Now()
		for _, c := range s.d.clients.chosen(w.order) {
			r := l.of(c, now)
			if r == nil || !w.means(r, c == s) {
				continue
			}
			if c == s {
				r = r.with(sizes)
			}
			text = r.appendTo(text)
		}
		return appendText(nil, reply, text), false
	}}
}

// A wanted is what a CLIENT LIST asks for.
type wanted struct {
	filter
	order []int64 // in which they are listed, and as often; nil: as they came
	taken bool    // the upstream takes it, and it is known here
}

// asksOfFilters says that the upstream must be asked how it takes a CLIENT LIST or KILL
// before that is sent.
func asksOfFilters(args [][]byte) bool {
	switch {
	case len(args) < 2:
		return false
	case is(args[1], "LIST"):
		_, ok := parseFilter(args[2:], false)
		return ok && !isPlainList(args)
	case is(args[1], "KILL"):
		k, ok := parseKill(args)
		return ok && k.repeated
	}
	return false
}

// parseList reads a CLIENT LIST. The upstream is asked about one that not all take in the
// same way.
func (s *Session) parseList(ctx context.Context, args [][]byte) (w wanted) {
	if w.filter, w.taken = parseFilter(args[2:], false); w.taken && !isPlainList(args) {
		w.taken = s.isTaken(ctx, args)
	}
	if w.order = w.lastIDs; w.taken && len(w.order) > 1 && s.combinesFilters(ctx, args) {
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
	return is(args[2], "ID") && id || is(args[2], "TYPE") && className(string(args[3])) != "" && !is(args[3], "PRIMARY")
}

// chosen are the clients with these ids, in this order, or without ids all.
func (c *clients) chosen(ids []int64) (chosen []*Session) {
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

// unblock is a CLIENT UNBLOCK with the upstream's id in place of ours.
func (s *Session) unblock(raw []byte, args [][]byte) []byte {
	c, ok := s.blockedOne(args)
	switch {
	case !ok:
		return raw
	case c == nil:
		return withArg(args, 2, nobody)
	}
	return withArg(args, 2, cmp.Or(c.namedAt(s.conn()), nobody))
}

// blockedOne is the client that a CLIENT UNBLOCK means, which may be nil. It is false
// if the upstream is to refuse the command.
func (s *Session) blockedOne(args [][]byte) (c *Session, ok bool) {
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
	c, _ := s.blockedOne(args)
	if c == nil {
		s.addTranslated(ctx, raw, args)
		return
	}
	pool := c.ownNode()
	if pool == nil || pool == s.conn().Pool() {
		s.addTranslated(ctx, raw, args)
		return
	}
	if s.idle(ctx) != nil {
		return
	}
	reply := []byte(":0\r\n")
	if at, leave := s.beside(ctx, pool); at != nil {
		defer leave()
		var err error
		if reply, err = s.ask(ctx, at, withArg(args, 2, cmp.Or(c.namedAt(at), nobody))); err != nil {
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

// exchangeTracking translates the id of a CLIENT TRACKING with REDIRECT.
func (s *Session) exchangeTracking(reach reach, raw []byte, args [][]byte) exchange {
	i := redirectArg(args)
	id, err := strconv.ParseInt(string(args[i]), 10, 64)
	if err != nil {
		return exchange{raw: raw, edit: asItIs, reply: "+"}
	}
	up := int64(nobody)
	if to := s.d.clients.find(id); to != nil {
		up = cmp.Or(reach(to, s.conn()), nobody)
	}
	s.redirectsInvalidations = true
	s.replies.RenamePushes(s.renameRedirect)
	return exchange{raw: withArg(args, i, up), reply: "+", edit: func(reply []byte) ([]byte, bool) {
		s.profile.mu.Lock()
		s.profile.redirect = redirect{id, up}
		s.profile.mu.Unlock()
		return reply, false
	}}
}

// redirectArg is which argument of CLIENT TRACKING is the id to redirect to; 0 if
// none is.
func redirectArg(args [][]byte) int {
	for i := 3; i+1 < len(args); i++ {
		switch {
		case is(args[i], "REDIRECT"):
			return i + 1
		case is(args[i], "PREFIX"):
			i++
		}
	}
	return 0
}

// editRedirect makes the id in CLIENT GETREDIR's reply ours.
func (s *Session) editRedirect(at *upstream.Conn) edit {
	return func(reply []byte) ([]byte, bool) {
		n, err := strconv.ParseInt(string(reply[1:len(reply)-2]), 10, 64)
		if err != nil {
			return reply, false
		}
		return resp.AppendInt(nil, s.redirectedTo(n, at)), false
	}
}

// brokenRedirect begins the push that the client is gone to which invalidations go. What
// follows is its id.
const brokenRedirect = ">2\r\n$21\r\ntracking-redir-broken\r\n:"

// renameRedirect makes the id in such a push ours.
func (s *Session) renameRedirect(at *upstream.Conn, push []byte) []byte {
	if !bytes.HasPrefix(push, []byte(brokenRedirect)) {
		return push
	}
	n, from, to, ok := resp.IntAfter(push, "tracking-redir-broken")
	if !ok {
		return push
	}
	return replace(push, from, to, s.redirectedTo(n, at))
}

func (s *Session) editTrackingInfo(at *upstream.Conn) edit {
	return func(reply []byte) ([]byte, bool) {
		n, from, to, ok := resp.IntAfter(reply, "redirect")
		if !ok {
			return reply, false
		}
		return replace(reply, from, to, s.redirectedTo(n, at)), false
	}
}

// replace is a reply with another number from one byte to another.
func replace(reply []byte, from, to int, n int64) []byte {
	return slices.Concat(reply[:from], strconv.AppendInt(nil, n, 10), reply[to:])
}

// redirectedTo is our id of the client that the upstream calls n, to which the
// session's invalidations go.
func (s *Session) redirectedTo(n int64, at *upstream.Conn) int64 {
	l := &listing{owners: s.d.clients.byUpstream(at)}
	s.profile.mu.Lock()
	defer s.profile.mu.Unlock()
	return l.redirect(n, s.profile.redirect)
}

// runExchange sends a command, translated, on whatever connection the session is on.
func (s *Session) runExchange(ctx context.Context, raw []byte, args [][]byte) {
	if s.ensureConn(ctx) {
		s.addTranslated(ctx, raw, args)
	}
}

// addTranslated sends a command on the current connection. For the reply to one that
// must be translated it waits: what becomes of it may take long, and others' replies
// come on the same connection.
func (s *Session) addTranslated(ctx context.Context, raw []byte, args [][]byte) {
	x, ok := s.exchange(ctx, reaching(ctx), raw, args)
	if !ok {
		s.enqueue(raw)
		return
	}
	s.publish() // the list shows it
	if s.flushBatches(); s.idle(ctx) != nil {
		return
	}
	reply, err := s.ask(ctx, s.conn(), x.raw)
	if err != nil {
		s.replyErr(err)
		return
	}
	s.finish(x.edit(reply))
}

// finish gives the client a reply, which may be its last.
func (s *Session) finish(reply []byte, last bool) {
	s.replies.Local(reply)
	if last {
		s.replies.Close()
	}
}

// queueTranslated sends the newest command of a transaction. It is always true.
func (s *Session) queueTranslated(ctx context.Context, raw []byte, args [][]byte) bool {
	x, ok := s.exchange(ctx, (*Session).namedAt, raw, args)
	if !ok {
		s.keepQueued(raw)
		return s.enqueue(raw)
	}
	s.tx.rewrites = append(s.tx.rewrites, queuedRewrite{s.tx.length - 1, x.edit})
	s.keepQueued(x.raw)
	s.publish()
	s.flushBatches()
	s.replies.ExpectEdited(s.pinned, x.edit)
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
	x, ok := s.exchange(ctx, reaching(ctx), raw, args)
	k := kindOf(args[0])
	switch {
	case k == auth, k == selectDB, k == multi:
		x.edit, x.reply = asItIs, "+"
	case !ok:
		s.enqueue(raw)
		return
	}
	s.publish()
	var reply []byte
	m := &mark{is: func(r []byte) bool {
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
		s.nowIs(s.changesOf(k, args))
		s.tx.in = k == multi
	}
	s.finish(x.edit(reply))
}

// nowIs takes over what a command on a raw connection has changed.
func (s *Session) nowIs(c changes) {
	if c.id != nil {
		s.passthroughIdentity(*c.id)
		s.id.Proto = c.id.Proto
	}
	if c.db != nil {
		s.id.DB = *c.db
	}
	s.infoChanged = true
}

// blind is a command whose reply cannot be found, as it is sent: it must not name other
// connections by numbers that are the proxy's. CLIENT KILL kills nobody, since whether
// it may is not heard.
func (s *Session) blind(raw []byte, args [][]byte) []byte {
	switch {
	case is(args[1], "LIST"):
		return raw
	case is(args[1], "KILL"):
		return harmless(args)
	}
	x, _ := s.exchange(s.clientCtx, (*Session).namedAt, raw, args)
	if is(args[1], "TRACKING") {
		s.setStepping()
		x.edit([]byte("+OK\r\n")) // nothing is made of the reply
	}
	return x.raw
}

// answers says that a reply is one to the command, and no message.
func (x *exchange) answers(reply []byte) bool {
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
		s.replies.ExpectCaught(c, func([]byte) {
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
