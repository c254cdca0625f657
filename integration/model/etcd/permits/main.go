// Command permits explores how many owners have a permit of a name in etcd at once, each with a reader's key of its own.
//
// Each owner asks through a proxy of its own, which looks at the keys of all, asks for a permit where fewer others than there may be have one as
// far as it has seen, renews it as long as it knows it to run, and gives it back. Who so says may read first, without a permit. A
// question is done at any time after it was sent, perhaps twice, and its answer comes at any time after that, or never. Time is in ticks. Leases of
// etcd, what is done late on a free name, and writers are those of the other models here.
//
// The promises:
//
//	S: of the validities that owners of permits are told of, no more run at once than there are permits
//	F: the fence of each permit is larger than all that were told of before
//
// Every rule is a flag; -broken NAME takes one away. The design is docs/decisions/0037.
package main

import (
	"flag"
	"fmt"
	"strings"

	"github.com/lockproxy/lockproxy/integration/model/explore"
)

// Rules are what proxies do.
type Rules struct {
	Created bool // a permit is granted only if no key was created since those were read that were counted
	Counted bool // one that has ended counts as well, unless it is removed in the same step
	Same    bool // which is done only if it is as it was seen
	Ended   bool // another's permit has ended when it was seen unchanged for a whole ttl, and not sooner
	Kind    bool // the key of one who reads without a permit is removed before it has one
}

func soundRules() Rules {
	return Rules{Created: true, Counted: true, Same: true, Ended: true, Kind: true}
}

// Config bounds a search.
type Config struct {
	Rules
	Kinds                     string // an owner each: p wants a permit, r reads before
	Permits, TTL, Ticks, Asks int
	Renewals                  int
}

const most = 3 // owners

const (
	idle = 0
	sent = 1
	done = 2

	looks  = 1
	locks  = 2
	renews = 3
	ends   = 4
)

// A key is that of an owner; rev 0: there is none.
type key struct{ rev, created, permit uint8 }

// A question is the one that a proxy has under way.
type question struct {
	phase, what, own, permit, at, began, ok, twice uint8
	remove                                         [most]uint8 // others, as they were seen; 0: not this one
	found                                          [most]key   // behind it
	foundAt                                        uint8
}

// A proxy is that of one owner.
type proxy struct {
	q      question
	own    uint8 // its key as it knows it; 0: there is none
	permit uint8 // that is one of a permit
	runs   uint8 // until when it knows it to run
	told   uint8 // the end of the validity; 0: it is none of a permit
	seen   [most]key
	since  [most]uint8 // when the other's was first seen so
	looked uint8       // the revision of the last look; 0: there was none
	asks   uint8
	renews uint8
}

type state struct {
	now, rev uint8
	fence    uint8 // the largest that was told
	key      [most]key
	p        [most]proxy
}

type step struct{ what string }

// What must happen for a search to prove anything.
const (
	granted = "an owner has a permit"
	reads   = "an owner reads without one"
	renewed = "a lease is renewed"
	instead = "one comes in the place of one that has ended"
	beside  = "two have permits at once"
	given   = "a permit is given back"
	late    = "it has changed"
)

func (c *Config) search(limit int) explore.Result {
	return explore.Search(explore.Model[state, step]{
		Initial:   []state{{now: 1, rev: 1}},
		Canonical: c.canonical,
		Next: func(s *state, out func(state, step, string)) {
			if int(s.now) < c.Ticks {
				t := *s
				t.now++
				out(t, step{"time goes on"}, "")
			}
			for i := range c.Kinds {
				c.proxy(s, i, func(t state, what, broken string) { out(t, step{what}, broken) })
			}
		},
		Describe: func(s *state, by *step) string {
			if by == nil {
				by = &step{"start"}
			}
			return fmt.Sprintf("%-46s %2d keys %v, %+v", by.what, s.now, s.key[:len(c.Kinds)], s.p[:len(c.Kinds)])
		},
		Count: func(by step) string { return by.what },
	}, limit)
}

// asks is how many LOCKs an owner sends.
func (c *Config) asks(i int) int {
	if c.Kinds[i] == 'r' {
		return c.Asks + 1
	}
	return c.Asks
}

// canonical forgets what makes no difference any more.
func (c *Config) canonical(s state) state {
	long := s.now - min(s.now, uint8(c.TTL)) // a whole ttl ago
	for i := range c.Kinds {
		p := &s.p[i]
		if p.told <= s.now {
			p.told = 0
		}
		if p.runs <= s.now {
			p.runs = 0
		}
		if p.q.phase != idle {
			p.q.began = max(p.q.began, long)
		}
		if int(p.asks) == c.asks(i) {
			p.seen, p.since, p.looked = [most]key{}, [most]uint8{}, 0
		}
		for j := range p.since {
			if p.seen[j].permit == 0 {
				p.since[j] = 0
			}
			if p.since[j] != 0 {
				p.since[j] = max(p.since[j], long)
			}
		}
	}
	return s
}

func (c *Config) proxy(s *state, i int, out func(t state, what, broken string)) {
	p := &s.p[i]
	switch p.q.phase {
	case idle:
		c.ask(s, i, out)
	case sent:
		t := *s
		q := &t.p[i].q
		what := "etcd does what it was asked"
		if c.do(&t, i) {
			if q.ok = 1; q.remove != [most]uint8{} {
				what = instead
			}
		}
		q.phase, q.found, q.foundAt = done, t.key, t.rev
		out(t, what, "")
	case done:
		if p.q.twice == 0 && p.q.what != looks && !(p.q.ok == 1 && p.q.own == 0) { // that is marked
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
	send := func(q question, what string, change func(*proxy)) {
		t := *s
		q.phase, q.own, q.began = sent, p.own, s.now
		t.p[i].q = q
		change(&t.p[i])
		out(t, what, "")
	}
	nothing := func(*proxy) {}
	if int(p.asks) < c.asks(i) {
		send(question{what: looks}, "a proxy looks", nothing)
	}
	switch {
	case p.runs <= s.now && int(p.asks) < c.asks(i) && c.Kinds[i] == 'r' && p.asks == 0:
		send(question{what: locks}, "an owner asks to read", func(n *proxy) { n.asks++ })
	case p.runs <= s.now && int(p.asks) < c.asks(i) && p.own != 0 && p.permit == 0 && c.Kind:
		send(question{what: ends}, "a reader's key is removed", nothing)
	case int(p.asks) < c.asks(i) && (p.runs <= s.now || p.permit == 0 && !c.Kind):
		if q := (question{what: locks, permit: 1, at: p.looked}); c.room(s, i, &q) {
			send(q, "an owner asks for a permit", func(n *proxy) { n.asks++ })
		}
	}
	if p.own == 0 || p.runs <= s.now {
		return
	}
	if int(p.renews) < c.Renewals {
		send(question{what: renews, permit: p.permit}, "a proxy renews", func(n *proxy) { n.renews++ })
	}
	send(question{what: ends}, "an owner gives back", func(n *proxy) { n.told, n.runs = 0, 0 })
}

// room reports whether there is a permit, and has the question remove those that have ended, if it must.
func (c *Config) room(s *state, i int, q *question) bool {
	p := &s.p[i]
	all, ended := 0, 0
	for j, k := range p.seen {
		if j == i || k.permit == 0 {
			continue
		}
		all++
		if s.now >= p.since[j]+uint8(c.TTL) || !c.Ended && s.now > p.since[j] {
			ended++
		}
	}
	if all-ended >= c.Permits {
		return false
	}
	for j, k := range p.seen {
		if all < c.Permits || !c.Counted {
			break
		}
		if j != i && k.permit != 0 && (s.now >= p.since[j]+uint8(c.TTL) || !c.Ended && s.now > p.since[j]) {
			q.remove[j] = k.rev
			all--
		}
	}
	return true
}

// do has etcd do a question.
func (c *Config) do(s *state, i int) bool {
	q := &s.p[i].q
	if q.what == looks {
		return true
	}
	if s.key[i].rev != q.own {
		return false
	}
	for j, k := range s.key {
		if q.permit != 0 && q.what == locks && c.Created && k.created > q.at || c.Same && q.remove[j] != 0 && q.remove[j] != k.rev {
			return false
		}
	}
	s.rev++
	if q.what == ends {
		s.key[i] = key{}
		return true
	}
	k := key{rev: s.rev, created: s.rev, permit: q.permit}
	if q.own != 0 {
		k.created = s.key[i].created
	}
	s.key[i] = k
	for j, rev := range q.remove {
		if rev != 0 {
			s.key[j] = key{}
		}
	}
	return true
}

// answer has a proxy learn what became of its question.
func (c *Config) answer(s *state, i int, out func(t state, what, broken string)) {
	t := *s
	p, q := &t.p[i], s.p[i].q
	p.q = question{}
	if q.ok == 0 || q.what == looks {
		for j, k := range q.found {
			if j != i && (k != p.seen[j] || p.looked == 0) {
				p.seen[j], p.since[j] = k, s.now
			}
		}
		p.looked = q.foundAt
		if mine := q.found[i]; mine.rev != p.own {
			p.own, p.permit, p.runs = mine.rev, mine.permit, 0
			if mine.rev != 0 { // another one wrote it
				p.runs = s.now + uint8(c.TTL)
			}
		}
		what := late
		if q.what == looks {
			what = "a proxy sees the keys"
		}
		out(t, what, "")
		return
	}
	if q.what == ends {
		p.own, p.permit, p.runs = 0, 0, 0
		out(t, given, "")
		return
	}
	p.own, p.permit, p.runs = q.found[i].rev, q.permit, s.now+uint8(c.TTL)
	for j, rev := range q.remove {
		if rev != 0 {
			p.seen[j], p.since[j] = key{}, s.now
		}
	}
	until := q.began + uint8(c.TTL)
	if until <= s.now {
		out(t, "it came too late", "")
		return
	}
	if q.permit == 0 {
		what := reads
		if q.what == renews {
			what = renewed
		}
		out(t, what, "")
		return
	}
	p.told = until
	what, broken := renewed, ""
	if q.what == locks {
		what = granted
		if q.own == 0 && q.found[i].rev <= s.fence && q.at >= s.fence {
			broken = "F: a fence is no larger than one that was told before"
		}
		t.fence = max(t.fence, q.found[i].rev)
	}
	n := 0
	for j := range t.p {
		if t.p[j].told > s.now {
			n++
		}
	}
	if n == 2 {
		what = beside
	}
	if n > c.Permits {
		broken = "S: more have permits than there are"
	}
	out(t, what, broken)
}

func rulesOf(r *Rules) []explore.Rule {
	return []explore.Rule{
		{Name: "created", About: "a permit is granted only if no key was created since those were read that were counted", Take: func() { r.Created = false }},
		{Name: "counted", About: "one that has ended counts as well, unless it is removed in the same step", Take: func() { r.Counted = false }},
		{Name: "same", About: "which is done only if it is as it was seen", Take: func() { r.Same = false }},
		{Name: "ended", About: "another's permit has ended when it was seen unchanged for a whole ttl, and not sooner", Take: func() { r.Ended = false }},
		{Name: "kind", About: "the key of one who reads without a permit is removed before it has one", Take: func() { r.Kind = false }},
	}
}

func main() {
	c := Config{Rules: soundRules()}
	flag.StringVar(&c.Kinds, "kinds", "pp", "an owner each, three at most: p wants a permit, r reads before")
	flag.IntVar(&c.Permits, "permits", 1, "that there are")
	flag.IntVar(&c.TTL, "ttl", 2, "of the locks, in ticks")
	flag.IntVar(&c.Ticks, "ticks", 5, "that time goes on")
	flag.IntVar(&c.Asks, "asks", 1, "LOCKs of each owner, to read not counted")
	flag.IntVar(&c.Renewals, "renewals", 1, "of each owner")
	explore.Main(rulesOf(&c.Rules), func(limit int) explore.Result {
		c.Kinds = strings.TrimSpace(c.Kinds)[:min(most, len(c.Kinds))]
		return c.search(limit)
	})
}
