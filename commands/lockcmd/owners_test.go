package lockcmd

import (
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

func TestOwners(t *testing.T) {
	var o owners
	o.Add(locks.Grant{Key: locks.Key{Name: "a"}, Owner: "o1", Fence: 1})
	o.Add(locks.Grant{Key: locks.Key{Name: "a"}, Owner: "o2", Fence: 2})
	o.Add(locks.Grant{Key: locks.Key{DB: 3, Name: "a"}, Owner: "o3", Fence: 1})

	check := func(what string, db int, fence int64, wantOwner string, wantN int) {
		t.Helper()
		own, n := o.Find(locks.Key{DB: db, Name: "a"}, fence, false)
		if n != wantN || n == 1 && own.owner != wantOwner {
			t.Errorf("%s: %q, %d; want %q, %d", what, own.owner, n, wantOwner, wantN)
		}
	}
	check("two to choose from", 0, 0, "", 2)
	check("one by its fence", 0, 2, "o2", 1)
	check("no such fence", 0, 9, "", 0)
	check("another database", 3, 0, "o3", 1)
	check("a database without", 4, 0, "", 0)
	o.Released(locks.Key{Name: "a"}, "o1", true)
	check("that of a reader is another", 0, 0, "", 2)
	o.Released(locks.Key{Name: "a"}, "o1", false)
	check("the one still held", 0, 0, "o2", 1)
	o.Released(locks.Key{Name: "a"}, "o2", false)
	check("the one released last", 0, 0, "o2", 1)
	check("a released one by its fence", 0, 1, "o1", 1)
	o.Add(locks.Grant{Key: locks.Key{Name: "a"}, Owner: "o4", Fence: 4})
	check("a new one hides the released", 0, 1, "", 0)
	check("a new one", 0, 0, "o4", 1)
	o.Add(locks.Grant{Key: locks.Key{Name: "a", Reader: "o5"}, Owner: "o5", Fence: 4})
	check("one of a writer and one of a reader", 0, 0, "", 2)
	if own, n := o.Find(locks.Key{Name: "a"}, 0, true); n != 1 || own.owner != "o5" || !own.shared {
		t.Errorf("of the reader: %+v, %d", own, n)
	}
}

func TestOwners_Bounded(t *testing.T) {
	var o owners
	for i := range 3 * maxOwners {
		name := "n" + string(rune('a'+i%26)) + strings.Repeat("x", i/26%7) + time.Duration(i).String()
		o.Add(locks.Grant{Key: locks.Key{Name: name}, Owner: "o", Fence: int64(i + 1)})
		if i%3 == 0 {
			o.Released(locks.Key{Name: name}, "o", false)
		}
		n := 0
		for _, ls := range o.byName {
			n += len(ls)
		}
		if n != o.count || n > maxOwners {
			t.Fatalf("after %d: %d remembered, counted %d, at most %d allowed", i+1, n, o.count, maxOwners)
		}
	}
}
