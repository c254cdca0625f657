package commands

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/backends/upstream"
)

// Output is a client's connection, as its replies see it.
type Output interface {
	// Write sends p, or keeps a copy of what cannot be sent now; it does not block.
	// It is false when the client is known to be gone.
	Write(p []byte) bool
	// Full is not nil while much that was written is kept; it is closed when little
	// is.
	Full() <-chan struct{}
	// Close closes the connection once everything written has been sent.
	Close()
	// Abort closes it at once.
	Abort()
}

// replies puts the replies to one client in the order of its commands, whoever
// they come from. Replies whose turn it is are written through without a copy.
//
// It is an upstream.Sink. The session's goroutine adds to the end, upstream
// connections fill in from theirs; mu is held while writing, so that the order of
// the writes is the order of the queue.
type replies struct {
	out   Output
	limit int // most bytes kept while it is not their turn

	mu     sync.Mutex
	queue  []slot // queue[head:] is what the client still waits for, in order
	head   int
	first  uint64                    // how many slots were pushed before queue[head]
	muted  bool                      // the proxy's own replies are not wanted
	count  *counts                   // may be nil
	why    *atomic.Int32             // why the client is disconnected; may be nil
	timed  time.Time                 // when a burst of commands came that is timed
	until  int                       // replies to come to it; 0: none is timed
	local  []byte                    // complete replies at the very front, not written yet
	kept   int                       // bytes in all slots
	full   bool                      // there were more than limit: replies are not complete any more
	owed   int                       // upstream replies still to come, in all slots
	idle   chan struct{}             // closed when owed and holding are 0 again; may be nil
	ahead  int                       // of owed, those asked for before the first command that blocks; not positive: none
	served chan struct{}             // closed when ahead and holding are 0 again; may be nil
	over   bool                      // the client has left: replies that will not come are not made up
	mid    bool                      // an unowed message has been written in part: nothing may come between
	midOf  *upstream.Conn            // whose message that is
	cut    bool                      // part of the reply whose turn it is has been written
	later  []byte                    // pushes that wait for its end
	asked  chan struct{}             // closed when the last unowed question was answered; nil: none was asked
	mark   *mark                     // what the session waits for on a raw connection; may be nil
	held   []byte                    // the beginning of a message that may be the mark
	ends   func(*upstream.Conn) bool // says that the client ends with the connection; may be nil
	lost   func(*upstream.Conn)      // an upstream connection ended, what is owed is not paid yet; may be nil

	redirect func(c *request, reply []byte)             // sends a call elsewhere, must not block; may be nil
	learn    func(c *request, reply []byte)             // hears how a call that must not be was refused; as redirect
	rename   func(c *upstream.Conn, push []byte) []byte // what it makes of a push goes to the client; may be nil
	parts    pieces                                     // of pushes whose end has not come

	holding  int    // connections that have more to deliver of what they read at once
	together []byte // to be written when none has
}

// slot is a stretch of replies that come from one place.
type slot struct {
	from  *upstream.Conn // nil: complete, all in buf
	n     int            // replies still to come
	buf   []byte         // what came before it was this slot's turn
	edit  edit           // not nil: what it makes of the one reply that comes goes to the client
	last  bool           // the client is disconnected when it has this
	catch func([]byte)   // not nil: takes the one reply that comes, nothing goes to the client
	tap   *tap           // not nil: hears the beginning of the one reply that comes

	inside bool // buf ends inside a reply
}

// An edit turns a whole reply into what the client gets in its place; last says that
// it gets nothing after that. It runs with the replies locked.
type edit func(reply []byte) (edited []byte, last bool)

// A tap hears how a reply begins, which goes to the client all the same. heard runs
// with the replies locked, when the reply has ended; not at all if none comes.
type tap struct {
	begin []byte
	heard func(begin []byte)
}

// tapLength is enough to tell one error from another.
const tapLength = 16

func (t *tap) take(p []byte, ended int) {
	if room := tapLength - len(t.begin); room > 0 {
		t.begin = append(t.begin, p[:min(room, len(p))]...)
	}
	if ended > 0 {
		t.heard(t.begin)
	}
}

func newReplies(out Output, limit int) *replies { return &replies{out: out, limit: limit} }

// Mute makes Local do nothing.
func (r *replies) Mute(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.muted = on
}

// Local adds a reply of the proxy's own. It is written by Flush, or with the
// replies before it. p is copied.
func (r *replies) Local(p []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.count != nil && len(p) > 0 && p[0] == '-' {
		r.count.errors.Count(p)
	}
	if r.muted {
		return
	}
	if r.head == len(r.queue) {
		r.local = append(r.local, p...)
		return
	}
	last := &r.queue[len(r.queue)-1]
	if last.from != nil || last.n > 0 {
		r.queue = append(r.queue, slot{})
		last = &r.queue[len(r.queue)-1]
	}
	r.keepLocked(last, p)
}

// Flush writes the proxy's own replies whose turn it is. False says that the
// client is gone.
func (r *replies) Flush() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.flushLocked()
}

func (r *replies) flushLocked() bool {
	if len(r.local) == 0 || r.mid {
		return true
	}
	ok := r.writeLocked(r.local)
	if r.local = r.local[:0]; cap(r.local) > 64<<10 {
		r.local = nil
	}
	return ok
}

// Close disconnects the client when it has what was said so far.
func (r *replies) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flushLocked()
	r.closeLocked()
}

func (r *replies) closeLocked() {
	r.writeTogetherLocked()
	r.out.Close()
}

// holdLocked is for every Deliver of a Sink that writes to the client. What an upstream
// sends at once the client gets at once: one that has the reply to its write must not be
// able to act on it before the invalidation which came with the reply.
func (r *replies) holdLocked(c *upstream.Conn) {
	if c.Batch(r) {
		r.holding++
	}
}

// EndBatch implements upstream.BatchSink.
func (r *replies) EndBatch() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.holding--; r.holding == 0 {
		r.writeTogetherLocked()
		r.idleLocked()
	}
}

func (r *replies) writeLocked(p []byte) bool {
	if r.holding > 0 {
		r.together = append(r.together, p...)
		return true
	}
	return r.out.Write(p)
}

func (r *replies) writeTogetherLocked() {
	if len(r.together) == 0 {
		return
	}
	r.out.Write(r.together)
	if r.together = r.together[:0]; cap(r.together) > 64<<10 {
		r.together = nil
	}
}

// Expect reserves the place of the next n replies of c.
func (r *replies) Expect(c *upstream.Conn, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.owed += n
	if len(r.queue) > r.head {
		if last := &r.queue[len(r.queue)-1]; last.from == c && last.plain() && last.tap == nil {
			last.n += n
			return
		}
	}
	r.pushLocked(slot{from: c, n: n})
}

// ExpectTapped reserves the place of one reply of c, whose beginning heard gets, and
// which goes through e if that is not nil.
func (r *replies) ExpectTapped(c *upstream.Conn, heard func(begin []byte), e edit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.owed++
	r.pushLocked(slot{from: c, n: 1, tap: &tap{heard: heard}, edit: e})
}

// ExpectEdited reserves the place of one reply of c, which goes through e.
func (r *replies) ExpectEdited(c *upstream.Conn, e edit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.owed++
	r.pushLocked(slot{from: c, n: 1, edit: e})
}

// ExpectSwapped reserves the place of one reply of c, which p will stand in for.
func (r *replies) ExpectSwapped(c *upstream.Conn, p []byte) {
	r.ExpectEdited(c, func([]byte) ([]byte, bool) { return p, false })
}

// ExpectCaught makes the next reply of c go to catch instead of the client. catch
// runs with the replies locked; it gets nil when c ended first.
func (r *replies) ExpectCaught(c *upstream.Conn, catch func([]byte)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.owed++
	r.pushLocked(slot{from: c, n: 1, catch: catch})
}

// pushLocked adds a slot and returns its number: slots are counted from the first on.
func (r *replies) pushLocked(s slot) (seq uint64) {
	if r.head == len(r.queue) {
		r.flushLocked()
		r.queue, r.head = r.queue[:0], 0
		if len(r.local) > 0 { // inside a message: its turn comes behind that
			r.queue = append(r.queue, slot{})
			r.keepLocked(&r.queue[0], r.local)
			r.local = nil
		}
	}
	if n := len(r.queue) - r.head; len(r.queue) == cap(r.queue) && r.head > n { // it may never be empty
		copy(r.queue, r.queue[r.head:])
		clear(r.queue[n:])
		r.queue, r.head = r.queue[:n], 0
	}
	r.queue = append(r.queue, s)
	return r.first + uint64(len(r.queue)-1-r.head)
}

// Time has the burst timed that came at a time, and of which sent commands are about to be
// sent, unless one is timed already.
func (r *replies) Time(came time.Time, sent int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.until <= 0 {
		r.timed, r.until = came, r.owed+sent
	}
}

// Owed is how many upstream replies the client still waits for.
func (r *replies) Owed() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.owed
}

// WaitIdle returns when no upstream owes the client a reply, or ctx ends.
func (r *replies) WaitIdle(ctx context.Context) error {
	r.mu.Lock()
	if r.owed == 0 && r.holding == 0 {
		r.mu.Unlock()
		return nil
	}
	if r.idle == nil {
		r.idle = make(chan struct{})
	}
	idle := r.idle
	r.mu.Unlock()
	return waitClosed(ctx, idle)
}

func waitClosed(ctx context.Context, c <-chan struct{}) error {
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Blocks notes that a command is about to be sent that may block, behind so many that
// have not got their places yet. Those behind it cannot be answered before it is.
func (r *replies) Blocks(unsent int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ahead = r.owed + unsent
}

// WaitBlocked returns when all has been answered that was asked before the command of
// Blocks, or ctx ends.
func (r *replies) WaitBlocked(ctx context.Context) error {
	r.mu.Lock()
	if r.ahead <= 0 && r.holding == 0 {
		r.mu.Unlock()
		return nil
	}
	if r.served == nil {
		r.served = make(chan struct{})
	}
	served := r.served
	r.mu.Unlock()
	return waitClosed(ctx, served)
}

// Left says that the client is not there any more, as far as it is owed anything: it gets
// the end of its connection, and no error, as from a Redis that it has left.
func (r *replies) Left() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
}

// DropReply keeps from the client that a command was unblocked, if the reply of c to it is
// all that the client waits for, and has not begun to come. Else it is false.
func (r *replies) DropReply(c *upstream.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue)-r.head != 1 || r.cut || r.mid {
		return false
	}
	s := &r.queue[r.head]
	if s.from != c || s.n != 1 || !s.plain() || len(s.buf) > 0 {
		return false
	}
	s.edit = func(reply []byte) ([]byte, bool) {
		if bytes.HasPrefix(reply, []byte("-UNBLOCKED ")) {
			return nil, false
		}
		return reply, false
	}
	return true
}

// Deliver implements upstream.Sink.
func (r *replies) Deliver(c *upstream.Conn, p []byte, ended int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holdLocked(c)
	if r.mid && c == r.midOf || c.Kind() == '>' { // a push answers nothing
		r.pushPartLocked(c, p)
		return
	}
	i := r.findLocked(c)
	if i < len(r.queue) && r.queue[i].tap != nil {
		r.queue[i].tap.take(p, ended)
	}
	if i == r.head && !r.mid && i < len(r.queue) && r.queue[i].plain() { // the usual case: its turn, and nothing to change
		r.writeLocked(p)
		r.queue[i].n -= ended
		r.cut = c.MidReply()
		r.paidLocked(ended)
		return
	}
	switch {
	case i == len(r.queue): // a push, or a raw connection
		r.unowedLocked(c, p)
	default:
		r.keepLocked(&r.queue[i], p)
		r.queue[i].inside = c.MidReply()
		if ended > 0 {
			r.completeLocked(&r.queue[i], ended)
		}
		r.paidLocked(ended)
	}
}

// RenamePushes has every push go through f from now on that comes in a Deliver of its
// own, as all do but those of a raw connection that does not Step.
func (r *replies) RenamePushes(f func(c *upstream.Conn, push []byte) []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rename = f
}

// pushPartLocked takes part of a push, or, on a raw connection, of what ends in one.
func (r *replies) pushPartLocked(c *upstream.Conn, p []byte) {
	if r.rename != nil && !r.mid {
		var whole bool
		if p, whole = r.parts.add(c, p, r.limit); !whole {
			return
		}
		p = r.rename(c, p)
	}
	if r.redirect != nil && !r.mid && !c.InPassthrough() {
		r.messageLocked(c, p)
	} else {
		r.unowedLocked(c, p)
	}
}

// unowedLocked writes part of what no command is waiting for, unless it is the
// mark that the session waits for.
func (r *replies) unowedLocked(c *upstream.Conn, p []byte) {
	if r.mark != nil {
		if r.held = append(r.held, p...); c.MidReply() {
			if len(r.held) > r.limit {
				r.held = nil
				r.out.Abort()
			}
			return
		}
		p, r.held = r.held, nil
	}
	if r.mark == nil || !r.markedLocked(p) {
		r.flushLocked()
		r.writeLocked(p)
	}
	r.mid, r.midOf = c.MidReply(), c
	r.paidLocked(0)
	r.flushLocked()
	if r.asked != nil && !r.mid {
		close(r.asked)
		r.asked = nil
	}
}

// markedLocked says that a whole reply is the mark, and is not for the client.
func (r *replies) markedLocked(reply []byte) bool {
	if !r.mark.is(reply) {
		return false
	}
	close(r.mark.seen)
	mine := !r.mark.shown
	r.mark = nil
	return mine
}

// A mark is a reply by which the session knows that a raw connection, made to Step,
// has answered everything before.
type mark struct {
	is    func(reply []byte) bool
	shown bool // the client is to see it
	seen  chan struct{}
}

// Await makes m the mark; m.seen is closed when it has come.
func (r *replies) Await(m *mark) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mark = m
}

// Forget stops waiting for a mark that did not come.
func (r *replies) Forget(m *mark) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mark == m {
		r.mark = nil
		r.writeLocked(r.held)
		r.held = nil
	}
}

// Push writes a whole message, between replies.
func (r *replies) Push(p []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.betweenLocked(p)
}

// messageLocked writes a push, when all of it has come: other connections' replies may
// come meanwhile.
func (r *replies) messageLocked(c *upstream.Conn, p []byte) {
	if message, whole := r.parts.add(c, p, r.limit); whole {
		r.betweenLocked(message)
	}
}

// pieces are the beginnings of messages that have not come in whole, by the connection
// they come on. The zero value is none.
type pieces map[*upstream.Conn][]byte

// add is called by Deliver with what has come, and returns the message once it is
// whole: p itself, if it came at once. A connection whose message has more than limit
// bytes is closed.
func (s *pieces) add(c *upstream.Conn, p []byte, limit int) (message []byte, whole bool) {
	part := (*s)[c]
	switch {
	case c.MidReply():
		if *s == nil {
			*s = pieces{}
		}
		if (*s)[c] = append(part, p...); len(part)+len(p) > limit {
			delete(*s, c)
			c.Close()
		}
		return nil, false
	case part != nil:
		p = append(part, p...)
		delete(*s, c)
	}
	return p, true
}

func (r *replies) betweenLocked(p []byte) {
	if r.cut || r.mid {
		if len(r.later)+len(p) > r.limit {
			r.out.Abort()
		} else {
			r.later = append(r.later, p...)
		}
		return
	}
	r.flushLocked()
	r.writeLocked(p)
}

// Ask notes that something was asked whose replies are not counted.
func (r *replies) Ask() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.asked == nil {
		r.asked = make(chan struct{})
	}
}

var answered = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// Answered is closed when something has come since the last Ask.
func (r *replies) Answered() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.asked == nil {
		return answered
	}
	return r.asked
}

func (s *slot) plain() bool { return s.edit == nil && s.catch == nil }

// completeLocked notes that ended replies of a slot are there.
func (r *replies) completeLocked(s *slot, ended int) {
	s.n -= ended
	if s.plain() {
		return
	}
	whole := s.buf
	s.buf = nil
	switch {
	case s.catch != nil && r.full:
		s.catch(nil)
	case s.catch != nil:
		s.catch(whole)
	case !r.full:
		s.buf, s.last = s.edit(whole)
	}
	r.kept += len(s.buf) - len(whole)
}

// Full implements upstream.Owner.
func (r *replies) Full() <-chan struct{} { return r.out.Full() }

// Fail implements upstream.Sink: every reply owed becomes an error. If half of a
// reply is out already nothing that follows could be understood: the client is
// disconnected. A client that ends with c gets no error, as from a Redis that went
// away.
func (r *replies) Fail(c *upstream.Conn, owed int, cut bool, err error) {
	if r.lost != nil {
		r.lost(c)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.findLocked(c); cut && (i == len(r.queue) || r.queue[i].plain()) {
		r.out.Abort()
	}
	text := appendLost(nil, err)
	if r.endsWithLocked(c) {
		text = nil
	}
	r.failLocked(c, owed, text)
}

func (r *replies) endsWithLocked(c *upstream.Conn) bool {
	return r.over || r.ends != nil && r.ends(c)
}

func (r *replies) failLocked(c *upstream.Conn, owed int, text []byte) {
	for owed > 0 {
		i := r.findLocked(c)
		if i == len(r.queue) {
			return
		}
		s := &r.queue[i]
		n := min(owed, s.n)
		switch {
		case s.catch != nil:
			r.kept -= len(s.buf)
			s.buf = nil
			s.catch(nil)
		case s.edit != nil:
			r.kept += len(text) - len(s.buf)
			s.buf = append([]byte(nil), text...)
		default:
			for range n {
				r.keepLocked(s, text)
			}
		}
		s.n -= n
		owed -= n
		r.paidLocked(n)
	}
}

// findLocked is the first slot that waits for replies of c, or len(queue).
func (r *replies) findLocked(c *upstream.Conn) int {
	for i := r.head; i < len(r.queue); i++ {
		if r.queue[i].from == c && r.queue[i].n > 0 {
			return i
		}
	}
	return len(r.queue)
}

func (r *replies) keepLocked(s *slot, p []byte) {
	if r.roomLocked(len(p)) {
		s.buf = append(s.buf, p...)
	}
}

// roomLocked says whether n more bytes may be kept, and counts them. Where there was
// once no room the client is disconnected, and nothing is kept any more.
func (r *replies) roomLocked(n int) bool {
	if r.kept += n; r.kept > r.limit && !r.full {
		r.full = true
		because(r.why, WhyOutput)
		r.out.Abort()
	}
	return !r.full
}

// paidLocked counts n replies off and writes what has its turn now.
func (r *replies) paidLocked(n int) {
	r.owed -= n
	r.ahead -= n
	if r.until > 0 {
		if r.until -= n; r.until <= 0 {
			r.count.took.Observe(time.Since(r.timed))
		}
	}
	if !r.cut && len(r.later) > 0 {
		r.writeLocked(r.later)
		r.later = nil
	}
	for r.head < len(r.queue) && !r.mid {
		s := &r.queue[r.head]
		if len(s.buf) > 0 && (s.plain() || s.n == 0) {
			r.kept -= len(s.buf)
			r.writeLocked(s.buf)
			s.buf = nil
			r.cut = s.inside && s.n > 0
		}
		if s.n > 0 {
			break
		}
		if s.last {
			r.closeLocked()
		}
		*s = slot{}
		r.head++
		r.first++
	}
	if r.head == len(r.queue) {
		r.queue, r.head = r.queue[:0], 0
		if cap(r.queue) > 1024 {
			r.queue = nil
		}
	}
	r.idleLocked()
}

// idleLocked tells whoever waits for it that the client has every reply of an upstream, or
// those before that of a command that blocks.
func (r *replies) idleLocked() {
	if r.holding > 0 {
		return
	}
	if r.owed == 0 && r.idle != nil {
		close(r.idle)
		r.idle = nil
	}
	if r.ahead <= 0 && r.served != nil {
		close(r.served)
		r.served = nil
	}
}
