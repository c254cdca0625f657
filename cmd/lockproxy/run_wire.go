package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/backends"
	"github.com/lockproxy/lockproxy/backends/resp"
)

// maxReply bounds a reply in bytes and in values, maxNesting in levels. The replies to run
// are short.
const (
	maxReply   = 1 << 20
	maxNesting = 16
)

// A reply is one value of RESP3. Of a map elems are the keys and values in turn.
type reply struct {
	kind  byte   // the type byte; '_' for the nulls of both protocols
	text  string // empty for an aggregate
	elems []reply
}

func (r reply) isError() bool { return r.kind == '-' || r.kind == '!' }

// word is the first word of an error.
func (r reply) word() string {
	word, _, _ := strings.Cut(r.text, " ")
	return word
}

// validity is that of a granted LOCK.
func (r reply) validity() time.Duration {
	ms, _ := strconv.ParseInt(r.elems[2].text, 10, 64)
	return time.Duration(ms) * time.Millisecond
}

// readReply reads one value, without its attributes.
func readReply(r *bufio.Reader) (reply, error) {
	s := resp.Scanner{Limits: &resp.Limits{Values: maxReply, Depth: maxNesting, Size: maxReply}}
	var raw []byte
	for {
		if _, err := r.Peek(1); err != nil {
			return reply{}, err
		}
		p, _ := r.Peek(r.Buffered())
		n, done, err := s.Scan(p)
		if err != nil {
			return reply{}, fmt.Errorf("not a reply: %w", err)
		}
		raw = append(raw, p[:n]...)
		_, _ = r.Discard(n) // they are buffered
		if done {
			v, _ := decode(raw)
			return v, nil
		}
	}
}

// decode reads the value that a whole reply, or what is left of one, begins with.
func decode(raw []byte) (v reply, rest []byte) {
	first, rest, _ := resp.First(raw)
	v = reply{kind: first.Kind, text: string(first.Text)}
	for range first.Len {
		var e reply
		e, rest = decode(rest)
		v.elems = append(v.elems, e)
	}
	return v, rest
}

// A wire is one connection to a proxy, in RESP3. It owns the goroutine of read, which close
// waits for. do and send are not safe for concurrent use.
type wire struct {
	conn    net.Conn
	replies chan reply
	losses  chan reply    // lock-lost; the first one is kept
	ended   chan struct{} // closed when the reader has ended; then err is set
	err     error
}

// errNoAnswer: a proxy did not answer in time.
var errNoAnswer = errors.New("no answer")

// A refusal is an error reply.
type refusal struct{ reply }

func (r refusal) Error() string { return r.text }

// dialWire connects to the proxy at s, agrees on RESP3 and selects the URL's database.
// An error reply is a refusal.
func dialWire(ctx context.Context, s *backends.Server) (*wire, error) {
	conn, err := s.Dial(ctx)
	if err != nil {
		return nil, err
	}
	w := &wire{conn: conn, replies: make(chan reply, 1), losses: make(chan reply, 1), ended: make(chan struct{})}
	go w.read()
	if err := w.handshake(ctx, s); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func (w *wire) handshake(ctx context.Context, s *backends.Server) error {
	hello := []string{"HELLO", "3"}
	if user, password := s.Credentials(); user != "" || password != "" {
		if user == "" {
			user = "default"
		}
		hello = append(hello, "AUTH", user, password)
	}
	if _, err := w.ask(ctx, hello...); err != nil {
		return err
	}
	if s.DB() == 0 {
		return nil
	}
	_, err := w.ask(ctx, "SELECT", strconv.Itoa(s.DB()))
	return err
}

// read distributes replies and pushes until the connection ends.
func (w *wire) read() {
	defer close(w.ended)
	r := bufio.NewReader(w.conn)
	for {
		v, err := readReply(r)
		switch {
		case err != nil:
			w.err = err
			return
		case v.kind == '>' && (len(v.elems) < 4 || v.elems[0].text != "lock-lost"):
		case v.kind == '>':
			select {
			case w.losses <- v:
			default:
			}
		default:
			select {
			case w.replies <- v:
			default:
				w.err = errors.New("a reply that nobody asked for")
				return
			}
		}
	}
}

// ask is do with error replies as errors.
func (w *wire) ask(ctx context.Context, args ...string) (reply, error) {
	v, err := w.do(ctx, args...)
	if err == nil && v.isError() {
		err = refusal{v}
	}
	return v, err
}

// do sends a command and waits for its reply until ctx ends. After an error the connection
// cannot be used any more.
func (w *wire) do(ctx context.Context, args ...string) (reply, error) {
	deadline, _ := ctx.Deadline()
	if err := w.send(deadline, args...); err != nil {
		return reply{}, err
	}
	select {
	case v := <-w.replies:
		return v, nil
	case <-w.ended:
		return reply{}, w.err
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return reply{}, errNoAnswer
		}
		return reply{}, ctx.Err()
	}
}

// send sends a command; its reply comes to w.replies. After an error the connection cannot be
// used any more.
func (w *wire) send(deadline time.Time, args ...string) error {
	_ = w.conn.SetWriteDeadline(deadline) // fails only on a closed connection, as the write then does
	_, err := w.conn.Write(resp.AppendCommand(nil, args...))
	return err
}

// fault is the reason for a missing answer.
func (w *wire) fault() error {
	select {
	case <-w.ended:
		return w.err
	default:
		return errNoAnswer
	}
}

// close closes the connection and waits for its reader.
func (w *wire) close() {
	_ = w.conn.Close()
	<-w.ended
}
