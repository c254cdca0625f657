package quorum

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/voters"
	"github.com/lockproxy/lockproxy/integration/redistest"
)

func states(s *proxy) string {
	var out []string
	for _, n := range s.Nodes() {
		out = append(out, string(n.State))
	}
	return strings.Join(out, ", ")
}

func allVoting(s *proxy) bool {
	for _, n := range s.Nodes() {
		if n.State != locks.NodeVoting {
			return false
		}
	}
	return true
}

func TestRecovery_TwoProxiesEnlistTogether(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 5)
	var p []*proxy
	for range 4 {
		p = append(p, serve(t, testOptions{Nodes: nodesAt(t, addrs(nodes)...), NodeTimeout: patient}))
	}
	var wg sync.WaitGroup
	for i, s := range p {
		wg.Go(func() { // and waits, if it looks while another one is half done
			a, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: string(rune('a' + i))}, Owner: "alice", TTL: time.Second, Wait: 6 * patient})
			if err != nil || !a.Granted {
				t.Errorf("LOCK: %+v, %v", a, err)
			}
		})
	}
	wg.Wait()
	allVote(t, p...)
}

// forgetful are options under which a node that forgot is back within a second or two.
func forgetful(t *testing.T, nodes []*redistest.Server) testOptions {
	return testOptions{
		Nodes: nodesAt(t, addrs(nodes)...), NodeTimeout: patient,
		MaxTTL: 600 * time.Millisecond, Bootstrap: voters.BootstrapStrict, RestartGrace: voters.GraceSafe,
	}
}

func TestRecovery_NodeThatForgotSitsOutMaxTTL(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 3)
	s := serve(t, forgetful(t, nodes))
	if err := s.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	g := lock(t, s, "job", "alice", 500*time.Millisecond)
	redistest.Open(t, nodes[0].Addr()).Do(t, "FLUSHALL")
	nodes[1].Kill()
	// One node knows of the lock, one has forgotten it: together they must not grant.
	a, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "bob", TTL: 500 * time.Millisecond})
	if err == nil || a.Granted {
		t.Fatalf("LOCK with half the memory: %+v, %v", a, err)
	}
	if !strings.Contains(err.Error(), nodes[0].Addr()+" ") {
		t.Errorf("the error does not name the node that forgot: %v", err)
	}
	if err := nodes[1].Restart(); err != nil {
		t.Fatal(err)
	}
	seen := map[locks.NodeState]bool{}
	eventually(t, 20*time.Second, "all vote again", func() bool {
		for _, n := range s.Nodes() {
			seen[n.State] = true
		}
		return seen[locks.NodeQuarantine] && allVoting(s)
	})
	if h := lock(t, s, "job", "bob", 500*time.Millisecond); h.Fence <= g.Fence {
		t.Errorf("fence %d after %d", h.Fence, g.Fence)
	}
	for _, n := range s.Nodes() {
		if n.Largest < g.Fence {
			t.Errorf("%s votes with the floor %d under fence %d", n.Address, n.Largest, g.Fence)
		}
	}
}

func TestRecovery_NodeRestartedFromOldCopy(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 3)
	s := serve(t, forgetful(t, nodes))
	if err := s.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	redistest.Open(t, nodes[0].Addr()).Do(t, "SAVE")
	g := lock(t, s, "job", "alice", 500*time.Millisecond)
	nodes[0].Kill()
	nodes[1].Kill()
	for _, n := range nodes[:2] {
		if err := n.Restart(); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, 5*time.Second, "both sit out", func() bool { return strings.Count(states(s), string(locks.NodeQuarantine)) >= 1 })
	eventually(t, 20*time.Second, "all vote again", func() bool { return allVoting(s) })
	if h := lock(t, s, "job", "bob", 500*time.Millisecond); h.Fence <= g.Fence {
		t.Errorf("fence %d after %d", h.Fence, g.Fence)
	}
}

func TestRecovery_AllNodesForgetAtOnce(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 3)
	s := serve(t, forgetful(t, nodes))
	if err := s.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	g := lock(t, s, "job", "alice", 500*time.Millisecond)
	for _, n := range nodes {
		redistest.Open(t, n.Addr()).Do(t, "FLUSHALL")
	}
	if a, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "bob", TTL: 500 * time.Millisecond}); err == nil {
		t.Fatalf("LOCK: %+v", a)
	}
	eventually(t, 25*time.Second, "all vote again, from the clock", func() bool { return allVoting(s) })
	if h := lock(t, s, "job", "bob", 500*time.Millisecond); h.Fence <= g.Fence {
		t.Errorf("fence %d after %d", h.Fence, g.Fence)
	}
}

// TestRecovery_NotNewAgain: nodes that a proxy has seen voting are not taken for new when all have lost their memory, though
// bootstrap is auto: the lock that was held is not granted again.
func TestRecovery_NotNewAgain(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 3)
	o := forgetful(t, nodes)
	o.MaxTTL, o.Bootstrap = 10*time.Second, voters.BootstrapAuto
	s := serve(t, o)
	g := lock(t, s, "job", "alice", 10*time.Second)
	ends := time.Now().Add(g.Validity)
	for _, n := range nodes {
		n.Do(t, "FLUSHALL")
	}
	var b locks.Decision
	eventually(t, 2*time.Minute, "the name is granted again", func() bool {
		var err error
		b, err = s.Lock(t.Context(), locks.LockRequest{Key: g.Key, Owner: "bob", TTL: time.Second})
		if b.Granted && time.Now().Before(ends) {
			t.Fatal("granted while it is held")
		}
		return err == nil && b.Granted
	})
	if b.Grant.Fence <= g.Fence {
		t.Errorf("fence %d after %d", b.Grant.Fence, g.Fence)
	}
}

func TestInit(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 3)
	o := testOptions{Nodes: nodesAt(t, addrs(nodes)...), NodeTimeout: patient, Bootstrap: voters.BootstrapStrict}
	s := serve(t, o)
	if _, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, TTL: time.Second}); err == nil {
		t.Fatal("strict nodes voted without init")
	}
	nodes[2].Kill()
	if err := s.Init(t.Context()); err == nil || !strings.Contains(err.Error(), nodes[2].Addr()) {
		t.Errorf("init with a node down: %v", err)
	}
	if err := nodes[2].Restart(); err != nil {
		t.Fatal(err)
	}
	eventually(t, 3*time.Second, "init succeeds", func() bool { return s.Init(t.Context()) == nil })
	lock(t, s, "job", "alice", time.Second)
	if err := s.Init(t.Context()); err != nil {
		t.Errorf("init again: %v", err)
	}
	refused(t, s, "job", "bob", time.Second)
}

func TestRecovery_SingleNodeRestarts(t *testing.T) {
	t.Parallel()
	for _, grace := range []string{voters.GraceAvailable, voters.GraceSafe} {
		t.Run(grace, func(t *testing.T) {
			t.Parallel()
			n := redistest.Start(t)
			s := serve(t, testOptions{Nodes: nodesAt(t, n.Addr()), NodeTimeout: patient, RestartGrace: grace})
			g := lock(t, s, "job", "alice", time.Second)
			redistest.Open(t, n.Addr()).Do(t, "SAVE")
			n.Kill()
			if err := n.Restart(); err != nil {
				t.Fatal(err)
			}
			eventually(t, 5*time.Second, "it answers", func() bool {
				return s.Nodes()[0].Up && s.Nodes()[0].RunID != ""
			})
			a, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "bob", TTL: time.Second})
			if grace == voters.GraceSafe {
				if err == nil || !strings.Contains(err.Error(), "quarantine for") {
					t.Errorf("LOCK: %+v, %v", a, err)
				}
				return
			}
			eventually(t, 3*time.Second, "it grants again", func() bool {
				a, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "bob", TTL: time.Second})
				return err == nil && a.Granted && a.Grant.Fence > g.Fence
			})
		})
	}
}

func TestCheck_SameServerTwice(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 2)
	other := strings.Replace(nodes[0].Addr(), "127.0.0.1", "localhost", 1)
	s := serve(t, testOptions{Nodes: nodesAt(t, nodes[0].Addr(), other, nodes[1].Addr()), NodeTimeout: patient})
	if err := s.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "is the same server as") {
		t.Errorf("Check: %v", err)
	}
	if st := s.Nodes(); st[0].State == locks.NodeBarred == (st[1].State == locks.NodeBarred) {
		t.Errorf("states %s, want one refused", states(s))
	}
}

func TestCheck_ClusterIsNoLockNode(t *testing.T) {
	t.Parallel()
	n := redistest.Start(t, "--cluster-enabled", "yes")
	s := serve(t, testOptions{Nodes: nodesAt(t, n.Addr()), NodeTimeout: patient})
	if err := s.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "Cluster") {
		t.Errorf("Check: %v", err)
	}
	if a, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, TTL: time.Second}); err == nil {
		t.Errorf("LOCK: %+v", a)
	}
}

func TestRecovery_NodesThatComeLater(t *testing.T) {
	t.Parallel()
	n := redistest.Reserve(t)
	s := serve(t, testOptions{Nodes: nodesAt(t, n.Addr()), NodeTimeout: patient})
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("Check: %v", err)
	}
	if _, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, TTL: time.Second}); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("LOCK: %v", err)
	}
	if err := n.Restart(); err != nil {
		t.Fatal(err)
	}
	eventually(t, 3*time.Second, "it grants", func() bool {
		a, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, TTL: time.Second})
		return err == nil && a.Granted
	})
}

func TestNode_ScriptFlush(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 3)
	lock(t, s, "job", "alice", time.Second)
	for _, n := range nodes {
		redistest.Open(t, n.Addr()).Do(t, "SCRIPT", "FLUSH")
	}
	unlock(t, s, "job", "alice", 0)
	if !allVoting(s) {
		t.Errorf("states %s", states(s))
	}
}

func TestNewReportsEveryFault(t *testing.T) {
	_, err := newProxy(testOptions{ReplicaAcks: -1, Bootstrap: "never"})
	for _, want := range []string{"no lock nodes", "replicas", "bootstrap"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not mention %q", err, want)
		}
	}
}
