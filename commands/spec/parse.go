package spec

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Parse reads an upstream's reply to COMMAND, in either protocol. What a Redis before
// 7.0 leaves out (key specifications, policies, subcommands) is taken from [Builtin].
// It fails on an error reply, and on what is no reply to COMMAND.
func Parse(reply []byte) (*Table, error) {
	v, rest, err := readValue(reply, 0)
	if err != nil {
		return nil, err
	}
	if v.kind == '-' || v.kind == '!' {
		return nil, fmt.Errorf("the upstream's answer to COMMAND: %s", v.text)
	}
	if len(rest) > 0 || v.elems == nil {
		return nil, errMalformed
	}
	t := &Table{commands: map[string]*Command{}}
	for _, e := range v.elems {
		if err := t.addEntry(e); err != nil {
			return nil, err
		}
	}
	return t, nil
}

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
func (t *Table) addEntry(v value) error {
	if len(v.elems) <= atStep {
		return errMalformed
	}
	c := &Command{Name: strings.ToLower(v.elems[atName].text)}
	var err error
	if c.Arity, err = v.elems[atArity].int(); err != nil {
		return err
	}
	for _, f := range v.elems[atFlags].elems {
		c.Flags |= flagOf(f.text)
	}
	if len(v.elems) < columns {
		return t.addOldEntry(c, v)
	}
	for _, tip := range v.elems[atTips].elems {
		c.tip(tip.text)
	}
	for _, e := range v.elems[atSpecs].elems {
		s, err := keySpecOf(e)
		if err != nil {
			return err
		}
		c.specs = append(c.specs, s)
	}
	if err := t.add(c); err != nil {
		return err
	}
	for _, sub := range v.elems[atSubcommands].elems {
		if err := t.addEntry(sub); err != nil {
			return err
		}
	}
	return nil
}

// addOldEntry adds a command of an upstream before 7.0.
func (t *Table) addOldEntry(c *Command, v value) error {
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
func (c *Command) addOldKeys(v value) error {
	first, err1 := v.elems[atFirst].int()
	last, err2 := v.elems[atLast].int()
	step, err3 := v.elems[atStep].int()
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

func keySpecOf(v value) (s keySpec, err error) {
	for _, f := range v.field("flags").elems {
		s.flag(f.text)
	}
	r := specReader{of: v.field("begin_search").field("spec")}
	switch v.field("begin_search").field("type").text {
	case "index":
		s.begin, s.at = beginIndex, r.int("index")
	case "keyword":
		s.begin, s.keyword, s.at = beginKeyword, r.of.field("keyword").text, r.int("startfrom")
	}
	r.of = v.field("find_keys").field("spec")
	switch v.field("find_keys").field("type").text {
	case "range":
		s.find, s.last, s.step, s.limit = findRange, r.int("lastkey"), r.int("keystep"), r.int("limit")
	case "keynum":
		s.find, s.num, s.first, s.step = findNum, r.int("keynumidx"), r.int("firstkey"), r.int("keystep")
	}
	return s, r.err
}

// A specReader reads numbers and keeps the first error.
type specReader struct {
	of  value
	err error
}

func (r *specReader) int(name string) int {
	n, err := r.of.field(name).int()
	if r.err == nil {
		r.err = err
	}
	return n
}

// A value is one decoded reply. Null has no elems.
type value struct {
	kind  byte
	text  string
	elems []value // nil: not an aggregate; of a map, key and value in turn
}

// int is the value of an integer reply in the range of a position.
func (v value) int() (int, error) {
	n, err := strconv.ParseInt(v.text, 10, 32)
	if v.kind != ':' || err != nil || n == math.MinInt32 {
		return 0, errMalformed
	}
	return int(n), nil
}

// field is the value behind a name in a map or flat array; the zero value if the name is missing.
func (v value) field(name string) value {
	for i := 0; i+1 < len(v.elems); i += 2 {
		if v.elems[i].text == name {
			return v.elems[i+1]
		}
	}
	return value{}
}

// maxDepth bounds the nesting; COMMAND's replies have eight levels.
const maxDepth = 16

// readValue decodes the reply at the start of p.
func readValue(p []byte, depth int) (v value, rest []byte, err error) {
	line, rest, whole := bytes.Cut(p, []byte("\r\n"))
	if !whole || len(line) == 0 || depth > maxDepth {
		return v, nil, errMalformed
	}
	v = value{kind: line[0], text: string(line[1:])}
	if bytes.IndexByte([]byte("+-:,_#("), v.kind) >= 0 {
		return v, rest, nil
	}
	if bytes.IndexByte([]byte("$!=*~%"), v.kind) < 0 {
		return v, nil, errMalformed
	}
	n, err := strconv.Atoi(v.text)
	if err != nil || n > len(rest) {
		return v, nil, errMalformed
	}
	v.text = ""
	if bytes.IndexByte([]byte("$!="), v.kind) >= 0 {
		return v.readText(rest, n)
	}
	if v.kind == '%' {
		n *= 2
	}
	return v.readElems(rest, n, depth)
}

func (v value) readText(rest []byte, n int) (value, []byte, error) {
	if n < 0 {
		return v, rest, nil
	}
	if !bytes.HasPrefix(rest[n:], []byte("\r\n")) {
		return v, nil, errMalformed
	}
	v.text = string(rest[:n])
	return v, rest[n+2:], nil
}

func (v value) readElems(rest []byte, n, depth int) (_ value, _ []byte, err error) {
	if n >= 0 {
		v.elems = []value{}
	}
	for range n {
		var e value
		if e, rest, err = readValue(rest, depth+1); err != nil {
			return v, nil, err
		}
		v.elems = append(v.elems, e)
	}
	return v, rest, nil
}
