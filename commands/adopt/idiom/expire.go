package idiom

import (
	"slices"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/commands/adopt/idiom/lua"
)

const (
	notWithNX   = lua.Error("ERR NX and XX, GT or LT options at the same time are not compatible")
	notWithBoth = lua.Error("ERR GT and LT options at the same time are not compatible")
)

// expire is EXPIRE, PEXPIRE, EXPIREAT and PEXPIREAT. What is wrong with the options comes before what is wrong with
// the time.
func (w *world) expire(name string, args []string) (lua.Reply, error) {
	if len(args) > 1 && w.dialect.old() { // it has no options
		if w.inScript {
			return nil, refusef("%s with %d arguments", name, len(args)+1)
		}
		return wrongArity(name), nil
	}
	var options []string
	for _, word := range args[1:] {
		option := strings.ToUpper(word)
		if !slices.Contains([]string{"NX", "XX", "GT", "LT"}, option) {
			return lua.Error("ERR Unsupported option " + word), nil
		}
		options = append(options, option)
	}
	has := func(option string) bool { return slices.Contains(options, option) }
	switch {
	case has("NX") && (has("XX") || has("GT") || has("LT")):
		return notWithNX, nil
	case has("GT") && has("LT"):
		return notWithBoth, nil
	}
	unit := strings.Replace(strings.TrimPrefix(name, "P"), "EXPIRE", "EX", 1)
	if name[0] == 'P' {
		unit = "PX" + unit[2:]
	}
	left, fault := w.left(unit, args[0], strings.ToLower(name))
	switch ends := w.is.Left != Forever; {
	case fault != "":
		return fault, nil
	case w.is.Kind == Absent:
		return int64(0), nil
	case len(options) > 0:
		w.timeRead = true
		if has("NX") && ends || has("XX") && !ends {
			return int64(0), nil
		}
		if has("GT") && (!ends || left <= w.is.Left) || has("LT") && ends && left >= w.is.Left {
			return int64(0), nil
		}
	}
	w.setEnd(left)
	return int64(1), nil
}

// getEx is GETEX, which answers the value and moves the end.
func (w *world) getEx(_ string, args []string) (lua.Reply, error) {
	var unit, at string
	persist := false
	for i := 0; i < len(args); i++ {
		switch word := strings.ToUpper(args[i]); word {
		case "EX", "PX", "EXAT", "PXAT":
			if i++; i == len(args) || persist || unit != "" && unit != word {
				return syntax, nil
			}
			unit, at = word, args[i]
		case "PERSIST":
			if persist = true; unit != "" {
				return syntax, nil
			}
		default:
			return syntax, nil
		}
	}
	var left time.Duration
	var fault lua.Error
	if unit != "" {
		if left, fault = w.left(unit, at, "getex"); fault == "" && left <= 0 && !strings.HasSuffix(unit, "AT") {
			fault = w.invalidExpire("getex")
		}
	}
	early := w.dialect.is(0, 90100) // Valkey looks at the time before it looks at the key
	if early && fault != "" {
		return fault, nil
	}
	value, err := w.get("GET", nil)
	w.timeRead = w.timeRead || persist
	switch {
	case value == nil || value == wrongType || err != nil:
		return value, err
	case fault != "":
		return fault, nil
	case persist && w.is.Left != Forever:
		w.is.Left, w.timed = Forever, true
	case unit != "":
		w.setEnd(left)
	}
	return value, nil
}

// hmget is HMGET.
func (w *world) hmget(_ string, args []string) (lua.Reply, error) {
	all := []any{}
	for _, field := range args {
		value, err := w.hget("HGET", []string{field})
		if value == wrongType || err != nil {
			return value, err
		}
		all = append(all, value)
	}
	return all, nil
}
