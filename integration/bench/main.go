// Command bench measures lockproxy on this machine: LOCK and UNLOCK on real
// masters beside a bare client that runs scripts on the same masters, and
// GET/SET through the proxy beside the same without it.
//
// It starts everything it needs on free ports of 127.0.0.1, takes about four
// minutes, prints a page of Markdown, and with -write also stores it. What is
// compared is measured alternately in one run.
package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// A plan is how much is measured.
type plan struct {
	rounds  int           // how often what is compared alternates
	slice   time.Duration // how long one round of a lock measurement takes
	scale   float64       // how many of its commands each redis-benchmark run sends, 1 for all
	skipped map[string]bool
}

func main() {
	log.SetFlags(0)
	write := flag.String("write", "", "also write the page to this `file`")
	scale := flag.Float64("scale", 1, "do this `part` of the work: 0.1 shows that everything runs")
	only := flag.String("only", "", "measure only `part`: locks, relay or allocs")
	flag.Parse()
	p := plan{rounds: 3, scale: *scale, skipped: map[string]bool{}}
	p.slice = time.Duration(*scale * float64(1500*time.Millisecond))
	for _, part := range []string{"locks", "relay", "allocs"} {
		p.skipped[part] = *only != "" && *only != part
	}
	if err := run(p, *write); err != nil {
		log.Fatal(err)
	}
}

func run(p plan, file string) error {
	defer redistest.RemoveBinary()
	page := &report{}
	page.head(p.scale)
	for _, part := range []struct {
		name    string
		measure func(plan, *report) error
	}{{"locks", measureLocks}, {"relay", measureRelay}, {"allocs", measureAllocs}} {
		if p.skipped[part.name] {
			continue
		}
		if err := part.measure(p, page); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	if _, err := io.WriteString(os.Stdout, page.String()); err != nil || file == "" {
		return err
	}
	return os.WriteFile(file, []byte(page.String()), 0o644)
}
