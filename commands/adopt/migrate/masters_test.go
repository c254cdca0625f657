package migrate

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends"
	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/topology"
	"github.com/lockproxy/lockproxy/backends/upstream"
)

// A fakeCluster is masters named a, b, … of one Cluster, of which the slot of every key is 0.
type fakeCluster struct {
	mu    sync.Mutex
	addrs []string
	keys  []map[string]string // of each master
	nodes []string            // what each answers to CLUSTER NODES
	get   func(at int, asking bool, key string) string
	// scanned is called when a master has been scanned, with mu held.
	scanned func(at int)
}

func startFakeCluster(t *testing.T, masters int) *fakeCluster {
	t.Helper()
	f := &fakeCluster{keys: make([]map[string]string, masters), nodes: make([]string, masters), scanned: func(int) {}}
	f.get = func(at int, _ bool, key string) string {
		if v, there := f.keys[at][key]; there {
			return fmt.Sprintf("$%d\r\n%s\r\n", len(v), v)
		}
		return "$-1\r\n"
	}
	for i := range masters {
		f.keys[i] = map[string]string{}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		f.addrs = append(f.addrs, l.Addr().String())
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				go f.serve(i, conn)
			}
		}()
	}
	f.says("myself,master 0-1", "myself,master 2-3")
	return f
}

// says lets each master answer CLUSTER NODES with a line about itself.
func (f *fakeCluster) says(flagsAndSlots ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.nodes {
		flags, slots, _ := strings.Cut(flagsAndSlots[i], " ")
		f.nodes[i] = fmt.Sprintf("%c %s@1 %s - 0 0 1 connected %s\n", 'a'+i, f.addrs[i], flags, slots)
	}
}

func (f *fakeCluster) serve(at int, conn net.Conn) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	for asking := false; ; {
		raw, err := resp.Read(r, &limits)
		if err != nil {
			return
		}
		var words []string
		for _, w := range resp.Decode(raw).Elems {
			words = append(words, w.Text)
		}
		f.mu.Lock()
		reply := "+OK\r\n"
		switch words[0] {
		case "CLUSTER":
			reply = fmt.Sprintf("$%d\r\n%s\r\n", len(f.nodes[at]), f.nodes[at])
		case "SCAN":
			page := resp.AppendArray(nil, 2)
			page = resp.AppendArray(resp.AppendBulkString(page, "0"), len(f.keys[at]))
			for key := range f.keys[at] {
				page = resp.AppendBulkString(page, key)
			}
			reply = string(page)
			f.scanned(at)
		case "GET":
			reply = f.get(at, asking, words[1])
		}
		asking = words[0] == "ASKING"
		f.mu.Unlock()
		if _, err := conn.Write([]byte(reply)); err != nil {
			return
		}
	}
}

// masters are the first n, which the proxy knows.
func (f *fakeCluster) masters(t *testing.T, n int) *Masters {
	t.Helper()
	seed, err := backends.Parse(f.addrs[0])
	if err != nil {
		t.Fatal(err)
	}
	up := upstream.New(upstream.Options{PoolOptions: upstream.PoolOptions{Server: seed}})
	t.Cleanup(up.Close)
	is := &topology.Topology{Slots: make([]uint16, topology.SlotCount)}
	for _, addr := range f.addrs[:n] {
		is.Shards = append(is.Shards, topology.Shard{Master: seed.At(addr)})
	}
	up.SetTopology(is)
	return &Masters{Of: up}
}

// TestMasters_KeysThatMove: a key that moves to a master which has been scanned is found all the same.
func TestMasters_KeysThatMove(t *testing.T) {
	f := startFakeCluster(t, 2)
	f.keys[1]["lock:a"] = "me"
	f.scanned = func(at int) {
		if at == 0 && f.keys[1]["lock:a"] != "" {
			delete(f.keys[1], "lock:a")
			f.keys[0]["lock:a"] = "me"
		}
	}
	keys, complete, err := f.masters(t, 2).Keys(t.Context(), 0, "lock:*", 10)
	if err != nil || !complete || !slices.Equal(keys, []string{"lock:a"}) {
		t.Errorf("%v, complete: %v, %v", keys, complete, err)
	}
}

// TestMasters_NewMaster: keys may be at a master that the proxy does not know yet.
func TestMasters_NewMaster(t *testing.T) {
	for name, says := range map[string][]string{
		"has slots":                      {"myself,master 0-1", "myself,master 2-3"},
		"is about to get its first slot": {"myself,master 0-3 [1->-b]", "myself,master [1-<-a]"},
	} {
		t.Run(name, func(t *testing.T) {
			f := startFakeCluster(t, 2)
			f.keys[1]["lock:a"] = "me"
			f.says(says...)
			f.nodes[0] += "b " + f.addrs[1] + "@1 master - 0 0 2 connected " + strings.TrimPrefix(says[1], "myself,master ") + "\n"
			m := f.masters(t, 1)
			if keys, complete, err := m.Keys(t.Context(), 0, "lock:*", 10); err == nil || !strings.Contains(err.Error(), "other masters now than were looked at: b is one") {
				t.Errorf("%v, complete: %v, %v", keys, complete, err)
			}
			two := f.masters(t, 2).Of.View()
			time.AfterFunc(3*clusterPause, func() {
				is := &topology.Topology{Slots: make([]uint16, topology.SlotCount)}
				for _, p := range two.Masters() {
					is.Shards = append(is.Shards, topology.Shard{Master: p.Server()})
				}
				m.Of.SetTopology(is)
			})
			keys, complete, err := m.Keys(t.Context(), 0, "lock:*", 10)
			if err != nil || !complete || !slices.Equal(keys, []string{"lock:a"}) {
				t.Errorf("when it is known: %v, complete: %v, %v", keys, complete, err)
			}
		})
	}
}

// TestMasters_ValuesWhileSlotsMove: a key is looked for where the masters say it is, until one of them has it or has it not.
func TestMasters_ValuesWhileSlotsMove(t *testing.T) {
	const there, absent = "$2\r\nme\r\n", "$-1\r\n"
	for _, tt := range []struct {
		name    string
		replies func(n int, a, b string, at int, asking bool) string // n: how many were answered before
		want    string                                               // empty: absent
		fails   string
	}{
		{"MOVED", func(_ int, _, b string, at int, _ bool) string {
			return [...]string{"-MOVED 0 " + b + "\r\n", there}[at]
		}, "me", ""},
		{"ASK", func(_ int, _, b string, at int, asking bool) string {
			switch {
			case at == 0:
				return "-ASK 0 " + b + "\r\n"
			case asking:
				return there
			}
			return absent
		}, "me", ""},
		{"ASK, and absent there too", func(_ int, _, b string, at int, asking bool) string {
			return [...]string{"-ASK 0 " + b + "\r\n", absent}[at]
		}, "", ""},
		{"ASK, of a slot that goes back", func(n int, a, b string, at int, asking bool) string {
			if at == 1 {
				return "-MOVED 0 " + a + "\r\n"
			}
			return [...]string{"-ASK 0 " + b + "\r\n", there}[min(n/2, 1)]
		}, "me", ""},
		{"TRYAGAIN", func(n int, _, _ string, _ int, _ bool) string {
			return [...]string{"-TRYAGAIN later\r\n", there}[min(n/5, 1)]
		}, "me", ""},
		{"CLUSTERDOWN at one of them", func(_ int, _, _ string, at int, _ bool) string {
			return [...]string{"-CLUSTERDOWN The cluster is down\r\n", there}[at]
		}, "me", ""},
		{"CLUSTERDOWN for ever", func(int, string, string, int, bool) string { return "-CLUSTERDOWN The cluster is down\r\n" }, "", "CLUSTERDOWN"},
		{"both deny that it is theirs", func(_ int, a, b string, at int, _ bool) string {
			return "-MOVED 0 " + [...]string{b, a}[at] + "\r\n"
		}, "", "MOVED 0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := startFakeCluster(t, 2)
			n := 0
			f.get = func(at int, asking bool, _ string) string {
				n++
				return tt.replies(n-1, f.addrs[0], f.addrs[1], at, asking)
			}
			values, err := f.masters(t, 2).Values(t.Context(), 0, "lock:a")
			if tt.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fails) {
					t.Errorf("%v, %v", values, err)
				}
				return
			}
			if got := strings.Join(values, " "); err != nil || got != tt.want {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

// TestMasters_WatchMissesMasters: of a master that came meanwhile it is not told what changed.
func TestMasters_WatchMissesMasters(t *testing.T) {
	f := startFakeCluster(t, 2)
	f.mu.Lock()
	f.nodes[0] += "b " + f.addrs[1] + "@1 master - 0 0 2 connected 2-3\n"
	f.mu.Unlock()
	for n, wantErr := range map[int]bool{1: true, 2: false} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := f.masters(t, n).Watch(ctx, 0, "lock:", func(string) {}); (err != nil) != wantErr {
			t.Errorf("%d masters are watched: %v", n, err)
		}
	}
}
