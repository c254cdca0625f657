package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/lockproxy/lockproxy/integration/model/explore"
)

func main() {
	c := Config{Rules: soundRules()}
	flag.StringVar(&c.Kinds, "kinds", "ha", "the owners, a letter each, see the package")
	flag.IntVar(&c.Nodes, "n", 3, "nodes, 3 or 5")
	flag.IntVar(&c.TTL, "ttl", 2, "of each LOCK")
	flag.IntVar(&c.Short, "short", 0, "of each RENEW; 0: the same")
	flag.IntVar(&c.Drift, "drift", 0, "how much sooner a lease may end")
	flag.IntVar(&c.R, "r", 1, "how long a round may take")
	flag.IntVar(&c.Renewals, "renewals", 0, "of the first LOCK")
	flag.BoolVar(&c.Ends, "ends", false, "an operator may end the first lock")
	flag.IntVar(&c.Losses, "losses", 1, "how often a node may forget")
	flag.IntVar(&c.Saves, "saves", 0, "how often what a node has may be saved")
	flag.BoolVar(&c.Lossy, "lossy", false, "votes may be lost")
	flag.BoolVar(&c.Ahead, "ahead", false, "a node has stored a larger fence, of another name")
	flag.BoolVar(&c.Carry, "carry", false, "what a quorum has renewed is restored on the others")
	flag.BoolVar(&c.Long, "long", false, "a node may be back without a copy, after the longest lease")
	explore.Main(explore.RulesOf(variants, &c.Rules), c.search)
}

func (c *Config) search(limit int) explore.Result {
	if err := c.parse(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if c.Short == 0 {
		c.Short = c.TTL
	}
	return explore.Search(explore.Model[state, step]{
		Initial:   c.initial(),
		Canonical: c.canonical,
		Next:      c.successors,
		Describe:  explore.StepAndState[state, step](c.describe),
		Count:     func(by step) string { return by.what },
	}, limit)
}
