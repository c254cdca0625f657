package glob

import (
	"math/rand/v2"
	"strings"
	"testing"
)

func TestGlob(t *testing.T) {
	for _, tt := range []struct {
		glob, key string
		want      bool
	}{
		{"", "", true}, {"", "a", false}, {"*", "", true}, {"*", "\n\xff", true}, {"lock:*", "lock:", true}, {"lock:*", "lock", false},
		{"*a*b", "xaxxb", true}, {"*a*b", "xaxxbc", false}, {"a?c", "abc", true}, {"a?c", "a\xffc", true}, {"a?c", "ac", false}, {"?", "é", false}, {"??", "é", true},
		{"schloß:*", "schloß:1", true}, {"schloß:*", "schlo:1", false}, {"[ab]x", "bx", true}, {"[^ab]x", "bx", false}, {"[^ab]x", "cx", true}, {"[^a]", "\x00", true},
		{"[a-c]", "b", true}, {"[c-a]", "b", true}, {"[a-]", "-", true}, {`[\]]`, "]", true}, {`[\^a]`, "^", true}, {"[]", "]", false}, {`\*`, "*", true}, {`\*`, "a", false},
		{`a\`, `a\`, true}, {"a**", "a", true}, {"lock.a", "lockXa", false}, {"a|b", "a", false},
		{"a*c", "abbc", true}, {"a*c", "abcd", false}, {"a*b*c*", "axbxcx", true}, {"?", "", false}, {"[a-c]x", "bx", true}, {"[^a-c]x", "bx", false}, {"[^a-c]x", "dx", true},
		{"[]]", "]", false}, {"**a", "bba", true}, {"*a", "aab", false}, {strings.Repeat("*a", 30) + "b", strings.Repeat("a", 10000), false},
	} {
		g, _, err := Parse(tt.glob)
		if err != nil || g.Matches(tt.key) != tt.want {
			t.Errorf("%s, %q: %t, %v", tt.glob, tt.key, !tt.want, err)
		}
	}
	for _, tt := range []struct {
		open, key string
		want      bool
	}{{"[a", "a", true}, {"a[", "a", false}, {"a[bc", "ac", true}, {"a[bc", "a[bc", false}, {"[^", "x", true}, {`[\]`, "]", true}} {
		if g, _, err := Parse(tt.open); err == nil || g.Matches(tt.key) != tt.want {
			t.Errorf("%s, %q: %t, %v", tt.open, tt.key, !tt.want, err)
		}
	}
	for glob, want := range map[string]string{"lock:*": "lock:", "*": "", "[l]ock": "", `a\*b?c`: "a*b", "schloß:*": "schloß:", "plain": "plain"} {
		if _, literal, _ := Parse(glob); literal != want {
			t.Errorf("%s begins with %q, not %q", glob, literal, want)
		}
	}
}

func TestGlob_Relations(t *testing.T) {
	for _, tt := range []struct {
		first, second    string
		covers, overlaps bool
	}{
		{"lock:*", "lock:a:*", true, true}, {"lock:a:*", "lock:*", false, true}, {"lock:*", "lock:*", true, true}, {"*", "lock:[ab]?*", true, true},
		{"lock:?", "lock:[ab]", true, true}, {"lock:[a-c]", "lock:[bd]", false, true}, {"lock:[a-c]", "lock:[de]", false, false}, {"lock:?", "lock:*", false, true},
		{"*:lock", "a:lock", true, true}, {"*:lock", "a*", false, true}, {"a:*", "b:*", false, false}, {"*a*", "*xay*", true, true}, {"a", "a*", false, true}, {"ab", "a", false, false},
		{"l*", "lockproxy:*", true, true}, {"lock:*", "lockproxy:*", false, false}, {"*", "", true, true}, {"", "*", false, true},
	} {
		first, _, _ := Parse(tt.first)
		second, _, _ := Parse(tt.second)
		if got := first.Covers(second); got != tt.covers {
			t.Errorf("%q covers %q: %t", tt.first, tt.second, got)
		}
		if got := first.Overlaps(second); got != tt.overlaps || second.Overlaps(first) != got {
			t.Errorf("%q overlaps %q: %t, %t", tt.first, tt.second, got, second.Overlaps(first))
		}
	}
}

// TestGlob_RelationsHoldForKeys: what is said of two globs holds for all short keys.
func TestGlob_RelationsHoldForKeys(t *testing.T) {
	var keys []string
	for n, last := 0, []string{""}; n <= 4; n++ {
		keys = append(keys, last...)
		var next []string
		for _, k := range last {
			next = append(next, k+"a", k+"b")
		}
		last = next
	}
	parts := []string{"a", "b", "*", "?", "[ab]", "[^a]"}
	random := rand.New(rand.NewPCG(1, 2))
	make := func() (text string) {
		for range random.IntN(5) {
			text += parts[random.IntN(len(parts))]
		}
		return text
	}
	for range 3000 {
		a, b := make(), make()
		g, _, _ := Parse(a)
		h, _, _ := Parse(b)
		covers, overlaps, both := g.Covers(h), g.Overlaps(h), false
		for _, k := range keys {
			inG, inH := g.Matches(k), h.Matches(k)
			both = both || inG && inH
			if covers && inH && !inG {
				t.Fatalf("%q covers %q, but not %q", a, b, k)
			}
		}
		if both && !overlaps {
			t.Fatalf("%q and %q overlap", a, b)
		}
	}
}
