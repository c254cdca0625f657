package integration

import (
	"os/exec"
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
