package upstream

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// TestFlushes_OneWrite: what is gathered for a connection is written at once by Flush, in the order in which it was sent, also
// behind what others have sent meanwhile.
func TestFlushes_OneWrite(t *testing.T) {
	p := newPool(t, newFakeServer(t, echo).addr, PoolOptions{})
	c := sharedConn(t, p)
	a, b := newRecordingSink(), newRecordingSink()
	before := c.traffic.Writes.Load()
	var f Flushes
	for i := range 10 {
		if err := c.SendLater(&f, fmt.Appendf(nil, "a%d\r\n", i), 1, a); err != nil {
			t.Fatal(err)
		}
		if err := c.Send(fmt.Appendf(nil, "b%d\r\n", i), 1, b); err != nil {
			t.Fatal(err)
		}
	}
	if n := c.traffic.Writes.Load() - before; n != 0 {
		t.Errorf("%d writes before Flush", n)
	}
	f.Flush()
	a.until(t, "a's replies", func() bool { return a.ended == 10 })
	b.until(t, "b's replies", func() bool { return b.ended == 10 })
	if n := c.traffic.Writes.Load() - before; n != 1 {
		t.Errorf("%d writes, not 1", n)
	}
	if f.TakeCongested() != nil {
		t.Error("congested")
	}
	if err := c.Send([]byte("after\r\n"), 1, a); err != nil {
		t.Fatal(err)
	}
	a.until(t, "what is sent as usual", func() bool { return strings.HasSuffix(a.text, "+after\r\n") })
}

// TestFlushes_ManySenders mixes senders that gather, some of them long commands, with others.
func TestFlushes_ManySenders(t *testing.T) {
	p := newPool(t, newFakeServer(t, echo).addr, PoolOptions{})
	c := sharedConn(t, p)
	var wg sync.WaitGroup
	for s := range 20 {
		wg.Go(func() {
			h, f := newRecordingSink(), (*Flushes)(nil)
			if s%2 == 0 {
				f = &Flushes{}
			}
			want := ""
			for i := range 200 {
				word := fmt.Sprintf("%d.%d", s, i)
				if i%10 == 0 {
					word += strings.Repeat("x", 2*directSize)
				}
				want += "+" + word + "\r\n"
				if err := c.SendLater(f, []byte(word+"\r\n"), 1, h); err != nil {
					t.Error(err)
				}
				if f != nil && i%7 == 0 {
					f.Flush()
				}
			}
			if f != nil {
				f.Flush()
			}
			h.until(t, "replies", func() bool { return h.ended == 200 })
			if h.text != want {
				t.Error("replies differ from what was asked")
			}
		})
	}
	wg.Wait()
}

// TestFlushes_UpstreamDoesNotRead: an upstream that takes nothing blocks neither SendLater nor Flush, and is reported as
// congested; when it reads, it gets everything in order.
func TestFlushes_UpstreamDoesNotRead(t *testing.T) {
	for _, size := range []int{directSize - 100, 32 << 10} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			goOn := make(chan struct{})
			go func() {
				nc, err := ln.Accept()
				if err != nil {
					return
				}
				f := &fakeServer{answer: func(word string) string {
					if word == "PING" {
						return echo(word)
					}
					<-goOn
					return "+" + word[:8] + "\r\n"
				}}
				f.serve(nc)
			}()
			p := newPool(t, ln.Addr().String(), PoolOptions{})
			c := sharedConn(t, p)
			h := &orderSink{bad: -1, all: make(chan struct{})}
			var f Flushes
			n := 0
			var wait func()
			for ; wait == nil; n++ {
				p := fmt.Appendf(nil, "%08d%s\r\n", n, strings.Repeat("x", size-10))
				if err := c.SendLater(&f, p, 1, h); err != nil {
					t.Fatal(err)
				}
				clear(p) // SendLater has copied what it could not write
				f.Flush()
				wait = f.TakeCongested()
				if n*size > 4*maxQueued {
					t.Fatal("it is not congested")
				}
			}
			h.expect(n)
			close(goOn)
			wait()
			c.mu.Lock()
			if len(c.queue) > maxQueued {
				t.Errorf("%d bytes are queued after the wait", len(c.queue))
			}
			c.mu.Unlock()
			<-h.all
			if h.bad >= 0 {
				t.Errorf("reply %d is not that to command %d", h.bad, h.bad)
			}
		})
	}
}

// A watchedSocket is a connection that calls written after each write.
type watchedSocket struct {
	*net.TCPConn
	written func()
}

func (s watchedSocket) SyscallConn() (syscall.RawConn, error) {
	raw, err := s.TCPConn.SyscallConn()
	return watchedWrites{raw, s.written}, err
}

type watchedWrites struct {
	syscall.RawConn
	written func()
}

func (w watchedWrites) Control(f func(fd uintptr)) error {
	defer w.written()
	return w.RawConn.Control(f)
}

// TestFlushes_OthersGoOn: others that send more during each write do not keep Flush from returning.
func TestFlushes_OthersGoOn(t *testing.T) {
	server := newFakeServer(t, echo)
	p := newPool(t, server.addr, PoolOptions{})
	nc, err := net.Dial("tcp", server.addr)
	if err != nil {
		t.Fatal(err)
	}
	const most = 10 * flushTurns
	others, returned := newRecordingSink(), make(chan struct{})
	var c *Conn
	var writes atomic.Int64
	c, err = p.register(watchedSocket{nc.(*net.TCPConn), func() {
		if n := writes.Add(1); n > most {
			return
		} else if n > 2*flushTurns { // by now it is not Flush that writes
			select {
			case <-returned:
			case <-time.After(30 * time.Second):
				t.Error("Flush writes for others on and on")
				writes.Store(most)
			}
		}
		if err := c.SendLater(&Flushes{}, []byte("x\r\n"), 1, others); err != nil {
			t.Error(err)
		}
	}}, anonymous, true, handshakeResult{}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	var f Flushes
	if err := c.SendLater(&f, []byte("first\r\n"), 1, newRecordingSink()); err != nil {
		t.Fatal(err)
	}
	f.Flush()
	close(returned)
	others.until(t, "the others' replies", func() bool { return others.ended == most })
}

// TestFlushes_ConnectionEnds: what was gathered for a connection that ends fails, and Flush does no harm.
func TestFlushes_ConnectionEnds(t *testing.T) {
	p := newPool(t, newFakeServer(t, echo).addr, PoolOptions{})
	c := sharedConn(t, p)
	h := newRecordingSink()
	var f Flushes
	if err := c.SendLater(&f, []byte("x\r\n"), 1, h); err != nil {
		t.Fatal(err)
	}
	c.Close()
	h.until(t, "the failure", func() bool { return len(h.fails) == 1 })
	f.Flush()
	if err := c.SendLater(&f, []byte("y\r\n"), 1, h); err == nil { // the reader has still to settle
		h.until(t, "the second failure", func() bool { return len(h.fails) == 2 })
	}
	f.Flush()
}

// An orderSink wants the replies +00000000, +00000001 and so on.
type orderSink struct {
	mu       sync.Mutex
	text     []byte
	n, total int           // replies that have come, and that will; total 0: not known
	bad      int           // the first wrong one; -1: none
	all      chan struct{} // closed when all have come
}

func (o *orderSink) expect(total int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.total = total
}

func (o *orderSink) Deliver(_ *Conn, p []byte, _ int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	const length = len("+00000000\r\n")
	for o.text = append(o.text, p...); len(o.text) >= length; o.text = o.text[length:] {
		if o.bad < 0 && string(o.text[:length]) != fmt.Sprintf("+%08d\r\n", o.n) {
			o.bad = o.n
		}
		if o.n++; o.n == o.total {
			close(o.all)
		}
	}
}

func (o *orderSink) Fail(*Conn, int, bool, error) {}
