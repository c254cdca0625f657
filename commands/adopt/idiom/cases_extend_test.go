package idiom

var withMode = []string{"me", "5000", "0"}

// extendCases move the end of a lock, and read.
var extendCases = []scriptCase{
	{"19 expire mine", ExtendOwn, "- renew renew - -", lockKey, withTTL, []string{
		`if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end`,
		`if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("EXPIRE", KEYS[1], ARGV[2] / 1000) end return 0`,
		`local t = redis.call('time')
		 if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpireat', KEYS[1], tonumber(t[1]) * 1000 + math.floor(t[2] / 1000) + ARGV[2]) end return 0`,
		"local function at(s) return redis.call('TIME')[1] + s end\r\nif redis.pcall('get', KEYS[1]) ~= ARGV[1] then return 0 end\r\nreturn redis.call('expireat', KEYS[1], at(math.floor(ARGV[2] / 1000)))",
		`return redis.call('get', KEYS[1]) == tostring(ARGV[1]) and redis.call('pexpire', KEYS[1], string.format('%d', ARGV[2])) or 0`,
	}},
	{"20 set mine again", ExtendOwn, "- renew renew - -", lockKey, withTTL, []string{
		`if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2]) end return false`,
		`if redis.call("GET", KEYS[1]) ~= ARGV[1] then return nil end
		 return redis.call("SET", KEYS[1], ARGV[1], "XX", "PX", tonumber(ARGV[2]))`,
		`local mine = redis.call('get', KEYS[1]) == ARGV[1]
		 return mine and redis.call('psetex', KEYS[1], ARGV[2], ARGV[1])`,
		"local v = redis.pcall('get', KEYS[1])\r\nif v == ARGV[1] then\r\n  return redis.call('set', KEYS[1], v, 'px', ARGV[2]) -- v, not ARGV[1]\r\nelse\r\n  return false\r\nend",
	}},
	{"21 expire mine, if it has an end", ExtendOwn, "- renew - - -", lockKey, withTTL, []string{
		`local t = redis.call('pttl', KEYS[1])
		 if redis.call('get', KEYS[1]) == ARGV[1] and t >= 0 then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0`,
		`if redis.call("GET", KEYS[1]) ~= ARGV[1] then return 0 end
		 if redis.call("TTL", KEYS[1]) == -1 then return 0 end
		 return redis.call("PEXPIRE", KEYS[1], ARGV[2])`,
		`local function ends(k) local left = redis.call('pttl', k) return left ~= -1 and left ~= -2 end
		 return redis.call('get', KEYS[1]) == ARGV[1] and ends(KEYS[1]) and redis.call('pexpire', KEYS[1], ARGV[2]) or 0`,
		"if redis.pcall('get', KEYS[1]) == ARGV[1] then\r\n  if redis.call('pttl', KEYS[1]) > 0 then\r\n    redis.call('psetex', KEYS[1], ARGV[2], ARGV[1])\r\n    return 1\r\n  end\r\nend\r\nreturn 0",
	}},
	{"22 add to what is left", ExtendOwn, "- renew - - -", lockKey, withMode, []string{
		`if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end
		 local left = redis.call('pttl', KEYS[1])
		 if left < 0 then return 0 end
		 local new = tonumber(ARGV[2])
		 if ARGV[3] == "0" then new = new + left end
		 redis.call('pexpire', KEYS[1], new)
		 return 1`,
		`local v, left = redis.call("GET", KEYS[1]), redis.call("PTTL", KEYS[1])
		 if not v or v ~= ARGV[1] or left < 0 then return 0 else
		   if ARGV[3] ~= "0" then left = 0 end
		   return redis.call("PEXPIRE", KEYS[1], left + ARGV[2])
		 end`,
		`local function new(left) return ARGV[3] == '0' and left + tonumber(ARGV[2]) or ARGV[2] end
		 local left = redis.call('pttl', KEYS[1])
		 if left > -1 and redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], new(left)) end
		 return 0`,
		"local left = redis.pcall('pttl', KEYS[1])\r\nif left < 0 then return 0 end\r\nif redis.pcall('get', KEYS[1]) == ARGV[1] then\r\n  return redis.call('pexpire', KEYS[1], ARGV[2] + left * (tonumber(ARGV[3]) == 0 and 1 or 0))\r\nend\r\nreturn 0",
	}},
	{"22 put in place of what is left", ExtendOwn, "- renew renew - -", lockKey, []string{"me", "5000", "1"}, []string{
		`if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end
		 local new = tonumber(ARGV[2])
		 if ARGV[3] == "0" then new = new + redis.call('pttl', KEYS[1]) end
		 redis.call('pexpire', KEYS[1], new)
		 return 1`,
		`if redis.call("GET", KEYS[1]) == ARGV[1] then
		   return redis.call("PEXPIRE", KEYS[1], ARGV[3] == "0" and redis.call("PTTL", KEYS[1]) + ARGV[2] or ARGV[2])
		 end
		 return 0`,
		`local add = {['0'] = true}
		 if redis.pcall('get', KEYS[1]) ~= ARGV[1] then return 0 end
		 if add[ARGV[3]] then return redis.call('pexpire', KEYS[1], redis.call('pttl', KEYS[1]) + ARGV[2]) end
		 return redis.call('pexpire', KEYS[1], ARGV[2])`,
		"local ms = ARGV[2] + 0\r\nif tonumber(ARGV[3]) == 0 then ms = ms + math.max(0, redis.call('pttl', KEYS[1])) end\r\nif redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ms) else return 0 end",
	}},
	{"23 expire mine, or let it have no end", ExtendOwn, "- renew renew - -", lockKey, withTTL, expireOrPersist},
	{"23 let mine have no end, or expire it", ExtendOwn, "- renew - - -", lockKey, []string{"me", "0"}, expireOrPersist},
	{"24 what is left of mine", ReadOnly, "- - - - -", lockKey, onlyMe, []string{
		`if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pttl', KEYS[1]) end return -3`,
		`if redis.call("GET", KEYS[1]) ~= ARGV[1] then return -3 else return redis.call("PTTL", KEYS[1]) end`,
		`local v = redis.call('get', KEYS[1])
		 return (not v or v ~= ARGV[1]) and -3 or redis.call('pttl', KEYS[1])`,
		"local function left(k) return redis.call('pttl', k) end\r\nif redis.pcall('get', KEYS[1]) == tostring(ARGV[1]) then\r\n  return left(KEYS[1])\r\nend\r\nreturn -3",
	}},
	{"25 value, and what is left", ReadOnly, "- - - - -", lockKey, nil, []string{
		`return {redis.call('get', KEYS[1]), redis.call('pttl', KEYS[1])}`,
		`local v, left = redis.call("GET", KEYS[1]), redis.call("PTTL", KEYS[1])
		 return {v, left}`,
		`local all = {}
		 all[1] = redis.call('get', KEYS[1])
		 all[#all + 1] = redis.call('pttl', KEYS[1])
		 return all`,
		"local all = {}\r\nfor _, name in ipairs({'get', 'pttl'}) do\r\n  table.insert(all, redis.call(name, KEYS[1]))\r\nend\r\nreturn {unpack(all)}",
	}},
	{"27 expire whatever it is", ForceExtend, "- renew renew renew renew", lockKey, []string{"5000"}, []string{
		`return redis.call('pexpire', KEYS[1], ARGV[1])`,
		`if redis.call("EXISTS", KEYS[1]) == 0 then return 0 end
		 return redis.call("PEXPIRE", KEYS[1], tonumber(ARGV[1]))`,
		`local r = redis.pcall('expire', KEYS[1], math.floor(ARGV[1] / 1000))
		 return r`,
		"local function move(k, ms) return redis.call('PExpire', k, ms) end\r\nif move(KEYS[1], ARGV[1]) == 1 then\r\n  return 1\r\nelse\r\n  return 0\r\nend",
	}},
}

var expireOrPersist = []string{
	`if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end
	 if tonumber(ARGV[2]) > 0 then redis.call('pexpire', KEYS[1], ARGV[2]) else redis.call('persist', KEYS[1]) end
	 return 1`,
	`local ms = tonumber(ARGV[2])
	 if redis.call("GET", KEYS[1]) == ARGV[1] then
	   if ms <= 0 then redis.call("PERSIST", KEYS[1]) else redis.call("PEXPIRE", KEYS[1], ms) end
	   return 1
	 end
	 return 0`,
	`local function give(k, ms) if ms > 0 then return redis.call('pexpire', k, ms) end redis.call('persist', k) return 1 end
	 return redis.call('get', KEYS[1]) == ARGV[1] and give(KEYS[1], ARGV[2] + 0) or 0`,
	"if redis.pcall('get', KEYS[1]) == ARGV[1] then\r\n  local _ = ARGV[2] ~= '0' and redis.call('pexpire', KEYS[1], ARGV[2]) or redis.call('persist', KEYS[1])\r\n  return 1\r\nend\r\nreturn 0",
}
