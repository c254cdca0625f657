package lockrueidis_test

import (
	"context"
	"crypto/tls"
	"log"
	"net"
	"time"

	"github.com/redis/rueidis"

	lockproxy "github.com/lockproxy/lockproxy/clients/go"
	"github.com/lockproxy/lockproxy/clients/go/lockrueidis"
)

func Example() {
	ctx := context.Background()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{"localhost:6380"}}) // a lockproxy
	if err != nil {
		log.Fatal(err)
	}
	locks := lockrueidis.New(client)
	err = locks.Do(ctx, "job", lockproxy.Options{Wait: 10 * time.Second}, func(ctx context.Context, lock *lockproxy.Lock) error {
		return work(ctx, lock.Fence) // ctx ends when the lock is lost
	})
	if err != nil {
		log.Print(err)
	}
}

func Example_severalProxies() {
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress:       []string{"lockproxy:6380"}, // only a name
		ForceSingleClient: true,
		DialCtxFn: func(ctx context.Context, _ string, d *net.Dialer, _ *tls.Config) (c net.Conn, err error) {
			for _, addr := range []string{"proxy-1:6380", "proxy-2:6380"} {
				if c, err = d.DialContext(ctx, "tcp", addr); err == nil {
					break
				}
			}
			return c, err
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	client.Close()
}

func work(context.Context, int64) error { return nil }
