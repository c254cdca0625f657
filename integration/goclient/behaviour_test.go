package goclient

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	lockproxy "github.com/lockproxy/lockproxy/clients/go"
	"github.com/lockproxy/lockproxy/integration/redistest"
)

// TestLost: whoever's lock is taken away by force, or whose proxy dies, is told once, and its context ends.
func TestLost(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	s.eachKind(t, settings{}, func(t *testing.T, open func() *client, name string) {
		for _, how := range []struct {
			name string
			lockproxy.Options
		}{
			{"renewed", lockproxy.Options{TTL: 3 * time.Second, Wait: time.Minute}},
			{"session", lockproxy.Options{TTL: time.Minute, Wait: time.Minute, Session: true}},
		} {
			t.Run(how.name, func(t *testing.T) {
				var told atomic.Int32
				how.OnLost = func(err error) {
					if told.Add(1); !errors.Is(err, lockproxy.ErrLost) {
						t.Error(err)
					}
				}
				err := open().Do(t.Context(), name, how.Options, func(ctx context.Context, _ *lockproxy.Lock) error {
					redistest.Open(t, s.proxies[0].Addr()).Do(t, "LOCKCTL", "FORCE", name)
					select {
					case <-ctx.Done():
						return context.Cause(ctx)
					case <-time.After(40 * time.Second): // before the minute of the session is over
						return errors.New("not told")
					}
				})
				if !errors.Is(err, lockproxy.ErrLost) || strings.Contains(err.Error(), "not told") {
					t.Error(err)
				}
				eventually(t, "told", func() bool { return told.Load() > 0 })
				if n := told.Load(); n != 1 {
					t.Errorf("told %d times", n)
				}
			})
		}
	})
}

// TestLost_WithItsProxy: a session ends with the proxy, also when that dies.
func TestLost_WithItsProxy(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	var held []*lockproxy.Lock
	for _, k := range kinds {
		c, err := k.open(settings{dial: s.dialFirst})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.close)
		held = append(held, c.mustAcquire(t, k.name, lockproxy.Options{TTL: time.Minute, Session: true}))
	}
	s.proxies[0].Kill()
	for i, l := range held {
		select {
		case <-l.Lost():
		case <-time.After(40 * time.Second):
			t.Errorf("%s: not told", kinds[i].name)
		}
		if err := l.Release(t.Context()); !errors.Is(err, lockproxy.ErrLost) {
			t.Errorf("%s: Release: %v", kinds[i].name, err)
		}
	}
	s.awaitNoLocks(t, "") // they were given back through the other proxy
}

// TestRenewed: the lock is kept for longer than a lease, while another waits.
func TestRenewed(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	s.eachKind(t, settings{}, func(t *testing.T, open func() *client, name string) {
		holder, other := open(), open()
		first := holder.mustAcquire(t, name, lockproxy.Options{TTL: 3 * time.Second})
		fence := make(chan int64, 1)
		var ended sync.WaitGroup
		defer ended.Wait()
		ended.Go(func() {
			err := other.Do(t.Context(), name, lockproxy.Options{Wait: time.Minute}, func(_ context.Context, l *lockproxy.Lock) error {
				fence <- l.Fence
				return nil
			})
			if err != nil {
				t.Error(err)
				close(fence)
			}
		})
		began := first.Until()
		eventually(t, "a lease and a half", func() bool { return time.Since(began) > 1500*time.Millisecond })
		select {
		case f := <-fence:
			t.Errorf("another has it, with fence %d after %d; the holder knows %v", f, first.Fence, first.Err())
		default:
		}
		if err := first.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if f := <-fence; f <= first.Fence {
			t.Errorf("fence %d after %d", f, first.Fence)
		}
	})
}

// TestShared: readers have the name at the same time, for longer than a lease, and keep a writer out until the last of them has gone; the
// writer keeps readers out.
func TestShared(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	s.eachKind(t, settings{}, func(t *testing.T, open func() *client, name string) {
		one, other, writer := open(), open(), open()
		reader := lockproxy.Options{TTL: 3 * time.Second, Shared: true}
		first := one.mustAcquire(t, name, reader)
		bound := reader
		bound.Session = true
		second := other.mustAcquire(t, name, bound)
		began := first.Until()
		eventually(t, "a lease and a half", func() bool { return time.Since(began) > 1500*time.Millisecond })
		writer.wantHeld(t, name, lockproxy.Options{})
		if err := first.Release(t.Context()); err != nil {
			t.Error("the first reader: ", err)
		}
		writer.wantHeld(t, name, lockproxy.Options{})
		if err := second.Release(t.Context()); err != nil {
			t.Error("the second reader: ", err)
		}
		w := writer.mustAcquire(t, name, lockproxy.Options{})
		if w.Fence <= first.Fence || w.Fence <= second.Fence {
			t.Errorf("fence %d of the writer, after %d and %d of readers", w.Fence, first.Fence, second.Fence)
		}
		one.wantHeld(t, name, reader)
		if err := w.Release(t.Context()); err != nil {
			t.Error("the writer: ", err)
		}
	})
}

// TestPermits: as many have the name at the same time as there are permits, for longer than a lease; the next in line gets what is given back.
func TestPermits(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	s.eachKind(t, settings{}, func(t *testing.T, open func() *client, name string) {
		one, other, writer := open(), open(), open()
		permit := lockproxy.Options{TTL: 3 * time.Second, Permits: 2}
		first := one.mustAcquire(t, name, permit)
		bound := permit
		bound.Session = true
		second := other.mustAcquire(t, name, bound)
		if second.Fence <= first.Fence {
			t.Errorf("fence %d after %d", second.Fence, first.Fence)
		}
		began := first.Until()
		eventually(t, "a lease and a half", func() bool { return time.Since(began) > 1500*time.Millisecond })
		other.wantHeld(t, name, permit)
		writer.wantHeld(t, name, lockproxy.Options{})
		if err := first.Release(t.Context()); err != nil {
			t.Error("the first: ", err)
		}
		third := other.mustAcquire(t, name, permit)
		if third.Fence <= second.Fence {
			t.Errorf("fence %d after %d", third.Fence, second.Fence)
		}
		writer.wantHeld(t, name, lockproxy.Options{})
		for _, l := range []*lockproxy.Lock{second, third} {
			if err := l.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
		w := writer.mustAcquire(t, name, lockproxy.Options{})
		one.wantHeld(t, name, permit)
		if err := w.Release(t.Context()); err != nil {
			t.Error("who has it alone: ", err)
		}
	})
}

// TestSeveral: all names are had at once, for longer than a lease, each with a fence of its own. Who waits for some of them holds none meanwhile.
func TestSeveral(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	s.eachKind(t, settings{}, func(t *testing.T, open func() *client, name string) {
		one, other := open(), open()
		a, b, c := name+":a", name+":b", name+":c"
		first, err := one.AcquireAll(t.Context(), []string{b, a}, lockproxy.Options{TTL: 3 * time.Second, Wait: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		fences := make(chan map[string]int64, 1)
		var ended sync.WaitGroup
		defer ended.Wait()
		ended.Go(func() {
			opts := lockproxy.Options{Wait: time.Minute, Session: true}
			err := other.DoAll(t.Context(), []string{a, b, c}, opts, func(_ context.Context, l *lockproxy.Lock) error {
				fences <- l.Fences
				return nil
			})
			if err != nil {
				t.Error(err)
				close(fences)
			}
		})
		s.awaitWaiters(t, a, 1)
		began := first.Until()
		eventually(t, "a lease and a half", func() bool { return time.Since(began) > 1500*time.Millisecond })
		select {
		case f := <-fences:
			t.Errorf("another has them, with %v after %v; the holder knows %v", f, first.Fences, first.Err())
		default:
		}
		one.wantHeld(t, b, lockproxy.Options{Shared: true})
		if l := one.mustAcquire(t, c, lockproxy.Options{}); l.Release(t.Context()) != nil {
			t.Error("who waits has it")
		}
		if err := first.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if f := <-fences; len(f) != 3 || f[a] <= first.Fences[a] || f[b] <= first.Fences[b] || f[c] == 0 {
			t.Errorf("fences %v after %v", f, first.Fences)
		}
	})
}

// TestSeveral_Shared: readers of several names, of which they have one in common, and a writer.
func TestSeveral_Shared(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	s.eachKind(t, settings{}, func(t *testing.T, open func() *client, name string) {
		one, other := open(), open()
		a, b, c := name+":a", name+":b", name+":c"
		reader := lockproxy.Options{Shared: true, Wait: time.Minute}
		first, err := one.AcquireAll(t.Context(), []string{a, b}, reader)
		if err != nil {
			t.Fatal(err)
		}
		second, err := other.AcquireAll(t.Context(), []string{b, c}, reader)
		if err != nil {
			t.Fatal(err)
		}
		other.wantHeld(t, c, lockproxy.Options{})
		for _, l := range []*lockproxy.Lock{first, second} {
			if err := l.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
		writer, err := other.AcquireAll(t.Context(), []string{a, b, c}, lockproxy.Options{Wait: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if f := writer.Fences; f[a] <= first.Fences[a] || f[b] <= first.Fences[b] || f[c] <= second.Fences[c] {
			t.Errorf("fences %v after %v and %v", f, first.Fences, second.Fences)
		}
		if err := writer.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestSeveral_Lost: whoever loses one of the names is told once, and has none of them when it has heard of it.
func TestSeveral_Lost(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	s.eachKind(t, settings{}, func(t *testing.T, open func() *client, name string) {
		a, b := name+":a", name+":b"
		for how, opts := range map[string]lockproxy.Options{
			"renewed": {TTL: 30 * time.Second, Wait: time.Minute},
			"session": {TTL: time.Minute, Wait: time.Minute, Session: true},
		} {
			t.Run(how, func(t *testing.T) {
				var told atomic.Int32
				opts.OnLost = func(error) { told.Add(1) }
				c := open()
				err := c.DoAll(t.Context(), []string{a, b}, opts, func(ctx context.Context, _ *lockproxy.Lock) error {
					redistest.Open(t, s.proxies[1].Addr()).Do(t, "LOCKCTL", "FORCE", b)
					select {
					case <-ctx.Done():
						return context.Cause(ctx)
					case <-time.After(40 * time.Second): // before the minute is over
						return errors.New("not told")
					}
				})
				if !errors.Is(err, lockproxy.ErrLost) || strings.Contains(err.Error(), "not told") {
					t.Error(err)
				}
				eventually(t, "told", func() bool { return told.Load() > 0 })
				s.awaitNoLocks(t, a)
				if n := told.Load(); n != 1 {
					t.Errorf("told %d times", n)
				}
			})
		}
	})
}

// TestWaiting_KeepsItsPlace: who asks again, as a long wait is asked for in pieces, does not go to the end of the line. The client
// has one connection for all of its other commands, which are answered meanwhile.
func TestWaiting_KeepsItsPlace(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	const piece = 5 * time.Second
	s.eachKind(t, settings{timeout: 2 * piece, few: true}, func(t *testing.T, open func() *client, name string) {
		c := open()
		holder := c.mustAcquire(t, name, lockproxy.Options{})
		var all sync.WaitGroup
		defer all.Wait()
		for i, who := range []string{"first", "second", "third"} {
			if i == 1 {
				time.Sleep(piece / 2)
			}
			all.Go(func() {
				err := c.Do(t.Context(), name, lockproxy.Options{Wait: time.Minute, Info: who}, func(context.Context, *lockproxy.Lock) error { return nil })
				if err != nil {
					t.Errorf("the %s: %v", who, err)
				}
			})
			s.awaitWaiters(t, name, i+1)
		}
		time.Sleep(piece/2 + piece/10) // the first asks again, and the others do not
		looks := redistest.Open(t, s.proxies[0].Addr())
		var line string
		eventually(t, "three in line", func() bool {
			rows := looks.Do(t, "LOCKCTL", "WAITERS", name).Elems
			line = ""
			for _, row := range rows {
				line += " " + row.Elems[9].Text
			}
			return len(rows) == 3
		})
		if strings.HasSuffix(line, "first") { // one that asks the nodes just then may stay in front of it
			t.Errorf("the line is%s", line)
		}
		if err := c.ping(t.Context()); err != nil {
			t.Error(err)
		}
		if err := holder.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestCancelled: who gives up waiting, or asking silent nodes, leaves nothing behind.
func TestCancelled(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	t.Run("while it waits", func(t *testing.T) {
		s.eachKind(t, settings{}, func(t *testing.T, open func() *client, name string) {
			c := open()
			holder := c.mustAcquire(t, name, lockproxy.Options{})
			for _, session := range []bool{false, true} {
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() {
					_, err := c.Acquire(ctx, name, lockproxy.Options{Wait: -1, Session: session})
					done <- err
				}()
				s.awaitWaiters(t, name, 1)
				cancel()
				if err := <-done; err != context.Canceled {
					t.Error(err)
				}
				s.awaitWaiters(t, name, 0)
			}
			if err := holder.Release(t.Context()); err != nil {
				t.Error(err)
			}
			s.awaitNoLocks(t, name)
		})
	})
	t.Run("while nodes are silent", func(t *testing.T) {
		var acquire []func(ctx context.Context) error
		for _, k := range kinds {
			c, err := k.open(settings{addr: s.proxies[0].Addr()})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.close)
			for _, session := range []bool{false, true} {
				acquire = append(acquire, func(ctx context.Context) error {
					l, err := c.Acquire(ctx, fmt.Sprint(k.name, session), lockproxy.Options{TTL: time.Minute, Session: session})
					if err == nil { // the nodes were heard in time
						err = l.Release(context.Background())
					}
					return err
				})
			}
		}
		for _, n := range s.nodes {
			n.Do(t, "CLIENT", "PAUSE", "500", "ALL")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		errs := make(chan error)
		for _, a := range acquire {
			go func() { errs <- a(ctx) }()
		}
		for range acquire {
			if err := <-errs; err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		}
		s.awaitNoLocks(t, "")
	})
}

// TestOwnConnections have the settings of the client: TLS, user and password, database.
func TestOwnConnections(t *testing.T) {
	t.Parallel()
	s := &site{data: redistest.Start(t), nodes: redistest.StartNodes(t, 3)}
	s.data.Do(t, "ACL", "SETUSER", "app", "on", ">pw", "~app:*", "+@all")
	ca := redistest.NewAuthority(t)
	cert, key := ca.Issue(t, "proxy")
	s.proxies = append(s.proxies, redistest.StartProxy(t, s.data, s.nodes, "--tls-cert", cert, "--tls-key", key))
	s.eachKind(t, settings{tls: ca.Client(t, "", ""), user: "app", password: "pw", db: 3}, func(t *testing.T, open func() *client, name string) {
		c := open()
		for _, opts := range []lockproxy.Options{{Session: true}, {Wait: 300 * time.Millisecond}} {
			l := c.mustAcquire(t, "app:"+name, lockproxy.Options{Session: true})
			c.wantHeld(t, "app:"+name, opts)
			if err := l.Release(t.Context()); err != nil {
				t.Error(err)
			}
			_, err := c.Acquire(t.Context(), name, opts)
			if answer := lockproxy.ReplyError(""); !errors.As(err, &answer) || !strings.HasPrefix(string(answer), "NOPERM ") {
				t.Errorf("with %+v, where the user may not: %v", opts, err)
			}
		}
	})
}
