package commands

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
)

// A filter is which clients a CLIENT LIST or KILL means: those of which everything that
// it names is so, and nothing that it names with NOT. The zero value means all.
//
// Which filters there are, and how they are put together, differs: Redis takes few,
// Valkey from 8.1 on any, combined, and each version a few more. This knows all of
// them. The upstream, which is asked first, says which may be used, and what is wrong
// with their values.
type clientFilter struct {
	ids, notIDs []int64 // in order; nil: any, none
	lastIDs     []int64 // those of the last ID, as they came
	repeated    bool    // ID came more than once
	values      map[string]string
	skipMe      bool
}

// conditions are filters by name, but for those of ids and SKIPME: whether a row is of
// a client that is meant.
var conditions = map[string]func(r listEntry, value string) bool{
	"ADDR": fieldIs("addr"), "LADDR": fieldIs("laddr"), "USER": fieldIs("user"), "NAME": fieldIs("name"), "DB": fieldIs("db"),
	"LIB-NAME": fieldIs("lib-name"), "LIB-VER": fieldIs("lib-ver"),
	"TYPE":   func(r listEntry, value string) bool { return r.clientType() == clientTypeName(value) },
	"FLAGS":  func(r listEntry, value string) bool { return hasLetters(flagsWithin(r.get("flags")), value) },
	"CAPA":   func(r listEntry, value string) bool { return hasLetters(r.get("capa"), value) },
	"IP":     func(r listEntry, value string) bool { return hasHost(r.get("addr"), value) },
	"MAXAGE": fieldIsLeast("age"), "IDLE": fieldIsLeast("idle"),
}

// atUpstream are conditions on what only the upstream knows of a client that has a
// connection of its own there.
var atUpstream = []string{"FLAGS", "NOT-FLAGS", "CAPA", "NOT-CAPA", "IDLE"}

// fieldIs is a condition on a field that is empty for a client that has no such thing,
// which no value means.
func fieldIs(key string) func(listEntry, string) bool {
	return func(r listEntry, value string) bool { return value != "" && r.get(key) == value }
}

func fieldIsLeast(key string) func(listEntry, string) bool {
	return func(r listEntry, value string) bool {
		least, ok := parseID([]byte(value))
		return ok && r.number(key) >= least
	}
}

// flagsWithin are a row's flags with the one that a monitor has and does not show.
func flagsWithin(flags string) string {
	if strings.Contains(flags, "O") {
		flags += "S"
	}
	return flags
}

// hasLetters says that each of letters is in text.
func hasLetters(text, letters string) bool {
	return !strings.ContainsFunc(letters, func(l rune) bool { return !strings.ContainsRune(text, l) })
}

// hasHost says that an address, host:port, is at a host. A Unix socket is at none.
func hasHost(addr, host string) bool {
	i := strings.LastIndexByte(addr, ':')
	return i >= 0 && addr[i:] != ":0" && strings.TrimSuffix(strings.TrimPrefix(addr[:i], "["), "]") == host
}

// clientTypeName is a type of clients under its one name; empty if there is no such type.
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

// conditionName is the name of the condition that an argument asks for, as it is in
// conditions, with NOT- in front of it if it is to be untrue; empty if there is none.
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

// parseFilter reads what follows CLIENT LIST or KILL. It is false if that is no filter
// known here. Of a condition that comes more than once the last counts.
func parseFilter(args [][]byte, skipMe bool) (f clientFilter, ok bool) {
	f = clientFilter{values: map[string]string{}, skipMe: skipMe}
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

// take reads the one that args begin with, and returns how many of them it is: none if
// it is not known. Of a type that is not known NOT-TYPE would mean everybody.
func (f *clientFilter) take(args [][]byte) int {
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

// idsIn are the numbers that args begin with.
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

func (f *clientFilter) addIDs(ids []int64, meant bool) {
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

// onlyLastIDs is for an upstream that lets the last ID count, as any other filter.
func (f *clientFilter) onlyLastIDs() {
	f.ids = slices.Sorted(slices.Values(f.lastIDs))
}

// matches says that the client of a row is one of those that are meant. self: it asks.
func (f *clientFilter) matches(r listEntry, self bool) bool {
	id := r.number("id")
	_, named := slices.BinarySearch(f.ids, id)
	_, notNamed := slices.BinarySearch(f.notIDs, id)
	if self && f.skipMe || f.ids != nil && !named || notNamed {
		return false
	}
	for name, value := range f.values {
		name, not := strings.CutPrefix(name, "NOT-")
		if conditions[name](r, value) == not {
			return false
		}
	}
	return true
}

// needsUpstream says that rows from the upstream are needed to tell who is meant.
func (f *clientFilter) needsUpstream() bool {
	return slices.ContainsFunc(atUpstream, func(name string) bool { _, ok := f.values[name]; return ok })
}

// listAll is a CLIENT LIST of everybody.
var listAll = resp.AppendCommand(nil, "CLIENT", "LIST")

// combinesFilters reports whether the upstream combines filters as Valkey does, at a
// CLIENT LIST that it takes. Then a second ID adds to the first, and clients are listed
// as they came; in Redis the last one counts, and they are listed in its order.
func (s *Session) combinesFilters(ctx context.Context, list [][]byte) bool {
	return s.isAccepted(ctx, append(slices.Clone(list), []byte("SKIPME"), []byte("NO")))
}

// listNobody is a CLIENT LIST that every upstream takes.
var listNobody = [][]byte{[]byte("CLIENT"), []byte("LIST"), []byte("ID"), strconv.AppendInt(nil, noClientID, 10)}

// isAccepted asks the upstream a command beside what the client has sent, for the client.
func (s *Session) isAccepted(ctx context.Context, args [][]byte) bool {
	c, err := s.d.opt.Upstream.Pool().Shared(ctx, s.id, upstream.MainClass, s.hint)
	if err != nil {
		return false
	}
	defer upstream.Return(c)
	reply := s.askOn(ctx, c, resp.AppendCommand(nil, args...))
	_, refused := resp.Error(reply)
	return reply != nil && !refused
}
