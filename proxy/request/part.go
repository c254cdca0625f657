package request

import (
	"bytes"

	"github.com/lockproxy/lockproxy/backends/resp"
)

// Part returns what has arrived of a request that has not in whole, up to the end of the
// argument that is coming in. It is ok if that is at least so many bytes, or, once the
// beginning was taken, any. name is the request's first argument, as far as it has arrived;
// nil if that was in an earlier part.
// The bytes stay with the Parser unless [Parser.Take] is called next.
func (p *Parser) Part(least int) (name, raw []byte, ok bool) {
	if p.err != nil || p.scanner.Open() == 0 {
		return nil, nil, false
	}
	raw = p.buf[p.start : p.pos-p.scanner.Unjudged()]
	if len(raw) == 0 || len(raw) < least && !p.begun {
		return nil, nil, false
	}
	if !p.begun {
		name = firstArgument(raw)
	}
	return name, raw[:len(raw):len(raw)], true
}

// firstArgument is the first argument of the request that begins with p, as far as it is
// there; not nil.
func firstArgument(p []byte) []byte {
	p = p[bytes.IndexByte(p, '\n')+1:]
	n, head := resp.Count(p, '$')
	return p[head:min(head+n, len(p))]
}

// Take removes a part. What follows of its request is another part, or the rest.
func (p *Parser) Take(raw []byte) {
	p.start += len(raw)
	p.begun = true
}
