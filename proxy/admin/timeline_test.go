package admin

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/lockproxy/lockproxy/backends/locks"
)

func TestTimelines_InOrderAndTogether(t *testing.T) {
	t.Parallel()
	lines, job, at := newTimelines(), locks.Key{DB: 1, Name: "job"}, time.Now().Add(-time.Minute)
	seen := func(kind locks.EventKind, owner string, second int, fence int64) {
		lines.add(locks.Event{Kind: kind, Key: job, At: at.Add(time.Duration(second) * time.Second), Owner: owner, Client: "at " + owner, Fence: fence})
	}
	seen(locks.EventGranted, "alice", 0, 7)
	seen(locks.EventRefused, "bob", 1, 0)
	seen(locks.EventRefused, "carol", 2, 0)
	seen(locks.EventGranted, "dave", 4, 8) // it is told before the release that made room
	seen(locks.EventGiven, "alice", 3, 7)
	views, holder := lines.view(job, 8)
	var told []string
	for _, v := range views {
		told = append(told, fmt.Sprint(v.Kind, " ", v.Owner.Text, " ", v.Fence, " ", v.Times))
	}
	if got, want := strings.Join(told, "; "), "granted alice 7 1; refused carol  2; given back alice 7 1; granted dave 8 1"; got != want || holder != "at dave" {
		t.Errorf("got %s, held at %q, want %s", got, holder, want)
	}
	if _, holder := lines.view(job, 9); holder != "" {
		t.Errorf("of another grant: %q", holder)
	}
	if views, _ := lines.view(locks.Key{Name: "job"}, 8); len(views) != 0 {
		t.Errorf("of another database: %v", views)
	}
}

func TestTimelines_AreBounded(t *testing.T) {
	t.Parallel()
	lines, long := newTimelines(), strings.Repeat("o", locks.MaxOwner)
	for i := range 2 * maxTimelines {
		lines.add(locks.Event{Kind: locks.EventGranted, Key: locks.Key{Name: fmt.Sprint(i)}, Owner: long, Fence: 1})
	}
	last := locks.Key{Name: fmt.Sprint(2*maxTimelines - 1)}
	for i := range 2 * maxHappenings {
		lines.add(locks.Event{Kind: locks.EventGranted, Key: last, Owner: long, Client: long, Fence: int64(i), At: time.Now()})
	}
	lines.add(locks.Event{Kind: locks.EventGranted, Key: locks.Key{Name: strings.Repeat("n", maxTimeName+1)}})
	all := lines.of(last)
	if lines.lru.Len() != maxTimelines || len(lines.of(locks.Key{Name: "0"})) != 0 || len(all) != maxHappenings || cap(lines.of(last)) > 2*maxHappenings {
		t.Errorf("%d names, %d happenings", lines.lru.Len(), len(all))
	}
	if h := all[maxHappenings-1]; h.fence != 2*maxHappenings-1 || len(h.owner) != maxTimeText || len(h.client) != maxTimeText {
		t.Errorf("the last is %+v", h)
	}
	if most := maxTimelines * maxHappenings * (int(unsafe.Sizeof(happening{})) + 3*maxTimeText); most > 32<<20 {
		t.Errorf("it may take %d bytes", most)
	}
}
