package main

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestAdminSettings(t *testing.T) {
	const up = "redis://127.0.0.1:6379"
	tests := []config{
		said("upstream", up),
		said("upstream", up, "admin", ""),
		said("upstream", up, "admin", ":9380"),
		said("upstream", up, "admin", ":9380", "admin-password", "long enough", "admin-pprof", "true", "admin-force", "true"),
		said("upstream", up, "admin", "127.0.0.1:9380", "admin-pprof", "true"),
		said("upstream", up, "admin", "[::1]:9380", "admin-force", "true"),
		said("upstream", up, "admin", "localhost:9380", "admin-force", "true"),
		said("upstream", up, "admin", "/run/lockproxy/admin", "admin-force", "true"),
	}
	for _, c := range tests {
		if _, bad := c.validate(settings(), nil); len(bad) > 0 {
			t.Errorf("%v: %v", c, bad)
		}
	}
}

// dev says where to look, and something is there.
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

// An admin server that cannot listen leaves nothing behind.
func TestAdminCannotListen(t *testing.T) {
	s := start(t, "dev", "--admin", "/nowhere/at/all")
	select {
	case <-s.ended:
	case <-time.After(20 * time.Second):
		t.Fatal("it goes on")
	}
	if s.code != exitFailed || !strings.Contains(s.stderr.String(), "admin: ") {
		t.Errorf("exit code %d\n%s", s.code, s.stderr.String())
	}
}
