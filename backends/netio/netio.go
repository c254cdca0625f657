// Package netio reads and writes sockets with as little ceremony as Go allows.
//
// The sockets of the Go runtime never block, so a read or write of one is over in
// microseconds. Announcing each to the scheduler, as the syscall package does, and
// having its P handed over to another thread now and then, costs a proxy more than
// the calls themselves (docs/decisions/0004). The calls here are not announced;
// waiting still happens in the runtime's poller, with deadlines as usual.
package netio

import (
	"errors"
	"io"
	"net"
	"syscall"
	"time"
)

// A Conn reads and writes one connection. Read must not be called by two
// goroutines at once, nor Try. What is no socket of the operating system's (TLS,
// a pipe) is read as usual and cannot be tried.
type Conn struct {
	net.Conn
	raw syscall.RawConn // nil: not a socket
	r   op
	w   op
}

// A Buffer is memory to read into that is needed only while there is something to read.
type Buffer interface {
	Space() []byte // where to read to; not empty, and good until Rest
	Release()      // there is nothing to read yet: the space may be given up meanwhile
}

// op is one call in progress; it lives here so that calls do not allocate.
type op struct {
	into Buffer // not nil: where p comes from
	p    []byte
	n    int
	err  error
	call func(fd uintptr) bool
}

// mostAtOnce bounds the bytes of one unannounced call, and so its time.
const mostAtOnce = 256 << 10

// Wrap makes a Conn of nc, which keeps working as before.
func Wrap(nc net.Conn) *Conn {
	c := &Conn{Conn: nc}
	if sc, ok := nc.(syscall.Conn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			c.raw = raw
		}
	}
	c.r.call = func(fd uintptr) bool { return c.r.read(fd) }
	c.w.call = func(fd uintptr) bool { c.w.do(syscall.SYS_WRITE, fd); return true }
	return c
}

// Abort closes at once. Close over TLS says farewell first, and waits seconds for a
// peer that does not read.
func (c *Conn) Abort() error {
	if over, ok := c.Conn.(interface{ NetConn() net.Conn }); ok {
		return over.NetConn().Close()
	}
	return c.Conn.Close()
}

// CloseWrite says to the peer that nothing more will be written. What it still sends
// can be read; a connection that has no such half is closed.
func (c *Conn) CloseWrite() error {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return c.Conn.Close()
	}
	err := half.CloseWrite()
	if over, ok := c.Conn.(interface{ NetConn() net.Conn }); ok { // TLS has said its own farewell
		if under, ok := over.NetConn().(interface{ CloseWrite() error }); ok {
			return errors.Join(err, under.CloseWrite())
		}
	}
	return err
}

// SetUserTimeout makes the kernel end a TCP connection whose peer has taken nothing of
// what was written for so long: it has vanished, or does not read. It has no effect on
// other connections, nor where the kernel is not Linux.
func (c *Conn) SetUserTimeout(d time.Duration) {
	nc := c.Conn
	if over, ok := nc.(interface{ NetConn() net.Conn }); ok {
		nc = over.NetConn()
	}
	if tcp, ok := nc.(*net.TCPConn); ok {
		if raw, err := tcp.SyscallConn(); err == nil {
			raw.Control(func(fd uintptr) { setTCPUserTimeout(fd, d) })
		}
	}
}

// CanTryWrite says whether Try can be used.
func (c *Conn) CanTryWrite() bool { return c.raw != nil }

// HungUp says that the peer has closed its sending half, or more, though what it
// sent before may not have been read. It is false for what is no socket.
func (c *Conn) HungUp() bool {
	hungUp := false
	if c.raw != nil {
		c.raw.Control(func(fd uintptr) { hungUp = pollHangUp(fd) })
	}
	return hungUp
}

// Read is net.Conn's.
func (c *Conn) Read(p []byte) (int, error) {
	if c.raw == nil || len(p) == 0 {
		return c.Conn.Read(p)
	}
	c.r.p = p
	return c.read()
}

// ReadInto reads into the space of b, as Read does. While it waits for something to
// come, b rests.
func (c *Conn) ReadInto(b Buffer) (int, error) {
	if c.raw == nil {
		return c.Conn.Read(b.Space())
	}
	c.r.into = b
	return c.read()
}

func (c *Conn) read() (int, error) {
	c.r.n, c.r.err = 0, nil
	err := c.raw.Read(c.r.call)
	c.r.p, c.r.into = nil, nil
	switch {
	case err != nil:
		return 0, err
	case c.r.err != nil:
		return 0, &net.OpError{Op: "read", Net: "tcp", Err: c.r.err}
	case c.r.n == 0:
		return 0, io.EOF
	}
	return c.r.n, nil
}

// read makes one call, and is false if there was nothing to read.
func (o *op) read(fd uintptr) bool {
	if o.into != nil {
		o.p = o.into.Space()
	}
	if o.do(syscall.SYS_READ, fd) || o.err != syscall.EAGAIN {
		return true
	}
	if o.into != nil {
		o.p = nil
		o.into.Release()
	}
	return false
}

// TryWrite writes what the socket takes at once, which may be nothing.
func (c *Conn) TryWrite(p []byte) (n int, err error) {
	for n < len(p) {
		c.w.p, c.w.n, c.w.err = p[n:], 0, nil
		err = c.raw.Write(c.w.call)
		c.w.p = nil
		if err == nil {
			err = c.w.err
		}
		if err == syscall.EAGAIN {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		n += c.w.n
		if c.w.n < min(len(p), mostAtOnce) {
			return n, nil
		}
	}
	return n, nil
}
