package proxy

import (
	"bufio"
	"context"
	"errors"
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
)

// calm is how long what must not happen is waited for.
const calm = 50 * time.Millisecond

// upstairs is an upstream that counts, and says nothing to some commands.
type upstairs struct {
	addr string
	seen atomic.Int64 // commands, greetings too

	mu     sync.Mutex
	silent []redcon.DetachedConn // connections on which SILENCE or BLPOP came
	news   chan struct{}         // gets one for each of them
}

func startUpstairs(t *testing.T) *upstairs {
	t.Helper()
	u := &upstairs{news: make(chan struct{}, 100)}
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

func (u *upstairs) handle(c redcon.Conn, cmd redcon.Command) {
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
func (u *upstairs) awaitSilence(t *testing.T) redcon.DetachedConn {
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

func (u *upstairs) dropSilent() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, c := range u.silent {
		c.Close()
	}
	u.silent = nil
}

// patient is a Locker whose Lock ends with its client only.
type patient struct {
	asked, left, unlocked chan struct{}
}

func (p *patient) LockAsync(ctx context.Context, r locks.LockRequest, done func(locks.Decision, error)) {
	done(p.Lock(ctx, r))
}

func (p *patient) Lock(ctx context.Context, _ locks.LockRequest) (locks.Decision, error) {
	p.asked <- struct{}{}
	<-ctx.Done()
	p.left <- struct{}{}
	return locks.Decision{}, ctx.Err()
}

func (p *patient) Renew(context.Context, locks.RenewRequest) (time.Duration, error) {
	return 0, locks.ErrLost
}

func (p *patient) Unlock(context.Context, locks.UnlockRequest) (int, error) {
	p.unlocked <- struct{}{}
	return 0, locks.ErrLost
}

func (p *patient) Undo(locks.Grant) {}

// house is a Server in front of an upstairs.
type house struct {
	*upstairs
	*Server
	locks *patient
	up    *upstream.Upstream
	end   context.CancelFunc
	ended chan error // what Serve returned
}

func open(t *testing.T, opt Options) *house {
	t.Helper()
	return openLogged(t, opt, slog.New(slog.DiscardHandler))
}

func openLogged(t *testing.T, opt Options, log *slog.Logger) *house {
	t.Helper()
	h := &house{upstairs: startUpstairs(t), ended: make(chan error, 1)}
	h.locks = &patient{make(chan struct{}, 10), make(chan struct{}, 10), make(chan struct{}, 10)}
	where, err := backends.Parse("redis://" + h.upstairs.addr)
	if err != nil {
		t.Fatal(err)
	}
	h.up = upstream.New(upstream.Options{PoolOptions: upstream.PoolOptions{Server: where, Log: log}})
	if opt.Listen == "" {
		opt.Listen = "127.0.0.1:0"
	}
	opt.Log = log
	h.Server, err = New(opt, commands.New(commands.Options{Upstream: h.up, Locks: h.locks, Log: log}))
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

// guest is a client of a house.
type guest struct {
	net.Conn
	in *bufio.Reader
}

func (h *house) enter(t *testing.T) *guest {
	t.Helper()
	nc, err := net.Dial(h.Addr().Network(), h.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(soon))
	return &guest{nc, bufio.NewReader(nc)}
}

func (g *guest) say(t *testing.T, text string) {
	t.Helper()
	if _, err := io.WriteString(g, text); err != nil {
		t.Fatal(err)
	}
}

func (g *guest) want(t *testing.T, want string) {
	t.Helper()
	got := make([]byte, len(want))
	n, err := io.ReadFull(g.in, got)
	if string(got[:n]) != want {
		t.Fatalf("got %q (%v), want %q", got[:n], err, want)
	}
}

// wantEnd wants nothing but the end of the connection.
func (g *guest) wantEnd(t *testing.T) {
	t.Helper()
	rest, err := io.ReadAll(g.in)
	var late net.Error
	if len(rest) > 0 || errors.As(err, &late) && late.Timeout() {
		t.Fatalf("got %q, %v instead of the end", rest, err)
	}
}

func (h *house) wantEnded(t *testing.T) {
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

func TestServesUntilTold(t *testing.T) {
	h := open(t, Options{})
	a, b := h.enter(t), h.enter(t)
	a.say(t, "ECHO hello\r\n")
	a.want(t, "$5\r\nhello\r\n")
	b.say(t, "*2\r\n$4\r\nECHO\r\n$0\r\n\r\n")
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

// TestDrainWaits: what runs may finish, what is new is not taken.
func TestDrainWaits(t *testing.T) {
	h := open(t, Options{})
	g := h.enter(t)
	g.say(t, "SILENCE\r\n")
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

// TestDrainTakesWhatArrivesInPieces: a pipeline is executed to its end.
func TestDrainTakesWhatArrivesInPieces(t *testing.T) {
	h := open(t, Options{DrainTimeout: time.Hour})
	h.quiet = soon / 2
	g := h.enter(t)
	g.say(t, "PING\r\n")
	g.want(t, "+PONG\r\n")
	h.end()
	<-h.draining.Done()
	g.say(t, "PING\r\nECHO one\r\nPI")
	g.want(t, "+PONG\r\n$3\r\none\r\n")
	g.say(t, "NG\r\n")
	g.want(t, "+PONG\r\n")
	g.wantEnd(t) // after drainDeadline
	h.wantEnded(t)
}

// TestDrainLetsRepliesArrive: what a client sends too late does not reset its connection,
// and with it replies that it has not read. It is not executed, either.
func TestDrainLetsRepliesArrive(t *testing.T) {
	h := open(t, Options{DrainTimeout: soon})
	g := h.enter(t)
	g.say(t, "SILENCE\r\n")
	up := h.awaitSilence(t)
	h.end()
	time.Sleep(drainDeadline + 4*calm) // by now it is too late
	g.say(t, "PING\r\n")
	up.WriteString("late")
	up.Flush()
	got, err := io.ReadAll(g.in)
	if s := string(got); err != nil || s != "+late\r\n" && s != "+late\r\n+PONG\r\n" {
		t.Errorf("got %q, %v", got, err)
	}
	g.Close()
	h.wantEnded(t)
}

// TestDrainServesWhoHasConnected: those whom Serve has not seen yet, too.
func TestDrainServesWhoHasConnected(t *testing.T) {
	h := open(t, Options{DrainTimeout: soon})
	h.quiet = soon / 2
	g := h.enter(t)
	h.end()
	g.say(t, "PING\r\n")
	g.want(t, "+PONG\r\n")
	g.wantEnd(t)
	h.wantEnded(t)
}

// TestDrainTimeout: what does not finish in time is given up.
func TestDrainTimeout(t *testing.T) {
	for _, running := range []string{"SILENCE\r\n", "SILENCE\r\nSELECT 1\r\nPING\r\n", "BLPOP q 0\r\n", "BLPOP q 0\r\nSELECT 1\r\n", "SILENCE\r\nQUIT\r\n"} {
		t.Run(running, func(t *testing.T) {
			t.Parallel()
			h := open(t, Options{DrainTimeout: calm})
			g := h.enter(t)
			g.say(t, running)
			h.awaitSilence(t)
			h.end()
			h.wantEnded(t)
		})
	}
}

func TestDrainOfAWaitingLock(t *testing.T) {
	for _, lock := range asking {
		h := open(t, Options{DrainTimeout: calm})
		g := h.enter(t)
		g.say(t, lock+"PING\r\n")
		<-h.locks.asked
		h.end()
		<-h.locks.left
		h.wantEnded(t)
	}
}

// TestDrainEndsWaiting: who waits for another owner is told at once, and what came behind
// is done.
func TestDrainEndsWaiting(t *testing.T) {
	h := open(t, Options{DrainTimeout: time.Hour})
	g := h.enter(t)
	g.say(t, "LOCK job 30s WAIT 1m\r\nPING\r\nLOCK job2 30s WAIT 1m\r\nUNLOCK other me\r\nPING\r\n")
	<-h.locks.asked
	<-h.locks.unlocked
	h.end()
	const told = "-DRAINING this proxy is shutting down and the lock was not taken; ask another proxy, or this one later\r\n"
	g.want(t, told+"+PONG\r\n"+told+"-LOCKLOST the lock is no longer held by this owner; what it protected may be compromised\r\n+PONG\r\n")
	g.wantEnd(t)
	h.wantEnded(t)
}

func TestMaxClients(t *testing.T) {
	h := open(t, Options{MaxClients: 1})
	g := h.enter(t)
	g.say(t, "PING\r\n")
	g.want(t, "+PONG\r\n")
	second := h.enter(t)
	second.want(t, "-ERR max number of clients reached\r\n")
	second.wantEnd(t)
	g.Close()
	for late := time.Now().Add(soon); h.clients.Load() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			t.Fatal("a client that left is still counted")
		}
	}
	third := h.enter(t)
	third.say(t, "PING\r\n")
	third.want(t, "+PONG\r\n")
}

// TestIdleTimeout: it is for clients that wait for nothing.
func TestIdleTimeout(t *testing.T) {
	const timeout = 40 * calm // in which each says what it has to say, on a busy machine, too
	h := open(t, Options{IdleTimeout: timeout})
	waiting := h.enter(t)
	waiting.say(t, "SILENCE\r\n")
	up := h.awaitSilence(t)
	subscribed := h.enter(t)
	subscribed.say(t, "SUBSCRIBE c\r\n")
	subscribed.want(t, "+OK\r\n")
	h.enter(t).wantEnd(t)
	time.Sleep(timeout)
	up.WriteString("late")
	up.Flush()
	waiting.want(t, "+late\r\n")
	waiting.wantEnd(t)
	subscribed.say(t, "PING\r\n")
	subscribed.want(t, "+PONG\r\n")
}

func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sock")
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	stale.Close() // as after kill -9: the file stays
	h := open(t, Options{Listen: path})
	g := h.enter(t)
	g.say(t, "PING\r\n")
	g.want(t, "+PONG\r\n")
	if _, err := New(Options{Listen: path}, nil); err == nil {
		t.Error("two servers on one socket")
	}
	g.say(t, "PING\r\n")
	g.want(t, "+PONG\r\n")
}
