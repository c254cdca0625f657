package upstream

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends"
)

// A fakeServer answers each word that it reads with the result of answer, and counts
// connections. It knows no RESP: the words of handshakes are answered as well.
type fakeServer struct {
	addr   string
	ln     net.Listener
	answer func(word string) string

	mu    sync.Mutex
	conns []net.Conn
}

func newFakeServer(t *testing.T, answer func(word string) string) *fakeServer {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeServer{addr: ln.Addr().String(), ln: ln, answer: answer}
	go f.accept()
	t.Cleanup(func() { ln.Close(); f.drop() })
	return f
}

func (f *fakeServer) accept() {
	for {
		nc, err := f.ln.Accept()
		if err != nil {
			return
		}
		f.mu.Lock()
		f.conns = append(f.conns, nc)
		f.mu.Unlock()
		go f.serve(nc)
	}
}

func (f *fakeServer) serve(nc net.Conn) {
	in := bufio.NewScanner(nc)
	for in.Scan() {
		word := strings.TrimSpace(in.Text())
		if word == "" || word[0] == '*' || word[0] == '$' {
			continue
		}
		if _, err := nc.Write([]byte(f.answer(word))); err != nil {
			return
		}
	}
}

// drop closes all connections from the server's side.
func (f *fakeServer) drop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, nc := range f.conns {
		nc.Close()
	}
}

func (f *fakeServer) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.conns)
}

// echo answers a word with itself, and a handshake as a Redis without users does.
func echo(word string) string {
	switch word {
	case "PING":
		return "+PONG\r\n"
	case "AUTH", "SELECT", "HELLO":
		return "+OK\r\n"
	case "silence", "s", "t", "u", "1", "2", "3": // all but the first are arguments in handshakes
		return ""
	}
	return "+" + word + "\r\n"
}

// anonymous is the identity of a client without credentials.
var anonymous = Identity{Proto: 2}

func newPool(t *testing.T, addr string, opt PoolOptions) *Pool {
	t.Helper()
	s, err := backends.Parse("redis://" + addr)
	if err != nil {
		t.Fatal(err)
	}
	opt.Server, opt.Log = s, slog.New(slog.DiscardHandler)
	p := NewPool(opt)
	t.Cleanup(p.Close)
	return p
}

// A recordingSink is an Owner that keeps what it gets; each call is an event.
type recordingSink struct {
	mu     sync.Mutex
	text   string
	ended  int
	fails  []string
	events chan struct{}
}

func newRecordingSink() *recordingSink { return &recordingSink{events: make(chan struct{}, 1000)} }

func (h *recordingSink) Deliver(_ *Conn, p []byte, ended int) {
	h.mu.Lock()
	h.text += string(p)
	h.ended += ended
	h.mu.Unlock()
	h.events <- struct{}{}
}

func (h *recordingSink) Full() <-chan struct{} { return nil }

func (h *recordingSink) Fail(_ *Conn, owed int, cut bool, _ error) {
	h.mu.Lock()
	h.fails = append(h.fails, fmt.Sprint(owed, cut))
	h.mu.Unlock()
	h.events <- struct{}{}
}

// until waits for cond, which is checked after each event.
func (h *recordingSink) until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	late := time.After(5 * time.Second)
	for {
		h.mu.Lock()
		ok := cond()
		h.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-h.events:
		case <-late:
			t.Fatalf("%s: not within 5 s; got %q, %d ended, fails %v", what, h.text, h.ended, h.fails)
		}
	}
}

func sharedConn(t *testing.T, p *Pool) *Conn {
	t.Helper()
	c, err := p.Shared(t.Context(), anonymous, MainClass, 0)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestConn_RepliesGoToTheirSenders(t *testing.T) {
	p := newPool(t, newFakeServer(t, echo).addr, PoolOptions{})
	c := sharedConn(t, p)
	a, b := newRecordingSink(), newRecordingSink()
	for i := range 100 {
		if err := c.Send(fmt.Appendf(nil, "a%d\r\nA%d\r\n", i, i), 2, a); err != nil {
			t.Fatal(err)
		}
		if err := c.Send(fmt.Appendf(nil, "b%d\r\n", i), 1, b); err != nil {
			t.Fatal(err)
		}
	}
	a.until(t, "a's replies", func() bool { return a.ended == 200 })
	b.until(t, "b's replies", func() bool { return b.ended == 100 })
	var wantA, wantB string
	for i := range 100 {
		wantA += fmt.Sprintf("+a%d\r\n+A%d\r\n", i, i)
		wantB += fmt.Sprintf("+b%d\r\n", i)
	}
	if a.text != wantA || b.text != wantB {
		t.Errorf("a got %.80q…, b got %.80q…", a.text, b.text)
	}
}

func TestConn_ManySenders(t *testing.T) {
	p := newPool(t, newFakeServer(t, echo).addr, PoolOptions{})
	c := sharedConn(t, p)
	var wg sync.WaitGroup
	for s := range 20 {
		wg.Go(func() {
			h := newRecordingSink()
			for i := range 200 {
				pad := ""
				if i%10 == 0 { // written without a copy if no goroutine is writing
					pad = strings.Repeat("x", 2*directSize)
				}
				want := fmt.Sprintf("+s%d-%d%s\r\n", s, i, pad)
				if err := c.Send([]byte(want[1:]), 1, h); err != nil {
					t.Error(err)
					return
				}
				h.until(t, want, func() bool { return h.ended == i+1 })
				if !strings.HasSuffix(h.text, want) {
					t.Errorf("sender %d got …%.40q instead of %.40q", s, h.text[max(0, len(h.text)-40):], want)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestConn_LossFailsPendingReplies(t *testing.T) {
	f := newFakeServer(t, echo)
	p := newPool(t, f.addr, PoolOptions{})
	c := sharedConn(t, p)
	a, b := newRecordingSink(), newRecordingSink()
	c.Send([]byte("one\r\nsilence\r\nsilence\r\n"), 3, a)
	c.Send([]byte("silence\r\n"), 1, b)
	a.until(t, "the first reply", func() bool { return a.ended == 1 })
	f.drop()
	a.until(t, "a's failure", func() bool { return len(a.fails) == 1 && a.fails[0] == "2 false" })
	b.until(t, "b's failure", func() bool { return len(b.fails) == 1 && b.fails[0] == "1 false" })
	<-c.Done()
	if err := c.Send([]byte("x\r\n"), 1, a); err == nil || c.Alive() {
		t.Error("Send on a broken connection returned no error")
	}
	Return(c)
	again := sharedConn(t, p)
	if again == c {
		t.Fatal("a broken connection was lent again")
	}
	again.Send([]byte("back\r\n"), 1, b)
	b.until(t, "the next connection's reply", func() bool { return strings.HasSuffix(b.text, "+back\r\n") })
}

func TestConn_LossInsideAReplyIsCut(t *testing.T) {
	f := newFakeServer(t, func(word string) string {
		if word == "half" {
			return "$10\r\nhello"
		}
		return echo(word)
	})
	p := newPool(t, f.addr, PoolOptions{})
	c := sharedConn(t, p)
	a := newRecordingSink()
	c.Send([]byte("half\r\n"), 1, a)
	a.until(t, "the half", func() bool { return a.text == "$10\r\nhello" })
	f.drop()
	a.until(t, "the cut", func() bool { return len(a.fails) == 1 && a.fails[0] == "1 true" })
}

func TestConn_UnsolicitedReplyEndsIt(t *testing.T) {
	f := newFakeServer(t, func(word string) string {
		if word == "double" {
			return "+one\r\n+two\r\n"
		}
		return echo(word)
	})
	p := newPool(t, f.addr, PoolOptions{})
	c := sharedConn(t, p)
	a := newRecordingSink()
	c.Send([]byte("double\r\n"), 1, a)
	<-c.Done()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.text != "+one\r\n" {
		t.Errorf("got %q", a.text)
	}
}

func TestConn_PushesAndPassthrough(t *testing.T) {
	f := newFakeServer(t, func(word string) string {
		switch word {
		case "push":
			return ">1\r\n+news\r\n"
		case "pushes":
			return ">1\r\n+one\r\n>1\r\n+two\r\n+done\r\n"
		}
		return echo(word)
	})
	p := newPool(t, f.addr, PoolOptions{})
	h := newRecordingSink()
	c, err := p.Private(t.Context(), anonymous, h)
	if err != nil {
		t.Fatal(err)
	}
	c.Send([]byte("a\r\npush\r\nb\r\n"), 2, h)
	h.until(t, "replies around a push", func() bool { return h.ended == 2 && h.text == "+a\r\n>1\r\n+news\r\n+b\r\n" })
	c.Send([]byte("push\r\n"), 0, h)
	h.until(t, "a push alone", func() bool { return strings.HasSuffix(h.text, "+b\r\n>1\r\n+news\r\n") })
	c.Send([]byte("pushes\r\n"), 1, h)
	h.until(t, "two pushes and a reply at once", func() bool { return strings.HasSuffix(h.text, ">1\r\n+one\r\n>1\r\n+two\r\n+done\r\n") })
	c.Send([]byte("push\r\npush\r\n"), 0, h)
	h.until(t, "two pushes alone", func() bool { return strings.HasSuffix(h.text, "+done\r\n>1\r\n+news\r\n>1\r\n+news\r\n") })
	c.StartPassthrough()
	c.Send([]byte("c\r\nd\r\n"), 0, h)
	h.until(t, "uncounted replies", func() bool { return strings.HasSuffix(h.text, "+c\r\n+d\r\n") })
	c.Close()
	h.until(t, "its end", func() bool { return len(h.fails) == 1 && h.fails[0] == "0 false" })
}

func TestPool_PrivateConnectionsKnowTheirID(t *testing.T) {
	for _, tt := range []struct {
		hello string
		proto int
		want  int64
	}{
		{"*4\r\n$5\r\nproto\r\n:2\r\n$2\r\nid\r\n:17\r\n", 2, 17},
		{"%1\r\n$2\r\nid\r\n:18\r\n", 3, 18},
		{"-ERR unknown command 'HELLO'\r\n", 2, 0},
		{"-NOAUTH HELLO must be called with the client already authenticated\r\n", 2, 0},
	} {
		f := newFakeServer(t, func(word string) string {
			if word == "HELLO" {
				return tt.hello
			}
			return echo(word)
		})
		p := newPool(t, f.addr, PoolOptions{})
		c, err := p.Private(t.Context(), Identity{Proto: tt.proto}, newRecordingSink())
		if err != nil {
			t.Fatal(err)
		}
		if c.ID() != tt.want {
			t.Errorf("%q: %d", tt.hello, c.ID())
		}
		if c.NeedsAuth() != strings.HasPrefix(tt.hello, "-NOAUTH") {
			t.Errorf("%q: needs authentication: %v", tt.hello, c.NeedsAuth())
		}
	}
}

func TestPool_SpareIsOpenedAhead(t *testing.T) {
	f := newFakeServer(t, echo)
	p := newPool(t, f.addr, PoolOptions{})
	h := newRecordingSink()
	private := func() *Conn {
		t.Helper()
		c, err := p.Private(t.Context(), anonymous, h)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	sharedConn(t, p)
	if first := private(); f.count() != 2 {
		t.Fatalf("%d connections, want a shared and a private one", f.count())
	} else {
		first.Close()
	}
	sharedConn(t, p) // by another client
	for late := time.After(5 * time.Second); f.count() < 3; {
		select {
		case <-late:
			t.Fatal("no spare was opened")
		case <-time.After(time.Millisecond):
		}
	}
	second := private()
	if f.count() != 3 {
		t.Errorf("%d connections: the spare was not used", f.count())
	}
	second.Send([]byte("mine\r\n"), 1, h)
	h.until(t, "a reply on the spare", func() bool { return strings.HasSuffix(h.text, "+mine\r\n") })
}

func TestPool_IdentitiesDoNotShareConnections(t *testing.T) {
	p := newPool(t, newFakeServer(t, echo).addr, PoolOptions{})
	ids := []Identity{
		{Proto: 2}, {Proto: 3}, {Proto: 2, DB: 1}, {Proto: 2, Secret: "s"}, {Proto: 2, User: "u", Secret: "s"}, {Proto: 2, User: "u", Secret: "t"},
	}
	seen := map[*Conn]Identity{}
	for range 2 {
		for _, id := range ids {
			c, err := p.Shared(t.Context(), id, MainClass, 0)
			if err != nil {
				t.Fatal(err)
			}
			if other, ok := seen[c]; ok && other != id {
				t.Errorf("%+v and %+v share a connection", id, other)
			}
			seen[c] = id
		}
	}
	if len(seen) != len(ids) {
		t.Errorf("%d connections for %d identities", len(seen), len(ids))
	}
}

func TestPool_EvictedConnectionsStayForBorrowers(t *testing.T) {
	p := newPool(t, newFakeServer(t, echo).addr, PoolOptions{MaxIdentities: 1})
	c := sharedConn(t, p)
	var other *Conn
	for db := 1; db <= int(ConnClasses); db++ {
		var err error
		if other, err = p.Shared(t.Context(), Identity{Proto: 2, DB: db}, MainClass, 0); err != nil {
			t.Fatal(err)
		}
	}
	h := newRecordingSink()
	c.Send([]byte("still\r\n"), 1, h)
	h.until(t, "a reply after eviction", func() bool { return h.text == "+still\r\n" })
	Return(c)
	select {
	case <-c.Done():
	case <-time.After(5 * time.Second):
		t.Error("an evicted connection stays open though nobody borrows it")
	}
	if !other.Alive() {
		t.Error("the connection in use was closed")
	}
}

func TestPool_RefusedHandshakes(t *testing.T) {
	f := newFakeServer(t, func(word string) string {
		switch word {
		case "wrong":
			return "-WRONGPASS no\r\n"
		case "AUTH", "u":
			return ""
		case "99":
			return "-ERR DB index is out of range\r\n"
		case "SELECT":
			return ""
		case "PING":
			return "-NOAUTH Authentication required.\r\n"
		}
		return echo(word)
	})
	p := newPool(t, f.addr, PoolOptions{})
	for want, id := range map[string]Identity{
		"-WRONGPASS no\r\n":                 {Proto: 2, User: "u", Secret: "wrong"},
		"-ERR DB index is out of range\r\n": {Proto: 2, DB: 99},
	} {
		var refused *RefusedError
		if _, err := p.Shared(t.Context(), id, MainClass, 0); !errors.As(err, &refused) || string(refused.Reply) != want {
			t.Errorf("%+v: %v, want %q", id, err, want)
		}
	}
	if c := sharedConn(t, p); !c.NeedsAuth() || !p.RequiresAuth() || p.AllowsAnonymous() {
		t.Error("NOAUTH was not noticed")
	}
}

func TestPool_FailedDialAnswersForAWhile(t *testing.T) {
	f := newFakeServer(t, echo)
	f.ln.Close()
	p := newPool(t, f.addr, PoolOptions{})
	var down *DownError
	_, first := p.Shared(t.Context(), anonymous, MainClass, 0)
	if !errors.As(first, &down) {
		t.Fatal(first)
	}
	if _, again := p.Shared(t.Context(), anonymous, MainClass, 0); again != first {
		t.Error("dialed again at once")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Private(ctx, anonymous, newRecordingSink()); !errors.Is(err, context.Canceled) {
		t.Errorf("a dial after its context ended: %v", err)
	}
}

func TestPool_CloseEndsAllConnections(t *testing.T) {
	p := newPool(t, newFakeServer(t, echo).addr, PoolOptions{Conns: 2})
	h := newRecordingSink()
	var all []*Conn
	for hint := range uint32(2) {
		c, err := p.Shared(t.Context(), anonymous, MainClass, hint)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	if all[0] == all[1] {
		t.Error("two hints, one connection")
	}
	c, err := p.Private(t.Context(), anonymous, h)
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	for _, c := range append(all, c) {
		if c.Alive() {
			t.Error("alive after Close")
		}
	}
	if _, err := p.Shared(t.Context(), anonymous, MainClass, 0); err == nil {
		t.Error("a closed pool lends connections")
	}
}
