package idiom

var (
	ttlThenMe = []string{"5000", "me"}
	withLatch = []string{"lock:a", "ch:a", "latch:a:1"}

	withFenceKey = []string{"lock:a", "fence:lock:a"}
)

// hashCases are locks that can be entered again: a hash with the holder and a count. The rows are absent, mine, mine
// twice, other. The sentence 34 has several locks, see batchScripts.
var hashCases = []scriptCase{
	{"28 enter: null, or what is left", ReentrantAcquire, "enter enter enter -", lockKey, ttlThenMe, []string{
		`if redis.call('exists', KEYS[1]) == 0 then redis.call('hset', KEYS[1], ARGV[2], 1) redis.call('pexpire', KEYS[1], ARGV[1]) return nil end
		 if redis.call('hexists', KEYS[1], ARGV[2]) == 1 then redis.call('hincrby', KEYS[1], ARGV[2], 1) redis.call('pexpire', KEYS[1], ARGV[1]) return nil end
		 return redis.call('pttl', KEYS[1])`,
		`if redis.call("EXISTS", KEYS[1]) == 1 then
		   if redis.call("HEXISTS", KEYS[1], ARGV[2]) == 0 then return redis.call("PTTL", KEYS[1]) end
		 end
		 redis.call("HINCRBY", KEYS[1], ARGV[2], 1)
		 redis.call("PEXPIRE", KEYS[1], tonumber(ARGV[1]))`,
		`local function enter(k, who, ms) redis.call('hincrby', k, who, 1) redis.call('pexpire', k, ms) end
		 if redis.call('hlen', KEYS[1]) == 0 then enter(KEYS[1], ARGV[2], ARGV[1]) return nil end
		 if redis.call('hget', KEYS[1], ARGV[2]) then enter(KEYS[1], ARGV[2], ARGV[1]) return nil end
		 return redis.call('pttl', KEYS[1])`,
		"if redis.call('exists', KEYS[1]) == 0 and redis.call('hsetnx', KEYS[1], ARGV[2], 1) == 1 then\r\n  redis.call('pexpire', KEYS[1], ARGV[1])\r\n  return\r\nend\r\nif not redis.call('hget', KEYS[1], ARGV[2]) then return redis.call('pttl', KEYS[1]) end\r\nredis.call('hincrby', KEYS[1], ARGV[2], 1)\r\nredis.call('pexpire', KEYS[1], ARGV[1])\r\nreturn nil",
	}},
	{"28 enter: the fence, or what is left", ReentrantAcquire, "enter enter enter -", withFenceKey, ttlThenMe, []string{
		`if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
		   local fence = redis.call('incr', KEYS[2])
		   redis.call('hincrby', KEYS[1], ARGV[2], 1) redis.call('pexpire', KEYS[1], ARGV[1])
		   return {0, fence}
		 end
		 return {redis.call('pttl', KEYS[1])}`,
		`if redis.call("EXISTS", KEYS[1]) == 1 and redis.call("HEXISTS", KEYS[1], ARGV[2]) == 0 then return redis.call("PTTL", KEYS[1]) end
		 redis.call("HINCRBY", KEYS[1], ARGV[2], "1") redis.call("PEXPIRE", KEYS[1], ARGV[1])
		 return redis.call("INCR", "fence:" .. KEYS[1])`,
		`local function next() return redis.call('incr', KEYS[2]) end
		 if redis.call('hlen', KEYS[1]) == 1 and not redis.call('hget', KEYS[1], ARGV[2]) then return redis.call('pttl', KEYS[1]) end
		 local answer = {{}, {}, 'mine'}
		 answer[1][1] = next()
		 redis.call('hincrby', KEYS[1], ARGV[2], 1)
		 redis.call('pexpire', KEYS[1], ARGV[1])
		 answer[2] = answer[1]
		 return answer`,
		"local mine = redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1\r\nif not mine then return redis.call('pttl', KEYS[1]) end\r\nredis.call('Incr', KEYS[2]) -- for those who ask\r\nredis.call('hincrby', KEYS[1], ARGV[2], 1)\r\nredis.call('pexpire', KEYS[1], ARGV[1])\r\nreturn nil",
	}},
	{"29 enter: one condition", ReentrantAcquire, "enter enter enter -", lockKey, ttlThenMe, []string{
		`if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
		   redis.call('hincrby', KEYS[1], ARGV[2], 1); redis.call('pexpire', KEYS[1], ARGV[1]); return nil
		 end
		 return redis.call('pttl', KEYS[1])`,
		`if ((redis.call("EXISTS", KEYS[1]) == 0) or (redis.call("HEXISTS", KEYS[1], ARGV[2]) == 1)) then
		   redis.call("HINCRBY", KEYS[1], ARGV[2], "1") redis.call("PEXPIRE", KEYS[1], ARGV[1]) return nil
		 else return redis.call("PTTL", KEYS[1]) end`,
		`local mine = redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1
		 if not mine then return redis.call('pttl', KEYS[1]) end
		 redis.call('hincrby', KEYS[1], ARGV[2], 1)
		 redis.call('pexpire', KEYS[1], ARGV[1])
		 return false`,
		"local function may(k, who)\r\n  return redis.pcall('exists', k) < 1 or redis.pcall('hexists', k, who) > 0 -- free, or mine\r\nend\r\nif may(KEYS[1], ARGV[2]) then\r\n  redis.call('HIncrBy', KEYS[1], ARGV[2], 1)\r\n  redis.call('pexpire', KEYS[1], ARGV[1])\r\n  return nil\r\nend\r\nreturn redis.call('pttl', KEYS[1])",
	}},
	{"30 give one back", ReentrantRelease, "- release leave -", withChannel, ttlThenMe, []string{
		`if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return nil end
		 local left = redis.call('hincrby', KEYS[1], ARGV[2], -1)
		 if left > 0 then redis.call('pexpire', KEYS[1], ARGV[1]) return 0 end
		 redis.call('del', KEYS[1]) redis.call('publish', KEYS[2], 0)
		 return 1`,
		`if (redis.call("HEXISTS", KEYS[1], ARGV[2]) == 0) then return nil
		 else
		   if redis.call("HINCRBY", KEYS[1], ARGV[2], "-1") > 0 then redis.call("PEXPIRE", KEYS[1], ARGV[1]) return 0
		   else redis.call("DEL", KEYS[1]) redis.call("PUBLISH", KEYS[2], KEYS[1]) return 1 end
		 end`,
		`local n = redis.call('hget', KEYS[1], ARGV[2])
		 if not n then return false end
		 if tonumber(n) == 1 then redis.call('hdel', KEYS[1], ARGV[2]) redis.call('publish', 'ch:' .. KEYS[1], 'free') return 1 end
		 redis.call('hincrby', KEYS[1], ARGV[2], -1)
		 redis.call('pexpire', KEYS[1], ARGV[1])
		 return 0`,
		"local function free(k) redis.call('unlink', k) redis.call('publish', KEYS[2], 0) return 1 end\r\nif redis.call('hexists', KEYS[1], ARGV[2]) ~= 1 then return nil end\r\nlocal left = redis.pcall('hincrby', KEYS[1], ARGV[2], -1)\r\nif left <= 0 then return free(KEYS[1]) end\r\nredis.call('pexpire', KEYS[1], ARGV[1]) return 0",
	}},
	{"31 give one back, with a latch", ReentrantRelease, "- release leave -", withLatch, []string{"5000", "me", "9000"}, []string{
		`local said = redis.call('get', KEYS[3])
		 if said ~= false then return tonumber(said) end
		 if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return nil end
		 local left = redis.call('hincrby', KEYS[1], ARGV[2], -1)
		 if left > 0 then
		   redis.call('pexpire', KEYS[1], ARGV[1]) redis.call('set', KEYS[3], 0, 'px', ARGV[3]) return 0
		 end
		 redis.call('del', KEYS[1]) redis.call('publish', KEYS[2], 0) redis.call('set', KEYS[3], 1, 'px', ARGV[3])
		 return 1`,
		`local said = redis.call("GET", KEYS[3])
		 if said then return said + 0 end
		 local function done(n) redis.call("PSETEX", KEYS[3], ARGV[3], n) return n end
		 if not redis.call("HGET", KEYS[1], ARGV[2]) then return nil end
		 if redis.call("HINCRBY", KEYS[1], ARGV[2], "-1") > 0 then redis.call("PEXPIRE", KEYS[1], ARGV[1]) return done(0) end
		 redis.call("UNLINK", KEYS[1]) redis.call("PUBLISH", KEYS[2], "free")
		 return done(1)`,
		`local n = redis.call('hget', KEYS[1], ARGV[2])
		 local first = redis.call('get', KEYS[3])
		 if first then return first end
		 if not n then return false end
		 local reply = 'held'
		 if n == '1' then redis.call('hdel', KEYS[1], ARGV[2]) reply = 'free' else redis.call('hincrby', KEYS[1], ARGV[2], -1) end
		 redis.call('set', KEYS[3], reply, 'EX', 9, 'NX')
		 return reply`,
		"local function keep(n) redis.pcall('Set', KEYS[3], n, 'Ex', math.ceil(ARGV[3] / 1000)) return n end\r\nlocal before = redis.pcall('get', KEYS[3]) -- of this request\r\nif before ~= false then\r\n  return tonumber(before)\r\nend\r\nif redis.call('hexists', KEYS[1], ARGV[2]) < 1 then return nil end\r\nlocal left = redis.call('hincrby', KEYS[1], ARGV[2], tostring(-1))\r\nif left < 1 then redis.call('del', KEYS[1]) return keep(1) end\r\nredis.call('pexpire', KEYS[1], ARGV[1])\r\nreturn keep(0)",
	}},
	{"31 give all back, with a latch", ReleaseOwn, "- release release -", withLatch, ttlThenMe, []string{
		`local said = redis.call('get', KEYS[3]) if said ~= false then return tonumber(said) end
		 if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return nil end
		 redis.call('del', KEYS[1]) redis.call('set', KEYS[3], 1, 'PX', ARGV[1]) return 1`,
		`if not redis.call("HGET", KEYS[1], ARGV[2]) then return redis.call("GET", KEYS[3]) end
		 if redis.call("GET", KEYS[3]) then return "free" end
		 redis.call("SETEX", KEYS[3], 10, "free") redis.call("HDEL", KEYS[1], ARGV[2]) return "free"`,
		`local said = redis.call('get', KEYS[3])
		 if not said and redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
		   said = redis.call('unlink', KEYS[1]) redis.call('set', KEYS[3], said, 'PX', 5000)
		 end
		 return said and tonumber(said) or 0`,
		"local said = redis.call('get', KEYS[3])\r\nif said then return said end\r\nif redis.call('hstrlen', KEYS[1], ARGV[2]) == 0 then return nil end\r\nredis.call('set', KEYS[3], KEYS[1], 'ex', 5)\r\nredis.call('del', KEYS[1])\r\nreturn KEYS[1]",
	}},
	{"32 give one back: absent counts as free", ReentrantRelease, "- release leave -", withChannel, ttlThenMe, []string{
		`if redis.call('exists', KEYS[1]) == 0 then redis.call('publish', KEYS[2], 0) return 1 end
		 if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return nil end
		 if redis.call('hincrby', KEYS[1], ARGV[2], -1) > 0 then redis.call('pexpire', KEYS[1], ARGV[1]) return 0 end
		 redis.call('del', KEYS[1]) redis.call('publish', KEYS[2], 0) return 1`,
		`if redis.call("EXISTS", KEYS[1]) == 0 then return 1 end
		 local n = redis.call("HGET", KEYS[1], ARGV[2])
		 if n == false then return nil elseif n == "1" then return redis.call("DEL", KEYS[1]) end
		 redis.call("HINCRBY", KEYS[1], ARGV[2], -1)
		 return 0`,
		`local n = redis.call('hget', KEYS[1], ARGV[2])
		 if not n then if redis.call('hlen', KEYS[1]) == 0 then return 1 end return nil end
		 if n - 1 > 0 then redis.call('hincrby', KEYS[1], ARGV[2], -1) return 0 end
		 redis.call('del', KEYS[1])
		 return 1`,
		"local there = redis.pcall('exists', KEYS[1])\r\nif there ~= 1 then return 1 end\r\nif redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return nil end\r\nlocal left = redis.call('HINCRBY', KEYS[1], ARGV[2], tostring(-1))\r\nif left < 1 then redis.call('unlink', KEYS[1]) return 1 else return 0 end",
	}},
	{"30 give one back, of a hash only", ReentrantRelease, "- release leave -", lockKey, ttlThenMe, []string{
		`if redis.call('type', KEYS[1]).ok ~= 'hash' or redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return nil end
		 if redis.call('hincrby', KEYS[1], ARGV[2], -1) > 0 then redis.call('pexpire', KEYS[1], ARGV[1]) return 0 end
		 redis.call('del', KEYS[1]) return 1`,
		`local kind = redis.call("TYPE", KEYS[1])["ok"]
		 if kind ~= "hash" then return false end
		 local n = redis.call("HGET", KEYS[1], ARGV[2])
		 if n == "1" then return redis.call("DEL", KEYS[1]) end
		 if n then redis.call("HINCRBY", KEYS[1], ARGV[2], -1) return 0 end
		 return false`,
		`local n = redis.pcall('hget', KEYS[1], ARGV[2])
		 if type(n) ~= 'string' then return nil end
		 if tonumber(n) > 1 then redis.call('hincrby', KEYS[1], ARGV[2], -1) return 0 end
		 return redis.call('hdel', KEYS[1], ARGV[2])`,
		"local function mine(k, who) return redis.call('type', k).ok == 'hash' and redis.call('hstrlen', k, who) > 0 end\r\nif not mine(KEYS[1], ARGV[2]) then return nil end\r\nlocal left = redis.call('hincrby', KEYS[1], ARGV[2], -1)\r\nif left == 0 then redis.call('unlink', KEYS[1]) end\r\nreturn left == 0 and 1 or 0",
	}},
	{"33 expire mine", ReentrantExtend, "- renew renew -", lockKey, ttlThenMe, []string{
		`if redis.call('hexists', KEYS[1], ARGV[2]) == 1 then return redis.call('pexpire', KEYS[1], ARGV[1]) end return 0`,
		`if (redis.call("HEXISTS", KEYS[1], ARGV[2]) == 1) then redis.call("PEXPIRE", KEYS[1], ARGV[1]) return 1 else return 0 end`,
		`local mine = redis.call('hget', KEYS[1], ARGV[2])
		 return mine and redis.call('pexpire', KEYS[1], tonumber(ARGV[1])) or 0`,
		"local function mine(k, who) return redis.call('hstrlen', k, who) > 0 end\r\nif not mine(KEYS[1], ARGV[2]) then return 0 end\r\nreturn redis.pcall('PExpire', KEYS[1], ARGV[1])",
	}},
	{"35 delete the hash", ForceRelease, "- release release release", withChannel, nil, []string{
		`if redis.call('hlen', KEYS[1]) == 0 then return 0 end redis.call('del', KEYS[1]) redis.call('publish', KEYS[2], 0) return 1`,
		`local n = redis.call("HLEN", KEYS[1])
		 if n > 0 then redis.call("DEL", KEYS[1]) redis.call("PUBLISH", KEYS[2], KEYS[1]) end
		 return n > 0 and 1 or 0`,
		`local fields = redis.call('hkeys', KEYS[1])
		 if #fields == 0 then return 0 end
		 redis.call('publish', 'ch:' .. KEYS[1], fields[1])
		 return redis.call('unlink', KEYS[1])`,
		"local all = redis.call('hgetall', KEYS[1])\r\nif not all[1] then return 0 end\r\nlocal gone = redis.pcall('DEL', KEYS[1])\r\nredis.call('publish', KEYS[2], tostring(all[2]))\r\nreturn gone",
	}},
	{"36 count of a field", ReadOnly, "- - - -", lockKey, onlyMe, []string{
		`return redis.call('hget', KEYS[1], ARGV[1])`,
		`local n = redis.call("HGET", KEYS[1], ARGV[1]) if n then return tonumber(n) else return 0 end`,
		`return tonumber(redis.call('hget', KEYS[1], ARGV[1]) or '0')`,
		"local function count(k, who)\r\n  if redis.call('hexists', k, who) == 0 then return nil end\r\n  return redis.call('hvals', k)[1]\r\nend\r\nreturn count(KEYS[1], ARGV[1])",
	}},
}
