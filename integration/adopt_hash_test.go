package integration

import (
	"fmt"
	"testing"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// Scripts of locks that can be entered again: a hash with the holder and its holds.
const (
	enterOrLeft = `if redis.call('exists', KEYS[1]) == 1 and redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return redis.call('pttl', KEYS[1]) end
		redis.call('hincrby', KEYS[1], ARGV[2], 1) redis.call('pexpire', KEYS[1], ARGV[1]) return nil`
	leaveLatched = `local first = redis.call('get', KEYS[2]) if first then return tonumber(first) end
		if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return nil end
		local function say(n) redis.call('set', KEYS[2], n, 'px', 20000) return n end
		if redis.call('hincrby', KEYS[1], ARGV[2], -1) > 0 then redis.call('pexpire', KEYS[1], ARGV[1]) return say(0) end
		redis.call('del', KEYS[1]) redis.call('publish', 'free:' .. KEYS[1], 0) return say(1)`
)

// TestAdopt_Hash: a lock that can be entered again, through two proxies; a release that is sent again, anywhere, has
// the first answer, and its latch is written nowhere. LOCK and it exclude each other.
func TestAdopt_Hash(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, 2, "--adopt", "lock:*")
	c, other := redistest.Open(t, r.addr()), redistest.Open(t, r.proxies[1].Addr())
	var enter, leave string
	for _, c := range []*redistest.Conn{c, other} {
		enter, leave = "EVALSHA "+c.Do(t, "SCRIPT", "LOAD", enterOrLeft).Text+" 1 lock:a 60000 ", "EVALSHA "+c.Do(t, "SCRIPT", "LOAD", leaveLatched).Text+" 2 lock:a latch:"
	}
	release := func(latch, who string) string { return leave + latch + " 60000 " + who }
	wantReplies(t, c, [2]string{enter + "me", "$-1"}, [2]string{enter + "me", "$-1"}, [2]string{"HGETALL lock:a", `*[$"me" $"2"]`}, [2]string{"LOCK lock:a 60s OWNER me", "*-1"})
	wantReplies(t, other, [2]string{"LOCK lock:a 60s", "*-1"}, [2]string{"HGET lock:a me", `$"2"`}, [2]string{release("x", "you"), "$-1"})
	for i, latch := range []string{"1", "2"} {
		for _, c := range []*redistest.Conn{other, c, other} {
			wantReplies(t, c, [2]string{release(latch, "me"), fmt.Sprint(":", i)})
		}
	}
	wantReplies(t, c, [2]string{"HLEN lock:a", ":0"}, [2]string{release("3", "me"), "$-1"}, [2]string{"DEL latch:1", ":0"})
	if v := c.Do(t, "LOCK", "lock:a", "60s", "OWNER", "me"); v.Kind != '*' {
		t.Fatal(v)
	}
	wantReplies(t, other, [2]string{release("1", "me"), ":0"}, [2]string{"HGET lock:a me", "-WRONGTYPE Operation against a key holding the wrong kind of value"})
	if v := r.data.Do(t, "KEYS", "*"); len(v.Elems) != 0 {
		t.Errorf("the upstream has %v", v)
	}
}

// TestAdopt_Batch: one script renews locks, and keys of the upstream beside them.
func TestAdopt_Batch(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 2, "--adopt", "lock:*")
	const extendAll = `local said = {} for i = 1, #KEYS do
		if redis.call('hexists', KEYS[i], ARGV[i + 1]) == 1 then redis.call('pexpire', KEYS[i], ARGV[1]) table.insert(said, 1) else table.insert(said, 0) end
		end return said`
	c, other := redistest.Open(t, r.addr()), redistest.Open(t, r.proxies[1].Addr())
	for _, key := range []string{"lock:a", "plain", "lock:b"} {
		c.Do(t, "EVAL", enterOrLeft, "1", key, "20000", "me")
	}
	if v := r.data.Do(t, "KEYS", "*"); v.String() != `*[$"plain"]` {
		t.Errorf("the upstream has %v", v)
	}
	for _, c := range []*redistest.Conn{other, c, other} {
		if v := c.Do(t, "EVAL", extendAll, "5", "lock:a", "plain", "lock:none", "none", "lock:b", "60000", "me", "me", "me", "me", "you"); v.String() != "*[:1 :1 :0 :0 :0]" {
			t.Error(v)
		}
	}
	for key, want := range map[string]bool{"lock:a": true, "plain": true, "lock:b": false} {
		if ms := c.Do(t, "PTTL", key).Int(); ms > 20000 != want {
			t.Errorf("%s ends in %d ms", key, ms)
		}
	}
}
