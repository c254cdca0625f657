package integration

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// calls are how often each server executed a command for a client of its own;
// replicated commands are counted by replicas too, so it must be one that only reads,
// or be asked of the master.
func calls(t *testing.T, servers []*redistest.Server, command string) (n []int) {
	t.Helper()
	for _, s := range servers {
		n = append(n, s.Calls(t, command))
	}
	return n
}

// startBehind starts a proxy in front of a replicated upstream, after all servers
// have a.
func startBehind(t *testing.T, r *redistest.Replicated, args ...string) *redistest.Proxy {
	t.Helper()
	c := redistest.Open(t, r.Servers[0].Addr())
	c.Do(t, "SET", "a", "1")
	if v := c.Do(t, "WAIT", strconv.Itoa(len(r.Servers)-1), "10000"); v.Int() != int64(len(r.Servers)-1) {
		t.Fatalf("%v replicas have it", v)
	}
	return redistest.StartProxy(t, r, []*redistest.Server{redistest.Start(t)}, args...)
}

func TestReplicas_ServeReads(t *testing.T) {
	t.Parallel()
	r := redistest.StartReplicated(t, 3)
	for _, from := range []string{"master", "replica", "any"} {
		t.Run(from, func(t *testing.T) {
			p := startBehind(t, r, "--read-from", from)
			for _, s := range r.Servers {
				s.Do(t, "CONFIG", "RESETSTAT")
			}
			const clients, each = 24, 4
			for range clients {
				c := redistest.Open(t, p.Addr())
				for range each {
					if v := c.Do(t, "GET", "a"); v.Text != "1" {
						t.Fatalf("GET a: %v", v)
					}
				}
			}
			n := calls(t, r.Servers, "get")
			atReplicas := n[1] + n[2] + n[3]
			if n[0]+atReplicas != clients*each {
				t.Errorf("%d reads were %v", clients*each, n)
			}
			if (n[0] > 0) != (from != "replica") || (atReplicas > 0) != (from != "master") {
				t.Errorf("read by the master and its replicas: %v", n)
			}
			if from != "master" && min(n[1], n[2], n[3]) == 0 {
				t.Errorf("a replica was not used: %v", n)
			}
		})
	}
}

// Only single commands that read may go to a replica.
func TestReplicas_CommandsThatStayAtTheMaster(t *testing.T) {
	t.Parallel()
	r := redistest.StartReplicated(t, 2)
	p := startBehind(t, r, "--read-from", "replica")
	tests := []struct {
		name     string
		commands []string
		counted  string // what the master must execute
		times    int
	}{
		{"a write", []string{"SET b 1"}, "set", 1},
		{"inside MULTI", []string{"MULTI", "GET a", "STRLEN a", "EXEC"}, "get", 1},
		{"after WATCH", []string{"WATCH a", "GET a", "UNWATCH"}, "get", 1},
		{"a script", []string{"EVAL return(redis.call('GET',KEYS[1])) 1 a"}, "eval", 1},
		{"a script that only reads", []string{"EVAL_RO return(redis.call('GET',KEYS[1])) 1 a"}, "eval_ro", 1},
		{"what blocks", []string{"RPUSH l x", "BLPOP l 1"}, "blpop", 1},
		{"what is about the server", []string{"DBSIZE", "DEBUG SLEEP 0"}, "dbsize", 1},
		{"publishing", []string{"PUBLISH c m"}, "publish", 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r.Servers[0].Do(t, "CONFIG", "RESETSTAT")
			c := redistest.Open(t, p.Addr())
			for _, command := range tt.commands {
				if v := c.Do(t, strings.Fields(command)...); v.IsError() {
					t.Fatalf("%s: %v", command, v)
				}
			}
			if n := r.Servers[0].Calls(t, tt.counted); n != tt.times {
				t.Errorf("the master executed %s %d times, want %d", tt.counted, n, tt.times)
			}
		})
	}
}

// A replica that dies, or is taken away, must cost clients nothing.
func TestReplicas_DeadOneIsSkipped(t *testing.T) {
	t.Parallel()
	r := redistest.StartReplicated(t, 2)
	p := startBehind(t, r, "--read-from", "replica")
	stop := make(chan struct{})
	var readers sync.WaitGroup
	var reads atomic.Int64
	for range 8 {
		c := redistest.Open(t, p.Addr())
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if v, err := c.Try("GET", "a"); err != nil || v.Text != "1" {
					t.Errorf("GET a: %v %v", v, err)
					return
				}
				reads.Add(1)
				time.Sleep(time.Millisecond)
			}
		})
	}
	progress := func(what string) {
		t.Helper()
		before := reads.Load()
		eventually(t, 20*time.Second, what, func() bool { return reads.Load() > before+1000 })
	}
	progress("with two replicas")
	r.Servers[1].Kill()
	progress("with one")
	r.Servers[2].Kill()
	progress("with none")
	if err := r.Servers[1].Restart(); err != nil {
		t.Fatal(err)
	}
	r.Servers[1].SetReplicaOf(t, r.Servers[0])
	eventually(t, 20*time.Second, "the replica that is back is used", func() bool { return r.Servers[1].Calls(t, "get") > 100 })
	r.Servers[1].SetReplicaOf(t, nil) // a master that nobody follows
	time.Sleep(2 * time.Second)       // longer than a look may be old
	before := r.Servers[1].Calls(t, "get")
	progress("after it left")
	if now := r.Servers[1].Calls(t, "get"); now != before {
		t.Errorf("%d reads were sent to a server that is no replica", now-before)
	}
	close(stop)
	readers.Wait()
}

func TestReplicas_OfAClusterServeReads(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 2, 1)
	p := redistest.StartProxy(t, c.Nodes[0], []*redistest.Server{redistest.Start(t)}, "--read-from", "replica")
	w := redistest.Open(t, p.Addr())
	const keys = 20
	for i := range keys {
		w.Do(t, "SET", "k"+strconv.Itoa(i), "x")
	}
	read := func() {
		for i := range keys {
			eventually(t, 10*time.Second, "a replica has it", func() bool { return w.Do(t, "GET", "k"+strconv.Itoa(i)).Text == "x" })
		}
	}
	// Nodes do not name a replica before it has heard of a write.
	eventually(t, 20*time.Second, "replicas are known", func() bool {
		read()
		return c.Nodes[2].Calls(t, "get") > 0 && c.Nodes[3].Calls(t, "get") > 0
	})
	before := calls(t, c.Nodes, "get")
	read()
	n := calls(t, c.Nodes, "get")
	if n[0] != before[0] || n[1] != before[1] || n[2]+n[3] < before[2]+before[3]+keys {
		t.Errorf("read by two masters and their replicas: %v, before %v", n, before)
	}
}

// Without sentinels the operator makes another server the master.
func TestReplicas_ManualFailover(t *testing.T) {
	t.Parallel()
	r := redistest.StartReplicated(t, 1)
	p := startBehind(t, r)
	c := redistest.Open(t, p.Addr())
	r.Servers[0].Kill()
	eventually(t, 9*time.Second, "the master is missed", func() bool { return strings.HasPrefix(c.Do(t, "SET", "a", "2").Text, "UPSTREAMDOWN ") })
	r.Servers[1].SetReplicaOf(t, nil)
	eventually(t, 10*time.Second, "the other is the master", func() bool { return c.Do(t, "SET", "a", "3").Text == "OK" })
	if err := r.Servers[0].Restart(); err != nil {
		t.Fatal(err)
	}
	r.Servers[0].SetReplicaOf(t, r.Servers[1])
	r.AwaitSync(t)
	if v := c.Do(t, "SET", "a", "4"); v.Text != "OK" || r.Servers[1].Do(t, "GET", "a").Text != "4" {
		t.Errorf("with the old master as a replica: %v", v)
	}
}

func TestClusterNeedsLockNodes(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 1, 0)
	p, err := redistest.LaunchProxy(c, nil)
	if err == nil {
		p.Kill()
	}
	if err == nil || !strings.Contains(err.Error(), "lock-node: not set; a Cluster") {
		t.Errorf("it started, or said something else: %v", err)
	}
}
