package idiom

// A scriptCase is a sentence of what a script does to a lock, and scripts that say it: the key is "lock:a", the
// value "me". All scripts are our own wording; those of a sentence differ in how they are written only.
type scriptCase struct {
	name  string
	class Class
	does  string // what is done in each row of Accept: absent, mine, mine without end, other, other without end
	keys  []string
	args  []string
	texts []string
}

var (
	lockKey  = []string{"lock:a"}
	withTTL  = []string{"me", "5000"}
	withSecs = []string{"me", "5"}
	onlyMe   = []string{"me"}
)

// takeCases take a lock.
var takeCases = []scriptCase{
	{"1 take: status or null", Acquire, "take - - - -", lockKey, withTTL, []string{
		`return redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])`,
		`return redis.call("SET", KEYS[1], ARGV[1], "PX", tonumber(ARGV[2]), "NX")`,
		"local k, v = KEYS[1], ARGV[1]\r\nlocal r = redis.call('set', k, v, 'nx', 'px', ARGV[2])\r\nreturn r\r\n",
		`-- takes it
		 local function take(key, token, ms) return redis.call('SET', key, token, 'NX', 'PX', ms) end
		 return take(KEYS[1], ARGV[1], ARGV[2])`,
		`--[[ seconds, rounded up ]] local s = math.ceil(tonumber(ARGV[2]) / 1000)
		 return redis.pcall('Set', KEYS[1] .. '', ARGV[1], 'Ex', s, 'Nx')`,
	}},
	{"2 take: 1 or 0", Acquire, "take - - - -", lockKey, withTTL, []string{
		`if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 else return 0 end`,
		`local ok = redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])
		 if not ok then return 0 end
		 return 1`,
		`return redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) and 1 or 0`,
		`if redis.call('exists', KEYS[1]) == 1 then return 0 end
		 redis.call('psetex', KEYS[1], ARGV[2], ARGV[1])
		 return 1`,
		"local taken = 0\r\nif redis.call('GET', KEYS[1]) == false then\r\n\tredis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])\r\n\ttaken = taken + 1\r\nend\r\nreturn taken",
	}},
	{"3 take: true or false", Acquire, "take - - - -", lockKey, withSecs, []string{
		`if redis.call('set', KEYS[1], ARGV[1], 'NX', 'EX', ARGV[2]) then return true else return false end`,
		`return redis.call('set', KEYS[1], ARGV[1], 'NX', 'EX', ARGV[2]) ~= false`,
		`local r = redis.call('set', KEYS[1], ARGV[1], 'NX', 'EX', ARGV[2]); return type(r) == 'table'`,
		`local r = redis.pcall('set', KEYS[1], ARGV[1], 'NX', 'EX', ARGV[2]) if r then return true end return false`,
		`local r = redis.call('SET', KEYS[1], ARGV[1], 'EX', tostring(tonumber(ARGV[2])), 'NX') return r and r.ok == "OK"`,
	}},
	{"4 setnx, then expire", Acquire, "take - - - -", lockKey, withTTL, []string{
		`if redis.call('setnx', KEYS[1], ARGV[1]) == 1 then redis.call('pexpire', KEYS[1], ARGV[2]) return 1 end return 0`,
		`local n = redis.call('SETNX', KEYS[1], ARGV[1])
		 if n == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
		 return n`,
		`local r = redis.call('setnx', KEYS[1], ARGV[1]); if r > 0 then return redis.call('expire', KEYS[1], math.ceil(ARGV[2] / 1000)) end; return r`,
		`if (redis.call('setnx', KEYS[1], ARGV[1]) < 1) then return 0 else return redis.call('pexpire', KEYS[1], ARGV[2]) end`,
		`local do_ = redis.call
		 return do_("setnx", KEYS[1], ARGV[1]) == 1 and do_("pexpire", KEYS[1], ARGV[2]) or 0`,
	}},
	{"5 exists, then setex", Acquire, "take - - - -", lockKey, withSecs, []string{
		`if redis.call('exists', KEYS[1]) == 0 then redis.call('setex', KEYS[1], ARGV[2], ARGV[1]) return 1 end return 0`,
		`if redis.call("EXISTS", KEYS[1]) > 0 then
		   return 0
		 else
		   redis.call("SETEX", KEYS[1], tonumber(ARGV[2]), ARGV[1])
		   return 1
		 end`,
		`local there = redis.call('exists', KEYS[1]) ~= 0
		 if there then return 0 end
		 redis.call('psetex', KEYS[1], ARGV[2] * 1000, ARGV[1])
		 return 1`,
		"local function free(k) return redis.call('type', k).ok == 'none' end\r\nif not free(KEYS[1]) then return 0 end\r\nredis.call('SetEx', KEYS[1], ARGV[2], ARGV[1]) return 1",
	}},
	{"6 take, or renew mine", AcquireOrExtend, "take renew renew - -", lockKey, withTTL, []string{
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
		"if redis.call('setnx', KEYS[1], ARGV[1]) == 1 or redis.pcall('get', KEYS[1]) == ARGV[1] then\r\n  return redis.call('pexpire', KEYS[1], ARGV[2])\r\nend\r\nreturn 0",
	}},
	{"7 take, or renew by the first bytes", AcquireOrExtend, "take renew renew - -", lockKey, []string{"me", "2", "5000"}, []string{
		`if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[3]) then return true end
		 if string.sub(redis.call('get', KEYS[1]), 1, ARGV[2]) == string.sub(ARGV[1], 1, tonumber(ARGV[2])) then
		   redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[3]) return true end
		 return false`,
		`local at = tonumber(ARGV[2])
		 local now = redis.call('getrange', KEYS[1], 0, at - 1)
		 if now == '' or now == ARGV[1]:sub(1, at) then return redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[3]) end
		 return false`,
		`local function head(s) return string.sub(s, 1, tonumber(ARGV[2])) end
		 local v = redis.call("GET", KEYS[1])
		 if v and head(v) ~= head(ARGV[1]) then return false end
		 redis.call("PSETEX", KEYS[1], ARGV[3], ARGV[1])
		 return true`,
		"local n = tonumber(ARGV[2]) -- how long a token is\r\nlocal v = redis.call('get', KEYS[1]) or ARGV[1]\r\nif (v:sub(1, n) == ARGV[1]:sub(1, n)) then\r\n  return redis.call('set', KEYS[1], ARGV[1], 'px', ARGV[3])\r\nelse\r\n  return false\r\nend",
	}},
	{"8 take, or renew mine: an error for another's", AcquireOrExtend, "take renew renew - -", lockKey, withTTL, []string{
		`local v = redis.call('get', KEYS[1])
		 if v and v ~= ARGV[1] then return redis.error_reply('BUSY somebody has it') end
		 return redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2])`,
		`local v = redis.call("GET", KEYS[1])
		 if v == false or v == ARGV[1] then return redis.call("PSETEX", KEYS[1], ARGV[2], ARGV[1]) else return {err = "BUSY of another"} end`,
		`if redis.call('setnx', KEYS[1], ARGV[1]) == 0 then
		   if redis.call('get', KEYS[1]) ~= ARGV[1] then return redis.error_reply("HELD " .. KEYS[1]) end
		 end
		 redis.call('pexpire', KEYS[1], ARGV[2])
		 return redis.status_reply('MINE')`,
		"local busy = function() return redis.error_reply(string.format('BUSY %s', KEYS[1])) end\r\nlocal v = redis.call('get', KEYS[1])\r\nif not v or v == ARGV[1] then return redis.call('set', KEYS[1], ARGV[1], 'px', ARGV[2]) end\r\nreturn busy()",
	}},
	{"9 take, and give one without an end an end", AcquireFixTTL, "take - renew - renew", lockKey, withSecs, []string{
		`if redis.call('setnx', KEYS[1], ARGV[1]) == 1 then redis.call('expire', KEYS[1], ARGV[2]) return 1 end
		 if redis.call('ttl', KEYS[1]) == -1 then redis.call('expire', KEYS[1], ARGV[2]) end
		 return 0`,
		`local n = redis.call("SETNX", KEYS[1], ARGV[1])
		 if n == 1 or redis.call("PTTL", KEYS[1]) == -1 then redis.call("EXPIRE", KEYS[1], ARGV[2]) end
		 return n`,
		`local n = redis.call('setnx', KEYS[1], ARGV[1])
		 local left = redis.call('ttl', KEYS[1])
		 if left < 0 then redis.call('pexpire', KEYS[1], ARGV[2] * 1000) end
		 return n`,
		"local function endless(k) return redis.pcall('ttl', k) < 0 end\r\nif redis.call('set', KEYS[1], ARGV[1], 'nx', 'ex', ARGV[2]) then return 1 end\r\nif not endless(KEYS[1]) then return 0 end\r\nredis.call('expire', KEYS[1], ARGV[2]) return 0",
	}},
	{"10 take, or the rest of the lease", Acquire, "take - - - -", lockKey, withTTL, []string{
		`if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return nil end return redis.call('pttl', KEYS[1])`,
		`local r = redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])
		 if r then return false else return redis.call('PTTL', KEYS[1]) end`,
		`if redis.call("EXISTS", KEYS[1]) == 1 then return redis.call("PTTL", KEYS[1]) end
		 redis.call("PSETEX", KEYS[1], ARGV[2], ARGV[1])`,
		"local left = redis.pcall('pttl', KEYS[1]) -- -2: nobody has it\r\nif left ~= -2 then return left end\r\nredis.call('set', KEYS[1], ARGV[1], 'PX', tonumber(ARGV[2]))\r\nreturn nil",
	}},
	{"take a lock, and tell", Acquire, "take - - - -", withChannel, withTTL, []string{
		`if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then redis.call('publish', KEYS[2], ARGV[2]) return 1 end return 0`,
		`if redis.call("EXISTS", KEYS[1]) == 1 then return 0 end redis.call("SET", KEYS[1], ARGV[1]) redis.call("PUBLISH", KEYS[2], 1) return 1`,
		`local n = redis.call('setnx', KEYS[1], '7:' .. ARGV[1]) if n == 1 then redis.call('rpush', KEYS[2], 7) end return n`,
		"if redis.call('get', KEYS[1]) then return 0 end\r\nredis.call('set', KEYS[1], '1.5')\r\nredis.call('lpush', KEYS[2], ARGV[1])\r\nreturn 1",
	}},
	{"take a lock with a number, and wake nobody", Acquire, "take - - - -", withChannel, []string{"1", "5000"}, []string{
		`return redis.call('setnx', KEYS[1], ARGV[1])`,
		`if redis.call("GET", KEYS[1]) == false then redis.call("SET", KEYS[1], ARGV[1]) return 1 end return 0`,
		`if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then redis.call('del', KEYS[2]) return 1 end return 0`,
		"if redis.call('exists', KEYS[1]) == 1 then return 0 end\r\nredis.call('psetex', KEYS[1], ARGV[2], ARGV[1])\r\nredis.call('ltrim', KEYS[2], 1, 0)\r\nredis.call('pexpire', KEYS[2], ARGV[2])\r\nreturn 1",
	}},
	{"overwrite", Overwrite, "take renew renew replace replace", lockKey, withTTL, []string{
		`return redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2])`,
		`redis.call('PSETEX', KEYS[1], ARGV[2], ARGV[1]) return 1`,
	}},
	{"overwrite what is there", Overwrite, "- renew renew replace replace", lockKey, withTTL, []string{
		`return redis.call('set', KEYS[1], ARGV[1], 'XX', 'PX', ARGV[2])`,
		`if redis.call('exists', KEYS[1]) == 1 then redis.call('psetex', KEYS[1], ARGV[2], ARGV[1]) return 1 end return 0`,
	}},
}
