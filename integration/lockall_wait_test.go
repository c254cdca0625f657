package integration

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// TestLockAll_Session: all names are free when the connection ends, and each is kept until then.
func TestLockAll_Session(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 2, "--node-timeout", "2s")
	for _, tt := range opens {
		t.Run(tt.name, func(t *testing.T) {
			names := []string{tt.name + "a", tt.name + "b", tt.name + "c"}
			c, other := tt.open(t, r.addr()), redistest.Open(t, r.proxies[1].Addr())
			wantGrants(t, c.Do(t, lockAll(names, "SESSION")...), names...)
			if v := redistest.Open(t, r.addr()).Do(t, "LOCKCTL", "INFO", names[2]); !strings.Contains(v.String(), `$"session" $"yes"`) {
				t.Errorf("LOCKCTL INFO: %v", v)
			}
			c.Close()
			wantGrants(t, other.Do(t, lockAll(names, "WAIT", "60s")...), names...)
		})
	}
}

// TestLockAll_SessionLosesOne: a client of RESP3 is told which, and keeps the others; else its connection ends, and with it they.
func TestLockAll_SessionLosesOne(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 2, "--node-timeout", "2s")
	other := redistest.Open(t, r.proxies[1].Addr())
	c := redistest.Open3(t, r.addr())
	v := c.Do(t, lockAll([]string{"a", "b", "c"}, "OWNER", "me", "SESSION", "ONLOSS", "PUSH")...)
	wantGrants(t, v, "a", "b", "c")
	other.Do(t, "LOCKCTL", "FORCE", "b")
	if push := c.Read(t); !strings.HasPrefix(push.String(), fmt.Sprintf(`>[$"lock-lost" $"b" :%d `, v.Elems[3].Elems[1].Int())) {
		t.Errorf("told %v of %v", push, v)
	}
	if v := c.Do(t, "UNLOCKALL", "3", "a", "b", "c", "me"); !strings.HasPrefix(v.Text, "LOCKLOST b: ") || !strings.HasSuffix(v.Text, ". The other 2 names were given back") {
		t.Errorf("UNLOCKALL: %v", v)
	}

	c = redistest.Open(t, r.addr())
	wantGrants(t, c.Do(t, lockAll([]string{"a", "b", "c"}, "SESSION")...), "a", "b", "c")
	other.Do(t, "LOCKCTL", "FORCE", "b")
	if rest, closed := c.ReadUntilQuiet(redistest.ReplyTimeout); rest != "" || !closed {
		t.Errorf("got %q instead of the end", rest)
	}
	wantGrants(t, other.Do(t, lockAll([]string{"a", "b", "c"}, "WAIT", "60s")...), "a", "b", "c")
}

// TestLockAll_Waits until the last name that is in the way is free, and takes none before.
func TestLockAll_Waits(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 2, "--node-timeout", "2s")
	for i, p := range r.proxies {
		a, b := fmt.Sprint("a", i), fmt.Sprint("b", i)
		names := []string{a, fmt.Sprint("free", i), b}
		holder, c := redistest.Open(t, r.addr()), redistest.Open(t, p.Addr())
		wantGrant(t, holder.Do(t, "LOCK", a, "60s", "OWNER", "me"))
		wantGrant(t, holder.Do(t, "LOCK", b, "60s", "OWNER", "me"))
		c.Send(t, redistest.Command(lockAll(names, "WAIT", "60s", "OWNER", "you")...))
		here := redistest.Open(t, p.Addr())
		awaitWaiters(t, here, a, 1)
		holder.Do(t, "UNLOCK", a, "me")
		awaitWaiters(t, here, b, 1)
		for _, name := range names[:2] {
			if v := here.Do(t, "LOCKCTL", "INFO", name); v.Raw != "*-1\r\n" {
				t.Errorf("%s is held while the other is waited for: %v", name, v)
			}
		}
		holder.Do(t, "UNLOCK", b, "me")
		wantGrants(t, c.Read(t), names...)
	}
}

// TestLockAll_OrderOfNames: two clients at each of two proxies take the same names in opposite orders, and all are served.
func TestLockAll_OrderOfNames(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 2, "--node-timeout", "2s")
	orders := [][]string{{"a", "b", "c"}, {"c", "b", "a"}, {"b", "a", "c"}}
	var held int
	var mu sync.Mutex
	inside := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		held += n
		return held
	}
	var all sync.WaitGroup
	for i := range 6 {
		c := redistest.Open(t, r.proxies[i%2].Addr())
		all.Go(func() {
			names, me := orders[i%3], fmt.Sprint("o", i)
			for round := range 15 {
				v, err := c.Try(lockAll(names, "OWNER", me, "WAIT", "2m")...)
				if err != nil || len(v.Elems) != 5 {
					t.Errorf("LOCKALL of %s, round %d: %v, %v", me, round, v, err)
					return
				}
				if n := inside(1); n != 1 {
					t.Errorf("%d hold the names", n)
				}
				inside(-1)
				if v, err := c.Try(append(append([]string{"UNLOCKALL", "3"}, names...), me)...); err != nil || v.Raw != ":1\r\n" {
					t.Errorf("UNLOCKALL of %s: %v, %v", me, v, err)
					return
				}
			}
		})
	}
	all.Wait()
}

// TestLockAll_ClientLeaves: whoever waits is gone from its line at once, and nothing is left behind.
func TestLockAll_ClientLeaves(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 1, "--node-timeout", "2s")
	holder, gone, next := redistest.Open(t, r.addr()), redistest.Open(t, r.addr()), redistest.Open(t, r.addr())
	wantGrant(t, holder.Do(t, "LOCK", "b", "60s", "OWNER", "me"))
	gone.Send(t, redistest.Command(lockAll([]string{"c", "b", "a"}, "WAIT", "60s")...))
	awaitWaiters(t, holder, "b", 1)
	next.Send(t, redistest.Command(lockAll([]string{"a", "b"}, "WAIT", "60s", "OWNER", "next")...))
	awaitWaiters(t, holder, "b", 2)
	gone.Close()
	awaitWaiters(t, holder, "b", 1)
	holder.Do(t, "UNLOCK", "b", "me")
	wantGrants(t, next.Read(t), "a", "b")
	wantGrant(t, holder.Do(t, "LOCK", "c", "30s", "WAIT", "60s", "OWNER", "me"))
}

// TestLockAll_BehindIt: on one connection, the UNLOCK, UNLOCKALL and RENEWALL that a LOCKALL before them waits for, or that are for
// other locks, take effect at once; those of its own locks wait. Replies keep their order.
func TestLockAll_BehindIt(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 1, "--node-timeout", "2s")
	for _, tt := range opens {
		t.Run(tt.name, func(t *testing.T) {
			c, other := tt.open(t, r.addr()), redistest.Open(t, r.addr())
			fill := func(line string) string { return strings.ReplaceAll(line, "_", tt.name) }
			wantGrants(t, c.Do(t, strings.Fields(fill("LOCKALL 3 _a _b _c 30s OWNER one"))...), fill("_a"), fill("_b"), fill("_c"))
			wantGrants(t, c.Do(t, strings.Fields(fill("LOCKALL 2 _e _f 30s"))...), fill("_e"), fill("_f"))
			c.Send(t, lines(fill("LOCKALL 3 _b _d _a 30s OWNER two WAIT 60s"), fill("INCR n_"), fill("RENEWALL 2 _a _b 20s one"), fill("UNLOCKALL 2 _d _b two"),
				fill("UNLOCKALL 2 _e _f"), fill("UNLOCK _a one"), fill("UNLOCKALL 2 _b _c one"), fill("UNLOCK _a two")))
			wantGrants(t, c.Read(t), fill("_b"), fill("_d"), fill("_a"))
			var got []string
			for i := range 7 {
				v := c.Read(t)
				if i == 1 && (v.Kind != ':' || v.Int() < 5_000 || v.Int() > 20_000) {
					t.Errorf("RENEWALL: %v", v)
				}
				got = append(got, v.String())
			}
			got[1] = "-"
			if all := strings.Join(got, " "); all != ":1 - :1 :1 :1 :1 :1" {
				t.Errorf("got %s", all)
			}
			names := strings.Fields(fill("_a _b _c _d _e _f"))
			wantGrants(t, other.Do(t, lockAll(names)...), names...)
		})
	}
}

// TestLockAll_Muted: CLIENT REPLY OFF and SKIP are for them, too.
func TestLockAll_Muted(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 1, "--node-timeout", "2s")
	c, other := redistest.Open(t, r.addr()), redistest.Open(t, r.addr())
	wantGrant(t, other.Do(t, "LOCK", "b", "30s", "OWNER", "me"))
	c.Send(t, lines("CLIENT REPLY OFF", "LOCKALL 2 a b 30s OWNER you WAIT 60s", "RENEWALL 2 a b 20s you", "CLIENT REPLY ON"))
	awaitWaiters(t, other, "b", 1)
	other.Do(t, "UNLOCK", "b", "me")
	if v := c.Read(t); v.Raw != "+OK\r\n" {
		t.Errorf("CLIENT REPLY ON: %v", v)
	}
	c.Send(t, lines("CLIENT REPLY SKIP", "UNLOCKALL 2 a b you", "PING"))
	if v := c.Read(t); v.Raw != "+PONG\r\n" {
		t.Errorf("PING: %v", v)
	}
	wantGrants(t, other.Do(t, lockAll([]string{"a", "b"})...), "a", "b")
}

// TestLockAll_Drain: who waits is told that this proxy ends.
func TestLockAll_Drain(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 1, "--node-timeout", "2s")
	holder, c := redistest.Open(t, r.addr()), redistest.Open(t, r.addr())
	wantGrant(t, holder.Do(t, "LOCK", "b", "60s", "OWNER", "me"))
	c.Send(t, redistest.Command(lockAll([]string{"a", "b"}, "WAIT", "60s")...))
	awaitWaiters(t, holder, "b", 1)
	r.proxies[0].Terminate(time.Minute)
	if v := c.Read(t); !strings.HasPrefix(v.Text, "DRAINING ") || !v.IsError() {
		t.Errorf("got %v", v)
	}
}

// TestLockAll_IsServed: owners of single names that come and go at another proxy, so that there is hardly a moment in which all names are
// free, do not keep out who wants all of them.
func TestLockAll_IsServed(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 2, "--node-timeout", "2s")
	stop := make(chan struct{})
	var others sync.WaitGroup
	for i := range 4 {
		c := redistest.Open(t, r.proxies[1].Addr())
		others.Go(func() {
			name := fmt.Sprint("n", i%2)
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				owner := fmt.Sprint("o", i, ":", n)
				if v, err := c.Try("LOCK", name, "30s", "OWNER", owner, "WAIT", "1m"); err != nil || len(v.Elems) != 4 {
					t.Errorf("LOCK of %s: %v, %v", owner, v, err)
					return
				}
				time.Sleep(10 * time.Millisecond) // the next waits meanwhile
				if v, err := c.Try("UNLOCK", name, owner); err != nil || v.Raw != ":1\r\n" {
					t.Errorf("UNLOCK of %s: %v, %v", owner, v, err)
					return
				}
			}
		})
	}
	c := redistest.Open(t, r.addr())
	for range 5 {
		for _, name := range []string{"n0", "n1"} {
			eventually(t, time.Minute, "the others are at work", func() bool { return c.Do(t, "LOCKCTL", "INFO", name).Raw != "*-1\r\n" })
		}
		began := time.Now()
		wantGrants(t, c.Do(t, "LOCKALL", "3", "n0", "n1", "n2", "30s", "WAIT", "1m"), "n0", "n1", "n2")
		t.Logf("after %v", time.Since(began))
		if v := c.Do(t, "UNLOCKALL", "3", "n0", "n1", "n2"); v.Raw != ":1\r\n" {
			t.Errorf("UNLOCKALL: %v", v)
		}
	}
	close(stop)
	others.Wait()
}

// TestLockAll_WhereItStands: LOCKCTL shows it among the waiters of the name in the way only, and who comes after it for that one waits behind
// it; who comes for another one does not.
func TestLockAll_WhereItStands(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 1, "--node-timeout", "2s")
	holder, c, behind := redistest.Open(t, r.addr()), redistest.Open(t, r.addr()), redistest.Open(t, r.addr())
	wantGrant(t, holder.Do(t, "LOCK", "b", "60s", "OWNER", "me"))
	c.Send(t, redistest.Command(lockAll([]string{"c", "b", "a"}, "WAIT", "60s", "OWNER", "both")...))
	awaitWaiters(t, holder, "b", 1)
	for name, shown := range map[string]bool{"a": false, "b": true, "c": false} {
		if v := holder.Do(t, "LOCKCTL", "WAITERS", name); strings.Contains(v.String(), `$"owner" $"both"`) != shown {
			t.Errorf("LOCKCTL WAITERS %s: %v", name, v)
		}
	}
	if v := holder.Do(t, "LOCK", "b", "30s", "OWNER", "another"); v.Raw != "*-1\r\n" {
		t.Errorf("LOCK of a name that another waits for: %v", v)
	}
	behind.Send(t, redistest.Command("LOCK", "b", "30s", "OWNER", "behind", "WAIT", "60s"))
	awaitWaiters(t, holder, "b", 2)
	wantGrant(t, holder.Do(t, "LOCK", "a", "30s", "OWNER", "me", "WAIT", "60s"))
	holder.Do(t, "UNLOCK", "a", "me")
	holder.Do(t, "UNLOCK", "b", "me")
	wantGrants(t, c.Read(t), "c", "b", "a")
	if v := c.Do(t, "UNLOCK", "b", "both"); v.Raw != ":1\r\n" {
		t.Errorf("UNLOCK: %v", v)
	}
	wantGrant(t, behind.Read(t))
}
