package quorum

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"

	lua "github.com/yuin/gopher-lua"
	luaparse "github.com/yuin/gopher-lua/parse"
)

// simLua runs the scripts of all simulated nodes, one at a time. Scripts keep nothing
// between runs, as Redis would not let them, so that one interpreter does for all.
var simLua = struct {
	sync.Mutex
	state    *lua.LState
	node     *simNode                      // whose script runs
	compiled map[string]*lua.FunctionProto // by source
}{compiled: map[string]*lua.FunctionProto{}}

// compileSim compiles a source once.
func compileSim(source string) (*lua.FunctionProto, error) {
	simLua.Lock()
	defer simLua.Unlock()
	if p := simLua.compiled[source]; p != nil {
		return p, nil
	}
	chunk, err := luaparse.Parse(strings.NewReader(source), "script")
	if err != nil {
		return nil, err
	}
	p, err := lua.Compile(chunk, "script")
	if err == nil {
		simLua.compiled[source] = p
	}
	return p, err
}

// runSim runs a script on a node, whose simulation is locked, and returns its reply.
func runSim(n *simNode, p *lua.FunctionProto, keys, argv []string) any {
	simLua.Lock()
	defer simLua.Unlock()
	if simLua.state == nil {
		simLua.state = newSimLua()
	}
	l := simLua.state
	simLua.node = n
	l.SetGlobal("KEYS", luaStrings(l, keys))
	l.SetGlobal("ARGV", luaStrings(l, argv))
	l.SetTop(0)
	if err := l.CallByParam(lua.P{Fn: l.NewFunctionFromProto(p), NRet: 1, Protect: true}); err != nil {
		return fmt.Errorf("ERR %w", err)
	}
	return fromLua(l.Get(-1))
}

func newSimLua() *lua.LState {
	l := lua.NewState(lua.Options{SkipOpenLibs: true, RegistrySize: 4096, CallStackSize: 64})
	for name, open := range map[string]lua.LGFunction{
		lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable, lua.StringLibName: lua.OpenString, lua.MathLibName: lua.OpenMath,
	} {
		l.Push(l.NewFunction(open))
		l.Push(lua.LString(name))
		l.Call(1, 0)
	}
	redis := l.NewTable()
	redis.RawSetString("call", l.NewFunction(func(l *lua.LState) int { return simCall(l, true) }))
	redis.RawSetString("pcall", l.NewFunction(func(l *lua.LState) int { return simCall(l, false) }))
	l.SetGlobal("redis", redis)
	return l
}

// simCall is redis.call, or redis.pcall if raise is false.
func simCall(l *lua.LState, raise bool) int {
	args := make([]string, l.GetTop())
	for i := range args {
		s, err := luaArgument(l.Get(i + 1))
		if err != nil {
			l.RaiseError("%v", err)
		}
		args[i] = s
	}
	reply := simLua.node.execute(nil, args)
	if err, ok := reply.(error); ok && raise {
		l.RaiseError("%v", err)
	}
	l.Push(toLua(l, reply))
	return 1
}

func luaStrings(l *lua.LState, all []string) *lua.LTable {
	t := l.CreateTable(len(all), 0)
	for _, s := range all {
		t.Append(lua.LString(s))
	}
	return t
}

// luaArgument is an argument as Redis reads it: a number that is whole without an exponent.
func luaArgument(v lua.LValue) (string, error) {
	switch v := v.(type) {
	case lua.LString:
		return string(v), nil
	case lua.LNumber:
		if f := float64(v); f != math.Trunc(f) || math.Abs(f) >= 1<<53 {
			return strconv.FormatFloat(f, 'g', 17, 64), nil
		}
		return strconv.FormatInt(int64(v), 10), nil
	}
	return "", errors.New("Lua redis lib command arguments must be strings or integers")
}

// toLua converts a reply as Redis does for a script.
func toLua(l *lua.LState, reply any) lua.LValue {
	switch r := reply.(type) {
	case nil:
		return lua.LFalse
	case int64:
		return lua.LNumber(r)
	case string:
		return lua.LString(r)
	case simStatus:
		t := l.NewTable()
		t.RawSetString("ok", lua.LString(r))
		return t
	case error:
		t := l.NewTable()
		t.RawSetString("err", lua.LString(r.Error()))
		return t
	case []any:
		t := l.CreateTable(len(r), 0)
		for _, v := range r {
			t.Append(toLua(l, v))
		}
		return t
	}
	panic(fmt.Sprintf("a reply of type %T", reply))
}

// fromLua converts what a script returns as Redis does: numbers lose their fraction, and
// a table ends at its first nil.
func fromLua(v lua.LValue) any {
	switch v := v.(type) {
	case lua.LNumber:
		return int64(v)
	case lua.LString:
		return string(v)
	case lua.LBool:
		if v {
			return int64(1)
		}
	case *lua.LTable:
		if e := v.RawGetString("err"); e != lua.LNil {
			return errors.New(e.String())
		}
		if ok := v.RawGetString("ok"); ok != lua.LNil {
			return simStatus(ok.String())
		}
		list := []any{}
		for i := 1; v.RawGetInt(i) != lua.LNil; i++ {
			list = append(list, fromLua(v.RawGetInt(i)))
		}
		return list
	}
	return nil
}
