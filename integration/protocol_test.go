package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// faults are broken streams. The server answers what came before the fault, says
// what is wrong, and closes.
var faults = []dialogue{
	{name: "count over Redis's limit", bytes: "*2147483648\r\n"},
	{name: "count huge", bytes: "*9223372036854775807\r\n"},
	{name: "count overflowing", bytes: "*99999999999999999999999\r\n"},
	{name: "count not a number", bytes: "*x\r\n"},
	{name: "count with a plus", bytes: "*+1\r\n$4\r\nPING\r\n"},
	{name: "count with a leading zero", bytes: "*01\r\n$4\r\nPING\r\n"},
	{name: "count with a space", bytes: "* 1\r\n$4\r\nPING\r\n"},
	{name: "count missing", bytes: "*\r\n"},
	{name: "count without an end", bytes: "*" + strings.Repeat("1", 70<<10)},
	{name: "length negative", bytes: "*1\r\n$-1\r\n"},
	{name: "length over the limit", bytes: "*1\r\n$536870913\r\n"},
	{name: "length huge", bytes: "*1\r\n$9223372036854775807\r\n"},
	{name: "length overflowing", bytes: "*1\r\n$99999999999999999999999\r\n"},
	{name: "length not a number", bytes: "*1\r\n$x\r\n"},
	{name: "length missing", bytes: "*1\r\n$\r\n"},
	{name: "length without an end", bytes: "*1\r\n$" + strings.Repeat("1", 70<<10)},
	{name: "wrong type byte", bytes: "*1\r\n:1\r\n"},
	{name: "wrong type byte in the second argument", bytes: "*2\r\n$3\r\nGET\r\n!3\r\nabc\r\n"},
	{name: "argument without a header", bytes: "*1\r\nPING\r\n"},
	{name: "unbalanced quotes", bytes: "SET a \"x\r\n"},
	{name: "unbalanced single quotes", bytes: "SET a 'x\r\n"},
	{name: "quote followed by text", bytes: "SET a \"x\"y\r\n", varies: true},
	{name: "inline line over 64 KB", bytes: strings.Repeat("x", 70<<10)},
}

// refuses reports whether the plain server takes a dialogue for a fault of the protocol: Valkey from 9.1
// on wants the line end behind a payload, and no space behind a quote.
func (w *twin) refuses(d dialogue) bool {
	said, _ := talk(w.plain.Addr(), d)
	return strings.HasPrefix(said, "-ERR Protocol error: ")
}

func TestProtocolFaults(t *testing.T) {
	t.Parallel()
	w := startTwin(t)
	for _, d := range faults {
		if d.varies && !w.refuses(d) {
			continue
		}
		d.closes = true
		for _, before := range []string{"", lines("SET a 1", "GET a") + "GET a\r\n", lines("HELLO 3")} {
			f := d
			f.bytes = before + d.bytes
			w.compare(t, f)
			if len(f.bytes) < 1000 {
				f.chunks = -1
				f.name += ", one byte at a time"
				w.compare(t, f)
			}
		}
	}
	if v := redistest.Open(t, w.via).Do(t, "PING"); v.Raw != "+PONG\r\n" {
		t.Errorf("afterwards PING answers %v", v)
	}
}

// TestProtocolFaultOfASubscriber: it is told so behind its replies, and disconnected at
// once.
func TestProtocolFaultOfASubscriber(t *testing.T) {
	t.Parallel()
	w := startTwin(t)
	for _, before := range []string{"", "SUBSCRIBE c"} {
		for _, addr := range []string{w.plain.Addr(), w.via} {
			c := redistest.Open(t, addr)
			if before != "" {
				c.Do(t, strings.Fields(before)...)
			}
			c.Send(t, lines("SUBSCRIBE d", "PING x", "NOSUCH", "PING y")+"*1\r\nPING\r\n")
			for _, want := range []string{`$"d"`, `$"x"`, "NOSUCH", `$"y"`} {
				if v := c.Read(t); !strings.Contains(v.String(), want) {
					t.Errorf("%q at %s: got %v, want one with %s", before, addr, v, want)
				}
			}
			got, closed := c.ReadUntilQuiet(redistest.ReplyTimeout)
			if want := "-ERR Protocol error: expected '$', got 'P'\r\n"; got != want || !closed {
				t.Errorf("%q at %s: got %q, closed %v", before, addr, got, closed)
			}
		}
	}
}

// TestProtocolFault_BehindABlockingCommand: what was sent before the fault is executed and answered, also behind a command
// that blocks. When the client leaves meanwhile, that ends.
func TestProtocolFault_BehindABlockingCommand(t *testing.T) {
	t.Parallel()
	w := startTwin(t)
	const fault = "*1\r\n$-1\r\n"
	for _, before := range []string{
		lines("BLPOP none 0.3"), lines("BLPOP none 0.3", "GET none"), lines("WAIT 1 300", "PING"),
		lines("XREAD BLOCK 300 STREAMS none $", "MULTI", "SET a 1", "EXEC"), lines("BLPOP none 0.3", "SELECT 1", "SET a 1"),
	} {
		w.compare(t, dialogue{name: before, bytes: before + fault, closes: true})
	}
	c := redistest.Open(t, w.via)
	c.Send(t, lines("BLPOP list 0")+fault)
	eventually(t, 9*time.Second, "it is blocked", func() bool { return blocked(t, w.behind) == 1 })
	c.Close()
	eventually(t, 9*time.Second, "it is gone", func() bool { return blocked(t, w.behind) == 0 })
}

// TestProtocolFault_UnansweredClient: a client that wants no replies is not told of its fault, and disconnected.
func TestProtocolFault_UnansweredClient(t *testing.T) {
	t.Parallel()
	w := startTwin(t)
	for _, mode := range []string{"OFF", "SKIP"} {
		c := redistest.Open(t, w.via)
		c.Send(t, lines("PING", "CLIENT REPLY "+mode)+"*1\r\n$-1\r\n")
		if got, closed := c.ReadUntilQuiet(redistest.ReplyTimeout); got != "+PONG\r\n" || !closed {
			t.Errorf("%s: got %q, closed %v", mode, got, closed)
		}
	}
}

// TestProtocolCountLimit: the proxy's limit is 1,048,576 arguments, under that of
// Redis 7.0.
func TestProtocolCountLimit(t *testing.T) {
	t.Parallel()
	p := redistest.StartProxy(t, redistest.Start(t), nil)
	got, err := talk(p.Addr(), dialogue{bytes: "*1048577\r\n", closes: true})
	if want := "-ERR Protocol error: invalid multibulk length\r\n"; got != want || err != nil {
		t.Errorf("got %q, error %v", got, err)
	}
}

// TestProtocolTolerated holds what looks broken and is not, to Redis.
func TestProtocolTolerated(t *testing.T) {
	t.Parallel()
	w := startTwin(t)
	for _, d := range []dialogue{
		{name: "negative counts are empty commands", bytes: "*-2\r\n*-9223372036854775808\r\nPING\r\n"},
		{name: "payload not followed by a line end", bytes: "*2\r\n$4\r\nECHO\r\n$2\r\nabXX" + lines("PING"), varies: true},
		{name: "an empty bulk as the command", bytes: "*1\r\n$0\r\n\r\n" + lines("PING")},
		{name: "inline with a lone line feed", bytes: "PING\nECHO x\n"},
		{name: "inline of almost 64 KB", bytes: "ECHO " + strings.Repeat("x", 60<<10) + "\r\n"},
		{name: "upper, lower and mixed case", bytes: lines("set a 1", "GeT a", "multi", "get a", "exec", "subscribe c", "unsubscribe c", "select 1", "hello 2", "quit")},
	} {
		if d.varies && w.refuses(d) {
			continue
		}
		w.compare(t, d)
		d.chunks = -1
		w.compare(t, d)
	}
}

// TestProtocolHugeAnnouncements opens many connections that announce more than
// they send; none may cost what it announces.
func TestProtocolHugeAnnouncements(t *testing.T) {
	t.Parallel()
	w := startTwin(t)
	for range 100 {
		c := redistest.Open(t, w.via)
		c.Send(t, "*1048576\r\n$536870912\r\nx")
	}
	other := redistest.Open(t, w.via)
	start := time.Now()
	if v := other.Do(t, "PING"); v.Raw != "+PONG\r\n" {
		t.Fatalf("PING beside them: %v", v)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("PING beside them took %v", took)
	}
}

func TestQuit(t *testing.T) {
	t.Parallel()
	w := startTwin(t)
	for _, d := range []dialogue{
		{name: "alone", bytes: lines("QUIT")},
		{name: "with a pipeline in front and behind", bytes: lines("SET a 1", "GET a", "QUIT", "SET a 2", "PING")},
		{name: "in a transaction", bytes: lines("MULTI", "SET a 3", "QUIT")},
		{name: "while subscribed", bytes: lines("SUBSCRIBE c", "QUIT", "PING")},
		{name: "inline", bytes: "quit\r\n"},
	} {
		d.closes = true
		w.compare(t, d)
	}
	if v := w.behind.Do(t, "GET", "a"); v.Text != "1" {
		t.Errorf("a command behind QUIT, or of an abandoned transaction, was executed: a is %v", v)
	}
}

// secured are the settings of a Redis with a password and one restricted user.
var secured = append([]string{"--requirepass", "secret", "--user"}, strings.Fields("reader on >pw ~r:* &* +@read +@connection +multi +exec")...)

func TestAuthentication(t *testing.T) {
	t.Parallel()
	w := startTwin(t, secured...)
	for _, d := range []dialogue{
		{name: "required", bytes: lines("GET a", "SET a 1", "MULTI", "SUBSCRIBE c", "SELECT 1", "NOSUCH", "CLIENT GETNAME", "HELLO", "HELLO 3", "AUTH secret")},
		{name: "default user", bytes: lines("AUTH secret", "SET a 1", "GET a", "ACL WHOAMI")},
		{name: "wrong password", bytes: lines("AUTH wrong", "GET a", "AUTH default wrong", "AUTH reader wrong", "AUTH secret", "AUTH wrong", "GET a"), refused: true},
		{name: "restricted user", bytes: lines("AUTH reader pw", "ACL WHOAMI", "GET r:1", "GET a", "SET r:1 x", "MULTI", "GET r:1", "EXEC", "MULTI", "GET a", "EXEC")},
		{name: "one user after another", bytes: lines("AUTH secret", "SET r:1 x", "AUTH reader pw", "GET r:1", "SET r:1 y", "AUTH default secret", "SET r:1 z", "GET r:1", "DEL r:1", "DEL a")},
		{name: "hello auth", bytes: lines("HELLO 3 AUTH reader pw", "ACL WHOAMI", "GET r:1", "SET r:1 x", "HELLO 2 AUTH default secret SETNAME me", "ACL WHOAMI", "CLIENT GETNAME")},
		{name: "hello auth refused", bytes: lines("HELLO 3 AUTH reader wrong", "GET r:1", "AUTH secret", "HELLO 3 AUTH reader wrong", "ACL WHOAMI"), refused: true},
		{name: "reset forgets", bytes: lines("AUTH secret", "SET a 1", "RESET", "GET a", "AUTH secret", "DEL a")},
		{name: "database kept over AUTH", bytes: lines("AUTH secret", "SELECT 2", "SET a two", "AUTH default secret", "GET a", "DEL a")},
		{name: "pipelined behind AUTH", bytes: strings.Repeat(lines("AUTH secret", "INCR n", "AUTH reader pw", "GET n"), 50) + lines("AUTH secret", "DEL n")},
	} {
		w.compare(t, d)
		d.chunks = 7
		w.compare(t, d)
	}
}

func TestLimitsBeforeAuthentication(t *testing.T) {
	t.Parallel()
	w := startTwin(t, secured...)
	tooMany := append([]string{"SET"}, strings.Fields(strings.Repeat("a ", 10))...)
	for _, d := range []dialogue{
		{name: "eleven arguments", bytes: redistest.Command(tooMany...)},
		{name: "an argument over 16 KB", bytes: redistest.Command("AUTH", strings.Repeat("x", 16<<10+1))},
	} {
		d.closes = true
		w.compare(t, d)
	}
	w.compare(t, dialogue{name: "at the limits", bytes: redistest.Command("AUTH", strings.Repeat("x", 16<<10)) + redistest.Command(tooMany[:10]...) + lines("AUTH secret")})
	w.compare(t, dialogue{name: "lifted by AUTH", bytes: lines("AUTH secret") + redistest.Command("SET", "a", noise(20<<10)) + redistest.Command(append([]string{"MSET"}, strings.Fields(strings.Repeat("a b ", 50))...)...)})
}

// TestUsers_DoNotShareConnections has many connections of two users at once; each must keep its
// own rights whatever connections they share upstream.
func TestUsers_DoNotShareConnections(t *testing.T) {
	t.Parallel()
	w := startTwin(t, secured...)
	type client struct {
		*redistest.Conn
		user string
	}
	var clients []client
	for i := range 20 {
		c := client{redistest.Open(t, w.via), "default"}
		auth := []string{"AUTH", "secret"}
		if i%2 == 1 {
			c.user, auth = "reader", []string{"AUTH", "reader", "pw"}
		}
		if v := c.Do(t, auth...); v.Raw != "+OK\r\n" {
			t.Fatalf("AUTH: %v", v)
		}
		clients = append(clients, c)
	}
	for range 20 {
		for _, c := range clients {
			if v := c.Do(t, "ACL", "WHOAMI"); v.IsError() && c.user == "default" || !v.IsError() && v.Text != c.user {
				t.Fatalf("a connection of %s is %v", c.user, v)
			}
			v := c.Do(t, "SET", "a", c.user)
			if refused := strings.HasPrefix(v.Text, "NOPERM"); refused != (c.user == "reader") {
				t.Fatalf("SET by %s: %v", c.user, v)
			}
		}
	}
}

func TestManyConnectionsKeepTheirState(t *testing.T) {
	t.Parallel()
	w := startTwin(t)
	var clients []*redistest.Conn
	for i := range 32 {
		c := redistest.Open(t, w.via)
		if i%2 == 1 {
			c.Do(t, "HELLO", "3")
		}
		c.Do(t, "SELECT", fmt.Sprint(i%8))
		c.Do(t, "CLIENT", "SETNAME", fmt.Sprint("client-", i))
		c.Do(t, "SET", "db", fmt.Sprint(i%8))
		clients = append(clients, c)
	}
	for i, c := range clients {
		null := []string{"$-1", "_"}[i%2]
		if v := c.Do(t, "GET", "none"); v.String() != null {
			t.Errorf("connection %d: null is %v", i, v)
		}
		if v := c.Do(t, "GET", "db"); v.Text != fmt.Sprint(i%8) {
			t.Errorf("connection %d is in database %v", i, v)
		}
		if v := c.Do(t, "CLIENT", "GETNAME"); v.Text != fmt.Sprint("client-", i) {
			t.Errorf("connection %d is named %v", i, v)
		}
	}
}
