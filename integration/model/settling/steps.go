package main

import "fmt"

// A step is what happened, for a trace.
type step struct {
	what string
	x, k int // the LOCK, and the node; -1: none
}

func (s step) String() string {
	who := [attempts]string{"A", "A again", "B", "C"}
	text := s.what
	if s.x >= 0 {
		text += ", LOCK of " + who[s.x]
	}
	if s.k >= 0 {
		text += fmt.Sprint(", node ", s.k)
	}
	return text
}

// What is counted.
const (
	asked     = "a LOCK is asked for"
	granted   = "a new grant is told"
	entered   = "a re-entry is told the fence of the grant"
	undone    = "a LOCK is undone"
	gaveBack  = "a hold is given back"
	lowered   = "a node takes over a smaller fence"
	raised    = "a node takes over a larger fence"
	refused   = "a node takes over no smaller fence"
	forgot    = "an undo forgets the fence"
	remembers = "an undo does not forget the fence"
	lapsed    = "a lease lapses at a node"
	lost      = "a node forgets"
)

type emit = func(t state, by step, broken string)

func (c *Config) successors(s *state, out emit) {
	emit := func(t state, by step, broken string) {
		if broken == "" {
			broken = t.broken()
		}
		out(t, by, broken)
	}
	for x := range s.attempts {
		c.proxy(s, x, emit)
	}
	for k := range s.nodes {
		c.node(s, k, emit)
	}
}

// reached is how many nodes get messages.
func (c *Config) reached() int {
	if c.Out {
		return nodes - 1
	}
	return nodes
}

// proxy is what the proxy of a LOCK may do.
func (c *Config) proxy(s *state, x int, out emit) {
	a := &s.attempts[x]
	switch a.phase {
	case before:
		if x == again && !c.AtOnce && s.attempts[first].phase != holding {
			return
		}
		if x > again && c.After && (s.attempts[first].phase != over || s.attempts[again].phase != over) {
			return
		}
		t := *s
		t.attempts[x].phase, t.attempts[x].latest = asking, s.others(x)
		for k := range c.reached() {
			t.nodes[k].acquires |= 1 << x
		}
		out(t, step{asked, x, -1}, "")
		return
	case asking:
		c.decide(s, x, out)
	case settling:
		c.tell(s, x, out)
	case holding:
		if c.Releases {
			t := *s
			t.attempts[x].phase = over
			t.spoiled |= bit(x <= again && c.Again)
			for k := range c.reached() {
				t.nodes[k].releases |= 1 << x
			}
			out(t, step{gaveBack, x, -1}, "")
		}
		return
	default:
		return
	}
	t := *s
	b := &t.attempts[x]
	if a.phase == settling || x <= again && c.Again {
		t.spoiled = 1
	}
	*b = attempt{phase: over}
	for k := range c.reached() {
		t.nodes[k].undoes |= 1 << x
	}
	out(t, step{undone, x, -1}, "")
}

// tell has a LOCK answered, if its votes came in time and a quorum has the fence.
func (c *Config) tell(s *state, x int, out emit) {
	a, n := &s.attempts[x], 0
	for k := range s.nodes {
		n += int(s.nodes[k].carries >> x & 1)
	}
	entry := int(a.grant) != x+1
	if a.late == 1 || n < quorum && !entry && c.Carried {
		return
	}
	t := *s
	b := &t.attempts[x]
	b.phase, b.told = holding, 1
	by, broken := step{granted, x, -1}, ""
	if entry {
		by.what = entered
	}
	switch last := s.others(x); {
	case entry && a.fence < a.latest:
		broken = fmt.Sprintf("K: a re-entry is told %d, and %d had been told", a.fence, a.latest)
	case !entry && a.fence <= last:
		broken = fmt.Sprintf("F: a grant is told %d after %d", a.fence, last)
	}
	out(t, by, broken)
}

// decide counts the votes that there are.
func (c *Config) decide(s *state, x int, out emit) {
	yes, fence := 0, uint8(0)
	for k := range s.nodes {
		if n := &s.nodes[k]; n.vote[x] != 0 {
			yes++
			fence = max(fence, n.vote[x])
		}
	}
	if yes < quorum || s.attempts[x].late == 1 {
		return
	}
	t := *s
	a := &t.attempts[x]
	for k := range s.nodes {
		f, grant, n := s.nodes[k].kept[x], s.nodes[k].grants[x], 0
		for j := range s.nodes {
			if m := &s.nodes[j]; m.vote[x] != 0 && m.kept[x] == f {
				n++
			}
		}
		if f == 0 || n < quorum {
			continue
		}
		a.phase, a.fence, a.grant = settling, f, grant
		out(t, step{"a quorum has the grant", x, -1}, "")
		return
	}
	a.phase, a.fence, a.grant = settling, fence, uint8(x+1)
	for k := range t.nodes {
		switch n := &t.nodes[k]; {
		case n.vote[x] == 0:
		case n.vote[x] == fence && n.kept[x] == 0:
			n.carries |= 1 << x
		default:
			n.settles |= 1 << x
		}
	}
	out(t, step{"a quorum has voted", x, -1}, "")
}

// complete tells a node which voted for a LOCK when that was granted the fence, unless it has it. A re-entry tells nothing.
func (s *state) complete(x, k int, vote, kept uint8) {
	if a := &s.attempts[x]; int(a.grant) == x+1 && (kept != 0 || vote != a.fence) {
		s.nodes[k].settles |= 1 << x
	}
}

// node is what may be executed on a node next.
func (c *Config) node(s *state, k int, out emit) {
	n := &s.nodes[k]
	for x := range s.attempts {
		if has(n.acquires, x) {
			c.acquire(s, k, x, out)
		}
		if has(n.settles, x) {
			c.settle(s, k, x, out)
		}
		if has(n.undoes, x) {
			c.undo(s, k, x, out)
		}
		if has(n.releases, x) {
			c.release(s, k, x, out)
		}
	}
	if s.lapses > 0 && n.owner != 0 {
		t := *s
		t.lapses--
		t.spoiled = 1
		t.lapse(k)
		out(t, step{lapsed, -1, k}, "")
	}
	if s.losses > 0 && n.counter != 0 { // it is out until all leases are over that it may have forgotten
		t := *s
		t.losses--
		t.spoiled = 1
		for j := range t.nodes {
			t.lapse(j)
		}
		m := &t.nodes[k]
		m.counter, m.largest, m.floor, m.marks = 0, floor, floor, 0
		out(t, step{lost, -1, k}, "")
	}
}

// number is what a node numbers the next grant with.
func (c *Config) number(n *node, x int) uint8 {
	seen := n.counter
	if seen == 0 {
		seen = n.largest
	}
	return max(max(seen, n.floor)+1, c.proposal(x))
}

func (c *Config) acquire(s *state, k, x int, out emit) {
	t := *s
	m := &t.nodes[k]
	m.acquires &^= 1 << x
	if has(m.marks, x) || m.owner != 0 && m.owner != owner(x) {
		out(t, step{"a node refuses", x, k}, "")
		return
	}
	f, kept, grant := c.number(m, x), uint8(0), uint8(0)
	if m.owner != 0 {
		kept, grant = m.fence, m.grant
		m.holds |= 1 << x
		m.alone = 0
	} else {
		if x == again {
			t.spoiled = 1 // it lacks the grant
		}
		largest := m.counter
		if c.Floor {
			largest = max(largest, m.floor)
		}
		m.owner, m.fence, m.grant, m.holds, m.before, m.alone = owner(x), f, uint8(x+1), 1<<x, largest, 1
		m.counter, m.largest = f, max(m.largest, f)
	}
	if c.Lossy {
		u := t
		u.spoiled = 1
		out(u, step{"a node grants, and nobody hears it", x, k}, "")
	}
	switch a := &t.attempts[x]; a.phase {
	case asking:
		m.vote[x], m.kept[x], m.grants[x] = f, kept, grant
	case settling, holding:
		t.complete(x, k, f, kept)
	}
	out(t, step{"a node grants", x, k}, "")
}

func (c *Config) settle(s *state, k, x int, out emit) {
	t := *s
	m, a := &t.nodes[k], &t.attempts[x]
	m.settles &^= 1 << x
	if m.owner != owner(x) || !has(m.holds, x) || a.fence == 0 {
		out(t, step{"a node has nothing to settle", x, k}, "")
		return
	}
	f, what := a.fence, refused
	before, numbered := max(m.counter, m.floor), int(m.grant) == x+1
	switch {
	case f >= before:
		what = raised
	case c.Lower && (numbered || !c.Own) && (f >= m.before || !c.Earlier):
		what = lowered
	}
	if what != refused {
		if what == lowered && c.Counter && (m.counter == m.fence || !c.Same) {
			m.counter = f
		}
		m.fence = f
		m.grant = uint8(x + 1)
	}
	m.counter = max(m.counter, f)
	m.largest = max(m.largest, f)
	if a.phase == settling {
		m.carries |= 1 << x
	}
	out(t, step{what, x, k}, "")
}

func (c *Config) undo(s *state, k, x int, out emit) {
	t := *s
	m := &t.nodes[k]
	m.undoes &^= 1 << x
	what := "a node undoes"
	switch {
	case m.owner != owner(x) || !has(m.holds, x):
		m.marks |= 1 << x
	case m.holds != 1<<x:
		m.marks |= 1 << x
		m.holds &^= 1 << x
	default:
		what = remembers
		alone := m.alone == 1 || !c.Alone
		if c.Forget && alone && (m.counter == m.fence || !c.Same) {
			what = forgot
			m.counter = m.before
			if m.before <= m.floor {
				m.counter = bit(!c.Expired)
			}
		}
		m.free()
	}
	out(t, step{what, x, k}, "")
}

func (c *Config) release(s *state, k, x int, out emit) {
	t := *s
	m := &t.nodes[k]
	m.releases &^= 1 << x
	f := s.attempts[x].fence
	mine := m.owner == owner(x)
	removed := mine && has(m.holds, x)
	t.spoiled |= bit(!removed || m.fence != f) // it came before the LOCK, or before the node was told the fence
	if removed {
		m.holds &^= 1 << x
	}
	switch {
	case removed && m.holds == 0:
		m.free()
		m.counter = max(m.counter, f+1)
	case !mine && f >= m.counter:
		m.marks |= 1 << x
		was := m.counter
		if was == 0 {
			was = m.largest
		}
		m.counter = max(was, f+1)
	default:
		m.marks |= 1 << x
	}
	out(t, step{"a node releases", x, k}, "")
}
