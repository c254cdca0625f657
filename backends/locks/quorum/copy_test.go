package quorum

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/nodekeys"
	"github.com/lockproxy/lockproxy/backends/locks/seats"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/backends/locks/voters"
	"github.com/lockproxy/lockproxy/backends/metrics"
	"github.com/lockproxy/lockproxy/integration/redistest"
	"github.com/lockproxy/lockproxy/scripts"
)

// longLeases are options under which a node that forgot would be out for an hour.
func longLeases(t *testing.T, nodes []*redistest.Server) testOptions {
	return testOptions{Nodes: nodesAt(t, addrs(nodes)...), NodeTimeout: patient, MaxTTL: time.Hour}
}

// copied waits until the nodes have forgotten, and all vote again.
func copied(t *testing.T, s *proxy, nodes ...*redistest.Server) {
	t.Helper()
	for _, n := range nodes {
		eventually(t, time.Minute, n.Addr()+" has copied", func() bool {
			v := n.Do(t, "HMGET", "lockproxy:node", "copied", "sync")
			return len(v.Elems[0].Text) > 1 && v.Elems[1].Text == "1"
		})
	}
	allVote(t, s)
}

// inDoubt are the names about which a node does not vote.
func inDoubt(t *testing.T, n *redistest.Server) string {
	t.Helper()
	var names []string
	for _, k := range n.Do(t, "KEYS", "lockproxy:doubt:0:*").Elems {
		names = append(names, strings.TrimPrefix(k.Text, "lockproxy:doubt:0:"))
	}
	return strings.Join(names, " ")
}

// TestCopy_OfThree: a node that was emptied votes within seconds about all names but those that were held. About these it votes when
// they are given back.
func TestCopy_OfThree(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 3)
	s := serve(t, longLeases(t, nodes))
	other := serve(t, longLeases(t, nodes))
	allVote(t, s, other)
	job := lock(t, s, "job", "alice", 40*time.Minute)
	again, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "once"}, Owner: "alice", TTL: time.Minute, Req: "id"})
	if err != nil || !again.Granted {
		t.Fatal(again, err)
	}
	unlock(t, s, "once", "alice", 0)
	nodes[0].Do(t, "FLUSHALL")
	copied(t, s, nodes[0])
	if d := inDoubt(t, nodes[0]); d != "job" {
		t.Errorf("the node is in doubt about %q", d)
	}
	if in, err := s.Inspect(t.Context(), job.Key); err != nil || !in.Held || in.Nodes[0].Doubt <= 39*time.Minute || in.Nodes[0].Err == nil {
		t.Errorf("what the node says of the lock: %+v, %v", in.Nodes[0], err)
	}
	eventually(t, time.Minute, "the node says that it is in doubt", func() bool { return s.Nodes()[0].Doubt > 39*time.Minute })
	if in := (metrics.Registry{s.set}).Sample("lockproxy_lock_node_doubt_seconds", "node", nodes[0].Addr()); in == nil || in.Value < 39*60 {
		t.Errorf("the metric says %v", in)
	}
	nodes[1].Pause()
	if a, err := other.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "bob", TTL: time.Minute}); err == nil || a.Granted ||
		!strings.Contains(err.Error(), "abstains for this name") {
		t.Errorf("LOCK of a name that is held: %+v, %v", a, err)
	}
	if a, err := other.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "also"}, Owner: "bob", TTL: time.Minute, Others: []locks.Key{{Name: "job"}}}); err == nil {
		t.Errorf("LOCK of several, of which one is held: %+v", a)
	}
	if g := lock(t, other, "free", "bob", time.Minute); g.Fence <= job.Fence {
		t.Errorf("fence %d after %d", g.Fence, job.Fence)
	}
	repeated, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "once"}, Owner: "alice", TTL: time.Minute, Req: "id"})
	if err != nil || repeated.Grant.Fence != again.Grant.Fence || repeated.Grant.Holds != 0 {
		t.Errorf("a request that is over is granted anew: %+v, %v", repeated, err)
	}
	nodes[1].Resume()
	eventually(t, time.Minute, "UNLOCK", func() bool {
		left, err := s.Unlock(t.Context(), locks.UnlockRequest{Key: locks.Key{Name: "job"}, Owner: "alice"})
		return err == nil && left == 0
	})
	eventually(t, time.Minute, "the node is in no doubt", func() bool { return inDoubt(t, nodes[0]) == "" })
	allVote(t, s, other)
	nodes[2].Pause()
	eventually(t, time.Minute, "bob has it with the vote of the node", func() bool {
		a, err := other.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "bob", TTL: time.Minute})
		return err == nil && a.Granted && a.Grant.Fence > job.Fence
	})
	nodes[2].Resume()
}

// TestCopy_ReadersAndPermits: a name is in doubt while one of those who read it is, and readers keep what they have.
func TestCopy_ReadersAndPermits(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 3)
	s := serve(t, longLeases(t, nodes))
	allVote(t, s)
	read := func(name, owner string, permits int) {
		t.Helper()
		a, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: name}, Owner: owner, TTL: 40 * time.Minute, Shared: permits == 0, Permits: permits})
		if err != nil || !a.Granted {
			t.Fatal(a, err)
		}
	}
	read("job", "alice", 0)
	read("job", "bob", 0)
	read("pool", "alice", 2)
	for _, name := range []string{"job", "pool"} { // all nodes have them
		eventually(t, time.Minute, name, func() bool { return len(nodes[0].Do(t, "KEYS", "lockproxy:read:0:*"+name+"*").Elems) > 0 })
	}
	nodes[0].Do(t, "FLUSHALL")
	copied(t, s, nodes[0])
	nodes[1].Pause()
	for _, r := range []locks.LockRequest{
		{Key: locks.Key{Name: "job"}, TTL: time.Minute},
		{Key: locks.Key{Name: "pool"}, TTL: time.Minute, Permits: 2},
		{Key: locks.Key{Name: "pool"}, TTL: time.Minute},
	} {
		if a, err := s.Lock(t.Context(), r); err == nil {
			t.Errorf("%+v: %+v", r, a)
		}
	}
	nodes[1].Resume()
	allVote(t, s)
	give := func(name, owner string) { // as soon as the node that stood still is asked again
		t.Helper()
		eventually(t, time.Minute, "UNLOCK by "+owner, func() bool {
			left, err := s.Unlock(t.Context(), locks.UnlockRequest{Key: locks.Key{Name: name}, Owner: owner, Shared: true})
			return err == nil && left == 0
		})
	}
	give("job", "alice")
	give("pool", "alice")
	eventually(t, time.Minute, "the node is in doubt about the other reader", func() bool { return inDoubt(t, nodes[0]) == "job" })
	if d := nodes[0].Do(t, "HVALS", "lockproxy:doubt:0:job"); len(d.Elems) != 1 || d.Elems[0].Text != "rbob" {
		t.Errorf("the doubt is about %v", d)
	}
	give("job", "bob")
	eventually(t, time.Minute, "the node is in no doubt", func() bool { return inDoubt(t, nodes[0]) == "" })
	lock(t, s, "job", "carol", time.Minute)
}

// inDoubtOf has these nodes forget, one after the other, what there is.
func inDoubtOf(t *testing.T, s *proxy, nodes ...*redistest.Server) {
	t.Helper()
	for _, n := range nodes {
		n.Do(t, "FLUSHALL")
		copied(t, s, n)
	}
}

// TestCopy_Force: FORCE takes away a name that most nodes, or all, are in doubt about. Neither RENEW nor UNLOCK of its owner succeeds
// after that, and others may have it.
func TestCopy_Force(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 3)
	s := serve(t, longLeases(t, nodes))
	other := serve(t, longLeases(t, nodes))
	allVote(t, s, other)
	for i, forgets := range [][]*redistest.Server{nodes[:2], nodes} {
		job := lock(t, s, "job", "alice", 40*time.Minute)
		lock(t, other, "job", "alice", 40*time.Minute)
		eventually(t, time.Minute, "every node has it", func() bool { return inspect(t, s, "job").Holding.Votes == 3 })
		inDoubtOf(t, s, forgets...)
		if a, err := other.Lock(t.Context(), locks.LockRequest{Key: job.Key, Owner: "bob", TTL: time.Minute}); err == nil || a.Granted {
			t.Errorf("LOCK: %+v, %v", a, err)
		}
		if was, held, err := other.Force(t.Context(), locks.Key{Name: "free"}); held || err != nil {
			t.Errorf("FORCE of a free name: %+v, %v, %v", was, held, err)
		}
		if was, held, err := other.ForceGrant(t.Context(), job.Key, job.Fence); err == nil {
			t.Errorf("of one grant: %+v, %v, of which nobody knows the fence", was, held)
		}
		if was := force(t, []*proxy{other, s}[i], "job"); was.Key != job.Key || was.Owner != "alice" || was.Readers != 0 {
			t.Errorf("forced %+v", was)
		}
		for _, n := range nodes {
			if d := inDoubt(t, n); d != "" {
				t.Errorf("a node is in doubt about %q", d)
			}
		}
		isLost(t, s, "job", "alice", 0)
		isLost(t, other, "job", "alice", job.Fence)
		g := lock(t, other, "job", "bob", time.Minute)
		if g.Fence <= job.Fence {
			t.Errorf("fence %d after %d", g.Fence, job.Fence)
		}
		if _, err := s.Unlock(t.Context(), locks.UnlockRequest{Key: job.Key, Owner: "alice"}); !isNotOwner(err) && !errors.Is(err, locks.ErrLost) {
			t.Errorf("UNLOCK by who was forced out: %v", err)
		}
		unlock(t, s, "job", "bob", 0)
	}
}

// TestCopy_ForceOfReaders: FORCE takes a name in doubt from all who read it or have a permit, and LOCKCTL's form for readers from
// nobody who may have it for itself.
func TestCopy_ForceOfReaders(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 3)
	s := serve(t, longLeases(t, nodes))
	allVote(t, s)
	for _, r := range []locks.LockRequest{
		{Key: locks.Key{Name: "job"}, Owner: "alice", Shared: true}, {Key: locks.Key{Name: "job"}, Owner: "bob", Shared: true},
		{Key: locks.Key{Name: "pool"}, Owner: "alice", Permits: 2}, {Key: locks.Key{Name: "pool"}, Owner: "bob", Permits: 2},
		{Key: locks.Key{Name: "alone"}, Owner: "alice"},
	} {
		r.TTL = 40 * time.Minute
		if a, err := s.Lock(t.Context(), r); err != nil || !a.Granted {
			t.Fatal(a, err)
		}
	}
	for _, n := range nodes {
		eventually(t, time.Minute, "every node has all", func() bool {
			return len(n.Do(t, "KEYS", "lockproxy:read:*").Elems) == 4 && len(n.Do(t, "KEYS", "lockproxy:lock:*").Elems) == 1
		})
	}
	inDoubtOf(t, s, nodes[1:]...)
	if was, held, err := s.ForceReaders(t.Context(), locks.Key{Name: "alone"}); err == nil || held {
		t.Errorf("from readers that there are not: %+v, %v", was, held)
	}
	was, held, err := s.ForceReaders(t.Context(), locks.Key{Name: "job"})
	if err != nil || !held || was.Readers != 2 || was.Reader == "" || was.Name != "job" {
		t.Errorf("forced %+v, %v, %v", was, held, err)
	}
	if was := force(t, s, "pool"); was.Readers != 2 {
		t.Errorf("forced %+v", was)
	}
	for _, n := range nodes[1:] {
		if d := inDoubt(t, n); d != "alone" {
			t.Errorf("a node is in doubt about %q", d)
		}
	}
	for _, name := range []string{"job", "pool"} {
		for _, owner := range []string{"alice", "bob"} {
			if v, err := s.Renew(t.Context(), locks.RenewRequest{Key: locks.Key{Name: name}, Owner: owner, TTL: time.Minute, Shared: true}); !errors.Is(err, locks.ErrLost) {
				t.Errorf("RENEW of %s by %s: %v, %v", name, owner, v, err)
			}
		}
		lock(t, s, name, "carol", time.Minute)
	}
}

// TestCopy_KeptLockGetsAllNodesBack: a lock that a session keeps survives that every node forgets it, one after the other: it is renewed when
// a node votes again, however long its lease is.
func TestCopy_KeptLockGetsAllNodesBack(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 3)
	s := serve(t, longLeases(t, nodes))
	allVote(t, s)
	session := s.NewSession(nil)
	a, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: 40 * time.Minute, Session: session})
	if err != nil || !a.Granted {
		t.Fatal(a, err)
	}
	record := s.RedisKeys(locks.Key{Name: "job"}).Lock
	for _, n := range nodes {
		n.Do(t, "FLUSHALL")
		copied(t, s, n)
		eventually(t, time.Minute, n.Addr()+" has the lock again", func() bool { return n.Do(t, "HGET", record, "f").Text == strconv.FormatInt(a.Grant.Fence, 10) })
		if d := inDoubt(t, n); d != "" {
			t.Errorf("%s has the lock, and is in doubt about %s", n.Addr(), d)
		}
	}
	if b := refused(t, s, "job", "bob", time.Minute); b.Holder != "alice" {
		t.Errorf("%+v", b)
	}
	session.End()
	eventually(t, time.Minute, "it is free", func() bool {
		b, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "bob", TTL: time.Minute})
		return err == nil && b.Granted
	})
}

// TestCopy_OlderSnapshot: of what a node had when its snapshot was taken nothing counts.
func TestCopy_OlderSnapshot(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 3)
	s := serve(t, longLeases(t, nodes))
	allVote(t, s)
	g := lock(t, s, "job", "alice", 40*time.Minute)
	eventually(t, time.Minute, "the node has the lock", func() bool { return nodes[0].Do(t, "EXISTS", s.RedisKeys(g.Key).Lock).Int() == 1 })
	nodes[0].Do(t, "SAVE")
	unlock(t, s, "job", "alice", 0)
	nodes[0].Kill()
	if err := nodes[0].Restart(); err != nil {
		t.Fatal(err)
	}
	copied(t, s, nodes[0])
	if d := inDoubt(t, nodes[0]); d != "" || nodes[0].Do(t, "EXISTS", s.RedisKeys(g.Key).Lock).Int() != 0 {
		t.Errorf("the node is in doubt about %q, and has %v", d, nodes[0].Do(t, "KEYS", "*"))
	}
	if b := lock(t, s, "job", "bob", time.Minute); b.Fence <= g.Fence {
		t.Errorf("fence %d after %d", b.Fence, g.Fence)
	}
}

// TestCopy_TwoOfFive: two nodes forget at once.
func TestCopy_TwoOfFive(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 5)
	s := serve(t, longLeases(t, nodes))
	other := serve(t, longLeases(t, nodes))
	allVote(t, s, other)
	g := lock(t, s, "job", "alice", 40*time.Minute)
	nodes[0].Do(t, "FLUSHALL")
	nodes[1].Do(t, "FLUSHALL")
	copied(t, s, nodes[:2]...)
	allVote(t, other)
	if a, err := other.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "bob", TTL: time.Minute}); err != nil || a.Granted || a.Holder != "alice" {
		t.Errorf("%+v, %v", a, err)
	}
	if v, err := other.Renew(t.Context(), locks.RenewRequest{Key: g.Key, Owner: "alice", TTL: 30 * time.Minute}); err != nil || v < 20*time.Minute {
		t.Errorf("RENEW: %v, %v", v, err)
	}
	unlock(t, other, "job", "alice", 0)
	eventually(t, time.Minute, "no node is in doubt", func() bool { return inDoubt(t, nodes[0])+inDoubt(t, nodes[1]) == "" })
}

// TestCopy_ByAProxyWithASmallerMaxTTL: leases that are longer than those of the proxy that copies are in doubt to their ends.
func TestCopy_ByAProxyWithASmallerMaxTTL(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 3)
	p1, err := newProxy(longLeases(t, nodes))
	if err != nil {
		t.Fatal(err)
	}
	lock(t, p1, "job", "alice", 40*time.Minute)
	if err := p1.Store.Close(); err != nil {
		t.Fatal(err)
	}
	o := longLeases(t, nodes)
	o.MaxTTL, o.RoundLimit = 20*time.Second, voters.RoundLimit
	p2 := serve(t, o)
	allVote(t, p2)
	nodes[0].Do(t, "FLUSHALL")
	copied(t, p2, nodes[0])
	if a, err := p2.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "bob", TTL: time.Second}); err != nil || a.Granted {
		t.Errorf("%+v, %v", a, err)
	}
	if left := nodes[0].Do(t, "PTTL", "lockproxy:doubt:0:job").Int(); left < 30*60_000 {
		t.Errorf("the node is in doubt for %d ms more", left)
	}
}

// A copyScript calls scripts on a node that has forgotten.
type copyScript struct {
	*testing.T
	s    *proxy
	n    *redistest.Server
	node nodekeys.Keys
}

// startCopyScript starts a node. It is alone, so that no proxy copies for it.
func startCopyScript(t *testing.T) *copyScript {
	t.Helper()
	nodes := redistest.StartNodes(t, 1)
	o := longLeases(t, nodes)
	o.RestartGrace = voters.GraceSafe
	c := &copyScript{t, serve(t, o), nodes[0], nodekeys.OfNode("lockproxy:")}
	allVote(t, c.s)
	return c
}

// run calls a script. The reply must begin with want.
func (c *copyScript) run(what, want string, sc *scripts.Script, k nodekeys.Keys, args ...string) string {
	c.Helper()
	got := replyText(c.n.Do(c.T, c.s.Command(sc, k, args...)...))
	if !strings.HasPrefix(got, want) {
		c.Errorf("%s: %s, want %s", what, got, want)
	}
	return got
}

// step calls copy.
func (c *copyScript) step(what, want string, args ...string) string {
	c.Helper()
	return c.run(what, want, scripts.Copy, c.node, args...)
}

// forget has the node forget, so long ago.
func (c *copyScript) forget(gen string, ago time.Duration) {
	c.n.Do(c.T, "HSET", c.node.Node, "sync", "0", "since", inMillis(-ago), "until", inMillis(50*time.Minute), "gen", gen)
}

func (c *copyScript) purge(gen, id string) {
	c.Helper()
	for cursor := "0"; ; {
		reply := strings.Fields(c.step("purge", "1 ", "purge", gen, id, cursor, "lockproxy:*"))
		if len(reply) < 2 {
			c.Fatalf("no cursor in %v", reply)
		}
		if cursor = reply[1]; cursor == "0" {
			return
		}
	}
}

// give gives back a hold of alice.
func (c *copyScript) give(what, want, name string, fence int64, hold string) string {
	c.Helper()
	g := locks.Grant{Fence: fence, Hold: hold}
	return c.run(what, want, scripts.Release, c.s.RedisKeys(locks.Key{Name: name}), gives("alice", g, "unlock", "")...)
}

// renew renews a hold of alice, where it is not, as far as repair allows.
func (c *copyScript) renew(what, want, name string, fence int64, hold string, ttl time.Duration, repair string) string {
	c.Helper()
	g := locks.Grant{Key: locks.Key{Name: name}, Owner: "alice", Fence: fence, Hold: hold}
	got := replyText(c.n.Do(c.T, renewal(c.s, g, ttl, vote.Version{Epoch: hold, Sequence: 1}, repair)...))
	if !strings.HasPrefix(got, want) {
		c.Errorf("%s: %s, want %s", what, got, want)
	}
	return got
}

// fence is above all that the node has stored, by so many.
func (c *copyScript) fence(above int64) int64 {
	n, err := strconv.ParseInt(c.n.Do(c.T, "HGET", c.node.Node, "g").Text, 10, 64)
	if err != nil {
		c.Fatal(err)
	}
	return n + above
}

// has reports whether the node has a lock of the name.
func (c *copyScript) has(name string) bool {
	return c.n.Do(c.T, "EXISTS", c.s.RedisKeys(locks.Key{Name: name}).Lock).Int() == 1
}

// record stores a lock of alice, as an older snapshot has it.
func (c *copyScript) record(name, hold string) {
	c.n.Do(c.T, "HSET", c.s.RedisKeys(locks.Key{Name: name}).Lock, "o", "alice", "e", inMillis(time.Minute), "f", "7", "a", hold, "l", hold, "s", "0",
		"i", "", "g", inMillis(0), "p", "0 6", hold, inMillis(time.Minute)+" "+inMillis(0))
}

// copy has the node copy holds of alice, each of the name that it is called after, and vote with this floor.
func (c *copyScript) copy(gen string, floor int64, holds ...string) {
	c.Helper()
	c.forget(gen, 4*time.Second)
	c.step("begin", "1", "begin", gen, "a")
	c.purge(gen, "a")
	part := []string{"install", gen, "a", "1", "1000", "0"}
	for _, hold := range holds {
		part = append(part, "0:"+strings.TrimPrefix(hold, "hold-"), "walice", "600000", "1", hold)
	}
	c.step("install", "1", part...)
	c.step("commit", "1 ", "commit", gen, "a", "1", "1000", strconv.FormatInt(floor, 10))
}

// TestCopy_NotOfTwo: where no quorum is left without the node that forgot, nothing is copied, and it sits out max-ttl.
func TestCopy_NotOfTwo(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 2)
	o := longLeases(t, nodes)
	o.RestartGrace = "safe"
	s := serve(t, o)
	allVote(t, s)
	nodes[0].Do(t, "FLUSHALL")
	eventually(t, time.Minute, "it might be copied", func() bool {
		return s.Nodes()[0].State == locks.NodeQuarantine && strings.HasPrefix(nodes[0].Do(t, "HGET", "lockproxy:node", "word").Text, "4")
	})
	s.set.RepairNodes(t.Context(), true)
	if all, _ := s.set.Forgotten(); len(all) != 1 || all[0].MayCopy || s.Nodes()[0].Copies {
		t.Errorf("%+v, %+v", all, s.Nodes()[0])
	}
}

// TestCopyScript_Steps: a node takes the steps of one copy, in their order, and of no other loss of its memory.
func TestCopyScript_Steps(t *testing.T) {
	t.Parallel()
	c := startCopyScript(t)
	c.record("ghost", "hold-0")
	c.record("freed", "hold-4")
	c.forget("early", 2*time.Second)
	c.step("begin, too early", "-2 ", "begin", "early", "a")
	c.forget("loss", 4*time.Second)
	c.step("begin of another loss", "-2 ", "begin", "early", "a")
	c.step("begin", "1", "begin", "loss", "a")
	c.step("begin by another", "0 ", "begin", "loss", "b")
	c.step("install before the purge", "0 ", "install", "loss", "a", "1", "0", "0")
	c.step("commit before the purge", "0 ", "commit", "loss", "a", "0", "0", "5")
	c.step("purge by another", "0 ", "purge", "loss", "b", "0", "lockproxy:*")
	c.give("UNLOCK of what an older snapshot has", "-2 ", "freed", 7, "hold-4")
	c.purge("loss", "a")
	if c.has("ghost") {
		t.Error("a lock of an older snapshot is still there")
	}
	c.give("UNLOCK of what was forgotten", "-2 ", "back", 7, "hold-1")
	part := []string{"install", "loss", "a", "1", "0", "1", "LTAG", "9", "60000", "0:back", "walice", "60000", "1", "hold-1", "0:freed", "walice", "60000", "1", "hold-4",
		"0:kept", "walice", "600000", "2", "hold-2", "hold-3", "0:kept", "walice", "1000", "1", "hold-3"}
	c.step("part 2 before 1", "0 ", "install", "loss", "a", "2", "0", "0")
	c.step("install", "1", part...)
	c.step("install again", "1", part...)
	c.step("commit of too few parts", "0 ", "commit", "loss", "a", "0", "0", "5")
	floor := strconv.FormatInt(c.fence(1000), 10)
	c.step("commit", "1 "+floor, "commit", "loss", "a", "1", "0", floor)
	c.step("commit again", "1 "+floor, "commit", "loss", "a", "1", "0", floor)
	c.step("begin where it votes", "0 0", "begin", "loss", "b")
	c.step("install after it", "1 "+floor, "install", "loss", "a", "2", "0", "0", "0:late", "walice", "60000", "1", "x")
	if d := inDoubt(t, c.n); d != "kept" {
		t.Errorf("the node is in doubt about %q", d)
	}
	if v := c.n.Do(t, "GET", c.node.Node+":LTAG").Text; v != "9" {
		t.Errorf("the request is remembered as %q", v)
	}
	if left := c.n.Do(t, "PTTL", "lockproxy:doubt:0:kept").Int(); left < 500_000 || left > 600_010 {
		t.Errorf("the doubt ends in %d ms", left)
	}

	kept := c.s.RedisKeys(locks.Key{Name: "kept"})
	acquire := asks("bob", "10000", c.s.proposal(), "hold-9")
	c.run("LOCK of a name in doubt", "-5 ", scripts.Acquire, kept, acquire...)
	c.run("a read of it", "-5 ", scripts.Read, kept, "")
	c.give("UNLOCK of one hold", "-5 ", "kept", 7, "hold-2")
	c.run("LOCK, another hold is there", "-5 ", scripts.Acquire, kept, acquire...)
	c.give("UNLOCK of the other", "-5 ", "kept", 7, "hold-3")
	c.run("LOCK after it", "1 ", scripts.Acquire, kept, acquire...)
}

// TestCopyScript_Held: a node that votes tells what it holds, and what it is in doubt about, and others tell nothing.
func TestCopyScript_Held(t *testing.T) {
	t.Parallel()
	c := startCopyScript(t)
	floor := c.fence(1000)
	c.copy("loss", floor, "hold-doubt")
	take := func(r locks.LockRequest) string {
		t.Helper()
		a, err := c.s.Lock(t.Context(), r)
		if err != nil || !a.Granted {
			t.Fatal(a, err)
		}
		return a.Grant.Hold
	}
	long := func(key locks.Key, req string) locks.LockRequest {
		return locks.LockRequest{Key: key, Owner: "alice", TTL: 20 * time.Minute, Req: req}
	}
	twice, renewed, later := locks.Key{DB: 3, Name: "a:b"}, locks.Key{Name: "renewed"}, locks.Key{Name: "later"}
	first, second := take(long(twice, "id")), take(long(twice, ""))
	c.n.Do(t, "HSET", c.s.RedisKeys(twice).Lock, "hold-ended", inMillis(-time.Second)+" "+inMillis(-time.Minute))
	reading := long(locks.Key{Name: "1:2"}, "")
	reading.Owner, reading.Shared = "bob", true
	read := take(reading)
	take(long(locks.Key{Name: "over"}, "id"))
	unlock(t, c.s, "over", "alice", 0)
	sole := take(long(renewed, ""))
	if _, err := c.s.Renew(t.Context(), locks.RenewRequest{Key: renewed, Owner: "alice", TTL: 20 * time.Minute}); err != nil {
		t.Fatal(err)
	}
	take(long(later, "earlier"))
	left := take(long(later, "later"))
	if n, err := c.s.Unlock(t.Context(), locks.UnlockRequest{Key: later, Owner: "alice", Req: "earlier"}); n != 1 || err != nil {
		t.Fatal(n, err)
	}

	var names, requests []string
	for cursor := "0"; ; {
		v := c.n.Do(t, c.s.Command(scripts.Held, c.node, cursor, "lockproxy:*", "10")...)
		if v.Elems[0].Int() != 1 || v.Elems[2].Text != "loss" || v.Elems[3].Text < strconv.FormatInt(floor, 10) {
			t.Fatalf("%v", v)
		}
		for all := v.Elems[4].Elems; len(all) > 0; { // name, owner, ms left, how many holds, hold ...
			left, err1 := strconv.Atoi(all[2].Text)
			n, err2 := strconv.Atoi(all[3].Text)
			if err1 != nil || err2 != nil || left < 500_000 || left > 20*60_000 || n < 1 {
				t.Fatalf("%v", all)
			}
			name := all[0].Text + " " + all[1].Text
			for _, id := range all[4 : 4+n] {
				name += " " + id.Text
			}
			names, all = append(names, name), all[4+n:]
		}
		for all := v.Elems[5].Elems; len(all) > 0; all = all[3:] { // name, value, ms left
			requests = append(requests, all[0].Text[:1])
		}
		if cursor = v.Elems[1].Text; cursor == "0" {
			break
		}
	}
	slices.Sort(names)
	want := []string{"0:1:2 rbob " + read, "0:doubt walice hold-doubt", "0:later walice " + left, "0:renewed walice " + sole, "3:a:b walice " + first + " " + second}
	if !slices.Equal(names, want) {
		t.Errorf("held are %q, want %q", names, want)
	}
	if slices.Sort(requests); strings.Join(requests, "") != "LLU" {
		t.Errorf("requests: %v", requests)
	}
	c.forget("again", 4*time.Second)
	c.run("held, of one that has forgotten", "-2 ", scripts.Held, c.node, "0", "lockproxy:*", "10")
}

// TestCopyScript_Renewals: after a copy a node reinstates a grant up to its floor only for a renewal that a quorum of the others has
// done, knows of no such grant that it was not given back, and stores its fence for none.
func TestCopyScript_Renewals(t *testing.T) {
	t.Parallel()
	c := startCopyScript(t)
	floor := c.fence(1000)
	c.copy("loss", floor, "hold-job", "hold-given", "hold-forced")
	job := c.s.RedisKeys(locks.Key{Name: "job"})

	c.renew("a renewal", "-5 ", "job", floor, "hold-job", time.Minute, "0")
	c.renew("a repair", "-5 ", "job", floor, "hold-job", time.Minute, "1")
	c.renew("carried to an older loss", "-5 ", "job", floor, "hold-job", time.Minute, "older")
	c.renew("a repair of a name that is in no doubt", "-5 ", "other", floor, "hold-other", time.Minute, "1")
	if c.has("job") || c.has("other") {
		t.Fatal("a renewal reinstated a grant that this node may have forgotten to be given back")
	}
	if got := c.give("UNLOCK where it is not", "0 1 ", "other", floor, "hold-none"); got == "" {
		t.Error(got)
	}
	c.renew("a repair above the floor", "1 ", "new", floor+1, "hold-new", time.Minute, "1")

	reading := c.n.Do(t, c.s.Command(scripts.Read, job)...)
	if got := replyText(reading.Elems[4]); len(reading.Elems) != 5 || reading.Elems[0].Int() != -5 || reading.Elems[3].Text != strconv.FormatInt(floor, 10) || got != "hold-job walice" {
		t.Errorf("what it is in doubt about: %v", reading)
	}
	c.renew("carried", "-5 ", "job", floor, "hold-job", time.Minute, "loss")
	if d := inDoubt(t, c.n); !c.has("job") || strings.Contains(d, "job") {
		t.Errorf("it has the lock: %v; in doubt about %q", c.has("job"), d)
	}
	if left := c.n.Do(t, "PTTL", job.Lock).Int(); left < 500_000 {
		t.Errorf("the lease ends in %d ms, before what the others may have", left)
	}
	c.run("LOCK by another", "0 alice ", scripts.Acquire, job, asks("bob", "10000", c.s.proposal(), "hold-9")...)
	c.renew("a renewal of it", "1 0 1 ", "job", floor, "hold-job", time.Minute, "0")
	c.give("UNLOCK of it", "1 ", "job", floor, "hold-job")
	c.renew("carried late", "", "job", floor, "hold-job", time.Minute, "loss")
	c.give("UNLOCK of a name in doubt", "-5 ", "given", floor, "hold-given")
	c.renew("carried after it", "", "given", floor, "hold-given", time.Minute, "loss")
	c.renew("a renewal after it", "0 ", "given", floor, "hold-given", time.Minute, "0")
	c.run("a note", "-5 ", scripts.Note, c.s.RedisKeys(locks.Key{Name: "forced"}), strconv.FormatInt(floor, 10))
	c.renew("carried after a note", "", "forced", floor, "hold-forced", time.Minute, "loss")
	for _, name := range []string{"job", "given", "forced"} {
		if c.has(name) {
			t.Errorf("%s is held again", name)
		}
	}

	c.run("LOCK", "1 ", scripts.Acquire, c.s.RedisKeys(locks.Key{Name: "late"}), asks("alice", "10000", "0", "hold-late")...)
	c.run("settle under the floor", "0", scripts.Settle, c.s.RedisKeys(locks.Key{Name: "late"}), "alice", strconv.FormatInt(floor, 10), "hold-late")
}

// TestRounds_OldOnesCountForNothing: a LOCK or a RENEW is not decided by votes of which a node that forgot may be the
// only one that knew.
func TestRounds_OldOnesCountForNothing(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 3)
	var ahead atomic.Int64
	o := longLeases(t, nodes)
	o.now = func() time.Duration { return locks.SinceStart() + time.Duration(ahead.Load()) }
	s := serve(t, o)
	allVote(t, s)
	// late asks while the nodes stand still, and lets time pass before they answer, until it has not passed before the question.
	late := func(what string, ask func(name string) error) {
		t.Helper()
		for try := range 50 {
			name := what + strconv.Itoa(try)
			lock(t, s, name, "alice", 20*time.Minute)
			eventually(t, time.Minute, "the LOCK has come to all nodes", s.set.Idle)
			for _, n := range nodes {
				n.Pause()
			}
			err := make(chan error)
			go func() { err <- ask(name) }()
			eventually(t, time.Minute, what+" is sent", func() bool { return !s.set.Idle() })
			ahead.Add(int64(voters.RoundLimit))
			for _, n := range nodes {
				n.Resume()
			}
			if got := <-err; got != nil && strings.Contains(got.Error(), "asked too long ago") {
				return
			}
			allVote(t, s)
		}
		t.Errorf("%s is decided by votes that are too old", what)
	}
	late("RENEW", func(name string) error {
		_, err := s.Renew(t.Context(), locks.RenewRequest{Key: locks.Key{Name: name}, Owner: "alice", TTL: 30 * time.Minute})
		return err
	})
	late("LOCK", func(name string) error {
		_, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "of " + name}, Owner: "alice", TTL: 20 * time.Minute})
		return err
	})
	late("UNLOCK", func(name string) error {
		_, err := s.Unlock(t.Context(), locks.UnlockRequest{Key: locks.Key{Name: name}, Owner: "alice"})
		return err
	})
	allVote(t, s)
	a, j := s.newAcquisition(locks.Attempt{LockRequest: locks.LockRequest{Key: locks.Key{Name: "third"}, Owner: "alice", TTL: time.Minute}}, 0, seats.Any, s.proposal())
	round := s.set.Ask(voters.AskAcquire, j, s.acquireDecides)
	if err := round.Wait(t.Context(), voters.Timeouts{Node: time.Minute, Quorum: time.Minute}); err != nil {
		t.Fatal(err)
	}
	a.began -= voters.RoundLimit // as if it had been settled for as long
	if d, err := s.decide(t.Context(), a, round); err == nil {
		t.Errorf("a grant that took too long: %+v", d)
	}
}

// startInDoubt is a proxy with a grant of job on three nodes, of which the first has forgotten it and votes again, as gen.
func startInDoubt(t *testing.T) (s *proxy, nodes []*redistest.Server, g locks.Grant, gen string) {
	t.Helper()
	nodes = redistest.StartNodes(t, 3)
	s = serve(t, longLeases(t, nodes))
	allVote(t, s)
	g = lock(t, s, "job", "alice", 20*time.Minute)
	nodes[0].Do(t, "FLUSHALL")
	copied(t, s, nodes[0])
	gen = nodes[0].Do(t, "HGET", "lockproxy:node", "gen").Text
	eventually(t, time.Minute, "the proxy knows since when it votes", func() bool { return s.Members[0].VotedBefore(s.Now(), gen) })
	return s, nodes, g, gen
}

// TestReinstateInDoubt_OnlyByARenewalThatBeganAfterTheNodeVoted: what ended the grant may have been decided with what the node has forgotten.
func TestReinstateInDoubt_OnlyByARenewalThatBeganAfterTheNodeVoted(t *testing.T) {
	t.Parallel()
	s, nodes, g, gen := startInDoubt(t)
	h, known := locks.Holder{Key: g.Key, Owner: "alice"}, s.grants.lookup(locks.Holder{Key: g.Key, Owner: "alice"})
	votes := []vote.Vote{{Code: vote.InDoubt, Gen: gen, Err: voters.ErrTimeout}, {Kind: vote.Yes}, {Kind: vote.Yes}}
	record := s.RedisKeys(g.Key).Lock
	carry := func(began time.Duration, votes []vote.Vote) bool {
		t.Helper()
		s.reinstateInDoubt(&leaseRenewal{holder: h, ttl: time.Minute, grant: known, change: grows, began: began}, votes)
		eventually(t, time.Minute, "it is sent", s.set.Idle)
		return nodes[0].Do(t, "EXISTS", record).Int() == 1
	}
	if carry(0, votes) {
		t.Error("a renewal that began before the node voted is carried")
	}
	if carry(s.Now(), []vote.Vote{votes[0], {Kind: vote.Yes, Noted: true}, votes[2]}) {
		t.Error("a renewal of a lease that may have been shortened is carried")
	}
	if carry(s.Now(), []vote.Vote{votes[0], {Kind: vote.Yes, GivenBack: true}, votes[2]}) {
		t.Error("a renewal is carried of which a node knows that a hold was given back")
	}
	if !carry(s.Now(), votes) {
		t.Error("a renewal that a quorum has done is not carried")
	}
}

// TestReinstateInDoubt_LateVote: the lock is back on a node that votes when the others have renewed it.
func TestReinstateInDoubt_LateVote(t *testing.T) {
	t.Parallel()
	s, nodes, g, _ := startInDoubt(t)
	nodes[0].Pause()
	if _, err := s.Renew(t.Context(), locks.RenewRequest{Key: g.Key, Owner: "alice", TTL: 30 * time.Minute}); err != nil {
		t.Error(err)
	}
	nodes[0].Resume()
	eventually(t, time.Minute, "it has the lock", func() bool { return nodes[0].Do(t, "EXISTS", s.RedisKeys(g.Key).Lock).Int() == 1 })
}

// replyText is a reply with its elements separated by spaces.
func replyText(v redistest.Value) string {
	if v.Elems == nil {
		return v.String()
	}
	var all []string
	for _, e := range v.Elems {
		all = append(all, e.Text)
	}
	return strings.Join(all, " ")
}
