package resp

import (
	"bytes"
	"math"
	"slices"
)

// scanRequest is Scan for requests.
func (s *Scanner) scanRequest(p []byte) (n int, done bool, err error) {
	for n < len(p) && s.err == nil {
		k, ended := 0, false
		if s.state == inValue {
			k, ended = s.beginRequest(p[n:])
		} else {
			k, ended = s.step(p[n:])
		}
		if n += k; ended && s.unwind() {
			return n, true, nil
		}
	}
	return n, false, s.err
}

// overwriteEnd makes p begin with CR LF, or with the LF if the CR came before.
func overwriteEnd(p []byte, cr bool) {
	if cr {
		copy(p, "\n")
	} else {
		copy(p, "\r\n")
	}
}

// beginRequest consumes what is there of the first line of a request, or of an argument.
func (s *Scanner) beginRequest(p []byte) (n int, ended bool) {
	s.line, s.hidden, s.cr = 0, false, false
	if len(s.stack) == 0 {
		if s.kind = p[0]; s.kind != '*' {
			s.state = inInline
			return s.inline(p)
		}
	}
	s.state = inHeader
	s.typ, s.need, s.digits, s.minus, s.bad = 0, 0, 0, false, false
	return s.header(p)
}

// inline consumes an inline command up to its LF.
func (s *Scanner) inline(p []byte) (n int, ended bool) {
	if n, ended = s.lineTo(p, '\n'); ended {
		s.state = inValue
		n++
	}
	return n, ended
}

// header consumes a header and, if it announces a string, what is there of that.
func (s *Scanner) header(p []byte) (n int, ended bool) {
	if !s.cr {
		first := s.line == 0
		if n, s.cr = s.lineTo(p, '\r'); s.err != nil {
			return n, false
		}
		s.number(p[:n], first)
		if !s.cr {
			return n, false
		}
		if n++; n == len(p) {
			return n, false
		}
	}
	p[n] = '\n'
	n++
	if len(s.stack) == 0 {
		return n, s.arguments()
	}
	if !s.argument() {
		return n, false
	}
	k, ended := s.bulk(p[n:])
	return n + k, ended
}

// lineTo consumes a line up to the first byte c, which it leaves, and reports whether that
// is there. A NUL hides all that follows: such a line grows until it is too long.
func (s *Scanner) lineTo(p []byte, c byte) (n int, whole bool) {
	n = len(p)
	if !s.hidden {
		i := bytes.IndexByte(p, c)
		if whole = i >= 0; whole {
			n = i
		}
		if bytes.IndexByte(p[:n], 0) >= 0 {
			n, whole, s.hidden = len(p), false, true
		}
	}
	if s.line += n; s.Limits != nil && exceeds(int64(s.line), s.Limits.Line) {
		s.exceed(LongLine, int64(s.line), s.Limits.Line)
		return n, false
	}
	return n, whole
}

// number reads on in a header, as strictly as Redis reads integers: no plus sign, no
// leading zeros, no blanks. first: p begins with the type byte.
func (s *Scanner) number(p []byte, first bool) {
	if first && len(p) > 0 {
		s.typ, p = p[0], p[1:]
	}
	for _, c := range p {
		switch c -= '0'; {
		case s.bad:
			return
		case c <= 9 && s.digits < 19 && (s.digits == 0 || s.need != 0): // 19 fit a uint64
			s.need = int64(10*uint64(s.need) + uint64(c))
			s.digits++
		case c+'0' == '-' && s.digits == 0 && !s.minus:
			s.minus = true
		default:
			s.bad = true
		}
	}
}

// arguments judges the header of a request and reports whether that is all of it.
func (s *Scanner) arguments() (ended bool) {
	n, ok := s.integer()
	switch {
	case !ok:
		s.fail(BadLength)
		return false
	case s.Limits != nil && exceeds(n, s.Limits.Values):
		s.exceed(TooManyValues, n, s.Limits.Values)
		return false
	}
	s.state = inValue
	if n <= 0 {
		return true
	}
	s.stack = append(s.stack, n)
	return false
}

// argument judges the header of an argument, and goes on to its payload if that is right.
func (s *Scanner) argument() (ok bool) {
	n, ok := s.integer()
	switch {
	case s.typ != '$':
		got := s.typ
		if got == 0 { // the line is empty
			got = '\r'
		}
		s.exceed(UnknownType, int64(got), 0)
	case !ok || n < 0:
		s.fail(BadLength)
	case s.Limits != nil && exceeds(n, s.Limits.Bulk):
		s.exceed(LongBulk, n, s.Limits.Bulk)
	default:
		s.state, s.need = inBulk, n
	}
	return s.err == nil
}

// integer is the number of the header just read.
func (s *Scanner) integer() (n int64, ok bool) {
	u := uint64(s.need)
	switch {
	case s.bad || s.digits == 0 || s.minus && u == 0:
		return 0, false
	case s.minus:
		return -int64(u), u <= -math.MinInt64
	}
	return int64(u), u <= math.MaxInt64
}

// Missing is how many bytes of the bulk string that is coming in are still to come, its CR
// LF included; 0 if its length is not known yet.
func (s *Scanner) Missing() int {
	switch {
	case s.state == inBulk:
		return int(s.need) + len("\r\n")
	case s.state == inEnd && s.cr:
		return len("\n")
	case s.state == inEnd:
		return len("\r\n")
	}
	return 0
}

// Open is how many values of the outermost aggregate are still to come, with the one that
// is coming in; 0 in no aggregate, or in its header.
func (s *Scanner) Open() int {
	if len(s.stack) == 0 {
		return 0
	}
	return int(s.stack[0])
}

// Unjudged is how many bytes at the end of what has come of a request are neither a whole
// header nor payload.
func (s *Scanner) Unjudged() int {
	n := 0
	if s.state == inHeader || s.state == inInline {
		n = s.line
	}
	if s.cr && (s.state == inHeader || s.state == inEnd) {
		n++
	}
	return n
}

// Starting reports whether the next byte is the first of a message.
func (s *Scanner) Starting() bool { return s.state == inValue && len(s.stack) == 0 && !s.attrs }

// Count reads a header of type kind that p begins with, where it is as clients usually
// write it, and returns its length. It is 0 if the header is not there or is another.
func Count(p []byte, kind byte) (count, length int) {
	if len(p) < len("*1\r\n") || p[0] != kind {
		return 0, 0
	}
	n := int(p[1] - '0')
	i := 2
	if n > 9 || n == 0 && p[2] != '\r' {
		return 0, 0
	}
	for ; i < len(p) && i < maxDigits; i++ {
		c := p[i] - '0'
		if c > 9 {
			break
		}
		n = 10*n + int(c)
	}
	if i+1 >= len(p) || p[i] != '\r' || p[i+1] != '\n' {
		return 0, 0
	}
	return n, i + 2
}

// Arguments takes the bulk strings that p begins with apart, as many as there is room for
// in args, and returns their length. It is 0 if they are not all there, have more than
// maxBulk bytes, or are written as Redis takes them but clients do not: a Scanner judges
// them then.
func Arguments(p []byte, args [][]byte, maxBulk int) (length int) {
	at := 0
	for i := range args {
		n, head := Count(p[at:], '$')
		from := at + head
		if head == 0 || n > maxBulk || n > len(p)-from-2 || p[from+n] != '\r' || p[from+n+1] != '\n' {
			return 0
		}
		args[i] = p[from : from+n]
		at = from + n + 2
	}
	return at
}

// CloneArguments copies arguments, whose memory may be used again.
func CloneArguments(args [][]byte) [][]byte {
	args = slices.Clone(args)
	for i := range args {
		args[i] = bytes.Clone(args[i])
	}
	return args
}
