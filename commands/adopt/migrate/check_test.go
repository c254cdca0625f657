package migrate

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/commands/adopt/pattern"
	"github.com/lockproxy/lockproxy/commands/adopt/peers"
)

var errNodes = errors.New("NOQUORUM")

// A place is an upstream and nodes: the value of each key there, and behind an @ for how long; it has no end if that is missing.
type place struct {
	mu              sync.Mutex
	upstream, nodes map[string]string
	changed         chan string
	fails           bool // the nodes do not answer
}

func (f *place) Keys(context.Context, int, string, int) (keys []string, complete bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for k := range f.upstream {
		keys = append(keys, k)
	}
	return keys, true, nil
}

func (f *place) Values(_ context.Context, _ int, key string) (values []string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if v, there := f.upstream[key]; there {
		v, _, _ = strings.Cut(v, "@")
		values = []string{v}
	}
	return values, nil
}

func (f *place) Left(_ context.Context, _ int, key string) (left time.Duration, ends bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fails {
		return 0, false, errNodes
	}
	_, at, ends := strings.Cut(f.upstream[key], "@")
	if ends {
		left, err = time.ParseDuration(at)
	}
	return left, ends, err
}

func (f *place) Watch(ctx context.Context, _ int, _ string, changed func(string)) error {
	for {
		select {
		case key := <-f.changed:
			changed(key)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (f *place) Read(_ context.Context, k locks.Key) (r locks.Reading, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fails {
		return r, errNodes
	}
	if v, there := f.nodes[k.Name]; there {
		v, at, ends := strings.Cut(v, "@")
		r = locks.Reading{Held: true, Owner: locks.NewAdoptedString(&locks.RandSource{}, v), Open: !ends}
		if ends {
			r.Remaining, err = time.ParseDuration(at)
		}
	}
	return r, err
}

func (f *place) Names(_ context.Context, r locks.NamesRequest) (names []locks.Key, complete bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for k := range f.nodes {
		names = append(names, locks.Key{DB: r.DB, Name: k})
	}
	return names, true, nil
}

func (f *place) set(upstream, nodes string) {
	f.mu.Lock()
	f.upstream, f.nodes = parse(upstream), parse(nodes)
	f.mu.Unlock()
}

func parse(text string) map[string]string {
	all := map[string]string{}
	for _, w := range strings.Fields(text) {
		k, v, _ := strings.Cut(w, "=")
		all["lock:"+k] = v
	}
	return all
}

func checker(t *testing.T, f *place, mode string, others ...peers.Peer) *Checker {
	return New(Options{Patterns: []*pattern.Pattern{parsed(t, "lock:* mode="+mode)}, Nodes: f, Upstream: f, Peers: func() []peers.Peer { return others }})
}

func parsed(t *testing.T, text string) *pattern.Pattern {
	t.Helper()
	p, err := pattern.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func says(t *testing.T, c *Checker, watch time.Duration) string {
	t.Helper()
	r, err := c.Check(t.Context(), 0, watch)
	if err != nil || len(r.Rows) != 1 {
		t.Fatal(r, err)
	}
	var texts []string
	for _, s := range r.Rows[0].Steps {
		texts = append(texts, s.Text())
	}
	return strings.Join(texts, " | ")
}

func TestCheck(t *testing.T) {
	peer := func(patterns ...peers.Pattern) peers.Peer {
		return peers.Peer{ID: "id", Same: true, Record: peers.Record{Proxy: "p", Patterns: patterns}}
	}
	pattern := func(glob, mode string) peers.Pattern { return peers.Pattern{Glob: glob, DB: -1, Mode: mode} }
	for _, tt := range []struct {
		name, mode, upstream, nodes string
		others                      []peers.Peer
		want                        string
	}{
		{"all agree", "both", "a=1 b=2", "a=1 b=2", []peers.Peer{peer(pattern("lock:*", "both"))}, "safe to go on | safe to go off"},
		{"at the upstream", "both", "a=1 b=2", "a=1", nil, `not safe to go on: the upstream has a lock that the lock nodes have not: "lock:b" | safe to go off`},
		{"at the nodes", "both", "a=1", "a=1 b=2 c=3", nil, `safe to go on | not safe to go off: the lock nodes have 2 locks that the upstream has not, such as "lock:b"`},
		{"another value", "both", "a=1", "a=2", nil, `not safe to go on: the upstream has a lock that the lock nodes have not: "lock:a" | not safe to go off: the lock nodes have a lock that the upstream has not: "lock:a"`},
		{"the ends agree", "both", "a=1@5s", "a=1@5.1s", nil, "safe to go on | safe to go off"},
		{"the upstream's end is earlier", "both", "a=1@5s", "a=1@9s", nil, `safe to go on | not safe to go off: the lock nodes have a lock that the upstream has not: "lock:a"`},
		{"the nodes' end is earlier", "both", "a=1@9s", "a=1@5s", nil, `not safe to go on: the upstream has a lock that the lock nodes have not: "lock:a" | not safe to go off: the lock nodes have a lock that the upstream has not: "lock:a"`},
		{"the nodes' has no end", "both", "a=1@9s", "a=1", nil, `safe to go on | not safe to go off: the lock nodes have a lock that the upstream has not: "lock:a"`},
		{"the upstream's has no end", "both", "a=1", "a=1@9s", nil, "safe to go on | safe to go off"}, // no-expiry=lease:TIME
		{"a proxy without the pattern", "both", "", "", []peers.Peer{peer()}, "not safe to go on: proxy p (id) is off | safe to go off"},
		{"a proxy with a part", "both", "", "", []peers.Peer{peer(pattern("lock:a*", "both"))}, "not safe to go on: proxy p (id) is off | safe to go off"},
		{"a proxy that is on", "both", "", "", []peers.Peer{peer(pattern("*", "on"))}, "safe to go on | not safe to go off: proxy p (id) is on"},
		{"of another upstream", "both", "", "", []peers.Peer{{ID: "other"}}, "safe to go on | safe to go off"},
		{"from on", "on", "a=1", "", []peers.Peer{peer(pattern("lock:*", "both"))}, "safe to go both"},
		{"from on, beside off", "on", "", "", []peers.Peer{peer(pattern("lock:*", "observe"))}, "not safe to go both: proxy p (id) is observe"},
		{"from off", "off", "", "", nil, "safe to go both"},
		{"from off, beside on", "off", "", "", []peers.Peer{peer(pattern("lock:*", "on"))}, "not safe to go both: proxy p (id) is on"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &place{}
				f.set(tt.upstream, tt.nodes)
				if got := says(t, checker(t, f, tt.mode, tt.others...), 0); got != tt.want {
					t.Error(got)
				}
			})
		})
	}
}

// TestCheck_LooksTwice: a call in the mode both changes one place after the other.
func TestCheck_LooksTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &place{}
		f.set("a=1", "b=2")
		time.AfterFunc(secondLook/2, func() { f.set("a=1", "a=1") })
		if got := says(t, checker(t, f, "both"), 0); got != "safe to go on | safe to go off" {
			t.Error(got)
		}
	})
}

// TestCheck_Watch: a key is a program's that goes past the proxies if it stays at the upstream for longer than a call in the mode
// both needs for the nodes.
func TestCheck_Watch(t *testing.T) {
	for name, tt := range map[string]struct {
		upstream, nodes string        // when the key changes
		then            string        // what the nodes have a moment later
		stays           time.Duration // the key
		direct          bool
	}{
		"granted by the nodes":         {"a=1", "", "a=1", time.Second, false},
		"gone at once":                 {"a=1", "", "", grantedWithin / 2, false},
		"past the proxies":             {"a=1", "", "", 2 * grantedWithin, true},
		"refused by the nodes":         {"a=1", "a=2", "a=2", givenBackWithin / 2, false},
		"past the proxies, and beside": {"a=1", "a=2", "a=2", 2 * givenBackWithin, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &place{changed: make(chan string)}
				go func() {
					time.Sleep(time.Second)
					f.set(tt.upstream, tt.nodes)
					f.changed <- "lock:a"
					time.Sleep(grantedWithin / 4)
					f.set(tt.upstream, tt.then)
					time.Sleep(tt.stays - grantedWithin/4)
					f.set("", "")
				}()
				if got := says(t, checker(t, f, "both"), 5*time.Second); strings.Contains(got, "not safe to go on") != tt.direct {
					t.Error(got)
				}
			})
		})
	}
}

// TestCheck_WatchesOnce: the patterns are watched together, not for so long each; those of another database are left out.
func TestCheck_WatchesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &place{}
		var patterns []*pattern.Pattern
		for _, text := range []string{"a:* mode=both", "b:* mode=both db=1", "c:* mode=on", "d:* mode=both db=0"} {
			patterns = append(patterns, parsed(t, text))
		}
		began := time.Now()
		r, err := New(Options{Patterns: patterns, Nodes: f, Upstream: f}).Check(t.Context(), 0, time.Minute)
		if took := time.Since(began); err != nil || took != time.Minute {
			t.Errorf("it takes %v: %v", took, err)
		}
		var globs []string
		for _, row := range r.Rows {
			globs = append(globs, row.Pattern)
		}
		if got := strings.Join(globs, " "); got != "a:* c:* d:*" {
			t.Errorf("rows for %s", got)
		}
	})
}

// TestCheck_WatchFails: nothing is said to be safe if a key could not be looked at when it changed, though all can at the end.
func TestCheck_WatchFails(t *testing.T) {
	for _, when := range []time.Duration{0, grantedWithin / 2} { // for the first look, or the second
		synctest.Test(t, func(t *testing.T) {
			f := &place{changed: make(chan string)}
			setFails := func(fails bool) {
				f.mu.Lock()
				f.fails = fails
				f.mu.Unlock()
			}
			go func() {
				time.Sleep(time.Second)
				f.set("a=1", "")
				setFails(when == 0)
				f.changed <- "lock:a"
				time.Sleep(when)
				setFails(true)
				time.Sleep(2 * grantedWithin)
				setFails(false)
				f.set("", "")
			}()
			if r, err := checker(t, f, "both").Check(t.Context(), 0, 5*time.Second); !errors.Is(err, errNodes) {
				t.Errorf("after %v: %+v, %v", when, r, err)
			}
			time.Sleep(time.Second) // until the goroutine has ended
		})
	}
}
