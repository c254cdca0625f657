package main

import (
	"bytes"
	"context"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
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
		{"", exitOK, "serve clients until SIGTERM", ""},
		{"--help", exitOK, "healthcheck", ""},
		{"version", exitOK, "lockproxy ", ""},
		{"serve --help", exitOK, "$LOCKPROXY_UPSTREAM", ""},
		{"server", exitUsage, "", `no command "server"`},
		{"serve", exitUsage, "", "1 fault in the settings:\n  upstream: not set"},
		{"serve --upstream u:1 --min-ttl 30 --log-level loud", exitUsage, "", "2 faults in the settings:"},
		{"serve --upstrem u:1", exitUsage, "", "not defined: -upstrem"},
		{"serve --upstream", exitUsage, "", "needs an argument"},
		{"serve redis://127.0.0.1:6379", exitUsage, "", "serve takes no arguments"},
		{"dev now", exitUsage, "", "dev takes no arguments"},
		{"dev --upstream u:1", exitUsage, "", "not defined: -upstream"},
		{"healthcheck --listen nowhere", exitUsage, "", `"nowhere" is neither`},
		{"healthcheck --listen /none/such.sock", exitFailed, "", "not healthy: "},
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
		{"+PONG\r\n", exitOK},
		{"-NOAUTH Authentication required.\r\n", exitOK},
		{"-ERR cannot reach the upstream\r\n", exitFailed},
		{"HTTP/1.1 400 Bad Request\r\n", exitFailed},
		{"", exitFailed},
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
