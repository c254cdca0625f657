package resp

import (
	"math/rand/v2"
	"strings"
	"testing"
)

func TestFirst(t *testing.T) {
	for _, tt := range []struct {
		in   string
		kind byte
		text string
		len  int
		rest string
	}{
		{"+OK\r\n:1\r\n", '+', "OK", 0, ":1\r\n"},
		{":-1\r\n", ':', "-1", 0, ""},
		{"-ERR a\r\n", '-', "ERR a", 0, ""},
		{"#t\r\n", '#', "t", 0, ""},
		{"$4\r\na\r\nb\r\n+x\r\n", '$', "a\r\nb", 0, "+x\r\n"},
		{"$0\r\n\r\n", '$', "", 0, ""},
		{"=5\r\ntxt:a\r\n", '=', "txt:a", 0, ""},
		{"!3\r\nERR\r\n", '!', "ERR", 0, ""},
		{"$-1\r\n+x\r\n", '_', "", 0, "+x\r\n"},
		{"*-1\r\n", '_', "", 0, ""},
		{"_\r\n", '_', "", 0, ""},
		{"*2\r\n:1\r\n:2\r\n", '*', "", 2, ":1\r\n:2\r\n"},
		{"%2\r\n+a\r\n", '%', "", 4, "+a\r\n"},
		{">12\r\n+a\r\n", '>', "", 12, "+a\r\n"},
		{"~0\r\n", '~', "", 0, ""},
		{"|1\r\n*2\r\n+k\r\n%1\r\n:1\r\n:2\r\n|0\r\n$1\r\nv\r\n|0\r\n+OK\r\n:1\r\n", '+', "OK", 0, ":1\r\n"},
		{"$5\r\nabc", '$', "abc", 0, ""},
		{"$5\r\n", '$', "", 0, ""},
		{"$3\r\nabc\r", '$', "abc", 0, ""},
	} {
		v, rest, ok := First([]byte(tt.in))
		if !ok || v.Kind != tt.kind || string(v.Text) != tt.text || v.Len != tt.len || string(rest) != tt.rest {
			t.Errorf("%q: %q %q of %d, %q, %v", tt.in, v.Kind, v.Text, v.Len, rest, ok)
		}
	}
	for _, in := range []string{"", "+OK", "+OK\r", "$1", "|1\r\n+k\r\n+v\r\n", "|1\r\n+k\r\n+v\r\n:1", "|1\r\n$100\r\nabc"} {
		if v, _, ok := First([]byte(in)); ok {
			t.Errorf("%q: %+v", in, v)
		}
	}
}

// Of a message that was scanned every value is found, and of a part nothing else.
func TestFirst_FindsWhatTheScannerScanned(t *testing.T) {
	for _, r := range replies {
		open, p := 1, []byte(r.text)
		for ; open > 0; open-- {
			v, rest, ok := First(p)
			if !ok {
				t.Fatalf("%q: nothing at %q", r.text, p)
			}
			open += v.Len
			p = rest
		}
		if len(p) > 0 {
			t.Errorf("%q: %q is left", r.text, p)
		}
	}
}

// Grammars and limits judge alike whatever the chunks.
func FuzzScannerLimits(f *testing.F) {
	for i, r := range replies {
		f.Add([]byte(r.text), uint64(i), i%2 == 0)
	}
	f.Add([]byte(strings.Repeat("|1\r\n", 9)), uint64(1), true)
	f.Fuzz(func(t *testing.T, in []byte, seed uint64, strict bool) {
		limits := &Limits{Line: 80, Bulk: 200, Values: 20, Depth: 5, Size: 500}
		whole, parts := Scanner{Limits: limits}, Scanner{Limits: limits}
		if strict {
			whole.Grammar, parts.Grammar = StrictReplies, StrictReplies
		}
		at, _, err := ends(t, &whole, in)
		rnd := rand.New(rand.NewPCG(seed, 4))
		at2, _, err2 := ends(t, &parts, chunked(in, func() int { return 1 + rnd.IntN(20) })...)
		if len(at) != len(at2) || (err == nil) != (err2 == nil) {
			t.Fatalf("in chunks: ends %v, %v; as a whole %v, %v", at2, err2, at, err)
		}
		begin := 0
		for _, end := range at {
			if end-begin > limits.Size {
				t.Fatalf("a message of %d bytes", end-begin)
			}
			First(in[begin:end])
			begin = end
		}
	})
}
