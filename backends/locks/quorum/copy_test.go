package quorum

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/nodekeys"
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
	nodes[1].Pause()
	if a, err := other.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "bob", TTL: time.Minute}); err == nil || a.Granted ||
		!strings.Contains(err.Error(), "does not vote about this name") {
		t.Errorf("LOCK of a name that is held: %+v, %v", a, err)
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

// TestCopy_KeptLockGetsAllNodesBack: a lock that is renewed survives that every node forgets it, one after the other.
func TestCopy_KeptLockGetsAllNodesBack(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 3)
	s := serve(t, longLeases(t, nodes))
	allVote(t, s)
	session := s.NewSession(nil)
	a, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: 3 * time.Second, Session: session})
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

// TestCopyScript_Steps: a node takes the steps of one copy, in their order, and of no other loss of its memory.
func TestCopyScript_Steps(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 1)
	n := nodes[0]
	o := longLeases(t, nodes)
	o.RestartGrace = "safe"
	s := serve(t, o)
	allVote(t, s)
	node := nodekeys.OfNode("lockproxy:")
	copying := func(what, gen, id string, args ...string) string {
		t.Helper()
		return replyText(n.Do(t, s.Command(scripts.Copy, node, append([]string{what, gen, id}, args...)...)...))
	}
	expect := func(what, got, want string) {
		t.Helper()
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	forget := func(ago time.Duration) (gen string) {
		t.Helper()
		gen = "gen" + strconv.FormatInt(ago.Milliseconds(), 10)
		n.Do(t, "HSET", node.Node, "sync", "0", "since", inMillis(-ago), "until", inMillis(50*time.Minute), "gen", gen)
		return gen
	}
	held := s.RedisKeys(locks.Key{Name: "ghost"})
	n.Do(t, "HSET", held.Lock, "o", "alice", "e", inMillis(time.Minute))

	gen := forget(2 * time.Second)
	expect("begin, too early", copying("begin", gen, "a"), "-2 ")
	gen = forget(4 * time.Second)
	expect("begin of another loss", copying("begin", "gen2000", "a"), "-2 ")
	expect("begin", copying("begin", gen, "a"), "1")
	expect("begin by another", copying("begin", gen, "b"), "0 ")
	expect("install before the purge", copying("install", gen, "a", "1", "0"), "0 ")
	expect("commit before the purge", copying("commit", gen, "a", "0", "5"), "0 ")
	expect("purge by another", copying("purge", gen, "b", "0", "lockproxy:*"), "0 ")
	cursor := "0"
	for {
		reply := strings.Fields(copying("purge", gen, "a", cursor, "lockproxy:*"))
		if cursor = reply[1]; cursor == "0" {
			break
		}
	}
	if n.Do(t, "EXISTS", held.Lock).Int() != 0 {
		t.Error("a lock of an older snapshot is still there")
	}
	// What is given back while it copies is not installed.
	back, kept := locks.Grant{Key: locks.Key{Name: "back"}, Owner: "alice", Fence: 7, Hold: "hold-1"}, s.RedisKeys(locks.Key{Name: "kept"})
	expect("release", replyText(n.Do(t, s.Command(scripts.Release, s.RedisKeys(back.Key), gives("alice", back, "unlock", "")...)...)), "-2 ")
	part := []string{"1", "1", "LTAG", "9", "60000", "0:back", "walice", "60000", "1", "hold-1", "0:kept", "walice", "600000", "2", "hold-2", "hold-3"}
	expect("part 2 before 1", copying("install", gen, "a", "2", "0"), "0 ")
	expect("install", copying("install", gen, "a", part...), "1")
	expect("install again", copying("install", gen, "a", part...), "1")
	expect("commit of too few parts", copying("commit", gen, "a", "0", "5"), "0 ")
	largest := n.Do(t, "HGET", node.Node, "g").Text
	above, _ := strconv.ParseInt(largest, 10, 64)
	floor := strconv.FormatInt(above+1000, 10)
	expect("commit", copying("commit", gen, "a", "1", floor), "1 "+floor)
	expect("commit again", copying("commit", gen, "a", "1", floor), "1 "+floor)
	expect("install after it", copying("install", gen, "a", "2", "0", "0:late", "walice", "60000", "1", "x"), "1 "+floor)
	if d := inDoubt(t, n); d != "kept" {
		t.Errorf("the node is in doubt about %q", d)
	}
	if v := n.Do(t, "GET", node.Node+":LTAG").Text; v != "9" {
		t.Errorf("the request is remembered as %q", v)
	}
	if left := n.Do(t, "PTTL", "lockproxy:doubt:0:kept").Int(); left < 500_000 || left > 600_010 {
		t.Errorf("the doubt ends in %d ms", left)
	}

	acquire := s.Command(scripts.Acquire, kept, asks("bob", "10000", s.proposal(), "hold-9")...)
	expect("LOCK of a name in doubt", replyText(n.Do(t, acquire...)), "-5 ")
	expect("READ of it", replyText(n.Do(t, s.Command(scripts.Read, kept, "")...)), "-5 ")
	give := func(hold string) string {
		return replyText(n.Do(t, s.Command(scripts.Release, kept, gives("alice", locks.Grant{Fence: 7, Hold: hold}, "unlock", "")...)...))
	}
	expect("UNLOCK of one hold", give("hold-2"), "-5 ")
	expect("LOCK, another is there", replyText(n.Do(t, acquire...)), "-5 ")
	expect("UNLOCK of the other", give("hold-3"), "-5 ")
	expect("LOCK after it", replyText(n.Do(t, acquire...)), "1 ")
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
