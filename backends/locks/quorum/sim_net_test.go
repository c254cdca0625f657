package quorum

import (
	"container/heap"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// The two ways on a link.
const (
	toNode = iota
	toProxy
)

// A simPost delivers, in one goroutine and in order. simWorld.mu guards it.
type simPost struct {
	mu    *sync.Mutex // simWorld's
	due   []delivery  // a heap.Interface's
	n     int
	timer *time.Timer // of the first
	stop  chan struct{}
}

type delivery struct {
	at time.Time
	n  int // in the order of sending
	do func()
}

// at has do called at a time in the future, with the world locked.
func (p *simPost) at(t time.Time, do func()) {
	p.n++
	heap.Push(p, delivery{t, p.n, do})
	if p.due[0].n == p.n {
		p.timer.Reset(time.Until(t))
	}
}

// run delivers until stop closes.
func (p *simPost) run() {
	for {
		select {
		case <-p.timer.C:
			p.deliver()
		case <-p.stop:
			return
		}
	}
}

func (p *simPost) deliver() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.due) > 0 && !p.due[0].at.After(time.Now()) {
		heap.Pop(p).(delivery).do()
	}
	if len(p.due) > 0 {
		p.timer.Reset(time.Until(p.due[0].at))
	}
}

func (p *simPost) Len() int { return len(p.due) }
func (p *simPost) Less(i, j int) bool {
	if a, b := &p.due[i], &p.due[j]; !a.at.Equal(b.at) {
		return a.at.Before(b.at)
	}
	return p.due[i].n < p.due[j].n
}
func (p *simPost) Swap(i, j int) { p.due[i], p.due[j] = p.due[j], p.due[i] }
func (p *simPost) Push(x any)    { p.due = append(p.due, x.(delivery)) }
func (p *simPost) Pop() any {
	last := len(p.due) - 1
	d := p.due[last]
	p.due[last] = delivery{}
	p.due = p.due[:last]
	return d
}

// A simLink is all that moves between one proxy and one node. Delays are its own, from a
// stream of chance of its own for each way: so it does not matter in which order two workers
// send at the same moment. simWorld.mu guards it.
type simLink struct {
	w       *simWorld
	proxy   int
	node    *simNode
	chance  [2]*rand.Rand
	base    time.Duration // of every delay
	slow    time.Duration // up to so much more, for a while
	loss    float64       // share of segments that have to be sent again
	blocked [2]int        // by so many faults: nothing gets through that way until they are over
	conns   []*simConn
}

// delay is how long a segment takes.
func (l *simLink) delay(way int) time.Duration {
	r := l.chance[way]
	d := l.base + time.Duration(r.ExpFloat64()*float64(50*time.Microsecond))
	if l.slow > 0 {
		d += time.Duration(r.Int64N(int64(l.slow)))
	}
	if r.Float64() < l.loss {
		d += 200*time.Millisecond + time.Duration(r.Int64N(int64(100*time.Millisecond)))
	}
	return d
}

// block lets nothing through one way, until unblock.
func (l *simLink) block(way int) { l.blocked[way]++ }

// unblock ends one block. What was held up is sent again after a while, before what is sent
// from now on, as TCP does.
func (l *simLink) unblock(way int) {
	if l.blocked[way]--; l.blocked[way] > 0 {
		return
	}
	for _, c := range l.conns {
		if len(c.held[way]) == 0 {
			continue
		}
		wait := time.Duration(l.chance[way].Int64N(int64(100*time.Millisecond))) + time.Nanosecond
		l.w.post.at(time.Now().Add(wait), func() {
			held := c.held[way]
			c.held[way] = nil
			for _, s := range held {
				c.arrive(way, s)
			}
		})
	}
}

// A segment is what is delivered at once; with end set the connection ends for the receiver.
type segment struct {
	data []byte
	end  error
}

// A simConn is one connection, as a net.Conn the proxy's end of it. Each way is in order;
// different connections are not.
type simConn struct {
	link *simLink
	last [2]time.Time // when the latest segment arrives
	held [2][]segment

	// the proxy's end
	in       []byte
	inErr    error
	closed   bool
	deadline time.Time
	ready    chan struct{} // something of these changed; holds one

	// the node's end
	gone     bool // the node does not know it
	request  []byte
	channels []string
}

var _ net.Conn = (*simConn)(nil)

// dial opens a connection from the proxy at one end of the link to the node at the other.
func (l *simLink) dial(ctx context.Context, p *simProxy) (net.Conn, error) {
	for end := time.Now().Add(2 * time.Second); ; {
		l.w.mu.Lock()
		open := l.blocked[toNode] == 0 && l.blocked[toProxy] == 0
		d := l.delay(toNode) + l.delay(toProxy)
		l.w.mu.Unlock()
		if !open {
			d += 100 * time.Millisecond
		}
		if err := locks.Sleep(ctx, d); err != nil {
			return nil, err
		}
		switch {
		case open:
			return l.open(p)
		case time.Now().After(end):
			return nil, os.ErrDeadlineExceeded
		}
	}
}

func (l *simLink) open(p *simProxy) (net.Conn, error) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	if l.node.down || p.dead {
		return nil, syscall.ECONNREFUSED
	}
	c := &simConn{link: l, ready: make(chan struct{}, 1)}
	l.conns = slices.DeleteFunc(l.conns, func(c *simConn) bool { return c.closed && c.gone })
	l.conns = append(l.conns, c)
	l.node.conns = append(l.node.conns, c)
	return c, nil
}

// send has a segment arrive after a delay, and after those before it.
func (c *simConn) send(way int, s segment) {
	now := time.Now()
	at := now.Add(c.link.delay(way))
	if !at.After(c.last[way]) {
		at = c.last[way].Add(time.Nanosecond)
	}
	c.last[way] = at
	c.link.w.post.at(at, func() { c.arrive(way, s) })
}

func (c *simConn) arrive(way int, s segment) {
	switch {
	case c.link.blocked[way] > 0 || len(c.held[way]) > 0:
		c.held[way] = append(c.held[way], s)
	case way == toNode:
		c.link.node.receive(c, s)
	case c.closed:
	default:
		c.in = append(c.in, s.data...)
		c.inErr = s.end
		c.rouse()
	}
}

func (c *simConn) rouse() {
	select {
	case c.ready <- struct{}{}:
	default:
	}
}

// answer sends what the node says.
func (c *simConn) answer(b []byte) { c.send(toProxy, segment{data: b}) }

// receive takes what arrived at the node, and executes the commands that are complete.
func (n *simNode) receive(c *simConn, s segment) {
	switch {
	case c.gone || n.down:
		if s.end == nil {
			c.send(toProxy, segment{end: syscall.ECONNRESET})
		}
		return
	case n.stopped:
		n.waits = append(n.waits, arrival{c, s})
		return
	case s.end != nil:
		n.forget(c)
		return
	}
	c.request = append(c.request, s.data...)
	var out []byte
	for {
		args, rest, err := parseCommand(c.request)
		if err != nil {
			panic(err)
		}
		if args == nil {
			break
		}
		c.request = rest
		out = appendReply(out, n.execute(c, args))
	}
	if len(out) > 0 {
		c.answer(out)
	}
}

// forget ends a connection at the node's end.
func (n *simNode) forget(c *simConn) {
	c.gone, c.channels = true, nil
	for i, other := range n.conns {
		if other == c {
			n.conns = append(n.conns[:i:i], n.conns[i+1:]...)
			return
		}
	}
}

// resume lets a paused node go on with what has arrived.
func (n *simNode) resume() {
	n.stopped = false
	waits := n.waits
	n.waits = nil
	for _, a := range waits {
		n.receive(a.conn, a.segment)
	}
}

// kill ends the node. Proxies are told at once, or when they send again.
func (n *simNode) kill(told bool) {
	n.down, n.waits = true, nil
	for _, c := range n.conns {
		c.gone, c.channels = true, nil
		if told {
			c.send(toProxy, segment{end: syscall.ECONNRESET})
		}
	}
	n.conns = nil
}

func (c *simConn) subscribe(channels []string) any {
	var said simPushes
	for _, ch := range channels {
		c.channels = append(c.channels, ch)
		said = append(said, []any{"subscribe", ch, int64(len(c.channels))})
	}
	return said
}

func (c *simConn) unsubscribe(channels []string) any {
	var said simPushes
	for _, ch := range channels {
		for i, other := range c.channels {
			if other == ch {
				c.channels = append(c.channels[:i:i], c.channels[i+1:]...)
				break
			}
		}
		said = append(said, []any{"unsubscribe", ch, int64(len(c.channels))})
	}
	return said
}

// Read is that of the proxy's end, as are the methods below.
func (c *simConn) Read(b []byte) (int, error) {
	for {
		n, until, err := c.take(b)
		if n > 0 || err != nil {
			return n, err
		}
		if until.IsZero() {
			<-c.ready
			continue
		}
		t := time.NewTimer(time.Until(until))
		select {
		case <-c.ready:
		case <-t.C:
		}
		t.Stop()
	}
}

func (c *simConn) take(b []byte) (n int, until time.Time, err error) {
	c.link.w.mu.Lock()
	defer c.link.w.mu.Unlock()
	switch {
	case c.closed:
		return 0, until, net.ErrClosed
	case !c.deadline.IsZero() && !time.Now().Before(c.deadline):
		return 0, until, os.ErrDeadlineExceeded
	case len(c.in) > 0:
		n = copy(b, c.in)
		c.in = c.in[n:]
		return n, until, nil
	}
	return 0, c.deadline, c.inErr
}

// Write is never blocked: the kernel takes it.
func (c *simConn) Write(b []byte) (int, error) {
	c.link.w.mu.Lock()
	defer c.link.w.mu.Unlock()
	switch {
	case c.closed:
		return 0, net.ErrClosed
	case c.inErr != nil && !errors.Is(c.inErr, io.EOF):
		return 0, syscall.EPIPE
	}
	c.send(toNode, segment{data: append([]byte(nil), b...)})
	return len(b), nil
}

// Close lets arrive what is on its way.
func (c *simConn) Close() error {
	c.link.w.mu.Lock()
	defer c.link.w.mu.Unlock()
	c.close()
	return nil
}

func (c *simConn) close() {
	if !c.closed {
		c.closed = true
		c.send(toNode, segment{end: io.EOF})
		c.rouse()
	}
}

func (c *simConn) SetDeadline(t time.Time) error {
	c.link.w.mu.Lock()
	defer c.link.w.mu.Unlock()
	c.deadline = t
	c.rouse()
	return nil
}

func (c *simConn) SetReadDeadline(t time.Time) error { return c.SetDeadline(t) }
func (c *simConn) SetWriteDeadline(time.Time) error  { return nil }
func (c *simConn) LocalAddr() net.Addr               { return &net.TCPAddr{} }
func (c *simConn) RemoteAddr() net.Addr              { return &net.TCPAddr{} }
