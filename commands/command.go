package commands

import (
	"bytes"
	"path"
	"slices"
	"strings"

	"github.com/lockproxy/lockproxy/backends/resp"
)

// amends says that the reply to a COMMAND or INFO is to tell of the proxy too.
func amends(args [][]byte) bool {
	if is(args[0], "INFO") {
		return wantsSection(args[1:])
	}
	if len(args) == 1 {
		return true
	}
	for _, sub := range []string{"INFO", "COUNT", "LIST", "DOCS", "GETKEYS", "GETKEYSANDFLAGS"} {
		if is(args[1], sub) {
			return true
		}
	}
	return false
}

// amend is what goes upstream in place of a command whose reply is to tell of the proxy
// too, and what becomes of the reply.
func (s *Session) amend(raw []byte, args [][]byte) (sent []byte, e edit) {
	if is(args[0], "INFO") {
		return s.amendInfo(raw, args)
	}
	d := dialect{proto: s.id.Proto}
	switch {
	case len(args) == 1, len(args) == 2 && is(args[1], "INFO"):
		e = d.addEntries
	case is(args[1], "COUNT"):
		e = addCount
	case is(args[1], "LIST"):
		e = addNames(args[2:])
	case is(args[1], "DOCS") && len(args) == 2:
		e = d.addDocs
	case is(args[1], "INFO"):
		raw, e = standIn(args, "ping"), d.fillEntries(args[2:])
	case is(args[1], "DOCS"):
		raw, e = standIn(args, "get"), d.fillDocs(args[2:])
	case len(args) > 2 && ownEntry(args[2]) != nil:
		e = d.ownKeys(args[2:], is(args[1], "GETKEYSANDFLAGS"))
	default:
		e = asItIs
	}
	return raw, e
}

// tryAmended sends a command whose reply is to tell of the proxy too on the current
// connection.
func (s *Session) tryAmended(raw []byte, args [][]byte) bool {
	c := s.conn()
	if c == nil || !c.Alive() {
		return false
	}
	raw, e := s.amend(raw, args)
	s.flushBatches()
	s.replies.ExpectEdited(c, e)
	s.send(c, raw, 1)
	return true
}

// amendSpread is amend for a command that all masters of a Cluster do.
func (s *Session) amendSpread(join merger, raw []byte, args [][]byte) ([]byte, merger) {
	raw, e := s.amend(raw, args)
	return raw, func(parts [][]byte) []byte {
		reply, _ := e(join(parts))
		return reply
	}
}

// standIn is a COMMAND INFO or DOCS that asks about another command in place of each of
// the proxy's own: the upstream's entry shows in which form ours must be.
func standIn(args [][]byte, name string) []byte {
	asked := slices.Clone(args)
	for i := 2; i < len(args); i++ {
		if ownEntry(args[i]) != nil {
			asked[i] = []byte(name)
		}
	}
	return resp.AppendCommand(nil, asked...)
}

// like is the dialect of an entry of COMMAND.
func (d dialect) like(reply []byte) dialect {
	d.columns = 10
	if columns, ok := elements(reply); ok && len(columns) > 0 {
		d.columns = len(columns)
		d.flat = string(columns[len(columns)-1]) == "*0\r\n"
	}
	return d
}

// addEntries is COMMAND with the proxy's own behind the upstream's. One that tells
// nothing is left alone.
func (d dialect) addEntries(reply []byte) ([]byte, bool) {
	all, ok := elements(reply)
	if !ok || len(all) == 0 {
		return reply, false
	}
	for _, e := range all {
		if d = d.like(e); d.flat {
			break
		}
	}
	for i := range ownEntries {
		all = append(all, ownEntries[i].appendTo(nil, d))
	}
	return appendElements(reply[0], all), false
}

// fillEntries is COMMAND INFO with the proxy's own where they were asked for.
func (d dialect) fillEntries(names [][]byte) edit {
	return func(reply []byte) ([]byte, bool) {
		all, ok := elements(reply)
		if !ok || len(all) != len(names) {
			return reply, false
		}
		for i, name := range names {
			if e := ownEntry(name); e != nil {
				all[i] = e.appendTo(nil, d.like(all[i]))
			}
		}
		return appendElements(reply[0], all), false
	}
}

func addCount(reply []byte) ([]byte, bool) {
	if reply[0] != ':' {
		return reply, false
	}
	return resp.AppendInt(nil, integer(reply)+int64(len(ownEntries))), false
}

// addNames is COMMAND LIST with the proxy's own that the filter lets pass.
func addNames(filter [][]byte) edit {
	return func(reply []byte) ([]byte, bool) {
		all, ok := elements(reply)
		if !ok {
			return reply, false
		}
		for i := range ownEntries {
			for _, e := range append([]entry{ownEntries[i]}, ownEntries[i].subs...) {
				if e.passes(filter) {
					all = append(all, resp.AppendBulkString(nil, e.name))
				}
			}
		}
		return appendElements(reply[0], all), false
	}
}

// passes says that a filter, FILTERBY and two arguments or nothing, lets the entry pass.
func (e *entry) passes(filter [][]byte) bool {
	if len(filter) == 0 {
		return true
	}
	what := strings.ToLower(string(filter[len(filter)-1]))
	switch {
	case len(filter) != 3:
		return false
	case is(filter[1], "ACLCAT"):
		return slices.Contains(e.categories, "@"+what)
	case is(filter[1], "PATTERN"):
		matches, err := path.Match(what, e.name)
		return matches && err == nil
	}
	return false
}

// docsLike is the dialect of a reply to COMMAND DOCS.
func (d dialect) docsLike(reply []byte) dialect {
	d.display = bytes.Contains(reply, []byte("$12\r\ndisplay_text\r\n"))
	return d
}

// addDocs is COMMAND DOCS with the proxy's own behind the upstream's.
func (d dialect) addDocs(reply []byte) ([]byte, bool) {
	all, ok := elements(reply)
	if !ok {
		return reply, false
	}
	for i := range ownEntries {
		all = append(all, ownEntries[i].appendDocs(nil, d.docsLike(reply)), nil)
	}
	return appendPairs(reply[0], all), false
}

// fillDocs is COMMAND DOCS with the proxy's own where they were asked for. What the
// upstream does not know it leaves out, so names must be looked for.
func (d dialect) fillDocs(names [][]byte) edit {
	return func(reply []byte) ([]byte, bool) {
		from, ok := elements(reply)
		if !ok {
			return reply, false
		}
		var all [][]byte
		for _, name := range names {
			e := ownEntry(name)
			if e != nil {
				name = []byte("get")
				all = append(all, e.appendDocs(nil, d.docsLike(reply)), nil)
			}
			if len(from) > 1 && bytes.EqualFold(bulk(from[0]), name) {
				if e == nil {
					all = append(all, from[0], from[1])
				}
				from = from[2:]
			}
		}
		return appendPairs(reply[0], all), false
	}
}

// appendPairs is appendElements for what may be a map, whose length counts pairs.
func appendPairs(kind byte, all [][]byte) []byte {
	proto := 2
	if kind == '%' {
		proto = 3
	}
	return append(resp.AppendMap(nil, len(all)/2, proto), bytes.Join(all, nil)...)
}

// ownKeys is COMMAND GETKEYS or GETKEYSANDFLAGS of one of the proxy's own commands, of
// which the upstream says that there is none.
func (d dialect) ownKeys(args [][]byte, flags bool) edit {
	return func(reply []byte) ([]byte, bool) {
		if text, _ := resp.Error(reply); !strings.HasPrefix(text, "ERR Invalid command") {
			return reply, false
		}
		e := ownCommand(args)
		switch {
		case e == nil:
			return reply, false
		case e.key == 0:
			return resp.AppendError(nil, "ERR The command has no key arguments"), false
		case !e.takes(len(args)):
			return resp.AppendError(nil, "ERR Invalid number of arguments specified for command"), false
		case flags:
			b := resp.AppendArray(resp.AppendArray(nil, 1), 2)
			return d.appendWords(resp.AppendBulk(b, args[e.key]), e.access), false
		}
		return resp.AppendBulk(resp.AppendArray(nil, 1), args[e.key]), false
	}
}
