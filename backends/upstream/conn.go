package upstream

import (
	"errors"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/backends/netio"
	"github.com/lockproxy/lockproxy/backends/resp"
)

// A Sink takes the replies of the commands it sent. Its methods are called on
// the connection's reading goroutine, in the order of the commands, and must not
// block: everybody else's replies wait behind them.
type Sink interface {
	// Deliver hands over bytes of replies, of which ended end in p; the last one
	// may be incomplete, and goes on in the next call. All are replies to the
	// commands of one Send. p is valid during the call.
	Deliver(c *Conn, p []byte, ended int)
	// Fail says that c broke, so that owed replies will never come. cut says that
	// part of the first of them was delivered already.
	Fail(c *Conn, owed int, cut bool, err error)
}

// An Owner is the Sink of a private connection.
type Owner interface {
	Sink
	// Full is not nil while the client has enough to read already; it is closed when
	// there is room again. Until then the connection is not read: the upstream's
	// own limits decide what becomes of a client that does not read.
	Full() <-chan struct{}
}

// A BatchSink is a Sink that keeps what it is given until EndBatch, on the connection's
// reading goroutine: see Conn.Batch.
type BatchSink interface{ EndBatch() }

const (
	readSize = 64 << 10 // what one read of replies takes at most
	// maxQueued is how many bytes may wait to be written before Send blocks: an
	// upstream that has stopped reading must not fill the proxy's memory.
	maxQueued = 32 << 20
	// direct is from which size on commands are written as they are, uncopied, when
	// nobody else is writing.
	direct = 4 << 10
	// maxSpare bounds the buffer that is kept for the next commands.
	maxSpare = 1 << 20
	// maxAnswer bounds an answer to the pool's own questions, which have short ones.
	maxAnswer = 64 << 10
	// flushTurns bounds how long one client's goroutine writes for the others.
	flushTurns = 16
)

// A Conn relays commands to one Redis over one connection and routes the replies
// back in order. A shared Conn carries the commands of many clients; a private one
// has the state of a single client, and may be switched to raw.
//
// Send is safe for concurrent use. Each Conn has one goroutine, which reads; the
// writing is done by whoever sends, for everybody who sends meanwhile.
type Conn struct {
	nc     *netio.Conn
	noAuth bool          // the server wants authentication that this connection has not
	id     int64         // the server's number of a private connection; 0: not known
	broken atomic.Bool   // err is set
	shared bool          // many senders: worth a moment's wait for more to write
	refs   atomic.Int32  // borrowers, counted by the pool
	done   chan struct{} // closed when the connection has ended
	home   *Pool         // whose it is
	login  *login        // as whom it acts; nil: not known. The mu of home

	mu       sync.Mutex
	room     sync.Cond // queue has shrunk, or the connection has ended
	queue    []byte    // bytes to write
	spare    []byte    // the buffer that was written last
	sent     []debt    // sends whose replies the reader has not taken over yet
	flushing bool      // somebody is writing, and will take what is queued
	retired  bool      // close once nobody borrows it
	owner    Owner     // whose private connection this is; nil for a shared or a spare one
	raw      bool      // replies are not counted: every byte goes to owner
	step     bool      // on raw: one reply at a time
	err      error     // why the connection ended
	settled  bool      // everybody owed has been told so
	prompt   bool      // shared, and not for what may take long: the pool's questions go here
	used     bool      // something came or went since the pool looked last
	count    traffic   // of the reader until it last took over
	sends    uint      // since one was timed

	// the reading goroutine's own
	owed   []debt // owed[head:] are the debts taken over from sent
	head   int
	framer resp.Scanner
	inside bool // part of a reply has been delivered, its end has not
	more   bool // private: what is delivered is not all that came with it
	held   []BatchSink
	relays bool    // it is raw
	news   traffic // since it last took over
}

// debt is what one Send is owed. Debts to the same sink are never merged: Deliver
// promises not to reach over the end of one.
type debt struct {
	to Sink
	n  int
	at int64 // when it was sent, by clock, if it is timed; else 0
}

var (
	errClosed  = errors.New("connection closed")
	errUnasked = errors.New("a reply came that nobody asked for")
)

func newConn(home *Pool, nc net.Conn, shared bool) *Conn {
	c := &Conn{nc: netio.Wrap(nc), home: home, shared: shared, done: make(chan struct{})}
	c.room.L = &c.mu
	return c
}

// Alive is false once the connection is known to have ended.
func (c *Conn) Alive() bool { return !c.broken.Load() }

// HungUp says that the server has closed the connection, though what it sent before may
// not have been read. It asks the kernel.
func (c *Conn) HungUp() bool { return !c.Alive() || c.nc.HungUp() }

// Done is closed once the connection is known to have ended.
func (c *Conn) Done() <-chan struct{} { return c.done }

// NeedsAuth says that the server asked this connection to authenticate, which the
// identity it was opened for cannot.
func (c *Conn) NeedsAuth() bool { return c.noAuth }

// ID is the number that the server gave a private connection, and that its CLIENT
// commands call it by; 0 if it did not say, as before Redis 6, or to a connection
// that has yet to authenticate.
func (c *Conn) ID() int64 { return c.id }

// Pool is that of the node which the connection leads to.
func (c *Conn) Pool() *Pool { return c.home }

// Send writes commands, n replies to which will go to s. Either the replies are
// delivered or Fail is called, unless Send returns an error: then nothing was
// sent. raw is copied. Send blocks only while the upstream does not read and much
// is queued already.
func (c *Conn) Send(raw []byte, n int, s Sink) error {
	return c.send(raw, debt{to: s, n: n}, nil, true)
}

// SendEach is Send with a reply for each of sinks, which are told one by one.
func (c *Conn) SendEach(raw []byte, sinks []Sink) error { return c.send(raw, debt{}, sinks, true) }

// send is Send and SendEach, which count as use of the connection, and the pool's own.
func (c *Conn) send(raw []byte, all debt, each []Sink, use bool) error {
	c.mu.Lock()
	c.used = c.used || use
	for len(c.queue) > maxQueued && c.err == nil {
		c.room.Wait()
	}
	if c.err != nil && c.settled {
		defer c.mu.Unlock()
		return c.err
	}
	if all.n > 0 {
		if c.sends++; c.shared && c.sends%timeOne == 0 {
			all.at = clock()
		}
		c.sent = append(c.sent, all)
	}
	for _, s := range each {
		c.sent = append(c.sent, debt{to: s, n: 1})
	}
	if c.err != nil { // the reader is about to tell everybody, in order
		c.mu.Unlock()
		return nil
	}
	if len(raw) >= direct && !c.flushing { // then nothing is queued
		c.flushing = true
		c.count.wrote(raw)
		c.mu.Unlock()
		if err := c.write(raw); err != nil {
			c.end(err)
		}
		c.flush()
		return nil
	}
	c.queue = append(c.queue, raw...)
	if c.flushing {
		c.mu.Unlock()
		return nil
	}
	c.flushing = true
	c.mu.Unlock()
	if c.shared {
		// Others that are ready to run have commands of their own: let them queue
		// them, so that one write carries all. Returns at once if nobody is ready.
		runtime.Gosched()
	}
	c.flush()
	return nil
}

// flush writes what is queued until nothing is. Only one goroutine flushes at a
// time (flushing), and it clears flushing under the lock that it found the queue
// empty under, so nothing queued is ever left behind.
func (c *Conn) flush() {
	for turn := 0; ; turn++ {
		c.mu.Lock()
		if len(c.queue) == 0 || c.err != nil {
			c.flushing = false
			c.mu.Unlock()
			return
		}
		buf := c.queue
		c.queue, c.spare = c.spare[:0], nil
		c.count.wrote(buf)
		c.room.Broadcast()
		c.mu.Unlock()

		err := c.write(buf)

		c.mu.Lock()
		if cap(buf) <= maxSpare {
			c.spare = buf[:0]
		}
		c.mu.Unlock()
		if err != nil {
			c.end(err)
			continue
		}
		if turn == flushTurns {
			go c.flush()
			return
		}
	}
}

// write is for the flusher alone.
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

// StartPassthrough makes a private connection relay every byte that comes to its owner, whether
// or not a reply is owed; commands are then sent with n = 0. The owner has seen
// all replies it was owed. There is no way back.
func (c *Conn) StartPassthrough() {
	c.mu.Lock()
	c.raw = true
	c.mu.Unlock()
}

// DeliverSingly makes a raw connection hand over one reply or message at a time, or, as at
// first, all that came together.
func (c *Conn) DeliverSingly(on bool) {
	c.mu.Lock()
	c.step = on
	c.mu.Unlock()
}

// MidReply says, during Deliver, that the bytes end inside a reply.
func (c *Conn) MidReply() bool { return c.inside }

// InPassthrough says, during Deliver, that the connection is raw: the bytes may be several
// replies and messages, from any to any.
func (c *Conn) InPassthrough() bool { return c.relays }

// Kind is, during Deliver, the type byte of the last reply.
func (c *Conn) Kind() byte { return c.framer.Kind() }

// Batch has h.EndBatch called when everything has been delivered that was read at once. It
// is false, and does nothing, if that will be so when this Deliver returns, if h has asked
// before, and on a shared connection. It is for Deliver only.
func (c *Conn) Batch(h BatchSink) bool {
	if !c.more || slices.Contains(c.held, h) {
		return false
	}
	c.held = append(c.held, h)
	return true
}

// release ends every Batch.
func (c *Conn) release() {
	for _, h := range c.held {
		h.EndBatch()
	}
	clear(c.held)
	c.held = c.held[:0]
}

// Gather adds to reply what is delivered of it, for a Sink that wants one reply in one
// piece, and says whether that is all now. Pushes are not part of it; a reply of more than
// most bytes ends the connection. It is for Deliver only.
func (c *Conn) Gather(reply *[]byte, p []byte, ended, most int) (all bool) {
	if c.Kind() == '>' {
		return false
	}
	*reply = append(*reply, p...)
	if ended == 0 && len(*reply) > most {
		c.Close()
	}
	return ended > 0
}

// Close ends the connection at once. Whoever is owed replies is told by Fail.
func (c *Conn) Close() { c.end(errClosed) }

// end makes the connection fail with err; only the first call counts. The reader
// sees it and settles the debts.
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
	c.nc.Abort() // Close may wait, over TLS, and the caller may hold the pool up
}

func (c *Conn) read() {
	buf := make([]byte, readSize)
	for {
		n, err := c.nc.Read(buf)
		if n > 0 {
			c.news.Reads++
			c.news.BytesIn += int64(n)
			if ferr := c.route(buf[:n]); ferr != nil {
				err = ferr
			}
			c.release()
		}
		if err != nil {
			c.end(err)
			c.settle()
			return
		}
		if !c.shared {
			c.awaitRoom()
		}
	}
}

// lookEvery is how often a connection that is not read is looked at, whether the
// upstream has closed it.
const lookEvery = 200 * time.Millisecond

// awaitRoom returns when the owner takes more, or the upstream has closed the
// connection: then there is little more to come.
func (c *Conn) awaitRoom() {
	c.mu.Lock()
	owner := c.owner
	c.mu.Unlock()
	if owner == nil {
		return
	}
	full := owner.Full()
	if full == nil {
		return
	}
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for !c.nc.HungUp() {
		select {
		case <-full:
			return
		case <-c.done:
			return
		case <-look.C:
		}
	}
}

// route cuts p into replies and hands them to whom they are owed, a run of
// replies to the same sink at once.
func (c *Conn) route(p []byte) error {
	for len(p) > 0 {
		if c.head == len(c.owed) {
			owner, raw, step := c.takeOver()
			if raw && len(c.owed) == 0 {
				c.routeRaw(p, owner, step)
				return nil
			}
			if len(c.owed) == 0 {
				return c.routeUnowed(p, owner)
			}
		}
		d := &c.owed[c.head]
		n, ended, err := c.frame(p, d.n)
		to := d.to
		c.news.Replies += int64(ended)
		if d.n -= ended; d.n == 0 {
			c.head++
			c.home.opt.meter.timed(d.at)
		}
		if n > 0 {
			c.more = !c.shared && n < len(p)
			to.Deliver(c, p[:n], ended)
		}
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// frame finds how much of p at most limit replies take, or one push, or what there
// is of it: pushes are no replies, and come alone.
func (c *Conn) frame(p []byte, limit int) (n, ended int, err error) {
	for n < len(p) && ended < limit {
		if n > 0 && p[n] == '>' { // a message and a reply are never delivered together
			return n, ended, nil
		}
		used, done, err := c.framer.Scan(p[n:])
		if err != nil {
			return n, ended, err
		}
		if done && c.framer.Kind() == '-' {
			c.refused(p[n : n+used])
		}
		n += used
		c.inside = !done
		if done && c.framer.Kind() == '>' {
			return n, ended, nil
		}
		if done {
			ended++
		}
	}
	return n, ended, nil
}

// takeOver moves what was sent since the last time into owed, which is empty, and
// says how bytes that nobody is owed are to be handled.
func (c *Conn) takeOver() (owner Owner, raw, step bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.owed)
	c.owed, c.sent, c.head = c.sent, c.owed[:0], 0
	c.count.add(&c.news)
	c.used = c.used || len(c.owed) == 0 // a message
	return c.owner, c.raw, c.step
}

// routeRaw hands everything to the owner, with step one reply or message at a
// time.
func (c *Conn) routeRaw(p []byte, owner Sink, step bool) {
	c.relays = true
	for len(p) > 0 {
		n, ended := 0, 0
		for n < len(p) && (ended == 0 || !step) {
			used, done, err := c.framer.Scan(p[n:])
			if err != nil { // not RESP (SYNC sends a file): relay it as it is
				c.framer.Reset()
				n = len(p)
				break
			}
			n += used
			if c.inside = !done; done {
				ended++
			}
		}
		c.more = n < len(p)
		owner.Deliver(c, p[:n], ended)
		p = p[n:]
	}
}

// routeUnowed hands pushes to the owner. A shared connection drops them: nobody
// asked for them. Any other reply that is not owed means that the stream cannot
// be trusted any more.
func (c *Conn) routeUnowed(p []byte, owner Sink) error {
	for len(p) > 0 {
		n, _, err := c.frame(p, 1)
		if err != nil {
			return err
		}
		if c.framer.Kind() != '>' {
			return errUnasked
		}
		if owner != nil {
			c.more = n < len(p)
			owner.Deliver(c, p[:n], 0)
		}
		p = p[n:]
	}
	return nil
}

// settle tells everybody who is owed a reply that it will not come. The
// connection has ended, so nothing is sent any more.
func (c *Conn) settle() {
	err, cut := c.reason(), c.inside
	told := map[Sink]bool{}
	for {
		for _, d := range c.owed[c.head:] {
			d.to.Fail(c, d.n, cut, err)
			told[d.to] = true
			cut = false
		}
		c.head = len(c.owed)
		owner, done := c.takeLast()
		if !done {
			continue
		}
		if owner != nil && !told[owner] {
			owner.Fail(c, 0, cut, err)
		}
		return
	}
}

// takeLast takes over what was sent to the connection after it ended. done says
// that it was nothing, and that nothing will follow.
func (c *Conn) takeLast() (owner Owner, done bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.owed, c.sent, c.head = c.sent, nil, 0
	c.settled = len(c.owed) == 0
	return c.owner, c.settled
}

// belong makes a spare connection the private one of owner, if it is of use.
func (c *Conn) belong(owner Owner) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.owner = owner
	return c.err == nil
}

func (c *Conn) reason() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}
