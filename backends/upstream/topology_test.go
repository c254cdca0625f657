package upstream

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lockproxy/lockproxy/backends"
	"github.com/lockproxy/lockproxy/backends/topology"
)

// twoShards is a Cluster of a, with the lower half of the slots and a replica, and b.
func twoShards(seed *backends.Server) *topology.Topology {
	t := &topology.Topology{
		Shards: []topology.Shard{{Master: seed.At("a:1"), Replicas: []*backends.Server{seed.At("r:1")}}, {Master: seed.At("b:1")}},
		Slots:  make([]uint16, topology.SlotCount),
	}
	for i := topology.SlotCount / 2; i < topology.SlotCount; i++ {
		t.Slots[i] = 1
	}
	return t
}

func TestUpstream_SetTopology(t *testing.T) {
	seed, err := backends.Parse("s:1")
	if err != nil {
		t.Fatal(err)
	}
	u := New(Options{PoolOptions: PoolOptions{Server: seed}, ReadFrom: FromReplica})
	defer u.Close()
	u.SetTopology(twoShards(seed))
	first := u.View()
	a, b := first.Master(0), first.Master(topology.SlotCount-1)
	if a.Addr() != "a:1" || b.Addr() != "b:1" || first.Reader(0, 0).Addr() != "r:1" {
		t.Fatalf("slots are served by %s and %s, read at %s", a.Addr(), b.Addr(), first.Reader(0, 0).Addr())
	}
	seen, changed := u.Changed()
	u.SetTopology(twoShards(seed))
	if u.View() != first || seen != first || isClosed(changed) {
		t.Error("an equal topology replaced the view")
	}

	if p := u.Moved(0, "b:1"); p != b || u.View().Master(0) != b {
		t.Errorf("a slot that moved is served by %s", u.View().Master(0).Addr())
	}
	if !isClosed(changed) {
		t.Error("the channel of Changed was not closed")
	}
	u.SetTopology(twoShards(seed))
	if u.View().Master(0) != a {
		t.Error("Moved outlives a later topology")
	}

	demoted := twoShards(seed)
	demoted.Shards[0] = topology.Shard{Master: seed.At("r:1"), Replicas: []*backends.Server{seed.At("a:1")}}
	u.SetTopology(demoted)
	v := u.View()
	if v.Master(0).Addr() != "r:1" || v.Reader(0, 0).Addr() != "a:1" || v.Reader(0, 0) == a || v.Master(topology.SlotCount-1) != b {
		t.Error("a server in another role must have another pool, and others keep theirs")
	}
	u.wg.Wait()
	if _, err := a.Shared(t.Context(), u.DefaultIdentity(), MainClass, 0); !errors.Is(err, errClosed) {
		t.Errorf("the pool of a demoted master is open: %v", err)
	}
}

// A connection that the proxy itself closed is no reason to refresh.
func TestUpstream_LostConnectionRefreshesTopology(t *testing.T) {
	f := newFakeServer(t, echo)
	seed, err := backends.Parse("redis://" + f.addr)
	if err != nil {
		t.Fatal(err)
	}
	var refreshes atomic.Int32
	u := New(Options{PoolOptions: PoolOptions{Server: seed}, Refresh: func() { refreshes.Add(1) }})
	for _, end := range []func(*Conn){(*Conn).Close, func(*Conn) { f.drop() }} {
		h := newRecordingSink()
		c, err := u.Pool().Private(t.Context(), anonymous, h)
		if err != nil {
			t.Fatal(err)
		}
		end(c)
		h.until(t, "its end", func() bool { return len(h.fails) == 1 })
	}
	u.Close()
	if n := refreshes.Load(); n != 1 {
		t.Errorf("%d refreshes, want 1", n)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// TestUpstream_ReplacedMasterIsUp: when another server takes the place of a master that was down, the log says that the upstream is up
// once that one is reached, and only then. Masters that replace one which was up are no news.
func TestUpstream_ReplacedMasterIsUp(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	down, next, last := ln.Addr().String(), newFakeServer(t, echo).addr, newFakeServer(t, echo).addr
	ln.Close()
	of := func(addr string) *topology.Topology {
		if addr == "" {
			return &topology.Topology{Shards: []topology.Shard{{}}}
		}
		s, err := backends.Parse(addr)
		if err != nil {
			t.Fatal(err)
		}
		return &topology.Topology{Shards: []topology.Shard{{Master: s}}}
	}
	for name, shards := range map[string]func(string) *topology.Topology{
		"sentinels": of,
		"cluster": func(addr string) *topology.Topology {
			t := of(addr)
			t.Slots = make([]uint16, topology.SlotCount)
			return t
		},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			u := New(Options{PoolOptions: PoolOptions{Server: of(down).Shards[0].Master, Log: slog.New(slog.NewTextHandler(&log, nil))}})
			defer u.Close()
			for _, step := range []struct {
				master  string
				asked   bool
				up, all int // lines that say it is up, of the master, and of all
			}{
				{down, true, 0, 0}, {"", true, 0, 0}, {next, false, 0, 0}, {next, true, 1, 1}, {next, true, 1, 1}, {last, true, 0, 1},
			} {
				u.SetTopology(shards(step.master))
				if p := u.View().FirstMaster(); step.asked && p != nil {
					if c, err := p.Shared(t.Context(), Identity{Proto: 2}, MainClass, 0); err == nil {
						Return(c)
					}
				}
				said := log.String()
				up, all := strings.Count(said, `msg="upstream is up" upstream=`+step.master+"\n"), strings.Count(said, "upstream is up")
				if up != step.up && step.master != "" || all != step.all || strings.Count(said, "upstream is down") != 1 {
					t.Errorf("master %q:\n%s", step.master, said)
				}
			}
		})
	}
}
