package commands

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/commands/relay"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/spec"
)

// A listener has one client's subscriptions in a Cluster: on connections of its own,
// one to every node that has some of them, in RESP3, where messages can be told from
// replies. Channels and patterns are subscribed to on one node, since the nodes pass
// messages on to each other; notifications about keys, which they do not, on every
// master; a shard channel on the master of its slot.
//
// It is the upstream.Sink of those connections. The session's goroutine asks, and
// waits for the confirmations; what comes is written by the connections' goroutines.
type subscriber struct {
	up      *upstream.Upstream
	replies *relay.Replies
	ctx     context.Context // ends with the session

	redirector *relay.Redirector // waits for what is started here

	sending sync.Mutex // held while something is said to a node; before mu

	mu             sync.Mutex
	id             upstream.Identity
	proto          int
	closed         bool
	nodes          map[*upstream.Pool]*upstream.Conn
	identities     map[*upstream.Conn]upstream.Identity // who they are, by their last AUTH
	partial        relay.PartialMessages
	awaiting       map[*upstream.Conn][]confirmation // confirmations, in order
	confirmed      subscriptions                     // confirmed to the client
	pools          map[string][]*upstream.Pool       // of a subscription, by kind and name
	followsMasters bool                              // cover runs
	closing        chan struct{}                     // closed by close
}

// confirmation is a confirmation that is on its way.
type confirmation struct {
	command, name string      // the former in lower case
	left          *int        // confirmations until the client sees one; nil: it is to see none
	done          chan []byte // gets the refusal, or nil
}

// Kinds of subscriptions, by the first letters of their commands.
const (
	channels = ""
	patterns = "p"
	shards   = "s"
)

func newSubscriber(s *Session) *subscriber {
	b := &subscriber{
		up: s.d.opt.Upstream, replies: s.replies, redirector: s.openRouter().redirector, ctx: s.openRouter().redirector.Context, proto: s.id.Proto,
		nodes: map[*upstream.Pool]*upstream.Conn{}, identities: map[*upstream.Conn]upstream.Identity{},
		awaiting: map[*upstream.Conn][]confirmation{}, pools: map[string][]*upstream.Pool{}, closing: make(chan struct{}),
	}
	return b
}

// Deliver implements upstream.Sink: messages, confirmations, and the refusals that
// come in place of these.
func (l *subscriber) Deliver(c *upstream.Conn, p []byte, _ int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, whole := l.partial.Add(c, p, l.replies.Limit())
	if !whole || l.closed {
		return
	}
	switch p[0] {
	case '-':
		l.refuseLocked(c, p)
		return
	case '+':
		l.confirmLocked(c, "auth", "")
		return
	}
	elems, ok := resp.Elements(append([]byte{'*'}, p[1:]...))
	if !ok || len(elems) < 3 {
		return
	}
	kind, name := string(resp.Bulk(elems[0])), string(resp.Bulk(elems[1]))
	switch kind {
	case "subscribe", "psubscribe", "ssubscribe", "unsubscribe", "punsubscribe", "sunsubscribe":
		if !l.confirmLocked(c, kind, name) && kind == "sunsubscribe" {
			l.redirector.Go(func() { l.moveShard(name) }) // the slot has moved
		}
	case "message", "smessage":
		if l.confirmed.has(strings.TrimSuffix(kind, "message"), name) {
			l.replies.Push(l.inProtocol(p))
		}
	case "pmessage":
		at := l.pools[patterns+" "+name]
		if l.confirmed.has(patterns, name) && (len(at) < 2 || l.nodes[at[0]] == c || isKeyspace(resp.Bulk(elems[2]))) {
			l.replies.Push(l.inProtocol(p))
		}
	}
}

// keyspacePrefix is how the channels begin in which a node tells of its own keys.
const keyspacePrefix = "__key"

func isKeyspace(channel []byte) bool { return bytes.HasPrefix(channel, []byte(keyspacePrefix)) }

// inProtocol is a message as the client's protocol words it.
func (l *subscriber) inProtocol(push []byte) []byte {
	if l.proto == 3 {
		return push
	}
	p := bytes.Clone(push)
	p[0] = '*'
	return p
}

// confirmLocked is false for what nobody asked for.
func (l *subscriber) confirmLocked(c *upstream.Conn, command, name string) bool {
	i := slices.IndexFunc(l.awaiting[c], func(e confirmation) bool { return e.command == command && e.name == name })
	if i < 0 {
		return false
	}
	e := l.awaiting[c][i]
	l.awaiting[c] = slices.Delete(l.awaiting[c], i, i+1)
	if e.left != nil {
		if *e.left--; *e.left == 0 {
			l.confirmToClientLocked(command, []byte(name))
		}
	}
	e.done <- nil
	return true
}

func (l *subscriber) refuseLocked(c *upstream.Conn, refusal []byte) {
	if len(l.awaiting[c]) > 0 {
		e := l.awaiting[c][0]
		l.awaiting[c] = slices.Delete(l.awaiting[c], 0, 1)
		e.done <- bytes.Clone(refusal)
	}
}

// confirmToClientLocked takes over a change and tells the client.
func (l *subscriber) confirmToClientLocked(kind string, name []byte) {
	l.confirmed.note([][]byte{[]byte(upper([]byte(kind))), name})
	l.replies.Push(l.confirmationReply(kind, resp.AppendBulk(nil, name)))
}

// confirmationReply is what a client is told of a subscription that it has, or has not
// any more; name is a reply.
func (l *subscriber) confirmationReply(kind string, name []byte) []byte {
	n := len(l.confirmed.channels) + len(l.confirmed.patterns)
	if kind[0] == 's' && kind != "subscribe" {
		n = len(l.confirmed.shards)
	}
	b := append([]byte{'>'}, "3\r\n"...)
	b = resp.AppendBulkString(b, kind)
	b = append(b, name...)
	return l.inProtocol(resp.AppendInt(b, int64(n)))
}

// Fail implements upstream.Sink: who had subscriptions there has lost them, as when a
// Redis goes away.
func (l *subscriber) Fail(c *upstream.Conn, _ int, _ bool, _ error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	waiting := l.awaiting[c]
	delete(l.awaiting, c)
	delete(l.identities, c)
	for _, e := range waiting {
		e.done <- relay.AppendLost(nil, relay.ErrLost)
	}
	if !l.closed {
		l.replies.Disconnect()
	}
}

// close gives up all subscriptions.
func (l *subscriber) close() {
	l.mu.Lock()
	l.closed = true
	nodes := l.nodes
	l.nodes = nil
	close(l.closing)
	l.mu.Unlock()
	for _, c := range nodes {
		c.Close()
	}
}

// authenticate makes the connections those of another user, as AUTH does with that of a
// subscriber: the subscriptions stay.
func (l *subscriber) authenticate(ctx context.Context, id upstream.Identity) error {
	l.sending.Lock()
	defer l.sending.Unlock()
	l.mu.Lock()
	all := slices.Collect(maps.Values(l.nodes))
	l.mu.Unlock()
	for _, c := range all {
		if err := l.authenticateConn(ctx, c, id); err != nil {
			return err
		}
	}
	return nil
}

// authenticateConn makes a connection that of another user, with sending held.
func (l *subscriber) authenticateConn(ctx context.Context, c *upstream.Conn, id upstream.Identity) error {
	came := make(chan []byte, 1)
	l.mu.Lock()
	as := l.identities[c]
	if as.User == id.User && as.Secret == id.Secret || !c.Alive() {
		l.mu.Unlock()
		return nil
	}
	l.identities[c] = id
	l.awaiting[c] = append(l.awaiting[c], confirmation{command: "auth", done: came})
	l.mu.Unlock()
	login := []string{"AUTH", id.User, id.Secret}
	if id.User == "" {
		login = []string{"AUTH", id.Secret}
	}
	if err := c.Send(resp.AppendCommand(nil, login...), 0, l); err != nil {
		return &upstream.DownError{Err: err}
	}
	if err := awaitConfirmation(ctx, came); err != nil {
		return err
	}
	c.SetLogin(id)
	return nil
}

// awaitConfirmation waits for a confirmation.
func awaitConfirmation(ctx context.Context, came chan []byte) error {
	select {
	case refusal := <-came:
		if refusal != nil {
			return &upstream.RefusedError{Reply: refusal}
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// conn is the connection to a node, opened if need be, with sending held.
func (l *subscriber) conn(ctx context.Context, pool *upstream.Pool, id upstream.Identity) (*upstream.Conn, error) {
	l.mu.Lock()
	c := l.nodes[pool]
	l.mu.Unlock()
	if c != nil && c.Alive() {
		return c, l.authenticateConn(ctx, c, id)
	}
	id.Proto = 3
	c, err := pool.Private(ctx, id, l)
	if err != nil {
		return nil, err
	}
	c.StartPassthrough()
	c.DeliverSingly(true)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		c.Close()
		return nil, relay.ErrLost
	}
	l.nodes[pool], l.identities[c] = c, id
	return c, nil
}

// change sends one subscription, or the end of one, to nodes, and returns when all
// have confirmed it. The client sees the last confirmation, if shown; messages that
// come before it, and behind that of an end, are not for the client.
func (l *subscriber) change(ctx context.Context, id upstream.Identity, command string, name []byte, pools []*upstream.Pool, shown bool) error {
	var all []chan []byte
	var left *int
	if shown {
		n := len(pools)
		left = &n
	}
	for _, pool := range pools {
		came, err := l.send(ctx, pool, id, confirmation{command: lower([]byte(command)), name: string(name), left: left})
		if err != nil {
			return err
		}
		all = append(all, came)
	}
	for _, came := range all {
		if err := awaitConfirmation(ctx, came); err != nil {
			return err
		}
	}
	return nil
}

// send sends one subscription, or the end of one, to a node.
func (l *subscriber) send(ctx context.Context, pool *upstream.Pool, id upstream.Identity, e confirmation) (came chan []byte, err error) {
	l.sending.Lock()
	defer l.sending.Unlock()
	c, err := l.conn(ctx, pool, id)
	if err != nil {
		return nil, err
	}
	e.done = make(chan []byte, 1)
	l.mu.Lock()
	l.awaiting[c] = append(l.awaiting[c], e)
	l.mu.Unlock()
	if err := c.Send(resp.AppendCommand(nil, e.command, e.name), 0, l); err != nil {
		return nil, &upstream.DownError{Err: err}
	}
	return e.done, nil
}

// moveShard subscribes anew to a shard channel whose slot has moved.
func (l *subscriber) moveShard(name string) {
	l.up.Refresh()
	for tries := range 100 {
		if tries > 0 {
			select {
			case <-time.After(50 * time.Millisecond):
			case <-l.ctx.Done():
				return
			}
		}
		pool := l.up.View().Master(spec.Slot([]byte(name)))
		id, wanted := l.wantsShard(name)
		if !wanted {
			return
		}
		if pool == nil {
			continue
		}
		if pool, err := l.changeShard(l.ctx, id, "SSUBSCRIBE", []byte(name), pool, false); err == nil {
			l.mu.Lock()
			l.pools[shards+" "+name] = []*upstream.Pool{pool}
			l.mu.Unlock()
			if _, wanted = l.wantsShard(name); !wanted { // the client has left it meanwhile
				l.changeShard(l.ctx, id, "SUNSUBSCRIBE", []byte(name), pool, false)
			}
			return
		}
	}
	l.replies.Disconnect() // better than silence
}

// followMasters subscribes to what all masters tell of their keys on those that are new, as
// long as there are subscriptions.
func (l *subscriber) followMasters() {
	for {
		view, changed := l.up.Changed()
		again := time.Duration(0)
		for key, pools := range l.missingMasters(view.Masters()) {
			if l.addMasters(key, pools) != nil {
				again = time.Second
			}
		}
		var later <-chan time.Time
		if again > 0 {
			later = time.After(again)
		}
		select {
		case <-changed:
		case <-later:
		case <-l.closing:
			return
		case <-l.ctx.Done():
			return
		}
	}
}

// missingMasters are the masters that a subscription for all of them does not have, by kind
// and name.
func (l *subscriber) missingMasters(masters []*upstream.Pool) map[string][]*upstream.Pool {
	l.mu.Lock()
	defer l.mu.Unlock()
	missing := map[string][]*upstream.Pool{}
	for key, have := range l.pools {
		kind, name, _ := strings.Cut(key, " ")
		if l.closed || !needsAllMasters(kind, []byte(name)) || !l.confirmed.has(kind, name) {
			continue
		}
		for _, m := range masters {
			if !slices.Contains(have, m) {
				missing[key] = append(missing[key], m)
			}
		}
	}
	return missing
}

// addMasters subscribes on further masters.
func (l *subscriber) addMasters(key string, pools []*upstream.Pool) error {
	kind, name, _ := strings.Cut(key, " ")
	l.mu.Lock()
	id := l.id
	l.pools[key] = append(slices.Clone(l.pools[key]), pools...) // what they say is told from what all say
	l.mu.Unlock()
	err := l.change(l.ctx, id, strings.ToUpper(kind)+"SUBSCRIBE", []byte(name), pools, false)
	l.mu.Lock()
	stays := l.confirmed.has(kind, name)
	if !stays {
		delete(l.pools, key)
	} else if err != nil {
		l.pools[key] = slices.DeleteFunc(slices.Clone(l.pools[key]), func(p *upstream.Pool) bool { return slices.Contains(pools, p) })
	}
	l.mu.Unlock()
	if err == nil && !stays { // the client has left it meanwhile
		return l.change(l.ctx, id, strings.ToUpper(kind)+"UNSUBSCRIBE", []byte(name), pools, false)
	}
	return err
}

// wantsShard says that the client is subscribed to a shard channel, and as whom.
func (l *subscriber) wantsShard(name string) (id upstream.Identity, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.id, l.confirmed.has(shards, name) && !l.closed
}

// changeShard is change for a shard channel at the master of its slot, or at that which
// it names. A node that does not serve the slot any more has ended its subscriptions.
func (l *subscriber) changeShard(ctx context.Context, id upstream.Identity, command string, name []byte, pool *upstream.Pool, shown bool) (*upstream.Pool, error) {
	for tries := 0; ; tries++ {
		err := l.change(ctx, id, command, name, []*upstream.Pool{pool}, shown)
		var refused *upstream.RefusedError
		if !errors.As(err, &refused) || !resp.HasCode(refused.Reply, "MOVED") {
			return pool, err
		}
		slot, addr, ok := relay.ParseRedirection(refused.Reply)
		if !ok || tries == relay.MaxRedirects {
			return pool, &upstream.RefusedError{Reply: []byte(slotUncoveredError)}
		}
		to := l.up.Moved(slot, relay.AbsoluteAddr(addr, pool))
		if to == nil {
			return pool, &upstream.DownError{Err: relay.ErrLost}
		}
		if command == "SUNSUBSCRIBE" {
			if l.mu.Lock(); shown {
				l.confirmToClientLocked(lower([]byte(command)), name)
			}
			l.mu.Unlock()
			return pool, nil
		}
		pool = to
	}
}

// setIdentity says who the client is from now on.
func (l *subscriber) setIdentity(id upstream.Identity) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.id, l.proto = id, id.Proto
}

// subscribe handles a command of the SUBSCRIBE family in a Cluster.
func (s *Session) subscribe(ctx context.Context, args [][]byte) {
	if s.idle(ctx) != nil {
		return
	}
	command := upper(args[0])
	kind, begins := subscriptionKind(command)
	if begins && len(args) < 2 {
		s.reply(wrongArity(args))
		return
	}
	if s.subscriber == nil {
		s.subscriber = newSubscriber(s)
	}
	l := s.subscriber
	l.setIdentity(s.id)
	names := args[1:]
	if len(names) == 0 {
		names = l.names(kind)
	}
	s.replies.Flush()
	if len(names) == 0 {
		null := "$-1\r\n"
		if s.id.Proto == 3 {
			null = "_\r\n"
		}
		l.replies.Push(l.confirmationReply(lower(args[0]), []byte(null)))
	}
	for _, name := range names {
		if err := s.changeSubscription(ctx, l, command, kind, begins, name); err != nil {
			s.replyErr(err)
			break
		}
	}
}

func (l *subscriber) names(kind string) [][]byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.confirmed.names(kind)
}

// any says that there are subscriptions left.
func (l *subscriber) any() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.confirmed.any()
}

// subscribed says that the client has subscriptions.
func (s *Session) subscribed() bool {
	if s.subscriber != nil {
		return s.subscriber.any()
	}
	return s.pass.subs.any()
}

func (s *Session) changeSubscription(ctx context.Context, l *subscriber, command, kind string, begins bool, name []byte) error {
	key := kind + " " + string(name)
	l.mu.Lock()
	pools := l.pools[key]
	l.mu.Unlock()
	if len(pools) == 0 && begins {
		pools = s.subscriptionPools(kind, name)
	}
	if len(pools) == 0 && begins {
		return &upstream.RefusedError{Reply: []byte(slotUncoveredError)}
	}
	if len(pools) == 0 {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.confirmToClientLocked(lower([]byte(command)), name)
		return nil
	}
	if begins {
		l.mu.Lock()
		l.pools[key] = pools
		l.mu.Unlock()
	}
	var err error
	if name = bytes.Clone(name); kind == shards {
		pools = slices.Clone(pools)
		pools[0], err = l.changeShard(ctx, s.id, command, name, pools[0], true)
	} else {
		err = l.change(ctx, s.id, command, name, pools, true)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pools[key] = pools; !l.confirmed.has(kind, string(name)) {
		delete(l.pools, key)
	} else if needsAllMasters(kind, name) && !l.followsMasters {
		l.followsMasters = true
		l.redirector.Go(l.followMasters)
	}
	return err
}

// subscriptionPools are the nodes that have the messages of a channel or pattern.
func (s *Session) subscriptionPools(kind string, name []byte) []*upstream.Pool {
	v := s.d.opt.Upstream.View()
	switch {
	case kind == shards:
		if pool := v.Master(spec.Slot(name)); pool != nil {
			return []*upstream.Pool{pool}
		}
		return nil
	case needsAllMasters(kind, name):
		return v.Masters()
	}
	return []*upstream.Pool{v.FirstMaster()}
}

// needsAllMasters says that each master has messages of its own for a subscription.
func needsAllMasters(kind string, name []byte) bool {
	return kind != shards && isKeyspace(name) || kind == patterns && mayMatchKeyspace(string(name))
}

// mayMatchKeyspace says that a pattern may match channels about keys.
func mayMatchKeyspace(pattern string) bool {
	plain := strings.IndexAny(pattern, `*?[\\`)
	return plain >= 0 && strings.HasPrefix(keyspacePrefix, pattern[:plain])
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

// subscriberModeReply says what a client of RESP2 that has subscriptions hears of a command, in
// place of its reply. It is nil for commands that are fine.
func (s *Session) subscriberModeReply(c *command, args [][]byte) []byte {
	if s.id.Proto == 3 || !s.subscriber.any() {
		return nil
	}
	cmd := s.d.upstreamTable().Lookup(args)
	switch {
	case c.has(whileSubscribed):
		return nil
	case cmd == nil || !cmd.Takes(len(args)) || resp.Is(args[0], "PING") && len(args) > 2:
		return nil // refused in the upstream's words
	case resp.Is(args[0], "PING"):
		text := []byte(nil)
		if len(args) == 2 {
			text = args[1]
		}
		return resp.AppendCommand(nil, []byte("pong"), text)
	}
	return resp.AppendError(nil, subscriberModeError(args[0]))
}

// runSubscribe handles the commands that are not one request and one reply.
func (s *Session) runSubscribe(ctx context.Context, c *command, raw []byte, args [][]byte) {
	switch {
	case s.tx.in:
		s.refuseQueued(errorAbout(args, "not supported inside a transaction with a Cluster upstream"))
	case resp.Is(args[0], "MONITOR"):
		s.runMonitor(ctx, raw)
	case c.cluster.refuse != nil:
		s.reply(c.cluster.refuse(args))
	case !c.has(messages):
		s.startPassthrough(ctx, raw, args)
	default:
		s.subscribe(ctx, args)
	}
}

func (s *Session) closeSubscriber() {
	if s.subscriber != nil {
		s.subscriber.close()
		s.subscriber = nil
	}
	if s.monitor != nil {
		s.monitor.close()
		s.monitor = nil
	}
}

// runMonitor shows the client what all masters do.
func (s *Session) runMonitor(ctx context.Context, raw []byte) {
	if s.idle(ctx) != nil || s.monitor != nil {
		return
	}
	s.replies.Flush()
	masters := s.d.opt.Upstream.View().Masters()
	if len(masters) == 0 {
		masters = []*upstream.Pool{s.d.opt.Upstream.Pool()}
	}
	m := &monitor{replies: s.replies, unanswered: len(masters), started: make(chan bool, 1), answered: map[*upstream.Conn]bool{}}
	for _, pool := range masters {
		if err := m.open(ctx, pool, s.id, raw); err != nil {
			m.close()
			s.replyErr(err)
			return
		}
	}
	select {
	case ok := <-m.started:
		if s.monitor = m; !ok {
			s.monitor = nil
			m.close()
		}
	case <-ctx.Done():
		m.close()
	}
}

// A spectator writes what masters say about themselves to the client of a MONITOR.
type monitor struct {
	replies *relay.Replies

	mu         sync.Mutex
	conns      []*upstream.Conn
	closed     bool
	unanswered int // first replies, to MONITOR itself
	partial    relay.PartialMessages
	answered   map[*upstream.Conn]bool // who has answered
	started    chan bool               // gets whether all have agreed
}

// open begins to look at a node.
func (m *monitor) open(ctx context.Context, pool *upstream.Pool, id upstream.Identity, raw []byte) error {
	c, err := pool.Private(ctx, id, m)
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.conns = append(m.conns, c)
	m.mu.Unlock()
	c.StartPassthrough()
	c.DeliverSingly(true)
	if err := c.Send(raw, 0, m); err != nil {
		return &upstream.DownError{Err: err}
	}
	return nil
}

// Deliver implements upstream.Sink. What a master does before all have answered is not
// shown: the client does not have its own answer yet.
func (m *monitor) Deliver(c *upstream.Conn, p []byte, _ int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	line, whole := m.partial.Add(c, p, m.replies.Limit())
	switch {
	case !whole:
	case m.answered[c] && m.unanswered > 0:
	case m.answered[c]:
		m.replies.Push(line)
	case line[0] == '-':
		m.refuseLocked(line)
	default:
		m.answered[c] = true
		if m.unanswered--; m.unanswered == 0 {
			m.replies.Push(line)
			m.started <- true
		}
	}
}

func (m *monitor) refuseLocked(reply []byte) {
	m.closed = true
	m.replies.Push(reply)
	m.started <- false
}

// Fail implements upstream.Sink.
func (m *monitor) Fail(_ *upstream.Conn, _ int, _ bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed:
	case m.unanswered > 0:
		m.refuseLocked(relay.AppendLost(nil, err))
	default:
		m.replies.Disconnect()
	}
}

func (m *monitor) close() {
	m.mu.Lock()
	m.closed = true
	conns := m.conns
	m.mu.Unlock()
	for _, c := range conns {
		c.Close()
	}
}

// Full implements upstream.Owner.
func (l *subscriber) Full() <-chan struct{} { return l.replies.Full() }

// Full implements upstream.Owner.
func (m *monitor) Full() <-chan struct{} { return m.replies.Full() }
