package relay

import (
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/backends"
	"github.com/lockproxy/lockproxy/backends/upstream"
)

// A request that waits for two replies is asked again once.
func TestRequest_ReadBehindAskingIsRedirectedOnce(t *testing.T) {
	r := NewReplies(new(tape), RepliesOptions{Limit: 1 << 20})
	again := 0
	r.redirect = func(*Request, []byte) { again++ }
	c := &Request{Read: true, Skip: 1}
	r.ExpectRequest(c)
	conn := new(upstream.Conn)
	c.Fail(conn, 1, false, ErrLost) // ASKING
	c.Fail(conn, 1, false, ErrLost)
	if again != 1 || c.done || r.Pending() != 1 {
		t.Errorf("sent on %d times, done %v, owed %d", again, c.done, r.Pending())
	}
}

// TestRequest_Tracked: a tracked read that is to be sent elsewhere disconnects the client, any other error does not.
func TestRequest_Tracked(t *testing.T) {
	for reply, closed := range map[string]bool{"-ERR no\r\n": false, "-MOVED 1 h:1\r\n": true} {
		out := new(tape)
		r := NewReplies(out, RepliesOptions{Limit: 1 << 20})
		c := &Request{Tracked: true, Slot: 1}
		r.ExpectRequest(c)
		c.Deliver(new(upstream.Conn), []byte(reply), 1)
		if out.closed != closed || (out.String() == reply) == closed {
			t.Errorf("%q: the client has %q, closed %v", reply, out, out.closed)
		}
	}
}

// What came of them counts no more as kept.
func TestRequest_FailedPartTakesNoMemory(t *testing.T) {
	r := NewReplies(new(tape), RepliesOptions{Limit: 1 << 20})
	c := new(Request)
	r.ExpectFanIn([]*Request{c}, func(parts [][]byte) []byte { return parts[0] })
	conn := new(upstream.Conn)
	c.Deliver(conn, []byte("$100\r\nabc"), 0)
	c.Fail(conn, 1, true, ErrLost)
	if r.buffered != 0 || r.Pending() != 0 {
		t.Errorf("kept %d, owed %d", r.buffered, r.Pending())
	}
}

// Of a client that always waits for something.
func TestReplies_QueueIsBounded(t *testing.T) {
	r := NewReplies(new(tape), RepliesOptions{Limit: 1 << 20})
	conn := new(upstream.Conn)
	last := new(Request)
	r.ExpectRequest(last)
	for range 100_000 {
		next := new(Request)
		r.ExpectRequest(next)
		last.Deliver(conn, []byte(":1\r\n"), 1)
		last = next
	}
	if cap(r.queue) > 1024 {
		t.Errorf("one reply is owed, and there is room for %d", cap(r.queue))
	}
	last.Deliver(conn, []byte(":1\r\n"), 1)
	if r.Pending() != 0 || r.out.(*tape).String() != strings.Repeat(":1\r\n", 100_001) {
		t.Errorf("owed %d, got %d bytes", r.Pending(), r.out.(*tape).Len())
	}
}

// Once a client is disconnected for it, the rest of what is on its
// way takes no memory, and nobody makes anything of half a reply.
func TestReplies_NothingIsKeptOfAnOverflow(t *testing.T) {
	out := new(tape)
	r := NewReplies(out, RepliesOptions{Limit: 1000})
	first, a := new(upstream.Conn), new(upstream.Conn)
	r.Expect(first, 1)
	big, part := new(Request), new(Request)
	r.ExpectRequest(big)
	r.ExpectFanIn([]*Request{part}, func(parts [][]byte) []byte { return parts[0] })
	r.ExpectRewritten(a, func(reply []byte) ([]byte, bool) { return reply[:1000], false })
	caught := []byte("nothing")
	r.ExpectCaptured(a, func(reply []byte) { caught = reply })
	big.Deliver(a, []byte("$1000000\r\n"), 0)
	for range 1000 {
		big.Deliver(a, make([]byte, 1000), 0)
		part.Deliver(a, make([]byte, 1000), 0)
	}
	big.Deliver(a, []byte("\r\n"), 1)
	part.Deliver(a, []byte("\r\n"), 1)
	if n := cap(r.queue[1].buf) + cap(r.queue[2].buf); n > 4000 || !out.aborted {
		t.Errorf("%d bytes are kept, aborted %v", n, out.aborted)
	}
	r.Deliver(a, []byte("+OK\r\n"), 1)
	r.Deliver(a, []byte("+OK\r\n"), 1)
	r.Deliver(first, []byte("+OK\r\n"), 1)
	if r.Pending() != 0 || caught != nil {
		t.Errorf("owed %d, caught %q", r.Pending(), caught)
	}
}

func TestParseRedirection(t *testing.T) {
	for _, tt := range []struct {
		reply string
		slot  int
		addr  string
		ok    bool
	}{
		{"-MOVED 3999 127.0.0.1:6381\r\n", 3999, "127.0.0.1:6381", true},
		{"-ASK 0 :7000\r\n", 0, ":7000", true},
		{"-MOVED 16383 node.example:1\r\n", 16383, "node.example:1", true},
		{"-MOVED 16384 a:1\r\n", 0, "", false},
		{"-MOVED -1 a:1\r\n", 0, "", false},
		{"-MOVED x a:1\r\n", 0, "", false},
		{"-MOVED 1\r\n", 0, "", false},
		{"-MOVEDON 1 a:1\r\n", 0, "", false},
		{"-TRYAGAIN Multiple keys\r\n", 0, "", false},
	} {
		slot, addr, ok := ParseRedirection([]byte(tt.reply))
		if ok != tt.ok || ok && (slot != tt.slot || addr != tt.addr) {
			t.Errorf("%q: slot %d at %q, %v", tt.reply, slot, addr, ok)
		}
	}
	for _, tt := range []struct {
		reply       string
		plain, read bool // sent on
	}{
		{"-MOVED 1 a:1\r\n", true, true},
		{"-ASK 1 a:1\r\n", true, true},
		{"-MOVED 2 a:1\r\n", false, false}, // not of its slot
		{tryAgain, true, true},
		{"-TRYAGAIN a script's\r\n", false, false},
		{"-LOADING x\r\n", false, true},
		{"-MASTERDOWN x\r\n", false, true},
		{"-ERR MOVED 1 a:1\r\n", false, false},
		{"-ASKING\r\n", false, false},
		{"+MOVED 1 a:1\r\n", false, false},
	} {
		c := &Request{Slot: 1}
		if plain, read := c.isRedirection([]byte(tt.reply), false), c.isRedirection([]byte(tt.reply), true); plain != tt.plain || read != tt.read {
			t.Errorf("%q is sent on: %v, from a replica %v", tt.reply, plain, read)
		}
	}
}

func TestRedirectTo_NamesNoNode(t *testing.T) {
	for _, tt := range []struct{ reply, queued, atLast string }{
		{"-MOVED 1 a:1\r\n", "-TRYAGAIN ", "-CLUSTERDOWN "},
		{"-ASK 1 a:1\r\n", "-TRYAGAIN ", "-CLUSTERDOWN "},
		{"-TRYAGAIN x\r\n", "-TRYAGAIN x", "-TRYAGAIN x"},
		{"-ERR x\r\n", "-ERR x", "-ERR x"},
	} {
		if got := string(RedirectToTryAgain([]byte(tt.reply))); !strings.HasPrefix(got, tt.queued) {
			t.Errorf("%q inside MULTI becomes %q", tt.reply, got)
		}
		if got := string(redirectToClusterDown([]byte(tt.reply))); !strings.HasPrefix(got, tt.atLast) {
			t.Errorf("%q at last becomes %q", tt.reply, got)
		}
	}
}

func TestAbsoluteAddr(t *testing.T) {
	s, err := backends.Parse("redis://10.0.0.1:7000")
	if err != nil {
		t.Fatal(err)
	}
	by := upstream.NewPool(upstream.PoolOptions{Server: s})
	for addr, want := range map[string]string{
		"10.0.0.2:7001": "10.0.0.2:7001",
		":7001":         "10.0.0.1:7001",
		"?:7001":        "10.0.0.1:7001",
		"[::1]:7001":    "[::1]:7001",
		"n.example:1":   "n.example:1",
		"nonsense":      "nonsense",
	} {
		if got := AbsoluteAddr(addr, by); got != want {
			t.Errorf("%q is %q, want %q", addr, got, want)
		}
	}
	if got := AbsoluteAddr(":7001", nil); got != ":7001" {
		t.Errorf("of nobody: %q", got)
	}
}
