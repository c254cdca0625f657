package commands

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/commands/clients"
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

// TestClientList_JoinsEntries: a client with a connection of its own has the upstream's entry, by
// the number there; another one what the proxy knows, in the same fields.
func TestClientList_JoinsEntries(t *testing.T) {
	s := newStage(t, Options{}, clientUpstream())
	shared, own := s.enter(t), s.enter(t)
	shared.do(t, "CLIENT SETNAME b", "SELECT 4")
	shared.want(t, "+OK\r\n+OK\r\n")
	own.do(t, "CLIENT NO-EVICT ON")
	own.want(t, "+OK\r\n")
	number := own.pinned.ID()
	text := "id=1 addr= name=b age=AGE flags=N db=4 tot-mem=0 cmd=client|list user=default redir=-1 new=y\n" +
		fmt.Sprintf("id=2 addr= name= age=AGE flags=P db=0 tot-mem=%d cmd=client|no-evict user=u redir=101 new=y\n", number)
	shared.do(t, "CLIENT LIST")
	shared.until(t, text, func() bool { // ages are those of a machine that may be busy
		_, listed, _ := strings.Cut(shared.text[shared.read:], "\r\n")
		return regexp.MustCompile(`age=\d+`).ReplaceAllString(listed, "age=AGE") == text+"\r\n"
	})
}

// TestListing_LeavesOutEndedConnections: the upstream no longer has the connection of a client that
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

// TestAdoptedConn_NotAfterIdentityChange: a client that authenticates, or changes its
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
		p.client.Offer(&clients.AdoptedConn{Conn: c, Identity: before})
		p.do(t, "MULTI", "GET k")
		if s.await(t, "GET k").id == 0 {
			t.Errorf("after %s the client is on a connection from before", becomes)
		}
		if c.Alive() {
			t.Errorf("after %s the connection is kept", becomes)
		}
	}
}

// TestLiveUpstreamID_NotAfterRestart: what hung up has no number any more, though the proxy
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

// TestTranslate_ReplyCannotBeFound: where the proxy cannot find the reply, ids are still the proxy's.
func TestTranslate_ReplyCannotBeFound(t *testing.T) {
	for _, before := range [][]string{{"CLIENT REPLY SKIP"}, {"SUBSCRIBE c", "MULTI"}} {
		s := newStage(t, Options{}, clientUpstream())
		p, blocked := s.enter(t), s.enter(t)
		blocked.do(t, "BLPOP q 0")
		number := 101 + s.await(t, "BLPOP q 0").id
		p.do(t, before...)
		p.do(t, "CLIENT KILL ID 2", "CLIENT KILL TYPE normal", "CLIENT UNBLOCK 2", "CLIENT UNBLOCK 77", "CLIENT TRACKING ON REDIRECT 2", "CLIENT LIST")
		s.await(t, "CLIENT LIST")
		want := []string{
			"CLIENT KILL ID 2 ADDR -", "CLIENT KILL TYPE normal ADDR -", fmt.Sprint("CLIENT UNBLOCK ", number), fmt.Sprint("CLIENT UNBLOCK ", int64(clients.NoID)),
			fmt.Sprint("CLIENT TRACKING ON REDIRECT ", number), "CLIENT LIST",
		}
		got := slices.DeleteFunc(s.sent("CLIENT"), func(c string) bool { return strings.HasPrefix(c, "CLIENT REPLY") })
		if !slices.Equal(got, want) {
			t.Errorf("after %q the upstream got\n%q, want\n%q", before, got, want)
		}
	}
}
