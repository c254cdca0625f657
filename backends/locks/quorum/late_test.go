package quorum

import (
	"strconv"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/integration/redistest"
	"github.com/lockproxy/lockproxy/scripts"
)

// soon is a fence of the near future, as from a proxy whose clock is ahead.
func soon() string { return strconv.FormatInt(time.Now().Add(time.Second).UnixMicro(), 10) }

// numbers are the fence of job on a node, or 0, and the largest that it has seen of it, or 0.
func numbers(t *testing.T, s *proxy, c *redistest.Conn) (fence, largest int64) {
	t.Helper()
	k := s.RedisKeys(locks.Key{Name: "job"})
	return c.Do(t, "HGET", k.Lock, "f").Int(), c.Do(t, "HGET", k.Fences, "c").Int()
}

// numbered waits until job has this fence on a node.
func numbered(t *testing.T, s *proxy, c *redistest.Conn, fence int64) {
	t.Helper()
	eventually(t, patient, "the node has the fence of the grant", func() bool {
		f, _ := numbers(t, s, c)
		return f == fence
	})
}

// worksWithout fails the test unless a grant that node 0 and node 2 have of three can be used when node 0 is out.
func worksWithout(t *testing.T, c []*redistest.Conn, p []*proxy, g locks.Grant, holds int) {
	t.Helper()
	refusing(t, c[0], func() {
		for _, s := range p {
			if _, err := s.Renew(t.Context(), locks.RenewRequest{Key: g.Key, Owner: g.Owner, TTL: time.Minute, Fence: g.Fence}); err != nil {
				t.Errorf("RENEW: %v", err)
			}
			if r, err := s.Read(t.Context(), g.Key); err != nil || r.Fence != g.Fence {
				t.Errorf("READ: %+v, %v", r, err)
			}
		}
		if in, err := p[0].Inspect(t.Context(), g.Key); err != nil || !in.Held || in.Holding.Fence != g.Fence {
			t.Errorf("INSPECT: %+v, %v", in, err)
		}
		if again := lock(t, p[1], "job", g.Owner, time.Minute); again.Fence != g.Fence || again.Holds != holds+1 {
			t.Errorf("a re-entry: %+v into %+v", again, g)
		}
		unlock(t, p[0], "job", g.Owner, holds)
		if left, err := p[1].Unlock(t.Context(), locks.UnlockRequest{Key: g.Key, Owner: g.Owner, All: true}); err != nil || left != 0 {
			t.Errorf("UNLOCK ALL: %d, %v", left, err)
		}
	})
}

// TestLateVote: a node votes after a LOCK is decided, under a larger fence than the grant's: it had not seen the name, but
// had stored the fence of another name, which a proxy proposed whose clock is ahead. The node takes over the grant's fence.
func TestLateVote(t *testing.T) {
	t.Parallel()
	p, c, nodes := proxies(t, 2)
	c[2].Do(t, "HSET", p[0].RedisKeys(locks.Key{Name: "job"}).Node, "g", soon())
	nodes[2].Pause()
	g := lock(t, p[0], "job", "alice", 30*time.Second)
	nodes[2].Resume()
	numbered(t, p[0], c[2], g.Fence)
	if _, largest := numbers(t, p[0], c[2]); largest != g.Fence {
		t.Errorf("the node's largest fence is %d, that of the grant %d", largest, g.Fence)
	}
	worksWithout(t, c, p, g, 1)
}

// TestLateVote_Entered: the owner re-enters before a late node has voted. That node then has both holds, under the grant's
// fence.
func TestLateVote_Entered(t *testing.T) {
	t.Parallel()
	p, c, nodes := proxies(t, 2)
	c[2].Do(t, "HSET", p[0].RedisKeys(locks.Key{Name: "job"}).Node, "g", soon())
	nodes[2].Pause()
	g := lock(t, p[0], "job", "alice", 30*time.Second)
	lock(t, p[0], "job", "alice", 30*time.Second)
	nodes[2].Resume()
	numbered(t, p[0], c[2], g.Fence)
	everywhere(t, p[0], c)
	worksWithout(t, c, p, g, 2)
}

// TestLateVote_AfterALaterGrant: a node that had a larger fence before it voted may have been of the quorum of a later grant.
// It does not vouch for the earlier one.
func TestLateVote_AfterALaterGrant(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 1)
	n := redistest.Open(t, nodes[0].Addr())
	later := lock(t, s, "job", "bob", 30*time.Second)
	unlock(t, s, "job", "bob", 0)
	k := s.RedisKeys(locks.Key{Name: "job"})
	n.Do(t, s.Command(scripts.Acquire, k, "alice", "30000", "0", "", "plain", "LATE", "0", "")...)
	was, _ := numbers(t, s, n)
	earlier := later.Fence - 1
	if v := n.Do(t, s.Command(scripts.Settle, k, "alice", strconv.FormatInt(earlier, 10), "LATE")...); v.Elems[0].Int() != 1 {
		t.Fatal(v)
	}
	if f, largest := numbers(t, s, n); f != was || largest != was {
		t.Errorf("fence %d, and the largest %d; want %d", f, largest, was)
	}
}

// undo has a node undo a hold.
func undo(t *testing.T, s *proxy, c *redistest.Conn, owner, hold string) {
	t.Helper()
	c.Do(t, s.Command(scripts.Release, s.RedisKeys(locks.Key{Name: "job"}), gives(owner, locks.Grant{Hold: hold}, "undo", "")...)...)
}

// TestUndo_LeavesNoFence: a rival was first on one node, by a proxy whose clock is ahead, and not on the others. When its LOCK
// is undone there, a renewal may give that node the grant.
func TestUndo_LeavesNoFence(t *testing.T) {
	t.Parallel()
	for _, seen := range []bool{false, true} {
		p, c, _ := proxies(t, 2)
		if seen {
			lock(t, p[0], "job", "carol", 30*time.Second)
			everywhere(t, p[0], c)
			unlock(t, p[0], "job", "carol", 0)
			nothingLeft(t, p[0], c)
		}
		rival := func(hold string) {
			c[2].Do(t, p[1].Command(scripts.Acquire, p[1].RedisKeys(locks.Key{Name: "job"}), "bob", "30000", soon(), "", "plain", hold, "0", "")...)
		}
		_, before := numbers(t, p[0], c[2])
		rival("FIRST")
		undo(t, p[1], c[2], "bob", "FIRST")
		if _, largest := numbers(t, p[0], c[2]); largest != before {
			t.Errorf("the largest fence is %d, and was %d", largest, before)
		}
		rival("SECOND")
		g := lock(t, p[0], "job", "alice", 30*time.Second)
		undo(t, p[1], c[2], "bob", "SECOND")
		if _, err := p[0].Renew(t.Context(), locks.RenewRequest{Key: g.Key, Owner: "alice", TTL: time.Minute}); err != nil {
			t.Fatal(err)
		}
		numbered(t, p[0], c[2], g.Fence)
		refusing(t, c[0], func() {
			if _, err := p[0].Renew(t.Context(), locks.RenewRequest{Key: g.Key, Owner: "alice", TTL: time.Minute}); err != nil {
				t.Errorf("RENEW: %v", err)
			}
		})
	}
}

// TestUndo_KeepsAFenceThatWasTold: the owner entered again by a LOCK that was told the fence of the record, and has given that
// hold back. The fence is not forgotten with the LOCK that made the record.
func TestUndo_KeepsAFenceThatWasTold(t *testing.T) {
	t.Parallel()
	for what, enter := range map[string]func(t *testing.T, s *proxy, n *redistest.Conn, fence string){
		"a re-entry": func(t *testing.T, s *proxy, n *redistest.Conn, _ string) {
			n.Do(t, s.Command(scripts.Acquire, s.RedisKeys(locks.Key{Name: "job"}), "alice", "30000", "0", "", "plain", "SECOND", "0", "")...)
		},
		"a re-entry that an UNLOCK made known": func(t *testing.T, s *proxy, n *redistest.Conn, fence string) {
			third := []string{"alice", fence, "unlock", "", "FIRST", "NAME", "60000", "1", "THIRD", "SECOND", "30000"}
			n.Do(t, s.Command(scripts.Release, s.RedisKeys(locks.Key{Name: "job"}), third...)...)
		},
		"a RENEW": func(t *testing.T, s *proxy, n *redistest.Conn, fence string) {
			n.Do(t, s.Command(scripts.Renew, s.RedisKeys(locks.Key{Name: "job"}), "alice", "30000", fence, "FIRST", "E", "1", "FIRST:0", "0", "0", "FIRST", "SECOND")...)
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s, nodes := start(t, 1)
			n := redistest.Open(t, nodes[0].Addr())
			k := s.RedisKeys(locks.Key{Name: "job"})
			n.Do(t, s.Command(scripts.Acquire, k, "alice", "30000", "0", "", "plain", "FIRST", "0", "")...)
			told, _ := numbers(t, s, n)
			enter(t, s, n, strconv.FormatInt(told, 10))
			if v := n.Do(t, "HEXISTS", k.Lock, "SECOND"); v.Int() != 1 {
				t.Fatal("it was not entered again")
			}
			n.Do(t, s.Command(scripts.Release, k, gives("alice", locks.Grant{Fence: told, Hold: "SECOND"}, "unlock", "")...)...)
			if n.Do(t, "HEXISTS", k.Lock, "FIRST").Int() != 1 {
				t.Error("the first hold went with the other")
			}
			undo(t, s, n, "alice", "FIRST")
			if f, largest := numbers(t, s, n); f != 0 || largest < told {
				t.Errorf("record with fence %d, the largest fence is %d, and %d was told", f, largest, told)
			}
		})
	}
}
