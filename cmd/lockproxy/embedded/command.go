package embedded

import (
	"path"
	"slices"
	"strings"

	"github.com/lockproxy/lockproxy/backends/resp"
)

// answerCommand is the reply to COMMAND with these arguments.
func (t *table) answerCommand(proto int, args []string) []byte {
	if len(args) == 0 {
		return t.info(proto)
	}
	sub := strings.ToUpper(args[0])
	c := t.byName["command|"+strings.ToLower(sub)]
	if c == nil {
		return unknownSubcommand("COMMAND", sub)
	}
	if !c.takes(1 + len(args)) {
		return wrongNumber(c.name)
	}
	args = args[1:]
	switch {
	case sub == "COUNT":
		return resp.AppendInt(nil, int64(len(t.all)))
	case sub == "INFO" && len(args) == 0:
		return t.info(proto)
	case sub == "INFO":
		b := resp.AppendArray(nil, len(args))
		for _, name := range args {
			b = t.byName[strings.ToLower(name)].appendInfo(b, proto)
		}
		return b
	case sub == "DOCS":
		return t.docs(proto, args)
	case sub == "GETKEYS":
		return t.keys(args)
	case len(args) > 0 && (len(args) != 3 || !strings.EqualFold(args[0], "FILTERBY")):
		return resp.AppendError(nil, "ERR syntax error")
	}
	return t.names(args)
}

// info is the reply to COMMAND.
func (t *table) info(proto int) []byte {
	b := resp.AppendArray(nil, len(t.all))
	for _, c := range t.all {
		b = c.appendInfo(b, proto)
	}
	return b
}

// docs is the reply to COMMAND DOCS of these commands, of all without names.
func (t *table) docs(proto int, names []string) []byte {
	asked := t.all
	if len(names) > 0 {
		asked = nil
		for _, name := range names {
			if c := t.byName[strings.ToLower(name)]; c != nil {
				asked = append(asked, c)
			}
		}
	}
	b := resp.AppendMap(nil, len(asked), proto)
	for _, c := range asked {
		b = c.appendDocs(b, proto)
	}
	return b
}

// names is the reply to COMMAND LIST, with FILTERBY and two words or nothing.
func (t *table) names(filter []string) []byte {
	var all [][]byte
	for _, c := range t.all {
		for _, c := range append([]*command{c}, c.subs...) {
			if c.passes(filter) {
				all = append(all, resp.AppendBulkString(nil, c.name))
			}
		}
	}
	return resp.AppendElements(nil, '*', all)
}

func (c *command) passes(filter []string) bool {
	if len(filter) == 0 {
		return true
	}
	switch what := strings.ToLower(filter[2]); strings.ToUpper(filter[1]) {
	case "ACLCAT":
		return slices.Contains(c.categories, "@"+what)
	case "PATTERN":
		ok, err := path.Match(what, c.name)
		return ok && err == nil
	}
	return false // of a module
}

// keys is the reply to COMMAND GETKEYS.
func (t *table) keys(args []string) []byte {
	words := make([][]byte, len(args))
	for i, a := range args {
		words[i] = []byte(a)
	}
	c := t.spec.Lookup(words)
	switch {
	case c == nil:
		return resp.AppendError(nil, "ERR Invalid command specified")
	case !c.HasKeys():
		return resp.AppendError(nil, "ERR The command has no key arguments")
	case !c.Takes(len(args)):
		return resp.AppendError(nil, "ERR Invalid number of arguments specified for command")
	}
	at, _ := c.Keys(words, nil)
	if len(at) == 0 {
		return resp.AppendError(nil, "ERR Invalid arguments specified for command")
	}
	b := resp.AppendArray(nil, len(at))
	for _, i := range at {
		b = resp.AppendBulk(b, words[i])
	}
	return b
}

// appendInfo appends an entry of COMMAND; of nil, nothing.
func (c *command) appendInfo(b []byte, proto int) []byte {
	if c == nil {
		return resp.AppendNullBulk(b, proto)
	}
	b = resp.AppendBulkString(resp.AppendArray(b, 10), c.name)
	b = appendFlags(resp.AppendInt(b, int64(c.arity)), c.flags, proto)
	for _, n := range []int{c.first, c.last, c.step} {
		b = resp.AppendInt(b, int64(n))
	}
	b = appendFlags(b, c.categories, proto)
	b = appendSet(b, len(c.tips), proto)
	for _, tip := range c.tips {
		b = resp.AppendBulkString(b, tip)
	}
	b = appendSet(b, len(c.keys), proto)
	for _, keys := range c.keys {
		b = appendKeys(b, keys, proto)
	}
	if len(c.subs) == 0 {
		return appendSet(b, 0, proto)
	}
	b = resp.AppendArray(b, len(c.subs))
	for _, sub := range c.subs {
		b = sub.appendInfo(b, proto)
	}
	return b
}

// appendKeys appends a key specification, BEGIN:FIND!FLAG in commands.txt.
func appendKeys(b []byte, keys string, proto int) []byte {
	where, flags, _ := strings.Cut(keys, "!")
	from, which, _ := strings.Cut(where, ":")
	keyword, at, isKeyword := strings.Cut(from, "@")
	begin, spec := "index", fields{number("index", from)}
	switch {
	case isKeyword:
		begin, spec = "keyword", fields{text("keyword", keyword), number("startfrom", at)}
	case from == "?":
		begin, spec = "unknown", nil
	}
	find, names := "range", []string{"lastkey", "keystep", "limit"}
	numbers, isCounted := strings.CutPrefix(which, "#")
	switch {
	case isCounted:
		find, names = "keynum", []string{"keynumidx", "firstkey", "keystep"}
	case which == "?":
		find, names = "unknown", nil
	}
	var found fields
	for i, n := range strings.Split(numbers, ",") {
		if names != nil {
			found = append(found, number(names[i], n))
		}
	}
	return fields{
		{"flags", appendFlags(nil, strings.Split(flags, "!"), proto)},
		{"begin_search", fields{text("type", begin), {"spec", spec.appendTo(nil, proto)}}.appendTo(nil, proto)},
		{"find_keys", fields{text("type", find), {"spec", found.appendTo(nil, proto)}}.appendTo(nil, proto)},
	}.appendTo(b, proto)
}

// appendDocs appends an entry of COMMAND DOCS, name first.
func (c *command) appendDocs(b []byte, proto int) []byte {
	all := fields{text("summary", c.summary), text("since", c.since), text("group", c.group)}
	if len(c.arguments) > 0 {
		all = append(all, field{"arguments", appendArguments(nil, c.arguments, proto)})
	}
	if len(c.subs) > 0 {
		subs := resp.AppendMap(nil, len(c.subs), proto)
		for _, sub := range c.subs {
			subs = sub.appendDocs(subs, proto)
		}
		all = append(all, field{"subcommands", subs})
	}
	return all.appendTo(resp.AppendBulkString(b, c.name), proto)
}

func appendArguments(b []byte, all []argument, proto int) []byte {
	b = resp.AppendArray(b, len(all))
	for _, a := range all {
		b = a.appendTo(b, proto)
	}
	return b
}

func (a argument) appendTo(b []byte, proto int) []byte {
	all := fields{text("name", a.name), text("type", a.kind)}
	if a.kind != "oneof" && a.kind != "block" && a.kind != "pure-token" {
		all = append(all, text("display_text", a.name))
	}
	if a.kind == "key" {
		all = append(all, field{"key_spec_index", resp.AppendInt(nil, int64(a.key))})
	}
	if a.token != "" {
		all = append(all, text("token", a.token))
	}
	var flags []string
	if a.optional {
		flags = append(flags, "optional")
	}
	if a.multiple {
		flags = append(flags, "multiple")
	}
	if flags != nil {
		all = append(all, field{"flags", appendFlags(nil, flags, proto)})
	}
	if a.parts != nil {
		all = append(all, field{"arguments", appendArguments(nil, a.parts, proto)})
	}
	return all.appendTo(b, proto)
}

// A field is one of a map: its name and its value as a reply.
type field struct {
	name  string
	value []byte
}

type fields []field

func (f fields) appendTo(b []byte, proto int) []byte {
	b = resp.AppendMap(b, len(f), proto)
	for _, one := range f {
		b = append(resp.AppendBulkString(b, one.name), one.value...)
	}
	return b
}

func text(name, value string) field { return field{name, resp.AppendBulkString(nil, value)} }

// number is a field whose value is written as a number.
func number(name, digits string) field { return field{name, []byte(":" + digits + "\r\n")} }

func appendSet(b []byte, n, proto int) []byte {
	at := len(b)
	if b = resp.AppendArray(b, n); proto == 3 {
		b[at] = '~'
	}
	return b
}

func appendFlags(b []byte, words []string, proto int) []byte {
	b = appendSet(b, len(words), proto)
	for _, w := range words {
		b = resp.AppendSimple(b, w)
	}
	return b
}
