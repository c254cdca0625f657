package clients

import (
	"slices"
	"strconv"
	"strings"

	"github.com/lockproxy/lockproxy/backends/resp"
)

// A Filter selects the clients that a CLIENT LIST or KILL is about: those that meet every
// condition it names, and none that it names with NOT. The zero value selects all.
//
// Which conditions there are, and how they combine, differs: Redis takes few, Valkey from
// 8.1 on any, combined, and each version a few more. All are known here. The upstream is
// asked first: it says which may be used, and what is wrong with their values.
type Filter struct {
	ids, notIDs []int64 // in order; nil: any, none
	lastIDs     []int64 // those of the last ID, in the order given
	repeated    bool    // ID came more than once
	values      map[string]string
	skipMe      bool
}

// conditions report whether a client's entry meets a condition, by its name. Those of ids
// and SKIPME are apart.
var conditions = map[string]func(e entry, value string) bool{
	"ADDR": fieldIs("addr"), "LADDR": fieldIs("laddr"), "USER": fieldIs("user"), "NAME": fieldIs("name"), "DB": fieldIs("db"),
	"LIB-NAME": fieldIs("lib-name"), "LIB-VER": fieldIs("lib-ver"),
	"TYPE":   func(e entry, value string) bool { return e.clientType() == clientTypeName(value) },
	"FLAGS":  func(e entry, value string) bool { return hasLetters(flagsWithin(e.get("flags")), value) },
	"CAPA":   func(e entry, value string) bool { return hasLetters(e.get("capa"), value) },
	"IP":     func(e entry, value string) bool { return hasHost(e.get("addr"), value) },
	"MAXAGE": fieldIsLeast("age"), "IDLE": fieldIsLeast("idle"),
}

// atUpstream are the conditions on what only the upstream knows of a client with a
// connection of its own.
var atUpstream = []string{"FLAGS", "NOT-FLAGS", "CAPA", "NOT-CAPA", "IDLE"}

// fieldIs is the condition that a field has a value. No value is that of an empty field.
func fieldIs(key string) func(entry, string) bool {
	return func(e entry, value string) bool { return value != "" && e.get(key) == value }
}

func fieldIsLeast(key string) func(entry, string) bool {
	return func(e entry, value string) bool {
		least, ok := parseID([]byte(value))
		return ok && e.number(key) >= least
	}
}

// flagsWithin are an entry's flags, with that which a monitor has but does not show.
func flagsWithin(flags string) string {
	if strings.Contains(flags, "O") {
		flags += "S"
	}
	return flags
}

// hasLetters reports whether each of letters is in text.
func hasLetters(text, letters string) bool {
	return !strings.ContainsFunc(letters, func(l rune) bool { return !strings.ContainsRune(text, l) })
}

// hasHost reports whether an address, host:port, has a host. A Unix socket has none.
func hasHost(addr, host string) bool {
	i := strings.LastIndexByte(addr, ':')
	return i >= 0 && addr[i:] != ":0" && strings.TrimSuffix(strings.TrimPrefix(addr[:i], "["), "]") == host
}

// clientTypeName is the canonical name of a type of clients; empty if there is no such type.
func clientTypeName(name string) string {
	switch name = strings.ToLower(name); name {
	case "slave":
		return "replica"
	case "primary":
		return "master"
	case "normal", "master", "replica", "pubsub":
		return name
	}
	return ""
}

// conditionName is the name in conditions that an argument gives, with NOT- in front if it
// is negated; empty if there is none.
func conditionName(arg []byte) string {
	for name := range conditions {
		if resp.Is(arg, name) {
			return name
		}
		if not := "NOT-" + name; resp.Is(arg, not) && name != "MAXAGE" && name != "IDLE" {
			return not
		}
	}
	return ""
}

// parseFilter parses what follows CLIENT LIST or KILL. It reports false if that is not
// known here. Of a condition that is given more than once the last counts.
func parseFilter(args [][]byte, skipMe bool) (f Filter, ok bool) {
	f = Filter{values: map[string]string{}, skipMe: skipMe}
	for len(args) > 0 {
		n := f.take(args)
		if n == 0 {
			return f, false
		}
		args = args[n:]
	}
	slices.Sort(f.ids)
	slices.Sort(f.notIDs)
	return f, true
}

// take parses the condition that args begin with, and returns its number of arguments: 0
// if it is not known. NOT-TYPE of an unknown type would select everybody.
func (f *Filter) take(args [][]byte) int {
	switch {
	case resp.Is(args[0], "ID") || resp.Is(args[0], "NOT-ID"):
		ids := idsIn(args[1:])
		f.addIDs(ids, resp.Is(args[0], "ID"))
		return 1 + len(ids)
	case len(args) < 2:
		return 0
	case resp.Is(args[0], "SKIPME"):
		f.skipMe = resp.Is(args[1], "YES")
		return 2
	}
	name, value := conditionName(args[0]), string(args[1])
	if name == "" || strings.HasSuffix(name, "TYPE") && clientTypeName(value) == "" {
		return 0
	}
	f.values[name] = value
	return 2
}

// idsIn are the ids that args begin with.
func idsIn(args [][]byte) []int64 {
	ids := []int64{}
	for _, a := range args {
		id, err := strconv.ParseInt(string(a), 10, 64)
		if err != nil || strconv.FormatInt(id, 10) != string(a) { // which reads other forms, too
			break
		}
		ids = append(ids, id)
	}
	return ids
}

func (f *Filter) addIDs(ids []int64, meant bool) {
	if !meant {
		f.notIDs = append(f.notIDs, ids...)
		return
	}
	f.repeated = f.ids != nil
	f.ids, f.lastIDs = slices.Concat(f.ids, ids), ids
	if f.ids == nil {
		f.ids = []int64{}
	}
}

// onlyLastIDs is for an upstream where the last ID counts, as of any other condition.
func (f *Filter) onlyLastIDs() {
	f.ids = slices.Sorted(slices.Values(f.lastIDs))
}

// matches reports whether the filter selects the client of an entry; self: it is the one that asks.
func (f *Filter) matches(e entry, self bool) bool {
	id := e.number("id")
	_, named := slices.BinarySearch(f.ids, id)
	_, notNamed := slices.BinarySearch(f.notIDs, id)
	if self && f.skipMe || f.ids != nil && !named || notNamed {
		return false
	}
	for name, value := range f.values {
		name, not := strings.CutPrefix(name, "NOT-")
		if conditions[name](e, value) == not {
			return false
		}
	}
	return true
}

// needsUpstream reports whether the upstream's entries are needed to tell who is selected.
func (f *Filter) needsUpstream() bool {
	return slices.ContainsFunc(atUpstream, func(name string) bool { _, ok := f.values[name]; return ok })
}
