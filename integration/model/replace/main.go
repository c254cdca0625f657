package main

import (
	"flag"

	"github.com/lockproxy/lockproxy/integration/model/explore"
)

func main() {
	c := Config{Rules: soundRules()}
	flag.IntVar(&c.First, "first", 2, "ttl of the grant that is replaced, and of its renewals, ticks")
	flag.IntVar(&c.Others, "others", 2, "ttl of the other grants")
	flag.IntVar(&c.Drift, "drift", 0, "drift, ticks")
	flag.IntVar(&c.Quarantine, "quarantine", 2, "ticks a node that forgot does not vote")
	flag.IntVar(&c.Renewals, "renewals", 1, "renewals the owner may ask for, at most 8")
	flag.BoolVar(&c.Unlocks, "unlocks", false, "the owner may unlock")
	flag.BoolVar(&c.UnlockOnce, "once", false, "and that UNLOCK must not have been done before")
	flag.IntVar(&c.Second, "second", 0, "what a second one replaces: 1 the same grant, 2 that of the first; 0: there is none")
	flag.BoolVar(&c.Rival, "rival", false, "somebody else acquires")
	flag.IntVar(&c.Losses, "losses", 0, "how often a node may forget")
	flag.BoolVar(&c.Late, "late", false, "the owner's LOCK may still come to the node that lacks the grant")
	flag.BoolVar(&c.Everywhere, "everywhere", false, "the grant is on all nodes")
	flag.BoolVar(&c.Dup, "dup", false, "acquisitions may be executed repeatedly")
	flag.BoolVar(&c.AtOnce, "atonce", false, "notes are made in one step with the sending: a smaller search")
	explore.Main(explore.RulesOf(variants, &c.Rules), c.search)
}

func (c *Config) search(limit int) explore.Result {
	return explore.Search(explore.Model[state, step]{
		Initial:   c.initial(),
		Canonical: c.canonical,
		Next:      c.successors,
		Describe:  describe,
		Count: func(by step) string {
			switch by.what {
			case replaced, granted, renewed, unlocked, undone:
				return by.what
			}
			return ""
		},
	}, limit)
}
