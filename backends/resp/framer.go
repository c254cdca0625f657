// Package resp frames and appends the Redis protocol, versions 2 and 3, byte
// for byte: it finds where a reply ends without decoding it ([Framer]) and
// appends the few replies and commands that the proxy words itself. It knows
// no connection and starts no goroutine.
package resp

import (
	"bytes"
	"errors"
	"fmt"
)

const (
	maxDepth  = 1 << 16 // levels of nesting; a Lua table that holds itself comes out of Redis 7 with some 8000
	maxSmall  = 64      // bytes of a line that are looked at twice, at most
	maxDigits = 18      // of a length, so that twice it plus one fits an int64
)

var (
	errDepth   = fmt.Errorf("reply nested deeper than %d levels", maxDepth)
	errLength  = errors.New("reply with a malformed length")
	errStream  = errors.New("reply of streamed length")
	errUnended = errors.New("bulk reply not followed by CR LF")
)

// What the next byte is part of.
const (
	inValue  = iota // the type byte of a value
	inText          // a line that ends with CR LF
	inLength        // the line that holds a length
	inBulk          // payload, of which need bytes are still to come
	inEnd           // the CR LF behind a payload
)

// A Framer finds where replies end in a stream of bytes that arrives in any
// chunks. It decodes and keeps nothing, goes through every byte once (short lines
// twice, payload not at all), and its memory is
// bounded by the depth of a reply. The zero Framer is at the start of a reply;
// it belongs to one goroutine.
//
// Inside a line of text a lone CR or LF is text, as it is to other clients;
// only what is needed to find the end is checked.
type Framer struct {
	state  uint8
	kind   byte
	typ    byte    // the type whose length is being read
	cr     bool    // the last byte was a CR (inText, inLength, inEnd)
	minus  bool    // a length that began with '-'
	attrs  bool    // the outermost aggregate is attributes: a value follows it
	digits int     // how many digits a length has so far
	need   int64   // inLength: its value so far; inBulk: bytes still to come
	stack  []int64 // values still to come at each level, outermost first
	err    error
}

// Scan reads on in p and returns how many bytes of p belong to the current
// reply, and whether that reply ends there; the next call starts another one.
// While done is false and err nil, n is len(p). An error says that the stream
// is no RESP, n then leads up to the fault, and it stays until [Framer.Reset].
func (f *Framer) Scan(p []byte) (n int, done bool, err error) {
	for n < len(p) && f.err == nil {
		k, ended := 0, true
		if f.state == inValue {
			k = small(p[n:])
		}
		if k == 0 {
			k, ended = f.step(p[n:])
		} else if len(f.stack) == 0 {
			f.kind = p[n]
		}
		n += k
		if ended && f.unwind() {
			return n, true, nil
		}
	}
	return n, false, f.err
}

// Kind is the type byte of the reply being scanned, or else of the one last
// scanned. For a reply led by attributes it is '|' until they are over, and then
// the type of the reply itself. '>' is a push, a message of its own. Before the
// first byte Kind is 0.
func (f *Framer) Kind() byte { return f.kind }

// Reset forgets everything: the next byte is the first of a reply.
func (f *Framer) Reset() { *f = Framer{stack: f.stack[:0]} }

// small is the short cut for most of what Redis says: the length of the value at
// the start of p, if it holds no others, is all there and has a short line, or
// else 0. It looks at no more than maxSmall bytes and at the end of a payload.
func small(p []byte) int {
	switch p[0] {
	case '+', '-', ':':
		i := bytes.IndexByte(p[:min(len(p), maxSmall)], '\n')
		if i > 0 && p[i-1] == '\r' {
			return i + 1
		}
	case '$':
		return smallBulk(p)
	}
	return 0
}

func smallBulk(p []byte) int {
	need := 0
	for i := 1; i < len(p) && i < maxSmall/4; i++ {
		if c := p[i] - '0'; c <= 9 {
			need = need*10 + int(c)
			continue
		}
		end := i + need + 4
		if i > 1 && end <= len(p) && p[i] == '\r' && p[i+1] == '\n' && p[end-2] == '\r' && p[end-1] == '\n' {
			return end
		}
		break
	}
	return 0
}

// step consumes some of p, which is not empty, and reports whether a value that
// holds no others ended there.
func (f *Framer) step(p []byte) (n int, ended bool) {
	switch f.state {
	case inValue:
		return f.begin(p)
	case inText:
		return f.text(p)
	case inLength:
		return f.length(p)
	case inBulk:
		return f.bulk(p)
	}
	return f.end(p)
}

// begin consumes a type byte and what of its line is there.
func (f *Framer) begin(p []byte) (int, bool) {
	c := p[0]
	if len(f.stack) == 0 {
		f.kind = c
	}
	switch c {
	case '+', '-', ':', ',', '_', '#', '(':
		f.state, f.cr = inText, false
		n, ended := f.text(p[1:])
		return n + 1, ended
	case '$', '*', '%', '~', '>', '=', '!', '|':
		f.state, f.typ = inLength, c
		f.need, f.digits, f.minus, f.cr = 0, 0, false, false
		n, ended := f.length(p[1:])
		return n + 1, ended
	}
	f.err = fmt.Errorf("reply of unknown type %q", c)
	return 0, false
}

// text consumes a line up to its CR LF.
func (f *Framer) text(p []byte) (int, bool) {
	for n := 0; n < len(p); {
		i := bytes.IndexByte(p[n:], '\n')
		if i < 0 {
			break
		}
		if n += i; n > 0 && p[n-1] == '\r' || n == 0 && f.cr {
			f.state = inValue
			return n + 1, true
		}
		n++
	}
	if len(p) > 0 {
		f.cr = p[len(p)-1] == '\r'
	}
	return len(p), false
}

// length consumes the digits of a length and the CR LF behind them.
func (f *Framer) length(p []byte) (int, bool) {
	for n, c := range p {
		switch {
		case f.cr:
			return f.sized(p, n)
		case c-'0' <= 9 && f.digits < maxDigits:
			f.need = f.need*10 + int64(c-'0')
			f.digits++
		case c == '\r' && f.digits > 0:
			f.cr = true
		case c == '-' && f.digits == 0 && !f.minus:
			f.minus = true
		default:
			f.err = errLength
			if c == '?' && f.digits == 0 && !f.minus {
				f.err = errStream
			}
			return n, false
		}
	}
	return len(p), false
}

// sized ends a length whose LF is due at p[n], and goes on with what it measures.
func (f *Framer) sized(p []byte, n int) (int, bool) {
	if p[n] != '\n' || f.minus && !f.null() {
		f.err = errLength
		return n, false
	}
	f.state = inValue
	n++
	if f.minus {
		return n, true
	}
	switch f.typ {
	case '$', '=', '!':
		f.state = inBulk
		k, ended := f.bulk(p[n:])
		return n + k, ended
	case '%':
		return n, f.open(2 * f.need)
	case '|':
		return n, f.attributes(2 * f.need)
	}
	return n, f.open(f.need)
}

// null reports whether the negative length just read is RESP2's null.
func (f *Framer) null() bool {
	return f.need == 1 && f.digits == 1 && (f.typ == '$' || f.typ == '*')
}

// open starts an aggregate of so many values and reports whether it is over.
func (f *Framer) open(values int64) (ended bool) {
	if values == 0 {
		return true
	}
	if len(f.stack) == maxDepth {
		f.err = errDepth
		return false
	}
	f.stack = append(f.stack, values)
	return false
}

// attributes starts attributes of so many values. Inside a reply they and the
// value that follows them count as one aggregate; in front of one, attrs says
// that its end is not the end of the reply.
func (f *Framer) attributes(values int64) (ended bool) {
	if len(f.stack) > 0 {
		return f.open(values + 1)
	}
	f.attrs = true
	return f.open(values)
}

// bulk consumes payload, and the CR LF behind it as far as they are there.
func (f *Framer) bulk(p []byte) (int, bool) {
	if int64(len(p)) < f.need {
		f.need -= int64(len(p))
		return len(p), false
	}
	n := int(f.need)
	f.state, f.cr = inEnd, false
	k, ended := f.end(p[n:])
	return n + k, ended
}

// end consumes the CR LF behind a payload.
func (f *Framer) end(p []byte) (int, bool) {
	for n, c := range p {
		switch {
		case f.cr && c == '\n':
			f.state = inValue
			return n + 1, true
		case !f.cr && c == '\r':
			f.cr = true
		default:
			f.err = errUnended
			return n, false
		}
	}
	return len(p), false
}

// unwind counts an ended value at the levels it ends and reports whether the
// reply is over.
func (f *Framer) unwind() bool {
	for top := len(f.stack) - 1; top >= 0; top-- {
		if f.stack[top]--; f.stack[top] > 0 {
			return false
		}
		f.stack = f.stack[:top]
	}
	if f.attrs {
		f.attrs = false
		return false
	}
	return true
}
