package request

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
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
			g := New(tt.limits.Rules())
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
	g := New(Limits{PreAuthArgs: 2}.Rules())
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
	g := New(Limits{}.Rules())
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

// The same requests and faults come of the same bytes whatever the reads, and whether or
// not beginnings are taken.
func FuzzParser(f *testing.F) {
	for i, tt := range inputs {
		if len(tt.in) < 200 {
			f.Add([]byte(tt.in), uint64(i), i%2 == 0)
		}
	}
	f.Fuzz(func(t *testing.T, in []byte, seed uint64, take bool) {
		rules := Limits{Args: 50, Bulk: 5000, Inline: 200, PreAuthArgs: 3, PreAuthBulk: 20}.Rules()
		whole, parts := New(rules), New(rules)
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
			g := New(Limits{}.Rules())
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
