// Package lockgoredis is for locks of lockproxy over go-redis.
package lockgoredis

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	lockproxy "github.com/lockproxy/lockproxy/clients/go"
)

// New returns the locks of the proxy that rdb connects to. A LOCK that waits, and a lock with Session, has a
// connection of its own, with the settings of rdb but without its hooks; it takes none of rdb's pool.
func New(rdb *redis.Client) *lockproxy.Locks { return lockproxy.New(&client{rdb}) }

type client struct{ rdb *redis.Client }

func (c *client) Do(ctx context.Context, args ...string) (any, error) {
	reply, err := do(ctx, c.rdb, args)
	if errors.Is(err, redis.ErrClosed) {
		err = lockproxy.ErrClosed
	}
	return reply, err
}

func (c *client) Timeout() time.Duration { return max(c.rdb.Options().ReadTimeout, 0) }

func do(ctx context.Context, rdb *redis.Client, args []string) (any, error) {
	words := make([]any, len(args))
	for i, a := range args {
		words[i] = a
	}
	reply, err := rdb.Do(ctx, words...).Result()
	var answer redis.Error
	switch {
	case errors.Is(err, redis.Nil):
		return nil, nil
	case errors.As(err, &answer):
		return nil, lockproxy.ReplyError(answer.Error())
	}
	return reply, err
}

// Open makes a client that connects once.
func (c *client) Open() lockproxy.Conn {
	opt := *c.rdb.Options()
	own := &conn{dialer: opt.Dialer, closed: make(chan struct{})}
	opt.Dialer = own.dial
	opt.DialerRetries, opt.MaxRetries = 1, -1
	opt.PoolSize, opt.MinIdleConns, opt.MaxIdleConns, opt.MaxActiveConns, opt.PipelinePoolSize = 1, 0, 0, 0, -1
	opt.ConnMaxIdleTime, opt.ConnMaxLifetime, opt.ConnMaxLifetimeJitter = -1, 0, 0
	opt.ReadTimeout, opt.WriteTimeout, opt.ContextTimeoutEnabled = -1, -1, true // the deadlines are those of contexts
	opt.PushNotificationProcessor, opt.ClientSideCache, opt.ClientSideCacheConfig = nil, nil, nil
	opt.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	own.rdb = redis.NewClient(&opt)
	return own
}

// A conn is a client with one connection, which is read all the time: go-redis reads only while a command waits for
// its answer, and would not notice the end.
type conn struct {
	rdb    *redis.Client
	dialer func(ctx context.Context, network, addr string) (net.Conn, error)
	dialed atomic.Bool
	closed chan struct{}
}

func (c *conn) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if c.dialed.Swap(true) {
		return nil, net.ErrClosed // another connection would not have the lock
	}
	far, err := c.dialer(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	near, middle := net.Pipe()
	go func() {
		_, _ = io.Copy(far, middle)
		_ = far.Close()
	}()
	go func() {
		_, _ = io.Copy(middle, far)
		close(c.closed)
		_ = middle.Close()
		_ = far.Close()
	}()
	return near, nil
}

func (c *conn) Do(ctx context.Context, args ...string) (any, error) { return do(ctx, c.rdb, args) }

func (c *conn) Closed() <-chan struct{} { return c.closed }

func (c *conn) Close() { _ = c.rdb.Close() }
