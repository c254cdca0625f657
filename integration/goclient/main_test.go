// Package goclient is for the tests of clients/go at real proxies and lock nodes, with each client library in each version of
// the protocol.
package goclient

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	lockproxy "github.com/lockproxy/lockproxy/clients/go"
	"github.com/lockproxy/lockproxy/clients/go/lockgoredis"
	"github.com/lockproxy/lockproxy/clients/go/lockrueidis"
	"github.com/lockproxy/lockproxy/integration/redistest"
)

func TestMain(m *testing.M) {
	if kind := os.Getenv(holderVariable); kind != "" {
		holdForEver(kind)
	}
	redistest.Main(m)
}

// settings are of a client. Only where it connects to must be said.
type settings struct {
	addr           string
	dial           func(context.Context) (net.Conn, error)
	tls            *tls.Config
	user, password string
	db             int
	timeout        time.Duration
	few            bool // connections that are shared: one
}

// A client is one of a library, with its locks.
type client struct {
	*lockproxy.Locks
	ping  func(context.Context) error
	close func()
}

// kinds are the clients that all tests are for.
var kinds = []struct {
	name string
	open func(settings) (*client, error)
}{
	{"go-redis RESP2", func(s settings) (*client, error) { return openGoRedis(s, 2) }},
	{"go-redis RESP3", func(s settings) (*client, error) { return openGoRedis(s, 3) }},
	{"rueidis RESP2", func(s settings) (*client, error) { return openRueidis(s, true) }},
	{"rueidis RESP3", func(s settings) (*client, error) { return openRueidis(s, false) }},
}

func openGoRedis(s settings, protocol int) (*client, error) {
	opt := &redis.Options{Addr: s.addr, Protocol: protocol, TLSConfig: s.tls, Username: s.user, Password: s.password, DB: s.db, ReadTimeout: s.timeout}
	if s.few {
		opt.PoolSize = 1
	}
	if s.dial != nil {
		opt.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) { return s.dial(ctx) }
	}
	rdb := redis.NewClient(opt)
	return &client{lockgoredis.New(rdb), func(ctx context.Context) error { return rdb.Ping(ctx).Err() }, func() { _ = rdb.Close() }}, nil
}

func openRueidis(s settings, resp2 bool) (*client, error) {
	opt := rueidis.ClientOption{InitAddress: []string{s.addr}, TLSConfig: s.tls, Username: s.user, Password: s.password, SelectDB: s.db,
		ConnWriteTimeout: s.timeout, AlwaysRESP2: resp2, DisableCache: resp2}
	if s.few {
		opt.PipelineMultiplex = -1
	}
	if s.dial != nil {
		opt.InitAddress = []string{"lockproxy:0"}
		opt.DialCtxFn = func(ctx context.Context, _ string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return s.dial(ctx)
		}
	}
	c, err := rueidis.NewClient(opt)
	if err != nil {
		return nil, err
	}
	return &client{lockrueidis.New(c), func(ctx context.Context) error { return c.Do(ctx, c.B().Ping().Build()).Error() }, c.Close}, nil
}

// A site is a Redis, lock nodes, and two proxies that share them.
type site struct {
	data    *redistest.Server
	nodes   []*redistest.Server
	proxies []*redistest.Proxy
}

func startSite(t *testing.T, args ...string) *site {
	t.Helper()
	s := &site{data: redistest.Start(t), nodes: redistest.StartNodes(t, 3)}
	for range 2 {
		s.proxies = append(s.proxies, redistest.StartProxy(t, s.data, s.nodes, args...))
	}
	return s
}

// dialFirst connects to the first proxy that accepts.
func (s *site) dialFirst(ctx context.Context) (c net.Conn, err error) {
	for _, p := range s.proxies {
		if c, err = new(net.Dialer).DialContext(ctx, "tcp", p.Addr()); err == nil {
			break
		}
	}
	return c, err
}

// eachKind runs a test with a client of each kind at the first proxy. name is for locks of that kind.
func (s *site) eachKind(t *testing.T, set settings, test func(t *testing.T, open func() *client, name string)) {
	if set.addr == "" {
		set.addr = s.proxies[0].Addr()
	}
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			open := func() *client {
				t.Helper()
				c, err := k.open(set)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(c.close)
				return c
			}
			test(t, open, strings.ReplaceAll(k.name, " ", ":"))
		})
	}
}

// eventually fails unless the condition holds within a minute.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for late := time.Now().Add(time.Minute); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(late) {
			t.Fatal("not in a minute: " + what)
		}
	}
}

// awaitWaiters returns when so many wait for a name at the first proxy.
func (s *site) awaitWaiters(t *testing.T, name string, n int) {
	t.Helper()
	c := redistest.Open(t, s.proxies[0].Addr())
	eventually(t, fmt.Sprint(n, " waiters"), func() bool { return len(c.Do(t, "LOCKCTL", "WAITERS", name).Elems) == n })
}

// awaitNoLocks fails unless every hold of the name is gone long before its lease is over, which is of a minute or so; an
// empty name is that of all.
func (s *site) awaitNoLocks(t *testing.T, name string) {
	t.Helper()
	for late := time.Now().Add(15 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		var left []string
		for _, n := range s.nodes {
			for _, key := range n.Do(t, "KEYS", "lockproxy:lock:*").Elems {
				if strings.Contains(key.Text, name) {
					left = append(left, key.Text)
				}
			}
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(late) {
			t.Fatal("left behind: ", left)
		}
	}
}

// mustAcquire takes a lock that nobody has, also when the nodes are late.
func (c *client) mustAcquire(t *testing.T, name string, opts lockproxy.Options) *lockproxy.Lock {
	t.Helper()
	opts.Wait = time.Minute
	l, err := c.Acquire(t.Context(), name, opts)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// wantHeld fails unless another has the lock, as soon as enough nodes say so.
func (c *client) wantHeld(t *testing.T, name string, opts lockproxy.Options) {
	t.Helper()
	eventually(t, "refused", func() bool {
		l, err := c.Acquire(t.Context(), name, opts)
		if l != nil {
			t.Fatalf("%s with %+v: granted", name, opts)
		}
		return err == lockproxy.ErrNotAcquired
	})
}
