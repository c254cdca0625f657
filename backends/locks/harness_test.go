package locks

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/lockproxy/lockproxy/backends"
	"github.com/lockproxy/lockproxy/integration/redistest"
)

// patient is a node timeout for tests that are not about time: this machine may be busy.
const patient = 5 * time.Second

// nodesAt parses addresses.
func nodesAt(tb testing.TB, addrs ...string) []*backends.Server {
	tb.Helper()
	var out []*backends.Server
	for _, a := range addrs {
		s, err := backends.Parse(a)
		if err != nil {
			tb.Fatal(err)
		}
		out = append(out, s)
	}
	return out
}

func addrs(nodes []*redistest.Server) []string {
	var out []string
	for _, n := range nodes {
		out = append(out, n.Addr())
	}
	return out
}

// embedded starts n in-process nodes.
func embedded(tb testing.TB, n int) []*miniredis.Miniredis {
	tb.Helper()
	var out []*miniredis.Miniredis
	for range n {
		m := miniredis.NewMiniRedis()
		if err := m.Start(); err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(m.Close)
		out = append(out, m)
	}
	return out
}

// serve runs a Service with these options until the test ends.
func serve(tb testing.TB, o Options) *Service {
	tb.Helper()
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s, err := New(o)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			tb.Error(err)
		}
	})
	return s
}

// start serves on real nodes, which vote.
func start(tb testing.TB, nodes int) (*Service, []*redistest.Server) {
	tb.Helper()
	ns := redistest.StartNodes(tb, nodes)
	s := serve(tb, Options{Nodes: nodesAt(tb, addrs(ns)...), NodeTimeout: patient})
	eventually(tb, 2*time.Minute, "all nodes vote", func() bool { return allVoting(s) })
	return s, ns
}

// fixedFields are those of a lock record that are no holds.
const fixedFields = 9

func lock(tb testing.TB, s *Service, name, owner string, ttl time.Duration) Grant {
	tb.Helper()
	a, err := s.Lock(tb.Context(), LockRequest{Key: Key{Name: name}, Owner: owner, TTL: ttl})
	if err != nil || !a.Granted {
		tb.Fatalf("LOCK %s by %s: %+v, %v", name, owner, a, err)
	}
	return a.Grant
}

func refused(tb testing.TB, s *Service, name, owner string, ttl time.Duration) Decision {
	tb.Helper()
	a, err := s.Lock(tb.Context(), LockRequest{Key: Key{Name: name}, Owner: owner, TTL: ttl})
	if err != nil || a.Granted {
		tb.Fatalf("LOCK %s by %s: %+v, %v, want a refusal", name, owner, a, err)
	}
	return a
}

func unlock(tb testing.TB, s *Service, name, owner string, want int) {
	tb.Helper()
	left, err := s.Unlock(tb.Context(), UnlockRequest{Key: Key{Name: name}, Owner: owner})
	if err != nil || left != want {
		tb.Fatalf("UNLOCK %s by %s: %d, %v, want %d", name, owner, left, err, want)
	}
}

// eventually waits until ok. Where within is a second or more it is not the point, and a
// busy machine gets longer.
func eventually(tb testing.TB, within time.Duration, what string, ok func() bool) {
	tb.Helper()
	if within >= time.Second {
		within = max(within, 30*time.Second)
	}
	for end := time.Now().Add(within); ; time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
		if time.Now().After(end) {
			tb.Fatalf("not within %v: %s", within, what)
		}
	}
}

// registering are the arguments of register.lua for a node of the Service's.
func registering(s *Service, how string) []string {
	return registerArgs(&vote{}, how, &nodeSet{now: s.nodeList})
}
