package adopt

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/backends/metrics"
	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
)

// TestGuard_UpstreamsLockIsAnothers: no client takes a lock that the upstream has for its own. What is left of it there
// is what the client is told.
func TestGuard_UpstreamsLockIsAnothers(t *testing.T) {
	for _, ahead := range []bool{true, false} {
		t.Run(fmt.Sprint("ahead ", ahead), func(t *testing.T) { testNobodysOwn(t, ahead) })
	}
}

func testNobodysOwn(t *testing.T, ahead bool) {
	c := proxies(t, 1, "lock:*")[0]
	c.has, c.ahead = ":5000\r\n", ahead
	const takeOrExtend = `if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end
		if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('pexpire', KEYS[1], ARGV[2]) return 1 end return 0`
	const takeOrLeft = `if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', 9000) then return -1 end return redis.call('pttl', KEYS[1])`
	for _, value := range []string{"", "me", "lockproxy:upstream:"} {
		if got := c.do("EVAL", takeOrExtend, "1", "lock:a", value, "9000"); got != ":0" {
			t.Errorf("%q: %s", value, got)
		}
	}
	if got := c.do("EVAL", takeOrLeft, "1", "lock:a", "me"); !strings.HasPrefix(got, ":49") && got != ":5000" {
		t.Errorf("what is left: %s", got)
	}
	if got := c.a.counters.upstreamHeld.Load(); got != 4 {
		t.Errorf("%d were counted", got)
	}
}

// TestGuard_Unanswered: where the upstream does not say whether it has the key it counts as not having it.
func TestGuard_Unanswered(t *testing.T) {
	c := proxies(t, 1, "lock:*")[0]
	c.has = "-NOPERM no\r\n"
	for i, key := range []string{"lock:a", "lock:b"} {
		c.ahead = i == 1
		if got := c.do("SET", key, "me", "NX", "PX", "5000"); got != "+OK" {
			t.Error(got)
		}
		if s := (metrics.Registry{c.a}).Sample("lockproxy_adopt_unguarded_total"); s == nil || s.Value != float64(i+1) {
			t.Errorf("counted %+v", s)
		}
	}
}

// TestRights: which questions about rights the upstream is asked before a call is decided, by the command of the call.
func TestRights(t *testing.T) {
	c := proxies(t, 1, "lock:*")[0]
	c.do("EVAL", compareAndDelete, "1", "lock:a", "me")
	c.do("GETRANGE", "lock:a", "0", "1")
	c.do("EVALSHA", idiom.ParseScript(compareAndDelete).SHA, "1", "lock:a", "me")
	c.do("EVAL", "return redis.call('get', KEYS[1])", "1", "lock:a")
	want := "EVAL return 1 0|GETRANGE lock:a 0 1|EVALSHA " + strings.Repeat("0", 40) + " 0|EVAL return 1 0|GET lock:a"
	if got := strings.Join(c.questions, "|"); got != want {
		t.Errorf("asked %s", got)
	}
	c.no = errors.New("NOPERM")
	for _, command := range []string{"SET lock:a me NX PX 5000", "DEL lock:a", "SET lock:a me NX PX x"} {
		if got := c.do(strings.Fields(command)...); got != "NOPERM" {
			t.Errorf("%s: %s", command, got)
		}
	}
}
