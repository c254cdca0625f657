package quorum

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// A fleet is several proxies under load: clients that lock, renew and unlock a few names
// through all of them. A NOQUORUM, two owners of a name, and fences that do not grow fail the test.
type fleet struct {
	t       *testing.T
	mu      sync.RWMutex // held by requests, so that no proxy ends under one
	proxies []*proxy
	ends    []func()
	done    chan struct{}
	load    sync.WaitGroup
	once    sync.Once
	names   [2]struct {
		sync.Mutex
		owner  string
		fence  int64
		grants int
	}
}

func startFleet(t *testing.T, proxies int, o testOptions) *fleet {
	t.Helper()
	f := &fleet{t: t, proxies: make([]*proxy, proxies), ends: make([]func(), proxies), done: make(chan struct{})}
	for i := range proxies {
		f.replace(i, o)
	}
	t.Cleanup(f.end)
	allVote(t, f.proxies...)
	for w := range 6 {
		f.load.Go(func() { f.client(w) })
	}
	return f
}

// replace starts a proxy, and ends the one in whose place it comes.
func (f *fleet) replace(i int, o testOptions) {
	o.Log = slog.New(slog.DiscardHandler)
	s, err := newProxy(o)
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	f.mu.Lock()
	old := f.ends[i]
	f.proxies[i], f.ends[i] = s, func() {
		cancel()
		if err := <-ended; err != nil {
			f.t.Error(err)
		}
	}
	f.mu.Unlock()
	if old != nil {
		old()
	}
}

// rollOut replaces one proxy after the other.
func (f *fleet) rollOut(o testOptions) {
	for i := range f.proxies {
		time.Sleep(200 * time.Millisecond)
		f.replace(i, o)
	}
}

func (f *fleet) use(i int, do func(*proxy)) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	do(f.proxies[i%len(f.proxies)])
}

func (f *fleet) client(w int) {
	for i := 0; ; i++ {
		select {
		case <-f.done:
			return
		default:
			f.use(w+i, func(s *proxy) { f.turn(s, w%len(f.names), fmt.Sprint(w, "-", i)) })
		}
	}
}

// turn is one lock, held for a moment.
func (f *fleet) turn(s *proxy, name int, owner string) {
	r := locks.LockRequest{Key: locks.Key{Name: strconv.Itoa(name)}, Owner: owner, TTL: s.Opts.MaxTTL, Wait: 50 * time.Millisecond}
	a, err := s.Lock(context.Background(), r)
	if err != nil {
		f.t.Errorf("LOCK, max-ttl %v, nodes %s: %v", s.Opts.MaxTTL, s.NodeList.Names, err)
		time.Sleep(100 * time.Millisecond)
	}
	if !a.Granted {
		return
	}
	at := &f.names[name]
	at.Lock()
	if at.owner != "" || at.fence >= a.Grant.Fence {
		f.t.Errorf("%s has fence %d beside %q, after %d", owner, a.Grant.Fence, at.owner, at.fence)
	}
	at.owner, at.fence = owner, a.Grant.Fence
	at.grants++
	at.Unlock()
	if _, err := s.Renew(context.Background(), locks.RenewRequest{Key: locks.Key{Name: r.Name}, Owner: owner, TTL: r.TTL}); err != nil {
		f.t.Errorf("RENEW, max-ttl %v, nodes %s: %v", s.Opts.MaxTTL, s.NodeList.Names, err)
	}
	at.Lock()
	at.owner = ""
	at.Unlock()
	if _, err := s.Unlock(context.Background(), locks.UnlockRequest{Key: locks.Key{Name: r.Name}, Owner: owner}); err != nil {
		f.t.Errorf("UNLOCK, max-ttl %v, nodes %s: %v", s.Opts.MaxTTL, s.NodeList.Names, err)
	}
}

// stop ends everything. Fewer grants than these prove nothing.
func (f *fleet) stop(grants int) {
	f.t.Helper()
	f.end()
	if n := f.names[0].grants + f.names[1].grants; n < grants {
		f.t.Errorf("%d grants", n)
	}
}

func (f *fleet) end() {
	f.once.Do(func() {
		close(f.done)
		f.load.Wait()
		for _, end := range f.ends {
			end()
		}
	})
}
