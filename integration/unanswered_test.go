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
	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		c := redistest.Open(t, startAdopting(t, redistest.Start(t, "--requirepass", "x")).Addr())
		for _, command := range []string{"WATCH k", "WATCH lock:a", "MULTI"} {
			if v := c.Do(t, strings.Fields(command)...); !strings.HasPrefix(v.Text, "NOAUTH") {
				t.Errorf("%s: %v", command, v)
			}
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
	runsNoMore(t, c, "WATCH", "MULTI", command, "EXEC")
}

// TestIdentity_Unanswered: what a client has sent behind SELECT, AUTH or CLIENT REPLY does not run if the upstream could not be
// asked: in another database, as another user, or with replies that are not expected. A refusal changes nothing, as in Redis, and
// nor does a HELLO for the protocol alone, behind which go-redis goes on with RESP2.
func TestIdentity_Unanswered(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"shared": nil, "unshared": {"--upstream-conns", "0"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := redistest.Start(t)
			unansweredIdentity(t, redistest.StartProxy(t, data, redistest.StartNodes(t, 1), args...), data)
		})
	}
}

func unansweredIdentity(t *testing.T, p *redistest.Proxy, data *redistest.Server) {
	commands := []string{"SELECT 3", "AUTH default x", "HELLO 3 AUTH default x", "CLIENT REPLY OFF"}
	used := func() bool {
		v, err := redistest.Open(t, p.Addr()).Try("GET", "k")
		return err == nil && !v.IsError()
	}
	admin := redistest.Open(t, data.Addr())
	eventually(t, 30*time.Second, "the server is used", used)
	for _, command := range commands {
		c := redistest.Open(t, p.Addr())
		admin.Do(t, "CONFIG", "SET", "maxclients", "1")
		if v := c.Do(t, strings.Fields(command)...); v.String() != "-ERR max number of clients reached" {
			t.Errorf("%s, to an upstream that takes no more connections: %v", command, v)
		}
		admin.Do(t, "CONFIG", "SET", "maxclients", "10000")
		runsNoMore(t, c, command, "SET k mine")
	}
	for _, command := range commands {
		c := redistest.Open(t, p.Addr())
		data.Kill()
		if v, err := c.Try(strings.Fields(command)...); err == nil && !strings.HasPrefix(v.Text, "UPSTREAMDOWN") {
			t.Errorf("%s without the upstream: %v", command, v)
		} // without an answer it was sent on a connection that had just been lost
		if err := data.Restart(); err != nil {
			t.Fatal(err)
		}
		eventually(t, 30*time.Second, "the server is used again", used)
		runsNoMore(t, c, command, "SET k mine")
	}
	if v := data.Do(t, "EXISTS", "k"); v.Int() != 0 {
		t.Error("what came behind has been executed")
	}
	data.Kill()
	eventually(t, 30*time.Second, "the server is missed", func() bool { return !used() })
	c := redistest.Open(t, p.Addr())
	if v := c.Do(t, "HELLO", "3"); !strings.HasPrefix(v.Text, "UPSTREAMDOWN") {
		t.Errorf("HELLO 3 without the upstream: %v", v)
	}
	wantGrant(t, c.Do(t, "LOCK", "job", "10s", "OWNER", "me"))
	if err := data.Restart(); err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, "the server is used again", used)
	for _, command := range []string{"SELECT 99", "AUTH nobody x", "HELLO 9", "CLIENT REPLY MAYBE", "GET k"} {
		if v := c.Do(t, strings.Fields(command)...); v.IsError() == (command == "GET k") {
			t.Errorf("%s: %v", command, v)
		}
	}
}

// runsNoMore checks that a client is disconnected that got an error to a command, whatever it sends next.
func runsNoMore(t *testing.T, c *redistest.Conn, before string, next ...string) {
	t.Helper()
	if _, err := c.Write([]byte(lines(next...))); err == nil {
		if got, closed := c.ReadUntilQuiet(10 * time.Second); got != "" || !closed {
			t.Errorf("after %s, which was not answered, %s: %q, closed %t", before, strings.Join(next, ", "), got, closed)
		}
	}
}
