package upstream

import (
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
	reply, err := c.ask(ctx, resp.AppendCommand(nil, "PING"), maxReply, false)
	if err != nil {
		return err
	}
	return notServing(reply)
}

// Refusal is the error that a reply is, a *RefusedError; nil: it is none.
func Refusal(reply []byte) error {
	if _, refused := resp.Error(reply); refused {
		return &RefusedError{Reply: reply}
	}
	return nil
}

// notServing returns an error if a reply means that the node serves no client.
func notServing(reply []byte) error {
	if resp.HasCode(reply, "LOADING") || resp.HasCode(reply, "MASTERDOWN") {
		return &RefusedError{Reply: reply}
	}
	return nil
}

// Ask sends one command, and waits for its reply of up to limit bytes. The error is a
// *DownError or ctx's.
func (c *Conn) Ask(ctx context.Context, raw []byte, limit int) (reply []byte, err error) {
	return c.ask(ctx, raw, limit, true)
}

// ask is Ask; use reports whether the connection counts as used.
func (c *Conn) ask(ctx context.Context, raw []byte, limit int, use bool) (reply []byte, err error) {
	a, err := c.begin(raw, limit, sending{use: use})
	if err != nil {
		return nil, err
	}
	return a.Await(ctx)
}

// Begin has one command sent whose reply has up to limit bytes, and waits neither for that nor for the server to read. The
// error is a *DownError.
func (c *Conn) Begin(raw []byte, limit int) (*Answer, error) {
	return c.begin(raw, limit, sending{use: true, beside: true})
}

func (c *Conn) begin(raw []byte, limit int, how sending) (*Answer, error) {
	a := &Answer{limit: limit, done: make(chan struct{})}
	if err := c.send(raw, pending{to: a, n: 1}, nil, how); err != nil {
		return nil, &DownError{err}
	}
	return a, nil
}

// An Answer is the reply to one command, which may be on its way. Nobody has to wait for it.
type Answer struct {
	limit int
	reply []byte
	err   error         // valid after done
	done  chan struct{} // closed when the reply has come, or will not
}

// Await waits for the reply. The error is a *DownError or ctx's.
func (a *Answer) Await(ctx context.Context) (reply []byte, err error) {
	select {
	case <-a.done:
		return a.reply, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Ready reports whether Await would not wait.
func (a *Answer) Ready() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

// Deliver implements Sink. Pushes are left out; a reply over the limit ends the connection.
func (a *Answer) Deliver(c *Conn, p []byte, ended int) {
	if c.Kind() == '>' {
		return
	}
	a.reply = append(a.reply, p...)
	if ended > 0 {
		close(a.done)
	} else if len(a.reply) > a.limit {
		c.Close()
	}
}

// Fail implements Sink.
func (a *Answer) Fail(_ *Conn, _ int, _ bool, err error) {
	a.err = &DownError{err}
	close(a.done)
}
