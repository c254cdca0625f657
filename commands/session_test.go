package commands

import (
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/commands/lockcmd"
)

func TestShared_ClientsShareAConnection(t *testing.T) {
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

// TestPinned_CommandsWithState: what a command leaves behind must not be seen by
// others, and the shared connection is used again once nothing is left.
func TestPinned_CommandsWithState(t *testing.T) {
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

// TestSession_NothingOvertakes: a command that moves the session waits for those before it.
func TestSession_NothingOvertakes(t *testing.T) {
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

// TestPinned_LostStateEndsClient: a Redis that went away would have done the same.
func TestPinned_LostStateEndsClient(t *testing.T) {
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

// TestShared_UpstreamLost: owed replies become errors, and the next command finds a new
// connection.
func TestShared_UpstreamLost(t *testing.T) {
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

func TestShared_UpstreamDown(t *testing.T) {
	s := newStage(t, Options{}, nil)
	s.ln.Close()
	p := s.enter(t)
	p.do(t, "GET a", "BLPOP q 0", "SELECT 0", "EVAL s 0", "SUBSCRIBE c")
	p.until(t, "five errors", func() bool { return strings.Count(p.text, "-UPSTREAMDOWN ") == 5 })
	p.do(t, "LOCK job 30s OWNER me")
	p.until(t, "one more", func() bool { return strings.Count(p.text, "-UPSTREAMDOWN ") == 6 })
	p.do(t, "MULTI", "SET a 1", "EXEC") // of which the latter must not run, should the upstream be back
	p.until(t, "the end", func() bool { return p.closed && strings.Count(p.text, "-UPSTREAMDOWN ") == 7 })
	for _, command := range []string{"WATCH a", "SELECT 1", "AUTH pw", "HELLO 3 AUTH u pw", "CLIENT REPLY OFF"} {
		p := s.enter(t)
		p.do(t, command, "MULTI", "SET a 1", "EXEC")
		p.until(t, "the end after "+command, func() bool { return p.closed && strings.Count(p.text, "-UPSTREAMDOWN ") == 1 })
	}
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
		"-ERR this connection has not taken that lock without OWNER; UNLOCK must name the owner, which LOCK answered\r\n"+
		"+OK\r\n:1\r\n-LOCKLOST the lock is no longer held by this owner; what it protected may be compromised\r\n")
	other.do(t, "UNLOCK job")
	other.want(t, "-ERR this connection has not taken that lock without OWNER; UNLOCK must name the owner, which LOCK answered\r\n")
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
	s := newStage(t, Options{Verbs: lockcmd.Options{RequireOwner: true}}, nil)
	p := s.enter(t)
	p.do(t, "LOCK job 30s")
	p.want(t, "*4\r\n:1\r\n$2\r\no1\r\n:30000\r\n:1\r\n")
	p.do(t, "UNLOCK job", "UNLOCK job o1")
	p.want(t, "-ERR this proxy wants UNLOCK to name the owner\r\n:1\r\n")
}

// TestSession_Wait: a client that closed its sending half gets what it is owed, but nobody
// waits for a command that may block for ever.
func TestSession_Wait(t *testing.T) {
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
