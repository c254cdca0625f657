// Package table knows which commands Redis has, what Redis says of each, and which
// of a command's arguments are keys.
//
// It is made of an upstream's reply to COMMAND, or without one of what Redis 7.0
// replies. Keys come out as from COMMAND GETKEYS. Nothing here does I/O, and a
// [Table] may be used by any number of goroutines.
package table

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
	t, err := parse(redis70)
	if err != nil {
		panic(err) // the file is part of the program
	}
	return t
})

// Builtin is the table of Redis 7.0, for what an upstream does not say: an old one,
// or one not reached yet.
func Builtin() *Table { return builtin() }

// Lookup finds the command of args, which are at least one, in any case; of one that
// has subcommands the subcommand, unless args end before it. It is nil if the table
// does not have it. It does not allocate.
func (t *Table) Lookup(args [][]byte) *Command {
	c := lookup(t.commands, args[0])
	if c == nil || c.subs == nil || len(args) == 1 {
		return c
	}
	return lookup(c.subs, args[1])
}

// lookup folds a name on the stack, where all but absurd ones have room.
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

// All visits every command, each before its subcommands, in the order of their names.
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

// add puts c where its name belongs; a subcommand comes after its command.
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

// parse reads what redis70.txt says of itself in its first lines.
func parse(text string) (*Table, error) {
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
		s, err := parseSpec(text)
		if err != nil {
			return nil, err
		}
		c.specs = append(c.specs, s)
	}
	return c, nil
}

// flagOf is the flag of a word, none of one that is not known.
func flagOf(word string) Flags {
	i := slices.Index(flagWords, word)
	if i < 0 {
		return 0
	}
	return 1 << i
}

// parseSpec reads BEGIN:FIND!FLAG!FLAG.
func parseSpec(text string) (s spec, err error) {
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

// flag sets a flag by Redis's word for it. Most say how keys are used, which is of
// no interest here.
func (s *spec) flag(word string) {
	switch word {
	case "not_key":
		s.notKey = true
	case "incomplete":
		s.incomplete = true
	case "variable_flags":
		s.variable = true
	}
}
