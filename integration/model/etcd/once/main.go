// Command once explores what becomes of a LOCK in etcd that two members were sent, of which one does it late.
//
// Owner A asks for a name that is free, as far as is known. The transaction is sent twice; each copy is done at any time, or never.
// What was refused because rival B had the name is asked for anew with a transaction of its own, if it is free then. A that has the name
// renews it, and gives it back; a LOCK that was not answered is undone. The key and what marks the transaction are under leases of etcd, which end at
// any time. A transaction whose lease has ended does nothing.
//
// The promises:
//
//	N: A does not have the name in etcd once it was told that its LOCK is over: given back, refused, or undone
//	L: a transaction that is done for the first time is granted a name that is free
//
// Every rule is a flag; -broken NAME takes one away. The design is docs/decisions/0037.
package main

import (
	"fmt"

	"github.com/lockproxy/lockproxy/integration/model/explore"
)

// Rules are what proxies do.
type Rules struct {
	Mark    bool // a transaction on a free name leaves a mark, and does nothing where there is one
	Refused bool // also where it is refused
	Own     bool // each has a mark of its own
	Same    bool // the mark is under a lease without which etcd refuses the transaction
	Undo    bool // an undo leaves the mark of what it undoes
	Before  bool // before it looks whether there is anything to undo
	Longer  bool // under a lease that ends later than that of the LOCK
}

func soundRules() Rules {
	return Rules{Mark: true, Refused: true, Own: true, Same: true, Undo: true, Before: true, Longer: true}
}

// Config is a search.
type Config struct{ Rules }

// Owners, and what A's proxy is at.
const (
	nobody, a, b = 0, 1, 2

	waits   = 0 // for an answer
	granted = 1
	undoes  = 2 // has looked, or marked
	over    = 3 // A was told

	copies = 2
	asks   = 2 // transactions: the second is asked for behind a refusal
)

// A transaction is one that A's proxy has sent.
type transaction struct {
	left  uint8 // copies that were not done
	done  uint8 // copies that were
	mark  uint8 // 1: under a lease of its own or that of the LOCK, 2: by an undo
	lease uint8 // 1: it has ended
}

type state struct {
	owner  uint8 // who has the name in etcd
	by     uint8 // A's transaction that wrote the key, counted from 1; 0: it was renewed since, and is under another lease
	at     uint8 // A's proxy is at this
	step   uint8 // of an undo
	asked  uint8 // transactions
	answer uint8 // 1: the last one was granted, 2: refused, and that is on its way
	rivals uint8 // times that B came
	t      [asks]transaction
}

type step struct{ what string }

// What must happen for a search to prove anything.
const (
	given    = "A gives the name back"
	refused  = "A is refused"
	again    = "A's proxy asks anew"
	undone   = "A's LOCK is undone"
	late     = "a late copy does nothing"
	vanished = "the lease of a LOCK ends"
)

func (c *Config) search(limit int) explore.Result {
	start := state{asked: 1}
	start.t[0].left = copies
	return explore.Search(explore.Model[state, step]{
		Initial:   []state{start},
		Canonical: func(s state) state { return s },
		Next: func(s *state, out func(state, step, string)) {
			c.successors(s, func(t state, what, broken string) {
				if broken == "" && t.at == over && t.owner == a {
					broken = "N: A's LOCK is over, and A has the name"
				}
				out(t, step{what}, broken)
			})
		},
		Describe: func(s *state, by *step) string {
			if by == nil {
				by = &step{"start"}
			}
			return fmt.Sprintf("%-34s name of %d, A's proxy at %d, transactions %v", by.what, s.owner, s.at, s.t[:s.asked])
		},
		Count: func(by step) string { return by.what },
	}, limit)
}

func (c *Config) successors(s *state, out func(t state, what, broken string)) {
	for i := range s.t[:s.asked] {
		if s.t[i].left > 0 {
			c.do(*s, i, out)
		}
		c.leases(*s, i, out)
	}
	c.proxy(s, out)
	t := *s
	switch {
	case s.owner == nobody && s.rivals < 2:
		t.owner = b
		t.rivals++
		out(t, "B takes the name", "")
	case s.owner == b:
		t.owner = nobody
		out(t, "B gives the name back", "")
	}
}

// marked is the transaction that has the mark of the i-th one.
func (c *Config) marked(i int) int {
	if c.Own {
		return i
	}
	return 0
}

// do does a copy of A's i-th transaction.
func (c *Config) do(s state, i int, out func(t state, what, broken string)) {
	x, m := &s.t[i], &s.t[c.marked(i)]
	x.left--
	first := x.done == 0
	x.done = min(x.done+1, 2)
	if x.lease == 1 {
		out(s, late, "")
		return
	}
	free := s.owner == nobody && !(c.Mark && m.mark != 0)
	broken := ""
	if first && s.owner == nobody && !free && s.at == waits {
		broken = "L: it is refused, though the name is free and it was never done"
	}
	if c.Mark && (free || c.Refused) && m.mark == 0 {
		m.mark = 1
	}
	what := late
	if free {
		s.owner, s.by, what = a, uint8(i+1), "a copy is granted the name"
	}
	// The answer to the first copy that is done is told, or that to the second; what happened since shows in the name.
	if s.at == waits && i == int(s.asked)-1 && s.answer == 0 {
		if s.answer = 2; s.owner == a {
			s.answer = 1
		}
	}
	out(s, what, broken)
}

// leases end.
func (c *Config) leases(s state, i int, out func(t state, what, broken string)) {
	x := &s.t[i]
	if x.mark == 1 && !c.Same {
		t := s
		t.t[i].mark = 0
		out(t, "the lease of a mark ends", "")
	}
	if x.mark == 2 && (!c.Longer || x.lease == 1) {
		t := s
		t.t[i].mark = 0
		out(t, "the lease of an undo's mark ends", "")
	}
	if x.lease == 0 {
		t := s
		t.t[i].lease = 1
		if x.mark == 1 {
			t.t[i].mark = 0
		}
		if t.owner == a && t.by == uint8(i+1) {
			t.owner, t.by = nobody, 0
		}
		out(t, vanished, "")
	}
}

// proxy is what A's does.
func (c *Config) proxy(s *state, out func(t state, what, broken string)) {
	t := *s
	switch s.at {
	case waits:
		t.at = undoes
		out(t, "A's proxy waits no longer", "")
		t = *s
		switch s.answer {
		case 1:
			t.at = granted
			out(t, "A is told that it has the name", "")
		case 2:
			t.answer = 0
			if s.owner != nobody || s.asked == asks {
				t.at = over
				out(t, refused, "")
				return
			}
			t.t[t.asked].left = copies
			t.asked++
			out(t, again, "")
		}
	case granted:
		if s.owner == a {
			t.by = 0
			out(t, "A renews", "")
			t = *s
			t.owner, t.by = nobody, 0
		}
		t.at = over
		out(t, given, "")
	case undoes:
		look := func() {
			if t.owner == a {
				t.owner, t.by = nobody, 0
			}
		}
		mark := func() {
			if c.Undo {
				t.t[c.marked(int(t.asked)-1)].mark = 2
			}
		}
		first, second := mark, look
		if !c.Before {
			first, second = look, mark
		}
		if s.step == 0 {
			first()
			t.step = 1
			out(t, "an undo begins", "")
			return
		}
		second()
		t.at = over
		out(t, undone, "")
	}
}

func rulesOf(r *Rules) []explore.Rule {
	return []explore.Rule{
		{Name: "mark", About: "a transaction on a free name leaves a mark, and does nothing where there is one", Take: func() { r.Mark = false }},
		{Name: "refused", About: "also where it is refused", Take: func() { r.Refused = false }},
		{Name: "own", About: "each has a mark of its own", Take: func() { r.Own = false }},
		{Name: "same", About: "the mark is under a lease without which etcd refuses the transaction", Take: func() { r.Same = false }},
		{Name: "undo", About: "an undo leaves the mark of what it undoes", Take: func() { r.Undo = false }},
		{Name: "before", About: "before it looks whether there is anything to undo", Take: func() { r.Before = false }},
		{Name: "longer", About: "under a lease that ends later than that of the LOCK", Take: func() { r.Longer = false }},
	}
}

func main() {
	c := Config{soundRules()}
	explore.Main(rulesOf(&c.Rules), c.search)
}
