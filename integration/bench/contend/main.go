// Command contend lets many contenders want one lock, by lockproxy or by a client
// library without a proxy, and prints what each of them got as JSON. It is started by
// integration/bench, and is a module of its own so that lockproxy's has no dependencies
// which only its benchmark needs.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"strings"
	"time"
)

// A contender acquires the lock, and releases it by what acquire returns.
type contender interface {
	acquire(ctx context.Context) (release func() error, err error)
}

// A way makes n contenders for the lock name on the servers at addrs.
type way func(addrs []string, name string, n int) ([]contender, error)

var ways = map[string]way{
	"lockproxy":           proxied,
	"redsync":             redsyncDefault,
	"redsync-tuned":       redsyncTuned,
	"redislock":           redislockExample,
	"redislock-tuned":     redislockTuned,
	"rueidislock":         rueidislockDefault,
	"rueidislock-noloop":  rueidislockNoLoop,
	"rueidislock-lockers": rueidislockLockers,
}

// A Result is what one run came to.
type Result struct {
	Took     time.Duration   // from the end of the warming up
	Got      []int           // acquisitions of each contender in that time
	Waits    []time.Duration // of those acquisitions
	Retries  int             // the contender was told to try again by itself
	Overlaps int             // two had the lock at once
	Left     int             // contenders still without it long after the end
	All      int             // acquisitions, those outside of that time too
}

func main() {
	log.SetFlags(0)
	by := flag.String("by", "lockproxy", "how to lock")
	addrs := flag.String("addrs", "", "where, separated by commas")
	name := flag.String("name", "one", "of the lock")
	n := flag.Int("n", 50, "contenders")
	hold := flag.Duration("hold", time.Millisecond, "how long it is held")
	warm := flag.Duration("warm", 300*time.Millisecond, "how long nothing is measured first")
	d := flag.Duration("for", 3*time.Second, "how long it is measured then")
	flag.Parse()
	begin, ok := ways[*by]
	if !ok {
		log.Fatalf("nobody locks by %q", *by)
	}
	all, err := begin(strings.Split(*addrs, ","), *name, *n)
	if err != nil {
		log.Fatal(err)
	}
	r, err := contend(all, *hold, *warm, *d)
	if err != nil {
		log.Fatal(fmt.Errorf("%s: %w", *by, err))
	}
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		log.Fatal(err)
	}
}
