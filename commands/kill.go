package commands

import (
	"bytes"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
)

// A killing is which clients a CLIENT KILL means. Zero fields mean any.
type killing struct {
	id                       int64
	addr, laddr, user, class []byte
	maxAge                   time.Duration
	skipMe                   bool
	old                      bool // CLIENT KILL addr
}

// parseKill reads a CLIENT KILL that the upstream has not refused; ok is false if it
// says what is not known here.
func parseKill(args [][]byte) (k killing, ok bool) {
	if len(args) == 3 {
		return killing{addr: args[2], old: true}, true
	}
	k.skipMe = true
	for i := 2; i+1 < len(args); i += 2 {
		value := args[i+1]
		switch {
		case is(args[i], "ID"):
			k.id, ok = parseID(value)
		case is(args[i], "ADDR"):
			k.addr, ok = value, true
		case is(args[i], "LADDR"):
			k.laddr, ok = value, true
		case is(args[i], "USER"):
			k.user, ok = value, true
		case is(args[i], "TYPE"):
			k.class, ok = []byte(className(value)), className(value) != ""
		case is(args[i], "SKIPME"):
			k.skipMe, ok = is(value, "YES"), true
		case is(args[i], "MAXAGE"):
			var s int64
			s, ok = parseID(value)
			k.maxAge = time.Duration(s) * time.Second
		default:
			ok = false
		}
		if !ok {
			return k, false
		}
	}
	return k, len(args) > 3 && len(args)%2 == 0
}

func parseID(arg []byte) (int64, bool) {
	n, err := strconv.ParseInt(string(arg), 10, 64)
	return n, err == nil && n > 0
}

// harmless is a CLIENT KILL that is refused for the same reasons and kills nobody.
func harmless(args [][]byte) []byte {
	if len(args) < 3 {
		return resp.AppendCommand(nil, args...)
	}
	args = slices.Clone(args)
	if len(args) == 3 {
		args[2] = noAddress
		return resp.AppendCommand(nil, args...)
	}
	for i := 2; i+1 < len(args); i += 2 {
		if is(args[i], "ADDR") {
			args[i+1] = noAddress
		}
	}
	return resp.AppendCommand(nil, slices.Insert(args, 2, []byte("ADDR"), noAddress)...)
}

// means says that the client c is one of those to kill, when s asks.
func (k *killing) means(s, c *Session, now time.Time) bool {
	if k.skipMe && c == s {
		return false
	}
	p := &c.profile
	p.mu.Lock()
	defer p.mu.Unlock()
	return (k.id == 0 || k.id == p.ID) && (k.addr == nil || string(k.addr) == p.Addr) &&
		(k.laddr == nil || string(k.laddr) == p.LocalAddr) && (k.user == nil || string(k.user) == p.userLocked()) &&
		(k.class == nil || string(k.class) == p.class) && (k.maxAge == 0 || now.Sub(p.since) >= k.maxAge)
}

// allowed says that the upstream, asked with a harmless command, has not refused.
func (k *killing) allowed(reply []byte) bool {
	text, refused := resp.Error(reply)
	return !refused && string(reply) != queuedReply || k.old && text == "ERR No such client"
}

// exchangeKill asks the upstream whether the client may kill others, and then does.
func (s *Session) exchangeKill(args [][]byte) exchange {
	args = cloneArgs(args)
	k, ok := parseKill(args)
	return exchange{raw: harmless(args), reply: ":+", edit: func(reply []byte) ([]byte, bool) {
		switch {
		case !k.allowed(reply):
			return reply, false
		case !ok:
			return resp.AppendError(nil, "ERR syntax error"), false
		}
		return s.killAll(k.victims(s), k.old, reply)
	}}
}

// kill asks the upstream whether the client may kill others, and then does. What they
// had there of their own has ended when the client hears of it.
func (s *Session) kill(ctx context.Context, args [][]byte) {
	if !s.needConn(ctx) || s.idle(ctx) != nil {
		return
	}
	k, ok := parseKill(args)
	reply, err := s.ask(ctx, s.conn(), harmless(args))
	switch {
	case err != nil:
		s.replyErr(err)
		return
	case !k.allowed(reply):
		s.replies.Local(reply)
		return
	case !ok:
		s.replies.Local(resp.AppendError(nil, "ERR syntax error"))
		return
	}
	victims := k.victims(s)
	s.endUpstream(ctx, victims)
	s.finish(s.killAll(victims, k.old, reply))
}

// victims are the clients that k means when s asks.
func (k *killing) victims(s *Session) (victims []*Session) {
	now := time.Now()
	for _, c := range s.d.clients.all() {
		if k.means(s, c, now) {
			victims = append(victims, c)
		}
	}
	return victims
}

// endUpstream makes the upstream end the connections that others have of their own,
// and returns when it has.
func (s *Session) endUpstream(ctx context.Context, victims []*Session) {
	byNode := map[*upstream.Pool][]*Session{}
	for _, c := range victims {
		if pool := c.ownNode(); pool != nil && c != s {
			byNode[pool] = append(byNode[pool], c)
		}
	}
	for pool, there := range byNode {
		if at, leave := s.beside(ctx, pool); at != nil {
			s.askAll(ctx, at, killsOf(there, at))
			leave()
		}
	}
}

// killsOf end the own connections of clients at the node that at leads to.
func killsOf(victims []*Session, at *upstream.Conn) (commands [][]byte) {
	for _, c := range victims {
		if id := c.namedAt(at); id != 0 {
			commands = append(commands, resp.AppendCommand(nil, "CLIENT", "KILL", "ID", strconv.FormatInt(id, 10)))
		}
	}
	return commands
}

// beside is a connection of the client's to a node, for a question; nil if it cannot
// be had. leave gives it up.
func (s *Session) beside(ctx context.Context, pool *upstream.Pool) (at *upstream.Conn, leave func()) {
	if at = s.conn(); at.Pool() == pool {
		return at, func() {}
	}
	at, err := pool.Shared(ctx, s.id, upstream.MainLane, s.hint)
	if err != nil {
		return nil, nil
	}
	return at, func() { upstream.Return(at) }
}

// killAll kills clients and makes of the upstream's reply the one to the client. last
// says that the session itself is one of them, which ends with the reply.
func (s *Session) killAll(victims []*Session, old bool, reply []byte) (edited []byte, last bool) {
	for _, c := range victims {
		if c == s {
			last = true
			s.because(WhyKilled)
			s.d.clients.remove(s)
			s.gone.Store(true)
		} else {
			c.disconnect(WhyKilled)
		}
	}
	switch {
	case !old:
		reply = resp.AppendInt(nil, int64(len(victims)))
	case len(victims) > 0:
		reply = []byte("+OK\r\n")
	}
	return reply, last
}

func cloneArgs(args [][]byte) [][]byte {
	args = slices.Clone(args)
	for i := range args {
		args[i] = bytes.Clone(args[i])
	}
	return args
}
