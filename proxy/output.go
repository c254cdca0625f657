package proxy

import (
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/backends/metrics"
	"github.com/lockproxy/lockproxy/backends/netio"
)

// output writes to one client. What the client's socket takes at once is written by the
// caller; the rest is queued for the writer, a goroutine that lives while something is
// queued. So no caller waits for a slow client. A connection that cannot be tried, TLS,
// leaves everything to the writer, its close_notify too.
//
// Its methods are safe for concurrent use.
type output struct {
	nc      *netio.Conn
	traffic *metrics.Traffic
	max     int    // most bytes queued for a client that does not read
	dying   func() // called when nothing can be written any more

	writer sync.WaitGroup

	mu       sync.Mutex
	queue    []byte        // what the writer has not taken yet
	taken    int           // bytes that it has taken and not written
	writing  bool          // there is a writer
	closing  bool          // close when all is written
	half     bool          // close only the sending half then
	finished bool          // all is written, and closing has begun
	dead     bool          // nothing can be written any more
	overflow bool          // more was to be queued than may be
	room     chan struct{} // closed when little is queued; nil: nobody waits for it
}

func newOutput(nc *netio.Conn, traffic *metrics.Traffic, limit int) *output {
	return &output{nc: nc, traffic: traffic, max: limit, dying: func() {}}
}

// Write implements relay.Output.
func (o *output) Write(p []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.dead || o.closing {
		return false
	}
	if !o.writing && o.nc.CanTryWrite() {
		n, err := o.nc.TryWrite(p)
		if err != nil {
			o.killLocked()
			return false
		}
		o.traffic.Wrote(n)
		if p = p[n:]; len(p) == 0 {
			return true
		}
	}
	if o.queuedLocked()+len(p) > o.max {
		o.overflow = true
		o.killLocked()
		return false
	}
	o.queue = append(o.queue, p...)
	if !o.writing {
		o.writing = true
		o.writer.Go(o.writeQueue)
	}
	return true
}

// queuedLocked is how many bytes wait for the client.
func (o *output) queuedLocked() int { return len(o.queue) + o.taken }

// writeQueue is the writer. It ends when nothing is queued.
func (o *output) writeQueue() {
	var buf []byte
	for {
		o.mu.Lock()
		o.taken = 0
		if len(o.queue) == 0 || o.dead {
			o.writing = false
			o.finished = o.closing && !o.dead
			o.dead = o.dead || o.closing
			finished, half := o.finished, o.half
			o.mu.Unlock()
			switch { // not under mu: over TLS it may wait
			case finished && half:
				o.nc.CloseWrite()
			case finished:
				o.nc.Close()
				o.dying()
			}
			return
		}
		buf, o.queue = o.queue, buf[:0]
		o.taken = len(buf)
		o.mu.Unlock()
		o.writePieces(buf)
		if cap(buf) > 1<<20 {
			buf = nil
		}
	}
}

// writePieces writes p piece by piece, so that what a slow client has taken does not count
// as queued.
func (o *output) writePieces(p []byte) {
	const piece = 256 << 10
	for len(p) > 0 {
		n, err := o.nc.Write(p[:min(len(p), piece)])
		if err != nil {
			o.Abort()
			return
		}
		o.traffic.Wrote(n)
		p = p[n:]
		o.mu.Lock()
		o.taken -= n
		o.signalRoomLocked()
		o.mu.Unlock()
	}
}

// full is how many bytes may be queued before Full tells those who read for this client alone to pause.
const full = 1 << 20

// Full implements relay.Output.
func (o *output) Full() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.dead || o.queuedLocked() <= min(full, o.max/2) {
		return nil
	}
	if o.room == nil {
		o.room = make(chan struct{})
	}
	return o.room
}

// signalRoomLocked ends the wait for room, if there is some.
func (o *output) signalRoomLocked() {
	if o.room != nil && (o.dead || o.queuedLocked() <= min(full, o.max/2)/2) {
		close(o.room)
		o.room = nil
	}
}

// Close implements relay.Output.
func (o *output) Close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closeLocked()
}

// CloseHalf is Close of the sending half: what the client sends can still be read. The
// connection is to be closed by Abort.
func (o *output) CloseHalf() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.half = true
	o.closeLocked()
}

func (o *output) closeLocked() {
	o.closing = true
	switch {
	case o.dead:
	case o.writing:
		o.nc.SetWriteDeadline(time.Now().Add(closeGrace))
	case o.nc.CanTryWrite() && o.half:
		o.dead, o.finished = true, true
		o.nc.CloseWrite()
	case o.nc.CanTryWrite(): // a plain socket: closing it does not wait
		o.killLocked()
	default:
		o.writing = true
		o.writer.Go(o.writeQueue)
	}
}

// Wait returns when all is written, or never will be. It comes after Close.
func (o *output) Wait() { o.writer.Wait() }

// Abort implements relay.Output.
func (o *output) Abort() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.killLocked()
}

// Dead reports whether nothing can be written any more.
func (o *output) Dead() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.dead
}

// Overflowed reports whether the client was disconnected since it did not read.
func (o *output) Overflowed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.overflow
}

// killLocked closes the socket, which wakes the session's reader.
func (o *output) killLocked() {
	if !o.dead || o.finished {
		o.dead = true
		o.queue = nil
		o.signalRoomLocked()
		o.nc.Abort()
		o.dying()
	}
}
