package proxy

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Commands of all kinds, cut anywhere, get their replies in order, whether the reader or a
// worker handles them.
func TestSession_PipelineInAnyPieces(t *testing.T) {
	h := open(t, Options{})
	var in, want bytes.Buffer
	for i := range 3000 {
		switch i % 50 {
		case 7: // a worker's
			fmt.Fprintf(&in, "*2\r\n$6\r\nSELECT\r\n$1\r\n%d\r\n", i%3)
			want.WriteString("+OK\r\n")
		case 20:
			in.WriteString("UNLOCK nothing\r\n")
			want.WriteString("-ERR this connection has not taken that lock without OWNER; UNLOCK must name the owner, which LOCK answered\r\n")
		case 33:
			in.WriteString("MULTI\r\nPING\r\nEXEC\r\n")
			want.WriteString("+OK\r\n+PONG\r\n+OK\r\n")
		default:
			text := fmt.Sprint("no ", i, strings.Repeat(".", i%97))
			fmt.Fprintf(&in, "*2\r\n$4\r\nECHO\r\n$%d\r\n%s\r\n", len(text), text)
			fmt.Fprintf(&want, "$%d\r\n%s\r\n", len(text), text)
		}
	}
	for _, piece := range []int{7, 1000, 9000, in.Len()} {
		t.Run(fmt.Sprint(piece), func(t *testing.T) {
			t.Parallel()
			g := h.connect(t)
			go func() {
				for p := in.Bytes(); len(p) > 0; {
					n := min(piece, len(p))
					if _, err := g.Write(p[:n]); err != nil {
						return // the reader reports it
					}
					p = p[n:]
				}
				g.Conn.(interface{ CloseWrite() error }).CloseWrite()
			}()
			got, err := io.ReadAll(g.in)
			if err != nil || !bytes.Equal(got, want.Bytes()) {
				i := 0
				for i < min(len(got), want.Len()) && got[i] == want.Bytes()[i] {
					i++
				}
				t.Errorf("%d of %d bytes, %v; they differ at %d: %.60q", len(got), want.Len(), err, i, got[i:])
			}
		})
	}
}

func TestSession_KeepsUnreadReplies(t *testing.T) {
	h := open(t, Options{})
	g := h.connect(t)
	const n, size = 24, 1 << 20
	value := counted(size)
	go io.WriteString(g, strings.Repeat(fmt.Sprintf("BIG %d\r\n", size), n)+"PING\r\n")
	for late := time.Now().Add(soon); h.seen.Load() < n+2; time.Sleep(time.Millisecond) { // with the greeting and PING
		if time.Now().After(late) {
			t.Fatalf("the upstream got %d commands of a client that does not read", h.seen.Load())
		}
	}
	for range n {
		g.want(t, fmt.Sprintf("$%d\r\n", size))
		got := make([]byte, size+2)
		if _, err := io.ReadFull(g.in, got); err != nil || !bytes.Equal(got[:size], value) {
			t.Fatal("a value did not arrive as it was sent", err)
		}
	}
	g.want(t, "+PONG\r\n")
}

func TestSession_UnreadRepliesBeyondLimit(t *testing.T) {
	h := open(t, Options{MaxOutput: 1 << 20})
	g, other := h.connect(t), h.connect(t)
	go io.WriteString(g, strings.Repeat("BIG 1000000\r\n", 40))
	for late := time.Now().Add(soon); h.clients.Load() > 1; time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			t.Fatal("a client that does not read is still connected")
		}
	}
	other.send(t, "PING\r\n")
	other.want(t, "+PONG\r\n")
}

// waitingLocks are a LOCK that asks once and one that waits.
var waitingLocks = []string{"LOCK job 30s\r\n", "LOCK job 30s WAIT 1m\r\n"}

// With and without input behind it.
func TestSession_WaitingLockNoticesHangUp(t *testing.T) {
	for name, behind := range map[string]string{
		"": "", "PING": "PING\r\n", "half a command": "*2\r\n$4\r\nEC", "800 KB": strings.Repeat("PING\r\n", 800<<10/6),
		"what must wait": "PING\r\nUNLOCK a me\r\nSELECT 1\r\nPING\r\n", "a LOCK": "LOCK job2 30s WAIT 1m\r\nPING\r\n", "a fault": "*1\r\n!oops\r\n",
		"a large command": fmt.Sprintf("*2\r\n$4\r\nECHO\r\n$%d\r\n%s\r\nPING\r\n", 900<<10, counted(900<<10)),
	} {
		for _, lock := range waitingLocks {
			t.Run(lock+name, func(t *testing.T) {
				t.Parallel()
				h := open(t, Options{})
				g := h.connect(t)
				g.send(t, lock+behind)
				<-h.locks.asked
				g.Close()
				select {
				case <-h.locks.left:
				case <-time.After(soon):
					t.Fatal("the lock is still wanted")
				}
			})
		}
	}
}

// Commands about other locks are executed at once, also those that come in pieces; the
// replies come in order, also to a client that has closed its sending half.
func TestSession_CommandsBehindWaitingLock(t *testing.T) {
	h := open(t, Options{})
	g := h.connect(t)
	g.send(t, "LOCK job 30s WAIT 1m\r\nPING\r\nUNLOCK other me\r\n")
	<-h.locks.asked
	<-h.locks.unlocked
	for _, c := range "ECHO piece by piece\r\nUNLOCK other me\r\n" {
		g.send(t, string(c))
	}
	<-h.locks.unlocked
	text := counted(3 << 20)
	go func() {
		fmt.Fprintf(g, "*2\r\n$4\r\nECHO\r\n$%d\r\n%s\r\nUNLOCK other me\r\n*1\r\n!oops\r\n", len(text), text)
		g.Conn.(interface{ CloseWrite() error }).CloseWrite()
	}()
	const lost = "-LOCKLOST the lock is no longer held by this owner; what it protected may be compromised\r\n"
	g.want(t, "-ERR LOCK was given up: the client closed its side of the connection\r\n+PONG\r\n"+lost+
		"$5\r\npiece\r\n"+lost+fmt.Sprintf("$%d\r\n%s\r\n", len(text), text)+lost+
		"-ERR Protocol error: expected '$', got '!'\r\n")
	g.wantEnd(t)
}

// The upstream's connection is closed: it would give an element to nobody.
func TestSession_BlockedCommandEndsWithClient(t *testing.T) {
	h := open(t, Options{})
	g := h.connect(t)
	g.send(t, "BLPOP q 0\r\n")
	up := h.awaitSilence(t)
	g.Close()
	up.NetConn().SetReadDeadline(time.Now().Add(soon))
	if _, err := up.NetConn().Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("reading what the proxy says on: %v", err)
	}
}

// TestSession_NothingRunsBehindWhatWasGivenUp: a client closes its sending half while a command blocks, so that the SELECT behind
// it is given up. What comes behind that would run in another database, and its replies would be taken for others'.
func TestSession_NothingRunsBehindWhatWasGivenUp(t *testing.T) {
	h := open(t, Options{})
	g := h.connect(t)
	g.send(t, "BLPOP q 0\r\n")
	up := h.awaitSilence(t)
	g.send(t, "SELECT 1\r\nECHO other-database\r\n")
	g.Conn.(interface{ CloseWrite() error }).CloseWrite()
	up.NetConn().SetReadDeadline(time.Now().Add(soon))
	if n, err := up.NetConn().Read(make([]byte, 100)); n > 0 || err != io.EOF {
		t.Errorf("%d bytes came behind BLPOP, %v", n, err)
	}
	g.wantEnd(t)
}

func TestSession_ProtocolErrorBehindPipeline(t *testing.T) {
	h := open(t, Options{})
	g := h.connect(t)
	g.send(t, "ECHO a\r\nSELECT 1\r\nECHO b\r\n*1\r\n!oops\r\nECHO c\r\n")
	g.want(t, "$1\r\na\r\n+OK\r\n$1\r\nb\r\n-ERR Protocol error: expected '$', got '!'\r\n")
	g.wantEnd(t)
}

func TestSession_QuitEndsPipeline(t *testing.T) {
	for _, before := range []string{"", "SELECT 1\r\n"} {
		h := open(t, Options{})
		g := h.connect(t)
		g.send(t, before+"ECHO a\r\nQUIT\r\nECHO b\r\n")
		want := "$1\r\na\r\n+OK\r\n"
		if before != "" {
			want = "+OK\r\n" + want
		}
		g.want(t, want)
		g.wantEnd(t)
	}
}

// A reader that waits for room in the backlog does not hold up the drain.
func TestDrain_FullBacklog(t *testing.T) {
	h := open(t, Options{DrainTimeout: calm})
	g := h.connect(t)
	g.send(t, "BLPOP q 0\r\nSELECT 1\r\n")
	h.awaitSilence(t)
	go io.WriteString(g, strings.Repeat("PING\r\n", 4*maxBacklog/6))
	time.Sleep(4 * calm)
	h.end()
	h.wantEnded(t)
}

func TestSession_FullBacklogNoticesHangUp(t *testing.T) {
	for _, lock := range waitingLocks {
		t.Run(lock, func(t *testing.T) {
			// Over TCP the end may wait, behind what was sent, for room in a full socket,
			// and cannot be noticed before; how much room there is differs from machine to machine.
			h := open(t, Options{Listen: filepath.Join(t.TempDir(), "proxy.sock")})
			g := h.connect(t)
			g.send(t, lock)
			<-h.locks.asked
			g.SetWriteDeadline(time.Now().Add(20 * calm)) // by then nothing takes any more
			io.WriteString(g, strings.Repeat("PING\r\n", 4*maxBacklog/6))
			g.Close()
			select {
			case <-h.locks.left:
			case <-time.After(soon):
				t.Fatal("the lock is still wanted")
			}
		})
	}
}

// An upstream that does not read holds up those who write to it, but not the drain.
func TestDrain_HungUpstream(t *testing.T) {
	h := open(t, Options{DrainTimeout: calm})
	g := h.connect(t)
	g.send(t, "SILENCE\r\n") // the upstream reads no more on this connection
	h.awaitSilence(t)
	g.SetWriteDeadline(time.Now().Add(20 * calm)) // by then nothing takes any more
	io.WriteString(g, strings.Repeat(fmt.Sprintf("*2\r\n$4\r\nECHO\r\n$%d\r\n%s\r\n", 1<<20, counted(1<<20)), 64))
	h.end()
	h.wantEnded(t)
}
