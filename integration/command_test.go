package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// replyShape is what there is of a reply when texts and numbers are left out, but for the
// names in maps. However many flags there are is one.
func replyShape(v redistest.Value) string {
	var parts []string
	for i, e := range v.Elems {
		switch {
		case v.Kind == '%' && i%2 == 0:
			parts = append(parts, e.Text)
		case e.Kind != '+' || i == 0:
			parts = append(parts, replyShape(e))
		}
	}
	if parts == nil {
		return string(v.Kind)
	}
	return fmt.Sprintf("%c[%s]", v.Kind, strings.Join(parts, " "))
}

// TestVerbsLookLikeCommands: what COMMAND tells of the verbs has the form of what it
// tells of Redis's own commands, wherever the client's commands travel.
func TestVerbsLookLikeCommands(t *testing.T) {
	t.Parallel()
	data := redistest.Start(t)
	cluster := redistest.StartCluster(t, 3, 0)
	nodes := redistest.StartNodes(t, 1)
	kinds := map[string]struct {
		upstream redistest.Upstream
		plain    *redistest.Server
		args     []string
		before   string
	}{
		"standalone":        {data, data, nil, ""},
		"unshared":          {data, data, []string{"--upstream-conns", "0"}, ""},
		"on its own":        {data, data, nil, "CLIENT NO-EVICT ON"},
		"reads of replicas": {data, data, []string{"--read-from", "any"}, ""},
		"cluster":           {cluster, cluster.Nodes[0], nil, ""},
		"cluster, watching": {cluster, cluster.Nodes[0], nil, "WATCH a"},
	}
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			addr := redistest.StartProxy(t, kind.upstream, nodes, kind.args...).Addr()
			for _, open := range []func(testing.TB, string) *redistest.Conn{redistest.Open, redistest.Open3} {
				c, plain := open(t, addr), open(t, kind.plain.Addr())
				if kind.before != "" {
					c.Do(t, strings.Fields(kind.before)...)
				}
				looksLikeCommands(t, c, plain)
			}
		})
	}
}

func looksLikeCommands(t *testing.T, c, plain *redistest.Conn) {
	t.Helper()
	all, before := c.Do(t, "COMMAND"), plain.Do(t, "COMMAND")
	n := len(before.Elems)
	if len(all.Elems) != n+7 || c.Do(t, "COMMAND", "COUNT").Int() != int64(n+7) {
		t.Fatalf("COMMAND has %d elements, the upstream's %d, COMMAND COUNT is %v", len(all.Elems), n, c.Do(t, "COMMAND", "COUNT"))
	}
	if got := (redistest.Value{Elems: all.Elems[:n]}).String(); got != (redistest.Value{Elems: before.Elems}).String() {
		t.Error("the upstream's own entries have changed")
	}
	entry := func(name string) redistest.Value { return c.Do(t, "COMMAND", "INFO", name).Elems[0] }
	like := map[string]string{"lock": "incr", "renew": "incr", "unlock": "incr", "lockall": "zunion", "renewall": "zunion", "unlockall": "zunion", "lockctl|info": "object|freq", "lockctl|help": "xinfo|help"}
	for name, other := range like {
		if got, want := replyShape(entry(name)), replyShape(entry(other)); got != want {
			t.Errorf("COMMAND INFO %s has the form\n%s\nand %s\n%s", name, got, other, want)
		}
	}
	for i, name := range []string{"lock", "renew", "unlock", "lockall", "renewall", "unlockall", "lockctl"} {
		if got, want := all.Elems[n+i].String(), entry(strings.ToUpper(name)).String(); got != want {
			t.Errorf("COMMAND has\n%s\nCOMMAND INFO %s\n%s", got, name, want)
		}
	}
	both := c.Do(t, "COMMAND", "DOCS", "unlock", "nosuch", "get")
	if got := both.Elems; len(got) != 4 || got[0].Text != "unlock" || got[2].Text != "get" || got[3].String() != plain.Do(t, "COMMAND", "DOCS", "get").Elems[1].String() {
		t.Errorf("COMMAND DOCS unlock nosuch get: %v", both)
	}
	docs := c.Do(t, "COMMAND", "DOCS")
	if got, want := len(docs.Elems), len(plain.Do(t, "COMMAND", "DOCS").Elems)+14; got != want {
		t.Errorf("COMMAND DOCS has %d elements, want %d", got, want)
	}
	list, was := c.Do(t, "COMMAND", "LIST"), plain.Do(t, "COMMAND", "LIST")
	if len(list.Elems) != len(was.Elems)+16 || list.Kind != was.Kind || !strings.HasSuffix(list.String(), `$"lockctl|help"]`) {
		t.Errorf("COMMAND LIST: %v", list)
	}
	for command, want := range map[string]string{
		"COMMAND GETKEYS LOCK a 30s": `*[$"a"]`, "COMMAND GETKEYS GET a": `*[$"a"]`, "COMMAND GETKEYS LOCKCTL INFO b": `*[$"b"]`,
		"COMMAND GETKEYS LOCKALL 2 a b 30s": `*[$"a" $"b"]`, "COMMAND GETKEYS UNLOCKALL 2 a": "-ERR Invalid arguments specified for command",
		"COMMAND GETKEYS LOCK a":          "-ERR Invalid number of arguments specified for command",
		"COMMAND GETKEYS LOCKCTL NODES x": "-ERR The command has no key arguments",
		"COMMAND GETKEYS NOSUCH a":        "-ERR Invalid command specified",
	} {
		if v := c.Do(t, strings.Fields(command)...); v.String() != want {
			t.Errorf("%s: %v", command, v)
		}
	}
}

// TestInfoOfTheProxy: INFO has a section of the proxy's, which counts.
func TestInfoOfTheProxy(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 1)
	cluster, p := startClustered(t, 3, 0)
	cluster.AwaitOK(t)
	for addr, mode := range map[string]string{r.addr(): "standalone", p.Addr(): "cluster"} {
		c, c3 := redistest.Open(t, addr), redistest.Open3(t, addr)
		mustUnlock(t, c, lock(t, c, "job"))
		lock(t, c, "job")
		c3.Do(t, "LOCK", "job", "10s", "OWNER", "you")
		for _, command := range []string{"INFO", "INFO all", "INFO EVERYTHING", "INFO default", "INFO lockproxy", "INFO server LockProxy"} {
			for _, on := range []*redistest.Conn{c, c3} {
				v := on.Do(t, strings.Fields(command)...)
				_, section, ok := strings.Cut(v.Text, "# Lockproxy\r\n")
				lines := strings.Split(section, "\r\n")
				for _, want := range []string{"upstream_mode:" + mode, "connected_clients:2", "grants:2", "refusals:1", "releases:1", "noquorum:0", "waiting:0"} {
					if !ok || !slices.Contains(lines, "lockproxy_"+want) {
						t.Errorf("%s lacks %s: %q", command, want, section)
					}
				}
				if hasServer := strings.Contains(v.Text, "# Server\r\n"); hasServer != (command != "INFO lockproxy") {
					t.Errorf("%s: %v", command, v)
				}
			}
		}
		if v := c.Do(t, "INFO", "server"); strings.Contains(v.Text, "# Lockproxy") {
			t.Errorf("INFO server: %v", v)
		}
		c.Do(t, "MULTI")
		c.Do(t, "COMMAND", "COUNT")
		if v := c.Do(t, "EXEC"); len(v.Elems) != 1 || v.Elems[0].Kind != ':' {
			t.Errorf("COMMAND COUNT inside MULTI: %v", v)
		}
	}
	r.data.Do(t, "ACL", "SETUSER", "u", "on", ">pw", "~*", "+@all", "-info", "-command")
	u := login(t, r.addr(), "u", "pw")
	for _, command := range []string{"INFO", "INFO lockproxy", "COMMAND", "COMMAND INFO lock", "COMMAND DOCS lock", "COMMAND GETKEYS lock a 1s"} {
		if v := u.Do(t, strings.Fields(command)...); !strings.HasPrefix(v.Text, "NOPERM ") {
			t.Errorf("%s of who may not: %v", command, v)
		}
	}
}
