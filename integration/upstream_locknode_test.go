package integration

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// contents is what clients see of what a server holds.
func contents(t *testing.T, c *redistest.Conn) string {
	t.Helper()
	return fmt.Sprintf("%v %v %v %q", c.Do(t, "DBSIZE"), c.Do(t, "KEYS", "*"), c.Do(t, "SCAN", "0"), c.Do(t, "INFO", "keyspace").Text)
}

var lookCalls = regexp.MustCompile(`cmdstat_(?:evalsha|hlen):calls=(\d+)`)

// awaitLooks returns when a proxy has looked at a lock node that it looks at anyway.
func awaitLooks(t *testing.T, node *redistest.Server) {
	t.Helper()
	looks := func() int {
		n := 0
		for _, m := range lookCalls.FindAllStringSubmatch(node.Do(t, "INFO", "commandstats").Text, -1) {
			calls, _ := strconv.Atoi(m[1])
			n += calls
		}
		return n
	}
	before := looks()
	eventually(t, 30*time.Second, "the node was looked at", func() bool { return looks() >= before+3 })
}

// TestUpstreamAsLockNode_IsLeftAlone: where the upstream is the lock node it holds what
// clients put there and nothing else until a lock is asked for, and FLUSHALL empties it.
func TestUpstreamAsLockNode_IsLeftAlone(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"--bootstrap auto", "--bootstrap strict", "--restart-grace safe --max-ttl 2s"} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			up, admin := redistest.Start(t), freeAddr(t)
			p := redistest.StartProxy(t, up, nil, append(strings.Fields(args), "--admin", admin)...)
			c, plain := redistest.Open(t, p.Addr()), redistest.Open(t, redistest.Start(t).Addr())
			both := func(command string) {
				t.Helper()
				if got, want := c.Do(t, strings.Fields(command)...), plain.Do(t, strings.Fields(command)...); got.Raw != want.Raw {
					t.Errorf("%s: %v, of a Redis alone %v", command, got, want)
				}
			}
			isUnused := func(when string) {
				t.Helper()
				awaitLooks(t, up)
				if got, want := contents(t, c), contents(t, plain); got != want {
					t.Errorf("%s: the upstream holds %s, a Redis alone %s", when, got, want)
				}
				if v := c.Do(t, "LOCKCTL", "NODES").String(); !strings.Contains(v, `$"state" $"unused"`) || !strings.Contains(v, `$"error" $""`) {
					t.Errorf("%s: LOCKCTL NODES says %s", when, v)
				}
				if code, says := adminGet(t, "http://"+admin+"/readyz?verbose"); code != 200 || !strings.Contains(says, "unused") {
					t.Errorf("%s: /readyz says %d %s", when, code, says)
				}
			}
			granted := func() int64 {
				t.Helper()
				var v redistest.Value
				eventually(t, time.Minute, "LOCK is granted", func() bool {
					v = c.Do(t, "LOCK", "job", "1s", "OWNER", "a")
					return v.Kind == '*' && len(v.Elems) == 4
				})
				if v := c.Do(t, "UNLOCK", "job", "a"); v.Raw != ":1\r\n" {
					t.Errorf("UNLOCK: %v", v)
				}
				return v.Elems[0].Int()
			}

			isUnused("at first")
			both("SET a 1")
			for _, command := range []string{"LOCKCTL LIST", "LOCKCTL WAITERS job", "LOCKCTL HELP", "INFO"} {
				if v := c.Do(t, strings.Fields(command)...); v.IsError() {
					t.Errorf("%s: %v", command, v)
				}
			}
			isUnused("after a look")
			up.Pause()
			eventually(t, time.Minute, "the proxy sees that it is silent", func() bool {
				return strings.Contains(c.Do(t, "LOCKCTL", "NODES").String(), `$"down (`)
			})
			up.Resume()
			eventually(t, time.Minute, "the proxy hears of it again", func() bool {
				return strings.Contains(c.Do(t, "LOCKCTL", "NODES").String(), `$"unused"`)
			})
			isUnused("after a time of silence")
			both("FLUSHALL")
			isUnused("after FLUSHALL")
			if v := up.Do(t, "INFO", "memory").Text; !strings.Contains(v, "number_of_cached_scripts:0\r\n") {
				t.Errorf("before LOCK there are scripts: %s", v)
			}
			fence := granted()
			if v := up.Do(t, "EXISTS", "lockproxy:node"); v.Int() != 1 {
				t.Errorf("after LOCK the node has no record")
			}
			both("FLUSHALL")
			isUnused("after LOCK and FLUSHALL")
			if next := granted(); next <= fence {
				t.Errorf("fence %d after %d", next, fence)
			}
		})
	}
}

// TestUpstreamAsLockNode_FirstVerb: whatever the first verb is, it is answered as later on.
func TestUpstreamAsLockNode_FirstVerb(t *testing.T) {
	t.Parallel()
	for command, want := range map[string]string{
		"LOCK job 1s OWNER a": "*4\r\n", "LOCK job 1s OWNER a WAIT 1s": "*4\r\n", "LOCK job 1s OWNER a SESSION": "*4\r\n",
		"RENEW job 1s a": "-LOCKLOST ", "UNLOCK job a": "-LOCKLOST ",
		"LOCKCTL INFO job": "*-1\r\n", "LOCKCTL WHY job": "*", "LOCKCTL FORCE job": "*-1\r\n",
	} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			up := redistest.Start(t)
			p := redistest.StartProxy(t, up, nil)
			for _, when := range []string{"at first", "after FLUSHALL"} {
				awaitLooks(t, up)
				c := redistest.Open(t, p.Addr()) // the connection of a session that FLUSHALL took the lock from is closed
				if v := c.Do(t, strings.Fields(command)...); !strings.HasPrefix(v.Raw, want) {
					t.Errorf("%s: got %v, want %q", when, v, want)
				}
				up.Do(t, "FLUSHALL")
			}
		})
	}
}
