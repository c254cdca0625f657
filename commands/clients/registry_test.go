package clients

import (
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
)

// idle is the Session of a client that nothing happens to.
type idle struct{ killed *bool }

func (idle) Owner() upstream.Owner    { return nil }
func (idle) Stateful() *upstream.Conn { return nil }
func (s idle) Kill()                  { *s.killed = true }

func TestRegistry(t *testing.T) {
	var r Registry
	three, one := New(&r, Peer{ID: 3}, nil), New(&r, Peer{ID: 1}, nil)
	r.Add(three)
	r.Add(one)
	if all := r.All(); len(all) != 2 || all[0] != one || all[1] != three || r.Count() != 2 {
		t.Errorf("not both, by id: %v", all)
	}
	if r.Find(3) != three || r.Find(2) != nil {
		t.Error("found wrongly")
	}
	if got := r.byIDs([]int64{3, 2, 1, 3}); len(got) != 3 || got[0] != three || got[1] != one || got[2] != three {
		t.Errorf("not in the order of the ids: %v", got)
	}
	r.Remove(three)
	r.Remove(three)
	if r.Find(3) != nil || r.Count() != 1 {
		t.Error("not removed")
	}
}

// TestListing_ClientWithoutConnection: its entry has the upstream's fields, with what the
// proxy knows.
func TestListing_ClientWithoutConnection(t *testing.T) {
	r := Registry{CommandName: func(args [][]byte) string { return strings.ToLower(string(args[0])) }}
	c := New(&r, Peer{ID: 7, Addr: "/run/s:0", LocalAddr: "/run/s:0"}, idle{})
	r.Add(c)
	c.SetState(State{Identity: upstream.Identity{User: "app", DB: 4, Proto: 3}, Subs: [3]int{1, 2, 3}, Flags: "P"}, []byte("me"))
	c.Ran(words("GET k"), 2)
	c.SetBlocked(true)
	reply := resp.AppendBulkString(nil, "id=101 addr=x laddr=x fd=8 name=other age=9 idle=9 flags=N db=0 sub=0 psub=0 ssub=0 multi=-1 cmd=ping user=u redir=5 resp=2 new=y\n")
	l, ok := r.Listing(reply, nil)
	if !ok {
		t.Fatal("no listing")
	}
	want := "id=7 addr=/run/s:0 laddr=/run/s:0 fd=0 name=me age=0 idle=0 flags=PxbU db=4 sub=1 psub=2 ssub=3 multi=2 cmd=get user=app redir=-1 resp=3 new=y\n"
	if got := string(l.entryOf(c, time.Now()).appendTo(nil)); got != want {
		t.Errorf("got  %swant %s", got, want)
	}
	if _, ok := r.Listing([]byte("-NOPERM no\r\n"), nil); ok {
		t.Error("an error is a listing")
	}
}

func TestClient_RanAllocatesNothing(t *testing.T) {
	c, args := New(&Registry{}, Peer{ID: 1}, nil), words("CONFIG GET x")
	if n := testing.AllocsPerRun(100, func() { c.Ran(args, -1) }); n != 0 {
		t.Errorf("allocates %v times", n)
	}
}

// translator is one for the first of the clients 1 and 2, which has no connection of its own.
func translator(killed *bool) *Translator {
	r := &Registry{}
	self := New(r, Peer{ID: 1, Addr: "a:1"}, idle{})
	r.Add(self)
	r.Add(New(r, Peer{ID: 2, Addr: "a:2"}, idle{killed}))
	return &Translator{
		Registry: r, Self: self, Reach: (*Client).UpstreamID, Accepts: func([][]byte) bool { return true }, Redirects: func() {},
		Kill: func(all []*Client) (ended bool) {
			for _, c := range all {
				if ended = ended || c == self; c != self {
					c.Kill()
				}
			}
			return ended
		},
	}
}

func TestTranslate(t *testing.T) {
	const nobody = "9223372036854775807"
	tests := []struct{ line, sent, reply, want string }{
		{"CLIENT ID", "CLIENT ID", ":101\r\n", ":1\r\n"},
		{"client id", "client id", "-NOPERM no\r\n", "-NOPERM no\r\n"},
		{"CLIENT ID", "CLIENT ID", "+QUEUED\r\n", "+QUEUED\r\n"},
		{"CLIENT UNBLOCK 2", "CLIENT UNBLOCK " + nobody, ":0\r\n", ":0\r\n"},
		{"CLIENT UNBLOCK 77", "CLIENT UNBLOCK " + nobody, ":0\r\n", ":0\r\n"},
		{"CLIENT UNBLOCK x", "CLIENT UNBLOCK x", "-ERR no\r\n", "-ERR no\r\n"},
		{"CLIENT TRACKING ON REDIRECT 2", "CLIENT TRACKING ON REDIRECT " + nobody, "+OK\r\n", "+OK\r\n"},
		{"CLIENT GETREDIR", "CLIENT GETREDIR", ":-1\r\n", ":-1\r\n"},
		{"CLIENT TRACKINGINFO", "CLIENT TRACKINGINFO", "*2\r\n$8\r\nredirect\r\n:7\r\n", "*2\r\n$8\r\nredirect\r\n:7\r\n"},
		{"CLIENT KILL ID 77", "CLIENT KILL ID 77 ADDR -", ":0\r\n", ":0\r\n"},
		{"CLIENT KILL a:9", "CLIENT KILL -", "-ERR No such client\r\n", "-ERR No such client\r\n"},
		{"CLIENT LIST ID 77", "CLIENT LIST", "$5\r\nid=3\n\r\n", "$0\r\n\r\n"},
		{"CLIENT LIST ID 2", "CLIENT LIST", "$5\r\nid=3\n\r\n", "$5\r\nid=2\n\r\n"},
	}
	for _, tt := range tests {
		args := words(tt.line)
		x, ok := translator(new(bool)).Translate(resp.AppendCommand(nil, args...), args)
		if want := string(resp.AppendCommand(nil, words(tt.sent)...)); !ok || string(x.Raw) != want {
			t.Errorf("%s: sent %q, %v", tt.line, x.Raw, ok)
			continue
		}
		if got, last := x.Rewrite([]byte(tt.reply)); string(got) != tt.want || last {
			t.Errorf("%s: %q became %q, last: %v", tt.line, tt.reply, got, last)
		}
		if !x.Answers([]byte("-ERR no\r\n")) || x.Answers([]byte(">2\r\n")) {
			t.Errorf("%s: an error is no answer, or a push is one", tt.line)
		}
	}
	if _, ok := translator(nil).Translate(nil, words("CLIENT NO-EVICT ON")); ok {
		t.Error("NO-EVICT is translated")
	}
}

func TestTranslate_Kill(t *testing.T) {
	tests := []struct {
		line, reply, want string
		killed, last      bool
	}{
		{"CLIENT KILL ID 2", ":0\r\n", ":1\r\n", true, false},
		{"CLIENT KILL a:2", "-ERR No such client\r\n", "+OK\r\n", true, false},
		{"CLIENT KILL ID 1 SKIPME no", ":0\r\n", ":1\r\n", false, true},
		{"CLIENT KILL ID 1 2 SKIPME no", ":0\r\n", ":2\r\n", true, true},
		{"CLIENT KILL ID 2", "-NOPERM no\r\n", "-NOPERM no\r\n", false, false},
	}
	for _, tt := range tests {
		killed := false
		args := words(tt.line)
		x, _ := translator(&killed).Translate(resp.AppendCommand(nil, args...), args)
		got, last := x.Rewrite([]byte(tt.reply))
		if string(got) != tt.want || last != tt.last || killed != tt.killed {
			t.Errorf("%s: %q, last: %v, the other killed: %v", tt.line, got, last, killed)
		}
	}
}
