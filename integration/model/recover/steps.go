package main

import "fmt"

// A step is what happened, for a trace.
type step struct {
	what  string
	owner uint8
	x, k  int // the LOCK, and the node; -1: none
}

func (s step) String() string {
	text := s.what
	if s.k >= 0 {
		text = fmt.Sprintf("node %d %s", s.k, text)
	}
	if s.x >= 0 {
		text += fmt.Sprintf(", %c (LOCK %d)", 'A'+s.owner, s.x)
	}
	return fmt.Sprintf("%-36s", text)
}

// What is counted: without it a search proves nothing.
const (
	shared          = "is granted, and shares the name"
	granted         = "is granted"
	entered         = "is told the grant that its owner has"
	renewed         = "RENEW is told"
	answered        = "FORCE is answered"
	answeredInDoubt = "FORCE is answered by nodes that were in doubt"
	putBack         = "puts the grant back"
	restored        = "restores the grant under the marker"
	restoredLate    = "restores the grant"
	lost            = "forgets"
	back            = "is back"
	marked          = "is back, and marks the name"
	cleared         = "is back without a record of its older memory"
	fellBack        = "is back without a copy"
)

type emit = func(t state, by step, broken string)

func (c *Config) step(what string, x, k int) step {
	if x < 0 {
		return step{what, 0, x, k}
	}
	return step{what, c.locks[x].owner, x, k}
}

func (c *Config) successors(s *state, out emit) {
	if c.ended(s) {
		return
	}
	c.tick(s, out)
	for x := range c.locks {
		c.proxy(s, x, out)
	}
	c.renewal(s, out)
	c.operator(s, out)
	for k := range c.Nodes {
		c.node(s, k, out)
	}
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
	up := func(x *uint8) { *x++; passed = true }
	for x := range c.locks {
		a := &t.attempts[x]
		down(&a.valid)
		if a.phase == asking || a.phase == settling {
			up(&a.elapsed)
		}
	}
	if t.renewing != 0 {
		up(&t.since)
	}
	if t.ending == 1 && c.EndBound && int(t.endSince) < c.R {
		up(&t.endSince)
	}
	for k := range t.nodes {
		n := &t.nodes[k]
		down(&n.wait)
		down(&n.long)
		down(&n.doubt)
		for x := range c.locks {
			down(&n.rem[x])
			down(&n.saved.rem[x])
		}
	}
	if passed {
		out(t, c.step("wait", -1, -1), "")
	}
}

// left is the validity of what was asked for that long ago.
func (c *Config) left(elapsed uint8, bound bool) int {
	if bound && int(elapsed) >= c.R {
		return 0
	}
	return c.TTL - c.Drift - int(elapsed)
}

// remains is that of a RENEW.
func (c *Config) remains(elapsed uint8) int { return c.left(elapsed, c.RenewBound) - (c.TTL - c.Short) }

// release sends the release of a LOCK, or the undo.
func (s *state) release(x int, phase uint8) {
	a := &s.attempts[x]
	a.phase, a.elapsed, a.valid = phase, 0, 0
	for k := range s.nodes {
		s.nodes[k].releases |= 1 << x
	}
}

// proxy is what the proxy of a LOCK may do.
func (c *Config) proxy(s *state, x int, out emit) {
	t := *s
	switch a := &t.attempts[x]; a.phase {
	case before:
		if !c.mayStart(s, x) {
			return
		}
		a.phase = asking
		for k := range t.nodes {
			t.nodes[k].acquires |= 1 << x
		}
		out(t, c.step("LOCK", x, -1), "")
	case asking:
		c.count(s, x, out)
		t.release(x, undone)
		out(t, c.step("gives up", x, -1), "")
	case settling:
		c.tellSettled(s, x, out)
		t.release(x, undone)
		out(t, c.step("gives up", x, -1), "")
	case holding:
		t.release(x, over)
		out(t, c.step("UNLOCK", x, -1), "")
	}
}

// count has a LOCK that a quorum granted be told a fence, or settle one.
func (c *Config) count(s *state, x int, out emit) {
	var f uint8
	var votes, same int
	var kept [unknown + 1]int
	for k := range s.nodes {
		if n := &s.nodes[k]; n.vote[x] > 0 {
			votes++
			f = max(f, n.vote[x])
			kept[n.kept[x]]++
		}
	}
	if votes < c.quorum() {
		return
	}
	for k := uint8(1); k < unknown; k++ {
		if kept[k] >= c.quorum() {
			c.tell(s, x, k, entered, out)
			return
		}
	}
	t := *s
	for k := range t.nodes {
		if n := &t.nodes[k]; n.vote[x] == f && n.kept[x] == 0 {
			same++
		} else if n.vote[x] > 0 {
			n.settles |= 1 << x
		}
	}
	if same >= c.quorum() {
		c.tell(s, x, f, granted, out)
		return
	}
	t.attempts[x].phase, t.attempts[x].fence = settling, f
	out(t, c.step("settles", x, -1), "")
}

func (c *Config) tellSettled(s *state, x int, out emit) {
	carry, f := 0, s.attempts[x].fence
	for k := range s.nodes {
		if n := &s.nodes[k]; n.vote[x] == f && n.kept[x] == 0 || has(n.settled, x) {
			carry++
		}
	}
	if carry >= c.quorum() {
		c.tell(s, x, f, granted, out)
	}
}

// tell has a LOCK answered.
func (c *Config) tell(s *state, x int, f uint8, what string, out emit) {
	t := *s
	a, owner := &t.attempts[x], c.locks[x].owner
	a.valid = uint8(c.left(a.elapsed, c.LockBound))
	a.phase, a.fence, a.elapsed = holding, f, 0
	broken := c.exclusive(&t)
	switch {
	case broken != "":
	case what == entered && (f < s.largest || f == s.largest && s.whose != owner):
		broken = fmt.Sprintf("P2: fence %d is told again after %d", f, s.largest)
	case c.locks[x].reads && f < s.wrote:
		broken = fmt.Sprintf("P2: fence %d is below %d, which was told before to one who had the name alone", f, s.wrote)
	case what == granted && !c.locks[x].reads && f <= s.largest:
		broken = fmt.Sprintf("P2: fence %d is not above %d", f, s.largest)
	}
	if f >= s.largest {
		t.largest, t.whose = f, owner
	}
	if c.locks[x].reads {
		what = shared
	} else {
		t.wrote = max(t.wrote, f)
	}
	out(t, c.step(what, x, -1), broken)
}

// exclusive is promise P1.
func (c *Config) exclusive(s *state) string {
	inside := uint8(0)
	for x := range c.locks {
		if a := &s.attempts[x]; a.valid > 0 && (x > 0 || s.ending == 0) {
			inside |= 1 << x
		}
	}
	for x := range c.locks {
		if has(inside, x) && !c.locks[x].reads && c.ownersOf(inside) > 1 {
			return "P1: two owners are inside their validities"
		}
	}
	return ""
}

// renewal is what a proxy does that keeps the first lock.
func (c *Config) renewal(s *state, out emit) {
	a := &s.attempts[0]
	if a.phase != holding {
		return
	}
	if s.renewals > 0 && a.valid > 0 && s.renewing == 0 {
		t := *s
		t.renewals--
		t.renewing, t.since = 1, 0
		if s.ending == 2 {
			t.renewing = 2
		}
		for k := range t.nodes {
			n := &t.nodes[k]
			n.renewal, n.renewed, n.knows = 1, 0, 0
			if n.stage() <= c.CarryFrom {
				n.knows = 1
			}
		}
		out(t, c.step("RENEW", 0, -1), "")
	}
	if s.renewing == 0 {
		return
	}
	t := *s
	t.endRenewal()
	out(t, c.step("no answer to the RENEW", 0, -1), "")
	votes := 0
	for k := range s.nodes {
		votes += int(s.nodes[k].renewed)
	}
	if votes >= c.quorum() {
		c.tellRenewed(s, out)
	}
}

// endRenewal ends the RENEW under way; its messages may still arrive.
func (s *state) endRenewal() {
	s.renewing, s.since = 0, 0
	for k := range s.nodes {
		n := &s.nodes[k]
		n.late |= n.renewal
		n.renewal = 0
	}
}

func (c *Config) tellRenewed(s *state, out emit) {
	t := *s
	a := &t.attempts[0]
	a.valid = max(a.valid, uint8(c.remains(s.since)))
	for k := range t.nodes {
		n := &t.nodes[k]
		if c.Carry && n.renewed == 0 && n.stage() <= c.CarryFrom && (n.knows == 1 || !c.CarryKnown) {
			n.carried = 1
		}
	}
	t.endRenewal()
	broken := c.exclusive(&t)
	switch {
	case s.renewing == 2:
		broken = "Z: a RENEW succeeds that was asked for after FORCE was answered"
	case broken == "" && s.ending == 0 && a.fence < s.wrote:
		broken = fmt.Sprintf("R: a RENEW with fence %d succeeds after %d was told", a.fence, s.wrote)
	}
	out(t, c.step(renewed, 0, -1), broken)
}

// operator ends the first lock, whose owner does not hear of it.
func (c *Config) operator(s *state, out emit) {
	a := &s.attempts[0]
	if !c.Ends || a.phase != holding || s.ending == 2 || s.renewals == 0 && s.renewing == 0 {
		return
	}
	t := *s
	if s.ending == 0 {
		t.ending, t.endSince = 1, 0
		for k := range t.nodes {
			t.nodes[k].releases |= 1
			t.nodes[k].ended = 0
		}
		out(t, c.step("FORCE", 0, -1), "")
		return
	}
	votes, inDoubt, what := 0, 0, answered
	for k := range s.nodes {
		switch s.nodes[k].ended {
		case 1:
			votes++
		case 2:
			inDoubt++
		}
	}
	if votes < c.quorum() {
		what = answeredInDoubt
	}
	if votes+inDoubt >= c.quorum() && (int(s.endSince) < c.R || !c.EndBound) {
		t.ending = 2
		out(t, c.step(what, 0, -1), "")
	}
}
