package commands

import (
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends"
	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
)

// soon is how long what must happen may take on a busy machine, calm how long what
// must not happen is waited for.
const (
	soon = 30 * time.Second
	calm = 30 * time.Millisecond
)

// fake is an upstream that answers as a small Redis would, unless answer has
// something else to say. Nothing is stored: GET returns the name of its key.
type fake struct {
	ln     net.Listener
	answer func(l *link, args []string) (reply string, mine bool)

	mu    sync.Mutex
	links []*link
	news  chan struct{} // closed at the next event
}

// link is one connection to a fake, number id.
type link struct {
	net.Conn
	id   int
	seen []string // the commands that came, the mu of the fake
}

func startFake(t *testing.T, answer func(l *link, args []string) (string, bool)) *fake {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &fake{ln: ln, answer: answer, news: make(chan struct{})}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { s.serve(nc) })
		}
	})
	t.Cleanup(func() { ln.Close(); s.drop(); wg.Wait() })
	return s
}

// happenedLocked wakes those who wait.
func (s *fake) happenedLocked() {
	close(s.news)
	s.news = make(chan struct{})
}

func (s *fake) serve(nc net.Conn) {
	defer nc.Close()
	s.mu.Lock()
	l := &link{Conn: nc, id: len(s.links)}
	s.links = append(s.links, l)
	s.happenedLocked()
	s.mu.Unlock()
	for in := bufio.NewReader(nc); ; {
		args, err := readCommand(in)
		if err != nil {
			return
		}
		s.mu.Lock()
		l.seen = append(l.seen, strings.Join(args, " "))
		s.happenedLocked()
		s.mu.Unlock()
		reply, mine := "", false
		if s.answer != nil {
			reply, mine = s.answer(l, args)
		}
		if !mine {
			reply = plainAnswer(l, args)
		}
		if _, err := io.WriteString(nc, reply); err != nil {
			return
		}
	}
}

func plainAnswer(l *link, args []string) string {
	switch args[0] {
	case "PING":
		if len(args) == 1 {
			return "+PONG\r\n"
		}
		fallthrough
	case "GET", "ECHO":
		return fmt.Sprintf("$%d\r\n%s\r\n", len(args[1]), args[1])
	case "WHERE": // which connection this came on
		return fmt.Sprintf(":%d\r\n", l.id)
	case "BLPOP", "SILENCE":
		return ""
	case "EXEC":
		return "*0\r\n"
	case "RESET":
		return "+RESET\r\n"
	case "ACL": // everybody is the default user, who may do everything
		switch args[1] {
		case "WHOAMI":
			return "$7\r\ndefault\r\n"
		case "GETUSER":
			return "*4\r\n$8\r\ncommands\r\n$5\r\n+@all\r\n$4\r\nkeys\r\n$2\r\n~*\r\n"
		}
	}
	if isQuestion(args) {
		return "-ERR unknown command '" + args[0] + "', with args beginning with: \r\n"
	}
	return "+OK\r\n"
}

// isQuestion says that a command is one whose name no Redis knows, by which the proxy
// learns that everything before has been answered.
func isQuestion(args []string) bool { return len(args) == 1 && len(args[0]) == len(rand.Text()) }

// readCommand reads an array of bulk strings.
func readCommand(in *bufio.Reader) ([]string, error) {
	n, err := readLength(in, '*')
	args := make([]string, 0, max(n, 0))
	for err == nil && len(args) < n {
		var size int
		if size, err = readLength(in, '$'); err != nil {
			break
		}
		arg := make([]byte, size+2)
		if _, err = io.ReadFull(in, arg); err == nil {
			args = append(args, string(arg[:size]))
		}
	}
	return args, err
}

func readLength(in *bufio.Reader, kind byte) (int, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return 0, err
	}
	if line[0] != kind {
		return 0, fmt.Errorf("%q instead of a %q", line, kind)
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}

// drop closes all connections, from the upstream's side.
func (s *fake) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.links {
		l.Close()
	}
}

// await waits until a connection has got a command and returns it.
func (s *fake) await(t *testing.T, command string) *link {
	t.Helper()
	late := time.After(soon)
	for {
		s.mu.Lock()
		for _, l := range s.links {
			for _, c := range l.seen {
				if c == command {
					s.mu.Unlock()
					return l
				}
			}
		}
		news := s.news
		s.mu.Unlock()
		select {
		case <-news:
		case <-late:
			t.Fatalf("the upstream did not get %q", command)
		}
	}
}

// count is how often a command came, on all connections.
func (s *fake) count(command string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.links {
		for _, c := range l.seen {
			if c == command {
				n++
			}
		}
	}
	return n
}

func (l *link) say(t *testing.T, reply string) {
	t.Helper()
	if _, err := io.WriteString(l, reply); err != nil {
		t.Fatal(err)
	}
}

// screen is an Output that remembers, safe for concurrent use.
type screen struct {
	mu              sync.Mutex
	text            string
	read            int // how much of text was waited for
	closed, aborted bool
	news            chan struct{}
	full            <-chan struct{} // what Full returns
}

func newScreen() *screen { return &screen{news: make(chan struct{})} }

func (s *screen) change(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.aborted {
		return false
	}
	f()
	close(s.news)
	s.news = make(chan struct{})
	return true
}

func (s *screen) Write(p []byte) bool   { return s.change(func() { s.text += string(p) }) }
func (s *screen) Close()                { s.change(func() { s.closed = true }) }
func (s *screen) Full() <-chan struct{} { return s.full }
func (s *screen) Abort()                { s.change(func() { s.aborted = true }) }

// until waits for cond, which is called with mu held.
func (s *screen) until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	late := time.After(soon)
	for {
		s.mu.Lock()
		ok, news, text := cond(), s.news, s.text[s.read:]
		s.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-news:
		case <-late:
			t.Fatalf("%s did not happen; the client has got %q since", what, text)
		}
	}
}

// want waits for the next bytes and compares them.
func (s *screen) want(t *testing.T, want string) {
	t.Helper()
	s.until(t, fmt.Sprintf("%q", want), func() bool { return len(s.text)-s.read >= len(want) })
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := s.text[s.read:]; got != want {
		t.Fatalf("the client got %q, want %q", got, want)
	}
	s.read = len(s.text)
}

// wantNothing gives what must not come the time to come.
func (s *screen) wantNothing(t *testing.T) {
	t.Helper()
	time.Sleep(calm)
	s.want(t, "")
}

// votes is a Locker that grants whatever is free, and remembers what it was asked.
type votes struct {
	mu     sync.Mutex
	calls  []string
	fence  int64
	holder map[string]string
	before func()        // called by Lock first, if not nil
	freed  chan struct{} // closed by the next Unlock; may be nil
}

func (v *votes) note(format string, args ...any) {
	v.calls = append(v.calls, fmt.Sprintf(format, args...))
}

func (v *votes) LockAsync(ctx context.Context, r locks.LockRequest, done func(locks.Decision, error)) {
	done(v.Lock(ctx, r))
}

func (v *votes) Lock(ctx context.Context, r locks.LockRequest) (locks.Decision, error) {
	if v.before != nil {
		v.before()
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.note("lock %d/%s %s", r.DB, r.Name, r.Owner)
	for v.holder[r.Name] != "" && r.Wait > 0 {
		if v.freed == nil {
			v.freed = make(chan struct{})
		}
		freed := v.freed
		v.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
		}
		v.mu.Lock()
		if ctx.Err() != nil {
			return locks.Decision{}, ctx.Err()
		}
	}
	if v.holder[r.Name] != "" {
		return locks.Decision{Holder: v.holder[r.Name], Remaining: 1500 * time.Microsecond}, nil
	}
	v.fence++
	if r.Owner == "" {
		r.Owner = fmt.Sprintf("o%d", v.fence)
	}
	if v.holder == nil {
		v.holder = map[string]string{}
	}
	v.holder[r.Name] = r.Owner
	return locks.Decision{Granted: true, Grant: locks.Grant{
		Key: r.Key, Owner: r.Owner, Fence: v.fence, Validity: r.TTL, Holds: 1,
	}}, nil
}

func (v *votes) Renew(_ context.Context, r locks.RenewRequest) (time.Duration, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.note("renew %d/%s %s %d", r.DB, r.Name, r.Owner, r.Fence)
	if v.holder[r.Name] != r.Owner {
		return 0, locks.ErrLost
	}
	return r.TTL, nil
}

func (v *votes) Unlock(_ context.Context, r locks.UnlockRequest) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.note("unlock %d/%s %s %d", r.DB, r.Name, r.Owner, r.Fence)
	if v.holder[r.Name] != r.Owner {
		return 0, locks.ErrLost
	}
	delete(v.holder, r.Name)
	if v.freed != nil {
		close(v.freed)
		v.freed = nil
	}
	return 0, nil
}

func (v *votes) RenewAll(ctx context.Context, names []locks.Key, r locks.RenewRequest) (time.Duration, error) {
	for _, r.Key = range names {
		if _, err := v.Renew(ctx, r); err != nil {
			return 0, err
		}
	}
	return r.TTL, nil
}

func (v *votes) UnlockAll(ctx context.Context, names []locks.Key, r locks.UnlockRequest) (int, error) {
	for _, r.Key = range names {
		if _, err := v.Unlock(ctx, r); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

func (v *votes) Undo(g locks.Grant) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.note("undo %d/%s %s", g.DB, g.Name, g.Owner)
	delete(v.holder, g.Name)
}

func (v *votes) list() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return strings.Join(v.calls, "; ")
}

// stage is a Dispatcher between a fake and its clients.
type stage struct {
	*fake
	votes *votes
	up    *upstream.Upstream
	disp  *Dispatcher
}

func newStage(t *testing.T, opt Options, answer func(l *link, args []string) (string, bool)) *stage {
	t.Helper()
	s := &stage{fake: startFake(t, answer), votes: new(votes)}
	where, err := backends.Parse("redis://" + s.ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	s.up = upstream.New(upstream.Options{PoolOptions: upstream.PoolOptions{Server: where, Log: opt.Log}})
	t.Cleanup(s.up.Close)
	opt.Upstream, opt.Verbs.Locker = s.up, s.votes
	s.disp = New(opt)
	return s
}

// player is a client: a Session and what it has got.
type player struct {
	*Session
	*screen
	leave context.CancelFunc
}

func (s *stage) enter(t *testing.T) *player {
	t.Helper()
	present, leave := context.WithCancel(context.Background())
	out := newScreen()
	p := &player{Session: s.disp.NewSession(present, out, Peer{ID: s.disp.NextID()}), screen: out, leave: leave}
	t.Cleanup(func() { leave(); p.End() })
	return p
}

// do handles commands as one burst: it returns when none has to wait any more, and
// does not wait for replies.
func (p *player) do(t *testing.T, lines ...string) {
	t.Helper()
	for _, line := range lines {
		args := words(line)
		raw := resp.AppendCommand(nil, args...)
		if !p.Try(raw, args) {
			p.Run(t.Context(), raw, args)
		}
	}
	p.Session.Flush()
}

// where is the number of the connection that ordinary commands travel on.
func (p *player) where(t *testing.T) string {
	t.Helper()
	p.do(t, "WHERE")
	p.until(t, "an answer to WHERE", func() bool { return strings.HasSuffix(p.text[p.read:], "\r\n") })
	p.mu.Lock()
	defer p.mu.Unlock()
	got := p.text[p.read:]
	p.read = len(p.text)
	if got[0] != ':' {
		t.Fatalf("WHERE: %q", got)
	}
	return got
}
