package main

import "math/bits"

// nodeSteps: everything that may be executed on node k next.
func (c *Config) nodeSteps(s *state, k int, out emit) {
	n := &s.nodes[k]
	for h := range maxHolds {
		if n.acquires>>h&1 == 1 {
			c.acquire(s, k, h, out)
		}
		if n.undoes>>h&1 == 1 {
			c.undo(s, k, h, out)
		}
	}
	for i := range s.slots {
		if n.releases>>i&1 == 1 {
			c.release(s, k, i, out)
		}
	}
	for r := range s.rounds {
		if n.sent>>r&1 == 1 {
			c.renew(s, k, r, out)
		}
	}
	for p := range s.proxies {
		c.read(s, k, p, out)
		c.noteNode(s, k, p, out)
	}
	c.nodeRival(s, k, out)
	if s.losses > 0 && (n.owner != free || n.counter != 0) {
		t := *s
		t.losses--
		m := &t.nodes[k]
		m.clearRecord()
		m.counter, m.marked, m.noted, m.quarantine = 0, 0, 0, uint8(c.Quarantine)
		out(t, step{"a node forgets", -1, -1, -1}, "")
	}
}

// ends calls f with every lease a node's clock may make of ttl.
func (c *Config) ends(ttl int, f func(rem uint8)) {
	for d := ttl - c.Drift; d <= ttl; d++ {
		f(uint8(d))
	}
}

func (c *Config) acquire(s *state, k, h int, out emit) {
	n := &s.nodes[k]
	if n.quarantine > 0 || n.owner == ownB || n.marked>>h&1 == 1 {
		return
	}
	c.ends(c.ttl(h), func(rem uint8) {
		t := *s
		m := &t.nodes[k]
		m.acquires &^= 1 << h
		switch {
		case h == fresh:
			m.create(max(m.counter+1, fenceFresh))
		case m.owner == free:
			m.create(m.counter + 1)
		default:
			c.add(m, s.lockFence, s.lockKnows)
			if !c.OwnEnds {
				for i := range m.rem {
					if m.rem[i] > 0 {
						m.rem[i] = max(m.rem[i], rem)
					}
				}
			}
		}
		m.rem[h] = rem
		if c.CountEnds {
			t.since[h] = uint8(c.ttl(h))
		}
		broken := c.outlives(&t, m)
		if int(s.locking) == h+1 && m.told == 0 && (h == fresh && m.fence == fenceFresh || h != fresh && m.fence == fenceA && n.owner == ownA) {
			// a vote that is lost needs no state of its own: nobody is obliged to count
			m.votes = 1
		}
		out(t, step{"a node acquires", h, -1, int(rem)}, broken)
	})
}

// create makes A's record anew, for a new grant.
func (n *node) create(fence uint8) {
	n.clearRecord()
	n.owner, n.fence, n.counter = ownA, fence, fence
}

func (n *node) mark(c *Config, hold int, wanted bool) {
	if c.Marks && wanted {
		n.marked |= 1 << hold
	}
}

func (n *node) markAll(c *Config, holds uint8) {
	for h := range n.rem {
		n.mark(c, h, holds>>h&1 == 1)
	}
}

// add adds the holds of that grant that n lacks, unless they are marked.
func (c *Config) add(n *node, fence uint8, known rests) {
	if n.owner != ownA || n.fence != fence {
		return
	}
	end := largest(n.rem)
	for h, rem := range known {
		if n.rem[h] > 0 || rem == 0 || (n.marked|n.ended)>>h&1 == 1 {
			continue
		}
		n.rem[h] = rem
		if c.BoundAdded {
			n.rem[h] = min(rem, end)
		}
	}
}

// outlives is the broken promise E, if any.
func (c *Config) outlives(s *state, n *node) string {
	if !c.CountEnds || n.owner != ownA {
		return ""
	}
	for h := range n.rem {
		if s.renewed>>h&1 == 0 && n.rem[h] > s.since[h] {
			return "E: a hold that no RENEW reached outlives its ttl"
		}
	}
	return ""
}

func (c *Config) undo(s *state, k, h int, out emit) {
	t := *s
	m := &t.nodes[k]
	m.undoes &^= 1 << h
	mine := m.owner == ownA
	if mine {
		m.rem[h] = 0
		m.ended &^= 1 << h
		if m.rem == (rests{}) {
			m.clearRecord()
		}
	}
	m.mark(c, h, !mine || m.owner == ownA)
	out(t, step{"a node undoes", h, -1, -1}, "")
}

func (c *Config) release(s *state, k, i int, out emit) {
	u := &s.slots[i]
	c.releaseWith(s, k, i, u.rem, out)
	if c.BareRetries && u.rem != (rests{}) {
		c.releaseWith(s, k, i, rests{}, out) // a retry
	}
}

// releaseWith is release by a message that carries these other holds.
func (c *Config) releaseWith(s *state, k, i int, known rests, out emit) {
	t := *s
	n, m, u := &s.nodes[k], &t.nodes[k], &s.slots[i]
	m.releases &^= 1 << i
	var answer uint8
	switch {
	case n.owner == ownA && n.fence == u.fence:
		c.add(m, u.fence, known)
		for h := range m.rem {
			if u.holds>>h&1 == 1 {
				m.rem[h] = 0
			}
		}
		if c.TakesOver {
			t.takeOver(m, n.rem, u.holds, known)
		}
		m.ended &^= u.holds
		left := largest(m.rem)
		if c.NodeChecks && left > 0 && left < largest(n.rem) && u.noted == 0 {
			c.refuseRelease(s, k, i, out)
			return
		}
		if left == 0 {
			m.clearRecord()
			m.counter = max(m.counter, u.fence+1)
		}
		for h := range m.rem {
			m.mark(c, h, u.holds>>h&1 == 1 && (n.rem[h] == 0 && n.ended>>h&1 == 0 || left > 0))
		}
		answer = done
		if n.told == 0 {
			answer |= gone
		}
	case n.owner == ownA:
		m.markAll(c, u.holds)
	default:
		if n.owner == free && n.counter <= u.fence {
			answer = done
		}
		m.markAll(c, u.holds)
		m.counter = max(m.counter, u.fence+1)
	}
	if n.noted < u.fence {
		answer |= clear
	}
	broken := c.outlives(&t, m)
	t.answerRelease(k, u, i, answer)
	out(t, step{"a node releases", one(u.holds), -1, -1}, broken)
}

// refuseRelease asks the proxy that still waits to have the grant noted first.
func (c *Config) refuseRelease(s *state, k, i int, out emit) {
	t := *s
	t.nodes[k].releases &^= 1 << i
	t.answerRelease(k, &s.slots[i], i, refuse)
	if t.nodes[k].unlock != s.nodes[k].unlock {
		out(t, step{"a node refuses to release", one(s.slots[i].holds), -1, -1}, "")
	}
}

// answerRelease tells the proxy, if it still awaits that; a lost answer is one nobody counts.
func (s *state) answerRelease(k int, u *slot, i int, answer uint8) {
	x := &s.proxies[u.proxy]
	if n := &s.nodes[k]; n.quarantine == 0 && x.phase == sends && x.op == unlock && int(x.slot) == i {
		n.unlock[u.proxy] = answer
	}
}

func (c *Config) read(s *state, k, p int, out emit) {
	n := &s.nodes[k]
	if s.proxies[p].phase != reads || n.read[p].version != 0 || n.owner != ownA || n.told == 1 || n.quarantine > 0 {
		return
	}
	t := *s
	t.nodes[k].read[p] = reading{n.version + 1, n.fence, n.rem}
	out(t, step{"a node is read by", -1, p, -1}, "")
}

func (c *Config) noteNode(s *state, k, p int, out emit) {
	if s.nodes[k].noting>>p&1 == 0 {
		return
	}
	t := *s
	m := &t.nodes[k]
	m.noting &^= 1 << p
	m.noted = max(m.noted, s.notes(p))
	if m.quarantine == 0 {
		m.notes |= 1 << p
	}
	out(t, step{"a node notes for", -1, p, -1}, "")
}

func (c *Config) renew(s *state, k, r int, out emit) {
	n, nr := &s.nodes[k], &s.rounds[r]
	mine := n.owner == ownA && n.fence == nr.fence
	repeat := mine && n.version == uint8(r+1)
	applies := false
	switch {
	case mine && nr.foreign == 1:
		applies = n.base[r] == n.version+1
	case mine:
		applies = s.lineageOf(n.version) == nr.lineage && nr.number > s.numberOf(n.version)
	case n.owner == free:
		applies = nr.foreign == 0 && n.counter <= nr.fence && (n.noted < nr.fence || !c.NotedRefuses) && nr.holds&^n.marked != 0
	}
	if !applies && !repeat {
		return
	}
	if applies && c.NamesAll && nr.foreign == 0 && n.hasOthers(nr.holds) {
		t := *s
		m := &t.nodes[k]
		m.sent &^= 1 << r
		if x := &s.proxies[nr.proxy]; m.quarantine == 0 && x.phase == sends && x.op == renewal && int(x.round) == r {
			m.refused |= 1 << r
		}
		out(t, step{"a node has other holds", -1, int(nr.proxy), -1}, "")
		return
	}
	c.ends(int(nr.ttl), func(rem uint8) {
		t := *s
		m := &t.nodes[k]
		m.sent &^= 1 << r
		if applies {
			if m.owner == free {
				m.create(nr.fence)
				m.told = 1
			}
			m.version = uint8(r + 1)
			for h := range m.rem {
				switch {
				case nr.holds>>h&1 == 1 && m.marked>>h&1 == 0:
					m.rem[h] = rem
					m.ended &^= 1 << h
				case c.Raises && m.rem[h] > 0 && m.rem[h] < rem:
					m.rem[h] = rem
					if c.CountEnds {
						t.renewed |= 1 << h
					}
				}
			}
		}
		if x := &s.proxies[nr.proxy]; m.quarantine == 0 && x.phase == sends && x.op == renewal && int(x.round) == r {
			m.voted |= 1 << r
			m.vnoted |= bit(mine && n.noted >= nr.fence) << r
			m.vtold |= m.told << r
		}
		out(t, step{"a node renews for", -1, int(nr.proxy), int(rem)}, "")
	})
}

// takeOver lets holds that were taken after those given back, and that the proxy does not know, end no earlier than these did.
func (s *state) takeOver(n *node, was rests, given uint8, known rests) {
	last := bits.Len8(given) - 1
	for h := last + 1; h < maxHolds; h++ {
		for g := range was {
			if given>>g&1 == 1 && known[h] == 0 && n.rem[h] > 0 && n.rem[h] < was[g] {
				n.rem[h] = was[g]
				s.since[h] = max(s.since[h], s.since[g])
			}
		}
	}
}

// hasOthers reports whether A has other live holds here.
func (n *node) hasOthers(holds uint8) bool {
	for h, rem := range n.rem {
		if rem > 0 && holds>>h&1 == 0 {
			return true
		}
	}
	return false
}

func (c *Config) nodeRival(s *state, k int, out emit) {
	n := &s.nodes[k]
	if n.flags&acqB != 0 && n.quarantine == 0 && n.owner != ownA {
		c.ends(c.Rival, func(rem uint8) {
			t := *s
			m := &t.nodes[k]
			m.flags &^= acqB
			m.owner, m.rem, m.counter = ownB, rests{rem}, max(m.counter+1, fenceB)
			if s.bPhase == 1 {
				m.flags |= okB
			}
			out(t, step{"a node acquires for B", -1, -1, int(rem)}, "")
		})
	}
	if n.flags&relB != 0 && n.owner == ownB {
		t := *s
		m := &t.nodes[k]
		m.flags &^= relB
		m.clearRecord()
		out(t, step{"a node releases B's", -1, -1, -1}, "")
	}
}
