package clients

import (
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/spec"
)

func words(line string) (args [][]byte) {
	for _, w := range strings.Fields(line) {
		args = append(args, []byte(w))
	}
	return args
}

func TestHarmlessKill(t *testing.T) {
	for _, tt := range []struct{ sent, want string }{
		{"CLIENT KILL 1.2.3.4:5", "CLIENT KILL -"},
		{"CLIENT KILL ID 7", "CLIENT KILL ID 7 ADDR -"},
		{"CLIENT KILL ID 7 8 addr 1.2.3.4:5 NAME addr USER u", "CLIENT KILL ID 7 8 addr 1.2.3.4:5 NAME addr USER u ADDR -"},
		{"CLIENT KILL ADDR 1.2.3.4:5 TYPE x", "CLIENT KILL ADDR - ADDR - TYPE x"},
		{"CLIENT KILL ADDR 1.2.3.4:5 COLOUR red blue", "CLIENT KILL ADDR - ADDR - COLOUR red blue"},
		{"CLIENT KILL COLOUR addr 1.2.3.4:5 x", "CLIENT KILL ADDR - COLOUR addr - x"},
		{"CLIENT KILL ID 7 addr", "CLIENT KILL ADDR - ID 7 addr"},
		{"CLIENT KILL", "CLIENT KILL"},
	} {
		if got, want := string(HarmlessKill(words(tt.sent))), string(resp.AppendCommand(nil, words(tt.want)...)); got != want {
			t.Errorf("%s: %q", tt.sent, got)
		}
	}
}

// TestKillFilter_Matches: by what the proxy knows of two clients.
func TestKillFilter_Matches(t *testing.T) {
	now := time.Now()
	r := &Registry{}
	me, other := New(r, Peer{ID: 1, Addr: "1.1.1.1:1", LocalAddr: "2.2.2.2:2"}, nil), New(r, Peer{ID: 2, Addr: "1.1.1.1:1", LocalAddr: "2.2.2.2:2"}, nil)
	me.connected, other.connected = now.Add(-10*time.Second), now.Add(-10*time.Second)
	other.SetState(State{Identity: upstream.Identity{User: "app"}, Flags: "P", Library: Library{"jedis", "5"}}, nil)
	for _, tt := range []struct {
		filter        string
		me, other, ok bool
	}{
		{"ID 2", false, true, true},
		{"ID 1", false, false, true},
		{"ID 1 SKIPME no", true, false, true},
		{"1.1.1.1:1", true, true, true},
		{"9.9.9.9:1", false, false, true},
		{"ADDR 1.1.1.1:1", false, true, true},
		{"LADDR 2.2.2.2:2 SKIPME NO", true, true, true},
		{"LADDR 2.2.2.2:2 ADDR 3.3.3.3:3", false, false, true},
		{"USER app", false, true, true},
		{"USER default SKIPME no", true, false, true},
		{"TYPE pubsub", false, true, true},
		{"type slave skipme no", false, false, true},
		{"ID 1 2", false, true, true},
		{"ID 1 2 SKIPME no", true, true, true},
		{"MAXAGE 5", false, true, true},
		{"MAXAGE 50", false, false, true},
		{"LIB-NAME jedis SKIPME no", false, true, true},
		{"NOT-LIB-NAME jedis SKIPME no", true, false, true},
		{"NOSUCH 5", false, false, false},
		{"ID 2 ADDR", false, false, false},
		{"ID x", false, false, false},
	} {
		k, ok := parseKill(words("CLIENT KILL " + tt.filter))
		if ok != tt.ok {
			t.Errorf("%s: understood %v", tt.filter, ok)
		}
		if !ok {
			continue
		}
		if got := k.matches(r.ProxyListing().anyEntryOf(me, now), true); got != tt.me {
			t.Errorf("%s: means the one who asks: %v", tt.filter, got)
		}
		if got := k.matches(r.ProxyListing().anyEntryOf(other, now), false); got != tt.other {
			t.Errorf("%s: means the other: %v", tt.filter, got)
		}
	}
}

func TestEntry_With(t *testing.T) {
	line := "id=1 addr=/a path/s:0 laddr=/x:0 fd=8 name= new=1"
	r := parseEntry(line)
	if got := string(r.appendTo(nil)); got != line+"\n" {
		t.Errorf("%q became %q", line, got)
	}
	if r.get("addr") != "/a path/s:0" || r.number("id") != 1 || r.get("none") != "" {
		t.Errorf("read as %v", r)
	}
	changed := r.with(map[string]string{"name": "n", "none": "x"})
	if got := string(changed.appendTo(nil)); got != strings.Replace(line, "name=", "name=n", 1)+"\n" {
		t.Errorf("changed to %q", got)
	}
	if got := string(r.appendTo(nil)); got != line+"\n" {
		t.Errorf("the entry itself became %q", got)
	}
}

// TestFlagsFor: CLIENT LIST shows the flag U if the client connects to the proxy over a Unix socket, however the proxy connects to the upstream.
func TestFlagsFor(t *testing.T) {
	for _, tt := range []struct{ flags, addr, want string }{
		{"N", "1.2.3.4:5", "N"}, {"U", "1.2.3.4:5", "N"}, {"xU", "1.2.3.4:5", "x"}, {"N", "/s:0", "U"}, {"b", "/s:0", "bU"}, {"U", "/s:0", "U"},
	} {
		if got := flagsFor(tt.flags, Peer{Addr: tt.addr}); got != tt.want {
			t.Errorf("%s of %s: %s, want %s", tt.flags, tt.addr, got, tt.want)
		}
	}
}

func TestListing_Redirect(t *testing.T) {
	l := &Listing{owners: map[int64]*Client{7: {Peer: Peer{ID: 1007}}}}
	for n, want := range map[int64]int64{-1: -1, 0: 0, 7: 1007, 8: 1008, 9: 9} { // 8 has left
		if got := l.redirect(n, redirectTarget{id: 1008, upstream: 8}); got != want {
			t.Errorf("%d: %d, want %d", n, got, want)
		}
	}
}

func TestLibrary(t *testing.T) {
	var c Client
	for _, sent := range []string{"CLIENT SETINFO lib-name !redis~py", "CLIENT SETINFO LIB-VER 5.0", "CLIENT SETINFO LIB-VER 6.0 x", "CLIENT SETINFO LIB-VER caf\u00e9", "CLIENT SETINFO COLOUR red"} {
		c.state.Library.Note(words(sent))
	}
	c.state.Library.Note([][]byte{[]byte("CLIENT"), []byte("SETINFO"), []byte("LIB-NAME"), []byte("two words")})
	if got := c.libraryLocked(); len(got) != 2 || got["lib-name"] != "!redis~py" || got["lib-ver"] != "5.0" {
		t.Errorf("%v", got)
	}
}

func TestLastCommand_NamesSubcommand(t *testing.T) {
	known := func(args [][]byte) string {
		if c := spec.Builtin().Lookup(args); c != nil {
			return c.Name
		}
		return ""
	}
	for _, tt := range []struct{ sent, want string }{
		{"GET k", "get"}, {"get k", "get"}, {"CLIENT LIST", "client|list"}, {"config GET x", "config|get"}, {"CONFIG", "config"},
		{"AUTH secret", "auth"}, {"XGROUP CREATE s g 0", "xgroup|create"}, {"hunter2", "NULL"}, // a secret in the wrong place, maybe
	} {
		var l lastCommand
		l.note(words(tt.sent))
		if got := l.shown(known); got != tt.want {
			t.Errorf("%s: %s", tt.sent, got)
		}
		if strings.Contains(string(l.sub[:]), "secret") {
			t.Errorf("%s: a password is kept", tt.sent)
		}
	}
	var l lastCommand
	if got := l.shown(known); got != "NULL" {
		t.Errorf("none: %s", got)
	}
}

func TestRedirectArg(t *testing.T) {
	for _, tt := range []struct {
		args string
		want int
	}{{"ON REDIRECT 5", 4}, {"ON BCAST PREFIX REDIRECT redirect 5", 7}, {"ON REDIRECT", 0}, {"OFF", 0}, {"REDIRECT 5", 0}} {
		if got := redirectArg(words("CLIENT TRACKING " + tt.args)); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.args, got, tt.want)
		}
	}
}
