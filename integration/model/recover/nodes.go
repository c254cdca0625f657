package main

// node is what may be executed on node k next.
func (c *Config) node(s *state, k int, out emit) {
	n := &s.nodes[k]
	for x := range c.locks {
		if has(n.acquires, x) {
			c.acquire(s, k, x, out)
		}
		if has(n.settles, x) {
			c.settle(s, k, x, out)
		}
		if has(n.releases, x) {
			c.release(s, k, x, out)
		}
	}
	if n.renewal == 1 {
		c.renew(s, k, true, out)
	}
	if n.late == 1 {
		c.renew(s, k, false, out)
	}
	if n.carried == 1 {
		c.restore(s, k, out)
	}
	c.lose(s, k, out)
	c.copy(s, k, out)
}

// votes reports whether a node has a vote about the name.
func (n *node) votes() bool { return n.out == 0 && n.doubt == 0 }

func (n *node) stage() stage {
	switch {
	case n.out == 0:
		return voting
	case n.wait == 0:
		return reading
	}
	return waiting
}

// number is what a node proposes as the fence of a grant.
func (n *node) number() uint8 {
	f := n.seen
	if f == 0 {
		f = n.counter
	}
	return max(f, n.floor) + 1
}

func (n *node) raise(f uint8) { n.seen, n.counter = max(n.seen, f), max(n.counter, f) }

// ends calls f with every lease that a node's clock may make of the ttl.
func (c *Config) ends(ttl int, f func(rem uint8)) {
	for d := ttl - c.Drift; d <= ttl; d++ {
		f(uint8(d))
	}
}

func (c *Config) acquire(s *state, k, x int, out emit) {
	n, a := &s.nodes[k], &s.attempts[x]
	if !n.votes() || c.inTheWay(&n.record, x) {
		return
	}
	reads, fresh := c.locks[x].reads, c.owner(&n.record) == 0
	c.ends(c.TTL, func(rem uint8) {
		t := *s
		m := &t.nodes[k]
		m.acquires &^= 1 << x
		f, kept := m.number(), uint8(0)
		switch {
		case reads:
			if m.seen > m.floor {
				f = m.seen
			}
			m.raise(f)
		case fresh:
			m.record = record{fence: f, numbers: uint8(x + 1), below: max(m.seen, m.floor)}
			m.raise(f)
		case m.told == 1:
			kept = unknown
		default:
			kept = m.fence
		}
		m.rem[x] = max(m.rem[x], rem)
		if a.phase == asking {
			if c.Lossy {
				out(t, c.step("grants, and nobody hears it", x, k), "")
			}
			m.vote[x], m.kept[x] = f, kept
		}
		if a.phase == settling || a.phase == holding && kept == 0 && a.fence != f {
			m.settles |= 1 << x
		}
		out(t, c.step("grants", x, k), "")
	})
}

func (c *Config) settle(s *state, k, x int, out emit) {
	t := *s
	m, a := &t.nodes[k], &t.attempts[x]
	m.settles &^= 1 << x
	if !m.votes() || m.rem[x] == 0 {
		return
	}
	if c.locks[x].reads {
		m.raise(a.fence)
	} else {
		c.store(m, x, a.fence)
	}
	if a.phase == settling {
		m.settled |= 1 << x
	}
	out(t, c.step("stores the fence", x, k), "")
}

// store has a record take over the fence of a LOCK, if it is not below what the name had here before.
func (c *Config) store(m *node, x int, f uint8) {
	most := m.number() - 1
	late := int(m.numbers) == x+1 && f >= max(m.below, m.floor)
	if f >= most || late {
		if f < most && m.seen == m.fence {
			m.seen = f
		}
		m.fence, m.told, m.restored, m.numbers = f, 0, 0, uint8(x+1)
	}
	m.raise(f)
	c.forgetGhost(m)
}

// release also stands for the undo of a LOCK that was not granted, and for FORCE, of which a node under a marker knows as any other does.
func (c *Config) release(s *state, k, x int, out emit) {
	t := *s
	m, a := &t.nodes[k], &t.attempts[x]
	inDoubt := m.doubt > 0
	m.releases &^= 1 << x
	there := m.rem[x] > 0
	m.rem[x] = 0
	switch {
	case c.locks[x].reads || c.owner(&m.record) == c.locks[x].owner+1:
	case a.phase != undone:
		m.raise(a.fence + 1)
	case there && int(m.numbers) == x+1 && m.seen == m.fence:
		if m.seen = m.below; m.below <= m.floor {
			m.seen = 0
		}
	}
	m.marked &^= 1 << x
	if m.marked == 0 || !c.ByHold {
		m.doubt = 0
	}
	m.over |= 1 << x
	if x == 0 && s.ending == 1 && m.out == 0 {
		m.ended = 1
		if inDoubt {
			m.ended = 2
		}
	}
	out(t, c.step("releases", x, k), "")
}

// renew executes a RENEW of the first LOCK: the one under way, or an older one.
func (c *Config) renew(s *state, k int, current bool, out emit) {
	n, f := &s.nodes[k], s.attempts[0].fence
	there := c.isKept(n, f)
	if n.out == 1 && c.BackOut || !there && !c.putsBack(s, n, f, current) {
		return
	}
	c.ends(c.Short, func(rem uint8) {
		t := *s
		m := &t.nodes[k]
		what := "renews"
		if !there {
			what = putBack
			c.makeAnew(m, record{fence: f, told: 1})
		}
		m.rem[0] = max(m.rem[0], rem)
		if current {
			m.renewal = 0
		} else {
			m.late = 0
		}
		if current && n.votes() {
			if c.Lossy {
				out(t, c.step(what+", and nobody hears it", 0, k), "")
			}
			m.renewed = 1
		}
		out(t, c.step(what, 0, k), "")
	})
}

// makeAnew begins the record of the first LOCK. One of readers is there already, or needs no more than holds.
func (c *Config) makeAnew(m *node, r record) {
	if !c.locks[0].reads {
		m.record = r
	}
	m.raise(r.fence)
}

// putsBack reports whether a node makes the record of a grant anew. The RENEW under way asks for it when a node has applied it.
func (c *Config) putsBack(s *state, n *node, f uint8, current bool) bool {
	if !c.isFree(n) || n.seen > f || has(n.over, 0) || c.BackFloor && f <= n.floor {
		return false
	}
	if !current {
		return true
	}
	for k := range s.nodes {
		if s.nodes[k].renewed == 1 {
			return true
		}
	}
	return false
}

// restore makes the record of a grant anew that a quorum of other nodes has renewed.
func (c *Config) restore(s *state, k int, out emit) {
	t := *s
	m, f := &t.nodes[k], s.attempts[0].fence
	m.carried = 0
	if m.stage() > c.CarryFrom || !c.isFree(m) || c.CarrySeen && (m.seen > f || has(m.over, 0)) {
		return
	}
	c.ends(c.Short, func(rem uint8) {
		u := t
		m := &u.nodes[k]
		if c.CarryEnd && has(m.marked, 0) {
			rem = max(rem, m.doubt)
		}
		c.makeAnew(m, record{fence: f, told: 1, restored: 1})
		m.rem[0] = rem
		what := restored
		if m.doubt == 0 {
			what = restoredLate
		}
		if m.marked &^= 1; m.marked == 0 || !c.CarryOwn {
			m.doubt = 0
		}
		out(u, c.step(what, 0, k), "")
	})
}
