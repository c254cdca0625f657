package relay

import (
	"context"

	"github.com/lockproxy/lockproxy/backends/upstream"
)

// Send sends commands whose n replies have their places already. If it fails they get what
// AppendLost says.
func (r *Replies) Send(c *upstream.Conn, raw []byte, n int) {
	if err := c.SendLater(r.gather, raw, n, r); err != nil {
		r.Fail(c, n, false, err)
	}
}

// SendUncounted sends commands whose replies are not counted.
func (r *Replies) SendUncounted(c *upstream.Conn, raw []byte) {
	c.SendLater(r.gather, raw, 0, r) // if it fails, Fail closes the client
}

// Gather makes sends leave what they would write to f, until it is called with nil.
func (r *Replies) Gather(f *upstream.Flushes) { r.gather = f }

// SendEach sends commands with one reply for each of sinks. If it fails they get what AppendLost says.
func (r *Replies) SendEach(c *upstream.Conn, raw []byte, sinks []upstream.Sink) {
	sendEach(r.gather, c, raw, sinks)
}

func sendEach(f *upstream.Flushes, c *upstream.Conn, raw []byte, sinks []upstream.Sink) {
	if err := c.SendEach(f, raw, sinks); err != nil {
		for _, s := range sinks {
			s.Fail(c, 1, false, err)
		}
	}
}

// SendRequest gives the reply to a request its place, and sends it on conn.
func (r *Replies) SendRequest(conn *upstream.Conn, c *Request) {
	r.ExpectRequest(c)
	r.SendEach(conn, c.Raw, []upstream.Sink{c})
}

// Ask sends a command of a single reply, behind everything sent before, and returns that
// reply. c may be nil: a connection that was lost.
func (r *Replies) Ask(ctx context.Context, c *upstream.Conn, raw []byte) ([]byte, error) {
	if c == nil {
		return nil, &upstream.DownError{Err: ErrLost}
	}
	got := make(chan []byte, 1)
	r.ExpectCaptured(c, func(reply []byte) { got <- reply })
	r.Send(c, raw, 1)
	select {
	case reply := <-got:
		if reply == nil {
			return nil, &upstream.DownError{Err: ErrLost}
		}
		return reply, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// AskAll sends commands of a single reply each, behind everything sent before, drops their replies,
// and returns when these have come or ctx ends.
func (r *Replies) AskAll(ctx context.Context, c *upstream.Conn, commands [][]byte) {
	if len(commands) == 0 {
		return
	}
	done, left := make(chan struct{}), len(commands)
	for _, raw := range commands {
		r.ExpectCaptured(c, func([]byte) {
			if left--; left == 0 {
				close(done)
			}
		})
		r.Send(c, raw, 1)
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
}
