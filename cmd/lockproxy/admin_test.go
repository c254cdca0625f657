package main

import (
	"crypto/tls"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/cmd/lockproxy/exit"
	"github.com/lockproxy/lockproxy/integration/redistest"
)

func TestAdminSettings(t *testing.T) {
	const up = "redis://127.0.0.1:6379"
	tests := []config{
		fromFlagsOf("upstream", up),
		fromFlagsOf("upstream", up, "admin", ""),
		fromFlagsOf("upstream", up, "admin", ":6381"),
		fromFlagsOf("upstream", up, "admin", ":6381", "admin-password", "long enough", "admin-pprof", "true", "admin-force", "true"),
		fromFlagsOf("upstream", up, "admin", "127.0.0.1:6381", "admin-pprof", "true"),
		fromFlagsOf("upstream", up, "admin", "[::1]:6381", "admin-force", "true"),
		fromFlagsOf("upstream", up, "admin", "localhost:6381", "admin-force", "true"),
		fromFlagsOf("upstream", up, "admin", "/run/lockproxy/admin", "admin-force", "true"),
	}
	for _, c := range tests {
		if _, bad := validated(c, nil); len(bad) > 0 {
			t.Errorf("%v: %v", c, bad)
		}
	}
}

// dev prints the address of its admin server.
func TestDevAdmin(t *testing.T) {
	s := start(t, "dev")
	s.dial(t)
	var url string
	for end := time.Now().Add(10 * time.Second); url == ""; time.Sleep(5 * time.Millisecond) {
		url = regexp.MustCompile(`http://127\.0\.0\.1:\d+/`).FindString(s.stdout.String())
		if time.Now().After(end) {
			t.Fatalf("no address:\n%s", s.stdout.String())
		}
	}
	resp, err := http.Get(url + "healthz")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("healthz: %s", resp.Status)
	}
	http.DefaultClient.CloseIdleConnections()
	if code := s.stop(); code != 0 {
		t.Errorf("exit code %d\n%s", code, s.stderr.String())
	}
	if resp, err := http.Get(url + "healthz"); err == nil {
		resp.Body.Close()
		t.Error("it is still there")
	}
}

func TestDevWithoutAdmin(t *testing.T) {
	s := start(t, "dev", "--admin", "")
	s.dial(t).do("PING", 1)
	if out := s.stdout.String(); strings.Contains(out, "http://") {
		t.Errorf("it says where to look:\n%s", out)
	}
}

func TestAdminCannotListen(t *testing.T) {
	s := start(t, "dev", "--admin", "/nowhere/at/all")
	select {
	case <-s.ended:
	case <-time.After(20 * time.Second):
		t.Fatal("it goes on")
	}
	if s.code != exit.Failed || !strings.Contains(s.stderr.String(), "admin: ") {
		t.Errorf("exit code %d\n%s", s.code, s.stderr.String())
	}
}

func TestHealthcheckReady(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	s := start(t, "dev", "--admin", path)
	s.dial(t).do("PING", 1)
	eventually(t, "ready", func() bool {
		code, _, _ := execute(t, nil, "healthcheck", "--ready", "--admin", path)
		return code == exit.OK
	})
	s.stop()
	tests := []struct {
		name string
		args []string
		says string
	}{
		{"ended", []string{"--admin", path}, "not ready: "},
		{"no admin server", nil, "admin is not set"},
		{"TLS is not spoken there", []string{"--admin", answerOverTLS(t, nil, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), "--admin-tls"}, "not ready: "},
	}
	for _, tt := range tests {
		if code, _, stderr := execute(t, nil, append([]string{"healthcheck", "--ready"}, tt.args...)...); code != exit.Failed || !strings.Contains(stderr, tt.says) {
			t.Errorf("%s: exit code %d, %q", tt.name, code, stderr)
		}
	}
	ca := redistest.NewAuthority(t)
	cert, key := ca.Issue(t, "a")
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		reply string
		code  int
	}{
		{"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nready\n", exit.OK},
		{"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 10\r\n\r\nnot ready\n", exit.Failed},
	} {
		addr := answerOverTLS(t, &tls.Config{Certificates: []tls.Certificate{pair}}, tt.reply)
		if code, _, stderr := execute(t, nil, "healthcheck", "--ready", "--admin", addr, "--admin-tls"); code != tt.code {
			t.Errorf("%q over TLS: exit code %d, %s", tt.reply, code, stderr)
		}
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never: " + what)
		}
	}
}
