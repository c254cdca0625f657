package integration

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// holdInProcess takes a lock with SESSION in a process of its own, which the test may
// kill.
func holdInProcess(t *testing.T, addr, name string) (kill func()) {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	const client = `exec 3<>/dev/tcp/$0/$1; printf 'LOCK %s 30s OWNER dead SESSION\r\n' "$2" >&3; read -r line <&3; echo "$line"; read -r line`
	cmd := exec.Command("bash", "-c", client, host, port, name)
	in, err := cmd.StdinPipe() // which it waits for
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	killed := false
	kill = func() {
		if !killed {
			killed = true
			cmd.Process.Kill()
		}
	}
	t.Cleanup(func() { kill(); in.Close(); _ = cmd.Wait() })
	line := make([]byte, 2)
	if _, err := out.Read(line); err != nil || string(line) != "*4" {
		t.Fatalf("LOCK answered %q, %v", line, err)
	}
	return kill
}

// TestSessionOfAKilledClient: the next in line has the lock at once, also through another
// proxy.
func TestSessionOfAKilledClient(t *testing.T) {
	t.Parallel()
	r := startRig(t, 5, 2)
	for _, p := range r.proxies {
		for i := range 5 {
			name := fmt.Sprint("job", i)
			kill := holdInProcess(t, r.addr(), name)
			next := redistest.Open(t, p.Addr())
			next.Send(t, redistest.Command("LOCK", name, "30s", "WAIT", "10s"))
			time.Sleep(calm)
			began := time.Now()
			kill()
			wantGrant(t, next.Read(t))
			took := time.Since(began)
			t.Logf("the next had it after %v", took)
			if took > 5*time.Second {
				t.Errorf("the next had it after %v", took)
			}
			next.Do(t, "UNLOCK", name)
		}
	}
}

// TestSessionEnds with its connection, however that ends, and not before.
func TestSessionEnds(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 1)
	other := redistest.Open(t, r.addr())
	for _, tt := range []struct {
		name string
		end  func(*redistest.Conn)
	}{
		{"closed", func(c *redistest.Conn) { c.Close() }},
		{"closed for sending only", func(c *redistest.Conn) { _ = c.Conn.(*net.TCPConn).CloseWrite() }},
		{"closed while it waits", func(c *redistest.Conn) { c.Send(t, lines("BLPOP q 0", "GET x")); c.Close() }},
		{"QUIT", func(c *redistest.Conn) { c.Do(t, "QUIT") }},
		{"a fault of the protocol", func(c *redistest.Conn) { c.Send(t, "*1\r\n!oops\r\n") }},
		{"CLIENT KILL", func(c *redistest.Conn) { other.Do(t, "CLIENT", "KILL", "ID", clientID(t, c)) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, name := redistest.Open(t, r.addr()), t.Name()
			wantGrant(t, c.Do(t, "LOCK", name, "30s", "OWNER", "me", "SESSION"))
			wantGrant(t, c.Do(t, "LOCK", name+"2", "30s", "SESSION"))
			wantGrant(t, c.Do(t, "LOCK", name+"plain", "30s"))
			if v := c.Do(t, "RESET"); v.Text != "RESET" {
				t.Fatalf("RESET: %v", v)
			}
			if v := other.Do(t, "LOCK", name, "30s"); v.Raw != "*-1\r\n" {
				t.Fatalf("LOCK before the end: %v", v)
			}
			tt.end(c)
			wantGrant(t, other.Do(t, "LOCK", name, "30s", "WAIT", "5s"))
			wantGrant(t, other.Do(t, "LOCK", name+"2", "30s", "WAIT", "5s"))
			if v := other.Do(t, "LOCK", name+"plain", "30s"); v.Raw != "*-1\r\n" {
				t.Errorf("LOCK of what was taken without SESSION: %v", v)
			}
		})
	}
}

// TestSessionIsRenewed while its connection lives, until MAXHOLD is over; then the client
// hears of it.
func TestSessionIsRenewed(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 1)
	kept := startRig(t, 3, 1, "--on-loss", "keep", "--max-hold", "2s")
	pushed := func(t *testing.T, c *redistest.Conn, job string, fence int64) {
		want := fmt.Sprintf(`>[$"lock-lost" $%q :%d $"MAXHOLD of 2s is over"]`, job, fence)
		if v := c.Read(t); v.String() != want {
			t.Errorf("told %v, want %s", v, want)
		}
		wantLost(t, c, job)
	}
	ended := func(t *testing.T, c *redistest.Conn, _ string, _ int64) {
		if rest, closed := c.ReadUntilQuiet(redistest.ReplyTimeout); rest != "" || !closed {
			t.Errorf("got %q instead of the end", rest)
		}
	}
	for _, tt := range []struct {
		name    string
		rig     *rig
		open    func(testing.TB, string) *redistest.Conn
		options []string
		then    []string // a command behind LOCK, if any
		hears   func(t *testing.T, c *redistest.Conn, job string, fence int64)
	}{
		{"RESP3", r, redistest.Open3, []string{"MAXHOLD", "2s"}, nil, ended},
		{"RESP3, PUSH", r, redistest.Open3, []string{"ONLOSS", "PUSH", "MAXHOLD", "2s"}, nil, pushed},
		{"RESP3, PUSH, then RESP2", r, redistest.Open3, []string{"ONLOSS", "PUSH", "MAXHOLD", "2s"}, []string{"HELLO", "2"}, ended},
		{"RESP2", r, redistest.Open, []string{"MAXHOLD", "2s"}, nil, ended},
		{"RESP2, CLOSE", r, redistest.Open, []string{"ONLOSS", "CLOSE", "MAXHOLD", "2s"}, nil, ended},
		{"RESP2, kept", kept, redistest.Open, nil, nil, func(t *testing.T, c *redistest.Conn, job string, _ int64) { wantLost(t, c, job) }},
		{"RESP3, kept", kept, redistest.Open3, nil, nil, pushed},
		{"RESP2, kept, CLOSE", kept, redistest.Open, []string{"ONLOSS", "CLOSE"}, nil, ended},
		{"RESP3, kept, CLOSE", kept, redistest.Open3, []string{"ONLOSS", "close"}, nil, ended},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, next, job := tt.open(t, tt.rig.addr()), redistest.Open(t, tt.rig.addr()), t.Name()
			began := time.Now()
			fence := wantGrant(t, c.Do(t, append([]string{"LOCK", job, "1s", "OWNER", "me", "SESSION"}, tt.options...)...))
			if tt.then != nil {
				c.Do(t, tt.then...)
			}
			if v := next.Do(t, "LOCK", job, "30s", "WAIT", "10s"); wantGrant(t, v) <= fence {
				t.Errorf("the next fence is %d, after %d", v.Elems[0].Int(), fence)
			}
			if took := time.Since(began); took < 1990*time.Millisecond || took > 8*time.Second {
				t.Errorf("it was held for %v, with MAXHOLD 2s and a lease of 1s", took)
			}
			tt.hears(t, c, job, fence)
		})
	}
}

// wantLost wants the verbs to say that somebody else has the lock now.
func wantLost(t *testing.T, c *redistest.Conn, job string) {
	t.Helper()
	for _, command := range []string{"RENEW " + job + " 1s me", "UNLOCK " + job + " me"} {
		v := c.Do(t, strings.Fields(command)...)
		if !strings.HasPrefix(v.Text, "LOCKLOST ") && !strings.HasPrefix(v.Text, "NOTOWNER ") {
			t.Errorf("%s: %v", command, v)
		}
	}
}

// TestSessionOutlivesTheIdleTimeout: its client is at work.
func TestSessionOutlivesTheIdleTimeout(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, 1, "--idle-timeout", "2s")
	c := redistest.Open(t, r.addr())
	wantGrant(t, c.Do(t, "LOCK", "job", "30s", "SESSION"))
	time.Sleep(5 * time.Second)
	if v := c.Do(t, "UNLOCK", "job"); v.Raw != ":1\r\n" {
		t.Errorf("UNLOCK: %v", v)
	}
	if rest, closed := c.ReadUntilQuiet(redistest.ReplyTimeout); rest != "" || !closed {
		t.Errorf("without the lock it got %q instead of the end", rest)
	}
}

// TestForcedSession: the client is told as of any other loss.
func TestForcedSession(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 1)
	c, admin := redistest.Open3(t, r.addr()), redistest.Open(t, r.addr())
	fence := wantGrant(t, c.Do(t, "LOCK", "job", "30s", "OWNER", "me", "SESSION", "ONLOSS", "PUSH"))
	if v := admin.Do(t, "LOCKCTL", "FORCE", "job"); v.IsError() {
		t.Fatalf("LOCKCTL FORCE: %v", v)
	}
	v := c.Read(t)
	if v.Kind != '>' || len(v.Elems) != 4 || v.Elems[0].Text != "lock-lost" || v.Elems[1].Text != "job" || v.Elems[2].Int() != fence {
		t.Errorf("told %v", v)
	}
	wantGrant(t, admin.Do(t, "LOCK", "job", "30s", "OWNER", "you"))
	wantLost(t, c, "job")
}

// TestForcedSession_Own: a client that takes its own session's lock away has the answer before its connection ends.
func TestForcedSession_Own(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 1)
	for range 20 {
		for _, lock := range []string{"LOCK job 30s OWNER me SESSION", "LOCK job 30s OWNER me SHARED SESSION"} {
			c := redistest.Open(t, r.addr())
			wantGrant(t, c.Do(t, strings.Fields(lock)...))
			if v, err := c.Try("LOCKCTL", "FORCE", "job"); err != nil || v.IsError() || len(v.Elems) == 0 {
				t.Fatalf("%s, LOCKCTL FORCE: %v, %v", lock, v, err)
			}
			if got, closed := c.ReadUntilQuiet(30 * time.Second); got != "" || !closed {
				t.Fatalf("%s, behind FORCE: %q, closed %t", lock, got, closed)
			}
		}
	}
}

// TestSession_FreshOnItsConnection: a client that drops its own lock with SESSION for another grant has lost nothing. It keeps its connection.
func TestSession_FreshOnItsConnection(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 1)
	c, other := redistest.Open(t, r.addr()), redistest.Open(t, r.addr())
	for _, lock := range [][]string{{"LOCK", "job"}, {"LOCKALL", "1", "job"}} {
		lock = append(lock, "30s", "OWNER", "me")
		for _, more := range [][]string{{"SESSION"}, {"FRESH", "SESSION"}, {"FRESH"}} {
			if v := c.Do(t, append(slices.Clone(lock), more...)...); v.IsError() || v.Kind != '*' || len(v.Elems) == 0 {
				t.Fatalf("%v %v: %v", lock, more, v)
			}
		}
	}
	if v := c.Do(t, "UNLOCK", "job", "me"); v.Int() != 1 {
		t.Errorf("UNLOCK: %v", v)
	}
	wantGrant(t, c.Do(t, "LOCK", "job", "30s", "OWNER", "me", "SESSION"))
	wantGrant(t, other.Do(t, "LOCK", "job", "30s", "OWNER", "me", "FRESH"))
	if _, err := c.Next(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a client that another one has taken the lock from is not told: %v", err)
	}
}

// TestSessionGrace: locks are kept for so long when their connection has closed.
func TestSessionGrace(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 1, "--session-grace", "1s")
	c, next := redistest.Open(t, r.addr()), redistest.Open(t, r.addr())
	wantGrant(t, c.Do(t, "LOCK", "job", "30s", "SESSION"))
	began := time.Now()
	c.Close()
	wantGrant(t, next.Do(t, "LOCK", "job", "30s", "WAIT", "10s"))
	if took := time.Since(began); took < time.Second || took > 8*time.Second {
		t.Errorf("given up after %v, not 1s", took)
	}
}

// TestSessionOfAnEndingProxy: one that is told to end, or is killed, leaves the locks to
// their leases, since the clients may still be at work.
func TestSessionOfAnEndingProxy(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		end  func(*redistest.Proxy)
	}{
		{"drained", func(p *redistest.Proxy) { p.Terminate(10 * time.Second) }},
		{"killed", (*redistest.Proxy).Kill},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := startRig(t, 3, 2)
			c, next := redistest.Open(t, r.addr()), redistest.Open(t, r.proxies[1].Addr())
			wantGrant(t, c.Do(t, "LOCK", "job", "3s", "SESSION"))
			time.Sleep(3500 * time.Millisecond) // it lives by renewals
			ended := time.Now()
			tt.end(r.proxies[0])
			wantGrant(t, next.Do(t, "LOCK", "job", "30s", "WAIT", "10s"))
			if took := time.Since(ended); took < time.Second || took > 8*time.Second {
				t.Errorf("free %v after the proxy's end: a lease of 3s has between 2s and 3s left", took)
			}
		})
	}
}

// TestSessionOfAVanishedHost: one that neither answers nor acknowledges any more.
func TestSessionOfAVanishedHost(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 1)
	for _, tt := range []struct {
		name   string
		unread string // a command whose reply is not acknowledged
	}{{"silent", ""}, {"owed a reply", "PING\r\n"}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			nc, err := (&net.Dialer{KeepAlive: -1}).Dial("tcp", r.addr())
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			c, next, job := redistest.NewConn(nc), redistest.Open(t, r.addr()), t.Name()
			wantGrant(t, c.Do(t, "LOCK", job, "60s", "SESSION"))
			hearNothing(t, nc)
			c.Send(t, tt.unread)
			began := time.Now()
			next.SetReadDeadline(time.Now().Add(30 * time.Second))
			next.Send(t, redistest.Command("LOCK", job, "30s", "WAIT", "30s"))
			if got := make([]byte, 2); true {
				if _, err := next.Conn.Read(got); err != nil || string(got) != "*4" {
					t.Fatalf("LOCK: %q, %v", got, err)
				}
			}
			took := time.Since(began)
			t.Logf("noticed after %v", took)
			if took < 5*time.Second || took > 25*time.Second {
				t.Errorf("noticed after %v", took)
			}
		})
	}
}

// hearNothing makes the kernel drop all that comes for a connection, before it can be
// acknowledged, as if the host had vanished.
func hearNothing(t *testing.T, nc net.Conn) {
	t.Helper()
	raw, err := nc.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	drop := unix.SockFprog{Len: 1, Filter: &unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K}}
	if e := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &drop)
	}); e != nil {
		t.Fatal(e)
	}
	if err != nil {
		t.Skip("packets cannot be dropped here: ", err)
	}
}

// TestSession_ClientEndsAtAnyMoment: clients ask and leave whenever they like, before, at or after the
// grant, through two proxies. Never do two have the lock, and nothing is left behind.
func TestSession_ClientEndsAtAnyMoment(t *testing.T) {
	t.Parallel()
	r := startRig(t, 5, 2)
	const clients, rounds = 16, 40
	var mu sync.Mutex
	var held, grants int
	var last int64
	visit := func(i, round int) error {
		c, err := redistest.Dial(r.proxies[i%2].Addr())
		if err != nil {
			return err
		}
		defer c.Close()
		form := []string{"", fmt.Sprintf(" OWNER o%d.%d", i, round), fmt.Sprintf(" OWNER o%d.%d REQ 1", i, round)}[rand.IntN(3)]
		if _, err := c.Write([]byte("LOCK job 30s WAIT 20s SESSION" + form + "\r\n")); err != nil {
			return err
		}
		if rand.IntN(3) > 0 {
			time.Sleep(rand.N(10 * time.Millisecond))
			if rand.IntN(2) > 0 {
				return c.Conn.(*net.TCPConn).SetLinger(0)
			}
			return nil
		}
		v, err := c.Next()
		if err != nil {
			return err
		}
		if len(v.Elems) != 4 {
			return fmt.Errorf("LOCK: %v", v)
		}
		mu.Lock()
		if held++; held != 1 || v.Elems[0].Int() <= last {
			t.Errorf("%d hold it, the fence is %d after %d", held, v.Elems[0].Int(), last)
		}
		last = v.Elems[0].Int()
		grants++
		mu.Unlock()
		time.Sleep(rand.N(2 * time.Millisecond))
		mu.Lock()
		held--
		mu.Unlock()
		return nil
	}
	var all errgroup.Group
	for i := range clients {
		all.Go(func() error {
			for round := range rounds {
				if err := visit(i, round); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	if grants < rounds {
		t.Errorf("only %d were granted", grants)
	}
	began := time.Now()
	wantGrant(t, redistest.Open(t, r.addr()).Do(t, "LOCK", "job", "30s", "WAIT", "10s"))
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("free after %v", took)
	}
}
