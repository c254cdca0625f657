package lockcmd

import (
	"bytes"
	"path"
	"slices"
	"strings"

	"github.com/lockproxy/lockproxy/backends/resp"
)

// Augment adds the lock verbs to the reply to a COMMAND. sent is what goes upstream, perhaps raw itself, and add
// turns the upstream's reply into the client's. proto is the protocol of both.
func Augment(proto int, raw []byte, args [][]byte) (sent []byte, add func(reply []byte) []byte) {
	f := commandFormat{proto: proto}
	switch {
	case len(args) == 1, len(args) == 2 && resp.Is(args[1], "INFO"):
		add = f.addVerbs
	case resp.Is(args[1], "COUNT"):
		add = addVerbCount
	case resp.Is(args[1], "LIST"):
		add = addVerbNames(args[2:])
	case resp.Is(args[1], "DOCS") && len(args) == 2:
		add = f.addDocs
	case resp.Is(args[1], "INFO"):
		raw, add = withStandIns(args, "ping"), f.fillVerbs(args[2:])
	case resp.Is(args[1], "DOCS"):
		raw, add = withStandIns(args, "get"), f.fillDocs(args[2:])
	case len(args) > 2 && docsOf(args[2]) != nil:
		add = f.verbKeys(args[2:], resp.Is(args[1], "GETKEYSANDFLAGS"))
	default:
		add = func(reply []byte) []byte { return reply }
	}
	return raw, add
}

// withStandIns returns a COMMAND INFO or DOCS that asks about the command name in place of each lock verb: the
// upstream's entry for that shows the format of the verb's.
func withStandIns(args [][]byte, name string) []byte {
	asked := slices.Clone(args)
	for i := 2; i < len(args); i++ {
		if docsOf(args[i]) != nil {
			asked[i] = []byte(name)
		}
	}
	return resp.AppendCommand(nil, asked...)
}

// formatOf completes the format by an entry of COMMAND.
func (f commandFormat) formatOf(reply []byte) commandFormat {
	f.columns = 10
	if columns, ok := resp.Elements(reply); ok && len(columns) > 0 {
		f.columns = len(columns)
		f.emptySubs = string(columns[len(columns)-1]) == "*0\r\n"
	}
	return f
}

// addVerbs appends the verbs to a reply to COMMAND, unless that is empty.
func (f commandFormat) addVerbs(reply []byte) []byte {
	all, ok := resp.Elements(reply)
	if !ok || len(all) == 0 || reply[0] == '%' {
		return reply
	}
	for _, e := range all {
		if f = f.formatOf(e); f.emptySubs {
			break
		}
	}
	for i := range allVerbDocs {
		all = append(all, allVerbDocs[i].appendTo(nil, f))
	}
	return resp.AppendElements(nil, reply[0], all)
}

// fillVerbs puts the verbs in their places in a reply to COMMAND INFO.
func (f commandFormat) fillVerbs(names [][]byte) func([]byte) []byte {
	return func(reply []byte) []byte {
		all, ok := resp.Elements(reply)
		if !ok || len(all) != len(names) || reply[0] == '%' {
			return reply
		}
		for i, name := range names {
			if e := docsOf(name); e != nil {
				all[i] = e.appendTo(nil, f.formatOf(all[i]))
			}
		}
		return resp.AppendElements(nil, reply[0], all)
	}
}

// addVerbCount adds the verbs to a reply to COMMAND COUNT.
func addVerbCount(reply []byte) []byte {
	if reply[0] != ':' {
		return reply
	}
	return resp.AppendInt(nil, resp.Int(reply)+int64(len(allVerbDocs)))
}

// addVerbNames appends the verbs that pass the filter to a reply to COMMAND LIST.
func addVerbNames(filter [][]byte) func([]byte) []byte {
	return func(reply []byte) []byte {
		all, ok := resp.Elements(reply)
		if !ok || reply[0] == '%' {
			return reply
		}
		for i := range allVerbDocs {
			for _, e := range append([]verbDocs{allVerbDocs[i]}, allVerbDocs[i].subs...) {
				if e.passes(filter) {
					all = append(all, resp.AppendBulkString(nil, e.name))
				}
			}
		}
		return resp.AppendElements(nil, reply[0], all)
	}
}

// passes reports whether a verb passes a filter: FILTERBY with two arguments, or nothing.
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

// docsFormatOf completes the format by a reply to COMMAND DOCS.
func (f commandFormat) docsFormatOf(reply []byte) commandFormat {
	f.display = bytes.Contains(reply, []byte("$12\r\ndisplay_text\r\n"))
	return f
}

// addDocs appends the verbs to a reply to COMMAND DOCS.
func (f commandFormat) addDocs(reply []byte) []byte {
	all, ok := resp.Elements(reply)
	if !ok {
		return reply
	}
	for i := range allVerbDocs {
		all = append(all, allVerbDocs[i].appendDocs(nil, f.docsFormatOf(reply)), nil)
	}
	return appendPairs(reply[0], all)
}

// fillDocs puts the verbs in their places in a reply to COMMAND DOCS, which leaves out
// commands that the upstream does not know.
func (f commandFormat) fillDocs(names [][]byte) func([]byte) []byte {
	return func(reply []byte) []byte {
		from, ok := resp.Elements(reply)
		if !ok {
			return reply
		}
		var all [][]byte
		for _, name := range names {
			e := docsOf(name)
			if e != nil {
				name = []byte("get")
				all = append(all, e.appendDocs(nil, f.docsFormatOf(reply)), nil)
			}
			if len(from) > 1 && bytes.EqualFold(resp.Bulk(from[0]), name) {
				if e == nil {
					all = append(all, from[0], from[1])
				}
				from = from[2:]
			}
		}
		return appendPairs(reply[0], all)
	}
}

// appendPairs is a map of the kind of the upstream's reply; the last of a pair may be nil
// if the first holds both.
func appendPairs(kind byte, all [][]byte) []byte {
	proto := 2
	if kind == '%' {
		proto = 3
	}
	return append(resp.AppendMap(nil, len(all)/2, proto), bytes.Join(all, nil)...)
}

// verbKeys answers COMMAND GETKEYS or GETKEYSANDFLAGS of a verb, once the upstream has
// said that there is no such command.
func (f commandFormat) verbKeys(args [][]byte, flags bool) func([]byte) []byte {
	return func(reply []byte) []byte {
		if text, _ := resp.Error(reply); !strings.HasPrefix(text, "ERR Invalid command") {
			return reply
		}
		e := docsOfCommand(args)
		switch {
		case e == nil:
			return reply
		case e.key == 0:
			return resp.AppendError(nil, "ERR The command has no key arguments")
		case !e.takes(len(args)):
			return resp.AppendError(nil, "ERR Invalid number of arguments specified for command")
		}
		keys := e.keys(args)
		if len(keys) == 0 {
			return resp.AppendError(nil, "ERR Invalid arguments specified for command")
		}
		b := resp.AppendArray(nil, len(keys))
		for _, key := range keys {
			if !flags {
				b = resp.AppendBulk(b, key)
				continue
			}
			b = f.appendWords(resp.AppendBulk(resp.AppendArray(b, 2), key), e.access)
		}
		return b
	}
}
