package main

import "slices"

type emit = func(t state, by step, broken string)

// What is counted; without any a search proves nothing.
const (
	locked   = "LOCKED"
	renewed  = "RENEWED"
	unlocked = "UNLOCKED"
	grantedB = "B GRANTED"
	noRoom   = "no room"
)

// successors calls out with every state one step away from s.
func (c *Config) successors(s *state, out emit) {
	if c.settled(s) {
		return
	}
	c.tick(s, out)
	c.ask(s, out)
	c.lockSteps(s, out)
	for p := range s.proxies {
		c.proxySteps(s, p, out)
	}
	c.rival(s, out)
	for k := range s.nodes {
		c.nodeSteps(s, k, out)
	}
}

// settled reports whether nothing that follows s could break a promise.
func (c *Config) settled(s *state) bool {
	if c.CountEnds {
		return false
	}
	if c.Rival > 0 && s.bPhase == 3 && s.grantedB == 0 {
		return true // a world with no rival has the same
	}
	busy := s.locking != 0 || s.proxies[0].phase != idle || s.proxies[1].phase != idle
	return !busy && s.told == rests{} && s.renewals == 0 && s.unlocks == 0
}

func lower(x *uint8) bool {
	if *x > 0 {
		*x--
		return true
	}
	return false
}

func lowerAll(r *rests) (moved bool) {
	for h := range r {
		moved = lower(&r[h]) || moved
	}
	return moved
}

func (c *Config) raise(x *uint8) bool {
	if int(*x) <= c.longest() {
		*x++
		return true
	}
	return false
}

func (c *Config) longest() int { return max(c.First, c.Second, c.Fresh, c.Long, c.Short, c.Rival) }

func (c *Config) tick(s *state, out emit) {
	t := *s
	moved := lowerAll(&t.told)
	moved = lower(&t.bValid) || moved
	if t.bPhase == 1 {
		moved = c.raise(&t.bElapsed) || moved
	}
	if t.locking != 0 {
		moved = c.raise(&t.lockElapsed) || moved
		if t.lockCap > 1 {
			t.lockCap--
		}
	}
	moved = lowerAll(&t.lockKnows) || moved
	moved = lowerAll(&t.since) || moved
	if c.BareRetries {
		for i := range t.slots {
			moved = lowerAll(&t.slots[i].rem) || moved
		}
	}
	for p := range t.proxies {
		x := &t.proxies[p]
		moved = lowerAll(&x.rem) || moved
		moved = lowerAll(&x.known) || moved
		moved = lower(&x.bound) || moved
		if x.phase != idle {
			moved = c.raise(&x.elapsed) || moved
		}
	}
	for k := range t.nodes {
		n := &t.nodes[k]
		moved = lower(&n.quarantine) || moved
		if n.owner != free {
			was := n.rem
			moved = lowerAll(&n.rem) || moved
			for h := range was {
				n.ended |= bit(n.owner == ownA && was[h] == 1) << h
			}
			if n.rem == (rests{}) {
				n.clearRecord()
			}
		}
	}
	if moved {
		out(t, step{"wait", -1, -1, -1}, "")
	}
}

// ask: what A asks for.
func (c *Config) ask(s *state, out emit) {
	if c.OneByOne && (s.locking != 0 || s.proxies[0].phase != idle || s.proxies[1].phase != idle) {
		return
	}
	for p := range s.proxies {
		if p == 1 && c.OneProxy {
			continue
		}
		c.askLock(s, p, out)
		x := &s.proxies[p]
		if x.phase != idle {
			continue
		}
		if s.renewals > 0 {
			c.askRenew(s, p, c.Long, out)
			if c.Short > 0 {
				c.askRenew(s, p, c.Short, out)
			}
		}
		for h := range maxHolds {
			if s.unlocks > 0 && s.granted>>h&1 == 1 && (s.asked>>h&1 == 0 || x.rem[h] > 0) {
				c.askUnlock(s, 1<<h, p, out)
			}
		}
		if s.unlocks > 0 && c.All {
			c.askUnlockAll(s, p, out)
		}
		if c.Forget && x.fence != 0 {
			t := *s
			t.proxies[p] = proxy{}
			out(t, step{"proxy forgets the grant", -1, p, -1}, "")
		}
	}
}

func (c *Config) askLock(s *state, p int, out emit) {
	if s.locking != 0 {
		return
	}
	if c.Second > 0 && s.taken == 1<<first && s.told != (rests{}) { // else it would be a new grant
		t := *s
		t.begin(second, p)
		if x := &t.proxies[p]; x.phase != idle && x.op == renewal && c.SparesLocks {
			x.spared |= 1 << second
		}
		if x := &t.proxies[1-p]; x.phase != idle && x.op == renewal {
			t.capLock(x.ttl - uint8(c.Drift))
		}
		t.lockFence, t.lockKnows = t.proxies[p].fence, t.proxies[p].rem
		out(t, step{"A asks LOCK", second, p, c.Second}, "")
	}
	if c.Fresh > 0 && s.taken>>fresh&1 == 0 && s.proxies[p].phase == idle {
		t := *s
		t.told = rests{}
		t.taken |= 1 << fresh
		x := &t.proxies[p]
		x.op, x.elapsed = freshLock, 0
		if c.FreshNotes {
			c.note(&t, p)
		} else {
			t.begin(fresh, p)
		}
		out(t, step{"A asks LOCK FRESH", fresh, p, c.Fresh}, "")
	}
}

func (s *state) begin(hold, p int) {
	s.taken |= 1 << hold
	s.locking, s.lockProxy, s.lockElapsed, s.lockCap, s.lockAsked = uint8(hold+1), uint8(p), 0, 0, 0
	for k := range s.nodes {
		s.nodes[k].acquires |= 1 << hold
	}
}

// askRenew: A counts from now on with no more than the renewal may leave, and so it does
// with a LOCK that it asks for at the same time through the other proxy.
func (c *Config) askRenew(s *state, p, ttl int, out emit) {
	t := *s
	t.renewals--
	valid := uint8(ttl - c.Drift)
	x := &t.proxies[p]
	x.op, x.ttl, x.elapsed, x.foreign = renewal, uint8(ttl), 0, 0
	x.afterRival, x.lapsed, x.spared = s.grantedB, bit(c.lapsed(s)), 0
	for h := range t.told {
		t.told[h] = min(t.told[h], valid)
	}
	if s.locking != 0 && int(s.lockProxy) != p {
		t.capLock(valid)
	}
	if c.CapsLocks && s.locking != 0 && int(s.lockProxy) == p {
		t.lockAsked = 1
	}
	by := step{"A asks RENEW", -1, p, ttl}
	if x.fence == 0 || x.own == 0 {
		x.phase, x.foreign = reads, 1
		if s.locking != 0 && int(s.lockProxy) == p && c.SparesLocks {
			x.spared |= 1 << (s.locking - 1)
		}
		out(t, by, "")
		return
	}
	x.number++
	shortens := valid < largest(x.rem)
	x.known, x.names = x.rem, running(x.rem)
	for h := range x.rem {
		x.rem[h] = min(x.rem[h], valid)
	}
	if shortens && c.NoteBefore {
		c.note(&t, p)
		out(t, by, "")
		return
	}
	c.send(s, t, p, by, out)
}

func (s *state) capLock(valid uint8) {
	if s.lockCap == 0 || s.lockCap > valid+1 {
		s.lockCap = valid + 1
	}
}

// lapsed reports whether all told validities have ended and fewer nodes than a quorum
// have the grant.
func (c *Config) lapsed(s *state) bool {
	n := 0
	for k := range s.nodes {
		n += int(bit(s.nodes[k].owner == ownA && s.nodes[k].fence == s.fence))
	}
	return s.told == rests{} && n < quorum && s.locking == 0
}

// note asks every node to note the grant.
func (c *Config) note(s *state, p int) {
	s.proxies[p].phase = notes
	for k := range s.nodes {
		if !c.AtOnce {
			s.nodes[k].noting |= 1 << p
		}
		s.nodes[k].notes &^= 1 << p
	}
}

// send opens a round of proxy p for the holds it knows and puts its messages under way,
// in a foreign round to the nodes that were read. It emits noRoom where no round is free.
func (c *Config) send(from *state, s state, p int, by step, out emit) {
	r := slices.IndexFunc(s.rounds[:], func(r round) bool { return r.used == 0 })
	if r < 0 {
		out(*from, step{noRoom, -1, p, -1}, "")
		return
	}
	x := &s.proxies[p]
	fence := x.fence
	if x.foreign == 1 {
		fence = fenceRead(&s, p)
		x.lineage, x.number = uint8(r+1), 1
		for k := range s.nodes {
			if v := s.nodes[k].read[p].version; v > 0 {
				x.number = max(x.number, s.numberOf(v-1)+1)
			}
		}
	}
	s.rounds[r] = round{1, uint8(p), x.ttl, x.lineage, x.number, x.foreign, x.names, fence}
	if c.CountEnds {
		s.renewed |= x.names
	}
	for k := range s.nodes {
		n := &s.nodes[k]
		n.dropVotes(1 << r)
		if x.foreign == 1 {
			n.base[r] = n.read[p].version
			if n.base[r] == 0 {
				continue
			}
		}
		n.sent |= 1 << r
	}
	x.phase, x.round, x.elapsed = sends, uint8(r), 0
	out(s, by, "")
}

// running are the holds that have not ended.
func running(r rests) (holds uint8) {
	for h, rem := range r {
		holds |= bit(rem > 0) << h
	}
	return holds
}

func fenceRead(s *state, p int) (f uint8) {
	for k := range s.nodes {
		f = max(f, s.nodes[k].read[p].fence)
	}
	return f
}

func (s *state) numberOf(version uint8) uint8 {
	if version == 0 {
		return 0
	}
	return s.rounds[version-1].number
}

func (s *state) lineageOf(version uint8) uint8 {
	if version == 0 {
		return 0
	}
	return s.rounds[version-1].lineage
}

// askUnlockAll gives back the holds that the proxy remembers, or all if it remembers none.
func (c *Config) askUnlockAll(s *state, p int, out emit) {
	holds := s.proxies[p].has
	if s.proxies[p].own == 0 {
		holds = s.granted
	}
	if holds&(holds-1) != 0 {
		c.askUnlock(s, holds, p, out)
	}
}

// trusts reports whether x gives these holds back by what it remembers.
func (c *Config) trusts(x *proxy, holds uint8) bool {
	if x.fence != fenceOf(holds) || !c.TrustHold {
		return x.fence == fenceOf(holds)
	}
	for h, rem := range x.rem {
		runs := rem > 0
		switch {
		case holds>>h&1 == 0:
		case runs && !c.TrustAll:
			return true
		case !runs && c.TrustAll:
			return false
		}
	}
	return c.TrustAll
}

func (c *Config) askUnlock(s *state, holds uint8, p int, out emit) {
	t := *s
	t.unlocks--
	x := &t.proxies[p]
	x.op, x.holds, x.elapsed, x.foreign = unlock, holds, 0, 0
	x.late = s.grantedB & bit(holds&^s.asked != 0)
	t.asked |= holds
	by := step{"A asks UNLOCK", one(holds), p, -1}
	x.trusted = bit(c.trusts(x, holds))
	var mine uint8
	if x.trusted == 1 {
		x.known = x.rem
		x.has &^= holds
	}
	for h := range t.told {
		if holds>>h&1 == 0 {
			continue
		}
		t.told[h] = 0
		if x.trusted == 1 {
			mine = max(mine, x.rem[h])
			x.known[h], x.rem[h] = 0, 0
		}
	}
	if x.trusted == 0 {
		x.phase, x.foreign = reads, 1
		out(t, by, "")
		return
	}
	c.beginRelease(s, t, p, x.fence, mine, by, out)
}

// beginRelease sends the release, or has it noted first where what is left ends before
// mine, the rest of the holds that are given back as far as the proxy knows.
func (c *Config) beginRelease(from *state, t state, p int, fence, mine uint8, by step, out emit) {
	i := slices.IndexFunc(t.slots[:], func(i slot) bool { return i.used == 0 })
	if i < 0 {
		out(*from, step{noRoom, -1, p, -1}, "")
		return
	}
	x := &t.proxies[p]
	t.slots[i] = slot{1, uint8(p), x.holds, fence, 0, x.known}
	x.slot = uint8(i)
	left := largest(x.known)
	if c.NoteRelease && left > 0 && left < mine {
		c.note(&t, p)
	} else {
		c.sendRelease(&t, p)
	}
	out(t, by, "")
}

func (c *Config) sendRelease(s *state, p int) {
	x := &s.proxies[p]
	x.phase = sends
	for k := range s.nodes {
		n := &s.nodes[k]
		n.releases |= 1 << x.slot
		n.unlock[p] = 0
	}
}

// lockSteps concludes the LOCK under way, or gives it up and undoes it.
func (c *Config) lockSteps(s *state, out emit) {
	if s.locking == 0 {
		return
	}
	h, p := int(s.locking-1), int(s.lockProxy)
	t := *s
	t.locking = 0
	for k := range t.nodes {
		t.nodes[k].undoes |= 1 << h
	}
	out(t, step{"LOCK is given up and undone", h, p, -1}, "")

	votes := 0
	for k := range s.nodes {
		votes += int(s.nodes[k].votes)
	}
	left := c.ttl(h) - c.Drift - int(s.lockElapsed)
	if x := &s.proxies[p]; s.lockAsked == 1 && h != fresh && x.fence == fenceA {
		left = min(left, int(largest(x.rem)))
	}
	if s.lockCap > 0 {
		left = min(left, int(s.lockCap)-1)
	}
	if votes < quorum || left <= 0 {
		return
	}
	t = *s
	t.locking = 0
	t.granted |= 1 << h
	t.told[h] = uint8(left)
	fence := uint8(fenceA)
	x := &t.proxies[p]
	if h == fresh {
		fence = fenceFresh
		t.fence = fence
	}
	if x.fence != fence {
		x.fence, x.own, x.lineage, x.number, x.has, x.rem = fence, bit(h == fresh), 0, 0, 0, rests{}
	}
	x.has |= 1 << h
	x.rem[h] = uint8(left)
	out(t, step{locked, h, p, left}, c.exclusive(&t))
}

// exclusive is promise P1.
func (c *Config) exclusive(s *state) string {
	if s.bValid > 0 && s.told != (rests{}) {
		return "P1: B is granted while a told validity of A runs"
	}
	return ""
}

func (c *Config) proxySteps(s *state, p int, out emit) {
	x := &s.proxies[p]
	if x.phase == idle {
		return
	}
	t := *s
	t.proxies[p].phase = idle
	out(t, step{"the request is not answered", -1, p, -1}, "")
	switch {
	case x.phase == reads:
		c.endReading(s, p, out)
	case x.phase == notes:
		c.endNoting(s, p, out)
	case x.op == renewal:
		c.answerRenew(s, p, out)
	case x.op == unlock:
		c.answerUnlock(s, p, out)
	}
}

// endReading: a quorum is known to have the grant whose fence A named.
func (c *Config) endReading(s *state, p int, out emit) {
	x := &s.proxies[p]
	fence, votes := fenceRead(s, p), 0
	var ends [maxHolds][]int
	top := rests{}
	for k := range s.nodes {
		rd := &s.nodes[k].read[p]
		if rd.version == 0 || rd.fence != fence {
			continue
		}
		votes++
		for h := range ends {
			ends[h] = append(ends[h], int(rd.rem[h]))
			top[h] = max(top[h], rd.rem[h])
		}
	}
	want := s.fence
	if x.op == unlock {
		want = fenceOf(x.holds)
	}
	if votes < quorum || fence != want {
		return
	}
	t := *s
	y := &t.proxies[p]
	y.names = 0
	for h := range ends {
		slices.Sort(ends[h])
		have := 0
		for _, end := range ends[h] {
			have += int(bit(end > 0))
		}
		at := len(ends[h]) - quorum
		if c.NamesMaybe && x.op == renewal && have > 0 && have < quorum && have+len(s.nodes)-votes >= quorum {
			at = len(ends[h]) - have
		}
		y.known[h] = uint8(max(0, ends[h][at]-int(x.elapsed)))
		y.names |= bit(ends[h][at] > 0) << h
	}
	if x.op == unlock {
		var mine uint8
		for h := range y.known {
			if x.holds>>h&1 == 1 {
				mine = max(mine, top[h])
				y.known[h] = 0
			}
		}
		c.beginRelease(s, t, p, fence, mine, step{"proxy has read a quorum, gives back", one(x.holds), p, -1}, out)
		return
	}
	for h := range y.known {
		if x.spared>>h&1 == 1 {
			y.known[h], top[h] = 0, 0
			y.names &^= 1 << h
		}
	}
	y.bound = uint8(max(0, int(largest(y.known))-c.Drift))
	if y.bound == 0 {
		return
	}
	by := step{"proxy has read a quorum, renews", -1, p, int(x.ttl)}
	if c.NoteBefore && int(x.ttl)-c.Drift < int(largest(top)) {
		c.note(&t, p)
		out(t, by, "")
		return
	}
	c.send(s, t, p, by, out)
}

// endNoting: a quorum has noted the grant, so what may bring its end forward goes out.
func (c *Config) endNoting(s *state, p int, out emit) {
	if !c.AtOnce {
		got := 0
		for k := range s.nodes {
			got += int(s.nodes[k].notes >> p & 1)
		}
		if got >= quorum {
			c.goOn(s, *s, p, out)
		}
		return
	}
	for left := range s.nodes {
		t := *s
		fits := true
		for k := range t.nodes {
			if k != left {
				fits = fits && t.nodes[k].quarantine == 0
				t.nodes[k].noted = max(t.nodes[k].noted, s.notes(p))
			}
		}
		if fits {
			c.goOn(s, t, p, out)
		}
	}
}

// notes is the fence that proxy p has noted.
func (s *state) notes(p int) uint8 {
	x := &s.proxies[p]
	switch {
	case x.op == unlock:
		return s.slots[x.slot].fence
	case x.op == freshLock:
		return fenceA
	case x.foreign == 1:
		return fenceRead(s, p)
	}
	return x.fence
}

func (c *Config) goOn(from *state, t state, p int, out emit) {
	x := &t.proxies[p]
	by := step{"a quorum noted it, proxy sends", -1, p, -1}
	switch x.op {
	case renewal:
		if x.foreign == 1 && x.bound == 0 || x.foreign == 0 && x.fence == 0 {
			return
		}
		c.send(from, t, p, by, out)
		return
	case unlock:
		t.slots[x.slot].noted = 1
		c.sendRelease(&t, p)
	case freshLock:
		x.phase = idle
		t.begin(fresh, p)
	}
	out(t, by, "")
}

func (c *Config) answerRenew(s *state, p int, out emit) {
	x := &s.proxies[p]
	r := &s.rounds[x.round]
	left := int(r.ttl) - c.Drift - int(x.elapsed)
	if c.votesFor(s, x.round) < quorum && slices.ContainsFunc(s.nodes[:], func(n node) bool { return n.refused>>x.round&1 == 1 }) {
		t := *s
		y := &t.proxies[p]
		y.phase, y.foreign, y.elapsed = reads, 1, 0
		out(t, step{"a node has other holds, proxy reads", -1, p, -1}, "")
	}
	if c.votesFor(s, x.round) < quorum || left <= 0 {
		return
	}
	if r.foreign == 1 && x.bound == 0 || r.foreign == 0 && x.fence == 0 {
		return
	}
	t := *s
	y := &t.proxies[p]
	y.phase = idle
	if r.foreign == 1 {
		y.fence, y.own, y.has, y.rem = r.fence, 1, r.holds, rests{}
	}
	for h := range y.rem {
		if r.holds>>h&1 == 1 {
			y.rem[h] = uint8(left)
		}
		if s.told[h] > 0 && s.asked>>h&1 == 0 && r.fence == s.fence {
			t.told[h] = uint8(left)
		}
	}
	broken := c.exclusive(&t)
	switch {
	case x.afterRival == 1:
		broken = "P2: a RENEW asked for after B's grant succeeds"
	case x.lapsed == 1 && r.fence == s.fence:
		broken = "P6: a RENEW asked for after the lease had lapsed succeeds"
	}
	out(t, step{renewed, -1, p, left}, broken)
}

// votesFor counts the votes of a round. Beside one that says noted, records that were put
// back do not count.
func (c *Config) votesFor(s *state, round uint8) int {
	votes, noted, told := 0, 0, 0
	for k := range s.nodes {
		n := &s.nodes[k]
		votes += int(n.voted >> round & 1)
		noted += int(n.vnoted >> round & 1)
		told += int(n.vtold >> round & 1)
	}
	if noted > 0 && c.ToldVotes {
		return votes - told
	}
	return votes
}

func (c *Config) answerUnlock(s *state, p int, out emit) {
	x := &s.proxies[p]
	count := func(what uint8) (n int) {
		for k := range s.nodes {
			n += int(bit(s.nodes[k].unlock[p]&what != 0))
		}
		return n
	}
	if count(refuse) > 0 {
		t := *s
		c.note(&t, p)
		out(t, step{"a node asks for a note", -1, p, -1}, "")
	}
	if count(gone) < quorum && (x.trusted == 0 || count(done) < quorum && count(clear) < quorum) {
		return
	}
	t := *s
	t.proxies[p].phase = idle
	broken := ""
	if x.late == 1 {
		broken = "P4: an UNLOCK asked for after B's grant succeeds"
	}
	out(t, step{unlocked, one(x.holds), p, -1}, broken)
}

// rival: B acquires once.
func (c *Config) rival(s *state, out emit) {
	t := *s
	switch s.bPhase {
	case 0:
		t.bPhase = 1
		for k := range t.nodes {
			t.nodes[k].flags |= acqB
		}
		out(t, step{"B asks LOCK", -1, -1, c.Rival}, "")
	case 1:
		votes := 0
		for k := range s.nodes {
			votes += int(bit(s.nodes[k].flags&okB != 0))
		}
		if left := c.Rival - c.Drift - int(s.bElapsed); votes >= quorum && left > 0 {
			t.bPhase, t.bElapsed, t.bValid, t.grantedB = 2, 0, uint8(left), 1
			out(t, step{grantedB, -1, -1, left}, c.exclusive(&t))
		}
		t = *s
		t.endRival()
		out(t, step{"B gives up, undoes", -1, -1, -1}, "")
	case 2:
		t.endRival()
		out(t, step{"B unlocks", -1, -1, -1}, "")
	}
}

func (s *state) endRival() {
	s.bPhase, s.bElapsed, s.bValid = 3, 0, 0
	for k := range s.nodes {
		s.nodes[k].flags = s.nodes[k].flags&^okB | relB
	}
}
