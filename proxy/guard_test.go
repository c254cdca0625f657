package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os/exec"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// guardFeed reads all of in through g, at most so many bytes at a time, and
// calls each with every command until the fault it returns.
func guardFeed(g *guard, in []byte, size func() int, each func(guardCommand)) error {
	for len(in) > 0 {
		buf := g.space()
		n := copy(buf, in[:min(size(), len(in))])
		g.filled(n)
		in = in[n:]
		for {
			cmd, ok, err := g.next()
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

func guardAtOnce() int   { return 1 << 30 }
func guardByteWise() int { return 1 }

// guardCommandLines is every command in feed as the words of one line, each.
func guardCommandLines(g *guard, in string, size func() int) (lines []string, err error) {
	err = guardFeed(g, []byte(in), size, func(cmd guardCommand) {
		lines = append(lines, fmt.Sprintf("%q", cmd.Args))
	})
	return lines, err
}

// guardArray is a command as an array of bulk strings.
func guardArray(args ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	return b.String()
}

// guardInputs are bytes that clients may send; what Redis makes of each of them
// is what the guard has to make of it.
var guardInputs = []struct{ name, in string }{
	{"array", guardArray("ECHO", "hello")},
	{"pipeline", guardArray("ECHO", "1") + guardArray("ECHO", "2") + guardArray("ECHO", "3")},
	{"empty argument", guardArray("ECHO", "")},
	{"binary argument", guardArray("ECHO", "\x00\r\n*1\r\n$\xff")},
	{"partial", guardArray("ECHO", "1") + "*2\r\n$4\r\nECHO\r\n$3\r\nab"},
	{"count of 0", "*0\r\n" + guardArray("ECHO", "x")},
	{"count of -1", "*-1\r\n" + guardArray("ECHO", "x")},
	{"least count", "*-9223372036854775808\r\n" + guardArray("ECHO", "x")},
	{"count under the least", "*-9223372036854775809\r\n" + guardArray("ECHO", "x")},
	{"count missing", "*\r\n" + guardArray("ECHO", "x")},
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
	{"fault behind commands", guardArray("ECHO", "1") + guardArray("ECHO", "2") + "*x\r\n" + guardArray("ECHO", "3")},
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
	{"argument not ended", "*2\r\n$4\r\nECHOxx$3\r\nabc\x00\x00" + guardArray("ECHO", "1")},
	{"argument too long", "*1\r\n$4\r\nPINGS\r\n" + guardArray("ECHO", "1")},
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
	{"inline and arrays", "ECHO 1\r\n" + guardArray("ECHO", "2") + "ECHO 3\n" + guardArray("ECHO", "4")},
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
	{"large argument", guardArray("ECHO", strings.Repeat("0123456789", 30_000)) + guardArray("ECHO", "1")},
	{"large arguments", guardArray("MGET", strings.Repeat("a", 100_000), strings.Repeat("b", 100_000), "c")},
}

// guardInputsUnauthenticated are those for a client that has yet to authenticate.
var guardInputsUnauthenticated = []struct{ name, in string }{
	{"10 arguments", guardArray("ECHO", "1", "2", "3", "4", "5", "6", "7", "8", "9")},
	{"11 arguments", guardArray("ECHO", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10")},
	{"2^31 arguments", "*2147483648\r\n"},
	{"argument of 16 KB", guardArray("ECHO", strings.Repeat("a", 16<<10))},
	{"argument over 16 KB", "*2\r\n$4\r\nECHO\r\n$16385\r\n"},
	{"argument over 512 MB", "*2\r\n$4\r\nECHO\r\n$536870913\r\n"},
	{"inline of 10 words", "ECHO 1 2 3 4 5 6 7 8 9\r\n"},
}

// Whatever a client sends: what Redis answers to that is what it answers to the
// commands the guard finds in it, and then the guard's error.
func TestGuardIsRedis(t *testing.T) {
	redis := guardRedis(t)
	for _, tt := range guardInputs {
		t.Run(tt.name, func(t *testing.T) { guardCompare(t, redis, tt.in, false) })
	}
}

func TestGuardIsRedisUnauthenticated(t *testing.T) {
	redis := guardRedis(t, "--requirepass", "secret")
	for _, tt := range guardInputsUnauthenticated {
		t.Run(tt.name, func(t *testing.T) { guardCompare(t, redis, tt.in, true) })
	}
}

func guardCompare(t *testing.T, redis, in string, restricted bool) {
	t.Helper()
	want := guardAsk(t, redis, in)
	sizes := map[string]func() int{"at once": guardAtOnce, "in thousands": func() int { return 1000 }, "byte by byte": guardByteWise}
	for name, size := range sizes {
		g := newGuard(limits{})
		g.restricted = restricted
		var commands strings.Builder
		err := guardFeed(g, []byte(in), size, func(cmd guardCommand) { commands.Write(cmd.Raw) })
		got := guardAsk(t, redis, commands.String())
		if err != nil {
			got += "-ERR " + err.Error() + "\r\n"
		}
		if got != want {
			t.Errorf("%s: %.300q, Redis says %.300q", name, got, want)
		}
	}
}

// guardAsk sends in to Redis and returns all it answers until it hangs up.
func guardAsk(t *testing.T, redis, in string) string {
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
	if err != nil && !guardReset(err) {
		t.Fatalf("Redis: %v", err)
	}
	return string(reply)
}

// guardReset tells that Redis hung up with input unread.
func guardReset(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && !op.Timeout()
}

// guardRedis starts a redis-server for the time of the test and returns its
// address.
func guardRedis(t *testing.T, options ...string) string {
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

func TestGuardLimits(t *testing.T) {
	tests := []struct {
		name, in   string
		limits     limits
		restricted bool
		want       string
	}{
		{"arguments by default", "*1048576\r\n", limits{}, false, ""},
		{"too many by default", "*1048577\r\n", limits{}, false, "Protocol error: invalid multibulk length"},
		{"arguments", "*3\r\n", limits{MaxArgs: 3}, false, ""},
		{"too many", "*4\r\n", limits{MaxArgs: 3}, false, "Protocol error: invalid multibulk length"},
		{"bulk", "*1\r\n$5\r\n", limits{MaxBulk: 5}, false, ""},
		{"bulk too long", "*1\r\n$6\r\n", limits{MaxBulk: 5}, false, "Protocol error: invalid bulk length"},
		{"inline", "PING\r\n", limits{MaxInline: 5}, false, ""},
		{"inline too long", "PINGS\r\n", limits{MaxInline: 5}, false, "Protocol error: too big inline request"},
		{"arguments before AUTH", "*3\r\n", limits{PreAuthArgs: 2}, true, "Protocol error: unauthenticated multibulk length"},
		{"arguments after AUTH", "*3\r\n", limits{PreAuthArgs: 2}, false, ""},
		{"bulk before AUTH", "*1\r\n$3\r\n", limits{PreAuthBulk: 2}, true, "Protocol error: unauthenticated bulk length"},
		{"inline before AUTH", "DEL a bcd\r\n", limits{PreAuthArgs: 2, PreAuthBulk: 2}, true, ""},
		{"bulk after AUTH", "*1\r\n$3\r\n", limits{PreAuthBulk: 2}, false, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newGuard(tt.limits)
			g.restricted = tt.restricted
			_, err := guardCommandLines(g, tt.in, guardByteWise)
			if got := fmt.Sprint(err); err == nil && tt.want != "" || err != nil && got != tt.want {
				t.Fatalf("got %v, want %q", err, tt.want)
			}
			if _, ok, again := g.next(); ok || again != err {
				t.Errorf("asked again: %v, %v", ok, again)
			}
		})
	}
}

// A client that authenticates in a pipeline is free from the next command on.
func TestGuardRestrictedIsReadPerCommand(t *testing.T) {
	g := newGuard(limits{PreAuthArgs: 2})
	g.restricted = true
	var got []string
	err := guardFeed(g, []byte(guardArray("AUTH", "x")+guardArray("DEL", "a", "b")), guardAtOnce, func(cmd guardCommand) {
		got = append(got, string(cmd.Args[0]))
		g.restricted = false
	})
	if err != nil || !slices.Equal(got, []string{"AUTH", "DEL"}) {
		t.Errorf("got %v, %v", got, err)
	}
}

// Commands of one burst lie behind one another, so that they can be forwarded
// in one piece, until detach and beyond.
func TestGuardKeepsBurstsTogether(t *testing.T) {
	burst := []byte(guardArray("SET", "a", "1") + guardArray("GET", "a") + guardArray("GET", "b"))
	g := newGuard(limits{})
	for range 3 {
		copy(g.space(), burst)
		g.filled(len(burst))
		first, _, _ := g.next()
		for {
			cmd, ok, err := g.next()
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
		g.detach()
	}
}

// What was detached stays as it is while the guard reads on, also when input
// follows it that was not handed out.
func TestGuardDetach(t *testing.T) {
	var in strings.Builder
	for i := range 3000 {
		in.WriteString(guardArray("SET", strconv.Itoa(i), strings.Repeat("v", i%500)))
		fmt.Fprintf(&in, "GET %d\r\n", i)
	}
	want, err := guardCommandLines(newGuard(limits{}), in.String(), guardAtOnce)
	if err != nil {
		t.Fatal(err)
	}
	var kept []guardCommand
	g := newGuard(limits{})
	err = guardFeed(g, []byte(in.String()), func() int { return 777 }, func(cmd guardCommand) {
		kept = append(kept, cmd)
		g.detach()
	})
	if err != nil || len(kept) != len(want) {
		t.Fatalf("%d commands, %v; want %d", len(kept), err, len(want))
	}
	for i, cmd := range kept {
		if got := fmt.Sprintf("%q", cmd.Args); got != want[i] || guardArray(guardStrings(cmd.Args)...) != string(cmd.Raw) {
			t.Fatalf("command %d is now %s, %q; it was %s", i, got, cmd.Raw, want[i])
		}
	}
}

func guardStrings(args [][]byte) (s []string) {
	for _, arg := range args {
		s = append(s, string(arg))
	}
	return s
}

// As many arguments as there may be, and a byte at a time: with anything
// quadratic this test would not end.
func TestGuardIsLinear(t *testing.T) {
	in := []byte("*1048576\r\n" + strings.Repeat("$0\r\n\r\n", 1<<20))
	for name, size := range map[string]func() int{"bytes": guardByteWise, "packets": func() int { return 1400 }} {
		count := 0
		err := guardFeed(newGuard(limits{}), in, size, func(cmd guardCommand) { count += len(cmd.Args) })
		if err != nil || count != 1<<20 {
			t.Errorf("%s: %d arguments, %v", name, count, err)
		}
	}
	var lines int
	in = []byte(strings.Repeat("PING\n", 100_000) + strings.Repeat("\n", 100_000))
	if err := guardFeed(newGuard(limits{}), in, guardAtOnce, func(guardCommand) { lines++ }); err != nil || lines != 100_000 {
		t.Errorf("%d lines, %v", lines, err)
	}
}

// Announcements cost nothing; what arrives costs at most four times itself, and
// is given back.
func TestGuardMemory(t *testing.T) {
	for _, in := range []string{"*1048576\r\n$536870912\r\nabc", "*1\r\n$536870912\r\n", "*2\r\n$4\r\nECHO\r\n$536870912\r\nx"} {
		g := newGuard(limits{})
		if lines, err := guardCommandLines(g, in, guardByteWise); err != nil || len(lines) > 0 {
			t.Fatalf("%q: %q, %v", in, lines, err)
		}
		if space := g.space(); len(space) > guardMaxBuffer || len(g.buf) > guardMaxBuffer || cap(g.slots) > guardMinSlots {
			t.Errorf("%q: %d bytes to read into, %d slots", in, len(space), cap(g.slots))
		}
	}
	g := newGuard(limits{})
	in, arrived := []byte(guardArray("SET", "k", strings.Repeat("v", 10<<20))), 0
	for arrived < len(in) {
		if buf := g.space(); len(g.buf) > max(4*arrived, guardMaxBuffer) || len(g.buf) > max(len(in), guardMaxBuffer) {
			t.Fatalf("a buffer of %d for %d of %d bytes", len(g.buf), arrived, len(in))
		} else {
			n := copy(buf, in[arrived:])
			g.filled(n)
			arrived += n
		}
		if _, ok, err := g.next(); err != nil || ok != (arrived == len(in)) {
			t.Fatalf("at %d: %v, %v", arrived, ok, err)
		}
	}
	if g.space(); len(g.buf) > guardMaxBuffer {
		t.Errorf("keeps a buffer of %d", len(g.buf))
	}
	for _, arg := range g.slots[:cap(g.slots)] {
		if cap(arg) > guardMaxBuffer {
			t.Errorf("keeps an argument in a buffer of %d", cap(arg))
		}
	}
	for range 10 * guardCalm {
		g.filled(copy(g.space(), "*0\r\n"))
		g.next()
	}
	if g.space(); len(g.buf) != guardMinBuffer {
		t.Errorf("idle with a buffer of %d", len(g.buf))
	}
}

// Each of many arguments announces but a little more than is there; the buffer
// must still grow by a share of itself, or they would all be moved each time.
func TestGuardMovesSeldom(t *testing.T) {
	args := slices.Repeat([]string{strings.Repeat("v", 100_000)}, 500)
	g, moves := newGuard(limits{}), 0
	for in := []byte(guardArray(args...)); len(in) > 0; {
		var before *byte
		if len(g.buf) > 0 {
			before = &g.buf[0]
		}
		buf := g.space()
		if before != &g.buf[0] {
			moves++
		}
		n := copy(buf, in)
		g.filled(n)
		in = in[n:]
		if _, ok, err := g.next(); err != nil || ok != (len(in) == 0) {
			t.Fatalf("%d bytes to go: %v, %v", len(in), ok, err)
		}
	}
	if moves > 25 {
		t.Errorf("moved %d times", moves)
	}
}

func TestGuardInt(t *testing.T) {
	tests := []struct {
		in   string
		want int64
		ok   bool
	}{
		{"0", 0, true}, {"7", 7, true}, {"-7", -7, true}, {"10", 10, true},
		{"9223372036854775807", 9223372036854775807, true}, {"9223372036854775808", 0, false},
		{"-9223372036854775808", -9223372036854775808, true}, {"-9223372036854775809", 0, false},
		{"18446744073709551616", 0, false}, {"", 0, false}, {"-", 0, false}, {"-0", 0, false},
		{"--1", 0, false}, {"+1", 0, false}, {"01", 0, false}, {"00", 0, false}, {" 1", 0, false},
		{"1 ", 0, false}, {"1_0", 0, false}, {"0x1", 0, false}, {"1\x00", 0, false},
	}
	for _, tt := range tests {
		if got, ok := guardInt([]byte(tt.in)); ok != tt.ok || ok && got != tt.want {
			t.Errorf("guardInt(%q) = %d, %v", tt.in, got, ok)
		}
	}
}

func FuzzGuard(f *testing.F) {
	for i, tt := range guardInputs {
		if len(tt.in) < 200 {
			f.Add([]byte(tt.in), uint64(i), i%2 == 0)
		}
	}
	f.Fuzz(func(t *testing.T, in []byte, seed uint64, keep bool) {
		lim := limits{MaxArgs: 50, MaxBulk: 5000, MaxInline: 200, PreAuthArgs: 3, PreAuthBulk: 20}
		var want, got [][]string
		collect := func(to *[][]string) func(guardCommand) {
			return func(cmd guardCommand) {
				args := guardStrings(cmd.Args)
				if string(cmd.Raw) != guardArray(args...) {
					t.Fatalf("%q is not %q", cmd.Raw, args)
				}
				*to = append(*to, args)
			}
		}
		whole, parts := newGuard(lim), newGuard(lim)
		whole.restricted, parts.restricted = seed%2 == 0, seed%2 == 0
		wantErr := guardFeed(whole, in, guardAtOnce, collect(&want))

		rnd := rand.New(rand.NewPCG(seed, 2))
		each := collect(&got)
		var kept []guardCommand
		err := guardFeed(parts, in, func() int { return 1 + rnd.IntN(1+rnd.IntN(30)) }, func(cmd guardCommand) {
			each(cmd)
			if keep && rnd.IntN(3) > 0 {
				kept = append(kept, cmd)
				parts.detach()
			}
		})
		if !reflect.DeepEqual(got, want) || fmt.Sprint(err) != fmt.Sprint(wantErr) {
			t.Fatalf("in parts %q, %v; at once %q, %v", got, err, want, wantErr)
		}
		for _, cmd := range kept {
			if string(cmd.Raw) != guardArray(guardStrings(cmd.Args)...) {
				t.Fatalf("kept %q, which is not %q any more", cmd.Raw, cmd.Args)
			}
		}
		if n := max(guardMaxBuffer, 4*len(in)); len(whole.buf) > n || len(parts.buf) > n {
			t.Fatalf("buffers of %d and %d for %d bytes", len(whole.buf), len(parts.buf), len(in))
		}
	})
}

func BenchmarkGuard(b *testing.B) {
	value := strings.Repeat("v", 16<<10)
	for _, bm := range []struct {
		name, in string
		commands int
		keep     bool
	}{
		{"P1/GET", guardArray("GET", "key:000000000001"), 1, false},
		{"P1/GET/detach", guardArray("GET", "key:000000000001"), 1, true},
		{"P1/SET", guardArray("SET", "key:000000000001", "xxx"), 1, false},
		{"P16/GET", strings.Repeat(guardArray("GET", "key:000000000001"), 16), 16, false},
		{"P16/SET", strings.Repeat(guardArray("SET", "key:000000000001", "xxx"), 16), 16, false},
		{"P16/SET/detach", strings.Repeat(guardArray("SET", "key:000000000001", "xxx"), 16), 16, true},
		{"P1/SET16K", guardArray("SET", "key:000000000001", value), 1, false},
		{"P16/SET16K", strings.Repeat(guardArray("SET", "key:000000000001", value), 16), 16, false},
		{"P1/inline", "GET key:000000000001\r\n", 1, false},
	} {
		b.Run(bm.name, func(b *testing.B) {
			b.ReportAllocs()
			g := newGuard(limits{})
			for i := 0; i < b.N; i += bm.commands {
				for in := bm.in; len(in) > 0; {
					n := copy(g.space(), in)
					g.filled(n)
					in = in[n:]
					for ok := true; ok; {
						_, ok, _ = g.next()
					}
					if bm.keep {
						g.detach()
					}
				}
			}
		})
	}
}

// TestGuardRests: who says nothing has no memory for what it says, and who has said a
// part of a command keeps it.
func TestGuardRests(t *testing.T) {
	g := newGuard(limits{})
	for range 3 {
		g.filled(copy(g.Space(), "*1\r\n$4\r\nPI"))
		if _, ok, err := g.next(); ok || err != nil {
			t.Fatal(ok, err)
		}
		if g.Release(); g.buf == nil {
			t.Fatal("half a command is lost")
		}
		g.filled(copy(g.Space(), "NG\r\n"))
		if cmd, ok, err := g.next(); !ok || err != nil || string(cmd.Args[0]) != "PING" {
			t.Fatal(cmd, ok, err)
		}
		if g.Release(); g.buf != nil || g.slots != nil {
			t.Errorf("%d bytes and %d slots while nothing comes", len(g.buf), cap(g.slots))
		}
	}
}
