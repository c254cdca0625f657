package adopt

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// A divided engine refuses without a holder, and its nodes, of which so many answer, do not agree on one.
type divided struct {
	scripted
	answer int
}

func (e *divided) Lock(context.Context, locks.LockRequest) (locks.Decision, error) {
	e.asked.Add(1)
	return locks.Decision{}, nil
}

func (e *divided) Read(_ context.Context, k locks.Key) (locks.Reading, error) {
	e.asked.Add(1)
	return locks.Reading{}, &locks.QuorumError{Op: "LOCK", Name: k.Name, Nodes: 5, Need: 3, Got: e.answer}
}

// TestDecide_NodesDisagree: if the nodes do not agree, but enough of them answer, an acquisition is refused; it is NOQUORUM
// if the reply depends on who has the lock.
func TestDecide_NodesDisagree(t *testing.T) {
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

// TestDecide_NodesDisagreeForABurst: if the nodes do not agree for long, one command of a burst waits for that, and not
// each of them, except one that releases a lock which this proxy has granted. Later commands ask again.
func TestDecide_NodesDisagreeForABurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &divided{answer: 3}
		c := at(t, e, "lock:* guard=no")
		mine := locks.NewAdoptedString(new(locks.RandSource), "holder")
		c.a.remember(locks.Key{Name: "lock:a"}, guess{owner: mine, fence: 1, holds: 1, until: time.Now().Add(time.Minute)})
		e.scripted.read = locks.Reading{Held: true, Owner: mine} // as Unlock knows it
		c.pipelines, c.burst = true, newBurst()
		time.Sleep(time.Millisecond)
		for i, call := range []string{"SET lock:a me NX PX 5000", "EVAL cad 1 lock:a me", "GET lock:a", "SET lock:a me NX PX 5000", "EVAL enter 1 lock:a 5000 me", "EVAL cad 1 lock:a you", "SET lock:a you NX GET PX 5000"} {
			args := strings.Fields(call)
			for j := range args {
				args[j] = strings.NewReplacer("cad", compareAndDelete, "enter", enterHash).Replace(args[j])
			}
			got := c.do(args...)
			if want := map[bool]string{true: "$-1"}[i == 0 || i == 3]; want != "" && got != want || want == "" && !strings.Contains(got, "3 needed") && got != ":20" {
				t.Errorf("%s: %s", call, got)
			}
			if n := e.asked.Load(); n != 2 { // for the lock, and what it is
				t.Errorf("the nodes were asked %d times at %q", n, call)
			}
			time.Sleep(time.Millisecond)
		}
		if got := c.do("EVAL", compareAndDelete, "1", "lock:a", "holder"); got != ":1" || e.asked.Load() != 2 {
			t.Errorf("the holder's release: %s, and the nodes were asked %d times", got, e.asked.Load())
		}
		before := e.asked.Load()
		for range 2 {
			if got := c.do("SET", "lock:a", "me", "NX", "PX", "5000"); got != "$-1" {
				t.Errorf("after a release: %s", got)
			}
			if n := e.asked.Load(); n != before+2 {
				t.Errorf("the nodes were asked %d times", n-before)
			}
		}
	})
}

// A halfway engine releases a lock, and does not hear of it.
type halfway struct{ scripted }

func (e *halfway) Unlock(_ context.Context, r locks.UnlockRequest) (int, error) {
	e.read = locks.Reading{}
	return 0, &locks.QuorumError{Op: "UNLOCK", Name: r.Name, Nodes: 5, Need: 3, Got: 2}
}

// TestFlights_NoEarlierAnswerAfterFailedChange: what a call has found before it tried to change the lock answers nothing
// after it, even if nobody knows whether the change was made.
func TestFlights_NoEarlierAnswerAfterFailedChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &halfway{}
		e.read = locks.Reading{Held: true, Owner: you, Fence: 1, Holds: 1, Remaining: time.Minute}
		c := at(t, e, "lock:* guard=no")
		c.pipelines, c.burst = true, newBurst()
		time.Sleep(time.Millisecond)
		for _, tt := range [][2]string{{"DEL lock:a", "3 needed"}, {"GET lock:a", "$-1"}} {
			if got := c.do(strings.Fields(tt[0])...); !strings.Contains(got, tt[1]) {
				t.Errorf("%s: %s, want %s", tt[0], got, tt[1])
			}
			time.Sleep(time.Millisecond)
		}
	})
}
