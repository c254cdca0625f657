package locks_test

import (
	"context"
	"fmt"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/memstore"
)

func Example() {
	s, err := locks.New(memstore.New(time.Minute, nil), locks.Options{}) // a proxy has a quorum.Store
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()

	job := locks.Key{Name: "job"}
	first, _ := s.Lock(ctx, locks.LockRequest{Key: job, Owner: "a", TTL: time.Minute})
	fmt.Println("a:", first.Granted)
	second, _ := s.Lock(ctx, locks.LockRequest{Key: job, Owner: "b", TTL: time.Minute})
	fmt.Println("b:", second.Granted, "as it is held by", second.Holder)

	left, _ := s.Unlock(ctx, locks.UnlockRequest{Key: job, Owner: "a"})
	fmt.Println("a gave it back, holds left:", left)
	third, _ := s.Lock(ctx, locks.LockRequest{Key: job, Owner: "b", TTL: time.Minute, Wait: time.Second})
	fmt.Println("b:", third.Granted, "with a larger fence:", third.Grant.Fence > first.Grant.Fence)

	stop()
	fmt.Println(<-ended)
	// Output:
	// a: true
	// b: false as it is held by a
	// a gave it back, holds left: 0
	// b: true with a larger fence: true
	// <nil>
}
