package relay

import (
	"sync/atomic"

	"github.com/lockproxy/lockproxy/backends/upstream"
)

// TrackedConn is the upstream.Owner of a connection of which the client is to see the pushes
// alone. When it ends the client cannot know what has become invalid, and is
// disconnected, unless the session gave it up itself.
type TrackedConn struct {
	replies   *Replies
	abandoned atomic.Bool // the session has given it up
}

// NewTrackedConn is the owner of a connection whose pushes go to a client.
func NewTrackedConn(r *Replies) *TrackedConn { return &TrackedConn{replies: r} }

// Abandon notes that the session itself gives the connection up.
func (o *TrackedConn) Abandon() { o.abandoned.Store(true) }

// Deliver implements upstream.Sink.
func (o *TrackedConn) Deliver(c *upstream.Conn, p []byte, _ int) {
	o.replies.mu.Lock()
	defer o.replies.mu.Unlock()
	if !o.abandoned.Load() {
		o.replies.holdLocked(c)
		o.replies.messageLocked(c, p)
	}
}

// Fail implements upstream.Sink.
func (o *TrackedConn) Fail(*upstream.Conn, int, bool, error) {
	if !o.abandoned.Load() {
		o.replies.Disconnect()
	}
}

// Full implements upstream.Owner.
func (o *TrackedConn) Full() <-chan struct{} { return o.replies.Full() }
