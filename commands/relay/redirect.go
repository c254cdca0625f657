package relay

import (
	"context"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/spec"
)

// A Redirector sends on, in the order in which their nodes refused them, the requests
// of one client. Its goroutine lives while there are any.
type Redirector struct {
	up      *upstream.Upstream
	Context context.Context // ends with the session
	cancel  context.CancelFunc

	// Timeout bounds how long keys that are on their way between two nodes are waited for, or
	// a node that is not known; 5 s unless set before the first request.
	Timeout time.Duration

	mu      sync.Mutex
	queue   []redirected
	running bool
	over    bool // the session has ended
	work    sync.WaitGroup
}

type redirected struct {
	c     *Request
	reply []byte
}

// A Sender is as whom, and on which connections, a request is sent on.
type Sender struct {
	ID    upstream.Identity
	Class upstream.ConnClass
	Hint  uint32
}

const (
	// MaxRedirects bounds how often a command is sent on: nodes that disagree for long
	// could send it back and forth for ever.
	MaxRedirects = 16
	// tryAgainEvery is how often a node is asked for keys that are on their way to it.
	tryAgainEvery = 20 * time.Millisecond
)

// NewRedirector makes the Redirector of a client of up. End must be called.
func NewRedirector(up *upstream.Upstream) *Redirector {
	d := &Redirector{up: up, Timeout: 5 * time.Second}
	d.Context, d.cancel = context.WithCancel(context.Background())
	return d
}

// add does not block.
func (d *Redirector) add(c *Request, reply []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queue = append(d.queue, redirected{c, append([]byte(nil), reply...)})
	if !d.running && !d.over {
		d.running = true
		d.work.Go(d.run)
	}
}

// Serve has a client's requests redirected by d.
func (r *Replies) Serve(d *Redirector) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.redirect, r.learn = d.add, d.learn
}

// Go runs f, which must end with Context, unless the session has ended.
func (d *Redirector) Go(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.over {
		d.work.Go(f)
	}
}

// End returns when all that add and Go have started has ended. Requests that are
// redirected later are dropped.
func (d *Redirector) End() {
	d.mu.Lock()
	d.over = true
	d.mu.Unlock()
	d.cancel()
	d.work.Wait()
}

func (d *Redirector) run() {
	for {
		d.mu.Lock()
		if len(d.queue) == 0 {
			d.queue, d.running = nil, false
			d.mu.Unlock()
			return
		}
		next := d.queue[0]
		d.queue = d.queue[1:]
		d.mu.Unlock()
		d.send(next)
	}
}

// send sends one request to the node that the reply names.
func (d *Redirector) send(m redirected) {
	c := m.c
	pool, asking := d.target(m)
	if c.tries++; pool == nil || c.tries > MaxRedirects {
		c.answer(redirectToClusterDown(m.reply))
		return
	}
	conn, unbind, err := d.open(c, pool)
	if err != nil {
		d.up.Refresh()
		p := AppendError(nil, err)
		if p == nil { // the client is gone
			p = AppendLost(nil, err)
		}
		c.answer(p)
		return
	}
	raw, sinks := c.Raw, []upstream.Sink{c}
	c.r.mu.Lock()
	c.leaveLocked()
	c.Pool, c.Conn, c.Unbind, c.Skip = pool, conn, unbind, 0
	if asking {
		c.Skip = 1
		raw = append(resp.AppendCommand(nil, "ASKING"), raw...)
		sinks = []upstream.Sink{c, c}
	}
	c.r.mu.Unlock()
	sendEach(nil, conn, raw, sinks)
}

// open makes or borrows a connection for a request. One that is the request's alone ends with
// the session, until unbind.
func (d *Redirector) open(c *Request, pool *upstream.Pool) (conn *upstream.Conn, unbind func() bool, err error) {
	if !c.Alone {
		conn, err = pool.Shared(d.Context, c.As.ID, c.As.Class, c.As.Hint)
		return conn, nil, err
	}
	if conn, err = pool.Private(d.Context, c.As.ID, c.r); err != nil {
		return nil, nil, err
	}
	return conn, context.AfterFunc(d.Context, conn.Close), nil
}

// target is where a refused request is to go. It waits where that takes time.
func (d *Redirector) target(m redirected) (pool *upstream.Pool, asking bool) {
	c := m.c
	slot, addr, ok := ParseRedirection(m.reply)
	switch {
	case ok && c.As.Class == upstream.ScriptClass:
		return d.known(c, AbsoluteAddr(addr, c.Pool)), resp.HasCode(m.reply, "ASK")
	case ok && resp.HasCode(m.reply, "ASK"):
		return d.up.MasterAt(AbsoluteAddr(addr, c.Pool)), true
	case ok:
		return d.up.Moved(slot, AbsoluteAddr(addr, c.Pool)), false
	case resp.HasCode(m.reply, "TRYAGAIN") || isForcedUnblock(m.reply):
		c.tries-- // its bound is another
		if !d.sleep(tryAgainEvery, &c.waited) {
			return nil, false
		}
	}
	return d.up.View().Master(max(c.Slot, 0)), false
}

// known is the master at addr, once others than a script have named it: who can run
// scripts must not be able to send the proxy, with the credentials of its clients,
// anywhere. It is nil if that takes too long.
func (d *Redirector) known(c *Request, addr string) *upstream.Pool {
	for {
		if pool := d.up.KnownMaster(addr); pool != nil {
			return pool
		}
		d.up.Refresh()
		if !d.sleep(tryAgainEvery, &c.waited) {
			return nil
		}
	}
}

// learn takes over what a refusal of a command that must not travel on says about its
// slot.
func (d *Redirector) learn(c *Request, reply []byte) {
	slot, addr, ok := ParseRedirection(reply)
	if !ok || !resp.HasCode(reply, "MOVED") {
		return
	}
	if addr = AbsoluteAddr(addr, c.Pool); d.up.KnownMaster(addr) != nil { // it may be a script's word
		d.up.Moved(slot, addr)
	} else {
		d.up.Refresh()
	}
}

// ParseRedirection reads MOVED and ASK: which slot, and the node that is to be asked.
func ParseRedirection(reply []byte) (slot int, addr string, ok bool) {
	f := strings.Fields(string(reply))
	if len(f) != 3 || f[0] != "-MOVED" && f[0] != "-ASK" {
		return 0, "", false
	}
	slot, err := strconv.Atoi(f[1])
	return slot, f[2], err == nil && slot >= 0 && slot < spec.Slots
}

// sleep waits, and is false if it has been waited long enough.
func (d *Redirector) sleep(length time.Duration, waited *time.Duration) bool {
	if *waited += length; *waited > d.Timeout {
		return false
	}
	select {
	case <-time.After(length):
		return true
	case <-d.Context.Done():
		return false
	}
}

// AbsoluteAddr completes an address of which a node gave only the port: the host is its
// own.
func AbsoluteAddr(addr string, by *upstream.Pool) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || host != "" && host != "?" || by == nil {
		return addr
	}
	own, _, err := net.SplitHostPort(by.Addr())
	if err != nil {
		return addr
	}
	return net.JoinHostPort(own, port)
}
