package clients

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// switchVariable, when not empty, runs the tests.
const switchVariable = "LOCKPROXY_CLIENTS"

// checks are what every client must be able to do through the proxy.
var checks = []string{"strings", "pipeline", "transaction", "blocking", "pubsub", "script", "scan", "select", "auth", "large", "locks", "reconnect"}

// protocols are the versions that every client must speak.
var protocols = []string{"resp2", "resp3"}

// programTimeout bounds a program, on a machine that others keep busy.
const programTimeout = 10 * time.Minute

func TestMain(m *testing.M) {
	redistest.Main(m)
}

// A site is a proxy with its upstream, and what clients can be held to there.
type site struct {
	*redistest.Proxy
	masters []*redistest.Server
	checks  []string
	single  bool // the upstream is one server: it has databases, and replicas may be fed
}

// clients are the tests of every site.
var clients = []struct {
	name string
	test func(*testing.T, *site)
}{
	{"go-redis", goRedis},
	{"redis-py", program(pythonPrograms, filepath.Join("venv", "bin", "python"), "smoke.py")},
	{"ioredis", program(nodePrograms, "node", "ioredis.mjs")},
	{"node-redis", program(nodePrograms, "node", "node-redis.mjs")},
	{"Jedis", program(javaPrograms, "java", "-cp", "classes:lib/*", "JedisSmoke")},
	{"Lettuce", program(javaPrograms, "java", "-cp", "classes:lib/*", "LettuceSmoke")},
	{"redis-cli", redisCLI},
	{"redis-cli at a terminal", redisCLITerminal},
	{"redis-benchmark", redisBenchmark},
}

func TestClients(t *testing.T) {
	if os.Getenv(switchVariable) == "" {
		t.Skipf("fetches client libraries; set %s=1", switchVariable)
	}
	policy := []string{"--maxmemory-policy", "allkeys-lfu"} // redis-cli --hotkeys wants it
	t.Run("standalone", func(t *testing.T) {
		data := redistest.Start(t, policy...)
		newSite(t, data, data).visit(t)
	})
	t.Run("cluster", func(t *testing.T) {
		c := redistest.StartCluster(t, 3, 0, policy...)
		newSite(t, c, c.Nodes...).visit(t)
	})
}

// visit runs every client's test, each with an empty upstream.
func (s *site) visit(t *testing.T) {
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			for _, m := range s.masters {
				m.Do(t, "FLUSHALL")
			}
			c.test(t, s)
		})
	}
}

// newSite starts a proxy with an upstream of these masters, which get a user named
// app, and three lock nodes.
func newSite(t *testing.T, upstream redistest.Upstream, masters ...*redistest.Server) *site {
	t.Helper()
	for _, m := range masters {
		m.Do(t, "ACL", "SETUSER", "app", "on", ">pw", "~app:*", "&*", "+@all")
	}
	s := &site{masters: masters, checks: checks, single: len(masters) == 1}
	if !s.single {
		s.checks = slices.DeleteFunc(slices.Clone(checks), func(c string) bool { return c == "select" })
	}
	s.Proxy = redistest.StartProxy(t, upstream, redistest.StartNodes(t, 3), "--drain-timeout", "1s")
	return s
}

// blocked is how many clients wait at the upstream in a blocking command.
func (s *site) blocked(t *testing.T) (n int) {
	t.Helper()
	for _, m := range s.masters {
		_, after, _ := strings.Cut(m.Do(t, "INFO", "clients").Text, "\nblocked_clients:")
		count, _, _ := strings.Cut(after, "\r")
		i, err := strconv.Atoi(count)
		if err != nil {
			t.Fatal(err)
		}
		n += i
	}
	return n
}

// smoke runs a program and holds it to the site's checks in each protocol version.
func smoke(t *testing.T, s *site, dir string, args ...string) {
	t.Helper()
	cmd, cancel := bounded(programTimeout, args[0], args[1:]...)
	defer cancel()
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PROXY="+s.Addr(), "PROTOCOLS="+strings.Join(protocols, " "), "CHECKS="+strings.Join(s.checks, " "))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := attend(t, s.Proxy, stdout, stdin)
	if err := cmd.Wait(); err != nil {
		t.Errorf("%s: %v\n%s", cmd, err, stderr.String())
	}
	for _, protocol := range protocols {
		for _, check := range s.checks {
			if !said["ok "+protocol+" "+check] {
				t.Errorf("%s in %s is not ok", check, protocol)
			}
		}
	}
	if t.Failed() {
		t.Logf("%s", stderr.String())
	}
}

// attend collects what a program says and restarts the proxy when it asks.
func attend(t *testing.T, p *redistest.Proxy, out io.Reader, in io.Writer) map[string]bool {
	t.Helper()
	said := map[string]bool{}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		line := lines.Text()
		said[line] = true
		switch {
		case line == "restart":
			p.Terminate(5 * time.Second)
			if err := p.Restart(); err != nil {
				t.Error(err)
			}
			fmt.Fprintln(in)
		case !strings.HasPrefix(line, "ok "):
			t.Error(line)
		}
	}
	return said
}

// program is the test of a smoke program that is installed in a folder.
func program(installed func() (string, error), args ...string) func(*testing.T, *site) {
	return func(t *testing.T, s *site) {
		dir, err := installed()
		if err != nil {
			t.Fatal(err)
		}
		smoke(t, s, dir, args...)
	}
}
