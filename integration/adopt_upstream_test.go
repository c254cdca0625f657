package integration

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// releaseAndTell gives an adopted lock back, publishes that, and leaves a token in a list.
const releaseAndTell = `if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end
	redis.call('del', KEYS[1]) redis.call('publish', ARGV[2], 'free') redis.call('lpush', ARGV[3], 'token') return 1`

// startAdopting starts a lock node and a proxy in front of an upstream, with lock:* adopted.
func startAdopting(t *testing.T, upstream redistest.Upstream, args ...string) *redistest.Proxy {
	t.Helper()
	return redistest.StartProxy(t, upstream, redistest.StartNodes(t, 1), append([]string{"--adopt", "lock:*"}, args...)...)
}

// wantReplies runs commands, each a line of words, on a connection.
func wantReplies(t *testing.T, c *redistest.Conn, steps ...[2]string) {
	t.Helper()
	for _, s := range steps {
		if v := c.Do(t, quoted(s[0])...); v.String() != s[1] {
			t.Errorf("%s: %v, want %s", s[0], v, s[1])
		}
	}
}

// TestAdopt_AsksUpstream: what an adopted command asks of the upstream, whether it has the key and to tell
// others of a release, goes there however the client's own commands travel.
func TestAdopt_AsksUpstream(t *testing.T) {
	t.Parallel()
	one := redistest.Start(t)
	replicated := redistest.StartReplicated(t, 1)
	group := redistest.StartCluster(t, 3, 0)
	shared, unshared := startAdopting(t, one), startAdopting(t, one, "--upstream-conns", "0")
	replicas := startAdopting(t, replicated, "--read-from", "replica")
	clustered, bypass := startAdopting(t, group, "--adopt", "drop:* flush=release"), startServing(t, group.URL())
	for i, tt := range []struct {
		name   string
		proxy  *redistest.Proxy
		before string // what the client says first
		direct string // a way past it to the upstream's keys; empty: bypass
	}{
		{"shared", shared, "PING", one.Addr()},
		{"pinned", shared, "WATCH other", one.Addr()},
		{"subscriber", shared, "HELLO 3|SUBSCRIBE x", one.Addr()},
		{"no subscriber any more", shared, "SUBSCRIBE x|UNSUBSCRIBE x", one.Addr()},
		{"CLIENT REPLY", shared, "CLIENT REPLY ON", one.Addr()},
		{"unshared", unshared, "PING", one.Addr()},
		{"unshared, at once", unshared, "", one.Addr()},
		{"unshared subscriber", unshared, "HELLO 3|SUBSCRIBE x", one.Addr()},
		{"read from replicas", replicas, "GET x", replicated.Servers[0].Addr()},
		{"Cluster", clustered, "PING", ""},
		{"Cluster, at once", clustered, "", ""},
		{"Cluster, pinned", clustered, "WATCH other", ""},
		{"Cluster, subscriber", clustered, "HELLO 3|SUBSCRIBE x", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			there := redistest.Open(t, cmp.Or(tt.direct, bypass.Addr()))
			hears := redistest.Open3(t, there.RemoteAddr().String())
			hears.Do(t, "SUBSCRIBE", fmt.Sprint("free", i))
			c := redistest.Open(t, tt.proxy.Addr())
			for _, b := range strings.Split(tt.before, "|") {
				if b != "" {
					c.Do(t, strings.Fields(b)...)
				}
			}
			null := "$-1"
			if strings.HasPrefix(tt.before, "HELLO 3") {
				null = "_"
			}
			for n := range 6 { // names of several slots
				lock := fmt.Sprintf("lock:%d:%d", i, n)
				wantReplies(t, there, [2]string{"SET " + lock + " direct", "+OK"})
				wantReplies(t, c, [2]string{"SET " + lock + " me NX PX 30000", null})
				wantReplies(t, there, [2]string{"DEL " + lock, ":1"})
				for try := 0; ; try++ { // where this machine is so busy that the upstream takes 100 ms, a token is given up
					list := fmt.Sprintf("list%d:%d:%d", i, n, try)
					wantReplies(t, c, [2]string{"SET " + lock + " me NX PX 30000", "+OK"})
					if v := c.Do(t, "EVAL", releaseAndTell, "1", lock, "me", fmt.Sprint("free", i), list); v.String() != ":1" {
						t.Errorf("release: %v", v)
					}
					tokens := there.Do(t, "LRANGE", list, "0", "-1").String()
					if tokens == `*[$"token"]` {
						break
					}
					if tokens != "*[]" || try == 20 {
						t.Fatalf("there is %s after %d releases", tokens, try+1)
					}
				}
				if v := hears.Read(t); v.Elems[len(v.Elems)-1].Text != "free" {
					t.Errorf("heard %v", v)
				}
				wantReplies(t, there, [2]string{"EXISTS " + lock, ":0"})
			}
			wantReplies(t, c, [2]string{"ECHO end", `$"end"`})
		})
	}
	t.Run("Cluster, what else", func(t *testing.T) {
		c := redistest.Open3(t, clustered.Addr())
		tracked := `-ADOPTREFUSED GET lock:x: CLIENT TRACKING is on, and would not be told of changes of a lock; adopted by "lock:*"`
		wantReplies(t, c,
			[2]string{"SET lock:x me NX PX 30000", "+OK"}, [2]string{"MSET a 1 b 2 c 3 d 4", "+OK"},
			[2]string{"EXISTS a lock:x b none c", ":4"}, [2]string{"MGET c lock:none a lock:x none b", `*[$"3" _ $"1" $"me" _ $"2"]`}, [2]string{"DEL a b lock:x c none", ":4"}, [2]string{"EXISTS lock:x a b c d", ":1"},
			[2]string{"GET lock:x", "_"}, [2]string{"CLIENT TRACKING ON", "+OK"}, [2]string{"GET lock:x", tracked}, [2]string{"SET lock:x me NX PX 30000", "+OK"},
			[2]string{"CLIENT TRACKING OFF", "+OK"}, [2]string{"GET lock:x", `$"me"`},
			[2]string{"MULTI", "+OK"}, [2]string{"GET d", "+QUEUED"}, [2]string{"DEL lock:x", `-ADOPTREFUSED DEL lock:x: it is inside MULTI with commands that are about no lock; adopted by "lock:*"`},
			[2]string{"EXEC", "-EXECABORT Transaction discarded because of previous errors."},
			[2]string{"SET drop:x me NX PX 30000", "+OK"}, [2]string{"MSET a 1 b 2 c 3 d 4", "+OK"}, [2]string{"FLUSHALL", "+OK"}, [2]string{"EXISTS a b c d drop:x lock:x", ":1"}, [2]string{"DEL lock:x", ":1"},
		)
	})
	if n := replicated.Servers[1].Calls(t, "pttl"); n != 0 {
		t.Errorf("a replica, which may lag behind, was asked %d times whether it has the key", n)
	}
}

// TestAdopt_UpstreamSilent: locks are had and given back while the upstream does not answer, and what it answers
// later is in nobody's way. (A subscriber waits for the upstream, as with LOCK: whether it has heard all there was
// only the upstream says.)
func TestAdopt_UpstreamSilent(t *testing.T) {
	t.Parallel()
	data := redistest.Start(t)
	p := startAdopting(t, data)
	clients := []*redistest.Conn{redistest.Open(t, p.Addr()), redistest.Open(t, p.Addr())}
	clients[1].Do(t, "WATCH", "x")
	for i, c := range clients {
		c.Do(t, "SET", fmt.Sprint("lock:known", i), "me", "NX", "PX", "30000") // what the client may is known then
	}
	data.Pause()
	defer data.Resume()
	for i, c := range clients {
		lock := fmt.Sprint("lock:", i)
		wantReplies(t, c, [2]string{"SET " + lock + " me NX PX 30000", "+OK"})
		if v := c.Do(t, "EVAL", releaseAndTell, "1", lock, "me", "free", "list"); v.String() != ":1" {
			t.Errorf("release: %v", v)
		}
	}
	data.Resume()
	for i, c := range clients {
		lock := fmt.Sprint("lock:", i)
		c.Send(t, lines("ECHO a", "SET "+lock+" me NX PX 30000", "ECHO b", "DEL "+lock, "ECHO c"))
		for _, want := range []string{`$"a"`, "+OK", `$"b"`, ":1", `$"c"`} {
			if v := c.Read(t); v.String() != want {
				t.Fatalf("client %d: %v, want %s", i, v, want)
			}
		}
	}
}
