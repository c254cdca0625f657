package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// againstRounds is how often two builds alternate.
const againstRounds = 25

// tolerated is the part by which a build may be worse.
const tolerated = 0.03

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
// the same servers. The error says what is worse, if anything is.
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
	page.linef("This tree and the other binary in front of the same servers, in turns, %d rounds after one that warms up. Each ratio is the median over the rounds of this tree's figure by the other's, in brackets between what it is with a confidence of 95 %%. CPU is that of the proxy, in seconds per million commands or cycles. Worse and better: by more than %.0f %%, with that confidence; same: by less; open: the rounds differ too much to tell.\n", againstRounds, 100*tolerated)
	page.table("load", "this /s", "other /s", "throughput, this / other", "", "this CPU", "other CPU", "CPU, this / other", "")
	var all []string
	for _, c := range duels() {
		worse, err := c.hold(p, page, new, old)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		all = append(all, worse...)
	}
	if len(all) > 0 {
		return fmt.Errorf("worse than %s: %s", other, strings.Join(all, "; "))
	}
	return nil
}

// hold adds a line to the table, and returns what of it is worse.
func (c duel) hold(p plan, page *report, new, old *build) (worse []string, err error) {
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
				return nil, err
			}
			n, rate, err := c.round(p, b)
			if err != nil {
				return nil, err
			}
			if err := b.end(n, rate); err != nil {
				return nil, err
			}
		}
	}
	for _, b := range []*build{new, old} { // without the round that warms up
		b.rates, b.cpu = b.rates[1:], b.cpu[1:]
	}
	rate, cpu := ratios(new.rates, old.rates), ratios(new.cpu, old.cpu)
	times := verdict(ratios(old.rates, new.rates)) // the time of one command
	used := verdict(cpu)
	page.row(c.name, fmt.Sprintf("%.0f", median(new.rates)), fmt.Sprintf("%.0f", median(old.rates)), between(rate), times,
		fmt.Sprintf("%.2f", median(new.cpu)), fmt.Sprintf("%.2f", median(old.cpu)), between(cpu), used)
	if times == isWorse {
		worse = append(worse, c.name+": throughput")
	}
	if used == isWorse {
		worse = append(worse, c.name+": CPU")
	}
	return worse, nil
}

const isWorse = "**worse**"

// verdict is what ratios of costs say, where 1 is no difference.
func verdict(ratios []float64) string {
	switch least, most := confidence(ratios); {
	case least > 1+tolerated:
		return isWorse
	case most < 1-tolerated:
		return "better"
	case least >= 1-tolerated && most <= 1+tolerated:
		return "same"
	}
	return "open"
}

// confidence is between what the median of the distribution lies from which values come, with a confidence of at least 95 %,
// whatever that distribution is: two of the values, chosen by the sign test (H. A. David, H. N. Nagaraja, Order Statistics, 7.1).
// Fewer than six values say nothing.
func confidence(values []float64) (least, most float64) {
	s := slices.Sorted(slices.Values(values))
	n := len(s)
	cut, outside := 0, 0.0 // so many values at each end are outside, with this probability each
	for term := math.Pow(2, -float64(n)); outside+term <= 0.025; cut++ {
		outside += term
		term *= float64(n-cut) / float64(cut+1)
	}
	if cut == 0 {
		return math.Inf(-1), math.Inf(1)
	}
	return s[cut-1], s[n-cut]
}

// ratios are a[i]/b[i].
func ratios(a, b []float64) []float64 {
	all := make([]float64, len(a))
	for i := range a {
		all[i] = a[i] / b[i]
	}
	return all
}

// between is the median of ratios, and between what that is.
func between(ratios []float64) string {
	least, most := confidence(ratios)
	return withRange(ratios, least, most)
}

// withRange is the median of ratios, with a range.
func withRange(ratios []float64, least, most float64) string {
	return fmt.Sprintf("%.3f (%.2f–%.2f)", median(ratios), least, most)
}

// spread is the median of a[i]/b[i], with the least and the greatest.
func spread(a, b []float64) string {
	all := ratios(a, b)
	return withRange(all, slices.Min(all), slices.Max(all))
}
