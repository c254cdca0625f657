package quorum

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/scripts"
)

// A timeless is a Service and its embedded nodes in a synctest bubble, where hours pass
// in no time.
type timeless struct {
	*proxy
	nodes []*miniredis.Miniredis
	calls [][]call // of scripts that renew or read, by node
	mu    sync.Mutex
	broke int                     // so many nodes answer with errors
	fails map[int]*scripts.Script // each of these nodes answers this script with an error
	slow  time.Duration           // what each node takes for a script
	late  delay
	began time.Time
	opts  testOptions // of the Service
}

// A delay is what one node takes for a script, beside what each node takes.
type delay struct {
	node   int
	script *scripts.Script
	by     time.Duration
}

// A call is one execution of a script, and when.
type call struct {
	sha string
	at  time.Duration
}

// inBubble runs a test with n nodes. The clock of the Service is ahead by o.now, if that
// is not nil.
func inBubble(t *testing.T, n int, o testOptions, test func(t *testing.T, s *timeless)) {
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
		s.opts = o
		s.proxy = serve(t, o)
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
	sc := s.fails[node]
	if node < s.broke || cmd == "EVALSHA" && sc != nil && args[0] == sc.SHA1 {
		p.WriteError("LOADING")
		return true
	}
	if cmd == "EVALSHA" {
		s.calls[node] = append(s.calls[node], call{args[0], time.Since(s.began)})
		slow := s.slow
		if l := s.late; l.script != nil && l.node == node && l.script.SHA1 == args[0] {
			slow += l.by
		}
		s.mu.Unlock()
		time.Sleep(slow)
		s.mu.Lock()
	}
	return false
}

// take has each node take so long for a script.
func (s *timeless) take(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slow = d
}

// delay has one node do a script so much later, from the next call on; nil: none.
func (s *timeless) delay(node int, sc *scripts.Script, by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.late = delay{node, sc, by}
}

// down lets the first n nodes answer with errors, and the others not.
func (s *timeless) down(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broke = n
}

// failScripts has each of these nodes answer one script with errors, and the others none. Calls that are under way, as to
// a node that a quorum did not wait for, end first.
func (s *timeless) failScripts(fails map[int]*scripts.Script) {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = fails
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

// left is what remains of the lease of job on node i, 0 if it is free.
func (s *timeless) left(i int) time.Duration {
	e := s.nodes[i].HGet(s.RedisKeys(locks.Key{DB: 0, Name: "job"}).Lock, "e")
	if e == "" {
		return 0
	}
	ms, err := time.ParseDuration(e + "ms")
	if err != nil {
		panic(err)
	}
	return ms - time.Duration(time.Now().UnixMilli())*time.Millisecond
}

func TestSession_RenewalsPerLease(t *testing.T) {
	t.Parallel()
	inBubble(t, 5, testOptions{}, func(t *testing.T, s *timeless) {
		c := newClient(s.proxy)
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

// TestSession_MissedRenewals: with a lease of 30 s and a validity of 29.7 s the first renewal is
// due after 9.9 s; each that fails is followed by one when a third of what is left is over.
func TestSession_MissedRenewals(t *testing.T) {
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
			inBubble(t, 3, testOptions{}, func(t *testing.T, s *timeless) {
				c := newClient(s.proxy)
				g := c.lock(t, "job", "alice", 30*time.Second, 0)
				s.sleepUntil(tt.from)
				end := time.Now().Add(s.left(2) - locks.Drift(30*time.Second)) // at most
				s.down(2)
				if !tt.lost {
					s.sleepUntil(tt.to)
					if n := s.ran(2, scripts.Renew); n < 2 {
						t.Errorf("%d renewals failed", n)
					}
					s.down(0)
					time.Sleep(time.Minute)
					refused(t, s.proxy, "job", "bob", time.Second)
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

// TestSession_MissedRenewalsOfDifferentLeases: the hold whose validity ends first decides when a renewal that failed is tried again, and
// its client is told if none succeeds before that. The other hold is kept.
func TestSession_MissedRenewalsOfDifferentLeases(t *testing.T) {
	t.Parallel()
	const short, long = 3 * time.Second, 50 * time.Second
	begin := func(t *testing.T, s *timeless) (first, second *client, g locks.Grant) {
		first, second = newClient(s.proxy), newClient(s.proxy)
		first.lock(t, "job", "alice", short, 0)
		g = second.lock(t, "job", "alice", long, 0)
		s.down(2)
		return first, second, g
	}
	t.Run("a miss", func(t *testing.T) {
		t.Parallel()
		inBubble(t, 3, testOptions{}, func(t *testing.T, s *timeless) {
			first, second, _ := begin(t, s)
			s.sleepUntil(2 * time.Second)
			s.down(0)
			s.sleepUntil(short + time.Second)
			unlock(t, s.proxy, "job", "alice", 1)
			refused(t, s.proxy, "job", "bob", time.Second)
			if told := append(first.told(), second.told()...); len(told) > 0 {
				t.Errorf("told %+v", told)
			}
		})
	})
	t.Run("all of the shorter lease", func(t *testing.T) {
		t.Parallel()
		inBubble(t, 3, testOptions{}, func(t *testing.T, s *timeless) {
			first, second, g := begin(t, s)
			end := s.began.Add(short - locks.Drift(short))
			s.sleepUntil(short + time.Second)
			at := first.lostOnce(t, 0, g, "1 of 3 answered, 2 needed")
			if before := end.Sub(at); before < 0 || before > short/3 {
				t.Errorf("told %v before the end", before)
			}
			s.down(0)
			time.Sleep(2 * long)
			refused(t, s.proxy, "job", "bob", time.Second)
			if len(second.told()) > 0 || keptBy(s.proxy) != 1 {
				t.Errorf("told %+v, %d kept", second.told(), keptBy(s.proxy))
			}
		})
	})
}

// TestSession_HoldBesideOneRenewedElsewhere: of two holds one has been renewed through another proxy for longer than the session renews. The
// session counts on no longer lease for the other one than it asked for.
func TestSession_HoldBesideOneRenewedElsewhere(t *testing.T) {
	t.Parallel()
	inBubble(t, 3, testOptions{}, func(t *testing.T, s *timeless) {
		c, elsewhere := newClient(s.proxy), serve(t, s.opts)
		long := locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: 20 * time.Second, Req: "long", Session: c.Session}
		if d, err := s.Lock(t.Context(), long); err != nil || !d.Granted {
			t.Fatalf("%+v, %v", d, err)
		}
		if _, err := elsewhere.Renew(t.Context(), locks.RenewRequest{Key: long.Key, Owner: "alice", TTL: 50 * time.Second}); err != nil {
			t.Fatal(err)
		}
		c.lock(t, "job", "alice", 3*time.Second, 0)
		time.Sleep(25 * time.Second)
		if left, err := s.Unlock(t.Context(), locks.UnlockRequest{Key: long.Key, Owner: "alice", Req: "long"}); err != nil || left != 1 {
			t.Errorf("%d holds left, %v", left, err)
		}
		refused(t, s.proxy, "job", "bob", time.Second)
		if len(c.told()) > 0 {
			t.Errorf("told %+v", c.told())
		}
	})
}

// TestExtend_HoldOfASilentNode: a renewal for a session that finds one of its holds on too few nodes, since one is silent, is not told
// to have renewed that hold. The others are renewed.
func TestExtend_HoldOfASilentNode(t *testing.T) {
	t.Parallel()
	inBubble(t, 3, testOptions{}, func(t *testing.T, s *timeless) {
		const ttl = 20 * time.Second
		first := lock(t, s.proxy, "job", "alice", ttl)
		h := locks.Holder{Key: first.Key, Owner: "alice"}
		if _, err := serve(t, s.opts).Renew(t.Context(), locks.RenewRequest{Key: h.Key, Owner: h.Owner, TTL: ttl}); err != nil {
			t.Fatal(err)
		}
		s.failScripts(map[int]*scripts.Script{2: scripts.Acquire})
		second := lock(t, s.proxy, "job", "alice", ttl)
		s.failScripts(nil)
		time.Sleep(ttl / 2)
		s.down(1)
		e := s.Extend(t.Context(), h, first.Fence, locks.Term{TTL: ttl, End: s.Now() + time.Hour}, []string{first.Hold, second.Hold})
		if e.Result != locks.Undecided || e.Err == nil {
			t.Errorf("%+v, want none decided", e)
		}
		if left := s.left(2); left < ttl-time.Second {
			t.Errorf("%v left of the other hold", left)
		}
	})
}

// TestMaxHold_EndsTheLease: MAXHOLD ends a lease, whether it is shorter or longer than TTL. The
// client is told before, and no validity that it was told runs longer.
func TestMaxHold_EndsTheLease(t *testing.T) {
	t.Parallel()
	tests := []struct {
		what         string
		ttl, maxHold time.Duration // of LOCK
		limit        time.Duration // of the Service, 0: its default
		ends         time.Duration
	}{
		{"many leases", 10 * time.Second, 0, time.Minute, time.Minute},
		{"one and a half", 2 * time.Second, 3 * time.Second, 0, 3 * time.Second},
		{"a little more than one", 2 * time.Second, 2001 * time.Millisecond, 0, 2001 * time.Millisecond},
		{"exactly one", 2 * time.Second, 2 * time.Second, 0, 2 * time.Second},
		{"less than one", 30 * time.Second, 3 * time.Second, 0, 3 * time.Second},
		{"less than one by default", 30 * time.Second, 0, 3 * time.Second, 3 * time.Second},
		{"the shortest", 30 * time.Second, 100 * time.Millisecond, 0, 100 * time.Millisecond},
	}
	for _, tt := range tests {
		t.Run(tt.what, func(t *testing.T) {
			t.Parallel()
			inBubble(t, 3, testOptions{MaxHold: tt.limit}, func(t *testing.T, s *timeless) {
				c := newClient(s.proxy)
				g := c.lock(t, "job", "alice", tt.ttl, tt.maxHold)
				granted := time.Now()
				end := granted.Add(tt.ends)
				if g.Validity > tt.ends {
					t.Errorf("LOCK says %v", g.Validity)
				}
				for len(c.told()) == 0 && time.Now().Before(end) {
					time.Sleep(time.Millisecond)
				}
				told := end.Sub(c.lostOnce(t, 0, g, "MAXHOLD of "+strings.Replace(tt.ends.String(), "m0s", "m", 1)+" is over"))
				ttl := min(tt.ttl, tt.ends)
				if least := max(20*time.Millisecond, min(ttl/10, time.Second)); told < least || told > least+locks.Drift(ttl)+10*time.Millisecond {
					t.Errorf("told %v before the end", told)
				}
				refused(t, s.proxy, "job", "bob", time.Second) // until the end
				time.Sleep(time.Until(end) - 2*time.Millisecond - locks.Drift(ttl))
				for i := range s.nodes {
					if left := s.left(i); left <= 0 {
						t.Errorf("node %d has ended it before", i)
					}
				}
				time.Sleep(time.Until(end) + 5*time.Millisecond)
				for i := range s.nodes {
					if left := s.left(i); left > 0 {
						t.Errorf("%v left on node %d after the end", left, i)
					}
				}
				lock(t, s.proxy, "job", "bob", time.Second)
			})
		})
	}
}

// TestMaxHold_LeaseReadAnew: a lease that was changed through another proxy is cut to
// MAXHOLD as well.
func TestMaxHold_LeaseReadAnew(t *testing.T) {
	t.Parallel()
	inBubble(t, 3, testOptions{}, func(t *testing.T, s *timeless) {
		c := newClient(s.proxy)
		g := c.lock(t, "job", "alice", 6*time.Second, 9*time.Second)
		end := time.Now().Add(9 * time.Second)
		for time.Until(end) > time.Second && len(c.told()) == 0 {
			s.grants.invalidate(locks.Holder{Key: locks.Key{DB: 0, Name: "job"}, Owner: "alice"})
			time.Sleep(100 * time.Millisecond)
		}
		for len(c.told()) == 0 && time.Now().Before(end) {
			time.Sleep(time.Millisecond)
		}
		c.lostOnce(t, 0, g, "MAXHOLD of 9s is over")
		if n := s.ran(0, scripts.Read); n == 0 {
			t.Error("nothing was read")
		}
		time.Sleep(time.Until(end) + 5*time.Millisecond)
		lock(t, s.proxy, "job", "bob", time.Second)
	})
}

// TestSession_RenewSetsTheLease: after a RENEW the session renews for that TTL: a shorter lease
// stays short, a longer one is not cut.
func TestSession_RenewSetsTheLease(t *testing.T) {
	t.Parallel()
	inBubble(t, 3, testOptions{}, func(t *testing.T, s *timeless) {
		c := newClient(s.proxy)
		g := c.lock(t, "job", "alice", 20*time.Second, 0)
		for _, ttl := range []time.Duration{5 * time.Second, 50 * time.Second, 10 * time.Second} {
			if _, err := s.Renew(t.Context(), locks.RenewRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: ttl, Fence: g.Fence}); err != nil {
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

// TestSession_NotedLeaseEndsByItsVotes: once a node has a note that the lease may have
// been shortened, the session's own renewals are all that is known of its end, and what is
// remembered of another hold's longer lease does not count.
func TestSession_NotedLeaseEndsByItsVotes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		what string
		read bool
	}{{"renewed as remembered", false}, {"read anew", true}} {
		t.Run(tt.what, func(t *testing.T) {
			t.Parallel()
			inBubble(t, 3, testOptions{}, func(t *testing.T, s *timeless) {
				c, h := newClient(s.proxy), locks.Holder{Key: locks.Key{DB: 0, Name: "job"}, Owner: "alice"}
				g := c.lock(t, "job", "alice", 3*time.Second, 0)
				if _, err := s.inner.Store.Renew(t.Context(), locks.RenewRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: time.Minute}); err != nil { // behind the keepalive's back
					t.Fatal(err)
				}
				look := func() (left time.Duration) {
					if tt.read {
						s.grants.invalidate(h)
					}
					s.keepalive.RecheckIn(0, h, true)
					time.Sleep(100 * time.Millisecond)
					until, _ := s.grants.until(h, g.Fence, []string{g.Hold})
					return until - s.Now()
				}
				if left := look(); left < 50*time.Second {
					t.Errorf("%v left before the note", left)
				}
				votes, err := s.noteShortening(t.Context(), h, g.Fence, s.Opts.Timeouts(time.Second))
				if err != nil || vote.CountKind(votes, vote.Yes) < s.Quorum {
					t.Fatal(votes, err)
				}
				if left := look(); left > 3*time.Second {
					t.Errorf("%v left after the note", left)
				}
				before := s.ran(0, scripts.Renew)
				time.Sleep(9 * time.Second)
				if n := s.ran(0, scripts.Renew) - before; n < 9 {
					t.Errorf("%d renewals in three leases", n)
				}
				if len(c.told()) > 0 {
					t.Errorf("told %+v", c.told())
				}
			})
		})
	}
}

// TestValidity_CountsFromTheQuestion: what LOCK and RENEW say is left ends a lease after the question, less the drift, however long
// the nodes took to answer: the lease may have begun at once.
func TestValidity_CountsFromTheQuestion(t *testing.T) {
	t.Parallel()
	inBubble(t, 3, testOptions{}, func(t *testing.T, s *timeless) {
		const ttl = 20 * time.Second
		for _, slow := range []time.Duration{0, 20 * time.Millisecond, 90 * time.Millisecond} {
			s.take(slow)
			asked := s.Now()
			g := lock(t, s.proxy, "job", "alice", ttl)
			if end, want := s.Now()+g.Validity-asked, ttl-locks.Drift(ttl); end > want {
				t.Errorf("LOCK of nodes that take %v: valid until %v, not %v", slow, end, want)
			}
			asked = s.Now()
			left, err := s.Renew(t.Context(), locks.RenewRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: ttl})
			if err != nil {
				t.Fatal(err)
			}
			if end, want := s.Now()+left-asked, ttl-locks.Drift(ttl); end > want {
				t.Errorf("RENEW of nodes that take %v: valid until %v, not %v", slow, end, want)
			}
			s.take(0)
			unlock(t, s.proxy, "job", "alice", 0)
		}
	})
}

// TestSession_GrantNotInCacheIsRead: a grant that fell out of the cache is renewed all the same.
func TestSession_GrantNotInCacheIsRead(t *testing.T) {
	t.Parallel()
	inBubble(t, 3, testOptions{Memory: 1}, func(t *testing.T, s *timeless) {
		c := newClient(s.proxy)
		for _, name := range []string{"job", "second", "third"} {
			c.lock(t, name, "alice", 10*time.Second, 0)
		}
		time.Sleep(time.Minute)
		for _, name := range []string{"job", "second", "third"} {
			refused(t, s.proxy, name, "bob", time.Second)
		}
		c.End()
		time.Sleep(time.Second)
		for _, name := range []string{"job", "second", "third"} {
			lock(t, s.proxy, name, "bob", time.Second)
		}
		if len(c.told()) > 0 {
			t.Errorf("told %+v", c.told())
		}
	})
}

// TestSession_MachineSuspended: the clock goes on, timers do not.
func TestSession_MachineSuspended(t *testing.T) {
	t.Parallel()
	var slept atomic.Int64
	var o testOptions
	o.now = func() time.Duration { return time.Duration(slept.Load()) }
	inBubble(t, 3, o, func(t *testing.T, s *timeless) {
		c := newClient(s.proxy)
		g := c.lock(t, "job", "alice", 30*time.Second, 0)
		time.Sleep(3 * time.Second)
		slept.Store(int64(10 * time.Minute))
		time.Sleep(1100 * time.Millisecond)
		c.lostOnce(t, 0, g, "it expired")
	})
}

// TestSession_AfterUndecidedUnlock: after an UNLOCK that is not decided the session does not renew
// the lock again, and gets no loss: the owner is done, and nodes are told as soon as they answer.
func TestSession_AfterUndecidedUnlock(t *testing.T) {
	t.Parallel()
	inBubble(t, 3, testOptions{}, func(t *testing.T, s *timeless) {
		c := newClient(s.proxy)
		c.lock(t, "job", "alice", 30*time.Second, 0)
		s.down(2)
		var q *locks.QuorumError
		if left, err := s.Unlock(t.Context(), locks.UnlockRequest{Key: locks.Key{Name: "job"}, Owner: "alice"}); !errors.As(err, &q) {
			t.Errorf("UNLOCK: %d, %v", left, err)
		}
		s.down(0)
		time.Sleep(time.Second)
		lock(t, s.proxy, "job", "bob", time.Second)
		time.Sleep(time.Minute)
		if n := s.ran(2, scripts.Renew); n > 0 || len(c.told()) > 0 || keptBy(s.proxy) > 0 {
			t.Errorf("%d renewals, told %+v", n, c.told())
		}
	})
}
