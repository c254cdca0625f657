package voters

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/backends"
	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/integration/redistest"
	"github.com/lockproxy/lockproxy/scripts"
)

// servers parses addresses.
func servers(tb testing.TB, addrs ...string) []*backends.Server {
	tb.Helper()
	var out []*backends.Server
	for _, a := range addrs {
		s, err := backends.Parse(a)
		if err != nil {
			tb.Fatal(err)
		}
		out = append(out, s)
	}
	return out
}

// within waits until ok, for a minute at most.
func within(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("not within a minute: %s", what)
		}
	}
}

// TestNode_WorkerPausesWhileTheServiceEnds: while a Service that ends waits for one node's
// connection, the worker of another node that has calls to repeat must sleep between its tries.
func TestNode_WorkerPausesWhileTheServiceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var looks atomic.Int64
		s, err := New(Options{
			Nodes: servers(t, "127.0.0.1:1"), Log: slog.New(slog.DiscardHandler),
			Now: func() time.Duration {
				if looks.Add(1) > 10_000 {
					panic("the lane does not sleep")
				}
				return time.Since(began) + time.Hour
			},
			Tune: func(c *rueidis.ClientOption) {
				c.DialCtxFn = func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
					return nil, errors.New("nobody there")
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		n := s.Members[0]
		n.Push(ScriptCall{
			Args: s.Command(scripts.Release, s.RedisKeys(locks.Key{Name: "job"})), Parse: vote.ParseRelease,
			Expires: s.Clock() + time.Minute, RetryUntilAcked: true,
		})
		time.Sleep(time.Second)
		close(s.stop)
		time.Sleep(time.Second)
		n.close()
		s.workers.Wait()
	})
}

// TestNode_OneGoroutineStays: one goroutine is kept for the worker of the only node, which works again and ends with the set.
func TestNode_OneGoroutineStays(t *testing.T) {
	h := newHandOver(t)
	n := h.set.Members[0]
	for range 100 {
		h.vote(h.set.Ask(AskRead, ScriptCall{Args: h.set.Command(scripts.Read, h.keys), Parse: vote.ParseDone, Expires: h.set.Clock() + time.Minute}, WaitForAll))
		if idle := h.set.goroutines.Idle(); idle > 2 { // one may be about to see that another one stays
			t.Fatalf("%d goroutines are idle", idle)
		}
	}
	within(t, "one is idle", func() bool { return n.idle() && h.set.goroutines.Idle() == 1 })
	if err := h.set.Close(time.Second); err != nil || h.set.goroutines.Idle() != 0 {
		t.Errorf("%d goroutines are idle after Close (%v)", h.set.goroutines.Idle(), err)
	}
}

// TestParseIdentity: a Redis and a Valkey tell in fields of different names that they
// belong to a Cluster.
func TestParseIdentity(t *testing.T) {
	for info, want := range map[string]identity{
		"# Server\r\nredis_mode:cluster\r\nrun_id:a\r\n":     {runID: "a", cluster: true},
		"# Server\r\nserver_mode:cluster\r\nrun_id:b\r\n":    {runID: "b", cluster: true},
		"# Server\r\nserver_mode:standalone\r\nrun_id:c\r\n": {runID: "c"},
	} {
		if got := parseIdentity(info); got != want {
			t.Errorf("%q: %+v, want %+v", info, got, want)
		}
	}
}

// TestStats_QuarantinesAreCountedOnce: a quarantine counts once, even if the node cannot be reached for a while.
func TestStats_QuarantinesAreCountedOnce(t *testing.T) {
	s, err := New(Options{Nodes: servers(t, "127.0.0.1:1")})
	if err != nil {
		t.Fatal(err)
	}
	in := func(left int64) vote.Vote { return vote.Vote{Code: vote.Quarantined, Wait: left} }
	down := vote.Vote{Err: ErrTimeout}
	for _, tt := range []struct {
		seen []vote.Vote
		want int64
	}{
		{[]vote.Vote{in(9000), in(8000), down, in(7000), down, down, in(0), in(0)}, 1},
		{[]vote.Vote{{Kind: vote.Yes}, in(9000)}, 2},
		{[]vote.Vote{in(8000), down, in(9000)}, 3},
		{[]vote.Vote{in(10000)}, 4},
		{[]vote.Vote{{Code: vote.NoRecord}, in(9000), down}, 5},
	} {
		for _, v := range tt.seen {
			s.recordStatus([]vote.Vote{v})
		}
		if got := s.Members[0].meter.quarantines.Load(); got != tt.want {
			t.Errorf("after %+v: %d, want %d", tt.seen, got, tt.want)
		}
	}
}

// TestStatus_OfForgetfulNodes: what a node that forgot waits for, and that of a name in doubt no probe is told.
func TestStatus_OfForgetfulNodes(t *testing.T) {
	const maxTTL = 3600_000
	in := func(ago, copyIn int64) vote.Vote {
		return vote.Vote{Code: vote.Quarantined, MaxTTL: maxTTL, Wait: maxTTL - ago, CopyIn: copyIn}
	}
	for _, tt := range []struct {
		name   string
		nodes  []string
		v      vote.Vote
		state  locks.NodeState
		copies bool
		doubt  time.Duration
	}{
		{"it may be told", []string{":1", ":2", ":3"}, in(60_000, 0), locks.NodeQuarantine, true, 0},
		{"an older proxy is there", []string{":1", ":2", ":3"}, in(60_000, -1), locks.NodeQuarantine, false, 0},
		{"emptied a moment ago", []string{":1", ":2", ":3"}, in(1000, -1), locks.NodeQuarantine, true, 0},
		{"of two", []string{":1", ":2"}, in(1000, 0), locks.NodeQuarantine, false, 0},
		{"about a name", []string{":1", ":2", ":3"}, vote.Vote{Code: vote.InDoubt, Wait: 1500}, locks.NodeUnknown, false, 1500 * time.Millisecond},
		{"a probe", []string{":1", ":2", ":3"}, vote.Vote{Kind: vote.Yes, Doubt: 1500}, locks.NodeVoting, false, 1500 * time.Millisecond},
	} {
		s, err := New(Options{Nodes: servers(t, tt.nodes...)})
		if err != nil {
			t.Fatal(err)
		}
		if st := s.Status(0, &tt.v); st.State != tt.state || st.Copies != tt.copies || st.Doubt != tt.doubt {
			t.Errorf("%s: %+v", tt.name, st)
		}
	}
}

// TestForgotten_WaitsByItsOwnClock: a node whose clock was set forward says too early that nobody counts its old votes any more.
func TestForgotten_WaitsByItsOwnClock(t *testing.T) {
	now := time.Hour
	s, err := New(Options{Nodes: servers(t, ":1", ":2", ":3"), Now: func() time.Duration { return now }, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(0) })
	says := func(gen string, copyIn time.Duration) vote.Vote {
		return vote.Vote{Code: vote.Quarantined, Gen: gen, CopyIn: copyIn.Milliseconds()}
	}
	for _, step := range []struct {
		what  string
		after time.Duration
		votes [3]vote.Vote
		want  string // the nodes that have forgotten, and in how long a copy may begin
	}{
		{"all vote", 0, [3]vote.Vote{{Kind: vote.Yes}, {Kind: vote.Yes}, {Kind: vote.Yes}}, ""},
		{"just seen, and it says at once", 0, [3]vote.Vote{says("a", 0)}, "0 a 3.07s, "},
		{"a second later", time.Second, [3]vote.Vote{says("a", 0)}, "0 a 2.07s, "},
		{"another has as well", 0, [3]vote.Vote{says("a", 0), says("a", 0)}, "0 a 2.07s, 1 a 3.07s, "},
		{"it was seen all the while", 3 * time.Second, [3]vote.Vote{1: says("a", 0)}, "1 a 70ms, "},
		{"it has forgotten again", 0, [3]vote.Vote{1: says("b", 0)}, "1 b 3.07s, "},
		{"its own clock is behind", time.Minute, [3]vote.Vote{1: says("b", time.Minute)}, "1 b 1m0s, "},
		{"it was away", 0, [3]vote.Vote{}, ""},
		{"and is seen again", 0, [3]vote.Vote{1: says("b", 0)}, "1 b 3.07s, "},
	} {
		now += step.after
		s.recovery.mu.Lock()
		s.noteForgottenLocked(step.votes[:])
		s.recovery.mu.Unlock()
		got := ""
		forgotten, _ := s.Forgotten()
		for _, f := range forgotten {
			got += fmt.Sprintf("%d %s %v, ", f.Node, f.Gen, f.CopyAt-now)
		}
		if got != step.want {
			t.Errorf("%s: %q, want %q", step.what, got, step.want)
		}
	}
}

// TestNodes_Timeout: nodes are shown with the node-timeout that is set, as far as it counts, and with none where the lease decides.
func TestNodes_Timeout(t *testing.T) {
	for set, want := range map[time.Duration]time.Duration{0: 0, 70 * time.Millisecond: 70 * time.Millisecond, time.Minute: RoundLimit * 3 / 4} {
		s, err := New(Options{Nodes: servers(t, "127.0.0.1:1"), NodeTimeout: set})
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Nodes()[0].Timeout; got != want {
			t.Errorf("node-timeout %v: shown with %v, want %v", set, got, want)
		}
	}
}

// TestNode_LoadsScriptsSlowly: a node that needs longer for all scripts than for one batch votes none the less.
func TestNode_LoadsScriptsSlowly(t *testing.T) {
	t.Parallel()
	m := miniredis.NewMiniRedis()
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	m.Server().SetPreHook(func(_ *server.Peer, command string, _ ...string) bool {
		if command == "SCRIPT" {
			time.Sleep(CallTimeout * 3 / 2 / time.Duration(len(scripts.All())))
		}
		return false
	})
	s, err := New(Options{Nodes: servers(t, m.Addr()), NodeTimeout: 20 * time.Second, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); s.Run(ctx) }()
	within(t, "the node votes", func() bool { return s.Nodes()[0].State == locks.NodeVoting })
	cancel()
	<-ended
	if err := s.Close(time.Second); err != nil {
		t.Error(err)
	}
}

// TestNode_OneRefusalIsNoState: a node that refused something once is asked with every command of the scripts
// until it takes them all.
func TestNode_OneRefusalIsNoState(t *testing.T) {
	t.Parallel()
	server := redistest.StartNodes(t, 1)[0]
	var log bytes.Buffer
	s, err := New(Options{Nodes: servers(t, server.Addr()), Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); s.Run(ctx) }()
	votes := func() bool { return s.Nodes()[0].State == locks.NodeVoting }
	within(t, "the node votes", votes)
	s.Members[0].noteRefusal(&vote.Vote{Err: &locks.RefusalError{Text: "OOM"}})
	for last, end := s.recovery.probes.Load(), s.recovery.probes.Load()+3; last < end; last = s.recovery.probes.Load() {
		within(t, "another look", func() bool { return s.recovery.probes.Load() > last })
		if !votes() {
			t.Fatal(s.Nodes()[0].Brief())
		}
	}
	if s.Members[0].refusals.Load() != 0 {
		t.Error("it is still doubted")
	}
	cancel()
	<-ended
	if err := s.Close(time.Second); err != nil {
		t.Error(err)
	}
	if strings.Contains(log.String(), "refuses") {
		t.Error(log.String())
	}
}
