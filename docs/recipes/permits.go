package recipes

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// Limited runs do, while at most k that call it with this name are at it, in whichever process. It waits for its turn as long as
// wait says, or returns a *Held. The context of do ends before the permit does.
func Limited(ctx context.Context, rdb *redis.Client, name string, k int, ttl, wait time.Duration, do func(context.Context) error) error {
	g, err := Lock(ctx, rdb, name, ttl, wait, "PERMITS", k)
	if err != nil {
		return err
	}
	permit := Reading{*g} // it is given back as a reader's lock is
	defer permit.Unlock(ctx)
	within, cancel := context.WithTimeout(ctx, ttl*9/10) // the lease began before we heard of it
	defer cancel()
	return do(within)
}
