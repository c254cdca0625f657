package main

import (
	"flag"

	"github.com/lockproxy/lockproxy/integration/model/explore"
)

func main() {
	c := Config{Rules: soundRules()}
	flag.IntVar(&c.First, "first", 2, "ttl of the hold the owner begins with, ticks")
	flag.IntVar(&c.Second, "second", 1, "ttl of the hold it may take; 0: it takes none")
	flag.IntVar(&c.Fresh, "fresh", 0, "ttl of a hold it may take afresh; 0: it takes none")
	flag.IntVar(&c.Long, "long", 2, "ttl of a renewal")
	flag.IntVar(&c.Short, "short", 0, "ttl of another renewal; 0: none such")
	flag.IntVar(&c.Rival, "rival", 1, "ttl of the rival's lock; 0: no rival")
	flag.IntVar(&c.Drift, "drift", 0, "drift, ticks")
	flag.IntVar(&c.Quarantine, "quarantine", 3, "ticks a node that forgot does not vote")
	flag.IntVar(&c.Renewals, "renewals", 1, "renewals the owner may ask for")
	flag.IntVar(&c.Unlocks, "unlocks", 2, "unlocks it may ask for")
	flag.IntVar(&c.Losses, "losses", 0, "how often a node may forget")
	flag.BoolVar(&c.AtOnce, "atonce", false, "notes are made in one step with the sending: a smaller search")
	flag.BoolVar(&c.OneByOne, "onebyone", false, "the owner asks nothing while it awaits an answer")
	flag.BoolVar(&c.OneProxy, "oneproxy", false, "the owner never uses the second proxy")
	flag.BoolVar(&c.All, "all", false, "the owner may ask for UNLOCK ALL")
	flag.BoolVar(&c.Forgotten, "forgotten", false, "proxy 0 does not remember what the owner begins with")
	flag.BoolVar(&c.NoteRelease, "noterelease", false, "a quorum notes the grant before a release that shortens the lease")
	flag.BoolVar(&c.Forget, "forget", false, "proxies may forget a grant by themselves")
	flag.BoolVar(&c.OnTwo, "ontwo", false, "the first hold is on two nodes only")
	flag.BoolVar(&c.Both, "both", false, "the owner begins with its second hold too")
	flag.BoolVar(&c.Apart, "apart", false, "that was made through proxy 1")
	flag.BoolVar(&c.Partly, "partly", false, "the second hold is on two nodes only")
	flag.BoolVar(&c.Elsewhere, "elsewhere", false, "proxy 1 has renewed the first hold with the long ttl, and knows of no other")
	flag.BoolVar(&c.CountEnds, "ends", false, "promise E counts")
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
			case locked, renewed, unlocked, grantedB, noRoom:
				return by.what
			}
			return ""
		},
	}, limit)
}
