package vote

import (
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/backends"
)

func TestRefusal(t *testing.T) {
	tests := []struct{ msg, want string }{
		{"MISCONF Redis is configured to save RDB snapshots", "MISCONF"},
		{"OOM command not allowed when used memory > 'maxmemory'. script: ab, on @user_script:1.", "OOM"},
		{"ERR Error running script (call to f_ab): @user_script:3: -READONLY You can't write against a read only replica.", "READONLY"},
		{"NOAUTH HELLO must be called with the client already authenticated", "NOAUTH"},
		{"ERR unknown command 'EVALSHA', with args beginning with: 'ab' ", "unknown command 'EVALSHA'"},
		{"unknown command 'EVALSHA', with args beginning with: '50d4a1b8c48cf7fcd3b6b9f5de2ad5e615c059cd' '3' ", "unknown command 'EVALSHA'"},
		{"ERR unknown command `EVALSHA`, with args beginning with: `50d4`, `3`, ", "unknown command `EVALSHA`"}, // Redis before 7
		{"Unknown Redis command called from script script: 6454c7042247005dfc3832dcf3e443b1fbfee8b3, on @user_script:499.", "unknown command in a script"},
		{"ERR Error running script (call to f_ab): @user_script:3: @user_script: 3: Unknown Redis command called from Lua script", "unknown command in a script"},
		{"ERR Unknown Redis command called from script script: ab, on @user_script:1.", "unknown command in a script"},
	}
	for _, tt := range tests {
		if got := Refusal(tt.msg).Error(); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.msg, got, tt.want)
		}
	}
}

// TestNewList: which ways of naming the nodes give two proxies the same list.
func TestNewList(t *testing.T) {
	tests := []struct {
		name, a, b string
		same       bool
	}{
		{"order", "h:1 h:2 h:3", "h:3 h:1 h:2", true},
		{"credentials and options", "h:1 h:2", "redis://u:p@h:1?write_timeout=1s h:2", true},
		{"another address", "h:1 h:2", "g:1 h:2", false},
		{"another address of one id", "h:1?id=a h:2", "redis://g:1?id=a h:2", true},
		{"another id of one address", "h:1?id=a h:2", "h:1?id=b h:2", false},
		{"a database", "h:1 h:2", "h:1 redis://h:2/3", false},
		{"sentinels of one master", "redis://s:1?master_set=m h:2", "redis://s:2?addr=s:3&master_set=m h:2", true},
		{"masters of one name", "redis://s:1?master_set=m redis://s:2?master_set=m", "redis://s:1?master_set=m redis://s:3?master_set=m", false},
		{"a node alone", "h:1", "localhost:1", true},
		{"a node twice", "h:1 h:2", "h:1 h:1 h:2", false},
	}
	for _, tt := range tests {
		a, b := listOf(t, tt.a), listOf(t, tt.b)
		if (a.Fingerprint == b.Fingerprint) != tt.same {
			t.Errorf("%s: %+v and %+v", tt.name, a, b)
		}
	}
}

func listOf(t *testing.T, servers string) NodeList {
	t.Helper()
	var nodes []*backends.Server
	for _, text := range strings.Fields(servers) {
		n, err := backends.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, n)
	}
	return NewList(nodes, "safe")
}
