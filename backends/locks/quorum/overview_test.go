package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/voters"
	"github.com/lockproxy/lockproxy/integration/redistest"
)

func TestNamesAndHoldings(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 5)
	p := rivals(t, 2, nodes)
	var want []string
	var by [2][]string // the names that each proxy takes
	for i := range 300 {
		name := fmt.Sprintf("job:%03d", i)
		by[i%2] = append(by[i%2], name)
		want = append(want, fmt.Sprintf("0 %s %v", name, i%2 == 0))
	}
	for i := range by {
		lockEach(t, p[i], by[i])
	}
	for _, name := range []string{"a:b", "\xff*[", ":"} {
		if a, err := p[1].Lock(t.Context(), locks.LockRequest{Key: locks.Key{DB: 12, Name: name}, Owner: "bob", TTL: time.Minute}); err != nil || !a.Granted {
			t.Fatal(a, err)
		}
		want = append(want, fmt.Sprintf("12 %s false", name))
	}
	onNode(t, p[0], nodes[4], "minority", "carol", "0")
	names, complete, err := p[0].Names(t.Context(), locks.NamesRequest{DB: locks.AllDBs})
	if err != nil || !complete || len(names) < len(want) || len(names) > len(want)+1 {
		t.Fatalf("%d names of %d, %v, %v", len(names), len(want), complete, err)
	}
	held, err := p[0].Holdings(t.Context(), names)
	var got []string
	for _, h := range held {
		got = append(got, fmt.Sprint(h.DB, " ", h.Name, " ", h.Here))
	}
	slices.Sort(got)
	slices.Sort(want)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("held %d, %v; want %d:\n%q\n%q", len(got), err, len(want), got, want)
	}
	if some, complete, err := p[1].Names(t.Context(), locks.NamesRequest{DB: 12, Match: "*:*", Looks: 50}); len(some) != 2 || !complete || err != nil {
		t.Errorf("of database 12: %+v, %v, %v", some, complete, err)
	}
	if _, complete, err := p[1].Names(t.Context(), locks.NamesRequest{DB: locks.AllDBs, Looks: 1}); complete || err != nil {
		t.Errorf("one look: %v, %v", complete, err)
	}
	for _, n := range nodes[:3] {
		n.Kill()
	}
	q := (*locks.QuorumError)(nil)
	if _, _, err := p[0].Names(t.Context(), locks.NamesRequest{DB: locks.AllDBs}); !errors.As(err, &q) {
		t.Errorf("names without a quorum: %v", err)
	}
	if _, err := p[0].Holdings(t.Context(), names[:2]); !errors.As(err, &q) {
		t.Errorf("holdings without a quorum: %v", err)
	}
}

func TestQueues(t *testing.T) {
	t.Parallel()
	s, _ := start(t, 3)
	if longest, total := s.Queues(5); longest != nil || total != 0 {
		t.Errorf("nobody waits: %+v, %d", longest, total)
	}
	lock(t, s, "job", "alice", time.Minute)
	lock(t, s, "other", "alice", time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wait := func(name, owner string, n int) {
		wg.Go(func() {
			s.Lock(ctx, locks.LockRequest{Key: locks.Key{Name: name}, Owner: owner, TTL: time.Minute, Wait: time.Minute})
		})
		eventually(t, 20*time.Second, owner+" waits", func() bool { return len(s.Waiters(locks.Key{DB: 0, Name: name})) == n })
	}
	wait("other", "zoe", 1)
	wait("job", "bob", 1)
	wait("job", "carol", 2)
	time.Sleep(20 * time.Millisecond)
	longest, total := s.Queues(1)
	if total != 2 || len(longest) != 1 || longest[0].Name != "job" || longest[0].Waiters != 2 || longest[0].Next != "bob" || longest[0].Longest < 20*time.Millisecond {
		t.Errorf("queues %+v, %d", longest, total)
	}
	eventually(t, 20*time.Second, "the holder is known", func() bool { longest, _ := s.Queues(1); return longest[0].Holder == "alice" })
	unlock(t, s, "job", "alice", 0)
	eventually(t, 20*time.Second, "bob has it", func() bool { return inspect(t, s, "job").Holding.Owner == "bob" })
	eventually(t, 20*time.Second, "this proxy knows that it granted it", func() bool { return inspect(t, s, "job").Holding.Here })
	if h := inspect(t, s, "job").Holding; h.Waited < 20*time.Millisecond || h.Waited > 20*time.Second {
		t.Errorf("waited %v", h.Waited)
	}
	lock(t, s, "job", "bob", time.Minute)
	renew := func() {
		if _, err := s.Renew(t.Context(), locks.RenewRequest{Key: locks.Key{Name: "job"}, Owner: "bob", TTL: time.Minute}); err != nil {
			t.Error(err)
		}
	}
	renew()
	if h := inspect(t, s, "job").Holding; !h.Here || h.Waited < 20*time.Millisecond {
		t.Errorf("after re-entry and renewal: %+v", h)
	}
	s.grants.invalidate(locks.Holder{Key: locks.Key{DB: 0, Name: "job"}, Owner: "bob"})
	renew() // which reads the grant first
	if h := inspect(t, s, "job").Holding; !h.Here || h.Waited < 20*time.Millisecond {
		t.Errorf("after it was read from a quorum: %+v", h)
	}
	eventually(t, 20*time.Second, "it was counted", func() bool {
		asked, waited := s.Hot(10)
		return len(asked) == 2 && asked[0].Name == "job" && len(waited) > 0 && waited[0].Name == "job" && waited[0].Waited > 10*time.Millisecond
	})
}

// TestHoldings_NodeHangs: for a node that does not answer all names wait together, and not one after the other.
func TestHoldings_NodeHangs(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 3)
	p := serve(t, testOptions{Nodes: nodesAt(t, addrs(nodes)...), NodeTimeout: 50 * time.Millisecond})
	allVote(t, p)
	var names []locks.Key
	for i := range 40 * voters.MaxBatch {
		names = append(names, locks.Key{Name: fmt.Sprint(i)})
	}
	nodes[2].Pause()
	took := time.Duration(0)
	eventually(t, 2*time.Minute, "a quorum has answered each", func() bool {
		began := time.Now()
		_, err := p.Holdings(t.Context(), names)
		took = time.Since(began)
		return err == nil
	})
	if took > 25*time.Second { // 4 s, and 30 one after the other
		t.Errorf("it took %v", took)
	}
}
