package cluster

import (
	"fmt"
	"testing"
)

func TestMergeInfo(t *testing.T) {
	node := func(kind byte, keys string) []byte {
		text := "# Server\r\nredis_mode:cluster\r\n\r\n# Cluster\r\ncluster_enabled:1\r\n\r\n# Keyspace\r\n" + keys
		return fmt.Appendf(nil, "%c%d\r\n%s\r\n", kind, len(text), text)
	}
	const plain = "# Server\r\nredis_mode:standalone\r\n\r\n# Cluster\r\ncluster_enabled:0\r\n\r\n# Keyspace\r\n"
	for _, tt := range []struct{ name, a, b, want string }{
		{"both", "db0:keys=2,expires=1,avg_ttl=100\r\n", "db0:keys=3,expires=3,avg_ttl=300\r\n", "db0:keys=5,expires=4,avg_ttl=250\r\n"},
		{"the second alone", "", "db0:keys=3,expires=0,avg_ttl=0\r\n", "db0:keys=3,expires=0,avg_ttl=0\r\n"},
		{"none", "", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := fmt.Sprintf("=%d\r\n%s\r\n", len(plain+tt.want), plain+tt.want)
			if got := Info([][]byte{node('=', tt.a), node('=', tt.b)}); string(got) != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
	valkey := []byte("$21\r\nserver_mode:cluster\r\n\r\n")
	if got, want := Info([][]byte{valkey, valkey}), "$24\r\nserver_mode:standalone\r\n\r\n"; string(got) != want {
		t.Errorf("of a Valkey %q, want %q", got, want)
	}
	section := []byte("$9\r\n# CPU\r\nx:\r\n")
	if got := Info([][]byte{section, section}); string(got) != string(section) {
		t.Errorf("a section without keys became %q", got)
	}
}
