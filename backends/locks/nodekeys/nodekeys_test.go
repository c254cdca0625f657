package nodekeys

import (
	"testing"

	"github.com/lockproxy/lockproxy/backends/locks"
)

func TestParse_IsTheReverseOfLock(t *testing.T) {
	seen := map[string]locks.Key{}
	for _, name := range []string{"job", ":", "1:a", "a:1", "lock:0:job", "\x00*", "11:x"} {
		for _, reader := range []string{"", "a", ":a", "job", "1", "\xff"} {
			for _, db := range []int{0, 11} {
				want := locks.Key{DB: db, Name: name, Reader: reader}
				key := Lock("p:", want)
				if k, ok := Parse("p:", key); !ok || k != want {
					t.Errorf("%q: %+v, %v, want %+v", key, k, ok, want)
				}
				if other, taken := seen[key]; taken {
					t.Errorf("%+v and %+v have the key %q", other, want, key)
				}
				seen[key] = want
			}
		}
	}
	for _, key := range []string{"", "p:", "p:lock:", "p:lock:x:a", "q:lock:0:a", "p:read:0:3:jo", "p:read:0:3:job", "p:read:0:-1:a", "p:read:0:x:a", "p:read:x:1:ab", "p:fence:0:a"} {
		if k, ok := Parse("p:", key); ok {
			t.Errorf("%q is %+v", key, k)
		}
	}
}

func TestParseRecord(t *testing.T) {
	for key, want := range map[string]string{"p:lock:0:job": "job", "p:lockr0:job": "job", "p:lockr0:r0:x": "r0:x", "p:readfence:0:3:joba": ""} {
		if k, set, ok := ParseRecord("p:", key); k.Name != want || ok != (want != "") || ok && set != (key[len("p:lock")] == 'r') {
			t.Errorf("%q: %+v, %v", key, k, ok)
		}
	}
}
