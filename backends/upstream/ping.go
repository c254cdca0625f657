package upstream

import (
	"bytes"
	"context"
	"errors"

	"github.com/lockproxy/lockproxy/backends/resp"
)

// Ping asks the node, on the connection that clients of an identity share, whether it
// serves. A node that refuses the identity's credentials, or what it is asked, serves
// others all the same: that is nil too, as long as it has loaded its data and has its
// master. It returns when the node has answered, the connection has failed, or ctx ends;
// a node that hangs is waited for. Errors are *DownError, *RefusedError or ctx's.
func (p *Pool) Ping(ctx context.Context, id Identity) error {
	c, err := p.Shared(ctx, id, MainClass, 0)
	var refused *RefusedError
	switch {
	case errors.As(err, &refused):
		return unserving(refused.Reply)
	case err != nil:
		return err
	}
	defer Return(c)
	a := &pong{come: make(chan struct{})}
	if err := c.send(resp.AppendCommand(nil, "PING"), debt{to: a, n: 1}, nil, false); err != nil {
		return &DownError{err}
	}
	select {
	case <-a.come:
		return a.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// unserving is an error if a reply says that the node has nothing for anybody.
func unserving(reply []byte) error {
	for _, word := range []string{"-LOADING", "-MASTERDOWN"} {
		if bytes.HasPrefix(reply, []byte(word)) {
			return &RefusedError{Reply: reply}
		}
	}
	return nil
}

// A pong is the Sink for the answer to a Ping.
type pong struct {
	reply []byte
	err   error         // once come is closed
	come  chan struct{} // closed when it is known
}

func (a *pong) Deliver(c *Conn, p []byte, ended int) {
	if c.Gather(&a.reply, p, ended, maxAnswer) {
		a.err = unserving(a.reply)
		close(a.come)
	}
}

func (a *pong) Fail(_ *Conn, _ int, _ bool, err error) {
	a.err = &DownError{err}
	close(a.come)
}
