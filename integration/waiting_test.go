package integration

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// calm is how long what must not happen is waited for.
const calm = 100 * time.Millisecond

// opens are the ways to connect, by protocol.
var opens = []struct {
	name string
	open func(testing.TB, string) *redistest.Conn
}{{"RESP2", redistest.Open}, {"RESP3", redistest.Open3}}

// wantGrant fails unless v is a grant, and returns its fence.
func wantGrant(t *testing.T, v redistest.Value) (fence int64) {
	t.Helper()
	if v.Kind != '*' || len(v.Elems) != 4 || v.Elems[0].Int() == 0 {
		t.Fatalf("not granted: %v", v)
	}
	return v.Elems[0].Int()
}

// awaitWaiters returns when so many wait for a name at the proxy of c.
func awaitWaiters(t *testing.T, c *redistest.Conn, name string, n int64) {
	t.Helper()
	for late := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		v := c.Do(t, "LOCK", name, "30s", "RETRYAFTER")
		if len(v.Elems) != 4 || v.Elems[0].Int() != 0 {
			t.Fatalf("the lock was to be had: %v", v)
		}
		if v.Elems[3].Int() == n {
			return
		}
		if time.Now().After(late) {
			t.Fatalf("%d wait, not %d", v.Elems[3].Int(), n)
		}
	}
}

// TestWait_FirstComeFirstServed over connections of their own; who waits is counted, and
// whoever does not wait gets nothing while others do.
func TestWait_FirstComeFirstServed(t *testing.T) {
	t.Parallel()
	r := startRig(t, 5, 1)
	holder := redistest.Open(t, r.addr())
	last := wantGrant(t, holder.Do(t, "LOCK", "job", "30s", "OWNER", "first"))
	const n = 30
	var turns []int
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range n {
		c := opens[i%2].open(t, r.addr())
		c.Send(t, redistest.Command("LOCK", "job", "30s", "OWNER", fmt.Sprint("w", i), "WAIT", "20s"))
		awaitWaiters(t, holder, "job", int64(i+1))
		all.Go(func() {
			v, err := c.Next()
			if err != nil || len(v.Elems) != 4 {
				t.Errorf("waiter %d: %v, %v", i, v, err)
				return
			}
			mu.Lock()
			turns = append(turns, i)
			if fence := v.Elems[0].Int(); fence <= last {
				t.Errorf("fence %d after %d", fence, last)
			} else {
				last = fence
			}
			mu.Unlock()
			if v, err := c.Try("UNLOCK", "job", fmt.Sprint("w", i)); err != nil || v.Raw != ":1\r\n" {
				t.Errorf("UNLOCK of waiter %d: %v, %v", i, v, err)
			}
		})
	}
	holder.Do(t, "UNLOCK", "job", "first")
	all.Wait()
	for i, turn := range turns {
		if i != turn {
			t.Fatalf("they had their turns in the order %v", turns)
		}
	}
}

// TestWait_Ends: with null when the time is over, with an error where it could not have
// begun; WAIT 0 asks once.
func TestWait_Ends(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 1, "--max-wait", "60s", "--max-waiters", "2")
	a, b := redistest.Open(t, r.addr()), redistest.Open(t, r.addr())
	wantGrant(t, a.Do(t, "LOCK", "job", "60s", "OWNER", "me"))
	began := time.Now()
	if v := b.Do(t, "LOCK", "job", "30s", "WAIT", "300ms"); v.Raw != "*-1\r\n" {
		t.Errorf("after the wait: %v", v)
	}
	if took := time.Since(began); took < 300*time.Millisecond || took > 20*time.Second {
		t.Errorf("waited %v, not 300ms", took)
	}
	if v := b.Do(t, "LOCK", "job", "30s", "WAIT", "100ms", "RETRYAFTER"); len(v.Elems) != 4 || v.Elems[2].Int() < 20_000 {
		t.Errorf("after the wait, with RETRYAFTER: %v", v)
	}
	if v := b.Do(t, "LOCK", "job", "30s", "WAIT", "0"); v.Raw != "*-1\r\n" {
		t.Errorf("WAIT 0: %v", v)
	}
	if v := b.Do(t, "LOCK", "job", "30s", "WAIT", "61s"); !strings.HasPrefix(v.Text, "MAXWAIT ") || !v.IsError() {
		t.Errorf("a longer wait than --max-wait: %v", v)
	}
	for range 2 {
		redistest.Open(t, r.addr()).Send(t, redistest.Command("LOCK", "job", "30s", "WAIT", "60s"))
	}
	awaitWaiters(t, a, "job", 2)
	if v := b.Do(t, "LOCK", "job", "30s", "WAIT", "60s"); !strings.HasPrefix(v.Text, "QUEUEFULL ") || !strings.HasSuffix(v.Text, "ask again later, or raise --max-waiters") || !v.IsError() {
		t.Errorf("one more than --max-waiters: %v", v)
	}
}

// TestWait_ClientIsKilled: it leaves the line at once, and nothing is left behind.
func TestWait_ClientIsKilled(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 1)
	holder, killed, next := redistest.Open(t, r.addr()), redistest.Open(t, r.addr()), redistest.Open(t, r.addr())
	wantGrant(t, holder.Do(t, "LOCK", "job", "30s", "OWNER", "me"))
	killed.Send(t, lines("LOCK job 30s WAIT 20s", "GET x"))
	awaitWaiters(t, holder, "job", 1)
	next.Send(t, redistest.Command("LOCK", "job", "30s", "WAIT", "20s"))
	awaitWaiters(t, holder, "job", 2)
	killed.Close()
	awaitWaiters(t, holder, "job", 1)
	began := time.Now()
	holder.Do(t, "UNLOCK", "job", "me")
	wantGrant(t, next.Read(t))
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the next had it after %v", took)
	}
	if v := next.Do(t, "UNLOCK", "job"); v.Raw != ":1\r\n" {
		t.Errorf("UNLOCK: %v", v)
	}
	wantGrant(t, holder.Do(t, "LOCK", "job", "30s", "OWNER", "me"))
}

// TestWait_UnlockBehindIt: on one connection, the UNLOCK that a LOCK before it waits for.
func TestWait_UnlockBehindIt(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 1)
	for _, tt := range opens {
		t.Run(tt.name, func(t *testing.T) {
			c, job := tt.open(t, r.addr()), t.Name()
			wantGrant(t, c.Do(t, "LOCK", job, "30s", "OWNER", "one"))
			began := time.Now()
			c.Send(t, lines("LOCK "+job+" 30s OWNER two WAIT 20s", "INCR n"+job, "RENEW "+job+" 20s one", "UNLOCK "+job+" one", "INCR n"+job, "UNLOCK "+job+" two"))
			wantGrant(t, c.Read(t))
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("granted after %v", took)
			}
			var got []string
			for range 5 {
				got = append(got, c.Read(t).String())
			}
			if n := strings.TrimPrefix(got[1], ":19"); n == got[1] {
				t.Errorf("RENEW: %s", got[1])
			}
			got[1] = ""
			if all := strings.Join(got, " "); all != ":1  :1 :2 :1" {
				t.Errorf("got %s", all)
			}
		})
	}
}

// TestWait_ManyLocksOnOneConnection: many threads share one connection, as with ioredis or Lettuce, and
// one name. All make progress, and nothing is left behind.
func TestWait_ManyLocksOnOneConnection(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 1)
	for _, tt := range opens {
		t.Run(tt.name, func(t *testing.T) {
			m := &multiplexed{Conn: tt.open(t, r.addr())}
			const threads, rounds = 20, 10
			held := 0 // by the lock
			var all sync.WaitGroup
			for i := range threads {
				all.Go(func() {
					me := fmt.Sprint(i)
					for range rounds {
						if v := m.do("LOCK", tt.name, "30s", "OWNER", me, "WAIT", "30s"); len(v.Elems) != 4 {
							t.Errorf("LOCK: %v", v)
							return
						}
						if held++; held != 1 {
							t.Error("two hold it")
						}
						held--
						if v := m.do("UNLOCK", tt.name, me); v.Raw != ":1\r\n" {
							t.Errorf("UNLOCK: %v", v)
						}
					}
				})
			}
			for i := range 3 { // they hold nothing, and wait for the others
				all.Go(func() {
					me := fmt.Sprint("echo ", i)
					for range rounds {
						if v := m.do("ECHO", me); v.Text != me {
							t.Errorf("ECHO %s: %v", me, v)
						}
					}
				})
			}
			all.Wait()
			wantGrant(t, m.do("LOCK", tt.name, "30s", "OWNER", "last"))
		})
	}
}

// A multiplexed connection is shared by threads: each sends when it likes, and gets the
// reply to what it has sent.
type multiplexed struct {
	*redistest.Conn
	mu    sync.Mutex
	queue []chan redistest.Value
	reads sync.Mutex
}

// do sends a command and returns its reply, or none when the connection has ended.
func (m *multiplexed) do(args ...string) redistest.Value {
	mine := make(chan redistest.Value, 1)
	m.mu.Lock()
	m.queue = append(m.queue, mine)
	_, err := m.Conn.Write([]byte(redistest.Command(args...)))
	m.mu.Unlock()
	if err != nil {
		return redistest.Value{}
	}
	go m.readOne()
	return <-mine
}

// readOne reads one reply and gives it to whoever is the first to wait.
func (m *multiplexed) readOne() {
	m.reads.Lock()
	defer m.reads.Unlock()
	v, _ := m.Conn.Next()
	m.mu.Lock()
	first := m.queue[0]
	m.queue = m.queue[1:]
	m.mu.Unlock()
	first <- v
}
