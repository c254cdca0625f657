// Command readers explores what keeps a reader of a name in etcd and a writer apart, who have keys of their own.
//
// Owner R reads the name through proxy 0, and owner W writes it through proxy 1. Each proxy looks at both keys, asks for its own lock where the
// other's key is not there as far as it knows or has been seen unchanged for a whole ttl, and renews it as long as it knows it to
// run. A question is done at any time after it was sent, perhaps twice, and its answer comes at any time after that, or never. Time is in ticks. Leases of etcd
// are those of the model one directory up, where each change is guarded by the key that it writes, and what is done late on a free name is that of once.
//
// The promises:
//
//	X: the validities that R and W are told of do not run at once
//	F: the fence of each grant is larger than the one that the other was told of before
//
// Every rule is a flag; -broken NAME takes one away. The design is docs/decisions/0037.
package main

import (
	"flag"
	"fmt"

	"github.com/lockproxy/lockproxy/integration/model/explore"
)

// Rules are what proxies do.
type Rules struct {
	Writer bool // a reader's LOCK is done only if the writer's key is the one that was decided on
	Range  bool // a writer's only if no reader's key was written since they were read, or at all if they were not
	Clear  bool // whoever comes after one that has ended removes its key in the same step
	Ended  bool // another's lock has ended when it was seen unchanged for a whole ttl, and not sooner
}

func soundRules() Rules { return Rules{Writer: true, Range: true, Clear: true, Ended: true} }

// Config bounds a search.
type Config struct {
	Rules
	TTL, Ticks, Asks int
}

const (
	idle = 0
	sent = 1
	done = 2

	looks  = 1
	locks  = 2
	renews = 3
)

// A question is the one that a proxy has under way.
type question struct {
	phase, what, own, other, began, ok, twice uint8
	clear                                     uint8
	mine, found, at                           uint8 // the own key behind it, the other's, and the revision of that
}

// A proxy is that of one owner.
type proxy struct {
	q       question
	own     uint8 // its key as it knows it; 0: there is none
	runs    uint8 // until when it knows it to run
	told    uint8 // the end of the validity
	fence   uint8 // of the last grant that was told
	seen    uint8 // the other's key
	since   uint8 // when it was first seen so
	looked  uint8 // the revision of the last look; 0: there was none
	asks    uint8
	renewed uint8
}

type state struct {
	now, rev uint8
	key      [2]uint8 // of the reader and the writer: the revision that wrote it; 0: there is none
	p        [2]proxy
}

type step struct{ what string }

// What must happen for a search to prove anything.
const (
	reads   = "R is told that it reads"
	writes  = "W is told that it writes"
	renewed = "a lease is renewed"
	instead = "one comes in the place of one that has ended"
	late    = "it has changed"
)

func (c *Config) search(limit int) explore.Result {
	return explore.Search(explore.Model[state, step]{
		Initial:   []state{{now: 1, rev: 1}},
		Canonical: func(s state) state { return s },
		Next: func(s *state, out func(state, step, string)) {
			if int(s.now) < c.Ticks {
				t := *s
				t.now++
				out(t, step{"time goes on"}, "")
			}
			for i := range s.p {
				c.proxy(s, i, func(t state, what, broken string) { out(t, step{what}, broken) })
			}
		},
		Describe: func(s *state, by *step) string {
			if by == nil {
				by = &step{"start"}
			}
			return fmt.Sprintf("%-46s %2d keys %v, R %+v, W %+v", by.what, s.now, s.key, s.p[0], s.p[1])
		},
		Count: func(by step) string { return by.what },
	}, limit)
}

func (c *Config) proxy(s *state, i int, out func(t state, what, broken string)) {
	p := &s.p[i]
	switch p.q.phase {
	case idle:
		c.ask(s, i, out)
	case sent:
		t := *s
		q := &t.p[i].q
		did := c.do(&t, i)
		if did {
			q.ok = 1
		}
		q.phase, q.mine, q.found, q.at = done, t.key[i], t.key[1-i], t.rev
		what := "etcd does what it was asked"
		if did && q.clear != 0 {
			what = instead
		}
		out(t, what, "")
	case done:
		if p.q.twice == 0 && p.q.what != looks {
			t := *s
			t.p[i].q.twice = 1
			c.do(&t, i)
			out(t, "it is done once more", "")
		}
		t := *s
		t.p[i].q = question{}
		out(t, "the answer is lost", "")
		c.answer(s, i, out)
	}
}

// ask sends a question.
func (c *Config) ask(s *state, i int, out func(t state, what, broken string)) {
	p := &s.p[i]
	t := *s
	t.p[i].q = question{phase: sent, what: looks}
	out(t, "a proxy looks", "")
	ended := p.seen == 0 || int(s.now) >= int(p.since)+c.TTL || !c.Ended && s.now > p.since
	switch {
	case int(p.asks) < c.Asks && p.runs <= s.now && ended:
		t = *s
		n := &t.p[i]
		n.asks++
		n.q = question{phase: sent, what: locks, own: p.own, other: p.seen, began: s.now}
		if i == 1 {
			n.q.other = p.looked
		}
		if p.seen != 0 && c.Clear {
			n.q.clear = 1
		}
		out(t, "a proxy asks for the lock", "")
	case p.own != 0 && p.runs > s.now && p.renewed == 0:
		t = *s
		n := &t.p[i]
		n.renewed = 1
		n.q = question{phase: sent, what: renews, own: p.own, began: s.now}
		out(t, "a proxy renews", "")
	}
}

// do has etcd do a question.
func (c *Config) do(s *state, i int) bool {
	q := &s.p[i].q
	switch {
	case q.what == looks:
		return true
	case s.key[i] != q.own,
		q.what == locks && i == 0 && c.Writer && s.key[1] != q.other,
		q.what == locks && i == 1 && c.Range && s.key[0] > q.other:
		return false
	}
	s.rev++
	s.key[i] = s.rev
	if q.clear != 0 {
		s.key[1-i] = 0
	}
	return true
}

// answer has a proxy learn what became of its question.
func (c *Config) answer(s *state, i int, out func(t state, what, broken string)) {
	t := *s
	p, q := &t.p[i], s.p[i].q
	p.q = question{}
	if q.ok == 0 || q.what == looks {
		if q.found != p.seen || p.looked == 0 {
			p.seen, p.since = q.found, s.now
		}
		p.looked = q.at
		if q.mine != p.own {
			p.own, p.runs = q.mine, 0 // another one wrote it, or nobody has it
			if q.mine != 0 {
				p.runs = s.now + uint8(c.TTL)
			}
		}
		what := late
		if q.what == looks {
			what = "a proxy sees both keys"
		}
		out(t, what, "")
		return
	}
	p.own, p.runs = q.mine, s.now+uint8(c.TTL)
	if q.clear != 0 {
		p.seen, p.since = 0, s.now
	}
	until := q.began + uint8(c.TTL)
	if until <= s.now {
		out(t, "it came too late", "")
		return
	}
	p.told = until
	what, broken := renewed, ""
	if q.what == locks {
		p.fence = q.mine
		if what = reads; i == 1 {
			what = writes
		}
		if s.p[1-i].fence >= q.mine && s.p[1-i].told <= q.began {
			broken = "F: a fence is no larger than one that was told before"
		}
	}
	if t.p[0].told > s.now && t.p[1].told > s.now {
		broken = "X: R and W are both told of validities that run"
	}
	out(t, what, broken)
}

func rulesOf(r *Rules) []explore.Rule {
	return []explore.Rule{
		{Name: "writer", About: "a reader's LOCK is done only if the writer's key is the one that was decided on", Take: func() { r.Writer = false }},
		{Name: "range", About: "a writer's only if no reader's key was written since they were read, or at all if they were not", Take: func() { r.Range = false }},
		{Name: "clear", About: "whoever comes after one that has ended removes its key in the same step", Take: func() { r.Clear = false }},
		{Name: "ended", About: "another's lock has ended when it was seen unchanged for a whole ttl, and not sooner", Take: func() { r.Ended = false }},
	}
}

func main() {
	c := Config{Rules: soundRules()}
	flag.IntVar(&c.TTL, "ttl", 2, "of the locks, in ticks")
	flag.IntVar(&c.Ticks, "ticks", 6, "that time goes on")
	flag.IntVar(&c.Asks, "asks", 1, "LOCKs of each owner")
	explore.Main(rulesOf(&c.Rules), c.search)
}
