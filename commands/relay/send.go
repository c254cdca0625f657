package relay

import (
	"context"

	"github.com/lockproxy/lockproxy/backends/upstream"
)

// Send sends commands whose n replies have their places already. If it fails they get what
// AppendLost says.
func (r *Replies) Send(c *upstream.Conn, raw []byte, n int) {
	if err := c.SendLater(r.later, raw, n, r); err != nil {
		r.Fail(c, n, false, err)
	}
}

// SendUncounted sends commands whose replies are not counted.
func (r *Replies) SendUncounted(c *upstream.Conn, raw []byte) {
	c.SendLater(r.later, raw, 0, r) // if it fails, Fail closes the client
}

// Gather has f write what is sent from now on; with nil, sends write it themselves.
func (r *Replies) Gather(f *upstream.Flushes) { r.later = f }

// Gathered is the Flushes of Gather.
func (r *Replies) Gathered() *upstream.Flushes { return r.later }

// SendRequest gives the reply to a request its place, and sends it on conn.
func (r *Replies) SendRequest(conn *upstream.Conn, c *Request) {
	r.ExpectRequest(c)
	if err := conn.SendEach(r.later, c.Raw, []upstream.Sink{c}); err != nil {
		c.Fail(conn, 1, false, err)
	}
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
