// Command shared explores answers of the lock nodes that are shared: a client sends commands on one lock, several at once,
// and a proxy answers each in its turn, by a question to the nodes that its own or another client's command has led to.
//
// The lock changes hands at any time, unseen by the proxy. A question finds what the lock is at a moment between its
// being sent and its answer; it may be answered late, and after a later one. There is no clock: of a question it is only known
// whether it was sent after the client's burst began.
//
// The promises, which are those of one Redis:
//
//	A: a reply is of a moment between its command's arrival and the reply
//	B: replies to one client are of moments in the order of its commands, also of those that changed the lock
//
// Every rule is a flag; -broken NAME takes one away. The design is docs/decisions/0026.
package main

import (
	"flag"
	"fmt"

	"github.com/lockproxy/lockproxy/integration/model/explore"
)

const questions = 3

// Rules are what a proxy does.
type Rules struct {
	Arrived bool // what is read from a client begins a burst: no question sent before answers it
	Changed bool // and so does a command that changed the lock
	Ordered bool // whoever was given an answer is given that one again, or one to a question that was sent later
}

func soundRules() Rules { return Rules{Arrived: true, Changed: true, Ordered: true} }

// Config bounds a search.
type Config struct {
	Rules
	Changes  int // by others
	Commands int
}

// What a question is.
const (
	unsent = iota
	sent
	found    // by the nodes
	answered // to the proxy
)

type question struct{ phase, is uint8 } // is: what the lock was, as the number of its changes

type client struct {
	came, done uint8 // commands
	arrived    uint8 // what the lock was when the latest came
	seen       uint8 // the latest of what it was told
	after      uint8 // bit q: question q was sent after its burst began
}

type state struct {
	lock    uint8 // the number of its changes
	changes uint8 // of these by others
	asked   uint8 // questions; they have the order in which they were sent
	q       [questions]question
	c       client
}

type step struct{ what string }

// What must happen for a search to prove anything.
const (
	replies = "a command is answered"
	changes = "the client changes the lock"
)

func (c *Config) search(limit int) explore.Result {
	return explore.Search(explore.Model[state, step]{
		Initial:   []state{{}},
		Canonical: func(s state) state { return s },
		Next: func(s *state, out func(state, step, string)) {
			c.successors(s, func(t state, what, broken string) { out(t, step{what}, broken) })
		},
		Describe: func(s *state, by *step) string {
			if by == nil {
				by = &step{"start"}
			}
			return fmt.Sprintf("%-40s lock %d, questions %v, client %v", by.what, s.lock, s.q[:s.asked], s.c)
		},
		Count: func(by step) string { return by.what },
	}, limit)
}

func (c *Config) successors(s *state, out func(t state, what, broken string)) {
	if int(s.changes) < c.Changes {
		t := *s
		t.lock++
		t.changes++
		out(t, "it changes hands", "")
	}
	for q := range s.asked {
		t := *s
		switch t.q[q].phase++; s.q[q].phase {
		case sent:
			t.q[q].is = s.lock
			out(t, "the nodes find what it is", "")
		case found:
			out(t, "a question is answered", "")
		}
	}
	c.ask(s, out)
	if s.c.came == s.c.done { // the proxy reads when it has answered what it had read
		c.arrive(s, out)
		return
	}
	c.change(s, out)
	for q := range s.asked {
		c.reply(s, q, out)
	}
}

// arrive has one command come, or several at once.
func (c *Config) arrive(s *state, out func(t state, what, broken string)) {
	for n := range uint8(c.Commands) - s.c.came {
		t := *s
		t.c.came += n + 1
		t.c.arrived = s.lock
		if c.Arrived {
			t.c.after = 0
		}
		out(t, "commands come", "")
	}
}

// ask sends a question, for this client or another.
func (c *Config) ask(s *state, out func(t state, what, broken string)) {
	if s.asked == questions {
		return
	}
	t := *s
	t.q[t.asked].phase = sent
	t.c.after |= 1 << t.asked
	t.asked++
	out(t, "a question is sent", "")
}

// change has the nodes do a command that changes the lock.
func (c *Config) change(s *state, out func(t state, what, broken string)) {
	t := *s
	t.lock++
	broken := t.c.told(t.lock)
	if c.Changed {
		t.c.after = 0
	}
	out(t, changes, broken)
}

// told has the oldest command answered by what the lock was then.
func (one *client) told(is uint8) (broken string) {
	switch {
	case is < one.arrived:
		broken = "A: the reply is older than its command"
	case is < one.seen:
		broken = "B: the reply is older than one before"
	}
	one.seen = max(one.seen, is)
	one.done++
	return broken
}

// reply gives a client the answer to a question.
func (c *Config) reply(s *state, q uint8, out func(t state, what, broken string)) {
	if s.q[q].phase != answered || s.c.after&(1<<q) == 0 {
		return
	}
	t := *s
	broken := t.c.told(s.q[q].is)
	if c.Ordered {
		t.c.after &= 1 << q // and those that are sent from now on
	}
	out(t, replies, broken)
}

func rulesOf(r *Rules) []explore.Rule {
	return []explore.Rule{
		{Name: "arrived", About: "what is read from a client begins a burst: no question sent before answers it", Take: func() { r.Arrived = false }},
		{Name: "changed", About: "a command that changed the lock begins a burst", Take: func() { r.Changed = false }},
		{Name: "ordered", About: "whoever was given an answer is given that one again, or one to a question that was sent later", Take: func() { r.Ordered = false }},
	}
}

func main() {
	c := Config{Rules: soundRules()}
	flag.IntVar(&c.Changes, "changes", 2, "how often others change the lock")
	flag.IntVar(&c.Commands, "commands", 3, "of the client")
	explore.Main(rulesOf(&c.Rules), c.search)
}
