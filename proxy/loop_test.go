package proxy

import (
	"fmt"
	"io"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// withGoroutines has every test server read by goroutines.
var withGoroutines bool

// TestGoroutines runs the tests of sessions once more, without a loop.
func TestGoroutines(t *testing.T) {
	withGoroutines = true
	defer func() { withGoroutines = false }()
	for _, test := range []func(*testing.T){
		TestServer_ServesUntilCancelled, TestDrain_RunningCommandFinishes, TestDrain_PipelineInPiecesFinishes, TestDrain_ArrivedPipelineFinishes,
		TestDrain_LateInputResetsNothing, TestDrain_Timeout, TestServer_IdleTimeout, TestServer_UnixSocket, TestSession_PipelineInAnyPieces,
		TestSession_KeepsUnreadReplies, TestSession_UnreadRepliesBeyondLimit, TestSession_WaitingLockNoticesHangUp, TestSession_CommandsBehindWaitingLock,
		TestSession_BlockedCommandEndsWithClient, TestSession_ProtocolErrorBehindPipeline, TestSession_QuitEndsPipeline,
		TestDrain_FullBacklog, TestSession_FullBacklogNoticesHangUp, TestDrain_HungUpstream,
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
	defer writing.Wait()
	var finished atomic.Int64
	for range 4 {
		g := h.connect(t)
		defer g.Close()
		writing.Go(func() { // 128 MB, of which little can be taken
			for range 32 {
				if _, err := io.WriteString(g, fmt.Sprintf("*2\r\n$4\r\nECHO\r\n$%d\r\n%s\r\n", 1<<20, counted(1<<20))); err != nil {
					return
				}
			}
			finished.Add(1)
		})
	}
	g := h.connect(t)
	for range 200 { // answered by the proxy itself
		g.send(t, "LOCK\r\n")
		line, err := g.in.ReadString('\n')
		if err != nil || !strings.HasPrefix(line, "-ERR wrong number of arguments") {
			t.Fatalf("got %q, %v", line, err)
		}
		time.Sleep(time.Millisecond)
	}
	if n := finished.Load(); n > 0 {
		t.Errorf("%d clients could write all, to an upstream that reads nothing", n)
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
