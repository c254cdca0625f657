package main

import (
	"encoding/json"
	"net"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/cmd/lockproxy/exit"
	"github.com/lockproxy/lockproxy/cmd/lockproxy/inspect"
	"github.com/lockproxy/lockproxy/integration/redistest"
)

// held starts a proxy with a few locks, one of which has a name that would act on a terminal, and returns its URL.
func held(t *testing.T) (s *started, c *inline, url string) {
	t.Helper()
	s = start(t, "dev", "--node-timeout", "5s", "--admin", "")
	c = s.dial(t)
	for _, lock := range []string{"a 20s OWNER first", "b 30s OWNER second INFO nightly", `"c\x1b[2J" 40s OWNER third`} {
		if got := c.do("LOCK "+lock, 6); !strings.HasPrefix(got, "*4 :") {
			t.Fatal(got)
		}
	}
	return s, c, "unix://" + s.socket
}

// TestInspect_NoLockproxy: what asks a proxy says where it asked, and what to do if there is none, or a Redis.
func TestInspect_NoLockproxy(t *testing.T) {
	t.Parallel()
	closed, redis := redistest.Reserve(t).Addr(), redistest.Start(t).Addr()
	for _, command := range [][]string{{"locks"}, {"why", "a"}, {"force", "--yes", "a"}, {"nodes"}, {"top"}, {"run", "--lock", "a"}} {
		for addr, says := range map[string][]string{
			closed: {closed + ": connect: connection refused\n", "--proxy or LOCKPROXY_PROXY", "lockproxy serve", "lockproxy dev"},
			redis:  {"a Redis answers there, not a lockproxy (at " + redis + ")"},
		} {
			args := append(append([]string{command[0], "--proxy", addr}, command[1:]...), map[string][]string{"run": {"--", "true"}}[command[0]]...)
			code, stdout, stderr := execute(t, nil, args...)
			if code != exit.Unavailable || stdout != "" {
				t.Errorf("%v: %d %s", args, code, stdout)
			}
			for _, text := range says {
				if !strings.Contains(stderr, text) || strings.Contains(stderr, "dial tcp") {
					t.Errorf("%v: %q, not %q", args, stderr, text)
				}
			}
		}
	}
}

// TestInspect_WithoutUpstream: who holds what, and how the nodes are, can be asked while the upstream hangs or is down.
func TestInspect_WithoutUpstream(t *testing.T) {
	data, nodes := redistest.Start(t), redistest.StartNodes(t, 1)
	s := start(t, "serve", "--upstream", data.URL(), "--lock-node", nodes[0].URL(), "--node-timeout", "900ms")
	c := s.dial(t)
	if got := c.do("LOCK job 30s OWNER me INFO nightly", 6); !strings.HasPrefix(got, "*4 :") {
		t.Fatal(got)
	}
	for _, end := range []func(){data.Pause, data.Kill} { // it hangs, and is down
		end()
		for args, want := range map[string]string{"locks": "nightly", "why job": "job is held by ", "nodes": "1 of 1 nodes vote", "top --times 1": "nightly"} {
			words := strings.Fields(args)
			code, stdout, stderr := execute(t, nil, append([]string{words[0], "--proxy", "unix://" + s.socket}, words[1:]...)...)
			if code != exit.OK || !strings.Contains(stdout, want) || words[0] == "top" && !strings.HasPrefix(stdout, "no counters, for which the upstream is asked: ") {
				t.Errorf("%s: %d %s%s", args, code, stdout, stderr)
			}
		}
	}
	if code, _, stderr := execute(t, nil, "run", "--proxy", "unix://"+s.socket, "--lock", "other", "--", "true"); code != exit.Unavailable || !strings.Contains(stderr, "UPSTREAMDOWN") {
		t.Errorf("run: %d %s", code, stderr)
	}
}

func TestLocks(t *testing.T) {
	_, _, url := held(t)
	for _, tt := range []struct {
		args  string
		names []string // of the rows, in order
	}{
		{"", []string{"a", "b", `"c\x1b[2J"`}},
		{"--sort waiting", []string{"a", "b", `"c\x1b[2J"`}},
		{"--sort left", []string{"a", "b", `"c\x1b[2J"`}},
		{"--match [ab]", []string{"a", "b"}},
		{"--most 1 --match b", []string{"b"}},
	} {
		code, stdout, stderr := execute(t, nil, append([]string{"locks", "--proxy", url}, strings.Fields(tt.args)...)...)
		lines := strings.Split(strings.TrimSpace(stdout), "\n")
		if code != exit.OK || stderr != "" || len(lines) != 1+len(tt.names) || !strings.HasPrefix(lines[0], "NAME ") {
			t.Errorf("%s: %d %s\n%s", tt.args, code, stderr, stdout)
			continue
		}
		column := strings.Index(lines[0], "OWNER")
		for i, name := range tt.names {
			if row := lines[i+1]; !strings.HasPrefix(row, name+" ") || row[column-1] != ' ' || row[column] == ' ' {
				t.Errorf("%s: row %d is %q, below %q", tt.args, i, row, lines[0])
			}
		}
	}
	code, stdout, stderr := execute(t, nil, "locks", "--proxy", url, "--most", "2")
	if code != exit.OK || strings.Count(stdout, "\n") != 3 || !strings.Contains(stderr, "more than these 2") {
		t.Errorf("two of three: %d %s\n%s", code, stderr, stdout)
	}
	code, stdout, stderr = execute(t, nil, "locks", "--proxy", url, "--match", "none*")
	if code != exit.OK || stdout != "" || !strings.Contains(stderr, "nothing is held") {
		t.Errorf("none: %d %s\n%s", code, stderr, stdout)
	}
}

func TestLocks_JSON(t *testing.T) {
	_, _, url := held(t)
	_, stdout, _ := execute(t, nil, "locks", "--proxy", url, "--json", "--match", "b")
	var locks []inspect.Lock
	if err := json.Unmarshal([]byte(stdout), &locks); err != nil {
		t.Fatalf("%v: %s", err, stdout)
	}
	if len(locks) != 1 {
		t.Fatal(stdout)
	}
	if l := locks[0]; l.Name != "b" || l.Owner != "second" || l.Info != "nightly" || l.Fence <= 0 || l.Holds != 1 || l.Votes < 3 || l.Remaining <= 0 || l.Remaining > 30000 || l.Session {
		t.Errorf("%+v", l)
	}
	if _, stdout, _ := execute(t, nil, "locks", "--proxy", url, "--json", "--match", "none"); strings.TrimSpace(stdout) != "[]" {
		t.Errorf("no lock: %q", stdout)
	}
}

func TestWhy_NodesAndTop(t *testing.T) {
	_, _, url := held(t)
	for _, tt := range []struct {
		args string
		says []string
	}{
		{"why a", []string{"a is held by first, fence ", "nobody waits for it"}},
		{"why none", []string{"nobody"}},
		{"nodes", []string{"5 of 5 nodes vote, 3 are needed: a majority votes\nNODE ", " voting "}},
		{"nodes --json", []string{`"voting": 5`, `"state": "voting"`}},
		{"top --times 2 --every 100ms", []string{"lockproxy, up ", "waiting 0, sessions 0, version ", "a second: commands ", " grants ", "5 of 5 nodes vote", "3 held, by waiting\nNAME ", "\nb ", "nightly"}},
		{"top --times 1 --match b", []string{"1 held, by waiting\nNAME "}},
	} {
		args := append(strings.Fields(tt.args), "--proxy", url)
		code, stdout, stderr := execute(t, nil, args...)
		if code != exit.OK || stderr != "" || strings.Contains(stdout, "\x1b") {
			t.Errorf("%s: %d %s\n%q", tt.args, code, stderr, stdout)
		}
		for _, part := range tt.says {
			if !strings.Contains(stdout, part) {
				t.Errorf("%s: no %q in\n%s", tt.args, part, stdout)
			}
		}
	}
}

func TestForce(t *testing.T) {
	s, c, url := held(t)
	for _, tt := range []struct {
		what, typed string
		args        []string
		code        int
		stdout      string
		stderr      string
		left        bool // somebody has a afterwards
	}{
		{"another name typed", "b\n", []string{"a"}, exit.Failed, "first", "not the name", true},
		{"nothing typed", "", []string{"a"}, exit.Failed, "first", "not the name", true},
		{"the name typed", "a\n", []string{"a"}, exit.OK, "taken away:\nNAME", "", false},
		{"nobody has it", "a\n", []string{"a"}, exit.Failed, "", "nobody has it", false},
		{"nobody has it, unasked", "", []string{"a", "--yes"}, exit.Failed, "", "nobody has it", false},
	} {
		var out, errs buffer
		p := program{env: func(string) (string, bool) { return "", false }, stdin: strings.NewReader(tt.typed), stdout: &out, stderr: &errs}
		code := p.run(t.Context(), append([]string{"lockproxy", "force", "--proxy", url}, tt.args...))
		if code != tt.code || !strings.Contains(out.String(), tt.stdout) || !strings.Contains(errs.String(), tt.stderr) {
			t.Errorf("%s: %d %s\n%s", tt.what, code, errs.String(), out.String())
		}
		want := ":0"
		if tt.left {
			want = ":1"
		}
		if got := c.do("UNLOCK a nobody", 1); strings.HasPrefix(got, "-NOTOWNER") != tt.left {
			t.Errorf("%s: %s, want %s", tt.what, got, want)
		}
	}
	if code, stdout, stderr := execute(t, nil, "force", "--proxy", url, "--yes", "b"); code != exit.OK || !strings.Contains(stdout, "second") {
		t.Errorf("--yes: %d %s\n%s", code, stderr, stdout)
	}
	if got := s.dial(t).do("LOCK b 30s OWNER x", 6); !strings.HasPrefix(got, "*4 :") {
		t.Errorf("after it was taken away: %s", got)
	}
}

// TestForce_InDoubt: FORCE is asked for also where nobody can tell who has the lock.
func TestForce_InDoubt(t *testing.T) {
	for typed, want := range map[string]int{"a\n": exit.OK, "\n": exit.Failed} {
		s := standIn(t, func(_ net.Conn, args []string) string {
			switch args[1] {
			case "INFO":
				return "-NOQUORUM 1 of 3 answered\r\n"
			case "HELP":
				return "*0\r\n"
			}
			return "*4\r\n+name\r\n+a\r\n+owner\r\n+second\r\n"
		})
		var out, errs buffer
		p := program{env: func(string) (string, bool) { return "", false }, stdin: strings.NewReader(typed), stdout: &out, stderr: &errs}
		code := p.run(t.Context(), []string{"lockproxy", "force", "--proxy", "unix://" + s.socket, "a"})
		if code != want || !strings.Contains(out.String(), "not certain: NOQUORUM 1 of 3") || strings.Contains(out.String(), "second") != (want == exit.OK) {
			t.Errorf("%q typed: %d %s\n%s", typed, code, errs.String(), out.String())
		}
		if asked := strings.Contains(strings.Join(s.heard(), "\n"), "FORCE"); asked != (want == exit.OK) {
			t.Errorf("%q typed: the proxy heard %q", typed, s.heard())
		}
	}
}

func TestInspect_ExitCodes(t *testing.T) {
	for _, tt := range []struct {
		args   string
		code   int
		stderr string
	}{
		{"why", exit.Misuse, "usage: lockproxy why [flags] NAME"},
		{"why a -- --proxy unix:///none/such", exit.Misuse, "usage: lockproxy why [flags] NAME"},
		{"why a --proxi unix:///none/such", exit.Misuse, "did you mean --proxy?"},
		{"locks extra", exit.Misuse, "usage: lockproxy locks [flags]"},
		{"locks --sort size", exit.Misuse, `"size" is not one of name, held`},
		{"nodes what", exit.Misuse, `no command "what"; there are add, remove, replace`},
		{"top --proxy nonsense://", exit.Misuse, "proxy: "},
		{"locks --proxy unix:///none/such", exit.Unavailable, "/none/such"},
		{"top --times 1 --proxy unix:///none/such", exit.Unavailable, "/none/such"},
		{"force a --yes --proxy unix:///none/such", exit.Unavailable, "/none/such"},
	} {
		if code, stdout, stderr := execute(t, nil, strings.Fields(tt.args)...); code != tt.code || !strings.Contains(stderr, tt.stderr) || stdout != "" {
			t.Errorf("%s: %d %s%s", tt.args, code, stderr, stdout)
		}
	}
}
