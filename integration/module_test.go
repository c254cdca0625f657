package integration

import (
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// What a module adds works as what Redis has, though the proxy hears of it from the
// upstream only: a command that blocks holds up nobody else.
func TestModuleCommands(t *testing.T) {
	t.Parallel()
	path := redistest.Module(t)
	data := redistest.Start(t, "--enable-module-command", "yes")
	r := &rig{data: data, nodes: redistest.StartNodes(t, 1)}
	r.proxies = append(r.proxies, redistest.StartProxy(t, data, r.nodes))
	operator := redistest.Open(t, r.addr())

	refused := operator.Do(t, "TESTMODULE.WAIT")
	if !strings.HasPrefix(refused.Text, "ERR unknown command") {
		t.Fatalf("without the module: %v", refused)
	}
	if v := operator.Do(t, "MODULE", "LOAD", path); v.Text != "OK" {
		t.Fatalf("MODULE LOAD: %v", v)
	}
	checkModule(t, r)
	for range 5 {
		checkModule(t, r)
	}
	if n := strings.Count(data.Do(t, "INFO", "commandstats").Text, "cmdstat_command:calls=2,"); n != 1 {
		t.Errorf("the upstream was not asked twice for its commands:\n%s", data.Do(t, "INFO", "commandstats").Text)
	}
	if v := operator.Do(t, "MODULE", "UNLOAD", "testmodule"); v.Text != "OK" {
		t.Fatalf("MODULE UNLOAD: %v", v)
	}
	if v := operator.Do(t, "TESTMODULE.WAIT"); v.Text != refused.Text {
		t.Errorf("once it is unloaded: %v, before it was loaded %v", v, refused)
	}
	data.Kill()
	if err := data.Restart("--loadmodule", path); err != nil {
		t.Fatal(err)
	}
	eventually(t, 9*time.Second, "the proxy reaches the upstream again", func() bool {
		return redistest.Open(t, r.addr()).Do(t, "PING").Text == "PONG"
	})
	checkModule(t, r)
}

// checkModule has clients that wait, one that is served meanwhile and wakes them, and
// one that leaves.
func checkModule(t *testing.T, r *rig) {
	t.Helper()
	two, three, leaver := redistest.Open(t, r.addr()), redistest.Open3(t, r.addr()), redistest.Open(t, r.addr())
	for i, c := range []*redistest.Conn{two, three, leaver} {
		c.Send(t, redistest.Command("PING")+redistest.Command("TestModule.Wait"))
		if v := c.Read(t); v.Text != "PONG" {
			t.Fatalf("PING: %v", v)
		}
		eventually(t, 9*time.Second, "the client is blocked upstream", func() bool { return blocked(t, r.data) == i+1 })
	}
	leaver.Close()
	eventually(t, 9*time.Second, "the upstream notices who left", func() bool { return blocked(t, r.data) == 2 })
	other := redistest.Open(t, r.addr())
	if v := other.Do(t, "TESTMODULE.PAIRS", "a", "1", "b", "2"); v.Int() != 2 {
		t.Errorf("beside clients that wait: %v", v)
	}
	if v := other.Do(t, "TESTMODULE.WAKE"); v.Int() != 2 {
		t.Errorf("woke %v, want 2", v)
	}
	for _, c := range []*redistest.Conn{two, three} {
		if v := c.Read(t); v.Text != "woken" {
			t.Errorf("a client that waited got %v", v)
		}
		if v := c.Do(t, "TESTMODULE.LAST", "a", "b"); v.Text != "b" {
			t.Errorf("afterwards: %v", v)
		}
	}
}

// In a Cluster a module's commands go to the node of their keys at once, also of keys
// that only the module can tell.
func TestModuleCommandsOfACluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0, "--loadmodule", redistest.Module(t))
	node := redistest.Start(t)
	listen, err := redistest.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	p := redistest.StartServe(t, listen, "--upstream", c.URL(), "--lock-node", "redis://"+node.Addr())
	client, waiter := redistest.Open(t, p.Addr()), redistest.Open(t, p.Addr())
	for _, key := range strings.Fields("a b c d e f g h") {
		if v := client.Do(t, "TESTMODULE.LAST", "x", key); v.Text != key {
			t.Errorf("TESTMODULE.LAST x %s: %v", key, v)
		}
		if v := client.Do(t, "TESTMODULE.PAIRS", key, "1", key+"{"+key+"}", "2"); v.Int() != 2 {
			t.Errorf("TESTMODULE.PAIRS of %s: %v", key, v)
		}
	}
	if v := client.Do(t, "TESTMODULE.PAIRS", "a", "1", "b", "2"); !strings.HasPrefix(v.Text, "CROSSSLOT ") {
		t.Errorf("keys of two slots: %v", v)
	}
	for i, n := range c.Nodes {
		stats := n.Do(t, "INFO", "commandstats").Text
		for _, name := range []string{"last", "pairs"} {
			_, of, _ := strings.Cut(stats, "cmdstat_testmodule."+name+":")
			if of, _, _ = strings.Cut(of, "\r"); !strings.Contains(of, "rejected_calls=0") {
				t.Errorf("node %d redirected testmodule.%s, or did not get it:\n%s", i, name, stats)
			}
		}
	}
	waiter.Send(t, redistest.Command("TESTMODULE.WAIT"))
	eventually(t, 9*time.Second, "the client is blocked upstream", func() bool {
		return blocked(t, c.Nodes[0])+blocked(t, c.Nodes[1])+blocked(t, c.Nodes[2]) == 1
	})
	if v := client.Do(t, "TESTMODULE.WAKE"); v.Int() != 1 {
		t.Errorf("woke %v, want 1", v)
	}
	if v := waiter.Read(t); v.Text != "woken" {
		t.Errorf("the client that waited got %v", v)
	}
}
