package resp

import "bytes"

// A Value is one value of a message, without those that it holds.
type Value struct {
	Kind byte   // its type byte; '_' for the nulls of both protocols
	Text []byte // of a line or a string, in the message's memory
	Len  int    // of an aggregate: how many values it holds, a map's keys and values in turn
}

// Aggregate reports whether v holds other values, or could.
func (v Value) Aggregate() bool {
	return v.Kind == '*' || v.Kind == '%' || v.Kind == '~' || v.Kind == '>'
}

// First reads the value that p begins with, past its attributes, and returns what follows:
// the values that it holds, then others. A Scanner has passed the message that p is part
// of. It is not ok if p ends before; a string may be there in part.
func First(p []byte) (v Value, rest []byte, ok bool) {
	for {
		line, rest, ok := bytes.Cut(p, []byte("\r\n"))
		if !ok || len(line) == 0 {
			return Value{}, nil, false
		}
		v = Value{Kind: line[0]}
		switch v.Kind {
		case '$', '=', '!', '*', '~', '>', '%', '|':
		default:
			v.Text = line[1:]
			return v, rest, true
		}
		n := 0
		for _, c := range line[1:] {
			if c == '-' {
				return Value{Kind: '_'}, rest, true
			}
			n = 10*n + int(c-'0')
		}
		switch v.Kind {
		case '$', '=', '!':
			v.Text = rest[:min(n, len(rest))]
			return v, rest[min(n+len("\r\n"), len(rest)):], true
		case '%', '|':
			n *= 2
		}
		if v.Kind != '|' {
			v.Len = n
			return v, rest, true
		}
		p = rest
		for ; n > 0; n-- {
			if v, p, ok = First(p); !ok {
				return Value{}, nil, false
			}
			n += v.Len
		}
	}
}
