package redistest

import (
	"fmt"
	"strings"
	"testing"
)

func TestReplicated(t *testing.T) {
	t.Parallel()
	r := StartReplicated(t, 2)
	if m := r.Master(t); m != r.Servers[0] || len(r.Replicas(t)) != 2 {
		t.Fatalf("master %s, %d replicas", m.Addr(), len(r.Replicas(t)))
	}
	c := Open(t, r.Servers[0].Addr())
	c.Do(t, "SET", "a", "1")
	c.Do(t, "WAIT", "2", "5000")
	if v := r.Servers[2].Do(t, "GET", "a"); v.Text != "1" || r.Servers[2].Calls(t, "get") != 1 {
		t.Errorf("a replica has %v, after %d calls", v, r.Servers[2].Calls(t, "get"))
	}
	if want := "?addr=" + r.Servers[1].Addr() + "&addr=" + r.Servers[2].Addr(); !strings.HasSuffix(r.URL(), want) {
		t.Errorf("%s does not end in %s", r.URL(), want)
	}
}

func TestSentinel(t *testing.T) {
	t.Parallel()
	s := StartSentinel(t, 2, 3)
	old := s.Master(t)
	now := s.Failover(t)
	s.AwaitWatch(t)
	if old.Role(t) != "slave" {
		t.Errorf("the old master is %s", old.Role(t))
	}
	now.Kill()
	third := s.AwaitFailover(t, now)
	if err := now.Restart(); err != nil {
		t.Fatal(err)
	}
	s.AwaitWatch(t)
	if m := s.Replicated.Master(t); m != third {
		t.Errorf("%s is the master, not %s", m.Addr(), third.Addr())
	}
}

func TestCluster(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, 3, 1)
	slot := c.SlotOf(t, "{a}")
	from := c.Owner(t, slot)
	to := c.Nodes[0]
	if to == from {
		to = c.Nodes[1]
	}
	for i := range 5 {
		from.Do(t, "SET", fmt.Sprintf("{a}%d", i), "x")
	}
	m := c.StartMove(t, slot, to)
	m.MoveKeys(t, "{a}0")
	moved := Open(t, from.Addr())
	if v := moved.Do(t, "GET", "{a}0"); v.Text != fmt.Sprintf("ASK %d %s", slot, to.Addr()) {
		t.Errorf("a key that has left: %v", v)
	}
	if v := moved.Do(t, "GET", "{a}1"); v.Text != "x" {
		t.Errorf("a key that has not: %v", v)
	}
	m.Finish(t)
	c.AwaitOK(t)
	if v := moved.Do(t, "GET", "{a}1"); v.Text != fmt.Sprintf("MOVED %d %s", slot, to.Addr()) || c.Owner(t, slot) != to {
		t.Errorf("after the move: %v", v)
	}
	if n := to.Do(t, "DBSIZE"); n.Int() != 5 {
		t.Errorf("%v keys have arrived", n)
	}

	promoted := c.Failover(t, 1)
	if promoted != c.Shard(1)[1] || c.Nodes[1].Role(t) != "slave" {
		t.Errorf("%s was promoted, the old master is %s", promoted.Addr(), c.Nodes[1].Role(t))
	}
	c.Nodes[0].Kill()
	c.AwaitOK(t)
	if role := c.Shard(0)[1].Role(t); role != "master" {
		t.Errorf("the replica of a killed master is %s", role)
	}
}
