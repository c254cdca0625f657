package quorum

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/integration/redistest"
)

func TestNode_AnswersErrors(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 5)
	lock(t, s, "warm", "alice", time.Second)
	oom, readonly := redistest.Open(t, nodes[0].Addr()), redistest.Open(t, nodes[1].Addr())
	oom.Do(t, "CONFIG", "SET", "maxmemory", "1")
	readonly.Do(t, "CONFIG", "SET", "min-replicas-to-write", "1")
	lock(t, s, "job", "alice", 30*time.Second)
	unlock(t, s, "job", "alice", 0)
	noauth := redistest.Open(t, nodes[2].Addr())
	noauth.Do(t, "CONFIG", "SET", "requirepass", "secret")
	noauth.Do(t, "CLIENT", "KILL", "TYPE", "normal")
	var q *locks.QuorumError
	eventually(t, 20*time.Second, "three nodes refuse", func() bool {
		a, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, TTL: time.Second})
		if a.Granted {
			s.Undo(a.Grant)
		}
		return errors.As(err, &q)
	})
	for i, code := range []string{"OOM", "NOREPLICAS", "NOAUTH"} {
		if !strings.Contains(q.Error(), nodes[i].Addr()+" "+code) {
			t.Errorf("%q does not name %s", q, code)
		}
	}
}

func TestNode_StoppedOneDelaysNothing(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 3)
	lock(t, s, "warm", "alice", time.Second)
	nodes[1].Pause()
	defer nodes[1].Resume()
	for i := range 200 {
		began := time.Now()
		lock(t, s, "job", "alice", 10*time.Second)
		unlock(t, s, "job", "alice", 0)
		if d := time.Since(began); d > patient-time.Second {
			t.Errorf("cycle %d took %v", i, d)
		}
	}
	if n := s.Nodes()[1].Queued; n > 8192 {
		t.Errorf("%d jobs wait for the stopped node", n)
	}
}
