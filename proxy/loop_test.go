package proxy

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/netio"
)

// withGoroutines has every test server read by goroutines.
var withGoroutines bool

// TestGoroutines runs the tests of what is read once more, without a loop.
func TestGoroutines(t *testing.T) {
	withGoroutines = true
	defer func() { withGoroutines = false }()
	for _, test := range []func(*testing.T){
		TestServer_ServesUntilCancelled, TestServer_IdleTimeout, TestDrain_RunningCommandFinishes, TestDrain_PipelineInPiecesFinishes, TestDrain_ArrivedPipelineFinishes,
		TestSession_PipelineInAnyPieces, TestSession_WaitingLockNoticesHangUp, TestSession_CommandsBehindWaitingLock, TestSession_ProtocolErrorBehindPipeline,
		TestSession_QuitEndsPipeline, TestDrain_FullBacklog,
	} {
		name := runtime.FuncForPC(reflect.ValueOf(test).Pointer()).Name()
		t.Run(name[strings.LastIndex(name, ".")+1:], test)
	}
}

func needLoop(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("there is no event loop here")
	}
}

// TestLoop_NoGoroutineForAnIdleClient: clients that have been served cost no goroutine while they send nothing, those whose
// loop they had to leave for a while neither.
func TestLoop_NoGoroutineForAnIdleClient(t *testing.T) {
	needLoop(t)
	h := open(t, Options{IdleTimeout: time.Hour})
	const n = 50
	before := runtime.NumGoroutine()
	var clients []*testClient
	for range n {
		g := h.connect(t)
		g.send(t, "PING\r\n")
		g.want(t, "+PONG\r\n")
		clients = append(clients, g)
	}
	for late := time.Now().Add(soon); runtime.NumGoroutine() > before+n/2; time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("%d goroutines for %d idle clients", runtime.NumGoroutine()-before, n)
		}
	}
	for _, g := range clients {
		g.send(t, "ECHO again\r\n")
		g.want(t, "$5\r\nagain\r\n")
	}
}

// TestLoop_SlowUpstreamHoldsUpNobodyElse: clients that write to an upstream which does not read leave the loop, on which others
// are answered.
func TestLoop_SlowUpstreamHoldsUpNobodyElse(t *testing.T) {
	needLoop(t)
	h := open(t, Options{})
	stuck := h.connect(t)
	stuck.send(t, "SILENCE\r\n") // the upstream reads no more on the connection that all clients share
	h.awaitSilence(t)
	var writing sync.WaitGroup
	request := fmt.Sprintf("*2\r\n$4\r\nECHO\r\n$%d\r\n%s\r\n", 1<<20, counted(1<<20))
	for range 4 {
		g := h.connect(t)
		defer g.Close()
		writing.Go(func() { // until all buffers on the way are full, however large the kernel lets them grow
			for range 512 {
				g.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
				if _, err := io.WriteString(g, request); err != nil {
					return
				}
			}
			t.Error("a client could write 512 MB, to an upstream that reads nothing")
		})
	}
	full := make(chan struct{})
	go func() {
		writing.Wait()
		close(full)
	}()
	g := h.connect(t)
	for left := 100; left > 0; { // answered by the proxy itself
		select {
		case <-full:
			left--
		default:
		}
		g.send(t, "LOCK\r\n")
		line, err := g.in.ReadString('\n')
		if err != nil || !strings.HasPrefix(line, "-ERR wrong number of arguments") {
			t.Fatalf("got %q, %v", line, err)
		}
		time.Sleep(time.Millisecond)
	}
}

// TestLoop_WorkersOfATurnSendFirst: a worker that began in a turn, as for a command that blocks, runs before the loop sends what
// others' commands of that turn have gathered. The scheduler may see to another one now and then.
func TestLoop_WorkersOfATurnSendFirst(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	first := 0
	const turns = 50
	for range turns {
		l := &loop{started: true}
		var worked atomic.Bool
		go worked.Store(true)
		if l.endTurn(); worked.Load() {
			first++
		}
	}
	if first < turns/2 {
		t.Errorf("%d workers of %d ran before the end of their turn", first, turns)
	}
}

// TestLoop_ManyClients: many clients at once, each with pipelines of all sizes, get their own replies.
func TestLoop_ManyClients(t *testing.T) {
	h := open(t, Options{})
	var wg sync.WaitGroup
	for i := range 40 {
		g := h.connect(t)
		wg.Go(func() {
			for k := range 30 {
				var ask, want strings.Builder
				for j := range 1 + k*k {
					text := fmt.Sprintf("%d.%d.%d", i, k, j)
					fmt.Fprintf(&ask, "ECHO %s\r\n", text)
					fmt.Fprintf(&want, "$%d\r\n%s\r\n", len(text), text)
				}
				g.send(t, ask.String())
				got := make([]byte, want.Len())
				if _, err := io.ReadFull(g.in, got); err != nil || string(got) != want.String() {
					t.Errorf("client %d, pipeline %d: got %.60q…, %v", i, k, got, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// echoed is a client that has been served once.
func (h *testServer) echoed(t *testing.T) *testClient {
	t.Helper()
	g := h.connect(t)
	g.send(t, "ECHO a\r\n")
	g.want(t, "$1\r\na\r\n")
	return g
}

// taken returns the session of the only client, once the test is its reader.
func (h *testServer) taken(t *testing.T) *session {
	t.Helper()
	var s *session
	h.Server.mu.Lock()
	for s = range h.all {
	}
	h.Server.mu.Unlock()
	for late := time.Now().Add(soon); !s.reader.CompareAndSwap(byLoop, byGoroutine); time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			t.Fatal("the loop does not read")
		}
	}
	return s
}

// longIdle makes a session one from which nothing came for the idle timeout, and returns whether its timer runs once it has looked.
func longIdle(s *session) (again bool) {
	s.readAt.Store(int64(time.Since(s.since) - 2*s.srv.opt.IdleTimeout))
	s.checkIdle()
	return s.idle.Stop()
}

// TestLoop_IdleTimeoutIsTheLoops: the timeout ends a session that its loop reads, and not one whose goroutine has kept it from
// being read for so long; that one later, if it is idle then.
func TestLoop_IdleTimeoutIsTheLoops(t *testing.T) {
	needLoop(t)
	h := open(t, Options{IdleTimeout: time.Hour})
	g := h.echoed(t)
	s := h.taken(t)
	if !longIdle(s) {
		t.Error("nobody will look again")
	}
	h.sessions.Go(s.readOn)
	g.send(t, "ECHO b\r\n")
	g.want(t, "$1\r\nb\r\n")
	s = h.taken(t)
	s.reader.Store(inTurn)
	if !longIdle(s) {
		t.Error("nobody will look again after the turn")
	}
	s.reader.Store(byLoop)
	longIdle(s)
	g.wantEnd(t)
	s.checkIdle() // the timer may have been on its way
	if s.idle.Stop() {
		t.Error("the timer of a session that has ended runs")
	}
}

// TestLoop_ReplyAsTheIdleTimeoutEnds: a client gets the idle timeout to say something after a reply that it has waited for, and not twice if
// it has said something.
func TestLoop_ReplyAsTheIdleTimeoutEnds(t *testing.T) {
	needLoop(t)
	for _, says := range []bool{false, true} {
		h := open(t, Options{IdleTimeout: time.Hour})
		g := h.connect(t)
		goesOn := func(busy, want bool) {
			t.Helper()
			s := h.taken(t)
			for late := time.Now().Add(soon); s.busy() != busy; time.Sleep(time.Millisecond) { // as just after its reply
				if time.Now().After(late) {
					t.Fatalf("it is busy: %v", !busy)
				}
			}
			on := s.mayBeIdle()
			if on != want {
				t.Errorf("says %v, busy %v: it goes on: %v", says, busy, on)
			}
			s.onTakeOver = func() bool { return on }
			h.sessions.Go(s.readOn)
		}
		g.send(t, "SILENCE\r\n")
		up := h.awaitSilence(t)
		goesOn(true, true)
		up.WriteString("late")
		up.Flush()
		g.want(t, "+late\r\n")
		if says {
			g.send(t, "UNLOCK\r\n")
			g.want(t, "-ERR wrong number of arguments")
		} else {
			goesOn(false, true)
		}
		goesOn(false, false)
	}
}

// TestLoop_EventsGoToNobodyElse: while the socket of a session is open, as that of a client which has closed its sending half and waits for a
// reply, no other session has its place at the loop.
func TestLoop_EventsGoToNobodyElse(t *testing.T) {
	needLoop(t)
	h := open(t, Options{})
	g := h.connect(t)
	g.send(t, "SILENCE\r\n")
	up := h.awaitSilence(t)
	first := h.taken(t)
	h.sessions.Go(first.readOn)
	g.Conn.(interface{ CloseWrite() error }).CloseWrite()
	for late := time.Now().Add(soon); !first.stopped.Load(); time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			t.Fatal("the end of the client's input is not noticed")
		}
	}
	for range 2 * runtime.GOMAXPROCS(0) {
		other := h.connect(t)
		other.send(t, "LOCK\r\n")
		other.want(t, "-ERR wrong number of arguments")
	}
	type place struct {
		loop *loop
		slot int64
	}
	taken := map[place]bool{}
	h.Server.mu.Lock()
	defer h.Server.mu.Unlock()
	for s := range h.all {
		s.reader.Load() // what its loop was told of is set
		at := place{s.loop, reflect.ValueOf(s.watch).Elem().FieldByName("slot").Int()}
		if taken[at] {
			t.Error("two sessions have the same place")
		}
		taken[at] = true
	}
	up.WriteString("late")
	up.Flush()
	g.want(t, "+late\r\n")
}

// TestLoop_Leaves: whatever only a goroutine can deal with takes a session from its loop at once, or, if it comes while a goroutine reads,
// keeps it from being given back.
func TestLoop_Leaves(t *testing.T) {
	needLoop(t)
	for name, reason := range map[string]func(*session){
		"it is stopped":            (*session).stop,
		"the server drains":        (*session).startDrain,
		"its connection is closed": func(s *session) { s.out.Abort() },
	} {
		for who, want := range map[int32]int32{byLoop: byGoroutine, inTurn: leaving, byGoroutine: byGoroutine} {
			t.Run(fmt.Sprint(name, ", reader ", who), func(t *testing.T) {
				h := open(t, Options{})
				g := h.echoed(t)
				s := h.taken(t)
				s.reader.Store(who)
				reason(s)
				if got := s.reader.Load(); got != want {
					t.Errorf("the reader is %d, not %d", got, want)
				}
				if who != byLoop { // else its goroutine reads
					s.reader.Store(byGoroutine)
					if s.toLoop(func(*netio.Conn) error { return nil }) {
						t.Error("the loop is its reader again")
					}
					h.sessions.Go(s.readOn)
				}
				g.wantEnd(t)
			})
		}
	}
}

// TestLoop_CannotWatch: a session that the loop cannot be told of stays with its goroutine, unless another one is its reader by then.
func TestLoop_CannotWatch(t *testing.T) {
	needLoop(t)
	h := open(t, Options{})
	g := h.echoed(t)
	s := h.taken(t)
	if s.toLoop(func(*netio.Conn) error { return errors.ErrUnsupported }) {
		t.Error("nobody reads")
	}
	if !s.toLoop(func(*netio.Conn) error { s.reader.Store(byGoroutine); return errors.ErrUnsupported }) {
		t.Error("two read")
	}
	h.sessions.Go(s.readOn)
	g.send(t, "ECHO b\r\n")
	g.want(t, "$1\r\nb\r\n")
}

// TestLoop_TakesBack: what came while a goroutine was the reader, and the loop has heard of in vain, is read when the loop is that again; memory
// for reading is kept by no session that has been served.
func TestLoop_TakesBack(t *testing.T) {
	needLoop(t)
	h := open(t, Options{})
	g := h.echoed(t)
	s := h.taken(t)
	s.awaitWorker() // the first command had to wait for a connection to the upstream
	s.reader.Store(byLoop)
	g.send(t, "ECHO a\r\n")
	g.want(t, "$1\r\na\r\n")
	h.taken(t)
	if n := reflect.ValueOf(s.requests).Elem().FieldByName("buf").Len(); n > 0 {
		t.Errorf("it keeps %d bytes", n)
	}
	g.send(t, "ECHO b\r\n")
	for range 2 * runtime.GOMAXPROCS(0) { // each loop is behind that then
		other := h.connect(t)
		other.send(t, "LOCK\r\n")
		other.want(t, "-ERR wrong number of arguments")
	}
	h.sessions.Go(s.readOn)
	g.want(t, "$1\r\nb\r\n")
}
