package upstream

import (
	"bytes"
	"context"
	"errors"

	"github.com/lockproxy/lockproxy/backends/resp"
)

// Ping sends PING on the connection that clients of an identity share. It returns nil
// if the node serves clients, be it not this identity: it refuses the credentials or
// the command, but not with LOADING or MASTERDOWN. It waits for a node that hangs until
// ctx ends. Errors are *DownError, *RefusedError or ctx's.
func (p *Pool) Ping(ctx context.Context, id Identity) error {
	c, err := p.Shared(ctx, id, MainClass, 0)
	var refused *RefusedError
	switch {
	case errors.As(err, &refused):
		return notServing(refused.Reply)
	case err != nil:
		return err
	}
	defer Return(c)
	r := &pingReply{done: make(chan struct{})}
	if err := c.send(resp.AppendCommand(nil, "PING"), pending{to: r, n: 1}, nil, false); err != nil {
		return &DownError{err}
	}
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// notServing returns an error if a reply means that the node serves no client.
func notServing(reply []byte) error {
	for _, word := range []string{"-LOADING", "-MASTERDOWN"} {
		if bytes.HasPrefix(reply, []byte(word)) {
			return &RefusedError{Reply: reply}
		}
	}
	return nil
}

// A pingReply is the Sink of the reply to a PING.
type pingReply struct {
	reply []byte
	err   error         // valid after done
	done  chan struct{} // closed when the reply has come, or will not
}

func (r *pingReply) Deliver(c *Conn, p []byte, ended int) {
	if c.Gather(&r.reply, p, ended, maxReply) {
		r.err = notServing(r.reply)
		close(r.done)
	}
}

func (r *pingReply) Fail(_ *Conn, _ int, _ bool, err error) {
	r.err = &DownError{err}
	close(r.done)
}
