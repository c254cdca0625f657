// Package netio answers how bytes move: it reads and writes sockets at the cost of the
// system calls alone.
//
// The sockets of the Go runtime never block, so a read or write of one takes
// microseconds. The syscall package announces each call to the scheduler, which may
// hand the P over to another thread; that costs a proxy more than the call itself
// (docs/decisions/0004). The calls here are not announced. Waiting still happens in the
// runtime's poller, with deadlines as usual. The package starts no goroutines.
package netio

import (
	"errors"
	"io"
	"net"
	"syscall"
	"time"
)

// A Conn reads and writes one connection. One goroutine may read at a time, and one
// may write. A connection that is no socket of the operating system, as over TLS or a
// pipe, is read and written as net.Conn does; TryWrite must not be called for it.
type Conn struct {
	net.Conn
	raw   syscall.RawConn // nil: not a socket
	read  call            // of the goroutine that reads
	write call            // of the goroutine that writes
}

// A Buffer lends memory for reading only while there is something to read.
type Buffer interface {
	Space() []byte // where to read to; not empty, and valid until Release
	Release()      // nothing can be read now: the space may be used otherwise
}

// A Reader is what a Loop serves.
type Reader interface {
	// Ready is called on the loop's goroutine, when there may be something to read. It must not
	// block. hungUp reports that the peer has closed its sending half, or the socket has failed:
	// it is to be read to its end. If Ready returns true it is called again after the others' turn.
	Ready(hungUp bool) (more bool)
}

// A call is one system call in progress. It is part of Conn so that it does not
// allocate.
type call struct {
	into Buffer // nil: p is the caller's
	p    []byte
	n    int
	err  error
	wait func(fd uintptr) bool // for RawConn: makes the call, and reports whether not to wait; of reading
	now  func(fd uintptr)      // for RawConn: makes the call
}

// maxCall bounds the bytes of one unannounced call, and so its time.
const maxCall = 256 << 10

// Wrap makes a Conn of nc, which it does not change.
func Wrap(nc net.Conn) *Conn {
	c := &Conn{Conn: nc}
	if sc, ok := nc.(syscall.Conn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			c.raw = raw
		}
	}
	c.read.wait = func(fd uintptr) bool { return c.read.tryRead(fd) }
	c.read.now = func(fd uintptr) { c.read.tryRead(fd) }
	c.write.now = func(fd uintptr) { c.write.do(syscall.SYS_WRITE, fd) }
	return c
}

// Abort closes the connection at once. Close over TLS sends an alert first, and waits
// seconds for a peer that does not read.
func (c *Conn) Abort() error {
	return c.transport().Close()
}

// transport is the connection itself or, over TLS, the one that carries it.
func (c *Conn) transport() net.Conn {
	if over, ok := c.Conn.(interface{ NetConn() net.Conn }); ok {
		return over.NetConn()
	}
	return c.Conn
}

// CloseWrite tells the peer that nothing more will be written. Bytes from the peer can
// still be read. A connection without half-close is closed.
func (c *Conn) CloseWrite() error {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return c.Conn.Close()
	}
	err := half.CloseWrite()
	if under, ok := c.transport().(interface{ CloseWrite() error }); ok && under != half { // half closed its TLS part alone
		return errors.Join(err, under.CloseWrite())
	}
	return err
}

// SetUserTimeout makes the kernel end a TCP connection when its peer has not
// acknowledged written bytes for d: the peer has vanished, or does not read. It has no
// effect on other connections, and on other systems than Linux.
func (c *Conn) SetUserTimeout(d time.Duration) {
	if tcp, ok := c.transport().(*net.TCPConn); ok {
		if raw, err := tcp.SyscallConn(); err == nil {
			raw.Control(func(fd uintptr) { setTCPUserTimeout(fd, d) })
		}
	}
}

// CanTryWrite reports whether TryWrite can be used.
func (c *Conn) CanTryWrite() bool { return c.raw != nil }

// HungUp reports whether the peer has closed its sending half, or more, though bytes
// from it may be unread. It is false for a connection that is no socket.
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
	c.read.p = p
	return c.readSocket()
}

// ReadInto reads into the space of b, as Read does. The space is released while
// nothing can be read.
func (c *Conn) ReadInto(b Buffer) (int, error) {
	if c.raw == nil {
		return c.Conn.Read(b.Space())
	}
	c.read.into = b
	return c.readSocket()
}

// ReadNow is ReadInto for what has arrived, whatever the deadline: it returns 0 and no error if nothing has. more reports
// that the space was filled, so that more may have arrived. A connection that is no socket is not read.
func (c *Conn) ReadNow(b Buffer) (n int, more bool, err error) {
	if c.raw == nil {
		return 0, false, nil
	}
	c.read.into, c.read.n, c.read.err = b, 0, nil
	failed := c.raw.Control(c.read.now)
	more = c.read.n > 0 && c.read.n == min(len(c.read.p), maxCall)
	n, err = c.endRead(failed)
	return n, more, err
}

func (c *Conn) readSocket() (int, error) {
	c.read.n, c.read.err = 0, nil
	return c.endRead(c.raw.Read(c.read.wait))
}

// endRead returns what a read has come to; err is that of its RawConn.
func (c *Conn) endRead(err error) (int, error) {
	c.read.p, c.read.into = nil, nil
	switch {
	case err != nil:
		return 0, err
	case c.read.err == syscall.EAGAIN: // only ReadNow does not wait
		return 0, nil
	case c.read.err != nil:
		return 0, &net.OpError{Op: "read", Net: "tcp", Err: c.read.err}
	case c.read.n == 0:
		return 0, io.EOF
	}
	return c.read.n, nil
}

// tryRead makes one call. It reports false if there was nothing to read.
func (c *call) tryRead(fd uintptr) bool {
	if c.into != nil {
		c.p = c.into.Space()
	}
	if c.do(syscall.SYS_READ, fd) || c.err != syscall.EAGAIN {
		return true
	}
	if c.into != nil {
		c.p = nil
		c.into.Release()
	}
	return false
}

// TryWrite writes as much of p as the socket takes without waiting, which may be
// nothing. CanTryWrite must be true.
func (c *Conn) TryWrite(p []byte) (n int, err error) {
	for n < len(p) {
		c.write.p, c.write.n, c.write.err = p[n:], 0, nil
		err = c.raw.Control(c.write.now)
		c.write.p = nil
		if err == nil {
			err = c.write.err
		}
		if err == syscall.EAGAIN {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		n += c.write.n
		if c.write.n < min(len(p), maxCall) {
			return n, nil
		}
	}
	return n, nil
}
