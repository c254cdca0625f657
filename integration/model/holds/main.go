package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/integration/model/explore"
)

func main() {
	c := Config{Rules: soundRules()}
	limit := flag.Int("limit", 30_000_000, "states to visit at most")
	broken := flag.String("broken", "", "rules to take away, by commas; 'list' names them")
	flag.IntVar(&c.Holds, "holds", 2, "holds the owner takes, at most 3")
	flag.IntVar(&c.Renewals, "renewals", 1, "renewals the owner may ask for")
	flag.IntVar(&c.Losses, "losses", 0, "how often a node may forget")
	flag.BoolVar(&c.OneProxy, "oneproxy", false, "the owner never uses the second proxy")
	flag.BoolVar(&c.NoRival, "norival", false, "nobody else wants the lock")
	flag.Parse()
	if *broken == "list" {
		for _, v := range variants {
			fmt.Printf("%-10s %s\n", v.name, v.about)
		}
		return
	}
	for _, name := range strings.FieldsFunc(*broken, func(r rune) bool { return r == ',' }) {
		if !takeAway(&c, name) {
			fmt.Fprintf(os.Stderr, "no rule is called %q; -broken list names them\n", name)
			os.Exit(2)
		}
	}
	if c.Holds < 1 || c.Holds > maxHolds {
		fmt.Fprintf(os.Stderr, "the search has room for 1 to %d holds\n", maxHolds)
		os.Exit(2)
	}
	start := time.Now()
	res := c.search(*limit)
	for _, line := range res.Trace {
		fmt.Println(line)
	}
	fmt.Println(res.Summary(time.Since(start)))
}

func (c *Config) search(limit int) explore.Result {
	return explore.Search(explore.Model[state, step]{
		Initial:   []state{c.initial()},
		Canonical: canonical,
		Next:      func(s *state, out func(state, step, string)) { c.successors(s, out) },
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
