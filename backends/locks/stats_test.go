package locks

import (
	"testing"
	"time"
)

func TestStats(t *testing.T) {
	s, nodes := start(t, 3)
	lock(t, s, "job", "me", time.Minute)
	lock(t, s, "job", "me", time.Minute)
	refused(t, s, "job", "you", time.Minute)
	if _, err := s.Renew(t.Context(), RenewRequest{Name: "job", Owner: "me", TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	unlock(t, s, "job", "me", 1)
	unlock(t, s, "job", "me", 0)
	s.Undo(lock(t, s, "other", "me", time.Minute))
	eventually(t, 5*time.Second, "the nodes vote", func() bool { return s.Stats().Voting == 3 })
	got := s.Stats()
	if got.Rounds < 7 {
		t.Errorf("%d rounds for seven commands", got.Rounds)
	}
	got.Rounds = 0
	if want := (Stats{Nodes: 3, Voting: 3, Grants: 3, Refusals: 1, Renewals: 1, Releases: 2, Undos: 1}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	one, other := s.NewSession(nil), s.NewSession(nil)
	defer one.Abandon()
	for name, session := range map[string]*Session{"a": one, "b": one, "c": other} {
		if a, err := s.Lock(t.Context(), LockRequest{Name: name, TTL: time.Minute, Session: session}); err != nil || !a.Granted {
			t.Fatal(a, err)
		}
	}
	if got := s.Stats(); got.Sessions != 2 || got.SessionLocks != 3 {
		t.Errorf("two sessions with three locks: %+v", got)
	}
	other.Abandon()
	if got := s.Stats(); got.Sessions != 1 || got.SessionLocks != 2 {
		t.Errorf("one session with two locks: %+v", got)
	}
	for _, n := range nodes {
		n.Kill()
	}
	for range 3 {
		if _, err := s.Lock(t.Context(), LockRequest{Name: "job", TTL: time.Second}); err == nil {
			t.Error("LOCK without nodes succeeds")
		}
	}
	if got := s.Stats(); got.NoQuorum != 3 || got.Grants != 6 {
		t.Errorf("without nodes: %+v", got)
	}
}
