package integration

import (
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// TestWatch_Unanswered: a client that gets an error in place of the answer to WATCH, as its server was gone, cannot go on to
// MULTI and EXEC when that is back: it is disconnected, as by a Redis that goes away.
func TestWatch_Unanswered(t *testing.T) {
	t.Parallel()
	t.Run("one server", func(t *testing.T) {
		t.Parallel()
		data := redistest.Start(t)
		unansweredWatch(t, redistest.StartProxy(t, data, redistest.StartNodes(t, 1)), "UPSTREAMDOWN", "SET k mine", data)
		if v := data.Do(t, "EXISTS", "k"); v.Int() != 0 {
			t.Error("EXEC has been executed")
		}
	})
	t.Run("Cluster", func(t *testing.T) {
		t.Parallel()
		group := redistest.StartCluster(t, 3, 0, "--cluster-require-full-coverage", "no", "--cluster-node-timeout", "60000")
		owner := group.Owner(t, group.SlotOf(t, "k"))
		unansweredWatch(t, redistest.StartProxy(t, group, redistest.StartNodes(t, 1)), "UPSTREAMDOWN", "SET k mine", owner)
		if v := owner.Do(t, "EXISTS", "k"); v.Int() != 0 {
			t.Error("EXEC has been executed")
		}
	})
	t.Run("adopted lock", func(t *testing.T) {
		t.Parallel()
		node := redistest.Start(t, "--appendonly", "yes")
		p := redistest.StartProxy(t, redistest.Start(t), []*redistest.Server{node}, "--adopt", "k", "--restart-grace", "available")
		holder := redistest.Open(t, p.Addr())
		if v := holder.Do(t, "SET", "k", "theirs", "NX", "PX", "50000"); v.Text != "OK" {
			t.Fatal(v)
		}
		unansweredWatch(t, p, "NOQUORUM", "DEL k", node)
		if v := holder.Do(t, "GET", "k"); v.Text != "theirs" {
			t.Errorf("the lock of another is %v after DEL", v)
		}
	})
}

// unansweredWatch has a client WATCH the key k of a server that is killed, and send a transaction with a command to it when
// it is back.
func unansweredWatch(t *testing.T, p *redistest.Proxy, word, command string, server *redistest.Server) {
	t.Helper()
	c, other := redistest.Open(t, p.Addr()), redistest.Open(t, p.Addr())
	if v := c.Do(t, "GET", "k"); v.IsError() {
		t.Fatal(v)
	}
	server.Kill()
	if v := c.Do(t, "WATCH", "k"); !strings.HasPrefix(v.Text, word) {
		t.Fatalf("WATCH without its server: %v", v)
	}
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, "the server is used again", func() bool { return !other.Do(t, "GET", "k").IsError() })
	if _, err := c.Write([]byte(lines("MULTI", command, "EXEC"))); err == nil {
		if got, closed := c.ReadUntilQuiet(10 * time.Second); got != "" || !closed {
			t.Errorf("after WATCH that was not answered, MULTI, %s, EXEC: %q, closed %t", command, got, closed)
		}
	}
}
