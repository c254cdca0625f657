package main

// node is what may be executed on node k next.
func (c *Config) node(s *state, k int, out emit) {
	m := &s.nodes[k]
	for x := range c.locks {
		if has(m.acquires, x) {
			c.acquire(s, k, x, out)
		}
		for n := range c.locks[x].each() {
			i := &m.items[n]
			if has(i.settles, x) {
				c.settle(s, k, x, n, out)
			}
			if has(i.undoes, x) {
				c.undo(s, k, x, n, out)
			}
			if has(i.releases, x) {
				c.release(s, k, x, n, out)
			}
			if has(i.renews, x) {
				c.renew(s, k, x, n, out)
			}
		}
	}
	if s.losses > 0 && m.largest > 1 {
		t := *s
		t.losses--
		t.lost = 1
		m := &t.nodes[k]
		for n := range m.items {
			i := &m.items[n]
			i.record.free()
			i.counter, i.marks = 0, 0
		}
		m.largest, m.floor, m.floorless = 0, 0, 1
		if c.Quarantine {
			m.quarantine = uint8(c.TTL)
		}
		out(t, c.step(lost, -1, -1, k), "")
	}
	if m.floorless == 1 && m.quarantine == 0 {
		c.restore(s, k, out)
	}
}

// restore gives a node that forgot its floor, from a quorum of those that did not.
func (c *Config) restore(s *state, k int, out emit) {
	votes, floor := 0, s.nodes[k].largest
	for j := range s.nodes {
		if m := &s.nodes[j]; m.votes() {
			votes++
			floor = max(floor, m.largest)
		}
	}
	if votes < quorum {
		return
	}
	t := *s
	m := &t.nodes[k]
	m.floorless = 0
	if c.Floor {
		m.floor, m.largest = floor, floor
	}
	out(t, c.step(restored, -1, -1, k), "")
}

func (m *node) votes() bool { return m.quarantine == 0 && m.floorless == 0 }

// ends calls f with every lease that a node's clock may make of the ttl.
func (c *Config) ends(f func(short uint8)) {
	for d := range c.Drift + 1 {
		f(uint8(d))
	}
}

// number is what a node numbers a name's next grant with.
func (m *node) number(i *item) uint8 {
	seen := i.counter
	if seen == 0 {
		seen = m.largest
	}
	return max(seen, m.floor) + 1
}

// acquire grants all names of a LOCK, or none.
func (c *Config) acquire(s *state, k, x int, out emit) {
	if !s.nodes[k].votes() {
		return
	}
	l := &c.locks[x]
	var says [names]uint8 // 0: it may be granted
	refuses := false
	for n := range l.each() {
		i := &s.nodes[k].items[n]
		switch {
		case has(i.marks, x):
			says[n] = withheld
		case i.owner != 0 && !c.mine(i, x):
			says[n] = no + i.owner - 1
		}
		refuses = refuses || says[n] != 0
	}
	asks := s.attempts[x].phase == asking
	c.ends(func(short uint8) {
		t := *s
		m := &t.nodes[k]
		m.acquires &^= 1 << x
		stopped := false
		for n := range l.each() {
			stopped = stopped || says[n] != 0
			if says[n] == 0 && (!refuses || !c.All || !c.Looked && !stopped) {
				c.make(&t, k, x, n, short, !refuses || !c.All)
			}
			if i := &m.items[n]; refuses && asks && i.vote[x] == 0 {
				i.vote[x] = says[n]
				if says[n] == 0 {
					i.vote[x] = withheld
				}
			}
		}
		what := "a node grants"
		if refuses {
			what = refused
		}
		if asks && c.Lossy {
			u := t
			for n := range l.each() {
				i, old := &u.nodes[k].items[n], &s.nodes[k].items[n]
				i.vote[x], i.kept[x], i.grants[x] = old.vote[x], old.kept[x], old.grants[x]
			}
			out(u, c.step(what+", and nobody hears it", x, -1, k), "")
		}
		if t.dups > 0 {
			u := t
			u.dups--
			u.nodes[k].acquires |= 1 << x
			out(u, c.step(what+", and the message is there once more", x, -1, k), "")
		}
		out(t, c.step(what, x, -1, k), "")
	})
}

// make makes a hold of a name, and says so to the proxy, or not.
func (c *Config) make(s *state, k, x, n int, short uint8, says bool) {
	m, a, l := &s.nodes[k], &s.attempts[x], &c.locks[x]
	i := &m.items[n]
	f, kept, grant := m.number(i), uint8(0), uint8(0)
	if rem := l.ttl[n] - short; i.owner != 0 {
		kept, grant = i.fence, i.grant
		if i.told == 1 {
			kept = unknown
		}
		if has(i.holds, x) && i.grant == uint8(x+1) { // the message came again
			f, kept, grant = i.fence, 0, 0
		}
		i.entered |= 1 &^ (i.holds >> x)
		i.holds |= 1 << x
		i.rem = max(i.rem, rem)
	} else {
		i.record = record{owner: l.owner + 1, fence: f, grant: uint8(x + 1), holds: 1 << x, before: max(i.counter, m.floor), rem: rem}
		i.counter = max(i.counter, f)
		m.largest = max(m.largest, f)
	}
	p := &a.parts[n]
	switch {
	case !says:
	case a.phase == asking:
		i.vote[x], i.kept[x], i.grants[x] = f, kept, grant
	case (a.phase == settling || a.phase == holding) && p.entry == 0 && int(p.grant) == x+1 && (f != p.fence || kept != 0):
		i.settles |= 1 << x
	}
}

func (c *Config) settle(s *state, k, x, n int, out emit) {
	if !s.nodes[k].votes() {
		return
	}
	t := *s
	m, a := &t.nodes[k], &t.attempts[x]
	i, f := &m.items[n], a.parts[n].fence
	i.settles &^= 1 << x
	if !c.there(i, x) || f == 0 {
		return
	}
	what := "a node keeps a larger fence"
	most := max(i.counter, m.floor)
	late := int(i.grant) == x+1 && i.before != unknown && f >= max(i.before, m.floor)
	if f >= most || late {
		what = settled
		if f < most {
			what = lowered
			if i.counter == i.fence {
				i.counter = f
			}
		}
		i.fence, i.grant, i.told = f, uint8(x+1), 0
	}
	i.counter, m.largest = max(i.counter, f), max(m.largest, f)
	if a.phase == settling {
		i.carries |= 1 << x
	}
	out(t, c.step(what, x, n, k), "")
}

// mark notes a hold of a name as given back.
func (c *Config) mark(m *node, x, n int) {
	for j := range m.items {
		if j == n || !c.OwnIDs {
			m.items[j].marks |= 1 << x
		}
	}
}

func (c *Config) undo(s *state, k, x, n int, out emit) {
	t := *s
	m := &t.nodes[k]
	i := &m.items[n]
	i.undoes &^= 1 << x
	what := "a node undoes"
	switch {
	case !c.there(i, x): // it is not granted here any more, as if it never came
		return
	case i.holds != 1<<x && c.OwnUndone:
		c.mark(m, x, n)
		i.holds &^= 1 << x
		i.entered = 1
	default:
		if i.entered == 0 && i.before != unknown && i.counter == i.fence {
			what = forgotten
			i.counter = i.before
			if i.before <= m.floor {
				i.counter = 0
			}
		}
		i.record.free()
	}
	out(t, c.step(what, x, n, k), "")
}

func (c *Config) release(s *state, k, x, n int, out emit) {
	t := *s
	m := &t.nodes[k]
	i, p := &m.items[n], &t.attempts[x].parts[n]
	i.releases &^= 1 << x
	switch {
	case c.there(i, x) && i.holds != 1<<x:
		i.holds &^= 1 << x
		i.entered = 1
		c.mark(m, x, n)
	case c.there(i, x):
		i.record.free()
		i.counter = max(i.counter, p.fence+1)
	default:
		c.mark(m, x, n)
		if !c.mine(i, x) && p.fence >= i.counter {
			seen := i.counter
			if seen == 0 {
				seen = m.largest
			}
			i.counter = max(seen, p.fence+1)
		}
	}
	m.largest = max(m.largest, i.counter)
	if m.votes() {
		i.freed |= 1 << x
	}
	freed := 0
	for j := range t.nodes {
		freed += int(t.nodes[j].items[n].freed >> x & 1)
	}
	if freed >= quorum {
		p.free = 1
	}
	out(t, c.step("a node releases", x, n, k), "")
}

// putsBack reports whether a RENEW of a LOCK makes a record that is not there anew.
func (i *item) putsBack(x int, fence uint8) bool { return !has(i.marks, x) && i.counter <= fence }

func (c *Config) renew(s *state, k, x, n int, out emit) {
	p, i, m := s.attempts[x].parts[n], &s.nodes[k].items[n], &s.nodes[k]
	same := c.mine(i, x) && i.fence == p.fence && i.grant == p.grant
	switch {
	case same && (has(i.holds, x) || !has(i.marks, x)):
	case i.owner == 0 && i.putsBack(x, p.fence):
	default:
		return
	}
	c.ends(func(short uint8) {
		t := *s
		u := &t.nodes[k]
		j := &u.items[n]
		j.renews &^= 1 << x
		what, rem := "a node renews", uint8(c.TTL)-short
		if same {
			j.rem, j.entered = max(j.rem, rem), 1
			j.holds |= 1 << x
		} else {
			what = putBack
			j.record = record{owner: c.locks[x].owner + 1, fence: p.fence, grant: p.grant, holds: 1 << x, before: unknown, entered: 1, told: 1, rem: rem}
			j.counter, u.largest = max(j.counter, p.fence), max(u.largest, p.fence)
		}
		if p.renewing == 1 && m.votes() {
			j.renewed |= 1 << x
		}
		out(t, c.step(what, x, n, k), "")
	})
}
