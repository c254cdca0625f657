package adopt

import (
	"context"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// A divided engine refuses without a holder, and its nodes, of which so many answer, do not agree on one.
type divided struct {
	scripted
	answer int
}

func (e *divided) Lock(context.Context, locks.LockRequest) (locks.Decision, error) {
	return locks.Decision{}, nil
}

func (e *divided) Read(_ context.Context, k locks.Key) (locks.Reading, error) {
	return locks.Reading{}, &locks.QuorumError{Op: "LOCK", Name: k.Name, Nodes: 5, Need: 3, Got: e.answer}
}

// TestDecide_Split: a split that lasts is contention if enough nodes answer, and NOQUORUM where the reply depends
// on who has the lock.
func TestDecide_Split(t *testing.T) {
	const noQuorum = "answered, 3 needed"
	for _, tt := range []struct {
		answer int
		call   string
		want   string
	}{
		{3, "SET lock:a me NX PX 5000", "$-1"},
		{5, "SETNX lock:a me", ":0"},
		{2, "SET lock:a me NX PX 5000", noQuorum},
		{3, "SET lock:a me NX GET PX 5000", noQuorum},
		{3, "GET lock:a", noQuorum},
		{3, "DEL lock:a", noQuorum},
	} {
		c := at(t, &divided{answer: tt.answer}, "lock:* no-expiry=lease:5s")
		if got := c.do(strings.Fields(tt.call)...); got != tt.want && (tt.want != noQuorum || !strings.Contains(got, noQuorum)) {
			t.Errorf("%d nodes answer: %s: %s, want %s", tt.answer, tt.call, got, tt.want)
		}
	}
	const takeOrLeft = `if redis.call('set', KEYS[1], ARGV[2], 'NX', 'PX', ARGV[1]) then return -1 end return redis.call('pttl', KEYS[1])`
	for script, want := range map[string]string{takeOrLeft: ":20", enterHash: ":20", extendHash: noQuorum} {
		for _, answer := range []int{3, 2} {
			if answer == 2 {
				want = noQuorum
			}
			c := at(t, &divided{answer: answer}, "lock:*")
			if got := c.do("EVAL", script, "1", "lock:a", "5000", "me"); !strings.Contains(got, want) {
				t.Errorf("%d nodes answer: %s: %s", answer, script, got)
			}
		}
	}
}
