package locks_test

import (
	"errors"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// replacing is a LOCK that takes the place of a grant.
func replacing(g locks.Grant, owner string) locks.LockRequest {
	return locks.LockRequest{Key: g.Key, Owner: owner, TTL: 30 * time.Second, Replaces: &locks.GrantRef{Owner: g.Owner, Fence: g.Fence}}
}

func notReplaced(t *testing.T, s *locks.Service, r locks.LockRequest, holder string) {
	t.Helper()
	if d, err := s.Lock(t.Context(), r); err != nil || d.Granted || d.Holder != holder {
		t.Fatalf("LOCK in place of %+v: %+v, %v, want it to be refused, and %q to hold the name", *r.Replaces, d, err, holder)
	}
}

func TestReplace_TakesThePlace(t *testing.T) {
	onEach(t, locks.Options{}, testReplaceTakesThePlace)
}

func testReplaceTakesThePlace(t *testing.T, s *locks.Service) {
	c := newClient(s)
	old := lock(t, s, locks.LockRequest{Owner: "alice", Session: c.Session})
	lock(t, s, locks.LockRequest{Owner: "alice", Session: c.Session})
	g := lock(t, s, replacing(old, "bob"))
	if g.Fence <= old.Fence || g.Holds != 1 {
		t.Errorf("granted %+v in place of %+v", g, old)
	}
	c.lostOnce(t, old, locks.ReplacedReason)
	var other *locks.NotOwnerError
	if _, err := s.Unlock(t.Context(), locks.UnlockRequest{Key: job, Owner: "alice", Fence: old.Fence, Once: true}); !errors.As(err, &other) {
		t.Errorf("UNLOCK of what was replaced: %v", err)
	}
	if _, err := s.Renew(t.Context(), locks.RenewRequest{Key: job, Owner: "alice", Fence: old.Fence, TTL: time.Second}); !errors.As(err, &other) {
		t.Errorf("RENEW of what was replaced: %v", err)
	}
	refused(t, s, "job", "alice")
	unlock(t, s, locks.UnlockRequest{Owner: "bob", Fence: g.Fence}, 0)
	lock(t, s, locks.LockRequest{Owner: "carol"})
}

func TestReplace_OnlyThatGrant(t *testing.T) {
	onEach(t, locks.Options{}, testReplaceOnlyThatGrant)
}

func testReplaceOnlyThatGrant(t *testing.T, s *locks.Service) {
	first := lock(t, s, locks.LockRequest{Owner: "alice"})
	unlock(t, s, locks.UnlockRequest{Owner: "alice"}, 0)
	notReplaced(t, s, replacing(first, "bob"), "") // a free name is not taken
	second := lock(t, s, locks.LockRequest{Owner: "alice"})
	notReplaced(t, s, replacing(first, "bob"), "alice")
	notReplaced(t, s, replacing(first, "alice"), "alice") // nor entered again
	wrong := second
	wrong.Owner = "carol"
	notReplaced(t, s, replacing(wrong, "bob"), "alice")
	unlock(t, s, locks.UnlockRequest{Owner: "alice", Fence: second.Fence}, 0)
}

func TestReplace_OwnGrant(t *testing.T) {
	onEach(t, locks.Options{}, testReplaceOwnGrant)
}

func testReplaceOwnGrant(t *testing.T, s *locks.Service) {
	old := lock(t, s, locks.LockRequest{Owner: "alice"})
	g := lock(t, s, replacing(old, "alice"))
	if g.Fence <= old.Fence || g.Holds != 1 {
		t.Errorf("granted %+v in place of %+v", g, old)
	}
	unlock(t, s, locks.UnlockRequest{Owner: "alice", Fence: g.Fence}, 0)
	lock(t, s, locks.LockRequest{Owner: "bob"})
}

func TestReplace_ResentIsOneGrant(t *testing.T) {
	onEach(t, locks.Options{}, testReplaceResentIsOneGrant)
}

func testReplaceResentIsOneGrant(t *testing.T, s *locks.Service) {
	old := lock(t, s, locks.LockRequest{Owner: "alice"})
	r := replacing(old, "bob")
	r.Req = "1"
	g := lock(t, s, r)
	if again := lock(t, s, r); again.Fence != g.Fence || again.Holds != 1 {
		t.Errorf("the same request again: %+v, want %+v", again, g)
	}
	unlock(t, s, locks.UnlockRequest{Owner: "bob", Req: "2"}, 0)
	if d, err := s.Lock(t.Context(), r); err != nil || !d.Granted || d.Grant.Fence != g.Fence || d.Grant.Holds != 0 {
		t.Errorf("the same request when it was given back: %+v, %v", d, err)
	}
}

func TestReplace_AsksBeforeTheLine(t *testing.T) {
	onEach(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		old := lock(t, s, locks.LockRequest{Owner: "alice"})
		waiting := inLine(t, s, "job", "carol")
		g := lock(t, s, replacing(old, "bob"))
		unlock(t, s, locks.UnlockRequest{Owner: "bob", Fence: g.Fence}, 0)
		granting(t, waiting)
	})
}

func TestReplace_Invalid(t *testing.T) {
	onEach(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		old := lock(t, s, locks.LockRequest{Owner: "alice"})
		for name, change := range map[string]func(*locks.LockRequest){
			"it waits":      func(r *locks.LockRequest) { r.Wait = time.Second },
			"fresh":         func(r *locks.LockRequest) { r.Fresh = true },
			"no re-entry":   func(r *locks.LockRequest) { r.NoReenter = true },
			"no such fence": func(r *locks.LockRequest) { r.Replaces.Fence = 0 },
		} {
			r := replacing(old, "bob")
			change(&r)
			if d, err := s.Lock(t.Context(), r); err == nil || d.Granted {
				t.Errorf("%s: %+v, %v", name, d, err)
			}
		}
		unlock(t, s, locks.UnlockRequest{Owner: "alice", Fence: old.Fence}, 0)
	})
}
