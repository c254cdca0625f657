package integration

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// startClustered starts a Cluster, a lock node and a proxy in front of them.
func startClustered(t *testing.T, masters, replicas int, args ...string) (*redistest.Cluster, *redistest.Proxy) {
	t.Helper()
	c := redistest.StartCluster(t, masters, replicas)
	return c, startServing(t, c.URL(), args...)
}

// startServing starts a lock node and a proxy in front of an upstream.
func startServing(t *testing.T, upstream string, args ...string) *redistest.Proxy {
	t.Helper()
	node := redistest.StartNodes(t, 1)[0]
	listen, err := redistest.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	return redistest.StartServe(t, listen, append([]string{"--upstream", upstream, "--lock-node", "redis://" + node.Addr()}, args...)...)
}

// TestClusterLooksLikeOneServer: commands of every family, each as a client of a
// single Redis would send it.
func TestClusterLooksLikeOneServer(t *testing.T) {
	t.Parallel()
	_, p := startClustered(t, 3, 0)
	r := &rig{proxies: []*redistest.Proxy{p}}
	for _, sc := range []script{
		{"keys of any slot", []step{
			{"a", "SET one 1", "+OK"}, {"a", "SET two 2", "+OK"}, {"a", "SET three 3", "+OK"},
			{"a", "GET one", `$"1"`}, {"a", "GET two", `$"2"`}, {"a", "INCR three", ":4"},
			{"a3", "GET nothing", "_"}, {"a", "GET nothing", "$-1"},
		}},
		{"split commands", []step{
			{"a", "MSET a 1 b 2 c 3 d 4", "+OK"},
			{"a", "MGET a nothing d c b", `*[$"1" $-1 $"4" $"3" $"2"]`},
			{"a3", "MGET a nothing d", `*[$"1" _ $"4"]`},
			{"a", "EXISTS a b c nothing a", ":4"}, {"a", "TOUCH a b nothing", ":2"},
			{"a", "DEL a b nothing", ":2"}, {"a", "UNLINK c d", ":2"},
			{"a", "MSET a 1 b", "-ERR wrong number of arguments for 'mset' command"},
			{"a", "MGET", "-ERR wrong number of arguments for 'mget' command"},
		}},
		{"keys that belong together", []step{
			{"a", "RENAME a b", "-CROSSSLOT Keys in request don't hash to the same slot"},
			{"a", "MSETNX a 1 b 2", "-CROSSSLOT Keys in request don't hash to the same slot"},
			{"a", "SADD {t}1 x y", ":2"}, {"a", "SADD {t}2 y z", ":2"},
			{"a", "SINTERSTORE {t}3 {t}1 {t}2", ":1"}, {"a", "SMEMBERS {t}3", `*[$"y"]`},
			{"a", "EVAL return{KEYS[1],redis.call('scard',KEYS[1])} 1 {t}1", `*[$"{t}1" :2]`},
			{"a", "EVAL return{1} 2 a b", "-CROSSSLOT Keys in request don't hash to the same slot"},
		}},
		{"scripts that word their own errors", []step{
			{"a", "EVAL return{err='MOVED'..string.char(32)..'1'..string.char(32)..'127.0.0.1:1'} 1 k", "-MOVED 1 127.0.0.1:1"},
			{"a", "EVAL redis.call('incr',KEYS[1])return{err='TRYAGAIN'..string.char(32)..'later'} 1 {k}n", "-TRYAGAIN later"}, {"a", "GET {k}n", `$"1"`},
			{"a", "DEL {k}n", ":1"},
		}},
		{"transactions", []step{
			{"a", "MULTI", "+OK"}, {"a", "PING", "+QUEUED"}, {"a", "SET {x}1 1", "+QUEUED"}, {"a", "INCR {x}1", "+QUEUED"}, {"a", "EXEC", "*[+PONG +OK :2]"},
			{"a", "MULTI", "+OK"}, {"a", "SET {y}1 1", "+QUEUED"}, {"a", "DISCARD", "+OK"}, {"a", "EXISTS {y}1", ":0"},
			{"a", "MULTI", "+OK"}, {"a", "SET p 1", "+QUEUED"}, {"a", "SET q 1", "-CROSSSLOT Keys in request don't hash to the same slot"},
			{"a", "EXEC", "-EXECABORT Transaction discarded because of previous errors."},
			{"a", "WATCH {x}1", "+OK"}, {"b", "INCR {x}1", ":3"}, {"a", "GET other", "$-1"}, {"a", "MULTI", "+OK"}, {"a", "INCR {x}1", "+QUEUED"}, {"a", "EXEC", "*-1"},
			{"a", "WATCH {x}1", "+OK"}, {"a", "MULTI", "+OK"}, {"a", "INCR {x}1", "+QUEUED"}, {"a", "EXEC", "*[:4]"},
			{"a", "WATCH {x}1", "+OK"}, {"b", "INCR {x}1", ":5"}, {"a", "UNWATCH", "+OK"}, {"a", "MULTI", "+OK"}, {"a", "INCR {x}1", "+QUEUED"}, {"a", "EXEC", "*[:6]"},
			{"a", "EXEC", "-ERR EXEC without MULTI"},
		}},
		{"transactions of a client with a connection of its own", []step{ // a, b and c are on three nodes
			{"c", "CLIENT NO-EVICT off", "+OK"},
			{"c", "WATCH a", "+OK"}, {"c", "MULTI", "+OK"}, {"c", "SET a 1", "+QUEUED"}, {"c", "EXEC", "*[+OK]"},
			{"c", "WATCH b", "+OK"}, {"c", "MULTI", "+OK"}, {"c", "SET b 1", "+QUEUED"}, {"c", "EXEC", "*[+OK]"},
			{"c", "WATCH c", "+OK"}, {"b", "SET c 2", "+OK"}, {"c", "MULTI", "+OK"}, {"c", "SET c 1", "+QUEUED"}, {"c", "EXEC", "*-1"},
		}},
		{"the whole database", []step{
			{"a", "FLUSHALL", "+OK"}, {"a", "DBSIZE", ":0"}, {"a", "RANDOMKEY", "$-1"},
			{"a", "MSET k1 1 k2 2 k3 3 k4 4 k5 5", "+OK"}, {"a", "DBSIZE", ":5"},
			{"a", "SCRIPT LOAD return'x'", `$"<sha>"`}, {"a", "SCRIPT EXISTS <sha> 0000000000000000000000000000000000000000", "*[:1 :0]"},
			{"a", "EVALSHA <sha> 1 k1", `$"x"`}, {"a", "EVALSHA <sha> 1 k2", `$"x"`}, {"a", "EVALSHA <sha> 1 k3", `$"x"`}, {"a", "EVALSHA <sha> 0", `$"x"`},
			{"a", "CONFIG SET maxmemory-samples 7", "+OK"}, {"a", "CONFIG GET maxmemory-samples", `*[$"maxmemory-samples" $"7"]`},
			{"a", "WAIT 0 100", ":0"},
			{"a", "SCRIPT KILL", "-NOTBUSY No scripts in execution right now."},
			{"a", "FLUSHDB", "+OK"}, {"a", "KEYS *", "*[]"},
		}},
		{"what it is", []step{
			{"a", "CLUSTER SLOTS", "-ERR This instance has cluster support disabled"},
			{"a", "READONLY", "-ERR This instance has cluster support disabled"},
			{"a", "SELECT 0", "+OK"}, {"a", "SELECT 1", "-ERR SELECT is not allowed in cluster mode"},
			{"a", "GET", "-ERR wrong number of arguments for 'get' command"},
		}},
		{"blocking", []step{
			{"a", "RPUSH l1 x", ":1"}, {"a", "RPUSH l2 y", ":1"},
			{"a", "BLPOP l1 1", `*[$"l1" $"x"]`}, {"a", "BLPOP l2 1", `*[$"l2" $"y"]`}, {"a", "BLPOP l3 0.01", "*-1"},
			{"a", "BLPOP l1 l2 1", "-CROSSSLOT Keys in request don't hash to the same slot"},
			{"a", "XADD s 1-1 f v", `$"1-1"`}, {"a", "XREAD BLOCK 10 STREAMS s 0", `*[*[$"s" *[*[$"1-1" *[$"f" $"v"]]]]]`}, {"a", "XREAD BLOCK 10 STREAMS s $", "*-1"},
			{"a", "GET l1", "$-1"},
		}},
		{"locks", []step{
			{"a", "LOCK <job> 30s", `*[:<f> $"<o>" :<_> :1]`}, {"b", "LOCK <job> 30s", "*-1"}, {"a", "UNLOCK <job>", ":1"},
		}},
	} {
		t.Run(sc.name, func(t *testing.T) { r.run(t, sc) })
	}
}

// TestClusterKeysAndScan: what is asked of all nodes is there once.
func TestClusterKeysAndScan(t *testing.T) {
	t.Parallel()
	_, p := startClustered(t, 3, 0)
	c := redistest.Open(t, p.Addr())
	want := map[string]bool{}
	for i := range 500 {
		k := fmt.Sprint("key:", i)
		want[k] = true
		c.Do(t, "SET", k, "v")
	}
	got := map[string]int{}
	for cursor := "0"; ; {
		v := c.Do(t, "SCAN", cursor, "COUNT", "20")
		if v.Kind != '*' || len(v.Elems) != 2 {
			t.Fatalf("SCAN %s answered %v", cursor, v)
		}
		for _, k := range v.Elems[1].Elems {
			got[k.Text]++
		}
		if cursor = v.Elems[0].Text; cursor == "0" {
			break
		}
	}
	if len(got) != len(want) {
		t.Errorf("SCAN found %d of %d keys", len(got), len(want))
	}
	if n := len(c.Do(t, "KEYS", "key:*").Elems); n != len(want) {
		t.Errorf("KEYS found %d of %d keys", n, len(want))
	}
}

// TestClusterPipeline: replies of all nodes come in the order of the commands.
func TestClusterPipeline(t *testing.T) {
	t.Parallel()
	_, p := startClustered(t, 3, 0)
	for _, open := range []func(testing.TB, string) *redistest.Conn{redistest.Open, redistest.Open3} {
		c := open(t, p.Addr())
		var in strings.Builder
		var want []string
		for i := range 3000 {
			k := fmt.Sprint("k", i%97)
			switch {
			case i%11 == 3:
				in.WriteString(redistest.Command("PING", fmt.Sprint(i)))
				want = append(want, fmt.Sprintf(`$"%d"`, i))
			case i%13 == 4:
				in.WriteString(redistest.Command("EVAL", "return ARGV[1]", "1", k, fmt.Sprint(i)))
				want = append(want, fmt.Sprintf(`$"%d"`, i))
			case i%17 == 5:
				in.WriteString(redistest.Command("MSET", k, fmt.Sprint(i), "other"+k, "1"))
				want = append(want, "+OK")
			default:
				in.WriteString(redistest.Command("SET", k, fmt.Sprint(i), "GET"))
				want = append(want, "")
			}
		}
		go c.Send(t, in.String())
		for i, w := range want {
			v := c.Read(t)
			if w != "" && v.String() != w {
				t.Fatalf("reply %d is %v, want %s", i, v, w)
			}
		}
	}
}

// TestClusterTracking: a client that keeps what it has read hears of changes to it,
// on whichever node.
func TestClusterTracking(t *testing.T) {
	t.Parallel()
	_, p := startClustered(t, 3, 0)
	a, b := redistest.Open3(t, p.Addr()), redistest.Open(t, p.Addr())
	keys := []string{"one", "two", "three", "four", "five", "six"}
	if v := a.Do(t, "CLIENT", "TRACKING", "ON"); v.String() != "+OK" {
		t.Fatal(v)
	}
	for _, k := range keys {
		a.Do(t, "GET", k)
	}
	for _, k := range keys {
		b.Do(t, "SET", k, "1")
		if v := a.Read(t); v.String() != fmt.Sprintf(`>[$"invalidate" *[$"%s"]]`, k) {
			t.Errorf("heard %v of a change to %s", v, k)
		}
	}
	if v := a.Do(t, "CLIENT", "TRACKING", "OFF"); v.String() != "+OK" {
		t.Fatal(v)
	}
	a.Do(t, "GET", "one")
	b.Do(t, "SET", "one", "2")
	if v := a.Do(t, "CLIENT", "CACHING", "YES"); !v.IsError() {
		t.Errorf("CACHING without TRACKING answered %v", v)
	}
	if v := a.Do(t, "CLIENT", "TRACKING", "ON", "OPTIN"); v.String() != "+OK" {
		t.Fatal(v)
	}
	a.Do(t, "GET", "one")
	for _, k := range keys[1:] {
		if v := a.Do(t, "CLIENT", "CACHING", "YES"); v.String() != "+OK" {
			t.Fatal(v)
		}
		a.Do(t, "GET", k)
	}
	b.Do(t, "SET", "one", "3")
	for _, k := range keys[1:] {
		b.Do(t, "SET", k, "3")
		if v := a.Read(t); v.String() != fmt.Sprintf(`>[$"invalidate" *[$"%s"]]`, k) {
			t.Errorf("heard %v of a change to %s", v, k)
		}
	}
	if v := a.Do(t, "CLIENT", "TRACKING", "ON", "BCAST", "OPTIN"); !v.IsError() {
		t.Errorf("contradicting options were answered %v", v)
	}
	if v := a.Do(t, "GET", "one"); v.String() != `$"3"` {
		t.Error(v)
	}
}

// TestClusterTracking_Off: OFF ends tracking whatever options follow it, as at a Redis, unless these are refused; the words of a
// prefix are none.
func TestClusterTracking_Off(t *testing.T) {
	t.Parallel()
	_, p := startClustered(t, 3, 0)
	plain := redistest.Start(t)
	for _, off := range []string{"OFF NOLOOP", "off OPTIN", "OFF BCAST PREFIX a", "OFF NO-SUCH", "OFF OPTIN OPTOUT", "ON BCAST PREFIX REDIRECT", "ON PREFIX BCAST"} {
		var said [2]string
		for i, addr := range []string{plain.Addr(), p.Addr()} {
			c := redistest.Open3(t, addr)
			c.Send(t, lines("CLIENT TRACKING "+off, "CLIENT GETREDIR", "CLIENT TRACKING OFF", "CLIENT TRACKING ON", "CLIENT TRACKING "+off, "CLIENT GETREDIR", "ECHO end"))
			for v := c.Read(t); v.Text != "end"; v = c.Read(t) {
				said[i] += v.Raw
			}
		}
		if said[1] != said[0] {
			t.Errorf("CLIENT TRACKING %s: %q, by a Redis %q", off, said[1], said[0])
		}
	}
}

// TestClusterTracking_NewMaster: a client that is to be told of all keys is disconnected when a master is added, for it may
// have missed what became of keys there; also one that says nothing meanwhile.
func TestClusterTracking_NewMaster(t *testing.T) {
	t.Parallel()
	group := redistest.StartCluster(t, 2, 1)
	p := redistest.StartProxy(t, group, redistest.StartNodes(t, 1))
	added := group.Nodes[2]
	added.Do(t, "CLUSTER", "RESET")
	a, gone, off := redistest.Open3(t, p.Addr()), redistest.Open3(t, p.Addr()), redistest.Open3(t, p.Addr())
	for _, c := range []*redistest.Conn{a, gone, off} {
		if v := c.Do(t, "CLIENT", "TRACKING", "ON", "BCAST"); v.String() != "+OK" {
			t.Fatal(v)
		}
	}
	gone.Close()
	off.Do(t, "CLIENT", "TRACKING", "OFF")
	host, port, _ := net.SplitHostPort(group.Nodes[0].Addr())
	added.Do(t, "CLUSTER", "MEET", host, port)
	eventually(t, 30*time.Second, "the node is a master without slots", func() bool {
		return strings.Contains(group.Nodes[0].Do(t, "CLUSTER", "NODES").Text, group.ID(t, added)) &&
			strings.Contains(added.Do(t, "CLUSTER", "INFO").Text, "cluster_state:ok")
	})
	group.MoveSlot(t, group.SlotOf(t, "key"), added)
	if got, closed := a.ReadUntilQuiet(30 * time.Second); got != "" || !closed {
		t.Errorf("the client got %q, disconnected: %t", got, closed)
	}
	if v := off.Do(t, "SET", "key", "1"); v.String() != "+OK" {
		t.Errorf("a client that is not told any more: %v", v)
	}
	again, writer := redistest.Open3(t, p.Addr()), redistest.Open(t, p.Addr())
	again.Do(t, "CLIENT", "TRACKING", "ON", "BCAST")
	writer.Do(t, "SET", "key", "2")
	if v := again.Read(t); v.String() != `>[$"invalidate" *[$"key"]]` {
		t.Errorf("connected again it heard %v", v)
	}
}

// TestClusterTracking_BroadcastAfterHello: a client that says HELLO again is told of all keys, once it has said anything more.
func TestClusterTracking_BroadcastAfterHello(t *testing.T) {
	t.Parallel()
	_, p := startClustered(t, 3, 0)
	a, b := redistest.Open3(t, p.Addr()), redistest.Open(t, p.Addr())
	a.Do(t, "CLIENT", "TRACKING", "ON", "BCAST")
	a.Send(t, lines("HELLO 3", "GET one"))
	for v := a.Read(t); v.Kind != '_'; v = a.Read(t) {
	}
	for _, key := range []string{"one", "two", "three", "four", "five"} {
		b.Do(t, "SET", key, "1")
		if v := a.Read(t); v.String() != fmt.Sprintf(`>[$"invalidate" *[$"%s"]]`, key) {
			t.Errorf("heard %v of a change to %s", v, key)
		}
	}
}

// TestClusterTracking_Broadcast: a client that has read nothing hears of all keys with its prefixes, which add up, from
// all nodes.
func TestClusterTracking_Broadcast(t *testing.T) {
	t.Parallel()
	_, p := startClustered(t, 3, 0)
	a, b := redistest.Open3(t, p.Addr()), redistest.Open(t, p.Addr())
	for i, step := range []struct{ command, want string }{
		{"CLIENT TRACKING ON BCAST PREFIX a:", "+OK"},
		{"CLIENT GETREDIR", ":0"},
		{"CLIENT TRACKING ON BCAST PREFIX a:x", "-ERR Prefix"},
		{"CLIENT TRACKING ON", "-ERR You can't switch BCAST"},
		{"CLIENT TRACKING ON BCAST PREFIX b:", "+OK"},
	} {
		v := a.Do(t, strings.Fields(step.command)...)
		for v.Kind == '>' { // what is tracked has begun anew
			v = a.Read(t)
		}
		if !strings.HasPrefix(v.String(), step.want) {
			t.Errorf("step %d: %s answered %v", i, step.command, v)
		}
	}
	for _, key := range []string{"a:one", "b:one", "a:two", "b:two", "a:three", "b:three", "a:four", "b:four", "a:five", "b:five"} {
		b.Do(t, "SET", key, "1")
		if v := a.Read(t); v.String() != fmt.Sprintf(`>[$"invalidate" *[$"%s"]]`, key) {
			t.Errorf("heard %v of a change to %s", v, key)
		}
	}
}
