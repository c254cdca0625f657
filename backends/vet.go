package backends

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"

	"github.com/redis/rueidis"
)

// What a server may answer to a question of the proxy's own. The largest that one has a
// reason to: a page of SCAN with a thousand names of 64 KB, and CLUSTER SLOTS where no two
// neighbouring slots have the same master, with three replicas each and their host names.
const (
	vetLine   = 32 << 10  // bytes of a line
	vetBulk   = 4 << 20   // bytes of a string
	vetValues = 1 << 19   // announced in one message, at all levels
	vetDepth  = 16        // levels of nesting
	vetSize   = 128 << 20 // bytes of one message
)

var (
	errVetLine    = fmt.Errorf("a line of more than %d bytes", vetLine)
	errVetLength  = errors.New("a malformed length")
	errVetBulk    = fmt.Errorf("a string of more than %d bytes", vetBulk)
	errVetValues  = fmt.Errorf("a message of more than %d values", vetValues)
	errVetDepth   = fmt.Errorf("a message nested deeper than %d levels", vetDepth)
	errVetSize    = fmt.Errorf("a message of more than %d bytes", vetSize)
	errVetNested  = errors.New("a push inside another message")
	errVetUnended = errors.New("a line or string not followed by CR LF")
	errVetUnasked = errors.New("a message that nobody asked for")
)

// A VetError says why a server cannot be talked to: what it sends is no answer. The
// connection is closed.
type VetError struct {
	Server string
	Err    error
}

func (e *VetError) Error() string { return e.Server + " sent " + e.Err.Error() }
func (e *VetError) Unwrap() error { return e.Err }

// A vetted connection stands between a server and rueidis, which believes what it
// reads: it allocates what is announced, recurses as deep as is nested, and panics where
// an answer comes to no question. What it must not see ends the connection instead.
//
// Read is for one goroutine at a time, Write for one as well; they may run at once.
type vetted struct {
	net.Conn
	server  string
	in      vetMessages
	err     error // of in
	answers vetAnswers
}

// vetting is the dialling of opt, vetted.
func vetting(server string, opt *rueidis.ClientOption) {
	dial := opt.DialCtxFn
	opt.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, t *tls.Config) (nc net.Conn, err error) {
		switch {
		case dial != nil:
			nc, err = dial(ctx, addr, d, t)
		case t != nil:
			nc, err = (&tls.Dialer{NetDialer: d, Config: t}).DialContext(ctx, "tcp", addr)
		default:
			nc, err = d.DialContext(ctx, "tcp", addr)
		}
		if err != nil {
			return nil, err
		}
		return vet(nc, server), nil
	}
}

func vet(nc net.Conn, server string) *vetted { return &vetted{Conn: nc, server: server} }

// Read is net.Conn's. Nothing is handed out of a read in which something was wrong.
func (v *vetted) Read(p []byte) (int, error) {
	if v.err != nil {
		return 0, v.err
	}
	n, err := v.Conn.Read(p)
	if fault := v.in.scan(p[:n], v.answers.came); fault != nil {
		v.err = &VetError{Server: v.server, Err: fault}
		_ = v.Conn.Close()
		return 0, v.err
	}
	return n, err
}

// Write is net.Conn's.
func (v *vetted) Write(p []byte) (int, error) {
	if err := v.answers.sent(p); err != nil {
		return 0, fmt.Errorf("to %s: %w", v.server, err)
	}
	return v.Conn.Write(p)
}

// A vetMessage is what counts of one message.
type vetMessage struct {
	kind   byte
	values int    // of an aggregate
	text   []byte // its first value's, or its own; good until the next one
	second []byte // of a command: its second value's
}

// vetMessages cuts a stream into messages, exactly where rueidis does, and finds what is
// wrong with them before it can. It goes through a line twice, through a string once.
type vetMessages struct {
	line   []byte  // of a line whose end has not come
	need   int     // bytes to come of a string, its CR LF included; 0: a line comes
	keep   *[]byte // where to keep the string; nil: nowhere
	size   int     // bytes of this message
	values int     // that it has announced
	stack  []vetLevel
	msg    vetMessage
}

// A vetLevel is an aggregate that has not ended.
type vetLevel struct {
	left  int
	attrs bool // it belongs to the value that follows
}

// scan reads on in p. each is called for every message that ends there.
func (m *vetMessages) scan(p []byte, each func(*vetMessage) error) error {
	for len(p) > 0 {
		n, ended, err := m.small(p), true, error(nil)
		switch {
		case n > 0:
		case m.need > 0:
			n, ended, err = m.payload(p)
		default:
			n, ended, err = m.header(p)
		}
		if err != nil {
			return err
		}
		p = p[n:]
		if m.size += n; m.size > vetSize {
			return errVetSize
		}
		if ended && m.unwind() {
			if err := each(&m.msg); err != nil {
				return err
			}
			m.size, m.values, m.msg = 0, 0, vetMessage{text: m.msg.text[:0], second: m.msg.second[:0]}
		}
	}
	return nil
}

// small is the short cut for most of what is said: the length of a string at the start of p
// that is all there, and neither long nor a text to keep; else 0.
func (m *vetMessages) small(p []byte) int {
	if p[0] != '$' || m.need > 0 || len(m.line) > 0 || m.telling() != nil {
		return 0
	}
	n := 0
	for i := 1; i < min(len(p), 6); i++ {
		if c := p[i] - '0'; c <= 9 {
			n = 10*n + int(c)
			continue
		}
		end := i + n + 4
		if i > 1 && end <= len(p) && p[i] == '\r' && p[i+1] == '\n' && p[end-2] == '\r' && p[end-1] == '\n' {
			return end
		}
		break
	}
	return 0
}

// payload takes what is there of a string.
func (m *vetMessages) payload(p []byte) (n int, ended bool, err error) {
	if n = min(len(p), m.need-2); n > 0 {
		if m.keep != nil {
			*m.keep = append(*m.keep, p[:n]...)
		}
		m.need -= n
		return n, false, nil
	}
	if p[0] != "\n\r"[m.need-1] {
		return 0, false, errVetUnended
	}
	m.need--
	return 1, m.need == 0, nil
}

// header takes what is there of a line, and does what it says when it is whole.
func (m *vetMessages) header(p []byte) (n int, ended bool, err error) {
	n = bytes.IndexByte(p, '\n') + 1
	if len(m.line)+max(n, 1) > vetLine || n == 0 && len(m.line)+len(p) > vetLine {
		return 0, false, errVetLine
	}
	if n == 0 {
		if m.line = append(m.line, p...); !vetBegun(m.line) {
			return 0, false, errVetUnended
		}
		return len(p), false, nil
	}
	line := p[:n]
	if len(m.line) > 0 {
		m.line = append(m.line, line...)
		line, m.line = m.line, m.line[:0]
	}
	if len(line) < 3 || line[len(line)-2] != '\r' {
		return 0, false, errVetUnended
	}
	ended, err = m.value(line[0], line[1:len(line)-2])
	return n, ended, err
}

// vetBegun is false for a part of a line that rueidis would not wait for the end of.
func vetBegun(line []byte) bool {
	switch line[0] {
	case '_':
		return bytes.HasPrefix([]byte("_\r\n"), line)
	case '#':
		return bytes.HasPrefix([]byte("#t\r\n"), line) || bytes.HasPrefix([]byte("#f\r\n"), line)
	}
	return bytes.IndexByte([]byte("+-:,($!=*~%|>"), line[0]) >= 0
}

// value begins a value, and says whether that is all of it.
func (m *vetMessages) value(kind byte, text []byte) (ended bool, err error) {
	first := len(m.stack) == 0
	if first && kind != '|' {
		m.msg.kind = kind
	}
	keep := m.telling()
	switch kind {
	case '+', '-', ':', ',', '(', '_', '#':
		if kind == '_' && len(text) > 0 || kind == '#' && string(text) != "t" && string(text) != "f" {
			return false, errVetUnended
		}
		if keep != nil {
			*keep = append(*keep, text...)
		}
		return true, nil
	case '$', '!', '=':
		return m.bulk(kind, text, keep)
	case '>':
		if !first {
			return false, errVetNested
		}
	case '*', '~', '%', '|':
	default:
		return false, fmt.Errorf("a value of unknown type %q", kind)
	}
	return m.aggregate(kind, text, first)
}

// telling is where the value that begins now is kept: the text of the message is the first
// one of an aggregate, or all there is.
func (m *vetMessages) telling() *[]byte {
	switch {
	case len(m.stack) == 0:
		return &m.msg.text
	case len(m.stack) > 1 || m.stack[0].attrs:
		return nil
	case m.stack[0].left == m.msg.values:
		return &m.msg.text
	case m.stack[0].left == m.msg.values-1:
		return &m.msg.second
	}
	return nil
}

func (m *vetMessages) bulk(kind byte, text []byte, keep *[]byte) (ended bool, err error) {
	n, null, err := vetLength(text)
	switch {
	case err != nil || null && kind != '$':
		return false, errVetLength
	case null:
		return true, nil
	case n > vetBulk:
		return false, errVetBulk
	}
	if n > vetLine {
		keep = nil
	}
	m.need, m.keep = n+2, keep
	return false, nil
}

func (m *vetMessages) aggregate(kind byte, text []byte, first bool) (ended bool, err error) {
	n, null, err := vetLength(text)
	if err != nil || null && kind != '*' {
		return false, errVetLength
	}
	if kind == '%' || kind == '|' {
		n *= 2
	}
	if m.values += n; m.values > vetValues {
		return false, errVetValues
	}
	if first && kind != '|' {
		m.msg.values = n
	}
	if n == 0 {
		return kind != '|', nil
	}
	if len(m.stack) == vetDepth {
		return false, errVetDepth
	}
	m.stack = append(m.stack, vetLevel{n, kind == '|'})
	return false, nil
}

// vetLength reads a length that rueidis reads alike; null is -1.
func vetLength(text []byte) (n int, null bool, err error) {
	if string(text) == "-1" {
		return 0, true, nil
	}
	if len(text) == 0 || len(text) > 9 || bytes.ContainsAny(text, "+-") {
		return 0, false, errVetLength
	}
	n, err = strconv.Atoi(string(text))
	return n, false, err
}

// unwind counts an ended value at the levels that it ends, and says whether the message
// is over.
func (m *vetMessages) unwind() bool {
	for top := len(m.stack) - 1; top >= 0; top-- {
		if m.stack[top].left--; m.stack[top].left > 0 {
			return false
		}
		attrs := m.stack[top].attrs
		m.stack = m.stack[:top]
		if attrs {
			return false
		}
	}
	return true
}

// vetAnswers are the questions on a connection that have no answer yet, as rueidis
// counts them.
type vetAnswers struct {
	out vetMessages // the writer's
	own bool        // the writer's: the next PING is what rueidis sends behind UNSUBSCRIBE

	mu    sync.Mutex
	open  []vetAsked // from head on
	head  int
	more  int  // confirmations to come of a SUBSCRIBE that counts as answered
	pong  bool // an UNSUBSCRIBE was refused: the answer to the PING behind it is to come
	heard bool // there was a SUBSCRIBE
	resp3 bool // was asked for; rueidis does not where it subscribes in RESP2
}

// A vetAsked is one question.
type vetAsked struct {
	subscribe int // to so many channels
	leave     bool
}

// sent notes commands. They are arrays of strings; rueidis writes nothing else.
func (a *vetAnswers) sent(p []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.out.scan(p, func(m *vetMessage) error {
		asked := vetAsked{}
		switch string(m.text) { // as rueidis writes them
		case "PING":
			if a.own {
				a.own = false
				return nil
			}
		case "HELLO":
			a.resp3 = a.resp3 || string(m.second) == "3"
		case "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE":
			asked.subscribe, a.heard = m.values-1, true
		case "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE":
			asked.leave, a.own = true, true
		}
		if a.head > len(a.open)/2 { // there may be an open question at all times
			a.open, a.head = append(a.open[:0], a.open[a.head:]...), 0
		}
		a.open = append(a.open, asked)
		return nil
	})
}

// first is the question that is to be answered next; nil: there is none.
func (a *vetAnswers) first() *vetAsked {
	if a.head == len(a.open) {
		return nil
	}
	return &a.open[a.head]
}

// next goes on to the question behind the first.
func (a *vetAnswers) next() {
	if a.head++; a.head == len(a.open) {
		a.open, a.head = a.open[:0], 0
	}
}

// came notes a message, and says whether rueidis can take it.
func (a *vetAnswers) came(m *vetMessage) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case m.kind == '>' && !a.heard:
		return errVetUnasked
	case m.kind == '>', a.heard && !a.resp3 && m.values > 0 && string(m.text) != "pong":
		return a.pushed(m)
	}
	return a.answered(m)
}

// pushed takes a message of a subscription.
func (a *vetAnswers) pushed(m *vetMessage) error {
	if m.values < 2 {
		return nil
	}
	began := false
	switch string(m.text) {
	case "subscribe", "psubscribe", "ssubscribe":
		began = true
	case "unsubscribe", "punsubscribe", "sunsubscribe":
		a.more = max(0, a.more-1)
	}
	switch {
	case !began:
	case a.more > 0:
		a.more--
	case a.first() == nil || a.first().subscribe == 0:
		return errVetUnasked
	default:
		a.more = a.first().subscribe - 1
		a.next()
	}
	return nil
}

// answered takes an answer to the first open question.
func (a *vetAnswers) answered(m *vetMessage) error {
	pong, first := isPong(m), a.first()
	switch {
	case first == nil && a.pong && pong:
		a.pong = false
	case first == nil:
		return errVetUnasked
	case (first.leave || first.subscribe > 0) && string(m.text) == "QUEUED":
		return errVetUnasked
	case first.leave && !pong:
		a.pong = true
		a.next()
	case a.pong && !pong:
		return errVetUnasked
	case a.pong:
		a.pong = false
	default:
		a.next()
	}
	return nil
}

// isPong says that a message is what PING is answered with, or refused with.
func isPong(m *vetMessage) bool {
	if m.values > 0 {
		return string(m.text) == "pong"
	}
	refused := m.kind == '-' && (bytes.HasPrefix(m.text, []byte("LOADING")) || bytes.HasPrefix(m.text, []byte("BUSY")) || bytes.Contains(m.text, []byte("'ping'")))
	return refused || string(m.text) == "PONG"
}
