package idiom

import (
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/commands/adopt/idiom/lua"
	"github.com/lockproxy/lockproxy/integration/redistest"
)

// noKeys answers redis.call in scripts that have no lock.
func noKeys(args []string) (lua.Reply, error) {
	if strings.EqualFold(args[0], "echo") && len(args) == 2 {
		return args[1], nil
	}
	return nil, refusef("%s", args[0])
}

// luaScripts are about the language. All of them are run.
var luaScripts = []string{
	// numbers to text, and to replies
	`return tostring(5000)`, `return tostring(1/3)`, `return 1e15 .. ''`, `return 1e14 .. '' .. 123456789012345`, `return 0.1 .. ''`, `return 100000 .. ''`,
	`return -0.5`, `return 3.99`, `return -3.99`, `return 7 % -3`, `return -7 % 3`, `return 5.5 % 2 .. ''`, `return 2^10`, `return -2^2`, `return 2^3^2`,
	`return redis.call('echo', 5000)`, `return redis.call('echo', 1/3)`, `return redis.call('echo', 2^52)`, `return redis.call('echo', 1e16)`, `return redis.call('echo', 0.1)`, `return redis.call('echo', 12345.678901)`, `return redis.call('echo', 12345.6789012)`, `return redis.call('echo', 123.4567890123)`, `return redis.call('echo', -0.0001234567)`, `return redis.call('echo', 0.0012345678)`, `return redis.call('echo', 1e-6)`, `return redis.call('echo', 1e-7)`, `return redis.call('echo', 1.5e-300)`, `return redis.call('echo', 1234567890123.5)`, `return redis.call('echo', 2/3)`, `return redis.call('echo', 1e5/7)`, `return redis.call('echo', -1.5e-7)`,
	`return tonumber('12')`, `return tonumber(' 12 ') + 1`, `return tonumber('1e3')`, `return tonumber('12x')`, `return tonumber('')`, `return tonumber(nil)`, `return tonumber({}) == nil`, `return '10' + 5`, `return '3' * '4'`, `return 10 .. 20`,
	`return tonumber('5.')`, `return tonumber('.5') * 2`, `return tonumber('1e')`, `return tonumber('--1')`, `return tonumber('+1')`, `return 1 == '1'`, `return #'abc' .. ''`,
	`return math.floor(-0.5)`, `return math.ceil(0.2)`, `return math.abs(-3)`, `return math.max(1, 5, 3)`, `return math.min(4, 2, 8)`, `return math.floor('7.9')`, `return math.max(2)`,
	// values and truth
	`return nil`, `return`, `return true`, `return false`, `return {1, 2, 'x', true, {3}}`, `return {1, 'a', false, 3}`, `return {}`, `return {ok='x'}`, `return {err='X y'}`, `return 0 and 1 or 2`, `return nil and 1`, `return false or 'x'`, `return not nil`, `return not 0`, `return 'a', 'b'`,
	`return type(nil) .. type(1) .. type('') .. type({}) .. type(type) .. type(true)`, `return tostring(nil) .. tostring(true)`, `return #KEYS + #ARGV`, `return ARGV[7] == nil`,
	`return '10' < '9'`, `return 10 < 9`, `return 'a' == 'a'`, `return 2 <= 2`, `return '2' <= '2'`, `return 3 >= 2 and 3 ~= 2`,
	// text
	`return ('abc'):upper() .. string.lower('DEF')`, `return string.sub('hello', 2, 3)`, `return string.sub('hello', -3)`, `return ('hello'):sub(-3, -2)`, `return ('hello'):sub(0)`, `return ('hello'):sub(4, 2)`, `return ('hello'):sub(2, nil)`, `return ('hello'):sub(-99, 99)`, `return ('x'):len()`,
	`return string.format('%s-%d-%i-%.0f-%%', 'a', 3, 4.7, 2.5)`, `return string.format('%s', 5)`, `return string.format('%d', '12')`, `return 'a\tb\\\'\"\65\n'`, `return "a" .. 'b' .. [[c]] .. [==[d]]e]==]`, "return [[\r\nx\r\ny]]", "return 'a\\\nb'", `return '\x41'`, "return '\\\r\nx'",
	// blocks and functions
	`local x = 1 local f = function() return x end local x = 2 return f()`, `local x = 1 do local x = 2 end return x`, `local x = 1 if true then local x = 5 x = 6 end return x`,
	`local x = 1 local function set() x = 5 return 1 end return x + set()`, `local x = 'a' local function set() x = 'b' return 'c' end return x .. set()`, `local x = 1 local function set() x = 5 return 5 end return x == set()`,
	`local t, u = {1}, {2} local function swap() t = u return 1 end return t[swap()]`, `local x = 1 local function set() x = 5 return 1 end local function add() return x + set() end return add()`,
	`local a, b, c = (function() return 1, 2, 3 end)() return a + b + c`, `local function f() return 1, 2 end return {f(), f()}`, `local function f() return 1, 2 end return {(f())}`, `local function f() end return {f()}`, `local a, b = 1 return b == nil`,
	`local a a, a = 1, 2 return a`, `local a, b = 1, 2 a, b = b, a return {a, b}`, `local function fact(n) if n < 2 then return 1 end return n * fact(n - 1) end return fact(5)`, `local f = function(a, b) return b end return f(1, 2, 3)`,
	`local n = 0 for i = 1, 10, 3 do n = n + i end return n`, `local n = 0 for i = 3, 1, -1 do n = n * 10 + i end return n`, `local n = 0 for i = 1, 0 do n = 1 end return n`, `for i = 1, 3 do if i == 2 then return i end end`, `local n = 0 for i = '1', '3' do n = n + i end return n`, `local n = 0 for i = 1, 3 do local i = i * 2 n = n + i end return n`,
	`local i = 0 while true do i = i + 1 if i > 4 then break end end return i`, `local i = 0 repeat local done = i > 2 i = i + 1 until done return i`, `local n = '' for i, v in ipairs({'a', 'b'}) do n = n .. i .. v end return n`, `local n = 0 for _, v in pairs({1, 2, 3}) do n = n + v end return n`,
	`local fs = {} for i = 1, 3 do fs[i] = function() return i end end return fs[1]() + fs[3]()`, `local t = {} t[1] = 'a' t[#t + 1] = 'b' table.insert(t, 'c') return t`, `local t = {1, 2, 3} t[3] = nil return #t`, `local t = {a = 1, ['b c'] = 2} t.a = 5 return t.a + t['b c']`, `return table.getn({1, 2})`, `return unpack({4, 5})`, `return {unpack({4, 5})}`, `local x <const> = 1 return x`,
	`local t = {x = {y = {1, 2}}} return t.x.y[2]`, `do return 1 end`, `local function f(...) return 1 end return 1`, `return (1 + 2) * 3 - 4 / 2`, `return not (1 == 2) and 'y' or 'n'`, `return 1 .. 2 == '12'`, `return - - 2`, "return 1 -- x\n", `--[==[ x ]] ]==] return 2`, `return 2;`,
	// the library of Redis
	`return redis.error_reply('WORD text')`, `return redis.error_reply('-WORD text')`, `return redis.error_reply('WORD')`, `return redis.status_reply('fine')`, `return redis.error_reply('X y').err`, `return redis.status_reply('x')['ok']`, `redis.log(redis.LOG_DEBUG, 'x') return 1`, `redis.log(0, 'x', 'y') return 1`, `return {redis.status_reply('a'), redis.error_reply('B c')}`,
}

// TestLua_AsRedis runs scripts here and on a server. Those of refusedLua are not run here; no other is refused that
// the server can run.
func TestLua_AsRedis(t *testing.T) {
	n := redistest.StartNodes(t, 1)
	c := redistest.Open(t, n[0].Addr())
	on := dialectOf(t, c).lua()
	for _, text := range luaScripts {
		raw := c.Do(t, "EVAL", text, "0").Raw
		s, err := lua.Parse(text)
		var reply lua.Reply
		if err == nil {
			reply, err = s.Run(on, nil, nil, noKeys)
		}
		if err != nil {
			if !strings.HasPrefix(raw, "-") && !strings.Contains(text, "(...)") {
				t.Errorf("%s: %v, Redis answers %q", text, err, raw)
			}
			continue
		}
		if got := string(appendReply(nil, reply, 2)); got != raw {
			t.Errorf("%s: %q, Redis answers %q", text, got, raw)
		}
	}
}

// refusedLua is what a script may not do: servers differ, or it takes too much.
var refusedLua = []string{
	`return 1/0 .. ''`, `return 0/0`, `return 2^53`, `return 1e300`, `return redis.call('echo', 1e17)`, `return redis.call('echo', -0)`, `return tonumber('0x10')`, `return tonumber('inf')`, `return tonumber('1e999')`, "return tonumber('5\\0')", `return tonumber('10', 2)`, `return 0x10`,
	`return 'a' < 'b'`, `return 2^0.5`, `return {[1] = 'a'}`, `return {1, nil, 2}`, `local t = {} t[3] = 1 return t`, `local f, s = ipairs({1}) return s`, `return ipairs({})`, `local t = {1} for _, v in pairs(t) do table.insert(t, v) end`, `for k in pairs({a = 1}) do return k end`, `for i in next, {1} do return i end`,
	`local f = function() return 1 end local f = function() return f() end return f()`, `local t = {} t[1], t[2] = 1, 2 return t`, `function f() end`, `goto x`, `return select('#', 1)`, `return pcall(redis.call, 'get')`, `return setmetatable({}, {})`, `return string.rep('x', 9)`, `return ('x'):find('x')`, `return string.format('%5d', 1)`, `return string.format('%s', 'a\0b')`, `return string.lower('\195\132')`,
	`return redis.sha1hex('')`, `redis.setresp(3)`, `return redis.pcall('echo', {})`, `return redis.pcall()`, `return redis.error_reply(5)`, `return redis.status_reply('a\nb')`, `return unpack({1, 2}, 2)`, `table.insert({1}, 1, 2)`, `return tostring({})`, `return bit.band(1, 1)`, `return #redis.call('publish', 'a', 'b')`,
	`local t = {} t[1] = t return t`, `local t = {1, 1} for i = 1, 25 do t = {t, t} end return t`, `local t = {1, 2} for i = 1, 20 do t = {t, t} end return t`, `return {ok = 'a\nb'}`, `while true do end`, `local s = 'xxxxxxxxxxxxxxxx' while true do s = s .. s end`, `local function f() return f() end return f()`, `local t = {} while true do t[#t + 1] = 1 end`, `return ((((((((((((((((((((((((((((((((1 + 1) + 1) + 1) + 1) + 1) + 1) + 1) + 1) + 1) + 1) + 1) + 1) + 1) + 1) + 1) + 1) + 1) + 1) + 1) + 1) + 1) + 1) + 1) + 1) + 1) + 1) + 1) + 1) + 1) + 1) + 1) + 1)`,
}

func TestLua_Refuses(t *testing.T) {
	for _, text := range refusedLua {
		s, err := lua.Parse(text)
		if err == nil {
			_, err = s.Run(lua.Version{}, nil, nil, noKeys)
		}
		if err == nil {
			t.Errorf("%s is run", text)
		}
	}
}
