package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// TestTracking_ReplyAndInvalidationAreOneWrite: a client that has the reply to its own
// write must find the invalidation that belongs to it when it looks, as at a Redis: else
// what it does upon the reply reads from its cache what was there before.
func TestTracking_ReplyAndInvalidationAreOneWrite(t *testing.T) {
	t.Parallel()
	const rounds = 300
	w := startTwin(t)
	invalidation := func(key string) string {
		return fmt.Sprintf(">2\r\n$10\r\ninvalidate\r\n*1\r\n$%d\r\n%s\r\n", len(key), key)
	}
	set := func(key string) string { return redistest.Command("SET", key, "v") }
	for _, tt := range []struct{ name, send, want string }{
		{"a write", set("a"), "+OK\r\n" + invalidation("a")},
		{"a pipeline of writes", set("a") + set("b"), "+OK\r\n" + invalidation("a") + "+OK\r\n" + invalidation("b")},
		{"a write among reads", redistest.Command("PING") + set("a") + redistest.Command("PING"), "+PONG\r\n+OK\r\n" + invalidation("a") + "+PONG\r\n"},
		{
			"a transaction", redistest.Command("MULTI") + set("a") + redistest.Command("EXEC"),
			"+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n" + invalidation("a"),
		},
	} {
		for _, server := range []struct{ name, addr string }{{"plain", w.plain.Addr()}, {"proxy", w.via}} {
			t.Run(tt.name+"/"+server.name, func(t *testing.T) {
				c := redistest.Open3(t, server.addr)
				c.Do(t, "CLIENT", "TRACKING", "ON")
				cut := 0
				for range rounds {
					c.Do(t, "GET", "a")
					c.Do(t, "GET", "b")
					c.Send(t, tt.send)
					if pushesComeAlone(t, c, tt.want) {
						cut++
					}
				}
				if cut > 0 {
					t.Errorf("in %d of %d rounds the reply came without the invalidation", cut, rounds)
				}
			})
		}
	}
}

// pushesComeAlone reads want and reports whether something that could be read at once
// ended before a push in it. It is for a connection of which nothing is buffered.
func pushesComeAlone(t *testing.T, c *redistest.Conn, want string) (cut bool) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(redistest.ReplyTimeout)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4<<10)
	for got := ""; got != want; {
		n, err := c.Conn.Read(buf)
		got += string(buf[:n])
		if err != nil || !strings.HasPrefix(want, got) {
			t.Fatalf("got %q, %v; want %q", got, err, want)
		}
		cut = cut || strings.HasPrefix(want[len(got):], ">")
	}
	return cut
}

// TestTracking_BrokenRedirectNamesTheClient: the message that the client is gone to which
// invalidations go names it as the clients know it.
func TestTracking_BrokenRedirectNamesTheClient(t *testing.T) {
	t.Parallel()
	w := startTwin(t)
	for range 100 { // so that no id is by chance that of the upstream
		redistest.Open(t, w.via).Do(t, "PING")
	}
	const track = "CLIENT TRACKING ON REDIRECT"
	for _, tt := range []struct {
		name     string
		commands []string // <id> stands for the target's
		replies  int
	}{
		{"alone", []string{track + " <id>"}, 1},
		{"in a transaction", []string{"MULTI", track + " <id>", "EXEC"}, 3},
		{"then subscribed", []string{track + " <id>", "SUBSCRIBE c"}, 2},
		{"subscribed before", []string{"SUBSCRIBE c", track + " <id>"}, 2},
		{"subscribed before and after", []string{"SUBSCRIBE c", track + " <id>", "PING", "SUBSCRIBE d"}, 4},
		{"with replies off", []string{"CLIENT REPLY OFF", track + " <id>", "CLIENT REPLY ON"}, 1},
	} {
		for _, server := range []struct{ name, addr string }{{"plain", w.plain.Addr()}, {"proxy", w.via}} {
			t.Run(tt.name+"/"+server.name, func(t *testing.T) {
				c, target := redistest.Open3(t, server.addr), redistest.Open(t, server.addr)
				writer := redistest.Open(t, server.addr)
				id := clientID(t, target)
				target.Do(t, "SUBSCRIBE", "__redis__:invalidate")
				for _, command := range tt.commands {
					c.Send(t, lines(strings.ReplaceAll(command, "<id>", id)))
				}
				for range tt.replies {
					if v := c.Read(t); v.IsError() {
						t.Fatal(v)
					}
				}
				c.Do(t, "GET", "k")
				if v := writer.Do(t, "CLIENT", "KILL", "ID", id); v.Int() != 1 {
					t.Fatalf("CLIENT KILL: %v", v)
				}
				writer.Do(t, "SET", "k", "v")
				want := ">2\r\n$21\r\ntracking-redir-broken\r\n:" + id + "\r\n"
				if v := c.Read(t); v.Raw != want {
					t.Errorf("the client heard %q, want %q", v.Raw, want)
				}
				// What others are told, and what comes together, is as it was.
				c.Send(t, lines("PING", "GET k", "PING"))
				for _, want := range []string{"+PONG\r\n", "$1\r\nv\r\n", "+PONG\r\n"} {
					if v := c.Read(t); v.Raw != want {
						t.Errorf("then %q, want %q", v.Raw, want)
					}
				}
			})
		}
	}
}
