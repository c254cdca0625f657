package quorum

import (
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/backends/locks/voters"
	"github.com/lockproxy/lockproxy/integration/redistest"
	"github.com/lockproxy/lockproxy/scripts"
)

// refusesList asks for a lock and wants NOQUORUM with both lists.
func refusesList(t *testing.T, s *proxy, theirs, ours []string) {
	t.Helper()
	a, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "probe"}, Owner: "stranger", TTL: time.Second})
	var q *locks.QuorumError
	if !errors.As(err, &q) {
		t.Fatalf("LOCK: %+v, %v, want no quorum", a, err)
	}
	for _, want := range [][]string{theirs, ours} {
		if list := strings.Join(slices.Sorted(slices.Values(want)), " "); !strings.Contains(err.Error(), list) {
			t.Errorf("%v does not name %s", err, list)
		}
	}
}

// TestNodeSet_OtherLists: a proxy with any other list than the nodes' gets no votes and is
// told why, even if some of its nodes are new.
func TestNodeSet_OtherLists(t *testing.T) {
	t.Parallel()
	at := addrs(redistest.StartNodes(t, 5))
	first := serve(t, testOptions{Nodes: nodesAt(t, at[:3]...), NodeTimeout: patient})
	lock(t, first, "job", "alice", 20*time.Second)
	for name, list := range map[string][]string{
		"a node is missing":               {at[0], at[1]},
		"a node more":                     {at[0], at[1], at[2], at[3]},
		"one node was exchanged":          {at[1], at[2], at[3]},
		"only one is the same":            {at[0]},
		"more new ones than known":        {at[0], at[1], at[3], at[4]},
		"one known node among empty ones": {at[2], at[3], at[4]},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, testOptions{Nodes: nodesAt(t, list...), NodeTimeout: patient})
			if len(list) == 1 {
				list = nil // a node alone is named by its address
			}
			refusesList(t, s, at[:3], list)
		})
	}
	other := serve(t, testOptions{Nodes: nodesAt(t, at[2], at[0], at[1]), NodeTimeout: patient})
	refused(t, other, "job", "bob", time.Second)
	unlock(t, other, "job", "alice", 0)
	for _, empty := range at[3:] {
		if n := redistest.Open(t, empty).Do(t, "DBSIZE").Int(); n != 0 {
			t.Errorf("a proxy with a wrong list enlisted %s", empty)
		}
	}
}

// TestNodeSet_TwoOfThree: a proxy that has two of three nodes goes on at once when a node
// restarts, unless the node knows better.
func TestNodeSet_TwoOfThree(t *testing.T) {
	t.Parallel()
	for _, first := range []int{2, 3} {
		nodes := redistest.StartNodes(t, 3)
		at := addrs(nodes)
		var p [4]*proxy
		for _, n := range []int{first, 5 - first} {
			p[n] = serve(t, testOptions{Nodes: nodesAt(t, at[:n]...), NodeTimeout: patient})
			if n == first { // it is to enlist the nodes
				allVote(t, p[n])
			}
			_, _ = p[n].Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "warm"}, TTL: time.Second})
		}
		asked := time.Now()
		g := lock(t, p[first], "job", "alice", 8*time.Second)
		nodes[0].Kill()
		if err := nodes[0].Restart(); err != nil {
			t.Fatal(err)
		}
		for time.Since(asked) < 5*time.Second {
			a, err := p[5-first].Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "bob", TTL: time.Second})
			if err == nil && a.Granted {
				t.Fatalf("bob was granted while alice has it for %v more", g.Validity-time.Since(asked))
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
}

// TestNodeSet_StricterGrace: once a proxy has used a node with restart-grace safe, the node sits
// out a quarantine when it restarts, whichever proxy asks it first.
func TestNodeSet_StricterGrace(t *testing.T) {
	t.Parallel()
	for _, order := range [][]string{{voters.GraceSafe, voters.GraceAvailable}, {voters.GraceAvailable, voters.GraceSafe}, {voters.GraceAvailable}} {
		nodes := redistest.StartNodes(t, 2)
		var last *proxy
		for _, grace := range order {
			s, err := newProxy(testOptions{Nodes: nodesAt(t, addrs(nodes)...), NodeTimeout: patient, RestartGrace: grace, Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, patient, "all nodes vote", func() bool { s.RepairNodes(t.Context(), true); return allVoting(s) }, s)
			lock(t, s, "job", grace, time.Minute)
			unlock(t, s, "job", grace, 0)
			if grace == voters.GraceAvailable {
				last = s
			}
		}
		n := redistest.Open(t, nodes[0].Addr())
		n.Do(t, "HSET", last.RedisKeys(locks.Key{DB: 0, Name: "job"}).Node, "id", "another") // as after a restart
		v := n.Do(t, last.Command(scripts.State, last.RedisKeys(locks.Key{DB: 0, Name: "job"}))...).Elems[0].Int()
		if sits := v == int64(vote.Quarantined); sits != (len(order) == 2) {
			t.Errorf("%v: %d", order, v)
		}
	}
}

// TestNodeSet_OlderRecords: nodes of an older version sit out their max-ttl with what they
// know of fences, and a proxy of that version understands that they are not its own.
func TestNodeSet_OlderRecords(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 3)
	n := conns(t, nodes)
	floor := time.Now().Add(time.Hour).UnixMicro()
	for _, c := range n {
		id := ""
		for _, line := range strings.Split(c.Do(t, "INFO", "replication").Text, "\r\n") {
			if v, ok := strings.CutPrefix(line, "master_replid:"); ok {
				id = v
			}
		}
		c.Do(t, "HSET", "lockproxy:node", "id", id, "until", "0", "sync", "1", "g", strconv.FormatInt(floor, 10), "floor", "1", "max", "3000")
	}
	began := time.Now()
	s := serve(t, testOptions{Nodes: nodesAt(t, addrs(nodes)...), NodeTimeout: patient, MaxTTL: time.Second})
	a, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: time.Second})
	if err == nil {
		t.Errorf("LOCK: %+v", a)
	}
	if v := n[0].Do(t, "HGET", "lockproxy:node", "max").Text; v != "0" {
		t.Errorf("max is %q: older proxies take the node for theirs", v)
	}
	eventually(t, 20*time.Second, "the nodes vote", func() bool { return allVoting(s) })
	if took := time.Since(began); took < 3*time.Second {
		t.Errorf("they vote after %v", took)
	}
	if g := lock(t, s, "job", "alice", time.Second); g.Fence <= floor {
		t.Errorf("fence %d after %d", g.Fence, floor)
	}
}
