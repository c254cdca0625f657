package main

import (
	"fmt"
	"time"
)

const (
	permits = 10  // may be at it at the same time
	wanting = 200 // want that
)

// measurePermits compares a name that ten may have at the same time with one that is for one alone.
func measurePermits(p plan, page *report) error {
	g, err := openGround(5)
	if err != nil {
		return err
	}
	defer g.close()
	const stay, times = 10 * time.Millisecond, 3
	alone := burst{label: "LOCK", name: func(round, _ int) string { return fmt.Sprint("alone-", round) }, n: wanting, stay: stay, times: times, most: 1}
	some := alone
	some.label, some.name = fmt.Sprint("LOCK PERMITS ", permits), func(round, _ int) string { return fmt.Sprint("some-", round) }
	some.most = permits
	page.linef("\n## %d contenders for %d permits\n", wanting, permits)
	page.linef("Five masters, one proxy, %d connections that are open before. All send LOCK … WAIT at once, hold what they get for %v, and UNLOCK; each does so %d times. %d pairs of bursts, one after the other; times in ms from the first LOCK to the last reply, and the CPU time of the proxy. That there are never more holders than may be is counted.\n", wanting, stay, times, p.rounds)
	page.table("each request", "median", "longest", "requests/s", "proxy CPU µs a request")
	m, err := g.inTurns(p.rounds, alone, some)
	if err != nil {
		return err
	}
	for i, b := range m.bursts {
		mid := quantile(m.times[i], 0.5)
		page.row(b.label, inMillis(mid), inMillis(quantile(m.times[i], 1)), fmt.Sprintf("%.0f", float64(b.requests())/mid.Seconds()), fmt.Sprintf("%.0f", m.cpuMicros(i)))
	}
	page.linef("\nMedian of the ratios of the pairs, in requests a second: %.1f.", 1/median(m.ratios()))
	return nil
}
