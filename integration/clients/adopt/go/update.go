// Command update counts under a lock: see package clients.
package main

import (
	"cmp"
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
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
	"github.com/zeromicro/go-zero/core/logx"
	gozero "github.com/zeromicro/go-zero/core/stores/redis"
)

// ttl is that of locks, in LEASE.
var ttl = func() time.Duration {
	seconds, err := strconv.Atoi(cmp.Or(os.Getenv("LEASE"), "10"))
	if err != nil {
		panic(err)
	}
	return time.Duration(seconds) * time.Second
}()

const (
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
	"go-zero": func(r *redis.Client) func(context.Context) (func() error, error) {
		logx.Disable()
		// Errors open its circuit breaker: of commands that this server does not know, as its documentation says, and
		// a burst of NOSCRIPT. So one lock makes its scripts known before the others come.
		store := gozero.MustNewRedis(gozero.RedisConf{Host: r.Options().Addr, Type: gozero.NodeType, DisableIdentity: true, MaintNotifications: "disabled"})
		first := gozero.NewRedisLock(store, fmt.Sprint("lock:first of ", os.Getpid()))
		first.SetExpire(1)
		_, _ = first.Acquire()
		_, _ = first.Release()
		return func(ctx context.Context) (func() error, error) {
			l := gozero.NewRedisLock(store, "lock:go-zero")
			l.SetExpire(int(ttl.Seconds()))
			release := func() error {
				ok, err := l.ReleaseCtx(ctx)
				if err == nil && !ok {
					err = fmt.Errorf("the lock was not held any more")
				}
				return err
			}
			for {
				if ok, err := l.AcquireCtx(ctx); ok || err != nil {
					return release, err
				}
				select {
				case <-time.After(pause):
				case <-ctx.Done():
					return release, ctx.Err()
				}
			}
		}
	},
	// Without its cache: reads of locks are refused while CLIENT TRACKING is on. It has a second for each of three keys.
	"rueidislock": func(r *redis.Client) func(context.Context) (func() error, error) {
		locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
			KeyPrefix:    "lock",
			KeyValidity:  ttl,
			TryNextAfter: time.Second,
			ClientOption: rueidis.ClientOption{InitAddress: []string{r.Options().Addr}, DisableCache: true},
		})
		return func(ctx context.Context) (func() error, error) {
			if err != nil {
				return nil, err
			}
			held, release, err := locker.WithContext(ctx, "rueidislock")
			return func() error {
				err := context.Cause(held)
				release()
				return err
			}, err
		}
	},
}

func main() {
	updates, err := strconv.Atoi(os.Getenv("UPDATES"))
	if err != nil || len(os.Args) != 2 || kinds[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: REDIS=host:port UPDATES=n update redsync|redislock|go-zero|rueidislock")
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
	if os.Getenv("HOLD") != "" {
		fmt.Println("held")
		var line string
		fmt.Scanln(&line)
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
