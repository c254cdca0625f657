package spec

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/lockproxy/lockproxy/backends/resp"
)

// Parse reads an upstream's reply to COMMAND, in either protocol. What a Redis before
// 7.0 leaves out (key specifications, policies, subcommands) is taken from [Builtin].
// It fails on an error reply, and on what is no reply to COMMAND.
func Parse(reply []byte) (*Table, error) {
	scanner := resp.Scanner{Limits: &resp.Limits{Depth: maxDepth}}
	if n, done, _ := scanner.Scan(reply); !done || n < len(reply) {
		return nil, errMalformed
	}
	v := resp.Decode(reply)
	if v.Kind == '-' || v.Kind == '!' {
		return nil, fmt.Errorf("the upstream's answer to COMMAND: %s", v.Text)
	}
	if strings.IndexByte("*~%", v.Kind) < 0 {
		return nil, errMalformed
	}
	t := &Table{commands: map[string]*Command{}}
	for _, e := range v.Elems {
		if err := t.addEntry(e); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// maxDepth bounds the nesting; COMMAND's replies have eight levels.
const maxDepth = 16

var errMalformed = errors.New("not a reply to COMMAND")

// Columns of an entry of COMMAND. Before Redis 7.0 the last is the step or the
// categories.
const (
	atName = iota
	atArity
	atFlags
	atFirst
	atLast
	atStep
	atCategories
	atTips
	atSpecs
	atSubcommands
	columns // their number
)

// addEntry adds the command of an entry, and its subcommands.
func (t *Table) addEntry(v resp.Tree) error {
	if len(v.Elems) <= atStep {
		return errMalformed
	}
	c := &Command{Name: strings.ToLower(v.Elems[atName].Text)}
	var err error
	if c.Arity, err = numberIn(v.Elems[atArity]); err != nil {
		return err
	}
	for _, f := range v.Elems[atFlags].Elems {
		c.Flags |= flagOf(f.Text)
	}
	if len(v.Elems) < columns {
		return t.addOldEntry(c, v)
	}
	for _, tip := range v.Elems[atTips].Elems {
		c.tip(tip.Text)
	}
	for _, e := range v.Elems[atSpecs].Elems {
		s, err := keySpecOf(e)
		if err != nil {
			return err
		}
		c.specs = append(c.specs, s)
	}
	if err := t.add(c); err != nil {
		return err
	}
	for _, sub := range v.Elems[atSubcommands].Elems {
		if err := t.addEntry(sub); err != nil {
			return err
		}
	}
	return nil
}

// addOldEntry adds a command of an upstream before 7.0.
func (t *Table) addOldEntry(c *Command, v resp.Tree) error {
	known := Builtin().commands[c.Name]
	if known == nil || c.Flags&Module != 0 {
		if err := c.addOldKeys(v); err != nil {
			return err
		}
		return t.add(c)
	}
	c.Request, c.Response, c.specs, c.subs = known.Request, known.Response, known.specs, known.subs
	return t.add(c)
}

// addOldKeys makes a key specification of first key, last key and step.
func (c *Command) addOldKeys(v resp.Tree) error {
	first, err1 := numberIn(v.Elems[atFirst])
	last, err2 := numberIn(v.Elems[atLast])
	step, err3 := numberIn(v.Elems[atStep])
	if first == 0 {
		return errors.Join(err1, err2, err3)
	}
	if last >= 0 {
		last -= first
	}
	c.specs = []keySpec{{begin: beginIndex, at: first, find: findRange, last: last, step: step}}
	return errors.Join(err1, err2, err3)
}

// tip takes over a policy, and ignores other tips.
func (c *Command) tip(text string) {
	name, word, _ := strings.Cut(text, ":")
	switch name {
	case "request_policy":
		c.Request = Request(max(0, slices.Index(requestWords, word)))
	case "response_policy":
		c.Response = Response(max(0, slices.Index(responseWords, word)))
	}
}

func keySpecOf(v resp.Tree) (s keySpec, err error) {
	for _, f := range v.Field("flags").Elems {
		s.flag(f.Text)
	}
	r := specReader{of: v.Field("begin_search").Field("spec")}
	switch v.Field("begin_search").Field("type").Text {
	case "index":
		s.begin, s.at = beginIndex, r.int("index")
	case "keyword":
		s.begin, s.keyword, s.at = beginKeyword, r.of.Field("keyword").Text, r.int("startfrom")
	}
	r.of = v.Field("find_keys").Field("spec")
	switch v.Field("find_keys").Field("type").Text {
	case "range":
		s.find, s.last, s.step, s.limit = findRange, r.int("lastkey"), r.int("keystep"), r.int("limit")
	case "keynum":
		s.find, s.num, s.first, s.step = findNum, r.int("keynumidx"), r.int("firstkey"), r.int("keystep")
	}
	return s, r.err
}

// A specReader reads numbers and keeps the first error.
type specReader struct {
	of  resp.Tree
	err error
}

func (r *specReader) int(name string) int {
	n, err := numberIn(r.of.Field(name))
	if r.err == nil {
		r.err = err
	}
	return n
}

// numberIn is the value of an integer reply in the range of a position.
func numberIn(v resp.Tree) (int, error) {
	n, err := strconv.ParseInt(v.Text, 10, 32)
	if v.Kind != ':' || err != nil || n == math.MinInt32 {
		return 0, errMalformed
	}
	return int(n), nil
}
