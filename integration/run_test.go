package integration

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// A locked is one lockproxy run.
type locked struct {
	cmd   *exec.Cmd
	ended chan struct{}
	mu    sync.Mutex
	out   bytes.Buffer // of both, its own and its command's
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(p)
}

func (l *locked) said() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.String()
}

// runLocked starts lockproxy run, of the lock job of the proxy at addr, with further
// arguments and a shell script as its command.
func runLocked(t *testing.T, addr, script string, args ...string) *locked {
	t.Helper()
	path, err := redistest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	l := &locked{ended: make(chan struct{})}
	args = append([]string{"run", "--proxy", "redis://" + addr, "--lock", "job"}, args...)
	l.cmd = exec.Command(path, append(args, "--", "sh", "-c", script)...)
	l.cmd.Stdout, l.cmd.Stderr = l, l
	l.cmd.WaitDelay = 5 * time.Second
	l.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(l.ended)
		_ = l.cmd.Wait() // how it ended is in cmd.ProcessState
	}()
	t.Cleanup(func() {
		_ = l.cmd.Process.Kill()
		<-l.ended
	})
	return l
}

// await returns when the command has said something.
func (l *locked) await(t *testing.T, text string) {
	t.Helper()
	eventually(t, time.Minute, "the command says "+text, func() bool { return strings.Contains(l.said(), text) })
}

// code waits for the end and checks the exit code.
func (l *locked) code(t *testing.T, want int) {
	t.Helper()
	select {
	case <-l.ended:
	case <-time.After(time.Minute):
		t.Fatalf("it does not end; it said %q", l.said())
	}
	if got := l.cmd.ProcessState.ExitCode(); got != want {
		t.Fatalf("exit code %d, want %d; it said %q", got, want, l.said())
	}
}

// sleeper says ready, its fence and its process id, and then works, until TERM or INT.
const sleeper = `trap 'echo ended; exit 9' TERM; trap 'echo interrupted; exit 8' INT; trap 'echo told' USR1
echo ready $LOCK_FENCE $$; while :; do sleep 0.02; done`

// words are what follows text in what it said.
func (l *locked) words(text string) []string {
	_, rest, _ := strings.Cut(l.said(), text)
	line, _, _ := strings.Cut(rest, "\n")
	return strings.Fields(line)
}

func TestRun_OneAtATime(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 2)
	first := runLocked(t, r.addr(), sleeper)
	first.await(t, "ready")
	runLocked(t, r.proxies[1].Addr(), "echo ran").code(t, 75)
	next := runLocked(t, r.proxies[1].Addr(), "echo ran $LOCK_FENCE $LOCK_NAME; exit 3", "--wait", "1m")
	other := redistest.Open(t, r.proxies[1].Addr())
	awaitWaiters(t, other, "job", 1)
	if err := first.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	first.await(t, "told")
	if err := first.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	first.code(t, 8)
	next.code(t, 3)
	if before, after := first.words("ready"), next.words("ran"); len(after) != 2 || after[1] != "job" || before[0] >= after[0] {
		t.Errorf("first %q, then %q", before, after)
	}
	waiting := runLocked(t, r.addr(), sleeper)
	waiting.await(t, "ready")
	second := runLocked(t, r.addr(), sleeper, "--wait", "1m")
	awaitWaiters(t, redistest.Open(t, r.addr()), "job", 1)
	if err := second.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	second.code(t, 128+15)
	if err := waiting.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	waiting.code(t, 9)
	eventually(t, 9*time.Second, "nothing is left", func() bool { return r.lockKeys(t) == 0 })
}

// TestRun_Killed: when run is killed, its command is too, and the lock is free at once.
func TestRun_Killed(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 1)
	const lease = time.Minute
	l := runLocked(t, r.addr(), sleeper, "--ttl", lease.String())
	l.await(t, "ready")
	pid, err := strconv.Atoi(l.words("ready")[1])
	if err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	if err := l.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	runLocked(t, r.addr(), "true", "--wait", "1m").code(t, 0)
	if took := time.Since(killed); took > lease/2 {
		t.Errorf("the lock was free after %v", took)
	}
	eventually(t, 9*time.Second, "the command is gone", func() bool { return syscall.Kill(pid, 0) != nil })
}

// When its proxy shuts down or is killed, run waits at the next one.
func TestRun_ProxyEndsWhileWaiting(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 2)
	other := redistest.Open(t, r.proxies[1].Addr())
	for _, end := range []func(){
		func() {
			if ended, status := r.proxies[0].Terminate(time.Minute); !ended || status != nil {
				t.Errorf("SIGTERM: ended %v, status %v", ended, status)
			}
		},
		r.proxies[0].Kill,
	} {
		wantGrant(t, other.Do(t, "LOCK", "job", "60s", "OWNER", "other"))
		l := runLocked(t, r.addr(), "echo begun", "--wait", "1m", "--proxy", "redis://"+r.proxies[1].Addr())
		awaitWaiters(t, redistest.Open(t, r.addr()), "job", 1)
		end()
		awaitWaiters(t, other, "job", 1)
		other.Do(t, "UNLOCK", "job", "other")
		l.code(t, 0)
		if err := r.proxies[0].Restart(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRun_OneOwnerTwice: of two that entered as the same owner, the one that ends first leaves the lock to the other.
func TestRun_OneOwnerTwice(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 2)
	first := runLocked(t, r.addr(), sleeper, "--owner", "me")
	first.await(t, "ready")
	for _, p := range r.proxies {
		runLocked(t, p.Addr(), "true", "--owner", "me").code(t, 0)
		runLocked(t, r.addr(), "true", "--owner", "other").code(t, 75)
	}
	_ = first.cmd.Process.Signal(syscall.SIGTERM)
	first.code(t, 9)
	runLocked(t, r.addr(), "true", "--owner", "other").code(t, 0)
}

// TestRun_HangupIgnored: what is started by nohup outlives a hangup.
func TestRun_HangupIgnored(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, 1)
	signal.Ignore(syscall.SIGHUP)
	l := runLocked(t, r.addr(), sleeper)
	signal.Reset(syscall.SIGHUP)
	l.await(t, "ready")
	_ = l.cmd.Process.Signal(syscall.SIGHUP)
	_ = l.cmd.Process.Signal(syscall.SIGUSR1)
	l.await(t, "told")
	_ = l.cmd.Process.Signal(syscall.SIGTERM)
	l.code(t, 9)
}

func TestRun_NoQuorum(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 1)
	r.nodes[0].Kill()
	r.nodes[1].Kill()
	runLocked(t, r.addr(), "echo ran").code(t, 69)
}

// A lost lock ends the command.
func TestRun_LockLost(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 1)
	var l *locked
	for range 10 { // on a busy machine the proxy may seem to be gone before
		l = runLocked(t, r.addr(), sleeper, "--ttl", "5s", "--max-hold", "2s")
		if l.code(t, 70); strings.Contains(l.said(), "MAXHOLD") {
			break
		}
	}
	l.await(t, "MAXHOLD")

	l = runLocked(t, r.addr(), sleeper, "--ttl", "5s")
	l.await(t, "ready") // what was left of the first lease was given back
	for _, n := range r.nodes {
		n.Do(t, "FLUSHALL")
	}
	l.code(t, 70)
	l.await(t, "ended")
	l.await(t, "lockproxy: the lock job was lost: ")
}

func TestRun_LockForced(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 1)
	l := runLocked(t, r.addr(), sleeper)
	l.await(t, "ready")
	redistest.Open(t, r.addr()).Do(t, "LOCKCTL", "FORCE", "job")
	l.code(t, 70)
	l.await(t, "ended")
	if !strings.Contains(l.said(), "was lost: it was taken away") {
		t.Errorf("it said %q", l.said())
	}
}

// TestRun_Shared: commands that read run at once, also by way of two proxies, and one that writes when they have ended.
func TestRun_Shared(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 2)
	first := runLocked(t, r.addr(), sleeper, "--shared", "--owner", "r1")
	first.await(t, "ready")
	runLocked(t, r.proxies[1].Addr(), "echo ran", "--shared").code(t, 0)
	second := runLocked(t, r.proxies[1].Addr(), sleeper, "--shared", "--owner", "r2")
	second.await(t, "ready")
	refused := runLocked(t, r.addr(), "echo ran")
	refused.code(t, 75)
	if said := refused.said(); !regexp.MustCompile(`^lockproxy: job is read by r[12] and 1 more\n$`).MatchString(said) {
		t.Errorf("a writer is told %q", said)
	}
	writer := runLocked(t, r.addr(), sleeper, "--wait", "1m")
	awaitWaiters(t, redistest.Open(t, r.addr()), "job", 1)
	for _, l := range []*locked{first, second} {
		if strings.Contains(writer.said(), "ready") {
			t.Error("the writer runs beside readers")
		}
		l.cmd.Process.Signal(syscall.SIGTERM)
		l.code(t, 9)
	}
	writer.await(t, "ready")
	if before, after := second.words("ready")[0], writer.words("ready")[0]; before >= after {
		t.Errorf("readers had fence %s, then the writer %s", before, after)
	}
	runLocked(t, r.proxies[1].Addr(), "echo ran", "--shared").code(t, 75)
}

// TestRun_SharedForced: readers whose lock is taken away are ended.
func TestRun_SharedForced(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 2)
	first, second := runLocked(t, r.addr(), sleeper, "--shared"), runLocked(t, r.proxies[1].Addr(), sleeper, "--shared", "--ttl", "5s")
	first.await(t, "ready")
	second.await(t, "ready")
	redistest.Open(t, r.addr()).Do(t, "LOCKCTL", "FORCE", "job")
	for _, l := range []*locked{first, second} {
		l.code(t, 70)
		l.await(t, "ended")
		l.await(t, "lockproxy: the lock job was lost: ")
	}
	runLocked(t, r.addr(), "true").code(t, 0)
}

// TestRun_SharedProxyRestarts: a reader's lock is had again from a proxy that is back.
func TestRun_SharedProxyRestarts(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 2)
	l := runLocked(t, r.addr(), sleeper, "--shared", "--owner", "me")
	l.await(t, "ready")
	r.proxies[0].Kill()
	c := redistest.Open(t, r.proxies[1].Addr())
	left := func() (ms int) {
		_, readBy, _ := strings.Cut(c.Do(t, "LOCKCTL", "INFO", "job").Raw, "read-by")
		_, rest, _ := strings.Cut(readBy, "remaining-ms\r\n:")
		_, _ = fmt.Sscan(rest, &ms)
		return ms
	}
	before := left()
	if err := r.proxies[0].Restart(); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "the reader has come again", func() bool { return left() > before })
	runLocked(t, r.proxies[1].Addr(), "echo ran").code(t, 75)
	l.cmd.Process.Signal(syscall.SIGTERM)
	l.code(t, 9)
	runLocked(t, r.proxies[1].Addr(), "echo ran").code(t, 0)
}

// TestRun_ProxyRestarts: a proxy that is back within the lease costs nothing; one that
// is not ends the command before the lease ends.
func TestRun_ProxyRestarts(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 2)
	l := runLocked(t, r.addr(), sleeper, "--ttl", "30s")
	l.await(t, "ready")
	for _, down := range []func(){
		r.proxies[0].Kill,
		func() { r.proxies[0].Terminate(time.Minute) },
	} {
		down()
		if err := r.proxies[0].Restart(); err != nil {
			t.Fatal(err)
		}
		r.awaitSession(t)
		runLocked(t, r.proxies[1].Addr(), "echo ran").code(t, 75)
	}
	l.cmd.Process.Signal(syscall.SIGTERM)
	l.code(t, 9)
	runLocked(t, r.proxies[1].Addr(), "echo ran", "--wait", "1m").code(t, 0)

	l = runLocked(t, r.addr(), "trap 'echo ended $(date +%s%N); exit 9' TERM; echo ready; while :; do sleep 0.02; done", "--ttl", "12s")
	l.await(t, "ready")
	r.proxies[0].Kill()
	next := runLocked(t, r.proxies[1].Addr(), "echo began $(date +%s%N)", "--wait", "1m")
	l.code(t, 70)
	next.code(t, 0)
	if ended, began := l.words("ended"), next.words("began"); len(ended) != 1 || len(began) != 1 || ended[0] >= began[0] {
		t.Errorf("the next had the lock before the command ended: %q, %q", next.said(), l.said())
	}
}

// awaitSession returns when the first proxy renews the lock job.
func (r *rig) awaitSession(t *testing.T) {
	t.Helper()
	c := redistest.Open3(t, r.addr())
	eventually(t, time.Minute, "the lock is bound to a connection again", func() bool {
		v := c.Do(t, "LOCKCTL", "INFO", "job")
		for i := 0; i+1 < len(v.Elems); i += 2 {
			if v.Elems[i].Text == "session" {
				return v.Elems[i+1].Text == "yes"
			}
		}
		return false
	})
}

// TestRun_UpstreamStopped: a lock does not depend on it.
func TestRun_UpstreamStopped(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 1)
	l := runLocked(t, r.addr(), sleeper, "--ttl", "10s")
	l.await(t, "ready")
	r.data.Pause()
	defer r.data.Resume()
	// With the third renewal the upstream is silent for longer than a proxy may be.
	for renewals, last := 0, r.leaseLeft(t); renewals < 3 && !l.hasEnded(); time.Sleep(10 * time.Millisecond) {
		left := r.leaseLeft(t)
		if left > last {
			renewals++
		}
		last = left
	}
	if err := l.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	l.code(t, 9)
	if strings.Contains(l.said(), "lost") {
		t.Errorf("it said %q", l.said())
	}
	eventually(t, 9*time.Second, "no record is left", func() bool { return r.lockKeys(t) == 0 })
}

// leaseLeft is what the first node has of the lock job, in ms.
func (r *rig) leaseLeft(t *testing.T) int64 {
	t.Helper()
	return r.nodes[0].Do(t, "PTTL", "lockproxy:lock:0:job").Int()
}

func (l *locked) hasEnded() bool {
	select {
	case <-l.ended:
		return true
	default:
		return false
	}
}

// TestRunOverTLS: the proxy's certificate is judged, and a password given.
func TestRunOverTLS(t *testing.T) {
	t.Parallel()
	ca := redistest.NewAuthority(t)
	cert, key := ca.Issue(t, "proxy")
	data := redistest.Start(t, "--requirepass", "secret")
	p := redistest.StartProxy(t, data, []*redistest.Server{redistest.Start(t)}, "--tls-cert", cert, "--tls-key", key)
	url := filepath.Join(t.TempDir(), "url")
	for password, want := range map[string]int{"secret": 4, "wrong": 77} {
		if err := os.WriteFile(url, []byte("rediss://:"+password+"@"+p.Addr()), 0o600); err != nil {
			t.Fatal(err)
		}
		path, _ := redistest.Binary()
		out, err := exec.Command(path, "run", "--proxy-file", url, "--tls-ca", ca.File, "--lock", "job", "sh", "-c", "exit 4").CombinedOutput()
		if e, ok := err.(*exec.ExitError); !ok || e.ExitCode() != want || bytes.Contains(out, []byte(password)) {
			t.Errorf("%v: %s, want %d", err, out, want)
		}
	}
}
