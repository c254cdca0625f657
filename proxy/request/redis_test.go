package request

import (
	"errors"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// soon is how long what must happen may take.
const soon = 10 * time.Second

// inputs are bytes that clients may send; what Redis makes of each of them
// is what the Parser has to make of it.
var inputs = []struct{ name, in string }{
	{"array", array("ECHO", "hello")},
	{"pipeline", array("ECHO", "1") + array("ECHO", "2") + array("ECHO", "3")},
	{"empty argument", array("ECHO", "")},
	{"binary argument", array("ECHO", "\x00\r\n*1\r\n$\xff")},
	{"partial", array("ECHO", "1") + "*2\r\n$4\r\nECHO\r\n$3\r\nab"},
	{"count of 0", "*0\r\n" + array("ECHO", "x")},
	{"count of -1", "*-1\r\n" + array("ECHO", "x")},
	{"least count", "*-9223372036854775808\r\n" + array("ECHO", "x")},
	{"count under the least", "*-9223372036854775809\r\n" + array("ECHO", "x")},
	{"count missing", "*\r\n" + array("ECHO", "x")},
	{"count of -0", "*-0\r\nPING\r\n"},
	{"count is a minus", "*-\r\nPING\r\n"},
	{"count with plus", "*+1\r\n$4\r\nPING\r\n"},
	{"count with zero", "*01\r\n$4\r\nPING\r\n"},
	{"count of 00", "*00\r\nPING\r\n"},
	{"count with blank", "* 1\r\n$4\r\nPING\r\n"},
	{"count with letters", "*1a\r\n$4\r\nPING\r\n"},
	{"count of 2^31", "*2147483648\r\n"},
	{"count of 2^63", "*9223372036854775808\r\n"},
	{"count of 2^64+1", "*18446744073709551617\r\n$4\r\nPING\r\n"},
	{"count of 21 digits", "*111111111111111111111\r\n"},
	{"count ended by LF", "*1\n$4\r\nPING\r\n"},
	{"count ended by CR x", "*1\rx$4\r\nPING\r\n"},
	{"fault behind commands", array("ECHO", "1") + array("ECHO", "2") + "*x\r\n" + array("ECHO", "3")},
	{"not a bulk", "*1\r\nPING\r\n"},
	{"not a bulk, no line yet", "*1\r\nPING"},
	{"not a bulk, high byte", "*1\r\n\xffING\r\n"},
	{"not a bulk, CR", "*1\r\n\r\nPING\r\n"},
	{"not a bulk, LF", "*1\r\n\nPING\r\n"},
	{"not a bulk, third", "*3\r\n$4\r\nECHO\r\n$1\r\na\r\n:1\r\n"},
	{"length of -1", "*1\r\n$-1\r\n"},
	{"length missing", "*1\r\n$\r\n\r\n"},
	{"length with zero", "*1\r\n$04\r\nPING\r\n"},
	{"length with plus", "*1\r\n$+4\r\nPING\r\n"},
	{"length of 512 MB", "*1\r\n$536870912\r\nx"},
	{"length over 512 MB", "*1\r\n$536870913\r\nx"},
	{"length of 2^63", "*1\r\n$9223372036854775808\r\n"},
	{"length ended by CR x", "*1\r\n$4\rxPING\r\n"},
	{"argument not ended", "*2\r\n$4\r\nECHOxx$3\r\nabc\x00\x00" + array("ECHO", "1")},
	{"argument too long", "*1\r\n$4\r\nPINGS\r\n" + array("ECHO", "1")},
	{"ends inside CR LF", "*1\r\n$4\r\nPING\r"},
	{"NUL in a count", "*1\x00\r\n$4\r\nPING\r\n"},
	{"NUL in a length", "*1\r\n$4\x00\r\nPING\r\n"},
	{"longest count", "*" + strings.Repeat("1", 64<<10-1)},
	{"longest count, ended", "*" + strings.Repeat("1", 64<<10-1) + "\r\n"},
	{"count too long", "*" + strings.Repeat("1", 64<<10)},
	{"longest length", "*1\r\n$" + strings.Repeat("1", 64<<10-1)},
	{"length too long", "*1\r\n$" + strings.Repeat("1", 64<<10)},
	{"no bulk, too long", "*1\r\n" + strings.Repeat("1", 64<<10+1)},

	{"inline", "ECHO hello\r\n"},
	{"inline, LF only", "ECHO hello\n"},
	{"inline, CR inside", "ECHO a\rb\r\nECHO 'a\rb'\r\r\n"},
	{"inline, blanks", " \t ECHO \v\f  a\t\r\n"},
	{"inline, vertical tab in a word", "ECHO a\vb\r\n"},
	{"inline, empty lines", "\r\n\n \r\n\r\r\nECHO a\r\n\r\n"},
	{"inline and arrays", "ECHO 1\r\n" + array("ECHO", "2") + "ECHO 3\n" + array("ECHO", "4")},
	{"inline, empty word", "ECHO \"\"\r\nECHO ''\r\n"},
	{"inline, double quotes", `ECHO "a b\n\r\t\b\a\\\"\q'"` + "\r\n"},
	{"inline, hex", `ECHO "\x00\xfF\x4g\x4"` + "\r\n"},
	{"inline, hex at the end", `ECHO "\x4` + "\r\n"},
	{"inline, single quotes", `ECHO 'a\'b\n\\"'` + "\r\n"},
	{"inline, quotes in a word", `ECHO a"b c"` + "\r\n" + `ECHO a'b c'` + "\r\n"},
	{"inline, escape outside quotes", `ECHO a\n\x41` + "\r\n"},
	{"inline, quote behind a quote", `ECHO "a""b"` + "\r\n"},
	{"inline, word behind a quote", `ECHO "a"b` + "\r\nECHO 1\r\n"},
	{"inline, vertical tab behind a quote", "ECHO \"a\"\v\r\n"},
	{"inline, double quote open", "ECHO 1\r\n" + `ECHO "a` + "\r\nECHO 1\r\n"},
	{"inline, single quote open", `ECHO 'a\'` + "\r\n"},
	{"inline, escape at the end", `ECHO "a\` + "\r\n"},
	{"inline, high bytes", "ECHO \xa0\x85\xff\r\n"},
	{"inline, NUL", "ECHO a\x00b\r\nECHO c\r\n"},
	{"inline, NUL behind", "ECHO a\r\n\x00ECHO b\r\n"},
	{"inline, many words", "MSET" + strings.Repeat(" a b", 5000) + "\r\n"},
	{"inline, a dollar", "$4\r\nECHO b\r\n"},
	{"inline, longest", "ECHO " + strings.Repeat("a", 64<<10-5) + "\n"},
	{"inline, longest, open", "ECHO " + strings.Repeat("a", 64<<10-5)},
	{"inline, too long", "ECHO " + strings.Repeat("a", 64<<10-4)},
	{"TLS hello", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n"},
	{"large argument", array("ECHO", strings.Repeat("0123456789", 30_000)) + array("ECHO", "1")},
	{"large arguments", array("MGET", strings.Repeat("a", 100_000), strings.Repeat("b", 100_000), "c")},
}

// inputsUnauthenticated are those for a client that has yet to authenticate.
var inputsUnauthenticated = []struct{ name, in string }{
	{"10 arguments", array("ECHO", "1", "2", "3", "4", "5", "6", "7", "8", "9")},
	{"11 arguments", array("ECHO", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10")},
	{"2^31 arguments", "*2147483648\r\n"},
	{"argument of 16 KB", array("ECHO", strings.Repeat("a", 16<<10))},
	{"argument over 16 KB", "*2\r\n$4\r\nECHO\r\n$16385\r\n"},
	{"argument over 512 MB", "*2\r\n$4\r\nECHO\r\n$536870913\r\n"},
	{"inline of 10 words", "ECHO 1 2 3 4 5 6 7 8 9\r\n"},
}

// Whatever a client sends: what Redis answers to that is what it answers to the requests
// the Parser finds in it, and then the Parser's error.
func TestParser_IsRedis(t *testing.T) {
	redis := startRedis(t)
	for _, tt := range inputs {
		t.Run(tt.name, func(t *testing.T) { compare(t, redis, tt.in, false) })
	}
}

func TestParser_IsRedisUnauthenticated(t *testing.T) {
	redis := startRedis(t, "--requirepass", "secret")
	for _, tt := range inputsUnauthenticated {
		t.Run(tt.name, func(t *testing.T) { compare(t, redis, tt.in, true) })
	}
}

func compare(t *testing.T, redis, in string, restricted bool) {
	t.Helper()
	want := ask(t, redis, in)
	sizes := map[string]func() int{"at once": atOnce, "in thousands": func() int { return 1000 }, "byte by byte": byteWise}
	for name, size := range sizes {
		g := New(Limits{}.Rules())
		g.Restrict(restricted)
		var commands strings.Builder
		err := feed(g, []byte(in), size, func(cmd Request) { commands.Write(cmd.Raw) })
		got := ask(t, redis, commands.String())
		if err != nil {
			got += "-ERR " + err.Error() + "\r\n"
		}
		if got != want {
			t.Errorf("%s: %.300q, Redis says %.300q", name, got, want)
		}
	}
}

// ask sends in to Redis and returns all it answers until it hangs up.
func ask(t *testing.T, redis, in string) string {
	t.Helper()
	c, err := net.Dial("tcp", redis)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	go func() { // Redis may not read on while it writes
		io.WriteString(c, in)
		c.(*net.TCPConn).CloseWrite()
	}()
	reply, err := io.ReadAll(c)
	if err != nil && !wasReset(err) {
		t.Fatalf("Redis: %v", err)
	}
	return string(reply)
}

// wasReset tells that Redis hung up with input unread.
func wasReset(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && !op.Timeout()
}

// startRedis starts a redis-server for the time of the test and returns its
// address.
func startRedis(t *testing.T, options ...string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	_, port, _ := net.SplitHostPort(addr)
	cmd := exec.Command("redis-server", append([]string{"--bind", "127.0.0.1", "--port", port,
		"--save", "", "--appendonly", "no", "--dir", t.TempDir()}, options...)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	for end := time.Now().Add(soon); time.Now().Before(end); {
		if c, err := net.Dial("tcp", addr); err == nil {
			c.Close()
			return addr
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("redis-server does not come up")
	return ""
}
