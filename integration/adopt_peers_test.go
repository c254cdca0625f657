package integration

import (
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// TestAdopt_ProxiesThatDisagree: a proxy whose patterns are locks refuses their keys while one without them lives, and
// locks again when that has ended.
func TestAdopt_ProxiesThatDisagree(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 1) // without a pattern
	elsewhere := redistest.StartProxy(t, redistest.Start(t), r.nodes)
	adopting := redistest.StartProxy(t, r.data, r.nodes, "--adopt", "lock:*", "--adopt", "other:* mode=observe")
	c := redistest.Open(t, adopting.Addr())
	take := []string{"SET", "lock:a", "v", "NX", "PX", "30000"}
	const refusal = `-ADOPTREFUSED SET lock:a: proxy `
	if got := c.Do(t, take...).String(); !strings.HasPrefix(got, refusal) || !strings.Contains(got, "no pattern for it") || !strings.HasSuffix(got, `adopted by "lock:*"`) {
		t.Errorf("beside a proxy without the pattern: %s", got)
	}
	if got := r.data.Do(t, "EXISTS", "lock:a").Int(); got != 0 {
		t.Error("what was refused was forwarded")
	}
	if got := c.Do(t, "SET", "other:a", "v").String(); got != "+OK" {
		t.Errorf("an ordinary key: %s", got)
	}
	if got := redistest.Open(t, r.addr()).Do(t, "SET", "lock:b", "v").String(); got != "+OK" {
		t.Errorf("the proxy without the pattern: %s", got)
	}
	if got := nodesField(c.Do(t, "LOCKCTL", "NODES"), "proxies"); len(got.Elems) != 2 || strings.Count(got.String(), "for a key like") != 1 {
		t.Errorf("LOCKCTL NODES: %s", got)
	}
	if log := adopting.Log(); !strings.Contains(log, "adoption conflict") {
		t.Errorf("log: %s", log)
	}

	if ended, status := r.proxies[0].Terminate(20 * time.Second); !ended || status != nil {
		t.Fatalf("the other proxy: %v, %v", ended, status)
	}
	eventually(t, time.Minute, "adopted again", func() bool { return c.Do(t, take...).String() == "+OK" })
	if got := nodesField(c.Do(t, "LOCKCTL", "NODES"), "proxies"); len(got.Elems) != 1 || strings.Contains(got.String(), "for a key like") {
		t.Errorf("LOCKCTL NODES: %s", got)
	}
	agreeing := redistest.StartProxy(t, r.data, r.nodes, "--adopt", "other:* mode=off", "--adopt", "lock:* as=strict")
	if got := redistest.Open(t, agreeing.Addr()).Do(t, "GET", "lock:a").String(); got != `$"v"` {
		t.Errorf("a proxy with the pattern: %s", got)
	}
	if log := agreeing.Log(); !strings.Contains(log, "in different ways") || strings.Contains(log, "adoption conflict") {
		t.Errorf("log: %s", log)
	}
	if log := elsewhere.Log(); strings.Contains(log, "adoption conflict") {
		t.Errorf("log of a proxy of another upstream: %s", log)
	}
}

// nodesField is a field of the reply to LOCKCTL NODES.
func nodesField(v redistest.Value, name string) redistest.Value {
	for i := 0; i+1 < len(v.Elems); i += 2 {
		if v.Elems[i].Text == name {
			return v.Elems[i+1]
		}
	}
	return redistest.Value{}
}
