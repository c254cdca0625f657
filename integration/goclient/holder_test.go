package goclient

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	lockproxy "github.com/lockproxy/lockproxy/clients/go"
)

// holderVariable makes this program hold a lock, for ever, with a client of that kind. Its arguments are the
// address of the proxy, the name, the lease, and "session" or "renew".
const holderVariable = "LOCKPROXY_TEST_HOLDER"

// holdForEver prints up to when it has the lock, in nanoseconds, at first and whenever that changes.
func holdForEver(kind string) {
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	ttl, err := time.ParseDuration(os.Args[3])
	fail(err)
	for _, k := range kinds {
		if k.name != kind {
			continue
		}
		c, err := k.open(settings{addr: os.Args[1]})
		fail(err)
		l, err := c.Acquire(context.Background(), os.Args[2], lockproxy.Options{TTL: ttl, Wait: time.Minute, Session: os.Args[4] == "session"})
		fail(err)
		for last := (time.Time{}); l.Err() == nil; time.Sleep(time.Millisecond) {
			if until := l.Until(); until != last {
				last = until
				fmt.Println(until.UnixNano())
			}
		}
		fail(l.Err())
	}
}

// A holder is a process that has a lock.
type holder struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
}

func startHolder(t *testing.T, kind, addr, name string, ttl time.Duration, how string) *holder {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, addr, name, ttl.String(), how)
	cmd.Env = append(os.Environ(), holderVariable+"="+kind)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	h := &holder{cmd, bufio.NewScanner(out)}
	t.Cleanup(func() { _ = h.kill(t) })
	return h
}

// until is up to when it has the lock, as it says next; false: it has ended.
func (h *holder) until(t *testing.T) (time.Time, bool) {
	t.Helper()
	if !h.lines.Scan() {
		return time.Time{}, false
	}
	ns, err := strconv.ParseInt(strings.TrimSpace(h.lines.Text()), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.Unix(0, ns), true
}

// kill ends the process as kill -9 does, and returns the last time that it has said.
func (h *holder) kill(t *testing.T) (last time.Time) {
	_ = h.cmd.Process.Kill()
	for {
		until, ok := h.until(t)
		if !ok {
			break
		}
		last = until
	}
	_ = h.cmd.Wait()
	return last
}

// TestKilledHolder_Session: the next one has the lock long before the lease is over, also at another proxy.
func TestKilledHolder_Session(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	for i, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			h := startHolder(t, k.name, s.proxies[0].Addr(), k.name, time.Minute, "session")
			if _, ok := h.until(t); !ok {
				t.Fatal("it has no lock")
			}
			next, err := k.open(settings{addr: s.proxies[i%2].Addr()})
			if err != nil {
				t.Fatal(err)
			}
			defer next.close()
			next.wantHeld(t, k.name, lockproxy.Options{})
			time.AfterFunc(100*time.Millisecond, func() { _ = h.cmd.Process.Kill() })
			l, err := next.Acquire(t.Context(), k.name, lockproxy.Options{Wait: 30 * time.Second, Session: true})
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestKilledHolder_Renewed: a lock that was renewed is free when the last lease is over, and not before.
func TestKilledHolder_Renewed(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	s.eachKind(t, settings{}, func(t *testing.T, open func() *client, name string) {
		h := startHolder(t, strings.ReplaceAll(name, ":", " "), s.proxies[0].Addr(), name, 2*time.Second, "renew")
		for range 4 { // it has been renewed for longer than a lease
			if _, ok := h.until(t); !ok {
				t.Fatal("it has no lock")
			}
		}
		type result struct {
			lock *lockproxy.Lock
			err  error
		}
		done := make(chan result, 1)
		c := open()
		go func() {
			l, err := c.Acquire(t.Context(), name, lockproxy.Options{Wait: time.Minute})
			done <- result{l, err}
		}()
		s.awaitWaiters(t, name, 1)
		until := h.kill(t)
		r := <-done
		if r.err != nil {
			t.Fatal(r.err)
		}
		if early := time.Until(until); early > 0 {
			t.Errorf("the next one has it %v before the holder's time is over", early)
		}
		if err := r.lock.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
