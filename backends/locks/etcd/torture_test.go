package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/etcd"
	"github.com/lockproxy/lockproxy/integration/redistest"
)

// tortureVariable is for how long the torture goes on.
const tortureVariable = "LOCKPROXY_ETCD_TORTURE"

const torturePermits = 2

// A grantee is one grant as its owner believed in it.
type grantee struct {
	name, owner string
	shared      bool
	permit      bool // one of torturePermits; it is shared as well
	fence       int64
	asked, got  time.Duration // the LOCK and its answer
	end         time.Duration // of what it was told last, or when it began to give it back
}

// A witness takes down what owners believe.
type witness struct {
	mu     sync.Mutex
	all    []*grantee
	counts map[string]int
	faults []string
}

func (w *witness) count(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[what]++
}

func (w *witness) fault(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = append(w.faults, fmt.Sprintf(format, args...))
}

// TestTorture: while members of etcd are killed, stopped and started, answers are slow, and proxies share the names, no two
// owners believe in a name at once unless both read it, nor more in a permit than there are, nobody loses it before its validity ends, and fences go up.
func TestTorture(t *testing.T) {
	t.Parallel()
	during := 12 * time.Second
	if text := os.Getenv(tortureVariable); text != "" {
		var err error
		if during, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	members := redistest.StartEtcd(t, 3, "--heartbeat-interval", "50", "--election-timeout", "500")
	target, err := etcd.Parse(redistest.EtcdURL(members, "test"))
	if err != nil {
		t.Fatal(err)
	}
	var s []*locks.Service
	for i := range 3 {
		one := target
		one.Members = slices.Concat(target.Members[i:], target.Members[:i])
		st, err := etcd.New(etcd.Options{Target: one, NodeTimeout: 400 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		s = append(s, serve(t, st))
	}
	w := &witness{counts: map[string]int{}}
	ctx, cancel := context.WithTimeout(t.Context(), during)
	defer cancel()
	var all sync.WaitGroup
	for i := range 18 {
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				owner := fmt.Sprintf("o%d-%d", i, n)
				if rand.IntN(4) == 0 {
					w.several(t.Context(), s, owner)
				} else {
					w.client(t.Context(), s, owner)
				}
			}
		})
	}
	trouble(ctx, t, members)
	all.Wait()
	w.judge()
	t.Logf("%d grants, %v", len(w.all), w.counts)
	if len(w.all) == 0 {
		w.fault("nothing was granted")
	}
	for _, f := range w.faults[:min(len(w.faults), 20)] {
		t.Error(f)
	}
}

// trouble kills, stops and starts members until the time is over. Mostly one at a time has it.
func trouble(ctx context.Context, t *testing.T, members []*redistest.Etcd) {
	pause := func() { sleepFor(ctx, time.Duration(300+rand.IntN(900))*time.Millisecond) }
	for ctx.Err() == nil {
		m := members[rand.IntN(len(members))]
		switch rand.IntN(3) {
		case 0:
			m.Kill()
			pause()
			if err := m.Restart(); err != nil {
				t.Error(err)
			}
		case 1:
			m.Pause()
			pause()
			m.Resume()
		default:
			other := members[rand.IntN(len(members))]
			m.Pause()
			other.Pause()
			pause()
			m.Resume()
			other.Resume()
		}
		pause()
	}
}

func sleepFor(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// client takes a lock once, works, and gives it back, or does not.
func (w *witness) client(ctx context.Context, s []*locks.Service, owner string) {
	proxy := func() *locks.Service { return s[rand.IntN(len(s))] }
	g := &grantee{name: fmt.Sprint("name", rand.IntN(6)), owner: owner, asked: locks.SinceStart()}
	switch rand.IntN(6) {
	case 0, 1:
		g.shared = true
	case 2, 3:
		g.shared, g.permit = true, true
	}
	r := locks.LockRequest{Key: locks.Key{Name: g.name}, Owner: owner, Shared: g.shared, TTL: time.Duration(200+rand.IntN(2000)) * time.Millisecond, Req: owner}
	if g.permit {
		r.Permits = torturePermits
	}
	if rand.IntN(2) == 0 {
		r.Wait = time.Duration(rand.IntN(3000)) * time.Millisecond
	}
	d, err := proxy().Lock(ctx, r)
	g.got = locks.SinceStart()
	switch {
	case err != nil:
		w.count("LOCK " + kind(err))
		return
	case !d.Granted:
		w.count("LOCK refused")
		return
	}
	g.fence, g.end = d.Grant.Fence, g.got+d.Grant.Validity
	switch {
	case g.permit:
		w.count("LOCK with a permit")
	case g.shared:
		w.count("LOCK to read")
	}
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.all = append(w.all, g)
	}()
	for range rand.IntN(3) {
		time.Sleep(time.Duration(rand.Int64N(int64(r.TTL / 3))))
		began := locks.SinceStart()
		validity, err := proxy().Renew(ctx, locks.RenewRequest{Key: r.Key, Owner: owner, Shared: g.shared, TTL: r.TTL, Fence: g.fence})
		now := locks.SinceStart()
		switch {
		case err == nil && began >= g.end:
			g.end = max(g.end, now+validity) // nobody had it meanwhile, or the judge finds out
		case err == nil:
			g.end = now + validity
		case kind(err) == "lost" && now < g.end:
			w.fault("%s lost %s, fence %d, %v before its validity ended: %v", owner, g.name, g.fence, g.end-now, err)
			g.end = began
			return
		}
		w.count("RENEW " + kind(err))
	}
	if rand.IntN(4) == 0 {
		w.count("left to run out")
		return
	}
	began := locks.SinceStart()
	told := g.end
	g.end = min(g.end, began)
	for again := range 2 {
		left, err := proxy().Unlock(ctx, locks.UnlockRequest{Key: r.Key, Owner: owner, Shared: g.shared, Fence: g.fence, Req: owner})
		switch now := locks.SinceStart(); {
		case err == nil && left != 0:
			w.fault("UNLOCK of %s by %s: %d holds left", g.name, owner, left)
		case kind(err) == "lost" && again == 0 && now < told:
			w.fault("UNLOCK of %s by %s, fence %d, %v before its validity ended: %v", g.name, owner, g.fence, told-now, err)
		}
		w.count("UNLOCK " + kind(err))
		if rand.IntN(2) == 0 {
			return // else it is sent again
		}
	}
}

// several takes some names at once, and gives them back one by one, or does not.
func (w *witness) several(ctx context.Context, s []*locks.Service, owner string) {
	proxy := func() *locks.Service { return s[rand.IntN(len(s))] }
	asked := locks.SinceStart()
	r := locks.LockRequest{Owner: owner, Shared: rand.IntN(3) == 0, TTL: time.Duration(500+rand.IntN(2000)) * time.Millisecond, Wait: time.Duration(rand.IntN(3000)) * time.Millisecond, Req: owner}
	for _, n := range rand.Perm(6)[:2+rand.IntN(2)] {
		r.Others = append(r.Others, locks.Key{Name: fmt.Sprint("name", n)})
	}
	r.Key, r.Others = r.Others[0], r.Others[1:]
	d, err := proxy().Lock(ctx, r)
	got := locks.SinceStart()
	if !d.Granted {
		w.count("LOCK of several refused, or " + kind(err))
		return
	}
	w.count("LOCK of several")
	time.Sleep(time.Duration(rand.Int64N(int64(r.TTL))))
	for _, granted := range d.All() {
		g := &grantee{name: granted.Name, owner: owner, shared: r.Shared, fence: granted.Fence, asked: asked, got: got, end: got + granted.Validity}
		began, told := locks.SinceStart(), g.end
		if rand.IntN(3) > 0 {
			g.end = min(g.end, began)
			_, err := proxy().Unlock(ctx, locks.UnlockRequest{Key: locks.Key{Name: g.name}, Owner: owner, Shared: g.shared, Fence: g.fence, Req: owner})
			if now := locks.SinceStart(); kind(err) == "lost" && now < told {
				w.fault("UNLOCK of %s by %s, fence %d, %v before its validity ended: %v", g.name, owner, g.fence, told-now, err)
			}
		}
		w.mu.Lock()
		w.all = append(w.all, g)
		w.mu.Unlock()
	}
}

func kind(err error) string {
	var few *locks.QuorumError
	var other *locks.NotOwnerError
	switch {
	case err == nil:
		return "done"
	case errors.As(err, &few):
		return "no quorum"
	case errors.Is(err, locks.ErrLost), errors.As(err, &other):
		return "lost"
	}
	return err.Error()
}

// judge finds overlaps, and fences that do not go up.
func (w *witness) judge() {
	slices.SortFunc(w.all, func(a, b *grantee) int { return int(a.got - b.got) })
	beside := map[*grantee]int{} // others with a permit when it came
	for i, a := range w.all {
		for _, b := range w.all[i+1:] {
			if a.name != b.name {
				continue
			}
			both := a.shared && b.shared
			if a.permit && b.permit && b.got < a.end && a.got < b.end {
				if beside[b]++; beside[b] == torturePermits {
					w.fault("%s: %s (fence %d) has a permit, and %d others have one, so %s (fence %d)", b.name, b.owner, b.fence, torturePermits, a.owner, a.fence)
				}
			}
			if b.got < a.end && a.got < b.end && !both {
				w.fault("%s: %s (fence %d) and %s (fence %d) both had it for %v", a.name, a.owner, a.fence, b.owner, b.fence, min(a.end, b.end)-b.got)
			}
			if a.fence == b.fence || a.got < b.asked && a.fence > b.fence || a.end <= b.got && a.fence > b.fence && !both {
				w.fault("%s: fence %d of %s is behind %d of %s", a.name, b.fence, b.owner, a.fence, a.owner)
			}
		}
	}
}
