package commands

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/resp"
)

// TestInfoSection: the proxy's section comes last, where it is asked for.
func TestInfoSection(t *testing.T) {
	stats := func() locks.Stats { return locks.Stats{Nodes: 3, Grants: 7, Losses: 2} }
	s := newStage(t, Options{Version: "v1", Mode: func() string { return "cluster" }, Stats: stats}, nil)
	p := s.enter(t)
	section := string(p.d.section())
	for _, line := range []string{"# Lockproxy\r\nlockproxy_version:v1\r\nlockproxy_uptime_in_seconds:", "\r\nlockproxy_connected_clients:1\r\nlockproxy_commands:0\r\nlockproxy_upstream_connections:0\r\n", "\r\nlockproxy_upstream_mode:cluster\r\nlockproxy_lock_nodes:3\r\n", "\r\nlockproxy_grants:7\r\n", "\r\nlockproxy_session_losses:2\r\n"} {
		if !strings.Contains(section, line) {
			t.Errorf("%q lacks %q", section, line)
		}
	}
	if d := New(Options{Upstream: s.up}); !strings.HasPrefix(string(d.section()), "# Lockproxy\r\n") {
		t.Errorf("without Mode and Stats: %q", d.section())
	}
	text := func(s string) string { return string(resp.AppendBulkString(nil, s)) }
	blob := func(s string) string { return fmt.Sprintf("=%d\r\ntxt:%s\r\n", len(s)+4, s) }
	const one = "# One\r\na:1\r\n"
	tests := []struct{ line, sent, reply, want string }{
		{"INFO", "INFO", text(one), text(one + "\r\n" + section)},
		{"INFO", "INFO", blob(one), blob(one + "\r\n" + section)},
		{"info Everything", "info Everything", text(one), text(one + "\r\n" + section)},
		{"INFO one lockproxy", "INFO one", text(one), text(one + "\r\n" + section)},
		{"INFO one LOCKPROXY", "INFO one", text(""), text(section)},
		{"INFO one lockproxy", "INFO one", blob(""), blob(section)},
		{"INFO lockproxy", "INFO clients", text(one), text(section)},
		{"INFO lockproxy", "INFO clients", blob(one), blob(section)},
		{"INFO lockproxy", "INFO clients", "-NOPERM no\r\n", "-NOPERM no\r\n"},
		{"INFO", "INFO", "-NOPERM no\r\n", "-NOPERM no\r\n"},
	}
	for _, tt := range tests {
		args := words(tt.line)
		sent, e := p.augment(request{raw: resp.AppendCommand(nil, args...), args: args})
		if want := string(resp.AppendCommand(nil, words(tt.sent)...)); string(sent) != want {
			t.Errorf("%s: sent %q", tt.line, sent)
		}
		if got, _ := e([]byte(tt.reply)); string(got) != tt.want {
			t.Errorf("%s, to which the upstream says %q:\ngot  %q\nwant %q", tt.line, tt.reply, got, tt.want)
		}
	}
	for _, line := range []string{"INFO server", "INFO server clients", "COMMAND HELP"} {
		if args := words(line); (request{row: newTable().lookup(args), args: args}).augmented() {
			t.Errorf("%s would be changed", line)
		}
	}
}
