package lua

import (
	"errors"
	"strings"
	"testing"
)

// answers are what redis.call answers in FuzzRun, in turn.
var answers = []Reply{nil, "me", int64(1), Status("OK"), Error("WRONGTYPE of a key"), []any{"1", "2"}, Unknown{}, Later{}, int64(0), "", int64(-1), []any{}}

// FuzzRun runs anything as a script: it must not panic, nor go over its bounds, whatever it is.
func FuzzRun(f *testing.F) {
	for _, text := range []string{
		`if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end`,
		`local t = {} t[1] = t return t`, `local t = {1, 1} for i = 1, 40 do t = {t, t} end return t`, `local s = 'x' while true do s = s .. s end`,
		`return string.format('%s%s%s%d%.0f', ARGV[1], ARGV[1], ARGV[1], 1, 2)`, `local function f(n) return f(n + 1) + f(n) end return f(1)`,
		`for i, v in ipairs({1, 2, 'x', true}) do for _, w in pairs(ARGV) do redis.pcall(v, w) end end`, `local t = {a = {b = {}}} t.a.b[1] = 'x' return unpack(t.a.b)`,
		`repeat local x <const> = 1 until x`, `return {err = ARGV[1], ok = {}}`, `return - - -1 ^ 2 % 3 / 0 .. 'a'`, `goto a ::a::`, "return '\\200\\0' == [==[\r\n]]]==]",
		`local f = redis.call return f('get', 1e300, -0, 1/3), ('x'):rep(1e9)`, strings.Repeat("(", 3000), "return " + strings.Repeat("{", 3000), "return " + strings.Repeat("not ", 3000) + "1", strings.Repeat("do ", 3000), "return 1" + strings.Repeat("..1", 3000),
	} {
		f.Add(text, "lock:a", "me", uint8(0))
	}
	f.Fuzz(func(t *testing.T, text, key, arg string, answer uint8) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		read := 0
		m := newMachine(Version{ShortNumbers: answer%2 == 0}, []string{key}, []string{arg, "5000"}, func(args []string) (Reply, error) {
			for _, a := range args {
				read += len(a)
			}
			if answer++; answer == 255 {
				return nil, errors.New("refused")
			}
			return answers[int(answer)%len(answers)], nil
		})
		reply, err := m.run(s.body)
		if u := (*Unsupported)(nil); errors.As(err, &u) && strings.HasPrefix(u.What, internal) {
			t.Fatal(err)
		}
		if bound := (MaxSteps + 1 + MaxArgs) * bytesPerStep; err == nil && (m.steps > MaxSteps || m.depth != 0) || read > 2*bound {
			t.Errorf("%d steps, depth %d, %d bytes read", m.steps, m.depth, read)
		}
		if elements, bytes := size(reply); elements > MaxSteps || bytes > MaxSteps*bytesPerStep+MaxSteps*bytesPerStep {
			t.Errorf("a reply of %d elements, %d bytes", elements, bytes)
		}
	})
}

func size(r Reply) (elements, bytes int) {
	switch r := r.(type) {
	case []any:
		for _, e := range r {
			n, b := size(e)
			elements, bytes = elements+n, bytes+b
		}
	case string:
		bytes = len(r)
	case Status:
		bytes = len(r)
	case Error:
		bytes = len(r)
	}
	return elements + 1, bytes
}
