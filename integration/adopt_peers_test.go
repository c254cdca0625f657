package integration

import (
	"encoding/json"
	"net"
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

// TestAdopt_SameUpstream: proxies of one Cluster, and those at either side of a failover, know that they have one upstream.
func TestAdopt_SameUpstream(t *testing.T) {
	t.Parallel()
	master, replica := redistest.Start(t), redistest.Start(t)
	host, port, _ := net.SplitHostPort(master.Addr())
	replica.Do(t, "REPLICAOF", host, port)
	eventually(t, time.Minute, "replicated", func() bool {
		return strings.Contains(replica.Do(t, "INFO", "replication").Text, "master_link_status:up")
	})
	replica.Do(t, "REPLICAOF", "NO", "ONE")
	cluster := redistest.StartCluster(t, 3, 0)
	for name, sides := range map[string][2]redistest.Upstream{"failover": {master, replica}, "cluster": {cluster, cluster}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nodes := redistest.StartNodes(t, 1)
			ordinary := redistest.StartProxy(t, sides[0], nodes)
			if n := len(announcedIDs(t, nodes[0])); name == "cluster" && n < 3 {
				t.Errorf("%d ids of three masters", n)
			}
			c := redistest.Open(t, redistest.StartProxy(t, sides[1], nodes, "--adopt", "lock:*").Addr())
			take := func() string { return c.Do(t, "SET", "lock:a", "v", "NX", "PX", "30000").String() }
			if got := take(); !strings.Contains(got, "no pattern for it") || strings.Contains(got, "not known") {
				t.Errorf("beside a proxy of the same upstream: %s", got)
			}
			ordinary.Kill()
			nodes[0].Do(t, "DEL", "lockproxy:adopt") // in place of the minute
			eventually(t, time.Minute, "adopted", func() bool { return take() == "+OK" })
		})
	}
}

// announcedIDs are the replication ids that proxies have announced at a lock node.
func announcedIDs(t *testing.T, n *redistest.Server) (ids []string) {
	t.Helper()
	for _, proxy := range n.Do(t, "HKEYS", "lockproxy:adopt").Elems {
		var said struct{ Upstream []string }
		if err := json.Unmarshal([]byte(n.Do(t, "GET", "lockproxy:adopt:"+proxy.Text).Text), &said); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, said.Upstream...)
	}
	return ids
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
