package adopt

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/commands/adopt/pattern"
	"github.com/lockproxy/lockproxy/commands/adopt/peers"
)

func TestPattern_Announced(t *testing.T) {
	for text, want := range map[string]peers.Pattern{
		"lock:*":                  {Glob: "lock:*", DB: -1, Mode: "on", As: "usual", NoExpiry: "keep", Guard: true},
		"lock:* no-expiry=refuse": {Glob: "lock:*", DB: -1, Mode: "on", As: "usual", NoExpiry: "refuse", Guard: true},
		`a\x20b db=3 mode=observe as=strict no-expiry=lease:10s guard=no`: {Glob: "a b", DB: 3, Mode: "observe", As: "strict", NoExpiry: "lease:10s"},
	} {
		p, err := pattern.Parse(text)
		if err != nil || p.Announced() != want {
			t.Errorf("%s: %+v, %v, want %+v", text, p.Announced(), err, want)
		}
	}
}

// TestPattern_AnnouncedMatches: what is compared with other proxies are the keys that are adopted: a pattern matches a key
// if a proxy that has nothing but that key has nothing beside the pattern.
func TestPattern_AnnouncedMatches(t *testing.T) {
	chance := rand.New(rand.NewPCG(1, 2))
	word := func(letters string, most int) string {
		var b strings.Builder
		for range chance.IntN(most) {
			b.WriteByte(letters[chance.IntN(len(letters))])
		}
		return b.String()
	}
	matched, tried := 0, 0
	for range 20_000 {
		p, err := pattern.Parse(word(`aabb*?[]^-\`, 8))
		if err != nil {
			continue
		}
		key := word("aab^-]\\", 6)
		var escaped strings.Builder
		for i := range len(key) {
			escaped.WriteString(`\` + key[i:i+1])
		}
		alone := []peers.Pattern{{Glob: escaped.String(), DB: -1, Mode: peers.On}}
		beside := false
		for _, c := range peers.Compare([]peers.Pattern{p.Announced()}, alone) {
			beside = beside || c.Ours < 0
		}
		tried++
		if p.Matches(0, key) {
			matched++
		}
		if p.Matches(0, key) == beside {
			t.Fatalf("%q and %q: adopted %v, compared as if it were %v", p.Glob, key, !beside, beside)
		}
	}
	if matched < 100 || tried-matched < 100 {
		t.Errorf("%d of %d matched", matched, tried)
	}
}
