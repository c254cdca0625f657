package locks

import "testing"

func TestShownOwner(t *testing.T) {
	for _, value := range []string{"", "1", "me", AdoptedPrefix + "s", "\x00\xff"} {
		a, b := NewAdoptedString(&RandSource{}, value), NewAdoptedString(&RandSource{}, value)
		if a == b {
			t.Errorf("%q: two grants have one owner", value)
		}
		if shown, kind := ShownOwner(a); shown != value || kind != AdoptedString {
			t.Errorf("%q as a string: %q, %s", value, shown, kind)
		}
		c, d := NewAdoptedSorted(&RandSource{}, value), NewAdoptedSorted(&RandSource{}, value)
		if shown, kind := ShownOwner(c); c == d || shown != value || kind != AdoptedSorted {
			t.Errorf("%q as a token: %q, %s, and %q", value, shown, kind, d)
		}
		if shown, kind := ShownOwner(NewAdoptedHash(value)); shown != value || kind != AdoptedHash {
			t.Errorf("%q as a hash: %q, %s", value, shown, kind)
		}
	}
	for _, owner := range []string{"", "me", "\x00lp", AdoptedPrefix, AdoptedPrefix + "sshort", AdoptedPrefix + "zshort", AdoptedPrefix + "x0123456789abcdefme"} {
		if shown, kind := ShownOwner(owner); shown != owner || kind != "" {
			t.Errorf("%q of LOCK: %q, %s", owner, shown, kind)
		}
	}
}
