package main

// nodeSteps: everything that may be executed on node k next.
func (c *Config) nodeSteps(st *state, k int, out emit) {
	n := &st.nodes[k]
	for who := range owners {
		if n.acquires>>who&1 == 1 {
			c.acquire(st, k, who, out)
		}
		if n.undoes>>who&1 == 1 {
			c.undo(st, k, who, out)
		}
		if n.notes>>who&1 == 1 {
			c.note(st, k, who, out)
		}
	}
	for i := range c.Renewals {
		if n.renewals>>i&1 == 1 {
			c.renew(st, k, i, out)
		}
	}
	if n.releases == 1 {
		c.release(st, k, out)
	}
	if st.losses > 0 && (n.owner != 0 || n.counter != 0) {
		t := *st
		t.losses--
		m := &t.nodes[k]
		m.free()
		m.counter, m.noted, m.marked, m.quarantine = 0, 0, 0, uint8(c.Quarantine)
		if !c.VotesOnly {
			m.counter, m.quarantine = floor, 0
		}
		out(t, step{"a node forgets", -1}, "")
	}
}

// ends calls f with every lease that a node's clock may make of ttl.
func (c *Config) ends(ttl int, f func(rem uint8)) {
	for d := ttl - c.Drift; d <= ttl; d++ {
		f(uint8(d))
	}
}

func (c *Config) acquire(st *state, k, who int, out emit) {
	n := &st.nodes[k]
	of := c.target(who)
	mine := n.owner == uint8(who+1)
	there := of >= 0 && n.owner == uint8(of+1) && n.fence == st.lockers[of].fence
	drops := !mine && n.owner != 0 && of >= 0 && (there || !c.Exact)
	if n.quarantine > 0 || n.marked>>who&1 == 1 || n.owner != 0 && !mine && !drops || n.owner == 0 && of >= 0 && c.OnlyThere {
		return
	}
	ttl := c.Others
	if who == a {
		ttl = c.First
	}
	c.ends(ttl, func(rem uint8) {
		t := *st
		m := &t.nodes[k]
		if !c.Dup {
			m.acquires &^= 1 << who
		}
		if drops {
			was := int(n.owner) - 1
			if c.Marks {
				m.marked |= 1 << was
			}
			if c.NotesDrop {
				m.noted = max(m.noted, n.fence)
			}
			if was == of {
				t.lockers[was].void, t.lockers[was].told = 1, 0
			}
		}
		if !mine {
			fence := max(m.counter+1, proposals[who])
			m.owner, m.fence, m.told, m.rem, m.counter = uint8(who+1), fence, 0, rem, fence
		}
		if st.lockers[who].phase == asking {
			m.vote[who] = m.fence
		}
		out(t, step{"a node executes the LOCK", who}, "")
	})
}

// undo also stands for the UNLOCK of R, S and B: it raises the counter above their fence.
func (c *Config) undo(st *state, k, who int, out emit) {
	t := *st
	m := &t.nodes[k]
	m.undoes &^= 1 << who
	if m.owner == uint8(who+1) {
		m.free()
	}
	m.marked |= 1 << who
	if f := st.lockers[who].fence; f > 0 {
		m.counter = max(m.counter, f+1)
	}
	out(t, step{"a node ends the hold", who}, "")
}

func (c *Config) note(st *state, k, who int, out emit) {
	t := *st
	m := &t.nodes[k]
	m.notes &^= 1 << who
	m.noted = max(m.noted, st.lockers[c.target(who)].fence)
	if st.lockers[who].phase == noting && (m.quarantine == 0 || !c.VotesOnly) {
		m.vnoted |= 1 << who
	}
	out(t, step{"a node notes what is to be replaced, for the LOCK", who}, "")
}

func (c *Config) renew(st *state, k, i int, out emit) {
	n := &st.nodes[k]
	mine := n.owner == a+1 && n.fence == fenceA
	back := n.owner == 0 && n.marked>>a&1 == 0 && (n.counter <= fenceA || !c.Guard) && (n.noted < fenceA || !c.Refuses)
	if !mine && !back {
		return
	}
	c.ends(c.First, func(rem uint8) {
		t := *st
		m := &t.nodes[k]
		m.renewals &^= 1 << i
		if back {
			m.owner, m.fence, m.told, m.counter = a+1, fenceA, 1, max(m.counter, fenceA)
		}
		m.rem = max(m.rem, rem)
		if int(st.renewing) == i+1 && n.quarantine == 0 {
			m.rvote, m.rnoted, m.rtold = 1, bit(n.noted >= fenceA), m.told
		}
		out(t, step{"a node executes the RENEW", a}, "")
	})
}

func (c *Config) release(st *state, k int, out emit) {
	n := &st.nodes[k]
	t := *st
	m := &t.nodes[k]
	m.releases = 0
	var answer uint8
	switch {
	case n.owner == a+1 && n.fence == fenceA:
		answer = removed
		if n.told == 1 {
			answer = put
		}
		m.free()
	case n.owner == a+1:
		m.free()
	case n.owner == 0 && n.counter <= fenceA:
		answer = none
	}
	if n.marked>>a&1 == 1 {
		answer |= late
	}
	m.marked |= 1 << a
	m.counter = max(m.counter, burnt)
	if n.noted < fenceA {
		answer |= clear
	}
	if st.unlocking == 1 && n.quarantine == 0 {
		m.unlock = answer
	}
	out(t, step{"a node executes the UNLOCK", a}, "")
}
