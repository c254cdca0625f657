// Package client takes and gives back locks of lockproxy with go-redis, over connections
// that break. It is there to be copied, not imported.
package client

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Lock is ours until Until, unless it is released before. Fence grows with every holder.
type Lock struct {
	rdb         *redis.Client
	name, owner string
	Fence       int64
	Until       time.Time
}

// pause is before a command that failed is sent again.
const pause = 100 * time.Millisecond

// Acquire waits for the name until ctx ends. A command that may have been executed is sent
// again under the same REQ, so that it counts once.
func Acquire(ctx context.Context, rdb *redis.Client, name string, ttl time.Duration) (*Lock, error) {
	l := &Lock{rdb: rdb, name: name, owner: rand.Text()}
	wait := rdb.Options().ReadTimeout / 2 // a reply later than the timeout would look like a lost one
	for {
		asked := time.Now()
		reply, err := rdb.Do(ctx, "LOCK", name, ttl.Milliseconds(), "OWNER", l.owner, "REQ", l.owner, "WAIT", wait.Milliseconds()).Slice()
		if err == nil {
			l.Fence, l.Until = reply[0].(int64), asked.Add(time.Duration(reply[2].(int64))*time.Millisecond)
			if time.Now().Before(l.Until) {
				return l, nil
			}
			continue // it took so long that the lease is over
		}
		if ctx.Err() != nil || !again(err) {
			_ = l.unlock(context.WithoutCancel(ctx)) // it may be granted, and the reply lost
			return nil, err
		}
		if !errors.Is(err, redis.Nil) {
			time.Sleep(pause)
		}
	}
}

// Release gives the lock back. An error that begins with LOCKLOST or NOTOWNER says that it
// was lost before.
func (l *Lock) Release() error {
	err := l.unlock(context.Background())
	for err != nil && again(err) && time.Now().Before(l.Until) {
		time.Sleep(pause)
		err = l.unlock(context.Background())
	}
	return err
}

func (l *Lock) unlock(ctx context.Context) error {
	return l.rdb.Do(ctx, "UNLOCK", l.name, l.owner, "REQ", l.owner).Err()
}

// again reports whether the same command may do better: the name is held, the connection
// was lost, the proxy shuts down, or too few lock nodes answered.
func again(err error) bool {
	var answer redis.Error
	return errors.Is(err, redis.Nil) || !errors.As(err, &answer) ||
		strings.HasPrefix(err.Error(), "DRAINING") || strings.HasPrefix(err.Error(), "NOQUORUM")
}
