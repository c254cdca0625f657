package integration

import (
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// TestClusterTransactions: what is queued counts, wherever the transaction turns out to
// be executed; keys of "a" to "f" are on all nodes.
func TestClusterTransactions(t *testing.T) {
	t.Parallel()
	cluster, p := startClustered(t, 3, 0)
	t.Run("as a plain Redis", func(t *testing.T) {
		testTransactionsAsPlain(t, &twin{plain: redistest.Start(t), behind: cluster.Nodes[0], via: p.Addr()})
	})
	t.Run("of all nodes", func(t *testing.T) {
		c := redistest.Open(t, p.Addr())
		for _, command := range []string{"LOCK job 10s", "MGET a b", "SUBSCRIBE c", "FLUSHALL", "DBSIZE", "KEYS *", "SCAN 0", "SCRIPT LOAD return(1)", "CONFIG SET maxmemory 0", "CLUSTER SLOTS", "SHUTDOWN"} {
			c.Do(t, "MULTI")
			if v := c.Do(t, strings.Fields(command)...); !v.IsError() {
				t.Errorf("%s inside MULTI: %v", command, v)
			}
			for _, key := range []string{"a", "b", "c"} {
				c.Do(t, "SET", key, "1")
			}
			if v := c.Do(t, "EXEC"); !strings.HasPrefix(v.Text, "EXECABORT") {
				t.Errorf("EXEC after %s: %v", command, v)
			}
		}
	})
	t.Run("of a slot that has moved", func(t *testing.T) {
		c := redistest.Open(t, p.Addr())
		c.Do(t, "SET", "moving", "0")
		slot := cluster.SlotOf(t, "moving")
		for range 3 {
			c.Do(t, "WATCH", "moving")
			for _, n := range cluster.Nodes {
				if n != cluster.Owner(t, slot) {
					cluster.MoveSlot(t, slot, n)
					break
				}
			}
			eventually(t, pace*100, "a transaction succeeds soon, by its own doing", func() bool {
				c.Do(t, "MULTI")
				c.Do(t, "INCR", "moving")
				return c.Do(t, "EXEC").Kind == '*'
			})
		}
		if v := c.Do(t, "GET", "moving"); v.Text != "3" {
			t.Errorf("counted %v", v)
		}
	})
}

func testTransactionsAsPlain(t *testing.T, w *twin) {
	for _, d := range []dialogue{
		{name: "state inside", bytes: lines("MULTI", "SELECT 0", "CLIENT SETNAME me", "PING", "SET KEY 1", "CLIENT GETNAME", "EXEC", "CLIENT GETNAME", "GET KEY", "CLIENT SETNAME other", "CLIENT GETNAME", "MULTI", "CLIENT GETNAME", "SET KEY 1", "EXEC")},
		{name: "protocol inside", bytes: lines("MULTI", "PING", "GET KEY", "EXEC", "HELLO 3", "MULTI", "PING", "GET KEY", "GET KEY", "EXEC")},
		{name: "a refused command before the first key", bytes: lines("MULTI", "NOSUCH", "SET KEY 2", "EXEC", "GET KEY", "MULTI", "GET", "SET KEY 3", "EXEC", "GET KEY")},
		{name: "nested and watched inside", bytes: lines("MULTI", "MULTI", "WATCH KEY", "WATCH", "SET KEY 4", "EXEC", "MULTI", "WATCH KEY", "MULTI", "SET KEY 5", "EXEC", "GET KEY")},
		{name: "discarded", bytes: lines("MULTI", "SET KEY 6", "DISCARD", "DISCARD", "EXEC", "GET KEY", "MULTI", "DISCARD x", "EXEC x", "EXEC", "PING")},
		{name: "errors inside", bytes: lines("SET KEY x", "MULTI", "INCR KEY", "LPUSH KEY a", "SET KEY y", "EXEC", "GET KEY", "DEL KEY")},
		{name: "blocking inside", bytes: lines("MULTI", "BLPOP KEY 0", "XREAD BLOCK 0 STREAMS KEY $", "RPUSH KEY a", "BLPOP KEY 0", "EXEC")},
		{name: "scripts inside", bytes: lines("MULTI", "EVAL return(1) 0", "EVAL return(redis.call('incr',KEYS[1])) 1 KEY", "EXEC", "DEL KEY")},
		{name: "watched", bytes: lines("WATCH KEY", "SET KEY 1", "MULTI", "GET KEY", "EXEC", "WATCH KEY", "UNWATCH", "SET KEY 2", "MULTI", "GET KEY", "EXEC", "WATCH KEY KEY", "MULTI", "EXEC", "UNWATCH", "UNWATCH")},
		{name: "reset inside", bytes: lines("MULTI", "SET KEY 1", "RESET", "GET KEY", "EXEC", "PING")},
		{name: "quit inside", bytes: lines("MULTI", "SET KEY 1", "QUIT"), closes: true},
	} {
		bytes := d.bytes
		for _, key := range []string{"a", "b", "c"} {
			d.bytes = strings.ReplaceAll(bytes, "$3\r\nKEY\r\n", "$1\r\n"+key+"\r\n")
			w.compare(t, d)
		}
	}
}
