// Package spec holds which commands exist: what Redis says of each, which of a
// command's arguments are keys, and the hash slots of these.
//
// [Parse] makes a [Table] of an upstream's reply to COMMAND; [Builtin] is that of
// Redis 7.0, for as long as no upstream has been asked. A [Discovery] has what an upstream
// has told, and says when to ask again. [Command.Keys] finds what
// COMMAND GETKEYS would. Nothing here does I/O or starts a goroutine; a Table never
// changes and is safe for concurrent use.
package spec

import (
	_ "embed"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
)

//go:generate go test -count=1 -run ^TestBuiltin$ -update .

// A Table is a set of commands. It does not change.
type Table struct {
	commands map[string]*Command // by name, without subcommands
}

//go:embed redis70.txt
var redis70 string

var builtin = sync.OnceValue(func() *Table {
	t, err := parseBuiltin(redis70)
	if err != nil {
		panic(err) // the file is part of the program
	}
	return t
})

// Builtin is the table of Redis 7.0: for upstreams that leave things out, because they
// are older, or have not been reached.
func Builtin() *Table { return builtin() }

// Lookup returns the command of args, of which there must be at least one, in any case;
// its subcommand, if it has any and args name one. It returns nil for a command that the
// table lacks. It does not allocate.
func (t *Table) Lookup(args [][]byte) *Command {
	c := lookup(t.commands, args[0])
	if c == nil || c.subs == nil || len(args) == 1 {
		return c
	}
	return lookup(c.subs, args[1])
}

// lookup folds the name on the stack; only absurdly long ones are allocated.
func lookup(commands map[string]*Command, name []byte) *Command {
	var room [64]byte
	folded := room[:0]
	for _, b := range name {
		folded = append(folded, lower(b))
	}
	return commands[string(folded)]
}

func lower(b byte) byte {
	if 'A' <= b && b <= 'Z' {
		b += 'a' - 'A'
	}
	return b
}

// All yields every command by name, each followed by its subcommands.
func (t *Table) All() iter.Seq[*Command] {
	return func(yield func(*Command) bool) {
		for _, name := range slices.Sorted(maps.Keys(t.commands)) {
			c := t.commands[name]
			if !yield(c) {
				return
			}
			for _, sub := range slices.Sorted(maps.Keys(c.subs)) {
				if !yield(c.subs[sub]) {
					return
				}
			}
		}
	}
}

// add adds a command, or a subcommand of one that has been added before.
func (t *Table) add(c *Command) error {
	c.finish()
	name, sub, isSub := strings.Cut(c.Name, "|")
	if !isSub {
		t.commands[name] = c
		return nil
	}
	parent := t.commands[name]
	if parent == nil {
		return fmt.Errorf("subcommand %s of no command", c.Name)
	}
	if parent.subs == nil {
		parent.subs = map[string]*Command{}
	}
	parent.subs[sub] = c
	return nil
}

// parseBuiltin reads redis70.txt, whose first lines describe its format.
func parseBuiltin(text string) (*Table, error) {
	t := &Table{commands: map[string]*Command{}}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		c, err := parseLine(strings.Fields(line))
		if err == nil {
			err = t.add(c)
		}
		if err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
	}
	return t, nil
}

func parseLine(fields []string) (c *Command, err error) {
	if len(fields) < 5 {
		return nil, fmt.Errorf("%d columns", len(fields))
	}
	c = &Command{Name: fields[0]}
	if c.Arity, err = strconv.Atoi(fields[1]); err != nil {
		return nil, err
	}
	for word := range strings.SplitSeq(fields[2], ",") {
		c.Flags |= flagOf(word)
	}
	c.Request = Request(max(0, slices.Index(requestWords, fields[3])))
	c.Response = Response(max(0, slices.Index(responseWords, fields[4])))
	for _, text := range fields[5:] {
		s, err := parseKeySpec(text)
		if err != nil {
			return nil, err
		}
		c.specs = append(c.specs, s)
	}
	return c, nil
}

// flagOf is the flag that a word names; 0 for an unknown word.
func flagOf(word string) Flags {
	i := slices.Index(flagWords, word)
	if i < 0 {
		return 0
	}
	return 1 << i
}

// parseKeySpec reads BEGIN:FIND!FLAG!FLAG.
func parseKeySpec(text string) (s keySpec, err error) {
	where, flags, _ := strings.Cut(text, "!")
	for flag := range strings.SplitSeq(flags, "!") {
		s.flag(flag)
	}
	from, which, _ := strings.Cut(where, ":")
	keyword, at, isKeyword := strings.Cut(from, "@")
	switch {
	case isKeyword:
		s.begin, s.keyword = beginKeyword, keyword
		s.at, err = strconv.Atoi(at)
	case from != "?":
		s.begin = beginIndex
		s.at, err = strconv.Atoi(from)
	}
	if err != nil {
		return s, err
	}
	if numbers, isNum := strings.CutPrefix(which, "#"); isNum {
		s.find = findNum
		_, err = fmt.Sscanf(numbers, "%d,%d,%d", &s.num, &s.first, &s.step)
	} else if which != "?" {
		s.find = findRange
		_, err = fmt.Sscanf(which, "%d,%d,%d", &s.last, &s.step, &s.limit)
	}
	return s, err
}

// flag sets a flag by Redis's name for it, and ignores those that only tell how keys are used.
func (s *keySpec) flag(word string) {
	switch word {
	case "not_key":
		s.notKey = true
	case "incomplete":
		s.incomplete = true
	case "variable_flags":
		s.variable = true
	}
}
