package locks

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
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
