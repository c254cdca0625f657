package quorum

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/backends/metrics"
	"github.com/lockproxy/lockproxy/integration/redistest"
)

// TestGrantCache_Extension: only the renewal that was sent last makes the cached validity longer, and none that the
// owner did not ask for makes it shorter.
func TestGrantCache_Extension(t *testing.T) {
	t.Parallel()
	m, err := newGrantCache(10, func() time.Duration { return 0 }, new(metrics.Histogram))
	if err != nil {
		t.Fatal(err)
	}
	h, first := locks.Holder{Key: locks.Key{DB: 0, Name: "job"}, Owner: "alice"}, vote.Version{Epoch: "first"}
	m.addHold(h, grant{fence: 7, version: first}, hold{"first", 30 * time.Second}, 0, 1, 0)
	grown := func(until time.Duration, before func(), want time.Duration) {
		t.Helper()
		g, ok := m.beginExtension(h, 7, []string{"first"}, time.Second)
		if !ok {
			t.Fatal("nothing is remembered")
		}
		before()
		if got := m.endExtension(h, g, until); got != want {
			t.Errorf("validity until %v, want %v", got, want)
		}
	}
	grown(20*time.Second, func() {}, 30*time.Second)
	grown(40*time.Second, func() {}, 40*time.Second)
	grown(50*time.Second, func() { m.beginRenewal(h, &locks.RenewRequest{}, time.Second, 5*time.Second) }, 5*time.Second)
	for _, now := range []time.Duration{5 * time.Second, time.Minute} {
		if _, ok := m.beginExtension(h, 7, []string{"first"}, now); ok {
			t.Errorf("grows after its end, at %v", now)
		}
	}
	if _, ok := m.beginExtension(h, 8, []string{"first"}, 0); ok {
		t.Error("another grant grows")
	}
}

// TestGrantCache_ReplaceKeepsLaterChanges: a grant that was read does not overwrite what has changed since.
func TestGrantCache_ReplaceKeepsLaterChanges(t *testing.T) {
	t.Parallel()
	h, first := locks.Holder{Key: locks.Key{DB: 0, Name: "job"}, Owner: "alice"}, vote.Version{Epoch: "first"}
	tests := []struct {
		what  string
		after func(m *grantCache)
		want  string
		grows bool // without being read again
	}{
		{"nothing", func(*grantCache) {}, "read", true},
		{"a hold came", func(m *grantCache) {
			m.addHold(h, grant{fence: 7, version: first}, hold{"new", 30 * time.Second}, 0, 2, 0)
		}, "old new", false},
		{"the hold went", func(m *grantCache) { m.drop(h, "old") }, "", false},
		{"it was renewed", func(m *grantCache) { m.beginRenewal(h, &locks.RenewRequest{Fence: 7}, 0, time.Minute) }, "old", false},
		{"it was forgotten", func(m *grantCache) { m.forgetGrant(h, 7) }, "", false},
		{"there is a later grant", func(m *grantCache) {
			m.addHold(h, grant{fence: 8, version: first}, hold{"later", 30 * time.Second}, 0, 1, 0)
		}, "later", false},
	}
	for _, tt := range tests {
		m, err := newGrantCache(10, func() time.Duration { return 0 }, new(metrics.Histogram))
		if err != nil {
			t.Fatal(err)
		}
		m.addHold(h, grant{fence: 7, version: first}, hold{"old", 30 * time.Second}, 0, 1, 0)
		before := m.lookup(h)
		tt.after(m)
		m.replace(h, before, grant{fence: 7, holds: []hold{{"read", time.Minute}}})
		if got := strings.Join(holdIDs(m.lookup(h).holds), " "); got != tt.want {
			t.Errorf("%s: holds %q, want %q", tt.what, got, tt.want)
		}
		if _, ok := m.beginExtension(h, 7, strings.Fields(tt.want), 0); ok != tt.grows {
			t.Errorf("%s: grows %v", tt.what, ok)
		}
	}
}

// TestGrantCache_RestoreWhatWasRead: a hold that is restored, and was read meanwhile, is in the cache once.
func TestGrantCache_RestoreWhatWasRead(t *testing.T) {
	t.Parallel()
	h, first := locks.Holder{Key: locks.Key{DB: 0, Name: "job"}, Owner: "alice"}, vote.Version{Epoch: "first"}
	m, err := newGrantCache(10, func() time.Duration { return 0 }, new(metrics.Histogram))
	if err != nil {
		t.Fatal(err)
	}
	m.addHold(h, grant{fence: 7, version: first}, hold{"old", 30 * time.Second}, 0, 1, 0)
	g, holds, _, ok := m.pop(h, &locks.UnlockRequest{}, 0)
	if !ok {
		t.Fatal("nothing is remembered")
	}
	m.replace(h, m.lookup(h), grant{fence: 7, holds: []hold{{"old", time.Minute}}})
	m.restore(h, g, holds)
	if got := m.lookup(h).holds; len(got) != 1 {
		t.Errorf("holds %v", got)
	}
}

// TestGrantCache_AddHoldThatWasRead: a RENEW read the hold before its LOCK was decided. It is there once, ends when
// that RENEW lets it end, and the LOCK tells no later end.
func TestGrantCache_AddHoldThatWasRead(t *testing.T) {
	t.Parallel()
	for _, renewed := range []time.Duration{5 * time.Second, time.Minute} {
		h, first := locks.Holder{Key: locks.Key{DB: 0, Name: "job"}, Owner: "alice"}, vote.Version{Epoch: "first"}
		m, err := newGrantCache(10, func() time.Duration { return 0 }, new(metrics.Histogram))
		if err != nil {
			t.Fatal(err)
		}
		m.addHold(h, grant{fence: 7, version: first}, hold{"old", 30 * time.Second}, 0, 1, 0)
		m.replace(h, m.lookup(h), grant{fence: 7, holds: []hold{{"old", renewed}, {"new", renewed}}})
		holds, until := m.addHold(h, grant{fence: 7, version: first}, hold{"new", 30 * time.Second}, 0, 2, 0)
		if want := min(renewed, 30*time.Second); holds != 2 || until != want {
			t.Errorf("renewed for %v: the LOCK tells %d holds until %v, want 2 until %v", renewed, holds, until, want)
		}
		if got := m.lookup(h).holds; !slices.Equal(got, []hold{{"old", renewed}, {"new", renewed}}) {
			t.Errorf("renewed for %v: holds %v", renewed, got)
		}
	}
}

func TestGrantCache_LateRenewals(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 1)
	n := redistest.Open(t, nodes[0].Addr())
	g := lock(t, s, "job", "alice", 10*time.Second)
	late := renewal(s, g, 100*time.Millisecond, vote.Version{Epoch: g.Hold, Sequence: 1}, "1")
	pttl := func() int64 { return n.Do(t, "PTTL", s.RedisKeys(locks.Key{DB: 0, Name: "job"}).Lock).Int() }
	for range 2 {
		if _, err := s.Renew(t.Context(), locks.RenewRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: 20 * time.Second}); err != nil {
			t.Fatal(err)
		}
	}

	if v := n.Do(t, late...); v.Elems[0].Int() != 3 || pttl() < 15000 {
		t.Errorf("a renewal that was overtaken: %v, %d ms left", v, pttl())
	}
	same := renewal(s, g, 100*time.Millisecond, vote.Version{Epoch: g.Hold, Sequence: 2}, "1")
	if v := n.Do(t, same...); v.Elems[0].Int() != 1 || pttl() < 15000 {
		t.Errorf("a renewal that comes twice: %v, %d ms left", v, pttl())
	}
	other := renewal(s, g, 100*time.Millisecond, vote.Version{Epoch: "another proxy's", Sequence: 9}, "1")
	if v := n.Do(t, other...); v.Elems[0].Int() != 3 || pttl() < 15000 {
		t.Errorf("a renewal of another epoch: %v, %d ms left", v, pttl())
	}
	fenced := g
	fenced.Fence--
	if v := n.Do(t, renewal(s, fenced, 100*time.Millisecond, vote.Version{Epoch: g.Hold, Sequence: 9}, "1")...); v.Elems[0].Int() != 0 || pttl() < 15000 {
		t.Errorf("a renewal of another grant: %v, %d ms left", v, pttl())
	}
	lock(t, s, "job", "alice", 30*time.Second)
	overtaken := renewal(s, g, 100*time.Millisecond, vote.Version{Epoch: g.Hold, Sequence: 3}, "1")
	if v := n.Do(t, overtaken...); pttl() < 25000 {
		t.Errorf("a renewal sent before a re-entry: %v, %d ms left", v, pttl())
	}
	unlock(t, s, "job", "alice", 1)
	unlock(t, s, "job", "alice", 0)
	last := renewal(s, g, 10*time.Second, vote.Version{Epoch: g.Hold, Sequence: 99}, "1")
	if v := n.Do(t, last...); v.Elems[0].Int() != 0 || pttl() != -2 {
		t.Errorf("a renewal after the release: %v, %d ms left", v, pttl())
	}
}

// TestGrantCache_Oldest: the grant that was made first and still runs, whoever renews or enters it.
func TestGrantCache_Oldest(t *testing.T) {
	t.Parallel()
	now := time.Second
	m, err := newGrantCache(10, func() time.Duration { return now }, new(metrics.Histogram))
	if err != nil {
		t.Fatal(err)
	}
	first := vote.Version{Epoch: "first"}
	take := func(owner, id string, until time.Duration) {
		m.addHold(locks.Holder{Key: locks.Key{DB: 0, Name: "job"}, Owner: owner}, grant{fence: 7, version: first}, hold{id, until}, 0, 1, 0)
	}
	for _, step := range []struct {
		at   time.Duration
		do   func()
		want time.Duration
	}{
		{1 * time.Second, func() {}, 0},
		{1 * time.Second, func() { take("crashed", "a", 4*time.Second) }, 0},
		{3 * time.Second, func() { take("crashed", "b", 20*time.Second); take("bob", "c", 40*time.Second) }, 2 * time.Second},
		{10 * time.Second, func() {}, 9 * time.Second},
		{20 * time.Second, func() {}, 17 * time.Second}, // the crashed one's last hold has ended
		{21 * time.Second, func() {
			m.pop(locks.Holder{Key: locks.Key{DB: 0, Name: "job"}, Owner: "bob"}, &locks.UnlockRequest{All: true}, now)
		}, 0},
	} {
		now = step.at
		step.do()
		if got := m.oldest(); got != step.want {
			t.Errorf("at %v: %v, want %v", step.at, got, step.want)
		}
	}
}

// TestGrantCache_ShorteningCountsWhenSent: a shorter end counts when the renewal is sent, not only when it succeeds,
// since some node may apply it.
func TestGrantCache_ShorteningCountsWhenSent(t *testing.T) {
	t.Parallel()
	m, err := newGrantCache(10, func() time.Duration { return 0 }, new(metrics.Histogram))
	if err != nil {
		t.Fatal(err)
	}
	h := locks.Holder{Key: locks.Key{DB: 0, Name: "job"}, Owner: "alice"}
	first := vote.Version{Epoch: "first"}
	m.addHold(h, grant{fence: 7, version: first}, hold{"first", 30 * time.Second}, 0, 1, 0)
	tests := []struct {
		now, until   time.Duration
		shortens, ok bool
		left         time.Duration
	}{
		{1 * time.Second, 40 * time.Second, false, true, 30 * time.Second}, // longer only once it succeeds
		{2 * time.Second, 5 * time.Second, true, true, 5 * time.Second},
		{3 * time.Second, 20 * time.Second, false, true, 5 * time.Second},
		{5 * time.Second, 20 * time.Second, false, false, 0}, // nothing known runs any more
	}
	for i, tt := range tests {
		g, change, ok := m.beginRenewal(h, &locks.RenewRequest{}, tt.now, tt.until)
		if (change == shortens) != tt.shortens || ok != tt.ok || g.until() != tt.left {
			t.Errorf("renewal %d: until %v, shortens %v, %v", i, g.until(), change, ok)
		}
	}
}

// TestGrantCache_OldestAgain: it is the first of all that run also after it was found once and is over, whether it
// was given back, is read anew, or was replaced.
func TestGrantCache_OldestAgain(t *testing.T) {
	t.Parallel()
	now := time.Second
	m, err := newGrantCache(1000, func() time.Duration { return now }, new(metrics.Histogram))
	if err != nil {
		t.Fatal(err)
	}
	holderOf := func(i int) locks.Holder { return locks.Holder{Key: locks.Key{Name: strconv.Itoa(i)}, Owner: "alice"} }
	for i := range 900 { // the i-th at second i + 1
		m.addHold(holderOf(i), grant{fence: 7, version: vote.Version{Epoch: "e"}}, hold{"h", time.Hour}, 0, 1, 0)
		now += time.Second
	}
	for i, over := range []func(h locks.Holder){
		func(h locks.Holder) { m.pop(h, &locks.UnlockRequest{Fence: 7, All: true}, now) },
		func(h locks.Holder) { m.drop(h, "h") },
		func(h locks.Holder) { m.forgetGrant(h, 7) },
		func(h locks.Holder) { m.capEnds(h, 7, now) },
		func(h locks.Holder) {
			m.addHold(h, grant{fence: 8, version: vote.Version{Epoch: "f"}}, hold{"i", time.Hour}, 0, 1, 0)
		},
		func(h locks.Holder) {
			before := m.lookup(h)
			m.replace(h, before, before) // it runs on
			m.pop(h, &locks.UnlockRequest{Fence: 7, All: true}, now)
		},
	} {
		if got, want := m.oldest(), now-time.Duration(i+1)*time.Second; got != want {
			t.Errorf("before end %d: %v, want %v", i, got, want)
		}
		over(holderOf(i))
	}
	if got, want := m.oldest(), now-7*time.Second; got != want {
		t.Errorf("in the end: %v, want %v", got, want)
	}
	for i := range 900 {
		m.pop(holderOf(i), &locks.UnlockRequest{All: true}, now)
	}
	if got := m.oldest(); got != 0 {
		t.Errorf("with none left: %v", got)
	}
}
