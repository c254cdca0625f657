// Command settling explores the numbers that nodes give to a grant: votes that come when it is decided, and attempts
// that are undone.
//
// Owner A asks for the name, and may enter again through another proxy; B and C want it too. Messages are executed late or
// never, in any order, votes may be lost, and a lease may lapse at a node at any time. That somebody else may have the name
// while a validity runs is in the other models: here there is no clock.
//
// The promises:
//
//	F: fences grow in the order of the grants
//	K: no LOCK is told the fence of an earlier grant that was asked for after a later one was told
//	V: once a later grant was told, no quorum has an earlier one under its fence
//	L: when everything was executed, every node has the latest grant under its fence, or a renewal may reinstate it
//	   there. Not where a lease has lapsed, a vote was lost, a node forgot, a LOCK of the same owner was undone or
//	   came first, or an UNLOCK overtook the LOCK or the settling
//
// Every rule is a flag; -broken NAME takes one away. The design is docs/decisions/0031.
package main

import (
	"flag"
	"fmt"

	"github.com/lockproxy/lockproxy/integration/model/explore"
)

func main() {
	c := Config{Rules: soundRules()}
	flag.IntVar(&c.Rivals, "rivals", 1, "owners that want the name too, at most 2")
	flag.BoolVar(&c.Again, "again", false, "A enters again")
	flag.BoolVar(&c.AtOnce, "atonce", false, "and may do so before its first LOCK is answered: L is not looked at")
	flag.BoolVar(&c.After, "after", false, "rivals ask when A's LOCKs are over")
	flag.BoolVar(&c.Releases, "releases", false, "what was granted may be given back")
	flag.BoolVar(&c.Lossy, "lossy", false, "votes may be lost")
	flag.IntVar(&c.Lapses, "lapses", 0, "how often a lease may lapse at a node")
	flag.IntVar(&c.Losses, "losses", 0, "how often a node may forget")
	flag.BoolVar(&c.Ahead, "ahead", false, "a node has not seen the name, and has stored a larger fence of another one")
	flag.BoolVar(&c.Behind, "behind", false, "each LOCK proposes less than the one before")
	flag.BoolVar(&c.Old, "old", false, "the name was granted once, and its counters are gone")
	flag.BoolVar(&c.Out, "out", false, "one node gets no messages: L is not looked at")
	explore.Main(explore.RulesOf(variants, &c.Rules), c.search)
}

func (c *Config) search(limit int) explore.Result {
	return explore.Search(explore.Model[state, step]{
		Initial:   c.initial(),
		Canonical: c.canonical,
		Next:      c.successors,
		Describe: func(s *state, by *step) string {
			if by == nil {
				return fmt.Sprintf("start: %v", s)
			}
			return fmt.Sprintf("%s: %v", by, s)
		},
		Count: func(by step) string { return by.what },
	}, limit)
}
