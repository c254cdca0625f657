package peers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/metrics"
)

// A board is the lock nodes. While err is set, it is that of too few that answer, which have what there is.
type board struct {
	mu    sync.Mutex
	kept  map[locks.Notice]time.Time // until when
	err   error
	posts []locks.PostRequest
}

func (b *board) Post(ctx context.Context, r locks.PostRequest) (all []locks.Notice, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if b.kept == nil {
		b.kept = map[locks.Notice]time.Time{}
	}
	b.posts = append(b.posts, r)
	for n, until := range b.kept {
		if n.ID == r.ID && b.err == nil || !until.After(time.Now()) {
			delete(b.kept, n)
		}
	}
	if r.Text != "" {
		b.kept[r.Notice] = time.Now().Add(r.Keep)
	}
	for n := range b.kept {
		all = append(all, n)
	}
	return all, b.err
}

func (b *board) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

// ids are the proxies that are on the board.
func (b *board) ids() (ids []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for n, until := range b.kept {
		if until.After(time.Now()) {
			ids = append(ids, n.ID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// count is how many announcements there were.
func (b *board) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.posts)
}

// put is a notice that one of the nodes has.
func (b *board) put(n locks.Notice) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.kept == nil {
		b.kept = map[locks.Notice]time.Time{}
	}
	b.kept[n] = time.Now().Add(time.Hour)
}

// last is the last announcement.
func (b *board) last() locks.PostRequest {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.posts[len(b.posts)-1]
}

// start runs a proxy until stop is called.
func start(b *board, id, upstream, list string) (a *Announcer, stop func()) {
	a = New(Options{
		Board: b, ID: id, Proxy: "host-" + id, Patterns: patterns(list), Log: slog.New(slog.DiscardHandler),
		Upstream: func(context.Context) []string { return strings.Fields(upstream) },
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	a.Announce(ctx)
	running.Go(func() { a.Run(ctx) })
	return a, func() { cancel(); running.Wait() }
}

func conflict(a *Announcer, pattern int) string {
	why := (*ConflictError)(nil)
	if err := a.May(pattern); errors.As(err, &why) {
		return why.Why
	}
	return ""
}

func TestAnnouncer_RenewsAndTakesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &board{}
		a, stop := start(b, "a", "x", "lock:* on")
		if err := a.May(0); err != nil || b.count() != 1 {
			t.Fatal(err, b.count())
		}
		if p := b.last(); p.Keep != time.Minute || p.Unused {
			t.Errorf("%+v", p)
		}
		time.Sleep(10*time.Minute + time.Second)
		synctest.Wait()
		if got := b.count(); got != 31 {
			t.Errorf("%d announcements in 10 minutes", got)
		}
		stop()
		if ids := b.ids(); len(ids) != 0 {
			t.Errorf("%q are announced by a proxy that has ended", ids)
		}
	})
}

// TestAnnouncer_WithoutPatterns announces, but not at lock nodes that nobody uses, and takes the latest of what nodes have.
func TestAnnouncer_WithoutPatterns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &board{}
		for i, list := range []string{"", "lock:* on", ""} {
			text := Record{Format: Format, Sequence: []int64{3, 5, 4}[i], Upstream: []string{"x"}, Patterns: patterns(list)}.Text()
			b.put(locks.Notice{ID: "b", Text: text})
		}
		a, stop := start(b, "a", "x", "")
		if p := b.last(); !p.Unused || p.Text == "" {
			t.Errorf("%+v", p)
		}
		if all := a.Peers(); len(all) != 1 || all[0].Sequence != 5 || !all[0].Conflicts() {
			t.Errorf("%+v", all)
		}
		b.fail(locks.ErrUnused)
		time.Sleep(every)
		synctest.Wait()
		if got := (metrics.Registry{a}).Sample("lockproxy_adopt_announcements_lost_total").Value; got != 0 || b.count() != 2 {
			t.Errorf("%v lost of %d, while the nodes are unused", got, b.count())
		}
		stop()
	})
}

func TestAnnouncer_StopsAndGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &board{}
		a, stop := start(b, "a", "x", "other on, lock:* on")
		defer stop()
		_, end := start(b, "b", "x", "other on")
		time.Sleep(every)
		synctest.Wait()
		if got := conflict(a, 1); got != `proxy host-b (b): for a key like "lock:" it has no pattern for it, so it is off; here there is "lock:* mode=on"` {
			t.Errorf("beside a proxy without the pattern: %q", got)
		}
		if err := a.May(0); err != nil {
			t.Errorf("the pattern that both have: %v", err)
		}
		end()
		time.Sleep(soon)
		synctest.Wait()
		if err := a.May(1); err != nil {
			t.Errorf("a second after the other's end: %v", err)
		}
	})
}

// TestAnnouncer_KilledPeer counts for a minute.
func TestAnnouncer_KilledPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &board{}
		killed := New(Options{Board: b, ID: "b", Log: slog.New(slog.DiscardHandler), Upstream: func(context.Context) []string { return []string{"x"} }})
		killed.Announce(t.Context())
		a, stop := start(b, "a", "x", "lock:* on")
		defer stop()
		time.Sleep(lives - time.Second)
		if conflict(a, 0) == "" {
			t.Error("nothing is known of it any more")
		}
		time.Sleep(2 * soon)
		synctest.Wait()
		if err := a.May(0); err != nil {
			t.Errorf("more than a minute later: %v", err)
		}
	})
}

func TestAnnouncer_NoMajority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &board{err: &locks.QuorumError{Nodes: 3, Need: 2, Got: 1}}
		a, stop := start(b, "a", "x", "lock:* on, z off")
		defer stop()
		q := (*locks.QuorumError)(nil)
		if !errors.As(a.May(0), &q) || a.May(1) != nil {
			t.Errorf("before a majority was heard: %v, %v", a.May(0), a.May(1))
		}
		b.fail(nil)
		time.Sleep(soon)
		synctest.Wait()
		if err := a.May(0); err != nil {
			t.Errorf("after: %v", err)
		}
		b.fail(q)
		time.Sleep(10 * every)
		synctest.Wait()
		if err := a.May(0); err != nil {
			t.Errorf("it had a majority before: %v", err)
		}
		other := New(Options{Board: b, ID: "b", Log: slog.New(slog.DiscardHandler), Upstream: func(context.Context) []string { return []string{"x"} }})
		other.Announce(t.Context())
		time.Sleep(soon)
		synctest.Wait()
		if conflict(a, 0) == "" {
			t.Error("what a minority tells of a proxy does not count")
		}
		time.Sleep(2 * lives)
		if conflict(a, 0) == "" {
			t.Error("that a minority tells nothing of it any more counts")
		}
		b.fail(nil)
		time.Sleep(soon)
		synctest.Wait()
		if err := a.May(0); err != nil {
			t.Errorf("a majority tells nothing of it any more: %v", err)
		}
	})
}

func TestAnnouncer_NoAnswer(t *testing.T) {
	a := New(Options{Board: &board{err: locks.ErrClosed}, Upstream: func(context.Context) []string { return nil }, Patterns: patterns("a on, b off")})
	for range 2 {
		if conflict(a, 0) == "" || a.May(1) != nil {
			t.Errorf("%v, %v", a.May(0), a.May(1))
		}
		a.Announce(t.Context())
	}
}

func TestAnnouncer_Upstreams(t *testing.T) {
	tests := []struct {
		name, ours, theirs string
		want               bool
	}{
		{"one", "x", "x", true},
		{"different ones", "x", "y", false},
		{"a failover that one has not seen", "x", "y x", true},
		{"ours is not known", "", "y", true},
		{"theirs is not known", "x", "", true},
		{"a Cluster that has lost a master", "x y", "y z", true},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			b := &board{}
			_, end := start(b, "b", tt.theirs, "")
			defer end()
			a, stop := start(b, "a", tt.ours, "lock:* on")
			defer stop()
			if got := conflict(a, 0); (got != "") != tt.want || strings.Contains(got, "not known") != (tt.ours == "" || tt.theirs == "") {
				t.Errorf("%s: %q", tt.name, got)
			}
		})
	}
}

// TestAnnouncer_Failover: a former id is told for a minute, since others may still know the upstream by it.
func TestAnnouncer_Failover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &board{}
		id := "x"
		a := New(Options{Board: b, ID: "a", Upstream: func(context.Context) []string { return strings.Fields(id) }})
		told := func() string {
			a.Announce(t.Context())
			r, err := Parse(b.last().Text)
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Sprint(r.Upstream)
		}
		for _, step := range []struct{ is, want string }{{"x", "[x]"}, {"y", "[x y]"}, {"y", "[x y]"}, {"", "[x y]"}, {"y", "[y]"}, {"", "[y]"}, {"", "[y]"}, {"", "[y]"}, {"", "[y]"}} {
			id = step.is
			if got := told(); got != step.want {
				t.Errorf("the upstream is %q: %s, want %s", step.is, got, step.want)
			}
			time.Sleep(every)
		}
	})
}

func TestAnnouncer_LogsAndCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		b := &board{}
		_, end := start(b, "b", "x", "lock:* off, d on")
		_, _ = b.Post(t.Context(), locks.PostRequest{Notice: locks.Notice{ID: "c", Text: `{"format":9}`}, Keep: time.Hour})
		_, elsewhere := start(b, "d", "y", "")
		defer elsewhere()
		own := patterns("lock:* on, d on")
		own[1].As = "strict"
		a := New(Options{Board: b, ID: "a", Patterns: own, Log: slog.New(slog.NewTextHandler(&log, nil)), Upstream: func(context.Context) []string { return []string{"x"} }})
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		a.Announce(ctx)
		running.Go(func() { a.Run(ctx) })
		time.Sleep(2*every + soon/2)
		synctest.Wait()
		count := func(what string) int { return strings.Count(log.String(), what) }
		if count("level=ERROR msg=\"adoption conflict") != 3 || count("level=WARN") != 1 || count("format 9") != 3 {
			t.Errorf("logged in 40 s:\n%s", log.String())
		}
		for name, want := range map[string]float64{"peers": 2, "conflicts": 2, "patterns_stopped": 2, "announcements_lost_total": 0} {
			if got := (metrics.Registry{a}).Sample("lockproxy_adopt_" + name).Value; got != want {
				t.Errorf("%s: %v, want %v", name, got, want)
			}
		}
		b.mu.Lock()
		clear(b.kept)
		b.mu.Unlock()
		end()
		time.Sleep(2 * soon)
		stop()
		running.Wait()
		if count("is over") != 1 || count("level=ERROR") != 3 {
			t.Errorf("logged afterwards:\n%s", log.String())
		}
	})
}

func TestJudge(t *testing.T) {
	notice := func(id, upstream, list string) locks.Notice {
		return locks.Notice{ID: id, Text: Record{Format: Format, Proxy: "host", Upstream: strings.Fields(upstream), Patterns: patterns(list)}.Text()}
	}
	all := []locks.Notice{notice("a", "x", "l on"), notice("b", "x", ""), notice("c", "y", "")}
	if got := Judge(nil, all); len(got) != 1 || !strings.HasPrefix(got[0], "proxy host (b) and proxy host (a) (here): ") {
		t.Errorf("%q", got)
	}
	ours := &Record{Format: Format, Upstream: []string{"x"}, Patterns: patterns("l on")}
	if got := Judge(ours, all[1:]); len(got) != 1 || !strings.HasPrefix(got[0], "proxy host (b) and these settings (here): ") {
		t.Errorf("%q", got)
	}
	if got := Judge(ours, all[:1]); len(got) != 0 {
		t.Errorf("%q", got)
	}
}

// TestAnnouncer_AnyOn: a proxy that is on is known as soon as a majority has been told, long before it is heard of.
func TestAnnouncer_AnyOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &board{}
		a, stop := start(b, "a", "x", "lock:* both")
		defer stop()
		on := func(key string) bool {
			t.Helper()
			any, err := a.AnyOn(t.Context(), 0, key)
			if err != nil {
				t.Error(err)
			}
			return any
		}
		_, endBoth := start(b, "b", "x", "lock:* both")
		defer endBoth()
		_, endElsewhere := start(b, "c", "y", "lock:* on")
		defer endElsewhere()
		if on("lock:a") {
			t.Error("no other proxy of this upstream is on")
		}
		_, end := start(b, "d", "x", "lock:b both, lock:* on")
		for key, want := range map[string]bool{"lock:a": true, "lock:b": false, "other": false} {
			if on(key) != want {
				t.Errorf("%s: on is %v", key, !want)
			}
		}
		time.Sleep(every)
		synctest.Wait()
		b.fail(&locks.QuorumError{Nodes: 3, Need: 2, Got: 1})
		if !on("lock:a") {
			t.Error("what was heard is forgotten")
		}
		if _, err := a.AnyOn(t.Context(), 0, "lock:b"); err == nil {
			t.Error("no majority was asked")
		}
		b.fail(nil)
		end()
		time.Sleep(every)
		synctest.Wait()
		if on("lock:a") {
			t.Error("it has ended")
		}
		b.put(locks.Notice{ID: "e", Text: "?"})
		if !on("lock:a") {
			t.Error("what a proxy announces that cannot be read may be anything")
		}
		if any, _ := New(Options{Board: b}).AnyOn(t.Context(), 0, "lock:a"); !any {
			t.Error("nothing was heard yet")
		}
		if ids := strings.Join(b.ids(), " "); ids != "a b c e" {
			t.Errorf("on the board: %s", ids)
		}
	})
}
