package commands

import (
	"bytes"
	"context"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/spec"
)

// clusterRouter is what a session knows of an upstream of several nodes.
type clusterRouter struct {
	view       *upstream.View // by which everything that is under way was sent
	conns      map[*upstream.Pool]*[upstream.ConnClasses]*upstream.Conn
	batches    []batch
	keyArgs    []int // scratch: where the keys of a command are
	redirector *redirector

	// tracking is the client's CLIENT TRACKING: then conns are the session's own. nil: off.
	tracking     []byte
	trackedConns map[*upstream.Conn]*trackedConn // who owns these
	caching      []byte                          // CLIENT CACHING about the next command; may be nil
}

// A batch is commands to one node that will be sent together. What was sent is kept
// by its calls, who may have to send it again.
type batch struct {
	conn  *upstream.Conn
	raw   []byte
	sinks []upstream.Sink
}

// A plan is where a command has to go. Its zero value is the home node, as any
// command that has no keys.
type route struct {
	kind routeKind
	slot int
	pool *upstream.Pool // keyed
	read bool           // pool may be a replica's
}

type routeKind uint8

const (
	anyNode       routeKind = iota
	oneNode                 // to the node that serves its keys
	split                   // its keys are of several slots, it goes to each node with some of them
	allMasters              // to all masters
	crossSlot               // its keys are of several slots, and it can't be split
	slotUncovered           // no node serves its keys
	malformed               // it has too many or too few arguments
	unknownKeys             // only the upstream knows its keys
)

const (
	crossSlotError     = "-CROSSSLOT Keys in request don't hash to the same slot\r\n"
	slotUncoveredError = "-CLUSTERDOWN Hash slot not served\r\n"
)

// drop gives back borrowed connections.
func (rt *clusterRouter) drop(which func(*upstream.Conn) bool) {
	for pool, cs := range rt.conns {
		left := 0
		for lane, c := range cs {
			if c != nil && which(c) {
				rt.leave(c)
				cs[lane] = nil
			} else if c != nil {
				left++
			}
		}
		if left == 0 {
			delete(rt.conns, pool)
		}
	}
}

// leave gives up a connection of conns.
func (rt *clusterRouter) leave(c *upstream.Conn) {
	o := rt.trackedConns[c]
	if o == nil {
		upstream.Return(c)
		return
	}
	if c.Alive() { // else the client is to hear of it
		o.abandoned.Store(true)
	}
	delete(rt.trackedConns, c)
	c.Close()
}

// route decides where a command goes.
func (s *Session) route(c *command, args [][]byte) (p route, cmd *spec.Command) {
	v := s.router.view
	cmd = s.d.upstreamTable().Lookup(args)
	if cmd == nil {
		return route{slot: noSlot}, nil
	}
	at, ok := cmd.Routing(args, s.router.keyArgs[:0])
	s.router.keyArgs = at
	// Scripts, which run where they may write, are themselves NoScript.
	read := cmd.Flags&spec.ReadOnly != 0 && cmd.Flags&(spec.NoScript|spec.Admin|spec.Blocking) == 0
	switch {
	case !ok && v.Cluster():
		return route{kind: unknownKeys, slot: noSlot}, cmd
	case len(at) == 0 && v.Cluster() && c.cluster.fanOut != nil:
		return route{kind: allMasters, slot: noSlot}, cmd
	case len(at) == 0 || !v.Cluster() && !(ok && read):
		return route{slot: noSlot}, cmd
	case !v.Cluster():
		if p = (route{kind: oneNode, slot: noSlot, pool: v.Reader(0, s.hint), read: true}); p.pool == v.FirstMaster() {
			p = route{slot: noSlot}
		}
		return p, cmd
	}
	slot := spec.Slot(args[at[0]])
	for _, i := range at[1:] {
		if spec.Slot(args[i]) != slot {
			if sp := c.cluster.split; sp != nil {
				if (len(args)-1)%(1+sp.values) != 0 {
					return route{kind: malformed, slot: noSlot}, cmd
				}
				return route{kind: split, slot: noSlot}, cmd
			}
			return route{kind: crossSlot, slot: noSlot}, cmd
		}
	}
	p = route{kind: oneNode, slot: slot, pool: v.Master(slot)}
	if read && v.ReadsReplicas() {
		p.pool, p.read = v.Reader(slot, s.hint), true
	}
	if p.pool == nil {
		p.kind = slotUncovered
	}
	return p, cmd
}

// tryCluster is Try for a session that is on shared connections, when it depends on
// the command which node it goes to.
func (s *Session) tryCluster(c *command, raw []byte, args [][]byte) bool {
	if !s.sameView() {
		return false
	}
	need := c.needs(args)
	switch {
	case s.watching && mayUnwatch(c, args), c.isRun(s, args), need != anyConn && need != scriptConn:
		return false
	case need == scriptConn && s.connClass != upstream.ScriptClass:
		if s.flushBatches(); s.replies.Pending() > 0 {
			return false
		}
		s.connClass = upstream.ScriptClass
	}
	p, cmd := s.route(c, args)
	switch p.kind {
	case oneNode:
		return s.tryNode(p, raw)
	case split:
		return s.trySplit(c.cluster.split, args)
	case allMasters:
		merge := c.cluster.fanOut
		if c.augments(args) {
			raw, merge = s.augmentFanOut(merge, raw, args)
		}
		return s.tryFanOut(merge, raw)
	case crossSlot:
		return s.reply(crossSlotError)
	case malformed:
		return s.reply(wrongArity(args))
	case slotUncovered:
		s.d.opt.Upstream.Refresh()
		return s.reply(slotUncoveredError)
	case unknownKeys:
		return false
	}
	switch {
	case cmd != nil && s.inCluster() && c.cluster.refuse != nil:
		return s.reply(c.cluster.refuse(args))
	case cmd != nil && s.inCluster() && c.cluster.cursor && isCursor(args):
		return s.tryScan(args)
	case need == scriptConn:
		return s.tryScript(raw)
	case c.augments(args):
		return s.tryAugmented(raw, args)
	}
	return s.tryForward(raw)
}

func wrongArity(args [][]byte) string {
	return string(resp.AppendError(nil, "ERR wrong number of arguments for '"+lower(args[0])+"' command"))
}

// reply answers in the place of the upstream.
func (s *Session) reply(reply string) bool {
	s.flushBatches()
	s.replies.Local([]byte(reply))
	return true
}

// tryNode sends a command to one node if there is a connection to it.
func (s *Session) tryNode(p route, raw []byte) bool {
	c := s.router.conn(p.pool, s.connClass)
	if c == nil {
		return false
	}
	s.flushBatch()
	if s.router.caching != nil {
		raw = append(bytes.Clone(s.router.caching), raw...)
	}
	next := s.newRequest(p, raw)
	if s.router.caching != nil {
		next.skip, s.router.caching = 1, nil
	}
	s.replies.ExpectRequest(next)
	s.router.gather(c, next)
	return true
}

// newRequest makes a call of a copy of raw.
func (s *Session) newRequest(p route, raw []byte) *request {
	return &request{r: s.replies, raw: raw, slot: p.slot, at: p.pool, read: p.read, tracked: s.router.tracking != nil, as: sender{s.id, s.connClass, s.hint}}
}

// gather adds a call, with a copy of its command, to what will be sent to a node.
func (rt *clusterRouter) gather(c *upstream.Conn, next *request) {
	i := 0
	for i < len(rt.batches) && rt.batches[i].conn != c {
		i++
	}
	if i == len(rt.batches) {
		rt.batches = append(rt.batches, batch{conn: c})
	}
	b := &rt.batches[i]
	n := len(b.raw)
	b.raw = append(b.raw, next.raw...)
	next.raw = b.raw[n:len(b.raw):len(b.raw)]
	for range 1 + next.skip {
		b.sinks = append(b.sinks, next)
	}
}

// flush sends what was gathered.
func (rt *clusterRouter) flush() {
	for i, b := range rt.batches {
		rt.batches[i] = batch{}
		if err := b.conn.SendEach(b.raw, b.sinks); err != nil {
			for _, to := range b.sinks {
				to.Fail(b.conn, 1, false, err)
			}
		}
	}
	rt.batches = rt.batches[:0]
}

// conn is the borrowed connection to a node; nil if there is none of use.
func (rt *clusterRouter) conn(pool *upstream.Pool, lane upstream.ConnClass) *upstream.Conn {
	if cs := rt.conns[pool]; cs != nil && cs[lane] != nil && cs[lane].Alive() {
		return cs[lane]
	}
	return nil
}

// connect makes sure that there are connections to nodes.
func (s *Session) connect(ctx context.Context, pools ...*upstream.Pool) error {
	for _, pool := range pools {
		if pool == nil {
			return &upstream.DownError{Err: errNobody}
		}
		if s.router.conn(pool, s.connClass) != nil {
			continue
		}
		c, err := s.openNode(ctx, pool)
		if err != nil {
			s.d.opt.Upstream.Refresh()
			return err
		}
		s.router.keep(pool, s.connClass, c)
	}
	return nil
}

// keep makes c the connection to a node.
func (rt *clusterRouter) keep(pool *upstream.Pool, lane upstream.ConnClass, c *upstream.Conn) {
	cs := rt.conns[pool]
	if cs == nil {
		cs = &[upstream.ConnClasses]*upstream.Conn{}
		rt.conns[pool] = cs
	}
	if cs[lane] != nil {
		rt.leave(cs[lane])
	}
	cs[lane] = c
}

// runCluster is Run for what tryRouted could not do at once. It is false for what
// does not depend on nodes after all.
func (s *Session) runCluster(ctx context.Context, c *command, raw []byte, args [][]byte) bool {
	for range maxRoutes {
		if sent, ours := s.runRoute(ctx, c, raw, args); sent || !ours {
			return ours
		}
	}
	s.replyErr(&upstream.DownError{Err: errLost})
	return true
}

// maxRoutes is how often a command is planned anew, because nodes changed their places,
// or a connection was lost, before it was sent.
const maxRoutes = 5

// runRoute plans a command and sends it, or answers it. ours is false for what does not
// depend on nodes.
func (s *Session) runRoute(ctx context.Context, c *command, raw []byte, args [][]byte) (sent, ours bool) {
	if !s.awaitSameView(ctx) {
		return true, true
	}
	need := c.needs(args)
	if c.isRun(s, args) || need == pinnedConn || need == passthroughConn {
		return false, false
	}
	p, cmd := s.route(c, args)
	if p.kind == unknownKeys {
		var err error
		if p, err = s.askKeys(ctx, args); err != nil {
			s.replyOrDisconnect(err)
			return true, true
		}
	}
	if need == scriptConn && s.connClass != upstream.ScriptClass {
		if s.idle(ctx) != nil {
			return true, true
		}
		s.connClass = upstream.ScriptClass
	}
	if need == blockingConn {
		ours = s.inCluster() && s.runBlocking(ctx, p, raw)
		return ours, ours
	}
	var pools []*upstream.Pool
	switch p.kind {
	case oneNode:
		return s.runNode(ctx, p, raw), true
	case split:
		pools = s.mastersOf(args)
	case allMasters:
		if pools = s.router.view.Masters(); len(pools) == 0 {
			return s.reply(slotUncoveredError), true
		}
	case crossSlot:
		return s.reply(crossSlotError), true
	case slotUncovered:
		s.d.opt.Upstream.Refresh()
		return s.reply(slotUncoveredError), true
	case malformed:
	default:
		if !s.inCluster() || cmd == nil || !(c.cluster.cursor && isCursor(args)) && c.cluster.refuse == nil {
			return false, false
		}
		pools = s.router.view.Masters()
	}
	if err := s.connect(ctx, pools...); err != nil {
		return s.replyUnreachable(err), true
	}
	return s.tryCluster(c, raw, args), true
}

// runNode sends a command to one node, or if that only reads and cannot be reached to
// another. It is false if the connection was lost before.
func (s *Session) runNode(ctx context.Context, p route, raw []byte) bool {
	err := s.connect(ctx, p.pool)
	for tries := 0; err != nil && p.read && ctx.Err() == nil; tries++ {
		p = s.otherReader(p, tries > 0)
		err = s.connect(ctx, p.pool)
	}
	if err != nil {
		return s.replyUnreachable(err)
	}
	return s.tryNode(p, raw)
}

// replyUnreachable answers that nodes could not be reached. It is false if they have changed
// their places meanwhile: then others may be.
func (s *Session) replyUnreachable(err error) bool {
	if s.router.view != s.d.opt.Upstream.View() {
		return false
	}
	s.replyOrDisconnect(err)
	return true
}

// otherReader is the plan of a read whose node cannot be reached: another replica that
// may be, or else, or if there is not the time, the master.
func (s *Session) otherReader(p route, haste bool) route {
	slot := max(p.slot, 0)
	if next := s.router.view.Reader(slot, s.hint); next != p.pool && !haste {
		p.pool = next
	} else {
		p.pool = s.router.view.Master(slot)
	}
	p.read = p.pool != s.router.view.Master(slot)
	return p
}

// mastersOf are the masters that serve the keys that plan has just found.
func (s *Session) mastersOf(args [][]byte) (pools []*upstream.Pool) {
	for _, i := range s.router.keyArgs {
		if pool := s.router.view.Master(spec.Slot(args[i])); pool != nil {
			pools = append(pools, pool)
		}
	}
	return pools
}

// askKeys plans a command whose keys only the upstream knows.
func (s *Session) askKeys(ctx context.Context, args [][]byte) (p route, err error) {
	home := s.router.view.FirstMaster()
	if err := s.connect(ctx, home); err != nil {
		return p, err
	}
	question := append([][]byte{[]byte("COMMAND"), []byte("GETKEYS")}, args...)
	reply, err := s.ask(ctx, s.router.conn(home, s.connClass), resp.AppendCommand(nil, question...))
	if err != nil {
		return p, err
	}
	keys, ok := resp.Elements(reply)
	if !ok || len(keys) == 0 {
		return route{slot: noSlot}, nil
	}
	p = route{kind: oneNode, slot: spec.Slot(resp.Bulk(keys[0]))}
	for _, k := range keys[1:] {
		if spec.Slot(resp.Bulk(k)) != p.slot {
			return route{kind: crossSlot, slot: noSlot}, nil
		}
	}
	if p.pool = s.router.view.Master(p.slot); p.pool == nil {
		p.kind = slotUncovered
	}
	return p, nil
}
