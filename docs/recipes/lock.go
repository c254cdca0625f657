// Package recipes is the code of docs/recipes.md, which the tests of lockproxy run.
// It is there to be copied, not imported.
package recipes

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Held is the answer when somebody else has the lock.
type Held struct {
	Name      string
	Remaining time.Duration // of the holder's lease
}

func (e *Held) Error() string { return fmt.Sprintf("%s is held for %v", e.Name, e.Remaining) }

// ErrStale is the answer to a holder whose lock somebody else has had since.
var ErrStale = errors.New("stale: there has been a later holder")

// A Grant is a lock that we have.
type Grant struct {
	Redis       *redis.Client
	Name, Owner string
	Fence       int64
}

// Lock takes the name, waiting for it as long as wait says, or returns a *Held.
func Lock(ctx context.Context, rdb *redis.Client, name string, ttl, wait time.Duration, options ...any) (*Grant, error) {
	owner := rand.Text()
	command := []any{"LOCK", name, ttl.Milliseconds(), "OWNER", owner,
		"WAIT", wait.Milliseconds(), "REQ", owner, "RETRYAFTER"}
	reply, err := rdb.Do(ctx, append(command, options...)...).Slice()
	if err != nil {
		return nil, err
	}
	if fence := reply[0].(int64); fence > 0 {
		return &Grant{Redis: rdb, Name: name, Owner: owner, Fence: fence}, nil
	}
	return nil, &Held{Name: name, Remaining: time.Duration(reply[2].(int64)) * time.Millisecond}
}

// Unlock gives exactly this grant back, also when ctx has ended.
func (g *Grant) Unlock(ctx context.Context) error {
	return g.Redis.Do(context.WithoutCancel(ctx), "UNLOCK", g.Name, g.Owner, "FENCE", g.Fence).Err()
}
