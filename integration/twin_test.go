package integration

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// A twin is two identical redis-servers, one spoken to directly and one through
// the proxy. What both say to the same bytes must be the same bytes.
type twin struct {
	plain  *redistest.Server // the reference
	behind *redistest.Server // the proxy's upstream, for a look behind it
	via    string            // the proxy's address
	// mute says that these servers, Redis from 7.2 on and Valkey, leave out the answer to an
	// AUTH that they refuse while other answers are on their way. The proxy never does.
	mute bool
}

// controlVariable, when not empty, takes the proxy out: a test that compares a
// Redis with a proxied one must pass when both are plain.
const controlVariable = "LOCKPROXY_TEST_CONTROL"

func startTwin(t *testing.T, args ...string) *twin {
	t.Helper()
	s := redistest.StartNodes(t, 2, args...)
	w := &twin{plain: s[0], behind: s[1], via: s[1].Addr()}
	if os.Getenv(controlVariable) == "" {
		// The lock node is another server, so that no key of ours is beside the data.
		w.via = redistest.StartProxy(t, w.behind, redistest.StartNodes(t, 1)).Addr()
	}
	for _, s := range s {
		w.mute = isMute(t, s)
	}
	return w
}

// isMute reports whether a server leaves out the answer to a refused AUTH in a pipeline.
func isMute(t *testing.T, s *redistest.Server) bool {
	t.Helper()
	c, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience(0))); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, lines("NOSUCH", "AUTH nobody wrong", "AUTH")); err != nil {
		t.Fatal(err)
	}
	got, err := readTo(c, "wrong number of arguments for 'auth' command\r\n")
	if err != nil {
		t.Fatal(err)
	}
	return !strings.Contains(got, "WRONGPASS")
}

// both runs a command on each server, beside the proxy.
func (w *twin) both(t *testing.T, args ...string) {
	t.Helper()
	w.plain.Do(t, args...)
	w.behind.Do(t, args...)
}

// A dialogue is what one client sends on one connection.
type dialogue struct {
	name   string
	bytes  string
	chunks int  // written in this many pieces; 0 is one, -1 one byte at a time
	closes bool // the server ends it; otherwise a marker is sent behind
	// refused says that an AUTH in it is refused. To mute servers it is sent command by
	// command, each behind the answer to the one before.
	refused bool
	varies  bool // servers differ in whether it is a fault
}

// marker is sent behind a dialogue; its reply is the last.
const marker = "end-of-dialogue"

// patience bounds a dialogue of this many bytes, most of which is the machine's
// share among the tests that run at the same time.
func patience(bytes int) time.Duration {
	return 10*time.Second + time.Duration(bytes>>20)*400*time.Millisecond
}

// talk sends the dialogue and returns everything that came back, up to the
// marker's reply or the end of the connection.
func talk(addr string, d dialogue) (string, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience(len(d.bytes)))); err != nil {
		return "", err
	}
	input := d.bytes
	if !d.closes {
		input += redistest.Command("PING", marker)
	}
	sent := make(chan error, 1)
	go func() { sent <- writePieces(c, input, d.chunks) }()
	got, err := readTo(c, marker+"\r\n")
	if err != nil {
		return got, err
	}
	return got, ignoreReset(<-sent)
}

func writePieces(w io.Writer, s string, pieces int) error {
	size := len(s)
	switch {
	case pieces < 0:
		size = 1
	case pieces > 1:
		size = len(s)/pieces + 1
	}
	for len(s) > 0 {
		n := min(size, len(s))
		if _, err := io.WriteString(w, s[:n]); err != nil {
			return err
		}
		s = s[n:]
	}
	return nil
}

// readTo reads until what has come ends in end, or the connection ends.
func readTo(r io.Reader, end string) (string, error) {
	var b []byte
	buf := make([]byte, 256<<10)
	for {
		n, err := r.Read(buf)
		b = append(b, buf[:n]...)
		if err != nil {
			return string(b), ignoreReset(err)
		}
		if len(b) >= len(end) && string(b[len(b)-len(end):]) == end {
			return string(b), nil
		}
	}
}

// ignoreReset takes an end of the connection as such, however the kernel words
// it, and leaves timeouts.
func ignoreReset(err error) error {
	var n net.Error
	if errors.As(err, &n) && n.Timeout() {
		return err
	}
	return nil
}

// connectionID is the number in HELLO's reply that differs between any two
// connections.
var connectionID = regexp.MustCompile(`(\$2\r\nid\r\n:)\d+`)

// stepwise is talk with one command at a time.
func stepwise(addr string, d dialogue) (string, error) {
	c, err := redistest.Dial(addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	var got strings.Builder
	for _, args := range commandsIn(d.bytes) {
		v, err := c.Try(args...)
		if err != nil {
			return got.String(), err
		}
		got.WriteString(v.Raw)
	}
	return got.String(), nil
}

// commandsIn are the commands that bytes consist of, as redistest.Command makes them.
func commandsIn(bytes string) (all [][]string) {
	number := func() (n int) {
		line, rest, _ := strings.Cut(bytes, "\r\n")
		n, _ = strconv.Atoi(line[1:])
		bytes = rest
		return n
	}
	for bytes != "" {
		args := make([]string, number())
		for i := range args {
			n := number()
			args[i], bytes = bytes[:n], bytes[n+2:]
		}
		all = append(all, args)
	}
	return all
}

// compare holds the dialogue with both and reports any difference.
func (w *twin) compare(t *testing.T, d dialogue) {
	t.Helper()
	talk := talk
	if w.mute && d.refused {
		talk = stepwise
	}
	want, err := talk(w.plain.Addr(), d)
	if err != nil {
		t.Fatalf("%s: plain Redis: %v after %s", d.name, err, excerpt(want, 0))
	}
	got, err := talk(w.via, d)
	if err != nil {
		t.Errorf("%s: through the proxy: %v after %s", d.name, err, excerpt(got, 0))
	}
	got, want = connectionID.ReplaceAllString(got, "${1}N"), connectionID.ReplaceAllString(want, "${1}N")
	if got != want {
		i := firstDifference(got, want)
		t.Errorf("%s: sent %s\nfirst difference at byte %d of %d (plain: %d)\nproxy: %s\nplain: %s",
			d.name, excerpt(d.bytes, 0), i, len(got), len(want), excerpt(got, i), excerpt(want, i))
	}
}

func firstDifference(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// excerpt quotes s around byte at.
func excerpt(s string, at int) string {
	from, to := max(0, at-60), min(len(s), at+160)
	if from > to {
		from = to
	}
	return fmt.Sprintf("%q", s[from:to])
}

// lines are commands written as a person would, in the form a library sends them.
func lines(commands ...string) string {
	var b strings.Builder
	for _, c := range commands {
		b.WriteString(redistest.Command(strings.Fields(c)...))
	}
	return b.String()
}

// noise is n bytes of which any value may be the next, line ends and zeros included.
func noise(n int) string {
	r := rand.New(rand.NewPCG(1, uint64(n)))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return string(b)
}
