package relay

import (
	"time"

	"github.com/lockproxy/lockproxy/backends/upstream"
)

// Deliver implements upstream.Sink.
func (r *Replies) Deliver(c *upstream.Conn, p []byte, ended int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holdLocked(c)
	if r.midMessage && c == r.midFrom || c.Kind() == '>' { // a push answers nothing
		r.pushPartLocked(c, p)
		return
	}
	i := r.firstPendingLocked(c)
	if i < len(r.queue) && r.queue[i].observer != nil {
		r.queue[i].observer.add(p, ended)
	}
	if i == r.head && !r.midMessage && i < len(r.queue) && r.queue[i].verbatim() { // the usual case: its turn, and nothing to change
		r.writeLocked(p)
		r.queue[i].n -= ended
		r.midReply = c.MidReply()
		r.advanceLocked(ended)
		return
	}
	switch {
	case i == len(r.queue): // a push, or a passthrough connection
		r.unsolicitedLocked(c, p)
	default:
		r.bufferLocked(&r.queue[i], p)
		r.queue[i].midReply = c.MidReply()
		if ended > 0 {
			r.completeLocked(&r.queue[i], ended)
		}
		r.advanceLocked(ended)
	}
}

func (s *slot) verbatim() bool { return s.rewrite == nil && s.capture == nil }

// completeLocked notes that ended replies of a slot are there.
func (r *Replies) completeLocked(s *slot, ended int) {
	s.n -= ended
	if s.verbatim() {
		return
	}
	whole := s.buf
	s.buf = nil
	switch {
	case s.capture != nil && r.overflowed:
		s.capture(nil)
	case s.capture != nil:
		s.capture(whole)
	case !r.overflowed:
		s.buf, s.final = s.rewrite(whole)
	}
	r.buffered += len(s.buf) - len(whole)
}

// Full implements upstream.Owner.
func (r *Replies) Full() <-chan struct{} { return r.out.Full() }

// Fail implements upstream.Sink: every pending reply becomes an error. If half of a
// reply is out already nothing that follows could be understood: the client is
// disconnected. A client that ends with c gets no error, as from a Redis that went
// away.
func (r *Replies) Fail(c *upstream.Conn, pending int, cut bool, err error) {
	if r.opt.Lost != nil {
		r.opt.Lost(c)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.firstPendingLocked(c); cut && (i == len(r.queue) || r.queue[i].verbatim()) {
		r.out.Abort()
	}
	text := AppendLost(nil, err)
	if r.endsWithLocked(c) {
		text = nil
	}
	r.failLocked(c, pending, text)
}

func (r *Replies) endsWithLocked(c *upstream.Conn) bool {
	return r.clientLeft || r.opt.EndsWith != nil && r.opt.EndsWith(c)
}

func (r *Replies) failLocked(c *upstream.Conn, pending int, text []byte) {
	for pending > 0 {
		i := r.firstPendingLocked(c)
		if i == len(r.queue) {
			return
		}
		s := &r.queue[i]
		n := min(pending, s.n)
		switch {
		case s.capture != nil:
			r.buffered -= len(s.buf)
			s.buf = nil
			s.capture(nil)
		case s.rewrite != nil:
			r.buffered += len(text) - len(s.buf)
			s.buf = append([]byte(nil), text...)
		default:
			for range n {
				r.bufferLocked(s, text)
			}
		}
		s.n -= n
		pending -= n
		r.advanceLocked(n)
	}
}

// firstPendingLocked is the first slot that waits for replies of c, or len(queue).
func (r *Replies) firstPendingLocked(c *upstream.Conn) int {
	for i := r.head; i < len(r.queue); i++ {
		if r.queue[i].from == c && r.queue[i].n > 0 {
			return i
		}
	}
	return len(r.queue)
}

func (r *Replies) bufferLocked(s *slot, p []byte) {
	if r.reserveLocked(len(p)) {
		s.buf = append(s.buf, p...)
	}
}

// reserveLocked reports whether n more bytes may be kept, and counts them. Where there was
// once no room the client is disconnected, and nothing is kept any more.
func (r *Replies) reserveLocked(n int) bool {
	if r.buffered += n; r.buffered > r.opt.Limit && !r.overflowed {
		r.overflowed = true
		if r.opt.Overflow != nil {
			r.opt.Overflow()
		}
		r.out.Abort()
	}
	return !r.overflowed
}

// advanceLocked counts n replies off and writes what has its turn now.
func (r *Replies) advanceLocked(n int) {
	r.pending -= n
	r.pendingAhead -= n
	if r.batchPending > 0 {
		if r.batchPending -= n; r.batchPending <= 0 {
			r.opt.Took.Observe(time.Since(r.batchStart))
		}
	}
	if !r.midReply && len(r.deferred) > 0 {
		r.writeLocked(r.deferred)
		r.deferred = nil
	}
	for r.head < len(r.queue) && !r.midMessage {
		s := &r.queue[r.head]
		if len(s.buf) > 0 && (s.verbatim() || s.n == 0) {
			r.buffered -= len(s.buf)
			r.writeLocked(s.buf)
			s.buf = nil
			r.midReply = s.midReply && s.n > 0
		}
		if s.n > 0 {
			break
		}
		if s.final {
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
	r.signalIdleLocked()
}

// signalIdleLocked wakes who waits until the client has every reply of an upstream, or
// those before that of a command that blocks.
func (r *Replies) signalIdleLocked() {
	if r.holding > 0 {
		return
	}
	if r.pending == 0 && r.idle != nil {
		close(r.idle)
		r.idle = nil
	}
	if r.pendingAhead <= 0 && r.aheadDone != nil {
		close(r.aheadDone)
		r.aheadDone = nil
	}
}
