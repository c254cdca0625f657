package idiom

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/commands/adopt/idiom/lua"
)

// setOptions are the options of a SET.
type setOptions struct {
	nx, xx, get, keep bool
	end               string // EX, PX, EXAT, PXAT
	at                string
	compares, with    string // IFEQ or the like, which only newer servers have, and the value to compare with
	twice             bool   // it compares twice
}

func parseSet(args []string) (o setOptions, fine bool) {
	for i := 0; i < len(args); i++ {
		switch word := strings.ToUpper(args[i]); word {
		case "NX":
			o.nx = true
		case "XX":
			o.xx = true
		case "GET":
			o.get = true
		case "KEEPTTL":
			o.keep = true
		case "IFEQ", "IFNE", "IFDEQ", "IFDNE":
			if i++; o.compares != "" && o.compares != word || i == len(args) {
				return o, false
			}
			o.twice = o.compares != ""
			o.compares, o.with = word, args[i]
		case "EX", "PX", "EXAT", "PXAT":
			if i++; o.end != "" && o.end != word || i == len(args) {
				return o, false
			}
			o.end, o.at = word, args[i]
		default:
			return o, false
		}
	}
	return o, !(o.nx && o.xx) && !(o.keep && o.end != "")
}

// lacks reports whether the server is known not to take SET with its comparison.
func (d Dialect) lacks(o *setOptions) bool {
	switch {
	case d.Version == 0:
		return false
	case d.Valkey:
		return d.Version < 80100 || o.compares != "IFEQ" || o.nx || o.xx || o.twice
	}
	return d.Version < 80400
}

// longest replaces a longer lease, in milliseconds: it is more than any lock may have.
const longest = int64(Forever/time.Millisecond) - 1

func (w *world) set(_ string, args []string) (lua.Reply, error) {
	o, fine := parseSet(args[1:])
	switch {
	case !fine, w.dialect.old() && o.nx && o.get, o.compares != "" && w.dialect.lacks(&o):
		return syntax, nil
	case o.compares != "" && (o.compares != "IFEQ" || o.nx || o.xx || w.dialect.Version == 0):
		return nil, refusef("SET with %s", o.compares)
	}
	left := Forever
	if o.end != "" {
		var fault lua.Error
		if left, fault = w.left(o.end, o.at, "set"); fault != "" {
			return fault, nil
		}
		if left <= 0 && !strings.HasSuffix(o.end, "AT") {
			return w.invalidExpire("set"), nil
		}
	}
	if (o.get || o.compares != "") && w.notString() {
		return wrongType, nil
	}
	if o.nx && o.end == "" && w.is.Kind == Absent {
		var err error
		if left, err = w.deadlines.left(args[0], w.now); err != nil {
			return nil, err
		}
	}
	var before lua.Reply
	if w.is.Kind == String || w.is.Kind == Native {
		before = w.is.Value
	}
	refusedBy := o.nx && w.is.Kind != Absent || o.xx && w.is.Kind == Absent || o.compares != "" && before != lua.Reply(o.with)
	switch {
	case refusedBy && o.get:
		return before, nil
	case refusedBy:
		return nil, nil
	}
	var err error
	switch {
	case o.keep && w.is.Kind == Hash:
		err = refusef("SET with KEEPTTL of a hash")
	case o.keep && w.is.Kind == String && w.is.Value == args[0]:
	case o.keep && w.is.Kind != Absent: // the rest of the lease must be known for that
		w.timeRead = true
		err = w.put(args[0], w.is.Left)
	default:
		err = w.put(args[0], left)
	}
	if err != nil {
		return nil, err
	}
	if o.get {
		return before, nil
	}
	return ok, nil
}

// put lets the key be a string.
func (w *world) put(value string, left time.Duration) error {
	if len(value) > maxValue {
		return refusef("a value of %d bytes, more than %d", len(value), maxValue)
	}
	if left <= 0 { // an end that has passed
		w.is = State{}
		return nil
	}
	w.is = State{Kind: String, Value: value, Left: left}
	w.timed = true
	return nil
}

// left is what is left until an end, as EXPIRE and its kin and the options of SET name it.
func (w *world) left(unit, at, command string) (time.Duration, lua.Error) {
	n, isInt := integer(at)
	if !isInt {
		return 0, notInteger
	}
	if strings.HasPrefix(unit, "EX") {
		if n > math.MaxInt64/1000 || n < math.MinInt64/1000 {
			return 0, w.invalidExpire(command)
		}
		n *= 1000
	}
	now := w.now.UnixMilli()
	if strings.HasSuffix(unit, "AT") {
		if (command == "set" || command == "getex") && n <= 0 {
			return 0, w.invalidExpire(command)
		}
		n -= now
	} else if n > math.MaxInt64-now {
		return 0, w.invalidExpire(command)
	}
	return time.Duration(min(n, longest)) * time.Millisecond, ""
}

func (w *world) invalidExpire(command string) lua.Error {
	if w.dialect.old() {
		return lua.Error("ERR invalid expire time in " + command)
	}
	return lua.Error("ERR invalid expire time in '" + command + "' command")
}

func (w *world) setNX(_ string, args []string) (lua.Reply, error) {
	if w.is.Kind != Absent {
		return int64(0), nil
	}
	left, err := w.deadlines.left(args[0], w.now)
	if err != nil {
		return nil, err
	}
	return int64(1), w.put(args[0], left)
}

func (w *world) setEX(name string, args []string) (lua.Reply, error) {
	unit := "PX"
	if name == "SETEX" {
		unit = "EX"
	}
	left, fault := w.left(unit, args[0], strings.ToLower(name))
	if fault == "" && left <= 0 {
		fault = w.invalidExpire(strings.ToLower(name))
	}
	if fault != "" {
		return fault, nil
	}
	return ok, w.put(args[1], left)
}

func (w *world) getSet(name string, args []string) (lua.Reply, error) {
	before, err := w.get(name, nil)
	switch {
	case before == wrongType || err != nil:
		return before, err
	case w.deadlines.unit != NoDeadlines && before != nil: // answer as if another client had taken it first
		return args[0], nil
	}
	left, err := w.deadlines.left(args[0], w.now)
	if err != nil {
		return nil, err
	}
	return before, w.put(args[0], left)
}

func (w *world) get(string, []string) (lua.Reply, error) {
	switch w.is.Kind {
	case Absent:
		return nil, nil
	case Hash, Sorted, ReadWrite, Permits:
		return wrongType, nil
	}
	return w.is.Value, nil
}

// notString reports whether a command of strings fails because the key holds something else.
func (w *world) notString() bool {
	return w.is.Kind == Hash || w.is.Kind == ReadWrite || w.is.Kind.sorted()
}

// mget is MGET. A key that holds no string counts as absent.
func (w *world) mget(name string, _ []string) (lua.Reply, error) {
	value, err := w.get(name, nil)
	if value == wrongType {
		value = nil
	}
	return []any{value}, err
}

func (w *world) strlen(string, []string) (lua.Reply, error) {
	if w.notString() {
		return wrongType, nil
	}
	return int64(len(w.is.Value)), nil
}

func (w *world) getRange(_ string, args []string) (lua.Reply, error) {
	from, isInt := integer(args[0])
	to, alsoInt := integer(args[1])
	switch {
	case !isInt || !alsoInt:
		return notInteger, nil
	case w.notString():
		return wrongType, nil
	}
	n := int64(len(w.is.Value))
	if from < 0 && to < 0 && from > to {
		return "", nil
	}
	if from < 0 {
		from = max(0, n+from)
	}
	if to < 0 {
		to = max(0, n+to)
	}
	if to = min(to, n-1); from > to || n == 0 {
		return "", nil
	}
	return w.is.Value[from : to+1], nil
}

func (w *world) getDel(name string, _ []string) (lua.Reply, error) {
	before, err := w.get(name, nil)
	if before != wrongType && err == nil {
		w.is = State{}
	}
	return before, err
}

func (w *world) exists(string, []string) (lua.Reply, error) { return flag(w.is.Kind != Absent), nil }

func (w *world) typeOf(string, []string) (lua.Reply, error) {
	switch w.is.Kind {
	case Absent:
		return lua.Status("none"), nil
	case Hash, ReadWrite:
		return lua.Status("hash"), nil
	case Sorted, Permits:
		return lua.Status("zset"), nil
	}
	return lua.Status("string"), nil
}

func flag(b bool) lua.Reply {
	if b {
		return int64(1)
	}
	return int64(0)
}

func (w *world) ttl(name string, _ []string) (lua.Reply, error) {
	switch {
	case w.is.Kind == Absent:
		return int64(-2), nil
	}
	w.timeRead = true
	if w.is.Left == Forever {
		return int64(-1), nil
	}
	ms := w.is.Left.Milliseconds()
	if strings.HasSuffix(name, "TIME") {
		ms += w.now.UnixMilli()
	}
	if !strings.HasPrefix(name, "P") {
		ms = (ms + 500) / 1000
	}
	return ms, nil
}

func (w *world) del(string, []string) (lua.Reply, error) {
	was := w.is.Kind
	w.is = State{}
	return flag(was != Absent), nil
}

// delIfEq is Valkey's.
func (w *world) delIfEq(_ string, args []string) (lua.Reply, error) {
	value, err := w.get("GET", nil)
	switch {
	case value == wrongType, err != nil:
		return value, err
	case value != lua.Reply(args[0]):
		return int64(0), nil
	}
	return w.del("DEL", nil)
}

// delex is DELEX of Redis. Of the later DELEX of Valkey, only what both have in common is supported.
func (w *world) delex(name string, args []string) (lua.Reply, error) {
	condition := ""
	if len(args) == 2 {
		condition = strings.ToUpper(args[0])
	}
	switch ours := !w.dialect.Valkey; {
	case condition == "IFEQ" && !w.notString():
		return w.delIfEq(name, args[1:])
	case ours && len(args) == 0:
		return w.del(name, nil)
	case ours && len(args) == 1 && !w.inScript:
		return wrongArity(name), nil
	case ours && len(args) == 2 && w.is.Kind == Absent:
		return int64(0), nil
	case ours && len(args) == 2 && w.notString():
		return lua.Error("ERR Key should be of string type if conditions are specified"), nil
	case ours && len(args) == 2 && condition != "IFNE" && condition != "IFDEQ" && condition != "IFDNE":
		return lua.Error("ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE"), nil
	}
	return nil, refusef("%s of a lock but with IFEQ", name)
}

func (w *world) persist(string, []string) (lua.Reply, error) {
	w.endRead = true
	if w.is.Kind == Absent || w.is.Left == Forever {
		return int64(0), nil
	}
	w.is.Left, w.timed = Forever, true
	return int64(1), nil
}

// count is the text of a Hash's count.
func (w *world) count() string { return strconv.Itoa(w.is.Count) }
