package adopt

import (
	"strings"
	"testing"
)

// TestClassify_OddArguments reports whether a call that cannot be run because of its arguments stands in the way of
// others of the same script.
func TestClassify_OddArguments(t *testing.T) {
	c := proxies(t, 1, "lock:*")[0]
	const extend = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0`
	c.do("SET", "lock:a", "me", "NX", "PX", "5000")
	for i, ttl := range []string{"soon", "5000", "6000"} {
		args := [][]byte{[]byte("EVAL"), []byte(extend), []byte("1"), []byte("lock:a"), []byte("me"), []byte(ttl)}
		if _, err := c.a.Call(c, args, Keys{[]int{3}, true}); (i == 0) != (err != nil) {
			t.Errorf("%s: %v", ttl, err)
		}
	}
}

func TestClassify_SaysWhy(t *testing.T) {
	c := proxies(t, 1, "lock:*")[0]
	args := [][]byte{[]byte("EVAL"), []byte(`redis.call('del', KEYS[1]) return redis.call('incr', KEYS[2])`), []byte("2"), []byte("lock:a"), []byte("n")}
	for range 2 {
		if _, err := c.a.Call(c, args, Keys{[]int{3, 4}, true}); err == nil || !strings.Contains(err.Error(), "INCR beside the lock") {
			t.Error(err)
		}
	}
}
