package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/lockproxy/lockproxy/integration/model/explore"
)

func main() {
	c := Config{Rules: soundRules()}
	flag.IntVar(&c.Holds, "holds", 2, "holds the owner takes, at most 3")
	flag.IntVar(&c.Renewals, "renewals", 1, "renewals the owner may ask for")
	flag.IntVar(&c.Losses, "losses", 0, "how often a node may forget")
	flag.BoolVar(&c.OneProxy, "oneproxy", false, "the owner never uses the second proxy")
	flag.BoolVar(&c.NoRival, "norival", false, "nobody else wants the lock")
	explore.Main(explore.RulesOf(variants, &c.Rules), func(limit int) explore.Result {
		if c.Holds < 1 || c.Holds > maxHolds {
			fmt.Fprintf(os.Stderr, "the search has room for 1 to %d holds\n", maxHolds)
			os.Exit(2)
		}
		return c.search(limit)
	})
}

func (c *Config) search(limit int) explore.Result {
	return explore.Search(explore.Model[state, step]{
		Initial:   []state{c.initial()},
		Canonical: canonical,
		Next:      c.successors,
		Describe:  c.describe,
		Count: func(by step) string {
			switch by.what {
			case renewed, grantedB, nowFree, holdLeft:
				return by.what
			}
			return ""
		},
	}, limit)
}
