package redistest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// RaceVariable is the environment variable that, when not empty, makes the tests
// run a lockproxy built with the race detector.
const RaceVariable = "LOCKPROXY_TEST_RACE"

// BinaryVariable names, when not empty, a lockproxy to test instead of building one.
const BinaryVariable = "LOCKPROXY_TEST_BINARY"

var binary struct {
	once sync.Once
	dir  string
	path string
	err  error
}

// Binary is the path of the lockproxy under test. It is built from this tree at
// the first call; RemoveBinary undoes that.
func Binary() (string, error) {
	binary.once.Do(func() {
		if binary.path = os.Getenv(BinaryVariable); binary.path != "" {
			return
		}
		if binary.dir, binary.err = os.MkdirTemp("", "redistest-bin-"); binary.err != nil {
			return
		}
		binary.path = filepath.Join(binary.dir, "lockproxy")
		binary.err = build(binary.path)
	})
	return binary.path, binary.err
}

// build runs in the tree of the module, also for the tests of another module that replaces it by a path.
func build(path string) error {
	const module = "github.com/lockproxy/lockproxy"
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return fmt.Errorf("go list -m %s: %w", module, err)
	}
	args := []string{"build", "-o", path}
	if os.Getenv(RaceVariable) != "" {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, module+"/cmd/lockproxy")...)
	cmd.Dir = strings.TrimSpace(string(dir))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

// RemoveBinary removes what Binary built, if anything. TestMain calls it last.
func RemoveBinary() {
	if binary.dir != "" {
		_ = os.RemoveAll(binary.dir)
	}
}

// An Upstream is a Server, or several that belong together, for a proxy to serve.
type Upstream interface{ URL() string }

// A Proxy is one running lockproxy.
type Proxy struct{ process }

// LaunchProxy starts `lockproxy serve` in front of the upstream with these lock
// nodes (none: the upstream is the one) and further arguments. The caller ends it
// with Kill or Terminate.
func LaunchProxy(upstream Upstream, nodes []*Server, args ...string) (*Proxy, error) {
	path, err := Binary()
	if err != nil {
		return nil, err
	}
	return LaunchBinary(path, upstream, nodes, args...)
}

// LaunchBinary is LaunchProxy with the lockproxy at path instead of the one under test.
func LaunchBinary(path string, upstream Upstream, nodes []*Server, args ...string) (p *Proxy, err error) {
	for range 5 { // a port may be taken between its choice and its use
		if p, err = launchProxy(path, upstream, nodes, args); err == nil {
			return p, nil
		}
	}
	return nil, err
}

func launchProxy(path string, upstream Upstream, nodes []*Server, args []string) (*Proxy, error) {
	addr, err := FreeAddr()
	if err != nil {
		return nil, err
	}
	all := []string{"serve", "--listen", addr, "--upstream", upstream.URL()}
	for _, n := range nodes {
		all = append(all, "--lock-node", n.URL())
	}
	p := &Proxy{process{path: path, args: append(all, args...), addr: addr}}
	if err := p.Restart(); err != nil {
		return nil, err
	}
	return p, nil
}

// Restart starts the proxy again on the same address and returns when it accepts there, and
// at its --admin address if that is known.
func (p *Proxy) Restart() error {
	if p.pass != nil { // others than the proxy keep the port open
		return p.start(p.answers)
	}
	return p.start(func() error {
		if err := accepts(p.addr); err != nil {
			return err
		}
		if i := slices.Index(p.args, "--admin") + 1; i > 0 && i < len(p.args) && !strings.HasSuffix(p.args[i], ":0") {
			return accepts(p.args[i])
		}
		return nil
	})
}

func accepts(addr string) error {
	c, err := net.DialTimeout(network(addr), addr, time.Second)
	if err != nil {
		return err
	}
	return c.Close()
}

func (p *Proxy) answers() error {
	c, err := Dial(p.addr)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Try("PING")
	return err
}

// StartProxy is LaunchProxy for a test: the proxy ends with it, its log is shown
// if the test fails, and a proxy that crashed or raced fails the test. Lock nodes may be
// as slow as a busy machine makes them, unless args say otherwise.
func StartProxy(tb testing.TB, upstream Upstream, nodes []*Server, args ...string) *Proxy {
	tb.Helper()
	skipQuick(tb)
	path, err := Binary()
	if err != nil {
		tb.Fatal(err)
	}
	return StartBinary(tb, path, upstream, nodes, args...)
}

// StartBinary is StartProxy with the lockproxy at path instead of the one under test.
func StartBinary(tb testing.TB, path string, upstream Upstream, nodes []*Server, args ...string) *Proxy {
	tb.Helper()
	skipQuick(tb)
	p, err := LaunchBinary(path, upstream, nodes, append([]string{"--node-timeout", "1s"}, args...)...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { p.finish(tb) })
	return p
}

// StartServe starts `lockproxy serve` at an address, host:port or the path of a
// socket, with these arguments and no others, as StartProxy does.
func StartServe(tb testing.TB, listen string, args ...string) *Proxy {
	tb.Helper()
	return startAlone(tb, "serve", listen, args)
}

// StartDev starts `lockproxy dev` at a free port with these arguments, as StartProxy does.
func StartDev(tb testing.TB, args ...string) *Proxy {
	tb.Helper()
	addr, err := FreeAddr()
	if err != nil {
		tb.Fatal(err)
	}
	return startAlone(tb, "dev", addr, append([]string{"--node-timeout", "1s"}, args...))
}

// startAlone starts a command of lockproxy that listens, without servers of the test's.
func startAlone(tb testing.TB, command, listen string, args []string) *Proxy {
	tb.Helper()
	skipQuick(tb)
	path, err := Binary()
	if err != nil {
		tb.Fatal(err)
	}
	p := &Proxy{process{path: path, args: append([]string{command, "--listen", listen}, args...), addr: listen}}
	if err := p.Restart(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { p.finish(tb) })
	return p
}

// StartActivated starts `lockproxy serve` with a socket that it is to listen on, as a
// service manager passes it, and these arguments. The socket, which the caller closes, stays open when the proxy
// ends, and Restart passes it again.
func StartActivated(tb testing.TB, socket *os.File, addr string, args ...string) *Proxy {
	tb.Helper()
	skipQuick(tb)
	path, err := Binary()
	if err != nil {
		tb.Fatal(err)
	}
	const shell = `LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" "$@"` // which knows the process's id beforehand
	p := &Proxy{process{path: "/bin/sh", args: append([]string{"-c", shell, path, "serve"}, args...), addr: addr, pass: []*os.File{socket}}}
	if err := p.Restart(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { p.finish(tb) })
	return p
}

func (p *Proxy) finish(tb testing.TB) {
	tb.Helper()
	if ended, status := p.Terminate(3 * time.Second); ended && status != nil && !strings.Contains(status.Error(), "signal: killed") {
		tb.Errorf("lockproxy ended with %v", status)
	}
	p.Kill()
	log := p.Log()
	if strings.Contains(log, "DATA RACE") || strings.Contains(log, "panic:") {
		tb.Error("lockproxy raced or panicked")
	}
	if tb.Failed() {
		tb.Logf("lockproxy at %s said:\n%s", p.addr, log)
	}
}
