// Command permits explores how many owners have a permit of a name in etcd at once. A permit is a reader's key and that of a seat, of which there are so
// many as there may be permits.
//
// Each owner asks through a proxy of its own, which looks at the seats, asks for one that is free or has been seen unchanged for a whole ttl,
// renews it as long as it knows it to run, and gives it back. A question is done at any time after it was sent, perhaps twice, and its answer comes at
// any time after that, or never. Keys are under leases of etcd, which end at any time after those of the owners. Time is in ticks. What is done late on a
// free name, and writers, are those of the other models here.
//
// The promise:
//
//	S: the validities that owners of permits are told of do not run at once, if they have one seat
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
	Seat  bool // a permit is granted only if its seat is as it was decided on
	Clear bool // who gets the seat of one that has ended removes its key in the same step
	Both  bool // a renewal writes the seat as well
	Lease bool // the key and the seat are under one lease
	Ended bool // another's permit has ended when its seat was seen unchanged for a whole ttl, and not sooner
}

func soundRules() Rules { return Rules{Seat: true, Clear: true, Both: true, Lease: true, Ended: true} }

// Config bounds a search.
type Config struct {
	Rules
	Owners, Seats, TTL, Ticks, Asks, Renewals int
}

const (
	most = 3 // owners, and seats

	idle = 0
	sent = 1
	done = 2

	looks  = 1
	locks  = 2
	renews = 3
	ends   = 4
)

// A key is that of an owner; rev 0: there is none.
type key struct{ rev, seat, lease uint8 }

// A seat has the owner of the key that was written with it.
type seat struct{ rev, owner uint8 }

// A question is the one that a proxy has under way.
type question struct {
	phase, what, own, began, ok, twice uint8
	seat, as                           uint8 // the one that it is about, and its revision as it was decided on
	clear                              uint8 // the owner whose key is removed, counted from 1; 0: nobody's
	mine                               key   // the own key behind it
	found                              [most]seat
}

// A proxy is that of one owner.
type proxy struct {
	q      question
	own    key         // its key as it knows it
	runs   uint8       // until when it knows it to run
	told   uint8       // the end of the validity
	seat   uint8       // of which it is
	seen   [most]seat  // as it saw them last
	since  [most]uint8 // and when first so
	asks   uint8
	renews uint8
}

type state struct {
	now, rev uint8
	key      [most]key
	seat     [most]seat
	p        [most]proxy
}

type step struct{ what string }

// What must happen for a search to prove anything.
const (
	granted  = "an owner has a permit"
	renewed  = "a lease is renewed"
	instead  = "one comes in the place of one that has ended"
	beside   = "two have permits at once"
	given    = "a permit is given back"
	vanished = "a lease of etcd ends"
	late     = "it has changed"
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
			for i := range c.Owners {
				c.leases(s, i, func(t state) { out(t, step{vanished}, "") })
				c.proxy(s, i, func(t state, what, broken string) { out(t, step{what}, broken) })
			}
		},
		Describe: func(s *state, by *step) string {
			if by == nil {
				by = &step{"start"}
			}
			return fmt.Sprintf("%-46s %2d keys %v, seats %v, %+v", by.what, s.now, s.key[:c.Owners], s.seat[:c.Seats], s.p[:c.Owners])
		},
		Count: func(by step) string { return by.what },
	}, limit)
}

// canonical forgets what makes no difference any more.
func (c *Config) canonical(s state) state {
	long := s.now - min(s.now, uint8(c.TTL)) // a whole ttl ago
	for i := range c.Owners {
		p := &s.p[i]
		if p.told <= s.now {
			p.told, p.seat = 0, 0
		}
		if p.runs <= s.now {
			p.runs = 0
		}
		if p.q.phase != idle {
			p.q.began = max(p.q.began, long)
		}
		if int(p.asks) == c.Asks {
			p.seen, p.since = [most]seat{}, [most]uint8{}
		}
		for j := range p.since {
			if p.since[j] = max(p.since[j], long); p.seen[j].rev == 0 {
				p.since[j] = 0
			}
		}
		s.key[i].lease = max(s.key[i].lease, min(s.now, s.key[i].lease*uint8(c.Ticks))) // it may end now
	}
	return s
}

// leases of etcd end.
func (c *Config) leases(s *state, i int, out func(t state)) {
	k := s.key[i]
	if k.rev == 0 || s.now < k.lease {
		return
	}
	t := *s
	t.key[i] = key{}
	t.free(k)
	out(t)
	if !c.Lease {
		t = *s
		t.free(k)
		out(t)
	}
}

// free removes the seat that was written with a key.
func (s *state) free(k key) {
	if s.seat[k.seat].rev == k.rev {
		s.seat[k.seat] = seat{}
	}
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
			if q.ok = 1; q.clear != 0 {
				what = instead
			}
		}
		q.phase, q.mine, q.found = done, t.key[i], t.seat
		out(t, what, "")
	case done:
		if p.q.twice == 0 && p.q.what != looks && !(p.q.what == locks && p.q.ok == 1 && p.q.own == 0) { // that is marked
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
		q.phase, q.own, q.began = sent, p.own.rev, s.now
		t.p[i].q = q
		change(&t.p[i])
		out(t, what, "")
	}
	runs := p.own.rev != 0 && p.runs > s.now
	if int(p.asks) < c.Asks {
		send(question{what: looks}, "a proxy looks", func(*proxy) {})
		for j := range c.Seats {
			was := p.seen[j]
			ended := s.now >= p.since[j]+uint8(c.TTL) || !c.Ended && s.now > p.since[j]
			if runs || was.rev != 0 && !ended {
				continue
			}
			q := question{what: locks, seat: uint8(j), as: was.rev}
			if was.rev != 0 && int(was.owner) != i && c.Clear {
				q.clear = was.owner + 1
			}
			send(q, "an owner asks for a permit", func(n *proxy) { n.asks++ })
		}
	}
	if !runs {
		return
	}
	if int(p.renews) < c.Renewals {
		send(question{what: renews, seat: p.own.seat}, "a proxy renews", func(n *proxy) { n.renews++ })
	}
	send(question{what: ends, seat: p.own.seat}, "an owner gives back", func(n *proxy) { n.told, n.runs = 0, 0 })
}

// do has etcd do a question.
func (c *Config) do(s *state, i int) bool {
	q := &s.p[i].q
	switch was := s.key[i]; {
	case q.what == looks:
		return true
	case was.rev != q.own, q.what == locks && c.Seat && s.seat[q.seat].rev != q.as:
		return false
	case q.what == ends:
		s.rev++
		s.key[i] = key{}
		s.free(was)
		return true
	case q.what == locks && was.rev != 0:
		s.free(was)
	}
	s.rev++
	if q.what == locks || c.Both {
		s.seat[q.seat] = seat{s.rev, uint8(i)}
	}
	s.key[i] = key{s.rev, q.seat, q.began + uint8(c.TTL)}
	if q.clear != 0 {
		s.key[q.clear-1] = key{}
	}
	return true
}

// answer has a proxy learn what became of its question.
func (c *Config) answer(s *state, i int, out func(t state, what, broken string)) {
	t := *s
	p, q := &t.p[i], s.p[i].q
	p.q = question{}
	for j, x := range q.found {
		if x != p.seen[j] {
			p.seen[j], p.since[j] = x, s.now
		}
	}
	if q.ok == 0 || q.what == looks {
		if q.mine != p.own {
			p.own, p.runs = q.mine, 0
			if q.mine.rev != 0 { // another one wrote it
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
	p.own, p.runs = q.mine, s.now+uint8(c.TTL)
	until := q.began + uint8(c.TTL)
	switch {
	case q.what == ends:
		out(t, given, "")
		return
	case until <= s.now:
		out(t, "it came too late", "")
		return
	}
	p.told, p.seat = until, q.seat
	what, broken := renewed, ""
	if q.what == locks {
		what = granted
	}
	for j := range c.Owners {
		if o := &t.p[j]; j != i && o.told > s.now {
			if what = beside; o.seat == p.seat {
				broken = "S: two have a permit with one seat"
			}
		}
	}
	out(t, what, broken)
}

func rulesOf(r *Rules) []explore.Rule {
	return []explore.Rule{
		{Name: "seat", About: "a permit is granted only if its seat is as it was decided on", Take: func() { r.Seat = false }},
		{Name: "clear", About: "who gets the seat of one that has ended removes its key in the same step", Take: func() { r.Clear = false }},
		{Name: "both", About: "a renewal writes the seat as well", Take: func() { r.Both = false }},
		{Name: "lease", About: "the key and the seat are under one lease", Take: func() { r.Lease = false }},
		{Name: "ended", About: "another's permit has ended when its seat was seen unchanged for a whole ttl, and not sooner", Take: func() { r.Ended = false }},
	}
}

func main() {
	c := Config{Rules: soundRules()}
	flag.IntVar(&c.Owners, "owners", 2, "who want a permit, three at most")
	flag.IntVar(&c.Seats, "seats", 1, "that there are, three at most")
	flag.IntVar(&c.TTL, "ttl", 2, "of the locks, in ticks")
	flag.IntVar(&c.Ticks, "ticks", 5, "that time goes on")
	flag.IntVar(&c.Asks, "asks", 1, "LOCKs of each owner")
	flag.IntVar(&c.Renewals, "renewals", 1, "of each owner")
	explore.Main(rulesOf(&c.Rules), c.search)
}
