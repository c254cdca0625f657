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
	both := []burst{
		{label: "LOCK, UNLOCK of a name of its own", name: func(round, i int) string { return fmt.Sprintf("own-%d-%d", round, i) }, n: readers},
		{label: "LOCK SHARED, UNLOCK of one name", name: func(round, _ int) string { return fmt.Sprint("read-", round) }, share: true, n: readers},
	}
	times, cpu := make([][]time.Duration, 2), make([]float64, 2)
	var ratios []float64
	for round := range p.rounds + 1 {
		for i, b := range both {
			_, before, err := g.spent()
			if err != nil {
				return err
			}
			clients, took, err := g.once(b, round)
			if err != nil {
				return fmt.Errorf("%s: %w", b.label, err)
			}
			for _, v := range clients {
				if !v.served {
					return fmt.Errorf("%s: one was not served", b.label)
				}
			}
			_, after, err := g.spent()
			if err != nil {
				return err
			}
			if round > 0 { // the first warms up
				times[i] = append(times[i], took)
				cpu[i] += after - before
			}
		}
		if round > 0 {
			ratios = append(ratios, times[1][round-1].Seconds()/times[0][round-1].Seconds())
		}
	}
	for i, b := range both {
		each := 1e6 * cpu[i] / float64(p.rounds*readers)
		page.row(b.label, inMillis(quantile(times[i], 0.5)), inMillis(quantile(times[i], 1)), fmt.Sprintf("%.0f", each))
	}
	page.linef("\nMedian of the ratios of the pairs: %.2f.", median(ratios))
	return nil
}
