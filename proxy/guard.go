package proxy

import (
	"bytes"
	"math"

	"github.com/tidwall/redcon"
)

// limits bound what one client may send. A zero field means its default, which
// is Redis's own.
type limits struct {
	MaxArgs     int // arguments of a command; 1,048,576
	MaxBulk     int // bytes of an argument; 512 MB
	MaxInline   int // bytes of an inline command, and of any header; 64 KB
	PreAuthArgs int // MaxArgs before authentication; 10
	PreAuthBulk int // MaxBulk before authentication; 16 KB
}

func (l limits) withDefaults() limits {
	for _, f := range []struct {
		field *int
		value int
	}{
		{&l.MaxArgs, 1 << 20},
		{&l.MaxBulk, 512 << 20},
		{&l.MaxInline, 64 << 10},
		{&l.PreAuthArgs, 10},
		{&l.PreAuthBulk, 16 << 10},
	} {
		if *f.field == 0 {
			*f.field = f.value
		}
	}
	return l
}

// A guardError is a breach of the protocol, in the words of Redis: the client
// is told "ERR " and this text, and then its connection is closed.
type guardError string

func (e guardError) Error() string { return "Protocol error: " + string(e) }

// A guardCommand is one command of a client, with at least one argument. Raw is
// the command as an array of bulk strings, whatever the client wrote, and Args
// point into it. Neither may be appended to: what is behind them is in use. Of
// commands that were written as arrays, one Raw begins in memory where the one
// before it ended, unless [guard.space] was called in between.
//
// Of a command whose beginning [guard.take] removed, Raw is the rest, Rest is set, and
// there are no Args.
type guardCommand struct {
	Raw  []byte
	Args [][]byte
	Rest bool
}

// A guard cuts the bytes a client sends into commands and enforces the limits
// before anything is believed: it allocates only in proportion to what has
// arrived, never by what a header announces, and frames every byte once,
// however small the reads. What it accepts and what it refuses, and with which
// words, is what processInputBuffer of Redis 7.0 does, except that MaxArgs is a
// limit there only from 2^31 on. Frames go to redcon for their arguments when
// they are whole and known to be sound.
//
// The rounds are: read into [guard.space], tell [guard.filled], take commands
// from [guard.next] until there is none. A guard belongs to one goroutine.
type guard struct {
	restricted bool // the client has yet to authenticate: the PreAuth limits hold
	limits     limits
	err        error // the breach; nothing is framed after it

	buf   []byte // buf[:end] has arrived
	start int    // first byte of the command being framed, behind all handed out
	pos   int    // next byte to frame
	scan  int    // from pos up to here there is no line end
	end   int

	args int // how many arguments the command being framed has
	left int // how many of them are not framed yet; 0 at its first byte
	bulk int // length of the argument at pos; -1 when its header comes first

	begun  bool // the beginning of the command being framed was taken
	named  int  // length of its first argument, which ends before pos; -1 when it has not arrived
	nameAt int  // where that begins, from start on

	slots [][]byte // the Args handed out, and room for more
	lines []byte   // the Raw of inline commands handed out, and room for more

	borrowed *guardMemory // to give buf and slots back in; may be nil

	size int // of the next buffer
	calm int // how many reads in a row were small for it
}

// newGuard returns a guard with no buffer yet, and not restricted.
func newGuard(l limits) *guard {
	return &guard{limits: l.withDefaults(), bulk: -1, size: guardMinBuffer}
}

// next returns the next command if it has arrived in whole. Empty ones are
// skipped, as Redis does without an answer. An error is a [guardError], comes
// after the last command before the fault, and comes again at every call.
func (g *guard) next() (cmd guardCommand, ok bool, err error) {
	for g.err == nil && g.pos < g.end {
		var whole bool
		if g.left == 0 && g.buf[g.pos] != '*' {
			cmd, whole = g.inline()
		} else {
			cmd, whole = g.multibulk()
		}
		if len(cmd.Args) > 0 || cmd.Rest {
			return cmd, true, nil
		}
		if !whole {
			break
		}
	}
	return guardCommand{}, false, g.err
}

func (g *guard) fail(text string) { g.err = guardError(text) }

// inline frames a line. whole is false when it has not arrived in whole, or is
// refused; a line of no words gives no command.
func (g *guard) inline() (cmd guardCommand, whole bool) {
	i := g.lineEnd('\n')
	if g.tooLong(i) {
		g.fail("too big inline request")
	}
	if i < 0 || g.err != nil {
		return guardCommand{}, false
	}
	line := g.buf[g.pos : g.pos+i]
	g.advance(i + 1)
	g.start = g.pos
	words, ok := inlineSplit(line, g.slots[len(g.slots):])
	if !ok {
		g.fail("unbalanced quotes in request")
		return guardCommand{}, false
	}
	if len(words) == 0 {
		return guardCommand{}, true
	}
	return g.parsed(g.encode(words), len(words)), true
}

// encode appends words to g.lines as a command and returns it.
func (g *guard) encode(words [][]byte) []byte {
	at := len(g.lines)
	g.lines = redcon.AppendArray(g.lines, len(words))
	for _, word := range words {
		g.lines = redcon.AppendBulk(g.lines, word)
	}
	return g.lines[at:]
}

// multibulk frames on in a command that began with '*'. whole is false when it
// has not arrived in whole, or is refused; a count of none gives no command.
func (g *guard) multibulk() (cmd guardCommand, whole bool) {
	if g.left == 0 && !g.count() {
		return guardCommand{}, false
	}
	for ; g.left > 0; g.left-- {
		if !g.argument() {
			return guardCommand{}, false
		}
	}
	raw := g.buf[g.start:g.pos]
	g.start = g.pos
	if g.args == 0 {
		return guardCommand{}, true
	}
	if g.begun {
		g.begun = false
		return guardCommand{Raw: raw, Rest: true}, true
	}
	return g.parsed(raw, g.args), true
}

// parsed hands a whole and sound frame of n arguments to redcon.
func (g *guard) parsed(raw []byte, n int) guardCommand {
	used := len(g.slots)
	if cap(g.slots)-used < n {
		g.slots, used = make([][]byte, 0, max(n, guardMinSlots)), 0
	}
	whole, args, _, _, err := redcon.ReadNextCommand(raw, g.slots[used:])
	if err != nil || !whole || len(args) != n {
		g.fail("invalid multibulk length") // redcon and the guard disagree
		return guardCommand{}
	}
	g.slots = g.slots[:used+n]
	return guardCommand{Raw: raw, Args: args[:n:n]}
}

// count frames the header of a command and reports whether it is there.
func (g *guard) count() bool {
	line, ok := g.header("too big mbulk count string")
	if !ok {
		return false
	}
	n, ok := guardInt(line[1 : len(line)-1])
	switch {
	case !ok || n > int64(g.limits.MaxArgs):
		g.fail("invalid multibulk length")
	case g.restricted && n > int64(g.limits.PreAuthArgs):
		g.fail("unauthenticated multibulk length")
	}
	g.args = int(max(n, 0))
	g.left, g.named = g.args, -1
	return g.err == nil
}

// argument frames one argument and reports whether it is there in whole.
func (g *guard) argument() bool {
	if g.bulk < 0 && !g.bulkLength() {
		return false
	}
	tail := g.pos + g.bulk
	if g.end < tail+2 {
		return false
	}
	g.buf[tail], g.buf[tail+1] = '\r', '\n' // Redis does not look at them
	if g.left == g.args {
		g.nameAt, g.named = g.pos-g.start, g.bulk
	}
	g.advance(g.bulk + 2)
	g.bulk = -1
	return true
}

// bulkLength frames the header of an argument and reports whether it is there.
func (g *guard) bulkLength() bool {
	line, ok := g.header("too big bulk count string")
	if !ok {
		return false
	}
	if line[0] != '$' {
		g.fail("expected '$', got '" + guardShown(line[0]) + "'")
		return false
	}
	n, ok := guardInt(line[1 : len(line)-1])
	switch {
	case !ok || n < 0 || n > int64(g.limits.MaxBulk):
		g.fail("invalid bulk length")
	case g.restricted && n > int64(g.limits.PreAuthBulk):
		g.fail("unauthenticated bulk length")
	default:
		g.bulk = int(n)
	}
	return g.err == nil
}

// guardShown is a byte as an error reply can hold it, which is one line.
func guardShown(c byte) string {
	if c == '\r' || c == '\n' {
		c = ' '
	}
	return string([]byte{c})
}

// header returns the line at pos up to and including its CR, and steps behind
// the LF, which Redis takes to be one without looking. ok is false when it is
// not there yet, or too long, which has the words tooBig.
func (g *guard) header(tooBig string) (line []byte, ok bool) {
	i := g.lineEnd('\r')
	if g.tooLong(i) {
		g.fail(tooBig)
	}
	lf := g.pos + i + 1
	if i < 0 || g.err != nil || lf == g.end {
		return nil, false
	}
	line = g.buf[g.pos:lf]
	g.buf[lf] = '\n'
	g.advance(i + 2)
	return line, true
}

// advance steps over n bytes, to where another line begins.
func (g *guard) advance(n int) {
	g.pos += n
	g.scan = g.pos
}

// lineEnd returns how far behind pos the first byte c is, or -1. A NUL hides all
// that follows, as it does from Redis: such a line grows until it is too long.
func (g *guard) lineEnd(c byte) int {
	rest := g.buf[g.scan:g.end]
	if len(rest) == 0 || rest[0] == 0 {
		return -1
	}
	i := bytes.IndexByte(rest, c)
	if i >= 0 {
		rest = rest[:i]
	}
	if nul := bytes.IndexByte(rest, 0); nul >= 0 {
		g.scan += nul
		return -1
	}
	g.scan += len(rest)
	if i < 0 {
		return -1
	}
	return g.scan - g.pos
}

// tooLong judges the line at pos, whose end is at offset i, or not there if i is
// negative. It is the same however the bytes came in.
func (g *guard) tooLong(i int) bool {
	if i < 0 {
		i = g.end - g.pos
	}
	return i > g.limits.MaxInline
}

// guardInt reads an integer as strictly as Redis's string2ll: no plus sign, no
// leading zeros, no blanks.
func guardInt(b []byte) (int64, bool) {
	if len(b) == 1 && b[0] == '0' {
		return 0, true
	}
	digits := bytes.TrimPrefix(b, []byte{'-'})
	if len(digits) == 0 || len(digits) > 19 || digits[0] == '0' {
		return 0, false
	}
	var n uint64 // 19 digits fit
	for _, c := range digits {
		if c -= '0'; c > 9 {
			return 0, false
		}
		n = 10*n + uint64(c)
	}
	if len(digits) < len(b) {
		return -int64(n), n <= -math.MinInt64
	}
	return int64(n), n <= math.MaxInt64
}
