package proxy

import (
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/backends/netio"
)

// output writes to one client. What the client's socket takes at once is written
// by whoever has it; the rest is kept and written by a goroutine that lives only
// as long as there is a rest. So nobody who writes ever waits for a slow client. What
// cannot be tried, TLS, leaves everything to that goroutine, the farewell too.
//
// Its methods are safe for concurrent use.
type output struct {
	nc    *netio.Conn
	count *counts
	max   int // most bytes kept for a client that does not read

	mu      sync.Mutex
	kept    []byte // not yet taken by the draining goroutine
	drained int    // bytes the draining goroutine has in hand
	busy    bool   // the draining goroutine runs
	closing bool   // close when all is written
	leaving bool   // all is written: the draining goroutine says farewell
	half    bool   // when all is written only the sending half is closed
	dead    bool
	over    bool          // there was more to keep than may be
	room    chan struct{} // closed when little is kept; nil: nobody waits for it

	drains sync.WaitGroup // the draining goroutine
}

func newOutput(nc *netio.Conn, count *counts, limit int) *output {
	return &output{nc: nc, count: count, max: limit}
}

// Write implements commands.Output.
func (o *output) Write(p []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.dead || o.closing {
		return false
	}
	if !o.busy && o.nc.CanTryWrite() {
		n, err := o.nc.TryWrite(p)
		if err != nil {
			o.killLocked()
			return false
		}
		o.count.wrote(n)
		if p = p[n:]; len(p) == 0 {
			return true
		}
	}
	if len(o.kept)+o.drained+len(p) > o.max {
		o.over = true
		o.killLocked()
		return false
	}
	o.kept = append(o.kept, p...)
	if !o.busy {
		o.busy = true
		o.drains.Go(o.drain)
	}
	return true
}

func (o *output) drain() {
	var buf []byte
	for {
		o.mu.Lock()
		o.drained = 0
		if len(o.kept) == 0 || o.dead {
			o.busy = false
			o.leaving = o.closing && !o.dead
			o.dead = o.dead || o.closing
			leaving, half := o.leaving, o.half
			o.mu.Unlock()
			switch { // not under mu: over TLS it may wait
			case leaving && half:
				o.nc.CloseWrite()
			case leaving:
				o.nc.Close()
			}
			return
		}
		buf, o.kept = o.kept, buf[:0]
		o.drained = len(buf)
		o.mu.Unlock()
		o.writeOut(buf)
		if cap(buf) > 1<<20 {
			buf = nil
		}
	}
}

// writeOut writes p piece by piece, so that what a slow client has taken counts as
// taken.
func (o *output) writeOut(p []byte) {
	const piece = 256 << 10
	for len(p) > 0 {
		n, err := o.nc.Write(p[:min(len(p), piece)])
		if err != nil {
			o.Abort()
			return
		}
		o.count.wrote(n)
		p = p[n:]
		o.mu.Lock()
		o.drained -= n
		o.emptiedLocked()
		o.mu.Unlock()
	}
}

// full is how much may be kept of what is read only for this client.
const full = 1 << 20

// Full implements commands.Output.
func (o *output) Full() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.dead || len(o.kept)+o.drained <= min(full, o.max/2) {
		return nil
	}
	if o.room == nil {
		o.room = make(chan struct{})
	}
	return o.room
}

// emptiedLocked tells whoever waits for room that there is some.
func (o *output) emptiedLocked() {
	if o.room != nil && (o.dead || len(o.kept)+o.drained <= min(full, o.max/2)/2) {
		close(o.room)
		o.room = nil
	}
}

// Close implements commands.Output.
func (o *output) Close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closeLocked()
}

// CloseHalf is Close, but what the client sends can still be read. The connection is to
// be closed by Abort.
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
	case o.busy:
		o.nc.SetWriteDeadline(time.Now().Add(closeGrace))
	case o.nc.CanTryWrite() && o.half:
		o.dead, o.leaving = true, true
		o.nc.CloseWrite()
	case o.nc.CanTryWrite(): // a plain socket: there is no farewell
		o.killLocked()
	default:
		o.busy = true
		o.drains.Go(o.drain)
	}
}

// Wait returns when all is written, or never will be. It comes after Close.
func (o *output) Wait() { o.drains.Wait() }

// Abort implements commands.Output.
func (o *output) Abort() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.killLocked()
}

// Dead says that nothing can be written any more.
func (o *output) Dead() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.dead
}

// overflowed says that there was more to keep than may be.
func (o *output) overflowed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.over
}

// killLocked closes the socket, which wakes the session's reader.
func (o *output) killLocked() {
	if !o.dead || o.leaving {
		o.dead = true
		o.kept = nil
		o.emptiedLocked()
		o.nc.Abort()
	}
}
