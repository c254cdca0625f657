package commands

import (
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/backends/resp"
)

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

// TestClientList_ByUpstream: which filters there are, and in which order ids are
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
		if id, _, ok := strings.Cut(strings.TrimPrefix(line, "id="), " "); ok && id != line {
			ids = append(ids, id)
		}
	}
	return strings.Join(ids, " ")
}

// TestClientKill_ByUpstream: of ids that are named twice Redis takes the last.
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
