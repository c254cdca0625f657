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
	opt.Upstream, opt.Locks = s.up, s.votes
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

func TestClientsShareAConnection(t *testing.T) {
	s := newStage(t, Options{}, nil)
	a, b := s.enter(t), s.enter(t)
	if x, y := a.where(t), b.where(t); x != y {
		t.Errorf("two clients without state are on connections %q and %q", x, y)
	}
	a.do(t, "GET a", "GET b", "SET c d", "ECHO e")
	b.do(t, "GET x")
	a.want(t, "$1\r\na\r\n$1\r\nb\r\n+OK\r\n$1\r\ne\r\n")
	b.want(t, "$1\r\nx\r\n")
}

// TestStateHasAConnectionOfItsOwn: what a command leaves behind must not be seen by
// others, and the shared connection is used again once nothing is left.
func TestStateHasAConnectionOfItsOwn(t *testing.T) {
	tests := []struct {
		name         string
		state, reply string
		stays        bool   // while the state lasts
		end          string // what ends it
	}{
		{"transaction", "MULTI", "+OK\r\n", true, "EXEC"},
		{"discarded", "MULTI", "+OK\r\n", true, "DISCARD"},
		{"watch", "WATCH k", "+OK\r\n", true, "UNWATCH"},
		{"client flags", "CLIENT NO-EVICT ON", "+OK\r\n", true, ""},
		{"asking", "ASKING", "+OK\r\n", false, ""},
		{"killing", "SCRIPT KILL", "+OK\r\n", false, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(t, Options{}, nil)
			p, other := s.enter(t), s.enter(t)
			shared := other.where(t)
			p.do(t, tt.state)
			p.want(t, tt.reply)
			if s.await(t, tt.state) == s.await(t, "WHERE") {
				t.Errorf("%s travelled on a shared connection", tt.state)
			}
			if at := p.where(t); (at != shared) != tt.stays {
				t.Errorf("afterwards on %q, shared is %q", at, shared)
			}
			if tt.end == "" {
				return
			}
			p.do(t, tt.end)
			p.until(t, tt.end, func() bool { return len(p.text) > p.read })
			p.mu.Lock()
			p.read = len(p.text)
			p.mu.Unlock()
			if at := p.where(t); at != shared {
				t.Errorf("after %s on %q, shared is %q", tt.end, at, shared)
			}
			if other.where(t) != shared {
				t.Error("the other client has moved")
			}
		})
	}
}

// TestNothingOvertakes: a command that moves the session waits for those before it.
func TestNothingOvertakes(t *testing.T) {
	for _, move := range []string{"MULTI", "SELECT 1", "AUTH pw", "EVAL s 0", "BLPOP q 0", "QUIT", "RESET", "SUBSCRIBE c", "WAIT 0 0"} {
		t.Run(move, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, Options{}, nil)
			p := s.enter(t)
			p.do(t, "GET first")
			p.want(t, "$5\r\nfirst\r\n")
			p.do(t, "SILENCE")
			l := s.await(t, "SILENCE")
			done := make(chan struct{})
			go func() { defer close(done); p.do(t, move) }()
			time.Sleep(calm)
			if n := s.count(move); n != 0 {
				t.Errorf("%s reached the upstream before the answer to what came before", move)
			}
			p.want(t, "")
			l.say(t, "+late\r\n")
			<-done
			p.until(t, "the earlier reply", func() bool { return strings.HasPrefix(p.text[p.read:], "+late\r\n") })
		})
	}
}

// TestLostStateEndsTheClient: a Redis that went away would have done the same.
func TestLostStateEndsTheClient(t *testing.T) {
	for _, state := range []string{"MULTI", "WATCH k", "CLIENT NO-EVICT ON", "SUBSCRIBE c"} {
		t.Run(state, func(t *testing.T) {
			s := newStage(t, Options{}, nil)
			p, other := s.enter(t), s.enter(t)
			other.where(t)
			p.do(t, state)
			p.want(t, "+OK\r\n")
			p.do(t, "SILENCE")
			s.await(t, "SILENCE")
			s.drop()
			p.until(t, "the end of the client", func() bool { return p.closed })
			p.want(t, "") // and no word of what is still owed
			other.mu.Lock()
			defer other.mu.Unlock()
			if other.closed || other.aborted {
				t.Error("a client without state was disconnected too")
			}
		})
	}
}

// TestUpstreamLost: owed replies become errors, and the next command finds a new
// connection.
func TestUpstreamLost(t *testing.T) {
	s := newStage(t, Options{}, nil)
	p := s.enter(t)
	p.do(t, "SILENCE", "SILENCE")
	s.await(t, "SILENCE")
	s.drop()
	p.until(t, "two errors", func() bool { return strings.Count(p.text, "-UPSTREAMDOWN ") == 2 })
	p.mu.Lock()
	p.read = len(p.text)
	p.mu.Unlock()
	p.do(t, "GET again")
	p.want(t, "$5\r\nagain\r\n")
	if p.closed || p.aborted {
		t.Error("disconnected")
	}
}

func TestUpstreamDown(t *testing.T) {
	s := newStage(t, Options{}, nil)
	s.ln.Close()
	p := s.enter(t)
	p.do(t, "GET a", "BLPOP q 0", "SELECT 1", "EVAL s 0", "SUBSCRIBE c")
	p.until(t, "five errors", func() bool { return strings.Count(p.text, "-UPSTREAMDOWN ") == 5 })
	p.do(t, "LOCK job 30s OWNER me")
	p.until(t, "one more", func() bool { return strings.Count(p.text, "-UPSTREAMDOWN ") == 6 })
	p.do(t, "MULTI", "SET a 1", "EXEC") // of which the latter must not run, should the upstream be back
	p.until(t, "the end", func() bool { return p.closed && strings.Count(p.text, "-UPSTREAMDOWN ") == 7 })
	if got := s.votes.list(); got != "" {
		t.Errorf("a lock was asked for by a client that may have to authenticate: %s", got)
	}
}

func TestVerbs_ImplicitOwner(t *testing.T) {
	s := newStage(t, Options{}, nil)
	p, other := s.enter(t), s.enter(t)
	p.do(t, "LOCK job 30s")
	p.want(t, "*4\r\n:1\r\n$2\r\no1\r\n:30000\r\n:1\r\n")
	p.do(t, "RENEW job 10s", "SELECT 3", "UNLOCK job", "SELECT 0", "UNLOCK job", "UNLOCK job")
	p.want(t, ":10000\r\n+OK\r\n"+
		"-ERR this connection has not taken that lock without OWNER; UNLOCK must name the owner\r\n"+
		"+OK\r\n:1\r\n-LOCKLOST the lock is no longer held by this owner; what it protected may be compromised\r\n")
	other.do(t, "UNLOCK job")
	other.want(t, "-ERR this connection has not taken that lock without OWNER; UNLOCK must name the owner\r\n")
	want := "lock 0/job ; renew 0/job o1 1; unlock 0/job o1 1; unlock 0/job o1 1"
	if got := s.votes.list(); got != want {
		t.Errorf("the locks were asked %q, want %q", got, want)
	}
}

func TestLock_Refused(t *testing.T) {
	s := newStage(t, Options{}, nil)
	a, b := s.enter(t), s.enter(t)
	a.do(t, "LOCK job 30s OWNER me")
	a.want(t, "*4\r\n:1\r\n$2\r\nme\r\n:30000\r\n:1\r\n")
	b.do(t, "LOCK job 30s", "LOCK job 30s RETRYAFTER", "HELLO 3", "LOCK job 30s")
	b.want(t, "*-1\r\n*4\r\n:0\r\n$2\r\nme\r\n:2\r\n:0\r\n+OK\r\n_\r\n")
}

// TestLock_HolderIsShownToAdmins: whoever knows an owner can unlock in its name.
func TestLock_HolderIsShownToAdmins(t *testing.T) {
	s := newStage(t, Options{}, func(_ *link, args []string) (string, bool) {
		return "-NOPERM this user has no permissions to run the 'acl|dryrun' command\r\n", args[0] == "ACL"
	})
	a, b := s.enter(t), s.enter(t)
	a.do(t, "LOCK job 30s OWNER secret")
	b.do(t, "LOCK job 30s RETRYAFTER", "LOCK job 30s RETRYAFTER")
	b.want(t, "*4\r\n:0\r\n$0\r\n\r\n:2\r\n:0\r\n*4\r\n:0\r\n$0\r\n\r\n:2\r\n:0\r\n")
	if n := s.count("ACL DRYRUN default PING"); n != 1 {
		t.Errorf("the upstream was asked %d times within seconds, want 1", n)
	}
}

func TestLock_UndoneForVanishedClient(t *testing.T) {
	s := newStage(t, Options{}, nil)
	p := s.enter(t)
	p.where(t)
	s.votes.before = p.leave
	p.do(t, "LOCK job 30s")
	if got := s.votes.list(); got != "lock 0/job ; undo 0/job o1" {
		t.Errorf("the locks were asked %q", got)
	}
	p.want(t, "-ERR LOCK was undone: the client closed its side of the connection\r\n") // it may still read
}

func TestVerbs_InTransaction(t *testing.T) {
	s := newStage(t, Options{}, func(_ *link, args []string) (string, bool) {
		return "-ERR unknown command\r\n", args[0] == "lock"
	})
	p := s.enter(t)
	p.do(t, "MULTI", "SET a b", "lock job 30s", "SET c d", "EXEC")
	p.want(t, "+OK\r\n+OK\r\n-ERR LOCK is not allowed inside a transaction\r\n+OK\r\n*0\r\n")
	if l := s.await(t, "lock job 30s"); l != s.await(t, "EXEC") || s.votes.list() != "" {
		t.Errorf("the upstream could not abort the transaction; the locks were asked %q", s.votes.list())
	}
}

func TestVerbs_OfSubscriber(t *testing.T) {
	s := newStage(t, Options{}, nil)
	p := s.enter(t)
	p.do(t, "SUBSCRIBE c")
	p.want(t, "+OK\r\n")
	p.do(t, "LOCK job 30s")
	p.until(t, "a refusal", func() bool {
		return strings.HasPrefix(p.text[p.read:], "-ERR Can't execute 'lock': only (P|S)SUBSCRIBE")
	})
	p3 := s.enter(t)
	p3.do(t, "HELLO 3", "SUBSCRIBE c")
	p3.want(t, "+OK\r\n+OK\r\n")
	p3.do(t, "LOCK job 30s OWNER me")
	p3.want(t, "*4\r\n:1\r\n$2\r\nme\r\n:30000\r\n:1\r\n")
}

func TestRequireOwner(t *testing.T) {
	s := newStage(t, Options{RequireOwner: true}, nil)
	p := s.enter(t)
	p.do(t, "LOCK job 30s")
	p.want(t, "*4\r\n:1\r\n$2\r\no1\r\n:30000\r\n:1\r\n")
	p.do(t, "UNLOCK job", "UNLOCK job o1")
	p.want(t, "-ERR this proxy wants UNLOCK to name the owner\r\n:1\r\n")
}

// TestWait: a client that closed its sending half gets what it is owed, but nobody
// waits for a command that may block for ever.
func TestWait(t *testing.T) {
	s := newStage(t, Options{}, nil)
	p := s.enter(t)
	p.do(t, "SILENCE")
	l := s.await(t, "SILENCE")
	waited := make(chan struct{})
	go func() { defer close(waited); p.Wait(t.Context()) }()
	select {
	case <-waited:
		t.Error("did not wait for a reply that is owed")
	case <-time.After(calm):
	}
	l.say(t, "+late\r\n")
	<-waited
	p.want(t, "+late\r\n")

	p.do(t, "BLPOP q 0")
	s.await(t, "BLPOP q 0")
	p.leave()
	began := time.Now()
	p.Wait(t.Context())
	if took := time.Since(began); took > soon {
		t.Errorf("waited %v for a command that blocks", took)
	}
	p.End()
	gone := s.await(t, "BLPOP q 0")
	gone.SetReadDeadline(time.Now().Add(soon))
	s.wantClosed(t, gone)
}

// wantClosed waits until the proxy has closed a connection.
func (s *fake) wantClosed(t *testing.T, l *link) {
	t.Helper()
	for late := time.Now().Add(soon); ; time.Sleep(time.Millisecond) {
		if _, err := l.Write(nil); err != nil {
			return
		}
		if time.Now().After(late) {
			t.Fatalf("connection %d is still open", l.id)
		}
	}
}
