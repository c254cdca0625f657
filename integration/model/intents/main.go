// Command intents explores whether a LOCK of several names is granted some time, though others come again and again for one name each, or
// for several as well.
//
// There are two worlds. In that of times the lock nodes are one, and two others take one name each again and again, for at most -hold ticks.
// Who wants both asks once a tick. After three refusals it leaves an intent with the refusal: for so long nobody new gets the names. Then it leaves none for
// three times as long, and the next is twice as long, up to -longest.
//
// In that of nodes there are three, without time, and a name that all want; one of these is refused where another one has it or an intent is
// that keeps it out. Who has asked all nodes is granted the name by two of them, or gives it back where it has it and asks again. -kinds has a
// letter each: M leaves intents where it is refused; the first has waited longest. S leaves none, and when it was granted the name gives it back and asks again.
//
// The promise:
//
//	E: the first M is granted the name some time, or in the world of times who wants both is
//
// Whatever may be done from some time on is done some time; that is all that is assumed. Every rule is a flag; -broken NAME takes one away.
// The design is docs/decisions/0039.
package main

import (
	"flag"

	"github.com/lockproxy/lockproxy/integration/model/explore"
)

// Rules are what proxies and nodes do.
type Rules struct {
	Leave  bool // who is refused leaves an intent
	Longer bool // the next one is longer
	Own    bool // an intent does not refuse its owner
	Older  bool // one of somebody who has waited longer takes the place of another
	Oldest bool // and no other does
	Stay   bool // it stays where its owner is granted the name by a node, until a quorum has
}

func soundRules() Rules {
	return Rules{Leave: true, Longer: true, Own: true, Older: true, Oldest: true, Stay: true}
}

// Config bounds a search.
type Config struct {
	Rules
	Kinds   string // of the world of nodes; empty: that of times
	Hold    int
	Longest int
}

func main() {
	c := Config{Rules: soundRules()}
	flag.StringVar(&c.Kinds, "kinds", "", "who wants the name, in the world of nodes, a letter each; none: the world of times")
	flag.IntVar(&c.Hold, "hold", 3, "how many ticks the others keep a name at most")
	flag.IntVar(&c.Longest, "longest", 8, "how many ticks an intent lasts at most")
	explore.Main(rulesOf(&c.Rules), c.search)
}

func (c *Config) search(limit int) explore.Result {
	if c.Kinds == "" {
		return endless(c.times(), limit)
	}
	return endless(c.nodes(), limit)
}

// A variant is the sound rules without one.
type variant struct {
	name, about string
	take        func(*Rules)
	world       Config // in which that shows
}

var variants = []variant{
	{"leave", "who is refused leaves no intent", func(r *Rules) { r.Leave = false }, times(3, 8)},
	{"longer", "every intent is as long as the first", func(r *Rules) { r.Longer = false }, times(3, 8)},
	{"own", "an intent refuses its owner as well", func(r *Rules) { r.Own = false }, Config{Kinds: "MS"}},
	{"older", "the first intent stays, whoever has waited longer", func(r *Rules) { r.Older = false }, Config{Kinds: "MMM"}},
	{"oldest", "the last intent takes the place of another, whoever has waited longer", func(r *Rules) { r.Oldest = false }, Config{Kinds: "MM"}},
	{"stay", "an intent is over where its owner is granted the name by a node", func(r *Rules) { r.Stay = false }, Config{Kinds: "MSS"}},
}

func times(hold, longest int) Config { return Config{Hold: hold, Longest: longest} }

// rulesOf are the rules that a search may do without; taking one away changes r.
func rulesOf(r *Rules) (all []explore.Rule) {
	for _, v := range variants {
		all = append(all, explore.Rule{Name: v.name, About: v.about, Take: func() { v.take(r) }})
	}
	return all
}
