package embedded

import (
	"fmt"
	"strconv"
	"strings"
)

// An argument is one in the docs of a command.
type argument struct {
	name, token, kind  string
	key                int // kind "key": the number of its specification
	optional, multiple bool
	parts              []argument // of kind oneof any, of block all in this order
}

// parseArguments reads a line of arguments as commands.txt has them.
func parseArguments(text string) ([]argument, error) {
	p := argumentParser{rest: text}
	all := p.row(' ')
	if p.isCut || p.rest != "" {
		return nil, fmt.Errorf("arguments are not understood from %q", p.rest)
	}
	return all, nil
}

// An argumentParser takes arguments off the front of a text; what it does not understand stays.
type argumentParser struct {
	rest  string
	isCut bool // a bracket was not closed
}

func (p *argumentParser) skip(what string) bool {
	rest, ok := strings.CutPrefix(p.rest, what)
	p.rest = rest
	return ok
}

// close takes a bracket that must be there.
func (p *argumentParser) close(bracket string) {
	if !p.skip(bracket) {
		p.isCut = true
	}
}

// word takes what comes before any of the characters that mean something.
func (p *argumentParser) word() (word string) {
	end := strings.IndexAny(p.rest, " []|(){}=!:")
	if end < 0 {
		end = len(p.rest)
	}
	word, p.rest = p.rest[:end], p.rest[end:]
	return word
}

// row takes arguments with this character between them.
func (p *argumentParser) row(between byte) (all []argument) {
	for {
		all = append(all, p.argument())
		if !p.skip(string(between)) {
			return all
		}
	}
}

func (p *argumentParser) argument() (a argument) {
	if p.skip("[") {
		a = p.argument()
		a.optional = true
		p.close("]")
		return a
	}
	a.name = p.word()
	if p.skip("=") {
		a.token, a.name = a.name, p.word()
	}
	switch {
	case p.skip("("):
		a.kind, a.parts = "oneof", p.row('|')
		p.close(")")
	case p.skip("{"):
		a.kind, a.parts = "block", p.row(' ')
		p.close("}")
	case p.skip("!"):
		a.kind, a.token = "pure-token", p.token()
	case p.skip(":"):
		a.kind = p.word()
		p.dots(&a.kind, &a)
		if a.kind == "port" { // of ip:port, which is a name
			a.name, a.kind = a.name+":port", "string"
		}
	case a.token == "" && a.name == strings.ToUpper(a.name):
		a.kind, a.token, a.name = "pure-token", a.name, strings.ToLower(a.name)
	default:
		a.kind = "string"
		p.dots(&a.name, &a)
	}
	if p.skip("...") {
		a.multiple = true
	}
	if number, isKey := strings.CutPrefix(a.kind, "key"); isKey {
		a.kind = "key"
		a.key, _ = strconv.Atoi(number)
	}
	return a
}

// token is a word that may be one of the characters that mean something.
func (p *argumentParser) token() string {
	if p.skip("=") {
		return "="
	}
	return p.word()
}

// dots takes "..." off the end of a word of a.
func (p *argumentParser) dots(word *string, a *argument) {
	*word, a.multiple = strings.CutSuffix(*word, "...")
}
