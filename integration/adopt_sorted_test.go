package integration

import (
	"testing"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// Scripts of locks in sorted sets: the holder's token, and a member that says that nobody else may have it.
const (
	nowInMs    = `local t = redis.call('time') local now = t[1] * 1000 + math.floor(t[2] / 1000) `
	saveSorted = nowInMs + `redis.call('zremrangebyscore', KEYS[1], '-inf', now)
		if redis.call('zcard', KEYS[1]) > 0 and not redis.call('zscore', KEYS[1], ARGV[1]) then return false end ` + addSorted
	addSorted = `redis.call('zadd', KEYS[1], now + ARGV[2], ARGV[1], now + ARGV[2], '__write__')
		redis.call('pexpireat', KEYS[1], now + ARGV[2]) return true`
	moveSorted    = nowInMs + `if not redis.call('zscore', KEYS[1], ARGV[1]) then return false end ` + addSorted
	releaseSorted = `if redis.call('zscore', KEYS[1], ARGV[1]) then return redis.call('zrem', KEYS[1], ARGV[1], '__write__') end return 0`
	saveRead      = nowInMs + `redis.call('zadd', KEYS[1], now + ARGV[2], ARGV[1]) redis.call('pexpireat', KEYS[1], now + ARGV[2]) return true`
)

// TestAdopt_Sorted: a lock in a sorted set is taken at one proxy, and extended and released at another.
func TestAdopt_Sorted(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, 2, "--adopt", "lock:*")
	c, other := redistest.Open(t, r.addr()), redistest.Open(t, r.proxies[1].Addr())
	run := func(c *redistest.Conn, script, who string) string {
		t.Helper()
		return c.Do(t, "EVAL", script, "1", "lock:a", who, "50000").String()
	}
	want := func(got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	const wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value"
	want(run(c, saveSorted, "me"), ":1")
	want(run(other, saveSorted, "you"), "$-1")
	want(run(other, saveSorted, "me"), ":1")
	want(run(other, moveSorted, "you"), "$-1")
	want(run(other, releaseSorted, "you"), ":0")
	wantReplies(t, other, [2]string{"TYPE lock:a", "+zset"}, [2]string{"ZCARD lock:a", ":2"}, [2]string{"ZRANGE lock:a 0 -1", `*[$"__write__" $"me"]`}, [2]string{"EXISTS lock:a", ":1"},
		[2]string{"GET lock:a", wrong}, [2]string{"HGETALL lock:a", wrong}, [2]string{"SET lock:a me NX PX 5000", "$-1"}, [2]string{"LOCK lock:a 10s OWNER me", "*-1"})
	want(run(other, moveSorted, "me"), ":1")
	if left := c.Do(t, "PTTL", "lock:a").Int(); left < 20000 || left > 50000 {
		t.Errorf("%d ms are left", left)
	}
	want(run(other, releaseSorted, "me"), ":2")
	want(run(c, releaseSorted, "me"), ":0")
	if v := run(c, saveRead, "me"); len(v) < 13 || v[:13] != "-ADOPTREFUSED" {
		t.Error(v)
	}
	want(run(c, saveSorted, "you"), ":1")
	wantReplies(t, other, [2]string{"DEL lock:a", ":1"}, [2]string{"ZCARD lock:a", ":0"})
	if v := r.data.Do(t, "KEYS", "*"); len(v.Elems) != 0 {
		t.Errorf("the upstream has %v", v)
	}
}

// TestAdopt_SortedBoth: with mode=both a lock in a sorted set is at the upstream, too, and is taken back there if the lock nodes
// have another's. One that the upstream alone has is taken over when it is extended.
func TestAdopt_SortedBoth(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, 2, "--adopt", "lock:* mode=both")
	c := redistest.Open(t, r.addr())
	direct := redistest.Open(t, r.data.Addr())
	want := func(c *redistest.Conn, script, who, want string) {
		t.Helper()
		if got := c.Do(t, "EVAL", script, "1", "lock:a", who, "50000").String(); got != want {
			t.Errorf("%s: %s, want %s", who, got, want)
		}
	}
	want(c, saveSorted, "me", ":1")
	wantReplies(t, c, [2]string{"LOCK lock:a 10s OWNER you", "*-1"})
	want(direct, saveSorted, "you", "$-1")
	want(c, moveSorted, "me", ":1")
	want(c, releaseSorted, "me", ":2")
	wantReplies(t, direct, [2]string{"EXISTS lock:a", ":0"})
	want(c, saveSorted, "me", ":1")
	wantReplies(t, direct, [2]string{"DEL lock:a", ":1"})
	want(c, saveSorted, "you", "$-1")
	wantReplies(t, direct, [2]string{"EXISTS lock:a", ":0"})
	want(c, saveSorted, "me", ":1")
	want(c, releaseSorted, "me", ":2")
	want(direct, saveSorted, "old", ":1")
	want(c, moveSorted, "old", ":1")
	wantReplies(t, c, [2]string{"LOCK lock:a 10s OWNER you", "*-1"})
}
