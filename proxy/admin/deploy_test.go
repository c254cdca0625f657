package admin

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/backends/metrics"
)

// A dashboard is the part of a Grafana dashboard that tests read.
type dashboard struct {
	Panels []struct {
		Title, Type string
		GridPos     struct{ X, Y, W, H int }
		Targets     []struct{ Expr, RefID string }
	}
	Templating struct {
		List []struct{ Name, Definition string }
	}
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	text, err := os.ReadFile("../../deploy/grafana/lockproxy.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDashboard_UsesExistingMetrics(t *testing.T) {
	d, types := readDashboard(t), allFamilies(t)
	shown := map[string]bool{}
	ids := 0
	for i, p := range d.Panels {
		for _, other := range d.Panels[:i] {
			a, b := p.GridPos, other.GridPos
			if a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
				t.Errorf("%q lies upon %q", p.Title, other.Title)
			}
		}
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("%q shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			ids++
			checkExpression(t, p.Title, target.Expr, types)
			for _, name := range mentioned(target.Expr) {
				shown[familyOf(name, types)] = true
			}
		}
	}
	if ids < 10 {
		t.Errorf("%d expressions were found", ids)
	}
	for _, v := range d.Templating.List {
		checkNames(t, v.Name, v.Definition, types)
	}
	for _, must := range []string{
		"lockproxy_lock_wait_seconds", "lockproxy_lock_hold_seconds", "lockproxy_lock_rounds_total", "lockproxy_lock_node_state",
		"lockproxy_lock_node_quarantine_seconds", "lockproxy_lock_node_doubt_seconds", "lockproxy_lock_lost_total", "lockproxy_upstream_up",
		"lockproxy_adopt_calls_total", "lockproxy_adopt_refused_total", "lockproxy_adopt_upstream_held_total", "lockproxy_adopt_signals_lost_total",
	} {
		if !shown[must] {
			t.Errorf("the dashboard does not show %s", must)
		}
	}
}

func TestAlerts_UseExistingMetrics(t *testing.T) {
	text, err := os.ReadFile("../../deploy/prometheus/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	types := allFamilies(t)
	alerts := regexp.MustCompile(`(?m)^ +- alert: (\w+)\n +expr: (.*)$`).FindAllStringSubmatch(string(text), -1)
	if n := strings.Count(string(text), "alert:"); n == 0 || n != len(alerts) {
		t.Fatalf("%d of %d alerts were understood", len(alerts), n)
	}
	for _, a := range alerts {
		checkExpression(t, a[1], a[2], types)
		if !strings.Contains(string(doc), a[1]) {
			t.Errorf("docs/metrics.md does not say what to do about %s", a[1])
		}
		anchor := strings.ToLower(a[1])
		if !strings.Contains(string(text), "/docs/metrics.md#"+anchor+"\n") || !strings.Contains(string(doc), `<a id="`+anchor+`"></a>`) {
			t.Errorf("the runbook of %s leads nowhere", a[1])
		}
	}
	if !slices.ContainsFunc(alerts, func(a []string) bool { return strings.Contains(a[2], "absent(") && strings.Contains(a[2], "up{") }) {
		t.Error("no alert tells of a proxy that is gone: of metrics that are not there nothing is true")
	}
	for _, name := range regexp.MustCompile(`\bLockproxy\w+`).FindAllString(string(doc), -1) {
		if !slices.ContainsFunc(alerts, func(a []string) bool { return a[1] == name }) {
			t.Errorf("docs/metrics.md speaks of %s, which is no alert", name)
		}
	}
}

func TestDocuments_NameExistingMetrics(t *testing.T) {
	types := allFamilies(t)
	for _, path := range []string{"operations.md", "admin.md", "configuration.md"} {
		text, err := os.ReadFile("../../docs/" + path)
		if err != nil {
			t.Fatal(err)
		}
		checkNames(t, path, string(text), types)
	}
}

func checkNames(t *testing.T, where, text string, types map[string]*metrics.Family) {
	t.Helper()
	names := mentioned(text)
	for _, name := range names {
		if types[familyOf(name, types)] == nil {
			t.Errorf("%s: there is no %s", where, name)
		}
	}
}

// ofPrometheus are the labels that Prometheus and Grafana add.
var ofPrometheus = []string{"instance", "le"}

// checkExpression checks the names and labels of metrics in an expression, and that it takes
// the rate of counters.
func checkExpression(t *testing.T, where, expr string, types map[string]*metrics.Family) {
	t.Helper()
	checkNames(t, where, expr, types)
	for _, m := range regexp.MustCompile(`(\w+\()?\b(lockproxy_\w+)(?:\{([^}]*)\})?(\[)?`).FindAllStringSubmatch(expr, -1) {
		name := familyOf(m[2], types)
		f := types[name]
		if f == nil {
			continue // checkNames has said so
		}
		kind := f.Kind
		if m[2] == name && kind == metrics.KindHistogram {
			t.Errorf("%s: %s is a histogram, of which there are _bucket, _sum and _count", where, name)
		}
		if kind != metrics.KindGauge && (m[4] == "" || m[1] != "rate(" && m[1] != "increase(") {
			t.Errorf("%s: %s grows for ever; take its rate", where, m[2])
		}
		if kind == metrics.KindGauge && m[4] != "" {
			t.Errorf("%s: %s has no rate", where, m[2])
		}
		for _, l := range regexp.MustCompile(`(\w+)(?:=|!|~)`).FindAllStringSubmatch(m[3], -1) {
			if !slices.Contains(slices.Concat(ofPrometheus, f.Labels), l[1]) {
				t.Errorf("%s: %s has no label %s", where, name, l[1])
			}
		}
	}
}
