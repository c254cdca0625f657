// Package resp reads and appends the Redis protocol, versions 2 and 3, byte for byte.
//
// A [Scanner] finds where the messages of a stream end, within [Limits] and without
// decoding them. [First], [Elements] and their like look into a message that is there in
// whole; the Append functions word the few replies and commands that are the proxy's own.
// The package knows no connection and starts no goroutine.
package resp

import "bytes"

// A Grammar is what a Scanner takes a stream for.
type Grammar uint8

const (
	// Replies are all types of RESP2 and RESP3 but those of streamed length. A lone CR
	// or LF is part of a line, and a line's text is not looked at.
	Replies Grammar = iota
	// StrictReplies are Replies without what clients read in different ways: a line
	// ends at its first LF, nulls and booleans have no other text than their own, and
	// a push is not part of another message.
	StrictReplies
	// Requests are what Redis takes from clients: arrays of bulk strings, and inline
	// commands, which are lines. As with Redis, a header ends at its first CR, the byte
	// after that passes for an LF, any two bytes for the CR LF behind a string, a line
	// with a NUL never ends, and a line is judged when all of it is there. An array of
	// no or fewer values is a request of no arguments.
	Requests
)

const (
	maxDepth  = 1 << 16 // levels of nesting; a Lua table that holds itself comes out of Redis 7 with some 8000
	maxSmall  = 64      // bytes of a line that are looked at twice, at most
	maxDigits = 18      // of a reply's length, so that twice it plus one fits an int64
)

// What the next byte is part of.
const (
	inValue  = iota // the type byte of a value
	inText          // a line that ends with CR LF
	inLength        // the line that holds a length
	inBool          // the letter of a boolean (StrictReplies)
	inBulk          // payload, of which need bytes are still to come
	inEnd           // the CR LF behind a payload
	inHeader        // the line that holds a length (Requests)
	inInline        // an inline command
)

// A Scanner finds where messages end in a stream of bytes that arrives in any chunks. It
// decodes and keeps nothing, goes through every byte once (short lines twice, payload not
// at all), and its memory is bounded by the depth of a message. The zero Scanner is at the
// start of a reply and has no limits; it belongs to one goroutine. Grammar is set before
// the first Scan, Limits may be replaced between two.
type Scanner struct {
	Grammar Grammar
	Limits  *Limits // of every message; nil: none

	// Of the stream.
	state uint8
	err   error

	// Of the message.
	kind   byte
	attrs  bool    // the outermost aggregate is attributes: a value follows it
	stack  []int64 // values still to come at each level, outermost first
	values int64   // announced so far, if there are limits
	size   int     // bytes in earlier calls, if there are limits

	// Of the line or payload that the next byte is part of.
	typ    byte  // the type whose length is being read; 0: not even that is there
	cr     bool  // the last byte was a CR (inText, inLength, inEnd, inHeader)
	minus  bool  // a length that began with '-'
	hidden bool  // the line has a NUL (Requests)
	bad    bool  // the line is no length (Requests)
	digits int   // how many digits a length has so far
	line   int   // how many bytes the line has so far
	need   int64 // of a length: its value so far; inBulk: bytes still to come
}

// Scan reads on in p and returns how many bytes of p belong to the current message, and
// whether that ends there; the next call starts another one. While done is false and err
// nil, n is len(p). An error is an [*ScanError] and stays until [Scanner.Reset]; n then leads
// up to the fault. In a request, the bytes that Redis does not look at are overwritten
// with the CR LF they pass for.
func (s *Scanner) Scan(p []byte) (n int, done bool, err error) {
	switch {
	case s.Grammar == Requests:
		return s.scanRequest(p)
	case s.Limits != nil:
		return s.scanBounded(p)
	case s.state == inValue && len(s.stack) == 0 && len(p) > 0 && p[0] != '*' && !s.attrs && s.err == nil:
		if n = small(p); n > 0 {
			s.kind = p[0]
			return n, true, nil
		}
	}
	return s.scan(p)
}

// scan is Scan for replies, but for their size.
func (s *Scanner) scan(p []byte) (n int, done bool, err error) {
	for n < len(p) && s.err == nil {
		k, ended := 0, true
		if s.state == inValue {
			k = small(p[n:])
		}
		if k == 0 || s.Limits != nil && exceeds(int64(k), s.Limits.Bulk) {
			k, ended = s.step(p[n:])
		} else if len(s.stack) == 0 {
			s.kind = p[n]
		}
		n += k
		if ended && s.unwind() {
			return n, true, nil
		}
	}
	return n, false, s.err
}

// scanBounded is Scan for replies with limits.
func (s *Scanner) scanBounded(p []byte) (n int, done bool, err error) {
	n, done, err = s.scan(p)
	if s.size += n; err == nil && exceeds(int64(s.size), s.Limits.Size) {
		s.exceed(TooLarge, int64(s.size), s.Limits.Size)
		return n, false, s.err
	}
	if done {
		s.size, s.values = 0, 0
	}
	return n, done, err
}

// Kind is the type byte of the reply being scanned, or else of the one last
// scanned. For a reply led by attributes it is '|' until they are over, and then
// the type of the reply itself. '>' is a push, a message of its own. Before the
// first byte Kind is 0.
func (s *Scanner) Kind() byte { return s.kind }

// Reset forgets everything but Grammar and Limits: the next byte is the first of a
// message.
func (s *Scanner) Reset() {
	*s = Scanner{Grammar: s.Grammar, Limits: s.Limits, stack: s.stack[:0]}
}

// fail ends the stream.
func (s *Scanner) fail(f Fault) { s.err = &ScanError{Fault: f, Level: len(s.stack)} }

// exceed ends the stream because of a limit.
func (s *Scanner) exceed(f Fault, got int64, limit int) {
	s.err = &ScanError{Fault: f, Level: len(s.stack), Got: got, Limit: limit}
}

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
		if len(p) >= len("$-1\r\n") && string(p[:len("$-1\r\n")]) == "$-1\r\n" {
			return len("$-1\r\n")
		}
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
func (s *Scanner) step(p []byte) (n int, ended bool) {
	switch s.state {
	case inValue:
		return s.begin(p)
	case inText:
		return s.text(p)
	case inLength:
		return s.length(p)
	case inBool:
		return s.boolean(p)
	case inBulk:
		return s.bulk(p)
	case inHeader:
		return s.header(p)
	case inInline:
		return s.inline(p)
	}
	return s.end(p)
}

// begin consumes a type byte and what of its line is there.
func (s *Scanner) begin(p []byte) (int, bool) {
	c := p[0]
	if len(s.stack) == 0 {
		s.kind = c
	}
	switch c {
	case '+', '-', ':', ',', '_', '#', '(':
		if s.Grammar == StrictReplies && (c == '_' || c == '#') {
			return s.beginStrict(p)
		}
		s.state, s.cr, s.line = inText, false, 1
		n, ended := s.text(p[1:])
		return n + 1, ended
	case '$', '*', '%', '~', '>', '=', '!', '|':
		if s.Grammar == StrictReplies && c == '>' && len(s.stack) > 0 {
			s.fail(NestedPush)
			return 0, false
		}
		s.state, s.typ = inLength, c
		s.need, s.digits, s.minus, s.cr = 0, 0, false, false
		if len(p) >= len("*1\r\n") && p[1]-'0' <= 9 && p[2] == '\r' && p[3] == '\n' {
			s.need = int64(p[1] - '0')
			return s.sized(p, 3)
		}
		n, ended := s.length(p[1:])
		return n + 1, ended
	}
	s.exceed(UnknownType, int64(c), 0)
	return 0, false
}

// beginStrict is begin for a null and a boolean.
func (s *Scanner) beginStrict(p []byte) (n int, ended bool) {
	s.cr = false
	if p[0] == '#' {
		s.state = inBool
		n, ended = s.boolean(p[1:])
	} else {
		s.state = inEnd
		n, ended = s.end(p[1:])
	}
	return n + 1, ended
}

// boolean consumes t or f, and what is there of the CR LF behind it.
func (s *Scanner) boolean(p []byte) (int, bool) {
	if len(p) == 0 {
		return 0, false
	}
	if p[0] != 't' && p[0] != 'f' {
		s.fail(BadEnd)
		return 0, false
	}
	s.state = inEnd
	n, ended := s.end(p[1:])
	return n + 1, ended
}

// text consumes a line up to its CR LF.
func (s *Scanner) text(p []byte) (n int, ended bool) {
	for !ended && n < len(p) && s.err == nil {
		i := bytes.IndexByte(p[n:], '\n')
		if i < 0 {
			n = len(p)
			break
		}
		n += i
		switch {
		case n > 0 && p[n-1] == '\r' || n == 0 && s.cr:
			ended = true
		case s.Grammar == StrictReplies:
			s.fail(BadEnd)
			return n, false
		}
		n++
	}
	if s.line += n; s.Limits != nil && exceeds(int64(s.line), s.Limits.Line) {
		s.exceed(LongLine, int64(s.line), s.Limits.Line)
		return n, false
	}
	if ended {
		s.state = inValue
	} else if n > 0 {
		s.cr = p[n-1] == '\r'
	}
	return n, ended
}

// length consumes the digits of a length and the CR LF behind them.
func (s *Scanner) length(p []byte) (int, bool) {
	for n, c := range p {
		switch {
		case s.cr:
			return s.sized(p, n)
		case c-'0' <= 9 && s.digits < maxDigits:
			s.need = s.need*10 + int64(c-'0')
			s.digits++
		case c == '\r' && s.digits > 0:
			s.cr = true
		case c == '-' && s.digits == 0 && !s.minus:
			s.minus = true
		case c == '?' && s.digits == 0 && !s.minus:
			s.fail(StreamedLength)
			return n, false
		default:
			s.fail(BadLength)
			return n, false
		}
	}
	return len(p), false
}

// sized ends a length whose LF is due at p[n], and goes on with what it measures.
func (s *Scanner) sized(p []byte, n int) (int, bool) {
	if p[n] != '\n' || s.minus && !s.null() {
		s.fail(BadLength)
		return n, false
	}
	s.state = inValue
	n++
	if s.minus {
		return n, true
	}
	switch s.typ {
	case '$', '=', '!':
		if s.Limits != nil && exceeds(s.need, s.Limits.Bulk) {
			s.exceed(LongBulk, s.need, s.Limits.Bulk)
			return n, false
		}
		s.state = inBulk
		k, ended := s.bulk(p[n:])
		return n + k, ended
	case '%':
		return n, s.open(2*s.need, 0)
	case '|':
		return n, s.attributes(2 * s.need)
	}
	return n, s.open(s.need, 0)
}

// null reports whether the negative length just read is RESP2's null.
func (s *Scanner) null() bool {
	return s.need == 1 && s.digits == 1 && (s.typ == '$' || s.typ == '*')
}

// open starts an aggregate of so many values, and of more that it did not announce, and
// reports whether it is over.
func (s *Scanner) open(values, more int64) (ended bool) {
	depth := maxDepth
	if s.Limits != nil {
		if s.values += values; exceeds(s.values, s.Limits.Values) {
			s.exceed(TooManyValues, s.values, s.Limits.Values)
			return false
		}
		if s.Limits.Depth > 0 {
			depth = s.Limits.Depth
		}
	}
	if values+more == 0 {
		return true
	}
	if len(s.stack) == depth {
		s.exceed(TooDeep, int64(depth)+1, depth)
		return false
	}
	s.stack = append(s.stack, values+more)
	return false
}

// attributes starts attributes of so many values. Inside a reply they and the
// value that follows them count as one aggregate; in front of one, attrs says
// that its end is not the end of the reply.
func (s *Scanner) attributes(values int64) (ended bool) {
	if len(s.stack) > 0 {
		return s.open(values, 1)
	}
	s.attrs = true
	return s.open(values, 0)
}

// bulk consumes payload, and the CR LF behind it as far as they are there.
func (s *Scanner) bulk(p []byte) (int, bool) {
	if int64(len(p)) < s.need {
		s.need -= int64(len(p))
		return len(p), false
	}
	n := int(s.need)
	s.state, s.cr = inEnd, false
	k, ended := s.end(p[n:])
	return n + k, ended
}

// end consumes the CR LF behind a payload.
func (s *Scanner) end(p []byte) (int, bool) {
	if s.Grammar == Requests {
		overwriteEnd(p, s.cr)
	}
	for n, c := range p {
		switch {
		case s.cr && c == '\n':
			s.state = inValue
			return n + 1, true
		case !s.cr && c == '\r':
			s.cr = true
		default:
			s.fail(BadEnd)
			return n, false
		}
	}
	return len(p), false
}

// unwind counts an ended value at the levels it ends and reports whether the
// message is over.
func (s *Scanner) unwind() bool {
	for top := len(s.stack) - 1; top >= 0; top-- {
		if s.stack[top]--; s.stack[top] > 0 {
			return false
		}
		s.stack = s.stack[:top]
	}
	if s.attrs {
		s.attrs = false
		return false
	}
	return true
}
