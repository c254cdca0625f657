package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/backends/check"
	"github.com/lockproxy/lockproxy/commands/adopt/peers"
	"github.com/lockproxy/lockproxy/integration/redistest"
)

func TestParseReplicationIDs(t *testing.T) {
	info := "$100\r\n# Replication\r\nrole:master\r\nmaster_failover_state:no-failover\r\nmaster_replid:abc\r\nmaster_replid2:"
	zeros := strings.Repeat("0", 40)
	for _, tt := range []struct {
		text string
		want []string
	}{{info + zeros + "\r\n", []string{"abc"}}, {info + "def\r\n", []string{"abc", "def"}}, {"-NOPERM no\r\n", nil}, {"", nil}} {
		if got := parseReplicationIDs(tt.text); !slices.Equal(got, tt.want) {
			t.Errorf("%q: %q, want %q", tt.text, got, tt.want)
		}
	}
}

// TestCheck_Adoption: a proxy that is announced at one lock node and does not go with the settings is an error.
func TestCheck_Adoption(t *testing.T) {
	s := startSite(t)
	s.enlist(t)
	id := ""
	for line := range strings.Lines(s.up.Do(t, "INFO", "replication").Text) {
		if rest, ok := strings.CutPrefix(line, "master_replid:"); ok {
			id = strings.TrimSpace(rest)
		}
	}
	announce := func(n *redistest.Server, proxy, upstream string, patterns ...peers.Pattern) {
		n.Do(t, "HSET", "lockproxy:adopt", proxy, "")
		n.Do(t, "SET", "lockproxy:adopt:"+proxy, peers.Record{Format: peers.Format, Proxy: "host", Upstream: []string{upstream}, Patterns: patterns}.Text())
	}
	conflicts := func(args ...string) (texts []string) {
		t.Helper()
		r, code := runCheck(t, append(s.args(), args...)...)
		for _, f := range r.Findings {
			if f.ID == "adoption" {
				texts = append(texts, f.Problem)
				if f.Severity != check.Error || code != exitErrors {
					t.Errorf("%s, exit code %d", f.Severity, code)
				}
			}
		}
		return texts
	}
	announce(s.srv[0], "a", id, peers.Pattern{Glob: "lock:*", DB: -1, Mode: peers.On})
	announce(s.srv[1], "elsewhere", "another")
	s.srv[2].Do(t, "HSET", "lockproxy:adopt", "gone", "")
	if got := conflicts("--adopt", "lock:*"); len(got) != 0 {
		t.Errorf("%q", got)
	}
	if got := conflicts(); len(got) != 1 || !strings.HasPrefix(got[0], "proxy host (a) and these settings (here): ") {
		t.Errorf("%q", got)
	}
	announce(s.srv[2], "b", id)
	if got := conflicts("--adopt", "lock:*"); len(got) != 2 {
		t.Errorf("%q", got)
	}
}
