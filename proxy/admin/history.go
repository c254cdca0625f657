package admin

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/backends/metrics"
)

// The page draws a quarter of an hour.
const (
	periodLength = 10 * time.Second
	maxPeriods   = 90
)

// A history is what the lock metrics were in the last quarter of an hour. Its methods are safe for concurrent use.
type history struct {
	registry metrics.Registry

	mu      sync.Mutex
	last    *counted // when the last period ended; nil: never
	periods []period // the oldest first, maxPeriods at most
}

// counted is what the metrics had counted at one time, since the start of the process.
type counted struct {
	at               time.Time
	grants, refusals float64
	waits            metrics.Snapshot
	nodes            []nodeCounted
}

type nodeCounted struct {
	address       string
	answers       metrics.Snapshot
	yes, no, none float64
}

// A period is what was counted between two times. Rates are per second, times in milliseconds, negative if there are
// none.
type period struct {
	grants, refusals, wait float32
	nodes                  []nodePeriod
}

type nodePeriod struct{ answer, yes, no, none float32 }

// run takes periods until ctx ends. Unlike the feed it does not rest while nobody looks.
func (h *history) run(ctx context.Context) {
	for h.take(time.Now()); ctx.Err() == nil; h.take(time.Now()) {
		sleep(ctx, periodLength, nil)
	}
}

// take ends a period. The first call begins the first one.
func (h *history) take(now time.Time) {
	next := h.look()
	next.at = now
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.last != nil && len(h.last.nodes) == len(next.nodes) {
		if len(h.periods) == maxPeriods {
			h.periods = h.periods[:copy(h.periods, h.periods[1:])]
		}
		h.periods = append(h.periods, next.since(h.last))
	}
	h.last = next
}

// look reads the counters from the metrics, by the names that docs/metrics.md lists.
func (h *history) look() *counted {
	c := &counted{}
	node := func(address string) *nodeCounted {
		for i := range c.nodes {
			if c.nodes[i].address == address {
				return &c.nodes[i]
			}
		}
		c.nodes = append(c.nodes, nodeCounted{address: address})
		return &c.nodes[len(c.nodes)-1]
	}
	for _, f := range h.registry.Gather() {
		for _, s := range f.Samples {
			switch f.Name {
			case "lockproxy_lock_requests_total":
				switch s.Labels[0] {
				case "granted":
					c.grants = s.Value
				case "refused":
					c.refusals = s.Value
				}
			case "lockproxy_lock_wait_seconds":
				if s.Labels[0] == "granted" {
					c.waits = s.Durations
				}
			case "lockproxy_lock_node_reply_seconds":
				node(s.Labels[0]).answers = s.Durations
			case "lockproxy_lock_node_votes_total":
				switch n := node(s.Labels[0]); s.Labels[1] {
				case "yes":
					n.yes = s.Value
				case "no":
					n.no = s.Value
				default:
					n.none += s.Value
				}
			}
		}
	}
	return c
}

// since returns what was counted since last, at which time there were the same nodes.
func (c *counted) since(last *counted) period {
	took := max(c.at.Sub(last.at).Seconds(), 1e-3)
	rate := func(now, then float64) float32 { return rounded((now - then) / took) }
	s := period{grants: rate(c.grants, last.grants), refusals: rate(c.refusals, last.refusals), wait: p99(c.waits, last.waits)}
	for i, n := range c.nodes {
		l := last.nodes[i]
		s.nodes = append(s.nodes, nodePeriod{p99(n.answers, l.answers), rate(n.yes, l.yes), rate(n.no, l.no), rate(n.none, l.none)})
	}
	return s
}

// p99 returns the time, in milliseconds, that 99 % stayed under between two snapshots; -1 if there were none.
func p99(now, then metrics.Snapshot) float32 {
	of, ok := now.Since(then).Quantile(0.99)
	if !ok {
		return -1
	}
	return rounded(1000 * of)
}

func rounded(x float64) float32 { return float32(math.Round(x*1000) / 1000) }

// A historyView is a history, by series; -1 stands for none.
type historyView struct {
	Every    int64         `json:"every_ms"` // one period
	Most     int           `json:"most"`     // periods that there will be
	Age      int64         `json:"age_ms"`   // since the last one ended
	Grants   []float32     `json:"grants_per_s"`
	Refusals []float32     `json:"refusals_per_s"`
	Wait     []float32     `json:"wait_p99_ms"` // of LOCKs that were granted
	Nodes    []nodeHistory `json:"nodes"`
}

type nodeHistory struct {
	Address string    `json:"address"`
	Answer  []float32 `json:"answer_p99_ms"`
	Yes     []float32 `json:"yes_per_s"`
	No      []float32 `json:"no_per_s"`
	None    []float32 `json:"none_per_s"`
}

func (h *history) view() historyView {
	h.mu.Lock()
	defer h.mu.Unlock()
	v := historyView{Every: millis(periodLength), Most: maxPeriods, Grants: []float32{}, Refusals: []float32{}, Wait: []float32{}, Nodes: []nodeHistory{}}
	if h.last == nil {
		return v
	}
	v.Age = sinceMillis(h.last.at)
	for _, n := range h.last.nodes {
		v.Nodes = append(v.Nodes, nodeHistory{Address: n.address, Answer: []float32{}, Yes: []float32{}, No: []float32{}, None: []float32{}})
	}
	for _, s := range h.periods {
		v.Grants, v.Refusals, v.Wait = append(v.Grants, s.grants), append(v.Refusals, s.refusals), append(v.Wait, s.wait)
		for i, n := range s.nodes {
			to := &v.Nodes[i]
			to.Answer, to.Yes, to.No, to.None = append(to.Answer, n.answer), append(to.Yes, n.yes), append(to.No, n.no), append(to.None, n.none)
		}
	}
	return v
}
