package integration

import (
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// TestAdopt_NoEnd: a lock without an end outlives the proxy that granted it, which is killed, for as long as another one
// lives; and no longer than max-ttl if there is none.
func TestAdopt_NoEnd(t *testing.T) {
	t.Parallel()
	const maxTTL = 6 * time.Second
	r := startRig(t, 3, 2, "--adopt", "lock:*", "--max-ttl", maxTTL.String())
	c := redistest.Open(t, r.proxies[0].Addr())
	wantReplies(t, c, [2]string{"SETNX lock:a me", ":1"}, [2]string{"SETNX lock:b me", ":1"}, [2]string{"SET lock:c me NX PX 3000", "+OK"}, [2]string{"PERSIST lock:c", ":1"})
	r.proxies[0].Kill()
	time.Sleep(maxTTL + maxTTL/6)
	c = redistest.Open(t, r.proxies[1].Addr())
	for _, key := range []string{"lock:a", "lock:b", "lock:c"} {
		wantReplies(t, c, [2]string{"SET " + key + " you NX PX 5000", "$-1"}, [2]string{"GET " + key, `$"me"`}, [2]string{"TTL " + key, ":-1"}, [2]string{"PTTL " + key, ":-1"})
	}
	if v := c.Do(t, "LOCKCTL", "INFO", "lock:a"); !strings.Contains(v.String(), `$"end" $"none"`) {
		t.Errorf("it is not said to have no end: %v", v)
	}
	if v := c.Do(t, "LOCKCTL", "WHY", "lock:a"); !strings.Contains(v.String(), "it has no end") {
		t.Errorf("nor to people: %v", v)
	}
	wantReplies(t, c, [2]string{"DEL lock:a", ":1"}, [2]string{"EXISTS lock:a", ":0"}, [2]string{"EXPIRE lock:b 1", ":1"}, [2]string{"LOCKCTL FENCE lock:b me", c.Do(t, "LOCKCTL", "FENCE", "lock:b", "me").String()})
	time.Sleep(1500 * time.Millisecond)
	wantReplies(t, c, [2]string{"EXISTS lock:b", ":0"}, [2]string{"TTL lock:c", ":-1"})

	r.proxies[1].Kill()
	time.Sleep(maxTTL + time.Second)
	last := redistest.StartProxy(t, r.data, r.nodes, "--adopt", "lock:*", "--max-ttl", maxTTL.String())
	wantReplies(t, redistest.Open(t, last.Addr()), [2]string{"EXISTS lock:a lock:b lock:c", ":0"}, [2]string{"SETNX lock:c you", ":1"})
}

// TestAdopt_NoEndMaxHold: a lock without an end that nobody gives back ends after max-hold, and the log says so.
func TestAdopt_NoEndMaxHold(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 1, "--adopt", "lock:*", "--max-ttl", "3s", "--max-hold", "5s")
	c := redistest.Open(t, r.addr())
	wantReplies(t, c, [2]string{"SETNX lock:a me", ":1"}, [2]string{"TTL lock:a", ":-1"})
	time.Sleep(5200 * time.Millisecond)
	wantReplies(t, c, [2]string{"SETNX lock:a you", ":1"})
	if log := r.proxies[0].Log(); !strings.Contains(log, `level=ERROR msg="lock without an end lapses: max-hold is over" lock=lock:a`) {
		t.Errorf("not a word in the log:\n%s", log)
	}
}

// TestAdopt_NoEndBoth: in both the nodes keep a lock without an end as they do in on. At the upstream it has no end, also when
// max-hold is over.
func TestAdopt_NoEndBoth(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 2, "--adopt", "lock:* mode=both", "--max-ttl", "3s", "--max-hold", "9s")
	c := redistest.Open(t, r.proxies[0].Addr())
	wantReplies(t, c, [2]string{"SETNX lock:a me", ":1"}, [2]string{"TTL lock:a", ":-1"})
	r.proxies[0].Kill()
	time.Sleep(4 * time.Second)
	c = redistest.Open(t, r.proxies[1].Addr())
	if v := c.Do(t, "LOCKCTL", "INFO", "lock:a"); !strings.Contains(v.String(), `$"end" $"none"`) {
		t.Errorf("the nodes have not kept it: %v", v)
	}
	wantReplies(t, c, [2]string{"SETNX lock:a you", ":0"})
	eventually(t, 20*time.Second, "max-hold is over", func() bool { return !strings.Contains(c.Do(t, "LOCKCTL", "INFO", "lock:a").String(), `$"owner"`) })
	wantReplies(t, c, [2]string{"SETNX lock:a you", ":0"}, [2]string{"GET lock:a", `$"me"`}, [2]string{"EXPIRE lock:a 2", ":1"}, [2]string{"DEL lock:a", ":1"}, [2]string{"SETNX lock:a you", ":1"})
}
