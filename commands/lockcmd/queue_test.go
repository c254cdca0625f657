package lockcmd

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// pendingOf is a LOCK that waits, with commands queued behind it.
func pendingOf(t *testing.T, lock string, behind ...string) *Pending {
	t.Helper()
	l := Limits{}.WithDefaults()
	a, err := l.parseLock(words(lock))
	if err != nil {
		t.Fatal(err)
	}
	p := newPending(a, false)
	p.prepare()
	for _, line := range behind {
		q := Queued{Raw: []byte(line), Args: words(line)}
		if a, err := l.parseLock(q.Args); err == nil && isLock(q.Args[0]) {
			q.claims = a.claims()
		}
		q.Waits(IsVerb(q.Args[0]))
		p.Add(q)
	}
	return p
}

func TestPending_RunsAhead(t *testing.T) {
	var none, taken owners
	taken.Add(locks.Grant{Key: locks.Key{Name: "a"}, Owner: "o"})
	tests := []struct {
		lock, behind, line string
		own                *owners
		want               bool
	}{
		{"LOCK a 30s OWNER me", "", "UNLOCK a me", &none, false},
		{"LOCK a 30s OWNER me", "", "RENEW a 10s me", &none, false},
		{"LOCK a 30s OWNER me", "", "UNLOCK a you", &none, true},
		{"LOCK a 30s OWNER me", "", "UNLOCK b me", &none, true},
		{"LOCK a 30s OWNER me", "", "UNLOCK a me FENCE 1", &none, true},
		{"LOCK a 30s OWNER me", "", "UNLOCK a", &none, true},
		{"LOCK a 30s", "", "UNLOCK a", &none, false},
		{"LOCK a 30s", "", "UNLOCK a", &taken, true},
		{"LOCK a 30s", "LOCK b 30s OWNER me", "UNLOCK b me", &none, false},
		{"LOCK a 30s", "", "LOCK b 30s", &none, false},
		{"LOCK a 30s", "", "LOCKCTL INFO a", &none, true},
		{"LOCK a 30s OWNER me", "", "UNLOCK a me FENCE x", &none, true}, // refused at once
		{"LOCKALL 2 a b 30s OWNER me", "", "UNLOCK b me", &none, false},
		{"LOCKALL 2 a b 30s OWNER me", "", "UNLOCKALL 2 c b me", &none, false},
		{"LOCKALL 2 a b 30s OWNER me", "", "UNLOCKALL 2 c d me", &none, true},
		{"LOCKALL 2 a b 30s OWNER me", "", "RENEWALL 2 a b 30s you", &none, true},
		{"LOCKALL 2 a b 30s OWNER me", "", "RENEWALL 2 a b 30s me", &none, false},
		{"LOCKALL 2 b c 30s", "", "UNLOCK a", &taken, true},
		{"LOCKALL 2 b c 30s", "", "UNLOCKALL 2 a c", &taken, false},
		{"LOCK a 30s", "", "RENEWALL 1 a 30s", &taken, true},
		{"LOCK a 30s", "LOCKALL 2 b c 30s OWNER me", "UNLOCKALL 1 c me", &none, false},
		{"LOCK a 30s", "", "LOCKALL 1 b 30s", &none, false},
		{"LOCK a 30s OWNER me", "", "UNLOCKALL 2 a a me", &none, true}, // refused at once
	}
	for _, tt := range tests {
		var behind []string
		if tt.behind != "" {
			behind = []string{tt.behind}
		}
		p := pendingOf(t, tt.lock, behind...)
		if got := p.runsAhead(Limits{}.WithDefaults(), words(tt.line), 0, tt.own); got != tt.want {
			t.Errorf("%s behind %s %s: %v", tt.line, tt.lock, tt.behind, got)
		}
	}
}

func TestPending_QueueIsInOrder(t *testing.T) {
	p := pendingOf(t, "LOCK a 30s", "GET 1", "GET 2", "UNLOCK a", "LOCKALL 2 b c 30s")
	for _, want := range []string{"GET 1", "GET 2", "UNLOCK a", "LOCKALL 2 b c 30s"} {
		if q := p.Next(); string(q.Raw) != want {
			t.Errorf("%q, want %q", q.Raw, want)
		}
	}
	if p.Len() != 0 || p.size != 0 || p.releases != 0 || len(p.claims) != 1 {
		t.Errorf("left: %d commands, %d bytes, %d releases, claims %v", p.Len(), p.size, p.releases, p.claims)
	}
	if !p.Room(maxQueuedBytes) || p.Room(maxQueuedBytes+1) {
		t.Error("the bound is not maxQueuedBytes")
	}
}

// TestPending_TakeOver: only UNLOCKs and RENEWs may no longer have to wait.
func TestPending_TakeOver(t *testing.T) {
	for _, release := range []bool{false, true} {
		before := pendingOf(t, "LOCK a 30s OWNER me", "GET 1")
		if release {
			before = pendingOf(t, "LOCK a 30s OWNER me", "GET 1", "UNLOCK a me")
		}
		before.answered()
		p, asked := pendingOf(t, "LOCK b 30s OWNER me"), 0
		p.TakeOver(before, func(*Queued) { asked++ })
		if want := before.Len(); asked != 0 != release || p.Len() != want {
			t.Errorf("with a release (%v): asked about %d, took over %d of %d", release, asked, p.Len(), want)
		}
		if p.claims[claim{"b", "me"}] != 1 || p.claims[claim{"a", "me"}] != 0 {
			t.Errorf("claims %v", p.claims)
		}
	}
}

// asks is a Locker that grants when it is told to.
type asks struct {
	Locker
	done func(locks.Decision, error)
}

func (a *asks) LockAsync(_ context.Context, _ locks.LockRequest, done func(locks.Decision, error)) {
	a.done = done
}

func TestPending_OnDone(t *testing.T) {
	p, a := pendingOf(t, "LOCK a 30s"), &asks{}
	p.askAsync(t.Context(), t.Context(), a)
	called := 0
	if !p.OnDone(func() { called += 10 }) || !p.OnDone(func() { called++ }) {
		t.Fatal("done already")
	}
	a.done(locks.Decision{Granted: true}, nil)
	if called != 1 || !p.Answer.Granted || p.AnsweredAt.IsZero() {
		t.Errorf("called %d, answer %+v", called, p.Answer)
	}
	if p.OnDone(func() { called++ }) || called != 1 {
		t.Error("OnDone is true, or calls, after Done is closed")
	}
}

func ExampleLimits_ParseLock() {
	limits := Limits{MaxTTL: time.Minute}.WithDefaults()
	lock, err := limits.ParseLock(words("LOCK job 30s OWNER me WAIT 5s"))
	fmt.Println(lock.Name, lock.TTL, lock.Owner, lock.Wait, err)
	_, err = limits.ParseLock(words("LOCK job 2m"))
	fmt.Println(err)
	// Output:
	// job 30s me 5s <nil>
	// ERR ttl 120s is over the maximum of 60s; RENEW the lock in time, use SESSION, or raise --max-ttl
}
