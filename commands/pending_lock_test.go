package commands

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/metrics"
	"github.com/lockproxy/lockproxy/backends/resp"
)

// pipe handles commands as proxy does, but without waiting for a LOCK that waits: it
// fails if one must be.
func (p *player) pipe(t *testing.T, lines ...string) {
	t.Helper()
	for _, line := range lines {
		args := words(line)
		raw := resp.AppendCommand(nil, args...)
		switch {
		case p.Pending() != nil:
			if !p.QueueBehind(t.Context(), raw, args) {
				t.Fatalf("%s was not taken", line)
			}
			clear(raw) // it is the caller's
			for _, a := range args {
				clear(a)
			}
		case !p.Try(raw, args):
			p.Run(t.Context(), raw, args)
		}
	}
	p.Session.Flush()
}

// resume waits for the answer of the LOCK that waits.
func (p *player) resume(t *testing.T) {
	t.Helper()
	select {
	case <-p.Pending():
		p.Resume(t.Context())
	case <-time.After(soon):
		t.Fatal("the LOCK still waits")
	}
}

// await waits until the locks have been asked for something.
func (v *votes) await(t *testing.T, call string) {
	t.Helper()
	for late := time.Now().Add(soon); !strings.Contains(v.list(), call); time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("the locks were not asked to %q, only %q", call, v.list())
		}
	}
}

// granted is the beginning of a LOCK's reply.
func granted(fence int, owner string) string {
	return fmt.Sprintf("*4\r\n:%d\r\n$%d\r\n%s\r\n", fence, len(owner), owner)
}

// wantParts waits for replies that contain these parts in this order, and the last at
// the end.
func (p *player) wantParts(t *testing.T, parts ...string) {
	t.Helper()
	last := parts[len(parts)-1]
	p.until(t, fmt.Sprintf("%q", parts), func() bool { return strings.HasSuffix(p.text[p.read:], last) })
	p.mu.Lock()
	defer p.mu.Unlock()
	rest := p.text[p.read:]
	for _, part := range parts {
		_, after, found := strings.Cut(rest, part)
		if !found {
			t.Fatalf("the client got %q, want %q in this order", p.text[p.read:], parts)
		}
		rest = after
	}
	p.read = len(p.text)
}

// TestPendingLock_UnlockBehind: it takes effect at once, and its reply comes in its place.
func TestPendingLock_UnlockBehind(t *testing.T) {
	s := newStage(t, Options{}, nil)
	p := s.enter(t)
	p.pipe(t, "LOCK a 30s OWNER one", "LOCK b 30s OWNER other")
	p.wantParts(t, granted(1, "one"), granted(2, "other"), ":1\r\n")

	p.pipe(t, "LOCK a 30s OWNER two WAIT 10s", "GET before", "UNLOCK b other", "UNLOCK c", "GET after")
	if got := s.votes.list(); !strings.Contains(got, "unlock 0/b other 0") { // the LOCK is asked for beside it
		t.Errorf("the locks were asked %q", got)
	}
	s.votes.await(t, "lock 0/a two")
	if got := s.votes.list(); strings.Count(got, ";") != 3 {
		t.Errorf("the locks were asked %q", got)
	}
	p.wantNothing(t)
	if n := s.count("GET before"); n != 0 {
		t.Error("a command has overtaken the LOCK before it")
	}
	p.pipe(t, "UNLOCK a one")
	p.resume(t)
	p.wantParts(t, granted(3, "two"), "$6\r\nbefore\r\n", ":1\r\n", "-ERR this connection", "$5\r\nafter\r\n", ":1\r\n")
}

// TestPendingLock_ReleaseOfAwaitedLockWaits: what can only mean the lock that a LOCK before it brings
// waits for that, or the lock would be left behind.
func TestPendingLock_ReleaseOfAwaitedLockWaits(t *testing.T) {
	for _, tt := range []struct{ name, lock, renew, unlock, release string }{
		{"with OWNER", "LOCK a 30s OWNER me WAIT 10s", "RENEW a 20s me", "UNLOCK a me", "unlock 0/a me 0"},
		{"without OWNER", "LOCK a 30s WAIT 10s", "RENEW a 20s", "UNLOCK a", "unlock 0/a o2 2"},
		{"every hold", "LOCK a 30s WAIT 10s OWNER me", "RENEW a 20s me", "UNLOCK a me ALL", "unlock 0/a me 0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(t, Options{}, nil)
			p, other := s.enter(t), s.enter(t)
			other.do(t, "LOCK a 30s OWNER other")
			p.pipe(t, tt.lock, tt.renew, tt.unlock, "GET x")
			s.votes.await(t, "; lock")
			if got := s.votes.list(); strings.Contains(got, "unlock") || strings.Contains(got, "renew") {
				t.Fatalf("the locks were asked %q", got)
			}
			other.do(t, "UNLOCK a other")
			p.resume(t)
			p.wantParts(t, ":2\r\n", ":20000\r\n:1\r\n$1\r\nx\r\n")
			if got := s.votes.list(); !strings.HasSuffix(got, tt.release) {
				t.Errorf("the locks were asked %q", got)
			}
		})
	}
}

// TestPendingLock_ReleaseOfEarlierGrant: of the same name, taken on the same connection by somebody
// else who shares it.
func TestPendingLock_ReleaseOfEarlierGrant(t *testing.T) {
	s := newStage(t, Options{}, nil)
	p := s.enter(t)
	const pairs = 20
	p.pipe(t, "LOCK a 30s")
	for range pairs {
		p.pipe(t, "LOCK a 30s WAIT 10s", "UNLOCK a")
		p.resume(t)
	}
	p.pipe(t, "UNLOCK a")
	p.until(t, "all replies", func() bool {
		return strings.Count(p.text, "*4") == pairs+1 && strings.HasSuffix(p.text, ":1\r\n:1\r\n:1\r\n")
	})
	s.votes.mu.Lock()
	defer s.votes.mu.Unlock()
	if len(s.votes.holder) > 0 {
		t.Errorf("left behind: %v", s.votes.holder)
	}
}

// TestPendingLock_ReleaseDoesNotWaitForNextLock: what was held back for a LOCK that has been granted
// must not wait for the next one.
func TestPendingLock_ReleaseDoesNotWaitForNextLock(t *testing.T) {
	s := newStage(t, Options{}, nil)
	p, other := s.enter(t), s.enter(t)
	other.do(t, "LOCK a 30s OWNER x", "LOCK b 30s OWNER x")
	p.pipe(t, "LOCK a 30s OWNER me WAIT 10s", "LOCK b 30s OWNER me WAIT 10s", "UNLOCK b me", "UNLOCK a me", "GET x")
	other.do(t, "UNLOCK a x")
	p.resume(t)
	s.votes.await(t, "unlock 0/a me")
	if got := s.votes.list(); strings.Contains(got, "unlock 0/b me") {
		t.Fatalf("the locks were asked %q", got)
	}
	other.do(t, "UNLOCK b x")
	p.resume(t)
	p.wantParts(t, granted(3, "me"), granted(4, "me"), ":1\r\n:1\r\n$1\r\nx\r\n")
	for family, want := range map[string]float64{"lock": 4, "unlock": 4, "read": 1} { // each once, whenever it was run
		if n := (metrics.Registry{s.disp}).Sample("lockproxy_commands_total", "family", family).Value; n != want {
			t.Errorf("%v commands of family %s, want %v", n, family, want)
		}
	}
}

// TestPendingLock_RenewBehind: its reply says what is left of the validity when it is
// sent, which may be much later.
func TestPendingLock_RenewBehind(t *testing.T) {
	s := newStage(t, Options{}, nil)
	p, other := s.enter(t), s.enter(t)
	other.do(t, "LOCK b 30s OWNER x")
	p.pipe(t, "LOCK a 30s OWNER me", "LOCK b 30s OWNER me WAIT 10s", "RENEW a 100ms me", "RENEW a 50s me")
	s.votes.await(t, "renew 0/a me")
	time.Sleep(120 * time.Millisecond)
	other.do(t, "UNLOCK b x")
	p.resume(t)
	p.wantParts(t, granted(3, "me"), ":0\r\n:4", "\r\n")
}

// TestPendingLock_QueueIsBounded, by bytes and by commands; what changes the meaning of what follows
// is not taken either.
func TestPendingLock_QueueIsBounded(t *testing.T) {
	s := newStage(t, Options{}, nil)
	other := s.enter(t)
	other.do(t, "LOCK a 30s OWNER x")
	untaken := func(name string, before []string, line string) {
		t.Run(name, func(t *testing.T) {
			p := s.enter(t)
			p.pipe(t, "LOCK a 30s WAIT 10s OWNER me")
			p.pipe(t, before...)
			args := words(line)
			if p.QueueBehind(t.Context(), resp.AppendCommand(nil, args...), args) {
				t.Errorf("%.40s was taken", line)
			}
			p.leave()
			p.resume(t)
		})
	}
	half := "SET k " + strings.Repeat("v", 1<<19)
	untaken("bytes", []string{half}, half)
	many := make([]string, 4096)
	for i := range many {
		many[i] = "GET x"
	}
	untaken("commands", many, "UNLOCK a x")
	for _, line := range []string{"SELECT 3", "AUTH pw", "HELLO 3", "RESET", "quit", "MULTI", "EXEC", "DISCARD", "SUBSCRIBE c", "UNSUBSCRIBE", "CLIENT REPLY OFF"} {
		untaken(line, nil, line)
	}
	for _, line := range []string{"GET x", "CLIENT ID", "WATCH k", "BLPOP q 0", "EVAL s 0", "LOCK b 30s", "LOCK b"} {
		t.Run(line, func(t *testing.T) {
			p := s.enter(t)
			p.pipe(t, "LOCK a 30s WAIT 10s OWNER me", line)
			p.leave()
			p.resume(t)
		})
	}
}

// TestPendingLock_VanishedClient: it is given up, or taken back if it was granted at
// that moment.
func TestPendingLock_VanishedClient(t *testing.T) {
	s := newStage(t, Options{}, nil)
	p, other := s.enter(t), s.enter(t)
	other.do(t, "LOCK a 30s OWNER x")
	p.pipe(t, "LOCK a 30s WAIT 10s", "GET x")
	p.leave()
	p.resume(t)
	p.wantParts(t, "-ERR LOCK was given up: the client closed its side of the connection\r\n", "$1\r\nx\r\n")

	p = s.enter(t)
	p.pipe(t, "LOCK a 30s WAIT 10s OWNER me")
	other.do(t, "UNLOCK a x")
	<-p.Pending()
	p.leave()
	p.resume(t)
	p.wantParts(t, "-ERR LOCK was undone: the client closed its side of the connection\r\n")
	if got := s.votes.list(); !strings.HasSuffix(got, "undo 0/a me") {
		t.Errorf("the locks were asked %q", got)
	}
}

// TestLock_UndoneIfReplyCannotBeSent is undone.
func TestLock_UndoneIfReplyCannotBeSent(t *testing.T) {
	s := newStage(t, Options{}, nil)
	for _, wait := range []string{"0", "10s"} {
		p := s.enter(t)
		p.where(t)
		p.Session.Flush()
		p.screen.Abort()
		p.pipe(t, "LOCK job 30s OWNER me WAIT "+wait)
		if p.Pending() != nil {
			p.resume(t)
		}
		if got := s.votes.list(); !strings.HasSuffix(got, "lock 0/job me; undo 0/job me") {
			t.Errorf("WAIT %s: the locks were asked %q", wait, got)
		}
	}
}
