package request

import "sync"

// Sizes of buffers between requests; one large request may need more for itself.
const (
	minBuffer = 4 << 10
	maxBuffer = 64 << 10
	minArgs   = 64      // arguments the first array of Args has room for
	maxArgs   = 1 << 10 // and the largest that is used again
)

// calmReads is how many small reads in a row halve the buffer twice.
const calmReads = 64

// A memory is what a Parser needs while it has input. Parsers share memories, since of
// thousands of clients few send something at once.
type memory struct {
	buf  []byte // minBuffer
	args [][]byte
}

var memories = sync.Pool{New: func() any {
	return &memory{make([]byte, minBuffer), make([][]byte, 0, minArgs)}
}}

// Release gives up the memory of a Parser that has no input, until Space is called. It
// implements netio.Buffer.
func (p *Parser) Release() {
	if p.start != p.end || len(p.buf) != minBuffer {
		return
	}
	p.reclaim()
	m := p.borrowed
	if m == nil {
		m = &memory{}
	}
	m.buf, m.args = p.buf, p.args
	if cap(m.args) != minArgs {
		m.args = make([][]byte, 0, minArgs)
	}
	p.buf, p.args, p.borrowed = nil, nil, nil
	memories.Put(m)
}

// borrow takes memory for input that is about to come.
func (p *Parser) borrow() {
	m := memories.Get().(*memory)
	p.buf, p.args, p.borrowed = m.buf, m.args, m
	m.buf, m.args = nil, nil
}

// Space returns where to read next; it is not empty. It implements netio.Buffer.
func (p *Parser) Space() []byte {
	p.reclaim()
	if p.buf == nil && p.size == minBuffer && p.scanner.Missing() == 0 {
		p.borrow()
	}
	have := p.end - p.start
	size := p.bufferSize(have)
	switch {
	case have == 0 && len(p.buf) > size, p.start > 0 && len(p.buf) > 2*size:
		p.move(make([]byte, size)) // was needed for one large request
	case len(p.buf)-p.end >= p.worthwhile():
	case len(p.buf) >= size && have <= len(p.buf)/2:
		p.move(p.buf)
	default:
		p.move(make([]byte, size))
	}
	return p.buf[p.end:]
}

// Filled adds the first n bytes of Space to the input.
func (p *Parser) Filled(n int) {
	full := n == len(p.buf)-p.end
	p.end += n
	switch {
	case full:
		p.size, p.calm = min(4*p.size, maxBuffer), 0
	case n >= p.size/8:
		p.calm = 0
	default:
		if p.calm++; p.calm == calmReads {
			p.size, p.calm = max(p.size/4, minBuffer), 0
		}
	}
}

// reclaim takes back the memory of what was handed out.
func (p *Parser) reclaim() {
	p.args, p.lines = p.args[:0], p.lines[:0]
	if cap(p.args) > maxArgs {
		p.args = nil
	}
	if cap(p.lines) > minBuffer {
		p.lines = nil
	}
	if p.start == p.end {
		p.start, p.pos, p.end = 0, 0, 0
	}
}

// move takes what is not handed out yet to the front of buf, which may be the
// buffer it is in.
func (p *Parser) move(buf []byte) {
	if len(p.buf) == 0 || &p.buf[0] != &buf[0] {
		p.args = nil // it would keep the old buffer alive
	}
	copy(buf, p.buf[p.start:p.end])
	p.buf = buf
	p.pos -= p.start
	p.end -= p.start
	p.start = 0
}

// worthwhile is the least space to start a read with: enough for the rest of the argument
// that is coming in, or else a quarter of a buffer.
func (p *Parser) worthwhile() int {
	if m := p.scanner.Missing(); m > 0 && m < p.size/4 {
		return m
	}
	return p.size / 4
}

// bufferSize is how large a buffer should be that have bytes move to. It grows with what
// has arrived, for a large argument faster, but not beyond the announced end of the last
// one.
func (p *Parser) bufferSize(have int) int {
	n := have + have/2
	if m := p.scanner.Missing(); m > 0 {
		announced := min(have+m, 4*have)
		if p.scanner.Open() > 1 {
			announced = max(announced, n)
		}
		n = announced
	}
	return max(n, p.size)
}
