package integration

import (
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// forgettings are what can happen to the memory of a lock node. before runs while the
// node knows nothing of the lock, what happens then while it does.
var forgettings = []struct {
	name    string
	before  func(t *testing.T, n *redistest.Server) (what func(t *testing.T))
	forgets bool
}{
	{"killed, and restarted with nothing", func(t *testing.T, n *redistest.Server) func(*testing.T) {
		return func(t *testing.T) { restart(t, n) }
	}, true},
	{"killed, and restarted from an older copy", func(t *testing.T, n *redistest.Server) func(*testing.T) {
		n.Do(t, "SAVE")
		return func(t *testing.T) { restart(t, n) }
	}, true},
	{"FLUSHALL", func(t *testing.T, n *redistest.Server) func(*testing.T) {
		return func(t *testing.T) { n.Do(t, "FLUSHALL") }
	}, true},
	{"demoted under a stale replica, and promoted", func(t *testing.T, n *redistest.Server) func(*testing.T) {
		stale := redistest.Start(t, "--repl-diskless-sync-delay", "0")
		n.Do(t, "CONFIG", "SET", "repl-diskless-sync-delay", "0")
		follow(t, stale, n)
		stale.SetReplicaOf(t, nil)
		return func(t *testing.T) {
			follow(t, n, stale)
			n.SetReplicaOf(t, nil)
			if v := n.Do(t, "EXISTS", "lockproxy:lock:0:job", "lockproxy:node"); v.Int() != 1 {
				t.Fatalf("it has %v of the node record and the lock, want the record alone", v)
			}
		}
	}, true},
	{"SCRIPT FLUSH", func(t *testing.T, n *redistest.Server) func(*testing.T) {
		return func(t *testing.T) { n.Do(t, "SCRIPT", "FLUSH") }
	}, false},
}

// follow makes a server a replica and waits until it has what the master has.
func follow(t *testing.T, s, master *redistest.Server) {
	t.Helper()
	s.SetReplicaOf(t, master)
	for end := time.Now().Add(30 * time.Second); !s.InSync(t); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s does not follow %s", s.Addr(), master.Addr())
		}
	}
}

func restart(t *testing.T, n *redistest.Server) {
	t.Helper()
	n.Kill()
	if err := n.Restart(); err != nil {
		t.Fatal(err)
	}
}

// nodeFields are what LOCKCTL NODES says of a node.
func nodeFields(t *testing.T, c *redistest.Conn, node int) map[string]string {
	t.Helper()
	v := c.Do(t, "LOCKCTL", "NODES")
	nodes := nodesField(v, "nodes").Elems
	if len(nodes) <= node {
		t.Fatalf("NODES: %v", v)
	}
	out := map[string]string{}
	for e := nodes[node].Elems; len(e) > 0; e = e[2:] {
		out[e[0].Text] = e[1].Text
	}
	return out
}

// TestLockNodes_MemoryLossUnderLoad: a node that may have forgotten a lease helps nobody to a lock
// while the lease may run, says in LOCKCTL NODES why, and votes again afterwards, with
// fences that go on growing. Of the two others one hangs, so that the lock would be
// granted twice if it did.
func TestLockNodes_MemoryLossUnderLoad(t *testing.T) {
	t.Parallel()
	for _, tt := range forgettings {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			forget(t, tt.before, tt.forgets)
		})
	}
}

func forget(t *testing.T, before func(*testing.T, *redistest.Server) func(*testing.T), forgets bool) {
	const lease = 12 * time.Second // and max-ttl
	r := startRig(t, 3, 2, "--max-ttl", lease.String())
	a, b := redistest.Open(t, r.proxies[0].Addr()), redistest.Open(t, r.proxies[1].Addr())
	a.Do(t, "LOCK", "warm", "1s")
	what := before(t, r.nodes[0])
	awaitState(t, b, 0, "voting", 3*lease) // a first replica looks like a loss of memory
	began := time.Now()
	got := a.Do(t, "LOCK", "job", lease.String(), "OWNER", "me")
	if len(got.Elems) != 4 {
		t.Fatal(got)
	}
	fence, validity := got.Elems[0].Int(), time.Duration(got.Elems[2].Int())*time.Millisecond
	what(t)
	r.nodes[1].Pause()
	happened := time.Now()

	seen := map[string]bool{}
	var granted redistest.Value
	answered := happened // last, by a quorum
	for resumed := false; ; time.Sleep(20 * time.Millisecond) {
		if !resumed && time.Since(began) > validity-time.Second {
			r.nodes[1].Resume()
			resumed = true
		}
		v := b.Do(t, "LOCK", "job", "1s", "OWNER", "you")
		at := time.Since(began)
		if len(v.Elems) == 4 {
			if granted = v; at < validity {
				t.Fatalf("granted to another after %v, within a validity of %v", at, validity)
			}
			break
		}
		switch refused := strings.HasPrefix(v.Text, "NOQUORUM "); {
		case resumed || refused && forgets:
		case refused && time.Since(answered) > 3*time.Second: // a busy machine is late now and then
			t.Fatalf("with two nodes that remember: %v", v)
		case refused:
		case !refused && forgets:
			t.Fatalf("with one node that remembers: %v", v)
		default:
			answered = time.Now()
		}
		if at > validity+10*time.Second {
			t.Fatalf("not granted %v after the end: %v", at-validity, v)
		}
		if time.Since(happened) > 4*time.Second && !resumed { // it cannot learn yet what the others hold; NODES shows what was a second ago, or more on a busy machine
			seen[nodeFields(t, b, 0)["state"]] = true
		}
	}
	if granted.Elems[0].Int() <= fence {
		t.Errorf("fence %d after %d", granted.Elems[0].Int(), fence)
	}
	if forgets != seen["quarantine"] || forgets == seen["voting"] {
		t.Errorf("NODES has said %v", seen)
	}
	if f := awaitState(t, b, 0, "voting", 3*lease); f["error"] != "" || f["quarantine-ms"] != "0" {
		t.Errorf("afterwards NODES says %v", f)
	}
	b.Do(t, "UNLOCK", "job", "you")
	r.nodes[1].Pause() // the node's vote counts again
	last := b.Do(t, "LOCK", "job", "1s", "OWNER", "they")
	for deadline := time.Now().Add(3 * lease); strings.Contains(last.Text, "abstains for this name") && time.Now().Before(deadline); {
		time.Sleep(100 * time.Millisecond)
		last = b.Do(t, "LOCK", "job", "1s", "OWNER", "they")
	}
	if len(last.Elems) != 4 || last.Elems[0].Int() <= granted.Elems[0].Int() {
		t.Errorf("with its vote: %v, after fence %d", last, granted.Elems[0].Int())
	}
}

// awaitState waits until NODES says that of a node.
func awaitState(t *testing.T, c *redistest.Conn, node int, state string, within time.Duration) map[string]string {
	t.Helper()
	for end := time.Now().Add(within); ; time.Sleep(20 * time.Millisecond) {
		f := nodeFields(t, c, node)
		if f["state"] == state {
			return f
		}
		if time.Now().After(end) {
			t.Fatalf("NODES still says %v, not %s", f, state)
		}
	}
}
