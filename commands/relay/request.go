package relay

import (
	"bytes"
	"time"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
)

// maxRefusal is how much of an error is looked at whole: a redirection is shorter.
const maxRefusal = 64 << 10

// A Request is one command that may have to be sent more than once, because the node it
// was sent to names another that serves it, and the place of its reply. Nothing is
// executed twice but reads: a node that redirects a command has not run it.
//
// It is an upstream.Sink. Its fields are guarded by replies.mu, but for those that
// do not change.
type Request struct {
	// Set before it is expected and sent.
	Raw        []byte // the command
	Slot       int    // of its keys; NoSlot: it has none
	Pool       *upstream.Pool
	As         Sender
	Read       bool           // it only reads, and was sent to a node that may be a replica
	Alone      bool           // it may block, and must not travel on a connection shared with others
	NoRedirect bool           // a redirection becomes the error that a transaction ends with
	Tracked    bool           // its reply goes into the client's cache
	Observer   *Observer      // gets the beginning of the reply; may be nil
	Skip       int            // replies to come before the command's own
	Conn       *upstream.Conn // borrowed for this request; may be nil
	Unbind     func() bool    // of Conn, if it is Alone: it need not end with the session any more

	// Where its reply goes.
	r     *Replies
	fanIn *fanIn // what its reply is a part of; nil: it has a place of its own, seq
	part  int
	seq   uint64

	// What has come of its reply.
	notRedirect   bool   // the reply is no redirection
	maybeRedirect []byte // the beginning of what may be one
	reply         []byte // of a part
	done          bool

	// The Redirector's.
	tries  int
	waited time.Duration
}

// NoSlot is the Slot of a request without keys.
const NoSlot = -1

// A fanIn is one reply made of the replies to several requests.
type fanIn struct {
	parts [][]byte
	left  int
	seq   uint64
	merge func(parts [][]byte) []byte // runs with the replies locked
}

// ExpectRequest reserves the place of the reply to a request.
func (r *Replies) ExpectRequest(c *Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending++
	c.r = r
	c.seq = r.pushLocked(slot{n: 1})
}

// ExpectFanIn reserves the place of one reply that merge makes of the replies to requests.
func (r *Replies) ExpectFanIn(calls []*Request, merge func(parts [][]byte) []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending++
	w := &fanIn{parts: make([][]byte, len(calls)), left: len(calls), merge: merge}
	w.seq = r.pushLocked(slot{n: 1})
	for i, c := range calls {
		c.r, c.fanIn, c.part = r, w, i
	}
}

// Deliver implements upstream.Sink. Each request is a Sink of its own, so that p holds
// bytes of one reply only.
func (c *Request) Deliver(conn *upstream.Conn, p []byte, ended int) {
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
	case c.Skip > 0:
		c.Skip -= ended
		return
	}
	if c.Observer != nil {
		c.Observer.add(p, ended)
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
		if c.NoRedirect {
			if r.learn != nil {
				r.learn(c, p)
			}
			p = RedirectToTryAgain(p)
		} else if c.Tracked && c.isRedirection(p, false) {
			r.closeLocked() // where it is sent on it would not be tracked
			p = AppendLost(nil, ErrLost)
		} else if r.redirect != nil && (c.isRedirection(p, c.Read) || c.Alone && isForcedUnblock(p)) {
			r.redirect(c, p)
			return
		}
	}
	c.notRedirect = true
	c.giveLocked(p, ended)
}

// Fail implements upstream.Sink.
func (c *Request) Fail(conn *upstream.Conn, owed int, cut bool, err error) {
	if c.r.opt.Lost != nil {
		c.r.opt.Lost(conn)
	}
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	switch {
	case c.done:
		return
	case c.Skip > 0: // Fail is called for each of several replies
		c.Skip -= owed
		return
	}
	if c.Read && !c.notRedirect && !c.Tracked && c.r.redirect != nil { // asking twice does no harm
		c.Read, c.maybeRedirect = false, nil
		c.r.redirect(c, AppendLost(nil, err))
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
		c.giveLocked(AppendLost(nil, err), 1)
	}
}

// answer is for a request that gets no further.
func (c *Request) answer(reply []byte) {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	c.giveLocked(reply, 1)
}

// giveLocked passes on what came of the reply.
func (c *Request) giveLocked(p []byte, ended int) {
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

// leaveLocked gives up the connection that was opened or borrowed for the request.
func (c *Request) leaveLocked() {
	switch {
	case c.Conn == nil:
	case c.Alone:
		c.Unbind()
		c.Conn.Close()
	default:
		upstream.Return(c.Conn)
	}
	c.Conn = nil
}

func (w *fanIn) takeLocked(r *Replies, c *Request) {
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
func (r *Replies) indexLocked(seq uint64) int { return r.head + int(seq-r.first) }

// isRedirection reports whether a node has not run a command, which may be sent elsewhere,
// or again. Of a replica whose data are not there yet that is the master. Scripts word
// errors too: only what is exactly a node's word counts.
func (c *Request) isRedirection(reply []byte, read bool) bool {
	slot, _, ok := ParseRedirection(reply)
	return ok && slot == c.Slot || string(reply) == tryAgain ||
		read && (resp.HasCode(reply, "LOADING") || resp.HasCode(reply, "MASTERDOWN"))
}

const tryAgain = "-TRYAGAIN Multiple keys request during rehashing of slot\r\n"

// isForcedUnblock reports whether a command was waiting at a master that has become a replica.
// (A client that is unblocked by another has the same word, and another text.)
func isForcedUnblock(reply []byte) bool { return bytes.HasPrefix(reply, []byte("-UNBLOCKED force ")) }

// RedirectToTryAgain is an error as a client of a single Redis may see it: what a slot that
// moves does to a transaction.
func RedirectToTryAgain(reply []byte) []byte {
	if resp.HasCode(reply, "MOVED") || resp.HasCode(reply, "ASK") {
		return []byte("-TRYAGAIN The hash slot is being moved, the transaction can be tried again\r\n")
	}
	return reply
}

// redirectToClusterDown is what a client gets for a command that nodes have redirected back and forth
// for too long: it knows nothing of nodes.
func redirectToClusterDown(reply []byte) []byte {
	if resp.HasCode(reply, "MOVED") || resp.HasCode(reply, "ASK") {
		return []byte("-CLUSTERDOWN The nodes disagree about who serves the hash slot\r\n")
	}
	return reply
}
