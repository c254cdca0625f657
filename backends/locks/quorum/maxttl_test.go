package quorum

import (
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/integration/redistest"
	"github.com/lockproxy/lockproxy/scripts"
)

// TestMaxTTL_NodesForgetBesideASmallerOne: nodes that forget one after the other, seen first
// by a proxy with a smaller max-ttl, must not make up a majority while a longer lease runs.
func TestMaxTTL_NodesForgetBesideASmallerOne(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 3)
	n := conns(t, nodes)
	const long = 6 * time.Second
	p1, err := newProxy(testOptions{Nodes: nodesAt(t, addrs(nodes)...), MaxTTL: long, NodeTimeout: patient, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	g := lock(t, p1, "job", "alice", long)
	p2 := serve(t, testOptions{Nodes: nodesAt(t, addrs(nodes)...), MaxTTL: time.Second, NodeTimeout: patient})
	renew := func() (end time.Time) {
		t.Helper()
		asked := time.Now()
		v, err := p1.Renew(t.Context(), locks.RenewRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: long, Fence: g.Fence})
		if err != nil {
			t.Fatalf("RENEW: %v", err)
		}
		return asked.Add(v)
	}
	renew()
	n[0].Do(t, "FLUSHALL")
	eventually(t, 30*time.Second, "the node that forgot first votes again", func() bool {
		renew()
		time.Sleep(50 * time.Millisecond)
		return p2.Nodes()[0].State == locks.NodeVoting
	})
	end := renew()
	n[1].Do(t, "FLUSHALL")
	for time.Now().Before(end) {
		a, err := p2.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "bob", TTL: time.Second})
		if err == nil && a.Granted && time.Now().Before(end) {
			t.Fatalf("bob was granted fence %d while alice (fence %d) has it for %v more; seen %s", a.Grant.Fence, g.Fence, time.Until(end), states(p2))
		}
		time.Sleep(50 * time.Millisecond)
	}
	eventually(t, 30*time.Second, "bob gets it after that", func() bool {
		a, err := p2.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "bob", TTL: time.Second})
		return err == nil && a.Granted && a.Grant.Fence > g.Fence
	})
}

// TestMaxTTL_Rollout: proxies are replaced one by one by some with another max-ttl, up and
// down again, while clients lock, renew and unlock: nobody is told NOQUORUM, and leases of
// the longer max-ttl stay whole.
func TestMaxTTL_Rollout(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 3)
	with := func(maxTTL time.Duration) testOptions {
		return testOptions{Nodes: nodesAt(t, addrs(nodes)...), MaxTTL: maxTTL, NodeTimeout: patient}
	}
	before := 2 * time.Second
	f := startFleet(t, 3, with(before))
	for _, maxTTL := range []time.Duration{6 * time.Second, 2 * time.Second, time.Second} {
		f.rollOut(with(maxTTL))
		f.use(0, func(s *proxy) {
			if g := lock(t, s, "long", "carol", maxTTL); maxTTL > before && g.Validity <= before {
				t.Errorf("with max-ttl %v, and not %v any more: valid for %v", maxTTL, before, g.Validity)
			}
		})
		time.Sleep(300 * time.Millisecond)
		f.use(0, func(s *proxy) { unlock(t, s, "long", "carol", 0) })
	}
	n := redistest.Open(t, nodes[0].Addr())
	eventually(t, 20*time.Second, "the node forgets the longer ones", func() bool {
		return n.Do(t, "HGET", "lockproxy:node", "ttl").Text == "1000"
	})
	f.stop(50)
}

// TestMaxTTL_OfANode: which max-ttl a node works with, after proxies with different ones have used it.
func TestMaxTTL_OfANode(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		last map[int]time.Duration // max-ttl in seconds: how long ago one with it made a lease
		own  int
		want int
	}{
		{"the only one", nil, 10, 10},
		{"a larger one lately", map[int]time.Duration{60: time.Minute}, 10, 60},
		{"a larger one whose leases are over", map[int]time.Duration{60: 62 * time.Second}, 10, 10},
		{"one between", map[int]time.Duration{60: 62 * time.Second, 30: 29 * time.Second, 20: 0}, 10, 30},
		{"all between are over", map[int]time.Duration{60: 62 * time.Second, 30: 32 * time.Second, 20: time.Hour}, 10, 10},
		{"a smaller one", map[int]time.Duration{60: 0}, 90, 90},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			nodes := redistest.StartNodes(t, 1)
			n := redistest.Open(t, nodes[0].Addr())
			s, err := newProxy(testOptions{Nodes: nodesAt(t, nodes[0].Addr()), MaxTTL: time.Duration(tt.own) * time.Second, NodeTimeout: patient, Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			lock(t, s, "warm", "x", time.Second)
			k, longest := s.RedisKeys(locks.Key{DB: 0, Name: "job"}), 0
			for sec, ago := range tt.last {
				longest = max(longest, sec)
				n.Do(t, "HSET", k.Node, "m"+strconv.Itoa(1000*sec)+" "+s.NodeList.Fingerprint, inMillis(-ago), "ttl", strconv.Itoa(1000*longest))
			}
			if v := n.Do(t, s.Command(scripts.State, k)...); v.Elems[2].Int() != int64(1000*tt.want) {
				t.Errorf("%v, want %d s", v, tt.want)
			}
			if got := n.Do(t, "HGET", k.Node, "ttl").Text; got != strconv.Itoa(1000*tt.want) {
				t.Errorf("it keeps %s", got)
			}
			lock(t, s, "job", "alice", 5*time.Second)
			n.Do(t, "HSET", k.Lock, "e", inMillis(100*time.Second))
			refused(t, s, "job", "bob", time.Second)
			if left := n.Do(t, "PTTL", k.Lock).Int(); left > int64(1000*tt.want) || left < int64(900*tt.want) {
				t.Errorf("a lease is kept for %d ms", left)
			}
		})
	}
}

// TestRestore_SitsOutTheLongestLease: a node that forgot under a smaller max-ttl than the
// others know of sits out the rest, and for a fallback to the clock as long again.
func TestRestore_SitsOutTheLongestLease(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 1)
	n := redistest.Open(t, nodes[0].Addr())
	s, err := newProxy(testOptions{Nodes: nodesAt(t, nodes[0].Addr()), MaxTTL: time.Second, NodeTimeout: patient, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	lock(t, s, "warm", "x", time.Second)
	k := s.RedisKeys(locks.Key{DB: 0, Name: "job"})
	ask := func(sc *scripts.Script, args ...string) []redistest.Value {
		t.Helper()
		return n.Do(t, s.Command(sc, k, args...)...).Elems
	}
	forgot := func(ago time.Duration) {
		n.Do(t, "HSET", k.Node, "since", inMillis(-ago), "until", inMillis(-ago+time.Second), "sync", "0", "ttl", "1000")
		n.Do(t, "HDEL", k.Node, "m60000 others")
	}
	longest := "60000"
	restore := func(floor string) []redistest.Value {
		t.Helper()
		return ask(scripts.Restore, floor, ask(scripts.State)[2].Text, longest)
	}
	forgot(50 * time.Second)
	if v := restore("1000"); v[0].Int() != int64(vote.Quarantined) || v[1].Int() < 9_000 || v[1].Int() > 10_000 {
		t.Errorf("after 50 s: %v, want a quarantine of 10 s more", v)
	}
	if v := ask(scripts.State); v[0].Int() != int64(vote.Quarantined) || v[1].Int() < 8_000 || v[1].Int() > 10_000 {
		t.Errorf("after that: %v, want what is left of 10 s more", v)
	}
	forgot(90 * time.Second)
	if v := restore("0"); v[0].Int() != int64(vote.Floorless) {
		t.Errorf("floor from the clock after 90 s: %v", v)
	}
	forgot(61 * time.Second)
	if v := restore("1000"); v[0].Int() != 1 {
		t.Errorf("after 61 s: %v", v)
	}
	longest = "3600000" // then it does not wait for as long again
	for _, over := range []time.Duration{30 * time.Second, 70 * time.Second} {
		forgot(time.Hour + over)
		if v := restore("0"); v[0].Int() == 1 != (over > time.Minute) {
			t.Errorf("floor from the clock %v after an hour: %v", over, v)
		}
	}
}
