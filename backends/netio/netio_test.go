package netio

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// pair is the two ends of a loopback connection, both closed at the end of the test.
func pair(t testing.TB) (a, b net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	a, err = net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err = ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

func TestSetUserTimeout(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs TCP_USER_TIMEOUT")
	}
	a, b := pair(t)
	Wrap(a).SetUserTimeout(300 * time.Millisecond)
	a.SetWriteDeadline(time.Now().Add(20 * time.Second))
	var err error
	for p := make([]byte, 1<<20); err == nil; {
		_, err = a.Write(p)
	}
	if !errors.Is(err, syscall.ETIMEDOUT) {
		t.Errorf("writing ended with %v", err)
	}
	runtime.KeepAlive(b)
}

func TestRead_Waits(t *testing.T) {
	a, b := pair(t)
	c := Wrap(a)
	go func() {
		time.Sleep(20 * time.Millisecond)
		b.Write([]byte("late"))
	}()
	buf := make([]byte, 16)
	if n, err := c.Read(buf); err != nil || string(buf[:n]) != "late" {
		t.Fatalf("got %q, %v", buf[:n], err)
	}
	if n, err := c.Read(nil); n != 0 || err != nil {
		t.Errorf("an empty read: %d, %v", n, err)
	}
}

// lent is a Buffer, and how often it was released.
type lent struct {
	p        [16]byte
	released int
}

func (l *lent) Space() []byte { return l.p[:] }
func (l *lent) Release()      { l.released++ }

// TestReadNow reads what has arrived after the deadline, and waits for nothing.
func TestReadNow(t *testing.T) {
	a, b := pair(t)
	c := Wrap(a)
	a.SetReadDeadline(time.Unix(1, 0))
	var buf lent
	if n, _, err := c.ReadNow(&buf); n != 0 || err != nil || buf.released != 1 {
		t.Errorf("nothing has arrived: %d, %v, released %d times", n, err, buf.released)
	}
	b.Write([]byte("in time"))
	var n int
	var err error
	for end := time.Now().Add(10 * time.Second); n == 0 && err == nil && time.Now().Before(end); {
		n, _, err = c.ReadNow(&buf)
	}
	if err != nil || string(buf.p[:n]) != "in time" {
		t.Errorf("got %q, %v", buf.p[:n], err)
	}
	if n, err := c.ReadInto(&buf); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a read that may wait: %d, %v", n, err)
	}
	b.Close()
	for end := time.Now().Add(10 * time.Second); err == nil && time.Now().Before(end); {
		n, _, err = c.ReadNow(&buf)
	}
	if n != 0 || err != io.EOF {
		t.Errorf("at the end: %d, %v", n, err)
	}
	left, _ := net.Pipe()
	if n, _, err := Wrap(left).ReadNow(&buf); n != 0 || err != nil {
		t.Errorf("no socket: %d, %v", n, err)
	}
}

func TestRead_Ends(t *testing.T) {
	t.Run("deadline", func(t *testing.T) {
		a, _ := pair(t)
		c := Wrap(a)
		c.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
	})
	t.Run("closed by the peer", func(t *testing.T) {
		a, b := pair(t)
		b.Close()
		if _, err := Wrap(a).Read(make([]byte, 1)); err != io.EOF {
			t.Error(err)
		}
	})
	t.Run("reset by the peer", func(t *testing.T) {
		a, b := pair(t)
		b.(*net.TCPConn).SetLinger(0)
		b.Close()
		if _, err := Wrap(a).Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Error(err)
		}
	})
	t.Run("closed by another goroutine", func(t *testing.T) {
		a, _ := pair(t)
		c := Wrap(a)
		time.AfterFunc(10*time.Millisecond, func() { c.Close() })
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
}

func TestHungUp(t *testing.T) {
	a, b := pair(t)
	c := Wrap(a)
	b.Write([]byte("unread"))
	if c.HungUp() {
		t.Error("hung up, though the peer is there")
	}
	b.(*net.TCPConn).CloseWrite()
	for late := time.Now().Add(5 * time.Second); !c.HungUp(); time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			t.Fatal("not noticed that the peer closed its sending half")
		}
	}
}

func TestTryWrite_FullSocket(t *testing.T) {
	a, b := pair(t)
	c := Wrap(a)
	if !c.CanTryWrite() {
		t.Fatal("a TCP connection cannot be tried")
	}
	sent := bytes.Repeat([]byte("0123456789abcdef"), 4<<20)
	n, err := c.TryWrite(sent)
	if err != nil || n == 0 || n == len(sent) {
		t.Fatalf("tried %d bytes on a peer that does not read: took %d, %v", len(sent), n, err)
	}
	if more, err := c.TryWrite(sent[n:]); err != nil || more != 0 {
		t.Fatalf("a full socket took %d more, %v", more, err)
	}
	got := make([]byte, n)
	if _, err := io.ReadFull(b, got); err != nil || !bytes.Equal(got, sent[:n]) {
		t.Fatalf("what was taken did not arrive: %v", err)
	}
	b.Close()
	for err == nil {
		_, err = c.TryWrite(sent[:1024])
	}
	if !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
		t.Error(err)
	}
}

func TestWrap_NotASocket(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	c := Wrap(a)
	if c.CanTryWrite() {
		t.Error("a pipe in memory can be tried")
	}
	go b.Write([]byte("x"))
	buf := make([]byte, 4)
	if n, err := c.Read(buf); n != 1 || err != nil {
		t.Errorf("read %d, %v", n, err)
	}
}

func TestReadAndTryWrite_AllocateNothing(t *testing.T) {
	a, b := pair(t)
	c, d := Wrap(a), Wrap(b)
	buf, msg := make([]byte, 64), []byte("ping")
	allocs := testing.AllocsPerRun(100, func() {
		c.TryWrite(msg)
		d.Read(buf)
	})
	if allocs != 0 {
		t.Errorf("a write and a read allocate %v times", allocs)
	}
}
