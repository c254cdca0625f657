package members

import (
	"fmt"
	"math/bits"
)

// Sets is a change of the lock nodes from {0,1,2} over {0,1,2,3} to {1,2,3}, or from {0,1,2,3} over {0,1,2} and back, with node 3
// empty. An operator tells the nodes one by one what set they are in; nobody tells the proxies: each of two clients
// has a proxy with any of the lists at any time.
type Sets struct {
	Known    bool // a node refuses a list that is neither its set nor that to come
	Overlaps bool // a list that comes next differs by one node; else 0 is exchanged for 3 at once
	Waits    bool // a further change begins when leases of before the last one are over, as for the longest there may be
	Reads    bool // or for the longest that there is, as a majority tells
	ReadAll  bool // a majority of the list
	ReadLate bool // after the last change, not before it
	ReadTold bool // of nodes that have taken it
	Floors   bool // and when the fences of a majority are known to the next list
	SitsOut  bool // a node that forgot has no vote until leases it may have forgotten are over
	Lease    uint8
	Losses   uint8 // how often a node may forget
	Fence    uint8 // which only nodes 0 and 1 carry at the start
	Begun    uint8 // the epoch that all nodes are at, at the start
	Held     bool  // A has the name on a majority at the start: nodes 0 and 1, or 1, 2 and 3
	Missed   bool  // or 0 and 2, of which 2 has missed the last change and granted it since the one before
	Returns  bool  // the change is from {0,1,2,3} and back
}

// sound are Sets with every rule.
func sound() Sets {
	return Sets{Known: true, Overlaps: true, Waits: true, ReadAll: true, ReadLate: true, ReadTold: true, Floors: true, SitsOut: true, Lease: 1, Begun: 1}
}

const setNodes, setClients = 4, 2

// setLists are the nodes of each list, returning those of a change and back; setEpochs the lists that a node takes at each epoch.
var (
	setLists  = [3]uint8{0b0111, 0b1111, 0b1110}
	returning = [3]uint8{0b1111, 0b0111, 0b1111}
	setEpochs = [5]uint8{0b001, 0b011, 0b010, 0b110, 0b100}
	exchange  = [5]uint8{0b001, 0b101, 0b101, 0b101, 0b100}
)

func quorum(nodes, list uint8) bool {
	return bits.OnesCount8(nodes&list) > bits.OnesCount8(list)/2
}

type setNode struct {
	owner, rest, fence uint8 // owner 0: free
	later              bool  // it granted that after it took the last change that it knows of
	out                uint8 // ticks it sits out
	lost               bool  // it has neither floor nor set
	epoch              uint8
	granted            [setClients]bool // vote for the client's round under way
	fences             [setClients]uint8
}

type setClient struct {
	asks    bool
	list    uint8
	age     uint8 // of its round
	valid   uint8 // ticks it was told
	granted bool  // once: it asks no more
}

type setState struct {
	nodes   [setNodes]setNode
	clients [setClients]setClient
	epoch   uint8 // the operator's
	since   uint8 // ticks since a majority had it
	read    bool  // how long leases run
	until   uint8 // ticks until they are over
	told    bool  // the fences
	losses  uint8
	largest uint8 // fence of a grant
}

func (c Sets) start() (s setState) {
	s.losses, s.largest = c.Losses, c.Fence
	for k := range s.nodes {
		s.nodes[k].epoch = c.Begun
	}
	if s.epoch = c.Begun; c.Begun == 0 {
		s.nodes[3] = setNode{epoch: 1, out: c.Lease, lost: true}
	}
	s.nodes[0].fence, s.nodes[1].fence = c.Fence, c.Fence
	if c.Held {
		holders := uint8(0b0011)
		switch {
		case c.Returns:
			holders = 0b1110
		case c.Missed:
			holders = 0b0101
			s.nodes[2].epoch, s.nodes[2].later = c.Begun-1, true
		}
		for k := range s.nodes {
			if holders>>k&1 == 1 {
				s.nodes[k].owner, s.nodes[k].rest = 1, c.Lease
			}
		}
		s.clients[0] = setClient{valid: c.Lease, granted: true}
		s.read = c.Reads && !c.ReadLate // before that
	}
	return s
}

// lists are those of the change.
func (c Sets) lists() [3]uint8 {
	if c.Returns {
		return returning
	}
	return setLists
}

func (c Sets) takes(n *setNode, list uint8) bool {
	if !c.Known {
		return true
	}
	if !c.Overlaps {
		return exchange[n.epoch]>>list&1 == 1
	}
	for at, nodes := range c.lists() {
		if setEpochs[n.epoch]>>at&1 == 1 && nodes == c.lists()[list] {
			return true
		}
	}
	return false
}

func (n *setNode) votes() bool { return n.out == 0 && !n.lost }

// Search visits at most limit states.
func (c Sets) Search(limit int) Result { return search(c.start(), limit, c.next) }

func (c Sets) next(s setState, out func(setState, string, string)) {
	if t, moved := c.tick(s); moved {
		out(t, "tick", "")
	}
	c.operate(s, out)
	for k := range s.nodes {
		c.forget(s, k, out)
	}
	for i := range s.clients {
		c.client(s, i, out)
	}
}

func (c Sets) tick(s setState) (setState, bool) {
	before := s
	low := func(x *uint8) { *x = max(*x, 1) - 1 }
	for k := range s.nodes {
		n := &s.nodes[k]
		low(&n.rest)
		if low(&n.out); n.rest == 0 {
			n.owner, n.later = 0, false
		}
	}
	for i := range s.clients {
		low(&s.clients[i].valid)
		if s.clients[i].asks {
			s.clients[i].age = min(s.clients[i].age+1, c.Lease)
		}
	}
	s.since = min(s.since+1, c.Lease)
	low(&s.until)
	return s, s != before
}

// have are the nodes at the operator's epoch.
func (s *setState) have() (nodes uint8) {
	for k := range s.nodes {
		if s.nodes[k].epoch == s.epoch && !s.nodes[k].lost {
			nodes |= 1 << k
		}
	}
	return nodes
}

func (c Sets) operate(s setState, out func(setState, string, string)) {
	for k := range s.nodes {
		if n := &s.nodes[k]; n.epoch < s.epoch && !n.lost {
			t := s
			t.nodes[k].epoch, t.nodes[k].later = s.epoch, false
			if from, to := c.between(s.epoch); !(quorum(s.have(), from) && quorum(s.have(), to)) {
				t.since = 0 // a majority may have it from now on
			}
			out(t, fmt.Sprintf("%d is told epoch %d", k, s.epoch), "")
		}
	}
	from, to := c.between(s.epoch)
	if s.epoch == 4 || !quorum(s.have(), from) || !quorum(s.have(), to) {
		if s.epoch != 0 {
			return
		}
	}
	opens := s.epoch == 0 || s.epoch == 2
	if s.epoch == 2 && c.Reads && !s.read && !c.over(&s) {
		c.readLeases(s, out)
	}
	if s.epoch == 2 && c.Floors && !s.told {
		c.tell(s, out)
		return
	}
	if opens && s.epoch == 2 && !c.over(&s) {
		return
	}
	t := s
	t.epoch++
	if c.Returns && t.epoch == 3 { // it may have been emptied meanwhile, and votes at once
		t.nodes[3] = setNode{epoch: t.epoch}
	}
	out(t, fmt.Sprintf("epoch %d begins", t.epoch), "")
}

// over reports whether the operator takes the leases of before the last change to be over.
func (c Sets) over(s *setState) bool {
	return !c.Waits || s.since >= c.Lease || s.read && s.until == 0
}

// readLeases has the operator read how long leases run that were granted before the last change.
func (c Sets) readLeases(s setState, out func(setState, string, string)) {
	for nodes := uint8(1); nodes < 1<<setNodes; nodes++ {
		if _, ok := s.votingFence(nodes); !ok || nodes&^c.lists()[1] != 0 || c.ReadAll && !quorum(nodes, c.lists()[1]) {
			continue
		}
		if c.ReadTold && nodes&^s.have() != 0 {
			continue
		}
		t := s
		t.read = true
		for k := range s.nodes {
			if n := &s.nodes[k]; nodes>>k&1 == 1 && !n.later {
				t.until = max(t.until, n.rest)
			}
		}
		out(t, fmt.Sprintf("%04b tell for how long leases run, %d", nodes, t.until), "")
	}
}

// between are the lists that take part in an epoch.
func (c Sets) between(epoch uint8) (from, to uint8) {
	lists := c.lists()
	switch {
	case !c.Overlaps:
		return lists[0], lists[2]
	case epoch < 3:
		return lists[0], lists[1]
	}
	return lists[1], lists[2]
}

// tell raises the fences of the next list to the largest of a majority. Leases of before
// are over.
func (c Sets) tell(s setState, out func(setState, string, string)) {
	if !c.over(&s) {
		return
	}
	for nodes := uint8(1); nodes < 1<<setNodes; nodes++ {
		if f, ok := s.votingFence(nodes); ok && quorum(nodes, c.lists()[1]) {
			t := s
			t.told = true
			for k := range t.nodes {
				if c.lists()[2]>>k&1 == 1 {
					t.nodes[k].fence = max(t.nodes[k].fence, f)
				}
			}
			out(t, fmt.Sprintf("%04b tell their fences, %d", nodes, f), "")
		}
	}
}

// votingFence is the largest fence of these nodes, if all vote.
func (s *setState) votingFence(nodes uint8) (fence uint8, ok bool) {
	for k := range s.nodes {
		if nodes>>k&1 == 1 {
			if !s.nodes[k].votes() {
				return 0, false
			}
			fence = max(fence, s.nodes[k].fence)
		}
	}
	return fence, true
}

// forget loses a node's memory, or has a proxy with some list give floor and set back.
func (c Sets) forget(s setState, k int, out func(setState, string, string)) {
	n := &s.nodes[k]
	if s.losses > 0 && !n.lost {
		t := s
		t.losses--
		t.nodes[k] = setNode{epoch: n.epoch, lost: true}
		if c.SitsOut {
			t.nodes[k].out = c.Lease
		}
		out(t, fmt.Sprintf("%d forgets", k), "")
	}
	if !n.lost || n.out > 0 {
		return
	}
	for list, all := range c.lists() {
		for nodes := uint8(1); nodes < 1<<setNodes; nodes++ {
			f, ok := s.votingFence(nodes)
			if !ok || nodes>>k&1 == 1 || !quorum(nodes, all) || all>>k&1 == 0 || nodes&^all != 0 {
				continue
			}
			epoch := uint8(0)
			for j := range s.nodes {
				if nodes>>j&1 == 1 {
					ok = ok && c.takes(&s.nodes[j], uint8(list))
					epoch = max(epoch, s.nodes[j].epoch)
				}
			}
			if ok {
				t := s
				t.nodes[k].lost, t.nodes[k].fence, t.nodes[k].epoch = false, f, epoch
				if k == 3 && epoch == 0 {
					t.nodes[k].epoch = 1
				}
				out(t, fmt.Sprintf("%d gets floor %d and epoch %d from %04b", k, f, t.nodes[k].epoch, nodes), "")
			}
		}
	}
}

func (c Sets) client(s setState, i int, out func(setState, string, string)) {
	cl, me := s.clients[i], uint8(i+1)
	if !cl.asks {
		if cl.granted {
			return
		}
		for list := range c.lists() {
			if !c.Overlaps && list == 1 {
				continue
			}
			t := s
			t.clients[i] = setClient{asks: true, list: uint8(list)}
			out(t, fmt.Sprintf("%c asks with list %d", 'A'+i, list), "")
		}
		return
	}
	votes, fence := uint8(0), uint8(0)
	for k := range s.nodes {
		n := &s.nodes[k]
		if n.granted[i] {
			votes |= 1 << k
			fence = max(fence, n.fences[i])
			continue
		}
		if c.lists()[cl.list]>>k&1 == 1 && n.votes() && n.owner == 0 && c.takes(n, cl.list) {
			t := s
			m := &t.nodes[k]
			m.owner, m.rest, m.fence, m.later = me, c.Lease, n.fence+1, true
			m.granted[i], m.fences[i] = true, m.fence
			out(t, fmt.Sprintf("%d votes for %c", k, 'A'+i), "")
		}
	}
	if quorum(votes, c.lists()[cl.list]) && cl.age < c.Lease {
		t := s
		t.clients[i] = setClient{list: cl.list, valid: c.Lease - cl.age, granted: true}
		broken := ""
		for j := range s.clients {
			if j != i && s.clients[j].valid > 0 {
				broken = "two valid holders"
			}
		}
		if broken == "" && fence <= s.largest {
			broken = fmt.Sprintf("fence %d after %d", fence, s.largest)
		}
		t.largest = max(s.largest, fence)
		for k := range t.nodes { // settled: a majority carries it
			if t.nodes[k].granted[i] {
				t.nodes[k].fence = max(t.nodes[k].fence, fence)
			}
			t.nodes[k].granted[i], t.nodes[k].fences[i] = false, 0
		}
		out(t, fmt.Sprintf("%c granted", 'A'+i)[:1]+" granted", broken)
	}
}
