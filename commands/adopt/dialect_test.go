package adopt

import (
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
)

// TestDecide_ComparesInCommand: commands that compare the value move and release the lock that has it, also with
// as=strict, where the upstream is of a version that has them.
func TestDecide_ComparesInCommand(t *testing.T) {
	redis, valkey := idiom.Dialect{Version: 80400}, idiom.Dialect{Version: 90000, Valkey: true}
	const ifEqual = "if redis.call('delex', KEYS[1], 'IFEQ', ARGV[1]) == 1 then return 'freed' end return 'no'"
	for _, tt := range []struct {
		upstream    idiom.Dialect
		does        []string
		want, freed string
	}{
		{redis, []string{"SET", "lock:a", "me", "IFEQ", "me", "PX", "9000"}, "+OK", ""},
		{redis, []string{"SET", "lock:a", "me", "PX", "9000", "GET", "ifeq", "me"}, "$2 me", ""},
		{redis, []string{"SET", "lock:a", "you", "IFEQ", "you", "PX", "9000"}, "$-1", ""},
		{redis, []string{"SET", "lock:free", "me", "IFEQ", "me", "PX", "9000"}, "$-1", ""},
		{redis, []string{"SET", "lock:a", "me", "IFNE", "me"}, "ADOPTREFUSED SET lock:a: SET with IFNE", ""},
		{redis, []string{"DELEX", "lock:a", "IFEQ", "you"}, ":0", ""},
		{redis, []string{"DELEX", "lock:a", "IFEQ", "me"}, ":1", "lock"},
		{redis, []string{"DELEX", "lock:a"}, "ADOPTREFUSED DELEX lock:a: FORCE-RELEASE does not compare the value", ""},
		{redis, []string{"EVAL", ifEqual, "1", "lock:a", "me"}, "$5 freed", "lock"},
		{idiom.Dialect{Version: 80000}, []string{"EVAL", ifEqual, "1", "lock:a", "me"}, "ADOPTREFUSED EVAL lock:a: DELEX of a lock", ""},
		{valkey, []string{"DELIFEQ", "lock:a", "you"}, ":0", ""},
		{valkey, []string{"DELIFEQ", "lock:a", "me"}, ":1", "lock"},
		{valkey, []string{"SET", "lock:a", "me", "XX", "IFEQ", "me"}, "ERR syntax error", ""},
		{idiom.Dialect{Version: 80000}, []string{"SET", "lock:a", "me", "IFEQ", "me"}, "ERR syntax error", ""},
		{idiom.Dialect{}, []string{"SET", "lock:a", "me", "IFEQ", "me", "PX", "9000"}, "ADOPTREFUSED SET lock:a: SET with IFEQ", ""},
		{idiom.Dialect{Version: 60200}, []string{"PEXPIRETIME", "lock:a"}, "no lock", ""},
		{idiom.Dialect{Version: 60200}, []string{"SET", "lock:a", "me", "NX", "GET"}, "ERR syntax error", ""},
	} {
		c := proxies(t, 1, "lock:* as=strict")[0]
		c.a.opt.Dialect = func() idiom.Dialect { return tt.upstream }
		c.do("SET", "lock:a", "me", "NX", "PX", "5000")
		if got := strings.TrimPrefix(c.do(tt.does...), "-"); !strings.HasPrefix(got, strings.TrimPrefix(tt.want, "-")) {
			t.Errorf("%v of %v: %s, want %s", tt.does, tt.upstream, got, tt.want)
		}
		if got := c.do("GET", "lock:a"); (got == "$-1") != (tt.freed == "lock") {
			t.Errorf("after %v: %s", tt.does, got)
		}
	}
}
