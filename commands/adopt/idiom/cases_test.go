package idiom

// A scriptCase is a script that somebody could have written for a lock, with its arguments: the key is
// "lock:a", the value "me".
type scriptCase struct {
	name  string
	class Class
	keys  []string
	args  []string
	texts []string // each says the same
}

var lockKey = []string{"lock:a"}

var scriptCases = []scriptCase{
	{"take, status or null", Acquire, lockKey, []string{"me", "5000"}, []string{
		`return redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])`,
		`return redis.call("SET", KEYS[1], ARGV[1], "PX", tonumber(ARGV[2]), "NX")`,
		"local k, v = KEYS[1], ARGV[1]\r\nlocal r = redis.call('set', k, v, 'nx', 'px', ARGV[2])\r\nreturn r\r\n",
		`-- takes it
		 local function take(key, token, ms) return redis.call('SET', key, token, 'NX', 'PX', ms) end
		 return take(KEYS[1], ARGV[1], ARGV[2])`,
	}},
	{"take, 1 or 0", Acquire, lockKey, []string{"me", "5000"}, []string{
		`if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 else return 0 end`,
		`local ok = redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])
		 if not ok then return 0 end
		 return 1`,
		`return redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) and 1 or 0`,
		`if redis.call('exists', KEYS[1]) == 1 then return 0 end
		 redis.call('psetex', KEYS[1], ARGV[2], ARGV[1])
		 return 1`,
	}},
	{"take, true or false", Acquire, lockKey, []string{"me", "5"}, []string{
		`if redis.call('set', KEYS[1], ARGV[1], 'NX', 'EX', ARGV[2]) then return true else return false end`,
		`return redis.call('set', KEYS[1], ARGV[1], 'NX', 'EX', ARGV[2]) ~= false`,
		`local r = redis.call('set', KEYS[1], ARGV[1], 'NX', 'EX', ARGV[2]); return type(r) == 'table'`,
		`local r = redis.pcall('set', KEYS[1], ARGV[1], 'NX', 'EX', ARGV[2]) if r then return true end return false`,
	}},
	{"setnx, then expire", Acquire, lockKey, []string{"me", "5000"}, []string{
		`if redis.call('setnx', KEYS[1], ARGV[1]) == 1 then redis.call('pexpire', KEYS[1], ARGV[2]) return 1 end return 0`,
		`local n = redis.call('SETNX', KEYS[1], ARGV[1])
		 if n == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
		 return n`,
		`local r = redis.call('setnx', KEYS[1], ARGV[1]); if r > 0 then return redis.call('expire', KEYS[1], math.ceil(ARGV[2] / 1000)) end; return r`,
		`if (redis.call('setnx', KEYS[1], ARGV[1]) < 1) then return 0 else return redis.call('pexpire', KEYS[1], ARGV[2]) end`,
	}},
	{"take or extend", AcquireOrExtend, lockKey, []string{"me", "5000"}, []string{
		`local v = redis.call('get', KEYS[1])
		 if v == false then redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2]) return 1
		 elseif v == ARGV[1] then redis.call('pexpire', KEYS[1], ARGV[2]) return 1 end
		 return 0`,
		`if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return true end
		 if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('pexpire', KEYS[1], ARGV[2]) return true end
		 return false`,
		`local v = redis.call('get', KEYS[1])
		 if not v or v == ARGV[1] then return redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2]) end`,
		`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('SET', KEYS[1], ARGV[1], 'XX', 'PX', ARGV[2])
		 else return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) end`,
	}},
	{"take or extend by the first bytes", AcquireOrExtend, lockKey, []string{"me", "2", "5000"}, []string{
		`if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[3]) then return true end
		 if string.sub(redis.call('get', KEYS[1]), 1, ARGV[2]) == string.sub(ARGV[1], 1, tonumber(ARGV[2])) then
		   redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[3]) return true end
		 return false`,
		`local at = tonumber(ARGV[2])
		 local now = redis.call('getrange', KEYS[1], 0, at - 1)
		 if now == '' or now == ARGV[1]:sub(1, at) then return redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[3]) end
		 return false`,
	}},
	{"take, or the rest of the lease", Acquire, lockKey, []string{"me", "5000"}, []string{
		`if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return nil end return redis.call('pttl', KEYS[1])`,
		`local r = redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])
		 if r then return false else return redis.call('PTTL', KEYS[1]) end`,
	}},
	{"take, and give one without an end an end", AcquireFixTTL, lockKey, []string{"me", "5"}, []string{
		`if redis.call('setnx', KEYS[1], ARGV[1]) == 1 then redis.call('expire', KEYS[1], ARGV[2]) return 1 end
		 if redis.call('ttl', KEYS[1]) == -1 then redis.call('expire', KEYS[1], ARGV[2]) end
		 return 0`,
	}},
	{"delete if mine, 1 or 0", ReleaseOwn, lockKey, []string{"me"}, []string{
		`if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end`,
		`local v = redis.call('GET', KEYS[1]); if v ~= ARGV[1] then return 0 end; return redis.call('DEL', KEYS[1])`,
		`return redis.call('get', KEYS[1]) == ARGV[1] and redis.call('unlink', KEYS[1]) or 0`,
		`local is = function(k, v) return redis.call('get', k) == v end
		 if is(KEYS[1], ARGV[1]) then redis.call('del', KEYS[1]) return 1 end
		 return 0`,
	}},
	{"delete if mine, -1 if absent", ReleaseOwn, lockKey, []string{"me"}, []string{
		`local v = redis.call('get', KEYS[1])
		 if v == ARGV[1] then return redis.call('del', KEYS[1]) elseif v == false then return -1 else return 0 end`,
		`local v = redis.call('get', KEYS[1]) if not v then return -1 end if v == ARGV[1] then return redis.call('del', KEYS[1]) end return 0`,
	}},
	{"delete if mine, done if absent", ReleaseOwn, lockKey, []string{"me"}, []string{
		`local v = redis.call('get', KEYS[1]) if not v then return 1 end if v == ARGV[1] then return redis.call('del', KEYS[1]) end return 0`,
	}},
	{"delete if mine, and tell", ReleaseOwn, []string{"lock:a", "ch:a"}, []string{"me"}, []string{
		`if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) redis.call('publish', KEYS[2], KEYS[1]) return 1 end return 0`,
		`if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end
		 redis.call('del', KEYS[1])
		 redis.call('lpush', KEYS[2], 1); redis.call('ltrim', KEYS[2], 0, 0); redis.call('pexpire', KEYS[2], 1000)
		 return 1`,
	}},
	{"delete if mine, 'true' or 'false'", ReleaseOwn, lockKey, []string{"me"}, []string{
		`if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) return 'true' end return 'false'`,
		`return tostring(redis.call('get', KEYS[1]) == ARGV[1] and redis.call('del', KEYS[1]) == 1)`,
	}},
	{"delete if mine, status or error", ReleaseOwn, lockKey, []string{"me"}, []string{
		`if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) return redis.status_reply('FREED') end return redis.error_reply('NOTMINE of another')`,
		`if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) return {ok='FREED'} end return {err='NOTMINE of another'}`,
		`if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) return {ok='FREED'} end return redis.error_reply('MINE')`,
	}},
	{"expire if mine", ExtendOwn, lockKey, []string{"me", "5000"}, []string{
		`if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end`,
		`if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('expire', KEYS[1], ARGV[2] / 1000) end return 0`,
		`local t = redis.call('time')
		 if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpireat', KEYS[1], tonumber(t[1]) * 1000 + math.floor(t[2] / 1000) + ARGV[2]) end return 0`,
		`if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2]) end return false`,
	}},
	{"expire if mine, if it has an end", ExtendOwn, lockKey, []string{"me", "5000"}, []string{
		`local t = redis.call('pttl', KEYS[1])
		 if redis.call('get', KEYS[1]) == ARGV[1] and t >= 0 then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0`,
	}},
	{"add to what is left", ExtendOwn, lockKey, []string{"me", "5000", "0"}, []string{
		`if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end
		 local left = redis.call('pttl', KEYS[1])
		 if left < 0 then return 0 end
		 local new = tonumber(ARGV[2])
		 if ARGV[3] == "0" then new = new + left end
		 redis.call('pexpire', KEYS[1], new)
		 return 1`,
	}},
	{"expire or persist", ExtendOwn, lockKey, []string{"me", "5000"}, []string{
		`if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end
		 if tonumber(ARGV[2]) > 0 then redis.call('pexpire', KEYS[1], ARGV[2]) else redis.call('persist', KEYS[1]) end
		 return 1`,
	}},
	{"what is left, if mine", ReadOnly, lockKey, []string{"me"}, []string{
		`if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pttl', KEYS[1]) end return -3`,
	}},
	{"value and what is left", ReadOnly, lockKey, nil, []string{
		`return {redis.call('get', KEYS[1]), redis.call('pttl', KEYS[1])}`,
	}},
	{"delete whatever it is", ForceRelease, []string{"lock:a", "ch:a"}, nil, []string{
		`if redis.call('del', KEYS[1]) == 1 then redis.call('publish', KEYS[2], 0) return 1 else return 0 end`,
	}},
	{"expire whatever it is", ForceExtend, lockKey, []string{"5000"}, []string{
		`return redis.call('pexpire', KEYS[1], ARGV[1])`,
	}},
	{"overwrite", Overwrite, lockKey, []string{"me", "5000"}, []string{
		`return redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2])`,
	}},
	{"enter a hash", ReentrantAcquire, lockKey, []string{"5000", "me"}, []string{
		`if redis.call('exists', KEYS[1]) == 0 then redis.call('hset', KEYS[1], ARGV[2], 1) redis.call('pexpire', KEYS[1], ARGV[1]) return nil end
		 if redis.call('hexists', KEYS[1], ARGV[2]) == 1 then redis.call('hincrby', KEYS[1], ARGV[2], 1) redis.call('pexpire', KEYS[1], ARGV[1]) return nil end
		 return redis.call('pttl', KEYS[1])`,
		`if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
		   redis.call('hincrby', KEYS[1], ARGV[2], 1); redis.call('pexpire', KEYS[1], ARGV[1]); return nil
		 end
		 return redis.call('pttl', KEYS[1])`,
	}},
	{"give one of a hash back", ReentrantRelease, []string{"lock:a", "ch:a"}, []string{"5000", "me"}, []string{
		`if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return nil end
		 local left = redis.call('hincrby', KEYS[1], ARGV[2], -1)
		 if left > 0 then redis.call('pexpire', KEYS[1], ARGV[1]) return 0 end
		 redis.call('del', KEYS[1]) redis.call('publish', KEYS[2], 0)
		 return 1`,
	}},
	{"keep a hash", ReentrantExtend, lockKey, []string{"5000", "me"}, []string{
		`if redis.call('hexists', KEYS[1], ARGV[2]) == 1 then return redis.call('pexpire', KEYS[1], ARGV[1]) end return 0`,
	}},
	{"count of a field", ReadOnly, lockKey, []string{"me"}, []string{`return redis.call('hget', KEYS[1], ARGV[1])`}},
}

// refusedScripts are not to be run on a lock.
var refusedScripts = []scriptCase{
	{name: "two locks", keys: []string{"lock:a", "lock:b"}, args: []string{"me"}, texts: []string{
		`redis.call('set', KEYS[1], ARGV[1], 'NX') return redis.call('set', KEYS[2], ARGV[1], 'NX')`}},
	{name: "a second field", keys: lockKey, args: []string{"me"}, texts: []string{
		`redis.call('hset', KEYS[1], 'mode', 1) redis.call('hset', KEYS[1], ARGV[1], 1) return 1`}},
	{name: "INCR beside it", keys: []string{"lock:a", "n"}, args: []string{"me"}, texts: []string{
		`if redis.call('set', KEYS[1], ARGV[1], 'NX') then return redis.call('incr', KEYS[2]) end return 0`}},
	{name: "sorted set", keys: lockKey, args: []string{"me"}, texts: []string{
		`return redis.call('zadd', KEYS[1], redis.call('time')[1], ARGV[1])`}},
	{name: "endless loop", keys: lockKey, args: []string{"me"}, texts: []string{
		`while true do redis.call('get', KEYS[1]) end`, `local i = 0 repeat i = i + 1 until false return redis.call('get', KEYS[1])`}},
	{name: "long string", keys: lockKey, args: []string{"me"}, texts: []string{
		`local s = 'xxxxxxxxxx' for i = 1, 17 do s = s .. s end return redis.call('set', KEYS[1], s, 'NX')`}},
	{name: "another lock from ARGV", keys: lockKey, args: []string{"me", "lock:c"}, texts: []string{
		`redis.call('del', ARGV[2]) return redis.call('get', KEYS[1])`}},
	{name: "cjson", keys: lockKey, args: []string{"me"}, texts: []string{`return redis.call('set', KEYS[1], cjson.encode(ARGV), 'NX')`}},
	{name: "raised in one state", keys: lockKey, args: []string{"me"}, texts: []string{
		`local v = redis.call('get', KEYS[1]) if v and v ~= ARGV[1] then error('taken') end return redis.call('del', KEYS[1])`}},
	{name: "count by two", keys: lockKey, args: []string{"me"}, texts: []string{
		`redis.call('hincrby', KEYS[1], ARGV[1], 2) return 1`,
		`redis.call('hincrby', KEYS[1], ARGV[1], 1) redis.call('hincrby', KEYS[1], ARGV[1], 1) return 1`}},
	{name: "global variable", keys: lockKey, args: []string{"me"}, texts: []string{
		`v = redis.call('get', KEYS[1]) return v`, `return redis.call('get', key)`}},
	{name: "what a signal answers", keys: []string{"lock:a", "ch:a"}, args: []string{"me"}, texts: []string{
		`return redis.call('publish', KEYS[2], redis.call('del', KEYS[1]))`,
		`if redis.call('publish', KEYS[2], 1) > 0 then return redis.call('del', KEYS[1]) end return 0`}},
	{name: "no Lua", keys: lockKey, texts: []string{`return redis.call(`, `if x`}},
}
