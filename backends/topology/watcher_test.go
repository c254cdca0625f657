package topology

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends"
	"github.com/lockproxy/lockproxy/integration/redistest"
)

// An observedWatcher is a running Watcher and what it has found.
type observedWatcher struct {
	*Watcher
	mu   sync.Mutex
	last *Topology
	n    int // calls of found
}

// startWatcher runs a Watcher until the test ends; its first probe is over.
func startWatcher(t *testing.T, url string, opt Options) *observedWatcher {
	t.Helper()
	opt.Log = slog.New(slog.DiscardHandler)
	w, err := New(parse(t, url), opt)
	if err != nil {
		t.Fatal(err)
	}
	observed := &observedWatcher{Watcher: w, last: w.Initial()}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.Run(ctx, func(top *Topology) {
			observed.mu.Lock()
			defer observed.mu.Unlock()
			observed.last = top
			observed.n++
		})
	}()
	t.Cleanup(func() { cancel(); <-ended })
	<-w.Probed()
	return observed
}

func (w *observedWatcher) observed() (*Topology, int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last, w.n
}

// await waits until the last Topology, as describe prints it, is want.
func (w *observedWatcher) await(t *testing.T, what, want string) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		top, _ := w.observed()
		got := describe(top)
		if got == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: topology\n%s\nwant\n%s", what, got, want)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// awaitProbes waits until found has been called n times.
func (w *observedWatcher) awaitProbes(t *testing.T, n int) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		if _, now := w.observed(); now >= n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("no more probes")
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// describe prints each shard's ranges of slots, master and replicas on a line.
func describe(t *Topology) string {
	var lines []string
	for i, s := range t.Shards {
		replicas := []string{}
		for _, r := range s.Replicas {
			replicas = append(replicas, r.String())
		}
		slices.Sort(replicas)
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s%s %s", ranges(t.Slots, i), nameOf(s.Master), strings.Join(replicas, " "))))
	}
	return strings.Join(lines, "\n")
}

func ranges(slots []uint16, shard int) (out string) {
	for i := 0; i < len(slots); i++ {
		first := i
		for i < len(slots) && int(slots[i]) == shard {
			i++
		}
		if i > first {
			out += fmt.Sprintf("%d-%d ", first, i-1)
		}
	}
	return out
}

func parse(t *testing.T, url string) *backends.Server {
	t.Helper()
	s, err := backends.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func nameOf(s *backends.Server) string {
	if s == nil {
		return "nobody"
	}
	return s.String()
}

// group is the line that describe prints for a shard without slots.
func group(master *redistest.Server, replicas ...*redistest.Server) string {
	var names []string
	for _, r := range replicas {
		names = append(names, r.Addr())
	}
	slices.Sort(names)
	return strings.TrimSpace(master.Addr() + " " + strings.Join(names, " "))
}

func TestWatcher_StandaloneIsProbedOnRefreshOnly(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	w := startWatcher(t, s.URL(), Options{})
	if top, n := w.observed(); n != 0 || describe(top) != s.Addr() {
		t.Errorf("found called %d times, topology %s", n, describe(top))
	}
	c := redistest.Open(t, s.Addr())
	deadline := time.Now().Add(20 * time.Second)
	for list := c.Do(t, "CLIENT", "LIST").Text; strings.Count(list, "\n") != 1; list = c.Do(t, "CLIENT", "LIST").Text {
		if time.Now().After(deadline) {
			t.Fatalf("the probe left a connection open:\n%s", list)
		}
	}
	asked := s.Calls(t, "info")
	time.Sleep(modePause + modePause/2)
	if now := s.Calls(t, "info"); now != asked+1 {
		t.Errorf("%d probes without Refresh", now-asked-1)
	}
	began := time.Now()
	for time.Since(began) < 3*modePause/2 {
		w.Refresh()
		time.Sleep(5 * time.Millisecond)
	}
	most := asked + 2 + int(time.Since(began)/modePause) + 1 // two of the calls are this test's
	if now := s.Calls(t, "info"); now < asked+3 || now > most {
		t.Errorf("%d probes in %v of Refresh", now-asked-2, time.Since(began))
	}
}

func TestWatcher_RefusedInfoIsLoggedOnce(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--requirepass", "secret")
	var logged bytes.Buffer
	w, err := New(parse(t, s.URL()), Options{Log: slog.New(slog.NewTextHandler(&logged, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	for range 2 {
		if top, err := w.probe(t.Context()); top != nil || err != nil || w.mode != ModeStandalone || !w.modeKnown {
			t.Errorf("topology %v, %v: mode %s, known %v", top, err, w.mode, w.modeKnown)
		}
	}
	if n := strings.Count(logged.String(), "NOAUTH"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, logged.String())
	}
}

func TestWatcher_DetectsClusterAfterStart(t *testing.T) {
	t.Parallel()
	s := redistest.Reserve(t, "--cluster-enabled", "yes", "--cluster-port", "0")
	addr, err := redistest.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	w := startWatcher(t, s.URL(), Options{})
	if top, _ := w.observed(); describe(top) != s.Addr() || top.Slots != nil {
		t.Errorf("while it is down: %s", describe(top))
	}
	_, port, _ := strings.Cut(addr, ":")
	if err := s.Restart("--cluster-port", port); err != nil {
		t.Fatal(err)
	}
	s.Do(t, "CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	w.await(t, "started", "0-16383 "+s.Addr())
}

func TestWatcher_StandaloneReplicas(t *testing.T) {
	t.Parallel()
	r := redistest.StartReplicated(t, 2)
	w := startWatcher(t, r.Servers[0].URL(), Options{Replicas: true})
	w.await(t, "both", group(r.Servers[0], r.Servers[1:]...))
	r.Servers[1].Kill()
	w.await(t, "one", group(r.Servers[0], r.Servers[2]))
}

// The TLS of the URL holds for every node, under its own server name.
func TestWatcher_TLS(t *testing.T) {
	t.Parallel()
	ca := redistest.NewAuthority(t)
	_, a := redistest.StartTLS(t, ca)
	_, b := redistest.StartTLS(t, ca)
	pair, err := backends.ReadKeyPair(ca.Issue(t, "client"))
	if err != nil {
		t.Fatal(err)
	}
	authorities, err := backends.ReadAuthorities(ca.File)
	if err != nil {
		t.Fatal(err)
	}
	host := func(url string) string { return strings.TrimPrefix(url, "rediss://") }
	url := a + "?addr=" + strings.Replace(host(b), "127.0.0.1", "localhost", 1)
	seed := parse(t, url).WithTLS(&backends.TLS{KeyPair: pair, CA: authorities})
	w, err := New(seed, Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	top, err := w.probe(t.Context())
	if err != nil || describe(top) != host(a) { // two masters: the first
		t.Errorf("topology %v, %v", top, err)
	}
	if len(w.lastRoles) != 2 {
		t.Errorf("roles %v, want two", w.lastRoles)
	}
}
