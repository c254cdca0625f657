package adopt

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Scripts of a read/write lock in a hash: a thread reads, or writes as THREAD:write.
const (
	readShare = `local mode = redis.call('hget', KEYS[1], 'mode')
		if mode == 'write' and redis.call('hexists', KEYS[1], ARGV[2] .. ':write') == 0 then return redis.call('pttl', KEYS[1]) end
		if not mode then redis.call('hset', KEYS[1], 'mode', 'read') end
		local key = '{' .. KEYS[1] .. '}:' .. ARGV[2] .. ':rwlock_timeout:' .. redis.call('hincrby', KEYS[1], ARGV[2], 1)
		redis.call('set', key, 1) redis.call('pexpire', key, ARGV[1])
		redis.call('pexpire', KEYS[1], math.max(redis.call('pttl', KEYS[1]), ARGV[1])) return nil`
	unreadShare = `local first = redis.call('get', KEYS[2]) if first then return tonumber(first) end
		local function say(n) redis.call('set', KEYS[2], n, 'px', 9000) return n end
		if not redis.call('hget', KEYS[1], 'mode') then redis.call('publish', 'free', KEYS[1]) return nil end
		local n = redis.call('hget', KEYS[1], ARGV[2]) if not n then return nil end
		redis.call('del', '{' .. KEYS[1] .. '}:' .. ARGV[2] .. ':rwlock_timeout:' .. n)
		if redis.call('hincrby', KEYS[1], ARGV[2], -1) == 0 then redis.call('hdel', KEYS[1], ARGV[2]) end
		if redis.call('hlen', KEYS[1]) > 1 then return say(0) end
		redis.call('del', KEYS[1]) redis.call('publish', 'free', KEYS[1]) return say(1)`
	writeShare = `local mode = redis.call('hget', KEYS[1], 'mode')
		if mode == 'read' or mode and redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return redis.call('pttl', KEYS[1]) end
		if not mode then redis.call('hset', KEYS[1], 'mode', 'write') end
		redis.call('hincrby', KEYS[1], ARGV[2], 1) redis.call('pexpire', KEYS[1], ARGV[1]) return nil`
	unwriteShare = `local first = redis.call('get', KEYS[2]) if first then return tonumber(first) end
		local function say(n) redis.call('set', KEYS[2], n, 'px', 9000) return n end
		if redis.call('hget', KEYS[1], 'mode') ~= 'write' or redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return nil end
		if redis.call('hincrby', KEYS[1], ARGV[2], -1) > 0 then redis.call('pexpire', KEYS[1], ARGV[1]) return say(0) end
		redis.call('hdel', KEYS[1], ARGV[2])
		if redis.call('hlen', KEYS[1]) > 1 then redis.call('hset', KEYS[1], 'mode', 'read') return say(1) end
		redis.call('del', KEYS[1]) redis.call('publish', 'free', KEYS[1]) return say(1)`
	extendRead = `if redis.call('hget', KEYS[1], 'mode') == false or redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return 0 end
		redis.call('pexpire', KEYS[1], ARGV[1])
		redis.call('pexpire', '{' .. KEYS[1] .. '}:' .. ARGV[2] .. ':rwlock_timeout:1', ARGV[1]) return 1`
)

// sharesStep does a step: proxy, verb, ttl, thread and latch. What it expects follows ">".
func sharesStep(t *testing.T, p []*client, step string) {
	t.Helper()
	said, want, _ := strings.Cut(step, " > ")
	words := strings.Fields(said)
	if words[0] == "sleep" {
		n, _ := strconv.Atoi(words[1])
		time.Sleep(time.Duration(n) * time.Second)
		return
	}
	c, args := p[words[0][0]-'0'], append([]string{words[1], "lock:a"}, words[2:]...)
	switch text := map[string]string{"read": readShare, "write": writeShare, "extend": extendRead, "enter": enterHash, "more": extendHash}[words[1]]; {
	case text != "":
		args = append([]string{"EVAL", text, "1", "lock:a"}, words[2:]...)
	case words[1] == "unread":
		args = []string{"EVAL", unreadShare, "2", "lock:a", "latch:" + words[4], words[2], words[3]}
	case words[1] == "unwrite":
		args = []string{"EVAL", unwriteShare, "2", "lock:a", "latch:" + words[4], words[2], words[3]}
	}
	if got := c.do(args...); got != want && (want == "" || !strings.Contains(got, want) || strings.HasPrefix(want, "$")) {
		t.Fatalf("%s: %s", step, got)
	}
}

// TestShares: many read, or one writes, through any proxy.
func TestShares(t *testing.T) {
	for name, steps := range map[string][]string{
		"readers and no writer": {"0 read 5000 a > $-1", "1 read 9000 b > $-1", "0 write 5000 c:write > :9000", "0 unread 0 a 1 > :0", "1 write 5000 c:write > :9000", "1 unread 0 b 2 > :1", "1 write 5000 c:write > $-1"},
		"a writer and no readers": {"0 write 5000 a:write > $-1", "1 write 5000 b:write > :5000", "1 read 5000 b > :5000", "1 unwrite 0 b:write 1 > $-1", "0 unwrite 0 a:write 2 > :1",
			"1 read 5000 b > $-1"},
		"read again":            {"0 read 9000 a > $-1", "1 read 5000 a > $-1", "0 HGET a > $1 2", "0 unread 0 a 1 > :0", "1 unread 0 a 2 > :1", "0 unread 0 a 3 > $-1"},
		"each hold has its end": {"0 read 9000 a > $-1", "0 read 5000 a > $-1", "sleep 6", "1 HGET a > $1 1", "1 write 5000 c:write > :3000", "sleep 4", "1 write 5000 c:write > $-1"},
		"written again":         {"0 write 5000 a:write > $-1", "1 write 5000 a:write > $-1", "1 HGET a:write > $1 2", "0 unwrite 5000 a:write 1 > :0", "0 read 5000 b > :5000", "1 unwrite 5000 a:write 2 > :1", "0 read 5000 b > $-1"},
		"an outer hold lives as the inner": {"0 write 5000 a:write > $-1", "sleep 4", "0 write 9000 a:write > $-1", "sleep 4", "1 read 5000 b > :5000", "0 unwrite 5000 a:write 1 > :0",
			"0 unwrite 5000 a:write 2 > :1"},
		"writing ends, reading goes on": {"0 write 5000 a:write > $-1", "0 read 9000 a > $-1", "1 read 5000 b > :5000", "0 unwrite 0 a:write 1 > :1", "1 HGET mode > $4 read", "1 read 5000 b > $-1", "0 unread 0 a 2 > :0",
			"1 unread 0 b 3 > :1"},
		"reading ends, writing goes on": {"0 write 5000 a:write > $-1", "0 read 5000 a > $-1", "0 unread 0 a 1 > :0", "1 HGET mode > $5 write", "1 read 5000 b > :5000", "0 unwrite 0 a:write 2 > :1"},
		"a reader does not write":       {"0 read 5000 a > $-1", "0 write 5000 a:write > :5000", "1 write 5000 a:write > :5000", "0 HGET mode > $4 read", "0 unread 0 a 1 > :1", "0 write 5000 a:write > $-1"},
		"a release is done once": {"0 read 5000 a > $-1", "0 read 5000 a > $-1", "0 unread 0 a 1 > :0", "1 unread 0 a 1 > :0", "0 unread 0 a 1 > :0", "1 unread 0 a 2 > :1", "0 unread 0 a 2 > :1", "0 unread 0 a 3 > $-1",
			"0 write 5000 a:write > $-1", "0 unwrite 0 a:write 4 > :1", "1 unwrite 0 a:write 4 > :1", "1 unwrite 0 a:write 5 > $-1"},
		"extended":               {"0 read 5000 a > $-1", "1 extend 9000 a > :1", "1 extend 20000 b > :0", "0 write 5000 c:write > :9000", "0 unread 0 a 1 > :1", "0 write 5000 c:write > $-1", "1 more 8000 c:write > :1", "0 read 5000 a > :8000"},
		"only its own end":       {"0 read 5000 a > $-1", "0 read 5000 b > $-1", "0 extend 9000 a > :1", "sleep 6", "0 HGET b > $-1", "0 HGET a > $1 1"},
		"it lapses":              {"0 read 5000 a > $-1", "0 write 5000 b:write > :5000", "sleep 5", "0 write 5000 b:write > $-1", "sleep 5", "1 read 5000 a > $-1"},
		"what it is":             {"0 EXISTS > :0", "0 read 5000 a > $-1", "0 EXISTS > :1", "1 TYPE > +hash", "1 PTTL > :5000", "0 HGET mode > $4 read", "0 HEXISTS a > :1", "0 HEXISTS b > :0", "0 GET > WRONGTYPE", "0 HGETALL > ADOPTREFUSED"},
		"other locks":            {"0 read 5000 a > $-1", "0 SET v NX PX 5000 > $-1", "1 enter 5000 x > :5000", "1 SET v PX 5000 > ADOPTREFUSED", "0 unread 0 a 1 > :1", "0 SET v NX PX 5000 > +OK", "0 read 5000 a > WRONGTYPE", "1 write 5000 a:write > WRONGTYPE"},
		"a hash of one kind":     {"0 enter 5000 x > $-1", "0 read 5000 a > ADOPTREFUSED", "0 HGET x > $1 1"},
		"no end":                 {"0 PEXPIRE 100000 > :0", "0 read 5000 a > $-1", "0 PEXPIRE 9000 > ADOPTREFUSED", "0 PERSIST > ADOPTREFUSED"},
		"leases over max-ttl":    {"0 read 60001 a > ADOPTREFUSED", "0 write 60001 a:write > ADOPTREFUSED", "0 read 5000 a > $-1", "0 extend 60001 a > ADOPTREFUSED"},
		"a shorter one than any": {"0 read 1 a > $-1", "1 write 5000 b:write > :100"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := proxies(t, 2, "lock:* guard=no")
				for _, step := range steps {
					sharesStep(t, p, step)
				}
			})
		})
	}
}

// TestShares_Wake: waiters are woken when nobody reads any more, and when nobody writes.
func TestShares_Wake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := proxies(t, 2, "lock:* guard=no")
		for i, step := range []struct {
			step  string
			woken int // in all, through both proxies
		}{
			{"0 read 5000 a > $-1", 0}, {"1 read 5000 b > $-1", 0}, {"1 read 5000 b > $-1", 0}, {"0 unread 0 a 1 > :0", 0}, {"0 unread 0 b 2 > :0", 0}, {"1 unread 0 b 3 > :1", 1}, {"0 unread 0 b 3 > :1", 2},
			{"0 write 5000 a:write > $-1", 2}, {"0 read 5000 a > $-1", 2}, {"1 unwrite 0 a:write 4 > :1", 2}, {"1 unread 0 a 5 > :1", 3},
			{"0 write 5000 a:write > $-1", 3}, {"1 unwrite 0 a:write 6 > :1", 4},
		} {
			sharesStep(t, p, step.step)
			if woken := strings.Count(fmt.Sprint(p[0].asked, p[1].asked), "publish"); woken != step.woken {
				t.Errorf("%d: %s: %d messages, not %d", i, step.step, woken, step.woken)
			}
		}
	})
}

// TestShares_Guard: a lock that somebody has at the upstream is refused, for as long as it is there.
func TestShares_Guard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := proxies(t, 1, "lock:*")
		p[0].has = ":7000\r\n"
		sharesStep(t, p, "0 read 5000 a > :7000")
		sharesStep(t, p, "0 write 5000 a:write > :7000")
		p[0].has = ""
		sharesStep(t, p, "0 read 5000 a > $-1")
	})
}

// TestShares_RefusedInModeBoth: they are not adopted in mode=both.
func TestShares_RefusedInModeBoth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := proxies(t, 1, "lock:* mode=both")
		for _, step := range []string{"0 read 5000 a > ADOPTREFUSED", "0 write 5000 a:write > ADOPTREFUSED", "0 unread 0 a 1 > ADOPTREFUSED"} {
			sharesStep(t, p, step)
		}
	})
}
