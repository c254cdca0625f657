package integration

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// closeSending closes a client's sending half; it can still read.
func closeSending(t *testing.T, c *redistest.Conn) {
	t.Helper()
	if err := c.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
}

// readToEnd reads until the connection ends.
func readToEnd(t *testing.T, c *redistest.Conn) string {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(redistest.ReplyTimeout)); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(c.Conn)
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatalf("after %q: %v", got, err)
	}
	return string(got)
}

// TestHalfClose_WhileBlocked: of a client that sends no more while it waits a Redis hears
// that it has left: the connection ends, without a reply to what it waits for.
func TestHalfClose_WhileBlocked(t *testing.T) {
	t.Parallel()
	w := startTwin(t)
	for _, server := range []struct {
		name, addr string
		*redistest.Server
	}{{"plain", w.plain.Addr(), w.plain}, {"proxy", w.via, w.behind}} {
		for _, tt := range []struct{ name, before, send, want string }{
			{"BLPOP", "", "BLPOP q 0", ""},
			{"BLMOVE in RESP3", "HELLO 3", "BLMOVE q r LEFT LEFT 0", ""},
			{"XREAD", "", "XREAD BLOCK 0 STREAMS s $", ""},
			{"BZPOPMIN, pinned", "CLIENT NO-EVICT ON", "BZPOPMIN z 0", ""},
			{"WAIT", "", "WAIT 1 0", ""},
			{"what is asked behind it", "", "BLPOP q 0\nSET a 2\nBLPOP q 0", ""},
			{"what was asked before it", "", "SET a 1\nGET a\nBLPOP q 0\nGET a", "+OK\r\n$1\r\n1\r\n"},
		} {
			t.Run(tt.name+"/"+server.name, func(t *testing.T) {
				c := redistest.Open(t, server.addr)
				if tt.before != "" {
					c.Do(t, quoted(tt.before)...)
				}
				c.Send(t, lines(strings.Split(tt.send, "\n")...))
				eventually(t, redistest.ReplyTimeout, "it is blocked upstream", func() bool { return blocked(t, server.Server) == 1 })
				closeSending(t, c)
				if got := readToEnd(t, c); got != tt.want {
					t.Errorf("got %q, want %q", got, tt.want)
				}
				eventually(t, redistest.ReplyTimeout, "it is gone upstream", func() bool { return blocked(t, server.Server) == 0 })
			})
		}
	}
}

// TestHalfClose_AtOnce: as above where the end comes right behind the commands.
func TestHalfClose_AtOnce(t *testing.T) {
	t.Parallel()
	w := startTwin(t)
	for _, server := range []struct {
		name, addr string
		*redistest.Server
	}{{"plain", w.plain.Addr(), w.plain}, {"proxy", w.via, w.behind}} {
		sends := func(t *testing.T, commands ...string) (got string) {
			c := redistest.Open(t, server.addr)
			c.Send(t, lines(commands...))
			closeSending(t, c)
			return readToEnd(t, c)
		}
		t.Run(server.name, func(t *testing.T) {
			for range 20 {
				if got := sends(t, "SET a 1", "GET a", "BLPOP q 0", "GET a"); got != "+OK\r\n$1\r\n1\r\n" {
					t.Fatalf("before BLPOP: got %q", got)
				}
				if got := sends(t, "CLIENT NO-EVICT ON", "SET a 1", "GET a", "BLPOP q 0", "GET a"); got != "+OK\r\n+OK\r\n$1\r\n1\r\n" {
					t.Fatalf("before BLPOP, pinned: got %q", got)
				}
				if got := sends(t, "WAIT 1 0"); got != "" {
					t.Fatalf("WAIT: got %q", got)
				}
			}
			if got := sends(t, "CLIENT NO-EVICT ON", "DEBUG SLEEP 0.3", "BLPOP q 0"); got != "+OK\r\n+OK\r\n" {
				t.Errorf("before BLPOP, slowly: got %q", got)
			}
			// One that finds what it wants is answered, if the upstream is quick.
			server.Do(t, "RPUSH", "p", "x")
			eventually(t, redistest.ReplyTimeout, "BLPOP is answered", func() bool {
				got := sends(t, "RPUSH p x", "BLPOP p 0")
				return strings.HasSuffix(got, "\r\n*2\r\n$1\r\np\r\n$1\r\nx\r\n")
			})
			eventually(t, redistest.ReplyTimeout, "nobody is blocked upstream", func() bool { return blocked(t, server.Server) == 0 })
		})
	}
}
