package integration

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// lockctlScripts say what SPEC and docs/lockctl.md say of LOCKCTL.
var lockctlScripts = []script{
	{"nobody has it", []step{
		{"a", "LOCKCTL INFO <job>", "*-1"},
		{"b3", "LOCKCTL INFO <job>", "_"},
		{"a", "LOCKCTL WAITERS <job>", "*[]"},
		{"a", "LOCKCTL FORCE <job>", "*-1"},
		{"b3", "LOCKCTL FORCE <job>", "_"},
	}},
	{"who has it", []step{
		{"a", "LOCK <job> 30s OWNER me INFO why", `*[:<f> $"me" :<_> :1]`},
		{"a", "LOCK <job> 30s OWNER me", `*[:<f> $"me" :<_> :2]`},
		{"other.b", "LOCKCTL INFO <job>", `*[$"name" $"<job>" $"owner" $"me" $"fence" :<f> $"holds" :2 $"remaining-ms" :<28000..30000> $"held-ms" :<0..2000> $"info" $"why" $"session" $"no" $"waiters" :0 $"votes" :3 <...>`},
		{"b3", "LOCKCTL INFO <job>", `%[$"name" $"<job>" $"owner" $"me" $"fence" :<f> <...>`},
		{"a", "SELECT 1", "+<...>"},
		{"a", "LOCKCTL INFO <job>", "*-1"},
		{"b", "UNLOCK <job> me ALL", ":1"},
		{"b", "LOCKCTL INFO <job>", "*-1"},
	}},
	{"a lock that is taken away", []step{
		{"a", "LOCK <job> 30s OWNER me", `*[:<f> $"me" :<_> :1]`},
		{"a", "RENEW <job> 20s me", ":<_>"},
		{"other.b", "LOCKCTL FORCE <job>", `*[$"name" $"<job>" $"owner" $"me" $"fence" :<f> <...>`},
		{"a", "RENEW <job> 30s me", "-LOCKLOST <...>"},
		{"a", "UNLOCK <job> me", "-LOCKLOST <...>"},
		{"other.b", "UNLOCK <job> me FENCE <f>", "-LOCKLOST <...>"},
		{"a", "LOCK <job> 30s OWNER you", `*[:<g> $"you" :<_> :1]`},
		{"less", "f g", ""},
		{"a", "UNLOCK <job> me", "-NOTOWNER <...>"},
		{"a", "UNLOCK <job> you", ":1"},
	}},
	{"a session whose lock is taken away", []step{
		{"a3", "LOCK <job> 30s OWNER me SESSION ONLOSS PUSH", `*[:<f> $"me" :<_> :1]`},
		{"b", "LOCKCTL INFO <job>", `*[<...> $"session" $"yes" <...>`},
		{"other.b", "LOCKCTL INFO <job>", `*[<...> $"session" $"no" <...>`},
		{"b", "LOCKCTL FORCE <job>", `*[$"name" $"<job>" <...>`},
		{"a3", "PING", `>[$"lock-lost" $"<job>" :<f> $"it was taken away by an operator"]`},
	}},
	{"not in a transaction", []step{
		{"a", "MULTI", "+OK"},
		{"a", "LOCKCTL INFO <job>", "-ERR <...>"},
		{"a", "EXEC", "-EXECABORT <...>"},
	}},
}

func TestLockctl(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 2)
	for _, sc := range lockctlScripts {
		t.Run(sc.name, func(t *testing.T) { r.run(t, sc) })
	}
}

// TestLockctlWaiters: those who wait are shown by the proxy where they do, which counts them,
// and FORCE through another one lets the first of them have the lock at once.
func TestLockctlWaiters(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 2)
	first, second, ops := redistest.Open(t, r.addr()), redistest.Open(t, r.addr()), redistest.Open(t, r.proxies[1].Addr())
	ops.Do(t, "LOCK", "job", "30s", "OWNER", "me")
	waiters := func(at string, n int) []redistest.Value {
		t.Helper()
		c := redistest.Open(t, at)
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			if v := c.Do(t, "LOCKCTL", "WAITERS", "job"); len(v.Elems) == n {
				return v.Elems
			} else if time.Now().After(end) {
				t.Fatalf("%v, want %d", v, n)
			}
		}
	}
	first.Send(t, redistest.Command("LOCK", "job", "30s", "OWNER", "one", "WAIT", "60s", "INFO", "x"))
	waiters(r.addr(), 1)
	second.Send(t, redistest.Command("LOCK", "job", "30s", "OWNER", "two", "WAIT", "60s"))
	second.Send(t, redistest.Command("LOCKCTL", "INFO", "job")) // at once, but answered in order
	all := waiters(r.addr(), 2)
	if got := all[0].String(); !strings.HasPrefix(got, `*[$"position" :1 $"waiting-ms" :`) || !strings.HasSuffix(got, `$"owner" $"one" $"info" $"x" $"client" $"`+first.LocalAddr().String()+`"]`) {
		t.Errorf("the first: %s", got)
	}
	waiters(r.proxies[1].Addr(), 0)
	if v := redistest.Open(t, r.addr()).Do(t, "LOCKCTL", "INFO", "job"); v.Elems[17].Int() != 2 {
		t.Errorf("waiters in %v", v)
	}
	ops.Do(t, "LOCKCTL", "FORCE", "job")
	if v := first.Read(t); len(v.Elems) != 4 || v.Elems[1].Text != "one" {
		t.Errorf("the first got %v", v)
	}
	ops.Do(t, "LOCKCTL", "FORCE", "job")
	if v := second.Read(t); len(v.Elems) != 4 || v.Elems[1].Text != "two" {
		t.Errorf("the second got %v", v)
	}
	if v := second.Read(t); len(v.Elems) < 4 || v.Elems[3].Text == "two" {
		t.Errorf("what it asked while it waited: %v", v)
	}
}

// TestLockctl_ACL: who may not run admin commands is shown no owner but its own, and
// takes nothing away.
func TestLockctl_ACL(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, 1)
	for _, rules := range []string{
		"admin on >pw ~* +@all", "worker on >pw ~* +@all -@admin", "far on >pw ~far:* +@all",
	} {
		if v := r.data.Do(t, append([]string{"ACL", "SETUSER"}, strings.Fields(rules)...)...); v.IsError() {
			t.Fatal(v)
		}
	}
	r.data.Do(t, "ACL", "SETUSER", "default", "resetpass", ">secret")
	admin, worker, far := login(t, r.addr(), "admin", "pw"), login(t, r.addr(), "worker", "pw"), login(t, r.addr(), "far", "pw")
	time.Sleep(lookedAgain)
	if v := redistest.Open(t, r.addr()).Do(t, "LOCKCTL", "INFO", "job"); v.Raw != "-NOAUTH Authentication required.\r\n" {
		t.Errorf("nobody: %v", v)
	}
	mine := worker.Do(t, "LOCK", "own", "30s").Elems[1].Text
	admin.Do(t, "LOCK", "job", "30s", "OWNER", "me")
	owner := func(c *redistest.Conn, name string) string { return c.Do(t, "LOCKCTL", "INFO", name).Elems[3].Text }
	for _, tt := range []struct {
		who, name, want string
		c               *redistest.Conn
	}{
		{"admin", "job", "me", admin}, {"worker", "job", "", worker}, {"admin", "own", mine, admin}, {"worker", "own", mine, worker},
		{"another worker", "own", "", login(t, r.addr(), "worker", "pw")},
	} {
		if got := owner(tt.c, tt.name); got != tt.want {
			t.Errorf("%s sees %s owned by %q, want %q", tt.who, tt.name, got, tt.want)
		}
	}
	for _, command := range []string{"LOCKCTL WHY job", "LOCKCTL LIST"} {
		if v := worker.Do(t, strings.Fields(command)...); strings.Contains(v.String(), `"me"`) || strings.Contains(v.String(), "by me") || v.IsError() {
			t.Errorf("%s tells: %v", command, v)
		}
	}
	const noForce = "-NOPERM this user has no permissions to run the 'lockctl|force' command\r\n"
	if v := worker.Do(t, "LOCKCTL", "FORCE", "job"); v.Raw != noForce {
		t.Errorf("a worker's FORCE: %v", v)
	}
	if v := far.Do(t, "LOCKCTL", "FORCE", "job"); !strings.HasPrefix(v.Text, "NOPERM") {
		t.Errorf("FORCE by an admin of other keys: %v", v)
	}
	if got := owner(admin, "job"); got != "me" {
		t.Errorf("now it is %q's", got)
	}
	if v := admin.Do(t, "LOCKCTL", "FORCE", "job"); len(v.Elems) < 4 || v.Elems[3].Text != "me" {
		t.Errorf("an admin's FORCE: %v", v)
	}
	admin.Do(t, "LOCK", "job", "30s", "OWNER", "me")
	r.data.Kill()
	if v := admin.Do(t, "LOCKCTL", "FORCE", "job"); !strings.HasPrefix(v.Text, "UPSTREAMDOWN") {
		t.Errorf("FORCE when nobody can say who may: %v", v)
	}
	if v := admin.Do(t, "LOCKCTL", "INFO", "job"); len(v.Elems) < 4 {
		t.Errorf("INFO without the upstream: %v", v)
	}
}

// TestLockctlList: through redis-cli, as people do it, and to the end.
func TestLockctlList(t *testing.T) {
	t.Parallel()
	r := startRig(t, 5, 1, "--node-timeout", "2s") // a lock may be listed twice when a node is taken for down
	c := redistest.Open(t, r.addr())
	var want []string
	for i := range 300 {
		name := fmt.Sprintf("job:%03d", i)
		c.Do(t, "LOCK", name, "60s", "OWNER", "me")
		want = append(want, name)
	}
	var got []string
	calls := 0
	for cursor := "0"; ; calls++ {
		v := c.Do(t, "LOCKCTL", "LIST", "CURSOR", cursor, "COUNT", "50", "MATCH", "job:*")
		for _, e := range v.Elems[1].Elems {
			got = append(got, e.Elems[1].Text)
		}
		if cursor = v.Elems[0].Text; cursor == "0" {
			break
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) || calls < 5 {
		t.Errorf("%d names in %d calls", len(got), calls+1)
	}
	host, port, _ := strings.Cut(r.addr(), ":")
	out, err := exec.Command("redis-cli", "-h", host, "-p", port, "LOCKCTL", "WHY", "job:007").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), `job:007 is held by me, fence `) || !strings.Contains(string(out), "\n5 of 5 nodes vote, 3 must agree:\n") {
		t.Errorf("WHY: %s, %v", out, err)
	}
	r.nodes[0].Kill()
	r.nodes[1].Kill()
	r.nodes[2].Kill()
	if v := c.Do(t, "LOCKCTL", "LIST"); !strings.HasPrefix(v.Text, "NOQUORUM ") {
		t.Errorf("LIST without a quorum: %v", v)
	}
	if v := c.Do(t, "LOCKCTL", "INFO", "job:007"); !strings.HasPrefix(v.Text, "NOQUORUM 2 of 5 answered, 3 needed: ") {
		t.Errorf("INFO without a quorum: %v", v)
	}
	v := c.Do(t, "LOCKCTL", "WHY", "job:007")
	if n := len(v.Elems); n == 0 || v.Elems[n-1].Text != "next: NOQUORUM until 1 more node votes" {
		t.Errorf("WHY without a quorum: %v", v)
	}
}
