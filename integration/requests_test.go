package integration

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockproxy/lockproxy/docs/clients/go"
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

// TestRequestIDs_ResendingClients have go-redis with its default retries, over a link that loses
// replies and holds them up for longer than the client waits. A lock is had by one of them
// at a time, is given back by one Release, and no hold stays behind.
func TestRequestIDs_ResendingClients(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 2)
	const patience = 100 * time.Millisecond
	link := redistest.StartLink(t, 3*patience, r.proxies[0].Addr(), r.proxies[1].Addr())
	var w turn
	var wg sync.WaitGroup
	enough := func() bool { return w.count() >= 20 && link.Lost.Load() >= 5 && link.Delayed.Load() >= 5 }
	began := time.Now()
	goOn := func() bool { // for longer on a busy machine
		took := time.Since(began)
		return took < 4*time.Second || took < 2*time.Minute && !enough() && !t.Failed()
	}
	for i := range 6 {
		wg.Go(func() {
			who := fmt.Sprint("client ", i)
			rdb := redis.NewClient(&redis.Options{Addr: link.Addr().String(), ReadTimeout: patience})
			defer rdb.Close()
			for goOn() {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				l, err := client.Acquire(ctx, rdb, "job", 30*time.Second)
				cancel()
				if err != nil {
					t.Errorf("%s: %v", who, err)
					return
				}
				w.begin(t, who, l.Fence)
				time.Sleep(time.Millisecond)
				w.end()
				if err := l.Release(); err != nil {
					t.Errorf("%s: %v", who, err)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d locks, %d connections lost, %d replies late", w.n, link.Lost.Load(), link.Delayed.Load())
	if !enough() {
		t.Error("too few to show anything")
	}
	r.awaitNoLocks(t)
}

// TestRequestIDs_ClientsOutliveTheirProxy: who waits at a proxy that shuts down waits on at another.
func TestRequestIDs_ClientsOutliveTheirProxy(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 2)
	holder := redis.NewClient(&redis.Options{Addr: r.proxies[1].Addr()})
	defer holder.Close()
	held, err := client.Acquire(t.Context(), holder, "job", 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	waiter := redis.NewClient(&redis.Options{Dialer: r.dialFirst})
	defer waiter.Close()
	result := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := client.Acquire(ctx, waiter, "job", 30*time.Second)
		result <- err
	}()
	looks := redistest.Open(t, r.proxies[0].Addr())
	for end := time.Now().Add(30 * time.Second); len(looks.Do(t, "LOCKCTL", "WAITERS", "job").Elems) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nobody waits")
		}
	}
	r.proxies[0].Terminate(12 * time.Second)
	if err := held.Release(); err != nil {
		t.Error(err)
	}
	if err := <-result; err != nil {
		t.Error(err)
	}
}

// dialFirst connects to the first proxy that accepts.
func (r *rig) dialFirst(ctx context.Context, network, _ string) (c net.Conn, err error) {
	for _, p := range r.proxies {
		if c, err = new(net.Dialer).DialContext(ctx, network, p.Addr()); err == nil {
			break
		}
	}
	return c, err
}

// awaitNoLocks fails unless every hold is gone long before its lease is over.
func (r *rig) awaitNoLocks(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(15 * time.Second); r.lockKeys(t) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			for _, n := range r.nodes {
				t.Error(n.Do(t, "KEYS", "lockproxy:lock:*"))
			}
			return
		}
	}
}

// TestRequestIDs_LocksOfVanishedClients have no REQ: whoever has closed its connection before the
// nodes answer leaves nothing behind.
func TestRequestIDs_LocksOfVanishedClients(t *testing.T) {
	t.Parallel()
	const paused = 400 * time.Millisecond
	r := startRig(t, 3, 1)
	for i, early := 0, 0; early < 8; i++ {
		if i == 100 {
			t.Fatalf("only %d times everybody was gone while the nodes were silent", early)
		}
		began := time.Now()
		for _, n := range r.nodes {
			n.Do(t, "CLIENT", "PAUSE", fmt.Sprint(paused.Milliseconds()), "ALL")
		}
		var gone []*redistest.Conn
		for j := range 5 {
			c, err := redistest.Dial(r.addr())
			if err != nil {
				t.Fatal(err)
			}
			c.Send(t, redistest.Command("LOCK", fmt.Sprint("job", i*j%7), "30s", "WAIT", fmt.Sprint(j*1000)))
			gone = append(gone, c)
		}
		time.Sleep(20 * time.Millisecond) // the nodes are asked
		for _, c := range gone {
			_ = c.Close()
		}
		if time.Since(began) < paused/2 {
			early++
			time.Sleep(paused)
			continue
		}
		r.forceAll(t) // somebody may have had its answer
	}
	r.awaitNoLocks(t)
}

// forceAll takes away what is held, once the nodes answer.
func (r *rig) forceAll(t *testing.T) {
	t.Helper()
	c := redistest.Open(t, r.addr())
	for i := range 7 {
		name := fmt.Sprint("job", i)
		eventually(t, 20*time.Second, name+" can be forced", func() bool {
			return !c.Do(t, "LOCKCTL", "FORCE", name).IsError()
		})
	}
}
