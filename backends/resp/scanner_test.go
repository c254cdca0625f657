package resp

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// replies are whole replies as Redis and its modules send them, each with the
// kind that Kind should tell.
var replies = []struct {
	kind byte
	text string
}{
	{'+', "+OK\r\n"},
	{'+', "+\r\n"},
	{'+', "+a\rb\nc\r\r\n"},
	{'-', "-ERR unknown command 'x', with args beginning with: \r\n"},
	{':', ":-1\r\n"},
	{':', ":9223372036854775807\r\n"},
	{'$', "$0\r\n\r\n"},
	{'$', "$-1\r\n"},
	{'$', "$5\r\n*1\r\n+\r\n"},
	{'$', "$19\r\n+OK\r\n$-1\r\n\r\n\r\n\r\n\r\n-\r\n"},
	{'*', "*0\r\n"},
	{'*', "*-1\r\n"},
	{'*', "*3\r\n$3\r\nfoo\r\n$-1\r\n:7\r\n"},
	{'*', "*2\r\n*2\r\n*0\r\n*1\r\n+a\r\n*-1\r\n"},
	{'*', "*2\r\n*1\r\n*1\r\n*1\r\n$1\r\na\r\n+end\r\n"},
	{'_', "_\r\n"},
	{',', ",inf\r\n"},
	{',', ",3.14\r\n"},
	{'#', "#t\r\n"},
	{'(', "(3492890328409238509324850943850943825024385\r\n"},
	{'=', "=15\r\ntxt:Some string\r\n"},
	{'!', "!21\r\nSYNTAX invalid syntax\r\n"},
	{'%', "%2\r\n+a\r\n:1\r\n+b\r\n%1\r\n+c\r\n*0\r\n"},
	{'%', "%0\r\n"},
	{'~', "~3\r\n#t\r\n#f\r\n_\r\n"},
	{'>', ">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n"},
	{'*', "|1\r\n+ttl\r\n:3600\r\n*2\r\n:1\r\n:2\r\n"},
	{'+', "|0\r\n|1\r\n+a\r\n|1\r\n+b\r\n:1\r\n:2\r\n+OK\r\n"},
	{'*', "*2\r\n|1\r\n+k\r\n*1\r\n+v\r\n$1\r\nx\r\n|0\r\n:2\r\n"},
	{'>', "|1\r\n+k\r\n+v\r\n>1\r\n+push\r\n"},
}

// ends scans chunks and returns where replies ended, how many bytes were
// consumed before a fault, if any, and the fault.
func ends(t testing.TB, f *Scanner, chunks ...[]byte) (at []int, total int, err error) {
	t.Helper()
	for _, p := range chunks {
		for len(p) > 0 {
			n, done, err := f.Scan(p)
			if n < 0 || n > len(p) {
				t.Fatalf("Scan of %d bytes consumed %d", len(p), n)
			}
			total += n
			if err != nil {
				return at, total, err
			}
			if done {
				at = append(at, total)
			} else if n < len(p) {
				t.Fatalf("Scan stopped at %d of %d bytes with nothing to say", n, len(p))
			}
			p = p[n:]
		}
	}
	return at, total, nil
}

func TestScanner_Replies(t *testing.T) {
	for _, r := range replies {
		t.Run(strconv.Quote(r.text), func(t *testing.T) {
			var f Scanner
			n, done, err := f.Scan([]byte(r.text + "+next\r\n"))
			if n != len(r.text) || !done || err != nil {
				t.Errorf("Scan = %d, %v, %v; want %d, true", n, done, err, len(r.text))
			}
			if f.Kind() != r.kind {
				t.Errorf("Kind = %q, want %q", f.Kind(), r.kind)
			}
			for cut := range len(r.text) {
				f.Reset()
				if n, done, err := f.Scan([]byte(r.text[:cut])); n != cut || done || err != nil {
					t.Errorf("Scan of the first %d = %d, %v, %v", cut, n, done, err)
				}
			}
		})
	}
}

func TestScanner_EverySplit(t *testing.T) {
	for _, r := range replies {
		p := []byte(r.text)
		for i := range p {
			for j := i; j <= len(p); j++ {
				var f Scanner
				at, _, err := ends(t, &f, p[:i], p[i:j], p[j:])
				if err != nil || !slices.Equal(at, []int{len(p)}) || f.Kind() != r.kind {
					t.Fatalf("%q split at %d, %d: ends %v, kind %q, %v", p, i, j, at, f.Kind(), err)
				}
			}
		}
	}
}

func TestScanner_Stream(t *testing.T) {
	var all []byte
	var want []int
	for _, r := range replies {
		all = append(all, r.text...)
		want = append(want, len(all))
	}
	var f Scanner
	at, _, err := ends(t, &f, all)
	if err != nil || !slices.Equal(at, want) {
		t.Errorf("whole: ends %v, %v; want %v", at, err, want)
	}
	f.Reset()
	if at, _, err := ends(t, &f, chunked(all, func() int { return 1 })...); err != nil || !slices.Equal(at, want) {
		t.Errorf("byte by byte: ends %v, %v; want %v", at, err, want)
	}
}

func TestScanner_Faults(t *testing.T) {
	tests := []struct {
		name, in string
		at       int // bytes consumed up to the fault
		want     Fault
	}{
		{"no type", "OK\r\n", 0, UnknownType},
		{"streamed bulk", "$?\r\n", 1, StreamedLength},
		{"streamed array", "*?\r\n", 1, StreamedLength},
		{"empty length", "$\r\n", 1, BadLength},
		{"plus sign", "$+1\r\na\r\n", 1, BadLength},
		{"negative", "$-2\r\n", 4, BadLength},
		{"minus ten", "*-10\r\n", 5, BadLength},
		{"minus one spelt long", "*-01\r\n", 5, BadLength},
		{"minus alone", "*-\r\n", 2, BadLength},
		{"two minuses", "*--1\r\n", 2, BadLength},
		{"negative map", "%-1\r\n", 4, BadLength},
		{"letters", "*1x\r\n", 2, BadLength},
		{"overflow", "$9223372036854775808\r\n", 19, BadLength},
		{"CR without LF", "$1\rx", 3, BadLength},
		{"LF without CR", "$1\na\r\n", 2, BadLength},
		{"empty length of a whole bulk", "$\r\n\r\n", 1, BadLength},
		{"CR without LF in a whole bulk", "$1\rxa\r\n", 3, BadLength},
		{"LF without CR in a whole bulk", "$1x\na\r\n", 2, BadLength},
		{"CR without LF in an array", "*1\rx:1\r\n", 3, BadLength},
		{"LF without CR in an array", "*1x\n:1\r\n", 2, BadLength},
		{"payload too long", "$1\r\nab\r\n", 5, BadEnd},
		{"payload without CR", "$1\r\nab\n", 5, BadEnd},
		{"payload without LF", "$1\r\na\rb", 6, BadEnd},
		{"second element", "*2\r\n+a\r\nx\r\n", 8, UnknownType},
		{"too deep", strings.Repeat("*1\r\n", maxDepth+1), 4*maxDepth + 4, TooDeep},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var f Scanner
			for _, size := range []int{len(tt.in), 1} {
				f.Reset()
				at, n, err := ends(t, &f, chunked([]byte(tt.in), func() int { return size })...)
				if err == nil || len(at) > 0 || n != tt.at {
					t.Fatalf("chunks of %d: ends %v, %d bytes, %v; want a fault at %d", size, at, n, err, tt.at)
				}
				if got := new(ScanError); !errors.As(err, &got) || got.Fault != tt.want {
					t.Errorf("chunks of %d: %v, want fault %d", size, err, tt.want)
				}
			}
			if n, done, err := f.Scan([]byte("+OK\r\n")); n != 0 || done || err == nil {
				t.Errorf("after the fault Scan = %d, %v, %v; want it to stay", n, done, err)
			}
			f.Reset()
			if n, done, err := f.Scan([]byte("+OK\r\n")); n != 5 || !done || err != nil {
				t.Errorf("after Reset Scan = %d, %v, %v", n, done, err)
			}
		})
	}
}

// TestScanner_StrictReplies: what clients read in different ways is a fault.
func TestScanner_StrictReplies(t *testing.T) {
	tests := []struct {
		in   string
		want Fault
	}{
		{"#t\r\n#f\r\n_\r\n>1\r\n_\r\n", 0},
		{"#x\r\n", BadEnd},
		{"#tt\r\n", BadEnd},
		{"_x\r\n", BadEnd},
		{"*1\r\n>1\r\n:1\r\n", NestedPush},
	}
	for _, tt := range tests {
		for _, size := range []int{len(tt.in), 1} {
			f := Scanner{Grammar: StrictReplies}
			at, n, err := ends(t, &f, chunked([]byte(tt.in), func() int { return size })...)
			if tt.want == 0 && (err != nil || len(at) != 4 || n != len(tt.in)) || tt.want != 0 && (!errors.Is(err, tt.want) || len(at) > 0) {
				t.Errorf("%q in chunks of %d: ends %v, %v", tt.in, size, at, err)
			}
		}
	}
}

// TestScanner_LimitsOfEachReply: limits are those of one reply, however many come.
func TestScanner_LimitsOfEachReply(t *testing.T) {
	const reply = "*2\r\n:1\r\n$1\r\na\r\n"
	for _, size := range []int{3 * len(reply), 1} {
		f := Scanner{Limits: &Limits{Size: len(reply), Values: 2}}
		at, _, err := ends(t, &f, chunked([]byte(strings.Repeat(reply, 3)), func() int { return size })...)
		if want := []int{len(reply), 2 * len(reply), 3 * len(reply)}; err != nil || !slices.Equal(at, want) {
			t.Errorf("chunks of %d: ends %v, %v; want %v", size, at, err, want)
		}
	}
}

func TestScanError(t *testing.T) {
	for want, err := range map[string]error{
		"reply of unknown type 'x'":               &ScanError{Fault: UnknownType, Got: 'x'},
		"bulk reply not followed by CR LF":        &ScanError{Fault: BadEnd},
		"reply with a line of more than 32 bytes": &ScanError{Fault: LongLine, Limit: 32},
		"reply beyond a limit":                    LongLine,
		"push inside a reply":                     NestedPush,
	} {
		if err.Error() != want {
			t.Errorf("%q, want %q", err, want)
		}
	}
}

func TestScanner_DeepestReply(t *testing.T) {
	deep := []byte(strings.Repeat("*1\r\n", maxDepth) + ":1\r\n:2\r\n")
	var f Scanner
	at, _, err := ends(t, &f, deep)
	if want := []int{len(deep) - 4, len(deep)}; err != nil || !slices.Equal(at, want) {
		t.Errorf("ends %v, %v; want %v", at, err, want)
	}
}

// A length is only counted down: neither a huge count nor a huge payload costs
// anything but the bytes that come.
func TestScanner_HugeLengthsCostNothing(t *testing.T) {
	for _, in := range []string{"*999999999999999999\r\n+a\r\n", "%999999999999999999\r\n+a\r\n", "$999999999999999999\r\nabc"} {
		var f Scanner
		if n, done, err := f.Scan([]byte(in)); n != len(in) || done || err != nil {
			t.Errorf("%q: Scan = %d, %v, %v", in, n, done, err)
		}
	}
}

// chunked cuts p into pieces of the sizes that size tells.
func chunked(p []byte, size func() int) (chunks [][]byte) {
	for len(p) > 0 {
		n := min(size(), len(p))
		chunks = append(chunks, p[:n])
		p = p[n:]
	}
	return chunks
}

var (
	errPartial = errors.New("ends in the middle of a reply")
	errNotRESP = errors.New("not RESP")
)

// decode is the plain way to find the end of the reply at the start of p: the
// recursive definition, over all of it at once.
func decode(p []byte, depth int) (end int, err error) {
	if len(p) == 0 {
		return 0, errPartial
	}
	switch p[0] {
	case '+', '-', ':', ',', '_', '#', '(':
		i := bytes.Index(p[1:], []byte("\r\n"))
		if i < 0 {
			return 0, errPartial
		}
		return i + 3, nil
	case '$', '=', '!':
		return decodeBulk(p)
	case '*', '~', '>', '%', '|':
		return decodeAggregate(p, depth)
	}
	return 0, errNotRESP
}

func decodeBulk(p []byte) (int, error) {
	n, at, err := decodeLength(p)
	if err != nil || n < 0 {
		return at, err
	}
	rest := p[at:]
	if tail := rest[min(n, len(rest)):]; !strings.HasPrefix("\r\n", string(tail[:min(2, len(tail))])) {
		return 0, errNotRESP
	} else if len(tail) < 2 {
		return 0, errPartial
	}
	return at + n + 2, nil
}

func decodeAggregate(p []byte, depth int) (int, error) {
	n, at, err := decodeLength(p)
	if err != nil || n < 0 {
		return at, err
	}
	switch p[0] {
	case '%':
		n *= 2
	case '|':
		n *= 2
		if depth > 0 {
			n++ // with the value they belong to
		}
	}
	if n > 0 && depth == maxDepth {
		return 0, errNotRESP
	}
	for range n {
		k, err := decode(p[at:], depth+1)
		if err != nil {
			return 0, err
		}
		at += k
	}
	if p[0] == '|' && depth == 0 {
		k, err := decode(p[at:], 0)
		return at + k, err
	}
	return at, nil
}

// decodeLength reads the length in the first line of p, -1 for null, and where
// that line ends.
func decodeLength(p []byte) (n, at int, err error) {
	line, _, whole := strings.Cut(string(p[1:]), "\r")
	for i, c := range line {
		if !strings.ContainsRune("0123456789", c) && (i > 0 || c != '-') || i > maxDigits {
			return 0, 0, errNotRESP
		}
	}
	digits := strings.TrimPrefix(line, "-")
	switch {
	case len(digits) > maxDigits, whole && digits == "":
		return 0, 0, errNotRESP
	case !whole || len(p) < len(line)+3:
		return 0, 0, errPartial
	case p[len(line)+2] != '\n':
		return 0, 0, errNotRESP
	case line == "-1" && (p[0] == '$' || p[0] == '*'):
		return -1, len(line) + 3, nil
	case line[0] == '-':
		return 0, 0, errNotRESP
	}
	n, err = strconv.Atoi(line)
	return n, len(line) + 3, err
}

// decodeAll is ends by decode.
func decodeAll(p []byte) (at []int, err error) {
	for total := 0; total < len(p); {
		n, err := decode(p[total:], 0)
		if err != nil {
			return at, err
		}
		total += n
		at = append(at, total)
	}
	return at, nil
}

func FuzzScanner(f *testing.F) {
	for i, r := range replies {
		f.Add([]byte(r.text), uint64(i))
		f.Add([]byte(r.text+replies[len(replies)-1-i].text), uint64(i))
	}
	for _, s := range []string{"$?\r\n", "*1\r\n$-2\r\n", "$1\r\nab\r\n", "*999999999999999999\r\n", strings.Repeat("*1\r\n", 40)} {
		f.Add([]byte(s), uint64(1))
	}
	f.Fuzz(func(t *testing.T, p []byte, seed uint64) {
		var whole, parts Scanner
		at, total, err := ends(t, &whole, p)
		rnd := rand.New(rand.NewPCG(seed, 1))
		at2, total2, err2 := ends(t, &parts, chunked(p, func() int { return 1 + rnd.IntN(1+rnd.IntN(20)) })...)
		if !slices.Equal(at, at2) || total != total2 || fmt.Sprint(err) != fmt.Sprint(err2) {
			t.Fatalf("in chunks: ends %v of %d, %v; as a whole %v of %d, %v", at2, total2, err2, at, total, err)
		}
		if whole.Kind() != parts.Kind() {
			t.Fatalf("in chunks: kind %q; as a whole %q", parts.Kind(), whole.Kind())
		}
		want, wantErr := decodeAll(p)
		if !slices.Equal(at, want) || (err != nil) != errors.Is(wantErr, errNotRESP) {
			t.Fatalf("ends %v, %v; decoding says %v, %v", at, err, want, wantErr)
		}
	})
}

func BenchmarkScanner(b *testing.B) {
	for _, bm := range []struct{ name, reply string }{
		{"OK", "+OK\r\n"},
		{"int", ":1\r\n"},
		{"null", "$-1\r\n"},
		{"bulk10", "$10\r\n0123456789\r\n"},
		{"bulk16K", "$16384\r\n" + strings.Repeat("x", 16384) + "\r\n"},
		{"array3", "*3\r\n$3\r\nfoo\r\n$3\r\nbar\r\n:1\r\n"},
	} {
		b.Run(bm.name, func(b *testing.B) {
			const burst = 16
			p := bytes.Repeat([]byte(bm.reply), burst)
			var f Scanner
			b.ReportAllocs()
			for i := 0; i < b.N; i += burst {
				for rest := p; len(rest) > 0; {
					n, _, _ := f.Scan(rest)
					rest = rest[n:]
				}
			}
		})
	}
}
