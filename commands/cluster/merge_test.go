package cluster

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/backends/resp"
)

// parts are replies, with spaces in place of line ends.
func parts(texts ...string) (all [][]byte) {
	for _, t := range texts {
		all = append(all, []byte(strings.ReplaceAll(t, " ", "\r\n")))
	}
	return all
}

const cannotJoin = "-ERR the nodes of the Cluster answered in a way that cannot be put together"

func TestMerges(t *testing.T) {
	tests := []struct {
		name  string
		join  func([][]byte) []byte
		parts [][]byte
		want  string
	}{
		{"sum", Sum, parts(":1 ", ":0 ", ":41 "), ":42 "},
		{"sum of one", Sum, parts(":7 "), ":7 "},
		{"least number", Min, parts(":3 ", ":1 ", ":2 "), ":1 "},
		{"first", First, parts("+OK ", "+OK "), "+OK "},
		{"union", Union, parts("*2 $1 a $1 b ", "*0 ", "*2 $1 b $1 c "), "*3 $1 a $1 b $1 c "},
		{"union of sets", Union, parts("~1 $1 a ", "~1 $1 a "), "~1 $1 a "},
		{"union with what is no array", Union, parts("*0 ", "+OK "), cannotJoin},
		{"pairs", Pairs, parts("*4 $1 a :1 $1 b :0 ", "*4 $1 a :2 $1 b :5 "), "*4 $1 a :3 $1 b :5 "},
		{"pairs of three", Pairs, parts("*2 $1 a :1 ", "*2 $1 a :2 ", "*2 $1 a :4 "), "*2 $1 a :7 "},
		{"pairs of a map", Pairs, parts("%1 $1 a :1 ", "%1 $1 a :2 "), "%1 $1 a :3 "},
		{"pairs of other lengths", Pairs, parts("*2 $1 a :1 ", "*0 "), cannotJoin},
		{"least of each", Least, parts("*3 :1 :0 :1 ", "*3 :1 :1 :0 "), "*3 :1 :0 :0 "},
		{"least of other lengths", Least, parts("*1 :1 ", "*0 "), cannotJoin},
		{"any that is there", Any, append(parts(slices.Repeat([]string{"$-1 "}, 30)...), parts("$1 a ")...), "$1 a "},
		{"any that is there in RESP3", Any, append(parts(slices.Repeat([]string{"_ "}, 30)...), parts("$1 a ")...), "$1 a "},
		{"any of none", Any, parts("$-1 ", "$-1 "), "$-1 "},
		{"any of none in RESP3", Any, parts("_ ", "_ "), "_ "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := strings.ReplaceAll(string(tt.join(tt.parts)), "\r\n", " ")
			if got != tt.want && !(tt.want == cannotJoin && strings.TrimSpace(got) == cannotJoin) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestMergeElements(t *testing.T) {
	tests := []struct {
		name   string
		places [][]int
		parts  [][]byte
		want   string
	}{
		{"interleaved", [][]int{{0, 3}, {1}, {2, 4}}, parts("*2 $1 a $1 d ", "*1 $1 b ", "*2 $-1 $1 e "), "*5 $1 a $1 b $-1 $1 d $1 e "},
		{"nulls of RESP3", [][]int{{1}, {0}}, parts("*1 _ ", "*1 $0  "), "*2 $0  _ "},
		{"one too few", [][]int{{0, 1}, {2}}, parts("*1 $1 a ", "*1 $1 b "), cannotJoin + " "},
	}
	for _, tt := range tests {
		got := strings.ReplaceAll(string(Elements(tt.places, tt.parts)), "\r\n", " ")
		if got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestFirstError(t *testing.T) {
	for _, tt := range []struct {
		parts [][]byte
		want  string
	}{
		{parts("+OK ", "-OOM no ", "-ERR x "), "-OOM no "},
		{parts(":1 ", "!5 ERR x "), "!5 ERR x "},
		{parts(":-1 ", "$-1 "), ""},
	} {
		if got := strings.ReplaceAll(string(firstError(tt.parts)), "\r\n", " "); got != tt.want {
			t.Errorf("of %q: %q, want %q", tt.parts, got, tt.want)
		}
	}
}

// TestMergeCursor: 5461 is the slot that the node is known by, 10922 the next node's.
func TestMergeCursor(t *testing.T) {
	for _, tt := range []struct {
		reply string
		next  int
		want  string
	}{
		{"*2 $1 0 *0 ", 10922, "*2 $5 10922 *0 "},
		{"*2 $1 0 *1 $1 k ", 0, "*2 $1 0 *1 $1 k "},
		{"*2 $1 3 *1 $1 k ", 10922, "*2 $5 54613 *1 $1 k "}, // 3<<14 + 5461
		{"*2 $16 1125899906842624 *0 ", 0, "-ERR a cursor of 1125899906842624 is too large to be put together with a node of the Cluster "},
		{"-ERR invalid cursor ", 0, "-ERR invalid cursor "},
		{"*2 $1 x *0 ", 0, cannotJoin + " "},
	} {
		reply := strings.ReplaceAll(tt.reply, " ", "\r\n")
		if tt.reply[0] == '-' {
			reply = strings.TrimSpace(tt.reply) + "\r\n"
		}
		got := strings.ReplaceAll(string(mergeCursor([]byte(reply), 5461, tt.next)), "\r\n", " ")
		if got != tt.want {
			t.Errorf("%q: %q, want %q", tt.reply, got, tt.want)
		}
	}
}

// FuzzMergeCursor: whatever a node answers to SCAN, the client gets one reply.
func FuzzMergeCursor(f *testing.F) {
	for _, s := range []string{"*2 $1 5 *1 $1 a ", "*2 $20 18446744073709551615 *0 ", "*2 $1 0 *0 ", "*2 :1 :2 ", "-ERR x ", "*-1 ", "*1 $1 0 "} {
		f.Add([]byte(strings.ReplaceAll(s, " ", "\r\n")), 3, 5)
	}
	f.Fuzz(func(t *testing.T, p []byte, slot, next int) {
		var in, out resp.Scanner
		if n, done, err := in.Scan(p); n != len(p) || !done || err != nil {
			return
		}
		got := mergeCursor(p, slot&(1<<slotBits-1), next&(1<<slotBits-1))
		if n, done, err := out.Scan(got); n != len(got) || !done || err != nil {
			t.Errorf("%q became %q", p, got)
		}
	})
}
