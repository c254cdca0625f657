package locks_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/metrics"
)

func TestSession_KeepsItsLocks(t *testing.T) {
	onEach(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		c := newClient(s)
		lock(t, s, locks.LockRequest{Owner: "alice", TTL: 4 * time.Second, Session: c.Session})
		lock(t, s, locks.LockRequest{Key: locks.Key{Name: "other"}, Owner: "alice", TTL: 4 * time.Second})
		time.Sleep(9 * time.Second)
		refused(t, s, "job", "bob")
		lock(t, s, locks.LockRequest{Key: locks.Key{Name: "other"}, Owner: "bob"})
		unlock(t, s, locks.UnlockRequest{Owner: "alice"}, 0)
		lock(t, s, locks.LockRequest{Owner: "bob"})
		if l := c.told(); len(l) > 0 || s.Stats().SessionLocks > 0 {
			t.Errorf("told %+v, %+v", l, s.Stats())
		}
	})
}

func TestSession_EndReleases(t *testing.T) {
	onEach(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		c, other := newClient(s), newClient(s)
		second := locks.Key{Name: "second"}
		lock(t, s, locks.LockRequest{Owner: "alice", Session: c.Session})
		lock(t, s, locks.LockRequest{Owner: "alice", Session: c.Session})
		lock(t, s, locks.LockRequest{Key: second, Owner: "alice", Session: c.Session})
		lock(t, s, locks.LockRequest{Key: second, Owner: "alice", Session: other.Session})
		lock(t, s, locks.LockRequest{Key: locks.Key{Name: "plain"}, Owner: "alice"})
		c.End()
		c.End()
		free(t, s, "job")
		eventually(t, "second is given back once", func() bool {
			r, err := s.Read(t.Context(), second)
			return err == nil && r.Holds == 1
		})
		for _, name := range []string{"second", "plain"} { // what the same owner has otherwise
			refused(t, s, name, "bob")
			unlock(t, s, locks.UnlockRequest{Key: locks.Key{Name: name}, Owner: "alice"}, 0)
		}
		late := locks.LockRequest{Key: locks.Key{Name: "late"}, TTL: time.Second, Session: c.Session}
		if a, err := s.Lock(t.Context(), late); !errors.Is(err, locks.ErrSessionEnded) {
			t.Errorf("LOCK by a session that has ended: %+v, %v", a, err)
		}
		free(t, s, "late")
		if l := append(c.told(), other.told()...); len(l) > 0 || s.Stats().SessionLocks > 0 {
			t.Errorf("told %+v, %+v", l, s.Stats())
		}
	})
}

func TestSession_AbandonReleasesNothing(t *testing.T) {
	onEach(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		c := newClient(s)
		locked := time.Now()
		g := lock(t, s, locks.LockRequest{Owner: "alice", TTL: time.Second, Session: c.Session})
		c.Abandon()
		c.End()
		free(t, s, "job")
		if d := time.Since(locked); d < g.Validity || len(c.told()) > 0 {
			t.Errorf("free after %v, of %v; told %v", d, g.Validity, c.told())
		}
	})
}

func TestSession_MaxHold(t *testing.T) {
	onEach(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		c := newClient(s)
		locked := time.Now()
		g := lock(t, s, locks.LockRequest{Owner: "alice", TTL: 10 * time.Second, Session: c.Session, MaxHold: 12 * time.Second})
		lock(t, s, locks.LockRequest{Owner: "bob", Wait: time.Minute})
		if held := time.Since(locked); held < 11900*time.Millisecond {
			t.Errorf("held for %v", held)
		}
		c.lostOnce(t, g, "MAXHOLD of 12s is over")
	})
}

func TestSession_Grace(t *testing.T) {
	onEach(t, locks.Options{SessionGrace: 3 * time.Second}, func(t *testing.T, s *locks.Service) {
		c := newClient(s)
		lock(t, s, locks.LockRequest{Owner: "alice", TTL: 5 * time.Second, Session: c.Session})
		ended := time.Now()
		c.End()
		free(t, s, "job")
		if d := time.Since(ended); d < 3*time.Second || len(c.told()) > 0 {
			t.Errorf("free after %v; told %+v", d, c.told())
		}
	})
}

func TestSession_UndoneGrantIsNotRenewed(t *testing.T) {
	onEach(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		c := newClient(s)
		g := lock(t, s, locks.LockRequest{Owner: "alice", Session: c.Session})
		lock(t, s, locks.LockRequest{Owner: "alice", Session: c.Session})
		s.Undo(g)
		if c.Holds() != 1 {
			t.Error("the other hold is not kept")
		}
		c.End()
		free(t, s, "job")
	})
}

// TestSession_RenewSetsTheLease: after a RENEW the session renews the lock for that TTL, even if it is shorter.
func TestSession_RenewSetsTheLease(t *testing.T) {
	onEach(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		c := newClient(s)
		g := lock(t, s, locks.LockRequest{Owner: "alice", TTL: 20 * time.Second, Session: c.Session})
		if _, err := s.Renew(t.Context(), locks.RenewRequest{Key: job, Owner: "alice", TTL: 2 * time.Second, Fence: g.Fence}); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			time.Sleep(300 * time.Millisecond)
			if a := refused(t, s, "job", "bob"); a.Remaining > 2*time.Second || a.Holder != "alice" {
				t.Fatalf("renewed for 2s by hand: %+v", a)
			}
		}
		if len(c.told()) > 0 {
			t.Errorf("told %+v", c.told())
		}
	})
}

// TestSession_HoldsOfDifferentLeases: a session keeps each of its holds of one lock, whatever the leases of the others: when those are given
// back, at once or after the shorter lease would have ended, it still has the lock.
func TestSession_HoldsOfDifferentLeases(t *testing.T) {
	const short, long = 3 * time.Second, 50 * time.Second
	onEach(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		c := newClient(s)
		take := func(name, req string, ttl time.Duration) {
			lock(t, s, locks.LockRequest{Key: locks.Key{Name: name}, Owner: "alice", TTL: ttl, Session: c.Session, Req: req, Shared: name == "shared"})
		}
		giveBack := func(name string) {
			unlock(t, s, locks.UnlockRequest{Key: locks.Key{Name: name}, Owner: "alice", Req: "long", Shared: name == "shared"}, 1)
		}
		take("at once", "short", short)
		take("at once", "long", long)
		giveBack("at once")
		for _, name := range []string{"later", "shared"} {
			take(name, "short", short)
			take(name, "long", long)
		}
		take("turned round", "long", long)
		take("turned round", "short", short)
		time.Sleep(short + time.Second)
		for _, name := range []string{"later", "shared", "turned round"} {
			giveBack(name)
		}
		for _, name := range []string{"at once", "later", "shared", "turned round"} {
			refused(t, s, name, "bob")
		}
		if len(c.told()) > 0 {
			t.Errorf("told %+v", c.told())
		}
	})
}

// TestSession_FreshTellsTheOthers: what an owner has is dropped by its LOCK with Fresh, and all of its sessions
// but the one that asked are told.
func TestSession_FreshTellsTheOthers(t *testing.T) {
	onEach(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		by, other := newClient(s), newClient(s)
		old := lock(t, s, locks.LockRequest{Owner: "alice", Session: by.Session})
		lock(t, s, locks.LockRequest{Owner: "alice", Session: other.Session})
		g := lock(t, s, locks.LockRequest{Owner: "alice", Session: by.Session, Fresh: true})
		if g.Fence <= old.Fence || g.Holds != 1 {
			t.Errorf("%+v after %+v", g, old)
		}
		other.lostOnce(t, old, "its owner has taken it afresh")
		if len(by.told()) > 0 || by.Holds() != 1 || other.Holds() != 0 {
			t.Errorf("told %+v, %d and %d holds", by.told(), by.Holds(), other.Holds())
		}
		if last := lock(t, s, locks.LockRequest{Owner: "alice", Asker: by.Session, Fresh: true}); last.Fence <= g.Fence || len(by.told()) > 0 || by.Holds() != 0 {
			t.Errorf("without Session: %+v after %+v, told %+v, %d holds", last, g, by.told(), by.Holds())
		}
	})
}

// TestSession_Counts: the counts are right however holds come and go, though they are not counted anew.
func TestSession_Counts(t *testing.T) {
	onEach(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		a, b, c := newClient(s), newClient(s), newClient(s)
		take := func(c *client, name, owner string) func() {
			return func() { lock(t, s, locks.LockRequest{Key: locks.Key{Name: name}, Owner: owner, Session: c.Session}) }
		}
		for _, step := range []struct {
			name            string
			do              func()
			sessions, holds int
		}{
			{"taken", take(a, "one", "o"), 1, 1},
			{"re-entered", take(a, "one", "o"), 1, 2},
			{"by another session of the owner", take(b, "one", "o"), 2, 3},
			{"another", take(b, "two", "p"), 2, 4},
			{"one more", take(c, "three", "q"), 3, 5},
			{"given back once", func() { unlock(t, s, locks.UnlockRequest{Key: locks.Key{Name: "one"}, Owner: "o"}, 2) }, -1, 4},
			{"a session ends", func() { b.End() }, -1, -1},
			{"the others are abandoned", func() { a.Abandon(); c.Abandon() }, 0, 0},
		} {
			step.do()
			eventually(t, step.name, func() bool {
				st := s.Stats()
				sessions, holds := s.Recount()
				return st.Sessions == sessions && st.SessionLocks == holds &&
					(step.sessions < 0 || sessions == step.sessions) && (step.holds < 0 || holds == step.holds)
			})
		}
	})
}

// TestKeepalive_TaskThatHangs: a task that hangs delays no other. A session is told of a loss while a renewal, or
// the release of another session's holds, waits for nodes.
func TestKeepalive_TaskThatHangs(t *testing.T) {
	onEach(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		c := newClient(s)
		g := lock(t, s, locks.LockRequest{Owner: "alice", Session: c.Session})
		began, hangs := make(chan struct{}), make(chan struct{})
		s.Task(func() { close(began); <-hangs })
		<-began
		defer close(hangs)
		s.Lose(locks.Holder{Key: job, Owner: "alice"}, g.Fence, "test")
		c.lostOnce(t, g, "test")
	})
}

// TestKeepalive_FewWorkers: however many leases are due at once, no more than so many are renewed at a time.
func TestKeepalive_FewWorkers(t *testing.T) {
	t.Parallel()
	inMemory(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		const leases = 1000
		c := newClient(s)
		for i := range leases {
			lock(t, s, locks.LockRequest{Key: locks.Key{Name: fmt.Sprint(i)}, Owner: "alice", Session: c.Session})
		}
		for range 100 {
			time.Sleep(time.Second)
			if n := s.Workers(); n > locks.MaxWorkers {
				t.Fatalf("%d workers", n)
			}
		}
		if n := renewals(s); n < 3*leases || len(c.told()) > 0 {
			t.Errorf("%v renewals, told %+v", n, c.told())
		}
	})
}

// TestKeepalive_DoubtfulWhileRenewed: after a message that a lease was cut it is renewed again, also if the message
// comes while it is being renewed, or while too few nodes answer.
func TestKeepalive_DoubtfulWhileRenewed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		what    string
		suspect bool // while it is being renewed
		result  locks.ExtensionResult
		want    bool
	}{
		{"extended", false, locks.Extended, false},
		{"extended, suspected", true, locks.Extended, true},
		{"undecided", false, locks.Undecided, true},
	} {
		t.Run(tt.what, func(t *testing.T) {
			t.Parallel()
			inMemory(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
				c, h := newClient(s), locks.Holder{Key: job, Owner: "alice"}
				lock(t, s, locks.LockRequest{Owner: "alice", TTL: time.Minute, Session: c.Session})
				end := s.Renewing(h, 3*time.Second)
				if tt.suspect {
					s.Suspect(h)
				}
				before := renewals(s)
				end(tt.result)
				if tt.result == locks.Extended {
					before++ // this one
				}
				time.Sleep(30 * time.Second)
				if n := renewals(s) - before; (n > 0) != tt.want {
					t.Errorf("%v renewals", n)
				}
			})
		})
	}
}

// renewals are those of sessions that succeeded.
func renewals(s *locks.Service) float64 {
	return metrics.Registry{s}.Sample("lockproxy_lock_session_renewals_total").Value
}
