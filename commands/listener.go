package commands

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/table"
)

// A listener has one client's subscriptions in a Cluster: on connections of its own,
// one to every node that has some of them, in RESP3, where messages can be told from
// replies. Channels and patterns are subscribed to on one node, since the nodes pass
// messages on to each other; notifications about keys, which they do not, on every
// master; a shard channel on the master of its slot.
//
// It is the upstream.Sink of those connections. The session's goroutine asks, and
// waits for the confirmations; what comes is written by the connections' goroutines.
type listener struct {
	up  *upstream.Upstream
	r   *replies
	ctx context.Context // ends with the session

	mu      sync.Mutex
	id      upstream.Identity
	proto   int
	closed  bool
	nodes   map[*upstream.Pool]*upstream.Conn
	parts   map[*upstream.Conn][]byte      // of a message whose end has not come
	awaited map[*upstream.Conn][]expecting // confirmations, in order
	subs    subscriptions                  // confirmed to the client
	where   map[string][]*upstream.Pool    // of a subscription, by kind and name
}

// expecting is a confirmation that is on its way.
type expecting struct {
	shown bool        // the client is to see it
	came  chan []byte // gets the refusal, or nil
}

// Kinds of subscriptions, by the first letters of their commands.
const (
	channels = ""
	patterns = "p"
	shards   = "s"
)

func newListener(s *Session) *listener {
	l := &listener{
		up: s.d.opt.Upstream, r: s.replies, ctx: s.routes().again.ctx, proto: s.id.Proto,
		nodes: map[*upstream.Pool]*upstream.Conn{}, parts: map[*upstream.Conn][]byte{},
		awaited: map[*upstream.Conn][]expecting{}, where: map[string][]*upstream.Pool{},
	}
	return l
}

// Deliver implements upstream.Sink: messages, confirmations, and the refusals that
// come in place of these.
func (l *listener) Deliver(c *upstream.Conn, p []byte, _ int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.Inside() || len(l.parts[c]) > 0 {
		l.parts[c] = append(l.parts[c], p...)
		if c.Inside() {
			return
		}
		p = l.parts[c]
		delete(l.parts, c)
	}
	if l.closed {
		return
	}
	if p[0] == '-' {
		l.confirmLocked(c, p, nil, nil)
		return
	}
	elems, ok := elements(append([]byte{'*'}, p[1:]...))
	if !ok || len(elems) < 3 {
		return
	}
	switch kind := string(bulk(elems[0])); kind {
	case "subscribe", "psubscribe", "ssubscribe", "unsubscribe", "punsubscribe":
		l.confirmLocked(c, nil, elems[0], elems[1])
	case "sunsubscribe":
		if len(l.awaited[c]) > 0 {
			l.confirmLocked(c, nil, elems[0], elems[1])
			return
		}
		go l.follow(string(bulk(elems[1]))) // the slot has moved
	default:
		l.r.Push(l.worded(p))
	}
}

// worded is a message as the client's protocol words it.
func (l *listener) worded(push []byte) []byte {
	if l.proto == 3 {
		return push
	}
	p := bytes.Clone(push)
	p[0] = '*'
	return p
}

func (l *listener) confirmLocked(c *upstream.Conn, refusal, kind, name []byte) {
	if len(l.awaited[c]) == 0 {
		return
	}
	e := l.awaited[c][0]
	l.awaited[c] = l.awaited[c][1:]
	if refusal == nil && e.shown {
		l.showLocked(string(bulk(kind)), bulk(name))
	}
	e.came <- bytes.Clone(refusal)
}

// showLocked takes over a change and tells the client.
func (l *listener) showLocked(kind string, name []byte) {
	l.subs.note([][]byte{[]byte(upper([]byte(kind))), name})
	l.r.Push(l.confirmation(kind, resp.AppendBulk(nil, name)))
}

// confirmation is what a client is told of a subscription that it has, or has not
// any more; name is a reply.
func (l *listener) confirmation(kind string, name []byte) []byte {
	n := len(l.subs.channels) + len(l.subs.patterns)
	if kind[0] == 's' && kind != "subscribe" {
		n = len(l.subs.shards)
	}
	b := append([]byte{'>'}, "3\r\n"...)
	b = resp.AppendBulkString(b, kind)
	b = append(b, name...)
	return l.worded(resp.AppendInt(b, int64(n)))
}

// Fail implements upstream.Sink: who had subscriptions there has lost them, as when a
// Redis goes away.
func (l *listener) Fail(c *upstream.Conn, _ int, _ bool, _ error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	waiting := l.awaited[c]
	delete(l.awaited, c)
	for _, e := range waiting {
		e.came <- appendLost(nil, errLost)
	}
	if !l.closed {
		l.r.out.Close()
	}
}

// close gives up all subscriptions.
func (l *listener) close() {
	l.mu.Lock()
	l.closed = true
	nodes := l.nodes
	l.nodes = nil
	l.mu.Unlock()
	for _, c := range nodes {
		c.Close()
	}
}

// conn is the connection to a node, opened if need be.
func (l *listener) conn(ctx context.Context, pool *upstream.Pool, id upstream.Identity) (*upstream.Conn, error) {
	l.mu.Lock()
	c := l.nodes[pool]
	l.mu.Unlock()
	if c != nil && c.Alive() {
		return c, nil
	}
	id.Proto = 3
	c, err := pool.Private(ctx, id, l)
	if err != nil {
		return nil, err
	}
	c.Raw()
	c.Step(true)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		c.Close()
		return nil, errLost
	}
	l.nodes[pool] = c
	return c, nil
}

// change sends one subscription, or the end of one, to nodes, and returns when all
// have confirmed it. The client sees one confirmation, if shown.
func (l *listener) change(ctx context.Context, id upstream.Identity, command string, name []byte, pools []*upstream.Pool, shown bool) error {
	var all []chan []byte
	for i, pool := range pools {
		c, err := l.conn(ctx, pool, id)
		if err != nil {
			return err
		}
		came := make(chan []byte, 1)
		l.mu.Lock()
		l.awaited[c] = append(l.awaited[c], expecting{shown && i == 0, came})
		l.mu.Unlock()
		if err := c.Send(resp.AppendCommand(nil, []byte(command), name), 0, l); err != nil {
			return &upstream.DownError{Err: err}
		}
		all = append(all, came)
	}
	for _, came := range all {
		select {
		case refusal := <-came:
			if refusal != nil {
				return &upstream.RefusedError{Reply: refusal}
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// follow subscribes anew to a shard channel whose slot has moved.
func (l *listener) follow(name string) {
	slot := table.Slot([]byte(name))
	l.up.Hurry()
	for tries := range 100 {
		if tries > 0 {
			select {
			case <-time.After(50 * time.Millisecond):
			case <-l.ctx.Done():
				return
			}
		}
		pool := l.up.View().Master(slot)
		if pool == nil {
			continue
		}
		l.mu.Lock()
		id, stays := l.id, l.subs.has(shards, name) && !l.closed
		l.mu.Unlock()
		if !stays {
			return
		}
		if l.change(l.ctx, id, "SSUBSCRIBE", []byte(name), []*upstream.Pool{pool}, false) == nil {
			l.mu.Lock()
			l.where[shards+" "+name] = []*upstream.Pool{pool}
			l.mu.Unlock()
			return
		}
	}
	l.r.out.Close() // better than silence
}

// listen handles a command of the SUBSCRIBE family in a Cluster.
func (s *Session) listen(ctx context.Context, args [][]byte) {
	if s.idle(ctx) != nil {
		return
	}
	command := upper(args[0])
	kind, begins := subscriptionKind(command)
	if begins && len(args) < 2 {
		s.say(wrongArity(args))
		return
	}
	if s.ears == nil {
		s.ears = newListener(s)
	}
	l := s.ears
	l.mu.Lock()
	l.id, l.proto = s.id, s.id.Proto
	names := args[1:]
	if len(names) == 0 {
		names = l.subs.names(kind)
	}
	l.mu.Unlock()
	s.replies.Flush()
	if len(names) == 0 {
		null := "$-1\r\n"
		if s.id.Proto == 3 {
			null = "_\r\n"
		}
		l.r.Push(l.confirmation(lower(args[0]), []byte(null)))
	}
	for _, name := range names {
		if err := s.listenTo(ctx, l, command, kind, begins, name); err != nil {
			s.replyErr(err)
			break
		}
	}
}

// any says that there are subscriptions left.
func (l *listener) any() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.subs.any()
}

// subscribed says that the client has subscriptions.
func (s *Session) subscribed() bool {
	if s.ears != nil {
		return s.ears.any()
	}
	return s.subs.any()
}

func (s *Session) listenTo(ctx context.Context, l *listener, command, kind string, begins bool, name []byte) error {
	key := kind + " " + string(name)
	l.mu.Lock()
	pools := l.where[key]
	l.mu.Unlock()
	if len(pools) == 0 && begins {
		pools = s.nodesOf(kind, name)
	}
	if len(pools) == 0 && begins {
		return &upstream.RefusedError{Reply: []byte(unservedBy)}
	}
	if len(pools) == 0 {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.showLocked(lower([]byte(command)), name)
		return nil
	}
	err := l.change(ctx, s.id, command, bytes.Clone(name), pools, true)
	l.mu.Lock()
	defer l.mu.Unlock()
	if delete(l.where, key); begins && err == nil {
		l.where[key] = pools
	}
	return err
}

// nodesOf are the nodes that have the messages of a channel or pattern.
func (s *Session) nodesOf(kind string, name []byte) []*upstream.Pool {
	v := s.d.opt.Upstream.View()
	switch {
	case kind == shards:
		if pool := v.Master(table.Slot(name)); pool != nil {
			return []*upstream.Pool{pool}
		}
		return nil
	case bytes.HasPrefix(name, []byte("__key")):
		return v.Masters()
	}
	return []*upstream.Pool{v.Home()}
}

// subscriptionKind says which subscriptions a command is about, and whether it begins
// or ends some.
func subscriptionKind(command string) (kind string, begins bool) {
	switch command {
	case "SUBSCRIBE", "UNSUBSCRIBE":
		kind = channels
	case "PSUBSCRIBE", "PUNSUBSCRIBE":
		kind = patterns
	default:
		kind = shards
	}
	return kind, !bytes.Contains([]byte(command), []byte("UNSUB"))
}

// deafTo says what a client of RESP2 that has subscriptions hears of a command, in
// place of its reply. It is nil for commands that are fine.
func (s *Session) deafTo(k kind, args [][]byte) []byte {
	if s.id.Proto == 3 || !s.ears.any() {
		return nil
	}
	switch {
	case k == subscribe || k == quit || k == reset || k == verb:
		return nil
	case is(args[0], "PING") && len(args) <= 2:
		text := []byte(nil)
		if len(args) == 2 {
			text = args[1]
		}
		return resp.AppendCommand(nil, []byte("pong"), text)
	}
	return resp.AppendError(nil, onlySubscribe(args[0]))
}

// listenOrNot handles the commands that are not one request and one reply.
func (s *Session) listenOrNot(ctx context.Context, raw []byte, args [][]byte) {
	switch {
	case s.tx.in:
		s.refuseQueued(raw, string(resp.AppendError(nil, "ERR "+upper(args[0])+" is not supported inside a transaction with a Cluster upstream")))
	case is(args[0], "MONITOR"):
		s.monitor(ctx, raw)
	case refusals[lower(args[0])] != nil:
		s.say(refusals[lower(args[0])](args))
	default:
		s.listen(ctx, args)
	}
}

func (s *Session) closeEars() {
	if s.ears != nil {
		s.ears.close()
		s.ears = nil
	}
	for _, c := range s.watched {
		c.Close()
	}
	s.watched = nil
}

// monitor shows the client what all masters do.
func (s *Session) monitor(ctx context.Context, raw []byte) {
	if s.idle(ctx) != nil || s.watched != nil {
		return
	}
	refused := make(chan []byte, 1)
	masters := s.d.opt.Upstream.View().Masters()
	first := &spectator{r: s.replies, waits: len(masters), begun: refused}
	for _, pool := range masters {
		c, err := pool.Private(ctx, s.id, first)
		if err != nil {
			s.closeEars()
			s.replyErr(err)
			return
		}
		s.watched = append(s.watched, c)
		c.Raw()
		c.Step(true)
		c.Send(bytes.Clone(raw), 0, first)
	}
	select {
	case reply := <-refused:
		s.replies.Local(reply)
	case <-ctx.Done():
	}
}

// A spectator writes what masters say about themselves to the client of a MONITOR.
type spectator struct {
	r *replies

	mu    sync.Mutex
	waits int // first replies, to MONITOR itself
	parts map[*upstream.Conn][]byte
	known map[*upstream.Conn]bool
	begun chan []byte
}

// Deliver implements upstream.Sink.
func (m *spectator) Deliver(c *upstream.Conn, p []byte, _ int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.parts == nil {
		m.parts, m.known = map[*upstream.Conn][]byte{}, map[*upstream.Conn]bool{}
	}
	if m.parts[c] = append(m.parts[c], p...); c.Inside() {
		return
	}
	line := m.parts[c]
	delete(m.parts, c)
	if m.known[c] {
		m.r.Push(line)
		return
	}
	m.known[c] = true
	if m.waits--; m.waits == 0 {
		m.begun <- line
	}
}

// Fail implements upstream.Sink.
func (m *spectator) Fail(*upstream.Conn, int, bool, error) { m.r.out.Close() }

// Full implements upstream.Owner.
func (l *listener) Full() <-chan struct{} { return l.r.out.Full() }

// Full implements upstream.Owner.
func (m *spectator) Full() <-chan struct{} { return m.r.out.Full() }
