package commands

import (
	"bytes"
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

// maxRefusal is how much of an error is looked at whole: a redirection is shorter.
const maxRefusal = 64 << 10

// A call is one command that may have to travel more than once, because the node it
// was sent to says that another serves it, and the place of its reply. Nothing is
// executed twice but reads: a node that redirects a command has not run it.
//
// It is an upstream.Sink. Its fields are guarded by replies.mu, but for those that
// do not change.
type request struct {
	r    *replies
	raw  []byte // the command
	slot int    // of its keys; noSlot: it has none
	at   *upstream.Pool
	as   sender
	read bool // it only reads, and was sent to a node that may be a replica
	// alone: it may block, and must not travel on a connection shared with others.
	alone bool
	// fixed: it must not travel on. A redirection becomes the error that a transaction
	// ends with.
	noRedirect bool
	tracked    bool      // its reply goes into the client's cache
	observer   *observer // hears the beginning of the reply; may be nil

	fanIn *fanIn // what its reply is a part of; nil: it has a place of its own, seq
	part  int
	seq   uint64

	skip          int    // replies to come before the command's own
	notRedirect   bool   // the reply is no redirection
	maybeRedirect []byte // the beginning of what may be one
	reply         []byte // of a part
	done          bool
	tries         int            // the redirector's
	waited        time.Duration  // the redirector's
	on            *upstream.Conn // borrowed for this call; may be nil
	unbind        func() bool    // of on, if it is alone: it need not end with the session any more
}

const noSlot = -1

// A whole is one reply made of the replies to several calls.
type fanIn struct {
	parts [][]byte
	left  int
	seq   uint64
	merge func(parts [][]byte) []byte // runs with the replies locked
}

// ExpectRequest reserves the place of the reply to a call.
func (r *replies) ExpectRequest(c *request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending++
	c.r = r
	c.seq = r.pushLocked(slot{n: 1})
}

// ExpectFanIn reserves the place of one reply that join makes of the replies to calls.
func (r *replies) ExpectFanIn(calls []*request, merge func(parts [][]byte) []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending++
	w := &fanIn{parts: make([][]byte, len(calls)), left: len(calls), merge: merge}
	w.seq = r.pushLocked(slot{n: 1})
	for i, c := range calls {
		c.r, c.fanIn, c.part = r, w, i
	}
}

// Deliver implements upstream.Sink. Every call is a debt of its own, so that p holds
// bytes of one reply only.
func (c *request) Deliver(conn *upstream.Conn, p []byte, ended int) {
	r := c.r
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holdLocked(conn)
	switch {
	case conn.Kind() == '>': // a shared connection has none
		r.messageLocked(conn, p)
		return
	case c.done:
		return
	case c.skip > 0:
		c.skip -= ended
		return
	}
	if c.observer != nil {
		c.observer.add(p, ended)
	}
	if !c.notRedirect && (len(c.maybeRedirect) > 0 || p[0] == '-') {
		c.maybeRedirect = append(c.maybeRedirect, p...)
		if ended == 0 && len(c.maybeRedirect) <= maxRefusal {
			return
		}
		p, c.maybeRedirect = c.maybeRedirect, nil
		if ended == 0 { // too long to be one
			c.notRedirect = true
			c.giveLocked(p, ended)
			return
		}
		if c.noRedirect {
			if r.learn != nil {
				r.learn(c, p)
			}
			p = redirectToTryAgain(p)
		} else if c.tracked && c.isRedirection(p, false) {
			r.closeLocked() // where it is sent on it would not be tracked
			p = appendLost(nil, errLost)
		} else if r.redirect != nil && (c.isRedirection(p, c.read) || c.alone && isForcedUnblock(p)) {
			r.redirect(c, p)
			return
		}
	}
	c.notRedirect = true
	c.giveLocked(p, ended)
}

// Fail implements upstream.Sink.
func (c *request) Fail(conn *upstream.Conn, owed int, cut bool, err error) {
	if c.r.onLost != nil {
		c.r.onLost(conn)
	}
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	switch {
	case c.done:
		return
	case c.skip > 0: // a call that waits for several replies is told of each
		c.skip -= owed
		return
	}
	if c.read && !c.notRedirect && !c.tracked && c.r.redirect != nil { // asking twice does no harm
		c.read, c.maybeRedirect = false, nil
		c.r.redirect(c, appendLost(nil, err))
		return
	}
	if cut && c.notRedirect && c.fanIn == nil {
		c.r.out.Abort()
	}
	c.r.buffered -= len(c.reply)
	c.reply = nil
	if c.fanIn == nil && c.r.endsWithLocked(conn) {
		c.giveLocked(nil, 1)
	} else {
		c.giveLocked(appendLost(nil, err), 1)
	}
}

// answer is for a call that gets no further.
func (c *request) answer(reply []byte) {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	c.giveLocked(reply, 1)
}

// giveLocked passes on what came of the reply.
func (c *request) giveLocked(p []byte, ended int) {
	r := c.r
	if ended > 0 {
		c.done = true
		c.leaveLocked()
	}
	if c.fanIn != nil {
		if r.reserveLocked(len(p)) {
			c.reply = append(c.reply, p...)
		}
		if ended > 0 {
			c.fanIn.takeLocked(r, c)
		}
		return
	}
	i := r.indexLocked(c.seq)
	if i == r.head && !r.midMessage {
		r.writeLocked(p)
		r.midReply = ended == 0
	} else {
		r.bufferLocked(&r.queue[i], p)
		r.queue[i].midReply = ended == 0
	}
	r.queue[i].n -= ended
	r.advanceLocked(ended)
}

// leaveLocked gives up the connection that was opened or borrowed for the call.
func (c *request) leaveLocked() {
	switch {
	case c.on == nil:
	case c.alone:
		c.unbind()
		c.on.Close()
	default:
		upstream.Return(c.on)
	}
	c.on = nil
}

func (w *fanIn) takeLocked(r *replies, c *request) {
	w.parts[c.part] = c.reply
	c.reply = nil
	if w.left--; w.left > 0 {
		return
	}
	for _, p := range w.parts {
		r.buffered -= len(p)
	}
	s := &r.queue[r.indexLocked(w.seq)]
	if !r.overflowed {
		r.bufferLocked(s, w.merge(w.parts))
	}
	s.n = 0
	r.advanceLocked(1)
}

// indexLocked is where in the queue the slot pushed as seq is now.
func (r *replies) indexLocked(seq uint64) int { return r.head + int(seq-r.first) }

// isRedirection says that a node has not run a command, which may be sent elsewhere,
// or again. Of a replica whose data are not there yet that is the master. Scripts word
// errors too: only what is exactly a node's word counts.
func (c *request) isRedirection(reply []byte, read bool) bool {
	slot, _, ok := redirection(reply)
	return ok && slot == c.slot || string(reply) == tryAgain ||
		read && (resp.HasCode(reply, "LOADING") || resp.HasCode(reply, "MASTERDOWN"))
}

const tryAgain = "-TRYAGAIN Multiple keys request during rehashing of slot\r\n"

// isForcedUnblock says that a command was waiting at a master that has become a replica.
// (A client that is unblocked by another has the same word, and another text.)
func isForcedUnblock(reply []byte) bool { return bytes.HasPrefix(reply, []byte("-UNBLOCKED force ")) }

// redirectToTryAgain is an error as a client of a single Redis may see it: what a slot that
// moves does to a transaction.
func redirectToTryAgain(reply []byte) []byte {
	if resp.HasCode(reply, "MOVED") || resp.HasCode(reply, "ASK") {
		return []byte("-TRYAGAIN The hash slot is being moved, the transaction can be tried again\r\n")
	}
	return reply
}

// redirectToClusterDown is what a client hears of a command that nodes have sent back and forth
// for too long: it knows nothing of nodes.
func redirectToClusterDown(reply []byte) []byte {
	if resp.HasCode(reply, "MOVED") || resp.HasCode(reply, "ASK") {
		return []byte("-CLUSTERDOWN The nodes disagree about who serves the hash slot\r\n")
	}
	return reply
}

// A redirector sends on, in the order in which their nodes refused them, the calls
// of one client. Its goroutine lives while there are any.
type redirector struct {
	up     *upstream.Upstream
	ctx    context.Context // ends with the session
	cancel context.CancelFunc

	timeout time.Duration // tryAgainFor

	mu      sync.Mutex
	queue   []redirected
	running bool
	over    bool // the session has ended
	work    sync.WaitGroup
}

type redirected struct {
	c     *request
	reply []byte
}

// A traveler is as whom, and how, commands travel on shared connections.
type sender struct {
	id   upstream.Identity
	lane upstream.ConnClass
	hint uint32
}

const (
	// maxTries bounds how often a command is sent on: nodes that disagree for long
	// could send it back and forth for ever.
	maxTries = 16
	// tryAgainFor bounds how long keys that are on their way between two nodes are
	// waited for, or a node that is not known, tryAgainEvery how often is asked.
	tryAgainFor   = 5 * time.Second
	tryAgainEvery = 20 * time.Millisecond
)

func newRedirector(up *upstream.Upstream) *redirector {
	d := &redirector{up: up, timeout: tryAgainFor}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d
}

// add does not block.
func (d *redirector) add(c *request, reply []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queue = append(d.queue, redirected{c, append([]byte(nil), reply...)})
	if !d.running && !d.over {
		d.running = true
		d.work.Go(d.run)
	}
}

// Go runs f, which must end with ctx, unless the session has ended.
func (d *redirector) Go(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.over {
		d.work.Go(f)
	}
}

// end returns when all that add and Go have started has ended. Calls that are sent
// elsewhere later have nobody to answer to.
func (d *redirector) end() {
	d.mu.Lock()
	d.over = true
	d.mu.Unlock()
	d.cancel()
	d.work.Wait()
}

func (d *redirector) run() {
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

// send sends one call to where the reply says.
func (d *redirector) send(m redirected) {
	c := m.c
	pool, asking := d.target(m)
	if c.tries++; pool == nil || c.tries > maxTries {
		c.answer(redirectToClusterDown(m.reply))
		return
	}
	conn, unbind, err := d.open(c, pool)
	if err != nil {
		d.up.Refresh()
		p := appendErr(nil, err)
		if p == nil { // the client is gone
			p = appendLost(nil, err)
		}
		c.answer(p)
		return
	}
	raw, sinks := c.raw, []upstream.Sink{c}
	c.r.mu.Lock()
	c.leaveLocked()
	c.at, c.on, c.unbind, c.skip = pool, conn, unbind, 0
	if asking {
		c.skip = 1
		raw = append(resp.AppendCommand(nil, "ASKING"), raw...)
		sinks = []upstream.Sink{c, c}
	}
	c.r.mu.Unlock()
	if err := conn.SendEach(raw, sinks); err != nil {
		for _, s := range sinks {
			s.Fail(conn, 1, false, err)
		}
	}
}

// open makes or borrows a connection for a call. One that is the call's alone ends with
// the session, until unbind.
func (d *redirector) open(c *request, pool *upstream.Pool) (conn *upstream.Conn, unbind func() bool, err error) {
	if !c.alone {
		conn, err = pool.Shared(d.ctx, c.as.id, c.as.lane, c.as.hint)
		return conn, nil, err
	}
	if conn, err = pool.Private(d.ctx, c.as.id, c.r); err != nil {
		return nil, nil, err
	}
	return conn, context.AfterFunc(d.ctx, conn.Close), nil
}

// target is where a refused call is to go. It waits where that takes time.
func (d *redirector) target(m redirected) (pool *upstream.Pool, asking bool) {
	c := m.c
	slot, addr, ok := redirection(m.reply)
	switch {
	case ok && c.as.lane == upstream.ScriptClass:
		return d.known(c, absolute(addr, c.at)), resp.HasCode(m.reply, "ASK")
	case ok && resp.HasCode(m.reply, "ASK"):
		return d.up.MasterAt(absolute(addr, c.at)), true
	case ok:
		return d.up.Moved(slot, absolute(addr, c.at)), false
	case resp.HasCode(m.reply, "TRYAGAIN") || isForcedUnblock(m.reply):
		c.tries-- // its bound is another
		if !d.sleep(tryAgainEvery, &c.waited) {
			return nil, false
		}
	}
	return d.up.View().Master(max(c.slot, 0)), false
}

// known is the master at addr, once others than a script have named it: who can run
// scripts must not be able to send the proxy, with the credentials of its clients,
// anywhere. It is nil if that takes too long.
func (d *redirector) known(c *request, addr string) *upstream.Pool {
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
func (d *redirector) learn(c *request, reply []byte) {
	slot, addr, ok := redirection(reply)
	if !ok || !resp.HasCode(reply, "MOVED") {
		return
	}
	if addr = absolute(addr, c.at); d.up.KnownMaster(addr) != nil { // it may be a script's word
		d.up.Moved(slot, addr)
	} else {
		d.up.Refresh()
	}
}

// redirection reads MOVED and ASK: which slot, and the node that is to be asked.
func redirection(reply []byte) (slot int, addr string, ok bool) {
	f := strings.Fields(string(reply))
	if len(f) != 3 || f[0] != "-MOVED" && f[0] != "-ASK" {
		return 0, "", false
	}
	slot, err := strconv.Atoi(f[1])
	return slot, f[2], err == nil && slot >= 0 && slot < spec.Slots
}

// sleep waits, and is false if it has been waited long enough.
func (d *redirector) sleep(length time.Duration, waited *time.Duration) bool {
	if *waited += length; *waited > d.timeout {
		return false
	}
	select {
	case <-time.After(length):
		return true
	case <-d.ctx.Done():
		return false
	}
}

// absolute completes an address of which a node gave only the port: the host is its
// own.
func absolute(addr string, by *upstream.Pool) string {
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
