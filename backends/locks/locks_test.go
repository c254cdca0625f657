package locks

import (
	"errors"
	"testing"
	"time"
)

// both runs a test on five real nodes and on five embedded ones.
func both(t *testing.T, test func(t *testing.T, s *Service)) {
	t.Run("redis", func(t *testing.T) {
		s, _ := start(t, 5)
		test(t, s)
	})
	t.Run("embedded", func(t *testing.T) {
		var at []string
		for _, m := range embedded(t, 5) {
			at = append(at, m.Addr())
		}
		test(t, serve(t, Options{Nodes: nodesAt(t, at...), NodeTimeout: time.Second}))
	})
}

func TestLockAndUnlock(t *testing.T) {
	both(t, func(t *testing.T, s *Service) {
		g := lock(t, s, "job", "alice", 10*time.Second)
		if g.Holds != 1 || g.Validity > 10*time.Second || g.Validity < 9*time.Second {
			t.Errorf("granted %+v", g)
		}
		a := refused(t, s, "job", "bob", time.Second)
		if a.Holder != "alice" || a.Remaining < 9*time.Second || a.Remaining > 10*time.Second {
			t.Errorf("refused with %+v", a)
		}
		unlock(t, s, "job", "alice", 0)
		unlock(t, s, "job", "alice", 0) // repeats its answer
		if h := lock(t, s, "job", "bob", time.Second); h.Fence <= g.Fence {
			t.Errorf("fence %d after %d", h.Fence, g.Fence)
		}
		if _, err := s.Unlock(t.Context(), UnlockRequest{Name: "job", Owner: "carol"}); !isNotOwner(err) {
			t.Errorf("UNLOCK by a stranger: %v", err)
		}
		unlock(t, s, "job", "alice", 0) // still the answer to the grant she released last
	})
}

func isNotOwner(err error) bool {
	var n *NotOwnerError
	return errors.As(err, &n)
}
