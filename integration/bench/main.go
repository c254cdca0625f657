// Command bench measures lockproxy on this machine: LOCK and UNLOCK on real
// masters beside a bare client that runs scripts on the same masters; waiting
// beside libraries that lock without a proxy; what held locks cost; and
// GET/SET through the proxy beside the same without it.
//
// It starts everything it needs on free ports of 127.0.0.1, takes about twenty
// minutes, prints a page of Markdown, and with -write also stores it. What is
// compared is measured alternately in one run. With -against it only compares two
// builds, in about three minutes.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// A plan is how much is measured.
type plan struct {
	rounds int           // how often what is compared alternates
	slice  time.Duration // how long one round of a lock measurement takes
	scale  float64       // how much of everything else: commands, locks, leases
	only   []string      // parts; empty: all
}

// A part of the page can be measured alone.
type part struct {
	name    string
	measure func(plan, *report) error
}

var parts = []part{
	{"locks", measureLocks},
	{"burst", measureBurst},
	{"shared", measureShared},
	{"permits", measurePermits},
	{"several", measureSeveral},
	{"contend", measureContend},
	{"session", measureSessions},
	{"copies", measureCopies},
	{"adopted", measureAdopted},
	{"idioms", measureIdioms},
	{"unmatched", measureUnmatched},
	{"relay", measureRelay},
	{"allocs", measureAllocs},
	{"growth", measureGrowth},
}

// apart are parts that are measured only by name.
var apart = append([]part{{"bounds", measureBounds}}, partsOfGrowth()...)

func names() (all []string) {
	for _, p := range slices.Concat(parts, apart) {
		all = append(all, p.name)
	}
	return all
}

// choose reads the names of parts, separated by commas; none: all.
func (p *plan) choose(list string) error {
	if list == "" {
		return nil
	}
	p.only = strings.Split(list, ",")
	for _, name := range p.only {
		if !slices.Contains(names(), name) {
			return fmt.Errorf("there is no part %q, only %s", name, strings.Join(names(), ", "))
		}
	}
	return nil
}

func main() {
	log.SetFlags(0)
	write := flag.String("write", "", "also write the page to this `file`, and its pictures beside it")
	scale := flag.Float64("scale", 1, "do this `part` of the work: 0.1 shows that everything runs")
	only := flag.String("only", "", "measure only these `parts`, separated by commas: "+strings.Join(names(), ", "))
	against := flag.String("against", "", "compare with this `binary` of lockproxy instead, in turns: throughput, and CPU a command; fails if this tree is worse")
	flag.Parse()
	p := plan{rounds: 3, scale: *scale}
	p.slice = time.Duration(*scale * float64(1500*time.Millisecond))
	if err := p.choose(*only); err != nil {
		log.Fatal(err)
	}
	measure := p.measure
	if *against != "" {
		measure = func(page *report) error { return measureAgainst(p, page, *against) }
	}
	if err := run(p, measure, *write); err != nil {
		log.Fatal(err)
	}
}

// measure measures the parts of the plan.
func (p plan) measure(page *report) error {
	for i, part := range slices.Concat(parts, apart) {
		if len(p.only) == 0 && i >= len(parts) || len(p.only) > 0 && !slices.Contains(p.only, part.name) {
			continue
		}
		if err := part.measure(p, page); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return nil
}

func run(p plan, measure func(*report) error, file string) error {
	defer redistest.RemoveBinary()
	page := &report{}
	page.head(p.scale)
	err := measure(page)
	if _, failed := io.WriteString(os.Stdout, page.String()); err != nil || failed != nil || file == "" {
		return errors.Join(err, failed)
	}
	return page.write(file)
}
