package upstream

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// An authServer answers as a server whose user u has the password s while accepts is
// true, and counts the attempts to log in.
type authServer struct {
	accepts  atomic.Bool
	attempts atomic.Int32
}

const wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n"

func (g *authServer) answer(word string) string {
	switch {
	case word == "AUTH" || word == "u":
		return ""
	case word == "s":
		g.attempts.Add(1)
		if g.accepts.Load() {
			return "+OK\r\n"
		}
		return wrong
	}
	return echo(word)
}

var testUser = Identity{User: "u", Secret: "s", Proto: 2}

func sharedConnOf(t *testing.T, p *Pool, id Identity) *Conn {
	t.Helper()
	c, err := p.Shared(t.Context(), id, MainClass, 0)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestPool_ConcurrentBorrowersShareALoginCheck(t *testing.T) {
	var g authServer
	g.accepts.Store(true)
	p := newPool(t, newFakeServer(t, g.answer).addr, PoolOptions{})
	p.recheckInterval = time.Hour
	c := sharedConnOf(t, p, testUser)
	for range 100 {
		sharedConnOf(t, p, testUser)
	}
	if n := g.attempts.Load(); n != 1 {
		t.Errorf("%d logins, though the first was confirmed just now", n)
	}
	p.mu.Lock()
	c.login.confirmedAt = time.Now().Add(-2 * confirmedFor)
	p.mu.Unlock()
	h := newRecordingSink()
	var wg sync.WaitGroup
	for i := range 100 {
		c.Send(fmt.Appendf(nil, "x%d\r\n", i), 1, h)
		wg.Go(func() {
			if _, err := p.Shared(t.Context(), testUser, MainClass, 0); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := g.attempts.Load(); n != 2 {
		t.Errorf("%d logins, want one more", n)
	}
	h.until(t, "a client's replies", func() bool { return h.ended == 100 })
	if strings.Contains(h.text, "OK") {
		t.Errorf("the reply to AUTH went to a client: %q", h.text)
	}
}

func TestPool_RevokedLoginEndsItsConnections(t *testing.T) {
	for name, check := range map[string]func(t *testing.T, p *Pool){
		"by lending": func(t *testing.T, p *Pool) {
			p.confirmedFor = 0
			var refused *RefusedError
			if _, err := p.Shared(t.Context(), testUser, MainClass, 0); !errors.As(err, &refused) || string(refused.Reply) != wrong {
				t.Errorf("lent, or %v", err)
			}
		},
		"by opening": func(t *testing.T, p *Pool) {
			p.Private(t.Context(), testUser, newRecordingSink())
		},
		"by rechecking": func(t *testing.T, p *Pool) {
			p.confirmedFor = 0
			p.recheck()
		},
	} {
		t.Run(name, func(t *testing.T) {
			var g authServer
			g.accepts.Store(true)
			p := newPool(t, newFakeServer(t, g.answer).addr, PoolOptions{})
			p.recheckInterval = time.Hour
			c, h := sharedConnOf(t, p, testUser), newRecordingSink()
			own, err := p.Private(t.Context(), testUser, h)
			if err != nil {
				t.Fatal(err)
			}
			foreign, err := p.Private(t.Context(), testUser, newRecordingSink())
			if err != nil {
				t.Fatal(err)
			}
			foreign.ClearLogin()
			anonymous := sharedConn(t, p)
			c.Send([]byte("x\r\n"), 1, h)
			h.until(t, "a reply", func() bool { return h.ended == 1 })
			g.accepts.Store(false)
			check(t, p)
			for _, c := range []*Conn{c, own} {
				select {
				case <-c.Done():
				case <-time.After(5 * time.Second):
					t.Fatal("a connection of the refused login stays open")
				}
				if !c.Revoked() {
					t.Errorf("it ended with %v", c.reason())
				}
			}
			if !anonymous.Alive() || !foreign.Alive() {
				t.Error("connections of others were closed")
			}
			g.accepts.Store(true)
			if again := sharedConnOf(t, p, testUser); !again.Alive() {
				t.Error("no connection though the login is good again")
			}
		})
	}
}

// A check is no use of a login.
func TestPool_OnlyUsedLoginsAreRechecked(t *testing.T) {
	var g authServer
	g.accepts.Store(true)
	p := newPool(t, newFakeServer(t, g.answer).addr, PoolOptions{})
	p.recheckInterval, p.confirmedFor = time.Hour, 0
	c, h := sharedConnOf(t, p, testUser), newRecordingSink()
	recheck := func(want int32) {
		t.Helper()
		p.recheck()
		time.Sleep(20 * time.Millisecond)
		if n := g.attempts.Load(); n != want {
			t.Errorf("%d logins, want %d", n, want)
		}
	}
	recheck(1)
	c.Send([]byte("x\r\n"), 1, h)
	h.until(t, "a reply", func() bool { return h.ended == 1 })
	recheck(2)
	recheck(2)
	c.MarkUsed()
	recheck(3)
	recheck(3)
}

// Borrowers of a connection without credentials keep it when the default user gets a
// password; later ones get another.
func TestPool_DefaultUserGetsAPassword(t *testing.T) {
	var locked atomic.Bool
	f := newFakeServer(t, func(word string) string {
		switch {
		case word == "AUTH":
			return ""
		case word == "default" && locked.Load():
			return wrong
		case word == "default":
			return "+OK\r\n"
		case word == "PING" && locked.Load():
			return "-NOAUTH Authentication required.\r\n"
		case len(word) == 26: // the password
			return ""
		}
		return echo(word)
	})
	p := newPool(t, f.addr, PoolOptions{})
	p.confirmedFor = 0
	before := sharedConn(t, p)
	if again := sharedConn(t, p); again != before || before.NeedsAuth() {
		t.Fatal("not shared while there is no password")
	}
	locked.Store(true)
	after := sharedConn(t, p)
	if after == before || !after.NeedsAuth() || !p.RequiresAuth() || !before.Alive() {
		t.Fatal("the password was not noticed, or ended a connection without credentials")
	}
	if again := sharedConn(t, p); again != after {
		t.Error("not shared while there is a password")
	}
	locked.Store(false)
	if last := sharedConn(t, p); last.NeedsAuth() || !p.AllowsAnonymous() {
		t.Error("the end of the password was not noticed")
	}
}

func TestIdentity_SecretIsNotPrinted(t *testing.T) {
	id := Identity{User: "alice", Secret: "hush", DB: 3, Proto: 2}
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "id", id, "ids", []Identity{id})
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "id", id, "in", struct{ ID *Identity }{&id})
	for _, text := range []string{
		fmt.Sprint(id), fmt.Sprint(&id), fmt.Sprintf("%v %+v %#v %s %q %x %d", id, id, id, id, id, id, id),
		fmt.Sprintf("%+v", []Identity{id}), fmt.Sprintf("%+v", map[string]any{"a": &id}), log.String(),
	} {
		if strings.Contains(text, "hush") || strings.Contains(text, fmt.Sprintf("%x", "hush")) {
			t.Errorf("printed: %s", text)
		}
	}
	if !strings.Contains(id.String(), "alice") {
		t.Errorf("the user is not printed: %s", id)
	}
}

// A server with another reply on its way may not answer an AUTH that it refuses.
func TestHandshake_AwaitsRepliesBeforeAUTH(t *testing.T) {
	for _, id := range []Identity{{User: "u", Secret: "no", DB: 2, Proto: 2}, {Secret: "no", DB: 2, Proto: 3}, {User: "u", Secret: "no", Proto: 3}} {
		here, there := net.Pipe()
		steps := handshakeSteps(id, false, false)
		refused := make(chan error, 1)
		go func() {
			_, err := handshake(here, steps, id.DB)
			here.Close()
			refused <- err
		}()
		buf := make([]byte, 4096)
		for auth := false; !auth; {
			n, err := there.Read(buf) // what was written at once
			if err != nil {
				t.Fatal(err)
			}
			said := string(buf[:n])
			auth = strings.Contains(said, "AUTH")
			answer := strings.Repeat("+OK\r\n", strings.Count(said, "*"))
			if auth && !strings.HasPrefix(said, fmt.Sprintf("*%d\r\n$4\r\nAUTH\r\n", len(steps[slices.IndexFunc(steps, func(s []string) bool { return s[0] == "AUTH" })]))) {
				t.Errorf("%+v: AUTH was sent behind %q", id, said)
				answer = wrong
			} else if auth {
				answer = wrong
			}
			if _, err := there.Write([]byte(answer)); err != nil {
				t.Fatal(err)
			}
		}
		var no *RefusedError
		if err := <-refused; !errors.As(err, &no) {
			t.Errorf("%+v: %v", id, err)
		}
		there.Close()
	}
}
