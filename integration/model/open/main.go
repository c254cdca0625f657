// Command open explores leases without an end: proxies that keep one, and others that help it, beside an EXPIRE that
// gives it an end, a release, and a grant to another owner.
//
// One of three nodes may lack the grant. There is no clock: every renewal is due at any time. Messages are executed
// late or never, and nobody need wait for an answer before asking anew. The end that EXPIRE gives may be over at any time, on one node
// sooner than on another. That a lease lapses otherwise, shortens or is forgotten, and who may
// renew it then, is in the other models; a helper's renewal is a RENEW there.
//
// The promises:
//
//	O1: once EXPIRE is answered, no quorum has a version without an end
//	O2: and no renewal succeeds that a helper asks for after that
//	R1: once the release is answered, no quorum has the grant
//	R2: and no renewal changes the next grant
//
// Every rule is a flag; -broken NAME takes one away. The design is docs/decisions/0029.
package main

import (
	"bytes"
	"flag"
	"fmt"

	"github.com/lockproxy/lockproxy/integration/model/explore"
)

const (
	nodes  = 3
	quorum = 2
	rounds = 4
	first  = 0 // the epoch of the grant; that of round r is r+1
)

// Rules are what proxies and nodes do.
type Rules struct {
	ByQuorum bool // a helper goes by a quorum of versions without an end
	OpenOnly bool // it replaces no others
	NewEpoch bool // EXPIRE takes an epoch of its own
	Exactly  bool // a renewal that read replaces exactly the version that it read
	NoReturn bool // a node that knows of the release reinstates nothing
	Notes    bool // nor does one that has given the grant an end
	Fence    bool // a renewal changes the grant only that it names
}

func soundRules() Rules {
	return Rules{ByQuorum: true, OpenOnly: true, NewEpoch: true, Exactly: true, NoReturn: true, Notes: true, Fence: true}
}

// Config bounds a search.
type Config struct {
	Rules
	Helps, Keeps, Expires int  // rounds of helpers, in an epoch that is known, and of EXPIRE
	Lapses                bool // the end that EXPIRE gave is over
	Release               bool // the grant is released, and the name granted again
}

// What a node has.
const (
	free = iota
	mine
	next
)

type version struct{ epoch, seq uint8 }

type node struct {
	has, open, told uint8
	at              version
	releasing       uint8 // a release is on its way
	knows           uint8 // it was executed here
	ended           uint8 // EXPIRE was executed here
	acquiring       uint8
	sent            uint8 // bit r: the renewal of round r is on its way
	fixing          uint8 // bit r: and may reinstate
}

// What a round is.
const (
	help = iota + 1
	keep
	expire
)

// How far a round is.
const (
	reading = iota + 1
	sending
	done
	given // up
)

type round struct {
	what, phase  uint8
	as           version // that it writes
	heard, voted uint8   // bits of nodes
	late         uint8   // 1: asked for after EXPIRE was answered; 2: after the release was
	read         [nodes]version
	was          [nodes]uint8 // open there, when it was read
}

type state struct {
	n                                [nodes]node
	r                                [rounds]round
	used, helps, keeps, expires      uint8
	expired, released, asked, regain uint8
	votes                            uint8 // nodes that released
}

type step struct {
	what    string
	k, r, x int
}

func bits(m uint8) (n int) {
	for ; m > 0; m &= m - 1 {
		n++
	}
	return n
}

// broken is the promise that does not hold in a state.
func (s *state) broken() string {
	open, has := 0, 0
	for k := range s.n {
		if n := &s.n[k]; n.has == mine {
			has++
			open += int(n.open)
		}
	}
	switch {
	case s.expired == 1 && open >= quorum:
		return "O1: EXPIRE was answered, and a quorum has no end"
	case s.released == 1 && has >= quorum:
		return "R1: the release was answered, and a quorum has the grant"
	}
	return ""
}

type emit = func(t state, by step, broken string)

func (c *Config) successors(s *state, out emit) {
	emit := func(t state, what string, k, r int, broken string) {
		if broken == "" {
			broken = t.broken()
		}
		out(t, step{what, k, r, 0}, broken)
	}
	c.ask(s, emit)
	for r := range s.used {
		c.proxy(s, int(r), emit)
		for k := range s.n {
			c.read(s, k, int(r), emit)
			c.renew(s, k, int(r), emit)
		}
	}
	if c.Release {
		c.release(s, emit)
	}
	if c.Lapses {
		lapse(s, emit)
	}
}

// lapse is that the end which EXPIRE gave is over on a node.
func lapse(s *state, emit report) {
	for k := range s.n {
		n := &s.n[k]
		if n.has == mine && n.at.epoch != first && s.r[n.at.epoch-1].what == expire {
			t := *s
			m := &t.n[k]
			m.has, m.open, m.told, m.at = free, 0, 0, version{}
			emit(t, "the lease is over", k, -1, "")
		}
	}
}

type report = func(t state, what string, k, r int, broken string)

// ask begins a round.
func (c *Config) ask(s *state, emit report) {
	if s.used == rounds {
		return
	}
	begin := func(what uint8, as version, phase uint8) state {
		t := *s
		t.r[t.used] = round{what: what, phase: phase, as: as, late: s.expired | s.released<<1}
		t.used++
		return t
	}
	own := version{s.used + 1, 1}
	if int(s.helps) < c.Helps {
		t := begin(help, own, reading)
		t.helps++
		emit(t, "a helper looks", -1, int(s.used), "")
	}
	if int(s.expires) < c.Expires && s.expired == 0 {
		t := begin(expire, own, reading)
		t.expires++
		if !c.NewEpoch {
			t.r[s.used].as = version{first, 1}
			t.send(int(s.used), 7)
		}
		emit(t, "EXPIRE is asked for", -1, int(s.used), "")
	}
	if int(s.keeps) < c.Keeps {
		for e := range s.used + 1 {
			if e > 0 && (s.r[e-1].what != help || s.r[e-1].phase != done) {
				continue
			}
			t := begin(keep, version{e, 2 + s.keeps}, reading)
			t.keeps++
			t.send(int(s.used), 7)
			emit(t, "a keeper renews", -1, int(s.used), "")
		}
	}
}

// send has the renewal of a round on its way to these nodes.
func (s *state) send(r int, to uint8) {
	s.r[r].phase = sending
	for k := range s.n {
		if to>>k&1 == 1 {
			s.n[k].sent |= 1 << r
		}
	}
}

// proxy is what whoever asked for a round may do.
func (c *Config) proxy(s *state, r int, emit report) {
	p := &s.r[r]
	switch {
	case p.phase == reading && bits(p.heard) >= quorum:
		open, to := 0, uint8(0)
		for k := range s.n {
			if p.heard>>k&1 == 0 || p.was[k] == 2 {
				continue
			}
			open += int(p.was[k])
			if p.what == expire || !c.OpenOnly || p.was[k] == 1 {
				to |= 1 << k
			}
		}
		t := *s
		if p.what == help && (c.ByQuorum && open < quorum || open == 0) || bits(to) < quorum {
			t.r[r].phase = given
			emit(t, "it lets the lock be", -1, r, "")
			return
		}
		t.send(r, to)
		emit(t, "it renews what it has read", -1, r, "")
	case p.phase == sending:
		if p.what == keep && p.voted != 0 { // and reinstates it where the name is free
			fix := *s
			for k := range fix.n {
				fix.n[k].fixing |= fix.n[k].sent & (1 << r)
			}
			if fix != *s {
				emit(fix, "it may reinstate", -1, r, "")
			}
		}
		if bits(p.voted) >= quorum {
			c.count(s, r, emit)
		}
	}
}

// count takes a round for done.
func (c *Config) count(s *state, r int, emit report) {
	p, t, broken := &s.r[r], *s, ""
	t.r[r].phase = done
	switch {
	case p.what == expire:
		t.expired = 1
	case p.late&1 == 1:
		broken = "O2: a renewal without an end that was asked for after EXPIRE was answered"
	}
	name := "a helper has renewed it"
	if p.what == expire {
		name = "EXPIRE is answered"
	} else if p.what == keep {
		name = "a keeper has renewed it"
	}
	emit(t, name, -1, r, broken)
}

func (c *Config) read(s *state, k, r int, emit report) {
	p := &s.r[r]
	if p.phase != reading || p.heard>>k&1 == 1 {
		return
	}
	t := *s
	q, n := &t.r[r], &s.n[k]
	q.heard |= 1 << k
	if q.read[k], q.was[k] = n.at, n.open; n.has != mine || n.told == 1 {
		q.read[k], q.was[k] = version{}, 2
	}
	emit(t, "a node is read", k, r, "")
}

func (c *Config) renew(s *state, k, r int, emit report) {
	p, n := &s.r[r], &s.n[k]
	if n.sent>>r&1 == 0 {
		return
	}
	t := *s
	m := &t.n[k]
	m.sent &^= 1 << r
	named := n.has == mine || n.has == next && !c.Fence
	follows := n.at.epoch == p.as.epoch && p.as.seq > n.at.seq
	if p.what == help || p.what == expire && c.NewEpoch {
		follows = n.at == p.read[k] || !c.Exactly
	}
	broken := ""
	switch {
	case named && (follows || n.at == p.as):
		if n.has == next {
			broken = "R2: a renewal changes the next grant"
		}
		m.at, m.open = p.as, 1
		if p.what == expire {
			m.open, m.ended = 0, 1
		}
	case n.has == free && n.fixing>>r&1 == 1 && (n.knows == 0 || !c.NoReturn) && (n.ended == 0 || !c.Notes):
		m.has, m.told, m.at, m.open = mine, 1, p.as, 1
	case n.has == free && p.what == keep && n.fixing>>r&1 == 0:
		return // it waits to be told whether it may
	default:
		m.fixing &^= 1 << r
		emit(t, "a node refuses a renewal", k, r, "")
		return
	}
	m.fixing &^= 1 << r
	if p.phase == sending {
		t.r[r].voted |= 1 << k
	}
	emit(t, "a node renews", k, r, broken)
}

// release is the release of the grant, and the next one.
func (c *Config) release(s *state, emit report) {
	if s.asked == 0 {
		t := *s
		t.asked = 1
		for k := range t.n {
			t.n[k].releasing = 1
		}
		emit(t, "the release is asked for", -1, -1, "")
	}
	if s.asked == 1 && s.released == 0 && bits(s.votes) >= quorum {
		t := *s
		t.released = 1
		emit(t, "the release is answered", -1, -1, "")
	}
	if s.regain == 0 && s.released == 1 {
		t := *s
		t.regain = 1
		for k := range t.n {
			t.n[k].acquiring = 1
		}
		emit(t, "another asks for the name", -1, -1, "")
	}
	for k := range s.n {
		if s.n[k].releasing == 1 {
			t := *s
			m := &t.n[k]
			if m.releasing, m.knows = 0, 1; m.has == mine {
				m.has, m.open, m.told, m.at = free, 0, 0, version{}
			}
			t.votes |= 1 << k
			emit(t, "a node releases", k, -1, "")
		}
		if s.n[k].acquiring == 1 && s.n[k].has == free {
			t := *s
			m := &t.n[k]
			m.acquiring, m.has, m.open, m.at = 0, next, 0, version{rounds + 1, 0}
			emit(t, "a node grants the next", k, -1, "")
		}
	}
}

func (c *Config) initial() (all []state) {
	for lacks := range 2 {
		s := state{}
		for k := range nodes - lacks {
			s.n[k] = node{has: mine, open: 1}
		}
		all = append(all, s)
	}
	return all
}

// canonical forgets what nobody looks at any more, and orders the nodes.
func canonical(s state) state {
	for r := range s.r {
		p := &s.r[r]
		if p.phase == done || p.phase == given {
			p.heard, p.voted = 0, 0
		}
		for k := range s.n {
			if p.phase != reading && s.n[k].sent>>r&1 == 0 {
				p.read[k], p.was[k] = version{}, 0
			}
		}
		if p.phase == sending {
			p.heard = 0
		}
	}
	best := s
	for _, order := range [][nodes]int{{0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		if t := s.permuted(order); bytes.Compare(explore.Bytes(&t), explore.Bytes(&best)) < 0 {
			best = t
		}
	}
	return best
}

// permuted is the same state with the nodes in another order.
func (s *state) permuted(order [nodes]int) state {
	mask := func(m uint8) (to uint8) {
		for k, from := range order {
			to |= m >> from & 1 << k
		}
		return to
	}
	t := *s
	t.votes = mask(s.votes)
	for k, from := range order {
		t.n[k] = s.n[from]
		for r := range s.r {
			t.r[r].read[k], t.r[r].was[k] = s.r[r].read[from], s.r[r].was[from]
		}
	}
	for r := range s.r {
		t.r[r].heard, t.r[r].voted = mask(s.r[r].heard), mask(s.r[r].voted)
	}
	return t
}

func (c *Config) search(limit int) explore.Result {
	return explore.Search(explore.Model[state, step]{
		Initial:   c.initial(),
		Canonical: canonical,
		Next:      c.successors,
		Describe: func(s *state, by *step) string {
			if by == nil {
				return fmt.Sprintf("start: %+v", s.n)
			}
			return fmt.Sprintf("%s (node %d, round %d): %+v", by.what, by.k, by.r, s.n)
		},
		Count: func(by step) string { return by.what },
	}, limit)
}

// A variant is the sound rules without one.
type variant struct {
	name, about string
	take        func(*Rules)
	breaks      string
	world       Config
}

var variants = []variant{
	{"by-quorum", "a helper goes by one version without an end", func(r *Rules) { r.ByQuorum, r.OpenOnly = false, false }, "O1", ending()},
	{"open-only", "it replaces every version that it has read", func(r *Rules) { r.OpenOnly = false }, "O1", ending()},
	{"new-epoch", "EXPIRE is a renewal in the lease's epoch", func(r *Rules) { r.NewEpoch = false }, "O1", ending()},
	{"exactly", "a renewal that read replaces any version", func(r *Rules) { r.Exactly = false }, "O1", ending()},
	{"no-return", "a node that knows of the release reinstates the lock", func(r *Rules) { r.NoReturn = false }, "R1", releasing()},
	{"notes", "a node that gave the lease an end, which is over, reinstates the lock", func(r *Rules) { r.Notes = false }, "O1", lapsing()},
	{"fence", "a renewal does not name the grant, nor the version", func(r *Rules) { r.Fence, r.Exactly = false, false }, "R2", releasing()},
}

// ending is a world in which EXPIRE gives the lease an end.
func ending() Config { return Config{Rules: soundRules(), Helps: 1, Keeps: 1, Expires: 1} }

// helping is one in which two proxies help it.
func helping() Config { return Config{Rules: soundRules(), Helps: 2, Expires: 1} }

// endingTwice is one in which EXPIRE is tried again.
func endingTwice() Config { return Config{Rules: soundRules(), Helps: 1, Expires: 2} }

// lapsing is one in which the end that it gives is over.
func lapsing() Config { return Config{Rules: soundRules(), Keeps: 1, Expires: 1, Lapses: true} }

// releasing is one in which it is released.
func releasing() Config { return Config{Rules: soundRules(), Helps: 1, Keeps: 1, Release: true} }

func main() {
	c := Config{Rules: soundRules()}
	flag.IntVar(&c.Helps, "helps", 2, "how often helpers look")
	flag.IntVar(&c.Keeps, "keeps", 1, "how often one renews in an epoch that it knows")
	flag.IntVar(&c.Expires, "expires", 1, "how often EXPIRE is tried")
	flag.BoolVar(&c.Lapses, "lapses", false, "the end that EXPIRE gave is over")
	flag.BoolVar(&c.Release, "release", false, "the lock is released, and granted again")
	explore.Main(rulesOf(&c.Rules), c.search)
}

func rulesOf(r *Rules) (all []explore.Rule) {
	for _, v := range variants {
		all = append(all, explore.Rule{Name: v.name, About: v.about, Take: func() { v.take(r) }})
	}
	return all
}
