package etcd

import (
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"etcd://a":                         "a:2379|false|||lockproxy",
		"etcd://a,b:1,c/":                  "a:2379 b:1 c:2379|false|||lockproxy",
		"etcds://me:p%40ss@a:1,[::1]/x/y/": "a:1 [::1]:2379|true|me|p@ss|x/y",
		"etcd://me:@a:1/x":                 "a:1|false|me||x",
	} {
		got, err := Parse(text)
		secure := map[bool]string{true: "true", false: "false"}[got.Secure]
		if s := strings.Join([]string{got.String(), secure, got.User, got.Password, got.Prefix}, "|"); err != nil || s != want {
			t.Errorf("%s: %s, %v, want %s", text, s, err, want)
		}
	}
	for _, text := range []string{
		"", "http://a", "etcd://", "etcd://a,a", "etcd://a:x", "etcd://a,", "etcd://secret@a", "etcd://me:sec%ret@a", "etcd://a?secret", "etcd://a/se cret",
		"etcd://secret:secret", "etcd://a/" + strings.Repeat("x", 101), "etcd://1,2,3,4,5,6,7,8,9,10",
	} {
		if _, err := Parse(text); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestLockKeys(t *testing.T) {
	t.Parallel()
	k := keys{"p"}
	for _, at := range []locks.Key{{Name: "a"}, {DB: 12, Name: "a:b/c\x00\xff"}, {DB: -1, Name: ":"}} {
		reading := locks.Holder{Key: at, Owner: "r/\x00"}.Reading().Key
		for kind, key := range map[byte][]byte{isName: k.lock(at), isReader: k.lock(reading), isIntent: k.intent(at)} {
			if got, is, ok := k.parseLock(key); !ok || got != at || is != kind {
				t.Errorf("%q is read as %+v, %c, %t", key, got, is, ok)
			}
		}
		if prefix := k.readers(at); !strings.HasPrefix(string(k.lock(reading)), prefix) || strings.HasPrefix(string(k.lock(at)), prefix) || strings.HasPrefix(k.readers(locks.Key{DB: at.DB, Name: at.Name + "/"}), prefix) {
			t.Errorf("%q is not what readers of %+v have, and nobody else", prefix, at)
		}
	}
	for _, text := range []string{"", "p/lock/", "p/lock/0123456789abcdef", "p/lock/0123456789abcdef/0", "p/lock/0123456789abcdef/0:", "p/lock/0123456789abcdef/x:a", "p/lock/0123456789abcdef+0:5:a/x", "p/lock/0123456789abcdef+0:a", "p/lock/0123456789abcdef.0:a", "q/lock/0123456789abcdef/0:a"} {
		if _, _, ok := k.parseLock([]byte(text)); ok {
			t.Errorf("%q is read as a name", text)
		}
	}
	if tagOf(locks.Holder{Key: locks.Key{Name: "a"}, Owner: "bc"}, "d") == tagOf(locks.Holder{Key: locks.Key{Name: "ab"}, Owner: "c"}, "d") {
		t.Error("two requests are one")
	}
}

// TestLeasesOutlastHolds: a lease lasts longer than what it is for, by the clock of whoever grants it, and there are few.
func TestLeasesOutlastHolds(t *testing.T) {
	t.Parallel()
	kinds := map[int64]bool{}
	for need := 100 * time.Millisecond; need < 24*time.Hour; need += need/50 + time.Millisecond {
		k := kindOf(need)
		kinds[k] = true
		if got := time.Duration(k) * time.Second; got < need+locks.Drift(need) || got > need+need/16+3*time.Second {
			t.Errorf("%v is under a lease of %v", need, got)
		}
	}
	if len(kinds) > 64*12 {
		t.Errorf("%d kinds", len(kinds))
	}
}
