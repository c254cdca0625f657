package pubsub

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/relay"
	"github.com/lockproxy/lockproxy/commands/spec"
)

// A subscriber has one client's subscriptions in a Cluster: on connections of its own, one
// to every node with some of them, in RESP3, where messages can be told from replies.
// Channels and patterns are subscribed to on one node, since nodes pass messages on to each
// other; keyspace notifications, which they do not, on every master; a shard channel on the
// master of its slot.
//
// It is the upstream.Owner of those connections. Run, Authenticate, SetIdentity and Close
// are for the session's goroutine; what comes is written by the connections' goroutines.
type subscriber struct {
	// Fixed by newSubscriber.
	up         *upstream.Upstream
	replies    *relay.Replies
	redirector *relay.Redirector // runs and awaits what is started here
	ctx        context.Context   // ends with the session

	sending sync.Mutex // held while something is sent to a node; locked before mu

	// Guarded by mu.
	mu        sync.Mutex
	id        upstream.Identity // of the client; its protocol is that of messages
	nodes     map[*upstream.Pool]*upstream.Conn
	logins    map[*upstream.Conn]upstream.Identity // by their last AUTH
	partial   relay.PartialMessages
	awaiting  map[*upstream.Conn][]confirmation // in order
	confirmed Subscriptions                     // to the client
	pools     map[string][]*upstream.Pool       // of a subscription, by kind and name
	lookAgain chan struct{}                     // not nil: followMasters runs; holds one: a subscription lacks a master
	closed    bool
	closing   chan struct{} // closed by Close
}

// A confirmation is one that is on its way from a node.
type confirmation struct {
	command, name string      // the former in lower case
	left          *int        // confirmations until the client sees one; nil: it sees none
	done          chan []byte // gets the refusal, or nil
}

// newSubscriber returns a subscriber without subscriptions. d must end with the session.
func newSubscriber(up *upstream.Upstream, replies *relay.Replies, d *relay.Redirector) *subscriber {
	return &subscriber{
		up: up, replies: replies, redirector: d, ctx: d.Context,
		nodes: map[*upstream.Pool]*upstream.Conn{}, logins: map[*upstream.Conn]upstream.Identity{},
		awaiting: map[*upstream.Conn][]confirmation{}, pools: map[string][]*upstream.Pool{}, closing: make(chan struct{}),
	}
}

// SetIdentity sets who the client is, and its protocol, from now on.
func (l *subscriber) SetIdentity(id upstream.Identity) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.id = id
}

// Any reports whether any subscriptions are left.
func (l *subscriber) Any() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.confirmed.Any()
}

// Counts are the numbers of channels, patterns and shard channels.
func (l *subscriber) Counts() [3]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.confirmed.Counts()
}

// Run runs a command of the SUBSCRIBE family, for a client that is id and is owed no
// replies. The client sees the confirmations; the error is the reply in place of the next
// one, and of all behind it.
func (l *subscriber) Run(ctx context.Context, id upstream.Identity, args [][]byte) error {
	l.SetIdentity(id)
	command := strings.ToUpper(string(args[0]))
	kind, begins, _ := parse(args[0])
	names := args[1:]
	if len(names) == 0 {
		l.mu.Lock()
		names = l.confirmed.names(kind)
		l.mu.Unlock()
	}
	l.replies.Flush()
	if len(names) == 0 {
		l.mu.Lock()
		reply := l.confirmationReply(strings.ToLower(command), resp.AppendNullBulk(nil, id.Proto))
		l.mu.Unlock()
		l.replies.Push(reply)
	}
	for _, name := range names {
		if err := l.run(ctx, id, command, kind, begins, name); err != nil {
			return err
		}
	}
	return nil
}

// run begins or ends one subscription.
func (l *subscriber) run(ctx context.Context, id upstream.Identity, command, kind string, begins bool, name []byte) error {
	key := kind + " " + string(name)
	l.mu.Lock()
	pools := l.pools[key]
	l.mu.Unlock()
	if len(pools) == 0 && begins {
		pools = l.poolsOf(kind, name)
	}
	switch {
	case len(pools) == 0 && begins:
		return &upstream.RefusedError{Reply: []byte(relay.SlotUncovered)}
	case len(pools) == 0:
		l.mu.Lock()
		defer l.mu.Unlock()
		l.confirmToClientLocked(strings.ToLower(command), name)
		return nil
	case begins:
		l.mu.Lock()
		l.pools[key] = pools
		l.mu.Unlock()
	}
	var err error
	if name = bytes.Clone(name); kind == shards {
		pools = slices.Clone(pools)
		pools[0], err = l.changeShard(ctx, id, command, name, pools[0], true)
	} else {
		err = l.change(ctx, id, command, name, pools, true)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pools[key] = pools; !l.confirmed.has(kind, string(name)) {
		delete(l.pools, key)
	} else if needsAllMasters(kind, name) {
		l.followMastersLocked(pools)
	}
	return err
}

// poolsOf are the nodes that have the messages of a channel or pattern.
func (l *subscriber) poolsOf(kind string, name []byte) []*upstream.Pool {
	v := l.up.View()
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

// change begins or ends one subscription on nodes, and returns when all have confirmed it.
// The client sees the last confirmation, if shown, and no message before it, or behind
// that of an end.
func (l *subscriber) change(ctx context.Context, id upstream.Identity, command string, name []byte, pools []*upstream.Pool, shown bool) error {
	var all []chan []byte
	var left *int
	if shown {
		n := len(pools)
		left = &n
	}
	for _, pool := range pools {
		confirmed, err := l.send(ctx, pool, id, confirmation{command: strings.ToLower(command), name: string(name), left: left})
		if err != nil {
			return err
		}
		all = append(all, confirmed)
	}
	for _, confirmed := range all {
		if err := awaitConfirmation(ctx, confirmed); err != nil {
			return err
		}
	}
	return nil
}

// send begins or ends one subscription on a node.
func (l *subscriber) send(ctx context.Context, pool *upstream.Pool, id upstream.Identity, e confirmation) (confirmed chan []byte, err error) {
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
	l.nodes[pool], l.logins[c] = c, id
	return c, nil
}

// Authenticate logs the connections in as id. As with a subscriber's AUTH, subscriptions
// stay.
func (l *subscriber) Authenticate(ctx context.Context, id upstream.Identity) error {
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

// authenticateConn logs a connection in as id, with sending held.
func (l *subscriber) authenticateConn(ctx context.Context, c *upstream.Conn, id upstream.Identity) error {
	confirmed := make(chan []byte, 1)
	l.mu.Lock()
	as := l.logins[c]
	if as.User == id.User && as.Secret == id.Secret || !c.Alive() {
		l.mu.Unlock()
		return nil
	}
	l.logins[c] = id
	l.awaiting[c] = append(l.awaiting[c], confirmation{command: "auth", done: confirmed})
	l.mu.Unlock()
	if err := c.Send(resp.AppendCommand(nil, id.Auth()...), 0, l); err != nil {
		return &upstream.DownError{Err: err}
	}
	if err := awaitConfirmation(ctx, confirmed); err != nil {
		return err
	}
	c.SetLogin(id)
	return nil
}

// awaitConfirmation waits for a confirmation. A refusal is an upstream.RefusedError.
func awaitConfirmation(ctx context.Context, confirmed chan []byte) error {
	select {
	case refusal := <-confirmed:
		if refusal != nil {
			return &upstream.RefusedError{Reply: refusal}
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close ends all subscriptions and closes the connections.
func (l *subscriber) Close() {
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
