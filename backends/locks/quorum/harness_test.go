package quorum

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/backends"
	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/voters"
	"github.com/lockproxy/lockproxy/backends/metrics"
	"github.com/lockproxy/lockproxy/integration/redistest"
)

// As the lock nodes have them.
const (
	eachProbe   = time.Second
	startingFor = 10 * time.Second
)

// patient is a node timeout for tests that are not about time: this machine may be busy.
const patient = 5 * time.Second

// enlisting is for how long new nodes may take until they vote. A machine so busy that they are not enlisted together makes some
// of them sit out max-ttl, and wait as long for their floor: a minute each.
const enlisting = 3 * time.Minute

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

// A proxy is a Service and its store, as one proxy has them.
type proxy struct {
	*locks.Service
	inner
	waiting   *locks.Lines
	keepalive *locks.Keepalive
}

// inner is where names of the store are found that a Service does not have.
type inner struct {
	*Store
	*voters.Set
}

// testOptions are those of a proxy.
type testOptions struct {
	Nodes                                        []*backends.Server
	MinTTL, MaxTTL, NodeTimeout, Retention, Skew time.Duration
	MaxHold, SessionGrace, MaxWait               time.Duration
	RoundLimit                                   time.Duration
	MaxWaiters, ReplicaAcks, Rounds, Memory      int
	Prefix, Bootstrap, RestartGrace              string
	OnDemand, RenewEndless                       bool
	Log                                          *slog.Logger
	Tune                                         func(*rueidis.ClientOption)
	now                                          func() time.Duration
	random                                       locks.RandSource
}

func (o testOptions) voters() voters.Options {
	return voters.Options{
		Nodes: o.Nodes, MaxTTL: o.MaxTTL, NodeTimeout: o.NodeTimeout, Retention: o.Retention, Skew: o.Skew, Prefix: o.Prefix,
		RoundLimit: o.RoundLimit, Bootstrap: o.Bootstrap, OnDemand: o.OnDemand, RestartGrace: o.RestartGrace, ReplicaAcks: o.ReplicaAcks, Rounds: o.Rounds,
		Log: o.Log, Tune: o.Tune, Now: o.now, Random: o.random,
	}
}

func newProxy(o testOptions) (*proxy, error) {
	if o.RoundLimit == 0 && o.NodeTimeout == patient && o.MaxTTL < time.Hour { // else a node that forgot copies
		o.RoundLimit = 4 * patient
	}
	st, err := New(Options{Options: o.voters(), Memory: o.Memory})
	if err != nil {
		return nil, err
	}
	s, err := locks.New(st, locks.Options{
		MinTTL: o.MinTTL, MaxHold: o.MaxHold, SessionGrace: o.SessionGrace, MaxWait: o.MaxWait, MaxWaiters: o.MaxWaiters, RenewEndless: o.RenewEndless, Log: o.Log, Random: o.random,
	})
	if err != nil {
		return nil, err
	}
	return &proxy{s, inner{st, st.set}, st.host.Lines, st.host.Keepalive}, nil
}

// sample is what a proxy reports, by a name without "lockproxy_lock_".
func sample(s *proxy, name string, labels ...string) *metrics.Sample {
	return metrics.Registry{s.Service}.Sample("lockproxy_lock_"+name, labels...)
}

// durations are those that a proxy has measured, see sample.
func durations(s *proxy, name string, labels ...string) metrics.Snapshot {
	return sample(s, name, labels...).Durations
}

// sums are those of all samples of a name: of values, and of how many durations there are.
func sums(s *proxy, name string) (values, durations int64) {
	for _, f := range (metrics.Registry{s.Service}).Gather() {
		for _, sample := range f.Samples {
			if f.Name == "lockproxy_lock_"+name {
				values += int64(sample.Value)
				durations += sample.Durations.Count()
			}
		}
	}
	return values, durations
}

// counter is what a proxy has counted, see sample.
func counter(s *proxy, name string, labels ...string) int64 {
	return int64(sample(s, name, labels...).Value)
}

// serve runs a proxy with these options until the test ends.
func serve(tb testing.TB, o testOptions) *proxy {
	tb.Helper()
	s, _ := serveUntil(tb, o)
	return s
}

// serveUntil runs a proxy until stop, or the test ends.
func serveUntil(tb testing.TB, o testOptions) (s *proxy, stop func()) {
	tb.Helper()
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s, err := newProxy(o)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			tb.Error(err)
		}
	})
	tb.Cleanup(stop)
	return s, stop
}

// start serves on real nodes, which vote.
func start(tb testing.TB, nodes int) (*proxy, []*redistest.Server) {
	tb.Helper()
	ns := redistest.StartNodes(tb, nodes)
	s := serve(tb, testOptions{Nodes: nodesAt(tb, addrs(ns)...), NodeTimeout: patient})
	eventually(tb, enlisting, "all nodes vote", func() bool { return allVoting(s) }, s)
	return s, ns
}

// fixedFields are those of a lock record that are no holds.
const fixedFields = 9

func lock(tb testing.TB, s *proxy, name, owner string, ttl time.Duration) locks.Grant {
	tb.Helper()
	a, err := lockInTime(tb, s, locks.LockRequest{Key: locks.Key{Name: name}, Owner: owner, TTL: ttl})
	if err != nil || !a.Granted {
		tb.Fatalf("LOCK %s by %s: %+v, %v", name, owner, a, err)
	}
	return a.Grant
}

// lockInTime is LOCK, and once more where a busy machine took longer for it than the lease: then it is NOQUORUM, and undone.
func lockInTime(tb testing.TB, s *proxy, r locks.LockRequest) (locks.Decision, error) {
	for try := 1; ; try++ {
		began := time.Now()
		a, err := s.Lock(tb.Context(), r)
		if q := (*locks.QuorumError)(nil); !errors.As(err, &q) || time.Since(began) < r.TTL-locks.Drift(r.TTL) || try == 10 {
			return a, err
		}
	}
}

func refused(tb testing.TB, s *proxy, name, owner string, ttl time.Duration) locks.Decision {
	tb.Helper()
	a, err := lockInTime(tb, s, locks.LockRequest{Key: locks.Key{Name: name}, Owner: owner, TTL: ttl})
	if err != nil || a.Granted {
		tb.Fatalf("LOCK %s by %s: %+v, %v, want a refusal", name, owner, a, err)
	}
	return a
}

func unlock(tb testing.TB, s *proxy, name, owner string, want int) {
	tb.Helper()
	left, err := s.Unlock(tb.Context(), locks.UnlockRequest{Key: locks.Key{Name: name}, Owner: owner})
	if err != nil || left != want {
		tb.Fatalf("UNLOCK %s by %s: %d, %v, want %d", name, owner, left, err, want)
	}
}

// eventually waits until ok. Where within is a second or more it is not the point, and a
// busy machine gets longer.
func eventually(tb testing.TB, within time.Duration, what string, ok func() bool, of ...*proxy) {
	tb.Helper()
	if within >= time.Second {
		within = max(within, 30*time.Second)
	}
	for end := time.Now().Add(within); ; time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
		if time.Now().After(end) {
			for _, s := range of {
				tb.Logf("nodes: %+v", s.Nodes())
			}
			tb.Fatalf("not within %v: %s", within, what)
		}
	}
}

// registering are the arguments of register.lua for a node of the Service's.
func registering(s *proxy, how string) []string {
	return []string{how, "0", "", "0", s.NodeList.Fingerprint, s.NodeList.Names, "", ""}
}
