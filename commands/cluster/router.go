package cluster

import (
	"context"
	"errors"
	"slices"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/relay"
	"github.com/lockproxy/lockproxy/commands/spec"
)

// A Router sends one client's commands to the nodes of an upstream of several.
type Router struct {
	// Fixed by New.
	up         *upstream.Upstream
	replies    *relay.Replies
	hint       uint32
	redirector *relay.Redirector

	view    *upstream.View // by which everything that is under way was sent
	conns   map[*upstream.Pool]*[upstream.ConnClasses]*upstream.Conn
	batches []batch
	keyArgs []int // scratch: where the keys of the command are that was routed last

	// tracking is the client's CLIENT TRACKING, of several the prefixes add up: then conns are the client's own. nil: off.
	tracking     [][]byte
	broadcasts   bool                                  // with BCAST: all masters are to tell of keys
	unfollow     context.CancelFunc                    // ends endAtNewMaster; nil: it does not run
	trackedConns map[*upstream.Conn]*relay.TrackedConn // who owns these
	caching      []byte                                // CLIENT CACHING about the next command; may be nil
}

// A batch is commands to one node that will be sent together. What was sent is kept
// by its requests, which may have to be sent again.
type batch struct {
	conn  *upstream.Conn
	raw   []byte
	sinks []upstream.Sink
}

// New makes the Router of a client whose replies go to replies. hint spreads clients over
// replicas and connections. End must be called.
func New(up *upstream.Upstream, replies *relay.Replies, hint uint32) *Router {
	rt := &Router{
		up: up, replies: replies, hint: hint, redirector: relay.NewRedirector(up), view: up.View(),
		conns: map[*upstream.Pool]*[upstream.ConnClasses]*upstream.Conn{}, trackedConns: map[*upstream.Conn]*relay.TrackedConn{},
	}
	replies.Serve(rt.redirector)
	return rt
}

// End returns when nothing is sent on any more.
func (rt *Router) End() { rt.redirector.End() }

// Redirector sends on what nodes redirect.
func (rt *Router) Redirector() *relay.Redirector { return rt.redirector }

// View is what the Router knows of the nodes. It changes only by Renew.
func (rt *Router) View() *upstream.View { return rt.view }

// Renew takes over the upstream's view of the nodes, and gives up connections that are of
// no more use. It must be called only while nothing is under way: a command could overtake an
// earlier one, which still has to be sent on.
func (rt *Router) Renew() {
	rt.view = rt.up.View()
	rt.drop(func(c *upstream.Conn) bool {
		return !c.Alive() || c.Draining() && rt.trackedConns[c] == nil // the client must get the end of what it tracked
	})
}

// DropAll gives back all connections of a client that speaks proto, which is told so if they were
// tracked.
func (rt *Router) DropAll(proto int) {
	if len(rt.conns) > 0 {
		rt.drop(func(*upstream.Conn) bool { return true })
		rt.Invalidate(proto)
	}
}

// drop gives back borrowed connections.
func (rt *Router) drop(which func(*upstream.Conn) bool) {
	for pool, cs := range rt.conns {
		left := 0
		for class, c := range cs {
			if c != nil && which(c) {
				rt.Leave(c)
				cs[class] = nil
			} else if c != nil {
				left++
			}
		}
		if left == 0 {
			delete(rt.conns, pool)
		}
	}
}

// Leave gives up a connection that open has given.
func (rt *Router) Leave(c *upstream.Conn) {
	o := rt.trackedConns[c]
	if o == nil {
		upstream.Return(c)
		return
	}
	if c.Alive() { // else the client is to be disconnected
		o.Abandon()
	}
	delete(rt.trackedConns, c)
	c.Close()
}

// gather adds a request, with a copy of its command, to what will be sent to a node.
func (rt *Router) gather(c *upstream.Conn, next *relay.Request) {
	i := 0
	for i < len(rt.batches) && rt.batches[i].conn != c {
		i++
	}
	if i == len(rt.batches) {
		rt.batches = append(rt.batches, batch{conn: c})
	}
	b := &rt.batches[i]
	n := len(b.raw)
	b.raw = append(b.raw, next.Raw...)
	next.Raw = b.raw[n:len(b.raw):len(b.raw)]
	for range 1 + next.Skip {
		b.sinks = append(b.sinks, next)
	}
}

// Flush sends what was gathered.
func (rt *Router) Flush() {
	for i, b := range rt.batches {
		rt.batches[i] = batch{}
		rt.replies.SendEach(b.conn, b.raw, b.sinks)
	}
	rt.batches = rt.batches[:0]
}

// Conn is the borrowed connection to a node; nil if there is none of use.
func (rt *Router) Conn(pool *upstream.Pool, class upstream.ConnClass) *upstream.Conn {
	if cs := rt.conns[pool]; cs != nil && cs[class] != nil && cs[class].Alive() {
		return cs[class]
	}
	return nil
}

// keep makes c the connection to a node.
func (rt *Router) keep(pool *upstream.Pool, class upstream.ConnClass, c *upstream.Conn) {
	cs := rt.conns[pool]
	if cs == nil {
		cs = &[upstream.ConnClasses]*upstream.Conn{}
		rt.conns[pool] = cs
	}
	if cs[class] != nil {
		rt.Leave(cs[class])
	}
	cs[class] = c
}

// ErrNobody is why there is no connection where no node is known.
var ErrNobody = errors.New("no node is known that serves it")

// ConnectNodes makes sure that there are connections to nodes, and to all masters if all are to tell the client of keys.
func (rt *Router) ConnectNodes(ctx context.Context, as relay.Sender, pools ...*upstream.Pool) error {
	if rt.broadcasts && as.Class == upstream.MainClass {
		pools = slices.Concat(pools, rt.view.Masters())
	}
	for _, pool := range pools {
		if pool == nil {
			return &upstream.DownError{Err: ErrNobody}
		}
		if rt.Conn(pool, as.Class) != nil {
			continue
		}
		c, err := rt.open(ctx, as, pool)
		if err != nil {
			rt.up.Refresh()
			return err
		}
		rt.keep(pool, as.Class, c)
	}
	return nil
}

// Connect makes sure that there are connections to the nodes of a route, that of the
// command with these arguments. A command that only reads, and whose node cannot be
// reached, gets another one.
func (rt *Router) Connect(ctx context.Context, as relay.Sender, r Route, args [][]byte) (Route, error) {
	switch r.Kind {
	case SeveralSlots:
		return r, rt.ConnectNodes(ctx, as, rt.mastersOf(args)...)
	case AllMasters, NodeByNode:
		masters := rt.view.Masters()
		if len(masters) == 0 {
			return routeTo(nil, relay.NoSlot, false), nil
		}
		return r, rt.ConnectNodes(ctx, as, masters...)
	case OneNode:
		err := rt.ConnectNodes(ctx, as, r.Pool)
		for tries := 0; err != nil && r.Read && ctx.Err() == nil; tries++ {
			r = rt.otherReader(r, tries > 0)
			err = rt.ConnectNodes(ctx, as, r.Pool)
		}
		return r, err
	}
	return r, nil
}

// otherReader is the route of a read whose node cannot be reached: another replica that
// may be, or else, or if there is not the time, the master.
func (rt *Router) otherReader(r Route, haste bool) Route {
	slot := max(r.Slot, 0)
	if next := rt.view.Reader(slot, rt.hint); next != r.Pool && !haste {
		r.Pool = next
	} else {
		r.Pool = rt.view.Master(slot)
	}
	r.Read = r.Pool != rt.view.Master(slot)
	return r
}

// mastersOf are the masters that serve the keys that Route has just found.
func (rt *Router) mastersOf(args [][]byte) (pools []*upstream.Pool) {
	for _, i := range rt.keyArgs {
		if pool := rt.view.Master(spec.Slot(args[i])); pool != nil {
			pools = append(pools, pool)
		}
	}
	return pools
}

// AskKeys routes a command whose keys only the upstream knows.
func (rt *Router) AskKeys(ctx context.Context, as relay.Sender, args [][]byte) (r Route, err error) {
	home := rt.view.FirstMaster()
	if err := rt.ConnectNodes(ctx, as, home); err != nil {
		return r, err
	}
	question := append([][]byte{[]byte("COMMAND"), []byte("GETKEYS")}, args...)
	reply, err := rt.replies.Ask(ctx, rt.Conn(home, as.Class), resp.AppendCommand(nil, question...))
	if err != nil {
		return r, err
	}
	keys, ok := resp.Elements(reply)
	if !ok || len(keys) == 0 {
		return Route{Slot: relay.NoSlot}, nil
	}
	slot := spec.Slot(resp.Bulk(keys[0]))
	for _, k := range keys[1:] {
		if spec.Slot(resp.Bulk(k)) != slot {
			return Route{Kind: BadKeys, Slot: relay.NoSlot, Answer: CrossSlotError}, nil
		}
	}
	return routeTo(rt.view.Master(slot), slot, false), nil
}
