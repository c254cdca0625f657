// Package request cuts the bytes that a client sends into requests.
//
// What is accepted, what is refused, with which words, and what is ignored without an
// answer (counts of 0 or less, empty lines) is what processInputBuffer of Redis 7.0 does,
// except that [Limits].Args is a limit there only from 2^31 on. Memory grows with what has
// arrived, never with what a header announces, and every byte is scanned once, however
// small the reads; of a request that came in several, the headers of the arguments twice.
//
// The rounds of a [Parser] are: read into Space, tell Filled, take requests from Next until
// there is none. The package starts no goroutine.
package request

import (
	"cmp"
	"errors"
	"math"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/backends/resp"
)

// Limits bound what one client may send. A zero field means its default, which is Redis's
// own.
type Limits struct {
	Args        int // arguments of a request; 1,048,576
	Bulk        int // bytes of an argument; 512 MB
	Inline      int // bytes of an inline command, and of any header; 64 KB
	PreAuthArgs int // Args before authentication; 10
	PreAuthBulk int // Bulk before authentication; 16 KB
}

// Rules are Limits as Parsers hold requests against them, for any number of Parsers.
type Rules struct {
	open, preAuth resp.Limits // once the client is authenticated, and until then
}

// Rules returns the Rules of l.
func (l Limits) Rules() *Rules {
	l.Args = cmp.Or(l.Args, 1<<20)
	l.Bulk = cmp.Or(l.Bulk, 512<<20)
	l.Inline = cmp.Or(l.Inline, 64<<10)
	return &Rules{
		open: resp.Limits{Line: l.Inline, Bulk: l.Bulk, Values: l.Args},
		preAuth: resp.Limits{
			Line:   l.Inline,
			Bulk:   min(l.Bulk, cmp.Or(l.PreAuthBulk, 16<<10)),
			Values: min(l.Args, cmp.Or(l.PreAuthArgs, 10)),
		},
	}
}

// An Error is a breach of the protocol, in the words of Redis: the client gets "ERR " and
// this text, and then its connection is closed.
type Error string

func (e Error) Error() string { return "Protocol error: " + string(e) }

// A Request is one command of a client, with at least one argument. Raw is the command as
// an array of bulk strings, whatever the client wrote, and Args point into it. Neither may
// be appended to: the memory behind them is in use. Of requests that were written as
// arrays, one Raw begins in memory where the one before it ended, unless [Parser.Space] was
// called in between. A Request is valid until the next Space or Release.
//
// Of a request whose beginning [Parser.Take] removed, Raw is the rest, Rest is set, and
// there are no Args.
type Request struct {
	Raw  []byte
	Args [][]byte
	Rest bool
}

// A Parser cuts one client's bytes into requests. It belongs to one goroutine at a time.
type Parser struct {
	rules *Rules // fixed by New

	// What has arrived, and how far it is scanned.
	buf     []byte // buf[:end] has arrived
	start   int    // first byte of the request being scanned, behind all handed out
	pos     int    // next byte to scan
	end     int
	scanner resp.Scanner
	err     error // the breach; nothing is scanned after it
	begun   bool  // the beginning of the request being scanned was taken

	// Memory of what is handed out.
	args  [][]byte // the Args handed out, and room for more
	lines []byte   // the Raw of inline commands handed out, and room for more

	// Sizes of memory.
	borrowed *memory // to give buf and args back in; may be nil
	size     int     // of the next buffer
	calm     int     // how many reads in a row were small for it
}

// New returns a Parser with no buffer yet, for a client that is authenticated.
func New(r *Rules) *Parser {
	p := &Parser{rules: r, size: minBuffer}
	p.scanner.Grammar = resp.Requests
	p.Restrict(false)
	return p
}

// Restrict sets whether the limits before authentication hold, from the next header on.
func (p *Parser) Restrict(on bool) {
	p.scanner.Limits = &p.rules.open
	if on {
		p.scanner.Limits = &p.rules.preAuth
	}
}

// Next returns the next request if it has arrived in whole. Empty ones are skipped, as
// Redis does without an answer. An error is an [Error], comes after the last request before
// the fault, and comes again at every call.
func (p *Parser) Next() (req Request, ok bool, err error) {
	for p.err == nil && p.pos < p.end {
		if p.buf[p.pos] == '*' && p.scanner.Starting() {
			if req, ok = p.quick(); ok {
				return req, true, nil
			}
		}
		n, done, err := p.scanner.Scan(p.buf[p.pos:p.end])
		p.pos += n
		if err != nil {
			p.err = p.wording(err)
			break
		}
		if !done {
			break
		}
		if req, ok = p.scanned(); ok {
			return req, true, nil
		}
	}
	return Request{}, false, p.err
}

// quick is Next for what most clients send: a request that has arrived in whole and has
// nothing odd in it. All others are the scanner's.
func (p *Parser) quick() (req Request, ok bool) {
	raw := p.buf[p.pos:p.end]
	n, head := resp.Count(raw, '*')
	if n == 0 || n > p.scanner.Limits.Values || n > len(raw)/len("$0\r\n\r\n") {
		return Request{}, false
	}
	before := p.args
	args := p.room(n)
	size := resp.Arguments(raw[head:], args, p.scanner.Limits.Bulk)
	if size == 0 {
		p.args = before // half a request keeps no room for arguments
		return Request{}, false
	}
	p.pos += head + size
	p.start = p.pos
	p.args = p.args[:len(p.args)+n]
	return Request{Raw: raw[:head+size], Args: args}, true
}

// scanned makes a request of what the scanner found. It is not ok for an empty one, and
// for an inline command that is refused.
func (p *Parser) scanned() (req Request, ok bool) {
	raw := p.buf[p.start:p.pos]
	p.start = p.pos
	switch {
	case p.begun:
		p.begun = false
		return Request{Raw: raw, Rest: true}, true
	case raw[0] != '*':
		return p.inline(raw[:len(raw)-1])
	}
	return p.split(raw)
}

// split takes a request that is there in whole apart.
func (p *Parser) split(raw []byte) (req Request, ok bool) {
	n, head := resp.Count(raw, '*')
	if n == 0 {
		return Request{}, false
	}
	args := p.room(n)
	resp.Arguments(raw[head:], args, math.MaxInt)
	p.args = p.args[:len(p.args)+n]
	return Request{Raw: raw, Args: args}, true
}

// room is memory for so many arguments behind those handed out.
func (p *Parser) room(n int) [][]byte {
	used := len(p.args)
	if cap(p.args)-used < n {
		p.args, used = make([][]byte, 0, max(n, minArgs)), 0
	}
	return p.args[used : used+n : used+n]
}

// inline makes a request of a line, if there is a word in it. The line is overwritten.
func (p *Parser) inline(line []byte) (req Request, ok bool) {
	words, ok := splitInline(line, p.args[len(p.args):])
	if !ok {
		p.err = Error("unbalanced quotes in request")
		return Request{}, false
	}
	if len(words) == 0 {
		return Request{}, false
	}
	at := len(p.lines)
	p.lines = redcon.AppendArray(p.lines, len(words))
	for _, word := range words {
		p.lines = redcon.AppendBulk(p.lines, word)
	}
	return p.split(p.lines[at:])
}

// wording puts a fault into Redis's words.
func (p *Parser) wording(err error) error {
	var e *resp.ScanError
	if !errors.As(err, &e) {
		return Error(err.Error())
	}
	header := e.Level == 0
	switch e.Fault {
	case resp.LongLine:
		switch {
		case !header:
			return Error("too big bulk count string")
		case p.scanner.Kind() == '*':
			return Error("too big mbulk count string")
		}
		return Error("too big inline request")
	case resp.UnknownType:
		return Error("expected '$', got '" + shown(byte(e.Got)) + "'")
	case resp.TooManyValues:
		if e.Got <= int64(p.rules.open.Values) {
			return Error("unauthenticated multibulk length")
		}
	case resp.LongBulk:
		if e.Got <= int64(p.rules.open.Bulk) {
			return Error("unauthenticated bulk length")
		}
	}
	if header {
		return Error("invalid multibulk length")
	}
	return Error("invalid bulk length")
}

// shown is a byte as an error reply can hold it, which is one line.
func shown(c byte) string {
	if c == '\r' || c == '\n' {
		c = ' '
	}
	return string([]byte{c})
}
