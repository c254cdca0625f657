package quorum

import (
	"slices"
	"testing"

	"github.com/lockproxy/lockproxy/backends/locks"
)

func TestInflightLocks(t *testing.T) {
	t.Parallel()
	var u inflightLocks
	h, other := locks.Holder{Key: locks.Key{DB: 0, Name: "job"}, Owner: "alice"}, locks.Holder{Key: locks.Key{DB: 0, Name: "job"}, Owner: "bob"}
	u.begin(h, "over")
	u.end(h, "over")
	u.begin(h, "before")
	u.begin(other, "another's")
	holds, end := u.startRenewal(h)
	u.end(h, "before")
	u.begin(h, "after")
	u.end(h, "after")
	u.end(h, "after")
	u.begin(h, "still")
	got := holds()
	slices.Sort(got)
	if !slices.Equal(got, []string{"after", "before", "still"}) {
		t.Errorf("under way: %q", got)
	}
	end()
	u.end(h, "still")
	u.end(other, "another's")
	if len(u.owners) != 0 {
		t.Errorf("kept: %v", u.owners)
	}
}
