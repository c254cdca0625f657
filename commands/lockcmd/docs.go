package lockcmd

import (
	"slices"
	"strconv"
	"strings"

	"github.com/lockproxy/lockproxy/backends/resp"
)

// A verbDocs is what COMMAND tells of one of the proxy's own commands, in Redis's terms.
type verbDocs struct {
	name       string // lower case; of a subcommand with the command's
	arity      int
	flags      []string
	categories []string
	tips       []string
	key        int      // the position of its one key; 0: none
	counted    bool     // at key is the number of keys that follow
	access     []string // the flags of the key's specification
	subs       []verbDocs

	usage      string // from which the arguments are parsed
	summary    string
	complexity string
}

// allVerbDocs are all commands of the proxy's own.
var allVerbDocs = []verbDocs{
	{name: "lock", arity: -3, flags: []string{"write", "noscript", "blocking", "no_multi"},
		categories: []string{"@write", "@slow", "@blocking"}, key: 1, access: []string{"RW", "access", "insert"},
		usage: lockUsage, summary: "Take a lock, or wait for it", complexity: perNode},
	{name: "renew", arity: -3, flags: []string{"write", "noscript", "no_multi"},
		categories: []string{"@write", "@slow"}, key: 1, access: []string{"RW", "access", "update"},
		usage: renewUsage, summary: "Let the lease of a lock end ttl from now", complexity: perNode},
	{name: "unlock", arity: -2, flags: []string{"write", "noscript", "no_multi"},
		categories: []string{"@write", "@slow"}, key: 1, access: []string{"RW", "access", "delete"},
		usage: unlockUsage, summary: "Give a lock back", complexity: perNode},
	several("lockall", lockAllUsage, "Take several locks, or wait for all of them", -4, []string{"@write", "@slow", "@blocking"}, []string{"RW", "access", "insert"}, "blocking"),
	several("renewall", renewAllUsage, "Let the leases of several locks end ttl from now", -4, []string{"@write", "@slow"}, []string{"RW", "access", "update"}),
	several("unlockall", unlockAllUsage, "Give several locks back", -3, []string{"@write", "@slow"}, []string{"RW", "access", "delete"}),
	{name: "lockctl", arity: -2, categories: []string{"@slow"},
		summary: "A container for commands about locks", complexity: "Depends on subcommand.", subs: []verbDocs{
			aboutLock("info", "Show who holds a lock, and how", perNode),
			aboutLock("waiters", "Show who waits for a lock at this proxy", "O(N) where N is the number of waiters."),
			aboutLock("why", "Explain why a lock can or cannot be had", perNode),
			{name: "lockctl|fence", arity: 4, flags: []string{"readonly", "noscript", "no_multi"},
				categories: []string{"@read", "@slow"}, tips: []string{"nondeterministic_output"}, key: 2, access: []string{"RO", "access"},
				usage: "FENCE name value", summary: "Get the fence of a lock if its value, field or owner is this one", complexity: perNode},
			{name: "lockctl|force", arity: 3, flags: []string{"write", "admin", "noscript", "no_multi"},
				categories: []string{"@write", "@admin", "@slow", "@dangerous"}, key: 2, access: []string{"RW", "access", "delete"},
				usage: "FORCE name", summary: "Take a lock from whoever holds it", complexity: perNode},
			{name: "lockctl|list", arity: -2, flags: []string{"readonly", "noscript", "no_multi"},
				categories: []string{"@read", "@slow"}, tips: []string{"nondeterministic_output_order"},
				usage: "LIST [MATCH pattern] [COUNT count] [CURSOR cursor]", summary: "List locks that are held", complexity: "O(N) where N is the number of keys looked at."},
			{name: "lockctl|nodes", arity: 2, flags: []string{"readonly", "noscript", "no_multi"},
				categories: []string{"@read", "@slow"}, tips: []string{"nondeterministic_output"},
				usage: "NODES", summary: "Show the lock nodes", complexity: perNode},
			{name: "lockctl|adopt", arity: -2, flags: []string{"readonly", "admin", "noscript", "no_multi"},
				categories: []string{"@read", "@admin", "@slow", "@dangerous"}, tips: []string{"nondeterministic_output"},
				usage: "ADOPT [MATCH pattern]", summary: "Show which keys are used as locks, and how", complexity: "O(N) where N is the number of keys that are followed."},
			{name: "lockctl|help", arity: 2, flags: []string{"loading", "stale"}, categories: []string{"@slow"},
				usage: "HELP", summary: "Show helpful text about the different subcommands", complexity: "O(1)"},
		}},
}

const perNode = "O(N) where N is the number of lock nodes."

// several is the entry of a verb about several locks, whose names are counted.
func several(name, usage, summary string, arity int, categories, access []string, flags ...string) verbDocs {
	return verbDocs{name: name, arity: arity, flags: append([]string{"write", "noscript", "no_multi", "movablekeys"}, flags...),
		categories: categories, key: 1, counted: true, access: access,
		usage: usage, summary: summary, complexity: "O(N*M) where N is the number of locks and M that of lock nodes."}
}

// aboutLock is the entry of a LOCKCTL that shows something of one lock.
func aboutLock(sub, summary, complexity string) verbDocs {
	return verbDocs{name: "lockctl|" + sub, arity: 3, flags: []string{"readonly", "noscript", "no_multi"},
		categories: []string{"@read", "@slow"}, tips: []string{"nondeterministic_output"},
		key: 2, access: []string{"RO", "access"},
		usage: strings.ToUpper(sub) + " name", summary: summary, complexity: complexity}
}

// docsOf returns the docs of a verb or subcommand by its name in any case; nil for any other command.
func docsOf(name []byte) *verbDocs {
	for i := range allVerbDocs {
		if e := &allVerbDocs[i]; resp.Is(name, strings.ToUpper(e.name)) {
			return e
		}
		for j := range allVerbDocs[i].subs {
			if e := &allVerbDocs[i].subs[j]; resp.Is(name, strings.ToUpper(e.name)) {
				return e
			}
		}
	}
	return nil
}

// IsVerb reports whether a name, in any case, is that of a lock verb.
func IsVerb(name []byte) bool { return docsOf(name) != nil }

// docsOfCommand returns the docs of the verb or subcommand that args call; nil for any other command.
func docsOfCommand(args [][]byte) *verbDocs {
	e := docsOf(args[0])
	if e == nil || e.subs == nil || len(args) == 1 {
		return e
	}
	return docsOf(slices.Concat(args[0], []byte("|"), args[1]))
}

// keys are the keys of a command that takes args; none if these are wrong.
func (e *verbDocs) keys(args [][]byte) [][]byte {
	if !e.counted {
		return args[e.key : e.key+1]
	}
	n, err := strconv.ParseUint(string(args[e.key]), 10, 31)
	if err != nil || n > uint64(len(args)-e.key-1) {
		return nil
	}
	return args[e.key+1:][:n]
}

// takes reports whether the command takes n arguments, counting its name.
func (e *verbDocs) takes(n int) bool { return n == e.arity || e.arity < 0 && n >= -e.arity }

// A commandFormat is the format of an upstream's replies to COMMAND.
type commandFormat struct {
	proto     int
	columns   int  // of an entry of COMMAND: 6 before Redis 6, 7 before 7.0, then 10
	emptySubs bool // no subcommands are an empty array, not a set: in Valkey since 9.1
	display   bool // arguments have a display_text, since 7.2
}

// appendTo appends an entry of COMMAND.
func (e *verbDocs) appendTo(b []byte, f commandFormat) []byte {
	if f.columns < 10 && strings.Contains(e.name, "|") {
		return resp.AppendNull(b, f.proto)
	}
	b = resp.AppendArray(b, min(max(f.columns, 6), 10))
	b = resp.AppendBulkString(b, e.name)
	b = resp.AppendInt(b, int64(e.arity))
	b = f.appendWords(b, e.flags)
	at, step := e.key, min(e.key, 1)
	if e.counted {
		at, step = 0, 0
	}
	for _, n := range []int{at, at, step} {
		b = resp.AppendInt(b, int64(n))
	}
	if f.columns < 7 {
		return b
	}
	if b = f.appendWords(b, e.categories); f.columns < 10 {
		return b
	}
	b = f.appendSet(b, len(e.tips))
	for _, tip := range e.tips {
		b = resp.AppendBulkString(b, tip)
	}
	b = e.appendSpecs(b, f)
	if len(e.subs) == 0 && !f.emptySubs {
		return f.appendSet(b, 0)
	}
	b = resp.AppendArray(b, len(e.subs))
	for i := range e.subs {
		b = e.subs[i].appendTo(b, f)
	}
	return b
}

// appendSpecs appends the key specifications.
func (e *verbDocs) appendSpecs(b []byte, f commandFormat) []byte {
	if e.key == 0 {
		return f.appendSet(b, 0)
	}
	find := f.nested("find_keys", text("type", "range"), f.nested("spec", number("lastkey", 0), number("keystep", 1), number("limit", 0)))
	if e.counted {
		find = f.nested("find_keys", text("type", "keynum"), f.nested("spec", number("keynumidx", 0), number("firstkey", 1), number("keystep", 1)))
	}
	return fields{
		{"flags", f.appendWords(nil, e.access)},
		f.nested("begin_search", text("type", "index"), f.nested("spec", number("index", e.key))),
		find,
	}.appendTo(f.appendSet(b, 1), f.proto)
}

// nested is a field with a map as its value.
func (f commandFormat) nested(name string, values ...field) field {
	return field{name, fields(values).appendTo(nil, f.proto)}
}

func (f commandFormat) appendSet(b []byte, n int) []byte {
	at := len(b)
	if b = resp.AppendArray(b, n); f.proto == 3 {
		b[at] = '~'
	}
	return b
}

func (f commandFormat) appendWords(b []byte, words []string) []byte {
	b = f.appendSet(b, len(words))
	for _, w := range words {
		b = resp.AppendSimple(b, w)
	}
	return b
}

// appendDocs appends an entry of COMMAND DOCS, name first.
func (e *verbDocs) appendDocs(b []byte, f commandFormat) []byte {
	all := fields{text("summary", e.summary), text("since", "0.1.0"), text("group", "lock"), text("complexity", e.complexity)}
	if arguments := parseUsage(e.usage); len(arguments) > 0 {
		all = append(all, f.arguments(arguments))
	}
	if len(e.subs) > 0 {
		subs := resp.AppendMap(nil, len(e.subs), f.proto)
		for i := range e.subs {
			subs = e.subs[i].appendDocs(subs, f)
		}
		all = append(all, field{"subcommands", subs})
	}
	return all.appendTo(resp.AppendBulkString(b, e.name), f.proto)
}

func (f commandFormat) arguments(all []argument) field {
	b := resp.AppendArray(nil, len(all))
	for _, a := range all {
		b = a.appendTo(b, f)
	}
	return field{"arguments", b}
}

// An argument is one in the docs of a command.
type argument struct {
	name, token string
	alone       bool // the token has no value
	optional    bool
	multiple    bool       // it may follow itself
	kind        string     // oneof or block: it consists of parts; else empty
	parts       []argument // of oneof any, of block all in this order
}

// parseUsage reads the arguments behind the name in a usage: "word", "[word]", "word [word ...]", "[TOKEN]",
// "[TOKEN word]", "[TOKEN | TOKEN word]", "[TOKEN TOKEN|TOKEN]" and such within "[TOKEN [...]]".
func parseUsage(usage string) (arguments []argument) {
	_, text, _ := strings.Cut(usage, " ")
	rest := strings.Fields(strings.NewReplacer("[", " [ ", "]", " ] ", "|", " | ").Replace(text))
	for len(rest) > 0 {
		var a argument
		if a, rest = parseArgument(rest); a.name == "..." {
			arguments[len(arguments)-1].multiple = true
			continue
		}
		arguments = append(arguments, a)
	}
	return arguments
}

// parseArgument reads the first argument of a usage's words.
func parseArgument(words []string) (a argument, rest []string) {
	if words[0] != "[" {
		return newArgument(words[:1]), words[1:]
	}
	var own []string
	var inner []argument
	for words = words[1:]; words[0] != "]"; {
		if words[0] == "[" {
			a, words = parseArgument(words)
			inner = append(inner, a)
		} else {
			own, words = append(own, words[0]), words[1:]
		}
	}
	if a = newArgument(own); inner != nil {
		a = argument{name: a.name, kind: "block", parts: append([]argument{a}, inner...)}
	}
	a.optional = true
	return a, words[1:]
}

// newArgument parses words without brackets.
func newArgument(words []string) (a argument) {
	if i := slices.Index(words, "|"); i > 0 {
		var names []string
		for part := range strings.SplitSeq(strings.Join(words[i-1:], " "), " | ") {
			choice := strings.Fields(part)
			a.parts, names = append(a.parts, newArgument(choice)), append(names, strings.ToLower(choice[0]))
		}
		a.kind = "oneof"
		a.name, a.token = strings.ToLower(words[0]), words[0]
		if i == 1 {
			a.name, a.token = strings.Join(names, "-or-"), ""
		}
		return a
	}
	switch word := words[0]; {
	case len(words) > 1:
		a.name, a.token = words[1], word
	case word == strings.ToUpper(word):
		a.name, a.token, a.alone = strings.ToLower(word), word, true
	default:
		a.name = word
	}
	return a
}

func (a argument) appendTo(b []byte, f commandFormat) []byte {
	kind := "string"
	switch {
	case a.kind != "":
		kind = a.kind
	case a.alone:
		kind = "pure-token"
	case a.name == "name":
		kind = "key"
	case slices.Contains([]string{"n", "count", "cursor"}, a.name):
		kind = "integer"
	case a.name == "pattern":
		kind = "pattern"
	}
	all := fields{text("name", a.name), text("type", kind)}
	if f.display && !a.alone && a.kind == "" {
		all = append(all, text("display_text", a.name))
	}
	if kind == "key" {
		all = append(all, number("key_spec_index", 0))
	}
	if a.token != "" {
		all = append(all, text("token", a.token))
	}
	switch {
	case a.optional:
		all = append(all, field{"flags", f.appendWords(nil, []string{"optional"})})
	case a.multiple:
		all = append(all, field{"flags", f.appendWords(nil, []string{"multiple"})})
	}
	if a.kind != "" {
		all = append(all, f.arguments(a.parts))
	}
	return all.appendTo(b, f.proto)
}
