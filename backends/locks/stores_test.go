package locks_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/backends"
	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/etcd"
	"github.com/lockproxy/lockproxy/backends/locks/memstore"
	"github.com/lockproxy/lockproxy/backends/locks/quorum"
	"github.com/lockproxy/lockproxy/backends/locks/voters"
	"github.com/lockproxy/lockproxy/integration/redistest"
)

// patient is a node timeout for tests that are not about time: this machine may be busy.
const patient = 5 * time.Second

// onEach runs a test with a Service on each Store: on three real lock nodes, on a real etcd, and in memory, where time is virtual.
func onEach(t *testing.T, o locks.Options, test func(t *testing.T, s *locks.Service)) {
	t.Parallel()
	t.Run("quorum", func(t *testing.T) {
		t.Parallel()
		_, s := serveOn(t, startNodes(t), o)
		test(t, s)
	})
	t.Run("etcd", func(t *testing.T) {
		t.Parallel()
		_, s := serveOnEtcd(t, redistest.StartEtcd(t, 1), o)
		test(t, s)
	})
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		inMemory(t, o, test)
	})
}

// onLimiting runs a test with Services whose Stores grant several names at once.
func onLimiting(t *testing.T, o locks.Options, test func(t *testing.T, s *locks.Service)) {
	t.Parallel()
	t.Run("quorum", func(t *testing.T) {
		t.Parallel()
		_, s := serveOn(t, startNodes(t), o)
		test(t, s)
	})
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		inMemory(t, o, test)
	})
}

// startNodes starts three lock nodes.
func startNodes(t *testing.T) (nodes []*backends.Server) {
	t.Helper()
	for _, n := range redistest.StartNodes(t, 3) {
		srv, err := backends.Parse(n.Addr())
		if err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, srv)
	}
	return nodes
}

// serveOn runs a Service on lock nodes, as a proxy does; several may run on the same ones.
func serveOn(t *testing.T, nodes []*backends.Server, o locks.Options) (locks.Store, *locks.Service) {
	t.Helper()
	st, err := quorum.New(quorum.Options{Options: voters.Options{Nodes: nodes, NodeTimeout: patient, Log: slog.New(slog.DiscardHandler)}})
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, st, o)
	eventually(t, "all nodes vote", func() bool { return s.Stats().Voting == len(nodes) })
	return st, s
}

// serveOnEtcd is serveOn for an etcd.
func serveOnEtcd(t *testing.T, members []*redistest.Etcd, o locks.Options) (locks.Store, *locks.Service) {
	t.Helper()
	target, err := etcd.Parse(redistest.EtcdURL(members, ""))
	if err != nil {
		t.Fatal(err)
	}
	st, err := etcd.New(etcd.Options{Target: target, NodeTimeout: patient, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return st, serve(t, st, o)
}

// inMemory runs a test with a Service in memory, where time is virtual.
func inMemory(t *testing.T, o locks.Options, test func(t *testing.T, s *locks.Service)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		test(t, serve(t, memstore.New(time.Minute, func() time.Duration { return time.Since(began) + time.Hour }), o))
	})
}

// serve runs a Service until the test ends.
func serve(t *testing.T, st locks.Store, o locks.Options) *locks.Service {
	t.Helper()
	s, err := locks.New(st, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s
}

var job = locks.Key{Name: "job"}

func lock(t *testing.T, s *locks.Service, r locks.LockRequest) locks.Grant {
	t.Helper()
	if r.Name == "" {
		r.Key = job
	}
	if r.TTL == 0 {
		r.TTL = 30 * time.Second
	}
	a, err := s.Lock(t.Context(), r)
	if err != nil || !a.Granted {
		t.Fatalf("LOCK %s by %s: %+v, %v", r.Name, r.Owner, a, err)
	}
	return a.Grant
}

func refused(t *testing.T, s *locks.Service, name, owner string) locks.Decision {
	t.Helper()
	a, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: name}, Owner: owner, TTL: time.Second})
	if err != nil || a.Granted {
		t.Fatalf("LOCK %s by %s: %+v, %v, want a refusal", name, owner, a, err)
	}
	return a
}

func unlock(t *testing.T, s *locks.Service, r locks.UnlockRequest, want int) {
	t.Helper()
	if r.Name == "" {
		r.Key = job
	}
	if left, err := s.Unlock(t.Context(), r); err != nil || left != want {
		t.Fatalf("UNLOCK %s by %s: %d, %v, want %d", r.Name, r.Owner, left, err, want)
	}
}

// free waits until another owner gets the name.
func free(t *testing.T, s *locks.Service, name string) {
	t.Helper()
	eventually(t, name+" is free", func() bool {
		a, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: name}, Owner: "next", TTL: 100 * time.Millisecond})
		return err == nil && a.Granted
	})
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within five minutes: %s", what)
		}
	}
}

// A result is what Lock returned to one caller.
type result struct {
	locks.Decision
	err  error
	took time.Duration
}

// wait asks for a name aside.
func wait(t *testing.T, s *locks.Service, r locks.LockRequest) <-chan result {
	out := make(chan result, 1)
	began := time.Now()
	go s.LockAsync(t.Context(), r, func(a locks.Decision, err error) { out <- result{a, err, time.Since(began)} })
	return out
}

// inLine is wait for a request of ten seconds, when it stands in line.
func inLine(t *testing.T, s *locks.Service, name, owner string) <-chan result {
	t.Helper()
	k := locks.Key{Name: name}
	n := s.Lines().Len(k)
	out := wait(t, s, locks.LockRequest{Key: k, Owner: owner, TTL: 10 * time.Second, Wait: 10 * time.Second})
	eventually(t, "one more waits, and the first has been refused", func() bool {
		known, _ := s.Lines().Known(k)
		return s.Lines().Len(k) == n+1 && known.Asked
	})
	return out
}

func granting(t *testing.T, c <-chan result) result {
	t.Helper()
	r := <-c
	if r.err != nil || !r.Granted {
		t.Fatalf("LOCK: %+v, %v", r.Decision, r.err)
	}
	return r
}

func none(t *testing.T, c <-chan result, during time.Duration) {
	t.Helper()
	select {
	case r := <-c:
		t.Fatalf("LOCK: %+v, %v", r.Decision, r.err)
	case <-time.After(during):
	}
}

// A client is a session and what it was told.
type client struct {
	*locks.Session
	mu     sync.Mutex
	losses []locks.Loss
}

func newClient(s *locks.Service) *client {
	c := &client{}
	c.Session = s.NewSession(func(l locks.Loss) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.losses = append(c.losses, l)
	})
	return c
}

func (c *client) told() []locks.Loss {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]locks.Loss(nil), c.losses...)
}

// lostOnce waits until the client was told of exactly one loss.
func (c *client) lostOnce(t *testing.T, g locks.Grant, reason string) locks.Loss {
	t.Helper()
	eventually(t, "the loss is told", func() bool { return len(c.told()) > 0 })
	l := c.told()
	if len(l) != 1 || l[0].Name != g.Name || l[0].Owner != g.Owner || l[0].Fence != g.Fence || l[0].Reason != reason {
		t.Fatalf("told %+v, want the loss of %s because %q", l, g.Name, reason)
	}
	return l[0]
}
