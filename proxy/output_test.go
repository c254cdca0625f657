package proxy

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/metrics"
	"github.com/lockproxy/lockproxy/backends/netio"
)

// soon is how long what must happen may take on a busy machine.
const soon = 30 * time.Second

// ends is an output and the client it writes to.
func ends(t *testing.T, limit int) (*output, net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	client.SetReadDeadline(time.Now().Add(soon))
	return newOutput(netio.Wrap(server), new(metrics.Traffic), limit), client
}

// counted is n bytes of which no two stretches are alike.
func counted(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i>>16) ^ byte(i>>8) ^ byte(i*7)
	}
	return p
}

// Writing to a client that does not read returns at once, and the client gets everything
// in order when it reads, Close or not.
func TestOutput_QueuesUnreadBytes(t *testing.T) {
	out, client := ends(t, 64<<20)
	sent := counted(12 << 20)
	for p := sent; len(p) > 0; {
		n := min(len(p), 1<<20+17)
		if !out.Write(p[:n]) {
			t.Fatal("refused below the limit")
		}
		p = p[n:]
	}
	out.Close()
	if out.Write([]byte("more")) {
		t.Error("takes more after Close")
	}
	got, err := io.ReadAll(client)
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d of %d bytes arrived as they were sent: %v", len(got), len(sent), err)
	}
}

func TestOutput_Limit(t *testing.T) {
	const limit = 1 << 20
	out, client := ends(t, limit)
	piece := counted(256 << 10)
	total := 0
	for out.Write(piece) {
		if total += len(piece); total > 256<<20 {
			t.Fatal("a client that does not read never fills")
		}
	}
	if !out.Dead() {
		t.Error("refused, but not dead")
	}
	io.Copy(io.Discard, client) // ends, since the connection has
}

func TestOutput_ClientGone(t *testing.T) {
	out, client := ends(t, 1<<20)
	client.Close()
	for late := time.Now().Add(soon); out.Write([]byte("x")); time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			t.Fatal("never noticed")
		}
	}
	if !out.Dead() {
		t.Error("refused, but not dead")
	}
}

func TestOutput_Abort(t *testing.T) {
	out, client := ends(t, 64<<20)
	for piece := counted(1 << 20); out.Write(piece); {
		out.mu.Lock()
		kept := len(out.queue)
		out.mu.Unlock()
		if kept > 0 {
			break
		}
	}
	out.Abort()
	out.Close()
	out.Abort()
	if out.Write([]byte("x")) || !out.Dead() {
		t.Error("alive after Abort")
	}
	io.Copy(io.Discard, client) // ends, since the connection has
}

// There is room when the client reads, or at the end of the connection.
func TestOutput_FullUntilThereIsRoom(t *testing.T) {
	for name, empty := range map[string]func(*output, net.Conn){
		"read":  func(_ *output, client net.Conn) { go io.Copy(io.Discard, client) },
		"ended": func(o *output, _ net.Conn) { o.Abort() },
	} {
		t.Run(name, func(t *testing.T) {
			out, client := ends(t, 64<<20)
			if out.Full() != nil {
				t.Fatal("full from the start")
			}
			room := (<-chan struct{})(nil)
			for piece := counted(1 << 20); room == nil; room = out.Full() {
				if !out.Write(piece) {
					t.Fatal("reaches the limit before it is full")
				}
			}
			select {
			case <-room:
				t.Fatal("room, though nobody has read")
			default:
			}
			empty(out, client)
			select {
			case <-room:
			case <-time.After(soon):
				t.Fatal("no room")
			}
		})
	}
}

// A write of which a full socket takes nothing does not count.
func TestOutput_CountsWrites(t *testing.T) {
	out, client := ends(t, 64<<20)
	full := false
	for p := counted(64 << 10); !full; { // until the socket takes nothing at once
		n, err := out.nc.TryWrite(p)
		if err != nil {
			t.Fatal(err)
		}
		full = n == 0
	}
	if !out.Write([]byte("x")) {
		t.Fatal("refused")
	}
	go io.Copy(io.Discard, client)
	out.Close()
	out.Wait()
	if n, bytes := out.traffic.Writes.Load(), out.traffic.BytesOut.Load(); n != 1 || bytes != 1 {
		t.Errorf("%d writes of %d bytes", n, bytes)
	}
}
