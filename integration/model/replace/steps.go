package main

type emit = func(t state, by step, broken string)

// What is counted; without any a search proves nothing.
const (
	replaced = "REPLACED"
	granted  = "GRANTED"
	renewed  = "RENEWED"
	unlocked = "UNLOCKED"
	undone   = "UNDONE"
)

// successors calls out with every state one step away from st.
func (c *Config) successors(st *state, out emit) {
	if c.settled(st) {
		return
	}
	c.tick(st, out)
	c.renewSteps(st, out)
	c.unlockSteps(st, out)
	for who := r; who < owners; who++ {
		c.lockSteps(st, who, out)
	}
	for k := range st.nodes {
		c.nodeSteps(st, k, out)
	}
}

// settled reports whether nothing that follows st could break a promise: nobody can be granted, and A can be told of nothing.
func (c *Config) settled(st *state) bool {
	for who := r; who < owners; who++ {
		if p := st.lockers[who].phase; p != holding && p != over {
			return false
		}
	}
	renews := st.renewing != 0 || int(st.renewed) < c.Renewals && st.memory > 0 && st.unlocking == 0
	unlocks := st.unlocking == 1 || st.unlocking == 0 && c.Unlocks && (st.memory > 0 || c.UnlockOnce)
	return !renews && !unlocks
}

func lower(x *uint8) bool {
	if *x > 0 {
		*x--
		return true
	}
	return false
}

func (c *Config) tick(st *state, out emit) {
	t := *st
	moved := lower(&t.memory)
	raise := func(x *uint8) {
		if int(*x) <= max(c.First, c.Others) {
			*x++
			moved = true
		}
	}
	if t.renewing != 0 {
		raise(&t.elapsed)
	}
	for who := range t.lockers {
		l := &t.lockers[who]
		moved = lower(&l.told) || moved
		if l.phase == asking {
			raise(&l.elapsed)
		}
	}
	for k := range t.nodes {
		n := &t.nodes[k]
		if lower(&n.quarantine) {
			moved = true
			if n.quarantine == 0 {
				n.counter = floor
			}
		}
		if lower(&n.rem) {
			moved = true
			if n.rem == 0 {
				n.free()
			}
		}
	}
	if moved {
		out(t, step{"wait", -1}, "")
	}
}

// exclusive is promise P1.
func (st *state) exclusive() string {
	n := 0
	for _, l := range st.lockers {
		n += int(bit(l.told > 0))
	}
	if n > 1 {
		return "P1: two are inside the validity that they were told"
	}
	return ""
}

// lockSteps: what R, S or B does.
func (c *Config) lockSteps(st *state, who int, out emit) {
	l := &st.lockers[who]
	t := *st
	switch l.phase {
	case before:
		of := c.target(who)
		if of == r && st.lockers[r].fence == 0 {
			return // S hears of R's grant only from R
		}
		if of >= 0 && c.Notes {
			t.lockers[who].phase = noting
			if !c.AtOnce {
				for k := range t.nodes {
					t.nodes[k].notes |= 1 << who
				}
			}
		} else {
			t.send(who)
		}
		out(t, step{"LOCK", who}, "")
	case noting:
		c.endNoting(st, who, out)
	case asking:
		c.grant(st, who, out)
		t.end(who)
		out(t, step{undone, who}, "")
	case holding:
		t.end(who)
		out(t, step{"the UNLOCK", who}, "")
	}
}

func (st *state) send(who int) {
	st.lockers[who].phase, st.lockers[who].elapsed = asking, 0
	for k := range st.nodes {
		st.nodes[k].acquires |= 1 << who
	}
}

// end: the hold is given back everywhere.
func (st *state) end(who int) {
	l := &st.lockers[who]
	l.phase, l.elapsed, l.told = over, 0, 0
	for k := range st.nodes {
		st.nodes[k].undoes |= 1 << who
	}
}

// endNoting: a quorum has noted the grant that is to be replaced.
func (c *Config) endNoting(st *state, who int, out emit) {
	by := step{"a quorum has noted it, the replacement", who}
	fence := st.lockers[c.target(who)].fence
	if !c.AtOnce {
		n := 0
		for k := range st.nodes {
			n += int(st.nodes[k].vnoted >> who & 1)
		}
		if n >= quorum {
			t := *st
			t.send(who)
			out(t, by, "")
		}
		return
	}
	for left := range st.nodes {
		t := *st
		fits := true
		for k := range t.nodes {
			if n := &t.nodes[k]; k != left {
				fits = fits && (n.quarantine == 0 || !c.VotesOnly)
				n.noted = max(n.noted, fence)
			}
		}
		if fits {
			t.send(who)
			out(t, by, "")
		}
	}
}

// grant counts the votes and has all nodes that gave one carry the largest fence, if they still have the record.
func (c *Config) grant(st *state, who int, out emit) {
	l := &st.lockers[who]
	left := c.Others - c.Drift - int(l.elapsed)
	fence, votes := uint8(0), 0
	for k := range st.nodes {
		fence = max(fence, st.nodes[k].vote[who])
		votes += int(bit(st.nodes[k].vote[who] > 0))
	}
	if votes < quorum || left <= 0 {
		return
	}
	t := *st
	carry := 0
	for k := range t.nodes {
		n := &t.nodes[k]
		switch v := n.vote[who]; {
		case v == 0:
		case v == fence:
			carry++
		case n.owner == uint8(who+1) && n.quarantine == 0:
			n.fence, n.counter = fence, max(n.counter, fence)
			carry++
		}
	}
	if carry < quorum {
		return
	}
	x := &t.lockers[who]
	x.phase, x.elapsed, x.fence = holding, 0, fence
	if x.void == 0 {
		x.told = uint8(left)
	}
	t.others |= 1 << who
	t.last = max(t.last, fence)
	by, broken := step{granted, who}, t.exclusive()
	of := c.target(who)
	if of >= 0 {
		by.what = replaced
	}
	switch {
	case fence <= st.last:
		broken = "P2: a fence is not above that of an earlier grant"
	case of == a:
		t.gaveUp++
		if st.gaveUp > 0 {
			broken = "P5: A's grant is given up twice"
		}
	}
	out(t, by, broken)
}

// has counts the nodes with A's grant.
func (st *state) has() (n int) {
	for k := range st.nodes {
		n += int(bit(st.nodes[k].owner == a+1 && st.nodes[k].fence == fenceA))
	}
	return n
}

// renewSteps: A renews through the proxy that it was granted by.
func (c *Config) renewSteps(st *state, out emit) {
	t := *st
	if st.renewing == 0 {
		if int(st.renewed) < c.Renewals && st.unlocking == 0 && st.memory > 0 {
			t.renewing, t.elapsed = st.renewed+1, 0
			t.renewed++
			t.afterOther, t.lapsed = bit(st.others != 0), bit(st.lockers[a].told == 0 && st.has() < quorum && !c.Late)
			for k := range t.nodes {
				t.nodes[k].renewals |= 1 << st.renewed
			}
			out(t, step{"RENEW", a}, "")
		}
		return
	}
	t.renewing = 0
	out(t, step{"no answer to the RENEW", a}, "")
	votes, noted, told := 0, 0, 0
	for k := range st.nodes {
		n := &st.nodes[k]
		votes, noted, told = votes+int(n.rvote), noted+int(n.rnoted), told+int(n.rtold)
	}
	if noted > 0 && c.Told {
		votes -= told
	}
	left := c.First - c.Drift - int(st.elapsed)
	if votes < quorum || left <= 0 || st.memory == 0 && c.Bounds {
		return
	}
	t.memory = max(t.memory, uint8(left))
	if l := &t.lockers[a]; l.void == 0 && st.unlocking == 0 {
		l.told = t.memory
	}
	broken := t.exclusive()
	switch {
	case st.afterOther == 1:
		broken = "P3: a RENEW asked for after another grant succeeds"
	case st.lapsed == 1:
		broken = "P6: a RENEW asked for after the grant had gone succeeds"
	}
	out(t, step{renewed, a}, broken)
}

// unlockSteps: A gives its grant back.
func (c *Config) unlockSteps(st *state, out emit) {
	t := *st
	switch {
	case st.unlocking == 0 && c.Unlocks && (st.memory > 0 || c.UnlockOnce):
		t.unlocking, t.asked, t.trusted = 1, bit(st.others != 0), bit(st.memory > 0)
		t.lockers[a].told = 0
		for k := range t.nodes {
			t.nodes[k].releases = 1
		}
		out(t, step{"UNLOCK", a}, "")
	case st.unlocking == 1:
		t.unlocking = 2
		out(t, step{"no answer to the UNLOCK", a}, "")
		count := func(what uint8) (n int) {
			for k := range st.nodes {
				n += int(bit(st.nodes[k].unlock&what != 0))
			}
			return n
		}
		if c.UnlockOnce && c.Once && count(late) > 0 {
			return
		}
		trusts := st.trusted == 1 && (st.memory > 0 || !c.InTime)
		if count(removed) < quorum && !(trusts && (count(removed|put|none) >= quorum || count(clear) >= quorum)) {
			return
		}
		broken := ""
		if c.UnlockOnce {
			t.gaveUp++
			if st.gaveUp > 0 {
				broken = "P5: A's grant is given up twice"
			}
		}
		if st.asked == 1 {
			broken = "P4: an UNLOCK asked for after another grant succeeds"
		}
		out(t, step{unlocked, a}, broken)
	}
}
