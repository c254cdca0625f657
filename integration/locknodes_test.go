package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// A kindOfNode is a lock node of some kind: the URL for the proxy, and the server that
// has the records, to be asked directly.
type kindOfNode struct {
	url    string
	server func() *redistest.Server
}

func always(s *redistest.Server) func() *redistest.Server {
	return func() *redistest.Server { return s }
}

// nodesOfEveryKind are five lock nodes, each reached in another way.
func nodesOfEveryKind(t *testing.T, ca *redistest.Authority) map[string]kindOfNode {
	t.Helper()
	plain := redistest.Start(t)
	secure, secureURL := redistest.StartTLS(t, ca, "--tls-auth-clients", "no")
	path := filepath.Join(t.TempDir(), "s")
	socket := redistest.Start(t, "--unixsocket", path)
	owned := redistest.Start(t)
	owned.Do(t, "ACL", "SETUSER", "locker", "on", ">p@ss", "~lockproxy:*", "&lockproxy:*", "+@all")
	watched := redistest.StartSentinel(t, 1, 3)
	return map[string]kindOfNode{
		"plain":    {plain.URL(), always(plain)},
		"TLS":      {secureURL, always(secure)},
		"socket":   {"unix://" + path, always(socket)},
		"user":     {"redis://locker:p%40ss@" + owned.Addr(), always(owned)},
		"sentinel": {watched.URL(), func() *redistest.Server { return watched.Master(t) }},
	}
}

// TestLockNode_LeastPrivileges: the user that docs/configuration.md makes can do everything
// a proxy asks for, and asks for nothing else.
func TestLockNode_LeastPrivileges(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rules, found := strings.Cut(string(doc), "      ACL SETUSER ")
	if !found {
		t.Fatal("the page shows no user")
	}
	rules, _, _ = strings.Cut(rules, "\n")
	n := redistest.Start(t)
	n.Do(t, append([]string{"ACL", "SETUSER"}, strings.Fields(rules)...)...)
	var addrs []string
	for range 2 {
		addrs = append(addrs, redistest.StartServe(t, freeAddr(t), "--upstream", redistest.Start(t).URL(),
			"--lock-node", "redis://locks:secret@"+n.Addr()).Addr())
	}
	a, b, third := redistest.Open(t, addrs[0]), redistest.Open(t, addrs[0]), redistest.Open(t, addrs[1])
	a.Do(t, "LOCK", "job", "20s", "SESSION")
	a.Do(t, "RENEW", "job", "10s")
	b.Send(t, "LOCK job 20s WAIT 30s OWNER b REQ 1\r\n")
	eventually(t, 10*time.Second, "b waits", func() bool { return len(a.Do(t, "LOCKCTL", "WAITERS", "job").Elems) == 1 })
	third.Send(t, "LOCK job 20s WAIT 30s OWNER c REQ 2\r\n")
	if v := a.Do(t, "LOCKCTL", "LIST"); len(v.Elems) != 2 || len(v.Elems[1].Elems) != 1 {
		t.Errorf("LIST: %v", v)
	}
	a.Do(t, "UNLOCK", "job")
	// b is first in the proxy that hears of the release first, which does not oblige the other.
	owners := map[string]*redistest.Conn{"b": b, "c": third}
	for range 2 {
		var owner string
		eventually(t, 20*time.Second, "one of them has the lock", func() bool {
			if info := a.Do(t, "LOCKCTL", "INFO", "job"); len(info.Elems) > 3 {
				owner = info.Elems[3].Text
			}
			return owners[owner] != nil
		})
		c := owners[owner]
		if v := c.Read(t); len(v.Elems) != 4 {
			t.Fatalf("%s: %v", owner, v)
		}
		delete(owners, owner)
		if len(owners) > 0 {
			c.Do(t, "UNLOCK", "job", owner, "REQ", "1")
		}
	}
	if v := third.Do(t, "LOCKCTL", "FORCE", "job"); len(v.Elems) == 0 {
		t.Errorf("FORCE: %v", v)
	}
	if v := n.Do(t, "ACL", "LOG"); len(v.Elems) > 0 {
		t.Errorf("refused: %v", v)
	}
}

// TestLockNodesOfEveryKind: a lock is on every node, and leaves every node.
func TestLockNodesOfEveryKind(t *testing.T) {
	t.Parallel()
	ca := redistest.NewAuthority(t)
	nodes := nodesOfEveryKind(t, ca)
	args := []string{"--upstream", redistest.Start(t).URL(), "--tls-ca", ca.File}
	for _, n := range nodes {
		args = append(args, "--lock-node", n.url)
	}
	p := redistest.StartServe(t, freeAddr(t), args...)
	c := redistest.Open(t, p.Addr())
	records := func(want int) {
		t.Helper()
		for kind, n := range nodes {
			eventually(t, 9*time.Second, kind+" has the record, or has not", func() bool {
				return len(n.server().Do(t, "KEYS", "lockproxy:lock:*").Elems) == want
			})
		}
	}
	if v := c.Do(t, "LOCK", "job", "20s", "OWNER", "me"); len(v.Elems) != 4 {
		t.Fatalf("LOCK: %v", v)
	}
	records(1)
	if v := c.Do(t, "RENEW", "job", "30s", "me"); v.Int() < 25000 {
		t.Errorf("RENEW: %v", v)
	}
	for kind, n := range nodes {
		eventually(t, 9*time.Second, kind+" has the longer lease", func() bool {
			return n.server().Do(t, "PTTL", "lockproxy:lock:0:job").Int() > 20000
		})
	}
	if v := c.Do(t, "UNLOCK", "job", "me"); v.Int() != 1 {
		t.Errorf("UNLOCK: %v", v)
	}
	records(0)
}

// startWatched starts a proxy whose lock nodes are plain ones and, last, one whose master
// sentinels choose.
func startWatched(t *testing.T, plain int, args ...string) (*redistest.Proxy, *redistest.Sentinel) {
	t.Helper()
	watched := redistest.StartSentinel(t, 2, 3)
	args = append(args, "--lock-node", watched.URL())
	return redistest.StartProxy(t, redistest.Start(t), redistest.StartNodes(t, plain), args...), watched
}

// TestLockNode_Failover: one node of three changes its master. What is held stays held,
// nothing else is granted, and the promoted server votes when it has sat out max-ttl.
func TestLockNode_Failover(t *testing.T) {
	for name, old := range failures {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, watched := startWatched(t, 2, "--max-ttl", "3s")
			c := redistest.Open(t, p.Addr())
			first := c.Do(t, "LOCK", "job", "3s", "OWNER", "me", "SESSION")
			if len(first.Elems) != 4 {
				t.Fatalf("LOCK: %v", first)
			}
			master := watched.Master(t)
			old.end(master)
			now := watched.AwaitFailover(t, master)
			if v := c.Do(t, "LOCK", "job", "3s", "OWNER", "you"); !v.Null {
				t.Errorf("LOCK of what is held, after the failover: %v", v)
			}
			if v := c.Do(t, "LOCK", "other", "3s", "OWNER", "you"); len(v.Elems) != 4 {
				t.Errorf("LOCK with the other two: %v", v)
			}
			awaitNodeState(t, c, now.Addr(), "quarantine") // and renews what it has meanwhile
			awaitNodeState(t, c, now.Addr(), "voting")
			eventually(t, 9*time.Second, "the new master has the lock", func() bool {
				return len(now.Do(t, "KEYS", "lockproxy:lock:0:job").Elems) == 1
			})
			if err := old.back(master); err != nil {
				t.Fatal(err)
			}
			if v := c.Do(t, "UNLOCK", "job", "me"); v.Int() != 1 {
				t.Errorf("UNLOCK: %v", v)
			}
			if v := c.Do(t, "LOCK", "job", "3s", "OWNER", "you"); len(v.Elems) != 4 || v.Elems[0].Int() <= first.Elems[0].Int() {
				t.Errorf("LOCK: %v, after %v", v, first)
			}
		})
	}
}

// awaitNodeState returns when LOCKCTL NODES shows the node at an address in a state.
func awaitNodeState(t *testing.T, c *redistest.Conn, address, state string) {
	t.Helper()
	eventually(t, 20*time.Second, address+" is "+state, func() bool {
		return shows(c.Do(t, "LOCKCTL", "NODES"), address, state)
	})
}

// shows finds the list that has the address, and says whether it has the state too.
func shows(v redistest.Value, address, state string) bool {
	at := func(e redistest.Value) bool { return strings.HasPrefix(e.Text, address) }
	if slices.ContainsFunc(v.Elems, at) {
		return slices.ContainsFunc(v.Elems, func(e redistest.Value) bool { return e.Text == state })
	}
	return slices.ContainsFunc(v.Elems, func(e redistest.Value) bool { return shows(e, address, state) })
}

// TestLockNode_FailoverOfTheOnlyOne: with one node, a failover is over when its new master is
// found, and fences go on.
func TestLockNode_FailoverOfTheOnlyOne(t *testing.T) {
	t.Parallel()
	p, watched := startWatched(t, 0)
	c := redistest.Open(t, p.Addr())
	first := c.Do(t, "LOCK", "job", "30s", "OWNER", "me")
	if len(first.Elems) != 4 {
		t.Fatalf("LOCK: %v", first)
	}
	watched.AwaitSync(t) // else the failover forgets it, as it may
	master := watched.Master(t)
	for _, s := range watched.Replicas(t) {
		eventually(t, 9*time.Second, "the replicas have the lock", func() bool {
			return len(s.Do(t, "KEYS", "lockproxy:lock:0:job").Elems) == 1
		})
	}
	master.Kill()
	if v := c.Do(t, "LOCK", "more", "30s"); !strings.HasPrefix(v.Text, "NOQUORUM ") {
		t.Errorf("LOCK without a master: %v", v)
	}
	watched.AwaitFailover(t, master)
	var again redistest.Value
	eventually(t, 10*time.Second, "LOCK is answered", func() bool {
		again = c.Do(t, "LOCK", "job", "30s", "OWNER", "you")
		return !again.IsError()
	})
	if !again.Null {
		t.Errorf("LOCK of what is held, after the failover: %v", again)
	}
	if v := c.Do(t, "UNLOCK", "job", "me"); v.Int() != 1 {
		t.Errorf("UNLOCK: %v", v)
	}
	if v := c.Do(t, "LOCK", "job", "30s"); len(v.Elems) != 4 || v.Elems[0].Int() <= first.Elems[0].Int() {
		t.Errorf("LOCK: %v, after %v", v, first)
	}
	if log := p.Log(); !strings.Contains(log, "is weaker than one that stays the same") {
		t.Errorf("no warning in the log:\n%s", log)
	}
}

// TestLockNode_SentinelsDown: without their word the node may be another's by now.
func TestLockNode_SentinelsDown(t *testing.T) {
	t.Parallel()
	p, watched := startWatched(t, 0)
	c := redistest.Open(t, p.Addr())
	if v := c.Do(t, "LOCK", "a", "30s"); len(v.Elems) != 4 {
		t.Fatalf("LOCK: %v", v)
	}
	for _, s := range watched.Sentinels {
		s.Pause()
	}
	n := 0
	lock := func() redistest.Value {
		n++
		return c.Do(t, "LOCK", fmt.Sprint(n), "30s")
	}
	eventually(t, 15*time.Second, "LOCK is refused", func() bool {
		return strings.Contains(lock().Text, "its sentinels do not answer")
	})
	for _, s := range watched.Sentinels {
		s.Resume()
	}
	eventually(t, 15*time.Second, "LOCK works again", func() bool {
		return len(lock().Elems) == 4
	})
}

// TestLockNode_ClusterIsRefused: over the command line, with the reason.
func TestLockNode_ClusterIsRefused(t *testing.T) {
	t.Parallel()
	path, err := redistest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	member := redistest.Start(t, "--cluster-enabled", "yes")
	nodes := redistest.StartNodes(t, 2)
	args := []string{"serve", "--listen", freeAddr(t), "--upstream", redistest.Start(t).URL(), "--lock-node", member.URL()}
	for _, n := range nodes {
		args = append(args, "--lock-node", n.URL())
	}
	out, err := exec.Command(path, args...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), member.Addr()+" is a Redis Cluster, which cannot be a lock node") {
		t.Errorf("%v: %s", err, out)
	}
	if slices.ContainsFunc(nodes, func(n *redistest.Server) bool { return len(n.Do(t, "KEYS", "lockproxy:lock*").Elems) > 0 }) {
		t.Error("it was used")
	}
}
