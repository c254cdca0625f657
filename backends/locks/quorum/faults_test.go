package quorum

import (
	"context"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/voters"
	"github.com/lockproxy/lockproxy/integration/redistest"
)

// A witness sees who may believe to have the lock, and the fences in order.
type witness struct {
	mu      sync.Mutex
	owner   string
	end     time.Time // of what the owner was told, or earlier
	fence   int64
	grants  int
	renewed int
	faults  int // of the nodes

	believes func() bool // of the owner's session, or nil: its proxy takes the validity to run
	outlived int         // grants to sessions that outlived their first lease
}

func (w *witness) granted(t *testing.T, asked time.Time, ttl time.Duration, g locks.Grant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Now().Before(w.end) {
		t.Errorf("%s was granted the lock while %s has it for %v", g.Owner, w.owner, time.Until(w.end))
	}
	if w.believes != nil && w.believes() {
		t.Errorf("%s was granted the lock while a session keeps it for %s", g.Owner, w.owner)
	}
	w.believes = nil
	if g.Fence <= w.fence {
		t.Errorf("fence %d after %d", g.Fence, w.fence)
	}
	w.owner, w.fence, w.end = g.Owner, g.Fence, asked.Add(ttl-locks.Drift(ttl))
	w.grants++
}

// told moves the end of the owner's validity: what it was told, the smaller of both
// when it was told nothing, at once when it was told that the lock is lost.
func (w *witness) told(owner string, end time.Time, renewed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.owner != owner || (!renewed && end.After(w.end)) {
		return
	}
	if w.end = end; renewed {
		w.renewed++
	}
}

// keep holds the lock in a session for up to four leases.
func (w *witness) keep(t *testing.T, s *proxy, ttl time.Duration) {
	c := newClient(s)
	asked := time.Now()
	a, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, TTL: ttl, Session: c.Session})
	if err != nil || !a.Granted {
		return
	}
	w.granted(t, asked, ttl, a.Grant)
	h := locks.Holder{Key: locks.Key{DB: 0, Name: "job"}, Owner: a.Grant.Owner}
	w.mu.Lock()
	if w.owner == a.Grant.Owner {
		w.believes = func() bool {
			until, ok := s.grants.until(h, a.Grant.Fence, []string{a.Grant.Hold})
			return ok && until > s.Now()
		}
	}
	w.mu.Unlock()
	for range rand.IntN(20) {
		if time.Sleep(ttl / 5); len(c.told()) > 0 {
			break
		}
	}
	w.mu.Lock()
	if w.owner == a.Grant.Owner {
		w.believes, w.end = nil, time.Time{}
	}
	if len(c.told()) == 0 && time.Since(asked) > ttl {
		w.outlived++
	}
	w.mu.Unlock()
	if rand.IntN(2) == 0 {
		_, _ = s.Unlock(t.Context(), locks.UnlockRequest{Key: locks.Key{Name: "job"}, Owner: a.Grant.Owner})
	}
	c.End()
}

// contend locks, renews and unlocks through any of the proxies until stop closes.
func (w *witness) contend(t *testing.T, p []*proxy, stop <-chan struct{}) {
	ttls := []time.Duration{100, 200, 400, 500}
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(rand.IntN(10)) * time.Millisecond):
		}
		ttl := ttls[rand.IntN(len(ttls))] * time.Millisecond
		if rand.IntN(3) == 0 {
			w.keep(t, p[rand.IntN(len(p))], ttl)
			continue
		}
		asked := time.Now()
		a, err := p[rand.IntN(len(p))].Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, TTL: ttl})
		if err != nil || !a.Granted {
			continue
		}
		w.granted(t, asked, ttl, a.Grant)
		for range rand.IntN(4) {
			time.Sleep(time.Duration(rand.IntN(80)) * time.Millisecond)
			ttl, asked := ttls[rand.IntN(len(ttls))]*time.Millisecond, time.Now()
			_, err := p[rand.IntN(len(p))].Renew(t.Context(), locks.RenewRequest{Key: locks.Key{Name: "job"}, Owner: a.Grant.Owner, TTL: ttl})
			w.told(a.Grant.Owner, asked.Add(ttl-locks.Drift(ttl)), err == nil)
		}
		w.told(a.Grant.Owner, time.Time{}, false)
		if rand.IntN(4) > 0 {
			_, _ = p[rand.IntN(len(p))].Unlock(t.Context(), locks.UnlockRequest{Key: locks.Key{Name: "job"}, Owner: a.Grant.Owner})
		}
	}
}

// harm kills, stops and empties nodes until stop closes, one fault at a time.
func (w *witness) harm(t *testing.T, nodes []*redistest.Server, stop <-chan struct{}) {
	for {
		n := nodes[rand.IntN(len(nodes))]
		switch rand.IntN(3) {
		case 0:
			n.Kill()
			time.Sleep(time.Duration(rand.IntN(200)) * time.Millisecond)
			if err := n.Restart(); err != nil {
				t.Error(err)
				return
			}
		case 1:
			n.Pause()
			time.Sleep(time.Duration(rand.IntN(700)) * time.Millisecond)
			n.Resume()
		case 2:
			if c, err := redistest.Dial(n.Addr()); err == nil {
				_, _ = c.Try("FLUSHALL")
				_ = c.Close()
			}
		}
		w.mu.Lock()
		w.faults++
		w.mu.Unlock()
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(600+rand.IntN(900)) * time.Millisecond):
		}
	}
}

// watch returns when long is over and the witness has seen enough to show anything. Where
// a busy machine makes that take over two minutes more, the test fails.
func (w *witness) watch(t *testing.T, long time.Duration, enough func() bool) {
	t.Helper()
	seen := func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return enough()
	}
	time.Sleep(long)
	for end := time.Now().Add(2 * time.Minute); !seen() && !t.Failed(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Error("too few to show anything")
		}
	}
}

// throughFaults has clients use the lock through three proxies, while the nodes are harmed, for 8 s or as long
// as LOCKPROXY_FAULTS says, and until that was enough. It returns the proxies.
func (w *witness) throughFaults(t *testing.T, clients int, client func(*testing.T, []*proxy, <-chan struct{}), enough func() bool) []*proxy {
	t.Helper()
	long := 8 * time.Second
	if d, err := time.ParseDuration(os.Getenv("LOCKPROXY_FAULTS")); err == nil {
		long = d
	}
	nodes := redistest.StartNodes(t, 5)
	var p []*proxy
	for range 3 {
		p = append(p, serve(t, testOptions{
			Nodes: nodesAt(t, addrs(nodes)...), NodeTimeout: 50 * time.Millisecond,
			MaxTTL: 500 * time.Millisecond, Bootstrap: voters.BootstrapStrict,
		}))
	}
	if err := p[0].Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range clients {
		wg.Go(func() { client(t, p, stop) })
	}
	wg.Go(func() { w.harm(t, nodes, stop) })
	w.watch(t, long, enough)
	close(stop)
	wg.Wait()
	t.Logf("%d grants, %d renewals, %d outlived a lease, %d faults", w.grants, w.renewed, w.outlived, w.faults)
	return p
}

// TestFaults: no two owners have the lock at once, whatever faults nodes and connections have.
func TestFaults(t *testing.T) {
	t.Parallel()
	var w witness
	w.throughFaults(t, 6, w.contend, func() bool { return w.grants >= 10 && w.renewed >= 8 && w.outlived >= 1 && w.faults >= 3 })
}

// waitInTurn waits for the lock through any of the proxies until stop closes, holds it a
// moment, and sometimes leaves the line or just lets the lease run out.
func (w *witness) waitInTurn(t *testing.T, p []*proxy, stop <-chan struct{}) {
	const ttl = 300 * time.Millisecond
	for {
		select {
		case <-stop:
			return
		default:
		}
		s := p[rand.IntN(len(p))]
		ctx, cancel := context.WithCancel(t.Context())
		if rand.IntN(4) == 0 {
			time.AfterFunc(time.Duration(rand.IntN(20))*time.Millisecond, cancel)
		}
		a, err := s.Lock(ctx, locks.LockRequest{Key: locks.Key{Name: "job"}, TTL: ttl, Wait: time.Duration(rand.IntN(2000)) * time.Millisecond})
		cancel()
		if err != nil || !a.Granted {
			continue
		}
		s.grants.mu.Lock()
		g, ok := s.grants.lru.Peek(locks.Holder{Key: locks.Key{DB: 0, Name: "job"}, Owner: a.Grant.Owner})
		s.grants.mu.Unlock()
		if !ok {
			t.Error("a grant is not remembered")
			continue
		}
		w.granted(t, time.Now().Add(g.until()-s.Now()-ttl+locks.Drift(ttl)), ttl, a.Grant)
		time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
		switch rand.IntN(20) {
		case 0: // crashed
		case 1:
			w.told(a.Grant.Owner, time.Time{}, false)
			s.Undo(a.Grant)
		default:
			w.told(a.Grant.Owner, time.Time{}, false)
			_, _ = p[rand.IntN(len(p))].Unlock(t.Context(), locks.UnlockRequest{Key: locks.Key{Name: "job"}, Owner: a.Grant.Owner})
		}
	}
}

// TestWait_ThroughFaults: no two waiters have the lock at once, and in the end nobody stands in line.
func TestWait_ThroughFaults(t *testing.T) {
	t.Parallel()
	var w witness
	p := w.throughFaults(t, 12, w.waitInTurn, func() bool { return w.grants >= 100 && w.faults >= 3 })
	for _, s := range p {
		if n := s.waiting.Total(); n != 0 {
			t.Errorf("%d are left in line", n)
		}
	}
	a, err := p[0].Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, TTL: 100 * time.Millisecond, Wait: patient})
	if err != nil || !a.Granted {
		t.Errorf("in the end: %+v, %v", a, err)
	}
}
