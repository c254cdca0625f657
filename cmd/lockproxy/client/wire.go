// Package client is lockproxy as a client of a lockproxy that is running: one connection, and on it a lock that is held while
// a command runs. Its errors have the exit codes of package exit.
package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/lockproxy/lockproxy/backends"
	"github.com/lockproxy/lockproxy/backends/resp"
)

// maxReply bounds a reply in bytes and in values, maxNesting in levels. What a lockproxy answers to
// its own commands is shorter.
const (
	maxReply   = 1 << 20
	maxNesting = 16
)

// isGrant reports whether a reply is that to a granted LOCK.
func isGrant(v resp.Tree) bool { return v.Kind == '*' && len(v.Elems) == 4 }

// validity is that of a granted LOCK.
func validity(granted resp.Tree) time.Duration {
	ms, _ := strconv.ParseInt(granted.Elems[2].Text, 10, 64)
	return time.Duration(ms) * time.Millisecond
}

// ReadReply reads one value, without its attributes.
func ReadReply(r *bufio.Reader) (resp.Tree, error) {
	raw, err := resp.Read(r, &resp.Limits{Values: maxReply, Depth: maxNesting, Size: maxReply})
	if bad := (*resp.ScanError)(nil); errors.As(err, &bad) {
		err = fmt.Errorf("not a reply: %w", err)
	}
	if err != nil {
		return resp.Tree{}, err
	}
	return resp.Decode(raw), nil
}

// A Conn is one connection to a proxy, in RESP3. It owns the goroutine of read, which Close
// waits for. Its methods are not safe for concurrent use.
type Conn struct {
	conn    net.Conn
	replies chan resp.Tree
	losses  chan resp.Tree // lock-lost; the first one is kept
	ended   chan struct{}  // closed when the reader has ended; then err is set
	err     error
}

// errNoAnswer: a proxy did not answer in time.
var errNoAnswer = errors.New("no answer")

// A Refusal is an error reply.
type Refusal struct{ resp.Tree }

func (r Refusal) Error() string { return r.Text }

// Word is the first word of the error.
func (r Refusal) Word() string {
	word, _, _ := strings.Cut(r.Text, " ")
	return word
}

// Dial connects to the proxy at s, agrees on RESP3 and selects the URL's database.
// An error reply is a Refusal.
func Dial(ctx context.Context, s *backends.Server) (*Conn, error) {
	return dial(ctx, s, (*Conn).handshake)
}

// dialToAsk is Dial for questions about locks. Where the URL has neither a user nor a database they are asked in RESP2, without HELLO, which
// needs the upstream: a proxy answers them while that is down or hangs.
func dialToAsk(ctx context.Context, s *backends.Server) (*Conn, error) {
	if user, password := s.Credentials(); user+password == "" && s.DB() == 0 {
		return dial(ctx, s, func(*Conn, context.Context, *backends.Server) error { return nil })
	}
	return Dial(ctx, s)
}

func dial(ctx context.Context, s *backends.Server, handshake func(*Conn, context.Context, *backends.Server) error) (*Conn, error) {
	conn, err := s.Dial(ctx)
	if err != nil {
		return nil, err
	}
	w := &Conn{conn: conn, replies: make(chan resp.Tree, 1), losses: make(chan resp.Tree, 1), ended: make(chan struct{})}
	go w.read()
	if err := handshake(w, ctx, s); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

func (w *Conn) handshake(ctx context.Context, s *backends.Server) error {
	hello := []string{"HELLO", "3"}
	if user, password := s.Credentials(); user != "" || password != "" {
		if user == "" {
			user = "default"
		}
		hello = append(hello, "AUTH", user, password)
	}
	if _, err := w.Ask(ctx, hello...); err != nil {
		return err
	}
	if s.DB() == 0 {
		return nil
	}
	_, err := w.Ask(ctx, "SELECT", strconv.Itoa(s.DB()))
	return err
}

// read distributes replies and pushes until the connection ends.
func (w *Conn) read() {
	defer close(w.ended)
	r := bufio.NewReader(w.conn)
	for answered := false; ; answered = true {
		v, err := ReadReply(r)
		switch {
		case !answered && errors.Is(err, io.EOF):
			w.err = fmt.Errorf("the connection was closed without an answer; if it speaks TLS, its URL begins with rediss://: %w", err)
			return
		case err != nil:
			w.err = err
			return
		case v.Kind == '>' && (len(v.Elems) < 4 || v.Elems[0].Text != "lock-lost"):
		case v.Kind == '>':
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

// Ask is [Conn.Do] with error replies as errors, which are a Refusal if it is a lockproxy that gives them.
func (w *Conn) Ask(ctx context.Context, args ...string) (resp.Tree, error) {
	v, err := w.Do(ctx, args...)
	switch {
	case err != nil || v.Kind != '-' && v.Kind != '!':
	case strings.HasPrefix(v.Text, "ERR unknown command"):
		err = fmt.Errorf("%s: a Redis answers there, not a lockproxy (at %s)", args[0], w.conn.RemoteAddr())
	default:
		err = Refusal{v}
	}
	return v, err
}

// Do sends a command and waits for its reply until ctx ends. After an error the connection
// cannot be used any more.
func (w *Conn) Do(ctx context.Context, args ...string) (resp.Tree, error) {
	deadline, _ := ctx.Deadline()
	if err := w.send(deadline, args...); err != nil {
		return resp.Tree{}, err
	}
	select {
	case v := <-w.replies:
		return v, nil
	case <-w.ended:
		select {
		case v := <-w.replies: // the last one
			return v, nil
		default:
			return resp.Tree{}, w.err
		}
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return resp.Tree{}, errNoAnswer
		}
		return resp.Tree{}, ctx.Err()
	}
}

// send sends a command; its reply comes to w.replies. After an error the connection cannot be
// used any more.
func (w *Conn) send(deadline time.Time, args ...string) error {
	_ = w.conn.SetWriteDeadline(deadline) // fails only on a closed connection, as the write then does
	_, err := w.conn.Write(resp.AppendCommand(nil, args...))
	return err
}

// fault is the reason for a missing answer.
func (w *Conn) fault() error {
	select {
	case <-w.ended:
		return w.err
	default:
		return errNoAnswer
	}
}

// Close closes the connection and waits for its reader.
func (w *Conn) Close() {
	_ = w.conn.Close()
	<-w.ended
}

// Printable is text without what would act on a terminal, or on the table.
func Printable(text string) string {
	if utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return text
	}
	return strconv.Quote(text)
}
