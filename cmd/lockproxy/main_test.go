package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/cmd/lockproxy/exit"
)

// A buffer is a bytes.Buffer for a program and its test to share.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func (b *buffer) Reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.b.Reset()
}

// execute runs one command line to its end.
func execute(t *testing.T, env map[string]string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs buffer
	p := program{
		env:    func(name string) (string, bool) { v, ok := env[name]; return v, ok },
		stdout: &out, stderr: &errs,
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	code = p.run(ctx, append([]string{"lockproxy"}, args...))
	return code, out.String(), errs.String()
}

func TestCommandLines(t *testing.T) {
	tests := []struct {
		args           string
		code           int
		stdout, stderr string // parts of what is printed; empty: nothing is
	}{
		{"", exit.OK, "serve clients until SIGTERM", ""},
		{"--help", exit.OK, "healthcheck", ""},
		{"version", exit.OK, "lockproxy ", ""},
		{"serve --help", exit.OK, "$LOCKPROXY_UPSTREAM", ""},
		{"server", exit.Usage, "", `no command "server"; did you mean serve?`},
		{"loks --json", exit.Usage, "", `no command "loks"; did you mean locks? (--help tells more)`},
		{"frobnicate", exit.Usage, "", `no command "frobnicate"; there are serve, dev, `},
		{"nodes ad redis://127.0.0.1:1", exit.Misuse, "", `no command "ad"; did you mean add?`},
		{"adopt reprt", exit.Misuse, "", `no command "reprt"; did you mean report?`},
		{"--help locks", exit.OK, "healthcheck", ""},
		{"serve", exit.Usage, "", "1 fault in the settings:\n  upstream: not set"},
		{"serve --upstream u:1 --min-ttl 30 --log-level loud", exit.Usage, "", "2 faults in the settings:"},
		{"--version", exit.OK, "lockproxy ", ""},
		{"nodes --help", exit.OK, "replace      add NEW, then remove OLD", ""},
		{"nodes add --help", exit.OK, "usage: lockproxy nodes add [flags] URL", ""},
		{"nodes add --finish --help", exit.OK, "--finish", ""},
		{"adopt explain -h", exit.OK, "FILE.lua", ""},
		{"run --help", exit.OK, "-- command", ""},
		{"run --help", exit.OK, "\n  -v\n", ""},
		{"run --help", exit.OK, "\n  --proxy URL (redis://127.0.0.1:6380)\n", ""},
		{"dev --help", exit.OK, "\n  --node-timeout VALUE (2s)\n", ""},
		{"dev --help", exit.OK, "\n  --admin HOST:PORT (127.0.0.1:6381)\n", ""},
		{"dev --help", exit.OK, "\n  --log-level VALUE (warn)\n", ""},
		{"serve --upstrem u:1", exit.Usage, "", "not defined: -upstrem; did you mean --upstream? (--help tells more)"},
		{"serve --nonsense", exit.Usage, "", "not defined: -nonsense (--help tells more)"},
		{"check --nodes-timeout 1s", exit.Misuse, "", "did you mean --node-timeout?"},
		{"serve --upstream", exit.Usage, "", "needs an argument"},
		{"serve redis://127.0.0.1:6379", exit.Usage, "", "serve takes no arguments"},
		{"dev now", exit.Usage, "", "dev takes no arguments"},
		{"dev --upstream u:1", exit.Usage, "", "not defined: -upstream"},
		{"healthcheck --listen nowhere", exit.Usage, "", `"nowhere" is neither`},
		{"healthcheck --listen /none/such.sock", exit.Failed, "", "not healthy: "},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			code, stdout, stderr := execute(t, nil, strings.Fields(tt.args)...)
			if code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			for _, s := range []struct{ name, got, want string }{{"stdout", stdout, tt.stdout}, {"stderr", stderr, tt.stderr}} {
				if !strings.Contains(s.got, s.want) || (s.want == "" && s.got != "") {
					t.Errorf("%s is %q, want %q in it", s.name, s.got, s.want)
				}
			}
		})
	}
}

// TestHelp_Groups: serve lists every setting, under the heading of its group; check those that say which servers there are, and
// its own.
func TestHelp_Groups(t *testing.T) {
	_, serve, _ := execute(t, nil, "serve", "--help")
	at := 0
	for _, s := range new(options).settings() {
		heading := strings.Index(serve, "\n"+s.group+":\n")
		flag := strings.Index(serve, "\n  --"+s.name+" ")
		if s.toggle {
			flag = strings.Index(serve, "\n  --"+s.name+"\n")
		}
		if s.group == "" || heading < 0 || flag < max(at, heading) {
			t.Errorf("--%s of group %q: the heading is at %d, the flag at %d, the flag before at %d", s.name, s.group, heading, flag, at)
		}
		at = flag
	}
	for _, line := range strings.Split(serve, "\n") {
		if len([]rune(line)) > helpWidth {
			t.Errorf("%d columns: %s", len([]rune(line)), line)
		}
	}
	_, check, _ := execute(t, nil, "check", "--help")
	for _, want := range []string{"--format", "--config", "--lock-node-file"} {
		if !strings.Contains(check, want) {
			t.Errorf("check --help lacks %s", want)
		}
	}
	if strings.Contains(check, "--max-ttl") {
		t.Errorf("check --help lists settings that have nothing to do with it:\n%s", check)
	}
}

// TestHiddenFlags: what --help does not list can be given all the same.
func TestHiddenFlags(t *testing.T) {
	if _, _, stderr := execute(t, nil, "check", "--upstream", "redis://127.0.0.1:1", "--max-ttl", "soon"); !strings.Contains(stderr, "max-ttl") || !strings.Contains(stderr, "soon") {
		t.Errorf("%s", stderr)
	}
}

func TestHelp_HidesSecrets(t *testing.T) {
	env := map[string]string{"LOCKPROXY_UPSTREAM": "redis://:hunter2@h:1", "LOCKPROXY_LOCK_NODE": "redis://:hunter2@h:1"}
	for _, args := range [][]string{{"--help"}, {"serve", "--help"}, {"dev", "--help"}, {"version"}, {"serve", "--log-level", "loud"}} {
		if _, stdout, stderr := execute(t, env, args...); strings.Contains(stdout+stderr, "hunter2") {
			t.Errorf("%v prints a password:\n%s%s", args, stdout, stderr)
		}
	}
}

func TestHealthcheck(t *testing.T) {
	tests := []struct {
		reply string
		code  int
	}{
		{"+PONG\r\n", exit.OK},
		{"-NOAUTH Authentication required.\r\n", exit.OK},
		{"-ERR cannot reach the upstream\r\n", exit.Failed},
		{"HTTP/1.1 400 Bad Request\r\n", exit.Failed},
		{"", exit.Failed},
	}
	for _, tt := range tests {
		path := filepath.Join(t.TempDir(), "s")
		answerOnce(t, path, tt.reply)
		if code, _, stderr := execute(t, map[string]string{"LOCKPROXY_LISTEN": path}, "healthcheck"); code != tt.code {
			t.Errorf("answered %q: exit code %d, want %d (%s)", tt.reply, code, tt.code, stderr)
		}
	}
}

// answerOnce listens at a socket path and gives its first client one reply.
func answerOnce(t *testing.T, path, reply string) {
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		c.Read(make([]byte, 64))
		c.Write([]byte(reply))
	}()
}

func TestDialAddress(t *testing.T) {
	tests := []struct{ listen, network, address string }{
		{"127.0.0.1:6380", "tcp", "127.0.0.1:6380"},
		{"0.0.0.0:6380", "tcp", "127.0.0.1:6380"},
		{":6380", "tcp", "127.0.0.1:6380"},
		{"[::]:6380", "tcp", "[::1]:6380"},
		{"10.1.2.3:1", "tcp", "10.1.2.3:1"},
		{"/run/l.sock", "unix", "/run/l.sock"},
	}
	for _, tt := range tests {
		if network, address := dialAddress(tt.listen); network != tt.network || address != tt.address {
			t.Errorf("%s: %s %s, want %s %s", tt.listen, network, address, tt.network, tt.address)
		}
	}
}

// TestNewLogger_Durations: both formats write a duration with its unit.
func TestNewLogger_Durations(t *testing.T) {
	for json, want := range map[bool]string{false: "took=1.5ms", true: `"took":"1.5ms"`} {
		var b bytes.Buffer
		newLogger(&b, options{logJSON: json}).Info("x", "took", 1500*time.Microsecond)
		if !strings.Contains(b.String(), want) {
			t.Errorf("json %t: %s", json, b.String())
		}
	}
}

// TestServe_ErrorsAsJSON: with --log-format json every line that serve writes before it ends is JSON, each fault one.
func TestServe_ErrorsAsJSON(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, tt := range []struct {
		args string
		code int
		want []string // of the lines of level ERROR, what each has in its error
	}{
		{"--max-ttl x --min-ttl y", exit.Usage, []string{"min-ttl: ", "max-ttl: "}},
		{"--max-tll 5s", exit.Usage, []string{"not defined: -max-tll; did you mean --max-ttl?"}},
		{"--listen " + taken.Addr().String(), exit.Failed, []string{"address already in use"}},
	} {
		args := append([]string{"serve", "--log-format", "json", "--upstream", "redis://127.0.0.1:1"}, strings.Fields(tt.args)...)
		code, stdout, stderr := execute(t, nil, args...)
		var failed []string
		for line := range strings.Lines(stderr) {
			var entry struct{ Level, Msg, Error string }
			if err := json.Unmarshal([]byte(line), &entry); err != nil || entry.Msg == "" {
				t.Errorf("%s: %q is no line of JSON: %v", tt.args, line, err)
			}
			if entry.Level == "ERROR" {
				failed = append(failed, entry.Error)
			}
		}
		same := len(failed) == len(tt.want) && code == tt.code && stdout == ""
		for i := range failed {
			same = same && strings.Contains(failed[i], tt.want[i])
		}
		if !same {
			t.Errorf("%s: code %d, stdout %q, errors %q, want code %d and %q", tt.args, code, stdout, failed, tt.code, tt.want)
		}
	}
}
