package goredis

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockproxy/lockproxy/integration/clients/visits"
	"github.com/lockproxy/lockproxy/integration/redistest"
)

// views is how many people look at the page at the same time.
const views = 666

// A pageview is one of the services that count views: net/http in front, pools
// of ordinary client connections to a proxy behind.
type pageview struct {
	redis  *redis.Client
	locks  *redis.Client // for LOCK alone: who has the lock must not stand in line for a connection
	locked bool
	tally  *tally
}

// A tally is what the services of one run saw, all together.
type tally struct {
	counted atomic.Int64
	stale   atomic.Int64 // a fence was not larger than that of the holder before
}

// halfway is when the faults of a run happen.
const halfway = views / 3

// newPageview makes a service; its pools end with the test.
func newPageview(t *testing.T, addr string, locked bool, sum *tally) *pageview {
	pool := func(size int) *redis.Client {
		c := redis.NewClient(&redis.Options{
			Addr: addr, PoolSize: size, PoolTimeout: time.Minute,
			ReadTimeout: time.Minute + 10*time.Second, // longer than the longest wait
			MaxRetries:  -1,                           // a LOCK that is sent twice by the library would need REQ
		})
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	return &pageview{redis: pool(64), locks: pool(views), locked: locked, tally: sum}
}

func (s *pageview) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := s.view(r.Context()); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// view is the whole of the business: lock, GET, SET, unlock.
func (s *pageview) view(ctx context.Context) error {
	if !s.locked {
		return s.count(ctx, 0)
	}
	fence, owner, err := s.lock(ctx)
	if err != nil {
		return fmt.Errorf("LOCK: %w", err)
	}
	if err := s.count(ctx, fence); err != nil {
		return err
	}
	if err := s.redis.Do(ctx, "UNLOCK", "page", owner, "FENCE", fence).Err(); err != nil {
		return fmt.Errorf("UNLOCK: %w", err)
	}
	return nil
}

// lock waits for its turn, and never tries again.
func (s *pageview) lock(ctx context.Context) (fence int64, owner string, err error) {
	reply, err := s.locks.Do(ctx, "LOCK", "page", "20s", "WAIT", "1m").Slice()
	if err != nil {
		return 0, "", err
	}
	return reply[0].(int64), reply[1].(string), nil
}

// count adds one view. The page keeps the fence of the last holder beside the
// count, as a store that checks fences would.
func (s *pageview) count(ctx context.Context, fence int64) error {
	var n, last int64
	text, err := s.redis.Get(ctx, "page").Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("GET: %w", err)
	}
	if text != "" {
		if _, err := fmt.Sscan(text, &n, &last); err != nil {
			return err
		}
	}
	if s.locked && fence <= last {
		s.tally.stale.Add(1)
	}
	if !s.locked {
		time.Sleep(2 * time.Millisecond) // the page is rendered: time enough to lose a view
	}
	if err := s.redis.Set(ctx, "page", fmt.Sprint(n+1, " ", fence), 0).Err(); err != nil {
		return fmt.Errorf("SET: %w", err)
	}
	s.tally.counted.Add(1)
	return nil
}

// balance puts a round-robin load balancer in front of the services.
func balance(t *testing.T, services ...*pageview) string {
	var backends []*url.URL
	for _, s := range services {
		srv := httptest.NewServer(s)
		t.Cleanup(srv.Close)
		u, err := url.Parse(srv.URL)
		if err != nil {
			t.Fatal(err)
		}
		backends = append(backends, u)
	}
	return visits.Balance(t, backends, views)
}

// pageCount is the count that the data Redis holds in the end.
func pageCount(t *testing.T, data *redistest.Server) int {
	t.Helper()
	var n, fence int
	if _, err := fmt.Sscan(data.Do(t, "GET", "page").Text, &n, &fence); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestPageViews is the page-view scenario: two services behind a balancer, 666
// requests at once, each lock – GET – SET – unlock through the proxy, which has them
// stand in line.
func TestPageViews(t *testing.T) {
	for _, tt := range []struct {
		name    string
		proxies int  // one for both services, or one each
		locked  bool // without, views are lost
		kill    int  // lock nodes killed in mid-run
	}{
		{"without a lock views are lost", 1, false, 0},
		{"with a lock none is lost", 1, true, 0},
		{"with a lock and two of five lock nodes killed", 1, true, 2},
		{"with a lock and a proxy for each service", 2, true, 0},
		{"with a lock, two proxies and two lock nodes killed", 2, true, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := redistest.StartRig(t, 5, tt.proxies)
			sum := &tally{}
			var services []*pageview
			for i := range 2 {
				services = append(services, newPageview(t, r.Proxies[i%tt.proxies].Addr(), tt.locked, sum))
			}
			lb := balance(t, services...)
			defer killHalfway(t, sum, r.Nodes[:tt.kill])()
			took := visits.AtOnce(t, lb, views, 2*time.Minute)
			got := pageCount(t, r.Data)
			t.Logf("%d views counted of %d in %v", got, views, took.Round(time.Millisecond))
			if sum.counted.Load() != views {
				t.Errorf("%d requests were served", sum.counted.Load())
			}
			if tt.locked && got != views {
				t.Errorf("%d views of %d were counted", got, views)
			}
			if !tt.locked && got >= views {
				t.Error("no view was lost without a lock: the scenario proves nothing")
			}
			if n := sum.stale.Load(); n != 0 {
				t.Errorf("%d fences were not larger than that of the holder before", n)
			}
		})
	}
}

// killHalfway kills the nodes as kill -9 does once a third of the views has been
// counted. The function it returns waits for that.
func killHalfway(t *testing.T, sum *tally, nodes []*redistest.Server) (wait func()) {
	var done sync.WaitGroup
	if len(nodes) > 0 {
		done.Go(func() {
			for deadline := time.Now().Add(time.Minute); sum.counted.Load() < halfway; time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Error("the run never got that far: no node was killed")
					return
				}
			}
			if sum.counted.Load() == views {
				t.Error("the run was over before a node was killed")
			}
			for _, n := range nodes {
				n.Kill()
			}
		})
	}
	return done.Wait
}
