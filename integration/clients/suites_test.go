package clients

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// suiteTimeout bounds one run of a library's tests.
const suiteTimeout = 12 * time.Minute

// suiteTries are how often a library's tests are run if one fails that should not: theirs depend on the time.
const suiteTries = 3

// A suite is a library's own tests, as published.
type suite struct {
	name, adopt string
	// run runs the tests against a server and reports of each whether it passed.
	run func(t *testing.T, addr string) map[string]bool
	// tests are how many there are.
	tests int
	args  []string // of the proxies
}

var suites = []suite{
	{name: "redis-py 8.1.0", adopt: "foo as=full flush=release", run: runRedisPy, tests: 92},
	{name: "pottery 3.0.1", adopt: "redlock:*", run: runPottery, tests: 68},
	{name: "python-redis-lock 4.0.1", adopt: "lock:* flush=release", run: runPythonRedisLock, tests: 159},
	{name: "redislock 0.9.4", adopt: "__bsm_redislock_unit_test__ as=full", run: runRedislock, tests: 17},
	{name: "redsync 4.18.1", adopt: "*test-* as=full", run: runRedsync, tests: 15},
	{name: "redlock 4.2.0", adopt: "Redlock:test:resource", run: runRedlock, tests: 224},
	{name: "ShedLock 6.6.1", adopt: "job-lock:* as=full", run: runShedLock, tests: 36, args: []string{"--min-ttl", "20ms"}},
}

// TestAdopted_Suites runs the libraries' own tests at a Redis, where all pass, and at a proxy.
func TestAdopted_Suites(t *testing.T) {
	if os.Getenv(adoptedSwitch) == "" {
		t.Skipf("fetches lock libraries; set %s=1", adoptedSwitch)
	}
	for _, s := range suites {
		t.Run(s.name, func(t *testing.T) {
			plain := s.attempt(t, redistest.Start(t, databases...).Addr())
			for _, name := range plain.failed() {
				t.Errorf("%s fails at one Redis as well", name)
			}
			if len(plain) != s.tests {
				t.Errorf("%d tests, want %d", len(plain), s.tests)
			}
			adopted := s.attempt(t, newAdoptedSite(t, s.adopt, s.args...).proxies[0].Addr())
			failed := adopted.failed()
			for _, name := range failed {
				t.Errorf("%s fails", name)
			}
			t.Logf("%d of %d tests pass on adopted keys", len(adopted)-len(failed), len(adopted))
		})
	}
}

// An outcome says of each test whether it passed.
type outcome map[string]bool

func (o outcome) failed() []string {
	failed := slices.DeleteFunc(slices.Collect(maps.Keys(o)), func(name string) bool { return o[name] })
	slices.Sort(failed)
	return failed
}

// attempt runs the tests, and again while some fail. A test passes if it passed once.
func (s suite) attempt(t *testing.T, addr string) outcome {
	t.Helper()
	all := outcome{}
	for range suiteTries {
		for name, passed := range s.run(t, addr) {
			all[name] = all[name] || passed
		}
		if len(all.failed()) == 0 {
			break
		}
	}
	return all
}

// output runs the tests of a suite, of which some may fail, and returns what the command printed.
func output(t *testing.T, dir string, env []string, name string, args ...string) []byte {
	t.Helper()
	cmd, cancel := bounded(suiteTimeout, name, args...)
	defer cancel()
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &exit) || exit.ExitCode() < 0) {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return out
}

// aimed copies the files of a fetched folder and has them name another server: pairs are what to replace, and
// each must be found.
func aimed(t *testing.T, from, to string, files []string, pairs ...string) {
	t.Helper()
	var all strings.Builder
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(from, f))
		if err != nil {
			t.Fatal(err)
		}
		all.Write(b)
		if err := os.WriteFile(filepath.Join(to, f), []byte(strings.NewReplacer(pairs...).Replace(string(b))), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(all.String(), pairs[i]) {
			t.Fatalf("%s: no file contains %q", from, pairs[i])
		}
	}
}

func runRedislock(t *testing.T, addr string) map[string]bool {
	dir, err := adoptedGo()
	if err != nil {
		t.Fatal(err)
	}
	return goTests(t, unpacked(t, dir, "github.com/bsm/redislock", "127.0.0.1:6379", addr), nil)
}

func runRedsync(t *testing.T, addr string) map[string]bool {
	dir, err := adoptedGo()
	if err != nil {
		t.Fatal(err)
	}
	// Its ports are among those that connections of others may have.
	to := unpacked(t, dir, "github.com/go-redsync/redsync/v4", "51200", "12200")
	standIn := filepath.Join(to, "tempredis")
	if err := errors.Join(os.Mkdir(standIn, 0o755),
		os.WriteFile(filepath.Join(standIn, "go.mod"), []byte("module github.com/stvp/tempredis\n\ngo 1.26\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	aimed(t, filepath.Join("adopt", "tempredis"), standIn, []string{"tempredis.go"})
	output(t, to, nil, "go", "mod", "edit", "-replace", "github.com/stvp/tempredis=./tempredis")
	// Each alone, since one that is refused ends its process.
	o := outcome{}
	for _, name := range strings.Fields(string(output(t, to, nil, "go", "test", "-list", "^Test", "."))) {
		if strings.HasPrefix(name, "Test") {
			o[name] = goTests(t, to, []string{"REDIS=" + addr}, "-run", "^"+name+"$")[name]
		}
	}
	return o
}

// unpacked is a copy of a module with other addresses in the tests of its first folder.
func unpacked(t *testing.T, dir, module string, pairs ...string) string {
	t.Helper()
	from := strings.TrimSpace(string(output(t, dir, nil, "go", "list", "-m", "-f", "{{.Dir}}", module)))
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	tests, err := fs.Glob(os.DirFS(from), "*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	aimed(t, from, to, tests, pairs...)
	return to
}

// goTests runs the tests of a folder.
func goTests(t *testing.T, dir string, env []string, args ...string) map[string]bool {
	t.Helper()
	out := output(t, dir, env, "go", append([]string{"test", "-count=1", "-json", "-timeout", "3m"}, append(args, ".")...)...)
	o := outcome{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var e struct{ Action, Test, Output string }
		if err := d.Decode(&e); err != nil {
			break
		}
		switch {
		case e.Test != "" && (e.Action == "pass" || e.Action == "fail"):
			o[e.Test] = e.Action == "pass"
		case strings.HasPrefix(e.Output, "    "): // what a test reports, not that it runs
			t.Logf("%s:%s", e.Test, strings.TrimSuffix(e.Output, "\n"))
		}
	}
	return o
}

func runRedlock(t *testing.T, addr string) map[string]bool {
	dir, err := nodeModules("adopt/node-tests")
	if err != nil {
		t.Fatal(err)
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(dir, "tests")
	if err := os.MkdirAll(to, 0o755); err != nil {
		t.Fatal(err)
	}
	aimed(t, filepath.Join(dir, "node_modules", "redlock"), to, []string{"test.js", "redlock.js"},
		"createClient()", fmt.Sprintf("createClient(%s, '%s')", port, host),
		"createClient({", fmt.Sprintf("createClient(%s, '%s', {", port, host),
		"(require('ioredis'))()", fmt.Sprintf("(require('ioredis'))(%s, '%s')", port, host),
		"{db: ", fmt.Sprintf("{host: '%s', port: %s, db: ", host, port))
	out := output(t, to, nil, filepath.Join("..", "node_modules", ".bin", "mocha"), "--exit", "--reporter", "json", "test.js")
	var report struct {
		Tests, Failures []struct {
			FullTitle string
			Err       struct{ Message string }
		}
	}
	if err := json.Unmarshal(out[max(0, bytes.IndexByte(out, '{')):], &report); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	o := outcome{}
	for _, test := range report.Tests {
		o[test.FullTitle] = true
	}
	for _, test := range report.Failures {
		o[test.FullTitle] = false
		t.Logf("%s: %s", test.FullTitle, test.Err.Message)
	}
	return o
}
