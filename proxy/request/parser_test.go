package request

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// feed reads all of in through g, at most so many bytes at a time, and calls each with
// every request until the fault it returns.
func feed(g *Parser, in []byte, size func() int, each func(Request)) error {
	for len(in) > 0 {
		buf := g.Space()
		n := copy(buf, in[:min(size(), len(in))])
		g.Filled(n)
		in = in[n:]
		for {
			cmd, ok, err := g.Next()
			if err != nil {
				return err
			}
			if !ok {
				break
			}
			each(cmd)
		}
	}
	return nil
}

// soon is how long what must happen may take.
const soon = 10 * time.Second

func atOnce() int   { return 1 << 30 }
func byteWise() int { return 1 }

// requestLines is every request of feed as the words of one line, each.
func requestLines(g *Parser, in string, size func() int) (lines []string, err error) {
	err = feed(g, []byte(in), size, func(cmd Request) {
		lines = append(lines, fmt.Sprintf("%q", cmd.Args))
	})
	return lines, err
}

// array is a command as an array of bulk strings.
func array(args ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	return b.String()
}

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
		g := New(Limits{})
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

func TestParser_Limits(t *testing.T) {
	tests := []struct {
		name, in   string
		limits     Limits
		restricted bool
		want       string
	}{
		{"arguments by default", "*1048576\r\n", Limits{}, false, ""},
		{"too many by default", "*1048577\r\n", Limits{}, false, "Protocol error: invalid multibulk length"},
		{"arguments", "*3\r\n", Limits{Args: 3}, false, ""},
		{"too many", "*4\r\n", Limits{Args: 3}, false, "Protocol error: invalid multibulk length"},
		{"bulk", "*1\r\n$5\r\n", Limits{Bulk: 5}, false, ""},
		{"bulk too long", "*1\r\n$6\r\n", Limits{Bulk: 5}, false, "Protocol error: invalid bulk length"},
		{"inline", "PING\r\n", Limits{Inline: 5}, false, ""},
		{"inline too long", "PINGS\r\n", Limits{Inline: 5}, false, "Protocol error: too big inline request"},
		{"arguments before AUTH", "*3\r\n", Limits{PreAuthArgs: 2}, true, "Protocol error: unauthenticated multibulk length"},
		{"arguments after AUTH", "*3\r\n", Limits{PreAuthArgs: 2}, false, ""},
		{"bulk before AUTH", "*1\r\n$3\r\n", Limits{PreAuthBulk: 2}, true, "Protocol error: unauthenticated bulk length"},
		{"inline before AUTH", "DEL a bcd\r\n", Limits{PreAuthArgs: 2, PreAuthBulk: 2}, true, ""},
		{"bulk after AUTH", "*1\r\n$3\r\n", Limits{PreAuthBulk: 2}, false, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := New(tt.limits)
			g.Restrict(tt.restricted)
			_, err := requestLines(g, tt.in, byteWise)
			if got := fmt.Sprint(err); err == nil && tt.want != "" || err != nil && got != tt.want {
				t.Fatalf("got %v, want %q", err, tt.want)
			}
			if _, ok, again := g.Next(); ok || again != err {
				t.Errorf("asked again: %v, %v", ok, again)
			}
		})
	}
}

// A client that authenticates in a pipeline is free from the next command on.
func TestParser_RestrictBetweenRequests(t *testing.T) {
	g := New(Limits{PreAuthArgs: 2})
	g.Restrict(true)
	var got []string
	err := feed(g, []byte(array("AUTH", "x")+array("DEL", "a", "b")), atOnce, func(cmd Request) {
		got = append(got, string(cmd.Args[0]))
		g.Restrict(false)
	})
	if err != nil || !slices.Equal(got, []string{"AUTH", "DEL"}) {
		t.Errorf("got %v, %v", got, err)
	}
}

// They can be forwarded in one piece.
func TestParser_RequestsOfOneReadAreContiguous(t *testing.T) {
	burst := []byte(array("SET", "a", "1") + array("GET", "a") + array("GET", "b"))
	g := New(Limits{})
	for range 3 {
		copy(g.Space(), burst)
		g.Filled(len(burst))
		first, _, _ := g.Next()
		for {
			cmd, ok, err := g.Next()
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			first.Raw = first.Raw[:len(first.Raw)+len(cmd.Raw)]
			if &first.Raw[len(first.Raw)-len(cmd.Raw)] != &cmd.Raw[0] {
				t.Fatal("commands of one burst are apart")
			}
		}
		if !bytes.Equal(first.Raw, burst) {
			t.Fatalf("got %q, want %q", first.Raw, burst)
		}
	}
}

func texts(args [][]byte) (s []string) {
	for _, arg := range args {
		s = append(s, string(arg))
	}
	return s
}

// As many arguments as there may be, and a byte at a time: with anything
// quadratic this test would not end.
func TestParser_IsLinear(t *testing.T) {
	in := []byte("*1048576\r\n" + strings.Repeat("$0\r\n\r\n", 1<<20))
	for name, size := range map[string]func() int{"bytes": byteWise, "packets": func() int { return 1400 }} {
		count := 0
		err := feed(New(Limits{}), in, size, func(cmd Request) { count += len(cmd.Args) })
		if err != nil || count != 1<<20 {
			t.Errorf("%s: %d arguments, %v", name, count, err)
		}
	}
	var lines int
	in = []byte(strings.Repeat("PING\n", 100_000) + strings.Repeat("\n", 100_000))
	if err := feed(New(Limits{}), in, atOnce, func(Request) { lines++ }); err != nil || lines != 100_000 {
		t.Errorf("%d lines, %v", lines, err)
	}
}

// Announcements cost nothing; what arrives costs at most four times itself, and
// is given back.
func TestParser_MemoryFollowsInput(t *testing.T) {
	for _, in := range []string{"*1048576\r\n$536870912\r\nabc", "*1\r\n$536870912\r\n", "*2\r\n$4\r\nECHO\r\n$536870912\r\nx"} {
		g := New(Limits{})
		if lines, err := requestLines(g, in, byteWise); err != nil || len(lines) > 0 {
			t.Fatalf("%q: %q, %v", in, lines, err)
		}
		if space := g.Space(); len(space) > maxBuffer || len(g.buf) > maxBuffer || cap(g.args) > minArgs {
			t.Errorf("%q: %d bytes to read into, %d slots", in, len(space), cap(g.args))
		}
	}
	g := New(Limits{})
	in, arrived := []byte(array("SET", "k", strings.Repeat("v", 10<<20))), 0
	for arrived < len(in) {
		if buf := g.Space(); len(g.buf) > max(4*arrived, maxBuffer) || len(g.buf) > max(len(in), maxBuffer) {
			t.Fatalf("a buffer of %d for %d of %d bytes", len(g.buf), arrived, len(in))
		} else {
			n := copy(buf, in[arrived:])
			g.Filled(n)
			arrived += n
		}
		if _, ok, err := g.Next(); err != nil || ok != (arrived == len(in)) {
			t.Fatalf("at %d: %v, %v", arrived, ok, err)
		}
	}
	if g.Space(); len(g.buf) > maxBuffer {
		t.Errorf("keeps a buffer of %d", len(g.buf))
	}
	for _, arg := range g.args[:cap(g.args)] {
		if cap(arg) > maxBuffer {
			t.Errorf("keeps an argument in a buffer of %d", cap(arg))
		}
	}
	for range 10 * calmReads {
		g.Filled(copy(g.Space(), "*0\r\n"))
		g.Next()
	}
	if g.Space(); len(g.buf) != minBuffer {
		t.Errorf("idle with a buffer of %d", len(g.buf))
	}
}

// Each of many arguments announces but a little more than is there; the buffer
// must still grow by a share of itself, or they would all be moved each time.
func TestParser_MovesBufferSeldom(t *testing.T) {
	args := slices.Repeat([]string{strings.Repeat("v", 100_000)}, 500)
	g, moves := New(Limits{}), 0
	for in := []byte(array(args...)); len(in) > 0; {
		var before *byte
		if len(g.buf) > 0 {
			before = &g.buf[0]
		}
		buf := g.Space()
		if before != &g.buf[0] {
			moves++
		}
		n := copy(buf, in)
		g.Filled(n)
		in = in[n:]
		if _, ok, err := g.Next(); err != nil || ok != (len(in) == 0) {
			t.Fatalf("%d bytes to go: %v, %v", len(in), ok, err)
		}
	}
	if moves > 25 {
		t.Errorf("moved %d times", moves)
	}
}

// The same requests and faults come of the same bytes whatever the reads, and whether or
// not beginnings are taken.
func FuzzParser(f *testing.F) {
	for i, tt := range inputs {
		if len(tt.in) < 200 {
			f.Add([]byte(tt.in), uint64(i), i%2 == 0)
		}
	}
	f.Fuzz(func(t *testing.T, in []byte, seed uint64, take bool) {
		lim := Limits{Args: 50, Bulk: 5000, Inline: 200, PreAuthArgs: 3, PreAuthBulk: 20}
		whole, parts := New(lim), New(lim)
		whole.Restrict(seed%2 == 0)
		parts.Restrict(seed%2 == 0)
		var want, got []string
		wantErr := feed(whole, bytes.Clone(in), atOnce, func(req Request) {
			if string(req.Raw) != array(texts(req.Args)...) {
				t.Fatalf("%q is not %q", req.Raw, req.Args)
			}
			want = append(want, string(req.Raw))
		})

		rnd := rand.New(rand.NewPCG(seed, 2))
		begun := ""
		read := func() int {
			if take && rnd.IntN(3) > 0 {
				if _, raw, ok := parts.Part(1); ok {
					begun += string(raw)
					parts.Take(raw)
				}
			}
			return 1 + rnd.IntN(1+rnd.IntN(30))
		}
		err := feed(parts, bytes.Clone(in), read, func(req Request) {
			if req.Rest != (begun != "") || !req.Rest && string(req.Raw) != array(texts(req.Args)...) {
				t.Fatalf("%q is not %q, behind %q", req.Raw, req.Args, begun)
			}
			got = append(got, begun+string(req.Raw))
			begun = ""
		})
		if !slices.Equal(got, want) || fmt.Sprint(err) != fmt.Sprint(wantErr) {
			t.Fatalf("in parts %q, %v; at once %q, %v", got, err, want, wantErr)
		}
		if n := max(maxBuffer, 4*len(in)); len(whole.buf) > n || len(parts.buf) > n {
			t.Fatalf("buffers of %d and %d for %d bytes", len(whole.buf), len(parts.buf), len(in))
		}
	})
}

func BenchmarkParser(b *testing.B) {
	value := strings.Repeat("v", 16<<10)
	for _, bm := range []struct {
		name, in string
		commands int
	}{
		{"P1/GET", array("GET", "key:000000000001"), 1},
		{"P1/SET", array("SET", "key:000000000001", "xxx"), 1},
		{"P16/GET", strings.Repeat(array("GET", "key:000000000001"), 16), 16},
		{"P16/SET", strings.Repeat(array("SET", "key:000000000001", "xxx"), 16), 16},
		{"P1/SET16K", array("SET", "key:000000000001", value), 1},
		{"P16/SET16K", strings.Repeat(array("SET", "key:000000000001", value), 16), 16},
		{"P1/inline", "GET key:000000000001\r\n", 1},
	} {
		b.Run(bm.name, func(b *testing.B) {
			b.ReportAllocs()
			g := New(Limits{})
			for i := 0; i < b.N; i += bm.commands {
				for in := bm.in; len(in) > 0; {
					n := copy(g.Space(), in)
					g.Filled(n)
					in = in[n:]
					for ok := true; ok; {
						_, ok, _ = g.Next()
					}
				}
			}
		})
	}
}

// TestParser_ReleaseGivesMemoryBack: who says nothing has no memory for what it says, and who has said a
// part of a command keeps it.
func TestParser_ReleaseGivesMemoryBack(t *testing.T) {
	g := New(Limits{})
	for range 3 {
		g.Filled(copy(g.Space(), "*1\r\n$4\r\nPI"))
		if _, ok, err := g.Next(); ok || err != nil {
			t.Fatal(ok, err)
		}
		if g.Release(); g.buf == nil {
			t.Fatal("half a command is lost")
		}
		g.Filled(copy(g.Space(), "NG\r\n"))
		if cmd, ok, err := g.Next(); !ok || err != nil || string(cmd.Args[0]) != "PING" {
			t.Fatal(cmd, ok, err)
		}
		if g.Release(); g.buf != nil || g.args != nil {
			t.Errorf("%d bytes and %d slots while nothing comes", len(g.buf), cap(g.args))
		}
	}
}
