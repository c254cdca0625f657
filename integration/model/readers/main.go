package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/lockproxy/lockproxy/integration/model/explore"
)

func main() {
	c := Config{Rules: soundRules()}
	flag.StringVar(&c.Kinds, "kinds", "rw", "the owners, a letter each, see the package")
	flag.IntVar(&c.TTL, "ttl", 1, "of each LOCK and RENEW")
	flag.IntVar(&c.Drift, "drift", 0, "how much sooner a lease may end")
	flag.IntVar(&c.Renewals, "renewals", 0, "of each LOCK, at most 2")
	flag.IntVar(&c.Losses, "losses", 0, "how often a node may forget")
	flag.BoolVar(&c.Lossy, "lossy", false, "votes may be lost")
	flag.BoolVar(&c.Ahead, "ahead", false, "a node has not seen the name, and has stored a larger fence of another one")
	flag.BoolVar(&c.Intents, "intents", false, "writers that readers refuse leave intents")
	explore.Main(explore.RulesOf(variants, &c.Rules), c.search)
}

func (c *Config) search(limit int) explore.Result {
	if err := c.parse(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	return explore.Search(explore.Model[state, step]{
		Initial:   c.initial(),
		Canonical: c.canonical,
		Next:      c.successors,
		Describe: func(s *state, by *step) string {
			if by == nil {
				return fmt.Sprintf("start: %v", s)
			}
			return fmt.Sprintf("%v: %v", by, s)
		},
		Count: func(by step) string { return by.what },
	}, limit)
}
