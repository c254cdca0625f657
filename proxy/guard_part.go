package proxy

// part is what has arrived of a command that has not in whole, up to the end of the
// argument that is coming in, if it is at least so many bytes, or, once the beginning
// was taken, anything. name is the command's first argument, as far as it has arrived;
// nil if that was in an earlier part.
// The bytes stay with the guard unless [guard.take] is called next.
func (g *guard) part(least int) (name, raw []byte, ok bool) {
	if g.err != nil || g.left == 0 {
		return nil, nil, false
	}
	to := g.pos
	if g.bulk > 0 {
		to = min(g.end, g.pos+g.bulk)
	}
	if n := to - g.start; n == 0 || n < least && !g.begun {
		return nil, nil, false
	}
	switch {
	case g.begun:
	case g.named < 0:
		name = g.buf[g.pos:to]
	default:
		at := g.start + g.nameAt
		name = g.buf[at : at+g.named]
	}
	return name, g.buf[g.start:to:to], true
}

// take removes a part. What follows of its command is another part, or the rest.
func (g *guard) take(raw []byte) {
	to := g.start + len(raw)
	if to > g.pos {
		g.bulk -= to - g.pos
		g.pos, g.scan = to, to
	}
	g.start, g.begun = to, true
}
