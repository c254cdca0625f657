package integration

import (
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// TestLimits_BeforeAndAfterAuth: what breaks the protocol is answered as by Redis, and ends
// the connection, whether the client has authenticated, has failed to, or has not tried.
func TestLimits_BeforeAndAfterAuth(t *testing.T) {
	t.Parallel()
	w := startTwin(t, secured...)
	all := append([]dialogue{
		{name: "too many arguments before AUTH", bytes: "*11\r\n$4\r\nLOCK\r\n"},
		{name: "a name of over 16 KB before AUTH", bytes: "*3\r\n$4\r\nLOCK\r\n$16385\r\n"},
		{name: "an announced name of 64 KB", bytes: "*3\r\n$4\r\nLOCK\r\n$65537\r\n"},
	}, faults...)
	for _, before := range []string{"", lines("AUTH wrong"), lines("AUTH secret")} {
		for _, d := range all {
			if strings.Contains(before, "secret") && !strings.Contains(d.name, "AUTH") && strings.Contains(d.name, "announced") {
				continue // it is allowed then
			}
			d.closes = !strings.Contains(before, "secret") || !strings.Contains(d.name, "before AUTH")
			if !d.closes {
				continue
			}
			d.bytes = before + d.bytes
			w.compare(t, d)
		}
	}
	c := redistest.Open(t, w.via)
	if v := c.Do(t, "AUTH", "secret"); v.Raw != "+OK\r\n" {
		t.Fatalf("afterwards AUTH: %v", v)
	}
	if v := c.Do(t, "LOCK", strings.Repeat("n", 64<<10), "30s", "OWNER", "me"); len(v.Elems) != 4 {
		t.Errorf("afterwards LOCK of the longest name: %.100v", v)
	}
}

// TestLimits_IncompleteCommands: thousands that say half a command, or a byte now and then, cost what
// they have sent and little more, and others are served.
func TestLimits_IncompleteCommands(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, 1, "--max-clients", "2100", "--node-timeout", "2s")
	other := redistest.Open(t, r.addr())
	other.Do(t, "PING")
	before := residentMB(t, r.proxies[0].PID())
	halves := []string{"*", "*2\r\n$3\r\nGET\r\n$1000\r\nx", "*1048576\r\n$536870912\r\nx", "*3\r\n$4\r\nLOCK\r\n$65536\r\nx", strings.Repeat("x", 1<<10), "GET \"a"}
	var conns []*redistest.Conn
	for i := range 2000 {
		c := redistest.Open(t, r.addr())
		c.Send(t, halves[i%len(halves)])
		conns = append(conns, c)
	}
	for range 3 {
		for _, c := range conns {
			c.Send(t, "1")
		}
		if v := other.Do(t, "PING"); v.Raw != "+PONG\r\n" {
			t.Fatalf("beside them: %v", v)
		}
		mustLock(t, other, "job")
	}
	if mb := residentMB(t, r.proxies[0].PID()) - before; mb > 2000*40>>10 && !racing() {
		t.Errorf("%d MB for 2000 halves of a command", mb)
	}
}

// racing says that the proxy is built with the race detector, which multiplies memory.
func racing() bool { return maxResidentMB() > 400 }

// TestLimits_IdleInsideACommand: the idle timeout ends a client that stops in the middle of a
// command, and one that never began.
func TestLimits_IdleInsideACommand(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, 1, "--idle-timeout", "2s")
	halves := []string{"", "*", "*2\r\n$3\r\nGET\r\n$1000\r\nx", "GET a", lines("PING") + "*1\r\n$4\r\nPI"}
	var conns []*redistest.Conn
	for _, half := range halves {
		c := redistest.Open(t, r.addr())
		c.Send(t, half)
		conns = append(conns, c)
	}
	for i, half := range halves {
		if got, closed := conns[i].ReadUntilQuiet(20 * time.Second); !closed || strings.Count(got, "\n") != strings.Count(half, "PING") {
			t.Errorf("%q: got %q, closed %v", half, got, closed)
		}
	}
}

// TestTooManyClients: whoever comes when there are too many is told so, and the others
// are served; when one leaves, another may come.
func TestTooManyClients(t *testing.T) {
	t.Parallel()
	const most = 5
	r := startRig(t, 1, 1, "--max-clients", "5")
	free := func() bool {
		c, err := redistest.Dial(r.addr())
		if err != nil {
			return false
		}
		defer c.Close()
		v, err := c.Try("PING")
		return err == nil && v.Raw == "+PONG\r\n"
	}
	eventually(t, 10*time.Second, "a first client", free)
	var in []*redistest.Conn
	eventually(t, 10*time.Second, "as many as may come", func() bool {
		c := redistest.Open(t, r.addr())
		if v, err := c.Try("PING"); err == nil && v.Raw == "+PONG\r\n" {
			in = append(in, c)
		}
		return len(in) == most
	})
	for range 5 {
		got, closed := redistest.Open(t, r.addr()).ReadUntilQuiet(10 * time.Second)
		if got != "-ERR max number of clients reached\r\n" || !closed {
			t.Fatalf("one too many: got %q, closed %v", got, closed)
		}
		if v := in[0].Do(t, "PING"); v.Raw != "+PONG\r\n" {
			t.Fatalf("one of those before: %v", v)
		}
	}
	mustLock(t, in[1], "job")
	_ = in[2].Close()
	eventually(t, 10*time.Second, "room for another", free)
}
