package integration

import (
	"fmt"
	"strconv"
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

// TestClientTrackingRedirect sends invalidations to a client that is named by the
// proxy's id, whether it has subscribed before or will.
func TestClientTrackingRedirect(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, 1)
	writer := redistest.Open(t, r.addr())
	for i, tt := range []struct {
		name        string
		late, multi bool
	}{{"subscribed before", false, false}, {"subscribes later", true, false}, {"in a transaction", false, true}} {
		t.Run(tt.name, func(t *testing.T) {
			reader, target := redistest.Open(t, r.addr()), redistest.Open(t, r.addr())
			id := clientID(t, target)
			subscribe := func() { target.Do(t, "SUBSCRIBE", "__redis__:invalidate") }
			if !tt.late {
				subscribe()
			}
			if tt.multi {
				reader.Do(t, "MULTI")
			}
			if v := reader.Do(t, "CLIENT", "TRACKING", "ON", "REDIRECT", id); v.IsError() {
				t.Fatalf("CLIENT TRACKING: %v", v)
			}
			if tt.multi {
				reader.Do(t, "EXEC")
			}
			if tt.late {
				subscribe()
			}
			if v := reader.Do(t, "CLIENT", "GETREDIR"); v.Text != id {
				t.Errorf("CLIENT GETREDIR: %v, want %s", v, id)
			}
			if v := reader.Do(t, "CLIENT", "TRACKINGINFO"); v.Elems[3].Text != id {
				t.Errorf("CLIENT TRACKINGINFO: %v, want redirect %s", v, id)
			}
			if row := rowOf(t, writer, clientID(t, reader)); row["redir"] != id || row["flags"] != "t" {
				t.Errorf("listed as %v", row)
			}
			key := "k" + strconv.Itoa(i)
			reader.Do(t, "GET", key)
			writer.Do(t, "SET", key, "v")
			if v := target.Read(t); v.String() != fmt.Sprintf(`*[$"message" $"__redis__:invalidate" *[$"%s"]]`, key) {
				t.Errorf("the target got %v", v)
			}
		})
	}
}

// TestClientTrackingRedirectStays: who is named as the target may become somebody else
// before it listens.
func TestClientTrackingRedirectStays(t *testing.T) {
	t.Parallel()
	w := startTwin(t)
	for _, before := range []string{"", "MULTI; EXEC"} { // without, and with, a connection of its own
		for _, then := range []string{"SELECT 3", "AUTH default x", "HELLO 3", "CLIENT SETNAME me", "PING"} {
			for _, addr := range []string{w.via, w.plain.Addr()} {
				reader, target := redistest.Open(t, addr), redistest.Open(t, addr)
				id := clientID(t, target)
				for _, command := range strings.Split(before, "; ") {
					if command != "" {
						target.Do(t, command)
					}
				}
				reader.Do(t, "CLIENT", "TRACKING", "ON", "REDIRECT", id)
				if v := target.Do(t, strings.Fields(then)...); v.IsError() {
					t.Fatalf("%s: %v", then, v)
				}
				target.Do(t, "SUBSCRIBE", "__redis__:invalidate")
				reader.Do(t, "GET", "k")
				reader.Do(t, "SET", "k", "v")
				if v := target.Read(t); !strings.Contains(v.String(), `$"k"`) {
					t.Errorf("%s, %s at %s: the target got %v", before, then, addr, v)
				}
				if v := reader.Do(t, "CLIENT", "TRACKINGINFO"); strings.Contains(v.String(), "broken") || !strings.Contains(v.String(), ":"+id) {
					t.Errorf("%s, %s at %s: %v", before, then, addr, v)
				}
			}
		}
	}
}
