package adopt

import (
	"math/rand/v2"
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
	} {
		g, _, err := parseGlob(tt.glob)
		if err != nil || g.matches(tt.key) != tt.want {
			t.Errorf("%s, %q: %t, %v", tt.glob, tt.key, !tt.want, err)
		}
	}
	for _, bad := range []string{"a[", "[^", `[\]`} {
		if _, _, err := parseGlob(bad); err == nil {
			t.Errorf("%s is no fault", bad)
		}
	}
	for glob, want := range map[string]string{"lock:*": "lock:", "*": "", "[l]ock": "", `a\*b?c`: "a*b", "schloß:*": "schloß:", "plain": "plain"} {
		if _, literal, _ := parseGlob(glob); literal != want {
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
		first, _, _ := parseGlob(tt.first)
		second, _, _ := parseGlob(tt.second)
		if got := first.covers(second); got != tt.covers {
			t.Errorf("%q covers %q: %t", tt.first, tt.second, got)
		}
		if got := first.overlaps(second); got != tt.overlaps || second.overlaps(first) != got {
			t.Errorf("%q overlaps %q: %t, %t", tt.first, tt.second, got, second.overlaps(first))
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
		g, _, _ := parseGlob(a)
		h, _, _ := parseGlob(b)
		covers, overlaps, both := g.covers(h), g.overlaps(h), false
		for _, k := range keys {
			inG, inH := g.matches(k), h.matches(k)
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

func BenchmarkPattern(b *testing.B) {
	for _, glob := range []string{"lock:*", "lock:*:user:?*"} {
		b.Run(glob, func(b *testing.B) {
			p, err := ParsePattern(glob)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if !p.matches(0, "lock:eu-west:user:4711") {
					b.Fatal("no match")
				}
			}
		})
	}
}

// TestPatterns_FirstCounts: a pattern that is not on keeps its keys out of those behind it.
func TestPatterns_FirstCounts(t *testing.T) {
	p := proxies(t, 1, "lock:public:* mode=off", "lock:seen:* mode=observe", "lock:db:* db=7 mode=off", "lock:*")[0]
	for key, want := range map[string]string{"lock:a": "$-1", "lock:public:a": "no lock", "lock:seen:a": "no lock", "lock:db:a": "$-1"} {
		if got := p.do("GET", key); got != want {
			t.Errorf("%s: %s, not %s", key, got, want)
		}
	}
}
