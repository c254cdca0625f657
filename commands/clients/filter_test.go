package clients

import (
	"strings"
	"testing"
)

// listToFilter are entries of the clients 1 to 5 as a Valkey writes them.
const listToFilter = `id=1 addr=127.0.0.1:1 laddr=127.0.0.1:6379 fd=8 name= age=100 idle=0 flags=N capa= db=0 cmd=client|list user=default lib-name= lib-ver=
id=2 addr=[::1]:2 laddr=[::1]:6379 fd=9 name=a age=50 idle=40 flags=P capa=r db=2 cmd=subscribe user=app lib-name=jedis lib-ver=5
id=3 addr=/run/s:0 laddr=/run/s:0 fd=10 name=b age=20 idle=10 flags=tU capa= db=2 cmd=get user=app lib-name=jedis lib-ver=4
id=4 addr=10.0.0.1:4 laddr=127.0.0.1:6379 fd=11 name=b age=10 idle=10 flags=O capa= db=0 cmd=monitor user=default lib-name= lib-ver=
id=5 addr=10.0.0.11:4 laddr=127.0.0.1:6379 fd=12 name= age=0 idle=0 flags=xe capa= db=1 cmd=set user=default lib-name=x lib-ver=
`

// TestFilter_Matches: client 1 asks.
func TestFilter_Matches(t *testing.T) {
	for _, tt := range []struct{ filter, want string }{
		{"", "1 2 3 4 5"},
		{"ID 4 1 99 4", "1 4"},
		{"id 4 ID 1", "1 4"},
		{"ID", ""},
		{"NOT-ID 4 1 NOT-ID 2", "3 5"},
		{"NOT-ID", "1 2 3 4 5"},
		{"ID 1 2 3 NOT-ID 2", "1 3"},
		{"TYPE pubsub", "2"},
		{"TYPE NORMAL", "1 3 4 5"}, // a monitor too
		{"TYPE primary", ""},
		{"NOT-TYPE normal", "2"},
		{"ADDR [::1]:2", "2"},
		{"NOT-ADDR [::1]:2", "1 3 4 5"},
		{"LADDR 127.0.0.1:6379", "1 4 5"},
		{"NOT-LADDR 127.0.0.1:6379", "2 3"},
		{"USER app", "2 3"},
		{"NOT-USER app", "1 4 5"},
		{"NAME b", "3 4"},
		{"NOT-NAME b", "1 2 5"},
		{"DB 2", "2 3"},
		{"NOT-DB 2", "1 4 5"},
		{"LIB-NAME jedis", "2 3"},
		{"LIB-NAME jedis LIB-VER 5", "2"},
		{"NOT-LIB-NAME jedis", "1 4 5"},
		{"NOT-LIB-VER 5", "1 3 4 5"},
		{"CAPA r", "2"},
		{"NOT-CAPA r", "1 3 4 5"},
		{"FLAGS N", "1"},
		{"FLAGS NP", ""},
		{"FLAGS Ut", "3"},
		{"FLAGS O", "4"},
		{"FLAGS S", "4"},
		{"NOT-FLAGS N", "2 3 4 5"},
		{"NOT-FLAGS xe", "1 2 3 4"},
		{"NOT-FLAGS xP", "1 2 3 4 5"},
		{"IP 10.0.0.1", "4"},
		{"IP ::1", "2"},
		{"IP /run/s", ""},
		{"NOT-IP 10.0.0.1", "1 2 3 5"},
		{"MAXAGE 20", "1 2 3"},
		{"IDLE 10", "2 3 4"},
		{"IDLE 10 TYPE normal NOT-DB 0", "3"},
		{"SKIPME yes", "2 3 4 5"},
		{"SKIPME YES SKIPME no", "1 2 3 4 5"},
		{"NAME a NAME b", "3 4"}, // the last counts
		{"NAME ID ID 1", ""},
		{"DB", "?"}, {"DB 1 NAME", "?"}, {"NOT-MAXAGE 5", "?"}, {"NOT-SKIPME yes", "?"}, {"COLOUR red", "?"}, {"1", "?"}, {"ID 1 x", "?"},
		{"TYPE import", "?"}, {"NOT-TYPE import", "?"}, {"ID 05", "?"}, {"\u0131d 1", "?"},
	} {
		f, ok := parseFilter(words(tt.filter), false)
		var got []string
		for line := range strings.Lines(listToFilter) {
			if r := parseEntry(strings.TrimSuffix(line, "\n")); ok && f.matches(r, r.get("id") == "1") {
				got = append(got, r.get("id"))
			}
		}
		if !ok {
			got = []string{"?"}
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: %v, want %s", tt.filter, got, tt.want)
		}
	}
}
