package main

// lose has a node forget, or go back to what was saved of it.
func (c *Config) lose(s *state, k int, out emit) {
	n := &s.nodes[k]
	if s.saves > 0 && n.out == 0 && c.owner(&n.record) != 0 {
		t := *s
		m := &t.nodes[k]
		t.saves--
		m.saved, m.savedCounter, m.wasSeen, m.isSaved = m.record, m.counter, m.seen, 1
		out(t, c.step("is saved", -1, k), "")
	}
	if s.losses == 0 {
		return
	}
	t := *s
	m := &t.nodes[k]
	t.losses--
	m.record, m.counter, m.seen = m.saved, m.savedCounter, m.wasSeen
	if c.CarryStamp {
		m.restored = 0
	}
	if !c.KeepLargest {
		m.counter = 0
	}
	m.floor, m.marked, m.doubt, m.over, m.knows = 0, 0, 0, 0, 0
	m.out, m.wait, m.long = 1, uint8(c.R), 0
	if !c.Wait {
		m.wait--
	}
	if c.Long {
		if m.long = uint8(c.TTL); !c.Fallback {
			m.long--
		}
	}
	if c.CarryGen {
		m.carried = 0
	}
	if c.Generation {
		t.endCopy(m)
	}
	out(t, c.step(lost, -1, k), "")
}

// copy is what a proxy does to have node k back.
func (c *Config) copy(s *state, k int, out emit) {
	n := &s.nodes[k]
	if n.out == 0 {
		return
	}
	if n.wait == 0 || !c.ReadAfter {
		for j := range c.Nodes {
			if m := &s.nodes[j]; j != k && (m.out == 0 || !c.ReadVoters) && (n.copying == 0 || !has(m.readBy, int(n.copying))) {
				c.read(s, k, j, out)
			}
		}
	}
	if n.copying > 0 && n.wait == 0 && c.enough(s, int(n.copying)) {
		c.commit(s, k, out)
	}
	if c.Long && n.long == 0 {
		c.fallBack(s, k, out)
	}
}

// fallBack ends the time that a node is out without a copy. Its floor is then its clock, which is ahead of all fences.
func (c *Config) fallBack(s *state, k int, out emit) {
	t := *s
	m := &t.nodes[k]
	m.counter = max(m.counter, s.largest)
	for j := range t.nodes {
		m.counter = max(m.counter, t.nodes[j].counter)
	}
	m.floor, m.out, m.wait = m.counter, 0, 0
	t.endCopy(m)
	c.forgetGhost(m)
	out(t, c.step(fellBack, -1, k), "")
}

func (c *Config) enough(s *state, number int) bool {
	reads, need := 0, c.quorum()
	for k := range s.nodes {
		reads += int(s.nodes[k].readBy >> number & 1)
	}
	if !c.ReadQuorum {
		need--
	}
	return reads >= need
}

// read adds what node j has to the copy for node k.
func (c *Config) read(s *state, k, j int, out emit) {
	t := *s
	m, from := &t.nodes[k], &t.nodes[j]
	if m.copying == 0 {
		m.copying = t.freeNumber()
	}
	from.readBy |= 1 << m.copying
	for x := range c.locks {
		if rem := from.rem[x]; rem > 0 {
			m.holds |= 1 << x
			c.stays(m, rem)
			m.has = max(m.has, from.fence)
		}
	}
	if from.doubt > 0 {
		m.holds |= from.marked
		c.stays(m, from.doubt)
	}
	m.upTo = max(m.upTo, from.counter)
	out(t, c.step("is copied to from another", -1, k), "")
}

// stays has the marker be there for as long as a hold that was read.
func (c *Config) stays(m *node, rem uint8) {
	if m.rest == 0 || c.Latest {
		m.rest = max(m.rest, rem)
	} else {
		m.rest = min(m.rest, rem)
	}
}

// freeNumber is a number for a copy that no other has.
func (s *state) freeNumber() uint8 {
	for number := uint8(1); ; number++ {
		used := false
		for k := range s.nodes {
			used = used || s.nodes[k].copying == number
		}
		if !used {
			return number
		}
	}
}

// endCopy forgets the copy under way to a node.
func (s *state) endCopy(m *node) {
	for k := range s.nodes {
		if m.copying > 0 {
			s.nodes[k].readBy &^= 1 << m.copying
		}
	}
	m.copying, m.holds, m.rest, m.has, m.upTo = 0, 0, 0, 0, 0
}

// commit ends a copy: the node is back.
func (c *Config) commit(s *state, k int, out emit) {
	t := *s
	m := &t.nodes[k]
	holds, broken := m.holds, ""
	if c.Tombs {
		holds &^= m.over
	}
	if holds&m.over != 0 {
		broken = "M: a name stays marked for a hold that was given back here"
	}
	if c.Floor {
		m.counter = max(m.counter, m.upTo)
		m.floor = m.counter
	}
	m.out = 0
	if !c.AllOwners {
		holds = c.ofLast(holds)
	}
	switch {
	case holds == 0:
	case c.Abstains || c.ownersOf(holds) > 1:
		m.marked, m.doubt = holds, m.rest
	default:
		c.takeOver(m, holds)
	}
	if c.Generation { // else its messages may be executed again
		t.endCopy(m)
	}
	what := back
	if m.doubt > 0 {
		what = marked
	}
	if c.forgetGhost(m) {
		what = cleared
	}
	out(t, c.step(what, -1, k), broken)
}

// takeOver makes a record of what was copied, which is no ghost.
func (c *Config) takeOver(m *node, holds uint8) {
	m.record = record{fence: m.has, told: 1, restored: 1}
	if c.Vouches {
		m.told = 0
	}
	for x := range c.locks {
		if has(holds, x) {
			m.rem[x] = m.rest
		}
	}
	m.raise(m.has)
}

func (c *Config) ownersOf(holds uint8) (n int) {
	var owners uint8
	for x := range c.locks {
		if has(holds, x) && !has(owners, int(c.locks[x].owner)) {
			owners |= 1 << c.locks[x].owner
			n++
		}
	}
	return n
}

// ofLast are the holds of the last of the owners.
func (c *Config) ofLast(holds uint8) (its uint8) {
	last := -1
	for x := range c.locks {
		if has(holds, x) {
			last = int(c.locks[x].owner)
		}
	}
	for x := range c.locks {
		if int(c.locks[x].owner) == last {
			its |= holds & (1 << x)
		}
	}
	return its
}

// forgetGhost removes a record at or under the floor, as every script does that looks at it, and reports whether there was one.
func (c *Config) forgetGhost(m *node) bool {
	if !c.Ghosts || c.owner(&m.record) == 0 || m.fence > m.floor || m.restored == 1 {
		return false
	}
	m.record.free()
	return true
}
