package locks_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// onSeveral runs a test with Services whose Stores grant several names at once.
func onSeveral(t *testing.T, o locks.Options, test func(t *testing.T, s *locks.Service)) {
	onLimiting(t, o, test)
}

// named are the keys of names like "a b c".
func named(names string) (all []locks.Key) {
	for _, n := range strings.Fields(names) {
		all = append(all, locks.Key{Name: n})
	}
	return all
}

// several is a LOCK for names like "a b c".
func several(owner, names string) locks.LockRequest {
	all := named(names)
	return locks.LockRequest{Key: all[0], Others: all[1:], Owner: owner, TTL: 30 * time.Second}
}

// all are the grants of a Decision, in their order.
func all(d locks.Decision) []locks.Grant { return append([]locks.Grant{d.Grant}, d.Others...) }

// lockAll has a LOCK for several names granted.
func lockAll(t *testing.T, s *locks.Service, r locks.LockRequest) []locks.Grant {
	t.Helper()
	d, err := s.Lock(t.Context(), r)
	if err != nil || !d.Granted || len(d.Others) != len(r.Others) {
		t.Fatalf("LOCK of %v by %s: %+v, %v", r.Names(), r.Owner, d, err)
	}
	return all(d)
}

func unlockAll(t *testing.T, s *locks.Service, owner, names string) {
	t.Helper()
	if left, err := s.UnlockAll(t.Context(), named(names), locks.UnlockRequest{Owner: owner}); err != nil || left != 0 {
		t.Fatalf("UNLOCK of %s by %s: %d, %v", names, owner, left, err)
	}
}

// TestSeveral_AllOrNone: each name is a lock of its own; if one is not to be had, none is.
func TestSeveral_AllOrNone(t *testing.T) {
	onSeveral(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		got := lockAll(t, s, several("alice", "c a b"))
		for i, name := range []string{"c", "a", "b"} {
			g := got[i]
			if g.Name != name || g.Owner != "alice" || g.Fence <= 0 || g.Holds != 1 || g.Validity <= 0 {
				t.Errorf("%s: %+v", name, g)
			}
			if d := refused(t, s, name, "bob"); d.Holder != "alice" {
				t.Errorf("%s is %+v", name, d)
			}
		}
		d, err := s.Lock(t.Context(), several("bob", "x b c y"))
		if err != nil || d.Granted || d.Holder != "alice" || d.Of.Name != "b" || d.Remaining <= 29*time.Second {
			t.Errorf("%+v, %v", d, err)
		}
		for _, name := range []string{"x", "y"} {
			lock(t, s, locks.LockRequest{Key: locks.Key{Name: name}, Owner: "carol"})
		}
		unlock(t, s, locks.UnlockRequest{Key: locks.Key{Name: "b"}, Owner: "alice"}, 0)
		lock(t, s, locks.LockRequest{Key: locks.Key{Name: "b"}, Owner: "bob"})
	})
}

// TestSeveral_ReentersSome: a name that its owner has already is entered again, with the fence that it has.
func TestSeveral_ReentersSome(t *testing.T) {
	onSeveral(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		had := lock(t, s, locks.LockRequest{Key: locks.Key{Name: "b"}, Owner: "alice"})
		got := lockAll(t, s, several("alice", "a b"))
		if got[0].Holds != 1 || got[1].Holds != 2 || got[1].Fence != had.Fence {
			t.Errorf("%+v", got)
		}
		if left, err := s.UnlockAll(t.Context(), named("a b"), locks.UnlockRequest{Owner: "alice"}); err != nil || left != 1 {
			t.Errorf("%d holds are left, %v", left, err)
		}
		if left, err := s.UnlockAll(t.Context(), named("a b"), locks.UnlockRequest{Owner: "alice", All: true}); err != nil || left != 0 {
			t.Errorf("%d holds are left, %v", left, err)
		}
		free(t, s, "b")
	})
}

// TestSeveral_OneOwner: without an owner one is made for all names.
func TestSeveral_OneOwner(t *testing.T) {
	onSeveral(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		got := lockAll(t, s, several("", "a b"))
		if got[0].Owner == "" || got[0].Owner != got[1].Owner {
			t.Errorf("%+v", got)
		}
		unlockAll(t, s, got[0].Owner, "a b")
	})
}

// TestSeveral_Readers: who reads several names has a reader's lock of each.
func TestSeveral_Readers(t *testing.T) {
	onSeveral(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		for _, owner := range []string{"r1", "r2"} {
			r := several(owner, "a b")
			r.Shared = true
			lockAll(t, s, r)
		}
		lock(t, s, locks.LockRequest{Key: locks.Key{Name: "x"}, Owner: "w"})
		r := several("r1", "y x")
		r.Shared = true
		if d, err := s.Lock(t.Context(), r); err != nil || d.Granted || d.Holder != "w" || d.Of != (locks.Key{Name: "x"}) {
			t.Errorf("a reader: %+v, %v", d, err)
		}
		if d, err := s.Lock(t.Context(), several("w", "b c")); err != nil || d.Granted || d.Why != locks.Readers || d.Of.Name != "b" || d.Of.Reader != "" {
			t.Errorf("a writer: %+v, %v", d, err)
		}
		for _, owner := range []string{"r1", "r2"} {
			if _, err := s.RenewAll(t.Context(), named("a b"), locks.RenewRequest{Owner: owner, TTL: 20 * time.Second, Shared: true}); err != nil {
				t.Error(err)
			}
			if _, err := s.UnlockAll(t.Context(), named("a b"), locks.UnlockRequest{Owner: owner, Shared: true}); err != nil {
				t.Error(err)
			}
		}
		lockAll(t, s, several("w", "b c"))
	})
}

// TestSeveral_Refuses: what a LOCK, RENEW or UNLOCK of several names cannot have is refused, with the reason.
func TestSeveral_Refuses(t *testing.T) {
	onSeveral(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		many := make([]locks.Key, locks.MaxNames)
		for i := range many {
			many[i].Name = fmt.Sprint(i)
		}
		for want, change := range map[string]func(r *locks.LockRequest){
			"65 names":             func(r *locks.LockRequest) { r.Others = many },
			`"b" is named twice`:   func(r *locks.LockRequest) { r.Others = named("b c b") },
			`"a" is named twice`:   func(r *locks.LockRequest) { r.Others = named("b a") },
			"several databases":    func(r *locks.LockRequest) { r.Others = []locks.Key{{DB: 1, Name: "b"}} },
			"0 bytes":              func(r *locks.LockRequest) { r.Others = []locks.Key{{}} },
			"takes no permits":     func(r *locks.LockRequest) { r.Permits = 2 },
			"has an end":           func(r *locks.LockRequest) { r.Open = true },
			"replaces no grant":    func(r *locks.LockRequest) { r.Replaces = &locks.GrantRef{Owner: "bob", Fence: 1} },
			"does not pass those":  func(r *locks.LockRequest) { r.Barge = true },
			"a request id needs":   func(r *locks.LockRequest) { r.Req, r.Owner = "x", "" },
			"ttl 1ns is not":       func(r *locks.LockRequest) { r.TTL = 1 },
			"65537 bytes, not 1 t": func(r *locks.LockRequest) { r.Others[0].Name = strings.Repeat("x", locks.MaxName+1) },
		} {
			r := several("alice", "a b")
			change(&r)
			if d, err := s.Lock(t.Context(), r); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %+v, %v", want, d, err)
			}
		}
		_, zero := s.RenewAll(t.Context(), nil, locks.RenewRequest{Owner: "alice", TTL: time.Second})
		_, twice := s.RenewAll(t.Context(), named("a a"), locks.RenewRequest{Owner: "alice", TTL: time.Second})
		_, fence := s.UnlockAll(t.Context(), named("a b"), locks.UnlockRequest{Owner: "alice", Fence: 1})
		for _, err := range []error{zero, twice, fence} {
			if names := (*locks.NamesError)(nil); err == nil || errors.As(err, &names) {
				t.Errorf("%v", err)
			}
		}
	})
}

// TestSeveral_SomeLost: RENEW and UNLOCK do what can be done, and say which names were lost.
func TestSeveral_SomeLost(t *testing.T) {
	onSeveral(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		lockAll(t, s, several("alice", "a b c d"))
		for _, name := range []string{"b", "d"} {
			unlock(t, s, locks.UnlockRequest{Key: locks.Key{Name: name}, Owner: "alice"}, 0)
		}
		lock(t, s, locks.LockRequest{Key: locks.Key{Name: "d"}, Owner: "bob"})
		failed := func(err error, want string) {
			t.Helper()
			var names *locks.NamesError
			if !errors.As(err, &names) || len(names.Failed) != strings.Count(want, " ")+1 || !errors.As(err, new(*locks.NotOwnerError)) {
				t.Fatalf("%v, want those of %s", err, want)
			}
			for i, k := range named(want) {
				if names.Failed[i].Key != k || names.Failed[i].Err == nil {
					t.Errorf("%v, want those of %s", err, want)
				}
			}
		}
		_, err := s.RenewAll(t.Context(), named("d a b c"), locks.RenewRequest{Owner: "alice", TTL: 20 * time.Second})
		failed(err, "d b")
		if !errors.Is(err, locks.ErrLost) {
			t.Error(err)
		}
		if d := refused(t, s, "c", "bob"); d.Remaining > 20*time.Second {
			t.Errorf("c was not renewed: %+v", d)
		}
		if v, err := s.RenewAll(t.Context(), named("a c"), locks.RenewRequest{Owner: "alice", TTL: 10 * time.Second}); err != nil || v > 10*time.Second || v <= 8*time.Second {
			t.Errorf("%v, %v", v, err)
		}
		lock(t, s, locks.LockRequest{Key: locks.Key{Name: "e"}, Owner: "bob"})
		_, err = s.UnlockAll(t.Context(), named("c e a"), locks.UnlockRequest{Owner: "alice"})
		failed(err, "e")
		free(t, s, "a")
		free(t, s, "c")
	})
}

// TestSeveral_Req: one id for the whole: a LOCK that comes again takes nothing twice; once all names were given back the answer is the
// old one, and if only some were, the lock is lost.
func TestSeveral_Req(t *testing.T) {
	onSeveral(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		r := several("alice", "a b c")
		r.Req = "x"
		first := lockAll(t, s, r)
		for i, g := range lockAll(t, s, r) {
			if g.Holds != 1 || g.Fence != first[i].Fence || g.Validity <= 0 {
				t.Errorf("again: %+v, first %+v", g, first[i])
			}
		}
		if n := s.Stats().Repeats; n != 1 {
			t.Errorf("%d repeats", n)
		}
		unlock(t, s, locks.UnlockRequest{Key: locks.Key{Name: "b"}, Owner: "alice"}, 0)
		if d, err := s.Lock(t.Context(), r); !errors.Is(err, locks.ErrLost) {
			t.Errorf("some were given back: %+v, %v", d, err)
		}
		free(t, s, "b")
		unlockAll(t, s, "alice", "a c")
		for i, g := range lockAll(t, s, r) {
			if g.Holds != 0 || g.Fence != first[i].Fence || g.Validity != 0 {
				t.Errorf("given back: %+v, first %+v", g, first[i])
			}
		}
		free(t, s, "a")
		if n := s.UnderWay(); n != 0 {
			t.Errorf("%d requests are kept that nobody makes", n)
		}
	})
}

// TestSeveral_Session: each name is kept for the session by itself, and its loss told by itself.
func TestSeveral_Session(t *testing.T) {
	onSeveral(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		c := newClient(s)
		r := several("alice", "a b c")
		r.TTL, r.Session = time.Second, c.Session
		got := lockAll(t, s, r)
		if n := c.Holds(); n != 3 {
			t.Errorf("%d holds are kept", n)
		}
		time.Sleep(2 * time.Second)
		for _, name := range []string{"a", "b", "c"} {
			refused(t, s, name, "bob")
		}
		s.Lose(locks.Holder{Key: locks.Key{Name: "b"}, Owner: "alice"}, got[1].Fence, "a test")
		c.lostOnce(t, got[1], "a test")
		if n := c.Holds(); n != 2 {
			t.Errorf("%d holds are kept", n)
		}
		c.End()
		free(t, s, "a")
		free(t, s, "c")
		if n := c.Holds(); n != 0 {
			t.Errorf("%d holds are kept", n)
		}
		r.Key, r.Others = named("x")[0], named("y")
		if d, err := s.Lock(t.Context(), r); !errors.Is(err, locks.ErrSessionEnded) {
			t.Errorf("after the end of the session: %+v, %v", d, err)
		}
	})
}

// TestSeveral_Fresh: new grants of all names, whose earlier holds end.
func TestSeveral_Fresh(t *testing.T) {
	onSeveral(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		lock(t, s, locks.LockRequest{Key: locks.Key{Name: "c"}, Owner: "bob"})
		c := newClient(s)
		r := several("alice", "a b")
		r.Session = c.Session
		first := lockAll(t, s, r)
		r = several("alice", "a c")
		r.Fresh = true
		if d, err := s.Lock(t.Context(), r); err != nil || d.Granted || d.Of.Name != "c" {
			t.Errorf("%+v, %v", d, err)
		}
		if n := c.Holds(); n != 2 || len(c.told()) > 0 {
			t.Errorf("refused, but %d holds are left, and told %v", n, c.told())
		}
		unlock(t, s, locks.UnlockRequest{Key: locks.Key{Name: "c"}, Owner: "bob"}, 0)
		if got := lockAll(t, s, r); got[0].Fence <= first[0].Fence || got[0].Holds != 1 {
			t.Errorf("%+v, first %+v", got, first)
		}
		c.lostOnce(t, first[0], "its owner has taken it afresh")
	})
}

// TestSeveral_Told: of each name it is told, and counted, that it was asked for; the request is one.
func TestSeveral_Told(t *testing.T) {
	onSeveral(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		var told []string
		s.Watch(func(e locks.Event) {
			told = append(told, fmt.Sprint(e.Kind, " ", e.Name, " ", e.Owner, " ", e.Fence, " ", e.Shared))
		})
		r := several("alice", "a b")
		r.Shared = true
		got := lockAll(t, s, r)
		if d, err := s.Lock(t.Context(), several("bob", "b c")); d.Granted || err != nil {
			t.Errorf("%+v, %v", d, err)
		}
		want := []string{
			fmt.Sprintf("granted a alice %d true", got[0].Fence), fmt.Sprintf("granted b alice %d true", got[1].Fence),
			"refused b bob 0 false", "refused c bob 0 false",
		}
		s.Watch(nil)
		if fmt.Sprint(told) != fmt.Sprint(want) {
			t.Errorf("told %q", told)
		}
		st := s.Stats()
		asked, _ := s.Hot(10)
		if st.Grants != 1 || st.Refusals != 1 || len(asked) != 3 || asked[0].Name != "b" || asked[0].Reader != "" {
			t.Errorf("%+v; asked for %+v", st, asked)
		}
	})
}

// TestSeveral_ContextEnds: nothing is taken.
func TestSeveral_ContextEnds(t *testing.T) {
	onSeveral(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if d, err := s.Lock(ctx, several("alice", "a b")); !errors.Is(err, context.Canceled) {
			t.Errorf("%+v, %v", d, err)
		}
		free(t, s, "a")
		free(t, s, "b")
	})
}
