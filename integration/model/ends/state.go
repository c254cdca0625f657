package main

import (
	"bytes"
	"fmt"
	"math/bits"

	"github.com/lockproxy/lockproxy/integration/model/explore"
)

const (
	nodes     = 3
	quorum    = 2
	maxHolds  = 3
	proxies   = 2
	maxRounds = 2
	maxSlots  = 3 // UNLOCKs in reach of each other

	free = 0
	ownA = 1
	ownB = 2

	first  = 0 // the holds of A
	second = 1
	fresh  = 2

	fenceA     = 1
	fenceFresh = 3
	fenceB     = 5
)

type rests = [maxHolds]uint8

// bits of node.flags
const (
	acqB uint8 = 1 << iota
	relB
	okB
)

// bits of node.unlock: what the unlocking proxy was told
const (
	done   uint8 = 1 << iota // removed, or not here and no fence above the grant's was seen
	gone                     // removed from a record that was not put back
	clear                    // no note of the grant
	refuse                   // the release needs a note
)

// A node is one lock node, with the messages on their way to it.
type node struct {
	owner, fence, told uint8 // told: the record was put back
	version            uint8 // 0 the grant's, else 1 + the round that was applied last
	counter            uint8
	quarantine         uint8
	marked             uint8 // holds that were given back
	noted              uint8 // the largest fence of a grant that may have been shortened
	rem                rests // what is left of every hold, of B's lock the first
	ended              uint8 // holds that ended here and are still in the record

	acquires, undoes uint8 // may still arrive: a bit a hold
	releases         uint8 // a bit a slot
	votes            uint8 // for the LOCK under way
	flags            uint8
	unlock           [proxies]uint8
	noting, notes    uint8 // a bit a proxy
	sent, voted      uint8 // a bit a round
	vnoted, vtold    uint8
	refused          uint8 // a bit a round that does not name all of its holds
	base             [maxRounds]uint8
	read             [proxies]reading
}

// A reading is a node's answer to a proxy; version is 1 too large, so that 0 is none.
type reading struct {
	version, fence uint8
	rem            rests
}

// A round is one renewal as it was sent.
type round struct {
	used, proxy, ttl, lineage, number, foreign, holds, fence uint8
}

// A slot is one UNLOCK as it was sent: the holds it gives back, and the rests of the others that its proxy knows.
type slot struct {
	used, proxy, holds, fence, noted uint8
	rem                              rests
}

const (
	idle = iota
	reads
	notes
	sends
)

const (
	renewal = 1 + iota
	unlock
	freshLock
)

// A proxy remembers a grant by its fence (0: none) and what is left of the holds it knows.
type proxy struct {
	fence, own      uint8 // own: it knows the version, and renews without reading
	lineage, number uint8
	has             uint8 // holds it remembers, also if they have ended
	rem             rests

	phase, op, elapsed uint8
	ttl, round         uint8
	holds, slot        uint8
	foreign            uint8 // this operation goes by what was read
	bound              uint8 // it must be done before
	known              rests // what was read, or remembered when this was asked for
	names              uint8 // the holds of those that ran then, for a renewal
	spared             uint8 // holds whose LOCK this proxy had under way during this RENEW
	trusted            uint8
	late               uint8 // this UNLOCK was asked for after B's grant, and not before for the same holds
	afterRival, lapsed uint8 // this RENEW was asked for after B's grant; after the lease had lapsed
}

// state is everything there is; it has no padding, so its bytes identify it.
type state struct {
	nodes   [nodes]node
	proxies [proxies]proxy
	rounds  [maxRounds]round
	slots   [maxSlots]slot

	told    rests
	since   rests // what is left of the ttl of every hold since its LOCK was executed last, if promise E counts
	granted uint8 // holds that A was told of
	asked   uint8 // holds that A asked to give back
	fence   uint8 // of A's grant

	locking, lockProxy, lockElapsed uint8 // locking: 1 + the hold of the LOCK under way
	lockCap                         uint8 // 1 + what it may tell at most; 0: anything
	lockAsked                       uint8 // a RENEW was asked for since, through the same proxy
	lockFence                       uint8
	lockKnows                       rests
	taken                           uint8

	bPhase, bElapsed, bValid, grantedB uint8 // bPhase: 0 not yet, 1 acquiring, 2 holding, 3 over
	renewals, unlocks, losses          uint8 // left
	renewed                            uint8 // holds that a RENEW named
}

func (c *Config) ttl(hold int) int { return []int{c.First, c.Second, c.Fresh}[hold] }

func (c *Config) initial() []state {
	s := state{granted: 1, fence: fenceA, taken: 1, renewals: uint8(c.Renewals), unlocks: uint8(c.Unlocks), losses: uint8(c.Losses)}
	valid := uint8(c.First - c.Drift)
	s.told[first] = valid
	if !c.Forgotten {
		s.proxies[0] = proxy{fence: fenceA, own: 1, has: 1 << first, rem: rests{valid}}
	}
	for k := range s.nodes {
		n := &s.nodes[k]
		if c.OnTwo && k == 0 {
			continue
		}
		*n = node{owner: ownA, fence: fenceA, counter: fenceA, rem: rests{uint8(c.First)}}
	}
	if c.CountEnds {
		s.since[first] = uint8(c.First)
	}
	if c.Rival == 0 {
		s.bPhase = 3
	}
	if c.Both {
		c.startWithBoth(&s)
	}
	if c.Elsewhere {
		c.startElsewhere(&s)
	}
	early := s
	for k := range early.nodes {
		for h := range early.nodes[k].rem {
			if rem := &early.nodes[k].rem[h]; *rem > 0 {
				*rem -= uint8(c.Drift)
			}
		}
	}
	return []state{s, early}
}

func (c *Config) startWithBoth(s *state) {
	s.taken, s.granted = 1<<first|1<<second, 1<<first|1<<second
	s.told[second] = uint8(c.Second - c.Drift)
	by := &s.proxies[0]
	if c.Apart {
		by = &s.proxies[1]
		by.fence = fenceA
	}
	by.has |= 1 << second
	by.rem[second] = s.told[second]
	for k := range s.nodes {
		if n := &s.nodes[k]; n.owner == ownA && !(c.Partly && k == 0) {
			n.rem[second] = uint8(c.Second)
		}
	}
	if c.CountEnds {
		s.since[second] = uint8(c.Second)
	}
}

func (c *Config) startElsewhere(s *state) {
	s.rounds[0] = round{1, 1, uint8(c.Long), 1, 1, 1, 1 << first, fenceA}
	s.told[first] = uint8(c.Long - c.Drift)
	s.proxies[1] = proxy{fence: fenceA, own: 1, lineage: 1, number: 1, has: 1 << first, rem: rests{s.told[first]}}
	if c.CountEnds {
		s.renewed = 1 << first
	}
	for k := range s.nodes {
		n := &s.nodes[k]
		n.version, n.rem[first] = 1, uint8(c.Long)
	}
}

func (c *Config) canonical(s state) state {
	var current, slots, acquires, live uint8
	for p := range s.proxies {
		x := &s.proxies[p]
		if x.rem == (rests{}) {
			x.fence, x.own, x.lineage, x.number, x.has = 0, 0, 0, 0, 0
		}
		if !c.All {
			x.has = 0
		}
		if x.phase == idle {
			*x = proxy{fence: x.fence, own: x.own, lineage: x.lineage, number: x.number, has: x.has, rem: x.rem}
		}
		if x.phase == sends && x.op == renewal {
			current |= 1 << x.round
		}
		if x.phase == sends && x.op == unlock || x.phase == notes && x.op == unlock {
			slots |= 1 << x.slot
		}
		if x.lineage != 0 {
			live |= 1 << (x.lineage - 1)
		}
	}
	live |= current
	for k := range s.nodes {
		n := &s.nodes[k]
		slots |= n.releases
		acquires |= n.acquires
		n.dropVotes(^current)
		if s.locking == 0 {
			n.votes = 0
		}
		live |= n.sent | roundOf(n.version)
		for p := range n.read {
			x := &s.proxies[p]
			if x.phase != notes {
				n.noting &^= 1 << p
				n.notes &^= 1 << p
			}
			if x.phase != reads && !(x.phase == notes && x.op == renewal && x.foreign == 1) {
				n.read[p] = reading{}
			}
			if x.phase != sends || x.op != unlock {
				n.unlock[p] = 0
			}
			live |= roundOf(max(n.read[p].version, 1) - 1)
		}
		for r := range n.base {
			if n.sent>>r&1 == 0 {
				n.base[r] = 0
			}
			live |= roundOf(max(n.base[r], 1) - 1)
		}
		if s.bPhase != 1 {
			n.flags &^= okB
		}
	}
	for range s.rounds {
		for r := range s.rounds {
			if live>>r&1 == 1 {
				live |= roundOf(s.rounds[r].lineage)
			}
		}
	}
	for r := range s.rounds {
		if live>>r&1 == 0 {
			s.rounds[r] = round{}
		}
	}
	for i := range s.slots {
		if slots>>i&1 == 0 {
			s.slots[i] = slot{}
		}
	}
	if acquires == 0 {
		s.lockFence, s.lockKnows = 0, rests{}
	}
	if s.locking == 0 {
		s.lockProxy, s.lockElapsed, s.lockCap, s.lockAsked = 0, 0, 0, 0
	}
	for i := 1; i < nodes; i++ {
		for j := i; j > 0 && bytes.Compare(explore.Bytes(&s.nodes[j]), explore.Bytes(&s.nodes[j-1])) < 0; j-- {
			s.nodes[j], s.nodes[j-1] = s.nodes[j-1], s.nodes[j]
		}
	}
	return s
}

func roundOf(version uint8) uint8 {
	if version == 0 {
		return 0
	}
	return 1 << (version - 1)
}

func (n *node) dropVotes(rounds uint8) {
	n.voted &^= rounds
	n.vnoted, n.vtold = n.vnoted&n.voted, n.vtold&n.voted
	n.refused &^= rounds
}

func (n *node) clearRecord() {
	n.owner, n.fence, n.told, n.version, n.rem, n.ended = free, 0, 0, 0, rests{}, 0
}

func largest(r rests) uint8 { return max(r[0], r[1], r[2]) }

func bit(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// A step is one thing that may happen next; hold, proxy and ttl are -1 where there is none.
type step struct {
	what             string
	hold, proxy, ttl int
}

func describe(s *state, by *step) string {
	text := "start"
	if by != nil {
		text = by.what
		if by.hold >= 0 {
			text += fmt.Sprintf(" h%d", by.hold)
		}
		if by.proxy >= 0 {
			text += fmt.Sprintf(" P%d", by.proxy)
		}
		if by.ttl >= 0 {
			text += fmt.Sprintf(" (%d)", by.ttl)
		}
	}
	text = fmt.Sprintf("%-36s told %v, P0 %v, P1 %v, B %d |", text, s.told, s.proxies[0].rem, s.proxies[1].rem, s.bValid)
	for k := range s.nodes {
		text += " " + s.nodes[k].String()
	}
	return text
}

func (n node) String() string {
	text := fmt.Sprintf("%c%v f%d v%d c%d", "-AB"[n.owner], n.rem, n.fence, n.version, n.counter)
	if n.marked != 0 {
		text += fmt.Sprintf(" marked %03b", n.marked)
	}
	if n.noted != 0 {
		text += " noted"
	}
	if n.told == 1 {
		text += " told"
	}
	if n.quarantine > 0 {
		text += fmt.Sprintf(" q%d", n.quarantine)
	}
	return "[" + text + "]"
}

// fenceOf is the fence of the grant that these holds are of.
func fenceOf(holds uint8) uint8 {
	if holds>>fresh&1 == 1 {
		return fenceFresh
	}
	return fenceA
}

// one is the hold of a set of one, else -1.
func one(holds uint8) int {
	if bits.OnesCount8(holds) != 1 {
		return -1
	}
	return bits.TrailingZeros8(holds)
}
