package recipes

import (
	"context"
	_ "embed"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Reading is a lock by which we read, as others may at the same time.
type Reading struct{ Grant }

// LockShared takes the name to read, waiting for it as long as wait says, or returns a *Held.
func LockShared(ctx context.Context, rdb *redis.Client, name string, ttl, wait time.Duration) (*Reading, error) {
	g, err := Lock(ctx, rdb, name, ttl, wait, "SHARED")
	if err != nil {
		return nil, err
	}
	return &Reading{*g}, nil
}

// Unlock gives exactly this grant back, also when ctx has ended.
func (r *Reading) Unlock(ctx context.Context) error {
	return r.Redis.Do(context.WithoutCancel(ctx), "UNLOCK", r.Name, r.Owner, "SHARED", "FENCE", r.Fence).Err()
}

//go:embed read.lua
var readLua string

//go:embed write.lua
var writeLua string

var read, write = redis.NewScript(readLua), redis.NewScript(writeLua)

// Get reads a field of what the lock protects, or returns ErrStale.
func (r *Reading) Get(ctx context.Context, key, field string) (string, error) {
	reply, err := read.Run(ctx, r.Redis, []string{key}, r.Fence, field).Slice()
	if err != nil {
		return "", err
	}
	if reply[0].(int64) == 0 {
		return "", ErrStale
	}
	if value, ok := reply[1].(string); ok {
		return value, nil
	}
	return "", errors.New("there is no " + field)
}

// Put writes a field of what the lock protects, on behalf of a writer, or returns ErrStale.
func (g *Grant) Put(ctx context.Context, key, field, value string) error {
	n, err := write.Run(ctx, g.Redis, []string{key}, g.Fence, field, value).Int()
	if err == nil && n == 0 {
		err = ErrStale
	}
	return err
}
