package topology

import (
	"strings"
	"testing"
)

func TestIsClusterNode(t *testing.T) {
	for info, want := range map[string]bool{
		"# Server\r\nredis_version:7.0.15\r\nredis_mode:cluster\r\n":                            true,
		"# Server\r\nredis_version:7.2.4\r\nvalkey_version:9.0.0\r\nserver_mode:cluster\r\n":    true,
		"# Server\r\nredis_version:7.2.4\r\nvalkey_version:9.0.0\r\nserver_mode:standalone\r\n": false,
		"# Server\r\nredis_version:7.0.15\r\nredis_mode:sentinel\r\n":                           false,
		"": false,
	} {
		if got := isClusterNode(info); got != want {
			t.Errorf("%q: %v", info, got)
		}
	}
}

func TestCheckMode(t *testing.T) {
	tests := []struct{ url, mode, want string }{
		{"redis://h:1", ModeAuto, ""},
		{"redis://h:1?addr=h:2", ModeAuto, ""},
		{"redis://h:1?master_set=m", ModeAuto, ""},
		{"redis://h:1", ModeSentinel, "master set"},
		{"redis://h:1?master_set=m", ModeCluster, "only sentinels have"},
		{"redis://h:1?addr=h:2", ModeStandalone, "several addresses"},
		{"redis://h:1", ModeReplicated, "addresses of all servers"},
		{"redis://h:1", ModeCluster, ""},
	}
	for _, tt := range tests {
		err := CheckMode(parse(t, tt.url), tt.mode)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s as %s: %v", tt.url, tt.mode, err)
		}
	}
}
