package faults

import "time"

// hangUp closes the connection of the claim.
func (w *worker) hangUp(c *claim) {
	if c.Session {
		w.begin(&Event{Op: opClose, Name: c.Name, Owner: c.Owner, Shared: c.Shared})
	}
	_ = c.line.Close()
}

// keep has the session keep the lock, perhaps for longer than its lease, and listens.
func (w *worker) keep(c *claim) bool {
	e := Event{Op: opKeep, Name: c.Name, Owner: c.Owner, Fence: c.fence, Proxy: c.line.proxy, Session: true, Shared: c.Shared}
	w.begin(&e)
	c.line.Timeout = w.upTo(4 * time.Second)
	_, err := c.line.Next()
	kept := timedOut(err)
	e.End, e.Reply = now(), carried
	if !kept { // a push, or the end
		e.Reply = lost
	}
	w.journal.write(&e)
	return kept
}
