package idiom

// refusedCases are not to be run on a lock: not in one state, or by no class that as=usual allows.
var refusedCases = []scriptCase{
	{name: "31 a latch of another kind", keys: []string{"lock:a", "ch:a", "latch:a"}, args: ttlThenMe, texts: []string{
		`if redis.call("EXISTS", KEYS[3]) == 1 then return 1 end redis.call("DEL", KEYS[1]) redis.call("PSETEX", KEYS[3], 10000, 1) return 1`,
		`local function done() return redis.call('get', KEYS[3]) end if done() then return 1 end return redis.call('del', KEYS[1])`,
		"redis.call('del', KEYS[1])\r\nredis.call('set', KEYS[3], 'done')\r\nreturn 1",
	}},
	{name: "37 two locks", keys: []string{"lock:a", "lock:b"}, args: onlyMe, texts: []string{
		`redis.call('set', KEYS[1], ARGV[1], 'NX') return redis.call('set', KEYS[2], ARGV[1], 'NX')`,
		`for _, k in ipairs(KEYS) do if redis.call('get', k) == ARGV[1] then redis.call('pexpire', k, 5000) end end return 1`,
		`local all = {} for i = 1, #KEYS do all[i] = redis.call('hexists', KEYS[i], ARGV[1]) end return all`,
		"return redis.call('DEL', KEYS[1], KEYS[2])",
		"if redis.call('exists', KEYS[1]) == 0 then\r\n  redis.call('set', KEYS[1], ARGV[1], 'PX', 5000)\r\n  redis.call('del', KEYS[2])\r\nend\r\nreturn 1",
	}},
	{name: "38 a second field", keys: lockKey, args: onlyMe, texts: []string{
		`redis.call('hset', KEYS[1], 'mode', 1) redis.call('hset', KEYS[1], ARGV[1], 1) return 1`,
		`redis.call("HSET", KEYS[1], "mode", "1", ARGV[1], "1") return 1`,
		`redis.call('hincrby', KEYS[1], ARGV[1], 1) return redis.call('hincrby', KEYS[1], ARGV[1] .. ':w', 1)`,
		"for _, f in ipairs({'mode', ARGV[1]}) do\r\n  redis.call('hsetnx', KEYS[1], f, 1)\r\nend\r\nreturn 1",
	}},
	{name: "39 INCR beside it", keys: []string{"lock:a", "n"}, args: onlyMe, texts: []string{
		`if redis.call('set', KEYS[1], ARGV[1], 'NX') then return redis.call('incr', KEYS[2]) end return 0`,
		`if redis.call("SET", KEYS[1], ARGV[1], "NX", "PX", 5000) then redis.call("INCRBY", KEYS[2], 1) return 1 else return 0 end`,
		`local fence = redis.call('incr', 'fence:' .. KEYS[1]) return redis.call('set', KEYS[1], fence, 'NX', 'PX', 5000)`,
		"local ok = redis.pcall('set', KEYS[1], ARGV[1], 'nx', 'px', 5000)\r\nif ok then redis.pcall('incr', KEYS[2]) end\r\nreturn ok",
	}},
	{name: "40 a sorted set of times in seconds", keys: lockKey, args: onlyMe, texts: []string{
		`return redis.call('zadd', KEYS[1], redis.call('time')[1], ARGV[1])`,
		`local t = redis.call("TIME") redis.call("ZADD", KEYS[1], t[1] + 5, ARGV[1], t[1] + 5, "__write__") redis.call("EXPIREAT", KEYS[1], t[1] + 5) return redis.call("ZCARD", KEYS[1])`,
		`if redis.call('zcard', KEYS[1]) == 0 then redis.call('zadd', KEYS[1], 1, ARGV[1]) return 1 end return 0`,
		"local t = redis.call('TIME')\r\nlocal now = t[1] + t[2] / 1000000\r\nif redis.call('zcount', KEYS[1], now, '+inf') == 0 then redis.call('zadd', KEYS[1], now + 5, ARGV[1]) return 1 end\r\nreturn 0",
	}},
	{name: "a read lock in a sorted set", keys: lockKey, args: withTTL, texts: []string{
		nowIs + `if redis.call('zscore', KEYS[1], '__write__') then return false end
		 redis.call('zadd', KEYS[1], now + ARGV[2], ARGV[1]) redis.call('pexpireat', KEYS[1], now + ARGV[2]) return true`,
		nowIs + `redis.call("ZREMRANGEBYSCORE", KEYS[1], "-inf", now)
		 if not redis.call("ZSCORE", KEYS[1], ARGV[1]) and redis.call("ZCARD", KEYS[1]) > 0 and redis.call("ZSCORE", KEYS[1], "__write__") then return 0 end
		 redis.call("ZADD", KEYS[1], now + ARGV[2], ARGV[1]) redis.call("ZREM", KEYS[1], "__write__") redis.call("PEXPIRE", KEYS[1], ARGV[2]) return 1`,
		nowIs + `if redis.call('zcard', KEYS[1]) == 0 then redis.call('zadd', KEYS[1], now + ARGV[2], ARGV[1]) redis.call('pexpireat', KEYS[1], now + ARGV[2]) return 1 end return 0`,
		nowIs + `redis.call('zadd', KEYS[1], now + ARGV[2], ARGV[1], now + ARGV[2], '__write__') redis.call('pexpireat', KEYS[1], now + ARGV[2]) return 1`,
		`if redis.call('zscore', KEYS[1], ARGV[1]) then return redis.call('zrem', KEYS[1], '__write__') end return 0`,
	}},
	{name: "several permits", keys: lockKey, args: []string{"3", "me", "5000", nowMS}, texts: []string{
		`if redis.call('zcard', KEYS[1]) + 2 <= tonumber(ARGV[1]) then
		   redis.call('zadd', KEYS[1], ARGV[4], ARGV[2] .. '_0', ARGV[4], ARGV[2] .. '_1') redis.call('pexpire', KEYS[1], ARGV[3]) return 1
		 end return 0`,
	}},
	{name: "permits without a limit", keys: lockKey, args: []string{"3", "me", "5000", nowMS}, texts: []string{
		`redis.call('zadd', KEYS[1], ARGV[4], ARGV[2]) redis.call('pexpire', KEYS[1], ARGV[3]) return redis.call('zcard', KEYS[1])`,
	}},
	{name: "permits without an end", keys: lockKey, args: []string{"3", "me", "5000", nowMS}, texts: []string{
		`if redis.call('zcard', KEYS[1]) < tonumber(ARGV[1]) then redis.call('zadd', KEYS[1], ARGV[4], ARGV[2]) return 1 end return 0`,
	}},
	{name: "permits in the order of their times", keys: lockKey, args: []string{"3", "me", "5000", nowMS}, texts: []string{
		`redis.call('zadd', KEYS[1], ARGV[4], ARGV[2]) redis.call('pexpire', KEYS[1], ARGV[3])
		 if redis.call('zrank', KEYS[1], ARGV[2]) < tonumber(ARGV[1]) then return 1 end redis.call('zrem', KEYS[1], ARGV[2]) return 0`,
		`local first = redis.call('zrange', KEYS[1], 0, 0, 'withscores')
		 if not first[1] or tonumber(first[2]) < tonumber(ARGV[4]) then redis.call('zadd', KEYS[1], ARGV[4], ARGV[2]) redis.call('pexpire', KEYS[1], ARGV[3]) return 1 end return 0`,
		`if redis.call('zcount', KEYS[1], ARGV[4] - ARGV[3], '+inf') < tonumber(ARGV[1]) then redis.call('zadd', KEYS[1], ARGV[4], ARGV[2]) redis.call('pexpire', KEYS[1], ARGV[3]) return 1 end return 0`,
		`if tonumber(redis.call('zscore', KEYS[1], ARGV[2]) or 0) > ARGV[4] - ARGV[3] then return redis.call('zrem', KEYS[1], ARGV[2]) end return 0`,
	}},
	{name: "somebody's permit", keys: lockKey, args: []string{"3", "me", "5000", nowMS}, texts: []string{
		`local all = redis.call('zrange', KEYS[1], 0, 0) if all[1] then return redis.call('zrem', KEYS[1], all[1]) end return 0`,
	}},
	{name: "a sorted set whose end is not its scores'", keys: lockKey, args: withTTL, texts: []string{
		nowIs + `if redis.call('zcard', KEYS[1]) > 0 then return 0 end return redis.call('zadd', KEYS[1], now + ARGV[2], ARGV[1], now + ARGV[2], '__write__')`,
		nowIs + `if redis.call('exists', KEYS[1]) == 1 then return 0 end redis.call('zadd', KEYS[1], now + ARGV[2], ARGV[1], now + ARGV[2], '__write__') return redis.call('pexpire', KEYS[1], ARGV[2] - 1000)`,
		nowIs + `if redis.call('exists', KEYS[1]) == 1 then return 0 end redis.call('zadd', KEYS[1], now + ARGV[2], ARGV[1], now + 3000, '__write__') return redis.call('pexpire', KEYS[1], ARGV[2])`,
		nowIs + `if redis.call('zscore', KEYS[1], ARGV[1]) then redis.call('zadd', KEYS[1], now + ARGV[2], ARGV[1]) return redis.call('pexpireat', KEYS[1], now + ARGV[2]) end return 0`,
		nowIs + `if redis.call('zscore', KEYS[1], ARGV[1]) then return redis.call('zadd', KEYS[1], now + ARGV[2], ARGV[1], now + ARGV[2], '__write__') end return 0`,
	}},
	{name: "a sorted set that is over when it is made", keys: lockKey, args: withTTL, texts: []string{
		nowIs + `redis.call('zadd', KEYS[1], now, ARGV[1], now, '__write__') redis.call('pexpireat', KEYS[1], now) return 1`,
		nowIs + `if redis.call('zcard', KEYS[1]) == 0 then redis.call("ZADD", KEYS[1], now - 10, ARGV[1]) redis.call("ZADD", KEYS[1], now - 10, "__write__") redis.call("PEXPIREAT", KEYS[1], now - 10) end return true`,
		nowIs + `if redis.call('zcard', KEYS[1]) == 0 then redis.call('zadd', KEYS[1], '+inf', ARGV[1], '+inf', '__write__') end return 1`,
	}},
	{name: "a sorted set that is another's", keys: lockKey, args: withTTL, texts: []string{
		nowIs + `redis.call('zremrangebyscore', KEYS[1], '-inf', '+inf') redis.call('zadd', KEYS[1], now + ARGV[2], ARGV[1], now + ARGV[2], '__write__') return redis.call('pexpireat', KEYS[1], now + ARGV[2])`,
		nowIs + `redis.call("DEL", KEYS[1]) redis.call("ZADD", KEYS[1], now + ARGV[2], ARGV[1], now + ARGV[2], "__write__") return redis.call("PEXPIREAT", KEYS[1], now + ARGV[2])`,
		nowIs + `for _, m in ipairs(redis.call('zrange', KEYS[1], 0, -1)) do if m ~= '__write__' then redis.call('zrem', KEYS[1], m) end end
		 redis.call('zadd', KEYS[1], now + ARGV[2], ARGV[1], now + ARGV[2], '__write__') redis.call('pexpire', KEYS[1], ARGV[2]) return 1`,
	}},
	{name: "41 an endless loop", keys: lockKey, args: onlyMe, texts: []string{
		`while true do redis.call('get', KEYS[1]) end`,
		`local i = 0 repeat i = i + 1 until false return redis.call('get', KEYS[1])`,
		`for i = 1, 1000000 do local x = i end return redis.call('del', KEYS[1])`,
		`local function again(n) return again(n + 1) end return again(redis.call('exists', KEYS[1]))`,
		"while redis.call('get', KEYS[1]) ~= ARGV[1] do\r\n  local wait = 1\r\nend\r\nreturn redis.call('del', KEYS[1])",
	}},
	{name: "42 a long string", keys: lockKey, args: onlyMe, texts: []string{
		`local s = 'xxxxxxxxxx' for i = 1, 17 do s = s .. s end return redis.call('set', KEYS[1], s, 'NX')`,
		`local s = ARGV[1] while #s < 1000000 do s = s .. s end return redis.call("SET", KEYS[1], s, "NX", "PX", 5000)`,
		`local s = ARGV[1] for i = 1, 20 do s = string.format('%s%s', s, s) end return redis.call('get', KEYS[1]) == s`,
		"local s = ARGV[1]\r\nrepeat s = s .. s until s:len() >= 1000000\r\nreturn redis.call('get', KEYS[1])",
		`local s = '0123456789' for i = 1, 7 do s = s .. s end return redis.call('set', KEYS[1], s, 'NX', 'PX', 5000)`,
	}},
	{name: "43 another key from ARGV is written", keys: lockKey, args: []string{"me", "plain:c", "lock:c"}, texts: []string{
		`redis.call('set', ARGV[2], ARGV[1]) return redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', 5000)`,
		`if redis.call("SET", KEYS[1], ARGV[1], "NX", "PX", 5000) then redis.call("HSET", ARGV[2], "at", 1) return 1 end return 0`,
		`local note = ARGV[2] redis.call('append', note, 'x') return redis.call('get', KEYS[1])`,
		"if redis.call('get', KEYS[1]) == ARGV[1] then\r\n  redis.call('del', KEYS[1])\r\n  redis.call('del', ARGV[3])\r\n  return 1\r\nend\r\nreturn 0",
	}},
	{name: "44 a computed key", keys: lockKey, args: onlyMe, texts: []string{
		`return redis.call('set', KEYS[1] .. ':x', ARGV[1], 'NX', 'PX', 5000)`,
		`local key = "lock:" .. ARGV[1] if redis.call("GET", key) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0`,
		`local function key(n) return 'lock:' .. n end
		 if redis.call('exists', key(2)) == 1 then return 0 end
		 return redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', 5000)`,
		"local k = string.format('%s:%s', KEYS[1], 'w')\r\nif redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', k) return redis.call('del', KEYS[1]) end\r\nreturn 0",
	}},
	{name: "45 cjson", keys: lockKey, args: onlyMe, texts: []string{
		`return redis.call('set', KEYS[1], cjson.encode(ARGV), 'NX')`,
		`local v = redis.call("GET", KEYS[1]) if v and cjson.decode(v).owner == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0`,
		`local pack = cmsgpack.pack return redis.call('set', KEYS[1], pack({ARGV[1]}), 'NX', 'PX', 5000)`,
		"local ok, v = pcall(cjson.decode, redis.call('get', KEYS[1]))\r\nreturn ok and v or 0",
		`return redis.call('set', KEYS[1], redis.sha1hex(ARGV[1]), 'NX', 'PX', 5000)`,
	}},
	{name: "46 a write in EVAL_RO", keys: lockKey, args: onlyMe, texts: []string{
		"#!lua flags=no-writes\nreturn redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', 5000)",
		"#!lua name=x flags=allow-stale,no-writes\nif redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0",
		"#!lua flags=no-writes\r\nreturn redis.call('PEXPIRE', KEYS[1], 5000)",
		"#!lua flags=no-writes\nlocal v = redis.call('get', KEYS[1]) redis.call('publish', 'ch:a', 1) return v",
	}},
	{name: "47 a lock is stolen", keys: lockKey, args: withTTL, texts: []string{
		`return redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2])`,
		`redis.call("DEL", KEYS[1]) return redis.call("SET", KEYS[1], ARGV[1], "NX", "PX", ARGV[2])`,
		`if redis.call('pttl', KEYS[1]) < 10000 then redis.call('psetex', KEYS[1], ARGV[2], ARGV[1]) return 1 end return 0`,
		"local was = redis.call('getset', KEYS[1], ARGV[1])\r\nredis.call('pexpire', KEYS[1], ARGV[2])\r\nreturn was",
		`local v = redis.call('get', KEYS[1]) if v and v ~= ARGV[1] then return redis.call('set', KEYS[1], ARGV[1], 'XX', 'PX', ARGV[2]) end return 0`,
	}},
	{name: "48 an error is raised in one state", keys: lockKey, args: onlyMe, texts: []string{
		`local v = redis.call('get', KEYS[1]) if v and v ~= ARGV[1] then error('taken') end return redis.call('del', KEYS[1])`,
		`if redis.call("GET", KEYS[1]) ~= ARGV[1] then error({err = "NOTMINE"}) end return redis.call("DEL", KEYS[1])`,
		`local v = redis.call('get', KEYS[1]) if #v == 2 and v == ARGV[1] then return redis.call('del', KEYS[1]) end return 0`,
		"local v = redis.call('get', KEYS[1])\r\nif ('x' .. v) == 'x' .. ARGV[1] then return redis.call('del', KEYS[1]) end\r\nreturn 0",
		`if redis.call('exists', KEYS[1]) == 0 then return redis.call('expire', KEYS[1], 'x') end return redis.call('del', KEYS[1])`,
	}},
	{name: "49 a count by two", keys: lockKey, args: onlyMe, texts: []string{
		`redis.call('hincrby', KEYS[1], ARGV[1], 2) return 1`,
		`redis.call('hincrby', KEYS[1], ARGV[1], 1) redis.call('hincrby', KEYS[1], ARGV[1], 1) return 1`,
		`for i = 1, 2 do redis.call("HINCRBY", KEYS[1], ARGV[1], "1") end return 1`,
		"local n = redis.call('hget', KEYS[1], ARGV[1]) or 0\r\nredis.call('hset', KEYS[1], ARGV[1], n + 2)\r\nreturn 1",
	}},
	{name: "50 a latch of something else", keys: []string{"lock:a", "latch:a"}, args: onlyMe, texts: []string{
		`if redis.call('get', KEYS[2]) then return 1 end redis.call('del', KEYS[1]) redis.call('set', KEYS[2], 'x') return 1`,
		`local was = redis.call("GET", KEYS[2]) if was then return was end redis.call("DEL", KEYS[1]) redis.call("SET", KEYS[2], 0, "PX", 1000) return 1`,
		`redis.call('del', KEYS[1]) redis.call('setex', KEYS[2], 10, tostring(2)) return 1`,
		"local n = redis.call('del', KEYS[1])\r\nif redis.call('setnx', KEYS[2], n + 1) == 1 then return n end\r\nreturn 0",
	}},
	{name: "50 a latch of a hash that stores something else", keys: withLatch, args: []string{"5000", "me", "9000"}, texts: []string{
		giveBack(`return tonumber(first)`, `redis.call('set', KEYS[3], 5, 'px', ARGV[3])`),
		giveBack(`return tonumber(first)`, `redis.call('set', KEYS[3], 'x', 'px', ARGV[3])`),
		giveBack(`return 1`, `redis.call('set', KEYS[3], 1 - left, 'px', ARGV[3])`),
		giveBack(`return tonumber(first) + 1`, `redis.call('set', KEYS[3], left < 1 and 1 or 0, 'px', ARGV[3])`),
		giveBack(`return first`, `redis.call('set', KEYS[3], left < 1 and 1 or 0, 'px', ARGV[3])`),
		giveBack(`redis.call('publish', 'ch:a', 1) return tonumber(first)`, `redis.call('set', KEYS[3], left < 1 and 1 or 0, 'px', ARGV[3])`),
	}},
	{name: "a key that is read beside the lock, and is no latch", keys: withLatch, args: []string{"5000", "me", "9000"}, texts: []string{
		giveBack(`return tonumber(first)`, ``),
		giveBack(`return tonumber(first)`, `if left == 0 then redis.call('set', KEYS[3], 1, 'px', ARGV[3]) end`),
		giveBack(`return tonumber(first)`, `redis.call('set', KEYS[3], left < 1 and 1 or 0)`),
		giveBack(`return tonumber(first)`, `redis.call('set', KEYS[3], left < 1 and 1 or 0, 'px', 0)`),
		giveBack(`return tonumber(first)`, `redis.call('set', KEYS[3], left < 1 and 1 or 0, 'xx', 'px', ARGV[3])`),
		giveBack(`return tonumber(first)`, `redis.call('set', KEYS[3], left < 1 and 1 or 0, 'px', ARGV[3]) redis.call('del', KEYS[3])`),
		giveBack(`return tonumber(first)`, `redis.call('set', KEYS[2], left < 1 and 1 or 0, 'px', ARGV[3])`),
		giveBack(`return tonumber(first)`, `redis.call('get', KEYS[2]) redis.call('set', KEYS[3], left < 1 and 1 or 0, 'px', ARGV[3])`),
		`if redis.call('get', KEYS[3]) then return nil end return redis.call('hget', KEYS[1], ARGV[2])`,
		`if redis.call('get', KEYS[3]) then return 0 end return redis.call('set', KEYS[1], ARGV[2], 'NX', 'PX', ARGV[1])`,
		`local first = redis.call('get', KEYS[3]) if first then return tonumber(first) end
		 if redis.call('get', KEYS[1]) ~= ARGV[2] then return nil end
		 redis.call('del', KEYS[1]) redis.call('set', KEYS[3], 1, 'px', ARGV[3]) return 1`,
		`local first = redis.call('get', KEYS[3]) if first then return tonumber(first) end
		 if redis.call('hlen', KEYS[1]) == 0 then return 0 end
		 redis.call('del', KEYS[1]) redis.call('set', KEYS[3], 1, 'px', ARGV[3]) return 1`,
		`local first = redis.call('get', KEYS[3]) if first then return tonumber(first) end
		 redis.call('set', KEYS[3], 1, 'px', ARGV[3])
		 if redis.call('hexists', KEYS[1], ARGV[2]) == 1 then redis.call('del', KEYS[1]) end return 1`,
	}},
	{name: "a fence that is looked at", keys: withFenceKey, args: onlyMe, texts: []string{
		enterWith(`if redis.call('incr', KEYS[2]) > 5 then return 0 end`, `return 1`),
		enterWith(`local n = redis.call('incr', KEYS[2])`, `return n + 0`),
		enterWith(`local n = redis.call('incr', KEYS[2])`, `return tostring(n)`),
		enterWith(`local n = redis.call('incr', KEYS[2])`, `redis.call('publish', 'ch', n) return n`),
		enterWith(`local n = redis.call('incr', KEYS[2])`, `return 'n' .. n`),
		enterWith(`local n = redis.call('incr', KEYS[2])`, `if n then return n end`),
		enterWith(`local n = redis.call('incr', KEYS[2]) local t = {} t[n] = 1`, `return 1`),
		enterWith(`local n = redis.call('incr', KEYS[2])`, `return n == 1`),
	}},
	{name: "a fence is not that of the grant", keys: withFenceKey, args: onlyMe, texts: []string{
		`return redis.call('incr', KEYS[2])`,
		`local n = redis.call('incr', KEYS[2]) if redis.call('exists', KEYS[1]) == 1 then return 0 end
		 redis.call('hincrby', KEYS[1], ARGV[1], 1) redis.call('pexpire', KEYS[1], 5000) return n`,
		`if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', 5000) then return redis.call('incr', KEYS[2]) end return 0`,
		`if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('incr', KEYS[2]) return redis.call('del', KEYS[1]) end return 0`,
		enterWith(`redis.call('incr', KEYS[2]) redis.call('incr', KEYS[2])`, `return 1`),
		enterWith(`redis.call('incrby', KEYS[2], 1)`, `return 1`),
		enterWith(`redis.call('set', KEYS[2], 1)`, `return 1`),
		enterWith(`redis.call('pexpire', KEYS[2], 5000)`, `return 1`),
		enterWith(`redis.call('del', 'other', KEYS[2])`, `return 1`),
		enterWith(`redis.call('incr', 'fence:lock:b')`, `return 1`),
		enterWith(``, `return redis.call('get', KEYS[2])`),
	}},
	{name: "a hash in place of a lock", keys: lockKey, args: onlyMe, texts: []string{
		`redis.call('del', KEYS[1]) return redis.call('hincrby', KEYS[1], ARGV[1], 1)`,
		`if redis.call('hdel', KEYS[1], ARGV[1]) == 1 then redis.call('hset', KEYS[1], ARGV[1], 1) end return 1`}},
	{name: "a semaphore's permits are set", keys: []string{"lock:a", "ch:a"}, args: []string{"3", "PUBLISH", "60000"}, texts: []string{
		`if redis.call('get', KEYS[1]) == false then redis.call('set', KEYS[1], ARGV[1]) redis.call(ARGV[2], KEYS[2], ARGV[1]) return 1 end return 0`,
		`local there = redis.call("GET", KEYS[1]) if there then return 0 end
		 redis.call("SET", KEYS[1], ARGV[1], "PX", ARGV[3]) redis.call("SPUBLISH", KEYS[2], ARGV[1]) return 1`,
		`if redis.call('setnx', KEYS[1], ARGV[1]) == 0 then return 0 end
		 for i = 1, tonumber(ARGV[1]) do redis.call('rpush', KEYS[2], i) end return 1`,
		`redis.call('publish', 'ch:a', 'more') return redis.call('set', KEYS[1], tonumber(ARGV[1]), 'NX', 'PX', ARGV[3])`,
		"local n = redis.call('get', KEYS[1]) or 0\r\nif n ~= 0 then return 0 end\r\nredis.call('set', KEYS[1], n + ARGV[1])\r\nredis.call('lpush', KEYS[2], 1)\r\nreturn 1",
	}},
	{name: "a count to be counted down is set", keys: []string{"lock:a", "ch:a"}, args: []string{"1", "-7", "PUBLISH"}, texts: []string{
		`if redis.call('exists', KEYS[1]) == 0 then redis.call('set', KEYS[1], ARGV[2]) redis.call(ARGV[3], KEYS[2], ARGV[1]) return 1 else return 0 end`,
		`if redis.call("EXISTS", KEYS[1]) ~= 0 then return 0 end
		 redis.call(ARGV[3], "ch:" .. KEYS[1], ARGV[1]) redis.call("SET", KEYS[1], ARGV[2]) return 1`,
		`local n = redis.call('setnx', KEYS[1], ARGV[2]) if n == 1 then redis.pcall(ARGV[3], KEYS[2], ARGV[1]) end return n`,
		"local ok = redis.call('set', KEYS[1], ARGV[2], 'nx')\r\nif ok then redis.call('publish', KEYS[2], 0) end\r\nreturn ok and 1 or 0",
	}},
	{name: "a count is changed", keys: lockKey, args: []string{"1"}, texts: []string{
		`return redis.call('incr', KEYS[1])`,
		`if tonumber(redis.call('get', KEYS[1]) or 0) >= tonumber(ARGV[1]) then redis.call('decrby', KEYS[1], ARGV[1]) return 1 end return 0`,
		`local n = redis.call("DECR", KEYS[1]) if n <= 0 then redis.call("DEL", KEYS[1]) end return n`,
		"local n = redis.call('incrby', KEYS[1], ARGV[1])\r\nredis.call('publish', 'ch:a', n)\r\nreturn n",
	}},
	{name: "a global variable", keys: lockKey, args: onlyMe, texts: []string{
		`v = redis.call('get', KEYS[1]) return v`, `return redis.call('get', key)`,
		`local f = function() return later end local later = redis.call('get', KEYS[1]) return f()`}},
	{name: "what a signal answers", keys: []string{"lock:a", "ch:a"}, args: onlyMe, texts: []string{
		`return redis.call('publish', KEYS[2], redis.call('del', KEYS[1]))`,
		`if redis.call('publish', KEYS[2], 1) > 0 then return redis.call('del', KEYS[1]) end return 0`,
		`local t = {} t[redis.call('lpush', KEYS[2], 1)] = 1 return redis.call('del', KEYS[1])`}},
	{name: "no Lua", keys: lockKey, texts: []string{`return redis.call(`, `if x`, `return 3..2`}},
}

// enterWith is a script that enters a hash, with something before and behind.
func enterWith(before, behind string) string {
	return `if redis.call('exists', KEYS[1]) == 1 and redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return 0 end
		` + before + ` redis.call('hincrby', KEYS[1], ARGV[1], 1) redis.call('pexpire', KEYS[1], 5000) ` + behind
}

// giveBack is a script that gives back one of the holds of a hash, and returns 1 for the last, else 0, unless it has
// found a latch.
func giveBack(found, set string) string {
	return `local first = redis.call('get', KEYS[3]) if first then ` + found + ` end
		if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return nil end
		local left = redis.call('hincrby', KEYS[1], ARGV[2], -1)
		if left == 0 then redis.call('del', KEYS[1]) end ` + set + `
		if left == 0 then return 1 else return 0 end`
}
