package idiom

// A read/write lock in a hash, as in readers.go: me is a thread, its holds as a reader have keys beside the lock.
var (
	readKeys    = []string{"lock:a", "{lock:a}:me" + holdSuffix}
	readArgs    = []string{"5000", "me", "me:write"}
	unreadKeys  = []string{"lock:a", "ch:a", "{lock:a}:me" + holdSuffix, "{lock:a}"}
	unreadLatch = []string{"lock:a", "ch:a", "{lock:a}:me" + holdSuffix, "{lock:a}", "latch:a:1"}
	unreadArgs  = []string{"0", "me"}
	writeArgs   = []string{"5000", "me:write"}
	unwriteKeys = []string{"lock:a", "ch:a"}
	unwriteArgs = []string{"0", "5000", "me:write"}
	extendKeys  = []string{"lock:a", "{lock:a}"}
)

const (
	readAll  = "enter enter enter enter enter enter enter enter -"
	readBack = "- release leave - release - - release -"
	readMore = "- renew renew - renew - - renew -"
)

// shareCases are calls on a read/write lock. The rows are those of shareStates.
var shareCases = []scriptCase{
	{"read: null, or what is left", ReaderAcquire, readAll, readKeys, readArgs, []string{
		`local mode = redis.call('hget', KEYS[1], 'mode')
		 if mode == false then
		   redis.call('hset', KEYS[1], 'mode', 'read') redis.call('hset', KEYS[1], ARGV[2], 1)
		   redis.call('set', KEYS[2] .. ':1', 1) redis.call('pexpire', KEYS[2] .. ':1', ARGV[1])
		   redis.call('pexpire', KEYS[1], ARGV[1])
		   return nil
		 end
		 if mode == 'read' or redis.call('hexists', KEYS[1], ARGV[3]) == 1 then
		   local key = KEYS[2] .. ':' .. redis.call('hincrby', KEYS[1], ARGV[2], 1)
		   redis.call('set', key, 1) redis.call('pexpire', key, ARGV[1])
		   redis.call('pexpire', KEYS[1], math.max(redis.call('pttl', KEYS[1]), ARGV[1]))
		   return nil
		 end
		 return redis.call('pttl', KEYS[1])`,
		`local lock, holds, ms = KEYS[1], KEYS[2], tonumber(ARGV[1])
		 local how = redis.call("HGET", lock, "mode")
		 if how == "write" and not redis.call("HGET", lock, ARGV[3]) then return redis.call("PTTL", lock) end
		 if not how then redis.call("HSET", lock, "mode", "read") end
		 local n = redis.call("HINCRBY", lock, ARGV[2], 1)
		 redis.call("SET", holds .. ":" .. n, "x")
		 redis.call("PEXPIRE", holds .. ":" .. n, ms)
		 if redis.call("PTTL", lock) < ms then redis.call("PEXPIRE", lock, ms) end`,
		"local function hold(n) local k = KEYS[2] .. ':' .. n\r\n  redis.call('set', k, '1')\r\n  redis.call('pexpire', k, ARGV[1])\r\n  local left = redis.call('pttl', KEYS[1])\r\n  redis.call('pexpire', KEYS[1], left > tonumber(ARGV[1]) and left or ARGV[1])\r\n  return false\r\nend\r\n" +
			"local m = redis.call('hget', KEYS[1], 'mode') or 'none'\r\nif m == 'none' then\r\n  redis.call('hset', KEYS[1], 'mode', 'read')\r\n  redis.call('hset', KEYS[1], ARGV[2], 1)\r\n  return hold(1)\r\nend\r\n" +
			"if m == 'read' then return hold(redis.call('hincrby', KEYS[1], ARGV[2], 1)) end\r\nif redis.call('hexists', KEYS[1], ARGV[3]) == 1 then return hold(redis.call('hincrby', KEYS[1], ARGV[2], 1)) end\r\nreturn redis.call('pttl', KEYS[1])",
	}},
	{"write: null, or what is left", WriterAcquire, "enter - - - - enter enter enter -", lockKey, writeArgs, []string{
		`local mode = redis.call('hget', KEYS[1], 'mode')
		 if mode == false then
		   redis.call('hset', KEYS[1], 'mode', 'write') redis.call('hset', KEYS[1], ARGV[2], 1) redis.call('pexpire', KEYS[1], ARGV[1])
		   return nil
		 end
		 if mode == 'write' and redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
		   redis.call('hincrby', KEYS[1], ARGV[2], 1)
		   redis.call('pexpire', KEYS[1], redis.call('pttl', KEYS[1]) + ARGV[1])
		   return nil
		 end
		 return redis.call('pttl', KEYS[1])`,
		`local free = redis.call("HGET", KEYS[1], "mode") == false
		 if not free and not redis.call("HGET", KEYS[1], ARGV[2]) then return redis.call("PTTL", KEYS[1]) end
		 if free then redis.call("HSET", KEYS[1], "mode", "write") end
		 redis.call("HINCRBY", KEYS[1], ARGV[2], "1")
		 redis.call("PEXPIRE", KEYS[1], ARGV[1])`,
		"local m = redis.call('hget', KEYS[1], 'mode')\r\nif m == 'read' or m == 'write' and redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return redis.call('pttl', KEYS[1]) end\r\nif not m then redis.call('hset', KEYS[1], 'mode', 'write') end\r\nredis.call('hincrby', KEYS[1], ARGV[2], 1)\r\nredis.call('pexpire', KEYS[1], tonumber(ARGV[1]))\r\nreturn false",
	}},
	{"read no more: 1 free, 0 still held, null not mine", ReaderRelease, readBack, unreadKeys, unreadArgs, []string{
		`local mode = redis.call('hget', KEYS[1], 'mode')
		 if mode == false then redis.call('publish', KEYS[2], ARGV[1]) return 1 end
		 if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return nil end
		 local left = redis.call('hincrby', KEYS[1], ARGV[2], -1)
		 if left == 0 then redis.call('hdel', KEYS[1], ARGV[2]) end
		 redis.call('del', KEYS[3] .. ':' .. (left + 1))
		 if redis.call('hlen', KEYS[1]) > 1 then
		   local most = -3
		   for _, field in ipairs(redis.call('hkeys', KEYS[1])) do
		     local n = tonumber(redis.call('hget', KEYS[1], field))
		     if type(n) == 'number' then
		       for i = n, 1, -1 do most = math.max(most, redis.call('pttl', KEYS[4] .. ':' .. field .. ':rwlock_timeout:' .. i)) end
		     end
		   end
		   if most > 0 then redis.call('pexpire', KEYS[1], most) return 0 end
		   if mode == 'write' then return 0 end
		 end
		 redis.call('del', KEYS[1]) redis.call('publish', KEYS[2], ARGV[1])
		 return 1`,
		`local lock, me = KEYS[1], ARGV[2]
		 if not redis.call("HGET", lock, "mode") then redis.call("PUBLISH", KEYS[2], ARGV[1]) return 1 end
		 local n = redis.call("HGET", lock, me)
		 if not n then return false end
		 redis.call("DEL", KEYS[3] .. ":" .. n)
		 if redis.call("HINCRBY", lock, me, -1) == 0 then redis.call("HDEL", lock, me) end
		 if redis.call("HLEN", lock) > 1 then return 0 end
		 redis.call("DEL", lock)
		 redis.call("PUBLISH", KEYS[2], ARGV[1])
		 return 1`,
	}},
	{"read no more, once", ReaderRelease, readBack, unreadLatch, unreadArgs, []string{
		`local first = redis.call('get', KEYS[5]) if first ~= false then return tonumber(first) end
		 local function say(n) redis.call('set', KEYS[5], n, 'px', 9000) return n end
		 if redis.call('hget', KEYS[1], 'mode') == false then redis.call('publish', KEYS[2], ARGV[1]) say(1) return nil end
		 local n = redis.call('hget', KEYS[1], ARGV[2])
		 if not n then return nil end
		 redis.call('del', KEYS[3] .. ':' .. n)
		 if redis.call('hincrby', KEYS[1], ARGV[2], -1) == 0 then redis.call('hdel', KEYS[1], ARGV[2]) end
		 if redis.call('hlen', KEYS[1]) > 1 then return say(0) end
		 redis.call('del', KEYS[1]) redis.call('publish', KEYS[2], ARGV[1])
		 return say(1)`,
	}},
	{"write no more: 1 done, 0 still held, null not mine", WriterRelease, "- - - - - release leave release -", unwriteKeys, unwriteArgs, []string{
		`local mode = redis.call('hget', KEYS[1], 'mode')
		 if mode == false then redis.call('publish', KEYS[2], ARGV[1]) return 1 end
		 if mode ~= 'write' or redis.call('hexists', KEYS[1], ARGV[3]) == 0 then return nil end
		 if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then redis.call('pexpire', KEYS[1], ARGV[2]) return 0 end
		 redis.call('hdel', KEYS[1], ARGV[3])
		 if redis.call('hlen', KEYS[1]) == 1 then redis.call('del', KEYS[1]) redis.call('publish', KEYS[2], ARGV[1])
		 else redis.call('hset', KEYS[1], 'mode', 'read') end
		 return 1`,
		`if redis.call("HEXISTS", KEYS[1], "mode") == 0 then redis.call("PUBLISH", KEYS[2], ARGV[1]) return 1 end
		 if not redis.call("HGET", KEYS[1], ARGV[3]) then return false end
		 local left = redis.call("HINCRBY", KEYS[1], ARGV[3], -1)
		 if left ~= 0 then redis.call("PEXPIRE", KEYS[1], ARGV[2]) return 0 end
		 redis.call("HDEL", KEYS[1], ARGV[3])
		 if redis.call("HLEN", KEYS[1]) > 1 then redis.call("HSET", KEYS[1], "mode", "read") return 1 end
		 redis.call("DEL", KEYS[1])
		 redis.call("PUBLISH", KEYS[2], ARGV[1])
		 return 1`,
	}},
	{"read on", ReaderExtend, readMore, extendKeys, []string{"5000", "me"}, []string{
		`if redis.call('hget', KEYS[1], 'mode') == false then return 0 end
		 local n = redis.call('hget', KEYS[1], ARGV[2])
		 if n == false then return 0 end
		 redis.call('pexpire', KEYS[1], ARGV[1])
		 for i = n, 1, -1 do redis.call('pexpire', KEYS[2] .. ':' .. ARGV[2] .. ':rwlock_timeout:' .. i, ARGV[1]) end
		 return 1`,
	}},
	{"write no more, whoever writes", ForceRelease, "- - - - - release release release release", unwriteKeys, unwriteArgs, []string{
		`if redis.call('hget', KEYS[1], 'mode') == 'write' then redis.call('del', KEYS[1]) redis.call('publish', KEYS[2], ARGV[1]) return 1 end return 0`,
		`local how = redis.call("HGET", KEYS[1], "mode") if how ~= "write" then return 0 end redis.call("PUBLISH", KEYS[2], ARGV[1]) return redis.call("DEL", KEYS[1])`,
	}},
	{"read no more, whoever reads", ForceRelease, "- release release release release - - - -", unreadKeys, unreadArgs, []string{
		`if redis.call('hget', KEYS[1], 'mode') == 'read' then redis.call('del', KEYS[1]) redis.call('publish', KEYS[2], ARGV[1]) return 1 end return 0`,
	}},
}

// refusedShares do to a read/write lock what the engine cannot do.
var refusedShares = []scriptCase{
	{name: "a mode of another kind", keys: lockKey, args: readArgs, texts: []string{
		`if redis.call('hget', KEYS[1], 'mode') == false then redis.call('hset', KEYS[1], 'mode', 'read') redis.call('hset', KEYS[1], 'mode', 'upgrade') redis.call('pexpire', KEYS[1], ARGV[1]) return 1 end return 0`,
	}},
	{name: "a reader whose holds have no ends", keys: readKeys, args: readArgs, texts: []string{
		`if redis.call('hget', KEYS[1], 'mode') == 'write' then return 0 end
		 redis.call('hset', KEYS[1], 'mode', 'read') redis.call('hincrby', KEYS[1], ARGV[2], 1) redis.call('pexpire', KEYS[1], ARGV[1]) return 1`,
		`if redis.call('hget', KEYS[1], 'mode') == false then
		   redis.call('hset', KEYS[1], 'mode', 'read') redis.call('hincrby', KEYS[1], ARGV[2], 1) redis.call('set', KEYS[2] .. ':1', 1) redis.call('pexpire', KEYS[1], ARGV[1]) return 1
		 end return 0`,
		`if redis.call('hget', KEYS[1], 'mode') == false then
		   redis.call('hset', KEYS[1], 'mode', 'read') redis.call('hincrby', KEYS[1], ARGV[2], 1) redis.call('set', KEYS[2] .. ':2', 1) redis.call('pexpire', KEYS[2] .. ':2', ARGV[1]) redis.call('pexpire', KEYS[1], ARGV[1]) return 1
		 end return 0`,
	}},
	{name: "a reader beside a writer", keys: readKeys, args: readArgs, texts: []string{
		`if redis.call('hget', KEYS[1], 'mode') == false then redis.call('hset', KEYS[1], 'mode', 'read') end
		 local n = redis.call('hincrby', KEYS[1], ARGV[2], 1) redis.call('set', KEYS[2] .. ':' .. n, 1) redis.call('pexpire', KEYS[2] .. ':' .. n, ARGV[1])
		 redis.call('pexpire', KEYS[1], 20000) return 1`,
	}},
	{name: "a writer beside readers", keys: lockKey, args: writeArgs, texts: []string{
		`if redis.call('hget', KEYS[1], 'mode') == false then redis.call('hset', KEYS[1], 'mode', 'write') end
		 redis.call('hincrby', KEYS[1], ARGV[2], 1) redis.call('pexpire', KEYS[1], ARGV[1]) return 1`,
		`local mode = redis.call('hget', KEYS[1], 'mode') if mode == 'write' then return 0 end
		 redis.call('hset', KEYS[1], 'mode', 'write') redis.call('hincrby', KEYS[1], ARGV[2], 1) redis.call('pexpire', KEYS[1], ARGV[1]) return 1`,
	}},
	{name: "a writer without an end", keys: lockKey, args: writeArgs, texts: []string{
		`if redis.call('hget', KEYS[1], 'mode') == false then redis.call('hset', KEYS[1], 'mode', 'write') redis.call('hset', KEYS[1], ARGV[2], 1) return 1 end return 0`,
	}},
	{name: "a release that leaves the hold's key", keys: unreadKeys, args: unreadArgs, texts: []string{
		`if redis.call('hget', KEYS[1], 'mode') == false or redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return 0 end
		 if redis.call('hincrby', KEYS[1], ARGV[2], -1) == 0 then redis.call('hdel', KEYS[1], ARGV[2]) end
		 if redis.call('hlen', KEYS[1]) == 1 then redis.call('del', KEYS[1]) end
		 return 1`,
	}},
	{name: "a share with a count of 0", keys: unwriteKeys, args: unwriteArgs, texts: []string{
		`if redis.call('hget', KEYS[1], 'mode') ~= 'write' or redis.call('hexists', KEYS[1], ARGV[3]) == 0 then return 0 end
		 return redis.call('hincrby', KEYS[1], ARGV[3], -1)`,
	}},
	{name: "a lock that nobody has", keys: lockKey, args: readArgs, texts: []string{
		`if redis.call('hget', KEYS[1], 'mode') == false then redis.call('hset', KEYS[1], 'mode', 'read') redis.call('pexpire', KEYS[1], ARGV[1]) return 1 end return 0`,
		`if redis.call('hget', KEYS[1], 'mode') == 'write' then redis.call('hset', KEYS[1], 'mode', 'read') return 1 end return 0`,
	}},
	{name: "a longer lease for whoever has it", keys: lockKey, args: readArgs, texts: []string{
		`if redis.call('hget', KEYS[1], 'mode') == 'read' then return redis.call('pexpire', KEYS[1], ARGV[1]) end return 0`,
	}},
}
