package adopt

import (
	"errors"
	"strings"
	"testing"
)

// TestClassify_OddArguments reports whether a call that cannot be run because of its arguments stands in the way of
// others of the same script.
func TestClassify_OddArguments(t *testing.T) {
	c := proxies(t, 1, "lock:*")[0]
	const extend = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0`
	c.do("SET", "lock:a", "me", "NX", "PX", "5000")
	for i, ttl := range []string{"soon", "5000", "6000"} {
		args := [][]byte{[]byte("EVAL"), []byte(extend), []byte("1"), []byte("lock:a"), []byte("me"), []byte(ttl)}
		if _, err := c.a.Call(c, args, Keys{[]int{3}, true}); (i == 0) != (err != nil) {
			t.Errorf("%s: %v", ttl, err)
		}
	}
}

// TestClassify_ChosenByArguments: the class of a call that was made before does not count for one whose arguments make the
// script do something else.
func TestClassify_ChosenByArguments(t *testing.T) {
	const chosen = `local v = redis.call('get', KEYS[1])
if ARGV[1] == 'read' then return v end
if ARGV[1] == 'take' then return redis.call('set', KEYS[1], ARGV[2], 'NX', 'PX', 9000) end
if ARGV[1] == 'force' or v == ARGV[2] then return redis.call('del', KEYS[1]) end return 0`
	const notCompared = `does not compare the value; adopted by "job:*"`
	none := errors.New("NOPERM")
	c := proxies(t, 1, "lock:*", "job:* as=strict")[0]
	for _, step := range []struct {
		key, args string
		no        error
		want      string
	}{
		{"lock:a", "read x", none, "$-1"},
		{"job:a", "read x", none, "$-1"},
		{"job:a", "force me", nil, "ADOPTREFUSED EVAL job:a: FORCE-RELEASE " + notCompared},
		{"job:a", "take me", nil, "+OK"},
		{"job:a", "compare you", nil, ":0"},
		{"job:a", "force you", nil, "ADOPTREFUSED EVAL job:a: with these arguments it " + notCompared},
		{"job:a", "compare me", none, "NOPERM"},
		{"job:a", "compare me", nil, ":1"},
		{"lock:a", "take me", nil, "+OK"},
		{"lock:a", "force you", nil, ":1"},
	} {
		c.no = step.no
		if got := c.do(append([]string{"EVAL", chosen, "1", step.key}, strings.Fields(step.args)...)...); got != step.want {
			t.Errorf("%s %s: %s, want %s", step.key, step.args, got, step.want)
		}
	}
}

// TestClassify_ComparedWith: what a script compares with need not be an argument. One that releases the lock without having
// compared its value is refused, since it was served as a read.
func TestClassify_ComparedWith(t *testing.T) {
	c := proxies(t, 1, "lock:*")[0]
	for condition, reply := range map[string]string{
		`redis.call('get', KEYS[1]) == 'me'`:                   "NOPERM",
		`'m' .. 'e' == redis.call('get', KEYS[1])`:             "NOPERM",
		`redis.call('get', KEYS[1]) == KEYS[2]`:                "NOPERM",
		`redis.call('get', KEYS[1]) == ARGV[1] .. ':' .. 'me'`: "NOPERM",
		`redis.call('strlen', KEYS[1]) == 2`:                   `ADOPTREFUSED EVAL lock:a: a change of a lock that it has not compared with a value; adopted by "lock:*"`,
	} {
		eval := func() string {
			return c.do("EVAL", "if "+condition+" then return redis.call('del', KEYS[1]) end return 0", "2", "lock:a", "me", "you")
		}
		c.do("SET", "lock:a", "me", "NX", "PX", "9000")
		c.no = errors.New("NOPERM")
		if got := eval(); got != reply {
			t.Errorf("without the right to: %s: %s", condition, got)
		}
		c.no = nil
		if got := eval(); reply == "NOPERM" && !strings.HasPrefix(got, ":") {
			t.Errorf("%s: %s", condition, got)
		}
		c.do("DEL", "lock:a")
	}
}

func TestClassify_SaysWhy(t *testing.T) {
	c := proxies(t, 1, "lock:*")[0]
	args := [][]byte{[]byte("EVAL"), []byte(`redis.call('del', KEYS[1]) return redis.call('incr', KEYS[2])`), []byte("2"), []byte("lock:a"), []byte("n")}
	for range 2 {
		if _, err := c.a.Call(c, args, Keys{[]int{3, 4}, true}); err == nil || !strings.Contains(err.Error(), "INCR beside the lock") {
			t.Error(err)
		}
	}
}

// TestClassify_Counter: a script that sets a semaphore's permits is refused and nothing is done, also where its calls before
// were locks, and it does not stand in the way of those behind it.
func TestClassify_Counter(t *testing.T) {
	const set = `if redis.call('exists', KEYS[1]) == 1 then return 0 end redis.call('set', KEYS[1], ARGV[1]) redis.call('publish', 'ch', ARGV[1]) return 1`
	const refused = `ADOPTREFUSED EVAL lock:a: a semaphore or a counter, not a lock: it sets a number, and wakes who waits for that; adopted by "lock:*"`
	c := proxies(t, 1, "lock:*")[0]
	for _, tt := range []struct {
		value, want string
		told        int
		is          string
	}{{"3", refused, 0, "$-1"}, {"me", ":1", 1, "$2 me"}, {"-3", refused, 0, "$-1"}, {"0", refused, 0, "$-1"}, {"3x", ":1", 1, "$2 3x"}} {
		c.asked = nil
		got := c.do("EVAL", set, "1", "lock:a", tt.value)
		if is := c.do("GET", "lock:a"); got != tt.want || len(c.asked) != tt.told || is != tt.is {
			t.Errorf("%q: %s, and GET says %s; the upstream got %q", tt.value, got, is, c.asked)
		}
		c.do("DEL", "lock:a")
	}
}

// TestCall_KeyInText reports whether a lock whose key stands in the text of a script is found.
func TestCall_KeyInText(t *testing.T) {
	c := proxies(t, 1, "lock:*")[0]
	eval := func(text string, args ...string) string {
		words := [][]byte{[]byte("eval"), []byte(text), []byte("0")}
		for _, a := range args {
			words = append(words, []byte(a))
		}
		if !c.a.Concerns(words) || !c.a.Adopts(0, words, Keys{nil, true}) {
			return "forwarded"
		}
		call, err := c.a.Call(c, words, Keys{nil, true})
		if err != nil {
			return err.Error()
		}
		if call == nil {
			return "no lock"
		}
		r, err := c.a.Decide(t.Context(), c, call)
		if err != nil {
			return err.Error()
		}
		return strings.TrimSpace(string(r.Reply))
	}
	for _, tt := range []struct{ text, want string }{
		{`return redis.call('set', 'lock:a', ARGV[1], 'NX', 'PX', 5000)`, "+OK"},
		{`return redis.call("set", "lock:" .. ARGV[2], ARGV[1], "NX", "PX", 5000)`, "$-1"},
		{`if redis.call('get', 'lock:a') == ARGV[1] then return redis.call('del', 'lock:a') end return 0`, ":1"},
		{`return redis.call('set', 'lock:a', cjson.encode(ARGV), 'NX', 'PX', 5000)`, `ADOPTREFUSED EVAL lock:*: not supported: cjson; adopted by "lock:*"`},
		{`return redis.call('incr', 'block:a')`, "forwarded"},
		{`return 1 -- lock:a`, "forwarded"},
		{`return 'lock:a'`, "no lock"},
	} {
		if got := eval(tt.text, "me", "a"); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.text, got, tt.want)
		}
	}
}
