package main

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/lockproxy/lockproxy/integration/model/explore"
)

const (
	nodes = 5 // at most
	slots = 3 // LOCKs, of all owners

	ahead   = 3  // the largest fence of a node that is ahead, of another name
	unknown = 15 // as the fence of a record: the node cannot vouch for it
)

// A lock is what one LOCK asks for, and when it may.
type lock struct {
	owner uint8
	after int8 // the LOCK of the same owner that comes first; -1: none
	reads bool
	held  int // on how many nodes it has been granted at the start
}

// A record is a lock record. Its owner is that of its holds.
type record struct {
	rem            [slots]uint8 // of each hold, how long it is here; 0: it is not
	fence, told    uint8        // told: a renewal put it back
	restored       uint8        // so did one that a quorum had done before, in this generation
	numbers, below uint8        // the LOCK that numbered it, plus 1, and the largest fence that the name may have had here before; 0: not known
}

func (r *record) free() { *r = record{} }

// A node is one lock node, with the messages on their way to it and what proxies know of it.
type node struct {
	record
	counter, seen   uint8 // the largest fence ever stored here; of this name, 0: none
	floor           uint8 // what it was when the node came back
	out, wait, long uint8 // 1: it forgot, and is not back; until the rounds are over that counted it; until the longest lease is
	marked, doubt   uint8 // the holds in the marker of the name; for how long it is there
	over            uint8 // holds that were given back here since it forgot

	copying, readBy        uint8 // the number of the copy under way to this node, 0: none; a bit a copy that has read this node
	holds, rest, has, upTo uint8 // what that copy has read: holds, for how long, the fence of a record, the largest of all

	saved                 record // as it will be after the next loss
	savedCounter, wasSeen uint8
	isSaved               uint8

	acquires, settles, releases uint8 // may still arrive: a bit a LOCK
	renewal, late, carried      uint8 // so may the RENEW under way, an older one, and what is sent after one
	settled                     uint8 // the proxy knows: the fence is stored, a bit a LOCK
	renewed, ended, knows       uint8 // the RENEW is done; the lock is ended, 2: under a marker; that this node votes in this generation
	vote, kept                  [slots]uint8
}

// The phases of a LOCK.
const (
	before = iota
	asking
	settling
	holding
	over   // it was granted
	undone // it was not
)

// An attempt is a LOCK, and what is done with what it was granted.
type attempt struct {
	phase, elapsed uint8
	fence, valid   uint8
}

// state is everything there is; it has no padding, so its bytes identify it.
type state struct {
	nodes    [nodes]node
	attempts [slots]attempt

	renewals, renewing, since uint8 // of the first LOCK: how many are left; 1: one is under way, 2: asked for after the end; since when
	ending, endSince          uint8 // 1: an operator ends it; 2: and was answered
	largest, whose            uint8 // the largest fence that was told, and to whom
	wrote                     uint8 // and to one who has the name alone
	losses, saves             uint8
}

func (c *Config) initial() []state {
	s := state{losses: uint8(c.Losses), saves: uint8(c.Saves), renewals: uint8(c.Renewals)}
	for x := range s.attempts {
		if x >= len(c.locks) {
			s.attempts[x].phase = undone
			continue
		}
		held := c.locks[x].held
		if held == 0 {
			continue
		}
		s.attempts[x] = attempt{phase: holding, fence: 1, valid: uint8(c.TTL - c.Drift)}
		s.largest, s.whose = 1, c.locks[x].owner
		if !c.locks[x].reads {
			s.wrote = 1
		}
		for k := range held {
			n := &s.nodes[k]
			n.counter, n.seen, n.fence, n.rem[x] = 1, 1, 1, uint8(c.TTL)
		}
	}
	if c.Ahead {
		s.nodes[c.Nodes-1].counter = ahead
	}
	return []state{s}
}

// parse makes the LOCKs of the owners from their kinds.
func (c *Config) parse() error {
	c.locks = nil
	for i, kind := range c.Kinds {
		o, x := uint8(i), int8(len(c.locks))
		lists := map[rune][]lock{
			'a': {{owner: o, after: -1}},
			'b': {{owner: o, after: -1}, {owner: o, after: x}},
			'r': {{owner: o, after: -1, reads: true}},
			's': {{owner: o, after: -1, reads: true, held: c.quorum()}},
			'h': {{owner: o, after: -1, held: c.quorum()}},
			'e': {{owner: o, after: -1, held: c.Nodes}},
		}
		if lists[kind] == nil {
			return fmt.Errorf("no kind is called %c", kind)
		}
		c.locks = append(c.locks, lists[kind]...)
	}
	if len(c.locks) == 0 || len(c.locks) > slots || c.Nodes < 1 || c.Nodes > nodes {
		return fmt.Errorf("1 to %d LOCKs, and 1 to %d nodes", slots, nodes)
	}
	c.orders = c.alike()
	return nil
}

// alike are the orders of the LOCKs that make no difference: owners of one LOCK each that begin alike, but the first, who may renew.
func (c *Config) alike() (orders [][slots]int) {
	for _, order := range [][slots]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		same := true
		for x, from := range order {
			same = same && (x == from || c.areAlike(x, from))
		}
		if same {
			orders = append(orders, order)
		}
	}
	return orders
}

func (c *Config) areAlike(x, y int) bool {
	if max(x, y) >= len(c.locks) || strings.ContainsRune(c.Kinds, 'b') || min(x, y) == 0 && c.Renewals > 0 {
		return false
	}
	return c.locks[x].held == c.locks[y].held && c.locks[x].reads == c.locks[y].reads
}

func (c *Config) quorum() int { return c.Nodes/2 + 1 }

func has(mask uint8, x int) bool { return mask>>x&1 == 1 }

// owner is who has a record, plus 1; 0: it is free.
func (c *Config) owner(r *record) uint8 {
	for x := range c.locks {
		if r.rem[x] > 0 {
			return c.locks[x].owner + 1
		}
	}
	return 0
}

// inTheWay reports whether a record keeps a LOCK from being granted: readers share the name.
func (c *Config) inTheWay(r *record, x int) bool {
	for y := range c.locks {
		if l := &c.locks[y]; r.rem[y] > 0 && l.owner != c.locks[x].owner && !(l.reads && c.locks[x].reads) {
			return true
		}
	}
	return false
}

// isKept reports whether a node has the grant of the first LOCK, which has this fence. A reader's record has a fence of its own.
func (c *Config) isKept(n *node, f uint8) bool {
	return n.rem[0] > 0 && (n.fence == f || c.locks[0].reads)
}

// isFree reports whether nothing keeps a node that has not got the grant of the first LOCK from making it anew.
func (c *Config) isFree(n *node) bool {
	return n.rem[0] == 0 && !c.inTheWay(&n.record, 0) && (c.owner(&n.record) == 0 || c.locks[0].reads)
}

func (c *Config) mayStart(s *state, x int) bool {
	l := &c.locks[x]
	return l.after < 0 || s.attempts[l.after].phase >= over
}

// ended reports whether nothing can be told any more.
func (c *Config) ended(s *state) bool {
	for x := range c.locks {
		if s.attempts[x].phase < holding {
			return false
		}
	}
	a := &s.attempts[0]
	return a.phase != holding || a.valid == 0 || s.renewing == 0 && s.renewals == 0
}

func (c *Config) canonical(s state) state {
	c.stop(&s)
	for k := range s.nodes {
		if k >= c.Nodes {
			s.nodes[k] = node{}
			continue
		}
		c.drop(&s, &s.nodes[k])
	}
	best := c.reordered(&s, c.orders[0])
	for _, order := range c.orders[1:] {
		if t := c.reordered(&s, order); bytes.Compare(explore.Bytes(&t), explore.Bytes(&best)) < 0 {
			best = t
		}
	}
	return best
}

// stop ends what can no longer succeed: that it is given up later is a message that is late.
func (c *Config) stop(s *state) {
	for x := range c.locks {
		a := &s.attempts[x]
		if (a.phase == asking || a.phase == settling) && c.left(a.elapsed, c.LockBound) <= 0 {
			s.release(x, undone)
		}
		if a.phase == holding && a.valid == 0 {
			s.release(x, over)
		}
		if a.phase == undone && !s.pending(x) {
			a.fence = 0
		}
	}
	if s.renewing != 0 && (s.attempts[0].phase != holding || c.remains(s.since) <= 0) {
		s.endRenewal()
	}
	if s.attempts[0].phase != holding {
		s.renewals = 0
	}
	if s.renewals == 0 && s.renewing == 0 {
		s.ending, s.endSince = min(s.ending, 1), 0
	}
	if s.ending != 1 {
		s.endSince = 0
	}
}

// pending reports whether a settle of a LOCK may still arrive.
func (s *state) pending(x int) bool {
	for k := range s.nodes {
		if has(s.nodes[k].settles, x) {
			return true
		}
	}
	return false
}

// drop forgets what can no longer matter on a node, and messages that would change nothing.
func (c *Config) drop(s *state, n *node) {
	for x := range c.locks {
		a := &s.attempts[x]
		if a.phase != asking && a.phase != settling {
			n.vote[x], n.kept[x] = 0, 0
		}
		if a.phase != settling {
			n.settled &^= 1 << x
		}
		if has(n.settles, x) && n.rem[x] == 0 && !has(n.acquires, x) && s.saves == 0 && n.isSaved == 0 && (x > 0 || !s.renews(n)) {
			n.settles &^= 1 << x
		}
		if has(n.releases, x) && !c.releaseMatters(s, n, x) {
			n.releases &^= 1 << x
		}
	}
	if s.renewing == 0 {
		n.renewed, n.knows = 0, 0
	}
	if s.ending != 1 || c.EndBound && int(s.endSince) >= c.R {
		n.ended = 0
	}
	if f := s.attempts[0].fence; n.seen > f && !c.isKept(n, f) && s.losses == 0 && !has(n.acquires|n.settles, 0) {
		n.late, n.renewal = 0, 0
	}
	if n.out == 0 {
		n.over &= 1
	}
	if n.out == 0 && !s.renews(n) {
		n.over = 0
	}
	if s.losses == 0 {
		n.saved, n.savedCounter, n.wasSeen, n.isSaved = record{}, 0, 0, 0
	}
	if c.owner(&n.record) == 0 {
		n.record.free()
	}
	if x := int(n.numbers) - 1; x >= 0 && s.attempts[x].phase != asking && !has(n.acquires|n.settles, x) &&
		(s.attempts[x].phase != undone || !has(n.releases, x)) && s.attempts[x].phase != settling {
		n.numbers, n.below = 0, 0
	}
	if n.doubt == 0 {
		n.marked = 0
	}
}

// renews reports whether a RENEW may still be executed on a node.
func (s *state) renews(n *node) bool {
	return s.renewals > 0 || s.renewing > 0 || n.renewal|n.late|n.carried != 0
}

func (c *Config) releaseMatters(s *state, n *node, x int) bool {
	a := &s.attempts[x]
	told := a.phase == holding || a.phase == over
	return n.rem[x] > 0 || has(n.acquires|n.marked, x) || n.out == 1 || s.losses > 0 ||
		x == 0 && n.renewal|n.late|n.carried != 0 || told && n.seen <= a.fence && !c.locks[x].reads || x == 0 && s.ending == 1 && n.ended == 0
}

// reordered has the LOCKs in another order, and the nodes in theirs, which are alike.
func (c *Config) reordered(s *state, order [slots]int) state {
	t := *s
	if order != [slots]int{0, 1, 2} {
		for x, from := range order {
			t.attempts[x] = s.attempts[from]
			if int(s.whose) == from { // with these orders an owner has one LOCK
				t.whose = uint8(x)
			}
		}
		for k := range t.nodes {
			t.nodes[k].reorder(&s.nodes[k], order)
		}
	}
	for i := 1; i < c.Nodes; i++ {
		for j := i; j > 0 && bytes.Compare(explore.Bytes(&t.nodes[j]), explore.Bytes(&t.nodes[j-1])) < 0; j-- {
			t.nodes[j], t.nodes[j-1] = t.nodes[j-1], t.nodes[j]
		}
	}
	return t
}

func (n *node) reorder(was *node, order [slots]int) {
	masks := []*uint8{&n.marked, &n.over, &n.holds, &n.acquires, &n.settles, &n.releases, &n.settled}
	for _, mask := range masks {
		m := *mask
		*mask = 0
		for x, from := range order {
			*mask |= m >> from & 1 << x
		}
	}
	for x, from := range order {
		n.rem[x], n.saved.rem[x] = was.rem[from], was.saved.rem[from]
		n.vote[x], n.kept[x] = was.vote[from], was.kept[from]
		if int(was.numbers) == from+1 {
			n.numbers = uint8(x + 1)
		}
		if int(was.saved.numbers) == from+1 {
			n.saved.numbers = uint8(x + 1)
		}
	}
}

func (c *Config) text(r *record) string {
	o := c.owner(r)
	if o == 0 {
		return "-"
	}
	text := fmt.Sprintf("%c%v f%d", 'A'+o-1, r.rem, r.fence)
	if r.told == 1 {
		text += " put back"
	}
	return text
}

func (c *Config) describe(s *state) string {
	var b strings.Builder
	for x := range c.locks {
		a := &s.attempts[x]
		names := [...]string{"before", "asking", "settling", "HOLDS", "over", "undone"}
		fmt.Fprintf(&b, "L%d:%s f%d v%d ", x, names[a.phase], a.fence, a.valid)
	}
	fmt.Fprintf(&b, "renewing %d ending %d |", s.renewing, s.ending)
	for k := range c.Nodes {
		n := &s.nodes[k]
		fmt.Fprintf(&b, " [%s c%d", c.text(&n.record), n.counter)
		if n.out == 1 {
			fmt.Fprintf(&b, " OUT %d", n.wait)
		}
		if n.floor > 0 {
			fmt.Fprintf(&b, " floor %d", n.floor)
		}
		if n.doubt > 0 {
			fmt.Fprintf(&b, " marker %03b for %d", n.marked, n.doubt)
		}
		b.WriteString("]")
	}
	return b.String()
}
