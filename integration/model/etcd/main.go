// Command etcd explores when a name that is kept in etcd may be taken from an owner whose proxy does not remove it.
//
// Owner A asks for the name through proxy 0, and renews it; that proxy removes the name when A's hold has ended for it. Rival B
// asks through proxy 1, which looks at the name, and takes it when it is free or has been seen unchanged for a whole ttl. A
// question is done at any time after it was sent, perhaps twice, as it may have been sent again, and its answer comes at any time after that, or
// never. The key is under a lease of etcd, which ends at any time from its end on. Time is in ticks; the clocks of
// both proxies go at one rate, as drift is taken off elsewhere, and show different times.
//
// The promises:
//
//	V: the validities that A and B are told of do not run at once
//	F: B's fence is larger than the one that A was told of before
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
	Guard  bool // a change is made only if the key is the one that was decided on
	Began  bool // validity is counted from before the question
	Void   bool // a renewal makes the proxy that sees it count anew
	Seen   bool // an end is counted from when it was seen, and not from a time in the value
	Answer bool // and from the answer of that look, not from its question
	Lease  bool // a lease of etcd lasts as long as what is under it
	Etcd   bool // the fence is the revision, and not a number of the proxy's
}

func soundRules() Rules {
	return Rules{Guard: true, Began: true, Void: true, Seen: true, Answer: true, Lease: true, Etcd: true}
}

// Config bounds a search.
type Config struct {
	Rules
	TTL, Ticks, Renewals int
}

// A key is the name in etcd.
type key struct {
	owner   uint8 // 0: there is none
	rev     uint8 // that wrote it
	n       uint8 // renewals
	written uint8 // by the clock of proxy 0
	lease   uint8 // when it may vanish
}

// Owners, and phases of a question.
const (
	a, b = 1, 2

	idle   = 0
	sent   = 1
	done   = 2 // in etcd; the answer is on its way
	locks  = 1 // what a question is
	renews = 2
	ends   = 3
	looks  = 4
	takes  = 5
)

// A question is the one that a proxy has under way. What it found is filled in when it is done.
type question struct {
	phase, what, guard, began, lease, ok, twice uint8
	found                                       key
}

type state struct {
	now, rev uint8
	key      key

	q0       question
	known    key   // proxy 0's own
	fence    uint8 // that A was told
	told     uint8 // the end of A's validity; 0: none
	end      uint8 // when proxy 0 removes the hold; 0: it has none
	renewals uint8
	asked    uint8 // A has

	q1   question
	seen key
	at   uint8 // when proxy 1 saw it first, so; 0: it has not looked
	won  uint8 // B's fence
	till uint8 // the end of B's validity
}

type step struct{ what string }

// What must happen for a search to prove anything.
const (
	granted  = "A is granted the name"
	renewed  = "A's hold is renewed"
	removed  = "proxy 0 removes the hold"
	vanished = "the key vanishes with its lease"
	taken    = "B is granted the name"
)

func (c *Config) search(limit int) explore.Result {
	return explore.Search(explore.Model[state, step]{
		Initial:   []state{{now: 1}},
		Canonical: func(s state) state { return s },
		Next: func(s *state, out func(state, step, string)) {
			c.successors(s, func(t state, what, broken string) { out(t, step{what}, broken) })
		},
		Describe: func(s *state, by *step) string {
			if by == nil {
				by = &step{"start"}
			}
			return fmt.Sprintf("%-34s %2d key %v, A %v told %d, B %v saw %v at %d", by.what, s.now, s.key, s.q0, s.told, s.q1, s.seen, s.at)
		},
		Count: func(by step) string { return by.what },
	}, limit)
}

func (c *Config) successors(s *state, out func(t state, what, broken string)) {
	if int(s.now) < c.Ticks {
		t := *s
		t.now++
		out(t, "time goes on", "")
	}
	if s.key.owner != 0 && s.now >= s.key.lease {
		t := *s
		t.key = key{}
		t.rev++
		out(t, vanished, "")
	}
	c.owner(s, out)
	c.rival(s, out)
}

// owner is A and its proxy.
func (c *Config) owner(s *state, out func(t state, what, broken string)) {
	ask := func(what uint8, text string) {
		t := *s
		t.q0 = question{phase: sent, what: what, guard: s.known.rev, began: s.now, lease: s.now + uint8(c.TTL)}
		if !c.Lease {
			t.q0.lease--
		}
		out(t, text, "")
	}
	switch s.q0.phase {
	case idle:
		switch {
		case s.asked == 0:
			t := *s
			t.asked = 1
			s = &t
			ask(locks, "A asks")
		case s.end != 0 && s.now >= s.end:
			ask(ends, "proxy 0 is to remove the hold")
		case s.told > s.now && int(s.renewals) < c.Renewals:
			t := *s
			t.renewals++
			s = &t
			ask(renews, "A renews")
		}
	case sent:
		c.doOwn(s, out)
	case done:
		c.answerOwn(s, out)
		if s.q0.twice == 0 { // it was sent again
			t := *s
			t.q0.twice = 1
			c.write(&t, &t.q0, a)
			out(t, "it is done once more", "")
		}
		t := *s
		t.q0 = question{}
		t.end = 0 // the proxy is gone
		out(t, "the answer is lost", "")
	}
}

// write does what a question asks of etcd.
func (c *Config) write(s *state, q *question, owner uint8) (did bool) {
	if c.Guard && s.key.rev != q.guard || !c.Guard && q.guard != 0 && s.key.owner == 0 {
		return false
	}
	s.rev++
	switch q.what {
	case ends:
		s.key = key{}
	case renews:
		s.key = key{owner: owner, rev: s.rev, n: s.key.n + 1, written: q.began, lease: q.lease}
	default:
		s.key = key{owner: owner, rev: s.rev, written: q.began, lease: q.lease}
	}
	return true
}

func (c *Config) doOwn(s *state, out func(t state, what, broken string)) {
	t := *s
	if c.write(&t, &t.q0, a) {
		t.q0.ok = 1
	}
	t.q0.phase, t.q0.found = done, t.key
	out(t, "etcd does what proxy 0 asks", "")
}

func (c *Config) answerOwn(s *state, out func(t state, what, broken string)) {
	t := *s
	q := s.q0
	t.q0 = question{}
	if q.ok == 0 {
		t.end = 0
		out(t, "proxy 0 is told that it was too late", "")
		return
	}
	if q.what == ends {
		t.end, t.known = 0, key{}
		out(t, removed, "")
		return
	}
	t.known, t.end = q.found, s.now+uint8(c.TTL)
	told := q.began + uint8(c.TTL)
	if !c.Began {
		told = s.now + uint8(c.TTL)
	}
	what := renewed
	if q.what == locks {
		what, t.fence = granted, q.found.rev
		if !c.Etcd {
			t.fence = 200
		}
	}
	if told <= s.now { // answered too late: A is told nothing
		out(t, "it came too late", "")
		return
	}
	t.told = told
	out(t, what, t.promises())
}

// rival is B and its proxy.
func (c *Config) rival(s *state, out func(t state, what, broken string)) {
	switch {
	case s.won != 0:
	case s.q1.phase == idle:
		t := *s
		t.q1 = question{phase: sent, what: looks, began: s.now}
		out(t, "proxy 1 looks", "")
		if s.at != 0 && (s.seen.owner == 0 || s.now >= s.at+uint8(c.TTL)) {
			t.q1 = question{phase: sent, what: takes, guard: s.seen.rev, began: s.now, lease: s.now + uint8(c.TTL)}
			out(t, "proxy 1 is to take it", "")
		}
	case s.q1.phase == sent && s.q1.what == looks:
		t := *s
		t.q1.phase, t.q1.found = done, s.key
		out(t, "etcd shows it", "")
	case s.q1.phase == sent:
		t := *s
		t.q1 = question{}
		if !c.write(&t, &s.q1, b) {
			t.at = 0
			out(t, "it has changed", "")
			return
		}
		t.won, t.till = t.key.rev, s.q1.began+uint8(c.TTL)
		broken := t.promises()
		if broken == "" && t.fence >= t.won {
			broken = "F: B's fence is no larger than the one that A was told of before"
		}
		out(t, taken, broken)
	default:
		t := *s
		found := s.q1.found
		same := s.at != 0 && found == s.seen || s.at != 0 && !c.Void && found.owner == s.seen.owner
		t.q1, t.seen = question{}, found
		switch {
		case same:
		case !c.Seen:
			t.at = max(1, found.written-min(found.written, 1)) // its clock is ahead
		case !c.Answer:
			t.at = s.q1.began
		default:
			t.at = s.now
		}
		out(t, "proxy 1 sees it", "")
	}
}

// promises names the one that does not hold.
func (s *state) promises() string {
	if s.told > s.now && s.till > s.now {
		return "V: A was told of a validity that runs, and B has the name"
	}
	return ""
}

func rulesOf(r *Rules) []explore.Rule {
	return []explore.Rule{
		{Name: "guard", About: "a change is made only if the key is the one that was decided on", Take: func() { r.Guard = false }},
		{Name: "began", About: "validity is counted from before the question", Take: func() { r.Began = false }},
		{Name: "void", About: "a renewal makes the proxy that sees it count anew", Take: func() { r.Void = false }},
		{Name: "seen", About: "an end is counted from when it was seen, and not from a time in the value", Take: func() { r.Seen = false }},
		{Name: "answer", About: "and from the answer of that look, not from its question", Take: func() { r.Answer = false }},
		{Name: "lease", About: "a lease of etcd lasts as long as what is under it", Take: func() { r.Lease = false }},
		{Name: "etcd", About: "the fence is the revision, and not a number of the proxy's", Take: func() { r.Etcd = false }},
	}
}

func main() {
	c := Config{Rules: soundRules()}
	flag.IntVar(&c.TTL, "ttl", 2, "of the lock, in ticks")
	flag.IntVar(&c.Ticks, "ticks", 8, "that time goes on")
	flag.IntVar(&c.Renewals, "renewals", 2, "of A")
	explore.Main(rulesOf(&c.Rules), c.search)
}
