package integration

import (
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// Scripts of read/write locks in hashes: a thread reads, or writes as THREAD:write. A reader's hold has a key of its own.
const (
	readShare = `local mode = redis.call('hget', KEYS[1], 'mode')
		if mode == 'write' and redis.call('hexists', KEYS[1], ARGV[2] .. ':write') == 0 then return redis.call('pttl', KEYS[1]) end
		if not mode then redis.call('hset', KEYS[1], 'mode', 'read') end
		local key = '{' .. KEYS[1] .. '}:' .. ARGV[2] .. ':rwlock_timeout:' .. redis.call('hincrby', KEYS[1], ARGV[2], 1)
		redis.call('set', key, 1) redis.call('pexpire', key, ARGV[1])
		redis.call('pexpire', KEYS[1], math.max(redis.call('pttl', KEYS[1]), ARGV[1])) return nil`
	unreadShare = `if not redis.call('hget', KEYS[1], 'mode') then redis.call('publish', 'free', KEYS[1]) return 1 end
		local n = redis.call('hget', KEYS[1], ARGV[2]) if not n then return nil end
		redis.call('del', '{' .. KEYS[1] .. '}:' .. ARGV[2] .. ':rwlock_timeout:' .. n)
		if redis.call('hincrby', KEYS[1], ARGV[2], -1) == 0 then redis.call('hdel', KEYS[1], ARGV[2]) end
		if redis.call('hlen', KEYS[1]) > 1 then return 0 end
		redis.call('del', KEYS[1]) redis.call('publish', 'free', KEYS[1]) return 1`
	writeShare = `local mode = redis.call('hget', KEYS[1], 'mode')
		if mode == 'read' or mode and redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return redis.call('pttl', KEYS[1]) end
		if not mode then redis.call('hset', KEYS[1], 'mode', 'write') end
		redis.call('hincrby', KEYS[1], ARGV[2], 1) redis.call('pexpire', KEYS[1], ARGV[1]) return nil`
	unwriteShare = `if redis.call('hget', KEYS[1], 'mode') ~= 'write' or redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return nil end
		if redis.call('hincrby', KEYS[1], ARGV[2], -1) > 0 then redis.call('pexpire', KEYS[1], ARGV[1]) return 0 end
		redis.call('hdel', KEYS[1], ARGV[2])
		if redis.call('hlen', KEYS[1]) > 1 then redis.call('hset', KEYS[1], 'mode', 'read') return 1 end
		redis.call('del', KEYS[1]) redis.call('publish', 'free', KEYS[1]) return 1`
	extendShares = `local said = {}
		for k = 1, #KEYS do
		  local n = redis.call('hget', KEYS[k], ARGV[2])
		  if n then
		    redis.call('pexpire', '{' .. KEYS[k] .. '}:' .. ARGV[2] .. ':rwlock_timeout:1', ARGV[1])
		    redis.call('pexpire', KEYS[k], ARGV[1])
		  end
		  said[k] = n and 1 or 0
		end
		return said`
	extendOurs = `if redis.call('hget', KEYS[1], ARGV[2]) == false then return 0 end
		redis.call('pexpire', KEYS[1], ARGV[1])
		for _, field in ipairs(redis.call('hkeys', KEYS[1])) do
		  local n = tonumber(redis.call('hget', KEYS[1], field))
		  if n then redis.call('pexpire', '{' .. KEYS[1] .. '}:' .. field .. ':rwlock_timeout:' .. n, ARGV[1]) end
		end
		return 1`
	freeRead = `if redis.call('hget', KEYS[1], 'mode') == 'read' then redis.call('del', KEYS[1]) redis.call('publish', 'free', KEYS[1]) return 1 end return 0`
)

// shares is a function that runs one of these scripts on lock:a.
func shares(t *testing.T) func(c *redistest.Conn, script, ms, who, want string) {
	return func(c *redistest.Conn, script, ms, who, want string) {
		t.Helper()
		if got := c.Do(t, "EVAL", script, "1", "lock:a", ms, who); got.String() != want && (want != "left" || got.Kind != ':' || got.Int() <= 0) {
			t.Errorf("%.40s… for %s: %v, want %s", script, who, got, want)
		}
	}
}

// TestAdopt_Readers: many read a lock, or one has it for itself, through two proxies, and so with LOCK.
func TestAdopt_Readers(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 2, "--adopt", "lock:*")
	c, other, run := redistest.Open(t, r.addr()), redistest.Open(t, r.proxies[1].Addr()), shares(t)

	run(c, readShare, "50000", "a", "$-1")
	run(other, readShare, "50000", "b", "$-1")
	run(c, writeShare, "50000", "c:write", "left")
	wantReplies(t, other, [2]string{"HGET lock:a mode", `$"read"`}, [2]string{"TYPE lock:a", "+hash"}, [2]string{"EXISTS lock:a", ":1"}, [2]string{"SET lock:a x NX PX 9000", "$-1"}, [2]string{"LOCK lock:a 10s OWNER me", "*-1"})
	if v := other.Do(t, "LOCK", "lock:a", "10s", "OWNER", "me", "SHARED"); v.Kind != '*' || v.Null {
		t.Errorf("LOCK SHARED beside those who read: %v", v)
	}
	if v := c.Do(t, "EVAL", freeRead, "1", "lock:a"); !strings.HasPrefix(v.String(), "-ADOPTREFUSED") {
		t.Errorf("what was taken with LOCK is taken away: %v", v)
	}
	run(c, unreadShare, "0", "a", ":0")
	run(c, unreadShare, "0", "b", ":0")
	run(c, writeShare, "50000", "c:write", "left")
	wantReplies(t, other, [2]string{"UNLOCK lock:a me SHARED", ":1"})
	run(other, writeShare, "50000", "c:write", "$-1")
	run(c, readShare, "50000", "a", "left")
	wantReplies(t, c, [2]string{"HGET lock:a mode", `$"write"`}, [2]string{"HGET lock:a c:write", `$"1"`}, [2]string{"LOCK lock:a 10s OWNER me SHARED", "*-1"})
	run(other, readShare, "50000", "c", "$-1")
	run(c, unwriteShare, "50000", "c:write", ":1")
	run(c, readShare, "50000", "a", "$-1")
	run(c, freeRead, "0", "nobody", ":1")
	run(other, freeRead, "0", "nobody", ":0")
	run(other, unreadShare, "0", "a", ":1")
	run(other, writeShare, "50000", "c:write", "$-1")
	wantReplies(t, c, [2]string{"DEL lock:a", ":1"}, [2]string{"EXISTS lock:a", ":0"})
	run(other, unwriteShare, "50000", "c:write", "$-1")
	if v := r.data.Do(t, "KEYS", "*"); len(v.Elems) != 0 {
		t.Errorf("the upstream has %v", v)
	}
}

// TestAdopt_ReadersExtended: what threads read is extended by scripts for many, and by one for all threads of its client.
func TestAdopt_ReadersExtended(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 2, "--adopt", "lock:*")
	c, other, run := redistest.Open(t, r.addr()), redistest.Open(t, r.proxies[1].Addr()), shares(t)
	for _, key := range []string{"lock:b", "plain", "lock:c"} {
		c.Do(t, "EVAL", readShare, "1", key, "20000", "x:1")
	}
	c.Do(t, "EVAL", writeShare, "1", "lock:d", "20000", "x:1:write")
	for _, c := range []*redistest.Conn{other, c, other} {
		if v := c.Do(t, "EVAL", extendShares, "5", "lock:b", "plain", "lock:none", "lock:d", "lock:c", "50000", "x:1"); v.String() != "*[:1 :1 :0 :0 :1]" {
			t.Error(v)
		}
	}
	for key, want := range map[string]bool{"lock:b": true, "plain": true, "lock:c": true, "lock:d": false} {
		if ms := c.Do(t, "PTTL", key).Int(); ms > 20000 != want {
			t.Errorf("%s ends in %d ms", key, ms)
		}
	}

	for _, who := range []string{"x:1", "x:2", "y:1"} {
		run(c, readShare, "3000", who, "$-1")
	}
	run(other, extendOurs, "50000", "x:1", ":1")
	run(other, extendOurs, "50000", "z:1", ":0")
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		if v := c.Do(t, "HGET", "lock:a", "y:1"); v.Null {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a client that does not extend its lease has it still")
		}
	}
	run(other, unreadShare, "0", "x:1", ":0")
	run(other, unreadShare, "0", "x:2", ":1")
}

// TestAdopt_ReadersLeave: a client that is gone before it is told has nothing, and waiters are told of a release.
func TestAdopt_ReadersLeave(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, 2, "--adopt", "lock:*")
	c, other, run := redistest.Open(t, r.addr()), redistest.Open(t, r.proxies[1].Addr()), shares(t)
	waiter := redistest.Open(t, r.proxies[1].Addr())
	waiter.Do(t, "SUBSCRIBE", "free")
	run(c, readShare, "50000", "a", "$-1")
	run(other, readShare, "50000", "b", "$-1")
	run(c, unreadShare, "0", "a", ":0")
	run(c, unreadShare, "0", "b", ":1")
	if v := waiter.Read(t); !strings.Contains(v.String(), "lock:a") {
		t.Error(v)
	}
	run(c, writeShare, "50000", "a:write", "$-1")
	run(c, unwriteShare, "0", "a:write", ":1")
	if v := waiter.Read(t); !strings.Contains(v.String(), "lock:a") {
		t.Error(v)
	}
}
