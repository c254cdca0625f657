package goclient

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	lockproxy "github.com/lockproxy/lockproxy/clients/go"
	"github.com/lockproxy/lockproxy/integration/redistest"
)

// A turn is who has the lock in a test, and with which fence.
type turn struct {
	mu    sync.Mutex
	owner string
	fence int64
	n     int
}

func (w *turn) begin(t *testing.T, who string, fence int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.owner != "" || fence <= w.fence {
		t.Errorf("%s has the lock with fence %d; before it had %q with %d", who, fence, w.owner, w.fence)
	}
	w.owner, w.fence = who, fence
	w.n++
}

func (w *turn) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n
}

func (w *turn) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.owner = ""
}

// TestRequestIDs_ResendingClients have their default retries, over a link that loses replies and holds them up for longer than
// a client waits. A lock is had by one of them at a time, and is free when all have given it back.
func TestRequestIDs_ResendingClients(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	const patience = 100 * time.Millisecond
	link := redistest.StartLink(t, 3*patience, s.proxies[0].Addr(), s.proxies[1].Addr())
	var w turn
	var wg sync.WaitGroup
	enough := func() bool { return w.count() >= 20 && link.Lost.Load() >= 5 && link.Delayed.Load() >= 5 }
	began := time.Now()
	goOn := func() bool { // for longer on a busy machine
		took := time.Since(began)
		return took < 4*time.Second || took < 2*time.Minute && !enough() && !t.Failed()
	}
	for i := range 8 {
		k := kinds[i%len(kinds)]
		wg.Go(func() {
			who := fmt.Sprint(k.name, " ", i)
			c, err := k.open(settings{addr: link.Addr().String(), timeout: patience})
			for err != nil && goOn() { // rueidis connects at once, and has no patience either
				c, err = k.open(settings{addr: link.Addr().String(), timeout: patience})
			}
			if err != nil {
				t.Errorf("%s: %v", who, err)
				return
			}
			defer c.close()
			for goOn() {
				err := c.Do(t.Context(), "job", lockproxy.Options{Wait: 20 * time.Second}, func(_ context.Context, l *lockproxy.Lock) error {
					w.begin(t, who, l.Fence)
					time.Sleep(time.Millisecond)
					w.end()
					return nil
				})
				if err != nil {
					t.Errorf("%s: %v", who, err)
					return
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d locks, %d connections lost, %d replies late", w.n, link.Lost.Load(), link.Delayed.Load())
	if !enough() {
		t.Error("too few to show anything")
	}
	// One node may keep a copy that it numbered higher than the others: docs/decisions/0007, rule 3.
	looks := redistest.Open(t, s.proxies[0].Addr())
	if v := looks.Do(t, "LOCK", "job", "30s", "WAIT", "15s"); len(v.Elems) != 4 {
		t.Errorf("the lock is not free: %v", v)
	}
}

// TestRequestIDs_ClientsOutliveTheirProxy: who waits at a proxy that shuts down waits on at another.
func TestRequestIDs_ClientsOutliveTheirProxy(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	holder, err := kinds[0].open(settings{addr: s.proxies[1].Addr()})
	if err != nil {
		t.Fatal(err)
	}
	defer holder.close()
	results := make(chan error)
	var held []*lockproxy.Lock
	for _, k := range kinds {
		held = append(held, holder.mustAcquire(t, k.name, lockproxy.Options{}))
		waiter, err := k.open(settings{dial: s.dialFirst})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(waiter.close)
		go func() {
			_, err := waiter.Acquire(t.Context(), k.name, lockproxy.Options{Wait: time.Minute})
			results <- err
		}()
		s.awaitWaiters(t, k.name, 1)
	}
	s.proxies[0].Terminate(12 * time.Second)
	for _, l := range held {
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
	for range held {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}
