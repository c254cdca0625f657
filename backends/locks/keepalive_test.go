package locks

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/metrics"
	"github.com/lockproxy/lockproxy/integration/redistest"
)

// A client is a session and what it was told.
type client struct {
	*Session
	mu     sync.Mutex
	losses []Loss
	at     []time.Time
}

func newClient(s *Service) *client {
	c := &client{}
	c.Session = s.NewSession(func(l Loss) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.losses, c.at = append(c.losses, l), append(c.at, time.Now())
	})
	return c
}

func (c *client) told() []Loss {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Loss(nil), c.losses...)
}

// lock takes a name for this session.
func (c *client) lock(tb testing.TB, name, owner string, ttl, maxHold time.Duration) Grant {
	tb.Helper()
	a, err := c.svc.Lock(tb.Context(), LockRequest{Key: Key{Name: name}, Owner: owner, TTL: ttl, Session: c.Session, MaxHold: maxHold})
	if err != nil || !a.Granted {
		tb.Fatalf("LOCK %s by %s: %+v, %v", name, owner, a, err)
	}
	return a.Grant
}

// lostOnce waits until the client was told of exactly one loss, and returns when.
func (c *client) lostOnce(tb testing.TB, within time.Duration, g Grant, reason string) time.Time {
	tb.Helper()
	eventually(tb, within, "the loss is told", func() bool { return len(c.told()) > 0 })
	l := c.told()
	if len(l) != 1 || l[0].Name != g.Name || l[0].Owner != g.Owner || l[0].Fence != g.Fence || !strings.Contains(l[0].Reason, reason) {
		tb.Fatalf("told %+v, want the loss of %s because %q", l, g.Name, reason)
	}
	return c.at[0]
}

// free waits until another owner gets the name.
func free(tb testing.TB, s *Service, name string, within time.Duration) {
	tb.Helper()
	eventually(tb, within, name+" is free", func() bool {
		a, err := s.Lock(tb.Context(), LockRequest{Key: Key{Name: name}, Owner: "next", TTL: 100 * time.Millisecond})
		return err == nil && a.Granted
	})
}

// kept is how many leases the keepalive has.
func keptBy(s *Service) int {
	s.keepalive.mu.Lock()
	defer s.keepalive.mu.Unlock()
	return len(s.keepalive.leases)
}

func TestSession_KeepsItsLocks(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, s *Service) {
		c := newClient(s)
		c.lock(t, "job", "alice", 4*time.Second, 0)
		lock(t, s, "other", "alice", 4*time.Second)
		time.Sleep(9 * time.Second)
		refused(t, s, "job", "bob", time.Second)
		lock(t, s, "other", "bob", time.Second)
		unlock(t, s, "job", "alice", 0)
		lock(t, s, "job", "bob", time.Second)
		if l := c.told(); len(l) > 0 || keptBy(s) > 0 {
			t.Errorf("told %+v, %d leases are kept", l, keptBy(s))
		}
	})
}

func TestSession_EndReleases(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, s *Service) {
		c, other := newClient(s), newClient(s)
		c.lock(t, "job", "alice", 30*time.Second, 0)
		c.lock(t, "job", "alice", 30*time.Second, 0)
		c.lock(t, "second", "alice", 30*time.Second, 0)
		other.lock(t, "second", "alice", 30*time.Second, 0)
		lock(t, s, "plain", "alice", 30*time.Second)
		c.End()
		c.End()
		free(t, s, "job", patient)
		for _, name := range []string{"second", "plain"} { // what the same owner has otherwise
			refused(t, s, name, "bob", time.Second)
			unlock(t, s, name, "alice", 0)
		}
		if a, err := s.Lock(t.Context(), LockRequest{Key: Key{Name: "job2"}, TTL: time.Second, Session: c.Session}); !errors.Is(err, ErrSessionEnded) {
			t.Errorf("LOCK by a session that has ended: %+v, %v", a, err)
		}
		free(t, s, "job2", patient)
		if l := append(c.told(), other.told()...); len(l) > 0 || keptBy(s) > 0 {
			t.Errorf("told %+v, %d leases are kept", l, keptBy(s))
		}
	})
}

// TestSession_EndIsNoUnlock: the release is remembered by a fence that no late
// renewal passes, but not as the owner's own.
func TestSession_EndIsNoUnlock(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 3)
	c, n := newClient(s), conns(t, nodes)
	g := c.lock(t, "job", "alice", 30*time.Second, 0)
	everywhere(t, s, n)
	c.End()
	k := s.redisKeys(Key{0, "job"})
	for i := range n {
		eventually(t, patient, "it is released", func() bool { return n[i].Do(t, "EXISTS", k.lock).Int() == 0 })
		if top := n[i].Do(t, "HGET", k.fences, "c").Text; top != strconv.FormatInt(g.Fence+1, 10) {
			t.Errorf("the largest fence is %s, want %d", top, g.Fence+1)
		}
		if last := n[i].Do(t, "HGET", k.fences, "o").Text; last != "" {
			t.Errorf("a release by %s is remembered", last)
		}
		if v := n[i].Do(t, renewal(s, g, 10*time.Second, version{g.attempt, 99}, "1")...); v.Elems[0].Int() != 0 {
			t.Errorf("a late renewal: %v", v)
		}
	}
}

func TestSession_AbandonReleasesNothing(t *testing.T) {
	t.Parallel()
	s, _ := start(t, 1)
	c := newClient(s)
	g := c.lock(t, "job", "alice", time.Second, 0)
	locked := time.Now()
	c.Abandon()
	c.End()
	free(t, s, "job", 3*time.Second)
	if d := time.Since(locked); d < g.Validity || len(c.told()) > 0 {
		t.Errorf("free after %v, of %v; told %v", d, g.Validity, c.told())
	}
}

func TestMaxHold(t *testing.T) {
	t.Parallel()
	s, _ := start(t, 1)
	c := newClient(s)
	locked := time.Now()
	g := c.lock(t, "job", "alice", 10*time.Second, 12*time.Second)
	a, err := s.Lock(t.Context(), LockRequest{Key: Key{Name: "job"}, Owner: "bob", TTL: time.Second, Wait: time.Minute})
	if err != nil || !a.Granted {
		t.Fatal(a, err)
	}
	if held := time.Since(locked); held < 11900*time.Millisecond {
		t.Errorf("held for %v", held)
	}
	c.lostOnce(t, 0, g, "MAXHOLD of 12s is over") // a second before the next grant
}

func TestSessionGrace(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 1)
	s := serve(t, Options{Nodes: nodesAt(t, addrs(nodes)...), NodeTimeout: patient, SessionGrace: 3 * time.Second})
	c := newClient(s)
	c.lock(t, "job", "alice", 5*time.Second, 0)
	ended := time.Now()
	c.End()
	free(t, s, "job", patient)
	if d := time.Since(ended); d < 3*time.Second {
		t.Errorf("free after %v", d)
	}
	if len(c.told()) > 0 {
		t.Errorf("told %+v", c.told())
	}
}

// TestSession_EndAfterAnotherProxyRenewed: that proxy remembers a validity, and its
// UNLOCK must not be told yes by it after somebody else had the lock.
func TestSession_EndAfterAnotherProxyRenewed(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 5)
	p, n := rivals(t, 2, nodes), conns(t, nodes)
	c := newClient(p[0])
	g := c.lock(t, "job", "alice", 30*time.Second, 0)
	everywhere(t, p[0], n)
	if _, err := p[1].Renew(t.Context(), RenewRequest{Key: Key{Name: "job"}, Owner: "alice", TTL: 30 * time.Second}); err != nil {
		t.Fatal(err)
	}
	c.End()
	free(t, p[0], "job", patient)
	noted := 0
	for i := range n {
		if n[i].Do(t, "HGET", p[0].redisKeys(Key{0, "job"}).fences, "m").Text == strconv.FormatInt(g.Fence, 10) {
			noted++
		}
	}
	if noted < 3 {
		t.Errorf("%d nodes have the note", noted)
	}
	if left, err := p[1].Unlock(t.Context(), UnlockRequest{Key: Key{Name: "job"}, Owner: "alice", Fence: g.Fence}); err == nil {
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

func TestSession_RenewedThroughAnotherProxy(t *testing.T) {
	t.Parallel()
	p := rivals(t, 2, redistest.StartNodes(t, 3))
	c := newClient(p[0])
	c.lock(t, "job", "alice", 3*time.Second, 0)
	for range 3 {
		if _, err := p[1].Renew(t.Context(), RenewRequest{Key: Key{Name: "job"}, Owner: "alice", TTL: 3 * time.Second}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3300 * time.Millisecond)
	}
	refused(t, p[1], "job", "bob", time.Second)
	unlock(t, p[0], "job", "alice", 0)
	if len(c.told()) > 0 {
		t.Errorf("told %+v", c.told())
	}
}

func TestSession_LossesAreTold(t *testing.T) {
	t.Parallel()
	tests := []struct {
		what, reason string
		happens      func(t *testing.T, s *Service, n []*redistest.Conn)
	}{
		{"another owner has it", "another owner has it", func(t *testing.T, s *Service, n []*redistest.Conn) {
			rivalHas(t, s, n[0])
			rivalHas(t, s, n[1])
		}},
		{"deleted by hand", "it expired or was taken away", func(t *testing.T, s *Service, n []*redistest.Conn) {
			for i := range n {
				n[i].Do(t, "DEL", s.redisKeys(Key{0, "job"}).lock)
			}
		}},
		{"FLUSHALL of a quorum", "could not be renewed", func(t *testing.T, s *Service, n []*redistest.Conn) {
			n[0].Do(t, "FLUSHALL")
			n[1].Do(t, "FLUSHALL")
		}},
		{"forced here", "taken away by an operator", func(t *testing.T, s *Service, _ []*redistest.Conn) {
			if _, held, err := s.Force(t.Context(), Key{0, "job"}); err != nil || !held {
				t.Errorf("FORCE: %v, %v", held, err)
			}
		}},
		{"granted anew", "it expired", func(t *testing.T, s *Service, n []*redistest.Conn) {
			for i := range n {
				n[i].Do(t, "DEL", s.redisKeys(Key{0, "job"}).lock)
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
		n[i].Do(t, "DEL", s.redisKeys(Key{0, "job"}).lock)
		everywhere(t, s, n)
	}
	if len(c.told()) > 0 {
		t.Errorf("told %+v", c.told())
	}
}

func TestSession_UndoneGrantIsNotRenewed(t *testing.T) {
	t.Parallel()
	s, _ := start(t, 1)
	c := newClient(s)
	g := c.lock(t, "job", "alice", 30*time.Second, 0)
	c.lock(t, "job", "alice", 30*time.Second, 0)
	s.Undo(g)
	if keptBy(s) != 1 {
		t.Error("the other hold is not kept")
	}
	c.End()
	free(t, s, "job", patient)
}

// TestSession_UndoneGrantIsNotReinstated by a renewal that was under way.
func TestSession_UndoneGrantIsNotReinstated(t *testing.T) {
	t.Parallel()
	p, c, _ := proxies(t, 1)
	s, h := p[0], holder{Key{0, "job"}, "alice"}
	g := lock(t, s, "job", "alice", 30*time.Second)
	late := s.renewJob(h, 30*time.Second, s.grants.lookup(h), "", "1", grows, s.now())
	s.Undo(g)
	nothingLeft(t, s, c)
	round := s.ask(askRenew, *late, all)
	if err := round.wait(t.Context(), timeouts{patient, patient}); err != nil {
		t.Fatal(err)
	}
	if votes := round.close(true, nil); countKind(votes, no) != 3 {
		t.Errorf("%+v", votes)
	}
	nothingLeft(t, s, c)
}

// TestRenew_GrantedSinceByAnotherProxy: what this proxy remembers is an earlier grant,
// whose validity would run still.
func TestRenew_GrantedSinceByAnotherProxy(t *testing.T) {
	t.Parallel()
	p, c, _ := proxies(t, 2)
	for range 2 { // the second time the roles are changed
		first := lock(t, p[0], "job", "alice", 30*time.Second)
		unlock(t, p[1], "job", "alice", 0)
		second := lock(t, p[1], "job", "alice", 20*time.Second)
		everywhere(t, p[0], c)
		if v, err := p[0].Renew(t.Context(), RenewRequest{Key: Key{Name: "job"}, Owner: "alice", TTL: 30 * time.Second}); err != nil || v < 25*time.Second {
			t.Errorf("RENEW: %v, %v", v, err)
		}
		if _, err := p[0].Renew(t.Context(), RenewRequest{Key: Key{Name: "job"}, Owner: "alice", TTL: 30 * time.Second, Fence: first.Fence}); !errors.Is(err, ErrLost) {
			t.Errorf("RENEW of the first grant: %v", err)
		}
		if v, err := p[1].Renew(t.Context(), RenewRequest{Key: Key{Name: "job"}, Owner: "alice", TTL: 40 * time.Second, Fence: second.Fence}); err != nil || v < 35*time.Second {
			t.Errorf("RENEW of the second grant: %v, %v", v, err)
		}
		unlock(t, p[0], "job", "alice", 0)
		p[0], p[1] = p[1], p[0]
	}
}

// TestGrantCache_Extension: what is remembered of a validity grows only by the renewal that was sent
// last, and never shrinks by one that the owner did not ask for.
func TestGrantCache_Extension(t *testing.T) {
	t.Parallel()
	m, err := newGrantCache(10, func() time.Duration { return 0 }, new(metrics.Histogram))
	if err != nil {
		t.Fatal(err)
	}
	h, first := holder{Key{0, "job"}, "alice"}, version{epoch: "first"}
	m.addHold(h, grant{fence: 7, version: first}, hold{"first", 30 * time.Second}, 0, 1, 0)
	grown := func(until time.Duration, before func(), want time.Duration) {
		t.Helper()
		g, ok := m.beginExtension(h, 7, []string{"first"}, time.Second)
		if !ok {
			t.Fatal("nothing is remembered")
		}
		before()
		if got := m.endExtension(h, g, until); got != want {
			t.Errorf("validity until %v, want %v", got, want)
		}
	}
	grown(20*time.Second, func() {}, 30*time.Second)
	grown(40*time.Second, func() {}, 40*time.Second)
	grown(50*time.Second, func() { m.beginRenewal(h, 0, time.Second, 5*time.Second) }, 5*time.Second)
	for _, now := range []time.Duration{5 * time.Second, time.Minute} {
		if _, ok := m.beginExtension(h, 7, []string{"first"}, now); ok {
			t.Errorf("grows after its end, at %v", now)
		}
	}
	if _, ok := m.beginExtension(h, 8, []string{"first"}, 0); ok {
		t.Error("another grant grows")
	}
}

// TestGrantCache_ReplaceKeepsLaterChanges when a grant that was read is remembered.
func TestGrantCache_ReplaceKeepsLaterChanges(t *testing.T) {
	t.Parallel()
	h, first := holder{Key{0, "job"}, "alice"}, version{epoch: "first"}
	tests := []struct {
		what  string
		after func(m *grantCache)
		want  string
		grows bool // without being read again
	}{
		{"nothing", func(*grantCache) {}, "read", true},
		{"a hold came", func(m *grantCache) {
			m.addHold(h, grant{fence: 7, version: first}, hold{"new", 30 * time.Second}, 0, 2, 0)
		}, "old new", false},
		{"the hold went", func(m *grantCache) { m.drop(h, "old") }, "", false},
		{"it was renewed", func(m *grantCache) { m.beginRenewal(h, 7, 0, time.Minute) }, "old", false},
		{"it was forgotten", func(m *grantCache) { m.forgetGrant(h, 7) }, "", false},
		{"there is a later grant", func(m *grantCache) {
			m.addHold(h, grant{fence: 8, version: first}, hold{"later", 30 * time.Second}, 0, 1, 0)
		}, "later", false},
	}
	for _, tt := range tests {
		m, err := newGrantCache(10, func() time.Duration { return 0 }, new(metrics.Histogram))
		if err != nil {
			t.Fatal(err)
		}
		m.addHold(h, grant{fence: 7, version: first}, hold{"old", 30 * time.Second}, 0, 1, 0)
		before := m.lookup(h)
		tt.after(m)
		m.replace(h, before, grant{fence: 7, holds: []hold{{"read", time.Minute}}})
		if got := strings.Join(holdIDs(m.lookup(h).holds), " "); got != tt.want {
			t.Errorf("%s: holds %q, want %q", tt.what, got, tt.want)
		}
		if _, ok := m.beginExtension(h, 7, strings.Fields(tt.want), 0); ok != tt.grows {
			t.Errorf("%s: grows %v", tt.what, ok)
		}
	}
}

// TestGrantCache_RestoreWhatWasRead is there once.
func TestGrantCache_RestoreWhatWasRead(t *testing.T) {
	t.Parallel()
	h, first := holder{Key{0, "job"}, "alice"}, version{epoch: "first"}
	m, err := newGrantCache(10, func() time.Duration { return 0 }, new(metrics.Histogram))
	if err != nil {
		t.Fatal(err)
	}
	m.addHold(h, grant{fence: 7, version: first}, hold{"old", 30 * time.Second}, 0, 1, 0)
	g, holds, _, ok := m.pop(h, 0, false, "", 0)
	if !ok {
		t.Fatal("nothing is remembered")
	}
	m.replace(h, m.lookup(h), grant{fence: 7, holds: []hold{{"old", time.Minute}}})
	m.restore(h, g, holds)
	if got := m.lookup(h).holds; len(got) != 1 {
		t.Errorf("holds %v", got)
	}
}

// TestGrantCache_AddHoldThatWasRead: a RENEW read the hold before its LOCK was decided. It is there once, ends when
// that RENEW lets it end, and the LOCK tells no later end.
func TestGrantCache_AddHoldThatWasRead(t *testing.T) {
	t.Parallel()
	for _, renewed := range []time.Duration{5 * time.Second, time.Minute} {
		h, first := holder{Key{0, "job"}, "alice"}, version{epoch: "first"}
		m, err := newGrantCache(10, func() time.Duration { return 0 }, new(metrics.Histogram))
		if err != nil {
			t.Fatal(err)
		}
		m.addHold(h, grant{fence: 7, version: first}, hold{"old", 30 * time.Second}, 0, 1, 0)
		m.replace(h, m.lookup(h), grant{fence: 7, holds: []hold{{"old", renewed}, {"new", renewed}}})
		holds, until := m.addHold(h, grant{fence: 7, version: first}, hold{"new", 30 * time.Second}, 0, 2, 0)
		if want := min(renewed, 30*time.Second); holds != 2 || until != want {
			t.Errorf("renewed for %v: the LOCK tells %d holds until %v, want 2 until %v", renewed, holds, until, want)
		}
		if got := m.lookup(h).holds; !slices.Equal(got, []hold{{"old", renewed}, {"new", renewed}}) {
			t.Errorf("renewed for %v: holds %v", renewed, got)
		}
	}
}

// TestSession_LateLossSparesALaterGrant: what is said of a grant that is over leaves the
// owner's next one alone.
func TestSession_LateLossSparesALaterGrant(t *testing.T) {
	t.Parallel()
	s, _ := start(t, 1)
	h := holder{Key{0, "job"}, "alice"}
	first := lock(t, s, "job", "alice", 30*time.Second)
	before := s.grants.lookup(h)
	unlock(t, s, "job", "alice", 0)
	c := newClient(s)
	a, err := s.Lock(t.Context(), LockRequest{Key: Key{Name: "job"}, Owner: "alice", TTL: 20 * time.Second, Session: c.Session})
	if err != nil || !a.Granted {
		t.Fatal(a, err)
	}
	want := s.grants.lookup(h)
	for what, say := range map[string]func(){
		"it was renewed":      func() { s.grants.endRenewal(h, before, time.Millisecond) },
		"its session renewed": func() { s.grants.endExtension(h, before, s.now()+time.Hour) },
		"it is lost":          func() { s.grants.forgetGrant(h, first.Fence) },
		"it was taken away":   func() { s.keepalive.lose(h, first.Fence, lossForced, "test") },
		"its late RENEW fails": func() {
			_, err := s.Renew(t.Context(), RenewRequest{Key: Key{Name: "job"}, Owner: "alice", TTL: time.Second, Fence: first.Fence})
			if !errors.Is(err, ErrLost) {
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

// TestScripts_ExtensionShortensNothing on the node either.
func TestScripts_ExtensionShortensNothing(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 1)
	n := redistest.Open(t, nodes[0].Addr())
	g := lock(t, s, "job", "alice", 20*time.Second)
	for i, tt := range []struct {
		ttl         time.Duration
		least, most int64
	}{{time.Second, 15_000, 20_000}, {40 * time.Second, 35_000, 40_000}, {time.Second, 30_000, 40_000}} {
		args := renewal(s, g, tt.ttl, version{g.attempt, int64(i + 1)}, "0")
		args[len(args)-2] = "1"
		v := n.Do(t, args...)
		if left := n.Do(t, "PTTL", s.redisKeys(Key{0, "job"}).lock).Int(); v.Elems[0].Int() != 1 || left < tt.least || left > tt.most {
			t.Errorf("grown to %v: %v, %d ms left", tt.ttl, v, left)
		}
	}
}

// TestSession_LossHasTheLargestOnLoss: of one session's holds the strictest word counts.
func TestSession_LossHasTheLargestOnLoss(t *testing.T) {
	t.Parallel()
	s, _ := start(t, 1)
	for i, tt := range []struct {
		asked []OnLoss
		want  OnLoss
	}{
		{[]OnLoss{OnLossPush}, OnLossPush},
		{[]OnLoss{OnLossDefault}, OnLossDefault},
		{[]OnLoss{OnLossClose}, OnLossClose},
		{[]OnLoss{OnLossPush, OnLossPush}, OnLossPush},
		{[]OnLoss{OnLossPush, OnLossDefault}, OnLossDefault},
		{[]OnLoss{OnLossClose, OnLossPush, OnLossDefault}, OnLossClose},
	} {
		c, other, name := newClient(s), newClient(s), "job"+strconv.Itoa(i)
		lock := func(c *client, asked OnLoss) {
			a, err := s.Lock(t.Context(), LockRequest{Key: Key{Name: name}, Owner: "alice", TTL: time.Minute, Session: c.Session, OnLoss: asked})
			if err != nil || !a.Granted {
				t.Fatal(a, err)
			}
		}
		for _, asked := range tt.asked {
			lock(c, asked)
		}
		lock(other, -tt.want)
		if _, _, err := s.Force(t.Context(), Key{0, name}); err != nil {
			t.Fatal(err)
		}
		for c, want := range map[*client]OnLoss{c: tt.want, other: -tt.want} {
			eventually(t, patient, "the loss is told", func() bool { return len(c.told()) > 0 })
			if l := c.told(); len(l) != 1 || l[0].OnLoss != want {
				t.Errorf("%v asked for: told %+v, want %d", tt.asked, l, want)
			}
		}
	}
}

// hearsCuts waits until a proxy hears of leases that the nodes cut.
func hearsCuts(t *testing.T, s *Service) {
	t.Helper()
	eventually(t, patient, "the proxy listens", func() bool {
		return s.waiting.Line(cutKey).Confirmed == len(s.nodes)
	})
}

// TestSession_ShortenedElsewhere keeps its lock: it hears that another proxy's RENEW cut the
// lease before that ends.
func TestSession_ShortenedElsewhere(t *testing.T) {
	t.Parallel()
	p := rivals(t, 2, redistest.StartNodes(t, 3))
	s, other := p[0], p[1]
	for _, owner := range []string{"alice", "a 7 b:\r\n\x00lockproxy:lock:0:job"} {
		c := newClient(s)
		name := "job:" + owner
		g := c.lock(t, name, owner, time.Minute, 0)
		hearsCuts(t, s)
		const shorter = 3 * time.Second
		if _, err := other.Renew(t.Context(), RenewRequest{Key: Key{Name: name}, Owner: owner, TTL: shorter}); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		eventually(t, shorter, "the session has renewed it", func() bool {
			h, err := other.Inspect(t.Context(), Key{0, name})
			return err == nil && h.Held && h.Holding.Fence == g.Fence && h.Holding.Remaining > 30*time.Second
		})
		t.Logf("renewed %v after RENEW", time.Since(began))
		if len(c.told()) > 0 {
			t.Errorf("told %+v", c.told())
		}
		c.End()
	}
}

// TestSession_ForcedElsewhere hears of it at once, not at its next renewal.
func TestSession_ForcedElsewhere(t *testing.T) {
	t.Parallel()
	p := rivals(t, 2, redistest.StartNodes(t, 3))
	s, other := p[0], p[1]
	c := newClient(s)
	g := c.lock(t, "job", "alice", time.Minute, 0)
	hearsCuts(t, s)
	if _, held, err := other.Force(t.Context(), Key{0, "job"}); err != nil || !held {
		t.Fatal(held, err)
	}
	c.lostOnce(t, patient, g, "it expired or was taken away")
}

// TestNotify_CutsWhileSessionsHaveLocks, and a while longer.
func TestNotify_CutsWhileSessionsHaveLocks(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 3)
	listening := func() (n int) {
		for _, srv := range nodes {
			n += len(srv.Do(t, "PUBSUB", "CHANNELS").Elems)
		}
		return n
	}
	lock(t, s, "other", "alice", time.Minute)
	c := newClient(s)
	c.lock(t, "job", "alice", 2*time.Second, 0)
	hearsCuts(t, s)
	time.Sleep(idleSubscription + 2*probeEvery)
	if n := listening(); n != len(nodes) {
		t.Errorf("%d channels while it is kept", n)
	}
	unlock(t, s, "job", "alice", 0)
	eventually(t, idleSubscription+2*probeEvery+patient, "no channel is left", func() bool { return listening() == 0 })
}

func TestParseCut(t *testing.T) {
	t.Parallel()
	tests := []struct {
		message string
		want    holder
		ok      bool
	}{
		{"5 alicelp:lock:3:job", holder{Key{3, "job"}, "alice"}, true},
		{"3 a 1lp:lock:0::x:", holder{Key{0, ":x:"}, "a 1"}, true},
		{"4 alicelp:lock:3:job", holder{}, false},
		{"5 alicelp:lock:3", holder{}, false},
		{"5 alicelp:lock:x:job", holder{}, false},
		{"5 aliceother:lock:3:job", holder{}, false},
		{"50 alicelp:lock:3:job", holder{}, false},
		{"-1 alicelp:lock:3:job", holder{}, false},
		{"alice", holder{}, false},
		{"", holder{}, false},
	}
	for _, tt := range tests {
		h, ok := parseCut(tt.message, "lp:")
		if ok != tt.ok || ok && h != tt.want {
			t.Errorf("%q: %+v, %v", tt.message, h, ok)
		}
	}
}

// TestKeepalive_TaskThatHangs holds up nothing else: a loss is told while a renewal, or what another
// session had, waits for nodes.
func TestKeepalive_TaskThatHangs(t *testing.T) {
	t.Parallel()
	s, _ := start(t, 1)
	c := newClient(s)
	g := c.lock(t, "job", "alice", 50*time.Second, 0)
	began, hangs := make(chan struct{}), make(chan struct{})
	s.keepalive.mu.Lock()
	s.keepalive.tasks = append(s.keepalive.tasks, func() { close(began); <-hangs })
	s.keepalive.startWorkersLocked()
	s.keepalive.mu.Unlock()
	<-began
	defer close(hangs)
	s.keepalive.lose(holder{Key{0, "job"}, "alice"}, g.Fence, lossForced, "test")
	c.lostOnce(t, patient, g, "test")
}
