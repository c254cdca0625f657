package clients

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

// NoID is an id that no client of an upstream has.
const NoID = math.MaxInt64

// noAddress is an address that no client of an upstream has.
var noAddress = []byte("-")

// listAll is a CLIENT LIST of everybody.
var listAll = resp.AppendCommand(nil, "CLIENT", "LIST")

// listNobody is a CLIENT LIST that every upstream accepts.
var listNobody = [][]byte{[]byte("CLIENT"), []byte("LIST"), []byte("ID"), strconv.AppendInt(nil, NoID, 10)}

const queuedReply = "+QUEUED\r\n"

// A Translation is a command about clients, as it goes upstream.
type Translation struct {
	Raw []byte
	// Rewrite turns a whole reply into the client's; last: that gets nothing after it.
	Rewrite func(reply []byte) (rewritten []byte, last bool)
	// Kinds are the first bytes that a reply other than an error may have.
	Kinds string
}

// Answers reports whether a reply is one to the command, and not a message.
func (t *Translation) Answers(reply []byte) bool {
	switch kind := reply[0]; {
	case kind == '-':
		return true
	case strings.IndexByte(t.Kinds, kind) < 0:
		return false
	case kind == '+':
		return string(reply) == "+OK\r\n"
	case kind == '*':
		_, first, _ := bytes.Cut(reply, []byte("\r\n"))
		return bytes.HasPrefix(first, []byte("$6\r\nserver\r\n")) || bytes.HasPrefix(first, []byte("$5\r\nflags\r\n"))
	}
	return true
}

// Unchanged is a Rewrite that changes nothing.
func Unchanged(reply []byte) ([]byte, bool) { return reply, false }

// NamesIDs reports whether a CLIENT command names clients by their ids, or lists them.
func NamesIDs(args [][]byte) bool {
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

// A Translator translates the commands that a client sends on one connection. All fields
// are required.
type Translator struct {
	Registry *Registry
	Self     *Client
	At       *upstream.Conn // on which the command is sent
	// Reach returns the number, at the node that at leads to, of a connection on which
	// messages reach a client; 0 if there is none.
	Reach func(c *Client, at *upstream.Conn) int64
	// Accepts asks the upstream whether it accepts a command.
	Accepts func(args [][]byte) bool
	// Kill disconnects clients, and reports whether Self is one of them.
	Kill func([]*Client) (self bool)
	// ConnTo is a connection of Self's to a node, for a question, until leave is called; nil
	// if there is none.
	ConnTo func(*upstream.Pool) (at *upstream.Conn, leave func())
	// Upstream asks on a connection, in the order of what Self has sent.
	Upstream interface {
		Ask(ctx context.Context, at *upstream.Conn, command []byte) ([]byte, error)
		AskAll(ctx context.Context, at *upstream.Conn, commands [][]byte)
	}
	// Redirects is called when Self's invalidations may go to another client from now on.
	Redirects func()
}

// Translate translates a CLIENT command. It reports false for one that goes
// upstream as it is.
func (t *Translator) Translate(raw []byte, args [][]byte) (x Translation, ok bool) {
	x = Translation{Raw: raw}
	if !resp.Is(args[0], "CLIENT") || !NamesIDs(args) {
		return x, false
	}
	switch sub := args[1]; {
	case resp.Is(sub, "ID"):
		x.Rewrite, x.Kinds = t.Self.rewriteID, ":"
	case resp.Is(sub, "INFO"):
		x.Rewrite, x.Kinds = t.rewriteInfo(raw, args), "$="
	case resp.Is(sub, "LIST"):
		x = t.list(raw, args)
	case resp.Is(sub, "KILL"):
		return t.kill(args), true
	case resp.Is(sub, "UNBLOCK"):
		x.Raw, x.Rewrite, x.Kinds = t.unblock(raw, args), Unchanged, ":"
	case resp.Is(sub, "TRACKING"):
		x = t.tracking(raw, args)
	case resp.Is(sub, "GETREDIR"):
		x.Rewrite, x.Kinds = t.rewriteGetRedir, ":"
	case resp.Is(sub, "TRACKINGINFO"):
		x.Rewrite, x.Kinds = t.rewriteTrackingInfo, "*%"
	}
	x.Rewrite = skipErrors(x.Rewrite)
	return x, true
}

// skipErrors leaves errors alone, and the answer to a command that was queued.
func skipErrors(rewrite func([]byte) ([]byte, bool)) func([]byte) ([]byte, bool) {
	return func(reply []byte) ([]byte, bool) {
		if _, refused := resp.Error(reply); refused || string(reply) == queuedReply {
			return reply, false
		}
		return rewrite(reply)
	}
}

// RewriteHello puts the client's id in the reply to a HELLO.
func (c *Client) RewriteHello(reply []byte) ([]byte, bool) {
	_, from, to, ok := resp.IntAfter(reply, "id")
	if !ok {
		return reply, false
	}
	return replaceInt(reply, from, to, c.ID), false
}

func (c *Client) rewriteID([]byte) ([]byte, bool) { return resp.AppendInt(nil, c.ID), false }

// rewriteInfo makes the entry of CLIENT INFO the client's.
func (t *Translator) rewriteInfo(raw []byte, args [][]byte) func([]byte) ([]byte, bool) {
	sizes := sizesOf(raw, args)
	return func(reply []byte) ([]byte, bool) {
		l, ok := t.Registry.Listing(reply, t.At)
		if !ok {
			return reply, false
		}
		e := l.entryOf(t.Self, time.Now())
		if e == nil { // its connection is about to end
			return reply, false
		}
		return resp.AppendTextLike(nil, reply, e.with(sizes).appendTo(nil)), false
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

// list asks the upstream for all of its connections, whichever clients are selected.
// Arguments that it is to refuse, or that are not known here, it gets as they are.
func (t *Translator) list(raw []byte, args [][]byte) Translation {
	sizes := sizesOf(raw, args)
	f := t.parseList(args)
	var expected map[int64]*Client
	if f.accepted {
		raw = listAll
		expected = t.Registry.byUpstream(t.At)
	}
	return Translation{Raw: raw, Kinds: "$=", Rewrite: func(reply []byte) ([]byte, bool) {
		if !f.accepted {
			return resp.AppendError(nil, "ERR syntax error"), false
		}
		l, ok := t.Registry.listing(reply, t.At, expected)
		if !ok {
			return reply, false
		}
		var text []byte
		now := time.Now()
		for _, c := range t.Registry.byIDs(f.order) {
			e := l.entryOf(c, now)
			if e == nil || !f.matches(e, c == t.Self) {
				continue
			}
			if c == t.Self {
				e = e.with(sizes)
			}
			text = e.appendTo(text)
		}
		return resp.AppendTextLike(nil, reply, text), false
	}}
}

// A listFilter selects the clients that a CLIENT LIST is about.
type listFilter struct {
	Filter
	order    []int64 // in which they are listed, and as often; nil: by id
	accepted bool    // the upstream accepts it, and it is known here
}

// NeedsProbe reports whether the upstream must be asked how it takes a CLIENT LIST or KILL
// before that is sent: Translate then calls Accepts.
func NeedsProbe(args [][]byte) bool {
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

// parseList parses a CLIENT LIST. The upstream is asked about one that not all take in the
// same way.
func (t *Translator) parseList(args [][]byte) (f listFilter) {
	if f.Filter, f.accepted = parseFilter(args[2:], false); f.accepted && !isPlainList(args) {
		f.accepted = t.Accepts(args)
	}
	if f.order = f.lastIDs; f.accepted && len(f.order) > 1 && combinesFilters(t.Accepts, args) {
		f.order = nil
	}
	return f
}

// combinesFilters reports whether the upstream combines filters as Valkey does, at a
// CLIENT LIST that it accepts. Then a second ID adds to the first, and clients are listed
// by id; in Redis the last one counts, and they are listed in its order.
func combinesFilters(accepts func(args [][]byte) bool, list [][]byte) bool {
	return accepts(append(slices.Clone(list), []byte("SKIPME"), []byte("NO")))
}

// isPlainList reports whether a CLIENT LIST means the same at every upstream.
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

// kill asks the upstream whether the client may kill others, and then kills, as far as the
// proxy by itself knows who is selected.
func (t *Translator) kill(args [][]byte) Translation {
	args = resp.CloneArguments(args)
	k, ok := parseKill(args)
	k.resolveIDs(t.Accepts)
	return Translation{Raw: HarmlessKill(args), Kinds: ":+", Rewrite: func(reply []byte) ([]byte, bool) {
		switch {
		case !k.allowed(reply):
			return reply, false
		case !ok:
			return resp.AppendError(nil, "ERR syntax error"), false
		}
		matching := t.Registry.matching(&k, t.Self, t.Registry.ProxyListing())
		return k.Reply(reply, len(matching)), t.Kill(matching)
	}}
}

// unblock is a CLIENT UNBLOCK with the upstream's number in place of the id.
func (t *Translator) unblock(raw []byte, args [][]byte) []byte {
	c, ok := t.Registry.UnblockTarget(args)
	switch {
	case !ok:
		return raw
	case c == nil:
		return withArg(args, 2, NoID)
	}
	return Unblock(c, t.At, args)
}

// UnblockTarget is the client that a CLIENT UNBLOCK is about, which may be nil. It reports
// false if the upstream is to refuse the command.
func (r *Registry) UnblockTarget(args [][]byte) (c *Client, ok bool) {
	if len(args) < 3 {
		return nil, false
	}
	id, err := strconv.ParseInt(string(args[2]), 10, 64)
	return r.Find(id), err == nil
}

// Unblock is the CLIENT UNBLOCK args of a client, for the node that at leads to.
func Unblock(c *Client, at *upstream.Conn, args [][]byte) []byte {
	return withArg(args, 2, cmp.Or(c.UpstreamID(at), NoID))
}

// withArg is a command with a number as one of its arguments.
func withArg(args [][]byte, i int, n int64) []byte {
	args = slices.Clone(args)
	args[i] = strconv.AppendInt(nil, n, 10)
	return resp.AppendCommand(nil, args...)
}

// tracking translates the id of a CLIENT TRACKING with REDIRECT.
func (t *Translator) tracking(raw []byte, args [][]byte) Translation {
	i := redirectArg(args)
	id, err := strconv.ParseInt(string(args[i]), 10, 64)
	if err != nil {
		return Translation{Raw: raw, Rewrite: Unchanged, Kinds: "+"}
	}
	up := int64(NoID)
	if to := t.Registry.Find(id); to != nil {
		up = cmp.Or(t.Reach(to, t.At), NoID)
	}
	t.Redirects()
	return Translation{Raw: withArg(args, i, up), Kinds: "+", Rewrite: func(reply []byte) ([]byte, bool) {
		t.Self.mu.Lock()
		t.Self.redirect = redirectTarget{id, up}
		t.Self.mu.Unlock()
		return reply, false
	}}
}

// redirectArg is the position of the id in a CLIENT TRACKING with REDIRECT; 0 if there is
// none.
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

// rewriteGetRedir puts our id in the reply to CLIENT GETREDIR.
func (t *Translator) rewriteGetRedir(reply []byte) ([]byte, bool) {
	n, err := strconv.ParseInt(string(reply[1:len(reply)-2]), 10, 64)
	if err != nil {
		return reply, false
	}
	return resp.AppendInt(nil, t.Registry.redirectedTo(t.Self, n, t.At)), false
}

func (t *Translator) rewriteTrackingInfo(reply []byte) ([]byte, bool) {
	n, from, to, ok := resp.IntAfter(reply, "redirect")
	if !ok {
		return reply, false
	}
	return replaceInt(reply, from, to, t.Registry.redirectedTo(t.Self, n, t.At)), false
}

// redirBrokenPush begins the push which tells that the client to which invalidations went
// is gone. Its id follows.
const redirBrokenPush = ">2\r\n$21\r\ntracking-redir-broken\r\n:"

// RewritePush puts our id in a push to c that comes from the connection at.
func (r *Registry) RewritePush(c *Client, at *upstream.Conn, push []byte) []byte {
	if !bytes.HasPrefix(push, []byte(redirBrokenPush)) {
		return push
	}
	n, from, to, ok := resp.IntAfter(push, "tracking-redir-broken")
	if !ok {
		return push
	}
	return replaceInt(push, from, to, r.redirectedTo(c, n, at))
}

// replaceInt is a reply with another number from one byte to another.
func replaceInt(reply []byte, from, to int, n int64) []byte {
	return slices.Concat(reply[:from], strconv.AppendInt(nil, n, 10), reply[to:])
}

// redirectedTo is our id of the client with the number n at the upstream, to which c's
// invalidations go.
func (r *Registry) redirectedTo(c *Client, n int64, at *upstream.Conn) int64 {
	l := &Listing{owners: r.byUpstream(at)}
	c.mu.Lock()
	defer c.mu.Unlock()
	return l.redirect(n, c.redirect)
}
