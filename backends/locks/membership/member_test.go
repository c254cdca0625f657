package membership

import (
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks/vote"
)

// TestRemaining: leases from before the last change are over max-ttl after it, or when a majority has told that they are, of this
// change and not of one before.
func TestRemaining(t *testing.T) {
	const now = 1_000_000
	for _, tt := range []struct {
		what, over string
		since      time.Duration
		want       remaining
	}{
		{"nothing was told", "", 10 * time.Minute, remaining{50 * time.Minute, -1, ""}},
		{"max-ttl is over", "", 2 * time.Hour, remaining{-time.Hour, -1, ""}},
		{"a lease of a minute", "7 1060000 990000 lock:0:a b", 10 * time.Minute, remaining{time.Minute, 10 * time.Second, "lock:0:a b"}},
		{"it is over", "7 990000 980000 lock:0:a", 10 * time.Minute, remaining{-10 * time.Second, 20 * time.Second, "lock:0:a"}},
		{"there was none", "7 1000 1000 ", 10 * time.Minute, remaining{-999 * time.Second, 999 * time.Second, ""}},
		{"of the change before", "6 990000 980000 lock:0:a", 10 * time.Minute, remaining{50 * time.Minute, -1, ""}},
		{"longer than max-ttl", "7 9000000 980000 lock:0:a", 10 * time.Minute, remaining{50 * time.Minute, 20 * time.Second, ""}},
		{"damaged", "7 soon", 10 * time.Minute, remaining{50 * time.Minute, -1, ""}},
	} {
		m := member{now: now, maxTTL: time.Hour, since: tt.since, record: map[string]string{"epoch": "7", "over": tt.over}}
		if got := m.remaining(); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.what, got, tt.want)
		}
	}
}

// TestLastSeen is of the proxy with the list that was heard last.
func TestLastSeen(t *testing.T) {
	list := vote.NodeList{Fingerprint: "4 safe 1234"}
	m := member{now: 100_000, record: map[string]string{
		"m60000 4 safe 1234": "70000", "m1000 4 available 1234": "90000", "m60000 4 safe 9999": "99000", "max": "100000", "m7 other": "99999",
	}}
	if ago, ok := m.lastSeen(list); !ok || ago != 10*time.Second {
		t.Errorf("%v, %v", ago, ok)
	}
	if ago, ok := m.lastSeen(vote.NodeList{Fingerprint: "4 safe 5555"}); ok {
		t.Errorf("of nobody: %v", ago)
	}
}
