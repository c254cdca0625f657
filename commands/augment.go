package commands

import (
	"bytes"
	"path"
	"slices"
	"strings"

	"github.com/lockproxy/lockproxy/backends/resp"
)

// augment is what goes upstream in place of a command whose reply is to tell of the proxy
// too, and what becomes of the reply.
func (s *Session) augment(raw []byte, args [][]byte) (sent []byte, e rewrite) {
	if resp.Is(args[0], "INFO") {
		return s.augmentInfo(raw, args)
	}
	d := commandFormat{proto: s.id.Proto}
	switch {
	case len(args) == 1, len(args) == 2 && resp.Is(args[1], "INFO"):
		e = d.addVerbs
	case resp.Is(args[1], "COUNT"):
		e = addVerbCount
	case resp.Is(args[1], "LIST"):
		e = addVerbNames(args[2:])
	case resp.Is(args[1], "DOCS") && len(args) == 2:
		e = d.addDocs
	case resp.Is(args[1], "INFO"):
		raw, e = withStandIns(args, "ping"), d.fillVerbs(args[2:])
	case resp.Is(args[1], "DOCS"):
		raw, e = withStandIns(args, "get"), d.fillDocs(args[2:])
	case len(args) > 2 && docsOf(args[2]) != nil:
		e = d.verbKeys(args[2:], resp.Is(args[1], "GETKEYSANDFLAGS"))
	default:
		e = unchanged
	}
	return raw, e
}

// tryAugmented sends a command whose reply is to tell of the proxy too on the current
// connection.
func (s *Session) tryAugmented(raw []byte, args [][]byte) bool {
	c := s.conn()
	if c == nil || !c.Alive() {
		return false
	}
	raw, e := s.augment(raw, args)
	s.flushBatches()
	s.replies.ExpectRewritten(c, e)
	s.send(c, raw, 1)
	return true
}

// augmentFanOut is amend for a command that all masters of a Cluster do.
func (s *Session) augmentFanOut(join merger, raw []byte, args [][]byte) ([]byte, merger) {
	raw, e := s.augment(raw, args)
	return raw, func(parts [][]byte) []byte {
		reply, _ := e(join(parts))
		return reply
	}
}

// withStandIns is a COMMAND INFO or DOCS that asks about another command in place of each of
// the proxy's own: the upstream's entry shows in which form ours must be.
func withStandIns(args [][]byte, name string) []byte {
	asked := slices.Clone(args)
	for i := 2; i < len(args); i++ {
		if docsOf(args[i]) != nil {
			asked[i] = []byte(name)
		}
	}
	return resp.AppendCommand(nil, asked...)
}

// formatOf is the dialect of an entry of COMMAND.
func (d commandFormat) formatOf(reply []byte) commandFormat {
	d.columns = 10
	if columns, ok := resp.Elements(reply); ok && len(columns) > 0 {
		d.columns = len(columns)
		d.emptySubs = string(columns[len(columns)-1]) == "*0\r\n"
	}
	return d
}

// addVerbs is COMMAND with the proxy's own behind the upstream's. One that tells
// nothing is left alone.
func (d commandFormat) addVerbs(reply []byte) ([]byte, bool) {
	all, ok := resp.Elements(reply)
	if !ok || len(all) == 0 {
		return reply, false
	}
	for _, e := range all {
		if d = d.formatOf(e); d.emptySubs {
			break
		}
	}
	for i := range allVerbDocs {
		all = append(all, allVerbDocs[i].appendTo(nil, d))
	}
	return appendElements(reply[0], all), false
}

// fillVerbs is COMMAND INFO with the proxy's own where they were asked for.
func (d commandFormat) fillVerbs(names [][]byte) rewrite {
	return func(reply []byte) ([]byte, bool) {
		all, ok := resp.Elements(reply)
		if !ok || len(all) != len(names) {
			return reply, false
		}
		for i, name := range names {
			if e := docsOf(name); e != nil {
				all[i] = e.appendTo(nil, d.formatOf(all[i]))
			}
		}
		return appendElements(reply[0], all), false
	}
}

func addVerbCount(reply []byte) ([]byte, bool) {
	if reply[0] != ':' {
		return reply, false
	}
	return resp.AppendInt(nil, resp.Int(reply)+int64(len(allVerbDocs))), false
}

// addVerbNames is COMMAND LIST with the proxy's own that the filter lets pass.
func addVerbNames(filter [][]byte) rewrite {
	return func(reply []byte) ([]byte, bool) {
		all, ok := resp.Elements(reply)
		if !ok {
			return reply, false
		}
		for i := range allVerbDocs {
			for _, e := range append([]verbDocs{allVerbDocs[i]}, allVerbDocs[i].subs...) {
				if e.passes(filter) {
					all = append(all, resp.AppendBulkString(nil, e.name))
				}
			}
		}
		return appendElements(reply[0], all), false
	}
}

// passes says that a filter, FILTERBY and two arguments or nothing, lets the entry pass.
func (e *verbDocs) passes(filter [][]byte) bool {
	if len(filter) == 0 {
		return true
	}
	what := strings.ToLower(string(filter[len(filter)-1]))
	switch {
	case len(filter) != 3:
		return false
	case resp.Is(filter[1], "ACLCAT"):
		return slices.Contains(e.categories, "@"+what)
	case resp.Is(filter[1], "PATTERN"):
		matches, err := path.Match(what, e.name)
		return matches && err == nil
	}
	return false
}

// docsFormatOf is the dialect of a reply to COMMAND DOCS.
func (d commandFormat) docsFormatOf(reply []byte) commandFormat {
	d.display = bytes.Contains(reply, []byte("$12\r\ndisplay_text\r\n"))
	return d
}

// addDocs is COMMAND DOCS with the proxy's own behind the upstream's.
func (d commandFormat) addDocs(reply []byte) ([]byte, bool) {
	all, ok := resp.Elements(reply)
	if !ok {
		return reply, false
	}
	for i := range allVerbDocs {
		all = append(all, allVerbDocs[i].appendDocs(nil, d.docsFormatOf(reply)), nil)
	}
	return appendPairs(reply[0], all), false
}

// fillDocs is COMMAND DOCS with the proxy's own where they were asked for. What the
// upstream does not know it leaves out, so names must be looked for.
func (d commandFormat) fillDocs(names [][]byte) rewrite {
	return func(reply []byte) ([]byte, bool) {
		from, ok := resp.Elements(reply)
		if !ok {
			return reply, false
		}
		var all [][]byte
		for _, name := range names {
			e := docsOf(name)
			if e != nil {
				name = []byte("get")
				all = append(all, e.appendDocs(nil, d.docsFormatOf(reply)), nil)
			}
			if len(from) > 1 && bytes.EqualFold(resp.Bulk(from[0]), name) {
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

// verbKeys is COMMAND GETKEYS or GETKEYSANDFLAGS of one of the proxy's own commands, of
// which the upstream says that there is none.
func (d commandFormat) verbKeys(args [][]byte, flags bool) rewrite {
	return func(reply []byte) ([]byte, bool) {
		if text, _ := resp.Error(reply); !strings.HasPrefix(text, "ERR Invalid command") {
			return reply, false
		}
		e := docsOfCommand(args)
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
