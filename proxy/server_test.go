package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/backends"
	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/commands/lockcmd"
)

// calm is how long what must not happen is waited for.
const calm = 50 * time.Millisecond

// fakeUpstream is an upstream that counts commands, and does not answer some.
type fakeUpstream struct {
	addr string
	seen atomic.Int64 // commands, greetings too

	mu     sync.Mutex
	silent []redcon.DetachedConn // connections on which SILENCE or BLPOP came
	news   chan struct{}         // gets one for each of them
}

func startFakeUpstream(t *testing.T) *fakeUpstream {
	t.Helper()
	u := &fakeUpstream{news: make(chan struct{}, 100)}
	srv := redcon.NewServer("127.0.0.1:0", u.handle, nil, nil)
	listening, ended := make(chan error, 1), make(chan struct{})
	go func() { defer close(ended); srv.ListenServeAndSignal(listening) }()
	if err := <-listening; err != nil {
		t.Fatal(err)
	}
	u.addr = srv.Addr().String()
	t.Cleanup(func() { srv.Close(); <-ended; u.dropSilent() })
	return u
}

func (u *fakeUpstream) handle(c redcon.Conn, cmd redcon.Command) {
	u.seen.Add(1)
	switch strings.ToUpper(string(cmd.Args[0])) {
	case "PING":
		c.WriteString("PONG")
	case "ECHO":
		c.WriteBulk(cmd.Args[1])
	case "BIG":
		n, _ := strconv.Atoi(string(cmd.Args[1]))
		c.WriteBulk(counted(n))
	case "SILENCE", "BLPOP":
		u.mu.Lock()
		u.silent = append(u.silent, c.Detach())
		u.mu.Unlock()
		u.news <- struct{}{}
	default:
		c.WriteString("OK")
	}
}

// awaitSilence waits for a command that gets no answer, and returns its connection.
func (u *fakeUpstream) awaitSilence(t *testing.T) redcon.DetachedConn {
	t.Helper()
	select {
	case <-u.news:
	case <-time.After(soon):
		t.Fatal("the command did not reach the upstream")
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.silent[len(u.silent)-1]
}

func (u *fakeUpstream) dropSilent() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, c := range u.silent {
		c.Close()
	}
	u.silent = nil
}

// waitingLocker is a Locker whose Lock ends with its client only.
type waitingLocker struct {
	asked, left, unlocked chan struct{}

	afterwards func() // what LockAsync does behind its answer
}

func (p *waitingLocker) LockAsync(ctx context.Context, r locks.LockRequest, done func(locks.Decision, error)) {
	done(p.Lock(ctx, r))
	p.afterwards()
}

func (p *waitingLocker) Lock(ctx context.Context, _ locks.LockRequest) (locks.Decision, error) {
	p.asked <- struct{}{}
	<-ctx.Done()
	p.left <- struct{}{}
	return locks.Decision{}, ctx.Err()
}

func (p *waitingLocker) Renew(context.Context, locks.RenewRequest) (time.Duration, error) {
	return 0, locks.ErrLost
}

func (p *waitingLocker) Unlock(context.Context, locks.UnlockRequest) (int, error) {
	p.unlocked <- struct{}{}
	return 0, locks.ErrLost
}

func (p *waitingLocker) RenewAll(context.Context, []locks.Key, locks.RenewRequest) (time.Duration, error) {
	return 0, locks.ErrLost
}

func (p *waitingLocker) UnlockAll(context.Context, []locks.Key, locks.UnlockRequest) (int, error) {
	p.unlocked <- struct{}{}
	return 0, locks.ErrLost
}

func (p *waitingLocker) Undo(locks.Grant) {}

// testServer is a Server in front of a fakeUpstream.
type testServer struct {
	*fakeUpstream
	*Server
	locks *waitingLocker
	up    *upstream.Upstream
	end   context.CancelFunc
	ended chan error // what Serve returned
}

func open(t *testing.T, opt Options) *testServer {
	t.Helper()
	return openWithLog(t, opt, slog.New(slog.DiscardHandler))
}

func openWithLog(t *testing.T, opt Options, log *slog.Logger) *testServer {
	t.Helper()
	h := &testServer{fakeUpstream: startFakeUpstream(t), ended: make(chan error, 1)}
	h.locks = &waitingLocker{make(chan struct{}, 10), make(chan struct{}, 10), make(chan struct{}, 10), func() {}}
	where, err := backends.Parse("redis://" + h.fakeUpstream.addr)
	if err != nil {
		t.Fatal(err)
	}
	h.up = upstream.New(upstream.Options{PoolOptions: upstream.PoolOptions{Server: where, Log: log}})
	if opt.Listen == "" {
		opt.Listen = "127.0.0.1:0"
	}
	opt.Log, opt.Goroutines = log, opt.Goroutines || withGoroutines
	h.Server, err = New(opt, commands.New(commands.Options{Upstream: h.up, Verbs: lockcmd.Options{Locker: h.locks}, Log: log}))
	if err != nil {
		t.Fatal(err)
	}
	var ctx context.Context
	ctx, h.end = context.WithCancel(context.Background())
	served := make(chan struct{})
	go func() { defer close(served); h.ended <- h.Serve(ctx) }()
	t.Cleanup(func() { h.end(); h.up.Close(); <-served })
	return h
}

// testClient is a client of a testServer.
type testClient struct {
	net.Conn
	in *bufio.Reader
}

func (h *testServer) connect(t *testing.T) *testClient {
	t.Helper()
	nc, err := net.Dial(h.Addr().Network(), h.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(soon))
	return &testClient{nc, bufio.NewReader(nc)}
}

func (g *testClient) send(t *testing.T, text string) {
	t.Helper()
	if _, err := io.WriteString(g, text); err != nil {
		t.Fatal(err)
	}
}

func (g *testClient) want(t *testing.T, want string) {
	t.Helper()
	got := make([]byte, len(want))
	n, err := io.ReadFull(g.in, got)
	if string(got[:n]) != want {
		t.Fatalf("got %q (%v), want %q", got[:n], err, want)
	}
}

// wantEnd wants nothing but the end of the connection.
func (g *testClient) wantEnd(t *testing.T) {
	t.Helper()
	rest, err := io.ReadAll(g.in)
	var late net.Error
	if len(rest) > 0 || errors.As(err, &late) && late.Timeout() {
		t.Fatalf("got %q, %v instead of the end", rest, err)
	}
}

func (h *testServer) wantEnded(t *testing.T) {
	t.Helper()
	select {
	case err := <-h.ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(2 * soon): // what was read ahead is served before
		t.Fatal("Serve has not returned")
	}
}

func TestServer_ServesUntilCancelled(t *testing.T) {
	h := open(t, Options{})
	a, b := h.connect(t), h.connect(t)
	a.send(t, "ECHO hello\r\n")
	a.want(t, "$5\r\nhello\r\n")
	b.send(t, "*2\r\n$4\r\nECHO\r\n$0\r\n\r\n")
	b.want(t, "$0\r\n\r\n")
	h.end()
	h.wantEnded(t)
	a.wantEnd(t)
	b.wantEnd(t)
	if nc, err := net.Dial("tcp", h.Addr().String()); err == nil {
		nc.Close()
		t.Error("still listening")
	}
	if n := h.clients.Load(); n != 0 {
		t.Errorf("%d clients are left", n)
	}
}

// What runs may finish; new connections are refused.
func TestDrain_RunningCommandFinishes(t *testing.T) {
	h := open(t, Options{})
	g := h.connect(t)
	g.send(t, "SILENCE\r\n")
	up := h.awaitSilence(t)
	h.end()
	select {
	case <-h.ended:
		t.Fatal("ended before a running command")
	case <-time.After(calm):
	}
	up.WriteString("late")
	up.Flush()
	g.want(t, "+late\r\n")
	g.wantEnd(t)
	h.wantEnded(t)
}

// A pipeline is executed to its end.
func TestDrain_PipelineInPiecesFinishes(t *testing.T) {
	h := open(t, Options{DrainTimeout: time.Hour})
	h.quiet = soon / 2
	g := h.connect(t)
	g.send(t, "PING\r\n")
	g.want(t, "+PONG\r\n")
	h.end()
	<-h.draining.Done()
	g.send(t, "PING\r\nECHO one\r\nPI")
	g.want(t, "+PONG\r\n$3\r\none\r\n")
	g.send(t, "NG\r\n")
	g.want(t, "+PONG\r\n")
	g.wantEnd(t) // after drainDeadline
	h.wantEnded(t)
}

// So is one of which the backlog has no room for the rest, if that has arrived before drainDeadline.
func TestDrain_ArrivedPipelineFinishes(t *testing.T) {
	h := open(t, Options{DrainTimeout: time.Hour})
	g := h.connect(t)
	g.send(t, "SILENCE\r\nSELECT 1\r\n")
	up := h.awaitSilence(t)
	var in, want strings.Builder
	want.WriteString("+late\r\n+OK\r\n")
	for i := 0; in.Len() < maxBacklog+48<<10; i++ {
		fmt.Fprintf(&in, "*2\r\n$4\r\nECHO\r\n$1000\r\n%01000d\r\n", i)
		fmt.Fprintf(&want, "$1000\r\n%01000d\r\n", i)
	}
	g.send(t, in.String())
	h.end()
	time.Sleep(drainDeadline + 4*calm)
	up.WriteString("late")
	up.Flush()
	g.want(t, want.String())
	g.wantEnd(t)
	h.wantEnded(t)
}

// What a client sends too late is not executed, and does not reset its connection, which
// would cost it replies that it has not read.
func TestDrain_LateInputResetsNothing(t *testing.T) {
	h := open(t, Options{DrainTimeout: soon})
	g := h.connect(t)
	g.send(t, "SILENCE\r\n")
	up := h.awaitSilence(t)
	h.end()
	time.Sleep(drainDeadline + 4*calm) // by now it is too late
	g.send(t, "PING\r\n")
	up.WriteString("late")
	up.Flush()
	got, err := io.ReadAll(g.in)
	if s := string(got); err != nil || s != "+late\r\n" && s != "+late\r\n+PONG\r\n" {
		t.Errorf("got %q, %v", got, err)
	}
	g.Close()
	h.wantEnded(t)
}

// Also those that Serve has not accepted yet.
func TestDrain_ServesConnectedClients(t *testing.T) {
	h := open(t, Options{DrainTimeout: soon})
	h.quiet = soon / 2
	g := h.connect(t)
	h.end()
	g.send(t, "PING\r\n")
	g.want(t, "+PONG\r\n")
	g.wantEnd(t)
	h.wantEnded(t)
}

// What does not finish in time is abandoned.
func TestDrain_Timeout(t *testing.T) {
	for _, running := range []string{"SILENCE\r\n", "SILENCE\r\nSELECT 1\r\nPING\r\n", "BLPOP q 0\r\n", "BLPOP q 0\r\nSELECT 1\r\n", "SILENCE\r\nQUIT\r\n"} {
		t.Run(running, func(t *testing.T) {
			t.Parallel()
			h := open(t, Options{DrainTimeout: calm})
			g := h.connect(t)
			g.send(t, running)
			h.awaitSilence(t)
			h.end()
			h.wantEnded(t)
		})
	}
}

// Serve outlives what a LOCK does behind its answer; the client does not wait for it.
func TestDrain_AwaitsAnsweredLocks(t *testing.T) {
	h := open(t, Options{DrainTimeout: calm})
	finish := make(chan struct{})
	h.locks.afterwards = func() { <-finish }
	g := h.connect(t)
	g.send(t, waitingLocks[1])
	<-h.locks.asked
	h.end()
	if got, err := io.ReadAll(g.in); err != nil || !strings.HasPrefix(string(got), "-DRAINING ") {
		t.Errorf("got %q, %v", got, err)
	}
	g.Close()
	select {
	case <-h.ended:
		t.Error("ended before the goroutine of a LOCK")
	case <-time.After(hangUpGrace + calm):
	}
	close(finish)
	h.wantEnded(t)
}

func TestDrain_WaitingLockEnds(t *testing.T) {
	for _, lock := range waitingLocks {
		h := open(t, Options{DrainTimeout: calm})
		g := h.connect(t)
		g.send(t, lock+"PING\r\n")
		<-h.locks.asked
		h.end()
		<-h.locks.left
		h.wantEnded(t)
	}
}

// A LOCK that waits for another owner is refused at once, and what came behind is done.
func TestDrain_WaitingLockIsRefused(t *testing.T) {
	h := open(t, Options{DrainTimeout: time.Hour})
	g := h.connect(t)
	g.send(t, "LOCK job 30s WAIT 1m\r\nPING\r\nLOCK job2 30s WAIT 1m\r\nUNLOCK other me\r\nPING\r\n")
	<-h.locks.asked
	<-h.locks.unlocked
	h.end()
	const told = "-DRAINING this proxy is shutting down and the lock was not taken; ask another proxy, or this one later\r\n"
	g.want(t, told+"+PONG\r\n"+told+"-LOCKLOST the lock is no longer held by this owner; what it protected may be compromised\r\n+PONG\r\n")
	g.wantEnd(t)
	h.wantEnded(t)
}

func TestServer_MaxClients(t *testing.T) {
	h := open(t, Options{MaxClients: 1})
	g := h.connect(t)
	g.send(t, "PING\r\n")
	g.want(t, "+PONG\r\n")
	second := h.connect(t)
	second.want(t, "-ERR max number of clients reached\r\n")
	second.wantEnd(t)
	g.Close()
	for late := time.Now().Add(soon); h.clients.Load() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			t.Fatal("a client that left is still counted")
		}
	}
	third := h.connect(t)
	third.send(t, "PING\r\n")
	third.want(t, "+PONG\r\n")
}

// A client that waits for something is not idle.
func TestServer_IdleTimeout(t *testing.T) {
	const timeout = 40 * calm // in which each says what it has to say, on a busy machine, too
	h := open(t, Options{IdleTimeout: timeout})
	waiting := h.connect(t)
	waiting.send(t, "SILENCE\r\n")
	up := h.awaitSilence(t)
	subscribed := h.connect(t)
	subscribed.send(t, "SUBSCRIBE c\r\n")
	subscribed.want(t, "+OK\r\n")
	h.connect(t).wantEnd(t)
	time.Sleep(timeout)
	up.WriteString("late")
	up.Flush()
	waiting.want(t, "+late\r\n")
	waiting.wantEnd(t)
	subscribed.send(t, "PING\r\n")
	subscribed.want(t, "+PONG\r\n")
}

func TestServer_UnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sock")
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	stale.Close() // as after kill -9: the file stays
	h := open(t, Options{Listen: path})
	g := h.connect(t)
	g.send(t, "PING\r\n")
	g.want(t, "+PONG\r\n")
	if _, err := New(Options{Listen: path}, nil); err == nil {
		t.Error("two servers on one socket")
	}
	g.send(t, "PING\r\n")
	g.want(t, "+PONG\r\n")
}
