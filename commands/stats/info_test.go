package stats

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
)

// TestInfoSection: the proxy's section comes last, where it is asked for.
func TestInfo_Augment(t *testing.T) {
	up := upstream.New(upstream.Options{})
	defer up.Close()
	info := Info{
		Version: "v1", Clients: func() int { return 1 }, Counts: &Counts{}, Upstream: up,
		Mode: func() string { return "cluster" }, Locks: func() locks.Stats { return locks.Stats{Nodes: 3, Grants: 7, Losses: 2} },
	}
	section := string(info.section())
	for _, line := range []string{"# Lockproxy\r\nlockproxy_version:v1\r\nlockproxy_uptime_in_seconds:", "\r\nlockproxy_connected_clients:1\r\nlockproxy_commands:0\r\nlockproxy_upstream_connections:0\r\n", "\r\nlockproxy_upstream_mode:cluster\r\nlockproxy_lock_nodes:3\r\n", "\r\nlockproxy_grants:7\r\n", "\r\nlockproxy_session_losses:2\r\n"} {
		if !strings.Contains(section, line) {
			t.Errorf("%q lacks %q", section, line)
		}
	}
	adopts := info
	adopts.Adoption = func(add func(string, any)) { add("adopt_calls", 5) }
	if got := string(adopts.section()); !strings.Contains(got, "\r\nlockproxy_adopt_calls:5\r\n") || !strings.Contains(got, "\r\nlockproxy_grants:7\r\n") {
		t.Errorf("with adopted keys: %q", got)
	}
	some := info
	some.Mode, some.Locks = nil, nil
	if got := string(some.section()); !strings.HasPrefix(got, "# Lockproxy\r\n") || strings.Contains(got, "mode") || strings.Contains(got, "lock_nodes") {
		t.Errorf("without Mode and Locks: %q", got)
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
		args := strings.Fields(tt.line)
		raw := resp.AppendCommand(nil, args...)
		sent, add := info.Augment(raw, words(args))
		if want := string(resp.AppendCommand(nil, strings.Fields(tt.sent)...)); string(sent) != want {
			t.Errorf("%s: sent %q", tt.line, sent)
		}
		if got := add([]byte(tt.reply)); string(got) != tt.want {
			t.Errorf("%s, to which the upstream says %q:\ngot  %q\nwant %q", tt.line, tt.reply, got, tt.want)
		}
	}
}

func words(all []string) (args [][]byte) {
	for _, w := range all {
		args = append(args, []byte(w))
	}
	return args
}
