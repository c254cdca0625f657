package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// wantQueued fails unless v says who has the lock and that so many are in line before.
func wantQueued(t *testing.T, v redistest.Value, holder string, ahead int64) {
	t.Helper()
	if v.Kind != '*' || len(v.Elems) != 4 || v.Elems[0].Int() != 0 || v.Elems[1].Text != holder || v.Elems[2].Int() <= 0 || v.Elems[3].Int() != ahead {
		t.Fatalf("%v, want held by %s and %d ahead", v, holder, ahead)
	}
}

func async(name, owner, req string, more ...string) []string {
	return append([]string{"LOCK", name, "30s", "OWNER", owner, "REQ", req, "WAIT", "5m", "ASYNC"}, more...)
}

// TestAsync_Grant: a LOCK that waits leaves its connection to others, and its grant is told by a push and on a channel, to be
// collected over any connection.
func TestAsync_Grant(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 2)
	for _, o := range opens {
		t.Run(o.name, func(t *testing.T) {
			name := "job" + o.name
			holder, c, other, subscriber := redistest.Open(t, r.addr()), o.open(t, r.addr()), redistest.Open(t, r.addr()), redistest.Open(t, r.proxies[1].Addr())
			subscriber.Do(t, "SUBSCRIBE", "lockproxy:granted:me")
			first := wantGrant(t, holder.Do(t, "LOCK", name, "30s", "OWNER", "first"))
			wantQueued(t, c.Do(t, async(name, "me", "r")...), "first", 0)
			wantQueued(t, c.Do(t, async(name, "next", "n")...), "first", 1)
			if got := c.Do(t, "ECHO", "at once"); got.Text != "at once" {
				t.Fatal(got)
			}
			again := []string{"LOCK", name, "30s", "OWNER", "next", "REQ", "n"}
			if got := c.Do(t, again...); !got.Null {
				t.Errorf("while it waits: %v", got)
			}
			for _, conn := range []*redistest.Conn{c, other} {
				wantQueued(t, conn.Do(t, append(again, "RETRYAFTER")...), "first", 1)
			}
			holder.Do(t, "UNLOCK", name, "first")

			told := subscriber.Read(t)
			var fence, validity int64
			if n, err := fmt.Sscanf(told.Elems[2].Text, "%d %d "+name, &fence, &validity); n != 2 || err != nil || fence <= first || validity <= 0 || validity > 30000 {
				t.Fatalf("on the channel: %v", told)
			}
			if o.name == "RESP3" {
				push := c.Read(t)
				if push.Kind != '>' || len(push.Elems) != 5 || push.Elems[0].Text != "lock-granted" || push.Elems[1].Text != name || push.Elems[2].Int() != fence ||
					push.Elems[3].Text != "me" || push.Elems[4].Int() <= 0 || push.Elems[4].Int() > 30000 {
					t.Fatalf("push: %v", push)
				}
			}
			for i, conn := range []*redistest.Conn{c, other, redistest.Open(t, r.proxies[1].Addr())} {
				got := conn.Do(t, "LOCK", name, "30s", "OWNER", "me", "REQ", "r")
				if wantGrant(t, got) != fence || got.Elems[3].Int() != 1 {
					t.Errorf("collected over connection %d: %v, want fence %d", i, got, fence)
				}
			}
			if got := other.Do(t, "UNLOCK", name, "me", "REQ", "r"); got.Int() != 1 {
				t.Errorf("UNLOCK: %v", got)
			}
			if o.name == "RESP3" {
				if push := c.Read(t); push.Elems[3].Text != "next" {
					t.Errorf("push: %v", push)
				}
			} else {
				awaitWaiters(t, other, name, 0)
			}
			if got := c.Do(t, "UNLOCK", name, "next"); got.Int() != 1 {
				t.Errorf("UNLOCK of the next: %v", got)
			}
		})
	}
}

// TestAsync_AtOnce: what is decided at once is answered as without ASYNC.
func TestAsync_AtOnce(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 1)
	c := redistest.Open3(t, r.addr())
	wantGrant(t, c.Do(t, async("free", "me", "r")...))
	if got := c.Do(t, "ECHO", "no push"); got.Text != "no push" {
		t.Error(got)
	}
	for _, tt := range []struct{ command, want string }{
		{"LOCK a 30s ASYNC", "ERR ASYNC needs WAIT, OWNER and REQ"},
		{"LOCK a 30s WAIT 5s ASYNC", "ERR ASYNC needs WAIT, OWNER and REQ"},
		{"LOCK a 30s OWNER o REQ r ASYNC", "ERR ASYNC needs WAIT, OWNER and REQ"},
		{"LOCK a 30s OWNER o REQ r WAIT 0 ASYNC", "ERR ASYNC needs WAIT, OWNER and REQ"},
		{"LOCK a 30s OWNER o REQ r WAIT 24h ASYNC", "MAXWAIT"},
		{"LOCK a 30s OWNER o REQ r WAIT 5s ASYNC ASYNC", "ERR "},
	} {
		if got := c.Do(t, strings.Fields(tt.command)...); !got.IsError() || !strings.HasPrefix(got.Text, tt.want) {
			t.Errorf("%s: %v", tt.command, got)
		}
	}
}

// TestAsync_Ends: a wait ends with its connection, when its owner gives up over any connection, and when its time is over.
func TestAsync_Ends(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 1)
	holder, c, look := redistest.Open(t, r.addr()), redistest.Open3(t, r.addr()), redistest.Open(t, r.addr())
	wantGrant(t, holder.Do(t, "LOCK", "job", "30s", "OWNER", "first"))
	for _, tt := range []struct {
		what string
		end  func()
	}{
		{"the connection ends", func() { _ = c.Close(); c = redistest.Open3(t, r.addr()) }},
		{"it is given up", func() { c.Do(t, "UNLOCK", "job", "me", "REQ", "r") }},
		{"it is given up over another connection", func() { look.Do(t, "UNLOCK", "job", "me", "REQ", "r") }},
		{"the owner gives up", func() { look.Do(t, "UNLOCK", "job", "me") }},
	} {
		wantQueued(t, c.Do(t, async("job", "me", "r")...), "first", 0)
		awaitWaiters(t, look, "job", 1)
		tt.end()
		awaitWaiters(t, look, "job", 0)
	}
	wantQueued(t, c.Do(t, "LOCK", "job", "30s", "OWNER", "me", "REQ", "s", "WAIT", "50ms", "ASYNC"), "first", 0)
	awaitWaiters(t, look, "job", 0)
	holder.Do(t, "UNLOCK", "job", "first")
	wantGrant(t, look.Do(t, "LOCK", "job", "30s", "OWNER", "third"))
	if got := c.Do(t, "ECHO", "no push"); got.Text != "no push" {
		t.Error(got)
	}
}

// TestAsync_AskedAgain over a new connection, while the proxy has not noticed yet that the old one is gone: the wait is the new
// one's, in the same place.
func TestAsync_AskedAgain(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 1)
	holder, old, c, later := redistest.Open(t, r.addr()), redistest.Open3(t, r.addr()), redistest.Open3(t, r.addr()), redistest.Open3(t, r.addr())
	wantGrant(t, holder.Do(t, "LOCK", "job", "30s", "OWNER", "first"))
	wantQueued(t, old.Do(t, async("job", "me", "r")...), "first", 0)
	wantQueued(t, later.Do(t, async("job", "later", "l")...), "first", 1)
	wantQueued(t, c.Do(t, async("job", "me", "r")...), "first", 0)
	_ = old.Close()
	awaitWaiters(t, holder, "job", 2)
	holder.Do(t, "UNLOCK", "job", "first")
	if push := c.Read(t); push.Elems[0].Text != "lock-granted" || push.Elems[3].Text != "me" {
		t.Errorf("push: %v", push)
	}
}

// TestAsync_Uncollected: a grant that nobody collects ends with its lease.
func TestAsync_Uncollected(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 1)
	holder, c := redistest.Open(t, r.addr()), redistest.Open3(t, r.addr())
	fence := wantGrant(t, holder.Do(t, "LOCK", "job", "30s", "OWNER", "first"))
	wantQueued(t, c.Do(t, "LOCK", "job", "300ms", "OWNER", "me", "REQ", "r", "WAIT", "5m", "ASYNC"), "first", 0)
	holder.Do(t, "UNLOCK", "job", "first")
	mine := c.Read(t).Elems[2].Int()
	if got := wantGrant(t, holder.Do(t, "LOCK", "job", "30s", "OWNER", "first", "WAIT", "1m")); mine <= fence || got <= mine {
		t.Errorf("fences %d, %d, %d", fence, mine, got)
	}
	if got := c.Do(t, "UNLOCK", "job", "me", "REQ", "r"); !got.IsError() {
		t.Errorf("UNLOCK: %v", got)
	}
}

// TestAsync_Session: the grant is bound to the connection that asked, and a client that has just left gets none.
func TestAsync_Session(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 1)
	holder, c := redistest.Open(t, r.addr()), redistest.Open3(t, r.addr())
	wantGrant(t, holder.Do(t, "LOCK", "job", "30s", "OWNER", "first"))
	wantQueued(t, c.Do(t, async("job", "me", "r", "SESSION")...), "first", 0)
	holder.Do(t, "UNLOCK", "job", "first")
	if push := c.Read(t); push.Elems[0].Text != "lock-granted" {
		t.Fatalf("push: %v", push)
	}
	if got := holder.Do(t, "LOCK", "job", "30s", "OWNER", "first"); !got.Null {
		t.Fatalf("while it is held: %v", got)
	}
	_ = c.Close()
	wantGrant(t, holder.Do(t, "LOCK", "job", "30s", "OWNER", "first", "WAIT", "20s")) // the lease has 30 s
}

// TestAsync_ManyOnOneConnection: each of many waits over one connection gets the lock in its turn, once.
func TestAsync_ManyOnOneConnection(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 1)
	holder, c := redistest.Open(t, r.addr()), redistest.Open3(t, r.addr())
	last := wantGrant(t, holder.Do(t, "LOCK", "job", "30s", "OWNER", "first"))
	const n = 50
	for i := range n {
		wantQueued(t, c.Do(t, async("job", fmt.Sprint("o", i), fmt.Sprint("r", i))...), "first", int64(i))
	}
	holder.Do(t, "UNLOCK", "job", "first")
	for i := range n {
		push := c.Read(t)
		if push.Kind != '>' || push.Elems[3].Text != fmt.Sprint("o", i) || push.Elems[2].Int() <= last {
			t.Fatalf("push %d: %v", i, push)
		}
		last = push.Elems[2].Int()
		holder.Do(t, "UNLOCK", "job", fmt.Sprint("o", i), "REQ", fmt.Sprint("r", i))
	}
	if got := holder.Do(t, "LOCK", "job", "30s", "OWNER", "first"); wantGrant(t, got) <= last {
		t.Errorf("afterwards: %v", got)
	}
}

// TestAsync_IdleTimeout: a client that waits for its grant is not idle.
func TestAsync_IdleTimeout(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, 1, "--idle-timeout", "2s")
	holder, c := redistest.Open(t, r.addr()), redistest.Open3(t, r.addr())
	wantGrant(t, holder.Do(t, "LOCK", "job", "30s", "OWNER", "first", "SESSION"))
	wantQueued(t, c.Do(t, async("job", "me", "r")...), "first", 0)
	time.Sleep(5 * time.Second)
	holder.Do(t, "UNLOCK", "job", "first")
	if push := c.Read(t); push.Kind != '>' || push.Elems[0].Text != "lock-granted" {
		t.Errorf("push: %v", push)
	}
	if rest, closed := c.ReadUntilQuiet(redistest.ReplyTimeout); rest != "" || !closed {
		t.Errorf("when it is told it got %q instead of the end", rest)
	}
}

// TestAsync_Drain: a proxy that ends tells no grant, and leaves nothing behind.
func TestAsync_Drain(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 2)
	holder, c := redistest.Open(t, r.proxies[1].Addr()), redistest.Open3(t, r.addr())
	wantGrant(t, holder.Do(t, "LOCK", "job", "30s", "OWNER", "first"))
	wantQueued(t, c.Do(t, async("job", "me", "r")...), "first", 0)
	if ended, status := r.proxies[0].Terminate(time.Minute); !ended || status != nil {
		t.Errorf("SIGTERM: ended %v, status %v", ended, status)
	}
	holder.Do(t, "UNLOCK", "job", "first")
	time.Sleep(calm)
	wantGrant(t, holder.Do(t, "LOCK", "job", "30s", "OWNER", "second"))
}
