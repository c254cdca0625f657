package integration

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// hostileReplies are what no Redis answers. A stream that has no end goes on until the
// proxy closes.
var hostileReplies = []struct{ name, head, endless string }{
	{name: "a huge string", head: "$9999999999\r\n", endless: strings.Repeat("x", 1<<16)},
	{name: "the largest string", head: "$9223372036854775807\r\n", endless: "x"},
	{name: "an overflowing length", head: "$99999999999999999999\r\n"},
	{name: "a huge array", head: "*2147483647\r\n", endless: "$1\r\nx\r\n"},
	{name: "the largest array", head: "*9223372036854775807\r\n", endless: ":1\r\n"},
	{name: "endless nesting", endless: strings.Repeat("*1\r\n", 1<<10)},
	{name: "endless attributes", endless: strings.Repeat("|1\r\n+a\r\n+b\r\n", 1<<10)},
	{name: "an endless line", head: "+", endless: strings.Repeat("x", 1<<16)},
	{name: "an endless error", head: "-", endless: strings.Repeat("x", 1<<16)},
	{name: "a negative length", head: "$-7\r\n"},
	{name: "a streamed string", head: "$?\r\n", endless: ";4\r\nabcd\r\n"},
	{name: "replies nobody asked for", endless: strings.Repeat("+OK\r\n", 1<<10)},
	{name: "an endless push", head: ">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$9999999999\r\n", endless: strings.Repeat("x", 1<<16)},
	{name: "confirmations nobody asked for", endless: strings.Repeat(">3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n", 1<<8)},
	{name: "a null that hides something", head: "_xx$9223372036854775807\r\n"},
	{name: "HTTP", head: "HTTP/1.1 400 Bad Request\r\n\r\n"},
	{name: "zeros", endless: strings.Repeat("\x00", 1<<12)},
	{name: "half a reply", head: "*3\r\n$5\r\nhel"},
	{name: "nothing"},
}

// A hostile server answers what it is told to, and after greeting, if not nil, as a Redis
// would begin.
type hostile struct {
	net.Listener
	reply    atomic.Int32 // of hostileReplies
	greeting func(h *hostile, command []byte) string
	seen     atomic.Int64 // connections

	wellBehaved atomic.Bool // every command is answered OK
}

func startHostile(t *testing.T, greeting func(h *hostile, command []byte) string) *hostile {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &hostile{Listener: ln, greeting: greeting}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			h.seen.Add(1)
			go h.talk(nc)
		}
	}()
	t.Cleanup(func() {
		ln.Close()
		<-done
	})
	return h
}

// maxSentBytes bounds the bytes sent on one connection.
const maxSentBytes = 16 << 20

func (h *hostile) talk(nc net.Conn) {
	defer nc.Close()
	buf := make([]byte, 64<<10)
	for {
		_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
		n, err := nc.Read(buf)
		if err != nil {
			return
		}
		said, all := h.answers(buf[:n])
		if _, err := nc.Write([]byte(said)); err != nil {
			return
		}
		if !all {
			break
		}
	}
	r := hostileReplies[h.reply.Load()]
	n, err := nc.Write([]byte(r.head))
	for total := n; err == nil && r.endless != "" && total < maxSentBytes; total += n {
		n, err = nc.Write([]byte(r.endless))
	}
	if err == nil { // until the proxy has had enough, or it has
		_ = nc.SetReadDeadline(time.Now().Add(time.Second))
		_, _ = nc.Read(buf)
	}
}

// answers is what a Redis would say to commands that came together, one reply for each, and
// whether that is all: it ends before the first that gets a hostile one.
func (h *hostile) answers(commands []byte) (said string, all bool) {
	for command := range bytes.SplitAfterSeq(commands, []byte("\r\n*")) {
		reply := ""
		if h.greeting != nil {
			reply = h.greeting(h, command)
		}
		if reply == "" && h.wellBehaved.Load() {
			reply = "+OK\r\n"
		}
		if reply == "" {
			return said, false
		}
		said += reply
	}
	return said, true
}

func (h *hostile) url() string { return "redis://" + h.Addr().String() }

// residentMB is the resident memory of a process in MB.
func residentMB(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skip("no /proc: ", err)
	}
	_, line, _ := strings.Cut(string(text), "VmRSS:")
	kb := 0
	if _, err := fmt.Sscanf(line, "%d", &kb); err != nil {
		t.Fatal(err)
	}
	return kb >> 10
}

// maxResidentMB bounds the memory of a proxy with a limit of 4 MB for a client; the race
// detector multiplies it.
func maxResidentMB() int {
	if os.Getenv(redistest.RaceVariable) != "" {
		return 1500
	}
	return 400
}

// resp3 greets as a Redis would.
func resp3(_ *hostile, command []byte) string {
	switch {
	case bytes.Contains(bytes.ToUpper(command), []byte("HELLO")):
		return "%3\r\n$5\r\nproto\r\n:3\r\n$7\r\nversion\r\n$5\r\n7.0.0\r\n$2\r\nid\r\n:1\r\n"
	case bytes.Contains(bytes.ToUpper(command), []byte("CLIENT")):
		return "+OK\r\n"
	}
	return ""
}

// TestHostileLockNodes: two nodes of five that answer whatever they like, at the first
// question or after a greeting, keep nobody from locking, and the proxy alive and small.
func TestHostileLockNodes(t *testing.T) {
	t.Parallel()
	first, later := startHostile(t, nil), startHostile(t, resp3)
	r := startRig(t, 3, 0)
	// Two are never enlisted; the others sit out before they vote.
	args := []string{"--upstream", r.data.URL(), "--max-output", "4mb", "--node-timeout", "1900ms", "--max-ttl", "2s"}
	for _, n := range r.nodes {
		args = append(args, "--lock-node", n.URL())
	}
	addr, err := redistest.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	p := redistest.StartServe(t, addr, append(args, "--lock-node", first.url(), "--lock-node", later.url())...)
	c := redistest.Open(t, p.Addr())
	for i, r := range hostileReplies {
		first.reply.Store(int32(i))
		later.reply.Store(int32(i))
		before := first.seen.Load()
		locked := func() bool {
			v := c.Do(t, "LOCK", "job", "2s", "OWNER", "me", "WAIT", "5s")
			return len(v.Elems) == 4 && !c.Do(t, "UNLOCK", "job", "me").IsError()
		}
		eventually(t, 30*time.Second, r.name+": no lock", locked)
		if r.endless != "" || r.head == "" { // it ends the connection, or its time does
			eventually(t, 30*time.Second, r.name+": the node is not asked again", func() bool { return locked() && first.seen.Load() > before })
		}
	}
	if mb := residentMB(t, p.PID()); mb > maxResidentMB() {
		t.Errorf("the proxy has %d MB", mb)
	}
}

// TestHostileUpstream: whatever an upstream answers, on connections of every kind, the proxy
// stays alive and small, and serves those who come when the upstream is sane again.
func TestHostileUpstream(t *testing.T) {
	t.Parallel()
	// Behind the greetings a node of a Cluster is read as any upstream: a few replies will do.
	for mode, each := range map[string]int{"standalone": 1, "cluster": 4} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			h := startHostile(t, sane)
			nodes := redistest.StartNodes(t, 1)
			addr, err := redistest.FreeAddr()
			if err != nil {
				t.Fatal(err)
			}
			p := redistest.StartServe(t, addr, "--upstream", h.url(), "--upstream-mode", mode, "--lock-node", nodes[0].URL(), "--max-output", "4mb", "--log-level", "error")
			for i := 0; i < len(hostileReplies); i += each {
				h.reply.Store(int32(i))
				sendGarbage(t, p.Addr())
			}
			h.wellBehaved.Store(true)
			var said string
			for end := time.Now().Add(30 * time.Second); said != "+OK\r\n"; time.Sleep(5 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("an ordinary command is not served, but answered %q", said)
				}
				c, err := redistest.Dial(p.Addr())
				if err != nil {
					continue
				}
				if v, err := c.Try("GET", "a"); err == nil {
					said = v.Raw
				} else {
					said = err.Error()
				}
				_ = c.Close()
			}
			mustLock(t, redistest.Open(t, p.Addr()), "job")
			if mb := residentMB(t, p.PID()); mb > maxResidentMB() {
				t.Errorf("the proxy has %d MB", mb)
			}
		})
	}
}

// sane greets as a Redis would, or a Cluster's only node, and answers nothing else.
func sane(h *hostile, command []byte) string {
	upper := bytes.ToUpper(command)
	said := resp3(h, command)
	if bytes.Contains(upper, []byte("SLOTS")) {
		said += fmt.Sprintf("*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$9\r\n127.0.0.1\r\n:%d\r\n$2\r\nid\r\n", h.Addr().(*net.TCPAddr).Port)
	}
	for word, reply := range map[string]string{"NODES": "-ERR no\r\n", "COMMAND\r\n": "*0\r\n", "PING": "+PONG\r\n"} {
		said += strings.Repeat(reply, bytes.Count(upper, []byte(word)))
	}
	return said
}

// sendGarbage says something of every kind on a connection of its own, and reads what comes, for
// a moment.
func sendGarbage(t *testing.T, addr string) {
	t.Helper()
	var all sync.WaitGroup
	for _, commands := range []string{
		redistest.Command("GET", "a") + redistest.Command("GET", "b"), redistest.Command("BLPOP", "a", "0"), redistest.Command("MULTI") + redistest.Command("GET", "a") + redistest.Command("EXEC"),
		redistest.Command("SUBSCRIBE", "a"), redistest.Command("HELLO", "3") + redistest.Command("SUBSCRIBE", "a") + redistest.Command("GET", "a"), redistest.Command("MONITOR"), redistest.Command("CLIENT", "LIST"),
		redistest.Command("INFO") + redistest.Command("COMMAND"), redistest.Command("NOSUCH", "a"), redistest.Command("WATCH", "a"), redistest.Command("MGET", "a", "b"), redistest.Command("CLIENT", "REPLY", "ON") + redistest.Command("GET", "a"),
		redistest.Command("EVAL", "x", "0"), redistest.Command("AUTH", "user", "password"), redistest.Command("LOCKCTL", "LIST"), redistest.Command("CLIENT", "TRACKING", "ON"),
	} {
		c := redistest.Open(t, addr)
		c.Send(t, commands)
		all.Go(func() {
			_ = c.SetReadDeadline(time.Now().Add(150 * time.Millisecond))
			_, _ = io.Copy(io.Discard, c.Conn)
			_ = c.Close()
		})
	}
	all.Wait()
}
