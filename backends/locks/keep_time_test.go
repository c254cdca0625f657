package locks

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/scripts"
)

// A timeless is a Service and its embedded nodes in a synctest bubble, where hours pass
// in no time.
type timeless struct {
	*Service
	nodes []*miniredis.Miniredis
	calls [][]call // of scripts that renew or read, by node
	mu    sync.Mutex
	broke int // so many nodes answer with errors
	began time.Time
}

// A call is one execution of a script, and when.
type call struct {
	sha string
	at  time.Duration
}

// inBubble runs a test with n nodes. The clock of the Service is ahead by o.now, if that
// is not nil.
func inBubble(t *testing.T, n int, o Options, test func(t *testing.T, s *timeless)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &timeless{calls: make([][]call, n), began: time.Now()}
		var at []string
		for i := range n {
			m := miniredis.NewMiniRedis()
			c, err := m.Dial() // starts it without a listener
			if err != nil {
				t.Fatal(err)
			}
			_ = c.Close()
			m.Server().SetPreHook(func(p *server.Peer, cmd string, args ...string) bool { return s.sees(i, p, cmd, args) })
			t.Cleanup(m.Close)
			s.nodes, at = append(s.nodes, m), append(at, fmt.Sprintf("127.0.0.1:%d", i+1))
		}
		o.Nodes = nodesAt(t, at...)
		skipped := o.now
		o.now = func() time.Duration {
			now := time.Since(s.began) + time.Hour
			if skipped != nil {
				now += skipped()
			}
			return now
		}
		o.Tune = func(c *rueidis.ClientOption) {
			c.DialCtxFn = func(_ context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
				ours, theirs := net.Pipe()
				s.nodes[slices.Index(at, addr)].Server().ServeConn(newBuffered(theirs))
				return ours, nil
			}
		}
		s.Service = serve(t, o)
		test(t, s)
	})
}

// A buffered connection does not wait for its peer to read, unlike a net.Pipe: both sides
// of a pipeline may write at once.
type buffered struct {
	net.Conn
	out    chan []byte
	closed chan struct{}
	once   sync.Once
}

func newBuffered(c net.Conn) *buffered {
	b := &buffered{Conn: c, out: make(chan []byte, 1<<16), closed: make(chan struct{})}
	go func() {
		for {
			select {
			case p := <-b.out:
				_, _ = c.Write(p)
			case <-b.closed:
				return
			}
		}
	}()
	return b
}

// Write takes a copy of p.
func (b *buffered) Write(p []byte) (int, error) {
	b.out <- slices.Clone(p)
	return len(p), nil
}

// Close drops what was not read.
func (b *buffered) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.Conn.Close()
}

// sees is called before each command.
func (s *timeless) sees(node int, p *server.Peer, cmd string, args []string) (done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if node < s.broke {
		p.WriteError("LOADING")
		return true
	}
	if cmd == "EVALSHA" {
		s.calls[node] = append(s.calls[node], call{args[0], time.Since(s.began)})
	}
	return false
}

// down lets the first n nodes answer with errors, and the others not.
func (s *timeless) down(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broke = n
}

// ran is how often a node ran a script.
func (s *timeless) ran(node int, sc *scripts.Script) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls[node] {
		if c.sha == sc.SHA1 {
			n++
		}
	}
	return n
}

// last is when a node ran a script last.
func (s *timeless) last(node int, sc *scripts.Script) (at time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls[node] {
		if c.sha == sc.SHA1 {
			at = c.at
		}
	}
	return at
}

// left is what remains of the lease of job on node i, 0 if it is free.
func (s *timeless) left(i int) time.Duration {
	e := s.nodes[i].HGet(s.key(0, "job").lock, "e")
	if e == "" {
		return 0
	}
	ms, err := time.ParseDuration(e + "ms")
	if err != nil {
		panic(err)
	}
	return ms - time.Duration(time.Now().UnixMilli())*time.Millisecond
}

func TestRenewalsPerLease(t *testing.T) {
	t.Parallel()
	inBubble(t, 5, Options{}, func(t *testing.T, s *timeless) {
		c := newClient(s.Service)
		c.lock(t, "job", "alice", 30*time.Second, 0)
		time.Sleep(10 * 30 * time.Second)
		for i := range s.nodes {
			if n := s.ran(i, scripts.Renew); n < 30 || n > 31 {
				t.Errorf("node %d was sent %d renewals in 10 leases, want 3 a lease", i, n)
			}
			if left := s.left(i); left < 19*time.Second {
				t.Errorf("%v left on node %d", left, i)
			}
		}
		if len(c.told()) > 0 {
			t.Errorf("told %+v", c.told())
		}
	})
}

// sleepUntil sleeps until d after the start of the bubble.
func (s *timeless) sleepUntil(d time.Duration) { time.Sleep(d - time.Since(s.began)) }

// TestMissedRenewals: with a lease of 30 s and a validity of 29.7 s the first renewal is
// due after 9.9 s; each that fails is followed by one when a third of what is left is over.
func TestMissedRenewals(t *testing.T) {
	t.Parallel()
	tests := []struct {
		what     string
		from, to time.Duration // too few nodes answer
		lost     bool
	}{
		{"two misses", 5 * time.Second, 18 * time.Second, false},
		{"all of a lease", 5 * time.Second, time.Hour, true},
		{"all of a later lease", 25 * time.Second, time.Hour, true},
	}
	for _, tt := range tests {
		t.Run(tt.what, func(t *testing.T) {
			t.Parallel()
			inBubble(t, 3, Options{}, func(t *testing.T, s *timeless) {
				c := newClient(s.Service)
				g := c.lock(t, "job", "alice", 30*time.Second, 0)
				s.sleepUntil(tt.from)
				end := time.Now().Add(s.left(2) - drift(30*time.Second)) // at most
				s.down(2)
				if !tt.lost {
					s.sleepUntil(tt.to)
					if n := s.ran(2, scripts.Renew); n < 2 {
						t.Errorf("%d renewals failed", n)
					}
					s.down(0)
					time.Sleep(time.Minute)
					refused(t, s.Service, "job", "bob", time.Second)
					if len(c.told()) > 0 {
						t.Errorf("told %+v", c.told())
					}
					return
				}
				time.Sleep(time.Minute)
				at := c.lostOnce(t, 0, g, "1 of 3 answered, 2 needed")
				if before := end.Sub(at); before < 900*time.Millisecond || before > 1100*time.Millisecond {
					t.Errorf("told %v before the end", before)
				}
				if n := s.ran(2, scripts.Renew); n < 3 {
					t.Errorf("%d renewals were tried", n)
				}
			})
		})
	}
}

func TestMaxHoldEndsRenewing(t *testing.T) {
	t.Parallel()
	inBubble(t, 3, Options{MaxHold: time.Minute}, func(t *testing.T, s *timeless) {
		c := newClient(s.Service)
		g := c.lock(t, "job", "alice", 10*time.Second, 0)
		time.Sleep(5 * time.Minute)
		at := c.lostOnce(t, 0, g, "MAXHOLD of 1m is over").Sub(s.began)
		if at < time.Minute || at > 69*time.Second {
			t.Errorf("told after %v", at)
		}
		if last := s.last(0, scripts.Renew); last > time.Minute || last < 56*time.Second {
			t.Errorf("last renewed after %v", last)
		}
		if s.left(0) > 0 {
			t.Error("the lock is still held")
		}
	})
}

// TestRenewingByHandSetsTheLease that the session keeps: a shorter one stays short, a
// longer one is not cut.
func TestRenewingByHandSetsTheLease(t *testing.T) {
	t.Parallel()
	inBubble(t, 3, Options{}, func(t *testing.T, s *timeless) {
		c := newClient(s.Service)
		g := c.lock(t, "job", "alice", 20*time.Second, 0)
		for _, ttl := range []time.Duration{5 * time.Second, 50 * time.Second, 10 * time.Second} {
			if _, err := s.Renew(t.Context(), RenewRequest{Name: "job", Owner: "alice", TTL: ttl, Fence: g.Fence}); err != nil {
				t.Fatal(err)
			}
			for range 200 {
				time.Sleep(ttl / 33)
				if left := s.left(0); left > ttl || left < ttl*6/10 {
					t.Fatalf("renewed for %v by hand, and %v are left", ttl, left)
				}
			}
		}
		if len(c.told()) > 0 {
			t.Errorf("told %+v", c.told())
		}
	})
}

// TestWhatIsNotRememberedIsRead: a grant that fell out of the memory is kept as well.
func TestWhatIsNotRememberedIsRead(t *testing.T) {
	t.Parallel()
	inBubble(t, 3, Options{Memory: 1}, func(t *testing.T, s *timeless) {
		c := newClient(s.Service)
		for _, name := range []string{"job", "second", "third"} {
			c.lock(t, name, "alice", 10*time.Second, 0)
		}
		time.Sleep(time.Minute)
		for _, name := range []string{"job", "second", "third"} {
			refused(t, s.Service, name, "bob", time.Second)
		}
		c.End()
		time.Sleep(time.Second)
		for _, name := range []string{"job", "second", "third"} {
			lock(t, s.Service, name, "bob", time.Second)
		}
		if len(c.told()) > 0 {
			t.Errorf("told %+v", c.told())
		}
	})
}

// TestASleepingMachine: the clock goes on, timers do not.
func TestASleepingMachine(t *testing.T) {
	t.Parallel()
	var slept atomic.Int64
	var o Options
	o.now = func() time.Duration { return time.Duration(slept.Load()) }
	inBubble(t, 3, o, func(t *testing.T, s *timeless) {
		c := newClient(s.Service)
		g := c.lock(t, "job", "alice", 30*time.Second, 0)
		time.Sleep(3 * time.Second)
		slept.Store(int64(10 * time.Minute))
		time.Sleep(1100 * time.Millisecond)
		c.lostOnce(t, 0, g, "it expired")
	})
}

// TestAfterAnUndecidedUnlock renewing does not begin again, and nobody is told: the owner
// is done, and nodes are told as soon as they answer.
func TestAfterAnUndecidedUnlock(t *testing.T) {
	t.Parallel()
	inBubble(t, 3, Options{}, func(t *testing.T, s *timeless) {
		c := newClient(s.Service)
		c.lock(t, "job", "alice", 30*time.Second, 0)
		s.down(2)
		var q *QuorumError
		if left, err := s.Unlock(t.Context(), UnlockRequest{Name: "job", Owner: "alice"}); !errors.As(err, &q) {
			t.Errorf("UNLOCK: %d, %v", left, err)
		}
		s.down(0)
		time.Sleep(time.Second)
		lock(t, s.Service, "job", "bob", time.Second)
		time.Sleep(time.Minute)
		if n := s.ran(2, scripts.Renew); n > 0 || len(c.told()) > 0 || keptBy(s.Service) > 0 {
			t.Errorf("%d renewals, told %+v", n, c.told())
		}
	})
}
