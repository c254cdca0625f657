package commands

import (
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/backends/resp"
)

// rowsToFilter are rows of the clients 1 to 5 as a Valkey writes them.
const rowsToFilter = `id=1 addr=127.0.0.1:1 laddr=127.0.0.1:6379 fd=8 name= age=100 idle=0 flags=N capa= db=0 cmd=client|list user=default lib-name= lib-ver=
id=2 addr=[::1]:2 laddr=[::1]:6379 fd=9 name=a age=50 idle=40 flags=P capa=r db=2 cmd=subscribe user=app lib-name=jedis lib-ver=5
id=3 addr=/run/s:0 laddr=/run/s:0 fd=10 name=b age=20 idle=10 flags=tU capa= db=2 cmd=get user=app lib-name=jedis lib-ver=4
id=4 addr=10.0.0.1:4 laddr=127.0.0.1:6379 fd=11 name=b age=10 idle=10 flags=O capa= db=0 cmd=monitor user=default lib-name= lib-ver=
id=5 addr=10.0.0.11:4 laddr=127.0.0.1:6379 fd=12 name= age=0 idle=0 flags=xe capa= db=1 cmd=set user=default lib-name=x lib-ver=
`

// TestFilterMeans: client 1 asks.
func TestClientFilter_Matches(t *testing.T) {
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
		for line := range strings.Lines(rowsToFilter) {
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

// filteringUpstream numbers its connections from 101 on, and lists all it is asked for.
// Of filters it takes those of Redis, or, if it combines them, any but COLOUR.
func filteringUpstream(combines bool) func(l *link, args []string) (string, bool) {
	clients := clientUpstream()
	return func(l *link, args []string) (string, bool) {
		text := strings.Join(args, " ")
		filters, filtered := strings.CutPrefix(text, "CLIENT LIST ")
		if !filtered {
			filters, filtered = strings.CutPrefix(text, "CLIENT KILL ")
		}
		_, more, _ := strings.Cut(filters, "SKIPME")
		switch kill := strings.HasPrefix(text, "CLIENT KILL"); {
		case filtered && (!combines && (strings.HasPrefix(filters, "NAME") || !kill && more != "") || strings.Contains(filters, "COLOUR")):
			return "-ERR syntax error\r\n", true
		case filtered && kill:
			return ":0\r\n", true
		}
		return clients(l, args)
	}
}

// TestListAsTheUpstreamTakesIt: which filters there are, and in which order ids are
// listed, is as it would be there.
func TestClientList_ByUpstream(t *testing.T) {
	for _, tt := range []struct {
		filter         string
		redis, combine string // ids that are listed, or the error
	}{
		{"ID 3 1 3", "3 1 3", "1 3"},
		{"ID 3", "3", "3"},
		{"TYPE replica", "", ""},
		{"NAME b", "-ERR syntax error", "2"},
		{"NAME b ID 1 2", "-ERR syntax error", "2"},
		{"NAME b SKIPME yes", "-ERR syntax error", "2"},
		{"COLOUR red", "-ERR syntax error", "-ERR syntax error"},
	} {
		for _, combines := range []bool{false, true} {
			for _, tx := range []bool{false, true} {
				s := newStage(t, Options{}, filteringUpstream(combines))
				p, named := s.enter(t), s.enter(t)
				s.enter(t)
				named.do(t, "CLIENT SETNAME b")
				named.want(t, "+OK\r\n")
				want := tt.redis
				if combines {
					want = tt.combine
				}
				if tx {
					p.do(t, "MULTI")
					p.until(t, "an answer", func() bool { return strings.HasSuffix(p.text, "\n") })
					p.text = ""
				}
				p.do(t, "CLIENT LIST "+tt.filter)
				p.until(t, "a list", func() bool { return strings.HasSuffix(p.text, "\n\r\n") || strings.HasSuffix(p.text, "error\r\n") })
				got := strings.TrimSpace(p.text)
				if !strings.HasPrefix(got, "-") {
					got = listedIDs(got)
				}
				if got == "$0" {
					got = ""
				}
				if got != want {
					t.Errorf("%s (combined %v, in a transaction %v): %s, want %s", tt.filter, combines, tx, got, want)
				}
			}
		}
	}
}

// listedIDs are the ids of a list, in its order.
func listedIDs(list string) string {
	var ids []string
	for line := range strings.Lines(list) {
		if r := parseEntry(strings.TrimSpace(line)); r.get("id") != "" {
			ids = append(ids, r.get("id"))
		}
	}
	return strings.Join(ids, " ")
}

// TestKillAsTheUpstreamTakesIt: of ids that are named twice Redis takes the last.
func TestClientKill_ByUpstream(t *testing.T) {
	for _, tt := range []struct {
		filter         string
		redis, combine string
	}{
		{"ID 2 ID 3", ":1\r\n", ":2\r\n"},
		{"NAME b", "-ERR syntax error\r\n", ":1\r\n"},
		{"COLOUR red", "-ERR syntax error\r\n", "-ERR syntax error\r\n"},
	} {
		for _, combines := range []bool{false, true} {
			s := newStage(t, Options{}, filteringUpstream(combines))
			p, named := s.enter(t), s.enter(t)
			s.enter(t)
			named.do(t, "CLIENT SETNAME b")
			named.want(t, "+OK\r\n")
			want := tt.redis
			if combines {
				want = tt.combine
			}
			p.do(t, "CLIENT KILL "+tt.filter)
			p.want(t, want)
		}
	}
}

// TestClientList_ShowsLibrary that a client uses, which its shared connection has not said.
func TestClientList_ShowsLibrary(t *testing.T) {
	s := newStage(t, Options{}, func(_ *link, args []string) (string, bool) {
		if strings.Join(args, " ") == "CLIENT LIST" {
			return bulkOf("id=101 flags=N capa=r lib-name=c lib-ver=1\n"), true
		}
		return "", false
	})
	p := s.enter(t)
	s.enter(t)
	p.do(t, "CLIENT SETINFO LIB-NAME jedis", "CLIENT SETINFO LIB-VER 5", "CLIENT SETINFO LIB-VER \x01", "CLIENT LIST")
	p.want(t, "+OK\r\n+OK\r\n+OK\r\n"+bulkOf("id=1 flags=N capa= lib-name=jedis lib-ver=5\nid=2 flags=N capa= lib-name= lib-ver=\n"))
}

func bulkOf(text string) string { return string(resp.AppendBulkString(nil, text)) }
