package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// nodeFaults are real conditions in which a lock node replies without a vote.
var nodeFaults = []struct {
	word   string // what the node answers, and NOQUORUM must say
	args   []string
	infect func(t *testing.T, s *redistest.Server)
}{
	{"OOM", nil, func(t *testing.T, s *redistest.Server) { s.Do(t, "CONFIG", "SET", "maxmemory", "1") }},
	{"READONLY", nil, func(t *testing.T, s *redistest.Server) { s.Do(t, "REPLICAOF", "127.0.0.1", "1") }},
	{"NOREPLICAS", nil, func(t *testing.T, s *redistest.Server) { s.Do(t, "CONFIG", "SET", "min-replicas-to-write", "1") }},
	{"NOAUTH", nil, func(t *testing.T, s *redistest.Server) {
		s.Do(t, "CONFIG", "SET", "requirepass", "secret")
		dropClients(t, s)
	}},
	{"NOPERM", nil, func(t *testing.T, s *redistest.Server) {
		s.Do(t, "ACL", "SETUSER", "operator", "on", "nopass", "+@all", "~*", "&*")
		s.Do(t, "ACL", "SETUSER", "default", "-evalsha")
	}},
	{"MISCONF", []string{"--stop-writes-on-bgsave-error", "yes"}, func(t *testing.T, s *redistest.Server) {
		if err := os.MkdirAll(filepath.Join(s.Dir, "dump.rdb"), 0o700); err != nil { // no file can be put there
			t.Fatal(err)
		}
		s.Do(t, "CONFIG", "SET", "save", "3600 1")
		s.Do(t, "BGSAVE")
		eventually(t, 9*time.Second, "the save has failed", func() bool {
			return strings.Contains(s.Do(t, "INFO", "persistence").Text, "rdb_last_bgsave_status:err")
		})
	}},
	{"BUSY", []string{"--busy-reply-threshold", "20"}, func(t *testing.T, s *redistest.Server) {
		redistest.Open(t, s.Addr()).Send(t, redistest.Command("EVAL", "while true do end", "0"))
		time.Sleep(200 * time.Millisecond)
	}},
	{"LOADING", []string{"--loading-process-events-interval-bytes", "1024"}, func(t *testing.T, s *redistest.Server) {
		s.Do(t, "DEBUG", "POPULATE", "50000")
		s.Do(t, "SAVE")
		s.Kill()
		if err := s.Restart("--key-load-delay", "200"); err != nil {
			t.Fatal(err)
		}
	}},
}

// dropClients ends a server's connections, as an operator does after a password change.
func dropClients(t *testing.T, s *redistest.Server) {
	t.Helper()
	c := redistest.Open(t, s.Addr())
	c.Do(t, "AUTH", "secret")
	if v := c.Do(t, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"); v.IsError() {
		t.Fatal(v)
	}
}

// Nodes that reply with errors are outvoted as a minority, and named as a majority.
func TestLockNodes_ErrorReplies(t *testing.T) {
	t.Parallel()
	for _, sick := range nodeFaults {
		t.Run(sick.word, func(t *testing.T) {
			t.Parallel()
			nodes := redistest.StartNodes(t, 3, sick.args...)
			p := redistest.StartProxy(t, redistest.Start(t), nodes)
			c := redistest.Open(t, p.Addr())
			first := mustLock(t, c, "job")
			mustUnlock(t, c, "job")
			sha := nodes[0].Do(t, "SCRIPT", "LOAD", "return redis.call('SET', 'x', '1')").Text
			sick.infect(t, nodes[0])
			if v := redistest.Open(t, nodes[0].Addr()).Do(t, "EVALSHA", sha, "0"); !strings.HasPrefix(v.Text, sick.word+" ") {
				t.Fatalf("the node is well: a script gets %v", v)
			}
			if second := mustLock(t, c, "job"); second <= first {
				t.Errorf("outvoted: fence %d after %d", second, first)
			}
			mustUnlock(t, c, "job")
			sick.infect(t, nodes[1])
			v := c.Do(t, "LOCK", "job", "10s", "OWNER", "me")
			want := []string{"-NOQUORUM 1 of 3 answered, 2 needed: ", nodes[0].Addr() + " " + sick.word, nodes[1].Addr() + " " + sick.word}
			for _, part := range want {
				if !strings.Contains(v.Raw, part) {
					t.Errorf("got %v, which does not say %q", v, part)
				}
			}
			if strings.Contains(v.Text, nodes[2].Addr()) {
				t.Errorf("a healthy node is named: %v", v)
			}
		})
	}
}

// mustLock takes the name for owner "me" and returns the fence. NOQUORUM is tried
// again for a moment: a node that has just changed may cost one round.
func mustLock(t *testing.T, c *redistest.Conn, name string) (fence int64) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		v := c.Do(t, "LOCK", name, "10s", "OWNER", "me")
		if len(v.Elems) == 4 {
			return v.Elems[0].Int()
		}
		if !strings.HasPrefix(v.Text, "NOQUORUM") || time.Now().After(deadline) {
			t.Fatalf("LOCK %s: %v", name, v)
		}
	}
}

func mustUnlock(t *testing.T, c *redistest.Conn, name string) {
	t.Helper()
	if v := c.Do(t, "UNLOCK", name, "me"); v.Raw != ":1\r\n" {
		t.Fatalf("UNLOCK %s: %v", name, v)
	}
}

// TestLockNodes_MinorityKilled: with two of five gone everything goes on, and fast.
func TestLockNodes_MinorityKilled(t *testing.T) {
	t.Parallel()
	r := startRig(t, 5, 1, "--node-timeout", "2s")
	c := redistest.Open(t, r.addr())
	last := mustLock(t, c, "job")
	for _, s := range r.nodes[:2] {
		s.Kill()
	}
	if v := c.Do(t, "RENEW", "job", "20s", "me"); v.Kind != ':' {
		t.Errorf("RENEW: %v", v)
	}
	mustUnlock(t, c, "job")
	start := time.Now()
	const rounds = 50
	for range rounds {
		f := mustLock(t, c, "job")
		if f <= last {
			t.Fatalf("fence %d after %d", f, last)
		}
		last = f
		mustUnlock(t, c, "job")
	}
	if took := time.Since(start); took > rounds*time.Second {
		t.Errorf("%d cycles took %v: the dead nodes are waited for", rounds, took)
	}
}

// TestLockNodes_MinorityHangs: nodes that accept and say nothing must not cost a timeout
// once there is a majority.
func TestLockNodes_MinorityHangs(t *testing.T) {
	t.Parallel()
	r := startRig(t, 5, 1, "--node-timeout", "2s")
	c := redistest.Open(t, r.addr())
	last := mustLock(t, c, "job")
	mustUnlock(t, c, "job")
	for _, s := range r.nodes[:2] {
		s.Pause()
		defer s.Resume()
	}
	start := time.Now()
	const rounds = 50
	for range rounds {
		f := mustLock(t, c, "job")
		if f <= last {
			t.Fatalf("fence %d after %d", f, last)
		}
		last = f
		mustUnlock(t, c, "job")
	}
	if took := time.Since(start); took > rounds*time.Second {
		t.Errorf("%d cycles took %v: the hanging nodes are waited for", rounds, took)
	}
}

// TestLockNodes_MajorityKilled: no vote is never "no", nothing is kept, and each silent node
// is named.
func TestLockNodes_MajorityKilled(t *testing.T) {
	t.Parallel()
	r := startRig(t, 5, 1)
	c := redistest.Open(t, r.addr())
	mustLock(t, c, "held")
	for _, s := range r.nodes[:3] {
		s.Kill()
	}
	for _, command := range []string{"LOCK job 10s OWNER me", "LOCK held 10s OWNER you", "LOCK job 10s OWNER me RETRYAFTER", "RENEW held 10s me", "RENEW job 10s me", "UNLOCK job me"} {
		start := time.Now()
		v := c.Do(t, strings.Fields(command)...)
		if !strings.HasPrefix(v.Raw, "-NOQUORUM 2 of 5 answered, 3 needed: ") {
			t.Errorf("%s: %v", command, v)
		}
		for _, s := range r.nodes[:3] {
			if !strings.Contains(v.Text, s.Addr()+" ") {
				t.Errorf("%s: %s is not named in %v", command, s.Addr(), v)
			}
		}
		if took := time.Since(start); took > 15*time.Second {
			t.Errorf("%s took %v", command, took)
		}
	}
	if v := c.Do(t, "SET", "a", "1"); v.Raw != "+OK\r\n" {
		t.Errorf("ordinary commands go on: %v", v)
	}
	r.nodes = r.nodes[3:]
	eventually(t, 9*time.Second, "what the minority granted is undone", func() bool { return r.lockKeys(t) == 2 }) // "held", on both
}

// A majority that lost its memory does not vote for max-ttl, is named as the reason,
// and issues no fence twice afterwards.
func TestLockNodes_RestartedWithoutData(t *testing.T) {
	t.Parallel()
	const maxTTL = 2 * time.Second
	r := startRig(t, 3, 1, "--max-ttl", maxTTL.String())
	c := redistest.Open(t, r.addr())
	v := c.Do(t, "LOCK", "job", "2s", "OWNER", "you")
	if len(v.Elems) != 4 {
		t.Fatalf("LOCK: %v", v)
	}
	before, at := v.Elems[0].Int(), time.Now()
	for _, s := range r.nodes[:2] {
		s.Kill()
		if err := s.Restart(); err != nil {
			t.Fatal(err)
		}
	}
	quarantined := false
	for {
		v := c.Do(t, "LOCK", "job", "2s", "OWNER", "me")
		if len(v.Elems) == 4 {
			if fence := v.Elems[0].Int(); fence <= before {
				t.Errorf("fence %d after %d", fence, before)
			}
			break
		}
		if !strings.HasPrefix(v.Raw, "-NOQUORUM ") {
			t.Fatalf("LOCK: %v", v)
		}
		quarantined = quarantined || strings.Contains(v.Text, "quarantine")
		if time.Since(at) > 4*maxTTL {
			t.Fatalf("the nodes never vote again: %v", v)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if took := time.Since(at); took < maxTTL {
		t.Errorf("granted to another %v after the lease of %v", took, maxTTL)
	}
	if !quarantined {
		t.Error("no NOQUORUM named the quarantine")
	}
}

// TestLockNodesDownAtStart: the proxy serves, says NOQUORUM, and recovers by itself.
func TestLockNodesDownAtStart(t *testing.T) {
	t.Parallel()
	data := redistest.Start(t)
	var nodes []*redistest.Server
	for range 3 {
		nodes = append(nodes, redistest.Reserve(t))
	}
	p := redistest.StartProxy(t, data, nodes)
	c := redistest.Open(t, p.Addr())
	if v := c.Do(t, "SET", "a", "1"); v.Raw != "+OK\r\n" {
		t.Errorf("SET: %v", v)
	}
	if v := c.Do(t, "LOCK", "job", "10s"); !strings.HasPrefix(v.Raw, "-NOQUORUM 0 of 3 answered, 2 needed: ") {
		t.Errorf("LOCK: %v", v)
	}
	for _, s := range nodes {
		if !strings.Contains(p.Log(), s.Addr()) {
			t.Errorf("the log says nothing of %s", s.Addr())
		}
		if err := s.Restart(); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, 9*time.Second, "LOCK is granted once the nodes are up", func() bool {
		return len(c.Do(t, "LOCK", "job", "10s", "OWNER", "me").Elems) == 4
	})
}

// TestProxyRestarts: locks live on the nodes, not in the proxy.
func TestProxyRestarts(t *testing.T) {
	t.Parallel()
	r := startRig(t, 5, 1)
	fence := mustLock(t, redistest.Open(t, r.addr()), "job")
	eventually(t, 9*time.Second, "every node has the grant", func() bool { return r.lockKeys(t) == 5 }) // a majority that answers need not include the three that stay
	r.proxies[0].Kill()
	for _, s := range r.nodes[:2] {
		s.Kill() // known nodes that are down when a proxy starts
	}
	if err := r.proxies[0].Restart(); err != nil {
		t.Fatal(err)
	}
	c := redistest.Open(t, r.addr())
	eventually(t, 9*time.Second, "the name is still held", func() bool {
		return c.Do(t, "LOCK", "job", "10s", "OWNER", "you").Raw == "*-1\r\n"
	})
	if v := c.Do(t, "RENEW", "job", "10s", "me", "FENCE", fmt.Sprint(fence)); v.Kind != ':' {
		t.Errorf("RENEW: %v", v)
	}
	mustUnlock(t, c, "job")
	if f := mustLock(t, c, "job"); f <= fence {
		t.Errorf("fence %d after %d", f, fence)
	}
}

// TestVanishedClient: a LOCK that is under way when its client leaves is undone,
// also on nodes that execute it later.
func TestVanishedClient(t *testing.T) {
	t.Parallel()
	r := startRig(t, 5, 1, "--node-timeout", "50s") // until then nothing but the client's end has it undone
	other := redistest.Open(t, r.addr())
	mustLock(t, other, "warm")
	mustUnlock(t, other, "warm")
	for round := range 3 {
		for _, s := range r.nodes[:3] {
			s.Pause()
		}
		c := redistest.Open(t, r.addr())
		c.Send(t, lines("LOCK job 60s OWNER gone"))
		eventually(t, 9*time.Second, "the minority has granted", func() bool { return (&rig{nodes: r.nodes[3:]}).lockKeys(t) == 2 })
		c.Close()
		eventually(t, 9*time.Second, "the minority has undone", func() bool { return (&rig{nodes: r.nodes[3:]}).lockKeys(t) == 0 })
		for _, s := range r.nodes[:3] {
			s.Resume()
		}
		eventually(t, 9*time.Second, "all have undone", func() bool { return r.lockKeys(t) == 0 })
		if v := other.Do(t, "LOCK", "job", "10s", "OWNER", "me"); len(v.Elems) != 4 {
			t.Errorf("round %d: LOCK afterwards: %v", round, v)
		}
		mustUnlock(t, other, "job")
	}
}

// TestLockNodes_MajorityHangs: a LOCK that got no quorum leaves nothing on nodes that
// execute it after they were answered for.
func TestLockNodes_MajorityHangs(t *testing.T) {
	t.Parallel()
	r := startRig(t, 5, 1)
	c := redistest.Open(t, r.addr())
	mustLock(t, c, "warm")
	mustUnlock(t, c, "warm")
	for _, s := range r.nodes[:3] {
		s.Pause()
	}
	start := time.Now()
	v := c.Do(t, "LOCK", "job", "60s", "OWNER", "me")
	if !strings.HasPrefix(v.Raw, "-NOQUORUM 2 of 5 answered, 3 needed: ") || !strings.Contains(v.Text, "timeout") {
		t.Errorf("LOCK: %v", v)
	}
	if took := time.Since(start); took > 15*time.Second {
		t.Errorf("NOQUORUM took %v", took)
	}
	for _, s := range r.nodes[:3] {
		s.Resume()
	}
	eventually(t, 9*time.Second, "nothing is left on any node", func() bool { return r.lockKeys(t) == 0 })
	eventually(t, 9*time.Second, "another gets it", func() bool { return len(c.Do(t, "LOCK", "job", "10s", "OWNER", "you").Elems) == 4 })
}

// TestLockNodes_SameServerTwice: two URLs of one server are refused at start.
func TestLockNodes_SameServerTwice(t *testing.T) {
	t.Parallel()
	data, nodes := redistest.Start(t), redistest.StartNodes(t, 2)
	_, port, _ := strings.Cut(nodes[0].Addr(), ":")
	p, err := redistest.LaunchProxy(data, nodes, "--lock-node", "redis://localhost:"+port)
	if err == nil {
		p.Kill()
		t.Fatal("the proxy serves with one server twice among its lock nodes")
	}
	if !strings.Contains(err.Error(), nodes[0].Addr()) && !strings.Contains(err.Error(), "localhost:"+port) {
		t.Errorf("the fault is not named: %v", err)
	}
}

// TestDrain: on SIGTERM idle clients are let go and the proxy ends with status 0;
// a lock stays with its holder.
func TestDrain(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 2)
	c := redistest.Open(t, r.addr())
	mustLock(t, c, "job")
	ended, status := r.proxies[0].Terminate(12 * time.Second)
	if !ended || status != nil {
		t.Errorf("SIGTERM: ended %v, status %v", ended, status)
	}
	if v := redistest.Open(t, r.proxies[1].Addr()).Do(t, "LOCK", "job", "10s", "OWNER", "you"); v.Raw != "*-1\r\n" {
		t.Errorf("after the proxy has gone the lock is %v", v)
	}
}
