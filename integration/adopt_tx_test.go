package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// adoptedTransactions are commands of one connection, with a bar between them, and at a place of its own "other:" before
// what another connection says there. <k> is the key of a lock.
var adoptedTransactions = []string{
	"SET <k> me NX PX 30000|WATCH <k>|GET <k>|MULTI|DEL <k>|EXEC|GET <k>",
	"SET <k> me NX PX 30000|WATCH <k>|GET <k>|MULTI|PEXPIRE <k> 20000|EXEC|GET <k>",
	"SET <k> me NX PX 30000|WATCH <k>|GET <k>|UNWATCH|DEL <k>",
	"WATCH <k>|GET <k>|MULTI|SETEX <k> 30 me|EXEC|GET <k>|WATCH <k>|MULTI|SET <k> you NX PX 20000|EXEC",
	"WATCH <k>|SET <k> me NX PX 30000|MULTI|DEL <k>|EXEC|EXISTS <k>",
	"SET <k> me NX PX 30000|WATCH <k>|DEL <k>|MULTI|DEL <k>|EXEC|MULTI|EXISTS <k>|EXEC",
	"SET <k> me NX PX 30000|WATCH <k>|DEL <k>|UNWATCH|MULTI|DEL <k>|EXEC",
	"SET <k> me NX PX 30000|WATCH <k>|DEL <k>|MULTI|DISCARD|MULTI|DEL <k>|EXEC",
	"SET <k> me NX PX 30000|WATCH <k>|DEL <k>|RESET|MULTI|DEL <k>|EXEC",
	"SET <k> me NX PX 30000|WATCH <k>|DEL <k>|EXEC x|MULTI|DEL <k>|EXEC",
	"SET <k> me NX PX 30000|WATCH <k>|DEL <k>|DISCARD|EXEC|UNWATCH x|MULTI|DEL <k>|EXEC",
	"MULTI|SETNX <k> me|EXPIRE <k> 30|GET <k>|STRLEN <k>|EXEC|MULTI|SETNX <k> you|DEL <k>|GET <k>|EXISTS <k>|EXEC",
	"MULTI|MULTI|SET <k> me NX PX 30000|WATCH <k>|GET <k>|EXEC|GET <k>",
	"MULTI|GET <k> x|EXEC|EXEC|PING",
	"MULTI|SET <k> me NX PX 30000|SET <k> me NX PX x|EXEC|EXISTS <k>",
	"MULTI|SET <k> me NX PX 30000|WATCH|EXEC|EXISTS <k>",
	"MULTI|SET <k> me NX PX 30000|DISCARD|EXISTS <k>|DISCARD",
	"MULTI|SET <k> me NX PX 30000|DISCARD x|EXEC|EXISTS <k>",
	"MULTI|SET <k> me NX PX 30000|EXEC x|EXISTS <k>|EXEC",
	"MULTI|SET <k> me NX PX 30000|RESET|EXISTS <k>|EXEC",
	"MULTI|SET <k> me NX PX 30000|HGET <k> f|EXPIRE <k> 20|TYPE <k>|EXEC|EXISTS <k>|DEL <k>",
	"MULTI|GET <k>|GETRANGE <k> 0 1|PTTL <k>|EXISTS <k>|TYPE <k>|EXEC",
	"WATCH <k>|MULTI|EXEC|WATCH <k>|SET <k> me NX PX 30000|MULTI|EXEC|EXEC",
	"WATCH <k>|WATCH <k>|MULTI|GET <k>|EXEC|MULTI|SET x 1|GET x|EXEC|DEL x",
	"SET x 1|MULTI|INCR x|EXEC|WATCH x|MULTI|INCR x|EXEC|MULTI|GET <k>|EXEC|DEL x",
	"SET <k> me NX PX 30000|WATCH <k>|HELLO 3|MULTI|DEL <k>|GET <k>|EXEC|WATCH <k>|SET <k> me NX PX 30000|MULTI|EXEC",
	"SET <k> me NX PX 30000|WATCH <k>|other:DEL <k>|MULTI|DEL <k>|EXEC|EXISTS <k>",
	"SET <k> me NX PX 30000|WATCH <k>|GET <k>|MULTI|DEL <k>|other:DEL <k>|other:SET <k> you NX PX 30000|EXEC|GET <k>",
	"WATCH <k>|GET <k>|MULTI|SET <k> me PX 30000|other:SET <k> you NX PX 30000|EXEC|GET <k>",
	"SET <k> me NX PX 150|WATCH <k>|MULTI|DEL <k>|other:sleep|EXEC|EXISTS <k>",
	"SET <k> me NX PX 30000|MULTI|GET <k>|DEL <k>|other:DEL <k>|EXEC|EXISTS <k>",
}

// TestAdopt_TransactionsAsRedis: WATCH, MULTI and EXEC with a lock answer the bytes of a plain server, sent at once
// or one by one, however the client's commands travel.
func TestAdopt_TransactionsAsRedis(t *testing.T) {
	t.Parallel()
	plain, one, group := redistest.Start(t), redistest.Start(t), redistest.StartCluster(t, 3, 0)
	for name, p := range map[string]*redistest.Proxy{
		"shared": startAdopting(t, one), "unshared": startAdopting(t, one, "--upstream-conns", "0"), "Cluster": startAdopting(t, group),
	} {
		t.Run(name, func(t *testing.T) {
			for i, stream := range adoptedTransactions {
				for _, atOnce := range []bool{true, false} {
					if atOnce && strings.Contains(stream, "other:") {
						continue
					}
					filled := strings.ReplaceAll(stream, "<k>", fmt.Sprintf("lock:%s:%d:%t", name, i, atOnce))
					want := transcript(t, plain.Addr(), filled, atOnce)
					if got := transcript(t, p.Addr(), filled, atOnce); got != want {
						t.Errorf("%s, at once %t\nlockproxy %s\nRedis     %s", filled, atOnce, got, want)
					}
				}
			}
		})
	}
	for _, key := range one.Do(t, "KEYS", "*").Elems {
		t.Errorf("the upstream has %v", key)
	}
}

// transcript is what a server answers to a stream of adoptedTransactions. Lines about HELLO are left out.
func transcript(t *testing.T, addr, stream string, atOnce bool) string {
	t.Helper()
	c, other := redistest.Open(t, addr), redistest.Open(t, addr)
	commands := append(strings.Split(stream, "|"), "ECHO end")
	var replies []string
	read := func() {
		v := c.Read(t)
		if v.Kind != '%' {
			replies = append(replies, v.String())
		}
	}
	if atOnce {
		c.Send(t, lines(commands...))
		for range commands {
			read()
		}
		return strings.Join(replies, " ")
	}
	for _, command := range commands {
		switch said, is := strings.CutPrefix(command, "other:"); {
		case said == "sleep":
			time.Sleep(250 * time.Millisecond)
		case is:
			other.Do(t, strings.Fields(said)...)
		default:
			c.Send(t, lines(command))
			read()
		}
	}
	return strings.Join(replies, " ")
}

// TestAdopt_TransactionsRefused: what cannot be done in one step is refused, and EXEC does nothing of it.
func TestAdopt_TransactionsRefused(t *testing.T) {
	t.Parallel()
	one, group := redistest.Start(t), redistest.StartCluster(t, 3, 0)
	refused := func(command, key, why string) string {
		return fmt.Sprintf("-ADOPTREFUSED %s %s: %s; adopted by \"lock:*\"", command, key, why)
	}
	beside := func(command string) string {
		return refused(command, "lock:a", "it is in one transaction with that lock")
	}
	const (
		aborted = "-EXECABORT Transaction discarded because of previous errors."
		mixed   = "it is inside MULTI with commands that are about no lock"
		watched = "it is inside MULTI, and a key that is no lock is watched"
	)
	for name, p := range map[string]*redistest.Proxy{"shared": startAdopting(t, one), "unshared": startAdopting(t, one, "--upstream-conns", "0"), "Cluster": startAdopting(t, group)} {
		for _, tt := range []struct{ sent, want string }{
			{"MULTI|SET x 1|DEL lock:a|EXEC|EXISTS x", "+OK +QUEUED " + refused("DEL", "lock:a", mixed) + " " + aborted + " :0"},
			{"MULTI|SET lock:a me NX PX 30000|SET x 1|EXEC|EXISTS x|EXISTS lock:a", "+OK +QUEUED " + beside("SET") + " " + aborted + " :0 :0"},
			{"MULTI|SET lock:a me NX PX 30000|PING|SELECT 0|UNWATCH|EXEC|EXISTS lock:a", "+OK +QUEUED " + beside("PING") + " " + beside("SELECT") + " " + beside("UNWATCH") + " " + aborted + " :0"},
			{"MULTI|SET lock:a me NX PX 30000|SUBSCRIBE c|CLIENT REPLY OFF|EXEC|EXISTS lock:a", "+OK +QUEUED " + beside("SUBSCRIBE") + " " + beside("CLIENT") + " " + aborted + " :0"},
			{"MULTI|SET lock:a me NX PX 30000|UNLOCK lock:a me|EXEC|EXISTS lock:a", "+OK +QUEUED -ERR UNLOCK is not allowed inside a transaction " + aborted + " :0"},
			{"WATCH x|MULTI|DEL lock:a|EXEC", "+OK +OK " + refused("DEL", "lock:a", watched) + " " + aborted},
			{"WATCH lock:a|MULTI|SET x 1|EXEC|EXISTS x", "+OK +OK " + beside("SET") + " " + aborted + " :0"},
			{"WATCH lock:a|WATCH lock:b|MULTI|DEL lock:b|EXEC", "+OK " + refused("WATCH", "lock:b", "another lock is watched: lock:a") + " +OK " + refused("DEL", "lock:b", "another lock is in the transaction: lock:a") + " " + aborted},
			{"WATCH lock:a x|WATCH x lock:a", refused("WATCH", "lock:a", "it has other keys as well") + " " + refused("WATCH", "lock:a", "it has other keys as well")},
			{"MULTI|INCR lock:a|EXEC", "+OK " + refused("INCR", "lock:a", "INCR of a lock: a counter, or a semaphore, whose permits have neither owner nor end") + " " + aborted},
			{"MULTI|SET lock:a me|EXEC", "+OK " + refused("SET", "lock:a", "OVERWRITE does not compare the value: set as=full") + " " + aborted},
			{"MULTI|SET lock:a me NX PX 999999|EXEC|EXISTS lock:a", "+OK +QUEUED " + refused("EXEC", "lock:a", "its ttl of 16m39.999s is over max-ttl, 1m0s") + " :0"},
			{"MULTI|EVAL x 0 lock:a|EXEC", "+OK " + refused("EVAL", "lock:a", "not supported: its syntax") + " " + aborted},
			{"CLIENT TRACKING ON|MULTI|GET lock:a|EXEC", "+OK +OK " + refused("GET", "lock:a", "CLIENT TRACKING is on, and would not be told of changes of a lock") + " " + aborted},
		} {
			if name == "Cluster" && (strings.Contains(tt.sent, "TRACKING") || strings.Contains(tt.sent, "x lock:a")) { // other words there
				continue
			}
			if got := transcript(t, p.Addr(), tt.sent, true); got != tt.want+` $"end"` {
				t.Errorf("%s: %s\ngot  %s\nwant %s", name, tt.sent, got, tt.want)
			}
		}
	}
	p := startAdopting(t, one)
	for _, tt := range []struct{ sent, want string }{ // where replies are not counted, or would not be
		{"WATCH lock:a|SUBSCRIBE c|MULTI|GET lock:a|EXEC", "+OK " + beside("SUBSCRIBE") + " +OK +QUEUED *[$-1]"},
		{"WATCH lock:a|CLIENT REPLY ON|PING", "+OK " + beside("CLIENT") + " +PONG"},
		{"CLIENT REPLY ON|WATCH lock:a|MULTI|SET x 1|EXEC|DEL x", "+OK " + refused("WATCH", "lock:a", "WATCH of a lock") + " +OK +QUEUED *[+OK] :1"},
	} {
		if got := transcript(t, p.Addr(), tt.sent, true); got != tt.want+` $"end"` {
			t.Errorf("%s\ngot  %s\nwant %s", tt.sent, got, tt.want)
		}
	}
}

// TestAdopt_TransactionLeft: a lock that EXEC has taken for a client which is gone is free again.
func TestAdopt_TransactionLeft(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, 1, "--adopt", "lock:*", "--node-timeout", "20s")
	stays := redistest.Open(t, r.addr())
	c := redistest.Open(t, r.addr())
	wantReplies(t, c, [2]string{"WATCH lock:left", "+OK"}, [2]string{"MULTI", "+OK"}, [2]string{"SET lock:left me PX 60000", "+QUEUED"})
	slow := redistest.Open(t, r.nodes[0].Addr())
	slow.Send(t, lines("DEBUG SLEEP 0.2"))
	time.Sleep(20 * time.Millisecond)
	c.Send(t, lines("EXEC"))
	c.Close()
	slow.Read(t)
	eventually(t, 9*time.Second, "it is free", func() bool {
		return stays.Do(t, "SET", "lock:left", "you", "NX", "PX", "60000").String() == "+OK"
	})
}

// TestAdopt_TransactionUpstreamLost: a lock is watched without the upstream; what MULTI has begun there ends with the
// connection, and so does the client, as that of a Redis that went away.
func TestAdopt_TransactionUpstreamLost(t *testing.T) {
	t.Parallel()
	data := redistest.Start(t)
	p := startAdopting(t, data)
	c, inside := redistest.Open(t, p.Addr()), redistest.Open(t, p.Addr())
	wantReplies(t, c, [2]string{"SET lock:a me NX PX 60000", "+OK"}, [2]string{"WATCH lock:a", "+OK"})
	wantReplies(t, inside, [2]string{"MULTI", "+OK"}, [2]string{"DEL lock:a", "+QUEUED"})
	data.Do(t, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	if v, err := inside.Next(); err == nil {
		t.Errorf("its transaction is lost, and it got %v", v)
	}
	wantReplies(t, c, [2]string{"GET lock:a", `$"me"`}, [2]string{"MULTI", "+OK"}, [2]string{"DEL lock:a", "+QUEUED"}, [2]string{"EXEC", "*[:1]"})
}
