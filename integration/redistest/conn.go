package redistest

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

// ReplyTimeout bounds the wait for one reply.
const ReplyTimeout = time.Minute

// A Conn is a client that sends any bytes and reads replies strictly, keeping every
// byte of them. It is not safe for concurrent use.
type Conn struct {
	net.Conn
	Timeout time.Duration // how long Next waits; 0: ReplyTimeout
	r       *bufio.Reader
}

// Dial connects to a Redis or a proxy at host:port or the path of a socket.
func Dial(addr string) (*Conn, error) {
	c, err := net.DialTimeout(network(addr), addr, ReplyTimeout)
	if err != nil {
		return nil, err
	}
	return NewConn(c), nil
}

// NewConn is a client on an open connection.
func NewConn(c net.Conn) *Conn { return &Conn{Conn: c, r: bufio.NewReaderSize(c, 64<<10)} }

// ReadAll reads all replies in what a server sent. The error is that of the first one
// that is incomplete or malformed.
func ReadAll(raw string) (all []Value, err error) {
	r := bufio.NewReader(strings.NewReader(raw))
	for {
		if _, err := r.Peek(1); err != nil {
			return all, nil
		}
		v, err := readValue(r)
		if err != nil {
			return all, err
		}
		all = append(all, v)
	}
}

func network(addr string) string {
	if strings.Contains(addr, "/") {
		return "unix"
	}
	return "tcp"
}

// Open is Dial for a test: the connection closes with it.
func Open(tb testing.TB, addr string) *Conn {
	tb.Helper()
	c, err := Dial(addr)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// Open3 is Open with RESP3 agreed on.
func Open3(tb testing.TB, addr string) *Conn {
	tb.Helper()
	c := Open(tb, addr)
	if v := c.Do(tb, "HELLO", "3"); v.Kind != '%' {
		tb.Fatalf("HELLO 3 answered %v", v)
	}
	return c
}

// Command is a command in the form every client library sends, an array of bulk strings.
func Command(args ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b.String()
}

// Send writes bytes as they are.
func (c *Conn) Send(tb testing.TB, raw string) {
	tb.Helper()
	if _, err := io.WriteString(c.Conn, raw); err != nil {
		tb.Fatal(err)
	}
}

// Do sends a command and reads its reply, which may be an error reply.
func (c *Conn) Do(tb testing.TB, args ...string) Value {
	tb.Helper()
	v, err := c.Try(args...)
	if err != nil {
		tb.Fatalf("%.80q: %v", args, err)
	}
	return v
}

// Try is Do for goroutines other than the test's.
func (c *Conn) Try(args ...string) (Value, error) {
	if _, err := io.WriteString(c.Conn, Command(args...)); err != nil {
		return Value{}, err
	}
	return c.Next()
}

// Read reads the next reply.
func (c *Conn) Read(tb testing.TB) Value {
	tb.Helper()
	v, err := c.Next()
	if err != nil {
		tb.Fatal(err)
	}
	return v
}

// Next reads the next reply within c.Timeout.
func (c *Conn) Next() (Value, error) {
	if err := c.SetReadDeadline(time.Now().Add(cmp.Or(c.Timeout, ReplyTimeout))); err != nil {
		return Value{}, err
	}
	return readValue(c.r)
}

// ReadUntilQuiet reads on until the other side closes, or nothing has come for quiet.
func (c *Conn) ReadUntilQuiet(quiet time.Duration) (got string, closed bool) {
	var b strings.Builder
	buf := make([]byte, 64<<10)
	for {
		if err := c.SetReadDeadline(time.Now().Add(quiet)); err != nil {
			return b.String(), true
		}
		n, err := c.r.Read(buf)
		b.Write(buf[:n])
		if err != nil {
			nerr, ok := err.(net.Error)
			return b.String(), !ok || !nerr.Timeout()
		}
	}
}

// A Value is one reply. Raw holds every byte of it.
type Value struct {
	Kind  byte   // the type byte
	Text  string // the line, or the payload of a bulk, verbatim string or bulk error
	Null  bool   // $-1, *-1 or _
	Elems []Value
	Raw   string
}

// IsError reports whether the reply is an error.
func (v Value) IsError() bool { return v.Kind == '-' || v.Kind == '!' }

// Int is the number of an integer reply, or 0.
func (v Value) Int() int64 {
	n, _ := strconv.ParseInt(v.Text, 10, 64)
	return n
}

// String is the reply on one line, with everything but the length headers: +OK, -ERR text, :1, $"bulk", $-1, *[:1 $"a"], _, %[k v].
func (v Value) String() string {
	switch {
	case v.Null:
		return strings.TrimSuffix(v.Raw, "\r\n")
	case isAggregate(v.Kind):
		parts := make([]string, len(v.Elems))
		for i, e := range v.Elems {
			parts[i] = e.String()
		}
		return string(v.Kind) + "[" + strings.Join(parts, " ") + "]"
	case isBlob(v.Kind):
		return string(v.Kind) + strconv.Quote(v.Text)
	default:
		return string(v.Kind) + v.Text
	}
}

func isAggregate(kind byte) bool { return strings.IndexByte("*%~>|", kind) >= 0 }
func isBlob(kind byte) bool      { return strings.IndexByte("$!=", kind) >= 0 }

// readValue reads one reply; an attribute is read as a reply of its own.
func readValue(r *bufio.Reader) (Value, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		if line != "" {
			err = fmt.Errorf("%w after %q", err, line)
		}
		return Value{}, err
	}
	if len(line) < 3 || !strings.HasSuffix(line, "\r\n") || strings.IndexByte("+-:$*_,#!=(%~>|", line[0]) < 0 {
		return Value{}, fmt.Errorf("not a reply: %q", line)
	}
	v := Value{Kind: line[0], Text: line[1 : len(line)-2], Raw: line}
	if !isAggregate(v.Kind) && !isBlob(v.Kind) {
		v.Null = v.Kind == '_'
		return v, nil
	}
	n, err := strconv.Atoi(v.Text)
	if err != nil || n < -1 {
		return Value{}, fmt.Errorf("not a length: %q", line)
	}
	v.Text = ""
	if n == -1 {
		v.Null = true
		return v, nil
	}
	if isBlob(v.Kind) {
		err = v.readBlob(r, n)
		return v, err
	}
	if v.Kind == '%' || v.Kind == '|' {
		n *= 2
	}
	err = v.readElems(r, n)
	return v, err
}

func (v *Value) readBlob(r *bufio.Reader, n int) error {
	b := make([]byte, n+2)
	if _, err := io.ReadFull(r, b); err != nil {
		return err
	}
	if string(b[n:]) != "\r\n" {
		return fmt.Errorf("bulk of %d bytes ends in %q", n, b[n:])
	}
	v.Text = string(b[:n])
	v.Raw += string(b)
	return nil
}

func (v *Value) readElems(r *bufio.Reader, n int) error {
	var raw strings.Builder
	raw.WriteString(v.Raw)
	for range n {
		e, err := readValue(r)
		if err != nil {
			return err
		}
		raw.WriteString(e.Raw)
		v.Elems = append(v.Elems, e)
	}
	v.Raw = raw.String()
	return nil
}
