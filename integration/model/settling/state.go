package main

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/lockproxy/lockproxy/integration/model/explore"
)

const (
	nodes    = 3
	quorum   = 2
	attempts = 4 // the LOCKs: two of A, one of B and one of C. Each takes one hold

	first = 0
	again = 1

	ahead = 6  // the largest fence of a node, of another name
	floor = 30 // above all fences before a node forgot
)

// owner is who sends a LOCK.
func owner(x int) uint8 { return [attempts]uint8{1, 1, 2, 3}[x] }

// Rules are what proxies and nodes do about numbers.
type Rules struct {
	Lower   bool // a node that numbered the grant with a larger fence takes over that of the grant
	Earlier bool // but not if it has seen a larger one before
	Floor   bool // or may have forgotten one
	Own     bool // and only if it was this LOCK that numbered the record
	Counter bool // and the counter too, if that is the fence it gave
	Forget  bool // an undo forgets the fence of the record that it removes
	Alone   bool // but not if others have been in that record
	Same    bool // or the counter is another by now; that is so for Counter as well
	Expired bool // and no counter stays where there was none
	Carried bool // a new grant is told when a quorum has stored its fence
}

func soundRules() Rules {
	return Rules{Lower: true, Earlier: true, Floor: true, Own: true, Counter: true, Forget: true, Alone: true, Same: true,
		Expired: true, Carried: true}
}

// Config bounds a search.
type Config struct {
	Rules
	Rivals         int  // owners that want the name too
	Again          bool // A enters again
	AtOnce         bool // and may do so before its first LOCK is answered: L is not looked at
	After          bool // rivals ask when A's LOCKs are over
	Releases       bool // what was granted may be given back
	Lossy          bool // votes may be lost
	Lapses, Losses int  // how often a lease may lapse at a node, and a node may forget
	Ahead          bool // a node has not seen the name, and has stored a larger fence of another one
	Behind         bool // each LOCK proposes less than the one before
	Old            bool // the name was granted once, and its counters are gone
	Out            bool // one node gets no messages: L is not looked at
}

// A node is one lock node, with the messages on their way to it and what proxies know of it.
type node struct {
	owner, fence, grant, holds uint8 // grant: 1 + the LOCK that numbered it. holds: a bit each
	before, alone              uint8 // the largest fence of the name before the record; no other hold has been in it
	counter, largest, floor    uint8 // counter 0: none
	marks                      uint8 // holds that were given back: a bit each

	acquires, undoes, releases, settles uint8 // may still arrive: a bit a LOCK

	vote, kept, grants [attempts]uint8 // what the proxy of a LOCK was told: the fence, that of a grant which was there, and whose
	carries            uint8           // the proxy knows that the fence is stored
}

// The phases of a LOCK.
const (
	before = iota
	asking
	settling
	holding
	over
)

// An attempt is a LOCK.
type attempt struct {
	phase, fence uint8
	grant        uint8 // 1 + the LOCK that numbered the grant
	latest       uint8 // the largest fence that others were told when it was asked for
	told         uint8
	late         uint8 // its validity has ended
}

// state is everything there is; it has no padding, so its bytes identify it.
type state struct {
	nodes    [nodes]node
	attempts [attempts]attempt
	spoiled  uint8 // L is not promised any more
	lapses   uint8
	losses   uint8
	past     uint8 // the fence of a grant so old that the nodes have forgotten its counter
}

func (c *Config) initial() (all []state) {
	s := state{lapses: uint8(c.Lapses), losses: uint8(c.Losses)}
	for x := range s.attempts {
		if x == again && !c.Again || x > again && x-again > c.Rivals {
			s.attempts[x].phase = over
		}
	}
	for k := range s.nodes {
		s.nodes[k].counter, s.nodes[k].largest = 1, 1
	}
	if c.Old {
		s.past = ahead
		for k := range s.nodes {
			s.nodes[k].counter, s.nodes[k].largest = 0, ahead
		}
	}
	if c.Ahead {
		s.nodes[nodes-1].counter, s.nodes[nodes-1].largest = 0, ahead
	}
	s.spoiled = bit(c.Out || c.AtOnce)
	return []state{s}
}

// proposal is what a LOCK proposes.
func (c *Config) proposal(x int) uint8 {
	if c.Behind {
		return [attempts]uint8{5, 4, 3, 2}[x]
	}
	return [attempts]uint8{2, 4, 3, 4}[x]
}

func has(mask uint8, x int) bool { return mask>>x&1 == 1 }

func bit(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

func (c *Config) canonical(s state) state {
	for k := range s.nodes {
		n := &s.nodes[k]
		for x := range s.attempts {
			switch s.attempts[x].phase {
			case holding, over:
				n.carries &^= 1 << x
				n.vote[x], n.kept[x], n.grants[x] = 0, 0, 0
			case settling:
				n.vote[x], n.kept[x], n.grants[x] = 0, 0, 0
			}
			if has(n.settles, x) && !has(n.holds|n.acquires, x) { // it would find nothing
				n.settles &^= 1 << x
			}
		}
	}
	best := s
	for _, order := range [][nodes]int{{1, 0, 2}, {0, 2, 1}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		if c.Out && order[2] != 2 {
			break
		}
		t := s
		for k, from := range order {
			t.nodes[k] = s.nodes[from]
		}
		if bytes.Compare(explore.Bytes(&t), explore.Bytes(&best)) < 0 {
			best = t
		}
	}
	return best
}

// broken is the promise that does not hold in a state.
func (s *state) broken() string {
	for x := range s.attempts {
		a := &s.attempts[x]
		if last := s.others(x); a.told == 1 && a.fence < last && s.under(owner(x), a.fence) >= quorum {
			return fmt.Sprintf("V: %d was told, and a quorum has the grant %d", last, a.fence)
		}
	}
	if s.spoiled == 0 && s.quiet() {
		return s.standing()
	}
	return ""
}

// others is the largest fence that other owners than that of the LOCK were told.
func (s *state) others(x int) (last uint8) {
	last = s.past
	for y := range s.attempts {
		if b := &s.attempts[y]; b.told == 1 && owner(y) != owner(x) {
			last = max(last, b.fence)
		}
	}
	return last
}

// told is the largest fence that was told.
func (s *state) told() (last uint8) {
	for y := range s.attempts {
		last = max(last, s.attempts[y].told*s.attempts[y].fence)
	}
	return last
}

// lapse frees a node. What was asked for before, and is in no session, has ended by its proxy's clock before it did here.
func (s *state) lapse(k int) {
	n := &s.nodes[k]
	for x := range s.attempts {
		if has(n.holds, x) {
			s.attempts[x].late = 1
		}
	}
	n.free()
}

// under counts the nodes that vouch for an owner's grant with this fence.
func (s *state) under(owner, fence uint8) (n int) {
	for k := range s.nodes {
		if s.nodes[k].owner == owner && s.nodes[k].fence == fence {
			n++
		}
	}
	return n
}

// quiet reports whether nothing is under way.
func (s *state) quiet() bool {
	for x := range s.attempts {
		if p := s.attempts[x].phase; p == asking || p == settling {
			return false
		}
	}
	for k := range s.nodes {
		if n := &s.nodes[k]; n.acquires|n.undoes|n.releases|n.settles != 0 {
			return false
		}
	}
	return true
}

// standing is promise L.
func (s *state) standing() string {
	for x := range s.attempts {
		a := &s.attempts[x]
		if a.phase != holding || a.fence < s.told() {
			continue
		}
		for k := range s.nodes {
			n := &s.nodes[k]
			switch {
			case n.owner == owner(x) && n.fence == a.fence && n.grant == a.grant:
			case n.owner == 0 && n.counter <= a.fence:
			default:
				return fmt.Sprintf("L: grant %d stands, and a node has it not, and cannot get it", a.fence)
			}
		}
	}
	return ""
}

func (n *node) free() {
	n.owner, n.fence, n.grant, n.holds, n.before, n.alone = 0, 0, 0, 0, 0, 0
}

func (s state) String() string {
	var b strings.Builder
	for k := range s.nodes {
		n := &s.nodes[k]
		fmt.Fprintf(&b, "[o%d f%d g%d h%02b b%d/%d c%d g%d | acq %b undo %b rel %b set %b] ", n.owner, n.fence, n.grant, n.holds, n.before, n.alone,
			n.counter, n.largest, n.acquires, n.undoes, n.releases, n.settles)
	}
	for x := range s.attempts {
		if a := &s.attempts[x]; a.phase != over || a.told == 1 {
			fmt.Fprintf(&b, "L%d:p%d f%d ", x, a.phase, a.fence)
		}
	}
	return b.String()
}
