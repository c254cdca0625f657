package integration

import (
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

func lockRecords(t *testing.T, s *redistest.Server) int {
	t.Helper()
	return len(s.Do(t, "KEYS", "lockproxy:lock:*").Elems)
}

// TestReplicaAcks: a vote counts when a replica has what it is about.
func TestReplicaAcks(t *testing.T) {
	t.Parallel()
	pair := redistest.StartReplicated(t, 1)
	master, replica := pair.Servers[0], pair.Servers[1]
	p := redistest.StartProxy(t, redistest.Start(t), []*redistest.Server{master}, "--replica-acks", "1", "--node-timeout", "2s")
	c := redistest.Open(t, p.Addr())
	const short = "only 0 of 1 replicas acknowledged"
	eventually(t, 10*time.Second, "a lock is granted", func() bool { // a new replica hears of the first write late
		return len(c.Do(t, "LOCK", "job", "30s", "OWNER", "me").Elems) == 4
	})
	if n := lockRecords(t, replica); n != 1 { // now, not soon
		t.Errorf("the replica has %d records", n)
	}
	replica.Pause()
	if v := c.Do(t, "LOCK", "other", "30s"); !strings.HasPrefix(v.Text, "NOQUORUM ") || !strings.Contains(v.Text, short) {
		t.Errorf("LOCK without the replica: %v", v)
	}
	if v := c.Do(t, "RENEW", "job", "30s", "me"); !strings.HasPrefix(v.Text, "NOQUORUM ") {
		t.Errorf("RENEW without the replica: %v", v)
	}
	if v := c.Do(t, "LOCK", "job", "30s", "OWNER", "you"); !v.Null { // a refusal needs nobody's word
		t.Errorf("LOCK of what is held: %v", v)
	}
	eventually(t, 9*time.Second, "what did not count is undone", func() bool { return lockRecords(t, master) == 1 })
	replica.Resume()
	eventually(t, 10*time.Second, "LOCK works again", func() bool {
		return len(c.Do(t, "LOCK", "other", "30s", "OWNER", "me").Elems) == 4
	})
	if v := c.Do(t, "RENEW", "job", "30s", "me"); v.Int() < 25000 {
		t.Errorf("RENEW: %v", v)
	}
	if v := c.Do(t, "UNLOCK", "job", "me"); v.Int() != 1 {
		t.Errorf("UNLOCK: %v", v)
	}
}

// TestReplicaAcks_LockOutlivesItsMaster: the master dies right after the grant.
func TestReplicaAcks_LockOutlivesItsMaster(t *testing.T) {
	t.Parallel()
	p, watched := startWatched(t, 0, "--replica-acks", "2")
	master := watched.Master(t)
	c := redistest.Open(t, p.Addr())
	eventually(t, 10*time.Second, "a lock is granted", func() bool { // on a busy machine a replica may be late
		return len(c.Do(t, "LOCK", "job", "60s", "OWNER", "me").Elems) == 4
	})
	master.Kill()
	watched.AwaitFailover(t, master)
	eventually(t, 10*time.Second, "the lock is seen to be held", func() bool {
		v := c.Do(t, "LOCK", "job", "60s", "OWNER", "you")
		if len(v.Elems) > 0 {
			t.Fatalf("another owner was granted: %v", v)
		}
		return v.Null
	})
	if v := c.Do(t, "LOCK", "more", "60s"); !strings.Contains(v.Text, "only 1 of 2 replicas acknowledged") {
		t.Errorf("LOCK with one replica left: %v", v)
	}
	if err := master.Restart(); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, "the lock is renewed with two replicas again", func() bool {
		return c.Do(t, "RENEW", "job", "60s", "me").Int() > 50000
	})
	if v := c.Do(t, "UNLOCK", "job", "me"); v.Int() != 1 {
		t.Errorf("UNLOCK: %v", v)
	}
}
