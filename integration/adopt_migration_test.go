package integration

import (
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// TestAdopt_TakesOver: a lock that the upstream alone has is taken over when it is extended in both, but not from when on another
// proxy is on.
func TestAdopt_TakesOver(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 1, "--adopt", "lock:* mode=both")
	c := redistest.Open(t, r.addr())
	extend := func(key string) string {
		return c.Do(t, "EVAL", "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], 60000) end return 0", "1", key, "me").String()
	}
	for _, key := range []string{"lock:a", "lock:b"} {
		r.data.Do(t, "SET", key, "me", "NX", "PX", "50000")
	}
	if got := extend("lock:a"); got != ":1" {
		t.Errorf("without a proxy that is on: %s", got)
	}
	on := redistest.Open(t, redistest.StartProxy(t, r.data, r.nodes, "--adopt", "lock:* mode=on guard=no").Addr())
	if got := extend("lock:b"); got != ":0" {
		t.Errorf("beside one that is on: %s", got)
	}
	wantReplies(t, on, [2]string{"SET lock:a you NX PX 5000", "$-1"}, [2]string{"SET lock:b you NX PX 5000", "+OK"}, [2]string{"GET lock:a", `$"me"`})
}

// TestAdopt_BothReplaces: what overwrites a lock in both does so at the upstream and at the lock nodes, and is answered as by one Redis.
func TestAdopt_BothReplaces(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 1, "--adopt", "lock:* mode=both as=full")
	c, on := redistest.Open(t, r.addr()), redistest.Open(t, redistest.StartProxy(t, r.data, r.nodes, "--adopt", "lock:* as=full").Addr())
	r.data.Do(t, "SET", "lock:a", "old", "NX", "PX", "50000")
	for _, command := range []string{"SET lock:a v1 PX 40000 > +OK", `GETSET lock:a v2 > $"v1"`, `SET lock:a v3 PX 40000 GET > $"v2"`, "PSETEX lock:a 40000 v4 > +OK", "SET lock:a v5 XX PX 40000 > +OK"} {
		command, reply, _ := strings.Cut(command, " > ")
		wantReplies(t, c, [2]string{command, reply})
		has := r.data.Do(t, "GET", "lock:a").String()
		wantReplies(t, on, [2]string{"GET lock:a", has}, [2]string{"SET lock:a other NX PX 5000", "$-1"})
	}
	const compareAndSet = "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('set', KEYS[1], ARGV[2], 'PX', ARGV[3]) return 1 end return 0"
	for _, step := range []struct {
		at   *redistest.Conn
		args []string
		want string
	}{{c, []string{"v4", "v6", "40000"}, ":0"}, {c, []string{"v5", "v6", "40000"}, ":1"}, {on, []string{"v6", "v7", "40000"}, ":1"}, {c, []string{"v6", "v8", "40000"}, ":0"}, {c, []string{"v7", "v8", "40000"}, ":1"}} {
		if got := step.at.Do(t, append([]string{"EVAL", compareAndSet, "1", "lock:a"}, step.args...)...).String(); got != step.want {
			t.Errorf("%v: %s, want %s", step.args, got, step.want)
		}
	}
	wantReplies(t, on, [2]string{"GET lock:a", `$"v8"`})
	wantReplies(t, c, [2]string{"SET lock:a v9 PX 40000", "+OK"}) // by a grant of on
	if has := r.data.Do(t, "GET", "lock:a").String(); has != `$"v9"` {
		t.Errorf("the upstream has %s", has)
	}
	wantReplies(t, on, [2]string{"GET lock:a", `$"v9"`}, [2]string{"DEL lock:a", ":1"})
	wantReplies(t, c, [2]string{"EXISTS lock:a", ":0"})
}

// TestAdopt_BothPersists: PERSIST takes the end away in both places, also of a lock that the upstream alone had, and is refused
// where the lock nodes would not keep the lock.
func TestAdopt_BothPersists(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 1, "--adopt", "lock:* mode=both")
	c, nodes := redistest.Open(t, r.addr()), redistest.Open(t, r.addr())
	r.data.Do(t, "SET", "lock:off", "me", "NX", "PX", "50000")
	wantReplies(t, c, [2]string{"SET lock:a me NX PX 50000", "+OK"}, [2]string{"PERSIST lock:a", ":1"}, [2]string{"PERSIST lock:a", ":0"}, [2]string{"PERSIST lock:off", ":1"}, [2]string{"PERSIST lock:none", ":0"})
	for _, key := range []string{"lock:a", "lock:off"} {
		if got := r.data.Do(t, "TTL", key).Int(); got != -1 {
			t.Errorf("the upstream has %s for %d s", key, got)
		}
		if got := nodes.Do(t, "LOCKCTL", "INFO", key).String(); !strings.Contains(got, `$"end" $"none"`) {
			t.Errorf("the lock nodes have %s: %s", key, got)
		}
		wantReplies(t, c, [2]string{"PEXPIRE " + key + " 40000", ":1"}, [2]string{"DEL " + key, ":1"})
	}
	if got := c.Do(t, "EVAL", "if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[1]) == 1 then redis.call('hincrby', KEYS[1], ARGV[1], 1) redis.call('pexpire', KEYS[1], 40000) return 1 end return 0", "1", "lock:hash", "me").String(); got != ":1" {
		t.Fatal(got)
	}
	if got := c.Do(t, "PERSIST", "lock:hash").String(); !strings.HasPrefix(got, "-ADOPTREFUSED PERSIST lock:hash: a hash that has no end") || r.data.Do(t, "TTL", "lock:hash").Int() < 1 {
		t.Errorf("%s; it has no end at the upstream", got)
	}
}

// TestAdopt_BothBatch: one script renews several locks in both, as it does at one Redis.
func TestAdopt_BothBatch(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 1, "--adopt", "lock:* mode=both")
	c, on := redistest.Open(t, r.addr()), redistest.Open(t, redistest.StartProxy(t, r.data, r.nodes, "--adopt", "lock:* mode=on guard=no").Addr())
	const enter = "if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[1]) == 1 then redis.call('hincrby', KEYS[1], ARGV[1], 1) redis.call('pexpire', KEYS[1], 20000) return nil end return redis.call('pttl', KEYS[1])"
	for key, who := range map[string]string{"lock:a": "me", "lock:b": "you", "other": "me"} {
		c.Do(t, "EVAL", enter, "1", key, who)
	}
	on.Do(t, "EVAL", enter, "1", "lock:c", "me")
	r.data.Do(t, "EVAL", enter, "1", "lock:d", "me")
	const extend = "local said = {} for i = 1, #KEYS do if redis.call('hexists', KEYS[i], ARGV[i + 1]) == 1 then redis.call('pexpire', KEYS[i], ARGV[1]) said[i] = 1 else said[i] = 0 end end return said"
	for range 2 {
		got := c.Do(t, "EVAL", extend, "6", "lock:a", "lock:b", "other", "lock:c", "lock:d", "lock:e", "60000", "me", "me", "me", "me", "me", "me").String()
		if want := "*[:1 :0 :1 :1 :0 :0]"; got != want { // of lock:d the nodes know nothing, and a proxy is on
			t.Errorf("%s, want %s", got, want)
		}
	}
	for key, least := range map[string]int64{"lock:a": 50, "lock:b": 1, "lock:c": 50} {
		if ttl := on.Do(t, "TTL", key).Int(); ttl < least || least == 1 && ttl > 20 {
			t.Errorf("the nodes have %s for %d s", key, ttl)
		}
	}
}
