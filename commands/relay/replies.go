package relay

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/backends/metrics"
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

// RepliesOptions are read once by NewReplies.
type RepliesOptions struct {
	// Limit is how many bytes of replies may wait for earlier ones. Beyond it the client is
	// disconnected, and Overflow called.
	Limit    int
	Overflow func() // may be nil
	// EndsWith reports whether the client ends with an upstream connection: it then gets no
	// error for replies that will not come. nil: it never does.
	EndsWith func(*upstream.Conn) bool
	// Lost is called when an upstream connection has ended, before anything else is made of
	// that; may be nil.
	Lost func(*upstream.Conn)

	Errors *metrics.Errors    // counts errors that Local adds; may be nil
	Took   *metrics.Histogram // of the bursts of Time; may be nil, if Time is not called
}

// Replies puts the replies to one client in the order of its commands, whoever
// they come from. Replies whose turn it is are written through without a copy.
//
// It is an upstream.Sink. The session's goroutine adds to the end, upstream
// connections fill in from theirs; mu is held while writing, so that the order of
// the writes is the order of the queue.
type Replies struct {
	out    Output
	opt    RepliesOptions
	gather *upstream.Flushes // see Gather; the session's goroutine's

	mu sync.Mutex

	// The queue.
	queue      []slot // queue[head:] is what the client still waits for, in order
	head       int
	first      uint64 // how many slots were pushed before queue[head]
	local      []byte // complete replies at the very front, not written yet
	muted      bool   // the proxy's own replies are not wanted
	buffered   int    // bytes in all slots
	overflowed bool   // there were more than Limit: replies are not complete any more
	clientLeft bool   // the client has left: replies that will not come are not made up

	// Who waits for replies.
	pending      int           // upstream replies still to come, in all slots
	idle         chan struct{} // closed when pending and holding are 0 again; may be nil
	pendingAhead int           // of pending, those of commands before the first command that blocks; not positive: none
	aheadDone    chan struct{} // closed when pendingAhead and holding are 0 again; may be nil
	uncounted    chan struct{} // closed when the last command of ExpectUncounted was answered; nil: there was none
	barrier      *Barrier      // what the session waits for on a passthrough connection; may be nil
	barrierBuf   []byte        // the beginning of a message that may be the barrier
	batchStart   time.Time     // when a burst of commands came that is timed
	batchPending int           // replies to come to it; 0: none is timed

	// What is being written.
	midMessage bool            // a message has been written in part: nothing may come between
	midFrom    *upstream.Conn  // whose message that is
	midReply   bool            // part of the reply at the front has been written
	deferred   []byte          // pushes that wait for its end
	partial    PartialMessages // pushes whose end has not come
	holding    int             // connections that have more to deliver of what they read at once
	coalesced  []byte          // to be written when none has

	// What else replies go through; may be nil.
	redirect    func(c *Request, reply []byte)             // sends a request elsewhere, must not block
	learn       func(c *Request, reply []byte)             // gets the refusal of a request that must not be redirected; as redirect
	rewritePush func(c *upstream.Conn, push []byte) []byte // what it makes of a push goes to the client
}

// slot is a stretch of replies that come from one place.
type slot struct {
	from     *upstream.Conn // nil: complete, all in buf
	n        int            // replies still to come
	buf      []byte         // what came before it was this slot's turn
	rewrite  Rewrite        // not nil: what it makes of the one reply that comes goes to the client
	final    bool           // the client is disconnected when it has this
	capture  func([]byte)   // not nil: takes the one reply that comes, nothing goes to the client
	observer *Observer      // not nil: gets the beginning of the one reply that comes

	midReply bool // buf ends inside a reply
}

// A Rewrite turns a whole reply into what the client gets in its place; last reports
// whether it gets nothing after that. It runs with the replies locked.
type Rewrite func(reply []byte) (edited []byte, last bool)

// An Observer gets the beginning of a reply, which goes to the client all the same. Observe runs
// with the replies locked, when the reply has ended; not at all if none comes.
type Observer struct {
	begin   []byte
	Observe func(begin []byte)
}

// observedLength is enough to tell one error from another.
const observedLength = 16

func (t *Observer) add(p []byte, ended int) {
	if room := observedLength - len(t.begin); room > 0 {
		t.begin = append(t.begin, p[:min(room, len(p))]...)
	}
	if ended > 0 {
		t.Observe(t.begin)
	}
}

// NewReplies makes the Replies of a client that is connected by out.
func NewReplies(out Output, opt RepliesOptions) *Replies { return &Replies{out: out, opt: opt} }

// Limit is how many bytes may wait for their turn.
func (r *Replies) Limit() int { return r.opt.Limit }

// Disconnect closes the client's connection once everything written has been sent.
func (r *Replies) Disconnect() { r.out.Close() }

// Mute makes Local do nothing.
func (r *Replies) Mute(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.muted = on
}

// Local adds a reply of the proxy's own. It is written by Flush, or with the
// replies before it. p is copied.
func (r *Replies) Local(p []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.opt.Errors != nil && len(p) > 0 && p[0] == '-' {
		r.opt.Errors.Count(p)
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
	r.bufferLocked(last, p)
}

// Flush writes the proxy's own replies whose turn it is. It reports whether the
// client may still be there.
func (r *Replies) Flush() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.flushLocked()
}

func (r *Replies) flushLocked() bool {
	if len(r.local) == 0 || r.midMessage {
		return true
	}
	ok := r.writeLocked(r.local)
	if r.local = r.local[:0]; cap(r.local) > 64<<10 {
		r.local = nil
	}
	return ok
}

// Close disconnects the client when it has all replies so far.
func (r *Replies) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flushLocked()
	r.closeLocked()
}

func (r *Replies) closeLocked() {
	r.writeCoalescedLocked()
	r.out.Close()
}

// holdLocked is for every Deliver of a Sink that writes to the client. What an upstream
// sends at once the client gets at once: one that has the reply to its write must not be
// able to act on it before the invalidation which came with the reply.
func (r *Replies) holdLocked(c *upstream.Conn) {
	if c.Batch(r) {
		r.holding++
	}
}

// EndBatch implements upstream.BatchSink.
func (r *Replies) EndBatch() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.holding--; r.holding == 0 {
		r.writeCoalescedLocked()
		r.signalIdleLocked()
	}
}

func (r *Replies) writeLocked(p []byte) bool {
	if r.holding > 0 {
		r.coalesced = append(r.coalesced, p...)
		return true
	}
	return r.out.Write(p)
}

func (r *Replies) writeCoalescedLocked() {
	if len(r.coalesced) == 0 {
		return
	}
	r.out.Write(r.coalesced)
	if r.coalesced = r.coalesced[:0]; cap(r.coalesced) > 64<<10 {
		r.coalesced = nil
	}
}

// Expect reserves the place of the next n replies of c.
func (r *Replies) Expect(c *upstream.Conn, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending += n
	if len(r.queue) > r.head {
		if last := &r.queue[len(r.queue)-1]; last.from == c && last.verbatim() && last.observer == nil {
			last.n += n
			return
		}
	}
	r.pushLocked(slot{from: c, n: n})
}

// ExpectObserved reserves the place of one reply of c, whose beginning observe gets, and
// which goes through e if that is not nil.
func (r *Replies) ExpectObserved(c *upstream.Conn, observe func(begin []byte), e Rewrite) {
	r.expectOne(slot{from: c, observer: &Observer{Observe: observe}, rewrite: e})
}

// ExpectRewritten reserves the place of one reply of c, which goes through e.
func (r *Replies) ExpectRewritten(c *upstream.Conn, e Rewrite) {
	r.expectOne(slot{from: c, rewrite: e})
}

// ExpectReplaced reserves the place of one reply of c, which p will stand in for.
func (r *Replies) ExpectReplaced(c *upstream.Conn, p []byte) {
	r.ExpectRewritten(c, func([]byte) ([]byte, bool) { return p, false })
}

// ExpectCaptured makes the next reply of c go to capture instead of the client. capture
// runs with the replies locked; it gets nil when c ended first.
func (r *Replies) ExpectCaptured(c *upstream.Conn, capture func([]byte)) {
	r.expectOne(slot{from: c, capture: capture})
}

func (r *Replies) expectOne(s slot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending++
	s.n = 1
	r.pushLocked(s)
}

// pushLocked adds a slot and returns its number: slots are counted from the first on.
func (r *Replies) pushLocked(s slot) (seq uint64) {
	if r.head == len(r.queue) {
		r.flushLocked()
		r.queue, r.head = r.queue[:0], 0
		if len(r.local) > 0 { // inside a message: its turn comes behind that
			r.queue = append(r.queue, slot{})
			r.bufferLocked(&r.queue[0], r.local)
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

// TimeBatch has the burst timed that came at a time, and of which sent commands are about to be
// sent, unless one is timed already.
func (r *Replies) TimeBatch(came time.Time, sent int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.batchPending <= 0 {
		r.batchStart, r.batchPending = came, r.pending+sent
	}
}

// Pending is how many upstream replies the client still waits for.
func (r *Replies) Pending() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pending
}

// WaitIdle returns when no reply of an upstream is pending, or ctx ends.
func (r *Replies) WaitIdle(ctx context.Context) error { return r.wait(ctx, &r.pending, &r.idle) }

// wait returns when none of the n replies is still to come, which signalIdleLocked tells by
// closing done, or ctx ends.
func (r *Replies) wait(ctx context.Context, n *int, done *chan struct{}) error {
	r.mu.Lock()
	if *n <= 0 && r.holding == 0 {
		r.mu.Unlock()
		return nil
	}
	if *done == nil {
		*done = make(chan struct{})
	}
	c := *done
	r.mu.Unlock()
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// MarkBlocking notes that a command is about to be sent that may block, behind so many that
// have not got their places yet. Those behind it cannot be answered before it is.
func (r *Replies) MarkBlocking(unsent int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pendingAhead = r.pending + unsent
}

// WaitAhead returns when all has been answered that was asked before the command of
// MarkBlocking, or ctx ends.
func (r *Replies) WaitAhead(ctx context.Context) error {
	return r.wait(ctx, &r.pendingAhead, &r.aheadDone)
}

// ClientLeft notes that the client does not wait for replies any more: it gets
// the end of its connection, and no error, as from a Redis that it has left.
func (r *Replies) ClientLeft() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clientLeft = true
}

// DropReply keeps from the client that a command was unblocked, if the reply of c to it is
// all that the client waits for, and has not begun to come. Else it is false.
func (r *Replies) DropReply(c *upstream.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue)-r.head != 1 || r.midReply || r.midMessage {
		return false
	}
	s := &r.queue[r.head]
	if s.from != c || s.n != 1 || !s.verbatim() || len(s.buf) > 0 {
		return false
	}
	s.rewrite = func(reply []byte) ([]byte, bool) {
		if bytes.HasPrefix(reply, []byte("-UNBLOCKED ")) {
			return nil, false
		}
		return reply, false
	}
	return true
}
