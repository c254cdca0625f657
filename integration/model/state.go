package main

import (
	"bytes"

	"github.com/lockproxy/lockproxy/integration/model/explore"
)

const (
	maxNodes  = 3
	maxRounds = 4
	proxies   = 2

	free  = 0
	ownA  = 1
	ownB  = 2
	fence = 1 // of A's grant
	burnt = 2 // what the final release raises the counter to
	floor = 6 // what a node that forgot is given after its quarantine: no less than any fence
	propB = 3 // B's proposal: above every fence there is, as a clock's is
)

// bits of node.flags
const (
	acqA    uint8 = 1 << iota // A's acquire may still arrive
	relA                      // A's release may still arrive
	relOK                     // the unlocking proxy was told: removed, and it had not been put back, or nobody was granted it since
	relGone                   // the unlocking proxy was told: removed, and it had not been put back
	acqB
	relB
	okB    // B's proxy has the node's yes
	forgot // the node has lost its memory once: new fences start from its floor
)

// A node is one lock node, with the messages on their way to it.
type node struct {
	owner, rem uint8 // who holds the name, for how many ticks more
	counter    uint8 // the largest fence seen here
	fence      uint8 // of A's hold, as the record has it
	putBack    uint8 // A's hold was put back here, not granted here
	version    uint8 // of A's hold: 0 the grant's, else 1 + the round that was applied last
	quarantine uint8
	flags      uint8
	noted      uint8            // a renewal of A's grant may shorten
	forcing    uint8            // see force.go
	clear      uint8            // the unlocking proxy was told that nothing was noted
	noting     uint8            // a bit per proxy whose note may still arrive
	notes      uint8            // a bit per proxy that was told of its note
	sent       uint8            // a bit per round whose renewal may still arrive
	voted      uint8            // a bit per round whose proxy has this node's vote
	vnoted     uint8            // a bit per round: that vote says noted
	vput       uint8            // a bit per round: that vote put the hold back
	vtold      uint8            // a bit per round: that vote is from a record that was put back, by this round or an earlier one
	base       [maxRounds]uint8 // per take-over: the version it replaces
	read       [proxies]reading // per proxy: what it read here
}

// A reading is one node's answer to a foreign proxy; version is 1 too large, so
// that 0 means no answer.
type reading struct{ version, rem uint8 }

// A round is one renewal as it was sent. Lineage 0 is the granting proxy's, 1+r
// the one that round r began by taking over.
type round struct {
	used, proxy, ttl, lineage, number uint8
	grow, foreign                     uint8
}

const (
	idle     = 0
	polling  = 1
	renewing = 2
	noting   = 3
)

// A proxy remembers a grant as (lineage, number, validity) or not at all.
type proxy struct {
	phase                             uint8
	knows, lineage, number            uint8
	validity                          uint8 // what it remembers, or in a foreign round the bound it read
	elapsed                           uint8 // since the round's first byte
	afterForce                        uint8 // this operation was begun
	afterLapse                        uint8 // this renewal was asked for after the lease had lapsed
	round                             uint8 // while renewing
	ttl, grow                         uint8
	afterRival, afterUnlock, byClient uint8 // when this operation was begun
}

// state is everything there is; it has no padding, so its bytes identify it.
type state struct {
	nodes    [maxNodes]node
	proxies  [proxies]proxy
	rounds   [maxRounds]round
	told     uint8 // what is left of the validity A was told
	asking   uint8 // 1 + the proxy A awaits an answer of
	released uint8 // A has asked for UNLOCK
	unlocked uint8 // A was told that it is
	unlocker uint8 // 1 + the proxy, while the answer is due
	trusted  uint8 // UNLOCK was asked for within the validity that proxy remembered
	lateAsk  uint8 // UNLOCK was asked for after B's grant
	deadAsk  uint8 // UNLOCK was asked for after FORCE was answered
	force    uint8 // how far it is
	granted  uint8 // B has been granted
	bPhase   uint8 // 0 not yet, 1 acquiring, 2 holding, 3 done
	bElapsed uint8
	bValid   uint8
	requests uint8 // left
	autos    uint8 // left
	losses   uint8 // left
}

// canonical drops what can no longer matter and orders the nodes, which are alike.
func (c *Config) canonical(s state) state {
	c.forgetDead(&s)
	for i := 1; i < c.Nodes; i++ {
		for j := i; j > 0 && bytes.Compare(explore.Bytes(&s.nodes[j]), explore.Bytes(&s.nodes[j-1])) < 0; j-- {
			s.nodes[j], s.nodes[j-1] = s.nodes[j-1], s.nodes[j]
		}
	}
	return s
}

func (c *Config) forgetDead(s *state) {
	c.endHopeless(s)
	var current uint8
	for p := range s.proxies {
		x := &s.proxies[p]
		if x.phase == renewing {
			current |= 1 << x.round
		}
		if x.knows == 1 && x.validity == 0 && x.phase == idle {
			x.knows = 0
		}
		if x.knows == 0 && x.phase != renewing && x.phase != noting {
			x.lineage, x.number, x.validity = 0, 0, 0
		}
	}
	for k := 0; k < c.Nodes; k++ {
		n := &s.nodes[k]
		n.keepVotes(current)
		n.dropForce(s.force)
		c.dropDeaf(s, n)
		for r := range n.base {
			if n.sent>>r&1 == 0 {
				n.base[r] = 0
			}
		}
		for p := range n.read {
			if s.proxies[p].phase != noting {
				n.noting &^= 1 << p
				n.notes &^= 1 << p
			}
			if s.proxies[p].phase != polling && s.proxies[p].phase != noting {
				n.read[p] = reading{}
			}
		}
	}
	live := current | s.referred(c.Nodes)
	for r := range s.rounds {
		if live>>r&1 == 0 {
			s.rounds[r] = round{}
		}
	}
}

// keepVotes drops the votes of all rounds but those with a bit in rounds.
func (n *node) keepVotes(rounds uint8) {
	n.voted &= rounds
	n.vnoted, n.vput, n.vtold = n.vnoted&n.voted, n.vput&n.voted, n.vtold&n.voted
}

func (n *node) dropVote(round int) { n.keepVotes(^(uint8(1) << round)) }

// referred is a bit per round that a message, a record, a reading or a memory still names.
func (s *state) referred(nodes int) uint8 {
	var live uint8
	for k := range s.nodes[:nodes] {
		n := &s.nodes[k]
		live |= n.sent | roundOf(n.version)
		for r := range n.base {
			live |= roundOf(max(n.base[r], 1) - 1)
		}
		for _, rd := range n.read {
			live |= roundOf(max(rd.version, 1) - 1)
		}
	}
	for p := range s.proxies {
		live |= roundOf(s.proxies[p].lineage)
	}
	for r := range s.rounds {
		if live>>r&1 == 1 {
			live |= roundOf(s.rounds[r].lineage)
		}
	}
	return live
}

// roundOf is the bit of the round that a version or lineage is named after.
func roundOf(v uint8) uint8 {
	if v == 0 {
		return 0
	}
	return 1 << (v - 1)
}

// endHopeless ends operations that can no longer succeed: all that could follow is
// that they are given up.
func (c *Config) endHopeless(s *state) {
	for p := range s.proxies {
		x := &s.proxies[p]
		if x.phase == idle {
			continue
		}
		lease := int(x.ttl)
		if x.phase == polling {
			lease = c.Long
		}
		if lease-c.Drift > int(x.elapsed) && (x.phase == polling || x.validity > 0 || !c.bounded(s, x)) {
			continue
		}
		if x.byClient == 1 {
			s.asking = 0
		}
		x.stop()
	}
}

// bounded reports whether the round x is in must complete before x.validity ends.
func (c *Config) bounded(s *state, x *proxy) bool {
	if x.phase == noting {
		return true
	}
	if s.rounds[x.round].foreign == 1 {
		return c.ForeignBound
	}
	return c.OwnBound
}

// settled reports whether nothing that follows s could break a promise.
func (c *Config) settled(s *state) bool {
	if s.proxies[0].phase != idle || s.proxies[1].phase != idle || s.unlocker != 0 {
		return false
	}
	if c.Lapse && s.requests > 0 && s.released == 0 {
		return false
	}
	if s.told > 0 || s.autos > 0 && s.proxies[0].knows == 1 {
		return s.bPhase == 3 && s.granted == 0 && !c.NoRival && !c.Force
	}
	return s.released == 1 || s.requests == 0 && !c.Unlocks || s.bPhase == 3 && s.granted == 0 && !c.NoRival && !c.Force
}

// dropDeaf drops renewals that can have no effect on n any more: a later fence is
// there, and the guard and the fence check both stand.
func (c *Config) dropDeaf(s *state, n *node) {
	if c.Lapse {
		return
	}
	if c.Guard && c.FenceMatch && s.losses == 0 && n.counter > fence && !(n.owner == ownA && n.fence == fence) {
		n.sent = 0
	}
	if !c.Unlocks || s.released == 1 && s.unlocker == 0 {
		n.flags &^= relOK | relGone
		n.clear, n.noted = 0, 0
	}
}

func (c *Config) initial() []state {
	var s state
	s.requests, s.autos, s.losses = uint8(c.Requests), uint8(c.Autos), uint8(c.Losses)
	if c.NoRival {
		s.bPhase = 3
	}
	s.told = uint8(c.Long - c.Drift)
	s.proxies[0] = proxy{knows: 1, validity: s.told}
	for k := 0; k < c.Nodes; k++ {
		n := &s.nodes[k]
		if k < c.Quorum || c.NoLate {
			*n = node{owner: ownA, rem: uint8(c.Long), counter: fence, fence: fence}
		}
		if k >= c.Quorum && !c.NoLate || c.DupAcquire {
			n.flags = acqA
		}
	}
	for r := range c.Pending {
		c.startPending(&s, r)
	}
	short := s
	for k := 0; k < c.Quorum || c.NoLate && k < c.Nodes; k++ {
		short.nodes[k].rem -= uint8(c.Drift)
	}
	return []state{s, short}
}

func (c *Config) startPending(s *state, r int) {
	s.rounds[r] = round{used: 1, ttl: uint8(c.Short), number: uint8(c.Skipped + r + 1)}
	s.proxies[0].number = uint8(c.Skipped + r + 1)
	if c.MinOnSend {
		s.told = min(s.told, uint8(c.Short-c.Drift))
		s.proxies[0].validity = s.told
	}
	for k := 0; k < c.Nodes; k++ {
		s.nodes[k].sent |= 1 << r
		if c.Notes {
			s.nodes[k].noted = bit(k >= c.Nodes-c.Quorum)
		}
	}
}
