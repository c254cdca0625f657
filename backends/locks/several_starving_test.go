package locks_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/memstore"
	"github.com/lockproxy/lockproxy/integration/redistest"
)

// An intentStore notes who is kept out.
type intentStore struct {
	*memstore.Store
	mu    sync.Mutex
	asked []locks.Attempt
	at    []time.Duration
	letIn []string
}

func (s *intentStore) Acquire(ctx context.Context, a locks.Attempt) (locks.Decision, error) {
	s.mu.Lock()
	if len(a.Others) > 0 {
		s.asked, s.at = append(s.asked, a), append(s.at, s.Now())
	}
	s.mu.Unlock()
	return s.Store.Acquire(ctx, a)
}

func (s *intentStore) DropIntent(h locks.Holder) {
	s.mu.Lock()
	s.letIn = append(s.letIn, h.Name+" "+h.Owner)
	s.mu.Unlock()
	s.Store.DropIntent(h)
}

// TestSeveralWait_KeepsOthersOut: who is refused again and again has others kept out, for longer each time, but for a quarter of the time
// at most; they are let in when it gives up.
func TestSeveralWait_KeepsOthersOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		store := &intentStore{Store: memstore.New(time.Minute, func() time.Duration { return time.Since(began) + time.Hour })}
		s := serve(t, store, locks.Options{})
		s.Lines().SetPoll(7*time.Millisecond, 7*time.Millisecond)
		b := locks.Key{Name: "b"}
		lock(t, s, locks.LockRequest{Key: b, Owner: "holder", TTL: time.Minute})
		d, err := s.Lock(t.Context(), waits("alice", "a b", 40*time.Second))
		if err != nil || d.Granted || d.Of.Name != "b" {
			t.Fatalf("%+v, %v", d, err)
		}
		want, until := 10*time.Millisecond, time.Duration(0)
		var out time.Duration
		sent := 0
		for i, a := range store.asked {
			now := store.at[i]
			switch {
			case a.Since.Sub(began).Abs() > time.Millisecond:
				t.Errorf("question %d is of a request that waits since %v", i, a.Since)
			case a.Intent == 0:
				continue
			case i < 3:
				t.Errorf("question %d keeps others out", i)
			case a.Intent != want || now < until:
				t.Errorf("at %v, before %v: others are kept out for %v, not %v", now, until, a.Intent, want)
			}
			out += a.Intent
			sent++
			want, until = min(2*want, locks.MaxIntent), now+4*a.Intent
		}
		if sent < 8 || out > 11*time.Second || out < 6*time.Second {
			t.Errorf("others are kept out %d times, for %v in all", sent, out)
		}
		if fmt.Sprint(store.letIn) != "[a alice b alice]" {
			t.Errorf("let in: %v", store.letIn)
		}
		lock(t, s, locks.LockRequest{Key: locks.Key{Name: "a"}, Owner: "bob"})
	})
}

// TestSeveralWait_LetsIn: others are let in again when it has all names, since nodes that granted it some keep them out until then.
func TestSeveralWait_LetsIn(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			store := &intentStore{Store: memstore.New(time.Minute, func() time.Duration { return time.Since(began) + time.Hour })}
			s := serve(t, store, locks.Options{})
			b := locks.Key{Name: "b"}
			for i, after := range []time.Duration{0, 20 * time.Second} {
				lock(t, s, locks.LockRequest{Key: b, Owner: "holder"})
				all := inLineAt(t, s, waits("alice", "b a", time.Minute), "b")
				time.Sleep(after)
				unlock(t, s, locks.UnlockRequest{Key: b, Owner: "holder"}, 0)
				grantingAll(t, all, "b a")
				if got, want := fmt.Sprint(store.letIn), []string{"[]", "[b alice a alice]"}[i]; got != want {
					t.Errorf("after %v: let in %s, want %s", after, got, want)
				}
				unlockAll(t, s, "alice", "a b")
			}
		})
	})
}

// TestSeveralWait_TellsTheLine: who stands behind one that got several names knows who has the name, and does not ask.
func TestSeveralWait_TellsTheLine(t *testing.T) {
	for _, names := range []string{"a b c", "b c a", "c a b"} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			store := &countingStore{Store: memstore.New(time.Minute, func() time.Duration { return time.Since(began) + time.Hour })}
			s := serve(t, store, locks.Options{})
			b := locks.Key{Name: "b"}
			lock(t, s, locks.LockRequest{Key: b, Owner: "holder"})
			all := inLineAt(t, s, waits("all", names, time.Minute), "b")
			behind := inLine(t, s, "b", "next")
			before := store.n.Load()
			unlock(t, s, locks.UnlockRequest{Key: b, Owner: "holder"}, 0)
			granting(t, all)
			synctest.Wait()
			known, _ := s.Lines().Known(b)
			if n := store.n.Load() - before; n != 1 || known.Holder != "all" {
				t.Errorf("it was asked %d times; of b is known %+v", n, known)
			}
			unlockAll(t, s, "all", names)
			granting(t, behind)
		})
	}
}

// TestSeveralWait_NotStarved: a request for several names gets them, though others have taken one of them at any time: for who locks
// one name here passes the lines, like those who lock at other proxies.
func TestSeveralWait_NotStarved(t *testing.T) {
	inMemory(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		var lockers sync.WaitGroup
		done := make(chan struct{})
		for i, name := range []string{"a", "b", "c"} {
			lockers.Go(func() {
				time.Sleep(time.Duration(i) * 3 * time.Millisecond) // so that no two names are given back at once
				for n := 0; ; n++ {
					owner := fmt.Sprint(name, n)
					r := locks.LockRequest{Key: locks.Key{Name: name}, Owner: owner, TTL: 30 * time.Second, Barge: true}
					d, err := s.Lock(t.Context(), r)
					select {
					case <-done:
						return
					default:
					}
					switch {
					case err != nil:
						t.Error(err)
						return
					case d.Granted:
						time.Sleep(10 * time.Millisecond)
						unlock(t, s, locks.UnlockRequest{Key: r.Key, Owner: owner}, 0)
					default:
						time.Sleep(time.Millisecond)
					}
				}
			})
		}
		time.Sleep(20 * time.Millisecond)
		r := granting(t, wait(t, s, waits("several", "c a b", 10*time.Minute)))
		if r.took > time.Minute {
			t.Errorf("granted after %v", r.took)
		}
		close(done)
		lockers.Wait()
	})
}

// TestSeveralWait_Intents: the request that has waited longest keeps new owners out of all its names, whether they want one or several;
// who has a name already is not kept from it.
func TestSeveralWait_Intents(t *testing.T) {
	test := func(t *testing.T, st locks.Store, s *locks.Service) {
		const intent = 9 * time.Second // nodes believe in none of ten
		began := time.Now()
		ask := func(r locks.LockRequest, since int) locks.Decision {
			t.Helper()
			a := locks.Attempt{LockRequest: r, Asked: st.Now()}
			if since > 0 {
				a.Intent, a.Since = intent, began.Add(time.Duration(since)*time.Second)
			}
			d, err := st.Acquire(t.Context(), a)
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		kept := func(d locks.Decision, why string) {
			t.Helper()
			if time.Since(began) > intent {
				t.Skip("this machine is too busy: the intents have ended")
			}
			if d.Granted || d.Why != locks.Intent || d.Remaining <= 0 || d.Remaining > intent+locks.Drift(intent) {
				t.Errorf("%s: %+v", why, d)
			}
		}
		lock(t, s, locks.LockRequest{Key: locks.Key{Name: "b"}, Owner: "holder"})
		lock(t, s, locks.LockRequest{Key: locks.Key{Name: "d"}, Owner: "holder"})
		if d := ask(several("young", "a b"), 2); d.Granted || d.Holder != "holder" || d.Of.Name != "b" {
			t.Errorf("%+v", d)
		}
		one := locks.LockRequest{Key: locks.Key{Name: "a"}, Owner: "one", TTL: time.Second}
		kept(ask(one, 0), "who wants one")
		one.Shared, one.Reader = true, "one"
		kept(ask(one, 0), "who reads one")
		kept(ask(several("x", "c a"), 0), "who wants several")
		kept(ask(several("younger", "a c"), 3), "who has not waited as long")
		if d := ask(several("holder", "b d"), 0); !d.Granted || d.Grant.Holds != 2 {
			t.Errorf("who has them: %+v", d)
		}
		if d := ask(several("old", "a d"), 1); d.Granted || d.Of.Name != "d" {
			t.Errorf("who has waited longer: %+v", d)
		}
		kept(ask(several("young", "a c"), 2), "who has not waited as long")
		if d := ask(several("old", "a c"), 1); !d.Granted {
			t.Errorf("who has waited longest: %+v", d)
		}
		unlockAll(t, s, "old", "a c")
		if d := ask(locks.LockRequest{Key: locks.Key{Name: "a"}, Owner: "one", TTL: 30 * time.Second}, 0); !d.Granted {
			t.Errorf("it keeps others out when it has got the name: %+v", d)
		}
		unlock(t, s, locks.UnlockRequest{Key: locks.Key{Name: "b"}, Owner: "holder", All: true}, 0)
		kept(ask(locks.LockRequest{Key: locks.Key{Name: "b"}, Owner: "one", TTL: time.Second}, 0), "who wants one")
		st.DropIntent(locks.Holder{Key: locks.Key{Name: "b"}, Owner: "young"})
		lock(t, s, locks.LockRequest{Key: locks.Key{Name: "b"}, Owner: "one", Wait: 10 * time.Second})
	}
	t.Parallel()
	t.Run("quorum", func(t *testing.T) {
		t.Parallel()
		st, s := serveOn(t, startNodes(t), locks.Options{})
		test(t, st, s)
	})
	t.Run("etcd", func(t *testing.T) {
		t.Parallel()
		st, s := serveOnEtcd(t, redistest.StartEtcd(t, 1), locks.Options{})
		test(t, st, s)
	})
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			st := memstore.New(time.Minute, func() time.Duration { return time.Since(began) + time.Hour })
			test(t, st, serve(t, st, locks.Options{}))
		})
	})
}

// TestSeveralWait_TwoProxies: clients at another proxy that lock one name each, again and again, do not starve one that wants several.
func TestSeveralWait_TwoProxies(t *testing.T) {
	t.Parallel()
	t.Run("quorum", func(t *testing.T) {
		t.Parallel()
		nodes := startNodes(t)
		_, here := serveOn(t, nodes, locks.Options{})
		_, there := serveOn(t, nodes, locks.Options{})
		testTwoProxies(t, here, there)
	})
	t.Run("etcd", func(t *testing.T) {
		t.Parallel()
		members := redistest.StartEtcd(t, 1)
		_, here := serveOnEtcd(t, members, locks.Options{})
		_, there := serveOnEtcd(t, members, locks.Options{})
		testTwoProxies(t, here, there)
	})
}

func testTwoProxies(t *testing.T, here, there *locks.Service) {
	names := "a b c d"
	ctx, stop := context.WithCancel(t.Context())
	var lockers sync.WaitGroup
	defer lockers.Wait()
	defer stop()
	for i, k := range append(named(names), named(names)...) {
		lockers.Go(func() {
			owner := fmt.Sprint("locker ", i)
			for ctx.Err() == nil {
				d, err := there.Lock(ctx, locks.LockRequest{Key: k, Owner: owner, TTL: 30 * time.Second, Wait: time.Minute})
				if ctx.Err() != nil && err != nil {
					return
				}
				if err != nil || !d.Granted {
					t.Errorf("%s: %+v, %v", owner, d, err)
					return
				}
				time.Sleep(10 * time.Millisecond)
				if _, err := there.Unlock(t.Context(), locks.UnlockRequest{Key: k, Owner: owner}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range 3 {
		owner := fmt.Sprint("several ", i)
		r := granting(t, wait(t, here, waits(owner, names, 5*time.Minute)))
		t.Logf("granted after %v", r.took)
		unlockAll(t, here, owner, names)
	}
}

// A slowStore takes long to renew one name.
type slowStore struct {
	*memstore.Store
	name string
	long time.Duration
}

func (s *slowStore) Renew(ctx context.Context, r locks.RenewRequest) (time.Duration, error) {
	if r.Name == s.name {
		time.Sleep(s.long)
	}
	return s.Store.Renew(ctx, r)
}

// TestRenewAll_EndsWithTheFirst: the validity is that of the name whose lease ends first, however long the others take: what is told of
// one is no longer true when they have been renewed.
func TestRenewAll_EndsWithTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		store := &slowStore{memstore.New(time.Minute, func() time.Duration { return time.Since(began) + time.Hour }), "b", 3 * time.Second}
		s := serve(t, store, locks.Options{})
		lockAll(t, s, several("alice", "a b"))
		renew := func(ttl time.Duration) (time.Duration, error) {
			return s.RenewAll(t.Context(), named("a b"), locks.RenewRequest{Owner: "alice", TTL: ttl})
		}
		if v, err := renew(10 * time.Second); err != nil || v > 7*time.Second || v < 6*time.Second {
			t.Errorf("%v, %v", v, err)
		}
		if v, err := renew(2 * time.Second); !errors.Is(err, locks.ErrLost) {
			t.Errorf("%v, %v", v, err)
		}
	})
}
