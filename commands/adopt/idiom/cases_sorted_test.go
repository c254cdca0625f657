package idiom

import (
	"fmt"
	"time"
)

// nowIs has scripts know the time in milliseconds.
const nowIs = `local t = redis.call('time') local now = t[1] * 1000 + math.floor(t[2] / 1000) `

// timedMe has a client's own time, in seconds with a fraction.
var timedMe = []string{fmt.Sprintf("%.4f", float64(time.Now().UnixMicro())/1e6), "me", "3000000"}

// sortedCases are locks in a sorted set. The rows are absent, mine, mine soon over, other.
var sortedCases = []scriptCase{
	{"sorted: take, or renew mine", AcquireOrExtend, "take renew renew -", lockKey, withTTL, []string{
		nowIs + `redis.call('zremrangebyscore', KEYS[1], '-inf', now)
		 if not redis.call('zscore', KEYS[1], ARGV[1]) and redis.call('zcard', KEYS[1]) > 0 then return false end
		 redis.call('zadd', KEYS[1], now + ARGV[2], ARGV[1])
		 redis.call('zadd', KEYS[1], now + ARGV[2], '__write__')
		 redis.call('pexpireat', KEYS[1], redis.call('zrevrange', KEYS[1], 0, 0, 'withscores')[2])
		 return true`,
		`local key, me, ms = KEYS[1], ARGV[1], tonumber(ARGV[2])
		 if redis.call("TYPE", key).ok == "string" then return 0 end
		 local at = redis.call("TIME")
		 local until_ = math.floor(at[1] * 1000 + at[2] / 1000) + ms
		 if redis.call("ZCOUNT", key, "-inf", "+inf") > 0 then
		   if redis.call("ZSCORE", key, me) == false then return 0 end
		 end
		 redis.call("ZADD", key, until_, me, until_, "__write__")
		 return redis.call("PEXPIREAT", key, until_)`,
		`local function now() local t = redis.call('time') return t[1] * 1000 + t[2] / 1000 end
		 local ends = now() + ARGV[2]
		 redis.call('zremrangebyscore', KEYS[1], '-inf', '(' .. string.format('%.0f', now()))
		 local all = redis.call('zrange', KEYS[1], 0, -1)
		 local mine = #all == 0
		 for _, m in ipairs(all) do if m == ARGV[1] then mine = true end end
		 if not mine then return {err = 'BUSY another has it'} end
		 redis.call('zadd', KEYS[1], ends, '__write__', ends, ARGV[1])
		 return redis.call('pexpire', KEYS[1], ARGV[2])`,
		nowIs + "\r\nlocal there = redis.call('zscore', KEYS[1], ARGV[1])\r\nif redis.call('exists', KEYS[1]) == 1 and not there then return nil end\r\n" +
			"for _, m in ipairs({ARGV[1], '__write__'}) do redis.call('ZAdd', KEYS[1], tostring(now + ARGV[2]), m) end\r\nredis.call('pexpire', KEYS[1], ARGV[2])\r\nreturn 'mine'",
	}},
	{"sorted: take, or renew mine, by the client's time", AcquireOrExtend, "take renew renew -", lockKey, timedMe, []string{
		`local now = math.floor(tonumber(ARGV[1]) * 1000)
		 redis.call('zremrangebyscore', KEYS[1], '-inf', now)
		 if redis.call('zcard', KEYS[1]) > 0 and not redis.call('zscore', KEYS[1], ARGV[2]) then return false end
		 redis.call('zadd', KEYS[1], now + ARGV[3], ARGV[2], now + ARGV[3], '__write__')
		 redis.call('pexpireat', KEYS[1], now + ARGV[3])
		 return true`,
		`local ends = math.ceil(ARGV[1] * 1000) + ARGV[3]
		 redis.call("ZREMRANGEBYSCORE", KEYS[1], "-inf", ARGV[1] * 1000)
		 if redis.call("ZCARD", KEYS[1]) == 0 or redis.call("ZSCORE", KEYS[1], ARGV[2]) then
		   redis.call("ZADD", KEYS[1], ends, ARGV[2]) redis.call("ZADD", KEYS[1], ends, "__write__")
		   redis.call("PEXPIREAT", KEYS[1], redis.call("ZRANGE", KEYS[1], -1, -1, "WITHSCORES")[2])
		   return 1
		 end
		 return 0`,
		`local function ms(s) return math.floor(s * 1000) end
		 local others = redis.call('zcount', KEYS[1], '(' .. string.format('%.0f', ms(ARGV[1])), '+inf')
		 if others > 0 and not redis.call('zscore', KEYS[1], ARGV[2]) then return 0 end
		 local at = ms(ARGV[1]) + tonumber(ARGV[3])
		 redis.call('zadd', KEYS[1], at, ARGV[2])
		 redis.call('zadd', KEYS[1], at, '__write__')
		 return redis.call('pexpireat', KEYS[1], at)`,
		"local ends = math.floor(1000 * ARGV[1] + ARGV[3]) -- of the client\r\nlocal free = redis.call('type', KEYS[1])['ok'] == 'none'\r\nif free or redis.call('zscore', KEYS[1], ARGV[2]) then\r\n" +
			"  redis.call('zadd', KEYS[1], ends, ARGV[2], ends, '__write__')\r\n  return redis.call('pexpireat', KEYS[1], ends)\r\nend\r\nreturn redis.status_reply('NO')",
	}},
	{"sorted: take", Acquire, "take - - -", lockKey, withTTL, []string{
		nowIs + `if redis.call('zcard', KEYS[1]) > 0 then return 0 end
		 redis.call('zadd', KEYS[1], now + ARGV[2], ARGV[1], now + ARGV[2], '__write__') return redis.call('pexpire', KEYS[1], ARGV[2])`,
		nowIs + `if redis.call("ZSCORE", KEYS[1], "__write__") then return false end
		 redis.call("ZADD", KEYS[1], now + ARGV[2], ARGV[1]) redis.call("ZADD", KEYS[1], now + ARGV[2], "__write__") redis.call("PEXPIREAT", KEYS[1], now + ARGV[2]) return true`,
		nowIs + `local n = redis.call('zcount', KEYS[1], '-inf', 'inf')
		 if n ~= 0 then return redis.call('pttl', KEYS[1]) end
		 redis.call('zadd', KEYS[1], now + ARGV[2], '__write__', now + ARGV[2], ARGV[1]) redis.call('pexpireat', KEYS[1], now + ARGV[2])`,
		nowIs + "\r\nlocal all = redis.call('zrevrange', KEYS[1], 0, -1)\r\nif #all > 0 then return all end\r\nredis.call('zadd', KEYS[1], now + ARGV[2], ARGV[1], now + ARGV[2], '__write__')\r\nredis.call('pexpire', KEYS[1], ARGV[2])\r\nreturn {}",
	}},
	{"sorted: extend mine", ExtendOwn, "- renew renew -", lockKey, withTTL, []string{
		nowIs + `if not redis.call('zscore', KEYS[1], ARGV[1]) then return false end
		 redis.call('zadd', KEYS[1], now + ARGV[2], ARGV[1])
		 if redis.call('zscore', KEYS[1], '__write__') then redis.call('zadd', KEYS[1], now + ARGV[2], '__write__') end
		 redis.call('pexpireat', KEYS[1], redis.call('zrevrange', KEYS[1], 0, 0, 'WITHSCORES')[2])
		 return true`,
		`if redis.call("TYPE", KEYS[1]).ok ~= "zset" then return 0 end
		 if redis.call("ZSCORE", KEYS[1], ARGV[1]) then
		   local t = redis.call("TIME") local ends = t[1] * 1000 + math.floor(t[2] / 1000) + ARGV[2]
		   redis.call("ZADD", KEYS[1], ends, ARGV[1], ends, "__write__")
		   return redis.call("PEXPIREAT", KEYS[1], ends)
		 end
		 return 0`,
		nowIs + `local s = redis.call('zscore', KEYS[1], ARGV[1])
		 if s and tonumber(s) > now - 1 then
		   redis.call('zadd', KEYS[1], now + ARGV[2], ARGV[1], now + ARGV[2], '__write__') redis.call('pexpire', KEYS[1], ARGV[2]) return 1
		 end return 0`,
		nowIs + "\r\nlocal mine = redis.call('zscore', KEYS[1], ARGV[1]) and true or false\r\nif mine then\r\n  for _, m in ipairs(redis.call('zrange', KEYS[1], 0, -1)) do redis.call('zadd', KEYS[1], now + ARGV[2], m) end\r\n  redis.call('pexpire', KEYS[1], ARGV[2])\r\nend\r\nreturn mine",
	}},
	{"sorted: release mine", ReleaseOwn, "- release release -", lockKey, onlyMe, []string{
		`if redis.call('zscore', KEYS[1], ARGV[1]) then redis.call('zrem', KEYS[1], ARGV[1]) redis.call('zrem', KEYS[1], '__write__') return true end return false`,
		`if redis.call("TYPE", KEYS[1]).ok == "string" then return 0 end
		 if not redis.call("ZSCORE", KEYS[1], ARGV[1]) then return 0 end
		 return redis.call("ZREM", KEYS[1], ARGV[1], "__write__")`,
		`local s = redis.call('zscore', KEYS[1], ARGV[1])
		 if s then redis.call('zrem', KEYS[1], '__write__', ARGV[1], 'more')
		   local last = redis.call('zrevrange', KEYS[1], 0, 0, 'WITHSCORES')[2]
		   if nil ~= last then redis.call('pexpireat', KEYS[1], last) end
		   return 'gone' end`,
		"local function mine() return redis.call('zscore', KEYS[1], ARGV[1]) end\r\nif mine() then\r\n  return redis.call('del', KEYS[1])\r\nend\r\nreturn 0",
	}},
	{"sorted: is it mine", ReadOnly, "- - - -", lockKey, onlyMe, []string{
		`if redis.call('zscore', KEYS[1], ARGV[1]) then return true end return false`,
		nowIs + `redis.call("ZREMRANGEBYSCORE", KEYS[1], "-inf", now) return redis.call("ZSCORE", KEYS[1], ARGV[1]) ~= false`,
		`if redis.call('type', KEYS[1]).ok == 'string' then return false end return redis.call('zscore', KEYS[1], ARGV[1])`,
		nowIs + "\r\nreturn redis.call('zcount', KEYS[1], now, '+inf') + redis.call('zcard', KEYS[1])",
	}},
	{"sorted: release whoever has it", ForceRelease, "- release release release", lockKey, onlyMe, []string{
		`redis.call('zremrangebyscore', KEYS[1], '-inf', '+inf') return 1`,
		`local all = redis.call("ZRANGE", KEYS[1], 0, -1) for _, m in ipairs(all) do redis.call("ZREM", KEYS[1], m) end return #all`,
		`if redis.call('zcard', KEYS[1]) == 2 then return redis.call('del', KEYS[1]) end return 0`,
		"return redis.call('zremrangebyscore', KEYS[1], '0', 'inf')",
	}},
}
