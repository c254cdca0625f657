package table

import (
	"strings"
	"testing"
)

// A row that could not be found under its own name is refused.
func TestTable_RefusesWhatItCouldNotFind(t *testing.T) {
	for _, bad := range []*Row[int]{{Name: "get"}, {Name: "object|help"}, {Name: "nosuch|help"}, {Name: strings.Repeat("a", longestName+1)}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s is taken", bad.Name)
				}
			}()
			New(append(Plain[int](), bad))
		}()
	}
}

// A container is ordinary if all of its subcommands are.
func TestRow_IsOrdinary(t *testing.T) {
	rows := Plain[int]()
	for _, r := range rows {
		if r.Name == "pubsub|numsub" {
			r.Do = 1
		}
	}
	all := New(rows)
	for name, want := range map[string]bool{"get": true, "eval": false, "command": false, "slowlog": true, "pubsub": false, "script": false} {
		if got := all.Lookup([][]byte{[]byte(name)}).IsOrdinary(func(h *int) bool { return *h != 0 }); got != want {
			t.Errorf("%s: ordinary %t, want %t", name, got, want)
		}
	}
}
