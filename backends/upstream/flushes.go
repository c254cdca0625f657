package upstream

import "slices"

// Flushes are connections that commands of many clients are gathered for, by one goroutine which must not block and
// writes what it has gathered for each at once. The zero value is empty. It belongs to one goroutine.
type Flushes struct {
	conns     []*Conn // whose flushing this goroutine has set
	congested *Conn   // more is queued for it than maxQueued
}

// Flush writes what was gathered. It never blocks: bytes that an upstream does not take at once are left to another goroutine.
func (f *Flushes) Flush() {
	for i, c := range f.conns {
		f.conns[i] = nil
		c.flushNow()
	}
	f.conns = f.conns[:0]
}

// TakeCongested returns nil, or else how to wait for an upstream that should be sent nothing until it has read more. Who
// has sent something should ask after each time, and wait on another goroutine.
func (f *Flushes) TakeCongested() (wait func()) {
	if f.congested != nil {
		wait = f.congested.awaitRoom
		f.congested = nil
	}
	return wait
}

// awaitRoom returns when commands can be sent without blocking, or the connection has ended.
func (c *Conn) awaitRoom() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.awaitRoomLocked()
}

func (c *Conn) awaitRoomLocked() {
	for len(c.queue) > maxQueued && c.err == nil {
		c.room.Wait()
	}
}

// flushNow is flush, but does not block. It is for the goroutine that set flushing.
func (c *Conn) flushNow() {
	c.flushBy(func(p []byte) bool { return c.writeNow(p, true) })
}

// writeNow writes p. What cannot be written at once is left to a goroutine, which flushes as well; then writeNow reports
// false. own reports that p may be kept for it.
func (c *Conn) writeNow(p []byte, own bool) bool {
	n, err := 0, error(nil)
	if c.nc.CanTryWrite() {
		if n, err = c.nc.TryWrite(p); err != nil {
			c.end(err)
			return true
		}
		if n == len(p) {
			return true
		}
	}
	rest := p[n:]
	if !own {
		rest = slices.Clone(rest)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		c.flushing = false
		return false
	}
	c.flusher.Go(func() {
		if _, err := c.nc.Write(rest); err != nil {
			c.end(err)
		}
		c.flush()
	})
	return false
}
