package lua

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

// A value of a script is nil, a bool, a float64, a string, a *table, a *function, unknown, or later.
type value any

// unknown is the reply of a command that has not been run yet. A script may do nothing with it but drop it.
type unknown struct{}

// later stands for a reply that is put in after the run. A script may do nothing with it but return it.
type later struct{}

// seen is a Seen. Only a condition is given one: see machine.truth.
type seen Seen

// known returns v. It refuses a script that looks at an unknown or a later.
func known(v value) value {
	if v == (later{}) {
		panic(unsupported("the use of what INCR of a fence answers"))
	}
	if v == (unknown{}) {
		panic(unsupported("the use of what a signal answers"))
	}
	return v
}

// A table is a list, a record, or both.
type table struct {
	list   []value
	fields map[value]value
}

// get returns what is at a key; nil if nothing is.
func (t *table) get(key value) value {
	if i, ok := t.index(key); ok && i < len(t.list) {
		return t.list[i]
	}
	return t.fields[key]
}

// index reports whether a key is a whole number that may be in the list, and where.
func (t *table) index(key value) (int, bool) {
	n, ok := key.(float64)
	i := int(n)
	return i - 1, ok && float64(i) == n && i >= 1 && i <= len(t.list)+1
}

func (t *table) set(key, v value) {
	if modules[t] != "" {
		raisef("the script changes %s", modules[t])
	}
	i, ok := t.index(key)
	switch {
	case ok && i < len(t.list) && v == nil && i < len(t.list)-1:
		panic(unsupported("a list with a hole"))
	case ok && i < len(t.list) && v == nil:
		t.list = t.list[:i]
	case ok && i < len(t.list):
		t.list[i] = v
	case ok && v != nil:
		t.list = append(t.list, v)
	case v == nil:
		delete(t.fields, key)
	default:
		if n, isNumber := key.(float64); isNumber && !ok {
			panic(unsupported("a table with the key " + formatNumber(n)))
		}
		if t.fields == nil {
			t.fields = map[value]value{}
		}
		t.fields[key] = v
	}
}

// A function is one of the script's, or of the library.
type function struct {
	name    string // of the library's
	library func(m *machine, args []value) []value
	params  []string
	body    block
	scope   *scope
	seen    int // how many variables of scope it sees
}

func typeName(v value) string {
	switch known(v).(type) {
	case nil:
		return "nil"
	case bool:
		return "boolean"
	case float64:
		return "number"
	case string:
		return "string"
	case *table:
		return "table"
	}
	return "function"
}

func truthy(v value) bool { return known(v) != nil && v != false }

// formatNumber is how Lua 5.1 writes a number: %.14g.
func formatNumber(n float64) string {
	if math.IsInf(n, 0) || math.IsNaN(n) {
		panic(unsupported("a number that is not finite"))
	}
	return strconv.FormatFloat(n, 'g', 14, 64)
}

// parseNumber is how Lua 5.1 reads one: decimal, with spaces around it.
func parseNumber(s string) (float64, bool) {
	if strings.Contains(s, "\x00") { // the C library stops there
		panic(unsupported("a number with a zero byte in it"))
	}
	s = strings.Trim(s, " \t\n\v\f\r")
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && c != '.' && c != '+' && c != '-' && c != 'e' && c != 'E' {
			return 0, refuseOddNumber(s)
		}
	}
	n, err := strconv.ParseFloat(s, 64)
	if errors.Is(err, strconv.ErrRange) {
		panic(unsupported("a number that is not finite"))
	}
	return n, err == nil
}

// whole refuses what C makes an integer of in ways of its own.
func whole(n float64) float64 {
	if !(math.Abs(n) < 1<<53) {
		panic(unsupported("a number so large where an integer is needed"))
	}
	return n
}

// refuseOddNumber reports false for a text that is no number. The C library takes some for one, by its
// version: these are refused.
func refuseOddNumber(s string) bool {
	low := strings.TrimLeft(strings.ToLower(s), "+-")
	for _, odd := range []string{"0x", "inf", "nan"} {
		if strings.HasPrefix(low, odd) {
			panic(unsupported("a number like " + odd))
		}
	}
	return false
}

// number is what arithmetic makes of a value.
func number(v value) (float64, bool) {
	switch v := known(v).(type) {
	case float64:
		return v, true
	case string:
		return parseNumber(v)
	}
	return 0, false
}

// text is what concatenation makes of a value.
func text(v value) (string, bool) {
	switch v := known(v).(type) {
	case float64:
		return formatNumber(v), true
	case string:
		return v, true
	}
	return "", false
}
