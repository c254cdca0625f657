package admin

import (
	"bufio"
	"context"
	"crypto/x509"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/metrics"
)

// A sample is a line of /metrics without its value.
type sample struct{ name, labels string }

// scrape reads our own metrics from /metrics: the values of the samples, and the types by
// name.
func (d *testServer) scrape(t *testing.T) (values map[sample]string, types map[string]string) {
	t.Helper()
	code, body := d.get(t, "/metrics")
	if code != http.StatusOK {
		t.Fatalf("/metrics: %d\n%s", code, body)
	}
	values, types = map[sample]string{}, map[string]string{}
	line := regexp.MustCompile(`^(lockproxy_\w+)(\{.*\})? (\S+)$`)
	for sc := bufio.NewScanner(strings.NewReader(body)); sc.Scan(); {
		if f := strings.Fields(sc.Text()); len(f) == 4 && f[1] == "TYPE" && strings.HasPrefix(f[2], "lockproxy_") {
			types[f[2]] = f[3]
		}
		if m := line.FindStringSubmatch(sc.Text()); m != nil {
			values[sample{m[1], m[2]}] = m[3]
		}
	}
	return values, types
}

func (d *testServer) value(t *testing.T, name, labels string) string {
	t.Helper()
	values, _ := d.scrape(t)
	v, ok := values[sample{name, labels}]
	if !ok {
		t.Fatalf("there is no %s%s", name, labels)
	}
	return v
}

func take(t *testing.T, svc *locks.Service, name, owner string) locks.Decision {
	t.Helper()
	a, err := svc.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: name}, Owner: owner, TTL: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// awaitMasters waits until the upstream was pinged.
func (d *testServer) awaitMasters(t *testing.T) {
	t.Helper()
	eventually(t, "the upstream answers", func() bool {
		b := d.pinger.statuses()
		return len(b) == 1 && b[0].up
	})
}

func TestMetrics(t *testing.T) {
	shown := Certificate{"clients", func() *x509.Certificate {
		return &x509.Certificate{NotBefore: time.Unix(1000, 0), NotAfter: time.Unix(2000, 0)}
	}}
	d, up, nodes := openReal(t, Options{Version: "v1.2.3", Certificates: []Certificate{shown}}, 3)
	d.awaitMasters(t)
	first := `{node="` + nodes[0].Addr() + `"`
	before, _ := d.scrape(t)
	take(t, d.locks, "a", "me")
	take(t, d.locks, "a", "me")
	take(t, d.locks, "a", "you")
	take(t, d.locks, "b", "you")
	for name, granted := range map[string]bool{"a": false, "c": true} {
		a, err := d.locks.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: name}, Owner: "reader", TTL: 30 * time.Second, Shared: true})
		if err != nil || a.Granted != granted {
			t.Fatal(name, a, err)
		}
	}
	if _, err := d.locks.Unlock(t.Context(), locks.UnlockRequest{Key: locks.Key{Name: "b"}, Owner: "you"}); err != nil {
		t.Fatal(err)
	}
	after, types := d.scrape(t)
	tests := []struct{ name, labels, before, after string }{
		{"lockproxy_ready", "", "1", "1"},
		{"lockproxy_draining", "", "0", "0"},
		{"lockproxy_certificate_begins_timestamp_seconds", `{use="clients"}`, "1000", "1000"},
		{"lockproxy_certificate_ends_timestamp_seconds", `{use="clients"}`, "2000", "2000"},
		{"lockproxy_clients", "", "7", "7"},
		{"lockproxy_commands_total", `{family="read"}`, "5", "5"},
		{"lockproxy_command_seconds_bucket", `{le="0.00256"}`, "0", "0"},
		{"lockproxy_command_seconds_bucket", `{le="0.00512"}`, "1", "1"},
		{"lockproxy_command_seconds_sum", "", "0.003", "0.003"},
		{"lockproxy_upstream_up", `{server="` + up.Addr() + `"}`, "1", "1"},
		{"lockproxy_upstream_connections", `{kind="shared"}`, "1", "1"},
		{"lockproxy_upstream_errors_total", `{error="NOAUTH"}`, "0", "0"},
		{"lockproxy_upstream_queued_bytes", "", "0", "0"},
		{"lockproxy_lock_requests_total", `{outcome="granted"}`, "0", "4"},
		{"lockproxy_lock_requests_total", `{outcome="refused"}`, "0", "2"},
		{"lockproxy_lock_shared_requests_total", `{outcome="granted"}`, "0", "1"},
		{"lockproxy_lock_shared_requests_total", `{outcome="refused"}`, "0", "1"},
		{"lockproxy_lock_requests_total", `{outcome="failed"}`, "0", "0"},
		{"lockproxy_lock_grants_total", `{ground="at_once"}`, "0", "4"},
		{"lockproxy_lock_reentries_total", "", "0", "1"},
		{"lockproxy_lock_releases_total", "", "0", "1"},
		{"lockproxy_lock_wait_seconds_count", `{outcome="granted"}`, "0", "4"},
		{"lockproxy_lock_wait_seconds_bucket", `{outcome="refused",le="+Inf"}`, "0", "2"},
		{"lockproxy_lock_hold_seconds_count", "", "0", "1"},
		{"lockproxy_lock_rounds_total", `{outcome="granted",question="acquire"}`, "0", "4"},
		{"lockproxy_lock_rounds_total", `{outcome="held",question="acquire"}`, "0", "2"},
		{"lockproxy_lock_nodes_voting", "", "3", "3"},
		{"lockproxy_lock_nodes_quorum", "", "2", "2"},
		{"lockproxy_lock_node_up", first + `}`, "1", "1"},
		{"lockproxy_lock_node_state", first + `,state="voting"}`, "1", "1"},
		{"lockproxy_lock_node_state", first + `,state="quarantine"}`, "0", "0"},
		{"lockproxy_lock_node_quarantine_seconds", first + `}`, "0", "0"},
		{"lockproxy_lock_node_doubt_seconds", first + `}`, "0", "0"},
	}
	for _, tt := range tests {
		s := sample{tt.name, tt.labels}
		if before[s] != tt.before || after[s] != tt.after {
			t.Errorf("%s%s: %q, then %q, want %q and %q", tt.name, tt.labels, before[s], after[s], tt.before, tt.after)
		}
	}
	if build := "{go_version="; !slices.ContainsFunc(slices.Collect(maps.Keys(after)), func(s sample) bool {
		return s.name == "lockproxy_build_info" && strings.HasPrefix(s.labels, build) && strings.Contains(s.labels, `version="v1.2.3"`)
	}) {
		t.Error("the build is not named")
	}
	for _, f := range d.registry().Gather() {
		if types[f.Name] != string(f.Kind) {
			t.Errorf("%s is a %q, want %s", f.Name, types[f.Name], f.Kind)
		}
	}
	nodes[2].Kill()
	d.run(t)
	eventually(t, "a dead node is shown", func() bool {
		return d.value(t, "lockproxy_lock_node_up", `{node="`+nodes[2].Addr()+`"}`) == "0"
	})
	d.clients.draining.Store(true)
	if d.value(t, "lockproxy_ready", "") != "0" || d.value(t, "lockproxy_draining", "") != "1" {
		t.Error("draining is not shown")
	}
}

func TestMetrics_PassPrometheusLint(t *testing.T) {
	d := open(t, Options{}, nowhere, nowhere)
	problems, err := testutil.GatherAndLint(d.gatherer())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "lockproxy_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

func TestMetrics_NoSamplesPerNameOrOwner(t *testing.T) {
	t.Parallel()
	d, _, _ := openReal(t, Options{}, 1)
	d.awaitMasters(t)
	name := func(i int) string { return fmt.Sprintf("private-%d", i) }
	take(t, d.locks, name(0), "owner-0")
	before, _ := d.scrape(t)
	var wg sync.WaitGroup
	for w := range 32 {
		wg.Go(func() {
			for i := w; i < 10000; i += 32 {
				r := locks.LockRequest{Key: locks.Key{Name: name(i)}, Owner: fmt.Sprintf("owner-%d", i), Client: "client", TTL: time.Minute}
				if a, err := d.locks.Lock(t.Context(), r); err != nil || !a.Granted {
					t.Errorf("%s: %+v, %v", r.Name, a, err)
					return
				}
			}
		})
	}
	wg.Wait()
	after, _ := d.scrape(t)
	for s := range after {
		if _, ok := before[s]; !ok {
			t.Errorf("%s%s is new", s.name, s.labels)
		}
	}
	if got := after[sample{"lockproxy_lock_requests_total", `{outcome="granted"}`}]; got != "10001" {
		t.Errorf("%s LOCKs were granted", got)
	}
	_, body := d.get(t, "/metrics")
	for _, private := range []string{"private-", "owner-", "client\""} {
		if strings.Contains(body, private) {
			t.Errorf("/metrics says %q", private)
		}
	}
}

func TestMetrics_CauseNoRequestToNodes(t *testing.T) {
	d, _, nodes := openReal(t, Options{}, 1)
	asked := func() (n int) {
		for _, command := range []string{"evalsha", "eval", "scan", "ping"} {
			n += nodes[0].Calls(t, command)
		}
		return n
	}
	rounds, before := d.locks.Stats().Rounds, asked()
	for range 20 {
		for _, path := range []string{"/metrics", "/readyz?verbose", "/healthz"} {
			d.get(t, path)
		}
	}
	if now, after := d.locks.Stats().Rounds, asked(); now != rounds || after != before {
		t.Errorf("%d rounds, %d commands were caused", now-rounds, after-before)
	}
}

func TestMetrics_HangingBackends(t *testing.T) {
	d := open(t, Options{}, hanging(t), hanging(t), hanging(t), hanging(t))
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			d.locks.Lock(ctx, locks.LockRequest{Key: locks.Key{Name: "n"}, Owner: fmt.Sprint(i), TTL: 10 * time.Second})
		})
	}
	t.Cleanup(func() { cancel(); wg.Wait() })
	began := time.Now()
	for range 3 {
		d.scrape(t)
		if code, _ := d.get(t, "/readyz"); code != http.StatusServiceUnavailable {
			t.Errorf("/readyz: %d", code)
		}
	}
	if took := time.Since(began); took > 4*time.Second { // a round gives nodes 5 s
		t.Errorf("it took %v", took)
	}
}

// Sentinels may name one server for two nodes.
func TestMetrics_TwoNodesOfOneAddress(t *testing.T) {
	at := hanging(t)
	d := open(t, Options{}, nowhere, at, at)
	for _, name := range []string{at, at + "#2"} {
		if got := d.value(t, "lockproxy_lock_node_up", `{node="`+name+`"}`); got != "0" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// docs/metrics.md has a row with kind, labels and help for each metric, and no others.
func TestMetrics_Documented(t *testing.T) {
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	types := allFamilies(t)
	for _, f := range types {
		row := fmt.Sprintf("\n| `%s` | %s | %s | %s |\n", f.Name, f.Kind, strings.Join(f.Labels, ", "), f.Help)
		if !strings.Contains(string(text), row) {
			t.Errorf("docs/metrics.md lacks this row:%s", row)
		}
	}
	checkNames(t, "docs/metrics.md", string(text), types)
}

// mentioned are the names of our metrics in a text.
func mentioned(text string) []string {
	return regexp.MustCompile(`\blockproxy_\w+`).FindAllString(text, -1)
}

// familyOf is the metric that a name in an expression belongs to: a histogram has three
// names more.
func familyOf(name string, types map[string]*metrics.Family) string {
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if base, ok := strings.CutSuffix(name, suffix); ok && types[base] != nil && types[base].Kind == metrics.KindHistogram {
			return base
		}
	}
	return name
}
