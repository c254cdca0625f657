package backends

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/backends/resp"
)

// What a server may answer to a question of the proxy's own. The largest answers that one
// has a reason to give: a page of SCAN with a thousand names of 64 KB, and CLUSTER SLOTS
// where no two neighbouring slots have the same master, with three replicas each and their
// host names.
const (
	maxLine   = 32 << 10
	maxBulk   = 4 << 20
	maxValues = 1 << 19
	maxDepth  = 16
	maxSize   = 128 << 20
	// maxHead is how much of the beginning of a message that comes in pieces is kept, to
	// tell what it is: attributes, and a line.
	maxHead = 64 << 10
)

var (
	errUnasked    = errors.New("reply that nobody asked for")
	errAttributes = fmt.Errorf("reply with attributes of more than %d bytes", maxHead)
)

// A ProtocolError says why a server cannot be used: what it sends is no answer. The
// connection is closed.
type ProtocolError struct {
	Server string
	Err    error // a *resp.ScanError where the form is at fault
}

func (e *ProtocolError) Error() string { return e.Server + " sent a " + e.Err.Error() }
func (e *ProtocolError) Unwrap() error { return e.Err }

// A guardedConn stands between a server and rueidis, which trusts what it reads: it
// allocates what is announced, recurses as deep as is nested, and panics where an answer
// comes to no question. What it must not read ends the connection instead.
//
// Read is for one goroutine at a time, Write for one as well; they may run at once.
type guardedConn struct {
	net.Conn
	server  string
	in      messages // the reader's
	err     error    // the reader's: what was wrong with in
	pending pendingReplies
}

// guardDial makes the connections that opt dials guarded ones.
func guardDial(server string, opt *rueidis.ClientOption) {
	dial := opt.DialCtxFn
	opt.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, t *tls.Config) (net.Conn, error) {
		nc, err := dial(ctx, addr, d, t)
		if err != nil {
			return nil, err
		}
		return guard(nc, server), nil
	}
}

func guard(nc net.Conn, server string) *guardedConn {
	g := &guardedConn{Conn: nc, server: server}
	limits := &resp.Limits{Line: maxLine, Bulk: maxBulk, Values: maxValues, Depth: maxDepth, Size: maxSize}
	g.in.scanner = resp.Scanner{Grammar: resp.StrictReplies, Limits: limits}
	g.pending.out.scanner = g.in.scanner
	return g
}

// Read is net.Conn's. Of a read in which something is wrong nothing is handed out.
func (g *guardedConn) Read(p []byte) (int, error) {
	if g.err != nil {
		return 0, g.err
	}
	n, err := g.Conn.Read(p)
	if fault := g.in.scan(p[:n], g.pending.received); fault != nil {
		g.err = &ProtocolError{Server: g.server, Err: fault}
		_ = g.Conn.Close()
		return 0, g.err
	}
	return n, err
}

// Write is net.Conn's.
func (g *guardedConn) Write(p []byte) (int, error) {
	if err := g.pending.sent(p); err != nil {
		return 0, fmt.Errorf("to %s: %w", g.server, err)
	}
	return g.Conn.Write(p)
}

// messages cuts a stream into messages.
type messages struct {
	scanner resp.Scanner
	head    []byte // how the message that has not ended begins; up to maxHead
}

// scan reads on in p. each is called for every message that ends there; its error ends the
// scan.
func (m *messages) scan(p []byte, each func(message) error) error {
	for len(p) > 0 {
		n, done, err := m.scanner.Scan(p)
		if err != nil {
			return err
		}
		head := p[:n]
		if !done || len(m.head) > 0 {
			m.head = append(m.head, head[:min(n, maxHead-len(m.head))]...)
			head = m.head
		}
		if p = p[n:]; !done {
			break
		}
		msg, ok := readMessage(head)
		if !ok {
			return errAttributes
		}
		if err := each(msg); err != nil {
			return err
		}
		m.head = m.head[:0]
	}
	return nil
}

// A message is the part of one that tells which question it answers.
type message struct {
	kind   byte
	values int    // of an aggregate
	text   []byte // its first value's, or its own
	second []byte // of a command: its second value's
}

// readMessage reads the beginning of a message. It is not ok if that has no more than
// attributes.
func readMessage(head []byte) (m message, ok bool) {
	v, rest, ok := resp.First(head)
	if !ok {
		return message{}, false
	}
	m.kind = v.Kind
	if !v.Aggregate() {
		m.text = v.Text
		return m, true
	}
	m.values = v.Len
	if m.values == 0 {
		return m, true
	}
	if v, rest, ok = resp.First(rest); ok {
		m.text = v.Text
	}
	if m.values > 1 && !v.Aggregate() {
		if v, _, more := resp.First(rest); more {
			m.second = v.Text
		}
	}
	return m, ok
}

// pendingReplies are the questions on a connection that have no answer yet, as rueidis
// counts them.
type pendingReplies struct {
	out  messages // the writer's
	ping bool     // the writer's: the next PING is what rueidis sends behind UNSUBSCRIBE

	mu         sync.Mutex
	questions  []question
	more       int  // confirmations to come of a SUBSCRIBE that counts as answered
	pong       bool // an UNSUBSCRIBE was refused: the answer to the PING behind it is to come
	subscribed bool // there was a SUBSCRIBE
	resp3      bool // was asked for; rueidis does not where it subscribes in RESP2
}

// A question is one command that is to be answered.
type question struct {
	subscribe   int // to so many channels
	unsubscribe bool
}

// sent notes commands. They are arrays of strings; rueidis writes nothing else.
func (r *pendingReplies) sent(p []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out.scan(p, func(m message) error {
		q := question{}
		switch string(m.text) { // as rueidis writes them
		case "PING":
			if r.ping {
				r.ping = false
				return nil
			}
		case "HELLO":
			r.resp3 = r.resp3 || string(m.second) == "3"
		case "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE":
			q.subscribe, r.subscribed = m.values-1, true
		case "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE":
			q.unsubscribe, r.ping = true, true
		}
		r.questions = append(r.questions, q)
		return nil
	})
}

// first is the question that is to be answered next; nil: there is none.
func (r *pendingReplies) first() *question {
	if len(r.questions) == 0 {
		return nil
	}
	return &r.questions[0]
}

// next goes on to the question behind the first.
func (r *pendingReplies) next() {
	if len(r.questions) == 1 {
		r.questions = r.questions[:0] // its memory is used again
	} else {
		r.questions = r.questions[1:]
	}
}

// received notes a message; an error means that rueidis must not have it.
func (r *pendingReplies) received(m message) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case m.kind == '>' && !r.subscribed:
		return errUnasked
	case m.kind == '>', r.subscribed && !r.resp3 && m.values > 0 && string(m.text) != "pong":
		return r.pushed(m)
	}
	return r.answered(m)
}

// pushed takes a message of a subscription.
func (r *pendingReplies) pushed(m message) error {
	if m.values < 2 {
		return nil
	}
	began := false
	switch string(m.text) {
	case "subscribe", "psubscribe", "ssubscribe":
		began = true
	case "unsubscribe", "punsubscribe", "sunsubscribe":
		r.more = max(0, r.more-1)
	}
	switch {
	case !began:
	case r.more > 0:
		r.more--
	case r.first() == nil || r.first().subscribe == 0:
		return errUnasked
	default:
		r.more = r.first().subscribe - 1
		r.next()
	}
	return nil
}

// answered takes an answer to the first open question.
func (r *pendingReplies) answered(m message) error {
	pong, first := isPong(m), r.first()
	switch {
	case first == nil && r.pong && pong:
		r.pong = false
	case first == nil:
		return errUnasked
	case (first.unsubscribe || first.subscribe > 0) && string(m.text) == "QUEUED":
		return errUnasked
	case first.unsubscribe && !pong:
		r.pong = true
		r.next()
	case r.pong && !pong:
		return errUnasked
	case r.pong:
		r.pong = false
	default:
		r.next()
	}
	return nil
}

// isPong reports whether a message is what PING is answered with, or refused with.
func isPong(m message) bool {
	if m.values > 0 {
		return string(m.text) == "pong"
	}
	refused := m.kind == '-' && (bytes.HasPrefix(m.text, []byte("LOADING")) || bytes.HasPrefix(m.text, []byte("BUSY")) || bytes.Contains(m.text, []byte("'ping'")))
	return refused || string(m.text) == "PONG"
}
