package lockgoredis_test

import (
	"context"
	"errors"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	lockproxy "github.com/lockproxy/lockproxy/clients/go"
	"github.com/lockproxy/lockproxy/clients/go/lockgoredis"
)

func Example() {
	ctx := context.Background()
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6380"}) // of a lockproxy
	locks := lockgoredis.New(rdb)
	err := locks.Do(ctx, "job", lockproxy.Options{Wait: 10 * time.Second}, func(ctx context.Context, lock *lockproxy.Lock) error {
		return work(ctx, lock.Fence) // ctx ends when the lock is lost
	})
	if errors.Is(err, lockproxy.ErrNotAcquired) {
		log.Print("somebody else is at it")
	}
}

func Example_acquire() {
	ctx := context.Background()
	locks := lockgoredis.New(redis.NewClient(&redis.Options{Addr: "localhost:6380"}))
	lock, err := locks.Acquire(ctx, "job", lockproxy.Options{Session: true})
	if err != nil {
		log.Fatal(err)
	}
	select {
	case <-lock.Lost():
		log.Print(lock.Err())
	case <-worked(lock.Fence):
	}
	if err := lock.Release(ctx); err != nil {
		log.Print(err)
	}
}

func Example_several() {
	ctx := context.Background()
	locks := lockgoredis.New(redis.NewClient(&redis.Options{Addr: "localhost:6380"}))
	err := locks.DoAll(ctx, []string{"account:7", "account:9"}, lockproxy.Options{Wait: 10 * time.Second}, func(ctx context.Context, lock *lockproxy.Lock) error {
		return transfer(ctx, lock.Fences["account:7"], lock.Fences["account:9"])
	})
	if err != nil {
		log.Print(err)
	}
}

func work(context.Context, int64) error { return nil }

func worked(int64) <-chan struct{} { return nil }

func transfer(context.Context, int64, int64) error { return nil }
