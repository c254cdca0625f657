package goredis

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// An existingLock is lock code as programs have it, for one lock. release may be called again after an error.
type existingLock struct {
	name    string
	words   string // of the pattern
	acquire func(context.Context, *redis.Client, string) (bool, error)
	release func(context.Context, *redis.Client, string) error
}

// updateLease is longer than a test takes, so that no update is lost because a machine is busy.
const updateLease = 50 * time.Second

var existingLocks = []existingLock{
	{
		"SET NX and compare-and-delete", "",
		func(ctx context.Context, c *redis.Client, value string) (bool, error) {
			return c.SetNX(ctx, "lock:counter", value, updateLease).Result()
		},
		func(ctx context.Context, c *redis.Client, value string) error {
			return redis.NewScript(redistest.CompareAndDelete).Run(ctx, c, []string{"lock:counter"}, value).Err()
		},
	},
	{
		"a constant value", "",
		func(ctx context.Context, c *redis.Client, _ string) (bool, error) {
			return c.SetNX(ctx, "lock:counter", "1", updateLease).Result()
		},
		func(ctx context.Context, c *redis.Client, _ string) error {
			return redis.NewScript(redistest.CompareAndDelete).Run(ctx, c, []string{"lock:counter"}, "1").Err()
		},
	},
	{
		"SETNX, EXPIRE and DEL", "no-expiry=lease:60s",
		func(ctx context.Context, c *redis.Client, value string) (bool, error) {
			taken, err := c.SetNX(ctx, "lock:counter", value, 0).Result()
			if err == nil && taken {
				_ = c.Expire(ctx, "lock:counter", updateLease) // not moved, it ends after no-expiry's lease
			}
			return taken, err
		},
		func(ctx context.Context, c *redis.Client, _ string) error {
			return c.Del(ctx, "lock:counter").Err()
		},
	},
	{
		"SET NX, and WATCH, GET, MULTI, DEL, EXEC", "",
		func(ctx context.Context, c *redis.Client, value string) (bool, error) {
			return c.SetNX(ctx, "lock:counter", value, updateLease).Result()
		},
		func(ctx context.Context, c *redis.Client, value string) error {
			return c.Watch(ctx, func(tx *redis.Tx) error {
				if has, err := tx.Get(ctx, "lock:counter").Result(); errors.Is(err, redis.Nil) || err == nil && has != value {
					return nil // a try before has released it
				} else if err != nil {
					return err
				}
				_, err := tx.TxPipelined(ctx, func(p redis.Pipeliner) error { return p.Del(ctx, "lock:counter").Err() })
				return err
			}, "lock:counter")
		},
	},
	{
		"SETNX, GET and GETSET of a deadline, and DEL", "timestamps=ms",
		func(ctx context.Context, c *redis.Client, _ string) (bool, error) {
			now := time.Now().UnixMilli()
			deadline := now + updateLease.Milliseconds()
			taken, err := c.SetNX(ctx, "lock:counter", deadline, 0).Result()
			if err != nil || taken {
				return taken, err
			}
			if until, err := c.Get(ctx, "lock:counter").Int64(); err != nil && !errors.Is(err, redis.Nil) || until > now {
				return false, err
			}
			until, err := c.Do(ctx, "GETSET", "lock:counter", deadline).Int64()
			if errors.Is(err, redis.Nil) {
				err = nil
			}
			return err == nil && until <= now, err
		},
		func(ctx context.Context, c *redis.Client, _ string) error {
			return c.Del(ctx, "lock:counter").Err()
		},
	},
}

// updates starts so many requests at once, each of which takes the lock through one of the clients, reads a counter,
// adds one and writes it back. done is called with how many are. It returns the counter.
func updates(t *testing.T, data *redis.Client, clients []*redis.Client, n int, l existingLock, done func(int64)) (counter int) {
	t.Helper()
	// A lease may have to end by itself: if all its nodes but fewer than a quorum are killed, and the others never had it, nobody
	// can tell whether it is held, and programs that read before they release cannot release.
	ctx, cancel := context.WithTimeout(t.Context(), 2*updateLease+20*time.Second)
	defer cancel()
	if err := data.Set(ctx, "counter", 0, 0).Err(); err != nil {
		t.Fatal(err)
	}
	var ended atomic.Int64
	var all sync.WaitGroup
	for i := range n {
		c, value := clients[i%len(clients)], "request-"+strconv.Itoa(i)
		all.Go(func() {
			for taken, err := l.acquire(ctx, c, value); !taken; taken, err = l.acquire(ctx, c, value) {
				if few := (redis.Error)(nil); err != nil && !errors.As(err, &few) || ctx.Err() != nil {
					t.Errorf("%s: %v", value, errors.Join(err, ctx.Err()))
					return
				}
				time.Sleep(50*time.Millisecond + rand.N(100*time.Millisecond)) // held, or too few nodes voted in time
			}
			was, err := data.Get(ctx, "counter").Int()
			if err == nil {
				err = data.Set(ctx, "counter", was+1, 0).Err()
			}
			if err != nil {
				t.Errorf("%s: %v", value, err)
			}
			for l.release(ctx, c, value) != nil && ctx.Err() == nil {
				time.Sleep(10 * time.Millisecond)
			}
			done(ended.Add(1))
		})
	}
	all.Wait()
	counter, err := data.Get(t.Context(), "counter").Int()
	if err != nil {
		t.Fatal(err)
	}
	return counter
}

func goRedis(t *testing.T, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 350, PoolTimeout: time.Minute, ReadTimeout: time.Minute, MaxRetries: -1})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// TestAdopt_NoUpdateIsLost: lock code that is there already, through two proxies, while two of five lock nodes are
// killed.
func TestAdopt_NoUpdateIsLost(t *testing.T) {
	for i, l := range existingLocks {
		n := 666
		if testing.Short() || i > 0 {
			n = 222
		}
		t.Run(l.name, func(t *testing.T) {
			r := redistest.StartRig(t, 5, 2, "--adopt", "lock:* "+l.words)
			clients := []*redis.Client{goRedis(t, r.Proxies[0].Addr()), goRedis(t, r.Proxies[1].Addr())}
			got := updates(t, goRedis(t, r.Data.Addr()), clients, n, l, func(done int64) {
				if done == int64(n/3) {
					r.Nodes[0].Kill()
					r.Nodes[3].Kill()
				}
			})
			if got != n {
				t.Errorf("%d of %d updates", got, n)
			}
			if calls := r.Data.Calls(t, "setnx") + r.Data.Calls(t, "eval") + r.Data.Calls(t, "evalsha") + r.Data.Calls(t, "del"); calls != 0 {
				t.Errorf("the upstream got %d commands on the lock", calls)
			}
		})
	}
}

// TestAdopt_UpdatesAreLostBesideOthers: beside programs that take the lock at the upstream, and without the guard,
// updates are lost. So the test above would notice.
func TestAdopt_UpdatesAreLostBesideOthers(t *testing.T) {
	t.Parallel()
	data := redistest.Start(t)
	p := redistest.StartProxy(t, data, redistest.StartNodes(t, 3), "--adopt", "lock:* guard=no")
	direct := goRedis(t, data.Addr())
	const n = 200
	if got := updates(t, direct, []*redis.Client{direct, goRedis(t, p.Addr())}, n, existingLocks[0], func(int64) {}); got >= n {
		t.Errorf("%d of %d updates, though two decide", got, n)
	}
}
