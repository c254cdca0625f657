// Command lines explores the lines in which LOCKs of one and of several names wait, at two proxies.
//
// Each proxy has a line for each name. Who wants several names has a place in the line of each, and asks the lock nodes when nobody stands
// before it in any of them; they grant all its names or none. It stands in one line at a time, while its places in the others are kept: in one where somebody stands
// before it, or, when it has asked in vain, in that of the name which is in the way, until that is free. Who waits may leave, and may come back to
// its places once.
//
// Owners, each as -kinds has it: A, B want both names, at the first proxy and at the second; a, b want the first name or the second, at the
// first proxy, and c, d at the second; o, p have the second name and want both, at the first proxy and at the second.
//
// The promise:
//
//	D: while somebody waits, something happens some time without that anybody leaves
//
// Every rule is a flag; -broken NAME takes one away. The design is docs/decisions/0039.
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/lockproxy/lockproxy/integration/model/explore"
)

const (
	names   = 2
	waiters = 4
)

// Rules are what a proxy does.
type Rules struct {
	OneNumber bool // who waits joins all its lines in one step, with one number
	OnePlace  bool // and comes back with that number to all of them
	Own       bool // it stands in no line for a name that its owner has
	Apart     bool // it stands in one line at a time
	Whole     bool // a name that is given back is handed to nobody who waits for others as well
}

func soundRules() Rules {
	return Rules{OneNumber: true, OnePlace: true, Own: true, Apart: true, Whole: true}
}

// Config bounds a search.
type Config struct {
	Rules
	Kinds string // a letter an owner

	owners []owner
}

type owner struct {
	proxy, wants, has uint8 // names, a bit each
}

// The phases of a waiter.
const (
	before  = iota
	joining // some of its lines
	waiting
	left
	holding // all it wants
	over
)

// A waiter is an owner's LOCK.
type waiter struct {
	phase  uint8
	back   uint8        // it has come back
	number [names]uint8 // its place in each line; 0: it is not in it
	holds  uint8
	asleep uint8 // 1 + the name that is in the way
}

// state is everything there is; it has no padding, so its bytes identify it.
type state struct {
	w    [waiters]waiter
	last uint8 // the largest number
}

type step struct {
	what string
	w, n int // -1: none
}

// What must happen for a search to prove anything.
const (
	granted = "it is granted what it wants"
	refused = "it asks in vain"
	handed  = "a name is handed to it"
	cameIn  = "it comes back to its place"
)

func (c *Config) parse() error {
	c.owners = nil
	for _, kind := range c.Kinds {
		o, known := map[rune]owner{'A': {0, 3, 0}, 'B': {1, 3, 0}, 'a': {0, 1, 0}, 'b': {0, 2, 0}, 'c': {1, 1, 0}, 'd': {1, 2, 0}, 'o': {0, 3, 2}, 'p': {1, 3, 2}}[kind]
		if !known {
			return fmt.Errorf("no kind is called %c", kind)
		}
		c.owners = append(c.owners, o)
	}
	if len(c.owners) > waiters {
		return fmt.Errorf("at most %d owners", waiters)
	}
	return nil
}

func has(mask uint8, n int) bool { return mask>>n&1 == 1 }

func (c *Config) initial() state {
	var s state
	for i := range s.w {
		if i < len(c.owners) {
			s.w[i].holds = c.owners[i].has
		} else {
			s.w[i].phase = over
		}
	}
	return s
}

// lines are those that an owner stands in.
func (c *Config) lines(s *state, i int) uint8 {
	if c.Own {
		return c.owners[i].wants &^ s.w[i].holds
	}
	return c.owners[i].wants
}

// standing says in which lines each owner stands. Those whose places are before are looked at first.
func (c *Config) standing(s *state) (in [waiters]uint8) {
	for _, i := range c.order(s) {
		w := &s.w[i]
		if w.phase != waiting && w.phase != joining {
			continue
		}
		all := uint8(0)
		for n, at := range w.number {
			if at > 0 {
				all |= 1 << n
			}
		}
		if in[i] = all; !c.Apart {
			continue
		}
		if w.asleep != 0 {
			in[i] = 1 << (w.asleep - 1)
			continue
		}
		for n := range names {
			if has(all, n) && c.behind(s, &in, i, n) {
				in[i] = 1 << n
				break
			}
		}
	}
	return in
}

// order is that of the owners by their first place.
func (c *Config) order(s *state) []int {
	var all []int
	for i := range c.owners {
		all = append(all, i)
	}
	first := func(i int) int { return int(max(s.w[i].number[0], s.w[i].number[1])) }
	slices.SortFunc(all, func(i, j int) int { return first(i) - first(j) })
	return all
}

// behind reports whether somebody stands before an owner's place in a line.
func (c *Config) behind(s *state, in *[waiters]uint8, i, n int) bool {
	for j := range c.owners {
		if j != i && c.owners[j].proxy == c.owners[i].proxy && has(in[j], n) && s.w[j].number[n] < s.w[i].number[n] {
			return true
		}
	}
	return false
}

// turn reports whether it is a waiter's turn to ask.
func (c *Config) turn(s *state, i int) bool {
	in := c.standing(s)
	for n := range names {
		if s.w[i].number[n] > 0 && c.behind(s, &in, i, n) {
			return false
		}
	}
	return s.w[i].phase == waiting
}

// free are the names that nobody else has.
func (s *state) free(i int) uint8 {
	free := uint8(1<<names - 1)
	for j := range s.w {
		if j != i {
			free &^= s.w[j].holds
		}
	}
	return free
}

func (c *Config) successors(s *state, out func(t state, by step, broken string)) {
	waits, moves := false, false
	move := func(t state, by step) {
		moves = moves || t != *s
		out(t, by, "")
	}
	for i := range c.owners {
		w := &s.w[i]
		switch w.phase {
		case before:
			moves = true
			c.join(s, i, step{"it joins its lines", i, -1}, move)
		case joining:
			c.joinNext(s, i, step{"it joins its lines", i, -1}, move)
		case waiting:
			waits = true
			c.wait(s, i, move)
			t := *s
			t.w[i].phase, t.w[i].asleep, t.w[i].holds = left, 0, c.owners[i].has
			out(t, step{"it leaves", i, -1}, "")
		case left:
			if w.back == 0 {
				t := *s
				t.w[i].back = 1
				c.comeBack(&t, i)
				out(t, step{cameIn, i, -1}, "")
			}
			if w.holds != 0 {
				t := *s
				t.w[i] = waiter{phase: over}
				move(t, step{"it gives back what it has", i, -1})
			}
		case holding:
			c.release(s, i, move)
		}
	}
	if waits && !moves {
		out(*s, step{"nothing happens", -1, -1}, "D: somebody waits, and nothing will happen unless somebody leaves")
	}
}

func (c *Config) join(s *state, i int, by step, out func(state, step)) {
	if !c.OneNumber {
		c.joinNext(s, i, by, out)
		return
	}
	t := *s
	t.last++
	for n := range names {
		if has(c.lines(s, i), n) {
			t.w[i].number[n] = t.last
		}
	}
	t.w[i].phase = waiting
	out(t, by)
}

// joinNext has a waiter join any one of the lines that it is not in yet.
func (c *Config) joinNext(s *state, i int, by step, out func(state, step)) {
	for n := range names {
		if !has(c.lines(s, i), n) || s.w[i].number[n] > 0 {
			continue
		}
		t := *s
		t.last++
		t.w[i].number[n] = t.last
		t.w[i].phase = waiting
		for m := range names {
			if has(c.lines(s, i), m) && t.w[i].number[m] == 0 {
				t.w[i].phase = joining
			}
		}
		by.n = n
		out(t, by)
	}
}

// wait is what may happen to one who waits.
func (c *Config) wait(s *state, i int, out func(state, step)) {
	t := *s
	if n := int(s.w[i].asleep) - 1; n >= 0 {
		if has(s.free(i), n) {
			t.w[i].asleep = 0
			out(t, step{"it wakes up", i, n})
		}
		return
	}
	if !c.turn(s, i) {
		return
	}
	for n := range names {
		if has(c.owners[i].wants&^s.free(i), n) {
			t.w[i].asleep = uint8(n) + 1
			out(t, step{refused, i, n})
			return
		}
	}
	t.w[i] = waiter{phase: holding, holds: c.owners[i].wants}
	out(t, step{granted, i, -1})
}

// comeBack puts a waiter that has left into its place again.
func (c *Config) comeBack(s *state, i int) {
	s.w[i].phase = waiting
	kept := true
	for n := range names {
		if s.w[i].number[n] == 0 {
			continue
		}
		if !kept && !c.OnePlace {
			s.last++
			s.w[i].number[n] = s.last
		}
		kept = false
	}
}

// release has an owner give back all it has. At its proxy, each name may be handed to the first in line.
func (c *Config) release(s *state, i int, out func(state, step)) {
	t := *s
	t.w[i] = waiter{phase: over}
	out(t, step{"it gives back what it has", i, -1})
	in := c.standing(s)
	for j := range c.owners {
		for n := range names {
			if !has(s.w[i].holds&in[j], n) || c.owners[j].proxy != c.owners[i].proxy || c.behind(s, &in, j, n) || s.w[j].phase != waiting || c.Whole && c.owners[j].wants != 1<<n {
				continue
			}
			u := t
			u.w[j].holds |= 1 << n
			u.w[j].number[n], u.w[j].asleep = 0, 0
			if u.w[j].holds == c.owners[j].wants {
				u.w[j] = waiter{phase: holding, holds: u.w[j].holds}
			}
			out(u, step{handed, j, n})
		}
	}
}

func (c *Config) search(limit int) explore.Result {
	if err := c.parse(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	return explore.Search(explore.Model[state, step]{
		Initial:   []state{c.initial()},
		Canonical: canonical,
		Next:      c.successors,
		Describe:  c.describe,
		Count:     func(by step) string { return by.what },
	}, limit)
}

// canonical gives the places the smallest numbers that leave them in order.
func canonical(s state) state {
	var used [256]bool
	for i := range s.w {
		if w := &s.w[i]; w.phase == left && w.back == 1 {
			w.number = [names]uint8{}
		}
		for _, at := range s.w[i].number {
			used[at] = true
		}
	}
	var as [256]uint8
	s.last = 0
	for at := 1; at < len(used); at++ {
		if used[at] {
			s.last++
			as[at] = s.last
		}
	}
	for i := range s.w {
		for n, at := range s.w[i].number {
			s.w[i].number[n] = as[at]
		}
	}
	return s
}

func (c *Config) describe(s *state, by *step) string {
	var b strings.Builder
	b.WriteString("start")
	if by != nil {
		b.Reset()
		if by.w >= 0 {
			fmt.Fprintf(&b, "%c: ", c.Kinds[by.w])
		}
		b.WriteString(by.what)
		if by.n >= 0 {
			fmt.Fprintf(&b, ", name %c", 'a'+by.n)
		}
	}
	fmt.Fprintf(&b, "%*s |", max(0, 40-b.Len()), "")
	for i := range c.owners {
		w := &s.w[i]
		fmt.Fprintf(&b, " %c: %s places %v holds %02b |", c.Kinds[i], [...]string{"before", "joining", "waiting", "left", "holding", "over"}[w.phase], w.number, w.holds)
	}
	return b.String()
}

func main() {
	c := Config{Rules: soundRules()}
	flag.StringVar(&c.Kinds, "kinds", "AAab", "the owners, a letter each, see above")
	explore.Main(rulesOf(&c.Rules), c.search)
}

// A variant is the sound rules without one.
type variant struct {
	name, about string
	take        func(*Rules)
	world       string // the owners with whom that shows
}

var variants = []variant{
	{"apart", "it stands in all its lines", func(r *Rules) { r.Apart = false }, "oA"},
	{"one-number", "and joins them one after the other", func(r *Rules) { r.Apart, r.OneNumber = false, false }, "AA"},
	{"one-place", "or comes back to its place in the first of them only", func(r *Rules) { r.Apart, r.OnePlace = false, false }, "AA"},
	{"own", "it stands in the lines for names that its owner has as well", func(r *Rules) { r.Own = false }, "ob"},
	{"whole", "a name is handed to the first in its line, whatever else that waits for", func(r *Rules) { r.Whole = false }, "aAdB"},
}

// rulesOf are the rules that a search may do without; taking one away changes r.
func rulesOf(r *Rules) (all []explore.Rule) {
	for _, v := range variants {
		all = append(all, explore.Rule{Name: v.name, About: v.about, Take: func() { v.take(r) }})
	}
	return all
}
