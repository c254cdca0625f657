package idiom

import (
	"strings"
	"testing"
	"time"
)

// TestSemaphores: what is refused because it is a semaphore, or a line of waiters, is told so.
func TestSemaphores(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{`local n = tonumber(redis.call('get', KEYS[1]) or 1) if n > 0 then redis.call('decrby', KEYS[1], ARGV[1]) return 1 end return 0`, "DECRBY of a lock: a counter, or a semaphore"},
		{`if redis.call('incr', KEYS[1]) > 3 then redis.call('decr', KEYS[1]) return 0 end return 1`, "INCR of a lock: a counter, or a semaphore"},
		{`redis.call('zremrangebyscore', KEYS[2], '-inf', ARGV[2]) if redis.call('get', KEYS[1]) then return 1 end return 0`, "ZREMRANGEBYSCORE beside the lock: a semaphore"},
		{`redis.call('incrby', KEYS[2], 1) return redis.call('set', KEYS[1], 'me', 'NX', 'PX', 5000)`, "INCRBY beside the lock: a semaphore"},
		{`if redis.call('lindex', KEYS[2], 0) == ARGV[1] then return redis.call('set', KEYS[1], 'me', 'NX', 'PX', 5000) end return 0`, "LINDEX beside the lock: a line of those who wait"},
		{`redis.call('publish', KEYS[2], 1) redis.call('set', KEYS[1], 5) return 1`, "a semaphore or a counter, not a lock"},
	} {
		call, err := ParseScript(tt.text).Call([]string{"lock:a", "beside"}, []string{"1", "2"}, 2, false, isLock)
		if err != nil {
			t.Errorf("%s: %v", tt.text, err)
			continue
		}
		rows, class := call.Accept(time.Now())
		if class != Unclear || !strings.HasPrefix(rows.Why(), tt.want) {
			t.Errorf("%s: %s, %q", tt.text, class, rows.Why())
		}
	}
	if _, err := Plain([]string{"DECRBY", "lock:a", "1"}, 2); err == nil || !strings.Contains(err.Error(), "a semaphore") {
		t.Error(err)
	}
}
