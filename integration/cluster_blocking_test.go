package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// blockedIn is the number of clients in blocking commands at all nodes.
func blockedIn(t *testing.T, c *redistest.Cluster) (n int) {
	t.Helper()
	for _, s := range c.Nodes {
		n += blocked(t, s)
	}
	return n
}

func awaitBlocked(t *testing.T, c *redistest.Cluster, n int) {
	t.Helper()
	eventually(t, 9*time.Second, fmt.Sprint(n, " clients are blocked"), func() bool { return blockedIn(t, c) == n })
}

// TestClusterBlocking: a client waits where its keys are, and no longer than it is there.
func TestClusterBlocking(t *testing.T) {
	t.Parallel()
	cluster, p := startClustered(t, 3, 0)
	keys := []string{"a", "b", "c", "d"} // of all nodes
	other := redistest.Open(t, p.Addr())
	t.Run("node after node", func(t *testing.T) {
		for _, open := range []func(testing.TB, string) *redistest.Conn{redistest.Open, redistest.Open3} {
			c := open(t, p.Addr())
			for _, k := range keys {
				c.Send(t, lines("BLPOP "+k+" 0", "GET none", "BRPOP "+k+" 0"))
				awaitBlocked(t, cluster, 1)
				other.Do(t, "RPUSH", k, "1", "2")
				if v := c.Read(t); v.String() != fmt.Sprintf(`*[$"%s" $"1"]`, k) {
					t.Fatalf("BLPOP %s: %v", k, v)
				}
				if v := c.Read(t); !v.Null {
					t.Fatalf("behind it: %v", v)
				}
				if v := c.Read(t); v.String() != fmt.Sprintf(`*[$"%s" $"2"]`, k) {
					t.Fatalf("BRPOP %s: %v", k, v)
				}
			}
			c.Close()
		}
		awaitBlocked(t, cluster, 0)
	})
	t.Run("behind WATCH", func(t *testing.T) {
		c := redistest.Open(t, p.Addr())
		for _, k := range keys {
			c.Send(t, lines("WATCH watched", "BLPOP late:"+k+" 0.05", "RPUSH late:"+k+" x", "UNWATCH"))
			for _, want := range []string{"+OK", "*-1", ":1", "+OK"} {
				if v := c.Read(t); v.String() != want {
					t.Fatalf("with %s: %v, want %s", k, v, want)
				}
			}
		}
	})
	t.Run("the client leaves", func(t *testing.T) {
		var all []*redistest.Conn
		for _, k := range keys {
			c := redistest.Open(t, p.Addr())
			c.Send(t, lines("BLPOP "+k+" 0", "SET gone:"+k+" 1"))
			all = append(all, c)
		}
		watching := redistest.Open(t, p.Addr())
		watching.Do(t, "WATCH", "a")
		watching.Send(t, lines("BLPOP watched:b 0", "RPUSH watched:b own", "SET gone:watched 1"))
		all = append(all, watching)
		awaitBlocked(t, cluster, len(all))
		for _, c := range all {
			c.Close()
		}
		awaitBlocked(t, cluster, 0)
		if v := other.Do(t, "EXISTS", "watched:b", "gone:watched"); v.String() != ":0" {
			t.Errorf("behind WATCH and BLPOP ran %v commands", v)
		}
		for _, k := range keys {
			other.Do(t, "RPUSH", k, "kept")
			if v := other.Do(t, "LPOP", k); v.Text != "kept" {
				t.Errorf("an element of %s went to nobody: %v", k, v)
			}
			if v := other.Do(t, "EXISTS", "gone:"+k); v.String() != ":0" {
				t.Errorf("what was behind BLPOP %s ran: %v", k, v)
			}
		}
	})
	t.Run("the slot moves", func(t *testing.T) {
		c, stream, leaving := redistest.Open(t, p.Addr()), redistest.Open3(t, p.Addr()), redistest.Open(t, p.Addr())
		slot := cluster.SlotOf(t, "{m}l")
		c.Send(t, lines("BLMOVE {m}l {m}to LEFT RIGHT 0"))
		stream.Send(t, lines("XREAD BLOCK 0 STREAMS {m}x $"))
		leaving.Send(t, lines("BZPOPMIN {m}z 0"))
		for range 2 {
			awaitBlocked(t, cluster, 3)
			from := cluster.Owner(t, slot)
			to := cluster.Nodes[0]
			if from == to {
				to = cluster.Nodes[1]
			}
			cluster.MoveSlot(t, slot, to)
			eventually(t, 9*time.Second, "they wait at the new node", func() bool { return blocked(t, to) == 3 })
		}
		leaving.Close()
		awaitBlocked(t, cluster, 2)
		other.Do(t, "RPUSH", "{m}l", "x")
		if v := c.Read(t); v.String() != `$"x"` {
			t.Errorf("BLMOVE: %v", v)
		}
		other.Do(t, "XADD", "{m}x", "1-1", "f", "v")
		if v := stream.Read(t); v.Kind != '%' {
			t.Errorf("XREAD: %v", v)
		}
		for _, conn := range []*redistest.Conn{c, stream} {
			if v := conn.Do(t, "GET", "none"); !v.Null {
				t.Errorf("afterwards: %v", v)
			}
		}
		awaitBlocked(t, cluster, 0)
	})
	t.Run("timeouts", func(t *testing.T) {
		c := redistest.Open(t, p.Addr())
		c.Send(t, lines("BLPOP a 0.01", "BLPOP b 0.01", "BZPOPMIN c 0.01", "BLMOVE {q}1 {q}2 LEFT LEFT 0.01", "PING"))
		for i, want := range []string{"*-1", "*-1", "*-1", "*-1", "+PONG"} {
			if v := c.Read(t); v.String() != want {
				t.Errorf("reply %d: %v, want %s", i, v, want)
			}
		}
	})
	t.Run("unblocked", func(t *testing.T) {
		c := redistest.Open(t, p.Addr())
		id := c.Do(t, "CLIENT", "ID").Text
		for _, k := range keys {
			c.Send(t, lines("BLPOP "+k+" 0"))
			awaitBlocked(t, cluster, 1)
			if v := other.Do(t, "CLIENT", "UNBLOCK", id, "ERROR"); v.String() != ":1" {
				t.Errorf("CLIENT UNBLOCK: %v", v)
			}
			if v := c.Read(t); v.String() != "-UNBLOCKED client unblocked via CLIENT UNBLOCK" {
				t.Errorf("BLPOP %s: %v", k, v)
			}
		}
	})
}
