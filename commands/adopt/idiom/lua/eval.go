package lua

import (
	"fmt"
	"math"

	"github.com/yuin/gopher-lua/ast"
)

// list evaluates expressions; the last one may have several values, or none.
func (m *machine) list(exprs []ast.Expr, s *scope) []value {
	values := make([]value, 0, len(exprs))
	for i, e := range exprs {
		if call, ok := e.(*ast.FuncCallExpr); ok && !call.AdjustRet && i == len(exprs)-1 {
			return append(values, m.values(e, s)...)
		}
		values = append(values, m.value(e, s))
	}
	return values
}

// values evaluates an expression, of which a call may have several values.
func (m *machine) values(e ast.Expr, s *scope) []value {
	if call, ok := e.(*ast.FuncCallExpr); ok && !call.AdjustRet {
		all := m.callExpr(call, s)
		noElements(first(all))
		return all
	}
	return []value{m.value(e, s)}
}

// value evaluates an expression to one value.
func (m *machine) value(e ast.Expr, s *scope) value {
	m.step()
	defer m.leave()
	switch e := e.(type) {
	case *ast.NilExpr:
		return nil
	case *ast.TrueExpr:
		return true
	case *ast.FalseExpr:
		return false
	case *ast.StringExpr:
		return e.Value
	case *ast.NumberExpr:
		n, ok := parseNumber(e.Value)
		if !ok {
			panic(unsupported("the number " + e.Value))
		}
		return n
	case *ast.IdentExpr:
		return m.variable(e.Value, s)
	case *ast.AttrGetExpr:
		return m.field(e, s)
	case *ast.FuncCallExpr:
		return noElements(first(m.callExpr(e, s)))
	case *ast.LogicalOpExpr:
		if left := m.value(e.Lhs, s); truthy(left) == (e.Operator == "or") {
			return left
		}
		return m.value(e.Rhs, s)
	case *ast.RelationalOpExpr:
		a, b := m.operands(e.Lhs, e.Rhs, s)
		m.charge(a, b)
		m.noteCompared(a, b)
		return compare(e.Operator, a, b)
	case *ast.StringConcatOpExpr:
		a, b := m.value(e.Lhs, s), m.value(e.Rhs, s)
		m.charge(a, b)
		return concat(a, b)
	case *ast.ArithmeticOpExpr:
		a, b := m.operands(e.Lhs, e.Rhs, s)
		m.charge(a, b)
		return arithmetic(e.Operator, a, b)
	case *ast.UnaryMinusOpExpr:
		return -m.number(e.Expr, s, "what minus is put before")
	case *ast.UnaryNotOpExpr:
		return !m.truth(e.Expr, s)
	case *ast.UnaryLenOpExpr:
		return length(m.value(e.Expr, s))
	case *ast.TableExpr:
		return m.table(e, s)
	case *ast.FunctionExpr:
		if e.ParList.HasVargs {
			panic(unsupported("a function with ..."))
		}
		return &function{params: e.ParList.Names, body: e.Stmts, scope: s, seen: len(s.names)}
	}
	panic(unsupported(fmt.Sprintf("%T", e)[len("*ast."):]))
}

// operands evaluates those of an operator. Lua reads a local variable when it computes: behind a call on the
// other side.
func (m *machine) operands(left, right ast.Expr, s *scope) (a, b value) {
	if v, ok := left.(*ast.IdentExpr); ok && s.own(v.Value) {
		b = m.value(right, s)
		return m.value(left, s), b
	}
	a = m.value(left, s)
	return a, m.value(right, s)
}

// noElements refuses what ipairs returns anywhere but in a loop.
func noElements(v value) value {
	if _, is := v.(*elements); is {
		panic(unsupported("ipairs or pairs outside of a loop"))
	}
	return v
}

// variable is a local variable, KEYS, ARGV, or a name of the library. Redis fails for any other.
func (m *machine) variable(name string, s *scope) value {
	if v := s.find(name); v != nil {
		return *v
	}
	switch name {
	case "KEYS":
		return m.keys
	case "ARGV":
		return m.argv
	}
	if v, ok := library[name]; ok {
		return v
	}
	if elsewhere[name] {
		panic(unsupported(name))
	}
	raisef("the script uses the global variable %s", name)
	return nil
}

func (m *machine) field(e *ast.AttrGetExpr, s *scope) value {
	of, key := m.operands(e.Object, e.Key, s)
	m.charge(key)
	t, ok := of.(*table)
	if !ok {
		raisef("a field is read of what is no table")
	}
	v := t.get(known(key))
	if name, isName := key.(string); v == nil && isName && modules[t] != "" {
		panic(unsupported(modules[t] + "." + name))
	}
	return v
}

func (m *machine) table(e *ast.TableExpr, s *scope) value {
	t := &table{}
	for i, f := range e.Fields {
		switch {
		case f.Key != nil:
			key := known(m.value(f.Key, s))
			if key == nil {
				raisef("the key of a field is nil")
			}
			if _, isNumber := key.(float64); isNumber { // Lua keeps these apart from a list
				panic(unsupported("a list with keys"))
			}
			m.charge(key)
			t.set(key, m.value(f.Value, s))
		case i == len(e.Fields)-1:
			for _, v := range m.values(f.Value, s) {
				t.push(v)
			}
		default:
			t.push(m.value(f.Value, s))
		}
	}
	return t
}

// push appends to the list.
func (t *table) push(v value) {
	if v == nil {
		panic(unsupported("a list with a hole"))
	}
	t.list = append(t.list, v)
}

// truth evaluates an expression of which is needed only whether it is true.
func (m *machine) truth(e ast.Expr, s *scope) bool {
	switch e := e.(type) {
	case *ast.FuncCallExpr:
		v := first(m.rawCall(e, s))
		if _, is := v.(seen); is {
			return true
		}
		return truthy(noElements(v))
	case *ast.UnaryNotOpExpr:
		m.step()
		defer m.leave()
		return !m.truth(e.Expr, s)
	case *ast.LogicalOpExpr:
		m.step()
		defer m.leave()
		if left := m.truth(e.Lhs, s); left == (e.Operator == "or") {
			return left
		}
		return m.truth(e.Rhs, s)
	}
	return truthy(m.value(e, s))
}

// callExpr calls a function, whose values may be looked at.
func (m *machine) callExpr(e *ast.FuncCallExpr, s *scope) []value {
	values := m.rawCall(e, s)
	if len(values) == 1 {
		if v, is := values[0].(seen); is {
			v.Look()
			return one(v.Text)
		}
	}
	return values
}

func (m *machine) rawCall(e *ast.FuncCallExpr, s *scope) []value {
	m.step()
	defer m.leave()
	var args []value
	var called value
	if e.Receiver != nil {
		of := m.value(e.Receiver, s)
		if _, ok := of.(string); !ok {
			panic(unsupported("a method of a " + typeName(of)))
		}
		if called = library["string"].(*table).get(e.Method); called == nil {
			panic(unsupported("string." + e.Method))
		}
		args = append(args, of)
	} else {
		called = m.value(e.Func, s)
	}
	if of := m.list(e.Args, s); args == nil {
		args = of
	} else {
		args = append(args, of...)
	}
	if len(args) > MaxArgs {
		panic(unsupported("a call with so many arguments"))
	}
	f, ok := called.(*function)
	if !ok {
		raisef("a %s is called", typeName(called))
	}
	return m.invoke(f, args)
}

func (m *machine) invoke(f *function, args []value) []value {
	if f.library != nil {
		m.charge(args...)
		return f.library(m, args)
	}
	inner := &scope{up: f.scope, seen: f.seen, function: true}
	for i, name := range f.params {
		inner.declare(name, at(args, i))
	}
	values, how := m.block(f.body, inner)
	if how == broke {
		panic(unsupported("a break outside of a loop"))
	}
	return values
}

func concat(a, b value) value {
	x, ok := text(a)
	y, also := text(b)
	if !ok || !also {
		raisef("a %s and a %s are put together", typeName(a), typeName(b))
	}
	if len(x)+len(y) > MaxString {
		panic(unsupported("a string so long"))
	}
	return x + y
}

func length(v value) value {
	switch v := v.(type) {
	case string:
		return float64(len(v))
	case *table:
		return float64(len(v.list))
	}
	raisef("the length is asked for of a %s", typeName(v))
	return nil
}

func arithmetic(operator string, a, b value) value {
	x, ok := number(a)
	y, also := number(b)
	if !ok || !also {
		raisef("a %s and a %s in arithmetic", typeName(a), typeName(b))
	}
	switch operator {
	case "+":
		return x + y
	case "-":
		return x - y
	case "*":
		return x * y
	case "/":
		return x / y
	case "%":
		return x - math.Floor(x/y)*y
	case "^":
		return power(x, y)
	}
	panic(unsupported("the operator " + operator))
}

// power is exact, or refused: C and Go round others apart.
func power(x, y float64) float64 {
	if whole(x) != math.Trunc(x) || y != math.Trunc(y) || y < 0 || y > 64 {
		panic(unsupported("a power that is no integer's"))
	}
	n := 1.0
	for range int(y) {
		n = whole(n * x)
	}
	return n
}

func compare(operator string, a, b value) value {
	known(a)
	known(b)
	switch operator {
	case "==":
		return a == b
	case "~=":
		return a != b
	case ">":
		return less(b, a)
	case ">=":
		return lessOrEqual(b, a)
	case "<":
		return less(a, b)
	case "<=":
		return lessOrEqual(a, b)
	}
	panic(unsupported("the operator " + operator))
}

func less(a, b value) bool {
	switch a := a.(type) {
	case float64:
		if b, ok := b.(float64); ok {
			return a < b
		}
	case string:
		if b, ok := b.(string); ok {
			return ordered(a) < ordered(b)
		}
	}
	raisef("a %s and a %s are compared", typeName(a), typeName(b))
	return false
}

// ordered refuses what a server's locale may put into another order than that of bytes.
func ordered(s string) string {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			panic(unsupported("the order of strings that are not of digits"))
		}
	}
	return s
}

func lessOrEqual(a, b value) bool {
	if a == b {
		_, number := a.(float64)
		_, text := a.(string)
		return number || text || less(a, b)
	}
	return less(a, b)
}
