package idiom

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// A grammar writes a script of lock code; its bytes choose among the ways to go on.
type grammar struct {
	choices []byte
	depth   int
	locals  []string
}

func (g *grammar) pick(n int) int {
	if len(g.choices) == 0 {
		return 0
	}
	c := int(g.choices[0]) % n
	g.choices = g.choices[1:]
	return c
}

func (g *grammar) one(of ...string) string { return of[g.pick(len(of))] }

// script writes one that ends with a return.
func (g *grammar) script() string { return g.block() + "return " + g.value() }

func (g *grammar) block() string {
	var b strings.Builder
	known := len(g.locals)
	for range g.pick(4) {
		b.WriteString(g.statement())
		b.WriteString(g.one("\n", " ", "; ", "\r\n", " -- x\n"))
	}
	if g.depth > 0 {
		g.locals = g.locals[:known]
	}
	return b.String()
}

func (g *grammar) statement() string {
	if g.depth > 3 {
		return "redis.call('get', KEYS[1])"
	}
	g.depth++
	defer func() { g.depth-- }()
	switch g.pick(9) {
	case 0:
		value := g.value()
		g.locals = append(g.locals, fmt.Sprintf("v%d", len(g.locals)))
		return "local " + g.locals[len(g.locals)-1] + " = " + value
	case 1:
		return "if " + g.value() + " then " + g.block() + g.leave() + "end"
	case 2:
		return "if " + g.value() + " then " + g.block() + g.leave() + "else " + g.block() + g.leave() + "end"
	case 3:
		return "if " + g.value() + " then " + g.block() + "elseif " + g.value() + " then " + g.block() + "end"
	case 4:
		if len(g.locals) > 0 {
			return g.local() + " = " + g.value()
		}
	case 5:
		return "for i = " + g.one("1, 2", "2, 1, -1", "1, 0") + " do " + g.block() + "end"
	case 6:
		return "for _, e in " + g.one("ipairs", "pairs") + "({'get', 'exists', 'pttl'}) do redis.pcall(e, KEYS[1]) end"
	case 7:
		result := "(function(a) " + g.block() + "return a end)(" + g.value() + ")"
		g.locals = append(g.locals, fmt.Sprintf("v%d", len(g.locals)))
		return "local " + g.locals[len(g.locals)-1] + " = " + result
	}
	return g.call()
}

func (g *grammar) leave() string {
	if g.pick(2) == 0 {
		return "return " + g.value() + " "
	}
	return ""
}

func (g *grammar) local() string { return g.locals[g.pick(len(g.locals))] }

func (g *grammar) value() string {
	if g.depth > 5 {
		return g.one("1", "0", "ARGV[1]", "nil", "'me'")
	}
	g.depth++
	defer func() { g.depth-- }()
	switch g.pick(20) {
	case 0, 1, 2, 3, 4:
		return g.call()
	case 5, 6:
		return g.call() + g.one(" == ", " ~= ") + g.value()
	case 7:
		return "(" + g.value() + g.one(" and ", " or ", " == ", " ~= ") + g.value() + ")"
	case 8:
		return "not " + g.value()
	case 9:
		return "(tonumber(" + g.value() + ") or 0)" + g.one(" + ", " - ", " * ", " / ", " % ", " < ", " >= ") + g.one("1", "2", "0.5", "1000", "tonumber(ARGV[2])")
	case 10:
		return "tostring(" + g.one("ARGV[1]", "nil", "1", "true", "1.5", "ARGV[2] / 3") + ")"
	case 11:
		return "type(" + g.value() + ")"
	case 12:
		return "{" + g.one("1", "'a'", "{}") + ", " + g.value() + "}"
	case 13:
		return g.one("redis.status_reply('OK')", "redis.error_reply('NOT mine')", "{ok = 'x'}", "{err = 'A b'}", "redis.error_reply('WORD')")
	case 14:
		return "(ARGV[1] .. " + g.one("''", "1", "ARGV[2]", "0.1") + ")" + g.one("", ":len()", ":upper()", ":sub(1, 2)", ":sub(-2)")
	case 15:
		return g.one("math.floor(ARGV[2] / 3)", "math.max(1, 2)", "string.format('%s-%d', ARGV[1], 3)", "#ARGV", "#ARGV[1]", "math.ceil(2.5)", "({unpack(ARGV)})[2]")
	case 16, 17:
		if len(g.locals) > 0 {
			return g.local()
		}
	case 18:
		return g.one("true", "false", "nil", "-1", "3.7", "1e3")
	}
	return g.one("ARGV[1]", "1", "0", "'me'", "ARGV[2]", "KEYS[1]", "'other'")
}

func (g *grammar) call() string {
	how := g.one("redis.call(", "redis.call(", "redis.call(", "redis.pcall(")
	ms := g.one("ARGV[2]", "5000", "tonumber(ARGV[2])", "ARGV[2] / 2", "0", "-1", "'x'", "ARGV[2] + 0.5", "2 * ARGV[2]")
	value := g.one("ARGV[1]", "ARGV[1]", "'other'", "1", "KEYS[1]", "''")
	args := g.one("'get', KEYS[1]", "'GET', KEYS[1]", "'del', KEYS[1]", "'set', KEYS[1], %v, 'NX', 'PX', %t", "'set', KEYS[1], %v, 'px', %t", "'set', KEYS[1], %v, 'xx', 'ex', %t", "'set', KEYS[1], %v, 'nx', 'get'",
		"'setnx', KEYS[1], %v", "'setex', KEYS[1], %t, %v", "'psetex', KEYS[1], %t, %v", "'getset', KEYS[1], %v", "'exists', KEYS[1]", "'pttl', KEYS[1]", "'ttl', KEYS[1]", "'type', KEYS[1]", "'unlink', KEYS[1]", "'getdel', KEYS[1]",
		"'expire', KEYS[1], %t", "'pexpire', KEYS[1], %t", "'pexpire', KEYS[1], %t, 'GT'", "'expire', KEYS[1], %t, 'nx'", "'persist', KEYS[1]", "'strlen', KEYS[1]", "'getrange', KEYS[1], 0, 1", "'set', KEYS[1], %v", "'set', KEYS[1], %v, 'KEEPTTL'",
		"'hexists', KEYS[1], %v", "'hget', KEYS[1], %v", "'hincrby', KEYS[1], %v, 1", "'hincrby', KEYS[1], %v, -1", "'hset', KEYS[1], %v, 1", "'hdel', KEYS[1], %v", "'hlen', KEYS[1]", "'hgetall', KEYS[1]", "'hsetnx', KEYS[1], %v, 1",
		"'getex', KEYS[1], 'px', %t", "'getex', KEYS[1], 'PERSIST'", "'getex', KEYS[1]", "'hmget', KEYS[1], %v, 'me'", "'expire', KEYS[1], %t, 'xx', 'gt'", "'pexpire', KEYS[1], %t, 'LT', 'XX'", "'substr', KEYS[1], -2, -1", "'hvals', KEYS[1]", "'mget', KEYS[1]", "'touch', KEYS[1]",
		"'delex', KEYS[1], 'IFEQ', %v", "'delex', KEYS[1]", "'delifeq', KEYS[1], %v", "'set', KEYS[1], %v, 'IFEQ', 'me', 'px', %t", "'set', KEYS[1], %v, 'ifeq', ARGV[1], 'GET'",
		"'hincrby', KEYS[1], 'me', -1", "'hincrby', KEYS[1], 'me', 1", "'hexists', KEYS[1], 'me'", "'hget', KEYS[1], 'me'", "'hdel', KEYS[1], 'me'", "'hkeys', KEYS[1]", "'hstrlen', KEYS[1], %v",
		"'zscore', KEYS[1], %v", "'zcard', KEYS[1]", "'zcount', KEYS[1], '-inf', '+inf'", "'zrange', KEYS[1], 0, -1", "'zrem', KEYS[1], 'me', '__write__'", "'zadd', KEYS[1], %t, %v", "'zrevrange', KEYS[1], 0, 0, 'withscores'",
		"'get', KEYS[2]", "'get', KEYS[2]", "'set', KEYS[2], 1, 'px', 9000", "'set', KEYS[2], %v, 'ex', 9", "'psetex', KEYS[2], 9000, 0",
		"'publish', 'ch:a', %v", "'lpush', 'list:a', %v", "'nothing', KEYS[1]", "'get'")
	return how + strings.NewReplacer("%t", ms, "%v", value).Replace(args) + ")"
}

// hashed writes a script of a hash: enter, leave, extend or read, in a frame of its own.
func (g *grammar) hashed() string {
	mine := g.one("redis.call('hexists', KEYS[1], ARGV[1]) == 1", "redis.call('hget', KEYS[1], ARGV[1])", "redis.call('hstrlen', KEYS[1], ARGV[1]) > 0", "redis.call('type', KEYS[1]).ok == 'hash' and redis.call('hexists', KEYS[1], ARGV[1]) == 1")
	expire := g.one("redis.call('pexpire', KEYS[1], ARGV[2])", "redis.call('expire', KEYS[1], 5)", "redis.call('pexpire', KEYS[1], ARGV[2], 'GT')", "")
	first, keep := "", g.one("", "redis.call('publish', 'ch:a', n) ")
	if g.pick(2) == 0 {
		first = "local first = redis.call('get', KEYS[2]) if first then return tonumber(first) end "
		keep += g.one("redis.call('set', KEYS[2], n, 'px', 9000) ", "redis.call('setex', KEYS[2], 9, n) ", "redis.call('set', KEYS[2], 0, 'px', 9000) ")
	}
	switch g.pick(3) {
	case 0:
		return "if redis.call('exists', KEYS[1]) == 0 or " + mine + " then local n = redis.call('hincrby', KEYS[1], ARGV[1], 1) " + expire + " return " + g.one("n", "nil", "1") + " end return redis.call('pttl', KEYS[1])"
	case 1:
		return first + "if not (" + mine + ") then return " + g.one("nil", "0", "-1") + " end local n = redis.call('hincrby', KEYS[1], ARGV[1], -1) if n > 0 then " + expire + " else " +
			g.one("redis.call('del', KEYS[1])", "redis.call('hdel', KEYS[1], ARGV[1])", "redis.call('unlink', KEYS[1])") + " end " + keep + "return n"
	}
	return "if " + mine + " then " + expire + " return " + g.one("1", "redis.call('hget', KEYS[1], ARGV[1])", "redis.call('hgetall', KEYS[1])") + " end return 0"
}

// sorted writes a script of a sorted set: take, extend, release or read, in a frame of its own.
func (g *grammar) sorted() string {
	now := g.one("local t = redis.call('time') local now = t[1] * 1000 + math.floor(t[2] / 1000) ", "local t = redis.call('TIME') local now = t[1] * 1000 + t[2] / 1000 ")
	if g.pick(3) > 0 {
		now += "redis.call('zremrangebyscore', KEYS[1], '-inf', " + g.one("now", "now - 5", "'(' .. math.floor(now)", "'+inf'", "0") + ") "
	}
	if g.pick(2) == 0 {
		now = "if redis.call('type', KEYS[1]).ok == 'string' then return " + g.one("0", "false") + " end " + now
	}
	mine := g.one("redis.call('zscore', KEYS[1], ARGV[1])", "(redis.call('zscore', KEYS[1], ARGV[1]) ~= false)", "(tonumber(redis.call('zscore', KEYS[1], ARGV[1]) or 0) > now)", "redis.call('zrange', KEYS[1], 0, -1)[2] == ARGV[1]", "redis.call('zcard', KEYS[1]) == 2")
	ends := g.one("now + ARGV[2]", "now + tonumber(ARGV[2])", "math.floor(now) + ARGV[2]", "now + 5000", "now", "'x'")
	add := g.one("redis.call('zadd', KEYS[1], E, ARGV[1], E, '__write__') ", "redis.call('zadd', KEYS[1], E, ARGV[1]) redis.call('zadd', KEYS[1], E, '__write__') ", "redis.call('zadd', KEYS[1], E, '__write__') redis.call('zadd', KEYS[1], E, ARGV[1]) ",
		"redis.call('zadd', KEYS[1], E, ARGV[1]) ", "redis.call('zadd', KEYS[1], E, ARGV[1], E, '__write__', E, 'more') redis.call('zrem', KEYS[1], 'more') ")
	add = strings.ReplaceAll(add, "E", ends)
	add += g.one("redis.call('pexpireat', KEYS[1], redis.call('zrevrange', KEYS[1], 0, 0, 'withscores')[2]) ", "redis.call('pexpireat', KEYS[1], math.floor("+ends+")) ", "redis.call('pexpire', KEYS[1], ARGV[2]) ", "")
	free := g.one("redis.call('zcard', KEYS[1]) == 0", "redis.call('zcount', KEYS[1], now, '+inf') == 0", "redis.call('zcount', KEYS[1], '-inf', 'inf') < 1", "not redis.call('zscore', KEYS[1], '__write__')", "#redis.call('zrevrange', KEYS[1], 0, -1) == 0", "redis.call('exists', KEYS[1]) == 0")
	remove := g.one("redis.call('zrem', KEYS[1], ARGV[1], '__write__')", "redis.call('zrem', KEYS[1], ARGV[1]) + redis.call('zrem', KEYS[1], '__write__')", "redis.call('del', KEYS[1])", "redis.call('zremrangebyscore', KEYS[1], 0, 'inf')", "redis.call('zrem', KEYS[1], ARGV[1])")
	says := g.one("1", "true", "redis.call('zcard', KEYS[1])", "redis.call('zrange', KEYS[1], 0, -1)", "redis.call('pttl', KEYS[1])", "redis.call('zscore', KEYS[1], ARGV[1])", "redis.call('zrevrange', KEYS[1], 0, -1, 'WITHSCORES')")
	no := " return " + g.one("0", "false", "redis.call('pttl', KEYS[1])", "redis.call('zscore', KEYS[1], 'me')")
	switch g.pick(4) {
	case 0:
		return now + "if " + free + g.one(" or "+mine, "") + " then " + add + "return " + says + " end" + no
	case 1:
		return now + "if not " + mine + " then" + no + " end " + add + "return " + says
	case 2:
		return now + "if " + mine + " then local n = " + remove + " return n end" + no
	}
	return now + "if " + mine + " then return " + says + " end" + no
}

// FuzzGenerated writes scripts out of a grammar and compares what they do in every state with a real server.
func FuzzGenerated(f *testing.F) {
	f.Add([]byte{0})
	f.Add([]byte{2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 5, 0, 0, 0, 0, 0, 0, 17, 2, 1, 0, 0})
	f.Add([]byte{2, 0, 0, 0, 0, 1, 0, 1, 0})
	f.Add([]byte{2, 1, 1, 1, 0, 1, 0, 0, 1})
	f.Add([]byte{2, 2, 0, 0, 1, 2, 1})
	f.Add([]byte{3, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{3, 1, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1})
	f.Add([]byte("if it is mine, then delete it, else say no"))
	f.Add([]byte{3, 1, 7, 0, 0, 0, 3, 1, 9, 18, 0, 2, 1, 1, 1, 3, 3, 4, 26, 28, 30, 5, 1, 0, 7, 9, 11, 13, 15, 17})
	n := redistest.StartNodes(f, 1)
	c := redistest.Open(f, n[0].Addr())
	d := dialectOf(f, c)
	f.Fuzz(func(t *testing.T, choices []byte) {
		if len(choices) > 300 {
			return
		}
		g := &grammar{choices: choices}
		var text string
		switch g.pick(4) {
		case 2:
			text = g.hashed()
		case 3:
			text = g.sorted()
		default:
			text = g.script()
		}
		call, err := ParseScript(text).Call([]string{"lock:a", "latch:a"}, withTTL, 2, false, isLock)
		if err != nil || call == nil {
			return
		}
		call.Speak(d)
		call.Accept(time.Now())
		same(t, c, call, []string{"EVAL", text, "2", "lock:a", "latch:a", "me", "5000"})
		if t.Failed() {
			t.Log(text)
		}
	})
}
