package voters

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/nodekeys"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/integration/redistest"
	"github.com/lockproxy/lockproxy/scripts"
)

// A wire is between a Set and its only node. It notes the scripts that are called for locks, and does harm.
type wire struct {
	mu     sync.Mutex
	calls  []string
	mute   bool // the answer to the next hand-over is lost, with its connection
	down   bool // no connection can be made
	gate   chan struct{}
	inside chan struct{} // closed when a call waits at the gate
}

func (w *wire) dial(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down {
		return nil, errors.New("down")
	}
	c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	return &wired{Conn: c, wire: w}, err
}

// A wired connection is used by one worker.
type wired struct {
	net.Conn
	*wire
	lost bool
}

func (c *wired) Write(b []byte) (int, error) {
	c.mu.Lock()
	gate := c.gate
	for rest := string(b); ; {
		_, after, found := strings.Cut(rest, "EVALSHA\r\n$40\r\n")
		if !found {
			break
		}
		for _, s := range []*scripts.Script{scripts.Acquire, scripts.Release, scripts.Calls} {
			if strings.HasPrefix(after, s.SHA1) {
				c.calls = append(c.calls, s.Name)
				c.lost = c.lost || c.mute && s == scripts.Calls
			}
		}
		rest = after
	}
	if c.lost {
		c.mute = false
	}
	if gate != nil {
		c.gate = nil
		close(c.inside)
	}
	c.mu.Unlock()
	if gate != nil {
		<-gate
	}
	return c.Conn.Write(b)
}

func (c *wired) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.lost && err == nil { // the node has run it
		_ = c.Conn.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

func (w *wire) do(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (w *wire) called() (all []string) {
	w.do(func() { all = slices.Clone(w.calls) })
	return all
}

// A handOver is one node that alice has a lock on, with what gives it to bob.
type handOver struct {
	*testing.T
	*wire
	set              *Set
	conn             *redistest.Conn
	keys             nodekeys.Keys
	release, acquire ScriptCall
}

func newHandOver(t *testing.T) *handOver {
	server := redistest.StartNodes(t, 1)[0]
	h := &handOver{T: t, wire: &wire{}, conn: redistest.Open(t, server.Addr())}
	s, err := New(Options{Nodes: servers(t, server.Addr()), Log: slog.New(slog.DiscardHandler), Tune: func(o *rueidis.ClientOption) { o.DialCtxFn = h.dial }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(time.Second); err != nil {
			t.Error(err)
		}
	})
	h.set, h.keys = s, s.RedisKeys(locks.Key{Name: "job"})
	within(t, "the node votes", func() bool { s.RepairNodes(t.Context(), true); return s.Nodes()[0].State == locks.NodeVoting })
	v := h.conn.Do(t, s.Command(scripts.Acquire, h.keys, "alice", "60000", "0", "", "plain", "ALICE", "0", "", "0")...)
	fence := strconv.FormatInt(v.Elems[1].Int(), 10)
	h.release = ScriptCall{Args: s.Command(scripts.Release, h.keys, "alice", fence, "handed", "", "ALICE", "NAME", "60000", "1", "ALICE"),
		Parse: vote.ParseRelease, Expires: s.Clock() + time.Minute, RetryUntilAcked: true}
	h.acquire = ScriptCall{Args: s.Command(scripts.Acquire, h.keys, "bob", "60000", "0", "", "plain", "BOB", "0", ""),
		Parse: vote.ParseAcquire, Expires: s.Clock() + time.Minute, Durable: true, Round: s.Begin(AskAcquire, WaitForAll)}
	return h
}

// vote is that of the node, in a round which is to end.
func (h *handOver) vote(r *Round) vote.Vote {
	h.Helper()
	if err := r.WaitFor(h.Context(), time.Minute); err != nil {
		h.Fatal(err)
	}
	return r.Close(true, nil)[0]
}

func (h *handOver) owner() string { return h.conn.Do(h.T, "HGET", h.keys.Lock, "o").Text }

func (h *handOver) wants(calls ...string) {
	h.Helper()
	if got := h.called(); !slices.Equal(got, calls) {
		h.Errorf("%q were called, want %q", got, calls)
	}
}

// TestHandOver_OneCall: a node gets both in one script, also one that has forgotten its scripts, and gives a vote on each.
func TestHandOver_OneCall(t *testing.T) {
	t.Parallel()
	for _, flush := range []bool{false, true} {
		h := newHandOver(t)
		want := []string{"calls"}
		if flush {
			h.conn.Do(t, "SCRIPT", "FLUSH")
			want = append(want, "calls")
		}
		r := h.set.HandOver(h.release, h.acquire, WaitForAll)
		if v := h.vote(r); v.Kind != vote.Yes || v.Holds != 0 {
			t.Errorf("release: %+v", v)
		}
		if v := h.vote(h.acquire.Round); v.Kind != vote.Yes || v.Grant != "BOB" || h.owner() != "bob" {
			t.Errorf("acquire: %+v, %s has it", v, h.owner())
		}
		h.wants(want...)
	}
}

// TestHandOver_NextHasLeft: if the next one leaves before the call is sent, the release is sent alone.
func TestHandOver_NextHasLeft(t *testing.T) {
	t.Parallel()
	h := newHandOver(t)
	gate := make(chan struct{})
	h.do(func() { h.gate, h.inside = gate, make(chan struct{}) })
	busy := h.set.Ask(AskRead, ScriptCall{Args: h.set.Command(scripts.Read, h.keys), Parse: vote.ParseDone, Expires: h.set.Clock() + time.Minute}, WaitForAll)
	<-h.inside
	r := h.set.HandOver(h.release, h.acquire, WaitForAll)
	late := make(chan vote.Vote, 1)
	left := h.acquire.Round.Close(true, func(_ int, v vote.Vote) { late <- v })[0]
	close(gate)
	h.vote(busy)
	if v := h.vote(r); v.Kind != vote.Yes || h.owner() != "" {
		t.Errorf("release: %+v, %s has it", v, h.owner())
	}
	if Due(&left) { // else the node took no calls, since this one has waited for long
		left = <-late
	}
	if left.Kind != vote.Silent || !left.Unsent {
		t.Errorf("acquire: %+v", left)
	}
	h.wants("release")
}

// TestHandOver_AnswerLost: the node has done both, and the connection ends before it is heard. Both are sent once more,
// which changes nothing.
func TestHandOver_AnswerLost(t *testing.T) {
	t.Parallel()
	h := newHandOver(t)
	h.do(func() { h.mute = true })
	r := h.set.HandOver(h.release, h.acquire, WaitForAll)
	if v := h.vote(r); v.Kind != vote.Duplicate {
		t.Errorf("release: %+v", v)
	}
	if v := h.vote(h.acquire.Round); v.Kind != vote.Yes || v.Holds != 1 || h.owner() != "bob" {
		t.Errorf("acquire: %+v, %s has it", v, h.owner())
	}
	h.wants("calls", "calls")
}

// TestHandOver_NodeLost: if the node cannot be reached after that, the acquire has failed, perhaps done, so that it is to be
// undone; the release alone is repeated until it is done.
func TestHandOver_NodeLost(t *testing.T) {
	t.Parallel()
	h := newHandOver(t)
	h.do(func() { h.mute, h.down = true, true })
	r := h.set.HandOver(h.release, h.acquire, WaitForAll)
	if v := h.vote(h.acquire.Round); v.Kind != vote.Silent || v.Err == nil || v.Unsent {
		t.Errorf("acquire: %+v", v)
	}
	h.wants("calls")
	h.do(func() { h.down = false })
	if v := h.vote(r); v.Kind != vote.Duplicate || h.owner() != "bob" {
		t.Errorf("release: %+v, %s has it", v, h.owner())
	}
	h.wants("calls", "release")
}
