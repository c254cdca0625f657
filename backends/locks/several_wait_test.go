package locks_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/memstore"
	"github.com/lockproxy/lockproxy/backends/locks/waitq"
)

// waits is several with a wait.
func waits(owner, names string, wait time.Duration) locks.LockRequest {
	r := several(owner, names)
	r.Wait = wait
	return r
}

// inLineAt is wait for several names, when it stands in the line of this one.
func inLineAt(t *testing.T, s *locks.Service, r locks.LockRequest, name string) <-chan result {
	t.Helper()
	out := wait(t, s, r)
	standsAt(t, s, r.Owner, name)
	return out
}

func standsAt(t *testing.T, s *locks.Service, owner, name string) {
	t.Helper()
	eventually(t, owner+" waits for "+name, func() bool { return slices.Contains(standing(s, name), owner) })
}

// standing are the owners in the line of a name.
func standing(s *locks.Service, name string) (owners []string) {
	for _, w := range s.Waiters(locks.Key{Name: name}) {
		owners = append(owners, w.Owner)
	}
	return owners
}

// grantingAll is granting for several names.
func grantingAll(t *testing.T, c <-chan result, names string) []locks.Grant {
	t.Helper()
	r := granting(t, c)
	got := all(r.Decision)
	for i, k := range named(names) {
		if got[i].Name != k.Name {
			t.Errorf("granted %+v, not %s", got, names)
		}
	}
	return got
}

// TestSeveralWait_HoldsUpNobody: who waits for several names keeps nobody from one that it does not stand in line for, though it came first.
func TestSeveralWait_HoldsUpNobody(t *testing.T) {
	onSeveral(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		a, b := locks.Key{Name: "a"}, locks.Key{Name: "b"}
		lock(t, s, locks.LockRequest{Key: b, Owner: "bob"})
		alice := inLineAt(t, s, waits("alice", "a b", time.Minute), "b")
		granting(t, wait(t, s, locks.LockRequest{Key: a, Owner: "bob", TTL: 30 * time.Second, Wait: 10 * time.Second}))
		none(t, alice, 20*time.Millisecond)
		unlock(t, s, locks.UnlockRequest{Key: b, Owner: "bob"}, 0)
		standsAt(t, s, "alice", "a")
		lock(t, s, locks.LockRequest{Key: b, Owner: "carol", Wait: 10 * time.Second})
		unlock(t, s, locks.UnlockRequest{Key: a, Owner: "bob"}, 0)
		unlock(t, s, locks.UnlockRequest{Key: b, Owner: "carol"}, 0)
		grantingAll(t, alice, "a b")
	})
}

// TestSeveralWait_InTurn: who waits for several names is served in its turn where it stands, and takes nothing before.
func TestSeveralWait_InTurn(t *testing.T) {
	onSeveral(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		b := locks.Key{Name: "b"}
		lock(t, s, locks.LockRequest{Key: b, Owner: "holder"})
		early := inLine(t, s, "b", "early")
		both := inLineAt(t, s, waits("both", "b a", time.Minute), "b")
		late := inLine(t, s, "b", "late")
		if d := refused(t, s, "b", ""); d.Holder != "holder" || d.Waiters != 3 {
			t.Errorf("b is %+v", d)
		}
		unlock(t, s, locks.UnlockRequest{Key: b, Owner: "holder"}, 0)
		granting(t, early)
		none(t, both, 20*time.Millisecond)
		none(t, late, 20*time.Millisecond)
		unlock(t, s, locks.UnlockRequest{Key: b, Owner: "early"}, 0)
		grantingAll(t, both, "b a")
		none(t, late, 20*time.Millisecond)
		unlockAll(t, s, "both", "a b")
		granting(t, late)
		if n := s.Lines().Total(); n != 0 {
			t.Errorf("%d are left in line", n)
		}
	})
}

// TestSeveralWait_Seniority: it enters each line before those who came after it.
func TestSeveralWait_Seniority(t *testing.T) {
	onSeveral(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		a, b := locks.Key{Name: "a"}, locks.Key{Name: "b"}
		lock(t, s, locks.LockRequest{Key: a, Owner: "holder"})
		lock(t, s, locks.LockRequest{Key: b, Owner: "holder"})
		early := inLine(t, s, "b", "early")
		first := inLineAt(t, s, waits("first", "a b", time.Minute), "b") // early was there before
		second := inLineAt(t, s, waits("second", "a c", time.Minute), "a")
		late := inLine(t, s, "b", "late")
		unlock(t, s, locks.UnlockRequest{Key: b, Owner: "holder"}, 0)
		granting(t, early)
		unlock(t, s, locks.UnlockRequest{Key: b, Owner: "early"}, 0)
		granting(t, late) // of b, while first waits for a
		if got := standing(s, "a"); !slices.Equal(got, []string{"first", "second"}) {
			t.Errorf("for a wait %v", got)
		}
		unlock(t, s, locks.UnlockRequest{Key: a, Owner: "holder"}, 0)
		grantingAll(t, second, "a c") // while first waits for b
		standsAt(t, s, "first", "b")
		unlock(t, s, locks.UnlockRequest{Key: b, Owner: "late"}, 0)
		standsAt(t, s, "first", "a")
		unlockAll(t, s, "second", "a c")
		grantingAll(t, first, "a b")
	})
}

// TestSeveralWait_OneAfterTheOther: it waits for each name that is in the way, in the line of that name.
func TestSeveralWait_OneAfterTheOther(t *testing.T) {
	onSeveral(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		s.Lines().SetPoll(time.Hour, time.Hour) // only what happens has it ask
		names := strings.Fields("a b c d")
		for _, n := range names {
			lock(t, s, locks.LockRequest{Key: locks.Key{Name: n}, Owner: n})
		}
		all := inLineAt(t, s, waits("all", "a b c d", time.Minute), "a")
		for _, i := range rand.Perm(len(names)) {
			none(t, all, 10*time.Millisecond)
			unlock(t, s, locks.UnlockRequest{Key: locks.Key{Name: names[i]}, Owner: names[i]}, 0)
		}
		if r := granting(t, all); r.took > time.Minute {
			t.Errorf("after %v", r.took)
		}
	})
}

// TestSeveralWait_HolderCrashed: it asks again when the lease of whoever is in the way ends.
func TestSeveralWait_HolderCrashed(t *testing.T) {
	onSeveral(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		s.Lines().SetPoll(time.Hour, time.Hour)
		lock(t, s, locks.LockRequest{Key: locks.Key{Name: "b"}, Owner: "crashed", TTL: 2 * time.Second})
		lock(t, s, locks.LockRequest{Key: locks.Key{Name: "c"}, Owner: "crashed", TTL: 3 * time.Second})
		if r := granting(t, inLineAt(t, s, waits("alice", "a b c", time.Minute), "b")); r.took < 2800*time.Millisecond {
			t.Errorf("granted within the lease, after %v", r.took)
		}
	})
}

// TestSeveralWait_Deadline: when its time is over it is refused, and told which name is in the way; in no line it is left.
func TestSeveralWait_Deadline(t *testing.T) {
	onSeveral(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		lock(t, s, locks.LockRequest{Key: locks.Key{Name: "b"}, Owner: "holder"})
		first := waits("first", "c b a", 100*time.Millisecond)
		for _, c := range []<-chan result{wait(t, s, first), wait(t, s, waits("second", "b a", 150*time.Millisecond))} {
			r := <-c
			if r.err != nil || r.Granted || r.Holder != "holder" || r.Of.Name != "b" || r.Remaining < 20*time.Second || r.took < 100*time.Millisecond {
				t.Errorf("%+v, %v after %v", r.Decision, r.err, r.took)
			}
		}
		if n := s.Lines().Total(); n != 0 {
			t.Errorf("%d still wait", n)
		}
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() {
			_, err := s.Lock(ctx, waits("gone", "a b", time.Minute))
			left <- err
		}()
		eventually(t, "it waits", func() bool { return s.Lines().Total() == 1 })
		cancel()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		lock(t, s, locks.LockRequest{Key: locks.Key{Name: "a"}})
	})
}

// TestSeveralWait_Limits: a request counts once, however many its names are.
func TestSeveralWait_Limits(t *testing.T) {
	onSeveral(t, locks.Options{MaxWait: time.Minute, MaxWaiters: 2}, func(t *testing.T, s *locks.Service) {
		if _, err := s.Lock(t.Context(), waits("alice", "a b", time.Minute+1)); !errors.As(err, new(*locks.MaxWaitError)) {
			t.Errorf("a wait over the longest: %v", err)
		}
		lock(t, s, locks.LockRequest{Key: locks.Key{Name: "b"}, Owner: "holder"})
		alice := inLineAt(t, s, waits("alice", "a b c", time.Minute), "b")
		bob := inLineAt(t, s, waits("bob", "b c d", time.Minute), "b")
		if n := s.Stats().Waiting; n != 2 {
			t.Errorf("%d wait", n)
		}
		var full *locks.QueueFullError
		if _, err := s.Lock(t.Context(), waits("carol", "a b", time.Minute)); !errors.As(err, &full) || full.Max != 2 {
			t.Errorf("over the limit: %v", err)
		}
		unlock(t, s, locks.UnlockRequest{Key: locks.Key{Name: "b"}, Owner: "holder"}, 0)
		granting(t, alice)
		unlockAll(t, s, "alice", "a b c")
		granting(t, bob)
	})
}

// TestSeveralWait_Own: names that its owner has need no turn.
func TestSeveralWait_Own(t *testing.T) {
	onSeveral(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		a, b := locks.Key{Name: "a"}, locks.Key{Name: "b"}
		had := lock(t, s, locks.LockRequest{Key: a, Owner: "alice"})
		other := inLine(t, s, "a", "other")
		lock(t, s, locks.LockRequest{Key: b, Owner: "holder"})
		alice := inLineAt(t, s, waits("alice", "a b", time.Minute), "b")
		unlock(t, s, locks.UnlockRequest{Key: b, Owner: "holder"}, 0)
		if got := grantingAll(t, alice, "a b"); got[0].Holds != 2 || got[0].Fence != had.Fence || got[1].Holds != 1 {
			t.Errorf("%+v", got)
		}
		if got := lockAll(t, s, waits("alice", "b a", time.Minute)); got[0].Holds != 2 || got[1].Holds != 3 {
			t.Errorf("all of them again: %+v", got)
		}
		none(t, other, 10*time.Millisecond)
	})
}

// TestSeveralWait_OwnerGetsOne: when its owner gets one of the names meanwhile, it needs no turn for that.
func TestSeveralWait_OwnerGetsOne(t *testing.T) {
	onSeveral(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		a, b := locks.Key{Name: "a"}, locks.Key{Name: "b"}
		lock(t, s, locks.LockRequest{Key: a, Owner: "holder"})
		one, other := inLine(t, s, "a", "alice"), inLine(t, s, "a", "other")
		lock(t, s, locks.LockRequest{Key: b, Owner: "holder"})
		both := inLineAt(t, s, waits("alice", "a b", time.Minute), "a")
		unlock(t, s, locks.UnlockRequest{Key: a, Owner: "holder"}, 0)
		granting(t, one)
		none(t, both, 10*time.Millisecond)
		unlock(t, s, locks.UnlockRequest{Key: b, Owner: "holder"}, 0)
		if got := grantingAll(t, both, "a b"); got[0].Holds != 2 || got[1].Holds != 1 {
			t.Errorf("%+v", got)
		}
		none(t, other, 10*time.Millisecond)
	})
}

// TestSeveralWait_OwnerGetsAll: when it gets its names, others of its owner that wait for one of them re-enter.
func TestSeveralWait_OwnerGetsAll(t *testing.T) {
	onSeveral(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		b := locks.Key{Name: "b"}
		lock(t, s, locks.LockRequest{Key: b, Owner: "holder"})
		both := inLineAt(t, s, waits("alice", "a b", time.Minute), "b")
		other, one := inLine(t, s, "b", "other"), inLine(t, s, "b", "alice")
		unlock(t, s, locks.UnlockRequest{Key: b, Owner: "holder"}, 0)
		grantingAll(t, both, "a b")
		if g := granting(t, one).Grant; g.Holds != 2 {
			t.Errorf("%+v", g)
		}
		none(t, other, 10*time.Millisecond)
		unlock(t, s, locks.UnlockRequest{Key: b, Owner: "alice", All: true}, 0)
		granting(t, other)
	})
}

// TestSeveralWait_OwnAtAnotherProxy: that its owner has a name is found out where others wait for that, and that it has lost one that it
// seems to have.
func TestSeveralWait_OwnAtAnotherProxy(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t)
	_, here := serveOn(t, nodes, locks.Options{})
	_, there := serveOn(t, nodes, locks.Options{})
	here.Lines().SetPoll(time.Hour, time.Hour) // nobody finds it out by asking again
	reads := func(owner, names string) locks.LockRequest {
		r := waits(owner, names, 20*time.Second)
		r.Shared = true
		return r
	}
	lockAll(t, there, several("alice", "a b"))
	lockAll(t, there, reads("alice", "r s"))
	lockAll(t, there, reads("erin", "r s"))
	carol := reads("carol", "r s")
	carol.TTL = 50 * time.Second // so that it is she who is told of
	lockAll(t, there, carol)
	for _, name := range []string{"a", "r"} {
		wait(t, here, locks.LockRequest{Key: locks.Key{Name: name}, Owner: "other", TTL: 10 * time.Second, Wait: 10 * time.Minute})
		eventually(t, "it sleeps, and asks no more since all nodes tell it of releases", func() bool {
			l := here.Lines().Line(locks.Key{Name: name})
			return l.Asleep && l.Confirmed == len(nodes)
		})
	}
	if got := lockAll(t, here, waits("alice", "c a", 20*time.Second)); got[1].Holds != 2 {
		t.Errorf("%+v", got)
	}
	lockAll(t, here, reads("alice", "u r"))
	lock(t, here, locks.LockRequest{Key: locks.Key{Name: "v"}, Owner: "holder"})
	erin := inLineAt(t, here, reads("erin", "v r"), "v")
	unlock(t, here, locks.UnlockRequest{Key: locks.Key{Name: "v"}, Owner: "holder"}, 0)
	grantingAll(t, erin, "v r")

	lockAll(t, here, several("bob", "x y"))
	unlockAll(t, there, "bob", "x y")
	lockAll(t, there, several("other", "x y"))
	bob := wait(t, here, waits("bob", "x y", time.Minute))
	eventually(t, "it waits", func() bool { return here.Lines().Total() == 3 })
	unlockAll(t, there, "other", "x y")
	grantingAll(t, bob, "x y")
}

// TestSeveralWait_OwnLapses: a name that its owner has lost is waited for without a line, and got when it is free.
func TestSeveralWait_OwnLapses(t *testing.T) {
	onSeveral(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		a, b := locks.Key{Name: "a"}, locks.Key{Name: "b"}
		lock(t, s, locks.LockRequest{Key: a, Owner: "alice"})
		lock(t, s, locks.LockRequest{Key: b, Owner: "holder"})
		alice := inLineAt(t, s, waits("alice", "a b", time.Minute), "b")
		unlock(t, s, locks.UnlockRequest{Key: a, Owner: "alice"}, 0)
		lock(t, s, locks.LockRequest{Key: a, Owner: "other"})
		unlock(t, s, locks.UnlockRequest{Key: b, Owner: "holder"}, 0)
		none(t, alice, 50*time.Millisecond)
		eventually(t, "b was not taken meanwhile", func() bool {
			d, err := s.Lock(t.Context(), locks.LockRequest{Key: b, Owner: "next", TTL: 100 * time.Millisecond, Barge: true})
			return err == nil && d.Granted
		})
		unlock(t, s, locks.UnlockRequest{Key: a, Owner: "other"}, 0)
		grantingAll(t, alice, "a b")
	})
}

// TestSeveralWait_NoReenter: a request that does not re-enter waits until its owner has given the name back.
func TestSeveralWait_NoReenter(t *testing.T) {
	onSeveral(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		lock(t, s, locks.LockRequest{Key: locks.Key{Name: "b"}, Owner: "alice"})
		r := waits("alice", "a b", time.Minute)
		r.NoReenter = true
		w := inLineAt(t, s, r, "b")
		none(t, w, 50*time.Millisecond)
		unlock(t, s, locks.UnlockRequest{Key: locks.Key{Name: "b"}, Owner: "alice"}, 0)
		for _, g := range grantingAll(t, w, "a b") {
			if g.Holds != 1 {
				t.Errorf("%+v", g)
			}
		}
	})
}

// A queue is told of a request that waits.
type queue struct {
	told atomic.Pointer[locks.Decision]
}

func (q *queue) Queued(d locks.Decision) { q.told.Store(&d) }

// TestSeveralWait_Place: a request that waits, sent again, is told its place; one that comes back has it again.
func TestSeveralWait_Place(t *testing.T) {
	onSeveral(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		lock(t, s, locks.LockRequest{Key: locks.Key{Name: "c"}, Owner: "holder"})
		early := inLine(t, s, "c", "early")
		r := waits("alice", "a b c", time.Minute)
		q := &queue{}
		r.Req, r.Queue = "x", q
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() {
			_, err := s.Lock(ctx, r)
			left <- err
		}()
		eventually(t, "it is told that it waits", func() bool { return q.told.Load() != nil })
		again := r
		again.Wait = 0
		sent, err := s.Lock(t.Context(), again)
		for _, d := range []locks.Decision{*q.told.Load(), sent} {
			if err != nil || d.Granted || d.Holder != "holder" || d.Waiters != 1 || d.Of.Name != "c" {
				t.Errorf("its place is %+v, %v", d, err)
			}
		}
		late := inLineAt(t, s, waits("late", "a c", time.Minute), "c")
		leave()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		back := wait(t, s, r)
		eventually(t, "it is back", func() bool { return s.Lines().Total() == 3 })
		if order := standing(s, "c"); !slices.Equal(order, []string{"early", "alice", "late"}) {
			t.Errorf("the line is %v", order)
		}
		unlock(t, s, locks.UnlockRequest{Key: locks.Key{Name: "c"}, Owner: "holder"}, 0)
		granting(t, early)
		unlock(t, s, locks.UnlockRequest{Key: locks.Key{Name: "c"}, Owner: "early"}, 0)
		grantingAll(t, back, "a b c")
		none(t, late, 10*time.Millisecond)
		unlockAll(t, s, "alice", "a b c")
		granting(t, late)
	})
}

// TestSeveralWait_SameRequestAtOnce: copies of a request, which name the same things in another order, take them once.
func TestSeveralWait_SameRequestAtOnce(t *testing.T) {
	onSeveral(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		for round := range 10 {
			lock(t, s, locks.LockRequest{Key: locks.Key{Name: "b"}, Owner: "holder"})
			var copies []<-chan result
			for i := range 8 {
				r := waits("alice", []string{"a b c", "c b a"}[i%2], time.Minute)
				r.Req = fmt.Sprint(round)
				copies = append(copies, wait(t, s, r))
			}
			standsAt(t, s, "alice", "b")
			if n := s.Lines().Total(); n != 1 {
				t.Errorf("%d wait", n)
			}
			unlock(t, s, locks.UnlockRequest{Key: locks.Key{Name: "b"}, Owner: "holder"}, 0)
			for _, c := range copies {
				for _, g := range all(granting(t, c).Decision) {
					if g.Holds != 1 {
						t.Errorf("%+v", g)
					}
				}
			}
			unlockAll(t, s, "alice", "a b c")
		}
		if n := s.UnderWay(); n != 0 {
			t.Errorf("%d requests are kept that nobody makes", n)
		}
	})
}

// TestSeveralWait_RequestOfOneName: the same id for one of the names is another request under way, after which this one gives up.
func TestSeveralWait_RequestOfOneName(t *testing.T) {
	onSeveral(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		b := locks.Key{Name: "b"}
		lock(t, s, locks.LockRequest{Key: b, Owner: "holder"})
		one := wait(t, s, locks.LockRequest{Key: b, Owner: "alice", TTL: 30 * time.Second, Req: "x", Wait: time.Minute})
		eventually(t, "one waits", func() bool { return s.Lines().Len(b) == 1 })
		r := waits("alice", "b a", time.Millisecond)
		r.Req = "x"
		if d, err := s.Lock(t.Context(), r); err != nil || d.Granted {
			t.Errorf("%+v, %v", d, err)
		}
		if n := s.UnderWay(); n != 1 {
			t.Errorf("%d requests are under way", n)
		}
		unlock(t, s, locks.UnlockRequest{Key: b, Owner: "holder"}, 0)
		granting(t, one)
		if d, err := s.Lock(t.Context(), r); err != nil || !d.Granted || d.Grant.Holds != 1 {
			t.Errorf("%+v, %v", d, err)
		}
	})
}

// TestSeveralWait_Readers: readers of several names come in together, a writer after them.
func TestSeveralWait_Readers(t *testing.T) {
	onSeveral(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		lock(t, s, locks.LockRequest{Key: locks.Key{Name: "b"}, Owner: "holder"})
		reads := func(owner, names string) locks.LockRequest {
			r := waits(owner, names, time.Minute)
			r.Shared = true
			return r
		}
		r1 := inLineAt(t, s, reads("r1", "a b"), "b")
		r2 := inLineAt(t, s, reads("r2", "b c"), "b")
		w := inLineAt(t, s, waits("w", "d b", time.Minute), "b")
		late := inLineAt(t, s, reads("late", "b c"), "b")
		unlock(t, s, locks.UnlockRequest{Key: locks.Key{Name: "b"}, Owner: "holder"}, 0)
		grantingAll(t, r1, "a b")
		grantingAll(t, r2, "b c")
		none(t, w, 10*time.Millisecond)
		none(t, late, 10*time.Millisecond)
		unlockReader := func(owner, names string) {
			if _, err := s.UnlockAll(t.Context(), named(names), locks.UnlockRequest{Owner: owner, Shared: true}); err != nil {
				t.Error(err)
			}
		}
		unlockReader("r1", "a b")
		unlockReader("r2", "b c")
		grantingAll(t, w, "d b")
		none(t, late, 10*time.Millisecond)
		unlockAll(t, s, "w", "b d")
		grantingAll(t, late, "b c")
	})
}

// TestSeveralWait_NobodyOvertakes: a LOCK of several names that does not wait is refused while others wait for one of them, also at the
// moment that is free; not if its owner has that name.
func TestSeveralWait_NobodyOvertakes(t *testing.T) {
	onSeveral(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		free := locks.Key{Name: "free"}
		lock(t, s, locks.LockRequest{Key: locks.Key{Name: "b"}, Owner: "holder"})
		w, err := s.Lines().Join([]locks.Key{free}, "", "", waitq.Alone, &locks.Waiting{})
		if err != nil {
			t.Fatal(err)
		}
		other := inLine(t, s, "b", "other")
		for _, owner := range []string{"", "alice"} {
			if d, err := s.Lock(t.Context(), several(owner, "x free a")); err != nil || d.Granted || d.Of != free || d.Waiters != 1 || d.Holder != "" {
				t.Errorf("%+v, %v", d, err)
			}
			if d, err := s.Lock(t.Context(), several(owner, "x b a")); err != nil || d.Granted || d.Of.Name != "b" || d.Waiters != 1 || d.Holder != "holder" {
				t.Errorf("%+v, %v", d, err)
			}
		}
		s.Lines().Leave(w, false)
		lockAll(t, s, several("holder", "x free b"))
		none(t, other, 10*time.Millisecond)
	})
}

// TestSeveralWait_Closed: who still waits when the Service ends is told so, and Run ends after that.
func TestSeveralWait_Closed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s, err := locks.New(memstore.New(time.Minute, func() time.Duration { return time.Since(began) + time.Hour }), locks.Options{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		lock(t, s, locks.LockRequest{Key: locks.Key{Name: "b"}, Owner: "holder"})
		var told []<-chan result
		for _, owner := range []string{"first", "second"} {
			told = append(told, inLineAt(t, s, waits(owner, "a b", time.Minute), "b"))
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		for _, c := range told {
			if r := <-c; !errors.Is(r.err, locks.ErrClosed) {
				t.Errorf("%+v, %v", r.Decision, r.err)
			}
		}
		if n := s.Lines().Total(); n != 0 {
			t.Errorf("%d are left in line", n)
		}
	})
}

// TestSeveralWait_NoDeadlock: many clients that want some of the same names each, in any order, all get them, and never two at once; also
// those who take the first name before all others of theirs.
func TestSeveralWait_NoDeadlock(t *testing.T) {
	onSeveral(t, locks.Options{}, func(t *testing.T, s *locks.Service) {
		const clients, rounds, names = 24, 4, 5
		var has [names]atomic.Int64
		var all sync.WaitGroup
		for c := range clients {
			all.Go(func() {
				r := rand.New(rand.NewPCG(uint64(c), 2))
				for round := range rounds {
					mine := r.Perm(names)[:1+r.IntN(names)]
					ask := locks.LockRequest{Owner: fmt.Sprint("client ", c), TTL: 50 * time.Second, Wait: 5 * time.Minute}
					if r.IntN(3) == 0 {
						slices.Sort(mine)
						first := ask
						first.Key = locks.Key{Name: fmt.Sprint(mine[0])}
						if d, err := s.Lock(t.Context(), first); err != nil || !d.Granted {
							t.Errorf("client %d: %+v, %v", c, d, err)
							return
						}
					}
					for _, i := range mine {
						ask.Others = append(ask.Others, locks.Key{Name: fmt.Sprint(i)})
					}
					ask.Key, ask.Others = ask.Others[0], ask.Others[1:]
					if r.IntN(2) == 0 {
						ask.Req = fmt.Sprint(round)
					}
					d, err := s.Lock(t.Context(), ask)
					if err != nil || !d.Granted {
						t.Errorf("client %d: %+v, %v", c, d, err)
						return
					}
					for _, i := range mine {
						if n := has[i].Add(1); n != 1 {
							t.Errorf("%d clients have %d", n, i)
						}
					}
					time.Sleep(time.Duration(r.IntN(3)) * time.Millisecond)
					for _, i := range mine {
						has[i].Add(-1)
					}
					if left, err := s.UnlockAll(t.Context(), ask.Names(), locks.UnlockRequest{Owner: ask.Owner, All: true}); err != nil || left != 0 {
						t.Errorf("client %d: %d are left, %v", c, left, err)
					}
				}
			})
		}
		all.Wait()
		if n := s.Lines().Total(); n != 0 {
			t.Errorf("%d are left in line", n)
		}
	})
}
