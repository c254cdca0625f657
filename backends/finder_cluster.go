package backends

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/rueidis"
)

// A sight is the Cluster as one of its nodes sees it.
type sight struct {
	self   string // its id; empty if it did not say
	parts  []part
	epochs map[string]uint64 // of the claims of each node, by id
	idle   []node            // masters that serve no slot
}

// A part is a range of slots, and who serves it.
type part struct {
	first, last int
	master      node
	replicas    []string
}

// A node is a master. Its name is its id, or its address where servers are too old
// to have told.
type node struct{ id, addr string }

// A layout is what the sights have in common.
type layout struct {
	shards []part   // first is the lowest slot; last is not used
	slots  []uint16 // which of shards
}

// lookCluster asks the masters, and after one of them was silent everybody.
func (f *Finder) lookCluster(ctx context.Context) (*Topology, error) {
	asked := f.around
	sights, faults := make([]*sight, len(asked)), make([]error, len(asked))
	f.ask(asked, func(i int, c rueidis.Client) {
		sights[i], faults[i] = askNode(ctx, c, asked[i])
	})
	var fault error
	for i, err := range faults {
		if err != nil {
			fault = fmt.Errorf("%s: %w", asked[i], err)
		}
	}
	sights = slices.DeleteFunc(sights, func(s *sight) bool { return s == nil })
	f.silent = len(sights) < len(asked)
	if len(sights) == 0 {
		f.around = distinct(append(slices.Clone(f.seed.opt.InitAddress), f.around...))
		return nil, cmp.Or(fault, errSilent)
	}
	l := merge(sights)
	f.remember(l)
	return f.topology(ctx, l), nil
}

// remember chooses whom to ask next.
func (f *Finder) remember(l layout) {
	var masters, others []string
	for _, s := range l.shards {
		masters = append(masters, s.master.addr)
		others = append(others, s.replicas...)
	}
	f.around = masters
	if f.silent || len(masters) == 0 {
		f.around = distinct(slices.Concat(masters, others, f.seed.opt.InitAddress))
	}
}

func (f *Finder) topology(ctx context.Context, l layout) *Topology {
	t := &Topology{Slots: l.slots}
	var wanted []string
	if f.opt.Replicas {
		for _, s := range l.shards {
			wanted = append(wanted, s.replicas...)
		}
	}
	following := f.following(ctx, wanted)
	for _, s := range l.shards {
		shard := Shard{Master: f.server(s.master.addr)}
		for _, r := range following {
			if slices.Contains(s.replicas, r.String()) {
				shard.Replicas = append(shard.Replicas, r)
			}
		}
		t.Shards = append(t.Shards, shard)
	}
	return t
}

// askNode asks the node at addr for the Cluster as it sees it. The addresses are those
// that it gives its clients; the epochs, and the masters without slots, are from
// CLUSTER NODES, and missing where that is not allowed.
func askNode(ctx context.Context, c rueidis.Client, addr string) (*sight, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	said := c.DoMulti(ctx, command(c, "CLUSTER", "SLOTS"), command(c, "CLUSTER", "NODES"))
	list, err := said[0].ToArray()
	if err != nil {
		return nil, err
	}
	s := &sight{epochs: map[string]uint64{}}
	for _, m := range list {
		if p, ok := readPart(m, addr); ok {
			s.parts = append(s.parts, p)
		}
	}
	if text, err := said[1].ToString(); err == nil {
		s.readNodes(text, addr)
	}
	return s, nil
}

// readPart reads one entry of CLUSTER SLOTS. A host that is not given is that of the
// node that was asked.
func readPart(m rueidis.RedisMessage, asked string) (p part, ok bool) {
	entry, err := m.ToArray()
	if err != nil || len(entry) < 3 {
		return p, false
	}
	first, err1 := entry[0].AsInt64()
	last, err2 := entry[1].AsInt64()
	if err1 != nil || err2 != nil || first < 0 || last >= SlotCount || first > last {
		return p, false
	}
	p.first, p.last = int(first), int(last)
	for i, e := range entry[2:] {
		n, ok := readNode(e, asked)
		switch {
		case !ok && i == 0:
			return p, false
		case i == 0:
			p.master = n
		case ok:
			p.replicas = append(p.replicas, n.addr)
		}
	}
	return p, true
}

func readNode(m rueidis.RedisMessage, asked string) (n node, ok bool) {
	f, err := m.ToArray()
	if err != nil || len(f) < 2 {
		return n, false
	}
	host, _ := f[0].ToString() // null: not known
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

// readNodes takes epochs and masters without slots from the text of CLUSTER NODES.
func (s *sight) readNodes(text, asked string) {
	named := false // nodes go by their hostnames
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 8 {
			continue
		}
		id, flags := f[0], strings.Split(f[2], ",")
		s.epochs[id] = number(f[6])
		if slices.Contains(flags, "myself") {
			s.self = id
		}
		addr, hostname := splitNode(f[1], asked)
		for _, p := range s.parts {
			named = named || p.master.id == id && p.master.addr != addr && p.master.addr == hostname
		}
		if slices.Contains(flags, "master") && !slices.ContainsFunc(f[8:], isRange) && !isAway(flags) {
			if named && hostname != "" {
				addr = hostname
			}
			s.idle = append(s.idle, node{id, addr})
		}
	}
}

// isRange tells slots that are served, 7 or 7-9, from those on the move, [7->-…].
func isRange(s string) bool { return s[0] != '[' }

// isAway says that a node with these flags is not, or not yet, there.
func isAway(flags []string) bool {
	return slices.ContainsFunc(flags, func(s string) bool { return s == "fail" || s == "handshake" || s == "noaddr" })
}

// splitNode reads ip:port@busport,hostname; hostname comes back with the port, empty
// where there is none.
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

// merge decides who serves what where nodes differ: as nodes do it among themselves,
// the claim with the highest epoch counts, unless the one that is said to serve a
// slot knows better; then what more of them say.
func merge(sights []*sight) layout {
	own := map[string]*sight{}
	for _, s := range sights {
		if s.self != "" {
			own[s.self] = s
		}
	}
	owners := make([][]*part, len(sights)) // by slot
	seen := map[*sight][]*part{}
	for i, s := range sights {
		owners[i] = s.bySlot()
		seen[s] = owners[i]
	}
	l := layout{slots: make([]uint16, SlotCount)}
	index := map[string]int{}
	for slot := range l.slots {
		best := decide(sights, owners, slot, func(p *part) bool {
			s := own[p.master.id]
			return s == nil || seen[s][slot] != nil && seen[s][slot].master.id == p.master.id
		})
		l.slots[slot] = NoShard
		if best == nil {
			continue
		}
		i, ok := index[best.master.id]
		if !ok {
			i = len(l.shards)
			index[best.master.id] = i
			l.shards = append(l.shards, part{first: slot, master: best.master, replicas: best.replicas})
			if s := own[best.master.id]; s != nil { // which knows best who follows it
				l.shards[i].replicas = seen[s][slot].replicas
			}
		}
		l.slots[slot] = uint16(i)
	}
	l.addIdle(sights)
	return l
}

// decide is the part that counts for the slot among those of all sights that are
// valid; nil if none is.
func decide(sights []*sight, owners [][]*part, slot int, valid func(*part) bool) (best *part) {
	var epoch uint64
	var votes int
	for i, s := range sights {
		p := owners[i][slot]
		if p == nil || best != nil && p.master.id == best.master.id || !valid(p) {
			continue
		}
		e := s.epochs[p.master.id]
		v := votesFor(owners, slot, p.master.id)
		if best == nil || e > epoch || e == epoch && v > votes {
			best, epoch, votes = p, e, v
		}
	}
	return best
}

func votesFor(owners [][]*part, slot int, id string) (n int) {
	for _, o := range owners {
		if o[slot] != nil && o[slot].master.id == id {
			n++
		}
	}
	return n
}

// bySlot is the part that each slot is in; nil: nobody serves it.
func (s *sight) bySlot() []*part {
	out := make([]*part, SlotCount)
	for i := range s.parts {
		for slot := s.parts[i].first; slot <= s.parts[i].last; slot++ {
			out[slot] = &s.parts[i]
		}
	}
	return out
}

// addIdle adds the masters that serve no slot, which may be about to get their first.
func (l *layout) addIdle(sights []*sight) {
	known := map[string]bool{}
	for _, s := range l.shards {
		known[s.master.id] = true
	}
	var idle []node
	for _, s := range sights {
		for _, n := range s.idle {
			if !known[n.id] && n.addr != "" {
				known[n.id] = true
				idle = append(idle, n)
			}
		}
	}
	slices.SortFunc(idle, func(a, b node) int { return cmp.Compare(a.addr, b.addr) })
	for _, n := range idle {
		l.shards = append(l.shards, part{first: SlotCount, master: n})
	}
}
