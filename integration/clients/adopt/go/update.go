// Command update counts under a lock: see package clients.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

const (
	ttl      = 10 * time.Second
	pause    = 500 * time.Millisecond // between two tries to take a lock
	patience = 10 * time.Minute
)

// kinds take a lock and return what gives it back.
var kinds = map[string]func(*redis.Client) func(context.Context) (release func() error, err error){
	"redsync": func(r *redis.Client) func(context.Context) (func() error, error) {
		rs := redsync.New(goredis.NewPool(r))
		return func(ctx context.Context) (func() error, error) {
			m := rs.NewMutex("lock:redsync", redsync.WithExpiry(ttl), redsync.WithTries(1_000_000), redsync.WithRetryDelay(pause))
			release := func() error {
				ok, err := m.UnlockContext(ctx)
				if err == nil && !ok {
					err = fmt.Errorf("the lock was not held any more")
				}
				return err
			}
			return release, m.LockContext(ctx)
		}
	},
	"redislock": func(r *redis.Client) func(context.Context) (func() error, error) {
		locker := redislock.New(r)
		return func(ctx context.Context) (func() error, error) {
			l, err := locker.Obtain(ctx, "lock:redislock", ttl, &redislock.Options{RetryStrategy: redislock.LinearBackoff(pause)})
			return func() error { return l.Release(ctx) }, err
		}
	},
}

func main() {
	updates, err := strconv.Atoi(os.Getenv("UPDATES"))
	if err != nil || len(os.Args) != 2 || kinds[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: REDIS=host:port UPDATES=n update redsync|redislock")
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r := redis.NewClient(&redis.Options{Addr: os.Getenv("REDIS"), PoolSize: updates, ReadTimeout: time.Minute})
	acquire := kinds[os.Args[1]](r)
	if err := r.Ping(ctx).Err(); err != nil {
		fmt.Println("failed:", err)
		return
	}
	fmt.Println("ready")
	var line string
	fmt.Scanln(&line)
	var wg sync.WaitGroup
	errs := make(chan error, updates)
	for range updates {
		wg.Go(func() { errs <- update(ctx, r, acquire) })
	}
	wg.Wait()
	close(errs)
	done := 0
	for err := range errs {
		if err == nil {
			done++
		} else {
			fmt.Println("failed:", err)
		}
	}
	fmt.Println("done", done)
}

func update(ctx context.Context, r *redis.Client, acquire func(context.Context) (func() error, error)) error {
	release, err := acquire(ctx)
	if err != nil {
		return fmt.Errorf("taking the lock: %w", err)
	}
	n, err := r.Get(ctx, "counter").Int()
	if err == nil {
		err = r.Set(ctx, "counter", n+1, 0).Err()
	}
	if e := release(); err == nil && e != nil {
		err = fmt.Errorf("giving the lock back: %w", e)
	}
	return err
}
