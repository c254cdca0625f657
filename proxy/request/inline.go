package request

// splitInline cuts a line typed by hand into words, as Redis does: blanks
// separate, "…" knows \n \r \t \b \a \xHH and \ before any other byte, '…' knows
// only \', and a closing quote ends its word. It reports false for a quote that
// does not close, or that closes in the middle of a word.
//
// The words are appended to words. They are decoded where they stand: line is
// overwritten, and they stay valid only as long as it does. line holds no NUL
// and not its LF; a CR before that is a blank like any other.
func splitInline(line []byte, words [][]byte) ([][]byte, bool) {
	for {
		for len(line) > 0 && isBlank(line[0]) {
			line = line[1:]
		}
		if len(line) == 0 {
			return words, true
		}
		word, rest, ok := nextWord(line)
		if !ok {
			return words, false
		}
		words, line = append(words, word), rest
	}
}

// isBlank is C's isspace: more than what ends a word outside quotes.
func isBlank(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' }

// nextWord decodes the word that line begins with.
func nextWord(line []byte) (word, rest []byte, ok bool) {
	n := 0
	for i, c := range line {
		switch c {
		case ' ', '\t', '\n', '\r':
			return line[:n], line[i:], true
		case '"', '\'':
			text, rest, ok := quotedText(line[i+1:], c)
			n += copy(line[n:], text)
			return line[:n], rest, ok
		}
		line[n] = c
		n++
	}
	return line[:n], nil, true
}

// quotedText decodes what p, which begins behind an opening quote, holds up to
// the closing one.
func quotedText(p []byte, quote byte) (text, rest []byte, ok bool) {
	n := 0
	for i := 0; i < len(p); n++ {
		switch p[i] {
		case quote:
			rest = p[i+1:]
			return p[:n], rest, len(rest) == 0 || isBlank(rest[0])
		case '\\':
			c, size := escaped(p[i:], quote)
			p[n] = c
			i += size
		default:
			p[n] = p[i]
			i++
		}
	}
	return nil, nil, false
}

// escaped decodes the backslash that p begins with and what belongs to it,
// size bytes in all. One that escapes nothing stands for itself.
func escaped(p []byte, quote byte) (c byte, size int) {
	if len(p) < 2 || quote == '\'' && p[1] != '\'' {
		return '\\', 1
	}
	switch p[1] {
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'b':
		return '\b', 2
	case 'a':
		return '\a', 2
	case 'x':
		if len(p) >= 4 && hexDigit(p[2]) < 16 && hexDigit(p[3]) < 16 {
			return hexDigit(p[2])<<4 | hexDigit(p[3]), 4
		}
	}
	return p[1], 2
}

// hexDigit is the value of a hexadecimal digit, 16 if c is none.
func hexDigit(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return (c | 0x20) - 'a' + 10
	}
	return 16
}
