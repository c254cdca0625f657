package backends

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/backends/resp"
)

// serverFaults are what no server has a reason to send, each of which rueidis would die of, or
// would remember for good.
var serverFaults = []struct {
	name, bytes string
	want        error
}{
	{"a huge string", "$9999999999\r\n", resp.LongBulk},
	{"a huge string that fits", "$999999999\r\n", resp.LongBulk},
	{"the largest string", "$9223372036854775807\r\n", resp.BadLength},
	{"an overflowing length", "$99999999999999999999\r\n", resp.BadLength},
	{"a negative length", "$-2\r\n", resp.BadLength},
	{"a negative map", "%-1\r\n", resp.BadLength},
	{"a negative verbatim string", "=-1\r\n", resp.BadLength},
	{"a length of none", "$\r\n", resp.BadLength},
	{"a minus", "$-\r\n", resp.BadLength},
	{"a plus", "$+1\r\n", resp.BadLength},
	{"a huge array", "*2147483647\r\n", resp.TooManyValues},
	{"a large array", "*524289\r\n", resp.TooManyValues},
	{"a large map", "%262145\r\n", resp.TooManyValues},
	{"large arrays in an array", strings.Repeat("*200000\r\n", 3), resp.TooManyValues},
	{"endless nesting", strings.Repeat("*1\r\n", maxDepth+1), resp.TooDeep},
	{"nested attributes", strings.Repeat("|1\r\n", maxDepth+1), resp.TooDeep},
	{"an endless simple string", "+" + strings.Repeat("x", maxLine), resp.LongLine},
	{"an endless length", "$" + strings.Repeat("1", maxLine), resp.BadLength},
	{"endless attributes", strings.Repeat("|1\r\n$1\r\na\r\n$4194304\r\n"+strings.Repeat("x", maxBulk)+"\r\n", maxSize/maxBulk), resp.TooLarge},
	{"a line that ends early", "+a\n$9999999999\r\n", resp.BadEnd},
	{"a null with a text", "_xx$9999999999\r\n", resp.BadEnd},
	{"a null with a text, so far", "_x", resp.BadEnd},
	{"a boolean with a text, so far", "#ty", resp.BadEnd},
	{"a boolean with a text", "#tx\r\n", resp.BadEnd},
	{"a string that goes on", "$1\r\nabc", resp.BadEnd},
	{"a string without an end", "$1\r\na\rx", resp.BadEnd},
	{"a streamed string", "$?\r\n;4\r\nabcd\r\n;0\r\n", resp.StreamedLength},
	{"a streamed array", "*?\r\n:1\r\n.\r\n", resp.StreamedLength},
	{"a push inside an array", "*1\r\n>2\r\n", resp.NestedPush},
	{"a push that nobody subscribed to", ">2\r\n+subscribe\r\n+a\r\n", errUnasked},
	{"a second answer", "+OK\r\n+OK\r\n", errUnasked},
	{"an unknown type", "?\r\n", resp.UnknownType},
	{"an unknown type, so far", "?", resp.UnknownType},
	{"the end of a stream, so far", ".", resp.UnknownType},
	{"an empty line", "\r\n", resp.UnknownType},
}

func TestGuardedConn_Faults(t *testing.T) {
	for _, tt := range serverFaults {
		t.Run(tt.name, func(t *testing.T) {
			for _, step := range []int{1, 7, 1 << 30} {
				if len(tt.bytes) > 1<<20 && step < 1<<10 {
					continue
				}
				got := guardAll(t, []string{"PING"}, tt.bytes, step)
				if !errors.Is(got, tt.want) {
					t.Errorf("%d bytes at a time: %v, want %v", step, got, tt.want)
				}
			}
		})
	}
}

// What a message is must be known, whatever is in front of it.
func TestGuardedConn_LongAttributesInPieces(t *testing.T) {
	attributes := "|1\r\n$1\r\na\r\n$70000\r\n" + strings.Repeat("x", 70000) + "\r\n"
	for _, answer := range []string{attributes + "+OK\r\n", "*1\r\n" + attributes + "+OK\r\n"} {
		if err := guardAll(t, []string{"PING"}, answer, 1000); !errors.Is(err, errAttributes) {
			t.Errorf("%.20q: %v", answer, err)
		}
	}
}

// guardAll is what comes of an answer to commands; nil: rueidis may have it.
func guardAll(t *testing.T, commands []string, answer string, step int) error {
	t.Helper()
	g := guard(nil, "")
	for _, c := range commands {
		args := strings.Fields(c)
		text := fmt.Sprintf("*%d\r\n", len(args))
		for _, arg := range args {
			text += fmt.Sprintf("$%d\r\n%s\r\n", len(arg), arg)
		}
		for b := range bytes.SplitSeq([]byte(text), nil) {
			if err := g.pending.sent(b); err != nil {
				t.Fatal(err)
			}
		}
	}
	for p := []byte(answer); len(p) > 0; {
		n := min(len(p), step)
		if err := g.in.scan(bytes.Clone(p[:n]), g.pending.received); err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// What servers have a reason to send.
func TestGuardedConn_Passes(t *testing.T) {
	for _, tt := range []struct {
		commands []string
		answer   string
	}{
		{[]string{"PING"}, "+PONG\r\n"},
		{[]string{"PING", "PING"}, "$-1\r\n*-1\r\n"},
		{[]string{"GET a"}, "$5\r\na\r\n\x00b\r\n"},
		{[]string{"GET a"}, "$0\r\n\r\n"},
		{[]string{"GET a"}, "$4194304\r\n" + strings.Repeat("x", maxBulk) + "\r\n"},
		{[]string{"HELLO 3"}, "%2\r\n+proto\r\n:3\r\n+modules\r\n*0\r\n"},
		{[]string{"ROLE"}, "*3\r\n$6\r\nmaster\r\n:3129659\r\n*2\r\n*3\r\n$9\r\n127.0.0.1\r\n$4\r\n9001\r\n$7\r\n3129242\r\n*3\r\n$9\r\n127.0.0.1\r\n$4\r\n9002\r\n$7\r\n3129543\r\n"},
		{[]string{"GET a"}, "|1\r\n+ttl\r\n:3600\r\n*2\r\n|1\r\n+k\r\n*0\r\n:1\r\n_\r\n"},
		{[]string{"GET a"}, "*8\r\n,1.5\r\n#t\r\n#f\r\n_\r\n(123\r\n=5\r\ntxt:a\r\n!3\r\nERR\r\n~1\r\n:-1\r\n"},
		{[]string{"HELLO 3", "SUBSCRIBE a b"}, "%0\r\n>3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n>3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nx\r\n>3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n"},
		{[]string{"HELLO 3", "SUBSCRIBE a", "SUBSCRIBE b", "PING"}, "%0\r\n-NOPERM\r\n>3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:1\r\n+PONG\r\n"},
		{[]string{"HELLO 3", "UNSUBSCRIBE a", "PING", "PING"}, "%0\r\n+PONG\r\n+PONG\r\n"},
		{[]string{"HELLO 3", "UNSUBSCRIBE a", "PING", "PING"}, "%0\r\n-NOPERM\r\n-NOPERM no 'ping'\r\n+PONG\r\n"},
		{[]string{"HELLO 2", "SUBSCRIBE a"}, "*0\r\n*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nx\r\n"},
		{[]string{"HELLO 3", "SUBSCRIBE a"}, "%0\r\n>3\r\n+subscribe\r\n+a\r\n:1\r\n>1\r\n+x\r\n>3\r\n+sunsubscribe\r\n+a\r\n:0\r\n"},
	} {
		for _, step := range []int{1, 5, 1 << 30} {
			if err := guardAll(t, tt.commands, tt.answer, step); err != nil {
				t.Errorf("%.100q, %d bytes at a time: %v", tt.answer, step, err)
			}
		}
	}
}

// Slots may be dealt out one by one.
func TestGuardedConn_PassesScatteredCluster(t *testing.T) {
	var b strings.Builder
	const slots = 16384
	fmt.Fprintf(&b, "*%d\r\n", slots)
	for slot := range slots {
		fmt.Fprintf(&b, "*6\r\n:%d\r\n:%d\r\n", slot, slot)
		for node := range 4 {
			fmt.Fprintf(&b, "*4\r\n$10\r\n10.0.%d.%03d\r\n:6379\r\n$40\r\n%040d\r\n*2\r\n+hostname\r\n+redis-%d.example.com\r\n", node, slot%250, node, node)
		}
	}
	if err := guardAll(t, []string{"CLUSTER SLOTS"}, b.String(), 32<<10); err != nil {
		t.Error(err)
	}
}

// Confirmations and answers out of order, each of which rueidis panics at.
func TestGuardedConn_Order(t *testing.T) {
	const confirmed = ">3\r\n+subscribe\r\n+a\r\n:1\r\n"
	for _, tt := range []struct {
		commands []string
		answer   string
	}{
		{[]string{"HELLO 3", "SUBSCRIBE a"}, "%0\r\n" + confirmed + confirmed},
		{[]string{"HELLO 3", "SUBSCRIBE a"}, "%0\r\n+OK\r\n" + confirmed},
		{[]string{"HELLO 3", "SUBSCRIBE a", "PING"}, "%0\r\n" + confirmed + confirmed},
		{[]string{"HELLO 3", "PING", "SUBSCRIBE a"}, "%0\r\n" + confirmed},
		{[]string{"HELLO 3", "SUBSCRIBE a"}, "%0\r\n+QUEUED\r\n"},
		{[]string{"HELLO 3", "UNSUBSCRIBE a", "PING"}, "%0\r\n+QUEUED\r\n"},
		{[]string{"HELLO 3", "UNSUBSCRIBE a", "PING", "ROLE"}, "%0\r\n-NOPERM\r\n+OK\r\n"},
		{[]string{"HELLO 3", "UNSUBSCRIBE a", "PING"}, "%0\r\n-NOPERM\r\n+OK\r\n"},
		{[]string{"HELLO 3", "SUBSCRIBE a b"}, "%0\r\n" + confirmed + ">3\r\n+unsubscribe\r\n+a\r\n:0\r\n" + confirmed},
		{[]string{"HELLO 2", "SUBSCRIBE a"}, "*0\r\n" + strings.Repeat("*3\r\n+subscribe\r\n+a\r\n:1\r\n", 2)},
	} {
		if err := guardAll(t, tt.commands, tt.answer, 3); !errors.Is(err, errUnasked) {
			t.Errorf("%q, answered %q: %v", tt.commands, tt.answer, err)
		}
	}
}

// hostile is a client of a server that says pieces, one after each read of its.
func hostile(t *testing.T, pieces [][]byte) rueidis.Client {
	t.Helper()
	s, err := Parse("redis://hostile:1")
	if err != nil {
		t.Fatal(err)
	}
	dialled := false
	c, err := s.Client(func(opt *rueidis.ClientOption) {
		opt.RingScaleEachConn = 6
		opt.ReadBufferEachConn, opt.WriteBufferEachConn = 4<<10, 4<<10
		opt.DialCtxFn = func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
			if dialled {
				return nil, errors.New("gone")
			}
			dialled = true
			here, there := net.Pipe()
			go say(there, pieces)
			return here, nil
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func say(nc net.Conn, pieces [][]byte) {
	defer nc.Close()
	buf := make([]byte, 4<<10)
	for _, p := range pieces {
		_ = nc.SetReadDeadline(time.Now().Add(2 * time.Millisecond))
		if _, err := nc.Read(buf); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		_ = nc.SetWriteDeadline(time.Now().Add(time.Second))
		if _, err := nc.Write(p); err != nil {
			return
		}
	}
}

// greeted is what a server of RESP3 answers to HELLO.
const greeted = "%1\r\n+proto\r\n:3\r\n"

// FuzzHostileServer: rueidis takes whatever a server says, be it an error. A server says the next piece, they are separated by 0xff, when it
// has read something.
func FuzzHostileServer(f *testing.F) {
	for _, tt := range serverFaults {
		if len(tt.bytes) < 200 {
			f.Add([]byte(greeted+"\xff"+tt.bytes), false)
			f.Add([]byte(tt.bytes), true)
		}
	}
	for _, s := range []string{
		greeted + "\xff+PONG\r\n\xff*1\r\n$4\r\npong\r\n", "-ERR unknown command HELLO\r\n\xff-ERR unknown command HELLO\r\n+OK\r\n\xff*1\r\n+subscribe\r\n", "*2\r\n+proto\r\n:2\r\n\xff*0\r\n+OK\r\n\xff+x\r\n",
		greeted + "\xff>3\r\n+subscribe\r\n+a\r\n:1\r\n>3\r\n+subscribe\r\n+b\r\n:2\r\n\xff>3\r\n+unsubscribe\r\n+a\r\n:1\r\n+PONG\r\n", greeted + "\xff+QUEUED\r\n", "%1\r\n+version\r\n+6.0\r\n\xff*1\r\n>1\r\n+x\r\n",
		greeted + "\xff*3\r\n+master\r\n:1\r\n*1\r\n*2\r\n+h\r\n+1\r\n", greeted + "\xff*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n+h\r\n:7000\r\n+id\r\n+id h:7000@17000 master - 0 0 1 connected 0-16383\r\n",
		greeted + "\xff*2\r\n+h\r\n+1\r\n%1\r\n+config-epoch\r\n+7\r\n*1\r\n%2\r\n+ip\r\n+h\r\n+port\r\n+2\r\n*0\r\n",
	} {
		f.Add([]byte(s), false)
		f.Add([]byte(s), true)
	}
	f.Fuzz(func(t *testing.T, in []byte, listens bool) {
		c := hostile(t, bytes.Split(in, []byte{0xff}))
		defer c.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if listens {
			_ = c.Receive(ctx, c.B().Subscribe().Channel("a", "b").Build(), func(rueidis.PubSubMessage) {})
			_ = c.Do(ctx, c.B().Unsubscribe().Channel("a").Build()).Error()
			return
		}
		ask := func(args ...string) rueidis.Completed { return c.B().Arbitrary(args...).Build() }
		_, _ = c.Do(ctx, ask("ROLE")).ToAny()
		for _, r := range c.DoMulti(ctx, ask("CLUSTER", "SLOTS"), ask("CLUSTER", "NODES")) {
			_, _ = r.ToAny()
		}
	})
}

// FuzzURL: a URL is a server, or refused in words that do not repeat its password.
func FuzzURL(f *testing.F) {
	for _, s := range []string{
		"redis://h:1", "h:1", "rediss://u:secretword@h:1/3?skip_verify=true", "unix:///s?db=2", "redis://:secretword@h", "redis://h:1?addr=g:2&addr=g:3&master_set=m", "redis://u:secretword@h:99999", "redis://u:secretword@[::1", "://", "redis://h/x",
		"redis://h?dial_timeout=5s&write_timeout=1s&protocol=2", "redis://secretword@h:1/-1",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, url string) {
		s, err := Parse(url)
		const secret = "secretword"
		_, tail, has := strings.Cut(url, "@")
		switch {
		case err != nil:
			if has && strings.Contains(err.Error(), secret) {
				t.Errorf("%q: %v", url, err)
			}
		case s.String() == "" && s.name == "" && len(s.opt.InitAddress) == 0, s.DB() < 0, s.WriteTimeout() <= 0:
			t.Errorf("%q is %+v", url, s)
		case has && strings.Contains(s.String(), secret) && !strings.Contains(tail, secret):
			t.Errorf("%q is shown as %s", url, s)
		}
	})
}

// BenchmarkGuardedConn: a script's call and its answer.
func BenchmarkGuardedConn(b *testing.B) {
	args := []string{"EVALSHA", strings.Repeat("a", 40), "3", "lockproxy:lock:0:job", "lockproxy:fence:0:job", "lockproxy:node", "60000", "600000", strings.Repeat("o", 26), "30000", "1764000000000000", "", "lineage", "12", strings.Repeat("h", 22)}
	call := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, arg := range args {
		call = fmt.Appendf(call, "$%d\r\n%s\r\n", len(arg), arg)
	}
	answer := []byte("*7\r\n:1\r\n:1764000000000000\r\n:0\r\n:30000\r\n:1\r\n$7\r\nlineage\r\n$2\r\n12\r\n")
	g := guard(nil, "")
	b.ReportAllocs()
	for b.Loop() {
		if err := errors.Join(g.pending.sent(call), g.in.scan(answer, g.pending.received)); err != nil {
			b.Fatal(err)
		}
	}
}
