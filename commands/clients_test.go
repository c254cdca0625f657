package commands

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/commands/spec"
)

// clientUpstream numbers its connections from 101 on, and lists all of them but those
// that are dead.
func clientUpstream(dead ...int) func(l *link, args []string) (string, bool) {
	return func(l *link, args []string) (string, bool) {
		switch strings.Join(args[:min(2, len(args))], " ") {
		case "HELLO 2", "HELLO 3":
			return fmt.Sprintf("*4\r\n$5\r\nproto\r\n:2\r\n$2\r\nid\r\n:%d\r\n", 101+l.id), true
		case "CLIENT ID", "CLIENT GETREDIR":
			return fmt.Sprintf(":%d\r\n", 101+l.id), true
		case "CLIENT LIST":
			text := ""
			for id := 101; id < 110; id++ {
				if !slices.Contains(dead, id) {
					text += fmt.Sprintf("id=%d addr=1.1.1.1:1 name= age=9 flags=PU db=0 tot-mem=%d cmd=x user=u redir=101 new=y\n", id, id)
				}
			}
			return string(resp.AppendBulkString(nil, text)), true
		}
		return "", false
	}
}

func TestTranslate_ClientIDIsTheProxys(t *testing.T) {
	s := newStage(t, Options{}, clientUpstream())
	s.enter(t)
	p := s.enter(t)
	p.do(t, "CLIENT ID", "HELLO 2")
	p.want(t, ":2\r\n*4\r\n$5\r\nproto\r\n:2\r\n$2\r\nid\r\n:2\r\n")
	p.do(t, "WATCH k", "CLIENT ID")
	p.want(t, "+OK\r\n:2\r\n")
}

// TestTranslate_RefusalsPassThrough reach the client in the upstream's words.
func TestTranslate_RefusalsPassThrough(t *testing.T) {
	s := newStage(t, Options{}, func(_ *link, args []string) (string, bool) {
		return "-NOPERM no\r\n", args[0] == "CLIENT"
	})
	p, other := s.enter(t), s.enter(t)
	p.do(t, "CLIENT ID", "CLIENT LIST", "CLIENT INFO", "CLIENT KILL ID 2", "CLIENT KILL a:1", "CLIENT UNBLOCK 2", "CLIENT GETREDIR", "CLIENT TRACKINGINFO")
	p.want(t, strings.Repeat("-NOPERM no\r\n", 8))
	if other.Closing() {
		t.Error("killed all the same")
	}
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
		if got, want := string(harmlessKill(words(tt.sent))), string(resp.AppendCommand(nil, words(tt.want)...)); got != want {
			t.Errorf("%s: %q", tt.sent, got)
		}
	}
}

// TestKillingMeans: by what the proxy knows of two clients.
func TestKillFilter_Matches(t *testing.T) {
	now := time.Now()
	d := &Dispatcher{}
	me, other := &Session{d: d}, &Session{d: d}
	for _, s := range []*Session{me, other} {
		s.info.Peer = Peer{ID: 1, Addr: "1.1.1.1:1", LocalAddr: "2.2.2.2:2"}
		s.info.connectedAt, s.info.lastActive, s.info.queued = now.Add(-10*time.Second), now, -1
	}
	other.info.ID, other.info.identity.User, other.info.flags = 2, "app", "P"
	other.info.library = clientLibrary{"jedis", "5"}
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
		if got := k.matches(proxyListing().anyEntryOf(me, now), true); got != tt.me {
			t.Errorf("%s: means the one who asks: %v", tt.filter, got)
		}
		if got := k.matches(proxyListing().anyEntryOf(other, now), false); got != tt.other {
			t.Errorf("%s: means the other: %v", tt.filter, got)
		}
	}
}

// TestRowsAreJoined: a client with a connection of its own has the upstream's row, by
// the number there; another one what the proxy knows, in the same fields.
func TestParseEntry_PathWithSpaces(t *testing.T) {
	s := newStage(t, Options{}, clientUpstream())
	shared, own := s.enter(t), s.enter(t)
	shared.do(t, "CLIENT SETNAME b", "SELECT 4")
	shared.want(t, "+OK\r\n+OK\r\n")
	own.do(t, "CLIENT NO-EVICT ON")
	own.want(t, "+OK\r\n")
	number := own.pinned.ID()
	text := "id=1 addr= name=b age=0 flags=N db=4 tot-mem=0 cmd=client|list user=default redir=-1 new=y\n" +
		fmt.Sprintf("id=2 addr= name= age=0 flags=P db=0 tot-mem=%d cmd=client|no-evict user=u redir=101 new=y\n", number)
	shared.do(t, "CLIENT LIST")
	shared.want(t, string(resp.AppendBulkString(nil, text)))
}

// TestDeadAreNotListed: the upstream no longer has the connection of a client that
// has state there.
func TestListing_LeavesOutEndedConnections(t *testing.T) {
	for _, tt := range []struct {
		before string
		listed bool
	}{{"CLIENT NO-EVICT ON", false}, {"BLPOP k 0", true}} { // which, if it fails, goes on
		s := newStage(t, Options{}, clientUpstream(102, 103, 104, 105, 106, 107, 108, 109)) // all but the oldest
		asks, p := s.enter(t), s.enter(t)
		asks.where(t)
		p.do(t, tt.before)
		s.await(t, tt.before)
		asks.do(t, "CLIENT LIST ID 2")
		asks.until(t, "a list", func() bool {
			return strings.HasSuffix(asks.text, "\n\r\n") || strings.HasSuffix(asks.text, "$0\r\n\r\n")
		})
		if listed := strings.Contains(asks.text, "id=2 "); listed != tt.listed {
			t.Errorf("%s: listed %v", tt.before, listed)
		}
	}
}

func TestListing_KeepsUpstreamFields(t *testing.T) {
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
}

func TestLastCommand_NamesSubcommand(t *testing.T) {
	for _, tt := range []struct{ sent, want string }{
		{"GET k", "get"}, {"get k", "get"}, {"CLIENT LIST", "client|list"}, {"config GET x", "config|get"}, {"CONFIG", "config"},
		{"AUTH secret", "auth"}, {"LOCK a", "lock"}, {"XGROUP CREATE s g 0", "xgroup|create"}, {"hunter2", "NULL"}, // a secret in the wrong place, maybe
	} {
		var l lastCommand
		l.note(words(tt.sent))
		if got := l.nameIn(spec.Builtin()); got != tt.want {
			t.Errorf("%s: %s", tt.sent, got)
		}
		if strings.Contains(string(l.sub[:]), "secret") {
			t.Errorf("%s: a password is kept", tt.sent)
		}
	}
	var l lastCommand
	if got := l.nameIn(spec.Builtin()); got != "NULL" {
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

// TestConnectionGivenToSomebodyElse: a client that authenticates, or changes its
// database, while another opens a connection for it must not act on that as before.
func TestAdoptedConn_NotAfterIdentityChange(t *testing.T) {
	for _, becomes := range []string{"AUTH u pw", "SELECT 3", "HELLO 3"} {
		s := newStage(t, Options{}, clientUpstream())
		p := s.enter(t)
		before := p.id
		c, err := s.up.Pool().Private(t.Context(), before, p.replies)
		if err != nil {
			t.Fatal(err)
		}
		p.do(t, becomes)
		p.offerConn(&adoptedConn{c, before})
		p.do(t, "MULTI", "GET k")
		if s.await(t, "GET k").id == 0 {
			t.Errorf("after %s the client is on a connection from before", becomes)
		}
		if c.Alive() {
			t.Errorf("after %s the connection is kept", becomes)
		}
	}
}

// TestNumberOfARestartedUpstream: what hung up has no number any more, though the proxy
// has not read that far: the upstream may have given it to another connection since.
func TestLiveUpstreamID_NotAfterRestart(t *testing.T) {
	for _, command := range []string{"CLIENT KILL ID 1", "CLIENT UNBLOCK 1", "CLIENT TRACKING ON REDIRECT 1"} {
		s := newStage(t, Options{}, clientUpstream())
		victim := s.enter(t)
		victim.full = make(chan struct{})
		victim.do(t, "BLPOP q 0")
		l := s.await(t, "BLPOP q 0")
		l.say(t, "*-1\r\n")
		victim.want(t, "*-1\r\n") // and nothing more is read: its output is full
		id := 101 + l.id
		other := s.enter(t)
		other.do(t, "GET k")
		l.Close()
		other.do(t, command)
		for _, named := range []string{"CLIENT KILL ID %d", "CLIENT UNBLOCK %d", "CLIENT TRACKING ON REDIRECT %d"} {
			if n := s.count(fmt.Sprintf(named, id)); n > 0 {
				t.Errorf("%s named the connection %d, which has ended", command, id)
			}
		}
	}
}

// TestBlindCommands: where the proxy cannot find the reply, ids are still the proxy's.
func TestTranslateBlind(t *testing.T) {
	for _, before := range [][]string{{"CLIENT REPLY SKIP"}, {"SUBSCRIBE c", "MULTI"}} {
		s := newStage(t, Options{}, clientUpstream())
		p, blocked := s.enter(t), s.enter(t)
		blocked.do(t, "BLPOP q 0")
		number := 101 + s.await(t, "BLPOP q 0").id
		p.do(t, before...)
		p.do(t, "CLIENT KILL ID 2", "CLIENT KILL TYPE normal", "CLIENT UNBLOCK 2", "CLIENT UNBLOCK 77", "CLIENT TRACKING ON REDIRECT 2", "CLIENT LIST")
		s.await(t, "CLIENT LIST")
		want := []string{
			"CLIENT KILL ID 2 ADDR -", "CLIENT KILL TYPE normal ADDR -", fmt.Sprint("CLIENT UNBLOCK ", number), fmt.Sprint("CLIENT UNBLOCK ", int64(noClientID)),
			fmt.Sprint("CLIENT TRACKING ON REDIRECT ", number), "CLIENT LIST",
		}
		got := slices.DeleteFunc(s.sent("CLIENT"), func(c string) bool { return strings.HasPrefix(c, "CLIENT REPLY") })
		if !slices.Equal(got, want) {
			t.Errorf("after %q the upstream got\n%q, want\n%q", before, got, want)
		}
	}
}
