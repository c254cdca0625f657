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

	again *redirector // waits for what is started here

	sending sync.Mutex // held while something is said to a node; before mu

	mu      sync.Mutex
	id      upstream.Identity
	proto   int
	closed  bool
	nodes   map[*upstream.Pool]*upstream.Conn
	as      map[*upstream.Conn]upstream.Identity // who they are, by their last AUTH
	parts   pieces
	awaited map[*upstream.Conn][]expecting // confirmations, in order
	subs    subscriptions                  // confirmed to the client
	where   map[string][]*upstream.Pool    // of a subscription, by kind and name
	covers  bool                           // cover runs
	ended   chan struct{}                  // closed by close
}

// expecting is a confirmation that is on its way.
type expecting struct {
	command, name string      // the former in lower case
	left          *int        // confirmations until the client sees one; nil: it is to see none
	came          chan []byte // gets the refusal, or nil
}

// Kinds of subscriptions, by the first letters of their commands.
const (
	channels = ""
	patterns = "p"
	shards   = "s"
)

func newListener(s *Session) *listener {
	l := &listener{
		up: s.d.opt.Upstream, r: s.replies, again: s.openRouter().redirector, ctx: s.openRouter().redirector.ctx, proto: s.id.Proto,
		nodes: map[*upstream.Pool]*upstream.Conn{}, as: map[*upstream.Conn]upstream.Identity{},
		awaited: map[*upstream.Conn][]expecting{}, where: map[string][]*upstream.Pool{}, ended: make(chan struct{}),
	}
	return l
}

// Deliver implements upstream.Sink: messages, confirmations, and the refusals that
// come in place of these.
func (l *listener) Deliver(c *upstream.Conn, p []byte, _ int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, whole := l.parts.add(c, p, l.r.limit)
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
	elems, ok := elements(append([]byte{'*'}, p[1:]...))
	if !ok || len(elems) < 3 {
		return
	}
	kind, name := string(bulk(elems[0])), string(bulk(elems[1]))
	switch kind {
	case "subscribe", "psubscribe", "ssubscribe", "unsubscribe", "punsubscribe", "sunsubscribe":
		if !l.confirmLocked(c, kind, name) && kind == "sunsubscribe" {
			l.again.Go(func() { l.follow(name) }) // the slot has moved
		}
	case "message", "smessage":
		if l.subs.has(strings.TrimSuffix(kind, "message"), name) {
			l.r.Push(l.worded(p))
		}
	case "pmessage":
		at := l.where[patterns+" "+name]
		if l.subs.has(patterns, name) && (len(at) < 2 || l.nodes[at[0]] == c || aboutKeys(bulk(elems[2]))) {
			l.r.Push(l.worded(p))
		}
	}
}

// keyChannels is how the channels begin in which a node tells of its own keys.
const keyChannels = "__key"

func aboutKeys(channel []byte) bool { return bytes.HasPrefix(channel, []byte(keyChannels)) }

// worded is a message as the client's protocol words it.
func (l *listener) worded(push []byte) []byte {
	if l.proto == 3 {
		return push
	}
	p := bytes.Clone(push)
	p[0] = '*'
	return p
}

// confirmLocked is false for what nobody asked for.
func (l *listener) confirmLocked(c *upstream.Conn, command, name string) bool {
	i := slices.IndexFunc(l.awaited[c], func(e expecting) bool { return e.command == command && e.name == name })
	if i < 0 {
		return false
	}
	e := l.awaited[c][i]
	l.awaited[c] = slices.Delete(l.awaited[c], i, i+1)
	if e.left != nil {
		if *e.left--; *e.left == 0 {
			l.showLocked(command, []byte(name))
		}
	}
	e.came <- nil
	return true
}

func (l *listener) refuseLocked(c *upstream.Conn, refusal []byte) {
	if len(l.awaited[c]) > 0 {
		e := l.awaited[c][0]
		l.awaited[c] = slices.Delete(l.awaited[c], 0, 1)
		e.came <- bytes.Clone(refusal)
	}
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
	delete(l.as, c)
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
	close(l.ended)
	l.mu.Unlock()
	for _, c := range nodes {
		c.Close()
	}
}

// become makes the connections those of another user, as AUTH does with that of a
// subscriber: the subscriptions stay.
func (l *listener) become(ctx context.Context, id upstream.Identity) error {
	l.sending.Lock()
	defer l.sending.Unlock()
	l.mu.Lock()
	all := slices.Collect(maps.Values(l.nodes))
	l.mu.Unlock()
	for _, c := range all {
		if err := l.act(ctx, c, id); err != nil {
			return err
		}
	}
	return nil
}

// act makes a connection that of another user, with sending held.
func (l *listener) act(ctx context.Context, c *upstream.Conn, id upstream.Identity) error {
	came := make(chan []byte, 1)
	l.mu.Lock()
	as := l.as[c]
	if as.User == id.User && as.Secret == id.Secret || !c.Alive() {
		l.mu.Unlock()
		return nil
	}
	l.as[c] = id
	l.awaited[c] = append(l.awaited[c], expecting{command: "auth", came: came})
	l.mu.Unlock()
	login := []string{"AUTH", id.User, id.Secret}
	if id.User == "" {
		login = []string{"AUTH", id.Secret}
	}
	if err := c.Send(resp.AppendCommand(nil, login...), 0, l); err != nil {
		return &upstream.DownError{Err: err}
	}
	if err := confirmed(ctx, came); err != nil {
		return err
	}
	c.SetLogin(id)
	return nil
}

// confirmed waits for a confirmation.
func confirmed(ctx context.Context, came chan []byte) error {
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
func (l *listener) conn(ctx context.Context, pool *upstream.Pool, id upstream.Identity) (*upstream.Conn, error) {
	l.mu.Lock()
	c := l.nodes[pool]
	l.mu.Unlock()
	if c != nil && c.Alive() {
		return c, l.act(ctx, c, id)
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
		return nil, errLost
	}
	l.nodes[pool], l.as[c] = c, id
	return c, nil
}

// change sends one subscription, or the end of one, to nodes, and returns when all
// have confirmed it. The client sees the last confirmation, if shown; messages that
// come before it, and behind that of an end, are not for the client.
func (l *listener) change(ctx context.Context, id upstream.Identity, command string, name []byte, pools []*upstream.Pool, shown bool) error {
	var all []chan []byte
	var left *int
	if shown {
		n := len(pools)
		left = &n
	}
	for _, pool := range pools {
		came, err := l.send(ctx, pool, id, expecting{command: lower([]byte(command)), name: string(name), left: left})
		if err != nil {
			return err
		}
		all = append(all, came)
	}
	for _, came := range all {
		if err := confirmed(ctx, came); err != nil {
			return err
		}
	}
	return nil
}

// send sends one subscription, or the end of one, to a node.
func (l *listener) send(ctx context.Context, pool *upstream.Pool, id upstream.Identity, e expecting) (came chan []byte, err error) {
	l.sending.Lock()
	defer l.sending.Unlock()
	c, err := l.conn(ctx, pool, id)
	if err != nil {
		return nil, err
	}
	e.came = make(chan []byte, 1)
	l.mu.Lock()
	l.awaited[c] = append(l.awaited[c], e)
	l.mu.Unlock()
	if err := c.Send(resp.AppendCommand(nil, e.command, e.name), 0, l); err != nil {
		return nil, &upstream.DownError{Err: err}
	}
	return e.came, nil
}

// follow subscribes anew to a shard channel whose slot has moved.
func (l *listener) follow(name string) {
	l.up.Refresh()
	for tries := range 100 {
		if tries > 0 {
			select {
			case <-time.After(50 * time.Millisecond):
			case <-l.ctx.Done():
				return
			}
		}
		pool := l.up.View().Master(table.Slot([]byte(name)))
		id, wanted := l.wants(name)
		if !wanted {
			return
		}
		if pool == nil {
			continue
		}
		if pool, err := l.changeShard(l.ctx, id, "SSUBSCRIBE", []byte(name), pool, false); err == nil {
			l.mu.Lock()
			l.where[shards+" "+name] = []*upstream.Pool{pool}
			l.mu.Unlock()
			if _, wanted = l.wants(name); !wanted { // the client has left it meanwhile
				l.changeShard(l.ctx, id, "SUNSUBSCRIBE", []byte(name), pool, false)
			}
			return
		}
	}
	l.r.out.Close() // better than silence
}

// cover subscribes to what all masters tell of their keys on those that are new, as
// long as there are subscriptions.
func (l *listener) cover() {
	for {
		view, changed := l.up.Changed()
		again := time.Duration(0)
		for key, pools := range l.uncovered(view.Masters()) {
			if l.extend(key, pools) != nil {
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
		case <-l.ended:
			return
		case <-l.ctx.Done():
			return
		}
	}
}

// uncovered are the masters that a subscription for all of them does not have, by kind
// and name.
func (l *listener) uncovered(masters []*upstream.Pool) map[string][]*upstream.Pool {
	l.mu.Lock()
	defer l.mu.Unlock()
	missing := map[string][]*upstream.Pool{}
	for key, have := range l.where {
		kind, name, _ := strings.Cut(key, " ")
		if l.closed || !ofAllMasters(kind, []byte(name)) || !l.subs.has(kind, name) {
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

// extend subscribes on further masters.
func (l *listener) extend(key string, pools []*upstream.Pool) error {
	kind, name, _ := strings.Cut(key, " ")
	l.mu.Lock()
	id := l.id
	l.where[key] = append(slices.Clone(l.where[key]), pools...) // what they say is told from what all say
	l.mu.Unlock()
	err := l.change(l.ctx, id, strings.ToUpper(kind)+"SUBSCRIBE", []byte(name), pools, false)
	l.mu.Lock()
	stays := l.subs.has(kind, name)
	if !stays {
		delete(l.where, key)
	} else if err != nil {
		l.where[key] = slices.DeleteFunc(slices.Clone(l.where[key]), func(p *upstream.Pool) bool { return slices.Contains(pools, p) })
	}
	l.mu.Unlock()
	if err == nil && !stays { // the client has left it meanwhile
		return l.change(l.ctx, id, strings.ToUpper(kind)+"UNSUBSCRIBE", []byte(name), pools, false)
	}
	return err
}

// wants says that the client is subscribed to a shard channel, and as whom.
func (l *listener) wants(name string) (id upstream.Identity, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.id, l.subs.has(shards, name) && !l.closed
}

// changeShard is change for a shard channel at the master of its slot, or at that which
// it names. A node that does not serve the slot any more has ended its subscriptions.
func (l *listener) changeShard(ctx context.Context, id upstream.Identity, command string, name []byte, pool *upstream.Pool, shown bool) (*upstream.Pool, error) {
	for tries := 0; ; tries++ {
		err := l.change(ctx, id, command, name, []*upstream.Pool{pool}, shown)
		var refused *upstream.RefusedError
		if !errors.As(err, &refused) || !hasWord(refused.Reply, "MOVED") {
			return pool, err
		}
		slot, addr, ok := redirection(refused.Reply)
		if !ok || tries == maxTries {
			return pool, &upstream.RefusedError{Reply: []byte(slotUncoveredError)}
		}
		to := l.up.Moved(slot, absolute(addr, pool))
		if to == nil {
			return pool, &upstream.DownError{Err: errLost}
		}
		if command == "SUNSUBSCRIBE" {
			if l.mu.Lock(); shown {
				l.showLocked(lower([]byte(command)), name)
			}
			l.mu.Unlock()
			return pool, nil
		}
		pool = to
	}
}

// speak says who the client is from now on.
func (l *listener) speak(id upstream.Identity) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.id, l.proto = id, id.Proto
}

// listen handles a command of the SUBSCRIBE family in a Cluster.
func (s *Session) listen(ctx context.Context, args [][]byte) {
	if s.idle(ctx) != nil {
		return
	}
	command := upper(args[0])
	kind, begins := subscriptionKind(command)
	if begins && len(args) < 2 {
		s.reply(wrongArity(args))
		return
	}
	if s.ears == nil {
		s.ears = newListener(s)
	}
	l := s.ears
	l.speak(s.id)
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
		l.r.Push(l.confirmation(lower(args[0]), []byte(null)))
	}
	for _, name := range names {
		if err := s.listenTo(ctx, l, command, kind, begins, name); err != nil {
			s.replyErr(err)
			break
		}
	}
}

func (l *listener) names(kind string) [][]byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.subs.names(kind)
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
		return &upstream.RefusedError{Reply: []byte(slotUncoveredError)}
	}
	if len(pools) == 0 {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.showLocked(lower([]byte(command)), name)
		return nil
	}
	if begins {
		l.mu.Lock()
		l.where[key] = pools
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
	if l.where[key] = pools; !l.subs.has(kind, string(name)) {
		delete(l.where, key)
	} else if ofAllMasters(kind, name) && !l.covers {
		l.covers = true
		l.again.Go(l.cover)
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
	case ofAllMasters(kind, name):
		return v.Masters()
	}
	return []*upstream.Pool{v.FirstMaster()}
}

// ofAllMasters says that each master has messages of its own for a subscription.
func ofAllMasters(kind string, name []byte) bool {
	return kind != shards && aboutKeys(name) || kind == patterns && mayBeAboutKeys(string(name))
}

// mayBeAboutKeys says that a pattern may match channels about keys.
func mayBeAboutKeys(pattern string) bool {
	plain := strings.IndexAny(pattern, `*?[\\`)
	return plain >= 0 && strings.HasPrefix(keyChannels, pattern[:plain])
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
	cmd := s.d.table().Lookup(args)
	switch {
	case k == subscribe || k == quit || k == reset || k == verb:
		return nil
	case cmd == nil || !cmd.Takes(len(args)) || is(args[0], "PING") && len(args) > 2:
		return nil // refused in the upstream's words
	case is(args[0], "PING"):
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
		s.refuseQueued(errorAbout(args, "not supported inside a transaction with a Cluster upstream"))
	case is(args[0], "MONITOR"):
		s.monitor(ctx, raw)
	case clusterRefusal(lower(args[0])) != nil:
		s.reply(clusterRefusal(lower(args[0]))(args))
	default:
		s.listen(ctx, args)
	}
}

func (s *Session) closeEars() {
	if s.ears != nil {
		s.ears.close()
		s.ears = nil
	}
	if s.watched != nil {
		s.watched.close()
		s.watched = nil
	}
}

// monitor shows the client what all masters do.
func (s *Session) monitor(ctx context.Context, raw []byte) {
	if s.idle(ctx) != nil || s.watched != nil {
		return
	}
	s.replies.Flush()
	masters := s.d.opt.Upstream.View().Masters()
	if len(masters) == 0 {
		masters = []*upstream.Pool{s.d.opt.Upstream.Pool()}
	}
	m := &spectator{r: s.replies, waits: len(masters), begun: make(chan bool, 1), known: map[*upstream.Conn]bool{}}
	for _, pool := range masters {
		if err := m.watch(ctx, pool, s.id, raw); err != nil {
			m.close()
			s.replyErr(err)
			return
		}
	}
	select {
	case ok := <-m.begun:
		if s.watched = m; !ok {
			s.watched = nil
			m.close()
		}
	case <-ctx.Done():
		m.close()
	}
}

// A spectator writes what masters say about themselves to the client of a MONITOR.
type spectator struct {
	r *replies

	mu     sync.Mutex
	conns  []*upstream.Conn
	closed bool
	waits  int // first replies, to MONITOR itself
	parts  pieces
	known  map[*upstream.Conn]bool // who has answered
	begun  chan bool               // gets whether all have agreed
}

// watch begins to look at a node.
func (m *spectator) watch(ctx context.Context, pool *upstream.Pool, id upstream.Identity, raw []byte) error {
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
func (m *spectator) Deliver(c *upstream.Conn, p []byte, _ int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	line, whole := m.parts.add(c, p, m.r.limit)
	switch {
	case !whole:
	case m.known[c] && m.waits > 0:
	case m.known[c]:
		m.r.Push(line)
	case line[0] == '-':
		m.refuseLocked(line)
	default:
		m.known[c] = true
		if m.waits--; m.waits == 0 {
			m.r.Push(line)
			m.begun <- true
		}
	}
}

func (m *spectator) refuseLocked(reply []byte) {
	m.closed = true
	m.r.Push(reply)
	m.begun <- false
}

// Fail implements upstream.Sink.
func (m *spectator) Fail(_ *upstream.Conn, _ int, _ bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed:
	case m.waits > 0:
		m.refuseLocked(appendLost(nil, err))
	default:
		m.r.out.Close()
	}
}

func (m *spectator) close() {
	m.mu.Lock()
	m.closed = true
	conns := m.conns
	m.mu.Unlock()
	for _, c := range conns {
		c.Close()
	}
}

// Full implements upstream.Owner.
func (l *listener) Full() <-chan struct{} { return l.r.out.Full() }

// Full implements upstream.Owner.
func (m *spectator) Full() <-chan struct{} { return m.r.out.Full() }
