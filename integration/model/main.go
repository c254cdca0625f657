package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/lockproxy/lockproxy/integration/model/explore"
)

func main() {
	c := defaultConfig()
	flag.IntVar(&c.Nodes, "n", c.Nodes, "nodes, at most 3")
	flag.IntVar(&c.Long, "long", c.Long, "the long lease, ticks")
	flag.IntVar(&c.Short, "short", c.Short, "the short lease, ticks")
	flag.IntVar(&c.Drift, "drift", c.Drift, "drift, ticks")
	flag.IntVar(&c.Quarantine, "quarantine", c.Quarantine, "ticks a node that forgot does not vote")
	flag.IntVar(&c.Requests, "requests", c.Requests, "renewals the owner may ask for")
	flag.IntVar(&c.Pending, "pending", 0, "short renewals of proxy 0 under way at the start")
	flag.IntVar(&c.Skipped, "skipped", 0, "renewals it had sent before those, all lost")
	flag.IntVar(&c.Autos, "autos", c.Autos, "renewals proxy 0 makes by itself")
	flag.IntVar(&c.Losses, "losses", c.Losses, "how often a node may forget")
	flag.BoolVar(&c.Unlocks, "unlocks", c.Unlocks, "the owner may unlock")
	flag.BoolVar(&c.Shortens, "shortens", c.Shortens, "the owner may ask for the short lease")
	flag.BoolVar(&c.AtOnce, "atonce", false, "notes are made in one step with the sending: a smaller search")
	flag.BoolVar(&c.Dup, "dup", false, "renewals may be executed repeatedly")
	flag.BoolVar(&c.DupAcquire, "dupacquire", false, "the owner's acquire may be executed once more on every node")
	flag.BoolVar(&c.Force, "force", false, "an operator may take the lock away")
	flag.BoolVar(&c.OneProxy, "oneproxy", false, "the owner never uses the second proxy")
	flag.BoolVar(&c.NoLate, "nolate", false, "the owner's acquire has arrived on every node")
	flag.BoolVar(&c.Lapse, "lapse", false, "promise P6 counts: no renewal brings a lapsed lease back")
	flag.BoolVar(&c.NoRival, "norival", false, "nobody else wants the lock")
	flag.BoolVar(&c.ProxiesRemember, "remember", false, "proxies never forget a grant by themselves")
	res := explore.Main(rulesOf(&c.Rules), func(limit int) explore.Result {
		c.Quorum = c.Nodes/2 + 1
		if c.Nodes < 1 || c.Nodes > maxNodes || c.Requests+c.Autos > 8 {
			fmt.Fprintln(os.Stderr, "the search has room for 1 to 3 nodes and 8 renewals")
			os.Exit(2)
		}
		return Search(c, limit)
	})
	if n := res.Counts[noRoom]; n > 0 {
		fmt.Printf("%d steps were left out for want of a round\n", n)
	}
}
