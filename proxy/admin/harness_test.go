package admin

import (
	"bytes"
	"context"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends"
	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/quorum"
	"github.com/lockproxy/lockproxy/backends/locks/voters"
	"github.com/lockproxy/lockproxy/backends/metrics"
	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/commands/adopt"
	"github.com/lockproxy/lockproxy/commands/adopt/pattern"
	"github.com/lockproxy/lockproxy/commands/adopt/peers"
	"github.com/lockproxy/lockproxy/commands/lockcmd"
	"github.com/lockproxy/lockproxy/integration/redistest"
	"github.com/lockproxy/lockproxy/proxy"
)

// fakeClients is a Clients for tests.
type fakeClients struct{ draining atomic.Bool }

func (c *fakeClients) Clients() int   { return 7 }
func (c *fakeClients) Draining() bool { return c.draining.Load() }
func (c *fakeClients) Report(r *metrics.Report) {
	var took metrics.Histogram
	took.Observe(3 * time.Millisecond)
	r.Gauge("lockproxy_clients", "Clients.", 7)
	r.Counter("lockproxy_commands_total", "Commands.", 5, "family", "read")
	r.Histogram("lockproxy_command_seconds", "Time.", &took)
}

// A testServer is a Server with its backends.
type testServer struct {
	*Server
	clients *fakeClients
	locks   *locks.Service
	running bool // the lock service, by run
	log     *syncBuffer
	url     string
	http    *http.Client
	end     func() error // ends Serve, and waits for it
}

// A syncBuffer is safe for concurrent use.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// nowhere is an address without a listener.
const nowhere = "127.0.0.1:1"

func serversAt(t *testing.T, addrs ...string) (all []*backends.Server) {
	t.Helper()
	for _, a := range addrs {
		s, err := backends.Parse(a)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	return all
}

// open serves opt for an upstream and lock nodes at these addresses until the test ends. The
// lock service does not run: it does not ask for the state of its nodes.
func open(t *testing.T, opt Options, up string, nodes ...string) *testServer {
	t.Helper()
	d := &testServer{clients: &fakeClients{}, log: &syncBuffer{}, http: &http.Client{Transport: &http.Transport{}}}
	opt.Log = slog.New(slog.NewTextHandler(d.log, nil))
	store, err := quorum.New(quorum.Options{Options: voters.Options{
		Nodes: serversAt(t, nodes...), NodeTimeout: 5 * time.Second, Log: opt.Log,
	}})
	if err != nil {
		t.Fatal(err)
	}
	svc, err := locks.New(store, locks.Options{})
	if err != nil {
		t.Fatal(err)
	}
	above := upstream.New(upstream.Options{PoolOptions: upstream.PoolOptions{Server: serversAt(t, up)[0], Log: opt.Log}})
	t.Cleanup(above.Close)
	if opt.Listen == "" {
		opt.Listen = "127.0.0.1:0"
	}
	opt.Locks, opt.Proxy, opt.Upstream, opt.Metrics = svc, d.clients, above, append(opt.Metrics, d.clients, above, svc)
	d.locks = svc
	if d.Server, err = New(opt); err != nil {
		t.Fatal(err)
	}
	d.url = "http://" + d.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Serve(ctx) }()
	d.end = sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() {
		d.http.CloseIdleConnections()
		if err := d.end(); err != nil {
			t.Error(err)
		}
		if d.running {
			return
		}
		stopped, stop := context.WithCancel(context.Background())
		stop()
		if err := svc.Run(stopped); err != nil {
			t.Error(err)
		}
	})
	return d
}

// allFamilies are the metrics of a whole proxy, by name.
func allFamilies(t *testing.T) map[string]*metrics.Family {
	t.Helper()
	shown := Certificate{"clients", func() *x509.Certificate { return &x509.Certificate{} }}
	d := open(t, Options{Certificates: []Certificate{shown}}, nowhere, nowhere)
	adoption, err := adopt.New([]*pattern.Pattern{{Glob: "lock:*", Mode: pattern.Both}}, adopt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	table := commands.New(commands.Options{Adoption: adoption, Upstream: d.opt.Upstream, Verbs: lockcmd.Options{Locker: d.locks}})
	srv, err := proxy.New(proxy.Options{Listen: "127.0.0.1:0"}, table)
	if err != nil {
		t.Fatal(err)
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if err := srv.Serve(stopped); err != nil {
		t.Error(err)
	}
	eventually(t, "the upstream is known", func() bool { return len(d.pinger.statuses()) == 1 })
	all := map[string]*metrics.Family{}
	for _, f := range (metrics.Registry{d.Server, srv, table, d.opt.Upstream, d.locks, peers.New(peers.Options{})}).Gather() {
		if all[f.Name] != nil {
			t.Errorf("%s is declared twice", f.Name)
		}
		all[f.Name] = f
	}
	return all
}

// openReal is open with real servers and voting lock nodes.
func openReal(t *testing.T, opt Options, nodes int) (*testServer, *redistest.Server, []*redistest.Server) {
	t.Helper()
	up, ns := redistest.Start(t), redistest.StartNodes(t, nodes)
	var addrs []string
	for _, n := range ns {
		addrs = append(addrs, n.Addr())
	}
	d := open(t, opt, up.Addr(), addrs...)
	if err := d.locks.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	return d, up, ns
}

// ask sends a request and returns its response and the body.
func (d *testServer) ask(t *testing.T, method, path string, header ...string) (*http.Response, string) {
	t.Helper()
	var body io.Reader
	if method != http.MethodGet {
		body = strings.NewReader("{}")
	}
	r, err := http.NewRequestWithContext(t.Context(), method, d.url+path, body)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
		}
		r.Header.Set(header[i], header[i+1])
	}
	return d.do(t, r)
}

func (d *testServer) do(t *testing.T, r *http.Request) (*http.Response, string) {
	t.Helper()
	resp, err := d.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// get is the code and the body of a GET.
func (d *testServer) get(t *testing.T, path string, header ...string) (int, string) {
	t.Helper()
	resp, body := d.ask(t, http.MethodGet, path, header...)
	return resp.StatusCode, body
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if ok() {
			return
		}
		if time.Now().After(end) {
			t.Fatal("never: " + what)
		}
	}
}

// hanging is a listener that accepts and does not answer.
func hanging(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var all []net.Conn
		for {
			c, err := ln.Accept()
			if err != nil {
				break
			}
			all = append(all, c)
		}
		for _, c := range all {
			c.Close()
		}
	}()
	t.Cleanup(func() { ln.Close(); <-ended })
	return ln.Addr().String()
}

// run runs the lock service until the test ends.
func (d *testServer) run(t *testing.T) {
	t.Helper()
	d.running = true
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.locks.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
