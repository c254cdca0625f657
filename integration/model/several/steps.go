package main

import "fmt"

// A step is what happened, for a trace.
type step struct {
	what    string
	owner   uint8
	x, n, k int // the LOCK, the name, and the node; -1: none
}

func (s step) String() string {
	text := s.what
	if s.x >= 0 {
		text += fmt.Sprintf(", LOCK %d of %c", s.x, 'A'+s.owner)
	}
	if s.n >= 0 {
		text += fmt.Sprintf(", name %c", 'a'+s.n)
	}
	if s.k >= 0 {
		text += fmt.Sprint(", node ", s.k)
	}
	return text
}

// What is counted: without it a search proves nothing.
const (
	grantedAll = "a LOCK of both names is granted"
	grantedOne = "a LOCK of one name is granted"
	entered    = "a LOCK of both names is told a grant that its owner has"
	heldTold   = "a LOCK is told that a name is held"
	refused    = "a node refuses"
	settled    = "a node takes over the fence of the grant"
	lowered    = "a node takes over a smaller one"
	undone     = "a LOCK is undone"
	forgotten  = "an undo forgets the fence"
	gaveBack   = "a name is given back"
	renewed    = "a renewal is told"
	putBack    = "a node puts a name back"
	lost       = "a node forgets"
	restored   = "a node gets its floor"
)

type emit = func(t state, by step, broken string)

func (c *Config) successors(s *state, out emit) {
	if c.done(s) {
		return
	}
	emit := func(t state, by step, broken string) {
		if broken == "" {
			broken = c.standing(&t)
		}
		out(t, by, broken)
	}
	c.tick(s, emit)
	for x := range c.locks {
		c.proxy(s, x, emit)
		for n := range c.locks[x].each() {
			c.renewal(s, x, n, emit)
		}
	}
	for k := range s.nodes {
		c.node(s, k, emit)
	}
}

func (c *Config) step(what string, x, n, k int) step {
	if x < 0 {
		return step{what, 0, x, n, k}
	}
	return step{what, c.locks[x].owner, x, n, k}
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
		if a.phase == asking || a.phase == settling {
			up(&a.elapsed)
		}
		for n := range a.parts {
			p := &a.parts[n]
			down(&p.valid)
			down(&p.memory)
			if p.renewing != 0 {
				up(&p.since)
			}
		}
	}
	for k := range t.nodes {
		m := &t.nodes[k]
		down(&m.quarantine)
		for n := range m.items {
			down(&m.items[n].rem)
		}
	}
	if passed {
		out(t, c.step("wait", -1, -1, -1), "")
	}
}

// proxy is what the proxy of a LOCK may do.
func (c *Config) proxy(s *state, x int, out emit) {
	a, l := &s.attempts[x], &c.locks[x]
	switch a.phase {
	case before:
		if !c.mayStart(s, x) {
			return
		}
		t := *s
		b := &t.attempts[x]
		b.phase = asking
		for n := range l.each() {
			b.parts[n].latest = s.last[n]
		}
		for k := range t.nodes {
			t.nodes[k].acquires |= 1 << x
		}
		out(t, c.step("LOCK", x, -1, -1), "")
		return
	case asking:
		c.decide(s, x, out)
	case settling:
		c.tell(s, x, out)
	case holding:
		for n := range l.each() {
			if !has(a.given, n) {
				t := *s
				t.release(x, n, l)
				out(t, c.step(gaveBack, x, n, -1), "")
			}
		}
		return
	default:
		return
	}
	t := *s
	c.undoAll(&t, x)
	out(t, c.step(undone, x, -1, -1), "")
}

// undoAll sends an undo for each name to each node that granted it, or did not answer. It leaves what is under way: a settle may come after it.
func (c *Config) undoAll(s *state, x int) {
	a, l := &s.attempts[x], &c.locks[x]
	for k := range s.nodes {
		for n := range l.each() {
			if i := &s.nodes[k].items[n]; (a.phase == settling || i.vote[x] < withheld) && (c.EachUndone || n == l.first()) {
				i.undoes |= 1 << x
			}
		}
	}
	kept := attempt{phase: over, held: a.held}
	for n := range a.parts {
		kept.parts[n] = part{fence: a.parts[n].fence, grant: a.parts[n].grant}
	}
	*a = kept
}

// first is the first name that a LOCK asks for.
func (l *lock) first() int {
	for n := range l.each() {
		return n
	}
	return -1
}

func (s *state) release(x, n int, l *lock) {
	a := &s.attempts[x]
	a.given |= 1 << n
	a.parts[n].valid = 0
	if a.given == l.wants {
		a.phase = over
	}
	for k := range s.nodes {
		s.nodes[k].items[n].releases |= 1 << x
	}
}

// yes reports whether a vote is one.
func (c *Config) yes(vote uint8) bool {
	return vote > 0 && vote < withheld || vote == withheld && !c.WithheldYes
}

// decide counts the votes that there are.
func (c *Config) decide(s *state, x int, out emit) {
	a, l := &s.attempts[x], &c.locks[x]
	agreed := true
	for n := range l.each() {
		votes := 0
		for k := range s.nodes {
			if c.yes(s.nodes[k].items[n].vote[x]) {
				votes++
			}
		}
		agreed = agreed && (votes >= quorum || !c.EachQuorum && n != l.first())
	}
	if agreed && c.left(a, l) > 0 {
		t := *s
		t.attempts[x].phase = settling
		largest := uint8(0)
		for n := range l.each() {
			largest = max(largest, c.grant(s, &t, x, n))
		}
		if !c.OwnFences {
			for n := range l.each() {
				t.attempts[x].parts[n].fence = largest
			}
		}
		out(t, c.step("a quorum has voted", x, -1, -1), "")
	}
	for n := range l.each() {
		c.refusal(s, x, n, out)
	}
}

// grant has a name of a LOCK granted as its votes say. It returns the fence.
func (c *Config) grant(s, t *state, x, n int) uint8 {
	p, fence := &t.attempts[x].parts[n], uint8(0)
	for k := range s.nodes {
		i, same := &s.nodes[k].items[n], 0
		for j := range s.nodes {
			if s.nodes[j].items[n].kept[x] == i.kept[x] {
				same++
			}
		}
		if i.kept[x] != 0 && i.kept[x] != unknown && same >= quorum {
			p.fence, p.grant, p.entry = i.kept[x], i.grants[x], 1
			return p.fence
		}
		if i.vote[x] < withheld {
			fence = max(fence, i.vote[x])
		}
	}
	p.fence, p.grant = fence, uint8(x+1)
	for k := range t.nodes {
		switch i := &t.nodes[k].items[n]; {
		case i.vote[x] == 0 || i.vote[x] >= withheld:
		case i.vote[x] == fence && i.kept[x] == 0:
			i.carries |= 1 << x
		default:
			i.settles |= 1 << x
		}
	}
	return fence
}

// refusal has a LOCK told that a name is held, if its votes say so.
func (c *Config) refusal(s *state, x, n int, out emit) {
	var by [owners]int
	refuse, holder := 0, 0
	for k := range s.nodes {
		switch v := s.nodes[k].items[n].vote[x]; {
		case v >= no:
			by[v-no]++
			refuse++
			if by[v-no] >= quorum {
				holder = int(v-no) + 1
			}
		case v == withheld && (!c.WithheldNo || !c.OneOwner):
			refuse++
		}
	}
	if holder == 0 && (refuse < quorum || c.OneOwner && c.WithheldNo) {
		return
	}
	t := *s
	t.attempts[x].held = uint8(holder)
	c.undoAll(&t, x)
	broken := ""
	if holder == 0 {
		broken = fmt.Sprintf("T: a LOCK is told that name %c is held, and no quorum has named one owner", 'a'+n)
	}
	if broken == "" {
		broken = c.inTurn(&t)
	}
	out(t, c.step(heldTold, x, n, -1), broken)
}

// inTurn is promise M.
func (c *Config) inTurn(s *state) string {
	for x := range c.locks {
		for y := range c.locks {
			if a, b := &s.attempts[x], &s.attempts[y]; a.held == c.locks[y].owner+1 && b.held != 0 && !c.twice(y) {
				return fmt.Sprintf("M: LOCK %d was refused because of LOCK %d, which was refused", x, y)
			}
		}
	}
	return ""
}

// twice reports whether the owner of a LOCK has another one.
func (c *Config) twice(x int) bool {
	for y := range c.locks {
		if y != x && c.locks[y].owner == c.locks[x].owner {
			return true
		}
	}
	return false
}

// tell has a LOCK answered.
func (c *Config) tell(s *state, x int, out emit) {
	a, l := &s.attempts[x], &c.locks[x]
	left := c.left(a, l)
	if left == 0 {
		return
	}
	t := *s
	b := &t.attempts[x]
	b.phase, b.elapsed, b.told = holding, 0, 1
	by, broken := c.step(grantedOne, x, -1, -1), ""
	if l.wants == 1<<names-1 {
		by.what = grantedAll
	}
	for n := range l.each() {
		p, q, stored, under := &a.parts[n], &b.parts[n], 0, 0
		for k := range s.nodes {
			i := &s.nodes[k].items[n]
			stored += int(i.carries >> x & 1)
			if c.there(i, x) && i.counter >= p.fence {
				under++
			}
		}
		if p.entry == 0 && stored < quorum && (c.EachSettled || n == l.first()) && (c.EachQuorum || n == l.first()) && c.WithheldYes && c.OwnFences {
			return
		}
		q.valid, q.memory, q.latest, q.entry, q.renewals = left, left, 0, 0, 0
		if p.entry == 1 {
			by.what = entered
		}
		switch {
		case broken != "":
		case p.entry == 0 && p.fence <= max(s.last[n], p.latest):
			broken = fmt.Sprintf("F: name %c gets fence %d, which is not above one told before", 'a'+n, p.fence)
		case under < quorum && s.lost == 0:
			broken = fmt.Sprintf("G: no quorum has name %c, and gives no other grant the fence %d that is told", 'a'+n, p.fence)
		}
		t.last[n] = max(t.last[n], p.fence)
		c.overtake(&t, x, n)
	}
	if broken == "" {
		broken = c.exclusive(&t)
	}
	out(t, by, broken)
}

// overtake notes that a name was told, for the renewals of others.
func (c *Config) overtake(s *state, x, n int) {
	for y := range c.locks {
		if b := &s.attempts[y]; c.locks[y].owner != c.locks[x].owner && b.told == 1 && has(c.locks[y].wants, n) {
			b.parts[n].overtaken = 1
		}
	}
}

// renewal is what a proxy does that keeps a name.
func (c *Config) renewal(s *state, x, n int, out emit) {
	a := &s.attempts[x]
	p := &a.parts[n]
	if p.renewing == 0 {
		if c.renews(x, n) && int(p.renewals) < c.Renewals && p.memory > 0 && a.told == 1 {
			t := *s
			q := &t.attempts[x].parts[n]
			q.renewing, q.since, q.afterFree = 1, 0, p.free
			q.renewals++
			for k := range t.nodes {
				t.nodes[k].items[n].renews |= 1 << x
			}
			out(t, c.step("RENEW", x, n, -1), "")
		}
		return
	}
	votes := 0
	for k := range s.nodes {
		votes += int(s.nodes[k].items[n].renewed >> x & 1)
	}
	t := *s
	q := &t.attempts[x].parts[n]
	q.renewing, q.since, q.afterFree = 0, 0, 0
	out(t, c.step("no answer to the RENEW", x, n, -1), "")
	left := c.TTL - c.Drift - int(p.since)
	if votes < quorum || left <= 0 || p.memory == 0 {
		return
	}
	q.memory = max(q.memory, uint8(left))
	given := has(a.given, n)
	if !given || p.afterFree == 1 {
		q.valid = q.memory
	}
	broken := c.exclusive(&t)
	switch {
	case p.afterFree == 1:
		broken = "Z: a RENEW succeeds that was asked for after the UNLOCK was answered"
	case broken == "" && !given && p.overtaken == 1:
		broken = "R: a RENEW succeeds, and another had the name between"
	}
	out(t, c.step(renewed, x, n, -1), broken)
}
