// Package lockrueidis is for locks of lockproxy over rueidis.
package lockrueidis

import (
	"context"
	"time"

	"github.com/redis/rueidis"

	lockproxy "github.com/lockproxy/lockproxy/clients/go"
)

// New returns the locks of the proxy that c connects to. A LOCK that waits, and a lock with Session, has a
// connection of c's blocking pool while it lasts.
func New(c rueidis.Client) *lockproxy.Locks { return lockproxy.New(&client{c}) }

type client struct{ rueidis.Client }

func (c *client) Do(ctx context.Context, args ...string) (any, error) {
	return read(c.Client.Do(ctx, c.B().Arbitrary(args[0]).Args(args[1:]...).Build()))
}

func (c *client) Timeout() time.Duration { return 0 }

func read(r rueidis.RedisResult) (any, error) {
	reply, err := r.ToAny()
	if rueidis.IsRedisNil(err) {
		return nil, nil
	}
	if answer, ok := rueidis.IsRedisErr(err); ok {
		return nil, lockproxy.ReplyError(answer.Error())
	}
	return reply, err
}

// Open takes a connection out of the pool, which is not given back: Close ends it.
func (c *client) Open() lockproxy.Conn {
	own, _ := c.Dedicate()
	return &conn{own: own, closed: make(chan struct{})}
}

type conn struct {
	own    rueidis.DedicatedClient
	begun  bool
	closed chan struct{} // with RESP2 for ever open
}

func (c *conn) Do(ctx context.Context, args ...string) (any, error) {
	if !c.begun {
		if err := c.watch(ctx); err != nil {
			return nil, err
		}
		c.begun = true
	}
	// Only a command that is said to block is bounded by ctx alone.
	return read(c.own.Do(ctx, c.own.B().Arbitrary(args[0]).Args(args[1:]...).Blocking()))
}

// watch has the end of the connection noticed, by the hooks for messages. With RESP2 they are those of
// another connection: then it is noticed by the next command.
func (c *conn) watch(ctx context.Context) error {
	hello, err := c.own.Do(ctx, c.own.B().Arbitrary("HELLO").Blocking()).AsMap()
	if err != nil {
		return err
	}
	proto := hello["proto"]
	if n, err := proto.AsInt64(); err != nil || n < 3 {
		return err
	}
	ended := c.own.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: func(rueidis.PubSubMessage) {}})
	go func() {
		<-ended
		close(c.closed)
	}()
	return nil
}

func (c *conn) Closed() <-chan struct{} { return c.closed }

func (c *conn) Close() { c.own.Close() }
