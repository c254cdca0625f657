package main

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/cmd/lockproxy/exit"
	"github.com/lockproxy/lockproxy/integration/redistest"
)

func TestExposures(t *testing.T) {
	a := redistest.NewAuthority(t)
	cert, key := a.Issue(t, "proxy")
	flag := func(values ...string) given { return given{values: values} }
	tests := []struct {
		name string
		with config // from is the flag, unless it says otherwise
		want []string
	}{
		{"nothing", config{}, nil},
		{"a URL without a password", config{"lock-node": flag("redis://n:1")}, nil},
		{"a URL with a user", config{"lock-node": flag("redis://locks@n:1", "redis://locks:@m:1")}, nil},
		{"a URL with both", config{"lock-node": flag("redis://locks:hunter2@n:1")}, []string{"lock-node: a password"}},
		{"a URL with one", config{"lock-node": flag("redis://n:1", "redis://:hunter2@m:1")}, []string{"lock-node: a password"}},
		{"another form", config{"lock-node": flag("redis://n:1?password=hunter2")}, []string{"lock-node: a password"}},
		{"from the environment", config{"lock-node": {values: []string{"redis://:hunter2@m:1"}, from: "LOCKPROXY_LOCK_NODE"}}, nil},
		{"from a file", config{"lock-node": {values: []string{"redis://:hunter2@m:1"}, from: "/run/nodes"}}, nil},
		{"all addresses", config{"listen": flag("0.0.0.0:1")}, []string{"listen: other machines"}},
		{"all addresses, unsaid", config{"listen": flag(":1")}, []string{"listen: other machines"}},
		{"operators", config{"admin": flag("0.0.0.0:1"), "admin-password": {values: []string{"hunter2hunter2"}, from: "/run/p"}}, []string{"admin: other machines"}},
		{"operators without a password", config{"admin": flag("0.0.0.0:1")}, nil}, // who are shown nothing that is secret
		{"a password for operators", config{"admin": flag("127.0.0.1:1"), "admin-password": flag("hunter2hunter2")}, []string{"admin-password: a password"}},
		{"loopback", config{"listen": flag("[::1]:1")}, nil},
		{"a socket", config{"listen": flag("/run/l.sock")}, nil},
		{"TLS", config{"listen": flag("0.0.0.0:1"), "tls-cert": flag(cert), "tls-key": flag(key)}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			raw := config{"upstream": {values: []string{"redis://u:1"}, from: "--upstream"}}
			for name, g := range tt.with {
				if g.from == "" {
					g.from = "--" + name
				}
				raw[name] = g
			}
			o, bad := validated(raw, nil)
			if len(bad) > 0 {
				t.Fatal(bad)
			}
			if len(o.exposed) != len(tt.want) || strings.Contains(strings.Join(o.exposed, ""), "hunter2") {
				t.Fatalf("%q, want %q", o.exposed, tt.want)
			}
			for i, text := range o.exposed {
				if !strings.HasPrefix(text, tt.want[i]) {
					t.Errorf("%q, want %q", text, tt.want[i])
				}
			}
		})
	}
}

// Without settings the proxy listens on a loopback address and has no admin server.
func TestDefaults_ListenOnLoopbackOnly(t *testing.T) {
	o, bad := validated(config{"upstream": {values: []string{"redis://u:1"}}}, nil)
	if len(bad) > 0 {
		t.Fatal(bad)
	}
	host, _, err := net.SplitHostPort(o.listen)
	if ip := net.ParseIP(host); err != nil || !ip.IsLoopback() || isPublic(o.listen) || o.admin != "" {
		t.Errorf("listens at %q and %q", o.listen, o.admin)
	}
}

func TestWithoutSecrets(t *testing.T) {
	got := withoutSecrets([]string{
		"PATH=/bin", "LOCKPROXY_PROXY=redis://:hunter2@h:1", "LOCKPROXY_UPSTREAM=redis://h:1", "LOCKPROXY_LOCK_NODE=redis://a:1 redis://u:hunter2@b:1",
		"LOCKPROXY_SENTINEL_PASSWORD=hunter2", "LOCKPROXY_UPSTREAM_FILE=/run/u", "LOCKPROXY_TTL=3s",
	})
	want := []string{"PATH=/bin", "LOCKPROXY_UPSTREAM=redis://h:1", "LOCKPROXY_UPSTREAM_FILE=/run/u", "LOCKPROXY_TTL=3s"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// A password in a wrong place is not repeated.
func TestFaults_HideMisplacedSecrets(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte("upstream: redis://u:1\nredis://:hunter2@h:1: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"serve", "--upstream", "redis://:hunter2"},
		{"serve", "--upstream", "u:hunter2"},
		{"serve", "--upstream-file", "redis://:hunter2@h:1"},
		{"serve", "redis://:hunter2@h:1"},
		{"serve", "--upstrem", "redis://:hunter2@h:1"},
		{"serve", "--upstream", "redis://u:1", "--admin", "127.0.0.1:0", "--admin-password", "hunter2"},
		{"serve", "--config", file},
		{"check", "--upstream", "redis://:hunter2"},
		{"run", "--lock", "l", "--proxy", "redis://:hunter2", "--", "true"},
	} {
		code, stdout, stderr := execute(t, nil, args...)
		if code == exit.OK || stderr == "" || strings.Contains(stdout+stderr, "hunter2") {
			t.Errorf("%v: exit code %d\n%s%s", args, code, stdout, stderr)
		}
	}
}
