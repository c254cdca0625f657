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
		if has(n.undoes, x) {
			c.undo(s, k, x, out)
		}
		if has(n.releases, x) {
			c.release(s, k, x, out)
		}
		for i := range c.Renewals {
			if has(n.renewals[i], x) {
				c.renew(s, k, x, i, out)
			}
		}
	}
	if s.losses > 0 && n.largest > 1 {
		t := *s
		t.losses--
		m := &t.nodes[k]
		m.write.free()
		m.read = [owners]record{}
		m.own = [owners]uint8{}
		m.index = [seats]uint8{}
		m.counter, m.largest, m.floor, m.marks = 0, 0, 0, 0
		m.floorless = 1
		if c.Quarantine {
			m.quarantine = uint8(c.TTL)
		}
		out(t, c.step(lost, -1, k), "")
	}
	if s.backs > 0 {
		t := *s
		t.backs--
		m := &t.nodes[k]
		back(&m.write)
		for o := range m.read {
			back(&m.read[o])
		}
		out(t, c.step(stepped, -1, k), "")
	}
	if n.floorless == 1 && n.quarantine == 0 {
		votes, floor := 0, n.largest
		for j := range s.nodes {
			if m := &s.nodes[j]; m.votes() {
				votes++
				floor = max(floor, m.largest)
			}
		}
		if votes >= quorum {
			t := *s
			m := &t.nodes[k]
			m.floorless = 0
			if c.Floor {
				m.floor, m.largest = floor, floor
			}
			out(t, c.step(restored, -1, k), "")
		}
	}
}

// back has a record that has lapsed be there again.
func back(r *record) {
	if r.owner != 0 && r.rem == 0 {
		r.rem = 1
	}
}

func (n *node) votes() bool { return n.quarantine == 0 && n.floorless == 0 }

// ends calls f with every lease that a node's clock may make of the ttl.
func (c *Config) ends(f func(rem uint8)) {
	for d := c.TTL - c.Drift; d <= c.TTL; d++ {
		f(uint8(d))
	}
}

// number is what a node numbers a LOCK's grant with.
func (c *Config) number(n *node, x int) uint8 {
	l := &c.locks[x]
	if l.seat > 0 && c.Above {
		return max(n.counter, n.own[l.owner], n.largest, n.floor) + 1
	}
	seen := n.counter
	if seen == 0 {
		seen = n.largest
	}
	f := max(seen, n.floor)
	if l.writes || n.counter == 0 || n.counter <= n.floor && n.floor > 0 {
		return f + 1
	}
	if own := n.own[l.owner]; own > 0 {
		f = max(f, own+1)
	}
	return f
}

// refuses reports whether a node has a record of another owner that is in the way of a LOCK, or of putting it back.
func (c *Config) refuses(n *node, x int, writers, readers bool) bool {
	l := &c.locks[x]
	if writers && n.write.rem > 0 && n.write.owner != l.owner+1 {
		return true
	}
	for o := range n.read {
		if l.writes && readers && o != int(l.owner) && n.read[o].rem > 0 {
			return true
		}
	}
	return false
}

// sits reports whether a seat, plus 1, is another owner's, as the node knows.
func (c *Config) sits(n *node, seat, owner uint8) bool {
	if seat == 0 {
		return false
	}
	i := n.index[seat-1]
	if i == 0 || i == owner+1 {
		return false
	}
	r := &n.read[i-1]
	return r.rem > 0 && c.seat(r.grant) == seat
}

// give gives a seat, plus 1, to an owner.
func (c *Config) give(n *node, seat, owner uint8) {
	if seat == 0 {
		return
	}
	if i := n.index[seat-1]; i > 0 && i != owner+1 && c.DropLapsed {
		if r := &n.read[i-1]; r.rem == 0 && c.seat(r.grant) == seat {
			r.free()
		}
	}
	n.index[seat-1] = owner + 1
}

// leave removes a record, and its owner from the index.
func (c *Config) leave(n *node, r *record) {
	if seat := c.seat(r.grant); seat > 0 && (!c.IndexOwn || n.index[seat-1] == r.owner) {
		n.index[seat-1] = 0
	}
	r.free()
}

func (c *Config) acquire(s *state, k, x int, out emit) {
	l := &c.locks[x]
	if !s.nodes[k].votes() {
		return
	}
	n := s.nodes[k]
	lapse(c.record(&n, x))
	there := c.mine(&n, x)
	look, seat := there == nil || c.LookAgain, l.seat
	if there != nil {
		seat = c.seat(there.grant)
	}
	if look && c.refuses(&n, x, c.WritersBar || l.writes, c.ReadersBar) {
		return
	}
	if look && c.SeatBar && c.sits(&n, seat, l.owner) {
		out(*s, c.step(refused, x, k), "")
		return
	}
	c.ends(func(rem uint8) {
		t := *s
		t.nodes[k] = n
		m := &t.nodes[k]
		m.acquires &^= 1 << x
		f, kept, grant := c.number(m, x), uint8(0), uint8(0)
		r := c.record(m, x)
		if there != nil {
			kept, grant = there.fence, there.grant
			if there.told == 1 {
				kept = unknown
			}
			r.holds |= 1 << x
			r.entered, r.rem = 1, max(r.rem, rem)
		} else {
			own := c.counter(m, x)
			*r = record{owner: l.owner + 1, fence: f, grant: uint8(x + 1), holds: 1 << x, before: max(*own, m.floor), rem: rem}
			*own = max(*own, f)
			m.largest = max(m.largest, f)
			c.give(m, l.seat, l.owner)
			if !l.writes && c.Raise {
				m.counter = max(m.counter, f)
			}
			if !l.writes && c.BesideLock {
				m.beside(l.owner)
			}
		}
		a := &t.attempts[x]
		if a.phase == asking && c.Lossy {
			out(t, c.step("a node grants, and nobody hears it", x, k), "")
		}
		switch {
		case a.phase == asking:
			m.vote[x], m.kept[x], m.grant[x] = f, kept, grant
		case (a.phase == settling || a.phase == holding) && a.entry == 0 && (f != a.fence || kept != 0):
			m.settles |= 1 << x
		}
		out(t, c.step("a node grants", x, k), "")
	})
}

// beside has a node lower the name's counter no more for the owner's write record: the owner may be told of it with a permit.
func (n *node) beside(owner uint8) {
	if w := &n.write; w.rem > 0 && w.owner == owner+1 {
		w.entered, w.before = 1, unknown
	}
}

func (c *Config) settle(s *state, k, x int, out emit) {
	if !s.nodes[k].votes() {
		return
	}
	t := *s
	m, a, l := &t.nodes[k], &t.attempts[x], &c.locks[x]
	m.settles &^= 1 << x
	lapse(c.record(m, x))
	r := c.mine(m, x)
	if r == nil || !has(r.holds, x) || a.fence == 0 {
		return
	}
	moves := !l.writes && c.seat(r.grant) != l.seat
	if moves && (c.SameSeat || c.sits(m, l.seat, l.owner)) {
		out(t, c.step(otherSeat, x, k), "")
		return
	}
	f, seen, what := a.fence, c.counter(m, x), "a node keeps a larger fence"
	most := max(*seen, m.floor)
	late := int(r.grant) == x+1 && r.before != unknown && f >= max(r.before, m.floor)
	if f >= most || late {
		what = settled
		if f < most {
			what = lowered
			if *seen == r.fence {
				*seen = f
			}
		}
		if moves {
			c.give(m, l.seat, l.owner)
			what = moved
		}
		r.fence, r.grant, r.told = f, uint8(x+1), 0
	}
	*seen, m.largest = max(*seen, f), max(m.largest, f)
	if !l.writes {
		if c.SettleRaise {
			m.counter = max(m.counter, f)
		}
		if c.BesideSet {
			m.beside(l.owner)
		}
	}
	if a.phase == settling {
		m.carries |= 1 << x
	}
	out(t, c.step(what, x, k), "")
}

func (c *Config) undo(s *state, k, x int, out emit) {
	t := *s
	m := &t.nodes[k]
	m.undoes &^= 1 << x
	what := "a node undoes"
	lapse(c.record(m, x))
	r := c.mine(m, x)
	switch {
	case r == nil || !has(r.holds, x): // it is not granted here any more, as if it never came
		return
	case r.holds != 1<<x:
		m.marks |= 1 << x
		r.holds &^= 1 << x
		r.entered = 1
	default:
		if seen := c.counter(m, x); r.entered == 0 && r.before != unknown && *seen == r.fence {
			what = forgotten
			*seen = r.before
			if r.before <= m.floor {
				*seen = 0
			}
		}
		c.leave(m, r)
	}
	out(t, c.step(what, x, k), "")
}

func (c *Config) release(s *state, k, x int, out emit) {
	t := *s
	m, l := &t.nodes[k], &c.locks[x]
	m.releases &^= 1 << x
	lapse(c.record(m, x))
	f, seen := s.attempts[x].fence, c.counter(m, x)
	raises := l.writes || c.Release
	r := c.mine(m, x)
	switch {
	case r != nil && has(r.holds, x) && r.holds != 1<<x:
		r.holds &^= 1 << x
		r.entered = 1
		m.marks |= 1 << x
	case r != nil && has(r.holds, x):
		c.leave(m, r)
		if raises {
			*seen = max(*seen, f+1)
		}
	default:
		if raises {
			m.marks |= 1 << x
		}
		if r == nil && f >= *seen && raises {
			was := *seen
			if was == 0 {
				was = m.largest
			}
			*seen = max(was, f+1)
		}
	}
	m.largest = max(m.largest, *seen)
	if m.votes() {
		m.freed |= 1 << x
	}
	n := 0
	for j := range t.nodes {
		n += int(t.nodes[j].freed >> x & 1)
	}
	if n >= quorum {
		t.attempts[x].free = 1
	}
	out(t, c.step("a node releases", x, k), "")
}

// putsBack reports whether a node makes the record of a grant anew.
func (c *Config) putsBack(n *node, x int, fence, grant uint8) bool {
	l := &c.locks[x]
	if has(n.marks, x) {
		return false
	}
	if l.writes {
		return !c.refuses(n, x, true, c.BackReaders) && n.counter <= fence
	}
	return !c.refuses(n, x, c.BackWriter, false) && (!c.BackSeat || !c.sits(n, c.seat(grant), l.owner)) &&
		(!c.BackName || n.counter <= fence) && (!c.BackOwn || n.own[l.owner] <= fence)
}

func (c *Config) renew(s *state, k, x, i int, out emit) {
	l, f, grant := &c.locks[x], s.attempts[x].fence, s.attempts[x].grant
	n := s.nodes[k]
	lapse(c.record(&n, x))
	there := c.mine(&n, x)
	if there != nil && (there.fence != f || there.grant != grant && c.RenewGrant) || there == nil && !c.putsBack(&n, x, f, grant) || has(n.marks, x) {
		return
	}
	c.ends(func(rem uint8) {
		t := *s
		t.nodes[k] = n
		m := &t.nodes[k]
		m.renewals[i] &^= 1 << x
		what := "a node renews"
		if r := c.record(m, x); there != nil {
			r.rem, r.entered = max(r.rem, rem), 1
			r.holds |= 1 << x
		} else {
			what = readBack
			if l.writes {
				what = writeBack
			}
			*r = record{owner: l.owner + 1, fence: f, grant: grant, holds: 1 << x, before: unknown, entered: 1, told: 1, rem: rem}
			seen := c.counter(m, x)
			*seen, m.largest = max(*seen, f), max(m.largest, f)
			if c.BackIndex {
				c.give(m, c.seat(grant), l.owner)
			}
			if !l.writes {
				m.counter = max(m.counter, f)
			}
		}
		if int(s.attempts[x].renewing) == i+1 && n.votes() {
			m.renewed |= 1 << x
		}
		out(t, c.step(what, x, k), "")
	})
}
