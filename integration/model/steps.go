package main

import "math/bits"

// A step is one thing that may happen next; broken names the promise it breaks.
type step struct {
	what            string
	node, who, ends int // node and who are 0-based, -1 where there is none; ends is the ticks concerned
	broken          string
}

type emit func(state, step)

// unless calls out with t and the step, or where every round slot is in use with the
// state s it began in and noRoom: the step is left out.
func (out emit) unless(full bool, s *state, t state, st step) {
	if full {
		t, st = *s, step{noRoom, -1, -1, 0, ""}
	}
	out(t, st)
}

// successors calls out with every state one step away from s.
func (c *Config) successors(s *state, out emit) {
	if c.settled(s) {
		return
	}
	c.tick(s, out)
	c.client(s, out)
	for p := range s.proxies {
		c.proxySteps(s, p, out)
	}
	c.rival(s, out)
	c.operator(s, out)
	for k := 0; k < c.Nodes; k++ {
		c.nodeSteps(s, k, out)
	}
}

func lower(x *uint8) bool {
	if *x > 0 {
		*x--
		return true
	}
	return false
}

func (c *Config) raise(x *uint8) bool {
	if int(*x) <= c.Long {
		*x++
		return true
	}
	return false
}

func (c *Config) tick(s *state, out emit) {
	t := *s
	moved := lower(&t.told)
	moved = lower(&t.bValid) || moved
	if t.bPhase == 1 {
		moved = c.raise(&t.bElapsed) || moved
	}
	for p := range t.proxies {
		x := &t.proxies[p]
		moved = lower(&x.validity) || moved
		if x.phase != idle {
			moved = c.raise(&x.elapsed) || moved
		}
	}
	for k := 0; k < c.Nodes; k++ {
		n := &t.nodes[k]
		moved = lower(&n.quarantine) || moved
		if lower(&n.rem) {
			moved = true
			if n.rem == 0 {
				n.clearHold()
			}
		}
	}
	if moved {
		out(t, step{"wait", -1, -1, 0, ""})
	}
}

func (n *node) clearHold() { n.owner, n.rem, n.fence, n.version, n.putBack = free, 0, 0, 0, 0 }

// client: what A does. It asks one thing at a time; what it gave up it no longer hears of.
func (c *Config) client(s *state, out emit) {
	if s.asking != 0 {
		t := *s
		p := &t.proxies[s.asking-1]
		if c.CancelSends {
			p.stop()
		}
		p.byClient = 0
		t.asking = 0
		out(t, step{"A gives the request up", -1, int(s.asking) - 1, 0, ""})
		return
	}
	if s.released == 1 {
		return
	}
	for p := range s.proxies {
		if p == 1 && c.OneProxy {
			continue
		}
		if c.Unlocks {
			c.askUnlock(s, p, out)
		}
		if s.requests == 0 || s.proxies[p].phase != idle {
			continue
		}
		for _, ttl := range []int{c.Long, c.Short} {
			if ttl == c.Short && !c.Shortens {
				continue
			}
			t := *s
			t.requests--
			t.asking = uint8(p + 1)
			t.proxies[p].byClient = 1
			lapsed := bit(c.Lapse && c.lapsed(s))
			if c.MinOnSend {
				t.told = min(t.told, uint8(ttl-c.Drift))
			}
			room := c.begin(&t, p, ttl, false)
			t.proxies[p].afterLapse = lapsed
			out.unless(!room, s, t, step{"A asks RENEW", -1, p, ttl, ""})
		}
	}
}

func (c *Config) askUnlock(s *state, p int, out emit) {
	t := *s
	t.released, t.told = 1, 0
	t.unlocker, t.lateAsk, t.deadAsk = uint8(p+1), s.granted, bit(s.force == forced)
	x := &t.proxies[p]
	x.stop()
	t.trusted = x.knows & bit(x.validity > 0)
	for k := 0; k < c.Nodes; k++ {
		t.nodes[k].flags, t.nodes[k].clear = t.nodes[k].flags&^(relOK|relGone)|relA, 0
	}
	out(t, step{"A asks UNLOCK", -1, p, 0, ""})
}

// stop ends what the proxy is doing. Messages already sent stay under way.
func (x *proxy) stop() {
	if x.phase != idle && x.knows == 0 {
		x.validity = 0
	}
	x.phase, x.elapsed, x.round, x.ttl, x.grow = idle, 0, 0, 0, 0
	x.afterRival, x.afterUnlock, x.afterForce, x.byClient, x.afterLapse = 0, 0, 0, 0, 0
}

// begin starts a renewal at proxy p, by its memory of the grant if that has not
// ended, by reading otherwise. It reports whether the search has room for it.
func (c *Config) begin(s *state, p, ttl int, grow bool) bool {
	x := &s.proxies[p]
	x.ttl, x.grow = uint8(ttl), bit(grow)
	x.elapsed, x.afterRival, x.afterUnlock = 0, s.granted, s.unlocked
	x.afterForce = bit(s.force == forced)
	if x.knows == 0 || x.validity == 0 {
		x.phase, x.knows, x.lineage, x.number, x.validity = polling, 0, 0, 0, 0
		return true
	}
	x.number++
	shortens := !grow && ttl-c.Drift < int(x.validity)
	if c.MinOnSend && !grow {
		x.validity = min(x.validity, uint8(ttl-c.Drift))
	}
	if shortens && c.Notes {
		c.note(s, p)
		return true
	}
	return c.send(s, p, x.lineage, x.number, false)
}

// note asks every node to note that proxy p is about to shorten.
func (c *Config) note(s *state, p int) {
	s.proxies[p].phase = noting
	if c.AtOnce {
		return
	}
	for k := 0; k < c.Nodes; k++ {
		n := &s.nodes[k]
		n.noting |= 1 << p
		n.notes &^= 1 << p
	}
}

// noted ends the noting: a quorum has it, so the renewal goes out.
func (c *Config) noted(s *state, p int, out emit) {
	got, highest := 0, uint8(0)
	for k := 0; k < c.Nodes; k++ {
		n := &s.nodes[k]
		got += int(n.notes >> p & 1)
		if n.read[p].version > 0 {
			highest = max(highest, s.numberOf(n.read[p].version-1))
		}
	}
	if s.proxies[p].validity == 0 {
		return
	}
	if !c.AtOnce && got >= c.Quorum {
		c.sendNoted(*s, *s, p, highest, out)
	}
	for set := uint(0); c.AtOnce && set < 1<<c.Nodes; set++ {
		if t := *s; bits.OnesCount(set) == c.Quorum && t.noteAll(set, c.VotesOnly) {
			c.sendNoted(*s, t, p, highest, out)
		}
	}
}

// noteAll notes on every node of a set. It reports whether all of them may be counted.
func (s *state) noteAll(set uint, votesOnly bool) bool {
	for k := range s.nodes {
		if set>>k&1 == 0 {
			continue
		}
		if votesOnly && !s.nodes[k].votes() {
			return false
		}
		s.nodes[k].noted = 1
	}
	return true
}

func (c *Config) sendNoted(s, t state, p int, highest uint8, out emit) {
	x := &t.proxies[p]
	foreign := x.knows == 0
	lineage, number := x.lineage, x.number
	if foreign {
		lineage, number = 0, highest+1
	}
	out.unless(!c.send(&t, p, lineage, number, foreign), &s, t, step{"a quorum noted it, proxy sends", -1, p, int(x.validity), ""})
}

func bit(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// send opens a round of proxy p and puts its messages under way, in a foreign
// round only to the nodes that were read.
func (c *Config) send(s *state, p int, lineage, number uint8, foreign bool) bool {
	x := &s.proxies[p]
	r := 0
	for r < maxRounds && s.rounds[r].used == 1 {
		r++
	}
	if r == maxRounds {
		return false
	}
	if foreign {
		lineage = uint8(r + 1)
	}
	x.phase, x.round, x.elapsed = renewing, uint8(r), 0
	x.lineage, x.number = lineage, number
	s.rounds[r] = round{1, uint8(p), x.ttl, lineage, number, x.grow, bit(foreign)}
	for k := 0; k < c.Nodes; k++ {
		n := &s.nodes[k]
		n.dropVote(r)
		if foreign {
			n.base[r] = n.read[p].version
			if n.base[r] == 0 && !c.ForeignRepair {
				continue
			}
		}
		n.sent |= 1 << r
	}
	return true
}

func (c *Config) proxySteps(s *state, p int, out emit) {
	x := &s.proxies[p]
	switch x.phase {
	case idle:
		c.startAuto(s, p, out)
		if x.knows == 1 && !c.ProxiesRemember && s.unlocker != uint8(p+1) {
			t := *s
			t.proxies[p].knows = 0
			out(t, step{"proxy forgets the grant", -1, p, 0, ""})
		}
	case polling:
		c.takeOver(s, p, out)
	case noting:
		c.noted(s, p, out)
	case renewing:
		c.complete(s, p, out)
	}
	if x.phase != idle && x.byClient == 0 {
		t := *s
		t.proxies[p].stop()
		out(t, step{"proxy stops the round", -1, p, 0, ""})
	}
	if s.unlocker == uint8(p+1) {
		c.completeUnlock(s, p, out)
	}
}

func (c *Config) startAuto(s *state, p int, out emit) {
	if p != 0 || s.autos == 0 || s.asking == 1 || s.proxies[p].knows == 0 || s.unlocker == 1 || s.released == 1 && s.unlocker == 0 && s.unlocked == 0 {
		return
	}
	t := *s
	t.autos--
	out.unless(!c.begin(&t, p, c.Short, c.AutoGrows), s, t, step{"proxy renews by itself", -1, p, c.Short, ""})
}

// takeOver ends the reading: a quorum is known to carry A's grant.
func (c *Config) takeOver(s *state, p int, out emit) {
	got, highest := 0, uint8(0)
	var ends []int
	for k := 0; k < c.Nodes; k++ {
		rd := s.nodes[k].read[p]
		if rd.version == 0 {
			continue
		}
		got++
		ends = append(ends, int(rd.rem))
		highest = max(highest, s.numberOf(rd.version-1))
	}
	need := c.Quorum
	if !c.ReadQuorum {
		need = 1
	}
	if got < need {
		return
	}
	t := *s
	x := &t.proxies[p]
	bound := nthLargest(ends, need) - c.Drift - int(x.elapsed)
	if bound <= 0 {
		if c.ForeignBound {
			return
		}
		bound = 0
	}
	x.validity = uint8(bound)
	if c.Notes && x.grow == 0 && int(x.ttl)-c.Drift < nthLargest(ends, 1) {
		c.note(&t, p)
		out(t, step{"proxy has read a quorum, has it noted", -1, p, bound, ""})
		return
	}
	out.unless(!c.send(&t, p, 0, highest+1, true), s, t, step{"proxy has read a quorum, sends", -1, p, bound, ""})
}

func nthLargest(v []int, n int) int {
	for i := range v {
		for j := i; j > 0 && v[j] > v[j-1]; j-- {
			v[j], v[j-1] = v[j-1], v[j]
		}
	}
	return v[n-1]
}

// numberOf is the number a hold of that version stores.
func (s *state) numberOf(version uint8) uint8 {
	if version == 0 {
		return 0
	}
	return s.rounds[version-1].number
}

// complete ends a round that has its votes in time, and tells A if A still asks.
func (c *Config) complete(s *state, p int, out emit) {
	x := &s.proxies[p]
	r := s.rounds[x.round]
	votes := c.votesFor(s, x.round)
	need := c.Quorum
	if r.foreign == 1 && !c.ReadQuorum {
		need = 1
	}
	left := int(r.ttl) - c.Drift - int(x.elapsed)
	if votes < need || left <= 0 || c.bounded(s, x) && x.validity == 0 {
		return
	}
	t := *s
	y := &t.proxies[p]
	valid := uint8(left)
	if r.grow == 1 {
		valid = max(valid, y.validity)
	}
	tell := x.byClient == 1
	if tell {
		t.told, t.asking = valid, 0
	}
	y.stop()
	y.knows, y.validity = 1, valid
	out(t, step{renewed, -1, p, int(valid), c.judgeRenewal(&t, x, tell)})
}

// votesFor counts the votes of a round. Beside one that says noted, votes of records
// that were put back are left out: the lease may have ended there and everywhere.
func (c *Config) votesFor(s *state, round uint8) (votes int) {
	var voted, noted, leftOut int
	for k := 0; k < c.Nodes; k++ {
		n := &s.nodes[k]
		var out uint8
		if c.NotedVotes {
			out |= n.vput
		}
		if c.ToldVotes {
			out |= n.vtold
		}
		voted += int(n.voted >> round & 1)
		noted += int(n.vnoted >> round & 1)
		leftOut += int(n.voted & out >> round & 1)
	}
	if noted == 0 {
		return voted
	}
	return voted - leftOut
}

func (c *Config) judgeRenewal(s *state, before *proxy, told bool) string {
	switch {
	case s.granted == 1 && (told && s.force < releasing || before.afterRival == 1):
		return "P2: renewed although a later fence has been granted"
	case before.afterUnlock == 1:
		return "P3: a renewal begun after UNLOCK was answered succeeds"
	case before.afterLapse == 1 && told:
		return "P6: a renewal asked for after the lease had lapsed succeeds"
	case before.afterForce == 1:
		return "P5: a renewal begun after FORCE was answered succeeds"
	}
	return c.exclusive(s)
}

// exclusive is the main promise. Where nothing shortens, what the proxy of a
// SESSION believes counts for A too, until A asks for UNLOCK.
func (c *Config) exclusive(s *state) string {
	keeper := &s.proxies[0]
	believed := c.Autos > 0 && !c.Shortens && s.released == 0 && keeper.knows == 1 && keeper.validity > 0
	if s.force >= releasing {
		return "" // A's validity is void, and whoever asked for it knows
	}
	if s.bValid > 0 && (s.told > 0 || believed) {
		return "P1: two valid holders"
	}
	return ""
}

func (c *Config) completeUnlock(s *state, p int, out emit) {
	t := *s
	x := &t.proxies[p]
	trusted := x.knows == 1 && (x.validity > 0 && !c.AskedInTime || s.trusted == 1 && c.AskedInTime)
	need := relGone
	if trusted {
		need = relOK
	}
	votes, clear := 0, 0
	for k := 0; k < c.Nodes; k++ {
		votes += int(s.nodes[k].flags & need / need)
		clear += int(s.nodes[k].clear)
	}
	x.knows = 0
	t.unlocker, t.trusted = 0, 0
	if votes < c.Quorum && (clear < c.Quorum || !trusted || !c.Unnoted) {
		out(t, step{"UNLOCK is not answered", -1, p, 0, ""})
		return
	}
	t.unlocked = 1
	broken := ""
	switch {
	case s.lateAsk == 1:
		broken = "P4: UNLOCK succeeds although a later fence had been granted"
	case s.deadAsk == 1:
		broken = "P5: an UNLOCK asked for after FORCE was answered succeeds"
	}
	out(t, step{unlocked, -1, p, 0, broken})
}

// lapsed reports whether the lease is over: no validity that A was told runs, and fewer
// nodes than a quorum still have the grant.
func (c *Config) lapsed(s *state) bool {
	holding := 0
	for k := range s.nodes[:c.Nodes] {
		holding += int(bit(s.nodes[k].owner == ownA && s.nodes[k].fence == fence))
	}
	return s.told == 0 && holding < c.Quorum
}
