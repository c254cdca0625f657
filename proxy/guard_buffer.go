package proxy

import "sync"

// Buffers between commands; one large command may need more for itself.
const (
	guardMinBuffer = 4 << 10
	guardMaxBuffer = 64 << 10
	guardMinSlots  = 64      // arguments the first array of Args has room for
	guardMaxSlots  = 1 << 10 // and the largest that is used again
)

// guardCalm is how many small reads in a row halve the buffer twice.
const guardCalm = 64

// A guardMemory is what a guard needs while it has input. One that has none lends it to
// others: of thousands of clients few say something at once.
type guardMemory struct {
	buf   []byte // guardMinBuffer
	slots [][]byte
}

var guardMemories = sync.Pool{New: func() any {
	return &guardMemory{make([]byte, guardMinBuffer), make([][]byte, 0, guardMinSlots)}
}}

// Release gives up the memory of a guard that has no input, until space is called.
// Commands handed out before become invalid.
func (g *guard) Release() {
	if g.start != g.end || len(g.buf) != guardMinBuffer {
		return
	}
	g.release()
	m := g.borrowed
	if m == nil {
		m = &guardMemory{}
	}
	m.buf, m.slots = g.buf, g.slots
	if cap(m.slots) != guardMinSlots {
		m.slots = make([][]byte, 0, guardMinSlots)
	}
	g.buf, g.slots, g.borrowed = nil, nil, nil
	guardMemories.Put(m)
}

// Space is space, for netio.Buffer.
func (g *guard) Space() []byte { return g.space() }

// borrow takes memory for input that is about to come.
func (g *guard) borrow() {
	m := guardMemories.Get().(*guardMemory)
	g.buf, g.slots, g.borrowed = m.buf, m.slots, m
	m.buf, m.slots = nil, nil
}

// space returns where to read next; it is not empty. Commands handed out before
// become invalid, unless they were kept by detach.
func (g *guard) space() []byte {
	g.release()
	if g.buf == nil && g.size == guardMinBuffer && g.missing() == 0 {
		g.borrow()
	}
	have := g.end - g.start
	room := g.room(have)
	switch {
	case have == 0 && len(g.buf) > room, g.start > 0 && len(g.buf) > 2*room:
		g.move(make([]byte, room)) // was needed for one large command
	case len(g.buf)-g.end >= g.worthwhile():
	case len(g.buf) >= room && have <= len(g.buf)/2:
		g.move(g.buf)
	default:
		g.move(make([]byte, room))
	}
	return g.buf[g.end:]
}

// filled tells that the first n bytes of space were read.
func (g *guard) filled(n int) {
	full := n == len(g.buf)-g.end
	g.end += n
	switch {
	case full:
		g.size, g.calm = min(4*g.size, guardMaxBuffer), 0
	case n >= g.size/8:
		g.calm = 0
	default:
		if g.calm++; g.calm == guardCalm {
			g.size, g.calm = max(g.size/4, guardMinBuffer), 0
		}
	}
}

// detach gives the commands handed out so far to the caller, for good. Input
// that is not handed out yet stays with the guard.
func (g *guard) detach() {
	g.buf = g.buf[g.start:]
	g.shift()
	g.slots = g.slots[len(g.slots):]
	g.lines = g.lines[len(g.lines):]
}

// release takes back the memory of what was handed out.
func (g *guard) release() {
	g.slots, g.lines = g.slots[:0], g.lines[:0]
	if cap(g.slots) > guardMaxSlots {
		g.slots = nil
	}
	if cap(g.lines) > guardMinBuffer {
		g.lines = nil
	}
	if g.start == g.end {
		g.start, g.pos, g.scan, g.end = 0, 0, 0, 0
	}
}

// move takes what is not handed out yet to the front of buf, which may be the
// buffer it is in.
func (g *guard) move(buf []byte) {
	if len(g.buf) == 0 || &g.buf[0] != &buf[0] {
		g.slots = nil // it would keep the old buffer alive
	}
	copy(buf, g.buf[g.start:g.end])
	g.buf = buf
	g.shift()
}

// shift makes start the origin of all positions.
func (g *guard) shift() {
	g.pos -= g.start
	g.scan -= g.start
	g.end -= g.start
	g.start = 0
}

// missing is how much of the argument at pos is still to come, its CR LF
// included; 0 if that is not known, or nothing.
func (g *guard) missing() int {
	if g.bulk < 0 {
		return 0
	}
	return max(0, g.pos+g.bulk+2-g.end)
}

// worthwhile is the least space to start a read with: enough to end the
// argument that is coming in, or else a good part of a buffer.
func (g *guard) worthwhile() int {
	if m := g.missing(); m > 0 && m < g.size/4 {
		return m
	}
	return g.size / 4
}

// room is how large a buffer should be that have bytes move to. It grows with
// what has arrived, for a large argument faster, but not beyond the announced
// end of the last one.
func (g *guard) room(have int) int {
	n := have + have/2
	if m := g.missing(); m > 0 {
		announced := min(have+m, 4*have)
		if g.left > 1 {
			announced = max(announced, n)
		}
		n = announced
	}
	return max(n, g.size)
}
