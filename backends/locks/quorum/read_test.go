package quorum

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/nodekeys"
	"github.com/lockproxy/lockproxy/integration/redistest"
	"github.com/lockproxy/lockproxy/scripts"
)

var jobKey = locks.Key{Name: "job"}

func read(t *testing.T, s *proxy) locks.Reading {
	t.Helper()
	r, err := s.Service.Read(t.Context(), jobKey)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestRead says who has a name, through any proxy.
func TestRead(t *testing.T) {
	t.Parallel()
	p, _, nodes := proxies(t, 2)
	if r := read(t, p[1]); r != (locks.Reading{}) {
		t.Errorf("free: %+v", r)
	}
	g := lock(t, p[0], "job", "alice", time.Minute)
	r := read(t, p[1])
	if !r.Held || r.Owner != "alice" || r.Fence != g.Fence || r.Holds != 1 || r.Remaining < 50*time.Second || r.Remaining > time.Minute {
		t.Errorf("held: %+v, granted %+v", r, g)
	}
	delivered(t, 1, p...)
	delivered(t, 2, p...)
	nodes[0].Kill()
	if r := read(t, p[1]); !r.Held || r.Owner != "alice" {
		t.Errorf("with a node down: %+v", r)
	}
	nodes[1].Kill()
	var few *locks.QuorumError
	if r, err := p[1].Service.Read(t.Context(), jobKey); !errors.As(err, &few) {
		t.Errorf("with two nodes down: %+v, %v", r, err)
	}
}

// TestRead_Readers: a read says how many read a name, and until when, also beside one who has it as well.
func TestRead_Readers(t *testing.T) {
	t.Parallel()
	p, _, nodes := proxies(t, 2)
	reads := func(owner string, ttl time.Duration) {
		t.Helper()
		d, err := p[0].Service.Lock(t.Context(), locks.LockRequest{Key: jobKey, Owner: owner, TTL: ttl, Shared: true})
		if err != nil || !d.Granted {
			t.Fatalf("%s: %+v, %v", owner, d, err)
		}
	}
	want := func(readers int, held bool) {
		t.Helper()
		if r := read(t, p[1]); r.Readers != readers || r.Held != held || (r.Reads > 50*time.Second) != (readers > 0) || r.Reads > time.Minute {
			t.Errorf("%+v, not %d readers, and held: %t", r, readers, held)
		}
	}
	want(0, false)
	reads("alice", 20*time.Second)
	reads("bob", time.Minute)
	want(2, false)
	delivered(t, 1, p...)
	delivered(t, 2, p...)
	nodes[0].Kill()
	want(2, false)
	if _, err := p[1].Service.Unlock(t.Context(), locks.UnlockRequest{Key: jobKey, Owner: "alice", Shared: true}); err != nil {
		t.Fatal(err)
	}
	want(1, false)
	lock(t, p[0], "job", "bob", time.Minute)
	want(1, true)
	own, err := p[1].Service.Read(t.Context(), locks.Holder{Key: jobKey, Owner: "bob"}.Reading().Key)
	if err != nil || !own.Held || own.Holds != 1 {
		t.Errorf("what bob reads: %+v, %v", own, err)
	}
	if _, err := p[1].Service.Unlock(t.Context(), locks.UnlockRequest{Key: jobKey, Owner: "bob", Shared: true}); err != nil {
		t.Fatal(err)
	}
	want(0, true)
}

// TestRead_Undecided: where the node that is silent may be the one which makes a majority, a read says so.
func TestRead_Undecided(t *testing.T) {
	t.Parallel()
	p, _, nodes := proxies(t, 2)
	lock(t, p[0], "job", "alice", time.Minute)
	delivered(t, 1, p...)
	delivered(t, 2, p...)
	nodes[0].Kill()
	nodes[1].Do(t, "DEL", nodekeys.Lock("lockproxy:", jobKey))
	var few *locks.QuorumError
	if r, err := p[1].Service.Read(t.Context(), jobKey); !errors.As(err, &few) {
		t.Errorf("one says yes, one no, and one nothing: %+v, %v", r, err)
	}
}

// TestUnlock_Once: of two releases of one grant, through any proxies, one succeeds.
func TestUnlock_Once(t *testing.T) {
	t.Parallel()
	p, c, _ := proxies(t, 2)
	for first := range p {
		for second := range p {
			g := lock(t, p[0], "job", "alice", time.Minute)
			everywhere(t, p[0], c)
			release := func(s *proxy) error {
				_, err := s.Unlock(t.Context(), locks.UnlockRequest{Key: jobKey, Owner: "alice", Fence: g.Fence, Once: true})
				return err
			}
			if err := release(p[first]); err != nil {
				t.Errorf("first, at %d: %v", first, err)
			}
			if err := release(p[second]); !errors.Is(err, locks.ErrLost) {
				t.Errorf("at %d after %d: %v", second, first, err)
			}
		}
	}
}

// TestUnlock_OnceAfterAnother: a release of a grant that was given back through another proxy, and after which the
// name was granted anew, was done before, also where this proxy takes the grant for valid.
func TestUnlock_OnceAfterAnother(t *testing.T) {
	t.Parallel()
	p, c, _ := proxies(t, 2)
	release := func(at int, g locks.Grant) error {
		_, err := p[at].Unlock(t.Context(), locks.UnlockRequest{Key: jobKey, Owner: g.Owner, Fence: g.Fence, All: true, Once: true})
		return err
	}
	for _, heldAgain := range []bool{false, true} {
		nowhere(t, p[0], c)
		g := lock(t, p[0], "job", "alice", time.Minute)
		everywhere(t, p[0], c)
		if err := release(1, g); err != nil {
			t.Fatal(err)
		}
		nowhere(t, p[0], c)
		next := lock(t, p[1], "job", "bob", time.Minute)
		everywhere(t, p[1], c)
		if !heldAgain {
			if err := release(1, next); err != nil {
				t.Fatal(err)
			}
		}
		notOwner := (*locks.NotOwnerError)(nil)
		if err := release(0, g); !errors.Is(err, locks.ErrLost) && !errors.As(err, &notOwner) {
			t.Errorf("alice's, with bob's held: %t: %v", heldAgain, err)
		}
		if heldAgain {
			if err := release(1, next); err != nil {
				t.Errorf("bob's: %v", err)
			}
		}
	}
}

// TestUnlock_OnceBesideARival: a release that must not have been done before counts nodes that never had the grant, while
// no node knows of an earlier one. Of five nodes two are dead, and at one or two of the others a rival is trying. The
// second release must not be told that it was the one, also where the first reached none but nodes without the grant.
func TestUnlock_OnceBesideARival(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2} {
		for _, req := range []string{"", "u"} {
			nodes := redistest.StartNodes(t, 5)
			p, c := rivals(t, 2, nodes), conns(t, nodes)
			g := lock(t, p[0], "job", "alice", time.Minute)
			everywhere(t, p[0], c)
			for i := range n {
				rivalHas(t, p[0], c[2+i])
			}
			nodes[0].Kill()
			nodes[1].Kill()
			once := locks.UnlockRequest{Key: jobKey, Owner: "alice", Fence: g.Fence, All: true, Once: true, Req: req}
			if left, err := p[0].Unlock(t.Context(), once); err != nil || left != 0 {
				t.Errorf("%d rivals, %q: %d left, %v", n, req, left, err)
			}
			once.Req = "another"
			for at, s := range p {
				if left, err := s.Unlock(t.Context(), once); err == nil {
					t.Errorf("%d rivals, %q, again at %d: %d left", n, req, at, left)
				}
			}
		}
	}
}

// TestUnlock_OnceAfterNodesWithoutTheGrant: an earlier release was done by three of five nodes, of which two did not have
// the grant and the third is dead. One of the others still has it.
func TestUnlock_OnceAfterNodesWithoutTheGrant(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 5)
	c := conns(t, nodes)
	g := lock(t, s, "job", "alice", time.Minute)
	everywhere(t, s, c)
	k := s.RedisKeys(jobKey)
	for _, i := range []int{0, 3, 4} {
		if i > 0 {
			c[i].Do(t, "DEL", k.Lock)
		}
		c[i].Do(t, s.Command(scripts.Release, k, gives("alice", g, "unlock", "")...)...)
	}
	nodes[0].Kill()
	nodes[1].Kill()
	_, err := s.Unlock(t.Context(), locks.UnlockRequest{Key: jobKey, Owner: "alice", Fence: g.Fence, All: true, Once: true})
	if !errors.Is(err, locks.ErrLost) {
		t.Errorf("%v, want %v", err, locks.ErrLost)
	}
}

// TestUnlock_OnceWithReq: a release that must not have been done before may have been sent before, at the same moment
// through another proxy as well: both have the answer. Another release of the grant is told that it comes too late.
// With a fence that no grant has nothing is given back, and the answer is that of the first all the same.
func TestUnlock_OnceWithReq(t *testing.T) {
	t.Parallel()
	p, c, _ := proxies(t, 2)
	const noFence = -1
	for round := range 10 {
		g := lock(t, p[0], "job", "alice", time.Minute)
		everywhere(t, p[0], c)
		req := fmt.Sprint("u", round)
		release := func(at int, req string, fence int64) (int, error) {
			return p[at].Unlock(t.Context(), locks.UnlockRequest{Key: jobKey, Owner: "alice", Fence: fence, Once: true, Req: req})
		}
		if left, err := release(round%2, req, noFence); !errors.Is(err, locks.ErrLost) {
			t.Fatalf("asked before it was done: %d left, %v", left, err)
		}
		var both sync.WaitGroup
		for at := range p {
			both.Go(func() {
				if left, err := release(at, req, g.Fence); err != nil || left != 0 {
					t.Errorf("at %d: %d left, %v", at, left, err)
				}
			})
		}
		both.Wait()
		for at := range p {
			if left, err := release(at, "v", 0); !errors.Is(err, locks.ErrLost) {
				t.Errorf("another, at %d: %d left, %v", at, left, err)
			}
			if left, err := release(at, req, noFence); err != nil || left != 0 {
				t.Errorf("again, at %d: %d left, %v", at, left, err)
			}
		}
	}
}
