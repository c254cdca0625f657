package locks

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// While a Service ends, and waits for one node's connection, the worker of another that has
// something to repeat must sleep.
func TestNode_WorkerPausesWhileTheServiceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var looks atomic.Int64
		s, err := New(Options{
			Nodes: nodesAt(t, "127.0.0.1:1"), Log: slog.New(slog.DiscardHandler),
			now: func() time.Duration {
				if looks.Add(1) > 10_000 {
					panic("the lane does not sleep")
				}
				return time.Since(began) + time.Hour
			},
			Tune: func(c *rueidis.ClientOption) {
				c.DialCtxFn = func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
					return nil, errors.New("nobody there")
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		n := s.nodes[0]
		n.push(s.undoJob(s.redisKeys(Key{0, "job"}), "a", "h"))
		time.Sleep(time.Second)
		close(s.stop)
		time.Sleep(time.Second)
		n.close()
		s.workers.Wait()
	})
}

// TestParseIdentity: a Redis and a Valkey tell in fields of different names that they
// belong to a Cluster.
func TestParseIdentity(t *testing.T) {
	for info, want := range map[string]identity{
		"# Server\r\nredis_mode:cluster\r\nrun_id:a\r\n":     {runID: "a", cluster: true},
		"# Server\r\nserver_mode:cluster\r\nrun_id:b\r\n":    {runID: "b", cluster: true},
		"# Server\r\nserver_mode:standalone\r\nrun_id:c\r\n": {runID: "c"},
	} {
		if got := parseIdentity(info); got != want {
			t.Errorf("%q: %+v, want %+v", info, got, want)
		}
	}
}

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
	var q *QuorumError
	eventually(t, 2*time.Second, "three nodes refuse", func() bool {
		a, err := s.Lock(t.Context(), LockRequest{Key: Key{Name: "job"}, TTL: time.Second})
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
	n := s.nodes[1]
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.queue) > maxRetries {
		t.Errorf("%d jobs wait for the stopped node", len(n.queue))
	}
}
