package integration

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// TestAdopt_Check: what is in the way of the next mode is said, and the exit code says whether something is.
func TestAdopt_Check(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 1, "--adopt", "lock:* mode=both")
	path, err := redistest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	check := func(want int, args ...string) string {
		t.Helper()
		cmd := exec.Command(path, append(append([]string{"adopt", "check"}, args...), "redis://"+r.addr())...)
		out, _ := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != want {
			t.Errorf("%q: exit code %d, want %d\n%s", args, got, want, out)
		}
		return string(out)
	}
	expect := func(said string, texts ...string) {
		t.Helper()
		for _, text := range texts {
			if !strings.Contains(said, text) {
				t.Errorf("no %q in\n%s", text, said)
			}
		}
	}
	c := redistest.Open(t, r.addr())
	c.Do(t, "SET", "lock:agreed", "me", "NX", "PX", "60000")
	enter := "if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[1]) == 1 then redis.call('hincrby', KEYS[1], ARGV[1], 1) redis.call('pexpire', KEYS[1], 60000) return nil end return redis.call('pttl', KEYS[1])"
	if v := c.Do(t, "EVAL", enter, "1", "lock:hash", "me"); v.String() != "$-1" {
		t.Errorf("lock:hash is not taken: %v", v)
	}
	expect(check(0), "lock:* mode=both", "safe to go on", "safe to go off")

	r.data.Do(t, "SET", "lock:direct", "you", "PX", "60000")
	r.data.Do(t, "SET", "other", "key")
	expect(check(1), `not safe to go on: the upstream has a lock that the lock nodes have not: "lock:direct"`, "safe to go off")
	check(0, "--to", "off")
	r.data.Do(t, "DEL", "lock:direct", "lock:agreed")
	expect(check(1), "safe to go on", `not safe to go off: the lock nodes have a lock that the upstream has not: "lock:agreed"`)
	check(0, "--to", "on")

	on := redistest.StartProxy(t, r.data, r.nodes, "--adopt", "lock:* mode=on")
	eventually(t, time.Minute, "it is heard of the other proxy", func() bool { return strings.Contains(c.Do(t, "LOCKCTL", "ADOPT", "CHECK").String(), " is on") })
	redistest.Open(t, on.Addr()).Do(t, "SET", "lock:on", "me", "NX", "PX", "60000")
	expect(check(1), "the lock nodes have 2 locks that the upstream has not", "is on")
	check(64, "--watch", "-1s")
	check(1, "--to", "observe")
	for _, word := range []string{"sideways", "", "ON"} {
		expect(check(64, "--to", word), "is none of off, both, on")
	}
}

// TestAdopt_CheckWatches: a lock that a program has at the upstream is seen, though it is gone when the check ends.
func TestAdopt_CheckWatches(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 1, "--adopt", "lock:* mode=both")
	c := redistest.Open(t, r.addr())
	eventually(t, time.Minute, "it is seen", func() bool {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			time.Sleep(300 * time.Millisecond)
			direct := redistest.Open(t, r.data.Addr())
			direct.Do(t, "SET", "lock:a", "you", "NX", "PX", "1000")
			time.Sleep(time.Second)
		}()
		said := c.Do(t, "LOCKCTL", "ADOPT", "CHECK", "WATCH", "3s").String()
		<-ended
		return strings.Contains(said, "not safe to go on") && strings.Contains(said, "lock:a")
	})
}

// TestAdopt_CheckWhileSlotsMove: a key of a Cluster is not taken for absent, nor one that is absent for present, wherever it is
// between two masters; where that cannot be found out, nothing is said to be safe.
func TestAdopt_CheckWhileSlotsMove(t *testing.T) {
	t.Parallel()
	group := redistest.StartCluster(t, 3, 0, slowFailureDetection...)
	p := redistest.StartProxy(t, group, redistest.StartNodes(t, 1), "--adopt", "{x}:lock:* mode=both")
	c, direct := redistest.Open(t, p.Addr()), redistest.Open(t, startServing(t, group.URL()).Addr())
	eventually(t, time.Minute, "the first lock is taken", func() bool {
		return c.Do(t, "SETNX", "{x}:lock:both", "me").String() == ":1"
	})
	slot := group.SlotOf(t, "x")
	from := group.Owner(t, slot)
	to := group.Nodes[0]
	if to == from {
		to = group.Nodes[1]
	}
	expect := func(when, want string) {
		t.Helper()
		if said := c.Do(t, "LOCKCTL", "ADOPT", "CHECK").String(); !strings.Contains(said, want) {
			t.Errorf("%s: no %q in %s", when, want, said)
		}
	}
	const alone = `"upstream-alone" :1 $"upstream-example" $"{x}:lock:direct"`
	expect("before", `"upstream-alone" :0`)
	m := group.StartMove(t, slot, to)
	expect("no key has moved", `"upstream-alone" :0`)
	m.MoveKeys(t, "{x}:lock:both")
	expect("the key has moved", `"upstream-alone" :0`)
	expect("the key has moved", `"nodes-alone" :0`)
	direct.Do(t, "SET", "{x}:lock:direct", "you", "PX", "600000")
	expect("a key that was made while the slot moves", alone)
	m.MoveKeys(t, "{x}:lock:direct")
	expect("that key has moved too", alone)
	m.Finish(t)
	expect("the slot has moved", alone)
	direct.Do(t, "DEL", "{x}:lock:direct")
	expect("it is released", `"upstream-alone" :0`)

	direct.Do(t, "DEL", "{x}:lock:both")
	expect("the nodes alone have it", `"nodes-alone" :1`)
	to.Do(t, "CLUSTER", "SETSLOT", strconv.Itoa(slot), "NODE", group.ID(t, from)) // who does not know of it
	expect("no master says that the slot is its own", `could not be found out: pattern`)
	expect("no master says that the slot is its own", `could not look at`)
}
