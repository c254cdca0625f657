// Package cluster decides which nodes of an upstream of several serve a command, and sends
// it there.
//
// [Router.Route] decides: a command goes to the node of its keys, to each node with some of
// them (split), to all masters (AllMasters), or to whatever node there is. [Router.Connect]
// prepares: it opens or borrows the connections that the route needs, and may wait.
// [Router.Send] sends, and never waits. Replies of several nodes are merged into one, as a
// single server would have given it (merge.go, disguise.go). What needs more than a route, as WAIT
// or SCRIPT KILL on all masters, is a method of the Router (masters.go); where a MULTI goes, a
// [Transaction] knows.
//
// A [Router] belongs to one client, and to one goroutine at a time. It sends by one view of the
// nodes at a time: [Router.View] may change only when nothing is under way. What a node
// redirects is sent on by the Router's [relay.Redirector], whose goroutine End waits for.
package cluster

import (
	"bytes"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/relay"
	"github.com/lockproxy/lockproxy/commands/spec"
)

// A Rule says where a command without keys goes, and how one with keys of several slots is
// split. At most one of FanOut, Refuse, Cursor and AnyNode is set.
type Rule struct {
	Split   *Split                     // keys of several slots; nil: they are refused
	FanOut  Merger                     // without keys it goes to all masters
	Refuse  func(args [][]byte) string // it is about one node, where a client sees a single server
	Cursor  bool                       // SCAN: one node after the other
	AnyNode bool                       // one node's reply is that of all
}

// A Split is how a command whose keys are of several slots becomes one command for each
// slot, and their replies one reply.
type Split struct {
	Values int // arguments behind each key
	Merge  func(places [][]int, parts [][]byte) []byte
}

// A Route is where a command has to go. Its zero value but for Slot is any node, as of a
// command without keys.
type Route struct {
	Kind   RouteKind
	Slot   int            // of its keys; relay.NoSlot: it has none
	Pool   *upstream.Pool // OneNode
	Read   bool           // Pool may be a replica's
	Answer string         // BadKeys, SlotUncovered, Refused: what the client gets, and the upstream does not
	Merge  Merger         // AllMasters
	split  *Split

	Observe func(begin []byte) // OneNode: as relay.Observer; may be nil
}

// A RouteKind says which nodes a command goes to.
type RouteKind uint8

const (
	AnyNode       RouteKind = iota
	OneNode                 // the node that serves its keys
	SeveralSlots            // its keys are of several slots: to each node with some of them
	AllMasters              // all masters
	NodeByNode              // SCAN: the node that its cursor names, if it has one (IsCursor)
	UnknownKeys             // only the upstream knows its keys
	BadKeys                 // its keys are of several slots, or there are too many or too few arguments
	SlotUncovered           // no node serves its keys
	Refused                 // it is about one node, and the client sees a single server
)

// CrossSlotError is a Redis Cluster's error for keys of several slots.
const CrossSlotError = "-CROSSSLOT Keys in request don't hash to the same slot\r\n"

// Route decides where a command goes by the Router's view. cmd is what the upstream says of it;
// nil: nothing.
func (rt *Router) Route(cmd *spec.Command, rule *Rule, args [][]byte) Route {
	if cmd == nil {
		return Route{Slot: relay.NoSlot}
	}
	at, known := cmd.Routing(args, rt.keyArgs[:0])
	rt.keyArgs = at
	// Scripts, which run where they may write, are themselves NoScript.
	read := cmd.Flags&spec.ReadOnly != 0 && cmd.Flags&(spec.NoScript|spec.Admin|spec.Blocking) == 0
	switch v := rt.view; {
	case !v.Cluster():
		if pool := v.Reader(0, rt.hint); known && read && len(at) > 0 && pool != v.FirstMaster() {
			return Route{Kind: OneNode, Slot: relay.NoSlot, Pool: pool, Read: true}
		}
		return Route{Slot: relay.NoSlot}
	case !known:
		return Route{Kind: UnknownKeys, Slot: relay.NoSlot}
	case len(at) == 0:
		return rule.routeWithoutKeys(args)
	}
	return rt.routeByKeys(rule, args, read)
}

func (rule *Rule) routeWithoutKeys(args [][]byte) Route {
	switch {
	case rule.FanOut != nil:
		return Route{Kind: AllMasters, Slot: relay.NoSlot, Merge: rule.FanOut}
	case rule.Cursor:
		return Route{Kind: NodeByNode, Slot: relay.NoSlot}
	case rule.Refuse != nil:
		return Route{Kind: Refused, Slot: relay.NoSlot, Answer: rule.Refuse(args)}
	}
	return Route{Slot: relay.NoSlot}
}

// routeByKeys is Route in a Cluster of a command with keys, which are at keyArgs.
func (rt *Router) routeByKeys(rule *Rule, args [][]byte, read bool) Route {
	at := rt.keyArgs
	slot := spec.Slot(args[at[0]])
	for _, i := range at[1:] {
		switch split := rule.Split; {
		case spec.Slot(args[i]) == slot:
		case split == nil:
			return Route{Kind: BadKeys, Slot: relay.NoSlot, Answer: CrossSlotError}
		case (len(args)-1)%(1+split.Values) != 0:
			return Route{Kind: BadKeys, Slot: relay.NoSlot, Answer: relay.WrongArity(args)}
		default:
			return Route{Kind: SeveralSlots, Slot: relay.NoSlot, split: split}
		}
	}
	if read && rt.view.ReadsReplicas() {
		return routeTo(rt.view.Reader(slot, rt.hint), slot, true)
	}
	return routeTo(rt.view.Master(slot), slot, false)
}

func routeTo(pool *upstream.Pool, slot int, read bool) Route {
	if pool == nil {
		return Route{Kind: SlotUncovered, Slot: slot, Read: read, Answer: relay.SlotUncovered}
	}
	return Route{Kind: OneNode, Slot: slot, Pool: pool, Read: read}
}

// Disabled is what a single server says of CLUSTER.
func Disabled([][]byte) string { return "-ERR This instance has cluster support disabled\r\n" }

// AboutOneNode refuses a command that is about one server.
func AboutOneNode(args [][]byte) string {
	return string(resp.AppendError(nil, "ERR "+string(bytes.ToUpper(args[0]))+" is about one server, and the upstream is a Cluster: send it to one of its nodes"))
}
