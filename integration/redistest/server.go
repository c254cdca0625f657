package redistest

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"
)

// binaryVariable names the server that is started, a file or a name in PATH; unset, it
// is redis-server. A Valkey or another version takes its place in every test.
const binaryVariable = "LOCKPROXY_REDIS"

// QuickVariable is the environment variable that, when not empty, skips tests that start
// a server or a proxy.
const QuickVariable = "LOCKPROXY_TEST_QUICK"

// skipQuick skips a test that is about to start a process.
func skipQuick(tb testing.TB) {
	tb.Helper()
	if os.Getenv(QuickVariable) != "" {
		tb.Skip("starts servers")
	}
}

// serverPath is where the server that is started is.
func serverPath() (string, error) {
	return exec.LookPath(cmp.Or(os.Getenv(binaryVariable), "redis-server"))
}

// isOld reports whether the server is a Redis before 7.0, which has fewer settings.
var isOld = sync.OnceValue(func() bool {
	path, err := serverPath()
	if err != nil {
		return false // it cannot be started either
	}
	text, err := exec.Command(path, "--version").Output()
	return err == nil && regexp.MustCompile(`^Redis server v=[1-6]\.`).Match(text)
})

// A Server is one real redis-server without persistence in a directory of its
// own, unless its arguments say otherwise.
type Server struct {
	process
	Dir string
}

// Launch starts a redis-server with further arguments in the form of its command
// line ("--maxmemory", "1mb"). The caller ends it with Close.
func Launch(args ...string) (*Server, error) {
	return launch(func() (*Server, error) { return prepare(args) })
}

func launch(prepare func() (*Server, error)) (s *Server, err error) {
	for range 5 { // a port may be taken between its choice and its use
		if s, err = prepare(); err != nil {
			continue
		}
		if err = s.Restart(); err == nil {
			return s, nil
		}
		s.Close()
	}
	return nil, err
}

// prepare chooses a port and a directory for a server without starting it.
func prepare(args []string) (*Server, error) {
	find := FreeAddr
	if slices.Contains(args, "--cluster-enabled") {
		find = freeBusAddr
	}
	addr, err := find()
	if err != nil {
		return nil, err
	}
	return prepareAt(addr, args)
}

func prepareAt(addr string, args []string) (*Server, error) {
	s, err := bare(addr)
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(addr)
	base := []string{"--port", port, "--bind", "127.0.0.1", "--dir", s.Dir, "--save", "", "--appendonly", "no"}
	if !isOld() {
		base = append(base, "--enable-debug-command", "yes", "--enable-protected-configs", "yes")
	}
	s.args = append(base, args...)
	return s, nil
}

// bare makes a server with a directory and without arguments.
func bare(addr string) (*Server, error) {
	path, err := serverPath()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "redistest-")
	if err != nil {
		return nil, err
	}
	return &Server{Dir: dir, process: process{path: path, dir: dir, addr: addr}}, nil
}

// Restart starts the server again, on the same port and in the same directory;
// extra arguments hold for this run only. It returns when the server answers,
// be it with an error such as LOADING.
func (s *Server) Restart(extra ...string) error {
	base := s.args
	defer func() { s.args = base }()
	s.args = append(base[:len(base):len(base)], extra...)
	return s.start(s.answers)
}

// answers returns an error until this process answers, and not another at the port.
func (s *Server) answers() error {
	c, err := Dial(s.addr)
	if err != nil {
		return err
	}
	defer c.Close()
	v, err := c.Try("INFO", "server")
	if err != nil {
		return err
	}
	if strings.HasPrefix(v.Text, "# Server") && !strings.Contains(v.Text, "process_id:"+strconv.Itoa(s.PID())+"\r") {
		return fmt.Errorf("%s is served by another process", s.addr)
	}
	return nil
}

// Close ends the server and removes its directory.
func (s *Server) Close() {
	s.Kill()
	_ = os.RemoveAll(s.Dir)
}

// Start is Launch for a test: the server ends with it.
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	skipQuick(tb)
	s, err := Launch(args...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Close)
	return s
}

// StartWith is Start with variables on top of the environment ("NAME=value").
func StartWith(tb testing.TB, env []string, args ...string) *Server {
	tb.Helper()
	skipQuick(tb)
	s, err := launch(func() (*Server, error) {
		s, err := prepare(args)
		if s != nil {
			s.env = env
		}
		return s, err
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Close)
	return s
}

// Reserve makes a server without starting it; Restart does that.
func Reserve(tb testing.TB, args ...string) *Server {
	tb.Helper()
	skipQuick(tb)
	s, err := prepare(args)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Close)
	return s
}

// LaunchNodes starts n servers at once. After an error none is left.
func LaunchNodes(n int, args ...string) ([]*Server, error) {
	return launchAll(n, func() (*Server, error) { return prepare(args) })
}

func launchAll(n int, prepare func() (*Server, error)) ([]*Server, error) {
	nodes := make([]*Server, n)
	g, _ := errgroup.WithContext(context.Background())
	for i := range nodes {
		g.Go(func() (err error) {
			nodes[i], err = launch(prepare)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		for _, s := range nodes {
			if s != nil {
				s.Close()
			}
		}
		return nil, err
	}
	return nodes, nil
}

// StartNodes is LaunchNodes for a test: the servers end with it.
func StartNodes(tb testing.TB, n int, args ...string) []*Server {
	tb.Helper()
	return startAll(tb, n, func() (*Server, error) { return prepare(args) })
}

func startAll(tb testing.TB, n int, prepare func() (*Server, error)) []*Server {
	tb.Helper()
	skipQuick(tb)
	nodes, err := launchAll(n, prepare)
	if err != nil {
		tb.Fatal(err)
	}
	for _, s := range nodes {
		tb.Cleanup(s.Close)
	}
	return nodes
}

// Do runs one command on a connection of its own, past the proxy, and fails the test
// if there is no reply or an error.
func (s *Server) Do(tb testing.TB, args ...string) Value {
	tb.Helper()
	c, err := Dial(s.addr)
	if err != nil {
		tb.Fatal(err)
	}
	defer c.Close()
	v, err := c.Try(args...)
	if err != nil {
		tb.Fatal(err)
	}
	if v.IsError() {
		tb.Fatalf("%v on %s: %v", args, s.addr, v)
	}
	return v
}
