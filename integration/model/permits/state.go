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
	seats  = 2
	slots  = 5 // LOCKs, of all owners

	ahead   = 4   // the largest fence of a node, of another name
	unknown = 255 // as the largest fence before a record: nothing may be lowered any more
)

// A lock is what one LOCK asks for, and when it may.
type lock struct {
	owner   uint8
	writes  bool
	seat    uint8 // of the permit that it asks for, plus 1; 0: it asks for none
	after   int8  // the slot of the owner's other LOCK that comes first; -1: none
	holding bool  // that one is held, not over, then
	held    bool  // it has been granted at the start
	stray   bool  // it has been undone at the start, and is under way to one node
}

// A record is a lock record. That of a permit or a plain reader is one of a sub-name that its owner has alone.
type record struct {
	owner, fence, grant, holds uint8 // owner 0: none. grant: the LOCK that numbered it, plus 1. holds: a bit each
	before                     uint8 // the largest fence of the sub-name before
	entered, told, rem         uint8 // entered: others have been in it. told: a renewal put it back. rem 0: it has lapsed
}

func (r *record) free() { *r = record{} }

// A node is one lock node, with the messages on their way to it and what proxies know of it.
type node struct {
	write                 record
	read                  [owners]record
	index                 [seats]uint8  // the owner who was given a seat last, plus 1
	counter               uint8         // of the name; 0: none
	own                   [owners]uint8 // of the readers' sub-names
	largest, floor        uint8
	quarantine, floorless uint8
	marks                 uint8 // holds that were given back: a bit each
	acquires, undoes      uint8 // may still arrive: a bit a LOCK
	settles, releases     uint8
	renewals              [2]uint8
	carries, renewed      uint8        // the proxy knows: the fence is stored, the renewal was done
	freed                 uint8        // and the hold is given back
	vote, kept            [slots]uint8 // what the proxy was told: the number, and the fence of the owner's own grant here
	grant                 [slots]uint8 // and that grant, 1 + its LOCK
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
	grant               uint8 // what it was granted: 1 + the LOCK that names it
	elapsed             uint8 // since it was asked for
	valid               uint8 // the validity that its owner was told
	memory              uint8 // the same, as a proxy knows it that does not hear of the UNLOCK
	latest              uint8 // the largest fence that anybody was told when it was asked for
	renewing, renewals  uint8 // 1 + the number of the renewal under way; how many there were
	since               uint8 // that one was asked for
	afterFree           uint8 // that one was asked for after the UNLOCK was answered
	free                uint8 // the UNLOCK was answered
	overtaken           uint8 // another was told the seat since, or a writer the name
}

// state is everything there is; it has no padding, so its bytes identify it.
type state struct {
	nodes         [nodes]node
	attempts      [slots]attempt
	wrote         [owners]uint8 // the largest fence told to a writer of each owner
	heard         [owners]uint8 // and to a reader
	losses, backs uint8
}

func (c *Config) initial() (all []state) {
	s := state{losses: uint8(c.Losses), backs: uint8(c.Backs)}
	for x := range s.attempts {
		if x >= len(c.locks) {
			s.attempts[x].phase = over
		}
	}
	for k := range s.nodes {
		s.nodes[k].counter, s.nodes[k].largest = 1, 1
	}
	for x, l := range c.locks {
		if l.stray {
			s.attempts[x].phase = over
			n := &s.nodes[x]
			n.acquires |= 1 << x
			n.undoes |= 1 << x
		}
		if !l.held {
			continue
		}
		f := uint8(1)
		if l.seat > 0 { // nodes that voted have counted it, one has not
			f = 2
		}
		s.heard[l.owner] = f
		s.attempts[x] = attempt{phase: holding, fence: f, grant: uint8(x + 1), valid: uint8(c.TTL - c.Drift), memory: uint8(c.TTL - c.Drift)}
		for k := range quorum {
			n := &s.nodes[k]
			n.own[l.owner], n.counter, n.largest = f, max(n.counter, f), max(n.largest, f)
			n.read[l.owner] = record{owner: l.owner + 1, fence: f, grant: uint8(x + 1), holds: 1 << x, rem: uint8(c.TTL)}
			if l.seat > 0 {
				n.index[l.seat-1] = l.owner + 1
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
		permit := func(seat uint8) lock { return lock{owner: o, seat: seat + 1, after: -1} }
		held := func(l lock) lock { l.held = true; return l }
		stray := func(l lock) lock { l.stray = true; return l }
		inside := func(l lock) lock { l.after, l.holding = x, true; return l }
		then := func(l lock) lock { l.after = x; return l }
		reads, writes := lock{owner: o, after: -1}, lock{owner: o, writes: true, after: -1}
		lists := map[rune][]lock{
			'p': {permit(0)},
			'q': {permit(1)},
			'r': {reads},
			'w': {writes},
			'h': {held(permit(0))},
			'e': {permit(0), inside(permit(1))},
			'g': {held(permit(0)), inside(permit(1))},
			'b': {permit(0), permit(1)},
			's': {stray(permit(1)), permit(0)},
			't': {stray(permit(0)), stray(permit(1)), permit(0)},
			'c': {held(permit(0)), permit(0)},
			'a': {permit(0), then(permit(1))},
			'x': {held(reads), inside(permit(0))},
			'y': {held(permit(0)), inside(reads)},
			'm': {writes, permit(0)},
			'u': {permit(0), inside(writes)},
			'd': {writes, inside(permit(0))},
		}
		if lists[kind] == nil {
			return fmt.Errorf("no kind is called %c", kind)
		}
		c.locks = append(c.locks, lists[kind]...)
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
	if r := c.record(n, x); r.owner == c.locks[x].owner+1 && r.rem > 0 {
		return r
	}
	return nil
}

// seat is that of a grant, plus 1; 0: it has none.
func (c *Config) seat(grant uint8) uint8 {
	if grant == 0 {
		return 0
	}
	return c.locks[grant-1].seat
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
		if a.renewing != 0 && (a.memory > 0 || !c.InTime) || a.memory > 0 && int(a.renewals) < c.Renewals {
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
		if a.phase == over && a.memory == 0 && (c.InTime || a.renewing == 0) {
			a.renewals, a.since, a.renewing, a.afterFree, a.overtaken = uint8(c.Renewals), 0, 0, 0, 0
		}
		if int(a.renewals) == c.Renewals && a.renewing == 0 {
			a.overtaken = 0
		}
	}
	asks := false
	for x, l := range c.locks {
		a := &s.attempts[x]
		if (a.phase == asking || a.phase == settling) && c.left(a.elapsed) <= 0 { // that it is undone later is a message that is late
			s.undo(x)
		}
		if a.phase == over && !s.awaits(x) {
			a.fence, a.grant, a.free = 0, 0, 0
		}
		asks = asks || a.phase == before || l.writes && a.phase != over
	}
	if !asks {
		s.heard = [owners]uint8{}
	}
	for k := range s.nodes {
		n := &s.nodes[k]
		for x := range c.locks {
			a := &s.attempts[x]
			if a.phase != asking {
				n.vote[x], n.kept[x], n.grant[x] = 0, 0, 0
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
			if c.Renewals == 0 || int(a.renewals) == c.Renewals && !has(n.renewals[0]|n.renewals[1], x) {
				n.marks &^= 1 << x
			}
			r := c.record(n, x)
			there := r.owner == c.locks[x].owner+1 && has(r.holds, x)
			if has(n.settles, x) && !there && !has(n.acquires, x) {
				n.settles &^= 1 << x
			}
			if has(n.releases, x) && c.Renewals == 0 && !there && !has(n.acquires, x) && a.fence < *c.counter(n, x) {
				n.releases &^= 1 << x
			}
			if has(n.undoes, x) && !there && !has(n.acquires, x) {
				n.undoes &^= 1 << x
			}
		}
		for x := range c.locks {
			r, a := c.record(n, x), &s.attempts[x]
			if r.grant == uint8(x+1) && a.phase != asking && a.phase != settling && !has(n.acquires|n.settles|n.undoes, x) {
				r.entered, r.before = 1, unknown
			}
		}
		if s.backs == 0 { // no record that has lapsed is ever there again
			lapse(&n.write)
			for o := range n.read {
				lapse(&n.read[o])
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

// awaits reports whether what a LOCK was granted may still matter.
func (s *state) awaits(x int) bool {
	a := &s.attempts[x]
	for k := range s.nodes {
		n := &s.nodes[k]
		if has(n.settles|n.releases|n.renewals[0]|n.renewals[1], x) {
			return true
		}
	}
	return a.memory > 0 || a.renewing > 0
}

func lapse(r *record) {
	if r.rem == 0 {
		r.free()
	}
}

// exclusive is promises S and P.
func (c *Config) exclusive(s *state) string {
	for x := range c.locks {
		for y := range c.locks {
			a, b := &s.attempts[x], &s.attempts[y]
			if a.valid == 0 || b.valid == 0 || c.locks[x].owner == c.locks[y].owner {
				continue
			}
			if c.locks[x].writes {
				return "P: a writer is inside its validity beside another owner"
			}
			if t := c.seat(a.grant); t > 0 && t == c.seat(b.grant) {
				return fmt.Sprintf("S: two owners are inside their validities in seat %d", t-1)
			}
		}
	}
	return ""
}

// overtake notes that a lock was told, for the renewals of others.
func (c *Config) overtake(s *state, x int) {
	for y := range c.locks {
		a, b := &s.attempts[x], &s.attempts[y]
		if c.locks[y].owner == c.locks[x].owner || b.fence == 0 || b.phase != holding && b.phase != over {
			continue
		}
		if t := c.seat(b.grant); c.locks[x].writes || c.locks[y].writes || t > 0 && t == c.seat(a.grant) {
			b.overtaken = 1
		}
	}
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

// anybody is the largest fence that was told.
func (s *state) anybody() (last uint8) {
	for o := range s.wrote {
		last = max(last, s.wrote[o], s.heard[o])
	}
	return last
}

func (c *Config) text(r record) string {
	if r.owner == 0 {
		return "-"
	}
	text := fmt.Sprintf("%c f%d for %d holds %05b before %d", 'A'+r.owner-1, r.fence, r.rem, r.holds, r.before)
	if t := c.seat(r.grant); t > 0 {
		text += fmt.Sprint(" seat ", t-1)
	}
	if r.entered == 1 {
		text += " entered"
	}
	if r.told == 1 {
		text += " put back"
	}
	return text
}

func (c *Config) describe(s *state) string {
	var b strings.Builder
	for k := range s.nodes {
		n := &s.nodes[k]
		fmt.Fprintf(&b, "\n    [c%d own %v g%d floor %d seats %v", n.counter, n.own, n.largest, n.floor, n.index)
		if n.quarantine > 0 || n.floorless > 0 {
			fmt.Fprintf(&b, " OUT %d", n.quarantine)
		}
		fmt.Fprintf(&b, " | w %v", c.text(n.write))
		for _, r := range n.read {
			if r.owner > 0 {
				fmt.Fprintf(&b, " | r %v", c.text(r))
			}
		}
		fmt.Fprintf(&b, " | marks %05b]", n.marks)
	}
	b.WriteString("\n   ")
	for x := range s.attempts {
		if a := &s.attempts[x]; a.phase != before && (a.phase != over || a.fence > 0) {
			fmt.Fprintf(&b, " L%d:phase %d f%d valid %d", x, a.phase, a.fence, a.valid)
			if t := c.seat(a.grant); t > 0 {
				fmt.Fprint(&b, " seat ", t-1)
			}
		}
	}
	return b.String()
}
