package upstream

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/backends"
)

// A stuckConn is a connection whose writes call onWrite while one goroutine makes
// them, and then take a minute, also when the connection is closed.
type stuckConn struct {
	net.Conn // nil: no other method is called
	onWrite  func()
	writes   int
	writing  atomic.Bool
	close    sync.Once
	closed   chan struct{}
}

func (c *stuckConn) Read([]byte) (int, error) { <-c.closed; return 0, net.ErrClosed }
func (c *stuckConn) Close() error             { c.close.Do(func() { close(c.closed) }); return nil }

func (c *stuckConn) Write(p []byte) (int, error) {
	c.writing.Store(true)
	defer c.writing.Store(false)
	if c.writes++; c.writes <= flushTurns+1 {
		c.onWrite()
		return len(p), nil
	}
	time.Sleep(time.Minute)
	return 0, net.ErrClosed
}

func TestPool_CloseWaitsForTheFlushingGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := backends.Parse("redis://h:1")
		if err != nil {
			t.Fatal(err)
		}
		p := NewPool(PoolOptions{Server: s})
		nc := &stuckConn{closed: make(chan struct{})}
		c, err := p.register(nc, anonymous, true, handshakeResult{}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		sink := newRecordingSink()
		send := func() {
			if err := c.Send([]byte("x"), 1, sink); err != nil {
				t.Error(err)
			}
		}
		nc.onWrite = send
		send() // flushes for the others, and hands over to a goroutine
		synctest.Wait()
		if !nc.writing.Load() {
			t.Fatal("no goroutine writes what the sender left")
		}
		p.Close()
		if nc.writing.Load() {
			t.Error("Close returned before the goroutine that writes")
		}
		if want := flushTurns + 2; len(sink.fails) != want {
			t.Errorf("%d sends failed, want %d", len(sink.fails), want)
		}
	})
}

func TestPool_CloseWaitsForEvictedGroups(t *testing.T) {
	p := newPool(t, newFakeServer(t, echo).addr, PoolOptions{})
	g, err := p.group(anonymous, MainClass)
	if err != nil {
		t.Fatal(err)
	}
	g.mu.Lock() // as while a connection is dialed
	p.Forget(anonymous)
	closed := make(chan struct{})
	go func() { p.Close(); close(closed) }()
	select {
	case <-closed:
		t.Error("Close returned before the group was retired")
	case <-time.After(100 * time.Millisecond):
	}
	g.mu.Unlock()
	<-closed
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.evicted {
		t.Error("the group was not retired")
	}
}

// A server that accepts and is silent keeps a TLS handshake waiting.
func TestPool_CloseEndsDials(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	s, err := backends.Parse("rediss://" + ln.Addr().String() + "?dial_timeout=60s")
	if err != nil {
		t.Fatal(err)
	}
	p := NewPool(PoolOptions{Server: s})
	failed := make(chan error, 1)
	go func() {
		_, err := p.Shared(t.Context(), anonymous, MainClass, 0)
		failed <- err
	}()
	nc, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	began := time.Now()
	p.Close()
	var down *DownError
	if err := <-failed; !errors.As(err, &down) || !errors.Is(err, errClosed) {
		t.Errorf("the dial ended with %v", err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("Close took %v", took)
	}
}
