package main

import "fmt"

// A step is what happened, for a trace.
type step struct {
	what string
	l    lock
	x, k int // the LOCK, and the node; -1: none
}

func (s step) String() string {
	text := s.what
	if s.x >= 0 {
		mode := "reader"
		switch {
		case s.l.writes:
			mode = "writer"
		case s.l.seat > 0:
			mode = fmt.Sprint("seat ", s.l.seat-1)
		}
		text += fmt.Sprintf(", %s %c (LOCK %d)", mode, 'A'+s.l.owner, s.x)
	}
	if s.k >= 0 {
		text += fmt.Sprint(", node ", s.k)
	}
	return text
}

// What is counted: without it a search proves nothing.
const (
	permitGranted = "a permit is granted"
	beside        = "a permit is granted beside another"
	readGranted   = "a reader is granted"
	writeGranted  = "a writer is granted"
	entered       = "a LOCK is told the grant of its owner"
	refused       = "a seat is another owner's"
	otherSeat     = "a node does not settle another seat"
	moved         = "a node settles another seat"
	settled       = "a node takes over the fence of the grant"
	lowered       = "a node takes over a smaller one"
	undone        = "a LOCK is undone"
	forgotten     = "an undo forgets the fence"
	gaveBack      = "it is given back"
	readRenewed   = "a permit's renewal is told"
	writeRenewed  = "a writer's renewal is told"
	readBack      = "a node puts a permit back"
	writeBack     = "a node puts a writer back"
	lost          = "a node forgets"
	restored      = "a node gets its floor"
	stepped       = "a node's clock is stepped back"
)

type emit = func(t state, by step, broken string)

func (c *Config) successors(s *state, out emit) {
	if c.done(s) {
		return
	}
	c.tick(s, out)
	for x := range c.locks {
		c.proxy(s, x, out)
		c.renewal(s, x, out)
	}
	for k := range s.nodes {
		c.node(s, k, out)
	}
}

func (c *Config) step(what string, x, k int) step {
	if x < 0 {
		return step{what, lock{}, x, k}
	}
	return step{what, c.locks[x], x, k}
}

func (c *Config) tick(s *state, out emit) {
	t := *s
	passed := false
	down := func(x *uint8) {
		if *x > 0 {
			*x--
			passed = true
		}
	}
	up := func(x *uint8) {
		if int(*x) < c.TTL {
			*x++
			passed = true
		}
	}
	for x := range c.locks {
		a := &t.attempts[x]
		down(&a.valid)
		down(&a.memory)
		if a.phase == asking || a.phase == settling {
			up(&a.elapsed)
		}
		if a.renewing != 0 {
			up(&a.since)
		}
	}
	for k := range t.nodes {
		n := &t.nodes[k]
		down(&n.quarantine)
		down(&n.write.rem)
		for o := range n.read {
			down(&n.read[o].rem)
		}
	}
	if passed {
		out(t, c.step("wait", -1, -1), "")
	}
}

// proxy is what the proxy of a LOCK may do.
func (c *Config) proxy(s *state, x int, out emit) {
	a := &s.attempts[x]
	switch a.phase {
	case before:
		if !c.mayStart(s, x) {
			return
		}
		t := *s
		b := &t.attempts[x]
		b.phase, b.latest = asking, s.anybody()
		for k := range t.nodes {
			t.nodes[k].acquires |= 1 << x
		}
		out(t, c.step("LOCK", x, -1), "")
		return
	case asking:
		c.decide(s, x, out)
	case settling:
		c.tell(s, x, out)
	case holding:
		t := *s
		t.release(x)
		out(t, c.step(gaveBack, x, -1), "")
		return
	default:
		return
	}
	t := *s
	t.undo(x)
	out(t, c.step(undone, x, -1), "")
}

// undo leaves what is under way: a settle may come after the undo was sent.
func (s *state) undo(x int) {
	a := &s.attempts[x]
	*a = attempt{phase: over, fence: a.fence, grant: a.grant}
	for k := range s.nodes {
		s.nodes[k].undoes |= 1 << x
	}
}

func (s *state) release(x int) {
	a := &s.attempts[x]
	a.phase, a.valid, a.entry, a.latest = over, 0, 0, 0
	for k := range s.nodes {
		s.nodes[k].releases |= 1 << x
	}
}

// need is how many nodes must have voted.
func (c *Config) need(x int) int {
	if !c.locks[x].writes && !c.Majority {
		return 1
	}
	return quorum
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
	if yes < c.need(x) || c.left(s.attempts[x].elapsed) <= 0 {
		return
	}
	t := *s
	a := &t.attempts[x]
	a.phase = settling
	if c.enter(s, x, out) {
		return
	}
	a.fence, a.grant = fence, uint8(x+1)
	for k := range t.nodes {
		switch n := &t.nodes[k]; {
		case n.vote[x] == 0:
		case n.vote[x] == fence && n.kept[x] == 0:
			n.carries |= 1 << x
		default:
			n.settles |= 1 << x
		}
	}
	out(t, c.step("a quorum has voted", x, -1), "")
}

// enter has a LOCK be told the grant that its owner has, if a quorum knows one.
func (c *Config) enter(s *state, x int, out emit) (known bool) {
	for k := range s.nodes {
		f, grant, n := s.nodes[k].kept[x], s.nodes[k].grant[x], 0
		for j := range s.nodes {
			m := &s.nodes[j]
			if m.vote[x] != 0 && m.kept[x] == f && (!c.EntrySeat || c.seat(m.grant[x]) == c.seat(grant)) {
				n++
			}
		}
		if f == 0 || f == unknown || n < c.need(x) {
			continue
		}
		known = true
		if c.locks[x].seat > 0 && c.seat(grant) == 0 && c.Seated {
			continue
		}
		t := *s
		a := &t.attempts[x]
		a.phase, a.fence, a.grant, a.entry = settling, f, grant, 1
		out(t, c.step("a quorum has the grant", x, -1), "")
	}
	return known
}

// left is the validity of what was asked for that long ago.
func (c *Config) left(elapsed uint8) int { return c.TTL - c.Drift - int(elapsed) }

// tell has a LOCK answered.
func (c *Config) tell(s *state, x int, out emit) {
	a, l, n := &s.attempts[x], &c.locks[x], 0
	for k := range s.nodes {
		n += int(s.nodes[k].carries >> x & 1)
	}
	left := c.left(a.elapsed)
	if left <= 0 || n < c.need(x) && a.entry == 0 && (l.writes || c.Settle) {
		return
	}
	t := *s
	b := &t.attempts[x]
	b.phase, b.valid, b.memory, b.elapsed = holding, uint8(left), uint8(left), 0
	f := a.fence
	by, broken := c.step(readGranted, x, -1), c.exclusive(&t)
	if l.seat > 0 {
		by.what = permitGranted
		for y := range c.locks {
			if o := &s.attempts[y]; o.valid > 0 && c.locks[y].owner != l.owner && c.seat(o.grant) > 0 {
				by.what = beside
			}
		}
	}
	if a.entry == 1 {
		by.what = entered
	}
	switch {
	case broken != "":
	case l.writes:
		by.what = writeGranted
		if a.entry == 0 && f <= max(c.others(s, x, false), a.latest) {
			broken = fmt.Sprintf("F1: a writer's fence %d is not above one told before", f)
		}
	case l.seat > 0 && c.seat(a.grant) == 0:
		broken = "K: a permit has no seat"
	case l.seat > 0 && a.entry == 0 && f <= a.latest:
		broken = fmt.Sprintf("F: a permit's fence %d is not above one told before it was asked for", f)
	case f < c.others(s, x, true):
		broken = fmt.Sprintf("F2: a fence %d is below that of a writer told before", f)
	}
	if l.writes {
		t.wrote[l.owner] = max(t.wrote[l.owner], f)
	} else {
		t.heard[l.owner] = max(t.heard[l.owner], f)
	}
	c.overtake(&t, x)
	b.latest, b.entry = 0, 0
	out(t, by, broken)
}

// renewal is what a proxy does that keeps a lock.
func (c *Config) renewal(s *state, x int, out emit) {
	a, l := &s.attempts[x], &c.locks[x]
	if a.renewing == 0 {
		if int(a.renewals) < c.Renewals && a.memory > 0 && (a.phase == holding || a.phase == over) {
			t := *s
			b := &t.attempts[x]
			b.renewing, b.since, b.afterFree = a.renewals+1, 0, a.free
			b.renewals++
			for k := range t.nodes {
				t.nodes[k].renewals[a.renewals] |= 1 << x
			}
			out(t, c.step("RENEW", x, -1), "")
		}
		return
	}
	n := 0
	for k := range s.nodes {
		n += int(s.nodes[k].renewed >> x & 1)
	}
	t := *s
	b := &t.attempts[x]
	b.renewing, b.since, b.afterFree = 0, 0, 0
	out(t, c.step("no answer to the RENEW", x, -1), "")
	left := c.left(a.since)
	if n < c.need(x) || left <= 0 || a.memory == 0 && c.InTime {
		return
	}
	b.memory = max(b.memory, uint8(left))
	if a.phase == holding || a.afterFree == 1 {
		b.valid = b.memory
	}
	by, broken := c.step(readRenewed, x, -1), c.exclusive(&t)
	if l.writes {
		by.what = writeRenewed
	}
	switch {
	case a.afterFree == 1:
		broken = "Z: a RENEW succeeds that was asked for after the UNLOCK was answered"
	case broken != "" || a.phase != holding:
	case a.overtaken == 1:
		broken = "R: a RENEW succeeds, and another had the seat or the name between"
	case !l.writes && a.fence < c.others(s, x, true):
		broken = fmt.Sprintf("F2: a permit with fence %d is renewed after a later writer was told", a.fence)
	}
	out(t, by, broken)
}
