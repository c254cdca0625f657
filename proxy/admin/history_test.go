package admin

import (
	"encoding/json"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/metrics"
)

// counts is a Reporter of the lock metrics that a history reads.
type counts struct {
	grants, refusals, yes, none int64
	waits, answers              metrics.Histogram
}

func (c *counts) Report(r *metrics.Report) {
	r.Counter("lockproxy_lock_requests_total", "", c.grants, "outcome", "granted")
	r.Counter("lockproxy_lock_requests_total", "", c.refusals, "outcome", "refused")
	r.Histogram("lockproxy_lock_wait_seconds", "", &c.waits, "outcome", "granted")
	for vote, n := range map[string]int64{"yes": c.yes, "no": 0, "timeout": c.none, "connection": c.none} {
		r.Counter("lockproxy_lock_node_votes_total", "", n, "node", "a:1", "vote", vote)
	}
	r.Histogram("lockproxy_lock_node_reply_seconds", "", &c.answers, "node", "a:1")
}

func TestHistory_Periods(t *testing.T) {
	t.Parallel()
	c := &counts{grants: 100}
	c.waits.Observe(time.Hour) // before the history begins
	h := &history{registry: metrics.Registry{c}}
	at := time.Now()
	h.take(at)
	if v := h.view(); len(v.Grants) != 0 || len(v.Nodes) != 1 || v.Nodes[0].Address != "a:1" || v.Most != 90 || v.Every != 10_000 {
		t.Errorf("before the first period ends %+v", v)
	}
	c.grants, c.refusals, c.yes, c.none = c.grants+30, 5, 25, 2
	for range 100 {
		c.waits.Observe(20 * time.Millisecond)
		c.answers.Observe(20 * time.Microsecond)
	}
	h.take(at.Add(10 * time.Second))
	h.take(at.Add(15 * time.Second))
	v := h.view()
	n := v.Nodes[0]
	for name, got := range map[string][2][]float32{
		"grants": {v.Grants, {3, 0}}, "refusals": {v.Refusals, {.5, 0}}, "yes": {n.Yes, {2.5, 0}}, "no": {n.No, {0, 0}}, "none": {n.None, {.4, 0}},
	} {
		if !slices.Equal(got[0], got[1]) {
			t.Errorf("%s: %v, want %v", name, got[0], got[1])
		}
	}
	if v.Wait[0] <= 10.24 || v.Wait[0] > 20.48 || v.Wait[1] != -1 || n.Answer[0] <= .01 || n.Answer[0] > .02 || n.Answer[1] != -1 {
		t.Errorf("waits %v, answers %v", v.Wait, n.Answer)
	}
	for i := range 2 * maxPeriods {
		c.grants += int64(i)
		h.take(at.Add(time.Duration(20+i) * time.Second))
	}
	if v := h.view(); len(v.Grants) != maxPeriods || v.Grants[0] != maxPeriods || v.Grants[maxPeriods-1] != 2*maxPeriods-1 || cap(h.periods) > 2*maxPeriods {
		t.Errorf("%d periods, from %v to %v, room for %d", len(v.Grants), v.Grants[0], v.Grants[len(v.Grants)-1], cap(h.periods))
	}
}

// The names of the metrics are those that a proxy has.
func TestHistory_OfAProxy(t *testing.T) {
	t.Parallel()
	d, _, _ := openReal(t, Options{}, 3)
	eventually(t, "it has begun", func() bool { return len(d.history.view().Nodes) == 3 })
	grab(t, d, locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "alice"})
	if a, err := d.locks.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "bob", TTL: time.Second}); err != nil || a.Granted {
		t.Fatal(a, err)
	}
	eventually(t, "every node's answer is counted", func() bool {
		c := d.history.look()
		counted, refusing := c.grants > 0 && c.refusals > 0 && c.waits.Count() > 0, 0
		for _, n := range c.nodes {
			counted = counted && n.answers.Count() > 0 && n.yes > 0
			if n.no > 0 {
				refusing++
			}
		}
		return counted && refusing >= 2
	})
	d.history.take(time.Now())
	code, body := d.get(t, "/page/history")
	var v historyView
	if err := json.Unmarshal([]byte(body), &v); err != nil || code != http.StatusOK {
		t.Fatal(code, err, body)
	}
	if slices.Max(v.Grants) <= 0 || slices.Max(v.Refusals) <= 0 || slices.Max(v.Wait) <= 0 || len(v.Nodes) != 3 {
		t.Errorf("history %s", body)
	}
	for _, n := range v.Nodes {
		if slices.Max(n.Answer) <= 0 || slices.Max(n.Yes) <= 0 {
			t.Errorf("of a node %+v", n)
		}
	}
}
