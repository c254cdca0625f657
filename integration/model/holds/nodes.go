package main

// nodeSteps: everything that may be executed on node k next, its answer counted or lost.
func (c *Config) nodeSteps(s *state, k int, out emit) {
	n := &s.nodes[k]
	for h := range maxHolds {
		if n.acquires>>h&1 == 1 {
			c.acquire(s, k, h, out)
		}
		if n.undoes>>h&1 == 1 {
			c.undo(s, k, h, out)
		}
		if n.releases>>h&1 == 1 {
			c.release(s, k, h, out)
		}
	}
	for i := range renewals {
		if n.renews>>i&1 == 1 {
			c.renew(s, k, i, out)
		}
	}
	c.forget(s, k, out)
	c.acquireB(s, k, out)
}

func (c *Config) acquire(s *state, k, h int, out emit) {
	n, hold := &s.nodes[k], uint8(1)<<h
	if n.quarantine == 1 || n.owner == ownB || n.marked&hold != 0 {
		return
	}
	t := *s
	m := &t.nodes[k]
	m.acquires &^= hold
	kind := uint8(anew)
	switch {
	case m.owner == ownA && m.told == 1:
		kind = keptTold
	case m.owner == ownA:
		kind = kept
	default:
		m.owner, m.holds, m.told, m.grant = ownA, 0, 0, uint8(h+1)
		m.fence = max(m.counter+1, uint8(h+1))
		m.counter = m.fence
	}
	m.holds |= hold
	out(t, step{"a node acquires, answer lost:", h, -1}, "")
	if s.phase == locking && int(s.hold) == h {
		m.lock, m.lockFence, m.lockOf = kind, m.fence, m.grant
		out(t, step{"a node acquires:", h, -1}, "")
	}
}

// undo removes a hold of a LOCK that was not granted, and marks it unless that frees the
// record: a failed LOCK of a free name leaves no key behind.
func (c *Config) undo(s *state, k, h int, out emit) {
	t := *s
	m := &t.nodes[k]
	m.undoes &^= 1 << h
	had := m.owner == ownA
	c.remove(m, 1<<h)
	if !had || m.owner == ownA {
		c.mark(m, 1<<h)
	}
	out(t, step{"a node undoes:", h, -1}, "")
}

func (c *Config) release(s *state, k, h int, out emit) {
	l := s.unlocks[h]
	c.releaseWith(s, k, h, l, out)
	if l.holds != 0 {
		l.holds = 0 // a retry
		c.releaseWith(s, k, h, l, out)
	}
}

// releaseWith is release by a message that carries this list.
func (c *Config) releaseWith(s *state, k, h int, l list, out emit) {
	t := *s
	n, m := &s.nodes[k], &t.nodes[k]
	hold := uint8(1) << h
	m.releases &^= hold
	had := n.owner == ownA && n.holds&hold != 0
	counts := had
	if n.owner == ownA && c.isGrant(n, l) {
		m.holds |= l.holds &^ n.marked
		counts = true
	}
	c.remove(m, hold)
	if m.owner != ownA {
		m.counter = max(m.counter, l.fence+1)
	}
	freed := n.owner == ownA && m.owner != ownA
	spared := c.Spares && had && freed && m.counter > max(l.fence, n.fence)
	if !spared && !(c.NoAbsent && !had) && !(c.NoLeft && m.owner == ownA) {
		c.mark(m, hold)
	}
	out(t, step{"a node releases, answer lost:", h, -1}, "")
	if m.owner != ownA {
		counts = true
	} else if n.told == 1 && c.Told {
		counts = false
	}
	if counts && m.quarantine == 0 && s.phase == unlocking && int(s.hold) == h {
		m.released, m.left = 1, 0
		if m.owner == ownA {
			m.left = count(m.holds)
		}
		out(t, step{"a node releases:", h, -1}, "")
	}
}

// isGrant reports whether n has the grant that l is of, so that it adds the holds it lacks.
func (c *Config) isGrant(n *node, l list) bool {
	return c.Carry && n.owner == ownA && n.fence == l.fence && (n.grant == l.grant || !c.ByID)
}

// remove takes a hold from A's record; the last one frees the name.
func (c *Config) remove(n *node, hold uint8) {
	if n.owner != ownA {
		return
	}
	if n.holds &^= hold; n.holds != 0 {
		return
	}
	n.owner, n.fence, n.told, n.grant = free, 0, 0, 0
	if !c.Outlive {
		n.marked = 0
	}
}

func (c *Config) mark(n *node, hold uint8) {
	if c.Marks && (c.Outlive || n.owner == ownA) {
		n.marked |= hold
	}
}

// appliesTo reports whether a renewal with that list is applied to n's record.
func (c *Config) appliesTo(n *node, l list) bool {
	if c.Carry {
		return c.isGrant(n, l)
	}
	return n.owner == ownA && n.fence == l.fence && (l.holds&^n.holds == 0 || c.Any && l.holds&n.holds != 0)
}

func (c *Config) renew(s *state, k, i int, out emit) {
	t := *s
	m, l := &t.nodes[k], s.renewals[i]
	m.renews &^= 1 << i
	add := l.holds &^ m.marked
	vote := true
	switch {
	case c.appliesTo(m, l):
		if c.Carry {
			m.holds |= add
		}
	case m.owner == free && m.counter <= l.fence && add != 0:
		m.owner, m.fence, m.grant, m.holds, m.told, m.counter = ownA, l.fence, l.grant, add, 1, l.fence
	default:
		vote = false
	}
	out(t, step{"a node renews, answer lost", -1, -1}, "")
	if vote && m.quarantine == 0 && s.phase == renewing && int(s.slot) == i {
		m.renewed = 1
		out(t, step{"a node renews", -1, -1}, "")
	}
}

// forget: a node loses its memory, or votes again.
func (c *Config) forget(s *state, k int, out emit) {
	n := &s.nodes[k]
	if s.lossesLeft > 0 && (n.owner != free || n.counter != 0) {
		t := *s
		t.lossesLeft--
		t.renewedSince = 0
		t.old = bit(t.phase != idle)
		m := &t.nodes[k]
		m.owner, m.holds, m.fence, m.grant, m.told, m.counter, m.marked, m.quarantine = free, 0, 0, 0, 0, 0, 0, 1
		out(t, step{"a node forgets", -1, -1}, "")
	}
	if n.quarantine == 1 && (s.renewedSince == 1 || s.open() == 0 && s.phase != locking && s.phase != renewing && s.rival != 1) {
		t := *s
		if s.renewedSince == 0 { // what proxies remember has ended meanwhile
			t.memory = [proxies]list{}
		}
		m := &t.nodes[k]
		m.quarantine, m.counter = 0, max(m.counter, s.largest())
		out(t, step{"a node votes again", -1, -1}, "")
	}
}

func (c *Config) acquireB(s *state, k int, out emit) {
	n := &s.nodes[k]
	if n.acquireB == 1 && n.quarantine == 0 && n.owner == free {
		t := *s
		m := &t.nodes[k]
		m.acquireB, m.owner, m.counter = 0, ownB, m.counter+1
		m.acceptedB = bit(s.rival == 1)
		out(t, step{"a node acquires for B", -1, -1}, "")
	}
	if n.undoB == 1 && n.owner == ownB {
		t := *s
		m := &t.nodes[k]
		m.undoB, m.owner = 0, free
		out(t, step{"a node undoes B's", -1, -1}, "")
	}
}
