package idiom

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// nowMS is the time of a client, in milliseconds. It is what the score of a permit is.
var nowMS = fmt.Sprint(time.Now().UnixMilli())

// withLimit are a limit, an owner, a lease and the client's time.
var withLimit = []string{"3", "me", "5000", nowMS}

// permitCases are semaphores in a sorted set. The rows are absent, mine, mine and another, another, others have all.
var permitCases = []scriptCase{
	{"permits: take one of three", PermitAcquire, "take renew renew take -", lockKey, withLimit, []string{
		`local limit, owner, ms, now = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
		 redis.call('zremrangebyscore', KEYS[1], '-inf', now - ms)
		 if redis.call('zcard', KEYS[1]) >= limit then return 0 end
		 redis.call('zadd', KEYS[1], now, owner)
		 redis.call('pexpire', KEYS[1], ms)
		 return 1`,
		`redis.call("ZREMRANGEBYSCORE", KEYS[1], "-inf", "(" .. (ARGV[4] - ARGV[3]))
		 local n = redis.call("ZCARD", KEYS[1])
		 if n < ARGV[1] + 0 then
		   local fresh = redis.call("ZADD", KEYS[1], ARGV[4], ARGV[2])
		   redis.call("PEXPIRE", KEYS[1], ARGV[3])
		   return {1, fresh}
		 end
		 return {0, n}`,
		`redis.call('zremrangebyscore', KEYS[1], '-inf', ARGV[4] - ARGV[3])
		 local function full() return redis.call('zcount', KEYS[1], '-inf', 'inf') >= tonumber(ARGV[1]) end
		 if full() then return false end
		 redis.call('zadd', KEYS[1], ARGV[4], ARGV[2])
		 redis.call('expire', KEYS[1], math.ceil(ARGV[3] / 1000))
		 return ARGV[2]`,
		`if redis.call('zcard', KEYS[1]) < tonumber(ARGV[1]) and redis.call('zadd', KEYS[1], ARGV[4], ARGV[2]) then
		   return redis.call('pexpire', KEYS[1], ARGV[3])
		 end
		 return redis.error_reply('FULL try later')`,
	}},
	{"permits: take one, or extend mine", PermitAcquire, "take renew renew take -", lockKey, withLimit, []string{
		`redis.call('zremrangebyscore', KEYS[1], '-inf', ARGV[4] - ARGV[3])
		 if not redis.call('zscore', KEYS[1], ARGV[2]) and redis.call('zcard', KEYS[1]) >= tonumber(ARGV[1]) then return 0 end
		 redis.call('zadd', KEYS[1], ARGV[4], ARGV[2]) redis.call('pexpire', KEYS[1], ARGV[3]) return 1`,
		`if redis.call('zscore', KEYS[1], ARGV[2]) or redis.call('zcard', KEYS[1]) < tonumber(ARGV[1]) then
		   redis.call('zadd', KEYS[1], ARGV[4], ARGV[2]) redis.call('pexpire', KEYS[1], ARGV[3]) return 1
		 end return 0`,
		`local n = redis.call('zcard', KEYS[1])
		 if redis.call('zscore', KEYS[1], ARGV[2]) then n = n - 1 end
		 if n >= tonumber(ARGV[1]) then return n end
		 redis.call('zadd', KEYS[1], ARGV[4], ARGV[2]) redis.call('pexpire', KEYS[1], ARGV[3]) return 'mine'`,
		`if redis.call('zcard', KEYS[1]) > ARGV[1] - 1 and not redis.call('zscore', KEYS[1], ARGV[2]) then return 0 end
		 redis.call('zadd', KEYS[1], ARGV[4], ARGV[2]) return redis.call('pexpire', KEYS[1], ARGV[3])`,
	}},
	{"permits: extend mine", PermitExtend, "- renew renew - -", lockKey, withLimit, []string{
		`redis.call('zremrangebyscore', KEYS[1], '-inf', ARGV[4] - ARGV[3])
		 if redis.call('zscore', KEYS[1], ARGV[2]) then
		   redis.call('zadd', KEYS[1], ARGV[4], ARGV[2]) redis.call('pexpire', KEYS[1], ARGV[3]) return 1
		 end return 0`,
		`if not redis.call("ZSCORE", KEYS[1], ARGV[2]) then return redis.error_reply("LOST") end
		 redis.call("ZADD", KEYS[1], ARGV[4], ARGV[2]) return redis.call("PEXPIRE", KEYS[1], ARGV[3])`,
		`local before = redis.call('zcard', KEYS[1])
		 if before == 0 or not redis.call('zscore', KEYS[1], ARGV[2]) then return -1 end
		 redis.call('zadd', KEYS[1], ARGV[4], ARGV[2]) redis.call('pexpire', KEYS[1], ARGV[3]) return before`,
		`local function mine() if redis.call('zscore', KEYS[1], ARGV[2]) then return true end return false end
		 if mine() then redis.call('zadd', KEYS[1], ARGV[4], ARGV[2]) return redis.call('expire', KEYS[1], 5) end
		 return 'gone'`,
	}},
	{"permits: release mine", PermitRelease, "- release release - -", lockKey, withLimit, []string{
		`return redis.call('zrem', KEYS[1], ARGV[2])`,
		`redis.call('zremrangebyscore', KEYS[1], '-inf', ARGV[4] - ARGV[3]) return redis.call('zrem', KEYS[1], ARGV[2])`,
		`if redis.call('zrem', KEYS[1], ARGV[2]) == 1 then redis.call('publish', 'free', KEYS[1]) return 1 end return 0`,
		`if redis.call('zscore', KEYS[1], ARGV[2]) then redis.call('zrem', KEYS[1], ARGV[2]) return redis.call('zcard', KEYS[1]) end return false`,
	}},
}

// TestPermit_Limit: the limit is that of the arguments, whatever it is.
func TestPermit_Limit(t *testing.T) {
	for _, c := range permitCases[:2] {
		for i, text := range c.texts {
			for _, limit := range []int{1, 2, 7, 99, 100, 101, 0} {
				args := append([]string{fmt.Sprint(limit)}, withLimit[1:]...)
				call, err := ParseScript(text).Call(c.keys, args, 2, false, isLock)
				if err != nil {
					t.Fatal(err)
				}
				owner, found, refused := call.Permit(time.Now(), 100)
				switch {
				case limit > 100:
					if refused == nil {
						t.Errorf("%s %d: a limit of %d is taken for %d", c.name, i, limit, found)
					}
				case refused != nil, found != limit, limit > 0 && owner != "me":
					t.Errorf("%s %d: a limit of %d is taken for %d, of %q: %v", c.name, i, limit, found, owner, refused)
				}
			}
		}
	}
}

// TestPermit_Owner: the owner is known by what is done to a permit, not by the place of an argument.
func TestPermit_Owner(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{permitCases[2].texts[0], "me"}, {permitCases[3].texts[0], "me"},
		{`return redis.call('zrem', KEYS[1], ARGV[2] .. ':' .. ARGV[1])`, ""},
		{`return redis.call('zcard', KEYS[1])`, ""},
	} {
		call, err := ParseScript(tt.text).Call(lockKey, withLimit, 2, false, isLock)
		if err != nil {
			t.Fatal(err)
		}
		if owner, limit, refused := call.Permit(time.Now(), 100); owner != tt.want || limit != 0 || refused != nil {
			t.Errorf("%s: %q, %d, %v", tt.text, owner, limit, refused)
		}
	}
}

// TestPermits_ClientsClock: a permit is not over because a client's clock says so, and its score may be of any time.
func TestPermits_ClientsClock(t *testing.T) {
	for _, off := range []time.Duration{-time.Hour, 0, time.Hour} {
		args := append(append([]string{}, withLimit[:3]...), fmt.Sprint(time.Now().Add(off).UnixMilli()))
		call, err := ParseScript(permitCases[0].texts[0]).Call(lockKey, args, 2, false, isLock)
		if err != nil {
			t.Fatal(err)
		}
		if _, class := call.Accept(time.Now()); class != PermitAcquire {
			t.Errorf("a clock that is off by %v: %s", off, class)
		}
		full := State{Kind: Permits, Owners: 3, Left: 5 * time.Second}
		if out, err := call.Run(full, time.Now()); err != nil || out.Op.Do != Nothing || string(out.Reply) != ":0\r\n" {
			t.Errorf("a clock that is off by %v: %+v, %v", off, out, err)
		}
	}
}

// TestPermits_ListedByNobody: who has permits is not known to a call, only how many have.
func TestPermits_ListedByNobody(t *testing.T) {
	s := State{Kind: Permits, Owners: 2, Left: 5 * time.Second}
	for command, want := range map[string]string{
		"ZCARD lock:a": ":2\r\n", "TYPE lock:a": "+zset\r\n", "EXISTS lock:a": ":1\r\n", "PTTL lock:a": ":5000\r\n", "GET lock:a": "-WRONGTYPE", "ZCOUNT lock:a -inf +inf": ":2\r\n",
		"ZRANGE lock:a 0 -1": "", "ZRANGE lock:a 0 -1 WITHSCORES": "", "ZCOUNT lock:a -inf 5": "", "ZSCORE lock:a me": "$-1\r\n", "ZREVRANGE lock:a 0 0": "", "PEXPIRE lock:a 9000": "", "PERSIST lock:a": "", "SET lock:a me PX 5000": "",
	} {
		call, err := Plain(strings.Fields(command), 2)
		if err != nil {
			t.Fatal(err)
		}
		out, err := call.Run(s, time.Now())
		if want == "" && err == nil || want != "" && (err != nil || !strings.HasPrefix(string(out.Reply), want)) {
			t.Errorf("%s: %q, %v", command, out.Reply, err)
		}
	}
}
