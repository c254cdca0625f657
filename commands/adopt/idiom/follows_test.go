package idiom

import "testing"

func TestScript_Follows(t *testing.T) {
	for text, want := range map[string]bool{
		"local r = redis.call('SET', KEYS[1], ARGV[1], 'NX'); redis.call('GET', KEYS[1]); return r":                                    true,
		"if redis.call('get', KEYS[1]) == ARGV[1] then redis.pcall('pttl', KEYS[1]) return 1 end return 0":                             true,
		"local function see() server.call('exists', KEYS[1]) end see() return redis.call('del', KEYS[1])":                              true,
		"if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0":                                 false,
		"if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) redis.call('publish', 'c', 1) return 1 end return 0": false,
		"local v = redis.call('get', KEYS[1]) return redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', 9000)":                            false,
		"redis.log(redis.LOG_NOTICE, 'get') return redis.call('get', KEYS[1])":                                                         false,
		"redis.call('get'": false,
	} {
		if got := ParseScript(text).Follows(); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
}
