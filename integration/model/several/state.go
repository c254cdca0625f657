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
	names  = 2
	owners = 3
	slots  = 4 // LOCKs, of all owners

	ahead   = 4   // the largest fence of a node, of another name
	unknown = 255 // as the largest fence before a record: nothing may be lowered any more
)

// What a node says about a name to a LOCK; below that, it is a yes with that fence.
const (
	withheld = 100 // another name is in the way
	no       = 101 // plus the owner who has it
)

// A lock is what one LOCK asks for, and when it may.
type lock struct {
	owner   uint8
	wants   uint8        // names, a bit each
	ttl     [names]uint8 // of its holds
	after   int8         // the slot of the owner's other LOCK that comes first; -1: none
	holding bool         // that one is held, not over, then
	held    bool         // it has been granted at the start
	stands  bool         // promise L is of it
	keeps   uint8        // the names that may be renewed
}

// A record is a lock record.
type record struct {
	owner, fence, grant, holds uint8 // owner 0: none. grant: the LOCK that numbered it, plus 1. holds: a bit each
	before                     uint8 // the largest fence of the name before
	entered, told, rem         uint8 // entered: others have been in it. told: a renewal put it back
}

func (r *record) free() { *r = record{} }

// An item is what a node has of one name, with the messages on their way to it and what proxies know of it. Sets are a bit a LOCK.
type item struct {
	record
	counter                           uint8        // 0: none
	marks                             uint8        // holds that were given back
	undoes, settles, releases, renews uint8        // may still arrive
	carries, renewed, freed           uint8        // the proxy knows: the fence is stored, the renewal was done, the hold is given back
	vote, kept, grants                [slots]uint8 // what the proxy was told: yes with a number, or no; and the fence and the grant that the owner had here
}

// A node is one lock node.
type node struct {
	items                 [names]item
	largest, floor        uint8
	quarantine, floorless uint8
	acquires              uint8 // may still arrive
}

// The phases of a LOCK.
const (
	before = iota
	asking
	settling
	holding
	over
)

// A part is what a LOCK has of one name.
type part struct {
	fence, grant, entry uint8 // entry: it is told the fence of a grant that its owner has
	valid               uint8 // the validity that its owner was told
	memory              uint8 // the same, as a proxy knows it that does not hear of the UNLOCK
	latest              uint8 // the largest fence that anybody was told when it was asked for
	renewing, renewals  uint8 // one is under way; how many there were
	since               uint8 // that one was asked for
	afterFree           uint8 // that one was asked for after the UNLOCK was answered
	free                uint8 // the UNLOCK was answered
	overtaken           uint8 // another was told the name since
}

// An attempt is a LOCK, and what is done with what it was granted.
type attempt struct {
	parts   [names]part
	phase   uint8
	elapsed uint8 // since it was asked for
	told    uint8 // it was granted
	given   uint8 // the names that were given back
	held    uint8 // it was refused, since a name is held: by that owner, plus 1
}

// state is everything there is; it has no padding, so its bytes identify it.
type state struct {
	nodes    [nodes]node
	attempts [slots]attempt
	last     [names]uint8 // the largest fence told
	losses   uint8
	dups     uint8
	lost     uint8 // a node has forgotten
}

func (c *Config) initial() (all []state) {
	s := state{losses: uint8(c.Losses), dups: uint8(c.Dups)}
	for x := range s.attempts {
		if x >= len(c.locks) {
			s.attempts[x].phase = over
		}
	}
	for k := range s.nodes {
		s.nodes[k].largest = 1
		for n := range names {
			s.nodes[k].items[n].counter = 1
		}
	}
	for x := range c.locks {
		l, a := &c.locks[x], &s.attempts[x]
		if !l.held {
			continue
		}
		a.phase, a.told = holding, 1
		for n := range l.each() {
			s.last[n] = 2
			valid := l.ttl[n] - uint8(c.Drift)
			a.parts[n] = part{fence: 2, grant: uint8(x + 1), valid: valid, memory: valid}
			for k := range quorum {
				m := &s.nodes[k]
				m.largest, m.items[n].counter = 2, 2
				m.items[n].record = record{owner: l.owner + 1, fence: 2, grant: uint8(x + 1), holds: 1 << x, before: 1, rem: l.ttl[n]}
			}
		}
	}
	if c.Ahead {
		s.nodes[nodes-1].largest = ahead
		for n := range names {
			s.nodes[nodes-1].items[n].counter = 0
		}
	}
	return []state{s}
}

// parse makes the LOCKs of the owners from the kinds of the clients.
func (c *Config) parse() error {
	c.locks = nil
	for i, kind := range c.Kinds {
		x, ttl := int8(len(c.locks)), uint8(c.TTL)
		want := func(set uint8) lock {
			return lock{owner: uint8(i), wants: set, ttl: [names]uint8{ttl, ttl}, keeps: set, after: -1}
		}
		held := func(l lock) lock { l.held = true; return l }
		inside := func(l lock) lock { l.after, l.holding = x, true; return l }
		then := func(l lock) lock { l.after = x; return l }
		keep := func(set uint8, l lock) lock { l.keeps = set; return l }
		stands := func(l lock) lock { l.stands = true; return l }
		short := func(l lock) lock { l.ttl[1]--; return l }
		lists := map[rune][]lock{
			'A': {want(3)},
			'D': {want(3)},
			'a': {want(1)},
			'b': {want(2)},
			'H': {stands(held(want(3)))},
			'K': {keep(2, held(want(3)))},
			'S': {short(want(3))},
			'e': {held(want(2)), inside(want(3))},
			'c': {held(want(3)), inside(want(3))},
			'r': {want(3), then(want(1))},
		}
		if lists[kind] == nil {
			return fmt.Errorf("no kind is called %c", kind)
		}
		c.locks = append(c.locks, lists[kind]...)
	}
	if len(c.Kinds) > owners || len(c.locks) > slots || c.Renewals > 1 {
		return fmt.Errorf("at most %d owners with %d LOCKs, and a renewal each", owners, slots)
	}
	return nil
}

func has(mask uint8, x int) bool { return mask>>x&1 == 1 }

// each calls out with the names that a LOCK asks for.
func (l *lock) each() func(out func(n int) bool) {
	return func(out func(n int) bool) {
		for n := range names {
			if has(l.wants, n) && !out(n) {
				return
			}
		}
	}
}

// mine reports whether an item has a record of the owner of a LOCK.
func (c *Config) mine(i *item, x int) bool { return i.owner == c.locks[x].owner+1 }

// there reports whether it has the hold of that LOCK.
func (c *Config) there(i *item, x int) bool { return c.mine(i, x) && has(i.holds, x) }

// renews reports whether a name of a LOCK may be renewed.
func (c *Config) renews(x, n int) bool { return c.Renewals > 0 && has(c.locks[x].keeps, n) }

// done reports whether nothing can be told any more.
func (c *Config) done(s *state) bool {
	for x := range c.locks {
		a := &s.attempts[x]
		if a.phase == asking || a.phase == settling || a.phase == before && (c.mayStart(s, x) || c.willStart(s, x)) {
			return false
		}
		for n := range a.parts {
			p := &a.parts[n]
			if p.memory > 0 && (p.renewing != 0 || c.renews(x, n) && int(p.renewals) < c.Renewals) {
				return false
			}
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
	return l.holding && first.phase == holding && c.running(first) || !l.holding && first.phase == over
}

// running reports whether the validity of a name runs that was granted.
func (c *Config) running(a *attempt) bool {
	for n := range a.parts {
		if a.parts[n].valid > 0 {
			return true
		}
	}
	return false
}

// willStart reports whether a LOCK may start later.
func (c *Config) willStart(s *state, x int) bool {
	p := s.attempts[c.locks[x].after].phase
	return p != over && (p != holding || !c.locks[x].holding)
}

func (c *Config) canonical(s state) state {
	for x := range c.locks {
		a, l := &s.attempts[x], &c.locks[x]
		if a.phase == before && !c.mayStart(&s, x) && !c.willStart(&s, x) {
			a.phase = over
		}
		if (a.phase == asking || a.phase == settling) && c.left(a, l) == 0 { // that it is undone later is a message that is late
			c.undoAll(&s, x)
		}
		if a.phase == holding && !c.running(a) && a.given == 0 && c.Renewals == 0 {
			a.phase = over // nobody goes by it; an UNLOCK that is late is as one that is lost
		}
		for n := range a.parts {
			p := &a.parts[n]
			if p.memory == 0 || !c.renews(x, n) { // no renewal is told any more
				p.renewals, p.renewing, p.since, p.afterFree, p.overtaken = uint8(c.Renewals), 0, 0, 0, 0
			}
			if a.phase == over && p.memory == 0 && !s.awaits(x, n) {
				p.fence, p.grant, p.free = 0, 0, 0
			}
			if a.phase == over {
				p.latest, p.entry = 0, 0
			}
			if int(p.renewals) == c.Renewals && p.renewing == 0 {
				p.overtaken = 0
			}
		}
	}
	for k := range s.nodes {
		m := &s.nodes[k]
		for n := range m.items {
			c.tidy(&s, k, n)
		}
		for x := range c.locks {
			for n := range names { // nothing brings it here
				if has(m.items[n].marks, x) {
					m.acquires &^= 1 << x
				}
			}
		}
		for x := range c.locks {
			for n := range names {
				if i := &m.items[n]; has(i.undoes, x) && !c.there(i, x) && !has(m.acquires, x) {
					i.undoes &^= 1 << x
				}
				if i := &m.items[n]; !c.renews(x, n) && !has(m.acquires, x) && s.attempts[x].phase == over {
					i.marks &^= 1 << x
				}
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

// tidy drops what no longer matters of a name on a node.
func (c *Config) tidy(s *state, k, n int) {
	m := &s.nodes[k]
	i := &m.items[n]
	if i.rem == 0 {
		i.record.free()
	}
	for x := range c.locks {
		a := &s.attempts[x]
		p := &a.parts[n]
		if a.phase != asking {
			i.vote[x], i.kept[x], i.grants[x] = 0, 0, 0
		}
		if a.phase != settling {
			i.carries &^= 1 << x
		}
		if p.renewing == 0 {
			i.renewed &^= 1 << x
		}
		if p.renewing == 0 && p.memory == 0 {
			i.renews &^= 1 << x // it would only keep others out
		}
		if p.free == 1 || p.memory == 0 {
			i.freed &^= 1 << x
		}
		there := c.there(i, x)
		if has(i.settles, x) && !there && !has(m.acquires, x) {
			i.settles &^= 1 << x
		}
		if has(i.releases, x) && !c.renews(x, n) && !there && !has(m.acquires, x) && p.fence < i.counter {
			i.releases &^= 1 << x
		}
		if i.grant == uint8(x+1) && a.phase != asking && a.phase != settling && !has(m.acquires|i.settles|i.undoes, x) {
			i.entered, i.before = 1, unknown
		}
	}
}

// awaits reports whether what a LOCK was granted of a name may still matter.
func (s *state) awaits(x, n int) bool {
	for k := range s.nodes {
		if i := &s.nodes[k].items[n]; has(i.settles|i.releases|i.renews, x) {
			return true
		}
	}
	return s.attempts[x].parts[n].renewing > 0
}

// left is the validity of what was asked for: that of the name with the smallest.
func (c *Config) left(a *attempt, l *lock) (left uint8) {
	first := true
	for n := range l.each() {
		v := uint8(max(int(l.ttl[n])-c.Drift-int(a.elapsed), 0))
		if first || c.Smallest && v < left || !c.Smallest && v > left {
			left, first = v, false
		}
	}
	return left
}

// exclusive is promise X.
func (c *Config) exclusive(s *state) string {
	for x := range c.locks {
		for y := range x {
			for n := range names {
				if c.locks[x].owner != c.locks[y].owner && s.attempts[x].parts[n].valid > 0 && s.attempts[y].parts[n].valid > 0 {
					return fmt.Sprintf("X: two owners are inside their validities of name %c", 'a'+n)
				}
			}
		}
	}
	return ""
}

// standing are promises N and L.
func (c *Config) standing(s *state) string {
	for k := range s.nodes {
		m := &s.nodes[k]
		for x := range c.locks {
			a := &s.attempts[x]
			if has(m.acquires, x) {
				continue
			}
			for n := range c.locks[x].each() {
				i, p := &m.items[n], &a.parts[n]
				if a.phase == over && a.told == 0 && c.there(i, x) && !has(i.undoes, x) && c.Dups == 0 {
					return fmt.Sprintf("N: LOCK %d was refused, node %d has its hold of name %c, and no undo comes", x, k, 'a'+n)
				}
				if !c.locks[x].stands || p.valid == 0 || !m.votes() || has(i.settles|i.renews, x) || s.busy(i) {
					continue
				}
				if c.there(i, x) && i.fence == p.fence && i.grant == p.grant {
					continue
				}
				if i.owner != 0 || !i.putsBack(x, p.fence) {
					return fmt.Sprintf("L: node %d has not name %c of LOCK %d, and cannot get it", k, 'a'+n, x)
				}
			}
		}
	}
	return ""
}

// busy reports whether another LOCK's doing on an item is not over.
func (s *state) busy(i *item) bool {
	for x := range s.attempts {
		if p := s.attempts[x].phase; p == asking || p == settling {
			return true
		}
	}
	return i.undoes|i.releases != 0
}

func (c *Config) text(i *item) string {
	text := fmt.Sprintf("c%d", i.counter)
	if i.marks != 0 {
		text += fmt.Sprintf(" marks %04b", i.marks)
	}
	if i.owner == 0 {
		return text + " -"
	}
	text += fmt.Sprintf(" %c f%d by %d for %d holds %04b before %d", 'A'+i.owner-1, i.fence, i.grant-1, i.rem, i.holds, i.before)
	if i.entered == 1 {
		text += " entered"
	}
	if i.told == 1 {
		text += " put back"
	}
	return text
}

func (c *Config) describe(s *state) string {
	var b strings.Builder
	for k := range s.nodes {
		m := &s.nodes[k]
		fmt.Fprintf(&b, "\n    [g%d floor %d", m.largest, m.floor)
		if !m.votes() {
			fmt.Fprintf(&b, " OUT %d", m.quarantine)
		}
		for n := range m.items {
			fmt.Fprintf(&b, " | %c: %s", 'a'+n, c.text(&m.items[n]))
		}
		b.WriteString("]")
	}
	b.WriteString("\n   ")
	for x := range c.locks {
		a := &s.attempts[x]
		if a.phase == before || a.phase == over && a.told == 0 {
			continue
		}
		fmt.Fprintf(&b, " L%d:phase %d", x, a.phase)
		for n := range c.locks[x].each() {
			fmt.Fprintf(&b, " %c f%d valid %d", 'a'+n, a.parts[n].fence, a.parts[n].valid)
		}
	}
	return b.String()
}
