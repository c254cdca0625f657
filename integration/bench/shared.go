package main

import (
	"fmt"
	"time"
)

// readers is how many come at once.
const readers = 3000

// measureShared compares readers of one name with as many owners that each have a name of their own.
func measureShared(p plan, page *report) error {
	g, err := openGround(5)
	if err != nil {
		return err
	}
	defer g.close()
	page.linef("\n## %d readers of one name\n", readers)
	page.linef("Five masters, one proxy, %d connections that are open before. All send LOCK … WAIT at once, and UNLOCK when they have it. %d pairs of bursts, one after the other; times in ms from the first LOCK to the last reply, and the CPU time of the proxy.\n", readers, p.rounds)
	page.table("each request", "median", "longest", "proxy CPU µs a request")
	m, err := g.inTurns(p.rounds,
		burst{label: "LOCK, UNLOCK of a name of its own", name: func(round, i int) string { return fmt.Sprintf("own-%d-%d", round, i) }, n: readers},
		burst{label: "LOCK SHARED, UNLOCK of one name", name: func(round, _ int) string { return fmt.Sprint("read-", round) }, share: true, n: readers})
	if err != nil {
		return err
	}
	for i := range m.bursts {
		page.row(m.bursts[i].label, inMillis(quantile(m.times[i], 0.5)), inMillis(quantile(m.times[i], 1)), fmt.Sprintf("%.0f", m.cpuMicros(i)))
	}
	page.linef("\nMedian of the ratios of the pairs: %.2f.", median(m.ratios()))
	return nil
}

// A match is what two kinds of bursts took that were measured in turns.
type match struct {
	bursts [2]burst
	times  [2][]time.Duration
	cpu    [2]float64 // of the proxy, in s
}

// inTurns lets the two bursts take turns; everybody must be served.
func (g *ground) inTurns(rounds int, one, other burst) (*match, error) {
	m := &match{bursts: [2]burst{one, other}}
	for round := range rounds + 1 {
		for i, b := range m.bursts {
			_, before, err := g.spent()
			if err != nil {
				return nil, err
			}
			clients, took, err := g.once(b, round)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", b.label, err)
			}
			for _, v := range clients {
				if !v.served {
					return nil, fmt.Errorf("%s: one was not served", b.label)
				}
			}
			_, after, err := g.spent()
			if err != nil {
				return nil, err
			}
			if round > 0 { // the first warms up
				m.times[i] = append(m.times[i], took)
				m.cpu[i] += after - before
			}
		}
	}
	return m, nil
}

// cpuMicros is the proxy's CPU time of a request, in µs.
func (m *match) cpuMicros(i int) float64 {
	return 1e6 * m.cpu[i] / float64(len(m.times[i])*m.bursts[i].requests())
}

// ratios are the times of the second burst by those of the first, of each pair.
func (m *match) ratios() (all []float64) {
	for i, t := range m.times[1] {
		all = append(all, t.Seconds()/m.times[0][i].Seconds())
	}
	return all
}
