package cluster

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/relay"
	"github.com/lockproxy/lockproxy/commands/spec"
)

// Send sends a command along a route to nodes (OneNode, SeveralSlots, AllMasters, NodeByNode), if there
// are connections to all of them. It never waits. What the client has sent elsewhere
// must be on its way.
func (rt *Router) Send(r Route, as relay.Sender, raw []byte, args [][]byte) bool {
	switch r.Kind {
	case OneNode:
		return rt.sendToNode(r, as, raw)
	case SeveralSlots:
		return rt.sendSplit(r.split, as, args)
	case AllMasters:
		return rt.sendToAll(r.Merge, as, raw)
	case NodeByNode:
		return rt.sendScan(as, args)
	}
	return false
}

// Request makes a request that travels along a route.
func (rt *Router) Request(r Route, as relay.Sender, raw []byte) *relay.Request {
	return &relay.Request{Raw: raw, Slot: r.Slot, Pool: r.Pool, Read: r.Read, Tracked: rt.tracking != nil, As: as}
}

func (rt *Router) sendToNode(r Route, as relay.Sender, raw []byte) bool {
	c := rt.Conn(r.Pool, as.Class)
	if c == nil {
		return false
	}
	if rt.caching != nil {
		raw = append(bytes.Clone(rt.caching), raw...)
	}
	next := rt.Request(r, as, raw)
	if rt.caching != nil {
		next.Skip, rt.caching = 1, nil
	}
	if r.Observe != nil {
		next.Observer = &relay.Observer{Observe: r.Observe}
	}
	rt.replies.ExpectRequest(next)
	rt.gather(c, next)
	return true
}

// sendSplit sends a command in parts. The keys are where Route has just found them.
func (rt *Router) sendSplit(split *Split, as relay.Sender, args [][]byte) bool {
	at := rt.keyArgs
	var slots []int
	places := map[int][]int{} // of a slot's keys, in order
	for place, i := range at {
		slot := spec.Slot(args[i])
		if places[slot] == nil {
			slots = append(slots, slot)
		}
		places[slot] = append(places[slot], place)
	}
	requests := make([]*relay.Request, len(slots))
	conns := make([]*upstream.Conn, len(slots))
	ordered := make([][]int, len(slots))
	for n, slot := range slots {
		pool := rt.view.Master(slot)
		if pool == nil {
			return rt.answerUncovered()
		}
		if conns[n] = rt.Conn(pool, as.Class); conns[n] == nil {
			return false
		}
		part := [][]byte{args[0]}
		for _, place := range places[slot] {
			part = append(part, args[at[place]:at[place]+1+split.Values]...)
		}
		requests[n] = rt.Request(Route{Slot: slot, Pool: pool}, as, resp.AppendCommand(nil, part...))
		ordered[n] = places[slot]
	}
	rt.sendParts(conns, requests, func(parts [][]byte) []byte { return split.Merge(ordered, parts) })
	return true
}

// sendParts sends requests, each on its connection, whose replies become one.
func (rt *Router) sendParts(conns []*upstream.Conn, requests []*relay.Request, merge Merger) {
	rt.replies.ExpectFanIn(requests, merge.Merge)
	for i, c := range requests {
		rt.gather(conns[i], c)
	}
}

func (rt *Router) sendToAll(merge Merger, as relay.Sender, raw []byte) bool {
	masters := rt.view.Masters()
	conns := make([]*upstream.Conn, len(masters))
	requests := make([]*relay.Request, len(masters))
	for i, pool := range masters {
		if conns[i] = rt.Conn(pool, as.Class); conns[i] == nil {
			return false
		}
		requests[i] = rt.Request(Route{Slot: relay.NoSlot, Pool: pool}, as, raw)
	}
	if len(requests) == 0 {
		return false
	}
	rt.sendParts(conns, requests, merge)
	return true
}

// answerUncovered answers that no node serves a slot, and has the nodes asked again.
func (rt *Router) answerUncovered() bool {
	rt.up.Refresh()
	rt.Flush()
	rt.replies.Local([]byte(relay.SlotUncovered))
	return true
}

// IsCursor reports whether a SCAN has a cursor; a node refuses others in its own words.
func IsCursor(args [][]byte) bool {
	if len(args) < 2 {
		return false
	}
	_, err := strconv.ParseUint(string(args[1]), 10, 64)
	return err == nil
}

// A cursor of SCAN over a Cluster is a node's own cursor and the node, which is known
// by the slot it is asked for: slotBits of the number.
const slotBits = 14

// sendScan asks one node after the other. A cursor is good as long as its slot stays
// with its node.
func (rt *Router) sendScan(as relay.Sender, args [][]byte) bool {
	cursor, _ := strconv.ParseUint(string(args[1]), 10, 64)
	starts := rt.view.FirstSlots()
	if len(starts) == 0 {
		return rt.answerUncovered()
	}
	slot := int(cursor & (1<<slotBits - 1))
	if cursor == 0 {
		slot = starts[0]
	}
	pool := rt.view.Master(slot)
	if pool == nil {
		return rt.answerUncovered()
	}
	conn := rt.Conn(pool, as.Class)
	if conn == nil {
		return false
	}
	asked := append([][]byte{args[0], strconv.AppendUint(nil, cursor>>slotBits, 10)}, args[2:]...)
	next := 0 // where the next node's slots begin; 0: this is the last
	for _, at := range starts {
		if at > slot {
			next = at
			break
		}
	}
	c := rt.Request(Route{Slot: slot, Pool: pool}, as, resp.AppendCommand(nil, asked...))
	rt.sendParts([]*upstream.Conn{conn}, []*relay.Request{c}, func(parts [][]byte) []byte { return mergeCursor(parts[0], slot, next) })
	return true
}

// mergeCursor puts a cursor of the Cluster in place of the node's.
func mergeCursor(reply []byte, slot, next int) []byte {
	elems, ok := resp.Elements(reply)
	if !ok || len(elems) != 2 {
		return reply
	}
	n, err := strconv.ParseUint(string(resp.Bulk(elems[0])), 10, 64)
	if err != nil {
		return unmergeable()
	}
	switch {
	case n >= 1<<(64-slotBits):
		return resp.AppendError(nil, fmt.Sprintf("ERR a cursor of %d is too large to be put together with a node of the Cluster", n))
	case n != 0:
		n = n<<slotBits | uint64(slot)
	default:
		n = uint64(next)
	}
	elems[0] = resp.AppendBulkString(nil, strconv.FormatUint(n, 10))
	return appendElements(reply[0], elems)
}
