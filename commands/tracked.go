package commands

import (
	"sync/atomic"

	"github.com/lockproxy/lockproxy/backends/upstream"
)

// trackedConn is the upstream.Owner of a connection of which the client is to see the pushes
// alone. When it ends the client cannot know what has become invalid, and is
// disconnected, unless the session gave it up itself.
type trackedConn struct {
	replies   *replies
	abandoned atomic.Bool // the session has given it up
}

// Deliver implements upstream.Sink.
func (o *trackedConn) Deliver(c *upstream.Conn, p []byte, _ int) {
	o.replies.mu.Lock()
	defer o.replies.mu.Unlock()
	if !o.abandoned.Load() {
		o.replies.holdLocked(c)
		o.replies.messageLocked(c, p)
	}
}

// Fail implements upstream.Sink.
func (o *trackedConn) Fail(*upstream.Conn, int, bool, error) {
	if !o.abandoned.Load() {
		o.replies.out.Close()
	}
}

// Full implements upstream.Owner.
func (o *trackedConn) Full() <-chan struct{} { return o.replies.out.Full() }
