package upstream

import "time"

const (
	// readSize is the size of the buffer for one read.
	readSize = 64 << 10
	// hangUpInterval is how often a connection that is not read is checked for the
	// upstream's hang-up.
	hangUpInterval = 200 * time.Millisecond
)

// read is the connection's reader. It returns when the connection has ended, all
// pending replies have failed, and the flushing goroutine has ended.
func (c *Conn) read() {
	defer c.flusher.Wait()
	buf := make([]byte, readSize)
	for {
		n, err := c.nc.Read(buf)
		if n > 0 {
			c.traffic.Read(n)
			if routeErr := c.route(buf[:n]); routeErr != nil {
				err = routeErr
			}
			c.endBatch()
		}
		if err != nil {
			c.end(err)
			c.settle()
			return
		}
		if !c.shared {
			c.awaitOwner()
		}
	}
}

func (c *Conn) endBatch() {
	for _, b := range c.batch {
		b.EndBatch()
	}
	clear(c.batch)
	c.batch = c.batch[:0]
}

// awaitOwner returns when the owner takes more bytes, or the upstream has hung up: then
// there is little more to read.
func (c *Conn) awaitOwner() {
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
	tick := time.NewTicker(hangUpInterval)
	defer tick.Stop()
	for !c.nc.HungUp() {
		select {
		case <-full:
			return
		case <-c.done:
			return
		case <-tick.C:
		}
	}
}

// route delivers the replies in p to their sinks, successive replies of one Send at
// once.
func (c *Conn) route(p []byte) error {
	replies := 0
	defer func() { c.traffic.replies.Add(int64(replies)) }()
	for len(p) > 0 {
		if c.head == len(c.owed) {
			owner, passthrough, singly := c.takeOver()
			if passthrough && len(c.owed) == 0 {
				c.routePassthrough(p, owner, singly)
				return nil
			}
			if len(c.owed) == 0 {
				return c.routePushes(p, owner)
			}
		}
		next := &c.owed[c.head]
		n, ended, err := c.frame(p, next.n)
		to := next.to
		replies += ended
		if next.n -= ended; next.n == 0 {
			c.head++
			c.pool.opt.counters.observe(next.sentAt)
		}
		if n > 0 {
			c.moreFollows = !c.shared && n < len(p)
			to.Deliver(c, p[:n], ended)
		}
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// frame finds the length n of up to limit replies in p, or of one push, or of the part
// of these that p has. Pushes do not count as replies, and come alone.
func (c *Conn) frame(p []byte, limit int) (n, ended int, err error) {
	for n < len(p) && ended < limit {
		if n > 0 && p[n] == '>' { // a message and a reply are never delivered together
			return n, ended, nil
		}
		used, done, err := c.scanner.Scan(p[n:])
		if err != nil {
			return n, ended, err
		}
		if done && c.scanner.Kind() == '-' {
			c.countError(p[n : n+used])
		}
		n += used
		c.midReply = !done
		if done && c.scanner.Kind() == '>' {
			return n, ended, nil
		}
		if done {
			ended++
		}
	}
	return n, ended, nil
}

// takeOver moves sent to owed, which is empty, and returns how to handle bytes without
// pending replies.
func (c *Conn) takeOver() (owner Owner, passthrough, singly bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.owed)
	c.owed, c.sent, c.head = c.sent, c.owed[:0], 0
	c.used = c.used || len(c.owed) == 0 // a message came
	return c.owner, c.passthrough, c.singly
}

// routePassthrough delivers everything to the owner, if singly one reply or message at
// a time.
func (c *Conn) routePassthrough(p []byte, owner Sink, singly bool) {
	c.passing = true
	for len(p) > 0 {
		n, ended := 0, 0
		for n < len(p) && (ended == 0 || !singly) {
			used, done, err := c.scanner.Scan(p[n:])
			if err != nil { // not RESP, as the file that SYNC sends: relay it as it is
				c.scanner.Reset()
				n = len(p)
				break
			}
			n += used
			if c.midReply = !done; done {
				ended++
			}
		}
		c.moreFollows = n < len(p)
		owner.Deliver(c, p[:n], ended)
		p = p[n:]
	}
}

// routePushes delivers pushes to the owner; a shared connection has none, and drops
// them. Any other reply is unsolicited, and ends the connection.
func (c *Conn) routePushes(p []byte, owner Sink) error {
	for len(p) > 0 {
		n, _, err := c.frame(p, 1)
		if err != nil {
			return err
		}
		if c.scanner.Kind() != '>' {
			return errUnsolicited
		}
		if owner != nil {
			c.moreFollows = n < len(p)
			owner.Deliver(c, p[:n], 0)
		}
		p = p[n:]
	}
	return nil
}

// settle calls Fail for all pending replies after err is set, and for an owner without
// any.
func (c *Conn) settle() {
	err, cut := c.reason(), c.midReply
	failed := map[Sink]bool{}
	for {
		for _, lost := range c.owed[c.head:] {
			lost.to.Fail(c, lost.n, cut, err)
			failed[lost.to] = true
			cut = false
		}
		c.head = len(c.owed)
		owner, done := c.takeLast()
		if !done {
			continue
		}
		if owner != nil && !failed[owner] {
			owner.Fail(c, 0, cut, err)
		}
		return
	}
}

// takeLast takes over what was sent after err was set. If that is nothing, it sets
// settled and reports done.
func (c *Conn) takeLast() (owner Owner, done bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.owed, c.sent, c.head = c.sent, nil, 0
	c.settled = len(c.owed) == 0
	return c.owner, c.settled
}
