package main

import (
	"bytes"
	"fmt"
	"math/bits"
	"sort"

	"github.com/lockproxy/lockproxy/integration/model/explore"
)

const (
	nodes    = 3
	quorum   = 2
	maxHolds = 3
	proxies  = 2
	renewals = 2 // under way at once
	fences   = 12

	free = 0
	ownA = 1
	ownB = 2
)

// Sets of holds and of renewals are a bit each.

// A node is one lock node, with the messages on their way to it.
type node struct {
	owner, holds uint8
	fence, grant uint8 // of A's record; grant is 1 + the hold whose LOCK numbered it
	told         uint8 // the record was put back where the name was free
	counter      uint8 // the largest fence seen here
	quarantine   uint8
	marked       uint8 // holds that were given back

	acquires, undoes, releases, renews uint8 // may still arrive
	acquireB, undoB                    uint8

	lock               uint8 // its answer to the LOCK: one of the kinds below
	lockFence, lockOf  uint8 // with the fence and the grant
	released, left     uint8 // its answer to the UNLOCK: it counts, and how many holds are left
	renewed, acceptedB uint8 // it voted
}

// kinds of answer to a LOCK
const (
	anew     = iota + 1 // the name was free
	kept                // the owner was in
	keptTold            // the owner was in by a record that was put back
)

// A list is what a message or a proxy's memory says of a grant; fence 0: nothing.
type list struct{ fence, grant, holds uint8 }

const (
	idle = iota
	locking
	unlocking
	renewing
)

// state is everything there is; it has no padding, so its bytes identify it.
type state struct {
	nodes  [nodes]node
	memory [proxies]list

	phase, hold, proxy, slot uint8 // what A awaits an answer to
	lateRenewal              uint8 // the RENEW of A's grant was asked for after "free"
	old                      uint8 // what A awaits was begun before the last loss

	granted, returned uint8 // holds that A was told of; asked to be given back
	fence, grant      uint8 // of A's grant
	free              uint8 // A was told so
	over              uint8 // holds that must not count again: their UNLOCK was answered
	taken             uint8 // how many attempts A has made
	renewalsLeft      uint8
	lossesLeft        uint8
	renewedSince      uint8 // A's lease was renewed since the last loss
	rival             uint8 // 0 not yet, 1 asks, 2 over

	unlocks  [maxHolds]list // what the release of each hold carries
	renewals [renewals]list
}

func (c *Config) initial() state {
	s := state{granted: 1, fence: 1, grant: 1, taken: 1, renewalsLeft: uint8(c.Renewals), lossesLeft: uint8(c.Losses)}
	for k := range s.nodes {
		s.nodes[k] = node{owner: ownA, holds: 1, fence: 1, grant: 1, counter: 1}
	}
	s.memory[0] = list{1, 1, 1}
	if c.NoRival {
		s.rival = 2
	}
	return s
}

// canonical drops what can no longer matter and orders the nodes, which are alike.
func canonical(s state) state {
	if s.phase == idle {
		s.old, s.hold, s.proxy, s.slot, s.lateRenewal = 0, 0, 0, 0, 0
	}
	for k := range s.nodes {
		n := &s.nodes[k]
		if s.phase != locking {
			n.lock, n.lockFence, n.lockOf = 0, 0, 0
		}
		if s.phase != unlocking {
			n.released, n.left = 0, 0
		}
		if s.phase != renewing {
			n.renewed = 0
		}
		if s.rival != 1 {
			n.acceptedB = 0
		}
	}
	for i := range s.renewals {
		if !s.renewing(i) && !(s.phase == renewing && int(s.slot) == i) {
			s.renewals[i] = list{}
		}
	}
	for h := range s.unlocks {
		if s.pending(func(n *node) uint8 { return n.releases >> h & 1 }) == 0 {
			s.unlocks[h] = list{}
		}
	}
	sort.Slice(s.nodes[:], func(i, j int) bool {
		return bytes.Compare(explore.Bytes(&s.nodes[i]), explore.Bytes(&s.nodes[j])) < 0
	})
	return s
}

func (s *state) pending(what func(*node) uint8) (n int) {
	for k := range s.nodes {
		n += int(what(&s.nodes[k]))
	}
	return n
}

// renewing reports whether renewal i may still arrive anywhere.
func (s *state) renewing(i int) bool {
	return s.pending(func(n *node) uint8 { return n.renews >> i & 1 }) > 0
}

// open are the holds that A has, as it was told.
func (s *state) open() uint8 { return s.granted &^ s.returned }

// vouches reports whether n counts for a grant in a read.
func (c *Config) vouches(n *node, fence uint8) bool {
	return n.owner == ownA && n.fence == fence && n.quarantine == 0 && (n.told == 0 || !c.Told)
}

// returns is the broken promise W, if any.
func (c *Config) returns(s *state) string {
	for h := range maxHolds {
		if s.over>>h&1 == 1 && s.pending(func(n *node) uint8 { return bit(c.vouches(n, s.fence)) & (n.holds >> h) }) >= quorum {
			return "W: a hold that was given back is on a quorum again"
		}
	}
	return ""
}

// known is what proxy p knows of the grant: its memory, or what a read of a quorum tells.
func (c *Config) known(s *state, p int) list {
	if m := s.memory[p]; m.fence != 0 && m.fence == s.fence {
		return m
	}
	for f := uint8(1); f < fences; f++ {
		if l := c.read(s, f); l.fence != 0 {
			return l
		}
	}
	return list{}
}

// read is what a quorum of nodes says of the grant with that fence.
func (c *Config) read(s *state, fence uint8) (l list) {
	votes, count := 0, [maxHolds]int{}
	for k := range s.nodes {
		n := &s.nodes[k]
		if !c.vouches(n, fence) {
			continue
		}
		votes++
		l.grant = n.grant
		for h := range count {
			count[h] += int(n.holds >> h & 1)
		}
	}
	if votes < quorum {
		return list{}
	}
	l.fence = fence
	for h := range count {
		l.holds |= bit(count[h] >= quorum) << h
	}
	return l
}

// stuck reports whether all nodes vote, nothing is under way, A has the lock, and a RENEW
// that reaches all nodes fails all the same, through any proxy, by its memory or by reading.
func (c *Config) stuck(s *state) bool {
	if s.phase != idle || s.open() == 0 || s.rival == 1 {
		return false
	}
	for k := range s.nodes {
		if n := &s.nodes[k]; n.quarantine == 1 || n.undoes|n.releases|n.undoB != 0 || n.owner == ownB {
			return false
		}
	}
	for p := range c.proxies() {
		reading := *s
		reading.memory[p] = list{}
		if c.renewable(s, c.known(s, p)) || c.renewable(s, c.known(&reading, p)) {
			return false
		}
	}
	return true
}

// renewable reports whether a renewal with that list would have a quorum if it reached all nodes.
func (c *Config) renewable(s *state, l list) bool {
	return l.fence != 0 && l.holds != 0 && s.pending(func(n *node) uint8 {
		return bit(n.owner == free && n.counter <= l.fence || c.appliesTo(n, l))
	}) >= quorum
}

func (c *Config) proxies() int {
	if c.OneProxy {
		return 1
	}
	return proxies
}

func bit(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// A step is one thing that may happen next.
type step struct {
	what  string
	hold  int // -1: none
	proxy int // -1: none
}

func (c *Config) describe(s *state, by *step) string {
	text := "start"
	if by != nil {
		text = by.what
		if by.hold >= 0 {
			text += fmt.Sprintf(" h%d", by.hold)
		}
		if by.proxy >= 0 {
			text += fmt.Sprintf(" P%d", by.proxy)
		}
	}
	text = fmt.Sprintf("%-40s told %03b given back %03b, memory %03b %03b |", text, s.granted, s.returned, s.memory[0].holds, s.memory[1].holds)
	for k := range s.nodes {
		text += " " + s.nodes[k].String()
	}
	return text
}

func (n node) String() string {
	text := fmt.Sprintf("%c %03b marked %03b f%d c%d", "-AB"[n.owner], n.holds, n.marked, n.fence, n.counter)
	if n.told == 1 {
		text += " told"
	}
	if n.quarantine == 1 {
		text += " quarantine"
	}
	return "[" + text + "]"
}

func count(set uint8) uint8 { return uint8(bits.OnesCount8(set)) }
