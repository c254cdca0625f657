package quorum

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/integration/redistest"
	"github.com/lockproxy/lockproxy/scripts"
)

// inPlaceOf is a LOCK that replaces a grant.
func inPlaceOf(g locks.Grant, owner string) locks.LockRequest {
	return locks.LockRequest{Key: g.Key, Owner: owner, TTL: 30 * time.Second, Replaces: &locks.GrantRef{Owner: g.Owner, Fence: g.Fence}}
}

// replaces are the arguments of an acquisition that replaces a grant.
func replaces(s *proxy, g locks.Grant, owner, hold string) []string {
	return []string{owner, "30000", s.proposal(), "", "replace", hold, strconv.FormatInt(g.Fence, 10), g.Owner}
}

func replaced(t *testing.T, s *proxy, old locks.Grant, owner string) locks.Grant {
	t.Helper()
	a, err := s.Lock(t.Context(), inPlaceOf(old, owner))
	if err != nil || !a.Granted || a.Grant.Fence <= old.Fence {
		t.Fatalf("LOCK in place of fence %d: %+v, %v", old.Fence, a, err)
	}
	return a.Grant
}

// TestReplace_OnTheNode: a node drops exactly the grant that is named, once, and grants in the same step. Nothing that
// is still under way, for either grant, brings back what was dropped or drops what came later.
func TestReplace_OnTheNode(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 1)
	n := redistest.Open(t, nodes[0].Addr())
	k := s.RedisKeys(locks.Key{DB: 0, Name: "job"})
	ask := func(args []string) []redistest.Value {
		t.Helper()
		return n.Do(t, s.Command(scripts.Acquire, k, args...)...).Elems
	}
	owner := func(want string) {
		t.Helper()
		if got := n.Do(t, "HGET", k.Lock, "o").Text; got != want {
			t.Fatalf("the name is %q's, not %q's", got, want)
		}
	}
	old := lock(t, s, "job", "alice", time.Minute)
	inner := lock(t, s, "job", "alice", time.Minute)

	for name, change := range map[string]func(*locks.Grant){
		"another owner":   func(g *locks.Grant) { g.Owner = "carol" },
		"an earlier one":  func(g *locks.Grant) { g.Fence-- },
		"a later one":     func(g *locks.Grant) { g.Fence++ },
		"the asker's own": func(g *locks.Grant) { g.Owner = "bob" },
	} {
		other := old
		change(&other)
		if v := ask(replaces(s, other, "bob", "early")); v[0].Int() != 0 || v[1].Text != "alice" {
			t.Errorf("in place of %s: %v", name, v)
		}
	}
	owner("alice")

	first := ask(replaces(s, old, "bob", "first"))
	if first[0].Int() != 1 || first[1].Int() <= old.Fence || first[2].Int() != 0 || first[4].Int() != 1 {
		t.Fatalf("in place of fence %d: %v", old.Fence, first)
	}
	owner("bob")
	if noted := n.Do(t, "HGET", k.Fences, "m").Text; noted != strconv.FormatInt(old.Fence, 10) {
		t.Errorf("it has noted %q of what it dropped", noted)
	}
	if again := ask(replaces(s, old, "bob", "first")); again[0].Int() != 1 || again[2].Int() != first[1].Int() || again[4].Int() != 1 {
		t.Errorf("repeated: %v, after %v", again, first)
	}
	if v := ask(replaces(s, old, "carol", "second")); v[0].Int() != 0 || v[1].Text != "bob" {
		t.Errorf("the same grant, replaced once more: %v", v)
	}

	n.Do(t, s.Command(scripts.Release, k, "bob", "0", "undo", "", "", "undoing", "60000", "1", "first")...)
	owner("")
	if v := ask(replaces(s, old, "bob", "first")); v[0].Int() != 0 {
		t.Errorf("repeated when it was undone: %v", v)
	}
	if v := ask(replaces(s, old, "carol", "third")); v[0].Int() != 0 || v[1].Text != "" {
		t.Errorf("in place of a grant that is not there, where the name is free: %v", v)
	}
	for _, hold := range []string{old.Hold, inner.Hold} {
		if v := ask(asks("alice", "10000", s.proposal(), hold)); v[0].Int() != 2 {
			t.Errorf("the LOCK of what was replaced: %v", v)
		}
	}
	late := renewal(s, old, 10*time.Second, vote.Version{Epoch: old.Hold, Sequence: 1}, "1")
	if v := n.Do(t, late...); v.Elems[0].Int() != 0 {
		t.Errorf("a renewal of what was replaced: %v", v)
	}
	owner("")

	later := lock(t, s, "job", "alice", time.Minute)
	if v := ask(replaces(s, old, "bob", "late")); v[0].Int() != 0 || v[3].Int() != later.Fence {
		t.Errorf("late: %v", v)
	}
	if renewedBy(t, s, later) <= 0 {
		t.Error("the later grant is gone")
	}
}

// TestReplace_BesideAnUNLOCK: an UNLOCK of the replaced grant fails, though its proxy remembers that the validity runs.
func TestReplace_BesideAnUNLOCK(t *testing.T) {
	t.Parallel()
	p, c, _ := proxies(t, 2)
	old := lock(t, p[0], "job", "alice", time.Minute)
	g := replaced(t, p[1], old, "bob")
	unlock(t, p[1], "job", "bob", 0)
	for _, once := range []bool{false, true} {
		left, err := p[0].Unlock(t.Context(), locks.UnlockRequest{Key: old.Key, Owner: "alice", Fence: old.Fence, Once: once})
		if err == nil {
			t.Errorf("UNLOCK of fence %d, which %d has replaced (once: %v): %d", old.Fence, g.Fence, once, left)
		}
	}
	if v, err := p[0].Renew(t.Context(), locks.RenewRequest{Key: old.Key, Owner: "alice", Fence: old.Fence, TTL: time.Minute}); err == nil {
		t.Errorf("RENEW of fence %d: %v", old.Fence, v)
	}
	nothingLeft(t, p[0], c)
}

// TestReplace_NotesFirst: before any node drops something, a quorum has noted it, since it may be dropped by some only and
// the LOCK be undone.
func TestReplace_NotesFirst(t *testing.T) {
	t.Parallel()
	p, c, _ := proxies(t, 1)
	old := lock(t, p[0], "job", "alice", time.Minute)
	wrong := old
	wrong.Owner = "carol" // so that no node drops it
	if a, err := p[0].Lock(t.Context(), inPlaceOf(wrong, "bob")); err != nil || a.Granted {
		t.Fatalf("in place of a grant that is not there: %+v, %v", a, err)
	}
	noted := 0
	for i := range c {
		if c[i].Do(t, "HGET", p[0].RedisKeys(old.Key).Fences, "m").Text == strconv.FormatInt(old.Fence, 10) {
			noted++
		}
	}
	if noted < 2 {
		t.Errorf("%d nodes have noted it", noted)
	}
}

// TestReplace_SessionElsewhere: the session that keeps what was replaced, through another proxy, is told at once.
func TestReplace_SessionElsewhere(t *testing.T) {
	t.Parallel()
	p, _, _ := proxies(t, 2)
	kept := newClient(p[0])
	old := kept.lock(t, "job", "alice", time.Minute, 0)
	hearsCuts(t, p[0])
	replaced(t, p[1], old, "bob")
	began := time.Now()
	eventually(t, 10*time.Second, "the session is told", func() bool { return len(kept.told()) == 1 })
	if took := time.Since(began); took > 15*time.Second { // it renews a third of the lease after the grant
		t.Errorf("the session was told after %v", took)
	}
}

// TestReplace_WithoutQuorum: nobody is granted anything, and what was replaced on one node does not come back there.
// The others still have it.
func TestReplace_WithoutQuorum(t *testing.T) {
	t.Parallel()
	p, c, nodes := proxies(t, 2)
	old := lock(t, p[0], "job", "alice", time.Minute)
	eventually(t, patient, "every node has the grant", func() bool {
		for i := range c {
			if c[i].Do(t, "HGET", p[0].RedisKeys(old.Key).Lock, "f").Text != strconv.FormatInt(old.Fence, 10) {
				return false
			}
		}
		return true
	})
	k := p[0].RedisKeys(old.Key)
	for i := range c { // as by a replacement whose messages came to one node only
		c[i].Do(t, p[0].Command(scripts.Note, k, strconv.FormatInt(old.Fence, 10))...)
	}
	if v := c[0].Do(t, p[0].Command(scripts.Acquire, k, replaces(p[0], old, "bob", "partly")...)...); v.Elems[0].Int() != 1 {
		t.Fatal(v)
	}
	c[0].Do(t, p[0].Command(scripts.Release, k, "bob", "0", "undo", "", "", "undoing", "60000", "1", "partly")...)
	if renewedBy(t, p[0], old) <= 0 {
		t.Error("what two nodes have is not renewed")
	}
	if v := c[0].Do(t, "EXISTS", k.Lock).Int(); v != 0 {
		t.Error("the node that dropped it has it again")
	}
	nodes[1].Kill()
	nodes[2].Kill()
	var few *locks.QuorumError
	if a, err := p[1].Lock(t.Context(), inPlaceOf(old, "carol")); !errors.As(err, &few) {
		t.Errorf("LOCK with one node of three: %+v, %v", a, err)
	}
}

// TestReplace_WhatOneNodeLacks: two of three nodes are enough where they have the grant, and not where one of them has not.
func TestReplace_WhatOneNodeLacks(t *testing.T) {
	t.Parallel()
	p, c, nodes := proxies(t, 1)
	k := p[0].RedisKeys(locks.Key{Name: "job"})
	old := lock(t, p[0], "job", "alice", time.Minute)
	eventually(t, patient, "every node has the grant", func() bool {
		return c[0].Do(t, "EXISTS", k.Lock).Int()+c[1].Do(t, "EXISTS", k.Lock).Int()+c[2].Do(t, "EXISTS", k.Lock).Int() == 3
	})
	c[0].Do(t, "DEL", k.Lock)
	g := replaced(t, p[0], old, "bob")
	c[1].Do(t, "DEL", k.Lock)
	nodes[0].Kill()
	if a, err := p[0].Lock(t.Context(), inPlaceOf(g, "carol")); err != nil || a.Granted {
		t.Errorf("in place of what one node of two has: %+v, %v", a, err)
	}
}
