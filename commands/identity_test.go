package commands

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/upstream"
)

// guarded is an upstream that wants its one user, u with password pw, to
// authenticate, and has databases 0 to 9. One goroutine at a time may ask.
func guarded() func(l *link, args []string) (string, bool) {
	in := map[*link]bool{} // who has authenticated
	return func(l *link, args []string) (string, bool) {
		const no, wrong = "-NOAUTH Authentication required.\r\n", "-WRONGPASS invalid username-password pair or user is disabled.\r\n"
		auth := func(cred []string) string {
			if strings.Join(cred, " ") != "u pw" {
				return wrong
			}
			in[l] = true
			return "+OK\r\n"
		}
		switch {
		case args[0] == "AUTH":
			return auth(args[1:]), true
		case args[0] == "HELLO" && len(args) == 5:
			return auth(args[3:]), true
		case args[0] == "HELLO" && !in[l]:
			return "-NOAUTH HELLO must be called with the client already authenticated\r\n", true
		case !in[l]:
			return no, true
		case args[0] == "SELECT" && len(args[1]) > 1:
			return "-ERR DB index is out of range\r\n", true
		case args[0] == "WHOAMI":
			return "+u\r\n", true
		}
		return "", false
	}
}

func enterGuarded(t *testing.T) (*stage, *player) {
	t.Helper()
	answer := guarded()
	var s *stage
	s = newStage(t, Options{}, func(l *link, args []string) (string, bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return answer(l, args)
	})
	return s, s.enter(t)
}

const noAuth = "-NOAUTH Authentication required.\r\n"

func TestAuth_ChangesTheUser(t *testing.T) {
	for _, login := range []string{"AUTH u pw", "HELLO 3 AUTH u pw", "HELLO 2 AUTH u pw"} {
		t.Run(login, func(t *testing.T) {
			s, p := enterGuarded(t)
			other := s.enter(t)
			p.do(t, "WHOAMI", "LOCK job 30s OWNER me", "UNLOCK job me", "RENEW job 30s me", "LOCKCTL HELP")
			p.want(t, strings.Repeat(noAuth, 5))
			if !p.Restricted() {
				t.Error("the limits before authentication do not hold")
			}
			p.do(t, login, "WHOAMI", "LOCK job 30s OWNER me")
			p.want(t, "+OK\r\n+u\r\n*4\r\n:1\r\n$2\r\nme\r\n:30000\r\n:1\r\n")
			other.do(t, "WHOAMI", "UNLOCK job me")
			other.want(t, noAuth+noAuth)
			p.do(t, "RESET", "WHOAMI", "UNLOCK job me")
			p.want(t, "+RESET\r\n"+noAuth+noAuth)
			if got := s.votes.list(); got != "lock 0/job me" {
				t.Errorf("the locks were asked %q", got)
			}
		})
	}
}

// TestAuth_WrongPassword: they change nothing, and nothing of them is shown.
func TestAuth_WrongPassword(t *testing.T) {
	s, p := enterGuarded(t)
	const wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n"
	p.do(t, "AUTH u no", "HELLO 3 AUTH u no", "AUTH pw", "WHOAMI")
	p.want(t, wrong+wrong+wrong+noAuth)
	p.do(t, "AUTH u pw", "AUTH u no", "WHOAMI", "MULTI", "WHOAMI", "EXEC")
	p.want(t, "+OK\r\n"+wrong+"+u\r\n+OK\r\n+u\r\n*0\r\n")
	s.drop()
	s.ln.Close()
	p2 := s.enter(t)
	p2.do(t, "AUTH u topsecret")
	p2.until(t, "an error", func() bool { return strings.HasSuffix(p2.text, "\r\n") })
	if strings.Contains(p2.text, "topsecret") || !strings.HasPrefix(p2.text, "-UPSTREAMDOWN ") {
		t.Errorf("the error is %q", p2.text)
	}
}

// TestShared_IdentitiesAreApart: what one client is must not become what another is.
func TestShared_IdentitiesAreApart(t *testing.T) {
	s, p := enterGuarded(t)
	anonymous := s.enter(t)
	anonymous.do(t, "GET a")
	p.do(t, "AUTH u pw", "SELECT 3", "GET b", "HELLO 3", "GET c")
	p.want(t, "+OK\r\n+OK\r\n$1\r\nb\r\n+OK\r\n$1\r\nc\r\n")
	anonymous.want(t, noAuth)
	if s.await(t, "GET b") == s.await(t, "GET c") {
		t.Error("RESP2 and RESP3 share a connection")
	}
	for _, want := range []string{"GET b", "GET c"} {
		l := s.await(t, want)
		s.mu.Lock()
		greeting := fmt.Sprint(l.seen[:3])
		s.mu.Unlock()
		if !strings.Contains(greeting, "AUTH u pw") || !strings.Contains(greeting, "SELECT 3") {
			t.Errorf("%s travelled behind %s", want, greeting)
		}
	}
}

func TestSelect_ChangesTheDatabase(t *testing.T) {
	s, p := enterGuarded(t)
	p.do(t, "AUTH u pw", "SELECT 99", "SELECT 4", "LOCK job 30s OWNER me", "SELECT 0", "LOCK job2 30s OWNER me")
	p.until(t, "all replies", func() bool { return strings.Count(p.text, "$2\r\nme\r\n") == 2 })
	if !strings.HasPrefix(p.text, "+OK\r\n-ERR DB index is out of range\r\n+OK\r\n*4\r\n") {
		t.Errorf("the client got %q", p.text)
	}
	if got := s.votes.list(); got != "lock 4/job me; lock 0/job2 me" {
		t.Errorf("the locks were asked %q", got)
	}
}

// TestPinned_IdentityChangesInPlace: identity and database change on the client's own
// connection, not by leaving it, while that has state.
func TestPinned_IdentityChangesInPlace(t *testing.T) {
	s, p := enterGuarded(t)
	p.do(t, "AUTH u pw", "WATCH k", "SELECT 5", "MULTI", "GET a", "EXEC", "GET b")
	p.want(t, "+OK\r\n+OK\r\n+OK\r\n+OK\r\n$1\r\na\r\n*0\r\n$1\r\nb\r\n")
	if s.await(t, "WATCH k") != s.await(t, "GET a") {
		t.Error("SELECT took the client off the connection that watches")
	}
	l := s.await(t, "GET b")
	s.mu.Lock()
	defer s.mu.Unlock()
	if seen := strings.Join(l.seen, "; "); !strings.Contains(seen, "SELECT 5; ") {
		t.Errorf("GET b travelled behind %s", seen)
	}
}

// TestTransaction_SelectTakesEffectAtExec: it takes effect at EXEC, on that connection.
func TestTransaction_SelectTakesEffectAtExec(t *testing.T) {
	s := newStage(t, Options{}, nil)
	p := s.enter(t)
	p.do(t, "MULTI", "SELECT 7", "EXEC", "GET a", "LOCK job 30s OWNER me")
	p.until(t, "all replies", func() bool { return strings.Contains(p.text, "$2\r\nme\r\n") })
	if s.await(t, "SELECT 7") != s.await(t, "GET a") {
		t.Error("the database that was selected is on another connection")
	}
	if got := s.votes.list(); got != "lock 7/job me" {
		t.Errorf("the locks were asked %q", got)
	}
	q := s.enter(t)
	q.do(t, "MULTI", "SELECT 7", "DISCARD", "LOCK job2 30s OWNER me")
	q.until(t, "all replies", func() bool { return strings.Contains(q.text, "$2\r\nme\r\n") })
	if got := s.votes.list(); got != "lock 7/job me; lock 0/job2 me" {
		t.Errorf("the locks were asked %q", got)
	}
}

func TestClientSetName(t *testing.T) {
	s := newStage(t, Options{}, nil)
	p, other := s.enter(t), s.enter(t)
	p.do(t, "CLIENT GETNAME", "CLIENT SETNAME me", "CLIENT GETNAME", "BLPOP q 0")
	p.want(t, "$-1\r\n+OK\r\n$2\r\nme\r\n")
	if s.await(t, "CLIENT SETNAME me") != s.await(t, "BLPOP q 0") {
		t.Error("the connection of its own does not have the client's name")
	}
	other.do(t, "CLIENT GETNAME", "HELLO 3", "CLIENT GETNAME", "HELLO 3 SETNAME you", "CLIENT GETNAME", "RESET", "CLIENT GETNAME")
	other.want(t, "$-1\r\n+OK\r\n_\r\n+OK\r\n$3\r\nyou\r\n+RESET\r\n$-1\r\n")
	for _, l := range []*link{s.await(t, "PING"), s.await(t, "HELLO 3")} {
		s.mu.Lock()
		seen := strings.Join(l.seen, "; ")
		s.mu.Unlock()
		if strings.Contains(strings.ReplaceAll(seen, "CLIENT SETNAME ;", ""), "SETNAME") {
			t.Errorf("a shared connection was given a name: %s", seen)
		}
	}
}

func TestReset_OfSubscriber(t *testing.T) {
	s := newStage(t, Options{}, func(_ *link, args []string) (string, bool) {
		return ">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n", args[0] == "SUBSCRIBE"
	})
	p := s.enter(t)
	shared := p.where(t)
	p.do(t, "SUBSCRIBE c", "RESET")
	p.want(t, ">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n+RESET\r\n")
	if at := p.where(t); at != shared {
		t.Errorf("afterwards on %q, shared is %q", at, shared)
	}
	s.wantClosed(t, s.await(t, "SUBSCRIBE c"))
}

func TestQuit(t *testing.T) {
	s := newStage(t, Options{}, nil)
	p := s.enter(t)
	p.do(t, "GET a", "QUIT")
	p.until(t, "the end", func() bool { return p.closed })
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.Closing() || p.text != "$1\r\na\r\n+OK\r\n" {
		t.Errorf("closing %v, the client got %q", p.Closing(), p.text)
	}
}

// TestPassthrough_PushInParts: nothing comes between the parts of a message that nobody asked
// for, and replies keep their order around it.
func TestPassthrough_PushInParts(t *testing.T) {
	s := newStage(t, Options{}, nil)
	p := s.enter(t)
	p.do(t, "HELLO 3", "CLIENT TRACKING ON")
	p.want(t, "+OK\r\n+OK\r\n")
	l := s.await(t, "CLIENT TRACKING ON")
	p.do(t, "LOCK warm 30s OWNER me") // what it may is known now
	p.want(t, "*4\r\n:1\r\n$2\r\nme\r\n:30000\r\n:1\r\n")
	s.learn(t, "*1\r\n*6\r\n$7\r\nsilence\r\n:-1\r\n*0\r\n:0\r\n:0\r\n:0\r\n", p.pinned) // or it would be asked
	l.say(t, ">2\r\n$10\r\ninvali")
	p.want(t, ">2\r\n$10\r\ninvali")
	p.do(t, "LOCK job 30s OWNER me")
	p.wantNothing(t)
	p.do(t, "SILENCE")
	s.await(t, "SILENCE")
	l.say(t, "date\r\n*1\r\n$1\r\nk\r\n+late\r\n")
	p.want(t, "date\r\n*1\r\n$1\r\nk\r\n*4\r\n:2\r\n$2\r\nme\r\n:30000\r\n:1\r\n+late\r\n")
	p.do(t, "UNLOCK job me")
	p.want(t, ":1\r\n")
}

// TestPinned_LostStateStopsPipeline: what is left of a client whose state is lost must not run,
// least of all the rest of a transaction.
func TestPinned_LostStateStopsPipeline(t *testing.T) {
	for _, tt := range []struct{ state, after string }{
		{"CLIENT NO-EVICT ON", "SELECT 1"},
		{"CLIENT NO-EVICT ON", "AUTH pw"},
		{"MULTI", "SUBSCRIBE c"},
		{"MULTI", "LOCK job 30s"},
	} {
		s := newStage(t, Options{}, nil)
		p := s.enter(t)
		p.do(t, tt.state)
		p.want(t, "+OK\r\n")
		s.drop()
		s.ln.Close()
		p.until(t, "the end of the client", func() bool { return p.closed })
		p.do(t, "GET a", tt.after, "SET a b", "LOCK job 30s", "GET b")
		if s.count("SET a b") != 0 || s.votes.list() != "" || !p.Closing() {
			t.Errorf("after %s was lost commands ran", tt.state)
		}
	}
}

// TestVerbs_KeepOrder: an UNLOCK must not let the next holder in while the
// write it protected is still on its way.
func TestVerbs_KeepOrder(t *testing.T) {
	for _, verb := range []string{"UNLOCK job me", "LOCK other 30s OWNER me"} {
		s := newStage(t, Options{}, nil)
		p := s.enter(t)
		p.do(t, "LOCK job 30s OWNER me")
		p.want(t, "*4\r\n:1\r\n$2\r\nme\r\n:30000\r\n:1\r\n")
		p.do(t, "SILENCE")
		l := s.await(t, "SILENCE")
		done := make(chan struct{})
		go func() { defer close(done); p.do(t, verb) }()
		time.Sleep(calm)
		if got := s.votes.list(); got != "lock 0/job me" {
			t.Errorf("before the earlier command was answered the locks were asked %q", got)
		}
		l.say(t, "+late\r\n")
		<-done
	}
}

// TestVerbs_KeepOrderInPassthrough: the same on a connection whose replies are
// not counted, which in RESP3 takes ordinary commands too.
func TestVerbs_KeepOrderInPassthrough(t *testing.T) {
	questions := make(chan string, 1)
	s := newStage(t, Options{}, func(_ *link, args []string) (string, bool) {
		if !isQuestion(args) {
			return "", false
		}
		questions <- plainAnswer(nil, args) // comes behind what is answered late
		return "", true
	})
	p := s.enter(t)
	p.do(t, "HELLO 3", "SUBSCRIBE c")
	p.want(t, "+OK\r\n+OK\r\n")
	p.do(t, "SILENCE")
	l := s.await(t, "SILENCE")
	done := make(chan struct{})
	go func() { defer close(done); p.do(t, "LOCK job 30s OWNER me") }()
	p.wantNothing(t)
	mark := <-questions
	l.say(t, "+late\r\n"+mark[:5])
	time.Sleep(time.Millisecond) // it may come in pieces
	l.say(t, mark[5:])
	<-done
	p.want(t, "+late\r\n*4\r\n:1\r\n$2\r\nme\r\n:30000\r\n:1\r\n")
}

// TestBlocking_EndsWithClient: also when another command waits behind it, or it
// would take an element that nobody gets.
func TestBlocking_EndsWithClient(t *testing.T) {
	for _, behind := range []string{"SELECT 1", "QUIT", "RESET", "CLIENT LIST"} {
		s := newStage(t, Options{}, nil)
		p := s.enter(t)
		p.do(t, "BLPOP q 0")
		s.await(t, "BLPOP q 0")
		done := make(chan struct{})
		go func() { defer close(done); p.do(t, behind) }()
		p.leave()
		select {
		case <-done:
		case <-time.After(soon):
			t.Errorf("%s waits for a command that blocks, though the client has left", behind)
			s.drop()
			<-done
		}
	}
}

// TestClientPause_Refused: a client that may not pause the others must not get them off
// the shared connections.
func TestClientPause_Refused(t *testing.T) {
	s, p := enterGuarded(t)
	p.do(t, "CLIENT PAUSE 100000")
	p.want(t, noAuth)
	a, b := s.enter(t), s.enter(t)
	a.do(t, "AUTH u pw", "GET a")
	b.do(t, "AUTH u pw", "GET b")
	if s.await(t, "GET a") != s.await(t, "GET b") {
		t.Error("everybody has a connection of their own")
	}
}

// TestScriptDebug_IsPinned: it makes a mode of the connection that other clients' scripts
// would run in.
func TestScriptDebug_IsPinned(t *testing.T) {
	s := newStage(t, Options{}, nil)
	p, other := s.enter(t), s.enter(t)
	other.do(t, "GET a", "EVAL s 0")
	p.do(t, "EVAL t 0", "SCRIPT DEBUG YES")
	for _, shared := range []string{"GET a", "EVAL s 0"} {
		if s.await(t, "SCRIPT DEBUG YES") == s.await(t, shared) {
			t.Errorf("on the connection that %s used", shared)
		}
	}
}

// TestChangeUsers_RefusedInvalidatesNothing: who may not change users or modules must not make the proxy ask
// about everybody, or everything, again.
func TestChangeUsers_RefusedInvalidatesNothing(t *testing.T) {
	s := newStage(t, Options{}, func(_ *link, args []string) (string, bool) {
		return "-NOPERM no\r\n", args[0] == "ACL" || args[0] == "CONFIG" || args[0] == "MODULE"
	})
	p := s.enter(t)
	p.do(t, "GET a")
	p.want(t, "$1\r\na\r\n")
	for asked := 0; ; {
		before, began := len(s.sent("PING")), time.Now() // which nobody's connection begins with
		s.up.Revalidate()                                // and so the next is asked about now, and then not for a second
		s.enter(t).do(t, "GET k")
		p.do(t, "ACL SETUSER u on", "CONFIG SET requirepass x")
		p.want(t, "-NOPERM no\r\n-NOPERM no\r\n")
		s.enter(t).do(t, "GET k")
		if asked = len(s.sent("PING")) - before; time.Since(began) < time.Second {
			if asked != 1 {
				t.Errorf("the upstream was asked %d times who is let in, want 1", asked)
			}
			break
		}
	}
	s.learn(t, moduleTable, p.shared[upstream.MainClass])
	p.do(t, "MODULE LOAD x", "MODULE UNLOAD x")
	if _, known := s.disp.discovery.Lookup(words("MOD.GET k")); !known {
		t.Error("the upstream's commands are asked for again")
	}
}

// TestHello_NameWhenRefused is what the upstream makes of it: Redis 7.0 takes the options
// before the wrong one, others none.
func TestHello_NameWhenRefused(t *testing.T) {
	for _, keeps := range []bool{true, false} {
		s := newStage(t, Options{}, func(_ *link, args []string) (string, bool) {
			switch text := strings.Join(args, " "); {
			case text == "HELLO 3 SETNAME x NOSUCH":
				return "-ERR Syntax error in HELLO option 'NOSUCH'\r\n", true
			case text == "CLIENT GETNAME" && keeps:
				return "$1\r\nx\r\n", true
			case text == "CLIENT GETNAME":
				return "$-1\r\n", true
			}
			return "", false
		})
		p := s.enter(t)
		p.do(t, "HELLO 3 SETNAME x NOSUCH")
		p.want(t, "-ERR Syntax error in HELLO option 'NOSUCH'\r\n")
		want := ""
		if keeps {
			want = "x"
		}
		if got := string(p.name); got != want {
			t.Errorf("an upstream that keeps it (%v): the client is called %q", keeps, got)
		}
		if n := s.count("CLIENT SETNAME x"); n > 0 {
			t.Errorf("an upstream that keeps it (%v): it was told the name", keeps)
		}
	}
}
