package main

// nodeSteps: everything that may be executed on node k next.
func (c *Config) nodeSteps(s *state, k int, out emit) {
	n := &s.nodes[k]
	if s.losses > 0 && (n.owner != free || n.counter != 0 || n.noted != 0) {
		t := *s
		m := &t.nodes[k]
		m.clearHold()
		m.counter, m.noted, m.quarantine = 0, 0, uint8(c.Quarantine)
		m.flags |= forgot
		t.losses--
		out(t, step{"node forgets", k, -1, 0, ""})
	}
	if n.flags&acqA != 0 {
		c.lateAcquire(s, k, out)
	}
	if n.flags&relA != 0 {
		c.releaseA(s, k, out)
	}
	if n.flags&acqB != 0 {
		c.acquireB(s, k, out)
	}
	if n.flags&relB != 0 {
		t := *s
		m := &t.nodes[k]
		m.flags &^= relB
		if m.owner == ownB {
			m.clearHold()
			out(t, step{"B's release", k, -1, 0, ""})
		}
	}
	c.forceNode(s, k, out)
	for p := range s.proxies {
		c.readNode(s, k, p, out)
		c.noteNode(s, k, p, out)
	}
	for r := range s.rounds {
		if n.sent>>r&1 == 1 {
			c.renewNode(s, k, r, out)
		}
	}
}

func (n *node) votes() bool { return n.quarantine == 0 }

// next is the fence an acquire with that proposal gets here.
func (n *node) next(proposal uint8) uint8 {
	if n.counter == 0 && n.flags&forgot != 0 {
		return max(floor, proposal)
	}
	return max(n.counter+1, proposal)
}

// ends calls f with every lease the node's clock may make of ttl.
func (c *Config) ends(ttl int, f func(rem uint8)) {
	for d := ttl - c.Drift; d <= ttl; d++ {
		f(uint8(d))
	}
}

// lateAcquire executes A's first acquire, late or again; nobody counts it.
func (c *Config) lateAcquire(s *state, k int, out emit) {
	n := &s.nodes[k]
	if !n.votes() || n.owner != free {
		return
	}
	c.ends(c.Long, func(rem uint8) {
		t := *s
		m := &t.nodes[k]
		m.flags &^= acqA
		m.counter = m.next(fence)
		m.owner, m.rem, m.fence, m.version = ownA, rem, m.counter, 0
		out(t, step{"A's late acquire", k, -1, int(rem), ""})
	})
}

// releaseA is the final release of A's attempt: it removes the hold if there is
// one, and votes whether nobody has been granted the name since.
func (c *Config) releaseA(s *state, k int, out emit) {
	t := *s
	m := &t.nodes[k]
	m.flags &^= relA
	mine := m.owner == ownA && m.fence == fence
	gone := mine && (m.putBack == 0 || !c.ReadsGranted)
	nobodySince := mine || m.owner != ownB && m.counter <= fence || !c.UnlockAsks
	if m.owner == ownA {
		m.clearHold()
	}
	if c.Burn {
		m.counter = max(m.counter, burnt)
	}
	if m.votes() && s.unlocker != 0 {
		m.flags |= relOK*bit(nobodySince) | relGone*bit(gone)
		m.clear = 1 - m.noted
	}
	out(t, step{"A's release", k, -1, 0, ""})
}

func (c *Config) acquireB(s *state, k int, out emit) {
	n := &s.nodes[k]
	if !n.votes() || n.owner == ownA {
		return
	}
	c.ends(c.Long, func(rem uint8) {
		t := *s
		m := &t.nodes[k]
		m.flags &^= acqB
		m.owner, m.rem, m.counter = ownB, max(m.rem, rem), m.next(propB)
		if s.bPhase == 1 {
			m.flags |= okB
		}
		out(t, step{"B's acquire", k, -1, int(rem), ""})
	})
}

func (c *Config) readNode(s *state, k, p int, out emit) {
	n := &s.nodes[k]
	if s.proxies[p].phase != polling || n.read[p].version != 0 || n.owner != ownA {
		return
	}
	if c.VotesOnly && !n.votes() || c.FenceMatch && n.fence != fence || c.ReadsGranted && n.putBack == 1 {
		return
	}
	t := *s
	t.nodes[k].read[p] = reading{n.version + 1, n.rem}
	out(t, step{"is read by the proxy", k, p, int(n.rem), ""})
}

// noteNode notes that proxy p is about to shorten; only a node that votes counts.
func (c *Config) noteNode(s *state, k, p int, out emit) {
	if s.nodes[k].noting>>p&1 == 0 {
		return
	}
	t := *s
	m := &t.nodes[k]
	m.noting &^= 1 << p
	m.noted = 1
	if m.votes() || !c.VotesOnly {
		m.notes |= 1 << p
	}
	out(t, step{"notes that it may be shortened", k, p, 0, ""})
}

// verdict is what a node makes of a renewal of a hold it has.
type verdict uint8

const (
	stale verdict = iota
	repeat
	apply
)

func (c *Config) judge(s *state, n *node, r int) verdict {
	nr := &s.rounds[r]
	if n.version == uint8(r+1) && c.Version != anyVersion {
		return repeat
	}
	stored := s.numberOf(n.version)
	switch c.Version {
	case anyVersion:
		return apply
	case largerNumber, uniqueNumber:
		if nr.number > stored {
			return apply
		}
		if nr.number == stored && c.Version == largerNumber {
			return repeat
		}
		return stale
	}
	if nr.foreign == 1 {
		if n.base[r] == n.version+1 {
			return apply
		}
		return stale
	}
	if s.lineageOf(n.version) == nr.lineage && nr.number > stored {
		return apply
	}
	return stale
}

func (s *state) lineageOf(version uint8) uint8 {
	if version == 0 {
		return 0
	}
	return s.rounds[version-1].lineage
}

// renewNode executes round r's renewal on node k, its answer counted or lost.
func (c *Config) renewNode(s *state, k, r int, out emit) {
	n, nr := &s.nodes[k], &s.rounds[r]
	mine := n.owner == ownA && (n.fence == fence || !c.FenceMatch)
	v := stale
	if mine {
		v = c.judge(s, n, r)
	} else if n.owner == free && c.putsBack(n, nr) {
		v = apply
	}
	if v == stale {
		return
	}
	counted := (n.votes() || !c.VotesOnly) && (mine || c.RepairVotes)
	what := "repeats renewal"
	if v == apply {
		what = "renews"
		if !mine {
			what = "puts back"
		}
	}
	c.ends(int(nr.ttl), func(rem uint8) {
		t := *s
		m := &t.nodes[k]
		if !c.Dup {
			m.sent &^= 1 << r
		}
		if v == apply {
			m.applyRenewal(nr, r, rem)
		}
		c.answer(s, t, k, r, counted, step{what, k, int(nr.proxy), int(rem), ""}, out)
	})
}

// putsBack reports whether a renewal makes the record anew on n, where the name is free.
func (c *Config) putsBack(n *node, nr *round) bool {
	return (nr.foreign == 0 || c.ForeignRepair) && (n.counter <= fence || !c.Guard) && (n.noted == 0 || !c.NotedRefuses)
}

func (n *node) applyRenewal(nr *round, r int, rem uint8) {
	if nr.grow == 1 && n.owner == ownA {
		rem = max(rem, n.rem)
	}
	if n.owner == free {
		n.putBack = 1
	}
	n.owner, n.rem, n.version, n.fence = ownA, rem, uint8(r+1), fence
	n.counter = max(n.counter, fence)
}

// answer emits t, with the vote received if its proxy still waits for it. A vote
// that is lost needs no state of its own: no proxy is ever obliged to count.
func (c *Config) answer(s *state, t state, k, r int, counted bool, st step, out emit) {
	x := &s.proxies[s.rounds[r].proxy]
	if counted && x.phase == renewing && int(x.round) == r {
		before, m := &s.nodes[k], &t.nodes[k]
		m.dropVote(r)
		m.voted |= 1 << r
		m.vnoted |= bit(before.noted == 1 && before.owner == ownA) << r
		m.vput |= bit(before.owner != ownA) << r
		m.vtold |= m.putBack << r
		st.what += ", votes"
	}
	out(t, st)
}
