package main

import "slices"

type emit = func(t state, by step, broken string)

// What is counted; without any a search proves nothing.
const (
	renewed  = "RENEWED"
	grantedB = "B GRANTED"
	nowFree  = "UNLOCKED, free"
	holdLeft = "UNLOCKED, holds left"
)

// successors calls out with every state one step away from s.
func (c *Config) successors(s *state, out emit) {
	if c.stuck(s) {
		out(*s, step{"RENEW reaches all nodes", -1, -1}, "L: a RENEW fails though all nodes vote")
	}
	checked := func(t state, by step, broken string) {
		if broken == "" {
			broken = c.returns(&t)
		}
		out(t, by, broken)
	}
	switch s.phase {
	case idle:
		c.ask(s, checked)
	case locking:
		c.tally(s, checked)
	case unlocking:
		c.answerUnlock(s, checked)
	case renewing:
		c.answerRenew(s, checked)
	}
	c.rival(s, checked)
	for k := range s.nodes {
		c.nodeSteps(s, k, checked)
	}
}

// ask: A asks one thing at a time. After it was told that the name is free it only renews.
func (c *Config) ask(s *state, out emit) {
	for p := range c.proxies() {
		if int(s.taken) < c.Holds && s.free == 0 {
			t := *s
			t.phase, t.hold, t.proxy = locking, s.taken, uint8(p)
			t.taken++
			for k := range t.nodes {
				t.nodes[k].acquires |= 1 << t.hold
			}
			out(t, step{"A asks LOCK", int(t.hold), p}, "")
		}
		l := c.known(s, p)
		if l.fence == 0 {
			continue
		}
		for h := range maxHolds {
			if s.open()>>h&1 == 1 {
				c.askUnlock(s, h, p, l, out)
			}
		}
		if s.renewalsLeft > 0 && s.granted != 0 && l.holds != 0 {
			c.askRenew(s, p, l, out)
		}
	}
}

func (c *Config) askUnlock(s *state, h, p int, l list, out emit) {
	t := *s
	t.phase, t.hold, t.proxy = unlocking, uint8(h), uint8(p)
	t.returned |= 1 << h
	l.holds &^= 1 << h
	t.unlocks[h] = l
	t.memory[p].holds &^= 1 << h
	for k := range t.nodes {
		t.nodes[k].releases |= 1 << h
	}
	out(t, step{"A asks UNLOCK", h, p}, "")
}

func (c *Config) askRenew(s *state, p int, l list, out emit) {
	for i := range renewals {
		if s.renewing(i) {
			continue
		}
		t := *s
		t.renewalsLeft--
		t.phase, t.proxy, t.slot = renewing, uint8(p), uint8(i)
		t.renewals[i] = l
		t.lateRenewal = s.free & bit(l.fence == s.fence)
		for k := range t.nodes {
			t.nodes[k].renews |= 1 << i
		}
		out(t, step{"A asks RENEW", -1, p}, "")
		return
	}
}

// end ends what A awaits. A success counts as a renewal of the lease, if it was begun
// after the last loss.
func (s *state) end(success bool) {
	if success && s.old == 0 {
		s.renewedSince = 1
	}
	s.phase = idle
}

func (c *Config) tally(s *state, out emit) {
	c.tallyAnswers(s, out)
	t := *s
	for k := range t.nodes {
		t.nodes[k].undoes |= 1 << s.hold
	}
	t.end(false)
	out(t, step{"A's LOCK is given up and undone", int(s.hold), int(s.proxy)}, "")
}

func (c *Config) tallyAnswers(s *state, out emit) {
	var keeps [fences]int
	votes, f := 0, uint8(0)
	for k := range s.nodes {
		n := &s.nodes[k]
		if n.lock == 0 {
			continue
		}
		votes++
		f = max(f, n.lockFence)
		if n.lock == kept {
			keeps[n.lockFence]++
		}
	}
	if votes < quorum {
		return
	}
	if g := slices.IndexFunc(keeps[:], func(n int) bool { return n >= quorum }); g >= 0 {
		t := *s
		t.join(uint8(g), c)
		out(t, step{"LOCKED, fence kept", int(s.hold), int(s.proxy)}, "")
		return
	}
	c.settle(s, max(f, s.largest()), out)
}

// join grants the hold within the grant that a quorum answered.
func (s *state) join(fence uint8, c *Config) {
	hold := uint8(1) << s.hold
	if s.fence == fence {
		s.granted |= hold
	} else {
		s.granted, s.returned, s.over, s.fence = hold, 0, 0, fence
		for k := range s.nodes {
			if n := &s.nodes[k]; n.lock == kept && n.lockFence == fence {
				s.grant = n.lockOf
			}
		}
	}
	s.remember(fence)
	s.end(true)
}

// settle makes a new grant, in this step, on the nodes where the hold still is.
func (c *Config) settle(s *state, fence uint8, out emit) {
	t := *s
	carry := 0
	for k := range t.nodes {
		n := &t.nodes[k]
		if n.lock == 0 || n.owner != ownA || n.holds>>s.hold&1 == 0 || n.quarantine == 1 {
			continue
		}
		n.fence, n.counter, n.told, n.grant = fence, max(n.counter, fence), 0, s.hold+1
		carry++
	}
	if carry < quorum {
		return
	}
	t.granted, t.returned, t.over, t.fence, t.grant = 1<<s.hold, 0, 0, fence, s.hold+1
	t.remember(fence)
	t.end(true)
	out(t, step{"LOCKED, a new grant", int(s.hold), int(s.proxy)}, "")
}

func (s *state) largest() (f uint8) {
	for k := range s.nodes {
		f = max(f, s.nodes[k].counter)
	}
	return f
}

func (s *state) remember(fence uint8) {
	m := &s.memory[s.proxy]
	if m.fence != fence {
		*m = list{fence, s.grant, 0}
	}
	m.holds |= 1 << s.hold
}

func (c *Config) answerUnlock(s *state, out emit) {
	t := *s
	t.end(false)
	out(t, step{"UNLOCK is not answered", int(s.hold), int(s.proxy)}, "")

	votes, nothing, shows := 0, 0, 0
	var left []int
	for k := range s.nodes {
		n := &s.nodes[k]
		if n.released == 0 {
			continue
		}
		votes++
		left = append(left, int(n.left))
		nothing += int(bit(n.left == 0))
		shows += int(bit(n.left > 0))
	}
	if votes < quorum {
		return
	}
	slices.Sort(left)
	rest := left[len(left)-quorum]
	if m := s.memory[s.proxy]; m.fence == s.fence {
		rest = max(rest, int(count(m.holds)))
	}
	t.over |= 1 << s.hold
	if nothing < quorum && (rest > 0 || shows > 0) {
		out(t, step{holdLeft, int(s.hold), int(s.proxy)}, "")
		return
	}
	broken := ""
	if s.open() != 0 {
		broken = "U: UNLOCK answers free while A has holds"
	}
	t.over, t.free = 1<<maxHolds-1, 1
	out(t, step{nowFree, int(s.hold), int(s.proxy)}, broken)
}

func (c *Config) answerRenew(s *state, out emit) {
	t := *s
	t.end(false)
	out(t, step{"RENEW is not answered", -1, int(s.proxy)}, "")
	if s.pending(func(n *node) uint8 { return n.renewed }) < quorum {
		return
	}
	t = *s
	t.end(true)
	broken := ""
	if s.lateRenewal == 1 {
		broken = "Z: a RENEW asked for after free succeeds"
	}
	out(t, step{renewed, -1, int(s.proxy)}, broken)
}

// rival: B asks once, and keeps what it is granted.
func (c *Config) rival(s *state, out emit) {
	t := *s
	switch s.rival {
	case 0:
		t.rival = 1
		for k := range t.nodes {
			t.nodes[k].acquireB = 1
		}
		out(t, step{"B asks LOCK", -1, -1}, "")
	case 1:
		t.rival = 2
		if s.pending(func(n *node) uint8 { return n.acceptedB }) >= quorum {
			broken := ""
			if s.open() != 0 {
				broken = "X: B is granted while A has a hold"
			}
			out(t, step{grantedB, -1, -1}, broken)
		}
		for k := range t.nodes {
			t.nodes[k].undoB = 1
		}
		out(t, step{"B gives up", -1, -1}, "")
	}
}
