package lua

import (
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/yuin/gopher-lua/ast"
)

// The bounds of a run. What goes beyond is Unsupported.
const (
	MaxText   = 16 << 10 // bytes of a script
	MaxSteps  = 5_000    // statements and expressions, and one for every 64 bytes of text
	MaxDepth  = 30       // calls and expressions within each other
	MaxString = 64 << 10 // bytes of a string
	MaxArgs   = 32       // of a call
	MaxInput  = 256      // keys and arguments of a script

	MaxLongSteps, MaxLongInput = 50_000, 4_096 // of a run that may be long
)

// An Unsupported error names the part of a script that this package does not run.
type Unsupported struct{ What string }

func (e *Unsupported) Error() string { return "not supported: " + e.What }

func unsupported(what string) *Unsupported { return &Unsupported{What: what} }

// A Raised error is one that the script itself ended with, as it would in Redis. Its text is not that of Redis.
type Raised struct{ Text string }

func (e *Raised) Error() string { return "the script fails: " + e.Text }

func raisef(format string, args ...any) { panic(&Raised{fmt.Sprintf(format, args...)}) }

// Replies of redis.call, and of scripts: nil, an int64, a string, a Status, an Error, Later, or a []any of these.
type (
	Reply  any
	Status string // "OK", and other simple strings
	Error  string // with its first word, without "-"
)

// Unknown is the Reply of a command that is run only after the script. A script that looks at it is Unsupported.
type Unknown struct{}

// Later is the Reply of a command whose answer is put in after the run. A script may return it, also in a list, and must
// not look at it.
type Later struct{}

// A Seen is a Reply with a Text. Look is called if the script looks at the text, and not only whether there is a reply.
type Seen struct {
	Text string
	Look func()
}

// A Caller answers redis.call. An error ends the run; an error reply of Redis is an Error.
type Caller func(args []string) (Reply, error)

// A Version says how a server differs in running scripts. The zero Version is that of Redis 7.0.
type Version struct {
	BareErrors   bool // before 7.0: error_reply takes a text as it is
	ShortNumbers bool // from 7.2 on: numbers are passed on with the fewest digits that are exact, not with 17
}

// Run runs the script with its keys and arguments, and returns what EVAL would answer. Errors are
// *Unsupported, *Raised, and those of call.
func (s *Script) Run(on Version, keys, args []string, call Caller) (reply Reply, err error) {
	if len(keys)+len(args) > MaxInput {
		return nil, unsupported(fmt.Sprintf("a script with %d arguments", len(keys)+len(args)))
	}
	return newMachine(on, keys, args, call).run(s.body)
}

// RunLong is Run for scripts with many keys, which take that long.
func (s *Script) RunLong(on Version, keys, args []string, call Caller) (reply Reply, err error) {
	if len(keys)+len(args) > MaxLongInput {
		return nil, unsupported(fmt.Sprintf("a script with %d arguments", len(keys)+len(args)))
	}
	m := newMachine(on, keys, args, call)
	m.most = MaxLongSteps
	return m.run(s.body)
}

func newMachine(on Version, keys, args []string, call Caller) *machine {
	return &machine{most: MaxSteps, on: on, call: call, keys: listOf(keys), argv: listOf(args)}
}

func (m *machine) run(body block) (reply Reply, err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case *Unsupported:
			reply, err = nil, p
		case *Raised:
			reply, err = nil, p
		case callerError:
			reply, err = nil, p.error
		case runtime.Error:
			reply, err = nil, unsupported(internal+p.Error())
		default:
			panic(p)
		}
	}()
	values, _ := m.block(body, &scope{})
	return m.reply(first(values)), nil
}

// internal begins the text of an error that is a fault of this package. The fuzz targets look for it.
const internal = "internal: "

// callerError carries an error of a Caller through the machine.
type callerError struct{ error }

func listOf(all []string) *table {
	t := &table{list: make([]value, len(all))}
	for i, s := range all {
		t.list[i] = s
	}
	return t
}

func first(values []value) value {
	if len(values) == 0 {
		return nil
	}
	return values[0]
}

// A machine is one run.
type machine struct {
	on           Version
	call         Caller
	keys, argv   *table // KEYS and ARGV; what else is global is in library
	steps, depth int
	most         int // steps
	comparing
}

// step counts a step, and how deep it is, until leave.
func (m *machine) step() {
	if m.steps++; m.steps > m.most {
		panic(unsupported("a run that is so long"))
	}
	if m.depth++; m.depth > MaxDepth {
		panic(unsupported("calls so deep within each other"))
	}
}

func (m *machine) leave() { m.depth-- }

// bytesPerStep is how many bytes of a string a step may read or write.
const bytesPerStep = 64

// charge counts the steps of reading or writing strings.
func (m *machine) charge(values ...value) {
	for _, v := range values {
		if s, ok := v.(string); ok {
			m.steps += len(s) / bytesPerStep
		}
	}
	if m.steps > m.most {
		panic(unsupported("a run over so much text"))
	}
}

// A scope has the local variables of a block.
type scope struct {
	names    []string
	values   []value
	up       *scope
	seen     int  // how many variables of up there were when this block began: it sees no later ones
	function bool // it has the parameters of a function
}

// inside makes the scope of a block within s.
func (s *scope) inside() *scope { return &scope{up: s, seen: len(s.names)} }

func (s *scope) declare(name string, v value) {
	s.names, s.values = append(s.names, name), append(s.values, v)
}

// find returns a local variable; nil if there is none of that name.
func (s *scope) find(name string) *value {
	if s, i := s.lookup(name); s != nil {
		return &s.values[i]
	}
	return nil
}

func (s *scope) lookup(name string) (*scope, int) {
	for seen := len(s.names); s != nil; seen, s = s.seen, s.up {
		for i := seen - 1; i >= 0; i-- {
			if s.names[i] == name {
				return s, i
			}
		}
	}
	return nil, 0
}

// own reports whether a name is a variable of the function that runs, not of one around it.
func (s *scope) own(name string) bool {
	for seen := len(s.names); s != nil; seen, s = s.seen, s.up {
		for _, n := range s.names[:seen] {
			if n == name {
				return true
			}
		}
		if s.function {
			return false
		}
	}
	return false
}

// How a block ended.
type ending uint8

const (
	ran ending = iota
	broke
	returned
)

type block = []ast.Stmt

// block runs statements in a scope of their own.
func (m *machine) block(b block, s *scope) (values []value, how ending) {
	for _, st := range b {
		if values, how = m.statement(st, s); how != ran {
			return values, how
		}
	}
	return nil, ran
}

func (m *machine) statement(st ast.Stmt, s *scope) ([]value, ending) {
	m.step()
	defer m.leave()
	switch st := st.(type) {
	case *ast.LocalAssignStmt:
		m.local(st, s)
	case *ast.AssignStmt:
		m.assign(st, s)
	case *ast.FuncCallStmt:
		m.values(st.Expr, s)
	case *ast.DoBlockStmt:
		return m.block(st.Stmts, s.inside())
	case *ast.IfStmt:
		if m.truth(st.Condition, s) {
			return m.block(st.Then, s.inside())
		}
		return m.block(st.Else, s.inside())
	case *ast.WhileStmt:
		return m.loop(func() bool { return m.truth(st.Condition, s) }, func() ([]value, ending) { return m.block(st.Stmts, s.inside()) })
	case *ast.RepeatStmt:
		return m.repeat(st, s)
	case *ast.NumberForStmt:
		return m.countingFor(st, s)
	case *ast.GenericForStmt:
		return m.eachFor(st, s)
	case *ast.ReturnStmt:
		return m.list(st.Exprs, s), returned
	case *ast.BreakStmt:
		return nil, broke
	default:
		panic(unsupported(fmt.Sprintf("%T", st)[len("*ast."):]))
	}
	return nil, ran
}

func (m *machine) local(st *ast.LocalAssignStmt, s *scope) {
	if f, ok := onlyFunction(st); ok { // "local function f", which f may call, or "local f = function"
		if s.find(st.Names[0]) != nil { // in the second it would call this one
			panic(unsupported("a local function with the name of another variable"))
		}
		s.declare(st.Names[0], nil)
		*s.find(st.Names[0]) = m.value(f, s)
		return
	}
	values := m.list(st.Exprs, s)
	for i, name := range st.Names {
		s.declare(name, at(values, i))
	}
}

func onlyFunction(st *ast.LocalAssignStmt) (*ast.FunctionExpr, bool) {
	if len(st.Names) != 1 || len(st.Exprs) != 1 {
		return nil, false
	}
	f, ok := st.Exprs[0].(*ast.FunctionExpr)
	return f, ok
}

func at(values []value, i int) value {
	if i < len(values) {
		return values[i]
	}
	return nil
}

func (m *machine) assign(st *ast.AssignStmt, s *scope) {
	values := m.list(st.Rhs, s)
	for i := len(st.Lhs) - 1; i >= 0; i-- { // as the original does; the manual leaves it open
		switch to := st.Lhs[i].(type) {
		case *ast.IdentExpr:
			v := s.find(to.Value)
			if v == nil { // Redis allows none, also those that there are
				raisef("the script sets the global variable %s", to.Value)
			}
			*v = at(values, i)
		case *ast.AttrGetExpr:
			if len(st.Lhs) > 1 || !plain(to.Object) || !plain(to.Key) { // Lua evaluates them first
				panic(unsupported("an assignment to a field that is so involved"))
			}
			t, ok := m.value(to.Object, s).(*table)
			if !ok {
				raisef("a field is set of what is no table")
			}
			key := known(m.value(to.Key, s))
			if key == nil {
				raisef("the key of a field is nil")
			}
			m.charge(key)
			t.set(key, at(values, i))
		}
	}
}

// plain reports whether it makes no difference when an expression is evaluated.
func plain(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.IdentExpr, *ast.StringExpr, *ast.NumberExpr, *ast.TrueExpr, *ast.FalseExpr:
		return true
	case *ast.UnaryLenOpExpr:
		return plain(e.Expr)
	case *ast.ArithmeticOpExpr:
		return plain(e.Lhs) && plain(e.Rhs)
	case *ast.StringConcatOpExpr:
		return plain(e.Lhs) && plain(e.Rhs)
	case *ast.AttrGetExpr:
		return plain(e.Object) && plain(e.Key)
	}
	return false
}

// loop runs body while condition holds.
func (m *machine) loop(condition func() bool, body func() ([]value, ending)) ([]value, ending) {
	for condition() {
		m.step()
		values, how := body()
		m.leave()
		switch how {
		case broke:
			return nil, ran
		case returned:
			return values, how
		}
	}
	return nil, ran
}

// repeat runs a loop whose condition sees the variables of its body.
func (m *machine) repeat(st *ast.RepeatStmt, s *scope) ([]value, ending) {
	again := true
	return m.loop(func() bool { return again }, func() ([]value, ending) {
		inner := s.inside()
		values, how := m.block(st.Stmts, inner)
		if how == ran {
			again = !m.truth(st.Condition, inner)
		}
		return values, how
	})
}

func (m *machine) countingFor(st *ast.NumberForStmt, s *scope) ([]value, ending) {
	i, limit, step := m.number(st.Init, s, "the start of a loop"), m.number(st.Limit, s, "the end of a loop"), 1.0
	if st.Step != nil {
		step = m.number(st.Step, s, "the step of a loop")
	}
	i -= step
	return m.loop(func() bool { i += step; return step > 0 && i <= limit || step <= 0 && i >= limit }, func() ([]value, ending) {
		inner := s.inside()
		inner.declare(st.Name, i)
		return m.block(st.Stmts, inner)
	})
}

func (m *machine) number(e ast.Expr, s *scope, what string) float64 {
	n, ok := number(m.value(e, s))
	if !ok {
		raisef("%s is no number", what)
	}
	return n
}

// eachFor runs a loop over ipairs or pairs of a list.
func (m *machine) eachFor(st *ast.GenericForStmt, s *scope) ([]value, ending) {
	var each *elements
	if call, ok := st.Exprs[0].(*ast.FuncCallExpr); ok && len(st.Exprs) == 1 {
		each, _ = first(m.callExpr(call, s)).(*elements)
	}
	if each == nil {
		panic(unsupported("a loop over anything but ipairs and pairs"))
	}
	i, began := -1, len(each.of.list)
	return m.loop(func() bool { i++; return i < len(each.of.list) }, func() ([]value, ending) {
		if i >= began && each.pairs {
			panic(unsupported("a list that grows in a loop over pairs of it"))
		}
		inner := s.inside()
		inner.declare(st.Names[0], float64(i+1))
		for n, name := range st.Names[1:] {
			var v value
			if n == 0 {
				v = each.of.list[i]
			}
			inner.declare(name, v)
		}
		return m.block(st.Stmts, inner)
	})
}

// elements is what ipairs and pairs return. Only a loop may have it.
type elements struct {
	of    *table
	pairs bool
}

// reply is what Redis makes of a value that a script returns.
func (m *machine) reply(v value) Reply {
	m.step() // a table may be in itself
	defer m.leave()
	m.charge(v)
	if v == (later{}) {
		return Later{}
	}
	switch v := known(v).(type) {
	case float64:
		return int64(whole(v))
	case string:
		return v
	case bool:
		if v {
			return int64(1)
		}
	case *table:
		if text, ok := v.get("err").(string); ok {
			return Error(line(text))
		}
		if text, ok := v.get("ok").(string); ok {
			return Status(line(text))
		}
		all := make([]any, len(v.list))
		for i, e := range v.list {
			all[i] = m.reply(e)
		}
		return all
	}
	return nil
}

// line refuses the text of a status or an error that is not one line: servers differ in what they make of it.
func line(text string) string {
	if strings.ContainsAny(text, "\r\n\x00") {
		panic(unsupported("a status or an error of more than a line"))
	}
	return text
}

// valueOf is what redis.call makes of a reply.
func valueOf(r Reply) value {
	switch r := r.(type) {
	case nil:
		return false
	case Unknown:
		return unknown{}
	case Later:
		return later{}
	case Seen:
		return seen(r)
	case int64:
		return float64(r)
	case string:
		return r
	case Status:
		return &table{fields: map[value]value{"ok": string(r)}}
	case Error:
		return &table{fields: map[value]value{"err": string(r)}}
	case []any:
		t := &table{}
		for _, e := range r {
			t.list = append(t.list, valueOf(e))
		}
		return t
	}
	panic(errors.New("lua: a reply of an unknown type"))
}
