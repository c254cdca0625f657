package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"strings"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	redsyncredis "github.com/go-redsync/redsync/v4/redis"
)

// lease is what every lock of a run asks for.
const lease = 8 * time.Second

func dial(addr string, pool int) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, PoolSize: pool, MinIdleConns: pool, PoolTimeout: time.Minute, ReadTimeout: time.Minute, MaxRetries: -1})
}

// A client of lockproxy has a connection of its own.
type client struct {
	redis *redis.Client
	name  string
}

// proxied spreads the contenders evenly over the proxies at addrs.
func proxied(addrs []string, name string, n int) (all []contender, err error) {
	for i := range n {
		all = append(all, &client{redis: dial(addrs[i%len(addrs)], 1), name: name})
	}
	return all, nil
}

func (c *client) acquire(ctx context.Context) (func() error, error) {
	owner := rand.Text()
	err := c.redis.Do(ctx, "LOCK", c.name, lease.Milliseconds(), "OWNER", owner, "WAIT", "30s").Err()
	if errors.Is(err, redis.Nil) || err != nil && strings.HasPrefix(err.Error(), "NOQUORUM ") {
		return nil, fmt.Errorf("%w: %w", errRetry, err)
	}
	return func() error { return c.redis.Do(ctx, "UNLOCK", c.name, owner).Err() }, err
}

// redsync

type mutex struct{ fresh func() *redsync.Mutex }

func mutexes(addrs []string, name string, n int, options ...redsync.Option) (all []contender, err error) {
	var pools []redsyncredis.Pool
	for _, a := range addrs {
		pools = append(pools, goredis.NewPool(dial(a, n)))
	}
	rs := redsync.New(pools...)
	for range n {
		all = append(all, mutex{func() *redsync.Mutex { return rs.NewMutex(name, options...) }})
	}
	return all, nil
}

func redsyncDefault(addrs []string, name string, n int) ([]contender, error) {
	return mutexes(addrs, name, n)
}

func redsyncTuned(addrs []string, name string, n int) ([]contender, error) {
	return mutexes(addrs, name, n, redsync.WithRetryDelayFunc(func(int) time.Duration {
		return time.Millisecond + mathrand.N(9*time.Millisecond)
	}))
}

func (m mutex) acquire(ctx context.Context) (func() error, error) {
	mu := m.fresh()
	var taken *redsync.ErrTaken
	switch err := mu.LockContext(ctx); {
	case errors.Is(err, redsync.ErrFailed) || errors.As(err, &taken):
		return nil, fmt.Errorf("%w: %w", errRetry, err)
	case err != nil:
		return nil, err
	}
	return func() error { _, err := mu.UnlockContext(ctx); return err }, nil
}

// redislock, which knows one master

type obtainer struct {
	client *redislock.Client
	name   string
	every  time.Duration // between tries
}

func obtainers(addrs []string, name string, n int, every time.Duration) (all []contender, err error) {
	c := redislock.New(dial(addrs[0], n))
	for range n {
		all = append(all, obtainer{c, name, every})
	}
	return all, nil
}

// redislockExample waits between tries as the example in its documentation does; by
// default it does not try again.
func redislockExample(addrs []string, name string, n int) ([]contender, error) {
	return obtainers(addrs, name, n, 100*time.Millisecond)
}

func redislockTuned(addrs []string, name string, n int) ([]contender, error) {
	return obtainers(addrs, name, n, 5*time.Millisecond)
}

func (o obtainer) acquire(ctx context.Context) (func() error, error) {
	l, err := o.client.Obtain(ctx, o.name, lease, &redislock.Options{RetryStrategy: redislock.LinearBackoff(o.every)})
	if errors.Is(err, redislock.ErrNotObtained) || errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("%w: %w", errRetry, err)
	}
	if err != nil {
		return nil, err
	}
	return func() error { return l.Release(ctx) }, nil
}

// rueidislock, which takes 2·KeyMajority-1 keys of what it believes to be one server

type withContext struct {
	locker rueidislock.Locker
	name   string
}

// newLocker puts each of the keys on a master of its own.
func newLocker(addrs []string, noLoop bool) (rueidislock.Locker, error) {
	return rueidislock.NewLocker(rueidislock.LockerOption{
		KeyMajority: int32(len(addrs)/2 + 1), KeyValidity: lease, NoLoopTracking: noLoop,
		ClientOption: rueidis.ClientOption{InitAddress: addrs},
		ClientBuilder: func(o rueidis.ClientOption) (rueidis.Client, error) {
			s := &spread{}
			for _, a := range addrs {
				o.InitAddress, o.ForceSingleClient = []string{a}, true
				c, err := rueidis.NewClient(o)
				if err != nil {
					return nil, err
				}
				s.Client, s.all = c, append(s.all, c)
			}
			return s, nil
		},
	})
}

// A spread sends a command on rueidislock's i-th key to the i-th server.
type spread struct {
	rueidis.Client
	all []rueidis.Client
}

func (s *spread) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	var i int // EVAL script 1 rueidislock:i:name
	if args := cmd.Commands(); len(args) < 4 {
		return rueidis.NewErrorResult(fmt.Errorf("where does %q go?", args))
	} else if _, err := fmt.Sscanf(args[3], "rueidislock:%d:", &i); err != nil {
		return rueidis.NewErrorResult(err)
	}
	return s.all[i].Do(ctx, cmd)
}

func lockers(addrs []string, name string, n, each int, noLoop bool) (all []contender, err error) {
	for len(all) < n {
		l, err := newLocker(addrs, noLoop)
		if err != nil {
			return nil, err
		}
		for range each {
			all = append(all, withContext{l, name})
		}
	}
	return all, nil
}

// rueidislockDefault has one Locker for all.
func rueidislockDefault(addrs []string, name string, n int) ([]contender, error) {
	return lockers(addrs, name, n, n, false)
}

// rueidislockNoLoop sets what its documentation recommends for Redis 7.0.5 and later.
func rueidislockNoLoop(addrs []string, name string, n int) ([]contender, error) {
	return lockers(addrs, name, n, n, true)
}

// rueidislockLockers has a Locker for each contender, as processes of their own would.
func rueidislockLockers(addrs []string, name string, n int) ([]contender, error) {
	return lockers(addrs, name, n, 1, true)
}

func (w withContext) acquire(ctx context.Context) (func() error, error) {
	_, cancel, err := w.locker.WithContext(ctx, w.name)
	return func() error { cancel(); return nil }, err
}
