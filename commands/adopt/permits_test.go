package adopt

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// Scripts of a semaphore in a sorted set. Their arguments are a limit, an owner, a lease and the client's time.
const (
	takePermit = `redis.call('zremrangebyscore', KEYS[1], '-inf', ARGV[4] - ARGV[3])
		if redis.call('zcard', KEYS[1]) >= tonumber(ARGV[1]) then return 0 end
		redis.call('zadd', KEYS[1], ARGV[4], ARGV[2]) redis.call('pexpire', KEYS[1], ARGV[3]) return 1`
	takeOrExtendPermit = `if not redis.call('zscore', KEYS[1], ARGV[2]) and redis.call('zcard', KEYS[1]) >= tonumber(ARGV[1]) then return 0 end
		redis.call('zadd', KEYS[1], ARGV[4], ARGV[2]) redis.call('pexpire', KEYS[1], ARGV[3]) return 1`
	extendPermit = `if not redis.call('zscore', KEYS[1], ARGV[2]) then return 0 end
		redis.call('zadd', KEYS[1], ARGV[4], ARGV[2]) redis.call('pexpire', KEYS[1], ARGV[3]) return 1`
	leavePermit = `if redis.call('zrem', KEYS[1], ARGV[2]) == 0 then return -1 end return redis.call('zcard', KEYS[1])`
)

// permitCommand is the command of a step: a verb, a limit, an owner and a lease.
func permitCommand(words []string) []string {
	text := map[string]string{"take": takePermit, "keep": takeOrExtendPermit, "extend": extendPermit, "leave": leavePermit}[words[0]]
	if text == "" {
		return append([]string{words[0], "lock:a"}, words[1:]...)
	}
	return append(append([]string{"EVAL", text, "1", "lock:a"}, words[1:]...), fmt.Sprint(time.Now().UnixMilli()))
}

// TestPermits: at most so many have a permit, through any proxy.
func TestPermits(t *testing.T) {
	for name, steps := range map[string][]string{
		"as many as the limit":      {"0 take 2 a 5000 > :1", "1 take 2 b 5000 > :1", "0 take 2 c 5000 > :0", "1 take 2 c 5000 > :0", "1 ZREM a > :1", "0 take 2 c 5000 > :1", "1 take 2 a 5000 > :0"},
		"each has its end":          {"0 take 2 a 3000 > :1", "1 take 2 b 9000 > :1", "sleep 4", "0 extend 2 a 5000 > :0", "0 take 2 c 5000 > :1", "1 take 2 d 5000 > :0", "1 extend 2 b 9000 > :1", "sleep 8", "0 extend 2 b 5000 > :1"},
		"taken again":               {"0 take 2 a 3000 > :1", "1 take 2 a 9000 > :1", "sleep 4", "0 extend 2 a 9000 > :1", "1 take 2 b 5000 > :1", "0 take 2 a 5000 > :0", "0 leave 2 a 0 > :1", "0 ZREM a > :0"},
		"taken again, and extended": {"0 keep 1 a 3000 > :1", "1 keep 1 a 9000 > :1", "sleep 4", "0 keep 1 b 5000 > :0", "1 extend 1 a 9000 > :1"},
		"given back and taken elsewhere": {"0 take 1 a 9000 > :1", "1 ZREM a > :1", "1 take 1 a 9000 > :1", "0 ZREM a > :1", "0 take 1 b 9000 > :1", "1 leave 1 b 0 > :0",
			"1 leave 1 b 0 > :-1"},
		"a larger limit, a smaller one": {"0 take 1 a 5000 > :1", "1 take 2 b 5000 > :1", "0 take 2 c 5000 > :0", "1 ZREM b > :1", "0 take 1 c 5000 > :0"},
		"leases over max-ttl":           {"0 take 2 a 60001 > ADOPTREFUSED", "0 take 2 a 5000 > :1", "0 extend 2 a 60001 > ADOPTREFUSED"},
		"other locks":                   {"0 SET v NX PX 5000 > +OK", "0 take 2 a 5000 > ADOPTREFUSED", "0 GET > $1 v", "0 DEL > :1", "0 take 2 a 5000 > :1", "1 SET v NX PX 5000 > $-1"},
		"too many":                      {"0 take 1000 a 5000 > :1", "0 take 1001 b 5000 > ADOPTREFUSED", "0 take 0 b 5000 > :0", "0 ZREM a b > ADOPTREFUSED"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := proxies(t, 2, "lock:* guard=no")
				for _, step := range steps {
					said, want, _ := strings.Cut(step, " > ")
					if n := 0; strings.HasPrefix(said, "sleep") {
						fmt.Sscan(said[6:], &n)
						time.Sleep(time.Duration(n) * time.Second)
						continue
					}
					if got := p[said[0]-'0'].do(permitCommand(strings.Fields(said[2:]))...); got != want && (want[0] != 'A' || !strings.Contains(got, want)) {
						t.Fatalf("%s: %s", step, got)
					}
				}
			})
		})
	}
}

// A pausingEngine needs a millisecond for each LOCK.
type pausingEngine struct{ Engine }

func (e pausingEngine) Lock(ctx context.Context, r locks.LockRequest) (locks.Decision, error) {
	time.Sleep(time.Millisecond)
	return e.Engine.Lock(ctx, r)
}

// TestPermits_RefusedTogether: calls that are refused together share an answer, but not one to another limit, and one who has a permit is
// not told that it has none.
func TestPermits_RefusedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := proxies(t, 1, "lock:* guard=no")[0].a
		a.opt.Engine = pausingEngine{a.opt.Engine}
		at := func() *client { return &client{t: t, a: a, proto: 2} }
		for _, said := range []string{"take 2 a 9000", "take 2 z 9000"} {
			if got := at().do(permitCommand(strings.Fields(said))...); got != ":1" {
				t.Fatal(got)
			}
		}
		var all sync.WaitGroup
		for i := range 40 {
			all.Go(func() {
				said, want := "take 2 b 5000", ":0"
				switch {
				case i%8 == 3:
					said, want = "keep 2 a 9000", ":1"
				case i%8 == 5:
					said, want = "keep 2 z 9000", ":1"
				case i == 20:
					said, want = "take 3 c 5000", ":1"
				}
				if got := at().do(permitCommand(strings.Fields(said))...); got != want {
					t.Errorf("%s: %s", said, got)
				}
			})
		}
		all.Wait()
	})
}

// TestPermits_RefusedInModeBoth: they are not adopted in mode=both.
func TestPermits_RefusedInModeBoth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := proxies(t, 1, "lock:* mode=both")[0]
		for _, said := range []string{"take 1 a 9000", "extend 1 a 9000", "ZREM a"} {
			if got := c.do(permitCommand(strings.Fields(said))...); !strings.Contains(got, "ADOPTREFUSED") {
				t.Errorf("%s: %s", said, got)
			}
		}
	})
}
