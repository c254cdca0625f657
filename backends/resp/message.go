package resp

import "bufio"

// Read reads one reply, with its attributes, within limits. Those behind it stay in r. The
// error is r's or a *ScanError.
func Read(r *bufio.Reader, limits *Limits) (reply []byte, err error) {
	s := Scanner{Limits: limits}
	for {
		if _, err := r.Peek(1); err != nil {
			return nil, err
		}
		p, _ := r.Peek(r.Buffered())
		n, done, err := s.Scan(p)
		if err != nil {
			return nil, err
		}
		reply = append(reply, p[:n]...)
		_, _ = r.Discard(n) // they are buffered
		if done {
			return reply, nil
		}
	}
}

// A Tree is a decoded value with those that it holds.
type Tree struct {
	Kind  byte   // as of a Value
	Text  string // of a line or a string
	Elems []Tree // of an aggregate; of a map, keys and values in turn
}

// Decode decodes a reply that a Scanner has passed, without its attributes.
func Decode(reply []byte) Tree {
	t, _ := decodeValue(reply)
	return t
}

// decodeValue decodes the value that p begins with.
func decodeValue(p []byte) (t Tree, rest []byte) {
	v, rest, _ := First(p)
	t = Tree{Kind: v.Kind, Text: string(v.Text)}
	for range v.Len {
		var e Tree
		e, rest = decodeValue(rest)
		t.Elems = append(t.Elems, e)
	}
	return t, rest
}

// Field is the value behind a name in a map or flat array; the zero Tree if it is missing.
func (t Tree) Field(name string) Tree {
	for i := 0; i+1 < len(t.Elems); i += 2 {
		if t.Elems[i].Text == name {
			return t.Elems[i+1]
		}
	}
	return Tree{}
}
