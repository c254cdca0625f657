package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// TestClusterMessages is all about subscribers, on one Cluster.
func TestClusterMessages(t *testing.T) {
	t.Parallel()
	cluster, p := startClustered(t, 3, 0)
	t.Run("confirmations", func(t *testing.T) {
		testClusterSubscriptions(t, &twin{plain: redistest.Start(t), behind: cluster.Nodes[0], via: p.Addr()})
	})
	t.Run("messages", func(t *testing.T) { testClusterMessages(t, cluster, p) })
	t.Run("among replies", func(t *testing.T) { testClusterMessagesAmongReplies(t, p) })
	t.Run("a slot moves", func(t *testing.T) { testClusterShardChannelMoves(t, cluster, p) })
	t.Run("monitor", func(t *testing.T) { testClusterMonitor(t, p) })
	t.Run("refused", func(t *testing.T) { testClusterMonitorRefused(t, p) })
	t.Run("about keys", func(t *testing.T) { testClusterKeyspaceNotifications(t, p) })
}

// testClusterSubscriptions: what a subscriber is told is what a plain Redis tells it,
// byte for byte.
func testClusterSubscriptions(t *testing.T, w *twin) {
	for _, d := range []dialogue{
		{name: "confirmations", bytes: lines("SUBSCRIBE a b", "PSUBSCRIBE p*", "SSUBSCRIBE s1", "SSUBSCRIBE s2", "SSUBSCRIBE s3", "SUBSCRIBE a", "UNSUBSCRIBE a none", "PUNSUBSCRIBE p*", "PUNSUBSCRIBE", "SUNSUBSCRIBE s2", "SUNSUBSCRIBE none", "UNSUBSCRIBE", "SUNSUBSCRIBE s1", "SUNSUBSCRIBE")},
		{name: "the ends of none", bytes: lines("UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE", "UNSUBSCRIBE a b", "PUNSUBSCRIBE x", "SUNSUBSCRIBE y")},
		{name: "subscribed", bytes: lines("SUBSCRIBE a", "PING", "PING text", "PING a b", "GET x", "GET", "NOSUCH", "MULTI", "DISCARD", "HELLO 3", "SUBSCRIBE", "SELECT 0", "UNSUBSCRIBE", "GET x", "PING")},
		{name: "by a shard channel only", bytes: lines("SSUBSCRIBE a", "GET x", "PING", "SUNSUBSCRIBE a", "GET x")},
		{name: "wrong", bytes: lines("SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "PUBLISH", "PUBLISH a", "SPUBLISH a", "PING")},
		{name: "reset", bytes: lines("SUBSCRIBE a", "PSUBSCRIBE b", "SSUBSCRIBE c", "RESET", "GET x", "UNSUBSCRIBE", "PING")},
		{name: "quit", bytes: lines("SUBSCRIBE a", "QUIT", "PING"), closes: true},
		{name: "to nobody", bytes: lines("SUBSCRIBE a", "UNSUBSCRIBE a", "PUBLISH a again", "SET k v", "GET k")},
		{name: "many", bytes: lines("SUBSCRIBE "+strings.Repeat("c1 c2 c3 ", 50), "UNSUBSCRIBE c1 c2 c3")},
	} {
		w.compare(t, d)
		d.name += " in RESP3"
		d.bytes = lines("HELLO 3") + d.bytes
		w.compare(t, d)
	}
}

// testClusterMessages: whoever publishes, wherever, all who listen hear it once.
func testClusterMessages(t *testing.T, cluster *redistest.Cluster, p *redistest.Proxy) {
	r := &rig{proxies: []*redistest.Proxy{p}}
	for name, sc := range map[string][]step{
		"counts": {
			{"a", "SUBSCRIBE c", `*[$"subscribe" $"c" :1]`}, {"b3", "SUBSCRIBE c", `>[$"subscribe" $"c" :1]`}, {"b3", "PSUBSCRIBE c*", `>[$"psubscribe" $"c*" :2]`},
			{"x", "PUBLISH c hi", ":3"}, {"x", "PUBLISH d hi", ":0"},
			{"x", "PUBSUB NUMSUB c d", `*[$"c" :2 $"d" :0]`}, {"x", "PUBSUB CHANNELS c", `*[$"c"]`}, {"x", "PUBSUB NUMPAT", ":1"},
		},
		"shards": {
			{"a", "SSUBSCRIBE s1", `*[$"ssubscribe" $"s1" :1]`}, {"a", "SSUBSCRIBE s2", `*[$"ssubscribe" $"s2" :2]`}, {"b3", "SSUBSCRIBE s1", `>[$"ssubscribe" $"s1" :1]`},
			{"x", "SPUBLISH s1 hi", ":2"}, {"x", "SPUBLISH s2 hi", ":1"}, {"x", "SPUBLISH s3 hi", ":0"},
			{"x", "PUBSUB SHARDNUMSUB s1 s2", `*[$"s1" :2 $"s2" :1]`},
		},
	} {
		t.Run(name, func(t *testing.T) { r.run(t, script{name, sc}) })
	}
	t.Run("from everywhere", func(t *testing.T) {
		c := redistest.Open3(t, p.Addr())
		c.Do(t, "SUBSCRIBE", "news")
		c.Do(t, "PSUBSCRIBE", "n?ws")
		shards := []string{"one", "two", "three", "four"}
		for _, s := range shards {
			c.Do(t, "SSUBSCRIBE", s)
		}
		var want, got []string
		for i, n := range cluster.Nodes {
			n.Do(t, "PUBLISH", "news", fmt.Sprint(i))
			want = append(want, fmt.Sprintf(`>[$"message" $"news" $"%d"]`, i), fmt.Sprintf(`>[$"pmessage" $"n?ws" $"news" $"%d"]`, i))
		}
		for _, s := range shards {
			cluster.Owner(t, cluster.SlotOf(t, s)).Do(t, "SPUBLISH", s, "x")
			want = append(want, fmt.Sprintf(`>[$"smessage" $"%s" $"x"]`, s))
		}
		for range want {
			got = append(got, c.Read(t).String())
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
		if more, _ := c.ReadUntilQuiet(50 * time.Millisecond); more != "" {
			t.Errorf("and then %q", more)
		}
	})
}

// testClusterMessagesAmongReplies: a message lies between replies, never inside one.
func testClusterMessagesAmongReplies(t *testing.T, p *redistest.Proxy) {
	c, other := redistest.Open3(t, p.Addr()), redistest.Open(t, p.Addr())
	c.Do(t, "SUBSCRIBE", "news")
	c.Do(t, "SSUBSCRIBE", "shard")
	big := strings.Repeat("large\r\n$5\r\n>3\r\n", 100_000)
	for i := range 3 {
		c.Do(t, "SET", fmt.Sprint("big", i), big)
	}
	stop, ended := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for {
			select {
			case <-stop:
				ended <- n
				return
			default:
			}
			if _, err := other.Write([]byte(strings.Repeat(lines("PUBLISH news hello", "SPUBLISH shard hello"), 20))); err != nil {
				t.Error(err)
			}
			for range 40 {
				if v, err := other.Next(); err != nil || v.String() != ":1" {
					t.Error(v, err)
				}
				n++
			}
		}
	}()
	messages := 0
	for range 10 {
		c.Send(t, lines("GET big0", "MGET big1 big2 nothing", "PING here", "GET big2", "EVAL return(redis.call('get',KEYS[1])) 1 big1"))
		for _, want := range []string{bulk(big), "*3\r\n" + bulk(big) + bulk(big) + "_\r\n", bulk("here"), bulk(big), bulk(big)} {
			v := c.Read(t)
			for v.Kind == '>' {
				messages++
				if s := v.String(); s != `>[$"message" $"news" $"hello"]` && s != `>[$"smessage" $"shard" $"hello"]` {
					t.Fatalf("a message: %.200s", s)
				}
				v = c.Read(t)
			}
			if v.Raw != want {
				t.Fatalf("a reply of %d bytes is %.200q", len(v.Raw), v.Raw)
			}
		}
	}
	close(stop)
	sent := <-ended
	for messages < sent {
		if v := c.Read(t); v.Kind != '>' {
			t.Fatalf("after the replies: %v", v)
		}
		messages++
	}
}

func bulk(s string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(s), s) }

// testClusterShardChannelMoves: a subscription stays where the messages are.
func testClusterShardChannelMoves(t *testing.T, cluster *redistest.Cluster, p *redistest.Proxy) {
	two, three, other := redistest.Open(t, p.Addr()), redistest.Open3(t, p.Addr()), redistest.Open(t, p.Addr())
	slot := cluster.SlotOf(t, "{s}a")
	for _, c := range []*redistest.Conn{two, three} {
		for _, name := range []string{"{s}a", "{s}b", "elsewhere"} {
			c.Do(t, "SSUBSCRIBE", name)
		}
	}
	for round := range 3 {
		from := cluster.Owner(t, slot)
		to := cluster.Nodes[(slices.Index(cluster.Nodes, from)+1)%3]
		m := cluster.StartMove(t, slot, to)
		awaitMessages(t, other, "{s}b", two, three) // half-way
		m.Finish(t)
		late := redistest.Open(t, p.Addr()) // who may still believe in the old node
		if v := late.Do(t, "SSUBSCRIBE", "{s}a", "{s}c"); v.String() != `*[$"ssubscribe" $"{s}a" :1]` {
			t.Fatalf("SSUBSCRIBE after move %d: %v", round, v)
		}
		if v := late.Read(t); v.String() != `*[$"ssubscribe" $"{s}c" :2]` {
			t.Fatalf("SSUBSCRIBE after move %d: %v", round, v)
		}
		for _, name := range []string{"{s}a", "{s}b", "elsewhere"} {
			all := []*redistest.Conn{two, three}
			if name == "{s}a" {
				all = append(all, late)
			}
			awaitMessages(t, other, name, all...)
		}
		late.Close()
		eventually(t, 9*time.Second, "nobody is left", func() bool { return other.Do(t, "SPUBLISH", "{s}c", "x").String() == ":0" })
	}
	for _, c := range []*redistest.Conn{two, three} {
		for i, name := range []string{"{s}a", "elsewhere", "{s}b"} {
			if v := c.Do(t, "SUNSUBSCRIBE", name); !strings.HasSuffix(v.String(), fmt.Sprintf(`[$"sunsubscribe" $"%s" :%d]`, name, 2-i)) {
				t.Errorf("SUNSUBSCRIBE %s: %v", name, v)
			}
		}
	}
	if v := other.Do(t, "SPUBLISH", "{s}a", "x"); v.String() != ":0" {
		t.Errorf("who left is still there: %v", v)
	}
}

// awaitMessages publishes until all who are subscribed have been reached, and checks that they
// hear it.
func awaitMessages(t *testing.T, from *redistest.Conn, channel string, all ...*redistest.Conn) {
	t.Helper()
	n := 0
	eventually(t, 9*time.Second, channel+" is heard by all", func() bool {
		n++
		return from.Do(t, "SPUBLISH", channel, fmt.Sprint(n)).Int() == int64(len(all))
	})
	for _, c := range all {
		for {
			v := c.Read(t)
			if len(v.Elems) != 3 || v.Elems[0].Text != "smessage" || v.Elems[1].Text != channel {
				t.Fatalf("in place of a message of %s: %v", channel, v)
			}
			if v.Elems[2].Text == fmt.Sprint(n) {
				break
			}
		}
	}
}

// testClusterKeyspaceNotifications: notifications of all masters reach a client, and so does what
// MONITOR shows.
func testClusterKeyspaceNotifications(t *testing.T, p *redistest.Proxy) {
	other := redistest.Open(t, p.Addr())
	if v := other.Do(t, "CONFIG", "SET", "notify-keyspace-events", "KEA"); v.String() != "+OK" {
		t.Fatal(v)
	}
	for _, subscription := range []string{"PSUBSCRIBE __keyevent@0__:*", "SUBSCRIBE __keyevent@0__:set", "PSUBSCRIBE *:set", "PSUBSCRIBE *"} {
		c := redistest.Open(t, p.Addr())
		c.Do(t, strings.Fields(subscription)...)
		want, got := map[string]int{}, map[string]int{}
		for i := range 20 {
			k := fmt.Sprint("k", i)
			want[k]++
			other.Do(t, "SET", k, "v")
		}
		for len(got) < len(want) {
			v, err := c.Next()
			if err != nil {
				t.Fatalf("%s: %v after %v", subscription, err, got)
			}
			last := v.Elems[len(v.Elems)-1].Text
			if strings.HasSuffix(v.Elems[len(v.Elems)-2].Text, ":set") {
				got[last]++
			}
		}
		rest, _ := c.ReadUntilQuiet(30 * time.Millisecond)
		if fmt.Sprint(got) != fmt.Sprint(want) || strings.Contains(rest, ":set") {
			t.Errorf("%s: %v, then %q", subscription, got, rest)
		}
	}
	c := redistest.Open(t, p.Addr())
	c.Do(t, "PSUBSCRIBE", "*")
	c.Do(t, "SUBSCRIBE", "news")
	other.Do(t, "PUBLISH", "news", "1")
	got := c.Read(t).String() + c.Read(t).String()
	if more, _ := c.ReadUntilQuiet(100 * time.Millisecond); strings.Count(got, `"pmessage"`) != 1 || strings.Count(got, `"message"`) != 1 || more != "" {
		t.Errorf("a message to a pattern and a channel: %s, then %q", got, more)
	}
}

// testClusterMonitor: a client sees what all masters do, and can leave.
func testClusterMonitor(t *testing.T, p *redistest.Proxy) {
	c, other := redistest.Open(t, p.Addr()), redistest.Open(t, p.Addr())
	if v := c.Do(t, "MONITOR"); v.String() != "+OK" {
		t.Fatal(v)
	}
	missing := map[string]bool{}
	for i := range 20 {
		other.Do(t, "SET", fmt.Sprint("seen", i), "v")
		missing[fmt.Sprintf(`"SET" "seen%d"`, i)] = true
	}
	for len(missing) > 0 {
		line := c.Read(t).Text
		for m := range missing {
			if strings.Contains(line, m) {
				delete(missing, m)
			}
		}
	}
	var answers string // what else comes are lines of the monitor
	for c.Send(t, lines("GET a", "MULTI", "SET a b", "EXEC", "PING", "RESET")); !strings.Contains(answers, "RESET"); {
		if v := c.Read(t); v.Kind != '+' || !strings.Contains(v.Text, " [") {
			answers += v.Raw
		}
	}
	const refused = "-ERR Replica can't interact with the keyspace\r\n"
	if want := refused + "+OK\r\n" + refused + "-EXECABORT Transaction discarded because of previous errors.\r\n+PONG\r\n+RESET\r\n"; answers != want {
		t.Errorf("while it monitors: %q, want %q", answers, want)
	}
	if v := c.Do(t, "SET", "a", "b"); v.String() != "+OK" {
		t.Errorf("after RESET: %v", v)
	}
	if more, closed := c.ReadUntilQuiet(50 * time.Millisecond); more != "" || closed {
		t.Errorf("after RESET: %q, closed: %v", more, closed)
	}
	if v := c.Do(t, "MONITOR"); v.String() != "+OK" {
		t.Errorf("again: %v", v)
	}
	c.Send(t, lines("QUIT"))
	for v := c.Read(t); v.String() != "+OK"; v = c.Read(t) {
		if v.Kind != '+' { // what a master did, the proxy's own commands too
			t.Fatalf("QUIT: %v", v)
		}
	}
}

// testClusterMonitorRefused: a user who may not is told so, and stays.
func testClusterMonitorRefused(t *testing.T, p *redistest.Proxy) {
	c := redistest.Open(t, p.Addr())
	c.Do(t, "ACL", "SETUSER", "u", "on", ">pw", "~*", "&a", "+@all", "-monitor")
	c.Do(t, "AUTH", "u", "pw")
	for range 2 {
		if v := c.Do(t, "MONITOR"); !strings.HasPrefix(v.Text, "NOPERM") {
			t.Errorf("MONITOR: %v", v)
		}
	}
	for _, command := range []string{"SUBSCRIBE b", "SUBSCRIBE a", "PSUBSCRIBE *", "SSUBSCRIBE b"} {
		v := c.Do(t, strings.Fields(command)...)
		if refused := strings.HasPrefix(v.Text, "NOPERM"); refused != (command != "SUBSCRIBE a") {
			t.Errorf("%s: %v", command, v)
		}
	}
	c.Do(t, "UNSUBSCRIBE", "a")
	if v := c.Do(t, "GET", "x"); v.String() != "$-1" {
		t.Errorf("GET: %v", v)
	}
}
