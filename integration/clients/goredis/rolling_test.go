package goredis

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// rollsVariable is the environment variable that says how often TestRollingRestart
// restarts proxies, if not 4 times.
const rollsVariable = "LOCKPROXY_TEST_ROLLS"

// A crowd is clients that go on with ordinary commands until it is told to go home.
// They are go-redis with its default retries, which sends a command again when its
// connection ended before the reply: so each counts what it did, and a command that was
// executed twice, or not at all, shows.
type crowd struct {
	t    *testing.T
	rdb  *redis.Client
	home chan struct{} // closed: go home
	busy sync.WaitGroup
	told atomic.Int64 // LOCKs that were ended with DRAINING
	done atomic.Int64 // commands, a pipeline being one
	slow atomic.Int64 // the longest that one took of those who take no rest, in ns
}

// member is one client of the crowd, which takes step after step, with a rest before each.
func (c *crowd) member(name string, rest time.Duration, step func(ctx context.Context, n int64) error) {
	c.busy.Go(func() {
		for n := int64(1); ; n++ {
			select {
			case <-c.home:
				return
			default:
			}
			time.Sleep(rest)
			began := time.Now()
			if err := step(context.Background(), n); err != nil {
				c.t.Errorf("%s, step %d: %v", name, n, err)
				return
			}
			c.done.Add(1)
			if rest > 0 {
				continue
			}
			for took, most := int64(time.Since(began)), c.slow.Load(); took > most && !c.slow.CompareAndSwap(most, took); most = c.slow.Load() {
			}
		}
	})
}

// wantCount is an error unless a counter is where its only user left it.
func wantCount(got *redis.IntCmd, n int64) error {
	if got.Err() == nil && got.Val() != n {
		return fmt.Errorf("%v is %d, not %d: a command was executed twice, or not at all", got.Args(), got.Val(), n)
	}
	return got.Err()
}

// counts increments a counter of its own.
func (c *crowd) counts(key string) {
	c.member(key, 0, func(ctx context.Context, n int64) error { return wantCount(c.rdb.Incr(ctx, key), n) })
}

// writes sets a key and reads it back; size makes values that come in many segments.
func (c *crowd) writes(key string, size int) {
	c.member(key, 0, func(ctx context.Context, n int64) error {
		value := strconv.FormatInt(n, 10) + ":" + strings.Repeat("x", size)
		if err := c.rdb.Set(ctx, key, value, 0).Err(); err != nil {
			return err
		}
		got, err := c.rdb.Get(ctx, key).Result()
		if err == nil && got != value {
			err = fmt.Errorf("%s is %.20q, not %.20q", key, got, value)
		}
		return err
	})
}

// several increments a counter by a pipeline or a transaction of depth commands.
func (c *crowd) several(key string, depth int64, run func(context.Context, func(redis.Pipeliner) error) ([]redis.Cmder, error)) {
	padding := bytes.Repeat([]byte("x"), 300)
	c.member(key, 0, func(ctx context.Context, n int64) error {
		var counts []*redis.IntCmd
		_, err := run(ctx, func(p redis.Pipeliner) error {
			counts = nil
			for range depth {
				counts = append(counts, p.Incr(ctx, key))
				p.Set(ctx, key+":padding", padding, 0)
			}
			return nil
		})
		for i, count := range counts {
			if err == nil {
				err = wantCount(count, (n-1)*depth+int64(i)+1)
			}
		}
		return err
	})
}

// passes has one client put numbers into a list and another one take them out, waiting
// for each. It returns when the crowd has gone home and the list is empty.
func (c *crowd) passes(key string, rest time.Duration) {
	var put atomic.Int64
	c.member(key, rest, func(ctx context.Context, n int64) error {
		put.Store(n)
		return c.rdb.RPush(ctx, key, n).Err()
	})
	c.busy.Go(func() {
		for n := int64(1); ; {
			got, err := c.rdb.BLPop(context.Background(), time.Second, key).Result()
			switch {
			case err == redis.Nil:
				if c.over() && n > put.Load() {
					return
				}
			case err != nil:
				c.t.Errorf("BLPOP: %v", err)
				return
			case got[1] != strconv.FormatInt(n, 10):
				c.t.Errorf("BLPOP %s took %s, not %d: one was lost, or put twice", key, got[1], n)
				return
			default:
				n++
			}
		}
	})
}

// adds counts in two steps, which would lose counts without the lock. A LOCK that is ended
// because its proxy ends is asked again, and goes to another one. UNLOCK names the hold by the REQ of its LOCK: without that it
// would be the one taken last, which may be what an ended LOCK is about to give back.
func (c *crowd) adds(name, owner string, total *atomic.Int64) {
	c.member(owner, 5*time.Millisecond, func(ctx context.Context, n int64) error {
		var req string
		for again := 0; ; again++ {
			req = fmt.Sprint(owner, ":", n, ":", again)
			err := c.rdb.Do(ctx, "LOCK", name, "60s", "OWNER", owner, "WAIT", "50s", "REQ", req).Err()
			if err == nil {
				break
			}
			if !strings.HasPrefix(err.Error(), "DRAINING ") {
				return err
			}
			c.told.Add(1)
			time.Sleep(20 * time.Millisecond)
		}
		sum, err := c.rdb.Get(ctx, name).Int64()
		if err != nil && err != redis.Nil {
			return err
		}
		if err := c.rdb.Set(ctx, name, sum+1, 0).Err(); err != nil {
			return err
		}
		if want := total.Add(1); sum+1 != want {
			return fmt.Errorf("the sum is %d, not %d: two had the lock at once", sum+1, want)
		}
		return c.rdb.Do(ctx, "UNLOCK", name, owner, "REQ", req).Err()
	})
}

func (c *crowd) over() bool {
	select {
	case <-c.home:
		return true
	default:
		return false
	}
}

// dialEither is a dialer that takes the proxies in turn, and the other one when one is
// down, as a load balancer does.
func dialEither(proxies []*redistest.Proxy) func(context.Context, string, string) (net.Conn, error) {
	var turn atomic.Uint64
	return func(ctx context.Context, _, _ string) (nc net.Conn, err error) {
		for range proxies {
			addr := proxies[turn.Add(1)%uint64(len(proxies))].Addr()
			if nc, err = new(net.Dialer).DialContext(ctx, "tcp", addr); err == nil {
				return nc, nil
			}
		}
		return nil, err
	}
}

// gather starts a crowd of all kinds.
func gather(t *testing.T, dial func(context.Context, string, string) (net.Conn, error)) *crowd {
	// A reply that is late on a busy machine is not to be asked for twice.
	rdb := redis.NewClient(&redis.Options{Dialer: dial, PoolSize: 40, PoolTimeout: time.Minute, ReadTimeout: time.Minute, WriteTimeout: time.Minute})
	t.Cleanup(func() { rdb.Close() })
	c := &crowd{t: t, rdb: rdb, home: make(chan struct{})}
	for i := range 4 {
		c.counts(fmt.Sprint("count:", i))
		c.several(fmt.Sprint("pipeline:", i), 50, rdb.Pipelined)
	}
	c.several("transaction", 5, func(ctx context.Context, fill func(redis.Pipeliner) error) (cmds []redis.Cmder, err error) {
		for range 4 { // go-redis leaves it to its user to send a transaction again
			p := rdb.TxPipeline()
			if err = fill(p); err != nil {
				return nil, err
			}
			if cmds, err = p.Exec(ctx); err == nil {
				break
			}
		}
		return cmds, err
	})
	c.writes("small", 10)
	c.writes("large", 300<<10)
	var sum atomic.Int64
	for i := range 3 {
		c.adds("sum", fmt.Sprint("worker:", i), &sum)
	}
	c.passes("list", 3*time.Millisecond)
	c.passes("rare", 700*time.Millisecond)
	return c
}

// goHome ends the crowd.
func (c *crowd) goHome() {
	close(c.home)
	c.busy.Wait()
}

// rolls is how often proxies are to be restarted.
func rolls(t *testing.T) int {
	n := 4
	if text := os.Getenv(rollsVariable); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// TestRollingRestart: while one proxy after the other is told to end and started again,
// no ordinary command of a client that sends again what was not answered fails, and none
// is executed twice.
func TestRollingRestart(t *testing.T) {
	r := redistest.StartRig(t, 3, 2, "--node-timeout", "2s")
	c := gather(t, dialEither(r.Proxies))
	for i := range rolls(t) {
		before := c.done.Load()
		p := r.Proxies[i%2]
		if ended, status := p.Terminate(time.Minute); !ended || status != nil {
			t.Fatalf("SIGTERM: ended %v, status %v", ended, status)
		}
		if err := p.Restart(); err != nil {
			t.Fatal(err)
		}
		redistest.Eventually(t, time.Minute, "the crowd goes on", func() bool { return t.Failed() || c.done.Load() > before+50 })
	}
	c.goHome()
	t.Logf("%d restarts, %d steps, the longest took %v; %d LOCKs were told to ask elsewhere", rolls(t), c.done.Load(), time.Duration(c.slow.Load()), c.told.Load())
}

// TestRestartOnOneSocket: a service manager that listens for the proxy keeps clients that
// come while it is restarted; they wait, and none is turned away.
func TestRestartOnOneSocket(t *testing.T) {
	data, nodes := redistest.Start(t), redistest.StartNodes(t, 3)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	socket, err := ln.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	args := []string{"--upstream", data.URL(), "--node-timeout", "2s"}
	for _, n := range nodes {
		args = append(args, "--lock-node", n.URL())
	}
	p := redistest.StartActivated(t, socket, ln.Addr().String(), args...)
	c := gather(t, func(ctx context.Context, _, _ string) (net.Conn, error) {
		nc, err := new(net.Dialer).DialContext(ctx, "tcp", ln.Addr().String())
		if err != nil {
			t.Errorf("a client was turned away: %v", err)
		}
		return nc, err
	})
	for range max(1, rolls(t)/2) {
		before := c.done.Load()
		if ended, status := p.Terminate(time.Minute); !ended || status != nil {
			t.Fatalf("SIGTERM: ended %v, status %v", ended, status)
		}
		if err := p.Restart(); err != nil {
			t.Fatal(err)
		}
		redistest.Eventually(t, time.Minute, "the crowd goes on", func() bool { return t.Failed() || c.done.Load() > before+50 })
	}
	c.goHome()
	t.Logf("%d restarts, %d steps, the longest took %v; %d LOCKs were told to ask elsewhere", max(1, rolls(t)/2), c.done.Load(), time.Duration(c.slow.Load()), c.told.Load())
}
