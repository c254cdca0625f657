package clients

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// adoptedSwitch, when not empty, runs the tests of lock libraries on adopted keys.
const adoptedSwitch = "LOCKPROXY_ADOPT_CLIENTS"

// updates are those of one counter, all under one lock, half of them by each of two processes.
const updates = 666

// updateTimeout bounds one run of the two processes.
const updateTimeout = 4 * time.Minute

// A lockClient is an update program with one way to lock.
type lockClient struct {
	name, adopt string
	installed   func() (string, error)
	program     []string
}

// lockClients are the libraries, and code without one, whose locks exclude each other.
var lockClients = []lockClient{
	{"redis-py 8.1.0", "lock:*", adoptedPython, []string{venvPython, "update.py", "redis-py"}},
	{"pottery 3.0.1", "redlock:*", adoptedPython, []string{venvPython, "update.py", "pottery"}},
	{"python-redis-lock 4.0.1", "lock:*", adoptedPython, []string{venvPython, "update.py", "python-redis-lock"}},
	{"redis-py 8.1.0, WATCH, GET, MULTI, DEL, EXEC", "lock:*", adoptedPython, []string{venvPython, "update.py", "watch"}},
	{"redis-py 8.1.0, SETNX, GET, GETSET of a deadline", "lock:* timestamps=float", adoptedPython, []string{venvPython, "update.py", "deadlines"}},
	{"redsync 4.18.1", "lock:*", adoptedGo, []string{"./update", "redsync"}},
	{"redislock 0.9.4", "lock:*", adoptedGo, []string{"./update", "redislock"}},
	{"go-zero 1.10.3 RedisLock", "lock:*", adoptedGo, []string{"./update", "go-zero"}},
	{"rueidislock 1.0.79, without its cache", "lock:*", adoptedGo, []string{"./update", "rueidislock"}},
	{"rslock 0.7.0", "lock:*", adoptedRust, []string{filepath.Join("target", "debug", "update")}},
	{"redlock 4.2.0", "lock:*", adoptedNode, []string{"node", "update.mjs", "redlock4"}},
	{"redlock 5.0.0-beta.2", "lock:*", adoptedNode, []string{"node", "update.mjs", "redlock5"}},
	{"redis-semaphore 5.8.0 Mutex", "mutex:*", adoptedNode, []string{"node", "update.mjs", "semaphore"}},
	{"redis-semaphore 5.8.0 Semaphore of one permit", "semaphore:*", adoptedNode, []string{"node", "update.mjs", "permit"}},
	{"ioredis, SET NX and DEL of a constant", "lock:*", adoptedNode, []string{"node", "update.mjs", "constant"}},
	{"ioredis, SETNX, EXPIRE and DEL", "lock:* no-expiry=lease:10s", adoptedNode, []string{"node", "update.mjs", "setnx"}},
	{"Jedis 5.2.0, SET NX PX and a script", "lock:*", adoptedJava, javaUpdate("jedis")},
	{"Lettuce 7.2.0, SET NX PX and a script", "lock:*", adoptedJava, javaUpdate("lettuce")},
	{"Spring Integration 7.1.0 RedisLockRegistry, spinning", "lock:*", adoptedJava, javaUpdate("spring-spin")},
	{"Spring Integration 7.1.0 RedisLockRegistry, pub-sub", "lock:*", adoptedJava, javaUpdate("spring-pubsub")},
	{"ShedLock 7.10.1, provider for Spring", "job-lock:*", adoptedJava, javaUpdate("shedlock")},
	{"Redisson 4.7.0 RLock, watchdog", "lock:*", adoptedRedisson, redissonProgram("Update", "watchdog")},
	{"Redisson 4.7.0 RLock, lease time", "lock:*", adoptedRedisson, redissonProgram("Update", "lease")},
	{"Redisson 4.7.0 RLock, tryLock with wait", "lock:*", adoptedRedisson, redissonProgram("Update", "try")},
	{"Redisson 4.7.0 RSpinLock", "lock:*", adoptedRedisson, redissonProgram("Update", "spin")},
	{"Redisson 4.7.0 MultiLock", "lock:*", adoptedRedisson, redissonProgram("Update", "multi")},
	{"Redisson 4.7.0 RFencedLock, each token more than the last", "lock:* fence-key=redisson_lock_token:", adoptedRedisson, redissonProgram("Update", "fenced")},
	{"Redisson 4.7.0 RReadWriteLock, written by all", "lock:*", adoptedRedisson, redissonProgram("Update", "write")},
	{"Redisson 4.7.0 RReadWriteLock, read and then written by all", "lock:*", adoptedRedisson, redissonProgram("Update", "read-write")},
	{"Redisson 3.23.5 RReadWriteLock, read and then written by all", "lock:*", oldRedisson, redissonProgram("Update", "read-write")},
	{"Redisson 3.23.5 RLock, watchdog", "lock:*", oldRedisson, redissonProgram("Update", "watchdog")},
	{"Redisson 3.23.5 RLock, lease time", "lock:*", oldRedisson, redissonProgram("Update", "lease")},
	{"Redisson 3.23.5 RLock, tryLock with wait", "lock:*", oldRedisson, redissonProgram("Update", "try")},
	{"Redisson 3.23.5 RSpinLock", "lock:*", oldRedisson, redissonProgram("Update", "spin")},
	{"Symfony Lock 5.4.53 RedisStore", "lock:*", adoptedPHP, []string{"php", "update.php"}},
}

func javaUpdate(kind string) []string {
	return []string{"java", "-cp", "classes:lib/*", "Update", kind}
}

var venvPython = filepath.Join("venv", "bin", "python")

var (
	adoptedPython = sync.OnceValues(func() (string, error) {
		return pythonEnvironment("adopt/python", "update.py", "masters.py", "standin.py")
	})
	adoptedNode = sync.OnceValues(func() (string, error) { return nodeModules("adopt/node", "update.mjs") })
	adoptedJava = sync.OnceValues(func() (string, error) { return javaClasses("adopt/java", "Update.java") })
	adoptedPHP  = sync.OnceValues(func() (string, error) { return folder("adopt/php", "update.php", "promises.php") })
	adoptedGo   = sync.OnceValues(installAdoptedGo)
	adoptedRust = sync.OnceValues(installAdoptedRust)
)

func installAdoptedGo() (string, error) {
	dir, err := folder("adopt/go", "go.mod", "go.sum", "update.go")
	if err != nil {
		return "", err
	}
	return dir, install(dir, "go", "build", "-o", "update", ".")
}

func installAdoptedRust() (string, error) {
	dir, err := folder("adopt/rust", "Cargo.toml", "Cargo.lock", "update.rs")
	if err != nil {
		return "", err
	}
	return dir, install(dir, "cargo", "build", "--quiet", "--locked")
}

// TestAdopted_Updates has each client count under its lock through two proxies, while two of five lock nodes are
// killed.
func TestAdopted_Updates(t *testing.T) {
	if os.Getenv(adoptedSwitch) == "" {
		t.Skipf("fetches lock libraries; set %s=1", adoptedSwitch)
	}
	for _, c := range lockClients {
		t.Run(c.name, func(t *testing.T) {
			plain := redistest.Start(t)
			count, alone := c.run(t, plain, [2]string{plain.Addr(), plain.Addr()}, nil)
			if count != updates {
				t.Fatalf("one Redis: %d of %d updates: the program is wrong", count, updates)
			}

			s := newAdoptedSite(t, c.adopt)
			count, took := c.run(t, s.data, s.addrs(), func() {
				s.nodes[0].Kill()
				s.nodes[1].Kill()
			})
			if count != updates {
				t.Errorf("%d of %d updates", count, updates)
			}
			t.Logf("one Redis %.1fs, two proxies %.1fs", alone.Seconds(), took.Seconds())

			s = newAdoptedSite(t, c.adopt+" guard=no")
			if count, _ = c.run(t, s.data, [2]string{s.proxies[0].Addr(), s.data.Addr()}, nil); count == updates {
				t.Errorf("%d updates although a process went past the proxies: the test cannot fail", count)
			}
			t.Logf("past the proxies: %d updates are lost", updates-count)
		})
	}
}

// An adoptedSite is two proxies on five lock nodes that adopt the same keys.
type adoptedSite struct {
	data    *redistest.Server
	nodes   []*redistest.Server
	proxies [2]*redistest.Proxy
}

// databases are enough for every suite.
var databases = []string{"--databases", "64"}

func newAdoptedSite(t *testing.T, adopt string, args ...string) *adoptedSite {
	t.Helper()
	s := &adoptedSite{data: redistest.Start(t, databases...), nodes: redistest.StartNodes(t, 5)}
	for i := range s.proxies {
		s.proxies[i] = redistest.StartProxy(t, s.data, s.nodes, append([]string{"--adopt", adopt, "--max-ttl", "2h", "--fence-retention", "4h", "--min-ttl", "1ms", "--bootstrap", "auto"}, args...)...)
	}
	return s
}

func (s *adoptedSite) addrs() [2]string { return [2]string{s.proxies[0].Addr(), s.proxies[1].Addr()} }

// run has two processes of a client count at these addresses, and calls atThird, if not nil, when a third of the
// updates are done. It returns what they have counted to, and in which time.
func (c lockClient) run(t *testing.T, data *redistest.Server, addrs [2]string, atThird func()) (count int64, took time.Duration) {
	t.Helper()
	dir, err := c.installed()
	if err != nil {
		t.Fatal(err)
	}
	data.Do(t, "SET", "counter", "0")
	var processes [2]*updater
	for i, addr := range addrs {
		processes[i] = startUpdater(t, dir, c.program, addr, updates/2)
	}
	for _, p := range processes {
		if line := p.line(); line != "ready" {
			t.Fatalf("%s %s", line, p.rest())
		}
	}
	start := time.Now()
	for _, p := range processes {
		fmt.Fprintln(p.in)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for _, p := range processes {
			p.said = p.rest()
		}
	}()
	for running := true; running; {
		select {
		case <-ended:
			running = false
		case <-time.After(20 * time.Millisecond):
			if atThird != nil && data.Do(t, "GET", "counter").Int() >= updates/3 {
				atThird()
				atThird = nil
			}
		}
	}
	took = time.Since(start)
	if atThird != nil {
		t.Error("the processes ended before a third was done")
	}
	for i, p := range processes {
		if want := fmt.Sprintln("done", updates/2); p.said != want {
			t.Errorf("process %d: %.3000s", i, p.said)
		}
	}
	return data.Do(t, "GET", "counter").Int(), took
}

// An updater is a process that counts.
type updater struct {
	in   io.Writer
	out  *bufio.Reader
	kill func()
	said string // behind "ready"
}

func startUpdater(t *testing.T, dir string, program []string, addr string, n int, env ...string) *updater {
	t.Helper()
	cmd, cancel := bounded(updateTimeout, program[0], program[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), append(env, "REDIS="+addr, fmt.Sprint("UPDATES=", n))...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%.5000s", stderr.String())
		}
	})
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return &updater{in: in, out: bufio.NewReader(out), kill: cancel}
}

func (u *updater) line() string {
	line, _ := u.out.ReadString('\n')
	return strings.TrimSpace(line)
}

// rest is all that the process still says.
func (u *updater) rest() string {
	b, _ := io.ReadAll(u.out)
	return string(b)
}
