package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/cmd/lockproxy/child"
	"github.com/lockproxy/lockproxy/cmd/lockproxy/client"
	"github.com/lockproxy/lockproxy/cmd/lockproxy/exit"
)

// A stand is a proxy for run, with answers of the test.
type stand struct {
	socket string
	answer func(c net.Conn, args []string) string // empty: nothing is answered

	open atomic.Int32 // connections

	mu   sync.Mutex
	said []string
}

// granted is the answer to everything that goes well, of a lock with fence 7.
func granted(_ net.Conn, args []string) string {
	switch args[0] {
	case "LOCK":
		return "*4\r\n:7\r\n$1\r\no\r\n:29000\r\n:1\r\n"
	case "UNLOCK":
		return ":1\r\n"
	}
	return "%1\r\n$5\r\nproto\r\n:3\r\n"
}

// standIn listens until the test ends. Answers to commands that are not in replies are
// those of a lock that is granted.
func standIn(t *testing.T, answer func(c net.Conn, args []string) string) *stand {
	t.Helper()
	s := &stand{socket: filepath.Join(t.TempDir(), "s"), answer: answer}
	l, err := net.Listen("unix", s.socket)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { s.serve(c) })
		}
	})
	return s
}

func (s *stand) serve(c net.Conn) {
	s.open.Add(1)
	defer s.open.Add(-1)
	defer c.Close()
	r := bufio.NewReader(c)
	for {
		v, err := client.ReadReply(r)
		if err != nil {
			return
		}
		var args []string
		for _, e := range v.Elems {
			args = append(args, e.Text)
		}
		s.mu.Lock()
		s.said = append(s.said, strings.Join(args, " "))
		s.mu.Unlock()
		fmt.Fprint(c, s.answer(c, args))
	}
}

var requestID = regexp.MustCompile(` REQ [A-Z2-7]{26}\b`)

// heard are the commands that came, without probes. The id of a run is shown as "id".
func (s *stand) heard() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, c := range s.said {
		if c != "LOCKCTL HELP" {
			all = append(all, requestID.ReplaceAllString(c, " REQ id"))
		}
	}
	return all
}

func (s *stand) run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return execute(t, map[string]string{"LOCKPROXY_PROXY": "unix://" + s.socket}, append([]string{"run"}, args...)...)
}

func TestRun_CommandLines(t *testing.T) {
	dead := filepath.Join(t.TempDir(), "dead")
	locked := filepath.Join(t.TempDir(), "locked")
	if err := os.WriteFile(locked, []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		args   string
		code   int
		stderr string
	}{
		{"run", exit.Misuse, "lock: not set"},
		{"run", exit.Misuse, "no command to run"},
		{"run --lock a", exit.Misuse, "no command to run"},
		{"run --lok a -- true", exit.Misuse, "not defined: -lok"},
		{"run --lock a --lock b -- true", exit.Misuse, "lock: is given twice"},
		{"run --lock a --ttl 30 -- true", exit.Misuse, `ttl: "30" has no unit`},
		{"run --lock a --proxy redis://a:1?addr=b:2 -- true", exit.Misuse, "names several addresses"},
		{"run --lock a --tls-ca /none/such -- true", exit.Misuse, "tls-ca: "},
		{"run --lock a -- no-such-command", child.NotFound, "no-such-command"},
		{"run --lock a -- /none/such", child.NotFound, "/none/such"},
		{"run --lock a -- " + locked, child.NotRunnable, "permission denied"},
		{"run --lock a --proxy unix://" + dead + " -- true", exit.Unavailable, dead},
	}
	for _, tt := range tests {
		if code, _, stderr := execute(t, nil, strings.Fields(tt.args)...); code != tt.code || !strings.Contains(stderr, tt.stderr) {
			t.Errorf("%s: exit code %d, want %d, and %q in %q", tt.args, code, tt.code, tt.stderr, stderr)
		}
	}
}

func TestRun_RefusedLocks(t *testing.T) {
	tests := []struct {
		command, reply string
		code           int
		stderr         string
	}{
		{"LOCK", "_\r\n", exit.Busy, "a is held by another"},
		{"LOCK", "*-1\r\n", exit.Busy, "a is held by another"},
		{"LOCK", "-QUEUEFULL 9 wait already\r\n", exit.Busy, "QUEUEFULL 9 wait"},
		{"LOCK", "-NOQUORUM 1 of 3 answered\r\n", exit.Unavailable, "NOQUORUM 1 of 3"},
		{"LOCK", "-ERR ttl 30s is over the maximum\r\n", exit.Misuse, "over the maximum"},
		{"LOCK", "-NOPERM no\r\n", exit.NoPermission, "NOPERM"},
		{"HELLO", "-WRONGPASS no\r\n", exit.NoPermission, "WRONGPASS"},
		{"HELLO", "-UPSTREAMDOWN no\r\n", exit.Unavailable, "UPSTREAMDOWN"},
		{"HELLO", "-ERR unknown command\r\n", exit.Unavailable, "a Redis answers there, not a lockproxy"},
		{"HELLO", "HTTP/1.1 400 Bad Request\r\n", exit.Unavailable, "not a reply"},
		{"HELLO", "", exit.Unavailable, "if it speaks TLS, its URL begins with rediss://"},
		{"LOCK", "-ERR unknown command 'LOCK', with args beginning with: 'a'\r\n", exit.Unavailable, "a Redis answers there, not a lockproxy"},
		{"LOCK", "-DRAINING no\r\n", exit.Unavailable, "DRAINING"},
		{"LOCK", "+OK\r\n", exit.Unavailable, "not the answer of a lockproxy"},
	}
	for _, tt := range tests {
		s := standIn(t, func(c net.Conn, args []string) string {
			if args[0] == tt.command {
				if tt.reply == "" {
					c.Close()
				}
				return tt.reply
			}
			return granted(c, args)
		})
		code, stdout, stderr := s.run(t, "--lock", "a", "echo", "ran")
		if code != tt.code || stdout != "" || !strings.Contains(stderr, tt.stderr) {
			t.Errorf("%s %q: exit code %d, want %d; %q, %q", tt.command, tt.reply, code, tt.code, stdout, stderr)
		}
	}
}

func TestRun_ExitCodes(t *testing.T) {
	tests := []struct {
		script, unlock string
		code           int
		stdout, stderr string
	}{
		{"echo $LOCK_NAME $LOCK_OWNER $LOCK_FENCE", ":1", exit.OK, "job me 7\n", ""},
		{"exit 3", ":1", 3, "", ""},
		{"kill -KILL $$", ":1", child.Signaled + 9, "", ""},
		{"echo err >&2", ":1", exit.OK, "", "err\n"},
		{"true", "-LOCKLOST it is gone", exit.Lost, "", "lost before the command ended: job"},
		{"exit 3", "-LOCKLOST it is gone", 3, "", "lost before the command ended: job"},
		{"true", "-NOQUORUM 0 of 1", exit.OK, "", "stays locked until its lease ends: NOQUORUM"},
	}
	for _, tt := range tests {
		s := standIn(t, func(c net.Conn, args []string) string {
			if args[0] == "UNLOCK" {
				return tt.unlock + "\r\n"
			}
			return granted(c, args)
		})
		code, stdout, stderr := s.run(t, "--lock", "job", "--owner", "me", "--info", "x", "--wait", "2s", "--max-hold", "1m", "--", "sh", "-c", tt.script)
		if code != tt.code || stdout != tt.stdout || !strings.Contains(stderr, tt.stderr) || tt.stderr == "" && stderr != "" {
			t.Errorf("%s, %s: exit code %d, want %d; %q, %q", tt.script, tt.unlock, code, tt.code, stdout, stderr)
		}
		want := []string{"HELLO 3", "LOCK job 30000ms OWNER me REQ id SESSION ONLOSS PUSH INFO x WAIT 2000ms MAXHOLD 60000ms", "UNLOCK job me FENCE 7 REQ id"}
		if got := s.heard(); !slices.Equal(got, want) {
			t.Errorf("%s: the proxy heard %q", tt.script, got)
		}
	}
}

// TestRun_SilentProxy: one that accepts a connection and answers nothing leaves time for the next one.
func TestRun_SilentProxy(t *testing.T) {
	silent, other := standIn(t, func(net.Conn, []string) string { return "" }), standIn(t, granted)
	if code, _, stderr := execute(t, nil, "run", "--lock", "job", "--proxy", "unix://"+silent.socket, "--proxy", "unix://"+other.socket, "--", "true"); code != exit.OK {
		t.Errorf("exit code %d, %q", code, stderr)
	}
}

// TestRun_Shared: every command about a reader's lock says that it is one.
func TestRun_Shared(t *testing.T) {
	s := standIn(t, granted)
	if code, _, stderr := s.run(t, "--lock", "job", "--shared", "--owner", "me", "--info", "x", "true"); code != exit.OK {
		t.Errorf("exit code %d, %q", code, stderr)
	}
	want := []string{"HELLO 3", "LOCK job 30000ms OWNER me REQ id SESSION ONLOSS PUSH INFO x SHARED", "UNLOCK job me FENCE 7 REQ id SHARED"}
	if got := s.heard(); !slices.Equal(got, want) {
		t.Errorf("the proxy heard %q", got)
	}
}

// TestRun_InfoNamesTheProcess: but not its arguments, which may be passwords.
func TestRun_InfoNamesTheProcess(t *testing.T) {
	s := standIn(t, granted)
	s.run(t, "--lock", "job", "echo", "hunter2")
	lock := s.heard()[1]
	if strings.Contains(lock, "hunter2") || !strings.HasSuffix(lock, fmt.Sprintf(" %d echo", os.Getpid())) {
		t.Errorf("the proxy heard %q", lock)
	}
}

// awaitFile returns when there is text in a file.
func awaitFile(t *testing.T, path string) {
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if text, _ := os.ReadFile(path); len(text) > 0 {
			return
		}
		if time.Now().After(end) {
			t.Errorf("nothing was written to %s", path)
			return
		}
	}
}

func TestRun_EndsTheChildOfALostLock(t *testing.T) {
	var once sync.Once
	ready := filepath.Join(t.TempDir(), "ready")
	s := standIn(t, func(c net.Conn, args []string) string {
		if args[0] == "LOCKCTL" {
			once.Do(func() {
				awaitFile(t, ready)
				fmt.Fprint(c, ">2\r\n$10\r\ninvalidate\r\n_\r\n")
				fmt.Fprint(c, ">4\r\n$9\r\nlock-lost\r\n$3\r\njob\r\n:7\r\n$7\r\nexpired\r\n")
			})
		}
		return granted(c, args)
	})
	code, stdout, stderr := s.run(t, "--lock", "job", "--ttl", "10s", "--", "sh", "-c",
		`trap 'echo TERM; exit 0' TERM; echo set >`+ready+`; while :; do sleep 0.01; done`)
	if code != exit.Lost || stdout != "TERM\n" || !strings.Contains(stderr, "the lock job was lost: expired") {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
	if heard := s.heard(); !strings.HasSuffix(heard[len(heard)-1], " FENCE 7 REQ id") {
		t.Errorf("what may be left of the lease was not given back: %q", heard)
	}
}

// TestRun_KillsChildThatIgnoresTERM: a child that does not end at TERM is killed, and so is what it has started.
func TestRun_KillsChildThatIgnoresTERM(t *testing.T) {
	var broken atomic.Bool
	pids := filepath.Join(t.TempDir(), "pids")
	s := standIn(t, func(c net.Conn, args []string) string {
		switch {
		case args[0] == "LOCKCTL":
			awaitFile(t, pids)
			broken.Store(true)
			c.Close()
		case args[0] == "LOCK" && broken.Load():
			return "_\r\n"
		}
		return granted(c, args)
	})
	code, _, stderr := s.run(t, "--lock", "job", "--ttl", "10s", "--kill-after", "100ms", "--", "sh", "-c",
		`trap '' TERM; sh -c "trap '' TERM; while :; do sleep 1; done" & echo $$ $! >`+pids+`; while :; do sleep 1; done`)
	if code != exit.Lost {
		t.Errorf("exit code %d, %q", code, stderr)
	}
	text, err := os.ReadFile(pids)
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range strings.Fields(string(text)) {
		state, alive := processState(pid)
		for end := time.Now().Add(10 * time.Second); alive && time.Now().Before(end); state, alive = processState(pid) {
			time.Sleep(5 * time.Millisecond) // what was killed ends when it has a processor
		}
		if alive {
			t.Errorf("process %s is left: %s", pid, state)
		}
	}
}

// processState is the state of a live process, from /proc.
func processState(pid string) (state string, alive bool) {
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return "", false
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	return rest[:1], rest[0] != 'Z' && rest[0] != 'X'
}

// TestRun_Reconnects: a connection that breaks is made again, by way of any proxy, and the
// lock with it if it is the same.
func TestRun_Reconnects(t *testing.T) {
	tests := []struct {
		name  string
		again string // what the second proxy answers to LOCK
		ttl   string
		code  int
		heard string // by the second proxy, last
	}{
		{"the same lock", "*4\r\n:7\r\n$2\r\nme\r\n:29000\r\n:2\r\n", "20s", exit.OK, "UNLOCK job me FENCE 7 REQ id"},
		{"another one", "*4\r\n:8\r\n$2\r\nme\r\n:29000\r\n:1\r\n", "20s", exit.Lost, "UNLOCK job me FENCE 8 REQ id"},
		{"given back", "*4\r\n:7\r\n$2\r\nme\r\n:0\r\n:0\r\n", "20s", exit.Lost, "UNLOCK job me FENCE 7 REQ id"},
		{"held by another", "_\r\n", "20s", exit.Lost, "LOCK job 20000ms OWNER me REQ id SESSION ONLOSS PUSH INFO x"},
		{"no quorum for long", "-NOQUORUM 1 of 3\r\n", "3s", exit.Lost, "LOCK job 3000ms OWNER me REQ id SESSION ONLOSS PUSH INFO x"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var broken atomic.Bool
			first := standIn(t, func(c net.Conn, args []string) string {
				if args[0] == "LOCK" && !broken.Swap(true) {
					fmt.Fprint(c, granted(c, args))
				}
				if broken.Load() {
					c.Close()
				}
				return granted(c, args)
			})
			resumed := filepath.Join(t.TempDir(), "resumed")
			second := standIn(t, func(c net.Conn, args []string) string {
				switch args[0] {
				case "LOCK":
					return tt.again
				case "LOCKCTL":
					os.WriteFile(resumed, []byte("yes"), 0o600) // if it fails the command does not end
				}
				return granted(c, args)
			})
			code, _, stderr := execute(t, nil, "run", "--lock", "job", "--owner", "me", "--info", "x", "--ttl", tt.ttl,
				"--proxy", "unix://"+first.socket, "--proxy", "unix://"+second.socket, "--", "sh", "-c", "until [ -s "+resumed+" ]; do sleep 0.02; done")
			if heard := second.heard(); code != tt.code || len(heard) == 0 || heard[len(heard)-1] != tt.heard {
				t.Errorf("exit code %d, want %d; the second proxy heard %q; %s", code, tt.code, heard, stderr)
			}
		})
	}
}

// TestRun_ReconnectsFromALateProxy: its connection is open until another proxy has the lock bound
// to one, since the lock would be given away with it.
func TestRun_ReconnectsFromALateProxy(t *testing.T) {
	var late atomic.Bool
	first := standIn(t, func(c net.Conn, args []string) string {
		if late.Load() || args[0] == "LOCKCTL" {
			late.Store(true)
			return ""
		}
		return granted(c, args)
	})
	resumed := filepath.Join(t.TempDir(), "resumed")
	second := standIn(t, func(c net.Conn, args []string) string {
		switch {
		case args[0] == "LOCK" && first.open.Load() == 0:
			t.Error("the late connection was closed before")
		case args[0] == "LOCKCTL" && first.open.Load() == 0:
			os.WriteFile(resumed, []byte("yes"), 0o600) // if it fails the command does not end
		}
		return granted(c, args)
	})
	code, _, stderr := execute(t, nil, "run", "--lock", "job", "--owner", "me", "--ttl", "10s",
		"--proxy", "unix://"+first.socket, "--proxy", "unix://"+second.socket, "--", "sh", "-c", "until [ -s "+resumed+" ]; do sleep 0.02; done")
	if heard := second.heard(); code != exit.OK || len(heard) == 0 || heard[len(heard)-1] != "UNLOCK job me FENCE 7 REQ id" {
		t.Errorf("exit code %d; the second proxy heard %q; %s", code, heard, stderr)
	}
}

func TestReadReply(t *testing.T) {
	tests := []struct{ raw, want string }{
		{"+OK\r\n", "{43 OK []}"},
		{"$-1\r\n", "{95  []}"},
		{"*-1\r\n", "{95  []}"},
		{"_\r\n", "{95  []}"},
		{"$2\r\na\n\r\n", "{36 a\n []}"},
		{"%1\r\n+a\r\n:1\r\n", "{37  [{43 a []} {58 1 []}]}"},
		{">2\r\n+a\r\n*1\r\n_\r\n", "{62  [{43 a []} {42  [{95  []}]}]}"},
		{"$9999999\r\n", ""},
		{"*1000000000000000000000\r\n", ""},
		{"*-2\r\n", ""},
		{"hello\r\n", ""},
		{"\r\n", ""},
		{"$5\r\nab", ""},
	}
	for _, tt := range tests {
		v, err := client.ReadReply(bufio.NewReader(strings.NewReader(tt.raw)))
		if got := fmt.Sprint(v); (err != nil) != (tt.want == "") || err == nil && got != tt.want {
			t.Errorf("%q: %s, %v, want %s", tt.raw, got, err, tt.want)
		}
	}
}

func TestRun_SaysWhoHasTheLock(t *testing.T) {
	_, c, url := held(t)
	code, _, stderr := execute(t, nil, "run", "--proxy", url, "--lock", "b", "--", "true")
	if code != exit.Busy || !regexp.MustCompile(`^lockproxy: b is held by second for \d+(\.\d)?m?s \(nightly\)\n$`).MatchString(stderr) {
		t.Errorf("not waiting: %d %q", code, stderr)
	}
	if code, _, stderr = execute(t, nil, "run", "--proxy", url, "--lock", "free", "test", "-n", "x"); code != exit.OK || stderr != "" {
		t.Errorf("a free lock: %d %q", code, stderr)
	}

	var out, errs buffer
	p := program{env: func(string) (string, bool) { return "", false }, stdout: &out, stderr: &errs}
	ended := make(chan int)
	go func() {
		ended <- p.run(t.Context(), []string{"lockproxy", "run", "-v", "--proxy", url, "--lock", "b", "--wait", "5m", "--", "true"})
	}()
	for !strings.Contains(errs.String(), "lockproxy: waiting up to 5m0s: b is held by second for ") {
		time.Sleep(time.Millisecond)
	}
	if strings.Contains(errs.String(), "fence") {
		t.Errorf("too early: %s", errs.String())
	}
	c.do("UNLOCK b second", 1)
	if code := <-ended; code != exit.OK || !regexp.MustCompile(`\nlockproxy: b is held, fence \d+, after .*s\nlockproxy: b was held for .*s\n$`).MatchString(errs.String()) {
		t.Errorf("%d %q", code, errs.String())
	}
}
