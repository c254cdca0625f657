package inflight

import (
	"slices"
	"testing"

	"github.com/lockproxy/lockproxy/backends/locks"
)

func TestLocks(t *testing.T) {
	t.Parallel()
	var u Locks
	h, other := locks.Holder{Key: locks.Key{DB: 0, Name: "job"}, Owner: "alice"}, locks.Holder{Key: locks.Key{DB: 0, Name: "job"}, Owner: "bob"}
	u.Begin(h, "over")
	u.End(h, "over")
	u.Begin(h, "before")
	u.Begin(other, "another's")
	holds, end := u.StartRenewal(h)
	u.End(h, "before")
	u.Begin(h, "after")
	u.End(h, "after")
	u.End(h, "after")
	u.Begin(h, "still")
	got := holds()
	slices.Sort(got)
	if !slices.Equal(got, []string{"after", "before", "still"}) {
		t.Errorf("under way: %q", got)
	}
	end()
	u.End(h, "still")
	u.End(other, "another's")
	if len(u.owners) != 0 {
		t.Errorf("kept: %v", u.owners)
	}
}
