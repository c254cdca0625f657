//go:build linux

package netio

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// late is when what must happen has not.
const late = 30 * time.Second

// A countingReader reads once a turn, as long as it says it will, and tells what it gets.
type countingReader struct {
	c      *Conn
	size   int  // of a read
	again  bool // it asks for another turn after a full read
	got    chan string
	hungUp chan error

	mu    sync.Mutex
	turns int
}

func newCountingReader(c *Conn, size int, again bool) *countingReader {
	return &countingReader{c: c, size: size, again: again, got: make(chan string, 1000), hungUp: make(chan error, 1000)}
}

func (r *countingReader) Space() []byte { return make([]byte, r.size) }
func (r *countingReader) Release()      {}

func (r *countingReader) Ready(hungUp bool) bool {
	r.mu.Lock()
	r.turns++
	r.mu.Unlock()
	p := make([]byte, r.size)
	n, more, err := r.c.ReadNow(space{p})
	if n > 0 {
		r.got <- string(p[:n])
	}
	if err != nil {
		r.hungUp <- err
		return false
	}
	return r.again && more || hungUp
}

// A space is a Buffer that is its own space.
type space struct{ p []byte }

func (s space) Space() []byte { return s.p }
func (s space) Release()      {}

func newLoop(t *testing.T, afterTurn func()) *Loop {
	t.Helper()
	l, err := NewLoop(afterTurn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

func start(t *testing.T, l *Loop, r *countingReader) *Watch {
	t.Helper()
	w := l.NewWatch(r)
	if err := w.Start(r.c); err != nil {
		t.Fatal(err)
	}
	return w
}

// startAll starts n readers, and returns their peers as well.
func startAll(t *testing.T, l *Loop, n int) (readers []*countingReader, peers []net.Conn) {
	t.Helper()
	for range n {
		a, b := pair(t)
		r := newCountingReader(Wrap(a), 64, false)
		start(t, l, r)
		readers, peers = append(readers, r), append(peers, b)
	}
	return readers, peers
}

func (r *countingReader) want(t *testing.T, want string) {
	t.Helper()
	select {
	case got := <-r.got:
		if got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	case <-time.After(late):
		t.Fatalf("%q is not read", want)
	}
}

func (r *countingReader) wantEnd(t *testing.T) {
	t.Helper()
	select {
	case err := <-r.hungUp:
		if err != io.EOF {
			t.Fatal(err)
		}
	case <-time.After(late):
		t.Fatal("the end is not noticed")
	}
}

// TestLoop_Reads: what comes is read, what came before Start, and the end.
func TestLoop_Reads(t *testing.T) {
	turns := make(chan struct{}, 1000)
	l := newLoop(t, func() { turns <- struct{}{} })
	a, b := pair(t)
	r := newCountingReader(Wrap(a), 64, false)
	b.Write([]byte("early"))
	start(t, l, r)
	r.want(t, "early")
	for _, text := range []string{"one", "two"} {
		b.Write([]byte(text))
		r.want(t, text)
	}
	b.Close()
	r.wantEnd(t)
	select {
	case <-turns:
	case <-time.After(late):
		t.Error("afterTurn is not called")
	}
}

// TestLoop_EndBehindBytes: an end that comes with bytes is noticed, though their read is short.
func TestLoop_EndBehindBytes(t *testing.T) {
	l := newLoop(t, func() {})
	for range 50 {
		a, b := pair(t)
		r := newCountingReader(Wrap(a), 64, false)
		start(t, l, r)
		b.Write([]byte("last"))
		b.Close()
		r.want(t, "last")
		r.wantEnd(t)
	}
}

// TestLoop_More: a reader that wants another turn gets it, although nothing new comes; another one is not kept waiting for it.
func TestLoop_More(t *testing.T) {
	l := newLoop(t, func() {})
	a, b := pair(t)
	c, d := pair(t)
	greedy, modest := newCountingReader(Wrap(a), 1, true), newCountingReader(Wrap(c), 64, false)
	b.Write([]byte("abc"))
	start(t, l, greedy)
	start(t, l, modest)
	for _, text := range []string{"a", "b", "c"} {
		greedy.want(t, text)
	}
	d.Write([]byte("hello"))
	modest.want(t, "hello")
}

// A greedyReader never has enough: in each of its turns its peer sends more, and it asks for another one.
type greedyReader struct {
	peer  net.Conn
	left  int      // calls until it has enough
	calls int      // in this turn of the loop
	most  int      // of these
	told  chan int // gets most in the end
}

func (r *greedyReader) Ready(bool) bool {
	if r.left == 0 {
		return false
	}
	r.calls++
	if r.left--; r.left == 0 {
		r.told <- max(r.most, r.calls)
	}
	r.peer.Write([]byte("x"))
	return true
}

func (r *greedyReader) endTurn() { r.most, r.calls = max(r.most, r.calls), 0 }

// TestLoop_OneCallATurn: a reader that wants another turn, and for which something has come too, is called once in that turn: one that
// always has more to read would else be called more and more often, and leave less of each turn to the others.
func TestLoop_OneCallATurn(t *testing.T) {
	a, b := pair(t)
	r := &greedyReader{peer: b, left: 100, told: make(chan int, 1)}
	l := newLoop(t, r.endTurn)
	if err := l.NewWatch(r).Start(Wrap(a)); err != nil {
		t.Fatal(err)
	}
	b.Write([]byte("x"))
	select {
	case most := <-r.told:
		if most > 1 {
			t.Errorf("it was called %d times in one turn", most)
		}
	case <-time.After(late):
		t.Fatal("it has not got all its turns")
	}
}

// TestLoop_Again: bytes that a reader has left are reported once more after Again, and not before.
func TestLoop_Again(t *testing.T) {
	l := newLoop(t, func() {})
	a, b := pair(t)
	r := newCountingReader(Wrap(a), 2, false)
	w := start(t, l, r)
	b.Write([]byte("abcd"))
	r.want(t, "ab")
	r.mu.Lock()
	turns := r.turns
	r.mu.Unlock()
	if turns > 2 { // the edge may come twice: with the bytes, and with Start
		t.Errorf("%d turns for what came once", turns)
	}
	if err := w.Again(r.c); err != nil {
		t.Fatal(err)
	}
	r.want(t, "cd")
}

// TestLoop_MoreSocketsThanEvents: all are served when more are ready than one turn takes.
func TestLoop_MoreSocketsThanEvents(t *testing.T) {
	l := newLoop(t, func() {})
	readers, peers := startAll(t, l, 2*maxEvents+3)
	for range 3 {
		for _, b := range peers {
			b.Write([]byte("x"))
		}
		for _, r := range readers {
			r.want(t, "x")
		}
	}
}

// A gate is a Reader whose turn lasts until it is opened.
type gate struct{ entered, opened chan struct{} }

func (g gate) Ready(bool) bool {
	g.entered <- struct{}{}
	<-g.opened
	return false
}

// TestLoop_MoreEventsAtOnce: of events that come together, more than a few turns take, none is left behind.
func TestLoop_MoreEventsAtOnce(t *testing.T) {
	l := newLoop(t, func() {})
	readers, peers := startAll(t, l, 5*maxEvents+3)
	a, b := pair(t)
	g := gate{make(chan struct{}), make(chan struct{})}
	if err := l.NewWatch(g).Start(Wrap(a)); err != nil {
		t.Fatal(err)
	}
	b.Write([]byte("x"))
	<-g.entered
	for _, b := range peers {
		b.Write([]byte("x"))
	}
	close(g.opened)
	for _, r := range readers {
		r.want(t, "x")
	}
}

// TestLoop_StoppedIsForgotten: a watch that is stopped is not called, and its slot serves another one.
func TestLoop_StoppedIsForgotten(t *testing.T) {
	l := newLoop(t, func() {})
	a, b := pair(t)
	gone := newCountingReader(Wrap(a), 64, false)
	w := start(t, l, gone)
	a.Close()
	w.Stop()
	b.Close()
	c, d := pair(t)
	r := newCountingReader(Wrap(c), 64, false)
	if other := start(t, l, r); other.slot != w.slot {
		t.Errorf("slot %d is not used again, but %d", w.slot, other.slot)
	}
	d.Write([]byte("x"))
	r.want(t, "x")
	if len(gone.got)+len(gone.hungUp) > 0 {
		t.Error("the stopped one was read")
	}
}

// TestLoop_Close returns when nobody is called any more, also from a loop that has nothing to do.
func TestLoop_Close(t *testing.T) {
	l, err := NewLoop(func() {})
	if err != nil {
		t.Fatal(err)
	}
	a, b := pair(t)
	r := newCountingReader(Wrap(a), 64, false)
	start(t, l, r)
	b.Write([]byte("x"))
	r.want(t, "x")
	l.Close()
	b.Write([]byte("y"))
	select {
	case got := <-r.got:
		t.Errorf("read %q after Close", got)
	case <-time.After(20 * time.Millisecond):
	}
}
