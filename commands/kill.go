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

// A killing is which clients a CLIENT KILL means.
type killFilter struct {
	clientFilter
	byAddr bool // CLIENT KILL addr
}

// parseKill reads a CLIENT KILL that the upstream has not refused; ok is false if it
// says what is not known here.
func parseKill(args [][]byte) (k killFilter, ok bool) {
	if len(args) == 3 {
		return killFilter{clientFilter: clientFilter{values: map[string]string{"ADDR": string(args[2])}}, byAddr: true}, true
	}
	if len(args) < 3 {
		return k, false
	}
	k.clientFilter, ok = parseFilter(args[2:], true)
	return k, ok
}

// parseID reads an id, or another number that must be positive.
func parseID(arg []byte) (int64, bool) {
	n, err := strconv.ParseInt(string(arg), 10, 64)
	return n, err == nil && n > 0
}

// harmlessKill is a CLIENT KILL that is refused for the same reasons and kills nobody: of
// two addresses the last counts. It comes behind filters that are known; what is not
// known might take it for something else there, so it comes in front of that, with no
// other address behind it.
func harmlessKill(args [][]byte) []byte {
	if len(args) < 3 {
		return resp.AppendCommand(nil, args...)
	}
	args = slices.Clone(args)
	if len(args) == 3 {
		args[2] = noAddress
		return resp.AppendCommand(nil, args...)
	}
	if _, ok := parseKill(args); ok {
		return resp.AppendCommand(nil, append(args, []byte("ADDR"), noAddress)...)
	}
	for i := 2; i+1 < len(args); i++ {
		if resp.Is(args[i], "ADDR") {
			args[i+1] = noAddress
		}
	}
	return resp.AppendCommand(nil, slices.Insert(args, 2, []byte("ADDR"), noAddress)...)
}

// allowed says that the upstream, asked with a harmless command, has not refused.
func (k *killFilter) allowed(reply []byte) bool {
	text, refused := resp.Error(reply)
	return !refused && string(reply) != queuedReply || k.byAddr && text == "ERR No such client"
}

// resolveRepeatedIDs is for a CLIENT KILL that names ids again, which upstreams take differently.
func (s *Session) resolveRepeatedIDs(ctx context.Context, k *killFilter) {
	if k.repeated && !s.combinesFilters(ctx, listNobody) {
		k.onlyLastIDs()
	}
}

// translateKill asks the upstream whether the client may kill others, and then does, as
// far as the proxy itself knows who is meant.
func (s *Session) translateKill(ctx context.Context, args [][]byte) translation {
	args = cloneArgs(args)
	k, ok := parseKill(args)
	s.resolveRepeatedIDs(ctx, &k)
	return translation{raw: harmlessKill(args), reply: ":+", rewrite: func(reply []byte) ([]byte, bool) {
		switch {
		case !k.allowed(reply):
			return reply, false
		case !ok:
			return resp.AppendError(nil, "ERR syntax error"), false
		}
		return s.killAll(k.matching(s, proxyListing()), k.byAddr, reply)
	}}
}

// kill asks the upstream whether the client may kill others, and then does. What they
// had there of their own has ended when the client hears of it.
func (s *Session) kill(ctx context.Context, args [][]byte) {
	if !s.ensureConn(ctx) || s.idle(ctx) != nil {
		return
	}
	k, ok := parseKill(args)
	reply, err := s.ask(ctx, s.conn(), harmlessKill(args))
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
	s.resolveRepeatedIDs(ctx, &k)
	victims := k.matching(s, s.killListing(ctx, &k))
	s.killUpstream(ctx, victims)
	s.replyLast(s.killAll(victims, k.byAddr, reply))
}

// killListing are the rows that a killing is decided by: the upstream's, if they are needed
// and the client may see them.
func (s *Session) killListing(ctx context.Context, k *killFilter) *listing {
	if !k.needsUpstream() {
		return proxyListing()
	}
	s.publishInfo()
	reply, err := s.ask(ctx, s.conn(), listAll)
	if err != nil {
		return proxyListing()
	}
	if l, ok := s.d.clients.listing(reply, s.conn(), nil); ok {
		return l
	}
	return proxyListing()
}

// matching are the clients that k means when s asks, by what l says of them.
func (k *killFilter) matching(s *Session, l *listing) (victims []*Session) {
	now := time.Now()
	for _, c := range s.d.clients.all() {
		if k.matches(l.anyEntryOf(c, now), c == s) {
			victims = append(victims, c)
		}
	}
	return victims
}

// killUpstream makes the upstream end the connections that others have of their own,
// and returns when it has.
func (s *Session) killUpstream(ctx context.Context, victims []*Session) {
	byNode := map[*upstream.Pool][]*Session{}
	for _, c := range victims {
		if pool := c.pinnedNode(); pool != nil && c != s {
			byNode[pool] = append(byNode[pool], c)
		}
	}
	for pool, there := range byNode {
		if at, leave := s.connTo(ctx, pool); at != nil {
			s.askAll(ctx, at, killCommands(there, at))
			leave()
		}
	}
}

// killCommands end the own connections of clients at the node that at leads to.
func killCommands(victims []*Session, at *upstream.Conn) (commands [][]byte) {
	for _, c := range victims {
		if id := c.liveUpstreamID(at); id != 0 {
			commands = append(commands, resp.AppendCommand(nil, "CLIENT", "KILL", "ID", strconv.FormatInt(id, 10)))
		}
	}
	return commands
}

// connTo is a connection of the client's to a node, for a question; nil if it cannot
// be had. leave gives it up.
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

// killAll kills clients and makes of the upstream's reply the one to the client. last
// says that the session itself is one of them, which ends with the reply.
func (s *Session) killAll(victims []*Session, old bool, reply []byte) (edited []byte, last bool) {
	for _, c := range victims {
		if c == s {
			last = true
			s.because(WhyKilled)
			s.d.clients.remove(s)
			s.ended.Store(true)
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
