package topology

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/backends"
)

// A nodeView is the Cluster as one of its nodes sees it.
type nodeView struct {
	self     string // its id; empty if it did not say
	ranges   []slotRange
	epochs   map[string]uint64 // configuration epoch of each node, by id
	slotless []masterNode      // masters that serve no slot
	bySlot   []*slotRange      // the range of each slot, set by indexSlots; nil: no node serves it
}

// A slotRange is a range of slots and the nodes that serve it.
type slotRange struct {
	first, last int // both included
	master      masterNode
	replicas    []string
}

// A masterNode is a master of a Cluster. Its id is its address where servers are too
// old to tell ids.
type masterNode struct{ id, addr string }

// probeCluster asks the masters, and after one of them did not answer all nodes.
func (w *Watcher) probeCluster(ctx context.Context) (*Topology, error) {
	asked := w.targets
	views, faults := make([]*nodeView, len(asked)), make([]error, len(asked))
	w.askAll(asked, func(i int, c rueidis.Client) {
		views[i], faults[i] = askNode(ctx, c, asked[i])
	})
	var fault error
	for i, err := range faults {
		if err != nil {
			fault = fmt.Errorf("%s: %w", asked[i], err)
		}
	}
	views = slices.DeleteFunc(views, func(v *nodeView) bool { return v == nil })
	w.incomplete = len(views) < len(asked)
	if len(views) == 0 {
		w.targets = backends.Distinct(append(w.seed.Addresses(), w.targets...))
		return nil, cmp.Or(fault, errNoAnswer)
	}
	m := merge(views)
	w.chooseTargets(m)
	return w.topology(ctx, m), nil
}

// chooseTargets sets which nodes are asked next.
func (w *Watcher) chooseTargets(m mergedView) {
	var masters, replicas []string
	for _, s := range m.shards {
		masters = append(masters, s.master.addr)
		replicas = append(replicas, s.replicas...)
	}
	w.targets = masters
	if w.incomplete || len(masters) == 0 {
		w.targets = backends.Distinct(slices.Concat(masters, replicas, w.seed.Addresses()))
	}
}

// topology is m with the replicas, if they are wanted, that say they are in sync.
func (w *Watcher) topology(ctx context.Context, m mergedView) *Topology {
	t := &Topology{Slots: m.slots}
	var wanted []string
	if w.opt.Replicas {
		for _, s := range m.shards {
			wanted = append(wanted, s.replicas...)
		}
	}
	synced := w.syncedReplicas(ctx, wanted)
	for _, s := range m.shards {
		shard := Shard{Master: w.server(s.master.addr)}
		for _, r := range synced {
			if slices.Contains(s.replicas, r.String()) {
				shard.Replicas = append(shard.Replicas, r)
			}
		}
		t.Shards = append(t.Shards, shard)
	}
	return t
}

// askNode asks the node at addr for its view. Addresses are those that it tells
// clients, from CLUSTER SLOTS; epochs and masters without slots are from CLUSTER NODES,
// and missing where that command is refused.
func askNode(ctx context.Context, c rueidis.Client, addr string) (*nodeView, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	replies := c.DoMulti(ctx, command(c, "CLUSTER", "SLOTS"), command(c, "CLUSTER", "NODES"))
	list, err := replies[0].ToArray()
	if err != nil {
		return nil, err
	}
	v := &nodeView{epochs: map[string]uint64{}}
	for _, m := range list {
		if r, ok := readSlotRange(m, addr); ok {
			v.ranges = append(v.ranges, r)
		}
	}
	if text, err := replies[1].ToString(); err == nil {
		v.readNodes(text, addr)
	}
	return v, nil
}

// readSlotRange reads one entry of CLUSTER SLOTS. A host that is missing is that of
// the node asked.
func readSlotRange(m rueidis.RedisMessage, asked string) (r slotRange, ok bool) {
	entry, err := m.ToArray()
	if err != nil || len(entry) < 3 {
		return r, false
	}
	first, err1 := entry[0].AsInt64()
	last, err2 := entry[1].AsInt64()
	if err1 != nil || err2 != nil || first < 0 || last >= SlotCount || first > last {
		return r, false
	}
	r.first, r.last = int(first), int(last)
	for i, e := range entry[2:] {
		n, ok := readNode(e, asked)
		switch {
		case !ok && i == 0:
			return r, false
		case i == 0:
			r.master = n
		case ok:
			r.replicas = append(r.replicas, n.addr)
		}
	}
	return r, true
}

func readNode(m rueidis.RedisMessage, asked string) (n masterNode, ok bool) {
	f, err := m.ToArray()
	if err != nil || len(f) < 2 {
		return n, false
	}
	host, _ := f[0].ToString() // null: the node does not know it
	port, err := f[1].AsInt64()
	if host == "" || host == "?" {
		host, _, _ = net.SplitHostPort(asked)
	}
	n.addr = net.JoinHostPort(host, strconv.FormatInt(port, 10))
	n.id = n.addr
	if len(f) > 2 {
		n.id, _ = f[2].ToString()
	}
	return n, err == nil && port > 0
}

// readNodes reads the epochs and the masters without slots from CLUSTER NODES.
func (v *nodeView) readNodes(text, asked string) {
	named := false // the nodes give their hostnames to clients
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 8 {
			continue
		}
		id, flags := f[0], strings.Split(f[2], ",")
		v.epochs[id] = parseUint(f[6])
		if slices.Contains(flags, "myself") {
			v.self = id
		}
		addr, hostname := splitNode(f[1], asked)
		for _, r := range v.ranges {
			named = named || r.master.id == id && r.master.addr != addr && r.master.addr == hostname
		}
		if slices.Contains(flags, "master") && !slices.ContainsFunc(f[8:], isRange) && !isUnreachable(flags) {
			if named && hostname != "" {
				addr = hostname
			}
			v.slotless = append(v.slotless, masterNode{id, addr})
		}
	}
}

// isRange reports whether s is a range of slots that are served, 7 or 7-9, not a slot
// on the move, [7->-…].
func isRange(s string) bool { return s[0] != '[' }

// isUnreachable reports whether a node with these flags cannot be used, or not yet.
func isUnreachable(flags []string) bool {
	return slices.ContainsFunc(flags, func(s string) bool { return s == "fail" || s == "handshake" || s == "noaddr" })
}

// splitNode reads ip:port@busport,hostname. Both results have the port; hostname is
// empty if there is none.
func splitNode(s, asked string) (addr, hostname string) {
	s, rest, _ := strings.Cut(s, "@")
	at := strings.LastIndexByte(s, ':')
	if at < 0 {
		return "", ""
	}
	host, port := s[:at], s[at+1:]
	if host == "" {
		host, _, _ = net.SplitHostPort(asked)
	}
	if _, name, ok := strings.Cut(rest, ","); ok {
		if name, _, _ = strings.Cut(name, ","); name != "" {
			hostname = net.JoinHostPort(name, port)
		}
	}
	return net.JoinHostPort(host, port), hostname
}
