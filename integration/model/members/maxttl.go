package members

import "fmt"

// MaxTTL is three nodes that forget, a proxy with a long max-ttl whose lease it renews, and
// one with a short max-ttl that is the only one to look after nodes and wants the name.
type MaxTTL struct {
	Kept    bool // a node works with the longest max-ttl of a lease it made that may run
	Told    bool // a node that forgot is told the longest that a majority knows of before it votes
	Renewed int  // renewals
	Losses  uint8
}

const long, short = 4, 1

type ttlNode struct {
	owner, rest uint8
	knows       uint8 // ticks for which it knows of the long max-ttl
	forgot      bool
	away        uint8 // ticks since it forgot
	needs       uint8 // ticks it sits out
	renewed     bool  // vote for the renewal under way
	voted       bool  // for B
}

type ttlState struct {
	nodes           [3]ttlNode
	valid           uint8 // of A
	asks, age, left uint8 // of A's renewal; renewals left
	bAge            uint8
	bAsks, bHas     bool
	losses          uint8
}

// Search visits at most limit states. A has the name on all nodes.
func (c MaxTTL) Search(limit int) Result {
	s := ttlState{valid: long, losses: c.Losses, left: uint8(c.Renewed)}
	for k := range s.nodes {
		s.nodes[k] = ttlNode{owner: 1, rest: long, knows: long}
	}
	return search(s, limit, c.next)
}

func (c MaxTTL) next(s ttlState, out func(ttlState, string, string)) {
	if t := c.tick(s); t != s {
		out(t, "tick", "")
	}
	for k := range s.nodes {
		c.node(s, k, out)
	}
	if s.left > 0 && s.asks == 0 && s.valid > 0 {
		t := s
		t.asks, t.age, t.left = 1, 0, s.left-1
		out(t, "A asks to renew", "")
	}
	if s.asks == 1 && s.count(func(n *ttlNode) bool { return n.renewed }) >= 2 && s.valid > 0 {
		t := s
		t.asks, t.valid = 0, max(s.valid, long-s.age)
		for k := range t.nodes {
			t.nodes[k].renewed = false
		}
		out(t, "A renewed", "")
	}
	if !s.bAsks && !s.bHas {
		t := s
		t.bAsks, t.bAge = true, 0
		out(t, "B asks", "")
	}
	if s.bAsks && s.bAge < short && s.count(func(n *ttlNode) bool { return n.voted }) >= 2 {
		t := s
		t.bAsks, t.bHas = false, true
		broken := ""
		if s.valid > 0 {
			broken = "two valid holders"
		}
		out(t, "B granted", broken)
	}
}

func (s *ttlState) count(has func(*ttlNode) bool) (n int) {
	for k := range s.nodes {
		if has(&s.nodes[k]) {
			n++
		}
	}
	return n
}

func (c MaxTTL) tick(s ttlState) ttlState {
	low := func(x *uint8) { *x = max(*x, 1) - 1 }
	for k := range s.nodes {
		n := &s.nodes[k]
		if low(&n.rest); n.rest == 0 {
			n.owner = 0
		}
		low(&n.knows)
		if n.forgot {
			n.away = min(n.away+1, long)
		}
	}
	low(&s.valid)
	if s.asks == 1 {
		s.age = min(s.age+1, long)
	}
	if s.bAsks {
		if s.bAge++; s.bAge >= short {
			s.bAsks, s.bAge = false, 0
			for k := range s.nodes {
				if s.nodes[k].voted {
					s.nodes[k].voted = false
					if s.nodes[k].owner == 2 {
						s.nodes[k].owner, s.nodes[k].rest = 0, 0
					}
				}
			}
		}
	}
	return s
}

func (c MaxTTL) node(s ttlState, k int, out func(ttlState, string, string)) {
	n := s.nodes[k]
	if s.losses > 0 && !n.forgot {
		t := s
		t.losses--
		t.nodes[k] = ttlNode{forgot: true, needs: short} // the short proxy is first to see it
		out(t, fmt.Sprintf("%d forgets", k), "")
	}
	if n.forgot {
		c.restore(s, k, out)
	}
	if s.asks == 1 && !n.renewed && n.owner != 2 {
		t := s
		m := &t.nodes[k]
		m.owner, m.rest, m.renewed = 1, long, !n.forgot
		if c.Kept {
			m.knows = long
		}
		if c.Kept && n.forgot {
			m.needs = long
		}
		out(t, fmt.Sprintf("%d renews", k), "")
	}
	if s.bAsks && !n.forgot && n.owner == 0 {
		t := s
		t.nodes[k].owner, t.nodes[k].rest, t.nodes[k].voted = 2, short, true
		out(t, fmt.Sprintf("%d votes for B", k), "")
	}
	if !c.Kept && n.owner == 1 && n.rest > short { // an end beyond the max-ttl of who looks is brought back
		t := s
		t.nodes[k].rest = short
		out(t, fmt.Sprintf("%d cuts the lease", k), "")
	}
}

// restore ends a quarantine with what two voting nodes know.
func (c MaxTTL) restore(s ttlState, k int, out func(ttlState, string, string)) {
	n, voters, needs := s.nodes[k], 0, s.nodes[k].needs
	for j := range s.nodes {
		if m := &s.nodes[j]; j != k && !m.forgot {
			voters++
			if c.Told && m.knows > 0 {
				needs = long
			}
		}
	}
	if voters < 2 || n.away < needs {
		return
	}
	t := s
	m := &t.nodes[k]
	m.forgot, m.away, m.needs = false, 0, 0
	out(t, fmt.Sprintf("%d votes again", k), "")
}
