package main

import (
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/cmd/lockproxy/exit"
	"github.com/lockproxy/lockproxy/integration/redistest"
)

// TestNodes walks through an exchange of a lock node at which no proxy is.
func TestNodes(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 4)
	args := func(args ...string) []string {
		return append([]string{"nodes", args[0], "--upstream", nodes[0].URL(), "--node-timeout", "900ms", "--max-ttl", "1s",
			"--lock-node", nodes[0].URL(), "--lock-node", nodes[1].URL(), "--lock-node", nodes[2].URL()}, args[1:]...)
	}
	if code, _, stderr := execute(t, nil, append([]string{"init"}, args("")[2:]...)...); code != exit.OK {
		t.Fatal(stderr)
	}
	nodes[3].Do(t, "CONFIG", "SET", "requirepass", "right")
	code, _, stderr := execute(t, nil, args("add", "--wait", "10s", "redis://:wrong@"+nodes[3].Addr())...)
	if code != exit.Failed || !strings.Contains(stderr, "WRONGPASS") || !strings.Contains(stderr, "password in the URL") {
		t.Errorf("with a wrong password: %d %s", code, stderr)
	}
	admin := redistest.Open(t, nodes[3].Addr())
	admin.Do(t, "AUTH", "right")
	admin.Do(t, "CONFIG", "SET", "requirepass", "")
	nodes[2].Pause()
	if code, _, stderr := execute(t, nil, args("replace", nodes[0].URL(), nodes[3].URL())...); code != exitNotYet || !strings.Contains(stderr, nodes[2].Addr()) {
		t.Errorf("a change while a node hangs: %d %s", code, stderr)
	}
	nodes[2].Resume()
	steps := []struct {
		args []string
		code int
		says string
	}{
		{[]string{"add"}, exit.Usage, "takes 1 URL"},
		{[]string{"replace", nodes[0].URL()}, exit.Usage, "takes 2 URLs"},
		{[]string{"add", nodes[3].URL(), "--finish"}, exit.Failed, "has not begun"},
		{[]string{"replace", "--wait", "30s", nodes[0].URL(), nodes[3].URL()}, exit.OK, "is enlisted.\nProxies with either list get votes now. Restart them one by one"},
		{[]string{"replace", "--wait", "30s", "--finish", nodes[0].URL(), nodes[3].URL()}, exit.OK, "Done. The lock nodes are"},
		{[]string{"replace", "--wait", "30s", nodes[0].URL(), nodes[3].URL()}, exit.OK, "Restart them one by one"},
		{[]string{"replace", "--wait", "30s", "--finish", nodes[0].URL(), nodes[3].URL()}, exit.OK, "Done. The lock nodes are"},
		{[]string{"replace", nodes[0].URL(), nodes[3].URL()}, exit.OK, "have the new list already"},
		{[]string{"add", nodes[0].URL()}, exit.Failed, "other lock nodes"},
	}
	for _, s := range steps {
		began := time.Now()
		code, stdout, stderr := execute(t, nil, args(s.args...)...)
		if code != s.code || !strings.Contains(stdout+stderr, s.says) {
			t.Fatalf("%v: %d after %v, want %d and %q\n%s%s", s.args, code, time.Since(began), s.code, s.says, stdout, stderr)
		}
	}
	list := redistest.Open(t, nodes[1].Addr()).Do(t, "HGET", "lockproxy:node", "list").Text
	if strings.Contains(list, nodes[0].Addr()) || !strings.Contains(list, nodes[3].Addr()) {
		t.Errorf("the nodes are %s", list)
	}
}
