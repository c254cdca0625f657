package relay

import (
	"bytes"
	"context"
	"crypto/rand"
	"time"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
)

// RewritePushes has every push go through f from now on that comes in a Deliver of its
// own, as all do but those of a passthrough connection that does not deliver singly.
func (r *Replies) RewritePushes(f func(c *upstream.Conn, push []byte) []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rewritePush = f
}

// pushPartLocked takes part of a push, or, on a passthrough connection, of what ends in one.
func (r *Replies) pushPartLocked(c *upstream.Conn, p []byte) {
	if r.rewritePush != nil && !r.midMessage {
		var complete bool
		if p, complete = r.partial.Add(c, p, r.opt.Limit); !complete {
			return
		}
		p = r.rewritePush(c, p)
	}
	if r.redirect != nil && !r.midMessage && !c.InPassthrough() {
		r.messageLocked(c, p)
	} else {
		r.unsolicitedLocked(c, p)
	}
}

// unsolicitedLocked writes part of what no command is waiting for, unless it is the
// barrier that the session waits for.
func (r *Replies) unsolicitedLocked(c *upstream.Conn, p []byte) {
	if r.barrier != nil {
		if r.barrierBuf = append(r.barrierBuf, p...); c.MidReply() {
			if len(r.barrierBuf) > r.opt.Limit {
				r.barrierBuf = nil
				r.out.Abort()
			}
			return
		}
		p, r.barrierBuf = r.barrierBuf, nil
	}
	if r.barrier == nil || !r.atBarrierLocked(p) {
		r.flushLocked()
		r.writeLocked(p)
	}
	r.midMessage, r.midFrom = c.MidReply(), c
	r.advanceLocked(0)
	r.flushLocked()
	if r.uncounted != nil && !r.midMessage {
		close(r.uncounted)
		r.uncounted = nil
	}
}

// atBarrierLocked reports whether a whole reply is the barrier, and is not for the client.
func (r *Replies) atBarrierLocked(reply []byte) bool {
	if !r.barrier.Matches(reply) {
		return false
	}
	close(r.barrier.Reached)
	mine := !r.barrier.Visible
	r.barrier = nil
	return mine
}

// A Barrier is a reply by which the session knows that a passthrough connection, made to
// deliver singly, has answered everything before.
type Barrier struct {
	Matches func(reply []byte) bool
	Visible bool // the client is to see it
	Reached chan struct{}
}

// NewBarrier returns a command without effect for a connection, which may be nil, and its reply,
// which is that of no other command: one that no upstream knows. Valkey from 9.1 on tells clients
// that have not authenticated no more than that they must; these are in no subscription and
// no transaction, and may say HELLO, here with an option that there is not.
func NewBarrier(c *upstream.Conn) (raw []byte, b *Barrier) {
	token := rand.Text()
	raw = resp.AppendCommand(nil, token)
	if c != nil && c.Unauthenticated() {
		raw = resp.AppendCommand(nil, "HELLO", "2", token)
	}
	return raw, &Barrier{Matches: func(reply []byte) bool {
		return len(reply) > 0 && reply[0] == '-' && bytes.Contains(reply, []byte(token))
	}}
}

// NewPing returns a PING and its reply. noAuth becomes whether that wants authentication.
func NewPing(noAuth *bool) (raw []byte, b *Barrier) {
	token := rand.Text()
	bulk := string(resp.AppendBulkString(nil, token))
	return resp.AppendCommand(nil, "PING", token), &Barrier{Matches: func(reply []byte) bool {
		*noAuth = resp.HasCode(reply, "NOAUTH")
		return *noAuth || resp.HasCode(reply, "NOPERM") || string(reply) == bulk || string(reply) == "*2\r\n$4\r\npong\r\n"+bulk
	}}
}

// Sync sends a command on a connection on which replies are not counted, has it deliver singly
// from now on, and returns when the command's reply, which b knows, has come. It is false if
// the connection is lost, ctx ends, or present, the client's, has ended for grace.
func (r *Replies) Sync(ctx context.Context, c *upstream.Conn, command []byte, b *Barrier, present context.Context, grace time.Duration) bool {
	b.Reached = make(chan struct{})
	c.DeliverSingly(true)
	r.setBarrier(b)
	defer r.dropBarrier(b)
	if c.Send(command, 0, r) != nil {
		return false
	}
	select {
	case <-b.Reached:
	case <-present.Done():
		select {
		case <-b.Reached:
		case <-c.Done():
		case <-time.After(grace):
		case <-ctx.Done():
		}
	case <-c.Done():
	case <-ctx.Done():
	}
	select {
	case <-b.Reached:
		return true
	default:
		return false
	}
}

// setBarrier makes b the barrier; b.Reached is closed when it has come.
func (r *Replies) setBarrier(b *Barrier) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.barrier = b
}

// dropBarrier stops waiting for a barrier that did not come.
func (r *Replies) dropBarrier(b *Barrier) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.barrier == b {
		r.barrier = nil
		r.writeLocked(r.barrierBuf)
		r.barrierBuf = nil
	}
}

// Push writes a whole message, between replies.
func (r *Replies) Push(p []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.betweenLocked(p)
}

// messageLocked writes a push, when all of it has come: other connections' replies may
// come meanwhile.
func (r *Replies) messageLocked(c *upstream.Conn, p []byte) {
	if message, complete := r.partial.Add(c, p, r.opt.Limit); complete {
		r.betweenLocked(message)
	}
}

// PartialMessages are the beginnings of messages that have not come in full, by the connection
// they come on. The zero value is none.
type PartialMessages map[*upstream.Conn][]byte

// Add is called by Deliver with what has come, and returns the message once it is
// complete: p itself, if it arrived in one part. A connection whose message has more than limit
// bytes is closed.
func (s *PartialMessages) Add(c *upstream.Conn, p []byte, limit int) (message []byte, complete bool) {
	part := (*s)[c]
	switch {
	case c.MidReply():
		if *s == nil {
			*s = PartialMessages{}
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

func (r *Replies) betweenLocked(p []byte) {
	if r.midReply || r.midMessage {
		if len(r.deferred)+len(p) > r.opt.Limit {
			r.out.Abort()
		} else {
			r.deferred = append(r.deferred, p...)
		}
		return
	}
	r.flushLocked()
	r.writeLocked(p)
}

// ExpectUncounted notes that a command is about to be sent whose replies are not counted.
func (r *Replies) ExpectUncounted() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.uncounted == nil {
		r.uncounted = make(chan struct{})
	}
}

var answered = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// Answered is closed when something has come since the last ExpectUncounted.
func (r *Replies) Answered() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.uncounted == nil {
		return answered
	}
	return r.uncounted
}
