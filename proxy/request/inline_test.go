package request

import (
	"fmt"
	"testing"
)

// What Redis makes of the same lines is compared in TestParser_IsRedis.
func TestSplitInline(t *testing.T) {
	tests := []struct{ line, want string }{
		{"", `[]`},
		{" \t\v\f\r ", `[]`},
		{"GET a", `["GET" "a"]`},
		{"  GET\t a\rb ", `["GET" "a" "b"]`},
		{"a\vb \vc", `["a\vb" "c"]`},
		{`""`, `[""]`},
		{`'' ""`, `["" ""]`},
		{`"a b"  'c d'`, `["a b" "c d"]`},
		{`ab"c d"`, `["abc d"]`},
		{`ab'c d' e`, `["abc d" "e"]`},
		{`"\n\r\t\b\a\\\"\'\q"`, `["\n\r\t\b\a\\\"'q"]`},
		{`"\x41\x00\xfF\x4g\xg4"`, `["A\x00\xffx4gxg4"]`},
		{`'\n\'\"\\ '`, `["\\n'\\\"\\\\ "]`},
		{`a\n"b"`, `["a\\nb"]`},
		{`it's`, "unbalanced"},
		{`"a`, "unbalanced"},
		{`"a\`, "unbalanced"},
		{`"a\"`, "unbalanced"},
		{`'a\'`, "unbalanced"},
		{`'a\\'`, "unbalanced"},
		{`"a"b`, "unbalanced"},
		{`"a""b"`, "unbalanced"},
		{`'a'"b"`, "unbalanced"},
		{"a 'b' \"c", "unbalanced"},
	}
	for _, tt := range tests {
		words, ok := splitInline([]byte(tt.line), nil)
		got := fmt.Sprintf("%q", words)
		if !ok {
			got = "unbalanced"
		}
		if got != tt.want {
			t.Errorf("%q: got %s, want %s", tt.line, got, tt.want)
		}
	}
}
