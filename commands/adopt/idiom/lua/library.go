package lua

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"

	"github.com/yuin/gopher-lua/ast"
	"github.com/yuin/gopher-lua/parse"
)

// A Script is a parsed script.
type Script struct {
	body []ast.Stmt
	text []string // the strings that are written in it
	drop []string
}

// Strings returns the strings that are written in the script. They must not be changed.
func (s *Script) Strings() []string { return s.text }

// Dropped returns the commands, in upper case, whose replies the script does not use: redis.call or redis.pcall as a
// statement.
func (s *Script) Dropped() []string { return s.drop }

// Parse parses a script. The error is an *Unsupported, also for a text that is no Lua: then Redis says what is wrong.
func Parse(text string) (*Script, error) {
	if len(text) > MaxText {
		return nil, unsupported(fmt.Sprintf("a script of %d bytes", len(text)))
	}
	body, err := parse.Parse(strings.NewReader(text), "script")
	if err != nil {
		return nil, unsupported("its syntax")
	}
	s := &Script{body: body}
	s.note(reflect.ValueOf(body))
	return s, nil
}

// note collects what Strings and Dropped return from a part of the syntax tree.
func (s *Script) note(part reflect.Value) {
	switch part.Kind() {
	case reflect.Interface, reflect.Pointer:
		if part.IsNil() {
			return
		}
		switch node := part.Interface().(type) {
		case *ast.StringExpr:
			s.text = append(s.text, node.Value)
		case *ast.FuncCallStmt:
			if name, ok := redisCommand(node.Expr); ok {
				s.drop = append(s.drop, name)
			}
		}
		s.note(part.Elem())
	case reflect.Slice:
		for i := range part.Len() {
			s.note(part.Index(i))
		}
	case reflect.Struct:
		for i := range part.NumField() {
			if part.Type().Field(i).IsExported() {
				s.note(part.Field(i))
			}
		}
	}
}

// redisCommand returns the command that an expression calls, if its name is written there.
func redisCommand(e ast.Expr) (name string, ok bool) {
	call, isCall := e.(*ast.FuncCallExpr)
	if !isCall || len(call.Args) == 0 {
		return "", false
	}
	f, isField := call.Func.(*ast.AttrGetExpr)
	command, isText := call.Args[0].(*ast.StringExpr)
	if !isField || !isText {
		return "", false
	}
	of, isName := f.Object.(*ast.IdentExpr)
	key, isKey := f.Key.(*ast.StringExpr)
	ok = isName && isKey && (of.Value == "redis" || of.Value == "server") && (key.Value == "call" || key.Value == "pcall")
	return strings.ToUpper(command.Value), ok
}

// library is what every script sees beside KEYS and ARGV. No script can change it: see machine.assign and
// modules.
var library map[string]value

// modules are the names of the tables of the library. A field that they lack is unsupported, and none can be set.
var modules = map[*table]string{}

// elsewhere are names of the library of Redis that this package does not have.
var elsewhere = map[string]bool{}

func init() {
	for _, name := range strings.Fields("cjson cmsgpack struct bit os next select pcall xpcall assert loadstring load " +
		"rawget rawset rawequal setmetatable getmetatable collectgarbage coroutine _G print newproxy setfenv getfenv") {
		elsewhere[name] = true
	}
	redis := module("redis", map[string]func(*machine, []value) []value{
		"call":         func(m *machine, args []value) []value { return m.redis(args, true) },
		"pcall":        func(m *machine, args []value) []value { return m.redis(args, false) },
		"error_reply":  func(m *machine, args []value) []value { return m.replyTable("err", args) },
		"status_reply": func(m *machine, args []value) []value { return m.replyTable("ok", args) },
		"log":          func(_ *machine, args []value) []value { checkLog(args); return nil },
	})
	for i, level := range []string{"LOG_DEBUG", "LOG_VERBOSE", "LOG_NOTICE", "LOG_WARNING"} {
		redis.fields[level] = float64(i)
	}
	library = map[string]value{
		"redis": redis, "server": redis,
		"string": module("string", map[string]func(*machine, []value) []value{
			"len":    func(_ *machine, args []value) []value { return one(float64(len(stringArg(args, 0)))) },
			"sub":    func(_ *machine, args []value) []value { return one(substring(args)) },
			"lower":  func(_ *machine, args []value) []value { return one(strings.ToLower(ascii(stringArg(args, 0)))) },
			"upper":  func(_ *machine, args []value) []value { return one(strings.ToUpper(ascii(stringArg(args, 0)))) },
			"format": func(_ *machine, args []value) []value { return one(format(args)) },
		}),
		"math": module("math", map[string]func(*machine, []value) []value{
			"floor": func(_ *machine, args []value) []value { return one(math.Floor(numberArg(args, 0))) },
			"ceil":  func(_ *machine, args []value) []value { return one(math.Ceil(numberArg(args, 0))) },
			"abs":   func(_ *machine, args []value) []value { return one(math.Abs(numberArg(args, 0))) },
			"max": func(_ *machine, args []value) []value {
				return one(reduce(args, func(best, n float64) bool { return n > best }))
			},
			"min": func(_ *machine, args []value) []value {
				return one(reduce(args, func(best, n float64) bool { return n < best }))
			},
		}),
		"table": module("table", map[string]func(*machine, []value) []value{
			"insert": func(_ *machine, args []value) []value { insert(args); return nil },
			"getn":   func(_ *machine, args []value) []value { return one(float64(len(tableArg(args, 0).list))) },
		}),
	}
	for name, do := range map[string]func(*machine, []value) []value{
		"tonumber": func(_ *machine, args []value) []value { return one(toNumber(args)) },
		"tostring": func(_ *machine, args []value) []value { return one(toString(at(args, 0))) },
		"type":     func(_ *machine, args []value) []value { return one(typeName(at(args, 0))) },
		"ipairs":   func(_ *machine, args []value) []value { return one(&elements{of: tableArg(args, 0)}) },
		"pairs":    func(_ *machine, args []value) []value { return one(pairs(tableArg(args, 0))) },
		"unpack":   func(_ *machine, args []value) []value { return unpack(args) },
		"error":    func(_ *machine, args []value) []value { raisef("%v", at(args, 0)); return nil },
	} {
		library[name] = &function{name: name, library: do}
	}
}

func module(name string, all map[string]func(*machine, []value) []value) *table {
	t := &table{fields: map[value]value{}}
	for f, do := range all {
		t.fields[f] = &function{name: name + "." + f, library: do}
	}
	modules[t] = name
	return t
}

func one(v value) []value { return []value{v} }

// redis is redis.call, or redis.pcall where an error is not raised.
func (m *machine) redis(args []value, raise bool) []value {
	words := make([]string, len(args))
	for i, a := range args {
		switch a := a.(type) {
		case string:
			words[i] = a
		case float64:
			words[i] = m.argument(a)
		default:
			raiseOrRefuse(raise, "an argument of redis.call is a "+typeName(a))
		}
	}
	if len(words) == 0 {
		raiseOrRefuse(raise, "redis.call without arguments")
	}
	r, err := m.call(words)
	if err != nil {
		panic(callerError{err})
	}
	if e, isErr := r.(Error); isErr && raise {
		raisef("%s", e)
	}
	return one(valueOf(r))
}

// raiseOrRefuse raises an error of redis.call. That of redis.pcall is a reply, worded as the server likes.
func raiseOrRefuse(raise bool, text string) {
	if !raise {
		panic(unsupported(text))
	}
	raisef("%s", text)
}

// checkLog raises what redis.log raises.
func checkLog(args []value) {
	level, ok := number(at(args, 0))
	switch {
	case len(args) < 2:
		raisef("redis.log without a text")
	case !ok || level < 0 || level > 3:
		raisef("redis.log without a level")
	}
	for i := range args[1:] {
		stringArg(args, i+1)
	}
}

// argument is how Redis passes a number on: a whole one without a fraction. Versions of Redis write very large ones, and
// minus zero, in different ways.
func (m *machine) argument(n float64) string {
	if math.Abs(n) >= 1e17 || math.IsNaN(n) || n == 0 && math.Signbit(n) {
		panic(unsupported("an argument that is so odd a number"))
	}
	if n == math.Trunc(n) {
		return strconv.FormatInt(int64(n), 10)
	}
	if m.on.ShortNumbers {
		return shortest(n)
	}
	return fmt.Sprintf("%.17g", n)
}

// shortest is how Redis from 7.2 on writes a number with a fraction: with an exponent if there are more than six digits
// behind the point, and the number is not about one.
func shortest(n float64) string {
	mantissa, power, _ := strings.Cut(strconv.FormatFloat(n, 'e', -1, 64), "e")
	exponent, _ := strconv.Atoi(power)
	_, fraction, _ := strings.Cut(mantissa, ".")
	if len(fraction)-exponent < 7 || -4 < exponent && exponent < 4 {
		return strconv.FormatFloat(n, 'f', -1, 64)
	}
	return fmt.Sprintf("%se%+d", mantissa, exponent)
}

func (m *machine) replyTable(kind string, args []value) []value {
	text, isString := known(at(args, 0)).(string)
	if !isString || len(args) != 1 {
		panic(unsupported("a reply of redis." + map[string]string{"err": "error_reply", "ok": "status_reply"}[kind] + " that is no string"))
	}
	line(text)
	if kind == "err" && !m.on.BareErrors {
		text = strings.TrimPrefix(text, "-")
		if !strings.Contains(text, " ") {
			text = "ERR " + text
		}
	}
	return one(&table{fields: map[value]value{kind: text}})
}

func stringArg(args []value, i int) string {
	s, ok := text(at(args, i))
	if !ok {
		raisef("argument %d is a %s and no string", i+1, typeName(at(args, i)))
	}
	return s
}

func numberArg(args []value, i int) float64 {
	n, ok := number(at(args, i))
	if !ok {
		raisef("argument %d is a %s and no number", i+1, typeName(at(args, i)))
	}
	return n
}

func tableArg(args []value, i int) *table {
	t, ok := at(args, i).(*table)
	if !ok {
		raisef("argument %d is a %s and no table", i+1, typeName(at(args, i)))
	}
	return t
}

// ascii refuses what lower and upper would change by the server's locale.
func ascii(s string) string {
	for i := range len(s) {
		if s[i] >= 0x80 {
			panic(unsupported("letters that are not ASCII"))
		}
	}
	return s
}

// substring is string.sub: positions from 1, negative ones from the end.
func substring(args []value) string {
	s := stringArg(args, 0)
	from, to := int(whole(numberArg(args, 1))), -1
	if at(args, 2) != nil {
		to = int(whole(numberArg(args, 2)))
	}
	if from < 0 {
		from = max(len(s)+from+1, 1)
	}
	if to < 0 {
		to = len(s) + to + 1
	}
	from, to = max(from, 1), min(to, len(s))
	if from > to {
		return ""
	}
	return s[from-1 : to]
}

// format is string.format with %s, %d, %i, %.0f and %%.
func format(args []value) string {
	var b strings.Builder
	layout, next := stringArg(args, 0), 1
	for len(layout) > 0 {
		plain, rest, found := strings.Cut(layout, "%")
		b.WriteString(plain)
		if !found {
			break
		}
		switch {
		case strings.HasPrefix(rest, "%"):
			b.WriteByte('%')
			layout = rest[1:]
			continue
		case strings.HasPrefix(rest, "s"):
			s := stringArg(args, next)
			if strings.Contains(s, "\x00") { // C stops there, at times
				panic(unsupported("string.format of a zero byte"))
			}
			b.WriteString(s)
			layout = rest[1:]
		case strings.HasPrefix(rest, "d"), strings.HasPrefix(rest, "i"):
			fmt.Fprint(&b, int64(whole(numberArg(args, next))))
			layout = rest[1:]
		case strings.HasPrefix(rest, ".0f"):
			fmt.Fprintf(&b, "%.0f", whole(numberArg(args, next)))
			layout = rest[3:]
		default:
			panic(unsupported("string.format with anything but %s, %d, %i, %.0f"))
		}
		next++
	}
	if b.Len() > MaxString {
		panic(unsupported("a string so long"))
	}
	return b.String()
}

// reduce is the argument that is better than all before it.
func reduce(args []value, better func(best, n float64) bool) float64 {
	n := numberArg(args, 0)
	for i := range args {
		if next := numberArg(args, i); better(n, next) {
			n = next
		}
	}
	return n
}

func insert(args []value) {
	t := tableArg(args, 0)
	if modules[t] != "" || len(args) != 2 {
		panic(unsupported("table.insert at a position"))
	}
	t.push(args[1])
}

func toNumber(args []value) value {
	if len(args) > 1 {
		panic(unsupported("tonumber with a base"))
	}
	if len(args) == 0 {
		raisef("tonumber without an argument")
	}
	if n, ok := number(args[0]); ok {
		return n
	}
	return nil
}

func toString(v value) string {
	switch v := v.(type) {
	case nil:
		return "nil"
	case bool:
		return fmt.Sprint(v)
	}
	s, ok := text(v)
	if !ok {
		panic(unsupported("tostring of a " + typeName(v)))
	}
	return s
}

func pairs(t *table) *elements {
	if len(t.fields) > 0 {
		panic(unsupported("pairs of a record"))
	}
	return &elements{of: t, pairs: true}
}

func unpack(args []value) []value {
	if len(args) > 1 {
		panic(unsupported("unpack of a part"))
	}
	if len(tableArg(args, 0).list) > MaxArgs {
		panic(unsupported("unpack of a list so long"))
	}
	return append([]value(nil), tableArg(args, 0).list...)
}
