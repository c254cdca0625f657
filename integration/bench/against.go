package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// againstRounds is how often two builds alternate.
const againstRounds = 9

// A build is one of two that are compared, and what it did in each round.
type build struct {
	ground             // its proxy; the servers are those of both
	rates    []float64 // commands or cycles a second
	cpu      []float64 // seconds of the proxy per million of them
	lockers  []cycler
	previous float64 // CPU seconds before the round
}

// begin notes the CPU time of the proxy in front of a round.
func (b *build) begin() (err error) {
	b.previous, err = cpuSeconds(b.proxy.PID())
	return err
}

// end notes a round of n commands or cycles.
func (b *build) end(n int, rate float64) error {
	now, err := cpuSeconds(b.proxy.PID())
	b.rates = append(b.rates, rate)
	b.cpu = append(b.cpu, (now-b.previous)/float64(n)*1e6)
	return err
}

// A duel is one line of the table: a round of it with one build.
type duel struct {
	name  string
	round func(p plan, b *build) (n int, rate float64, err error)
}

func duels() (all []duel) {
	for _, l := range []load{loads[0], loads[2]} {
		for _, command := range []string{"SET", "GET"} {
			all = append(all, duel{command + " " + l.name, func(p plan, b *build) (int, float64, error) {
				n := int(float64(l.n) * p.scale)
				rate, err := redisBenchmark(b.proxy.Addr(), append([]string{"-t", strings.ToLower(command), "-n", strconv.Itoa(n)}, l.args...))
				return n, rate, err
			}})
		}
	}
	return append(all, duel{"LOCK and UNLOCK, 16 clients, 3 masters", func(p plan, b *build) (int, float64, error) {
		s, err := drive(b.lockers, p.slice)
		return s.cycles, s.rate(), err
	}})
}

// measureAgainst compares the lockproxy under test with another binary, in turns, in front of
// the same servers.
func measureAgainst(p plan, page *report, other string) error {
	g, err := openGround(3)
	if err != nil {
		return err
	}
	defer g.close()
	old := &build{ground: *g}
	if old.proxy, err = redistest.LaunchBinary(other, g.data, g.nodes, "--log-level", "error"); err != nil {
		return err
	}
	defer old.proxy.Kill()
	new := &build{ground: *g}
	for i, b := range []*build{new, old} {
		b.lockers, err = b.ground.lockers(16, func(n int) string { return fmt.Sprint("build-", i, "-name-", n) })
		defer closeAll(b.lockers)
		if err != nil {
			return err
		}
	}
	page.linef("\n## Against %s\n", other)
	page.linef("This tree and the other binary in front of the same servers, in turns, %d rounds after one that warms up. Each ratio is the median over the rounds of this tree's figure by the other's, with the least and the greatest. CPU is that of the proxy, in seconds per million commands or cycles.\n", againstRounds)
	page.table("load", "this /s", "other /s", "throughput, this / other", "this CPU", "other CPU", "CPU, this / other")
	for _, c := range duels() {
		if err := c.hold(p, page, new, old); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

func (c duel) hold(p plan, page *report, new, old *build) error {
	for _, b := range []*build{new, old} {
		b.rates, b.cpu = nil, nil
	}
	for round := range againstRounds + 1 {
		order := []*build{new, old}
		if round%2 == 1 { // who comes first may have it easier
			slices.Reverse(order)
		}
		for _, b := range order {
			if err := b.begin(); err != nil {
				return err
			}
			n, rate, err := c.round(p, b)
			if err != nil {
				return err
			}
			if err := b.end(n, rate); err != nil {
				return err
			}
		}
	}
	for _, b := range []*build{new, old} { // without the round that warms up
		b.rates, b.cpu = b.rates[1:], b.cpu[1:]
	}
	page.row(c.name, fmt.Sprintf("%.0f", median(new.rates)), fmt.Sprintf("%.0f", median(old.rates)), spread(new.rates, old.rates),
		fmt.Sprintf("%.2f", median(new.cpu)), fmt.Sprintf("%.2f", median(old.cpu)), spread(new.cpu, old.cpu))
	return nil
}

// spread is the median of a[i]/b[i], with the least and the greatest.
func spread(a, b []float64) string {
	ratios := make([]float64, len(a))
	for i := range a {
		ratios[i] = a[i] / b[i]
	}
	return fmt.Sprintf("%.3f (%.2f–%.2f)", median(ratios), slices.Min(ratios), slices.Max(ratios))
}
