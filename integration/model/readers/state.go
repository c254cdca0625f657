package main

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/lockproxy/lockproxy/integration/model/explore"
)

const (
	nodes  = 3
	quorum = 2
	owners = 3
	slots  = 4 // LOCKs, of all owners

	ahead   = 4   // the largest fence of a node, of another name
	unknown = 255 // as the largest fence before a record: nothing may be lowered any more
)

// A lock is what one LOCK asks for, and when it may.
type lock struct {
	owner   uint8
	writes  bool
	after   int8 // the slot of the owner's other LOCK that comes first; -1: none
	holding bool // that one is held, not over, then
	again   bool // its owner was told of a read lock before, which has lapsed
	held    bool // it has been granted at the start
}

// A record is a lock record. That of a read lock is one of a sub-name that its owner has alone.
type record struct {
	owner, fence, grant, holds uint8 // owner 0: none. grant: the LOCK that numbered it, plus 1. holds: a bit each
	before                     uint8 // the largest fence of the sub-name before
	entered, told, rem         uint8 // entered: others have been in it. told: a renewal put it back
}

func (r *record) free() { *r = record{} }

// A node is one lock node, with the messages on their way to it and what proxies know of it.
type node struct {
	write                   record
	read                    [owners]record
	counter                 uint8         // of the name; 0: none
	own                     [owners]uint8 // of the readers' sub-names
	largest, floor          uint8
	quarantine, floorless   uint8
	intent, intends         uint8 // a writer that waits, 1 + its owner, and for how long
	marks                   uint8 // holds that were given back: a bit each
	acquires, undoes        uint8 // may still arrive: a bit a LOCK
	settles, releases       uint8
	renewals                [2]uint8
	carries, renewed, freed uint8        // the proxy knows: the fence is stored, the renewal was done, the hold is given back
	vote, kept              [slots]uint8 // what the proxy was told: the number, and the fence of the owner's own grant here
}

// The phases of a LOCK.
const (
	before = iota
	asking
	settling
	holding
	over
)

// An attempt is a LOCK, and what is done with what it was granted.
type attempt struct {
	phase, fence, entry uint8 // entry: it is told the fence of a grant that its owner has
	elapsed             uint8 // since it was asked for
	valid               uint8 // the validity that its owner was told
	memory              uint8 // the same, as a proxy knows it that does not hear of the UNLOCK
	latest              uint8 // the largest fence that counts for it, told to its own owner when it was asked for
	renewing, renewals  uint8 // 1 + the number of the renewal under way; how many there were
	since               uint8 // that one was asked for
	afterFree           uint8 // that one was asked for after the UNLOCK was answered
	free                uint8 // the UNLOCK was answered
}

// state is everything there is; it has no padding, so its bytes identify it.
type state struct {
	nodes    [nodes]node
	attempts [slots]attempt
	wrote    [owners]uint8 // the largest fence told to a writer of each owner
	heard    [owners]uint8 // and to a reader
	losses   uint8
}

func (c *Config) initial() (all []state) {
	s := state{losses: uint8(c.Losses)}
	for x := range s.attempts {
		if x >= len(c.locks) {
			s.attempts[x].phase = over
		}
	}
	for k := range s.nodes {
		s.nodes[k].counter, s.nodes[k].largest = 1, 1
	}
	for x, l := range c.locks {
		if !l.held && (!l.again || l.after >= 0) {
			continue
		}
		s.heard[l.owner] = 1
		for k := range quorum {
			n := &s.nodes[k]
			n.own[l.owner] = 1
			if l.held {
				n.read[l.owner] = record{owner: l.owner + 1, fence: 1, grant: uint8(x + 1), holds: 1 << x, rem: uint8(c.TTL)}
				s.attempts[x] = attempt{phase: holding, fence: 1, valid: uint8(c.TTL - c.Drift), memory: uint8(c.TTL - c.Drift)}
			}
		}
	}
	if c.Ahead {
		s.nodes[nodes-1].counter, s.nodes[nodes-1].largest = 0, ahead
	}
	return []state{s}
}

// parse makes the LOCKs of the owners from the kinds of the clients.
func (c *Config) parse() error {
	c.locks = nil
	for i, kind := range c.Kinds {
		o, x := uint8(i), int8(len(c.locks))
		reads := lock{owner: o, after: -1}
		writes := lock{owner: o, writes: true, after: -1}
		inside := func(l lock) lock { l.after, l.holding = x, true; return l }
		switch kind {
		case 'r':
			c.locks = append(c.locks, reads)
		case 'w':
			c.locks = append(c.locks, writes)
		case 'u':
			c.locks = append(c.locks, reads, inside(writes))
		case 'd':
			c.locks = append(c.locks, writes, inside(reads))
		case 'a':
			l := reads
			l.after, l.again = x, true
			c.locks = append(c.locks, reads, l)
		case 'h':
			reads.held = true
			c.locks = append(c.locks, reads)
		case 'o':
			reads.again = true
			c.locks = append(c.locks, reads)
		case 'e':
			c.locks = append(c.locks, reads, inside(reads))
		case 'b':
			c.locks = append(c.locks, writes, reads)
		default:
			return fmt.Errorf("no kind is called %c", kind)
		}
	}
	if len(c.Kinds) > owners || len(c.locks) > slots {
		return fmt.Errorf("at most %d owners with %d LOCKs", owners, slots)
	}
	return nil
}

func has(mask uint8, x int) bool { return mask>>x&1 == 1 }

// record is where a LOCK's hold is kept on a node.
func (c *Config) record(n *node, x int) *record {
	if l := &c.locks[x]; !l.writes {
		return &n.read[l.owner]
	}
	return &n.write
}

// mine is that record if it is the owner's, else nil.
func (c *Config) mine(n *node, x int) *record {
	if r := c.record(n, x); r.owner == c.locks[x].owner+1 {
		return r
	}
	return nil
}

// counter is that of the name for a writer, and of the owner's sub-name for a reader.
func (c *Config) counter(n *node, x int) *uint8 {
	if l := &c.locks[x]; !l.writes {
		return &n.own[l.owner]
	}
	return &n.counter
}

// done reports whether nothing can be told any more.
func (c *Config) done(s *state) bool {
	for x := range c.locks {
		a := &s.attempts[x]
		if a.phase == asking || a.phase == settling || a.phase == before && c.mayStart(s, x) || a.phase == before && c.willStart(s, x) {
			return false
		}
		if a.renewing != 0 && a.memory > 0 || a.memory > 0 && int(a.renewals) < c.Renewals {
			return false
		}
	}
	return true
}

func (c *Config) mayStart(s *state, x int) bool {
	l := &c.locks[x]
	if l.after < 0 {
		return true
	}
	first := &s.attempts[l.after]
	return l.holding && first.phase == holding && first.valid > 0 || !l.holding && first.phase == over
}

// willStart reports whether a LOCK may start later.
func (c *Config) willStart(s *state, x int) bool {
	p := s.attempts[c.locks[x].after].phase
	return p != over && (p != holding || !c.locks[x].holding)
}

func (c *Config) canonical(s state) state {
	for x := range s.attempts {
		a := &s.attempts[x]
		if a.phase == before && !c.mayStart(&s, x) && !c.willStart(&s, x) {
			a.phase = over
		}
		if a.phase == over && a.memory == 0 {
			a.renewals, a.since, a.renewing, a.afterFree = uint8(c.Renewals), 0, 0, 0
		}
	}
	for k := range s.nodes {
		n := &s.nodes[k]
		for x := range c.locks {
			a := &s.attempts[x]
			if a.phase != asking {
				n.vote[x], n.kept[x] = 0, 0
			}
			if a.phase != settling {
				n.carries &^= 1 << x
			}
			if a.renewing == 0 {
				n.renewed &^= 1 << x
			}
			if a.free == 1 || a.memory == 0 {
				n.freed &^= 1 << x
			}
			if has(n.marks, x) { // nothing brings it here
				n.acquires &^= 1 << x
			}
			r := c.mine(n, x)
			there := r != nil && has(r.holds, x)
			if has(n.settles, x) && !there && !has(n.acquires, x) {
				n.settles &^= 1 << x
			}
			if has(n.undoes, x) && !there && !has(n.acquires, x) {
				n.undoes &^= 1 << x
			}
		}
	}
	best := s
	for _, order := range [][nodes]int{{1, 0, 2}, {0, 2, 1}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
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

// exclusive is promise P1.
func (c *Config) exclusive(s *state) string {
	for x := range c.locks {
		for y := range c.locks {
			if c.locks[x].writes && c.locks[x].owner != c.locks[y].owner && s.attempts[x].valid > 0 && s.attempts[y].valid > 0 {
				return "P1: a writer is inside its validity beside another owner"
			}
		}
	}
	return ""
}

// others is the largest fence told to other owners: to writers, or to all.
func (c *Config) others(s *state, x int, writers bool) (last uint8) {
	for o := range s.wrote {
		if o != int(c.locks[x].owner) {
			last = max(last, s.wrote[o])
			if !writers {
				last = max(last, s.heard[o])
			}
		}
	}
	return last
}

func (r record) String() string {
	if r.owner == 0 {
		return "-"
	}
	text := fmt.Sprintf("%c f%d for %d holds %04b before %d", 'A'+r.owner-1, r.fence, r.rem, r.holds, r.before)
	if r.entered == 1 {
		text += " entered"
	}
	if r.told == 1 {
		text += " put back"
	}
	return text
}

func (s state) String() string {
	var b strings.Builder
	for k := range s.nodes {
		n := &s.nodes[k]
		fmt.Fprintf(&b, "\n    [c%d own %v g%d floor %d", n.counter, n.own, n.largest, n.floor)
		if n.quarantine > 0 || n.floorless > 0 {
			fmt.Fprintf(&b, " OUT %d", n.quarantine)
		}
		fmt.Fprintf(&b, " | w %v", n.write)
		for _, r := range n.read {
			if r.owner > 0 {
				fmt.Fprintf(&b, " | r %v", r)
			}
		}
		if n.intent > 0 {
			fmt.Fprintf(&b, " | intent of %c for %d", 'A'+n.intent-1, n.intends)
		}
		fmt.Fprintf(&b, " | marks %04b]", n.marks)
	}
	b.WriteString("\n   ")
	for x := range s.attempts {
		if a := &s.attempts[x]; a.phase != before && (a.phase != over || a.fence > 0) {
			fmt.Fprintf(&b, " L%d:phase %d f%d valid %d", x, a.phase, a.fence, a.valid)
		}
	}
	return b.String()
}
