package commands

import (
	"bytes"
	"context"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/relay"
	"github.com/lockproxy/lockproxy/commands/spec"
)

// A route is where a command has to go. Its zero value but for slot is any node, as of a
// command without keys.
type route struct {
	kind   routeKind
	slot   int            // of its keys; relay.NoSlot: it has none
	pool   *upstream.Pool // oneNode
	read   bool           // pool may be a replica's
	answer string         // badKeys, slotUncovered, refused: what the client gets, and the upstream does not
}

type routeKind uint8

const (
	anyNode       routeKind = iota
	oneNode                 // to the node that serves its keys
	split                   // its keys are of several slots, it goes to each node with some of them
	allMasters              // to all masters
	nodeByNode              // SCAN: to the node that its cursor names
	unknownKeys             // only the upstream knows its keys
	badKeys                 // its keys are of several slots, or there are too many or too few arguments
	slotUncovered           // no node serves its keys
	refused                 // it is about one node, and the client sees a single server
)

const crossSlotError = "-CROSSSLOT Keys in request don't hash to the same slot\r\n"

// route decides where a command goes.
func (s *Session) route(c *command, args [][]byte) route {
	cmd := s.d.upstreamTable().Lookup(args)
	if cmd == nil {
		return route{slot: relay.NoSlot}
	}
	at, known := cmd.Routing(args, s.keyArgs[:0])
	s.keyArgs = at
	// Scripts, which run where they may write, are themselves NoScript.
	read := cmd.Flags&spec.ReadOnly != 0 && cmd.Flags&(spec.NoScript|spec.Admin|spec.Blocking) == 0
	switch v := s.router.view; {
	case !v.Cluster():
		if pool := v.Reader(0, s.hint); known && read && len(at) > 0 && pool != v.FirstMaster() {
			return route{kind: oneNode, slot: relay.NoSlot, pool: pool, read: true}
		}
		return route{slot: relay.NoSlot}
	case !known:
		return route{kind: unknownKeys, slot: relay.NoSlot}
	case len(at) == 0:
		return c.cluster.routeWithoutKeys(args)
	}
	return s.routeByKeys(c, args, read)
}

func (rule *clusterRule) routeWithoutKeys(args [][]byte) route {
	switch {
	case rule.fanOut != nil:
		return route{kind: allMasters, slot: relay.NoSlot}
	case rule.cursor:
		return route{kind: nodeByNode, slot: relay.NoSlot}
	case rule.refuse != nil:
		return route{kind: refused, slot: relay.NoSlot, answer: rule.refuse(args)}
	}
	return route{slot: relay.NoSlot}
}

// routeByKeys is route in a Cluster of a command with keys, which are at keyArgs.
func (s *Session) routeByKeys(c *command, args [][]byte, read bool) route {
	v, at := s.router.view, s.keyArgs
	slot := spec.Slot(args[at[0]])
	for _, i := range at[1:] {
		switch sp := c.cluster.split; {
		case spec.Slot(args[i]) == slot:
		case sp == nil:
			return route{kind: badKeys, slot: relay.NoSlot, answer: crossSlotError}
		case (len(args)-1)%(1+sp.values) != 0:
			return route{kind: badKeys, slot: relay.NoSlot, answer: wrongArity(args)}
		default:
			return route{kind: split, slot: relay.NoSlot}
		}
	}
	r := routeToMaster(v, slot)
	if read && v.ReadsReplicas() {
		if r.pool, r.read = v.Reader(slot, s.hint), true; r.pool == nil {
			r.kind, r.answer = slotUncovered, relay.SlotUncovered
		} else {
			r.kind, r.answer = oneNode, ""
		}
	}
	return r
}

func routeToMaster(v *upstream.View, slot int) route {
	if pool := v.Master(slot); pool != nil {
		return route{kind: oneNode, slot: slot, pool: pool}
	}
	return route{kind: slotUncovered, slot: slot, answer: relay.SlotUncovered}
}

// tryCluster is Try for a session that is on shared connections, when it depends on
// the command which node it goes to.
func (s *Session) tryCluster(q request) bool {
	need := q.needs()
	switch {
	case !s.sameView(), s.watching && mayUnwatch(q.row, q.args), q.isRun(s), need != anyConn && need != scriptConn:
		return false
	case need == scriptConn && s.connClass != upstream.ScriptClass:
		if s.flushBatches(); s.replies.Pending() > 0 {
			return false
		}
		s.connClass = upstream.ScriptClass
	}
	return s.sendRouted(s.route(q.row, q.args), need, q)
}

// sendRouted sends a command along its route, or answers it. False: a connection is
// missing, or the route is not known.
func (s *Session) sendRouted(r route, need need, q request) bool {
	switch {
	case r.kind == unknownKeys:
		return false
	case r.kind == oneNode:
		return s.tryNode(r, q.raw)
	case r.kind == split:
		return s.trySplit(q.row.cluster.split, q.args)
	case r.kind == allMasters:
		merge := q.row.cluster.fanOut
		if q.augmented() {
			q.raw, merge = s.augmentFanOut(merge, q)
		}
		return s.tryFanOut(merge, q.raw)
	case r.kind == nodeByNode && isCursor(q.args):
		return s.tryScan(q.args)
	case r.answer != "":
		if r.kind == slotUncovered {
			s.up.Refresh()
		}
		return s.reply(r.answer)
	case need == scriptConn:
		return s.tryScript(q.raw)
	case q.augmented():
		return s.tryAugmented(q)
	}
	return s.tryForward(q.raw)
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
		next.Skip, s.router.caching = 1, nil
	}
	s.replies.ExpectRequest(next)
	s.router.gather(c, next)
	return true
}

// newRequest makes a request that travels along a route.
func (s *Session) newRequest(p route, raw []byte) *relay.Request {
	return &relay.Request{Raw: raw, Slot: p.slot, Pool: p.pool, Read: p.read, Tracked: s.router.tracking != nil, As: relay.Sender{ID: s.id, Class: s.connClass, Hint: s.hint}}
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
			s.up.Refresh()
			return err
		}
		s.router.keep(pool, s.connClass, c)
	}
	return nil
}

// runCluster is Run for what tryCluster could not do at once. It is false for what
// does not depend on nodes after all.
func (s *Session) runCluster(ctx context.Context, q request) bool {
	for range maxRoutes {
		if sent, ours := s.runRoute(ctx, q); sent || !ours {
			return ours
		}
	}
	s.replyErr(&upstream.DownError{Err: relay.ErrLost})
	return true
}

// maxRoutes is how often a command is routed anew, because nodes changed their places,
// or a connection was lost, before it was sent.
const maxRoutes = 5

// runRoute routes a command and sends it, or answers it. ours is false for what does not
// depend on nodes.
func (s *Session) runRoute(ctx context.Context, q request) (sent, ours bool) {
	if !s.awaitSameView(ctx) {
		return true, true
	}
	need := q.needs()
	if q.isRun(s) || need == pinnedConn || need == passthroughConn {
		return false, false
	}
	r := s.route(q.row, q.args)
	if r.kind == unknownKeys {
		var err error
		if r, err = s.askKeys(ctx, q.args); err != nil {
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
	switch {
	case need == blockingConn:
		ours = s.inCluster() && s.runBlocking(ctx, r, q.raw)
		return ours, ours
	case r.kind == anyNode, r.kind == nodeByNode && !isCursor(q.args):
		return false, false
	}
	r, err := s.connectRoute(ctx, r, q.args)
	if err != nil {
		return s.replyUnreachable(err), true
	}
	return s.sendRouted(r, need, q), true
}

// connectRoute makes sure that there are connections to the nodes of a route. A command
// that only reads, and whose node cannot be reached, gets another one.
func (s *Session) connectRoute(ctx context.Context, r route, args [][]byte) (route, error) {
	switch r.kind {
	case split:
		return r, s.connect(ctx, s.mastersOf(args)...)
	case allMasters, nodeByNode:
		masters := s.router.view.Masters()
		if len(masters) == 0 {
			return route{kind: slotUncovered, slot: relay.NoSlot, answer: relay.SlotUncovered}, nil
		}
		return r, s.connect(ctx, masters...)
	case oneNode:
		err := s.connect(ctx, r.pool)
		for tries := 0; err != nil && r.read && ctx.Err() == nil; tries++ {
			r = s.otherReader(r, tries > 0)
			err = s.connect(ctx, r.pool)
		}
		return r, err
	}
	return r, nil
}

// replyUnreachable answers that nodes could not be reached. It is false if they have changed
// their places meanwhile: then others may be.
func (s *Session) replyUnreachable(err error) bool {
	if s.router.view != s.up.View() {
		return false
	}
	s.replyOrDisconnect(err)
	return true
}

// otherReader is the route of a read whose node cannot be reached: another replica that
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

// mastersOf are the masters that serve the keys that route has just found.
func (s *Session) mastersOf(args [][]byte) (pools []*upstream.Pool) {
	for _, i := range s.keyArgs {
		if pool := s.router.view.Master(spec.Slot(args[i])); pool != nil {
			pools = append(pools, pool)
		}
	}
	return pools
}

// askKeys routes a command whose keys only the upstream knows.
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
		return route{slot: relay.NoSlot}, nil
	}
	slot := spec.Slot(resp.Bulk(keys[0]))
	for _, k := range keys[1:] {
		if spec.Slot(resp.Bulk(k)) != slot {
			return route{kind: badKeys, slot: relay.NoSlot, answer: crossSlotError}, nil
		}
	}
	return routeToMaster(s.router.view, slot), nil
}
