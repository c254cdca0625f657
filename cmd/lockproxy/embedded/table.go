package embedded

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/lockproxy/lockproxy/commands/spec"
)

//go:embed commands.txt
var commandsText string

// A command is what COMMAND tells of one command or subcommand.
type command struct {
	name                    string // lower case; of a subcommand with the command's
	arity                   int
	flags, categories, tips []string
	first, last, step       int
	keys                    []string // the key specifications, as in commands.txt
	since, group, summary   string
	arguments               []argument
	subs                    []*command
}

// takes reports whether the command takes n words, its name being the first ones.
func (c *command) takes(n int) bool { return n == c.arity || c.arity < 0 && n >= -c.arity }

// A table is all commands of an embedded server. It does not change.
type table struct {
	all    []*command          // without subcommands
	byName map[string]*command // with them
	spec   *spec.Table         // says where keys are
}

var commands = sync.OnceValue(func() *table {
	t, err := parseTable(commandsText)
	if err != nil {
		panic(err) // the file is part of the program
	}
	return t
})

// parseTable reads commands.txt, whose first lines describe its format.
func parseTable(text string) (*table, error) {
	t := &table{byName: map[string]*command{}}
	var c *command
	for line := range strings.Lines(text) {
		var err error
		words := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "#"):
		case !strings.HasPrefix(line, " "):
			if c, err = parseCommand(words); err == nil {
				err = t.add(c)
			}
		case c.since == "" && len(words) > 2:
			c.since, c.group, c.summary = words[0], words[1], strings.Join(words[2:], " ")
		default:
			c.arguments, err = parseArguments(strings.TrimSpace(line))
		}
		if err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
	}
	var err error
	t.spec, err = spec.Parse(t.info(2))
	return t, err
}

func parseCommand(words []string) (c *command, err error) {
	if len(words) < 6 {
		return nil, fmt.Errorf("%d columns", len(words))
	}
	c = &command{name: words[0], flags: list(words[2]), categories: list(words[3]), tips: list(words[4]), keys: words[6:]}
	if c.arity, err = strconv.Atoi(words[1]); err == nil && words[5] != "-" {
		_, err = fmt.Sscanf(words[5], "%d,%d,%d", &c.first, &c.last, &c.step)
	}
	return c, err
}

// list are the words of a column; "-" is none.
func list(column string) []string {
	if column == "-" {
		return nil
	}
	return strings.Split(column, ",")
}

func (t *table) add(c *command) error {
	t.byName[c.name] = c
	name, _, isSub := strings.Cut(c.name, "|")
	if !isSub {
		t.all = append(t.all, c)
		return nil
	}
	parent := t.byName[name]
	if parent == nil {
		return fmt.Errorf("a subcommand of no command")
	}
	parent.subs = append(parent.subs, c)
	return nil
}

// blocks reports whether a command may wait.
func (t *table) blocks(name string) bool {
	c := t.byName[name]
	return c != nil && slices.Contains(c.flags, "blocking")
}
