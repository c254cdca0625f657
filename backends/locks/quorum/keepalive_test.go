package quorum

import (
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/backends/locks/voters"
	"github.com/lockproxy/lockproxy/integration/redistest"
)

// A client is a session and what it was told.
type client struct {
	proxy *proxy
	*locks.Session
	mu     sync.Mutex
	losses []locks.Loss
	at     []time.Time
}

func newClient(s *proxy) *client {
	c := &client{proxy: s}
	c.Session = s.NewSession(func(l locks.Loss) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.losses, c.at = append(c.losses, l), append(c.at, time.Now())
	})
	return c
}

func (c *client) told() []locks.Loss {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]locks.Loss(nil), c.losses...)
}

// lock takes a name for this session.
func (c *client) lock(tb testing.TB, name, owner string, ttl, maxHold time.Duration) locks.Grant {
	tb.Helper()
	a, err := c.proxy.Lock(tb.Context(), locks.LockRequest{Key: locks.Key{Name: name}, Owner: owner, TTL: ttl, Session: c.Session, MaxHold: maxHold})
	if err != nil || !a.Granted {
		tb.Fatalf("LOCK %s by %s: %+v, %v", name, owner, a, err)
	}
	return a.Grant
}

// lostOnce waits until the client was told of exactly one loss, and returns when.
func (c *client) lostOnce(tb testing.TB, within time.Duration, g locks.Grant, reason string) time.Time {
	tb.Helper()
	eventually(tb, within, "the loss is told", func() bool { return len(c.told()) > 0 })
	l := c.told()
	if len(l) != 1 || l[0].Name != g.Name || l[0].Owner != g.Owner || l[0].Fence != g.Fence || !strings.Contains(l[0].Reason, reason) {
		tb.Fatalf("told %+v, want the loss of %s because %q", l, g.Name, reason)
	}
	return c.at[0]
}

// free waits until another owner gets the name.
func free(tb testing.TB, s *proxy, name string, within time.Duration) {
	tb.Helper()
	eventually(tb, within, name+" is free", func() bool {
		a, err := s.Lock(tb.Context(), locks.LockRequest{Key: locks.Key{Name: name}, Owner: "next", TTL: 100 * time.Millisecond})
		return err == nil && a.Granted
	})
}

// keptBy is how many holds are kept for sessions.
func keptBy(s *proxy) int {
	return s.Stats().SessionLocks
}

// TestSession_EndIsNoUnlock: after a session's end a late renewal does not bring the lock back,
// and the release is not remembered as an UNLOCK of the owner.
func TestSession_EndIsNoUnlock(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 3)
	c, n := newClient(s), conns(t, nodes)
	g := c.lock(t, "job", "alice", 30*time.Second, 0)
	everywhere(t, s, n)
	c.End()
	k := s.RedisKeys(locks.Key{DB: 0, Name: "job"})
	for i := range n {
		eventually(t, patient, "it is released", func() bool { return n[i].Do(t, "EXISTS", k.Lock).Int() == 0 })
		if top := n[i].Do(t, "HGET", k.Fences, "c").Text; top != strconv.FormatInt(g.Fence+1, 10) {
			t.Errorf("the largest fence is %s, want %d", top, g.Fence+1)
		}
		if last := n[i].Do(t, "HGET", k.Fences, "o").Text; last != "" {
			t.Errorf("a release by %s is remembered", last)
		}
		if v := n[i].Do(t, renewal(s, g, 10*time.Second, vote.Version{Epoch: g.Hold, Sequence: 99}, "1")...); v.Elems[0].Int() != 0 {
			t.Errorf("a late renewal: %v", v)
		}
	}
}

// TestSession_EndAfterAnotherProxyRenewed: that proxy remembers the validity, but its
// UNLOCK must not succeed after another owner has had the lock.
func TestSession_EndAfterAnotherProxyRenewed(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 5)
	p, n := rivals(t, 2, nodes), conns(t, nodes)
	c := newClient(p[0])
	g := c.lock(t, "job", "alice", 30*time.Second, 0)
	everywhere(t, p[0], n)
	if _, err := p[1].Renew(t.Context(), locks.RenewRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: 30 * time.Second}); err != nil {
		t.Fatal(err)
	}
	c.End()
	free(t, p[0], "job", patient)
	noted := 0
	for i := range n {
		if n[i].Do(t, "HGET", p[0].RedisKeys(locks.Key{DB: 0, Name: "job"}).Fences, "m").Text == strconv.FormatInt(g.Fence, 10) {
			noted++
		}
	}
	if noted < 3 {
		t.Errorf("%d nodes have the note", noted)
	}
	if left, err := p[1].Unlock(t.Context(), locks.UnlockRequest{Key: locks.Key{Name: "job"}, Owner: "alice", Fence: g.Fence}); err == nil {
		t.Errorf("UNLOCK through the other proxy: %d", left)
	}
}

func TestSession_GivenBackThroughAnotherProxy(t *testing.T) {
	t.Parallel()
	p := rivals(t, 2, redistest.StartNodes(t, 3))
	c := newClient(p[0])
	c.lock(t, "job", "alice", 3*time.Second, 0)
	unlock(t, p[1], "job", "alice", 0)
	eventually(t, 3*time.Second, "it is no longer kept", func() bool { return keptBy(p[0]) == 0 })
	if len(c.told()) > 0 {
		t.Errorf("told %+v", c.told())
	}
	lock(t, p[0], "job", "bob", time.Second)
}

// TestSession_OneHoldGivenBackThroughAnotherProxy: the lease is kept for the other hold only as
// long as that is the session's.
func TestSession_OneHoldGivenBackThroughAnotherProxy(t *testing.T) {
	t.Parallel()
	p := rivals(t, 2, redistest.StartNodes(t, 3))
	c := newClient(p[0])
	c.lock(t, "job", "alice", 4*time.Second, 0)
	in := lock(t, p[1], "job", "alice", 4*time.Second)
	if in.Holds != 2 {
		t.Fatalf("re-entry: %+v", in)
	}
	unlock(t, p[1], "job", "alice", 1) // the plain one
	time.Sleep(6 * time.Second)
	refused(t, p[1], "job", "bob", time.Second)
	unlock(t, p[1], "job", "alice", 0)
	eventually(t, 3*time.Second, "it is no longer kept", func() bool { return keptBy(p[0]) == 0 })
	if len(c.told()) > 0 {
		t.Errorf("told %+v", c.told())
	}
}

// TestSession_GivenBackElsewhereAndTaken is no loss, though others, or the owner itself, have had the lock when the session finds out.
func TestSession_GivenBackElsewhereAndTaken(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		what string
		then func(t *testing.T, c *client, p []*proxy)
		kept int
	}{
		{"then taken by another", func(t *testing.T, _ *client, p []*proxy) {
			lock(t, p[1], "job", "bob", 20*time.Second)
			unlock(t, p[1], "job", "bob", 0)
		}, 0},
		{"then taken again", func(t *testing.T, c *client, _ []*proxy) { c.lock(t, "job", "alice", 3*time.Second, 0) }, 1},
	} {
		t.Run(tt.what, func(t *testing.T) {
			t.Parallel()
			nodes := redistest.StartNodes(t, 3)
			p := rivals(t, 2, nodes)
			c := newClient(p[0])
			c.lock(t, "job", "alice", 3*time.Second, 0)
			for _, n := range nodes {
				eventually(t, patient, "the proxy hears of leases that are cut", func() bool { return n.Do(t, "PUBSUB", "NUMSUB", "lockproxy:node:cut").Elems[1].Int() > 0 })
			}
			unlock(t, p[1], "job", "alice", 0)
			tt.then(t, c, p)
			time.Sleep(2 * time.Second) // it is renewed after one
			if kept := keptBy(p[0]); len(c.told()) > 0 || kept != tt.kept {
				t.Errorf("told %+v, %d kept", c.told(), kept)
			}
		})
	}
}

func TestSession_RenewedThroughAnotherProxy(t *testing.T) {
	t.Parallel()
	inBubble(t, 3, testOptions{}, func(t *testing.T, s *timeless) {
		c, other := newClient(s.proxy), s.another(t)
		c.lock(t, "job", "alice", 3*time.Second, 0)
		for range 3 {
			if _, err := other.Renew(t.Context(), locks.RenewRequest{Key: jobKey, Owner: "alice", TTL: 3 * time.Second}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(3300 * time.Millisecond)
		}
		refused(t, other.proxy, "job", "bob", time.Second)
		unlock(t, s.proxy, "job", "alice", 0)
		if len(c.told()) > 0 {
			t.Errorf("told %+v", c.told())
		}
	})
}

func TestSession_LossesAreTold(t *testing.T) {
	t.Parallel()
	tests := []struct {
		what, reason string
		happens      func(t *testing.T, s *proxy, n []*redistest.Conn)
	}{
		{"another owner has it", "another owner has it", func(t *testing.T, s *proxy, n []*redistest.Conn) {
			rivalHas(t, s, n[0])
			rivalHas(t, s, n[1])
		}},
		{"deleted by hand", "it expired or was taken away", func(t *testing.T, s *proxy, n []*redistest.Conn) {
			for i := range n {
				n[i].Do(t, "DEL", s.RedisKeys(locks.Key{DB: 0, Name: "job"}).Lock)
			}
		}},
		{"FLUSHALL of a quorum", "could not be renewed", func(t *testing.T, s *proxy, n []*redistest.Conn) {
			n[0].Do(t, "FLUSHALL")
			n[1].Do(t, "FLUSHALL")
		}},
		{"forced here", "taken away by an operator", func(t *testing.T, s *proxy, _ []*redistest.Conn) {
			if _, held, err := s.Force(t.Context(), locks.Key{DB: 0, Name: "job"}); err != nil || !held {
				t.Errorf("FORCE: %v, %v", held, err)
			}
		}},
		{"granted anew", "it expired", func(t *testing.T, s *proxy, n []*redistest.Conn) {
			for i := range n {
				n[i].Do(t, "DEL", s.RedisKeys(locks.Key{DB: 0, Name: "job"}).Lock)
			}
			lock(t, s, "job", "alice", time.Second)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.what, func(t *testing.T) {
			t.Parallel()
			s, nodes := start(t, 3)
			n, c := conns(t, nodes), newClient(s)
			locked := time.Now()
			g := c.lock(t, "job", "alice", 9*time.Second, 0)
			everywhere(t, s, n)
			tt.happens(t, s, n)
			if d := c.lostOnce(t, 10*time.Second, g, tt.reason).Sub(locked); d > g.Validity {
				t.Errorf("told after %v, the validity was %v", d, g.Validity)
			}
			if keptBy(s) > 0 {
				t.Error("it is still kept")
			}
		})
	}
}

// TestSession_RenewalReinstates reinstates the record on a node that lost it.
func TestSession_RenewalReinstates(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 3)
	n, c := conns(t, nodes), newClient(s)
	c.lock(t, "job", "alice", 3*time.Second, 0)
	everywhere(t, s, n)
	for i := range n {
		n[i].Do(t, "DEL", s.RedisKeys(locks.Key{DB: 0, Name: "job"}).Lock)
		everywhere(t, s, n)
	}
	if len(c.told()) > 0 {
		t.Errorf("told %+v", c.told())
	}
}

// TestSession_UndoneGrantIsNotReinstated: a renewal that was under way does not bring back a grant that was undone.
func TestSession_UndoneGrantIsNotReinstated(t *testing.T) {
	t.Parallel()
	p, c, _ := proxies(t, 1)
	s, h := p[0], locks.Holder{Key: locks.Key{DB: 0, Name: "job"}, Owner: "alice"}
	g := lock(t, s, "job", "alice", 30*time.Second)
	late := s.renewCall(&leaseRenewal{holder: h, ttl: 30 * time.Second, grant: s.grants.lookup(h), change: grows, began: s.Now()}, "", "1")
	s.Undo(g)
	nothingLeft(t, s, c)
	round := s.Ask(voters.AskRenew, *late, voters.WaitForAll)
	if err := round.Wait(t.Context(), voters.Timeouts{Node: patient, Quorum: patient}); err != nil {
		t.Fatal(err)
	}
	if votes := round.Close(true, nil); vote.CountKind(votes, vote.No) != 3 {
		t.Errorf("%+v", votes)
	}
	nothingLeft(t, s, c)
}

// TestSession_LateLossSparesALaterGrant: the late loss of a grant that is over does not end
// the session's hold of the owner's next grant.
func TestSession_LateLossSparesALaterGrant(t *testing.T) {
	t.Parallel()
	s, _ := start(t, 1)
	h := locks.Holder{Key: locks.Key{DB: 0, Name: "job"}, Owner: "alice"}
	first := lock(t, s, "job", "alice", 30*time.Second)
	before := s.grants.lookup(h)
	unlock(t, s, "job", "alice", 0)
	c := newClient(s)
	a, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: 20 * time.Second, Session: c.Session})
	if err != nil || !a.Granted {
		t.Fatal(a, err)
	}
	want := s.grants.lookup(h)
	for what, say := range map[string]func(){
		"it was renewed":      func() { s.grants.endRenewal(h, before, time.Millisecond) },
		"its session renewed": func() { s.grants.endExtension(h, before, s.Now()+time.Hour) },
		"it is lost":          func() { s.grants.forgetGrant(h, first.Fence) },
		"it was taken away":   func() { s.keepalive.Lose(h, first.Fence, locks.LossForced, "test") },
		"its late RENEW fails": func() {
			_, err := s.Renew(t.Context(), locks.RenewRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: time.Second, Fence: first.Fence})
			if !errors.Is(err, locks.ErrLost) {
				t.Errorf("RENEW of the first: %v", err)
			}
		},
	} {
		say()
		now := s.grants.lookup(h) // the session may have renewed it, being in doubt
		if now.fence != want.fence || now.until() < want.until() || now.until() > want.until()+time.Minute || c.Holds() != 1 {
			t.Errorf("%s: %+v, want %+v; %d holds kept", what, now, want, c.Holds())
		}
	}
	if len(c.told()) != 0 {
		t.Errorf("the session was told %+v", c.told())
	}
}

// TestScripts_ExtensionShortensNothing: a renewal for a session makes no hold on a node end earlier.
func TestScripts_ExtensionShortensNothing(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 1)
	n := redistest.Open(t, nodes[0].Addr())
	g := lock(t, s, "job", "alice", 20*time.Second)
	for i, tt := range []struct {
		ttl         time.Duration
		least, most int64
	}{{time.Second, 15_000, 20_000}, {40 * time.Second, 35_000, 40_000}, {time.Second, 30_000, 40_000}} {
		args := renewal(s, g, tt.ttl, vote.Version{Epoch: g.Hold, Sequence: int64(i + 1)}, "0")
		args[len(args)-2] = "1"
		v := n.Do(t, args...)
		if left := n.Do(t, "PTTL", s.RedisKeys(locks.Key{DB: 0, Name: "job"}).Lock).Int(); v.Elems[0].Int() != 1 || left < tt.least || left > tt.most {
			t.Errorf("grown to %v: %v, %d ms left", tt.ttl, v, left)
		}
	}
}

// TestSession_LossHasTheLargestOnLoss: if a session loses several holds, the largest OnLoss counts.
func TestSession_LossHasTheLargestOnLoss(t *testing.T) {
	t.Parallel()
	s, _ := start(t, 1)
	for i, tt := range []struct {
		asked []locks.OnLoss
		want  locks.OnLoss
	}{
		{[]locks.OnLoss{locks.OnLossPush}, locks.OnLossPush},
		{[]locks.OnLoss{locks.OnLossDefault}, locks.OnLossDefault},
		{[]locks.OnLoss{locks.OnLossClose}, locks.OnLossClose},
		{[]locks.OnLoss{locks.OnLossPush, locks.OnLossPush}, locks.OnLossPush},
		{[]locks.OnLoss{locks.OnLossPush, locks.OnLossDefault}, locks.OnLossDefault},
		{[]locks.OnLoss{locks.OnLossClose, locks.OnLossPush, locks.OnLossDefault}, locks.OnLossClose},
	} {
		c, other, name := newClient(s), newClient(s), "job"+strconv.Itoa(i)
		lock := func(c *client, asked locks.OnLoss) {
			a, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: name}, Owner: "alice", TTL: time.Minute, Session: c.Session, OnLoss: asked})
			if err != nil || !a.Granted {
				t.Fatal(a, err)
			}
		}
		for _, asked := range tt.asked {
			lock(c, asked)
		}
		lock(other, -tt.want)
		if _, _, err := s.Force(t.Context(), locks.Key{DB: 0, Name: name}); err != nil {
			t.Fatal(err)
		}
		for c, want := range map[*client]locks.OnLoss{c: tt.want, other: -tt.want} {
			eventually(t, patient, "the loss is told", func() bool { return len(c.told()) > 0 })
			if l := c.told(); len(l) != 1 || l[0].OnLoss != want {
				t.Errorf("%v asked for: told %+v, want %d", tt.asked, l, want)
			}
		}
	}
}
