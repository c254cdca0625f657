package upstream

import (
	"errors"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/lockproxy/lockproxy/backends/netio"
	"github.com/lockproxy/lockproxy/backends/resp"
)

// A Sink takes the replies to the commands that it sent. Its methods are called on
// the connection's reading goroutine, in the order of the commands, and must not
// block: the replies of all other senders wait behind them.
type Sink interface {
	// Deliver takes bytes of replies, of which ended end in p; the last one may be
	// incomplete, and goes on in the next call. All are replies to the commands of one
	// Send. p is valid during the call.
	Deliver(c *Conn, p []byte, ended int)
	// Fail reports that c broke, and that pending replies to one Send will not come.
	// cut reports whether a part of the first of them was delivered.
	Fail(c *Conn, pending int, cut bool, err error)
}

// An Owner is the Sink of a private connection.
type Owner interface {
	Sink
	// Full is nil if the client takes more bytes. Else it is a channel, closed when the
	// client does again; until then the connection is not read, so that the limits of
	// the upstream apply to a client that does not read.
	Full() <-chan struct{}
}

// A BatchSink is a Sink that collects what is delivered until EndBatch, which is
// called on the connection's reading goroutine; see [Conn.Batch].
type BatchSink interface{ EndBatch() }

const (
	// maxQueued is the number of bytes in queue above which Send blocks.
	maxQueued = 32 << 20
	// directSize is the size from which commands are written without a copy, if no
	// other goroutine is writing.
	directSize = 4 << 10
	// maxReused bounds the buffer that is kept for the next commands.
	maxReused = 1 << 20
	// flushTurns bounds how many buffers a sender's goroutine writes for the others.
	flushTurns = 16
)

// A Conn relays commands to one Redis over one connection, and its replies to the
// senders. A shared Conn carries the commands of many clients; a private one has the
// state of a single client, and may be switched to passthrough. Send, Close and the
// methods that report are safe for concurrent use.
//
// Every send that returns nil has one outcome: its replies are delivered in full, or
// Fail is called. The argument has three parts:
//
//   - Flush. A sender appends its pending replies to sent and its bytes to queue in one
//     critical section of mu, so both have the same order. One goroutine writes at a
//     time, as flushing tells: the sender that sets it. It clears it in the critical
//     section in which it finds queue empty, so that bytes queued while it is set are
//     always written. Bytes that skip queue are written by that goroutine as well, and
//     only if queue was empty when it set flushing.
//   - Route. The reader takes over sent when it has no pending replies left. The entry
//     of a reply is in sent before its command is written, so a reply without an entry
//     is unsolicited.
//   - Settle. Once err is set nothing more is queued. Sends may still append to sent, until
//     the reader sets settled, in the critical section in which it finds sent empty. It
//     calls Fail for all that it took over before; later sends return err.
//
// A connection's goroutines are its reader, which its Pool starts and awaits, and at
// most one that flushes, when a sender has written flushTurns times or does not write itself. The reader waits
// for that one before it returns: none is started once err is set.
type Conn struct {
	// Fixed before others see the Conn.
	nc        *netio.Conn
	pool      *Pool
	shared    bool          // has many senders
	needsAuth bool          // the handshake was answered with NOAUTH
	id        int64         // the server's number of a private connection; 0: not known
	done      chan struct{} // closed when err is set
	traffic   *traffic

	broken    atomic.Bool  // err is set
	borrowers atomic.Int32 // of a shared Conn
	login     *login       // as whom it acts; nil: not known. Guarded by pool.mu

	// Guarded by mu: sending.
	mu       sync.Mutex
	room     sync.Cond      // signals that queue has shrunk, or err is set
	queue    []byte         // bytes to write
	reuse    []byte         // the buffer written last, for the next queue
	sent     []pending      // of sends that the reader has not taken over
	flushing bool           // a goroutine is writing, and will write what is queued
	sends    uint           // counts to timedSends
	flusher  sync.WaitGroup // Go is called with mu held and err nil

	// Guarded by mu: state.
	owner       Owner // of a private connection; nil for a shared or a spare one
	passthrough bool  // every byte goes to owner
	singly      bool  // in passthrough: one reply per Deliver
	retired     bool  // to be closed when the last borrower returns it
	used        bool  // since takeUsed
	err         error // why the connection ended
	settled     bool  // all pending replies have failed

	// Owned by the reading goroutine.
	owed        []pending // owed[head:] were taken over from sent and are not complete
	head        int
	scanner     resp.Scanner
	midReply    bool // the last reply delivered is not complete
	moreFollows bool // private: the rest of the bytes read is still to be delivered
	passing     bool // in passthrough
	batch       []BatchSink
}

// pending are the replies that one Send waits for. Entries of one sink are not
// merged: a Deliver does not span two sends.
type pending struct {
	to     Sink
	n      int
	sentAt int64 // by monotonicNow, if it is timed; else 0
}

var (
	errClosed      = errors.New("connection closed")
	errUnsolicited = errors.New("a reply that nobody asked for")
	errFull        = errors.New("the server takes no more commands for now")
)

func newConn(pool *Pool, nc net.Conn, shared bool) *Conn {
	c := &Conn{nc: netio.Wrap(nc), pool: pool, shared: shared, done: make(chan struct{})}
	c.room.L = &c.mu
	return c
}

// Alive reports whether the connection is not known to have ended.
func (c *Conn) Alive() bool { return !c.broken.Load() }

// HungUp reports whether the connection has ended or the server has closed it, though
// bytes from it may be unread. It asks the kernel.
func (c *Conn) HungUp() bool { return !c.Alive() || c.nc.HungUp() }

// Done is closed when the connection is known to have ended.
func (c *Conn) Done() <-chan struct{} { return c.done }

// NeedsAuth reports whether the server demanded authentication when the connection
// was opened, for an identity without credentials.
func (c *Conn) NeedsAuth() bool { return c.needsAuth }

// ID is the server's number of a private connection, as in its CLIENT commands; 0 if
// it is not known, as before Redis 6 and until a connection has authenticated.
func (c *Conn) ID() int64 { return c.id }

// Pool is the pool of the node that the connection leads to.
func (c *Conn) Pool() *Pool { return c.pool }

// MarkUsed makes the connection count as used, without sending anything.
func (c *Conn) MarkUsed() {
	c.mu.Lock()
	c.used = true
	c.mu.Unlock()
}

// Send writes commands, a copy of p, to which n replies will go to s, or the Fail of
// these. If it returns an error, nothing was sent and s is not called. It blocks only
// while the upstream does not read and more than maxQueued bytes are queued.
func (c *Conn) Send(p []byte, n int, s Sink) error { return c.SendLater(nil, p, n, s) }

// SendLater is Send which never blocks, and what it does not write at once f.Flush does. If f
// is nil it is Send.
func (c *Conn) SendLater(f *Flushes, p []byte, n int, s Sink) error {
	return c.send(p, pending{to: s, n: n}, nil, sending{use: true, gather: f})
}

// SendEach is SendLater with one reply for each of sinks.
func (c *Conn) SendEach(f *Flushes, p []byte, sinks []Sink) error {
	return c.send(p, pending{}, sinks, sending{use: true, gather: f})
}

// sending is how commands are sent.
type sending struct {
	use    bool     // the connection counts as used: they are not the pool's own
	beside bool     // another goroutine writes them: send does not block, and fails with errFull where it would
	gather *Flushes // not nil: its Flush writes them, and nothing blocks
}

// send is Send for all, and SendEach for each.
func (c *Conn) send(p []byte, all pending, each []Sink, how sending) error {
	c.mu.Lock()
	c.used = c.used || how.use
	switch {
	case len(c.queue) <= maxQueued:
	case how.beside:
		defer c.mu.Unlock()
		return errFull
	case how.gather != nil:
		how.gather.congested = c
	default:
		c.awaitRoomLocked()
	}
	if c.err != nil && c.settled {
		defer c.mu.Unlock()
		return c.err
	}
	c.expectLocked(all, each)
	if c.err != nil { // the reader will call Fail
		c.mu.Unlock()
		return nil
	}
	if len(p) >= directSize && !c.flushing && !how.beside { // queue is empty
		c.flushing = true
		c.traffic.Wrote(len(p))
		c.mu.Unlock()
		c.sendDirect(p, how)
		return nil
	}
	c.queue = append(c.queue, p...)
	if c.flushing {
		c.mu.Unlock()
		return nil
	}
	c.flushing = true
	if how.beside {
		c.flusher.Go(c.flushLater)
	}
	c.mu.Unlock()
	switch {
	case how.beside:
	case how.gather != nil:
		how.gather.conns = append(how.gather.conns, c)
	case c.shared:
		c.flushLater()
	default:
		c.flush()
	}
	return nil
}

// expectLocked notes who gets the next replies.
func (c *Conn) expectLocked(all pending, each []Sink) {
	if all.n > 0 {
		if c.sends++; c.shared && c.sends%timedSends == 0 {
			all.sentAt = monotonicNow()
		}
		c.sent = append(c.sent, all)
	}
	for _, s := range each {
		c.sent = append(c.sent, pending{to: s, n: 1})
	}
}

// sendDirect writes p past the queue, which is empty, and then what has been queued meanwhile. The caller has set flushing.
func (c *Conn) sendDirect(p []byte, how sending) {
	if how.gather != nil {
		if c.writeNow(p, false) {
			c.flushNow()
		}
		return
	}
	if err := c.write(p); err != nil {
		c.end(err)
	}
	c.flush()
}

// flushLater is flush, but lets senders that are ready to run queue their commands first, so that
// one write carries all.
func (c *Conn) flushLater() {
	runtime.Gosched() // returns at once if none is ready
	c.flush()
}

// flush writes the queue until it is empty, and clears flushing.
func (c *Conn) flush() {
	c.flushBy(func(p []byte) bool {
		if err := c.write(p); err != nil {
			c.end(err)
		}
		return true
	})
}

// flushBy is flush; write reports false if it has left the rest to another goroutine. After flushTurns it
// goes on in a goroutine of its own: a client must not write for the others forever.
func (c *Conn) flushBy(write func(p []byte) bool) {
	for turn := 0; ; turn++ {
		c.mu.Lock()
		if len(c.queue) == 0 || c.err != nil {
			c.flushing = false
			c.mu.Unlock()
			return
		}
		if turn > flushTurns {
			c.flusher.Go(c.flush) // err is not set: the reader has yet to wait for it
			c.mu.Unlock()
			return
		}
		buf := c.queue
		c.queue, c.reuse = c.reuse[:0], nil
		c.traffic.Wrote(len(buf))
		c.room.Broadcast()
		c.mu.Unlock()

		if !write(buf) {
			return
		}
		c.mu.Lock()
		if cap(buf) <= maxReused {
			c.reuse = buf[:0]
		}
		c.mu.Unlock()
	}
}

// write is called by the goroutine that set flushing.
func (c *Conn) write(p []byte) error {
	if c.nc.CanTryWrite() {
		n, err := c.nc.TryWrite(p)
		if err != nil || n == len(p) {
			return err
		}
		p = p[n:]
	}
	_, err := c.nc.Write(p)
	return err
}

// StartPassthrough makes a private connection deliver every byte to its owner, also
// without pending replies, of which there must be none; commands are then sent with
// n = 0. It cannot be undone.
func (c *Conn) StartPassthrough() {
	c.mu.Lock()
	c.passthrough = true
	c.mu.Unlock()
}

// DeliverSingly makes a passthrough connection deliver one reply or message at a time,
// or, as it does at first, all that came together.
func (c *Conn) DeliverSingly(on bool) {
	c.mu.Lock()
	c.singly = on
	c.mu.Unlock()
}

// MidReply reports, during Deliver, whether the bytes end inside a reply.
func (c *Conn) MidReply() bool { return c.midReply }

// InPassthrough reports, during Deliver, whether the connection is in passthrough: the
// bytes may be any number of replies and messages, or parts of them.
func (c *Conn) InPassthrough() bool { return c.passing }

// Kind is, during Deliver, the type byte of the last reply.
func (c *Conn) Kind() byte { return c.scanner.Kind() }

// Batch has b.EndBatch called when all bytes that were read at once have been
// delivered. It reports false, and does nothing, if they have been when this Deliver
// returns, if b is waiting for EndBatch already, and on a shared connection. It is for
// Deliver only.
func (c *Conn) Batch(b BatchSink) bool {
	if !c.moreFollows || slices.Contains(c.batch, b) {
		return false
	}
	c.batch = append(c.batch, b)
	return true
}

// Close ends the connection at once; pending replies fail. It does not wait for the
// calls of Fail, which the reader makes.
func (c *Conn) Close() { c.end(errClosed) }

// end sets err; only the first call counts. The reader wakes up and settles.
func (c *Conn) end(err error) {
	c.mu.Lock()
	if c.err == nil {
		c.err = err
		c.broken.Store(true)
		close(c.done)
		c.queue = nil
		c.room.Broadcast()
	}
	c.mu.Unlock()
	c.nc.Abort() // not Close, which may block over TLS while the caller has the pool's mu
}

// assign makes a spare connection the private one of owner, and reports whether it is
// alive.
func (c *Conn) assign(owner Owner) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.owner = owner
	return c.err == nil
}

// reason is err: nil while the connection is alive.
func (c *Conn) reason() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// borrow adds a borrower, unless the connection has ended or is retired.
func (c *Conn) borrow() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil || c.retired {
		return false
	}
	c.borrowers.Add(1)
	return true
}

// Return gives back a connection that Pool.Shared lent.
func Return(c *Conn) {
	if c.borrowers.Add(-1) == 0 {
		c.closeUnused()
	}
}

// retire closes the connection when no borrower is left, maybe at once.
func (c *Conn) retire() {
	c.mu.Lock()
	c.retired = true
	c.mu.Unlock()
	c.closeUnused()
}

// closeUnused closes the connection if it is retired and nobody borrows it.
func (c *Conn) closeUnused() {
	c.mu.Lock()
	unused := c.retired && c.borrowers.Load() == 0
	c.mu.Unlock()
	if unused {
		c.Close()
	}
}
