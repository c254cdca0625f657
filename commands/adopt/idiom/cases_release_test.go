package idiom

var withChannel = []string{"lock:a", "ch:a"}

// releaseCases give a lock back.
var releaseCases = []scriptCase{
	{"11 delete mine: 1 or 0", ReleaseOwn, "- release release - -", lockKey, onlyMe, []string{
		`if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end`,
		`local v = redis.call('GET', KEYS[1]); if v ~= ARGV[1] then return 0 end; return redis.call('DEL', KEYS[1])`,
		`local is = function(k, v) return redis.call('get', k) == v end
		 if is(KEYS[1], ARGV[1]) then redis.call('del', KEYS[1]) return 1 end
		 return 0`,
		"local v = redis.pcall('get', KEYS[1])\r\nif type(v) == 'string' and v == tostring(ARGV[1]) then\r\n  return redis.call('del', KEYS[1] .. '')\r\nelse\r\n  return 0\r\nend\r\n",
		`return redis.call('get', KEYS[1]) == ARGV[1] and redis.call('del', KEYS[1]) or 0 -- done`,
		`redis.pcall('SELECT', 0) if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0`,
	}},
	{"12 delete mine: 1 or 0, -1 if absent", ReleaseOwn, "- release release - -", lockKey, onlyMe, []string{
		`local v = redis.call('get', KEYS[1])
		 if v == ARGV[1] then return redis.call('del', KEYS[1]) elseif v == false then return -1 else return 0 end`,
		`local v = redis.call('get', KEYS[1]) if not v then return -1 end if v == ARGV[1] then return redis.call('del', KEYS[1]) end return 0`,
		`if redis.call("EXISTS", KEYS[1]) == 0 then return -1 end
		 return redis.call("GET", KEYS[1]) == ARGV[1] and redis.call("DEL", KEYS[1]) or 0`,
		"local answers = {free = -1, mine = 1, theirs = 0}\r\nlocal v = redis.call('get', KEYS[1])\r\nif not v then return answers.free end\r\nif v ~= ARGV[1] then return answers['theirs'] end\r\nredis.pcall('del', KEYS[1])\r\nreturn answers.mine",
	}},
	{"13 delete mine: done if absent", ReleaseOwn, "- release release - -", lockKey, onlyMe, []string{
		`local v = redis.call('get', KEYS[1]) if not v then return 1 end if v == ARGV[1] then return redis.call('del', KEYS[1]) end return 0`,
		`if redis.call("EXISTS", KEYS[1]) == 0 then return 1 end
		 if redis.call("GET", KEYS[1]) == ARGV[1] then redis.call("DEL", KEYS[1]) return 1 else return 0 end`,
		`local v = redis.call('get', KEYS[1])
		 if v and v ~= ARGV[1] then return 0 end
		 redis.call('del', KEYS[1])
		 return 1`,
		"local function mine(v) return v == false or v == ARGV[1] end\r\nif not mine(redis.pcall('GET', KEYS[1])) then return 0 end\r\nredis.call('Del', KEYS[1]); return 1",
	}},
	{"14 unlink mine", ReleaseOwn, "- release release - -", lockKey, onlyMe, []string{
		`return redis.call('get', KEYS[1]) == ARGV[1] and redis.call('unlink', KEYS[1]) or 0`,
		`if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("UNLINK", KEYS[1]) end return 0`,
		`local key, token = KEYS[1], ARGV[1]
		 if redis.call('get', key) ~= token then return 0 else redis.call('unlink', key) return 1 end`,
		"local gone = 0\r\nif redis.pcall('get', KEYS[1]) == ARGV[1] then gone = redis.call('unlink', KEYS[1]) end\r\nreturn gone",
	}},
	{"15 delete mine, and publish", ReleaseOwn, "- release release - -", withChannel, onlyMe, []string{
		`if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) redis.call('publish', KEYS[2], KEYS[1]) return 1 end return 0`,
		`if redis.call("GET", KEYS[1]) ~= ARGV[1] then return 0 end
		 redis.call("PUBLISH", KEYS[1] .. ":free", KEYS[1])
		 return redis.call("DEL", KEYS[1])`,
		`local function free(k) redis.call('del', k); redis.call('publish', 'ch:' .. k, tostring(1)) end
		 if redis.call('get', KEYS[1]) == ARGV[1] then free(KEYS[1]) return 1 else return 0 end`,
		"local n = redis.call('get', KEYS[1]) == ARGV[1] and redis.call('del', KEYS[1]) or 0\r\nif n == 1 then local heard = redis.pcall('publish', KEYS[2], KEYS[1]) end\r\nreturn n",
	}},
	{"16 delete mine, push, trim, expire", ReleaseOwn, "- release release - -", withChannel, onlyMe, []string{
		`if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end
		 redis.call('del', KEYS[1])
		 redis.call('lpush', KEYS[2], 1); redis.call('ltrim', KEYS[2], 0, 0); redis.call('pexpire', KEYS[2], 1000)
		 return 1`,
		`if redis.call("GET", KEYS[1]) == ARGV[1] then
		   redis.call("DEL", KEYS[2]) redis.call("RPUSH", KEYS[2], KEYS[1]) redis.call("EXPIRE", KEYS[2], 10)
		   return redis.call("DEL", KEYS[1])
		 else return 0 end`,
		`local list = 'signal:' .. KEYS[1]
		 if redis.call('get', KEYS[1]) == ARGV[1] then
		   for _, c in ipairs({'lpush', 'rpush'}) do redis.call(c, list, 1) end
		   redis.call('ltrim', list, 0, 0)
		   redis.call('pexpire', list, 60 * 1000)
		   redis.call('del', KEYS[1])
		   return 1
		 end
		 return 0`,
		"local function wake(k)\r\n  redis.call('lpush', k, 1) -- one waiter\r\n  redis.call('ltrim', k, 0, 0)\r\n  redis.call('pexpire', k, 1000)\r\nend\r\nlocal v = redis.pcall('get', KEYS[1])\r\nif v == ARGV[1] then redis.call('del', KEYS[1]) wake(KEYS[2]) return 1 end\r\nreturn 0",
	}},
	{"17 delete mine: 'true' or 'false'", ReleaseOwn, "- release release - -", lockKey, onlyMe, []string{
		`if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) return 'true' end return 'false'`,
		`return tostring(redis.call('get', KEYS[1]) == ARGV[1] and redis.call('del', KEYS[1]) == 1)`,
		`local mine = redis.call("GET", KEYS[1]) == ARGV[1]
		 if mine then redis.call("DEL", KEYS[1]) end
		 return mine and "true" or "false"`,
		"local said = 'FALSE'\r\nif redis.pcall('get', KEYS[1]) == ARGV[1] then\r\n  redis.call('del', KEYS[1])\r\n  said = 'TRUE'\r\nend\r\nreturn string.lower(said)",
	}},
	{"18 delete mine: status, or an error", ReleaseOwn, "- release release - -", lockKey, onlyMe, []string{
		`if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) return redis.status_reply('FREED') end return redis.error_reply('NOTMINE of another')`,
		`if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) return {ok='FREED'} end return {err='NOTMINE of another'}`,
		`if redis.call("GET", KEYS[1]) ~= ARGV[1] then return redis.error_reply("MINE") end
		 redis.call("DEL", KEYS[1])
		 local said = redis.status_reply("FREED")
		 return said`,
		"local function no(why) return redis.error_reply('NOTMINE ' .. why) end\r\nif redis.pcall('get', KEYS[1]) == ARGV[1] then\r\n  redis.call('del', KEYS[1]) return {['ok'] = 'OK'}\r\nelse\r\n  return no(KEYS[1])\r\nend",
	}},
	{"26 delete whatever it is", ForceRelease, "- release release release release", withChannel, nil, []string{
		`if redis.call('del', KEYS[1]) == 1 then redis.call('publish', KEYS[2], 0) return 1 else return 0 end`,
		`local n = redis.call("DEL", KEYS[1])
		 if n > 0 then redis.call("PUBLISH", KEYS[2], KEYS[1]) end
		 return n`,
		`if redis.call('exists', KEYS[1]) == 0 then return 0 end
		 redis.call('unlink', KEYS[1])
		 redis.call('publish', 'ch:' .. KEYS[1], 'free')
		 return 1`,
		"local function drop(k) return redis.pcall('del', k) end\r\nif drop(KEYS[1]) ~= 1 then return 0 end\r\nredis.call('Publish', KEYS[2], tostring(true))\r\nreturn 1",
	}},
}
